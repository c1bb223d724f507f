mod malformed;

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::*;
use crate::network::Join;
use crate::path::{Alteration, CrossTraffic, Discipline, Loss, QueueLimit};

const MINIMAL: &str = r#"title = "t"

[path]
rate = "1 Gbit/s"
delay = "10 ms"

[[method]]
name = "godwit"
label = "godwit"
client = "godwit"
server = "godwitd"
"#;

fn minimal() -> Scenario {
    parse("minimal", MINIMAL).expect("is one")
}

#[test]
fn all_embedded_scenarios_are_scenarios() {
    for entry in LIBRARY {
        let loaded = load(entry.name).unwrap_or_else(|error| panic!("{error}"));
        let quick = loaded.scenario.clone().quick();
        quick
            .check()
            .unwrap_or_else(|error| panic!("{}: {error:?}", entry.name));
        // With what starting and ending programs takes.
        let whole = |scenario: &Scenario| {
            let runs = (scenario.method.iter())
                .map(|m| scenario.cells(m).len() * scenario.repeats(m) as usize);
            scenario.least_seconds()
                + 2.0 * f64::from(u32::try_from(runs.sum::<usize>()).expect("few"))
        };
        for (variant, scenario, most) in [
            ("full", &loaded.scenario, 20.0 * 60.0),
            ("--quick", &quick, 2.0 * 60.0),
        ] {
            let least = whole(scenario);
            assert!(least < most, "{} {variant} takes {least} s", entry.name);
        }
        for method in &loaded.scenario.method {
            for cell in loaded.scenario.cells(method) {
                let network = loaded.scenario.network(&cell, method, 1);
                network
                    .check()
                    .unwrap_or_else(|error| panic!("{}: {error}", entry.name));
            }
        }
    }
}

#[test]
fn no_scenario_file_is_forgotten() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut files = BTreeSet::new();
    for family in fs::read_dir(&folder).expect("a folder") {
        let family = family.expect("an entry").path();
        for file in fs::read_dir(&family).expect("a folder") {
            let name = file.expect("an entry").path().with_extension("");
            let name = name.strip_prefix(&folder).expect("below it");
            files.insert(name.to_string_lossy().into_owned());
        }
    }
    let known: BTreeSet<String> = LIBRARY.iter().map(|e| e.name.to_owned()).collect();
    assert_eq!(files, known);
}

#[test]
fn unknown_scenarios_are_reported() {
    let error = load("no/such").expect_err("is nowhere");
    assert!(error.to_string().contains("--list"), "{error}");
}

#[test]
fn cells_are_all_combinations() {
    let mut scenario = minimal();
    scenario.sweep.channels = vec![1, 8];
    scenario.sweep.loss = vec![Share(0.0), Share(0.01)];
    let method = scenario.method[0].clone();
    let cells = scenario.cells(&method);
    let seen: Vec<(f64, u32)> = cells.iter().map(|c| (c.loss.0, c.channels)).collect();
    assert_eq!(seen, [(0.0, 1), (0.0, 8), (0.01, 1), (0.01, 8)]);
    let single = Method {
        channels: Some(3),
        ..method
    };
    assert_eq!(scenario.cells(&single).len(), 2);
    assert!(scenario.cells(&single).iter().all(|c| c.channels == 3));
}

#[test]
fn cells_become_networks() {
    let mut scenario = minimal();
    scenario.path.queue = QueueLength::Bdp(2.0);
    scenario.path.loss = Share(0.01);
    scenario.path.background = Share(0.5);
    scenario.path.red = Some(RedSpec {
        min: 5.0,
        max: 15.0,
        max_p: 0.1,
        w_q: 0.002,
    });
    scenario.load.push(Load::Tcp {
        flows: 3,
        buffer_max: None,
        from: None,
        until: None,
    });
    let cell = scenario.cells(&scenario.method[0])[0].clone();
    let network = scenario.network(&cell, &scenario.method[0], 7);
    network.check().expect("makes sense");
    assert_eq!(
        network.members.len(),
        4,
        "a pair for the transfer, one for the load"
    );
    assert_eq!(network.emulator.channels, 4);
    let paths = &network.joins[0].paths;
    // 2 x 1 Gbit/s x 20 ms = 5 MB.
    assert_eq!(paths.forward.queue.limit, QueueLimit::Bytes(5_000_000));
    assert!(matches!(paths.forward.queue.discipline, Discipline::Red(_)));
    assert_eq!(paths.forward.loss, Loss::Random { ratio: 0.01 });
    assert_eq!(paths.forward.cross_traffic[0].rate_bps, 500_000_000);
    assert_eq!(paths.back.loss, Loss::None);
    assert!(paths.back.cross_traffic.is_empty());
    assert_ne!(paths.forward.seed, paths.back.seed);
}

#[test]
fn several_transfers_get_hosts_of_their_own() {
    let mut scenario = minimal();
    let method = Method {
        transfers: 3,
        ..scenario.method[0].clone()
    };
    let cell = scenario.cells(&method)[0].clone();
    let names = |network: crate::network::NetworkConfig| -> Vec<String> {
        (network.members.into_iter())
            .map(|member| member.host.name)
            .collect()
    };
    let expected = ["left0", "left1", "left2", "right0", "right1", "right2"];
    assert_eq!(names(scenario.network(&cell, &method, 1)), expected);
    let busy = Cell {
        traffic: 4,
        ..cell.clone()
    };
    let network = scenario.network(&busy, &method, 1);
    assert_eq!(network.emulator.channels, 3 + 4);
    assert_eq!(names(network).len(), 8, "and a pair for other traffic");
    scenario.path = PathSpec::default();
    let network = scenario.network(&cell, &method, 1);
    network.check().expect("makes sense");
    assert_eq!(names(network), ["left0", "left1", "left2"]);
}

#[test]
fn third_parties_have_a_host_of_their_own() {
    let mut scenario = minimal();
    scenario.hosts.client_delay = Some(Time(0.002));
    let method = Method {
        direction: Direction::ThirdParty,
        ..scenario.method[0].clone()
    };
    let cell = scenario.cells(&method)[0].clone();
    let network = scenario.network(&cell, &method, 1);
    network.check().expect("makes sense");
    assert_eq!(network.members.len(), 3);
    assert_eq!(network.joins.len(), 3);
    assert_eq!(network.joins[1].paths.forward.delay_ns, 2_000_000);
}

#[test]
fn paths_change_in_order_and_background_keeps_its_share() {
    let text = format!(
        "{MINIMAL}\n[run]\nevolve = \"60 s\"\n\
         [[change]]\nat = \"40 s\"\ndelay = \"30 ms\"\nloss = \"1 %\"\n\
         [[change]]\nat = \"20 s\"\nrate = \"500 Mbit/s\"\nbackground = \"10 %\"\n"
    );
    let scenario = parse("x", &text).expect("is one");
    let cell = scenario.cells(&scenario.method[0])[0].clone();
    let background = Alteration::CrossTraffic(vec![CrossTraffic::constant(50_000_000)]);
    assert_eq!(
        scenario.alterations(&cell, &scenario.method[0]),
        [
            (20.0, "left>right", Alteration::RateBps(500_000_000)),
            (20.0, "right>left", Alteration::RateBps(500_000_000)),
            (20.0, "left>right", background),
            (40.0, "left>right", Alteration::DelayNs(30_000_000)),
            (40.0, "right>left", Alteration::DelayNs(30_000_000)),
            (
                40.0,
                "left>right",
                Alteration::Loss(Loss::Random { ratio: 0.01 })
            ),
        ]
        .map(|(at, link, to)| (at, link.to_owned(), to))
    );
    assert_eq!(scenario.steps(), [20.0, 40.0]);
}

#[test]
fn quick_shrinks_all_times_alike() {
    let text = format!(
        "{MINIMAL}tuner = \"apt\"\ntransfers = 2\nstagger = \"10 s\"\n\
         [run]\nevolve = \"60 s\"\n[quick]\nevolve = \"12 s\"\n\
         [[change]]\nat = \"40 s\"\ndelay = \"30 ms\"\n\
         [[load]]\nkind = \"compute\"\nprocesses = 4\nfrom = \"20 s\"\nuntil = \"30 s\"\n"
    );
    let scenario = parse("x", &text).expect("is one");
    assert_eq!(
        scenario.span(&scenario.method[0], &scenario.cells(&scenario.method[0])[0]),
        (40.0, 20.0)
    );
    let quick = scenario.quick();
    assert_eq!(quick.steps(), [4.0, 6.0, 8.0]);
    assert_eq!(quick.method[0].start_of(1), 2.0);
    assert_eq!(
        quick.span(&quick.method[0], &quick.cells(&quick.method[0])[0]),
        (8.0, 4.0)
    );
}

#[test]
fn quick_changes_what_it_names() {
    let text = format!(
        "{MINIMAL}\n[sweep]\nchannels = [1, 2, 4]\n[quick]\nrepeats = 2\n\
         measure = \"1 s\"\nsweep = {{ channels = [2] }}\n"
    );
    let quick = parse("x", &text).expect("is one").quick();
    assert_eq!(quick.sweep.channels, [2]);
    assert_eq!(quick.run.repeats, 2);
    assert_eq!(quick.run.ramp, RunSpec::default().ramp);
}

#[test]
fn series_are_what_varies_beside_axis_and_panels() {
    let mut scenario = minimal();
    scenario.sweep.channels = vec![1, 2];
    scenario.sweep.congestion_control = vec!["reno".into(), "bbr".into()];
    scenario.sweep.loss = vec![Share(0.0), Share(0.01)];
    assert_eq!(
        scenario.series_facets(),
        [Facet::Loss, Facet::CongestionControl]
    );
    scenario.figure.panels = vec![Facet::Loss];
    assert_eq!(scenario.series_facets(), [Facet::CongestionControl]);
    scenario.figure.x = X::Loss;
    scenario.figure.panels.clear();
    let expected = [Facet::CongestionControl, Facet::Channels];
    assert_eq!(scenario.series_facets(), expected);
}

fn with_nodes(direction: &str) -> Scenario {
    let text = format!(
        "{MINIMAL}direction = \"{direction}\"\n[sweep]\nnodes = [0, 2]\n\
         [[nodes.link]]\nnode = 2\nrate = \"250 Mbit/s\"\nloss = \"1 %\"\n\
         [run]\nevolve = \"60 s\"\n\
         [[change]]\nat = \"10 s\"\nnode = 1\nbecomes = \"killed\"\n\
         [[change]]\nat = \"20 s\"\nnode = 2\nbecomes = \"cut\"\n\
         [[change]]\nat = \"30 s\"\nrate = \"10 Mbit/s\"\n"
    );
    parse("x", &text).expect("is one")
}

#[test]
fn each_data_node_has_a_link_of_its_own() {
    for (direction, links, hosts) in [
        ("get", ["left0-1>right", "left0-2>right"], 4),
        ("put", ["left>right0-1", "left>right0-2"], 4),
        ("third-party", ["left0-1>right", "left0-2>right"], 7),
    ] {
        let scenario = with_nodes(direction);
        let method = &scenario.method[0];
        let cells = scenario.cells(method);
        assert_eq!(scenario.links_bps(&cells[0]), 1e9, "a server without nodes");
        assert_eq!(scenario.data_links(&cells[0], method), ["left>right"]);
        let cell = &cells[1];
        assert_eq!(scenario.links_bps(cell), 1.25e9);
        assert_eq!(scenario.data_links(cell, method), links);
        let network = scenario.network(cell, method, 1);
        network.check().expect("makes sense");
        assert_eq!(network.members.len(), hosts);
        let path = |link: &str| {
            let join = |join: &&Join| format!("{}>{}", join.from, join.to) == link;
            network
                .joins
                .iter()
                .find(join)
                .expect(link)
                .paths
                .forward
                .clone()
        };
        assert_eq!(path(links[0]).rate_bps, Some(1_000_000_000));
        assert_eq!(path(links[1]).rate_bps, Some(250_000_000));
        assert_eq!(path(links[1]).loss, Loss::Random { ratio: 0.01 });
        assert_ne!(path(links[0]).seed, path(links[1]).seed);
    }
}

#[test]
fn nodes_are_killed_cut_off_and_slowed() {
    let scenario = with_nodes("put");
    let method = &scenario.method[0];
    let cells = scenario.cells(method);
    let cell = &cells[1];
    assert_eq!(scenario.node_ends(cell), [(10.0, 1, NodeFate::Killed)]);
    assert_eq!(scenario.node_ends(&cells[0]), []);
    let altered = scenario.alterations(cell, method);
    let at = |time: f64| -> Vec<(&str, &Alteration)> {
        let then = altered.iter().filter(|(at, ..)| *at == time);
        then.map(|(_, link, to)| (link.as_str(), to)).collect()
    };
    let cut = [
        "right>right0-2",
        "right0-2>right",
        "left>right0-2",
        "right0-2>left",
    ];
    assert_eq!(at(10.0), []);
    assert_eq!(at(20.0), cut.map(|link| (link, &Alteration::Cut)));
    let slow = Alteration::RateBps(10_000_000);
    assert_eq!(at(30.0).len(), 4);
    assert!(at(30.0).iter().all(|(_, to)| **to == slow));
}

use super::*;
use crate::runner::{Choice, Course, Environment, Evolution, Fidelity, Outcome, Run, Sender};
use crate::scenario::{self, LIBRARY, Rate, Scenario};

/// Results as a run of the scenario might give them: goodput grows with channels up to the link.
fn results(name: &str) -> Results {
    let loaded = scenario::load(name).expect("is embedded");
    let scenario = loaded.scenario.clone();
    let mut runs = Vec::new();
    for repeat in 0..3_u32 {
        for method in &scenario.method {
            for cell in scenario.cells(method) {
                let capacity = scenario.path.capacity_bps(&cell);
                let wobble = 1.0 + 0.01 * f64::from(repeat);
                let goodput = (34e6 * f64::from(cell.channels)).min(capacity) * wobble;
                runs.push(Run {
                    number: u32::try_from(runs.len()).expect("few") + 1,
                    repeat,
                    attempt: 1,
                    seed: u64::from(repeat),
                    method: method.name.clone(),
                    cell,
                    result: Some(outcome(goodput)),
                    error: None,
                });
            }
        }
    }
    Results {
        folder: "results".into(),
        environment: Environment::now(name, false, &scenario),
        scenario,
        scenario_text: loaded.text,
        runs,
    }
}

fn outcome(goodput_bps: f64) -> Outcome {
    Outcome {
        goodput_bps,
        bytes: 1_000_000,
        seconds: 8.0,
        first_data_seconds: 0.1,
        channels_seen: 512,
        channels_mean: 30.0,
        transfers_bps: vec![goodput_bps],
        beside_bps: None,
        sender: Sender {
            in_flight_bytes: 86_000.0,
            rtt_ms: 20.1,
            ..Sender::default()
        },
        client_cpu_seconds: 1.0,
        server_cpu_seconds: 1.0,
        stolen_cpu_seconds: 0.0,
        other_cpu_seconds: 0.0,
        sharing: None,
        fidelity: Fidelity {
            lateness_p99_us: 90.0,
            ..Fidelity::default()
        },
        evolution: None,
    }
}

/// Whether every element that begins ends, in the right order, and attributes are quoted: what an
/// XML parser asks for first. Ours are written as XML, void elements included.
fn assert_well_formed(text: &str) {
    let mut open: Vec<String> = Vec::new();
    // Styles hold no markup, but `>` as a combinator would be allowed.
    let mut rest = text.strip_prefix("<!DOCTYPE html>").unwrap_or(text);
    while let Some(start) = rest.find('<') {
        let before = &rest[..start];
        assert!(
            !before.contains('>'),
            "a lone > before {:?}",
            &rest[start..].chars().take(40)
        );
        let end = rest[start..].find('>').expect("the element ends") + start;
        let element = &rest[start + 1..end];
        assert_eq!(element.matches('"').count() % 2, 0, "{element}");
        let name: String = element
            .trim_start_matches('/')
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric())
            .collect();
        assert!(!name.is_empty(), "{element}");
        if element.starts_with('/') {
            assert_eq!(open.pop().as_deref(), Some(name.as_str()), "{element}");
        } else if !element.ends_with('/') {
            open.push(name);
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "never end: {open:?}");
    for (at, _) in text.match_indices('&') {
        let entity = &text[at..text.len().min(at + 6)];
        assert!(entity.contains(';'), "a lone & in {entity}");
    }
}

#[test]
fn pages_are_well_formed_and_stand_alone() {
    for entry in LIBRARY {
        let page = page(&[results(entry.name)]);
        assert_well_formed(&page);
        for outside in [
            "src=",
            "href=\"http",
            "url(http",
            "@import",
            "<script",
            "<link",
        ] {
            assert!(!page.contains(outside), "{}: {outside}", entry.name);
        }
        assert!(
            !page.contains("NaN") && !page.contains("inf"),
            "{}",
            entry.name
        );
        assert!(page.contains("prefers-color-scheme: dark") && page.contains("@media print"));
    }
}

#[test]
fn figures_stand_alone() {
    for entry in LIBRARY {
        let files = svgs(&results(entry.name), "x");
        assert!(!files.is_empty(), "{}: something was measured", entry.name);
        for FigureFile { name, svg } in files {
            assert_well_formed(&svg);
            assert!(
                svg.starts_with("<svg xmlns=") && svg.contains("<style>"),
                "{}: {name}",
                entry.name
            );
            assert!(!svg.contains("NaN"), "{}: {name}", entry.name);
        }
    }
}

#[test]
fn a_page_has_all_its_parts_in_order() {
    let page = page(&[results("apt-impl/evolution"), results("nordugrid/clients")]);
    let parts = [
        "<h1>Results of the godwit lab</h1>",
        "<nav>",
        "<section id=\"s0\">",
        "<h2>Goodput against parallel channels, 1 Gbit/s",
        "<svg",
        "model, W = 64 KiB",
        "model, W = 86 KB measured",
        ">paper</text>",
        "<figcaption>",
        "<h3>The paper and here</h3>",
        "<td>900 Mbit/s</td>",
        "<h3>What was expected</h3>",
        "✓ yes",
        "<h3>Measurements</h3>",
        "<h3>How it was measured</h3>",
        "<h3>Environment</h3>",
        "<summary>The scenario</summary>",
        "<section id=\"s1\">",
        "curl",
        "</html>",
    ];
    let mut at = 0;
    for part in parts {
        let found = page[at..].find(part);
        at += found.unwrap_or_else(|| panic!("{part} is missing, or too early"));
    }
}

#[test]
fn what_names_and_errors_hold_cannot_break_a_page() {
    let mut results = results("apt-impl/evolution");
    results.scenario.title = "<b>&\"'".into();
    results.scenario.method[0].label = "</table><script>".into();
    results.environment.command = "a < b && c".into();
    assert_well_formed(&page(std::slice::from_ref(&results)));
    assert_well_formed(&svgs(&results, "x")[0].svg);
}

#[test]
fn unfaithful_and_failed_runs_are_left_out_and_told() {
    let mut results = results("apt-impl/evolution");
    let first = results.runs.len() / 3;
    let outcome = results.runs[0].result.as_mut().expect("did not fail");
    outcome.goodput_bps = 1e6;
    outcome.fidelity.unfaithful = vec!["late".into()];
    results.runs[first].result = None;
    results.runs[first].error = Some("gone".into());
    let groups = group::groups(&results);
    let goodput = groups[0].goodput().expect("one is left");
    assert_eq!(
        goodput.count, 1,
        "the unfaithful and the failed one do not count"
    );
    assert!((goodput.mean - 34e6 * 1.02 / 1e6).abs() < 1e-6);
    assert_eq!(groups[0].remarks(), "1 unfaithful left out, 1 failed");
    let page = page(std::slice::from_ref(&results));
    assert!(page.contains("1 unfaithful left out, 1 failed"));
    assert!(page.contains("1 of "), "and how many in all");
}

#[test]
fn nothing_measured_is_a_page_too() {
    let mut results = results("apt-impl/evolution");
    results.runs.clear();
    assert!(svgs(&results, "x").is_empty());
    assert_well_formed(&page(std::slice::from_ref(&results)));
    let mut text = Vec::new();
    summarise(&results, &mut text).expect("can be written");
    assert!(String::from_utf8_lossy(&text).contains("not measured"));
}

#[test]
fn expectations_are_judged() {
    let mut results = results("apt-impl/evolution");
    let said = |results: &Results| {
        let mut text = Vec::new();
        summarise(results, &mut text).expect("can be written");
        String::from_utf8(text).expect("UTF-8")
    };
    let text = said(&results);
    assert!(text.contains("as expected: goodput is linear"), "{text}");
    assert!(!text.contains("NOT AS EXPECTED"), "{text}");
    assert!(
        text.contains("paper, goodput there (Fig. 5): 900 Mbit/s"),
        "{text}"
    );
    results.scenario.expect[1].at_least = Some(Rate(2e9));
    let text = said(&results);
    assert!(
        text.contains("NOT AS EXPECTED: 32 channels fill the link"),
        "{text}"
    );
}

const TUNED: &str = r#"
title = "A tuner beside two static settings, one change"

[path]
rate = "1 Gbit/s"
delay = "10 ms"

[sweep]
channels = [4, 32]

[run]
evolve = "30 s"

[[change]]
at = "15 s"
rate = "500 Mbit/s"

[[method]]
name = "static"
label = "static"
client = "godwit"
server = "godwitd"

[[method]]
name = "apt"
label = "apt"
client = "godwit"
server = "godwitd"
tuner = "apt"

[[method]]
name = "both"
label = "two at once"
client = "godwit"
server = "godwitd"
tuner = "apt"
transfers = 2
stagger = "5 s"

[[paper]]
what = "until it is there"
value = "40 s"
ours = "convergence"

[[paper]]
what = "where it settles"
value = "32"
ours = "best-channels"

[[expect]]
what = "it is there soon, and again after the change"
methods = ["apt"]
steady_at_least = "98 %"
converges_within = "5 s"
adapts_within = "2 s"
regret_at_most = "10 %"
channels_at_most = 1.0

[[expect]]
what = "two share"
jain_at_least = 0.95
"#;

/// A run whose transfers have these courses: so many bins of a value, in Mbit/s.
fn evolving(scenario: &Scenario, method: usize, cell: usize, courses: &[&[(usize, f64)]]) -> Run {
    let transfers: Vec<Course> = (courses.iter())
        .map(|parts| Course {
            goodput_bps: (parts.iter())
                .flat_map(|&(count, mbps)| std::iter::repeat_n(mbps * 1e6, count))
                .collect(),
            channels: vec![30; 60],
            choices: vec![Choice {
                seconds: 2.5,
                concurrency: 1,
                parallelism: 30,
                reason: "more <is> better".into(),
            }],
        })
        .collect();
    let steady = |course: &Course| course.goodput_bps.last().copied().unwrap_or(0.0);
    let transfers_bps: Vec<f64> = transfers.iter().map(steady).collect();
    let method = &scenario.method[method];
    Run {
        number: 1,
        repeat: 0,
        attempt: 1,
        seed: 1,
        method: method.name.clone(),
        cell: scenario.cells(method)[cell].clone(),
        result: Some(Outcome {
            beside_bps: Some(100e6),
            evolution: Some(Evolution {
                bin_seconds: 0.5,
                transfers,
                beside_bps: vec![100e6; 60],
            }),
            transfers_bps: transfers_bps.clone(),
            ..outcome(transfers_bps.iter().sum())
        }),
        error: None,
    }
}

fn tuned() -> Results {
    let scenario = scenario::parse("tuned", TUNED).expect("is one");
    let runs = vec![
        evolving(&scenario, 0, 0, &[&[(30, 140.0), (30, 140.0)]]),
        evolving(&scenario, 0, 1, &[&[(30, 960.0), (30, 480.0)]]),
        // Half for 3 s, then as good as the best; after the change, 1 s of nothing.
        evolving(
            &scenario,
            1,
            0,
            &[&[(6, 480.0), (24, 960.0), (2, 0.0), (28, 480.0)]],
        ),
        evolving(
            &scenario,
            2,
            0,
            &[&[(30, 480.0), (30, 240.0)], &[(10, 0.0), (50, 240.0)]],
        ),
    ];
    Results {
        folder: "results".into(),
        environment: Environment::now("tuned", false, &scenario),
        scenario,
        scenario_text: TUNED.into(),
        runs,
    }
}

#[test]
fn tuners_are_held_against_the_best_static_setting_of_each_phase() {
    let results = tuned();
    let groups = group::groups(&results);
    let judged = judged::judged(&results, &groups);
    assert_eq!(
        judged.len(),
        2,
        "static settings are what others are held against"
    );
    let [apt, both] = [&judged[0], &judged[1]];
    assert_eq!(apt.settled, [3.0, 1.0]);
    assert!((apt.steady.expect("known").mean - 1.0).abs() < 1e-9);
    // 3 s at half of 960 and 1 s of 480, of 15 s of each.
    let lost = (3.0 * 480.0 + 480.0) / (15.0 * 960.0 + 15.0 * 480.0);
    assert!((apt.regret.expect("known") - lost).abs() < 1e-9, "{apt:?}");
    assert_eq!((apt.fewest, apt.channels), (Some(32), Some(30.0)));
    assert_eq!(apt.jain, None);
    assert!((apt.beside.expect("known").1 - 100.0 / 580.0).abs() < 1e-9);
    assert_eq!(both.jain, Some(1.0));
    assert!(
        both.settled.is_empty(),
        "the second has not begun when the first is there"
    );
}

#[test]
fn what_evolves_is_drawn_told_and_judged() {
    let results = tuned();
    let files = svgs(&results, "x");
    let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["x.svg", "x-time.svg"]);
    let drawn = &files[1].svg;
    assert_well_formed(drawn);
    for part in [
        "best static",
        "load or path changes",
        "2.5 s: 1 x 30: more &lt;is&gt; better",
    ] {
        assert!(drawn.contains(part), "{part}");
    }
    let (page, figures) = markdown(&results, "x");
    assert_eq!(figures, files);
    for part in [
        "![A tuner beside two static settings, one change](x-time.svg)",
        "## Against the best static setting",
        "| until it is there | 40 s | apt: 3.0 s |",
        "apt: 30.0 (settled)",
        "| ✓ yes | it is there soon, and again after the change | \
         apt: 100 % of the best static<br>apt: there after 3.0 s<br>\
         apt: slowest adaptation 1.0 s<br>apt: 8.89 % lost on the way<br>\
         apt: 30.0 channels where 32 suffice |",
        "| ✓ yes | two share | two at once: Jain's index 1.000 |",
        "evolve run for 30 s",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    let mut text = Vec::new();
    summarise(&results, &mut text).expect("can be written");
    let text = String::from_utf8(text).expect("UTF-8");
    assert!(text.contains("there after, s"), "{text}");
}

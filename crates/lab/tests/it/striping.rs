//! Our client and the striped server of the reference implementation, whose data nodes are at
//! addresses of their own; and ours of one node with it.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    os::unix::fs::symlink,
    path::Path,
    process::Command,
};

use godwit_lab::peers::{
    Finished, Process,
    gct::{GctServer, URL_COPY},
    godwit::{self, Godwitd},
    grid::{Grid, HOST_SUBJECT},
    process::{Options, Stream},
};

use crate::support::{
    LONG, Need, Site, assert_holds, assert_same, files_below, have, stored_below, wait_until,
    write_noise, write_sparse,
};

const NEEDS: &[Need] = &[Need::Gct, Need::Godwit, Need::Godwitd];

/// Bytes of a file that goes to all stripes.
const LARGE: usize = 40_000_001;

/// Bytes of a file that takes long enough for something to happen on the way.
const HUGE: usize = (300 << 20) + 1;

/// A grid, and servers of it.
struct Place {
    grid: Grid,
}

impl Place {
    fn new() -> Option<Place> {
        let all: Vec<IpAddr> = (1..=8).map(node).collect();
        have(NEEDS).then(|| Place {
            grid: Grid::new(&all).expect("makes a grid"),
        })
    }

    /// The reference implementation's, its front end at 127.0.0.1 and a data node at each of the
    /// others.
    fn striped(&self, nodes: &[u8]) -> Site {
        let nodes: Vec<IpAddr> = nodes.iter().copied().map(node).collect();
        Site::gct(|root| {
            let config = GctServer::serving(root).data_nodes_at(&nodes);
            let config = config.protects_nodes(HOST_SUBJECT);
            self.grid.of_gct(config).start().expect("starts")
        })
    }

    /// Ours, of one node.
    fn ours(&self) -> Site {
        Site::godwitd(|root| {
            let config = self.grid.of_godwitd(Godwitd::serving(root));
            config.start().expect("starts")
        })
    }

    /// Ours, its front end at 127.0.0.1 and a data node at each of the others. The nodes end with
    /// what comes with it.
    fn ours_striped(&self, nodes: &[u8]) -> (Site, Vec<Process>) {
        self.ours_striped_for(false, nodes)
    }

    /// The same, for anybody or for `users` of the grid.
    fn ours_striped_for(&self, users: bool, nodes: &[u8]) -> (Site, Vec<Process>) {
        let [cert, key] = self.grid.node();
        let link = [
            ("--node-cert", cert),
            ("--node-key", key),
            ("--node-ca", self.grid.authority()),
        ];
        let mut running = Vec::new();
        let site = Site::godwitd(|root| {
            let mut contacts = Vec::new();
            for last in nodes {
                let mut command = Command::new(godwit::binary("godwitd").expect("present"));
                command.args([
                    "--data-node",
                    "--privsep=false",
                    "--front-ends",
                    HOST_SUBJECT,
                ]);
                command
                    .arg("--node-listen")
                    .arg(format!("{}:0", node(*last)));
                command.arg("--root").arg(root);
                command.args(
                    link.iter()
                        .flat_map(|(flag, path)| [(*flag).into(), path.clone()]),
                );
                if users {
                    command.arg("--trusted-certs").arg(self.grid.authorities());
                }
                let mut process = Process::spawn(command, Options::default()).expect("starts");
                let address = |line: &str| Some(line.strip_prefix("data node on ")?.to_owned());
                contacts.push(
                    process
                        .wait_for_line(Stream::Stdout, "say where it is", LONG, address)
                        .expect("listens"),
                );
                running.push(process);
            }
            let config = Godwitd::serving(root).arg("--allow-foreign-data-hosts");
            let config = match users {
                true => self.grid.of_godwitd(config),
                false => config.arg("--privsep=false"),
            };
            let config = (contacts.into_iter()).fold(config, |config, contact| {
                config.arg("--data-nodes").arg(contact)
            });
            let config =
                (link.iter()).fold(config, |config, (flag, path)| config.arg(*flag).arg(path));
            config.start().expect("starts")
        });
        (site, running)
    }

    fn run(&self, site: &Site, arguments: &[&str]) -> Finished {
        site.expect_ok(godwit::godwit_with(arguments, self.variables()))
    }

    /// Runs `godwit cp -vv`, which must succeed; what it says.
    #[track_caller]
    fn copies(&self, site: &Site, options: &[&str], from: &str, to: &str) -> String {
        let arguments = [&["cp", "-vv"][..], options, &[from, to]].concat();
        let finished = self.run(site, &arguments);
        let log = finished.log();
        assert!(finished.status.success(), "{log}\n{}", site.log());
        log
    }

    fn variables(&self) -> impl Iterator<Item = (std::ffi::OsString, std::ffi::OsString)> {
        let all = self.grid.of_user();
        all.into_iter()
            .map(|(name, path)| (name.into(), path.into()))
    }

    /// Starts `godwit cp`.
    fn starts(&self, options: &[&str], from: &str, to: &str) -> Process {
        let mut command = Command::new(godwit::binary("godwit").expect("present"));
        command.envs(self.variables());
        command
            .args(["cp", "-v", "--no-sparse", "--alone"])
            .args(options);
        command.args([from, to]);
        Process::spawn(command, Options::default()).expect("starts")
    }
}

fn node(last: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, last).into()
}

fn url(site: &Site, path: &str) -> String {
    site.url(path).replace("ftp://", "gsiftp://")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Bytes that each stripe has reported last.
fn stripe_bytes(log: &str) -> [u64; 2] {
    let mut bytes = [0, 0];
    let mut index = 0;
    for line in log.lines() {
        let value = |key| {
            let (_, rest) = line.split_once(key)?;
            rest.split_whitespace().next()?.parse::<u64>().ok()
        };
        if let Some(of) = value("Stripe Index:") {
            index = usize::try_from(of).expect("an index");
        } else if let Some(moved) = value("Stripe Bytes Transferred:") {
            bytes[index] = moved;
        }
    }
    bytes
}

#[test]
fn a_put_goes_to_all_nodes_of_a_striped_server() {
    let Some(place) = Place::new() else { return };
    let site = place.striped(&[2, 3]);
    let source = site.local("source");
    let bytes = write_noise(&source, LARGE, 1);
    for options in [&["-p", "1"][..], &["-p", "3"], &["-c", "3", "-p", "2"]] {
        let name = options.concat();
        let log = place.copies(&site, options, text(&source), &url(&site, &name));
        assert!(log.contains("-> SPAS"), "{log}");
        assert_holds(&site.at(&name), &bytes);
        let moved = stripe_bytes(&log);
        assert!(moved.iter().any(|bytes| *bytes > 0), "{moved:?}\n{log}");
    }
    let one = url(&site, "one");
    let log = place.copies(&site, &["--no-striping"], text(&source), &one);
    assert!(log.contains("-> PASV") && !log.contains("-> SPAS"), "{log}");
    assert_holds(&site.at("one"), &bytes);
}

#[test]
fn a_get_takes_what_a_striped_server_sends() {
    let Some(place) = Place::new() else { return };
    let site = place.striped(&[2, 3]);
    let bytes = write_noise(&site.at("f"), LARGE, 2);
    for channels in ["1", "3"] {
        let target = site.local(channels);
        place.copies(&site, &["-p", channels], &url(&site, "f"), text(&target));
        assert_holds(&target, &bytes);
    }
}

#[test]
fn striped_servers_copy_from_each_other() {
    let Some(place) = Place::new() else { return };
    for (sources, targets) in [
        (&[2, 3][..], &[4, 5][..]),
        (&[2], &[3, 4]),
        (&[2, 3, 4], &[5]),
    ] {
        let (from, to) = (place.striped(sources), place.striped(targets));
        let bytes = write_noise(&from.at("f"), LARGE, 3);
        for options in [&["-p", "1"][..], &["-p", "3"], &["-c", "2", "-p", "2"]] {
            let name = options.concat();
            let log = place.copies(&to, options, &url(&from, "f"), &url(&to, &name));
            assert_eq!(log.contains("-> SPOR"), targets.len() > 1, "{log}");
            assert_holds(&to.at(&name), &bytes);
        }
        assert_eq!(files_below(&to.at("")), 3, "no temporary file stays");
    }
}

#[test]
fn our_server_of_one_node_copies_from_and_to_a_striped_one() {
    let Some(place) = Place::new() else { return };
    let (ours, theirs) = (place.ours(), place.striped(&[2, 3]));
    for (from, to, spreads) in [(&ours, &theirs, true), (&theirs, &ours, false)] {
        let bytes = write_noise(&from.at("f"), LARGE, 4);
        for options in [&["-p", "1"][..], &["-p", "4"], &["-c", "3", "-p", "2"]] {
            let name = options.concat();
            let log = place.copies(to, options, &url(from, "f"), &url(to, &name));
            assert_eq!(log.contains("-> SPOR"), spreads, "{log}");
            assert_holds(&to.at(&name), &bytes);
        }
        fs::remove_file(from.at("f")).expect("removes");
    }
}

/// One stripe for what is small: the data channels of a pipeline stay.
#[test]
fn small_files_are_not_striped() {
    let Some(place) = Place::new() else { return };
    let site = place.striped(&[2, 3]);
    let folder = site.local("tree");
    fs::create_dir(&folder).expect("a directory");
    for n in 0..30 {
        write_noise(&folder.join(n.to_string()), 100_000, n);
    }
    write_noise(&folder.join("large"), LARGE, 99);
    let to = url(&site, "tree");
    let log = place.copies(&site, &["-r", "-c", "1"], text(&folder), &to);
    assert_eq!(log.matches("-> SPAS").count(), 1, "{log}");
    for entry in fs::read_dir(&folder).expect("reads") {
        let name = entry.expect("an entry").file_name();
        assert_same(&folder.join(&name), &site.at("tree").join(&name));
    }
}

#[test]
fn the_log_of_events_tells_of_stripes() {
    let Some(place) = Place::new() else { return };
    let (from, to) = (place.striped(&[2, 3]), place.striped(&[4, 5]));
    write_sparse(&from.at("f"), 2 << 30);
    let events = to.local("events");
    let options = [
        "-p",
        "2",
        "-c",
        "1",
        "--no-verify",
        "--events",
        text(&events),
    ];
    place.copies(&to, &options, &url(&from, "f"), &url(&to, "f"));
    let explained = place.run(&to, &["explain", text(&events)]).stdout_text();
    let log = fs::read_to_string(&events).expect("reads");
    assert!(log.contains("\"stripes\":2"), "{log}");
    assert!(explained.contains("2 stripes x 2"), "{explained}");
}

#[test]
fn a_copy_goes_on_where_a_striped_server_was_left() {
    let Some(place) = Place::new() else { return };
    let (from, to) = (place.striped(&[2, 3]), place.striped(&[4, 5]));
    write_noise(&from.at("f"), HUGE, 7);
    let client = place.starts(
        &["-p", "2", "--no-verify"],
        &url(&from, "f"),
        &url(&to, "f"),
    );
    wait_until("some has arrived", || stored_below(&to.at("")) > 64 << 20);
    client.stop().expect("is killed");
    let before = stored_below(&to.at(""));
    let again = place.starts(
        &["-p", "2", "--no-verify"],
        &url(&from, "f"),
        &url(&to, "f"),
    );
    let finished = to.expect_ok(again.wait(LONG));
    let story = format!("{before}\n{}\n{}", finished.log(), to.log());
    assert!(finished.status.success(), "{story}");
    assert_same(&from.at("f"), &to.at("f"));
    assert_eq!(files_below(&to.at("")), 1, "no temporary file stays");
}

/// A node of either server: the attempt fails, and the next one brings the rest.
#[test]
fn a_copy_goes_on_where_a_node_of_the_reference_server_died() {
    let Some(place) = Place::new() else { return };
    for source_dies in [false, true] {
        let (from, to) = (place.striped(&[2, 3]), place.striped(&[4, 5]));
        write_noise(&from.at("f"), HUGE, 8);
        let options = ["-p", "2", "--no-verify", "--retries", "20"];
        let mut client = place.starts(&options, &url(&from, "f"), &url(&to, "f"));
        wait_until("some has arrived", || stored_below(&to.at("")) > 64 << 20);
        let dies = if source_dies { &from } else { &to };
        dies.gct_server().crash_node_transfers(1).expect("kills");
        let retries = |line: &str| line.contains("trying ").then_some(());
        client
            .wait_for_line(Stream::Stderr, "try again", LONG, retries)
            .unwrap_or_else(|error| panic!("{error}\n{}\n{}", from.log(), to.log()));
        let finished = to.expect_ok(client.wait(LONG));
        let story = format!("{}\n{}\n{}", finished.log(), from.log(), to.log());
        assert!(finished.status.success(), "{story}");
        assert_same(&from.at("f"), &to.at("f"));
        assert_eq!(files_below(&to.at("")), 1, "no temporary file stays");
    }
}

/// Their front ends leave it out.
#[test]
fn a_copy_goes_round_a_node_that_is_gone() {
    let Some(place) = Place::new() else { return };
    let (from, to) = (place.striped(&[2, 3]), place.striped(&[4, 5, 6]));
    let bytes = write_noise(&from.at("f"), LARGE, 5);
    to.gct_server().crash_node(1).expect("kills");
    let log = place.copies(&to, &[], &url(&from, "f"), &url(&to, "f"));
    assert!(!log.contains("127,0,0,5,"), "{log}");
    assert_holds(&to.at("f"), &bytes);
    from.gct_server().crash_node(0).expect("kills");
    place.copies(&to, &[], &url(&from, "f"), &url(&to, "g"));
    assert_holds(&to.at("g"), &bytes);
}

/// What the reference implementation's own pairing does, with its client.
#[test]
fn globus_url_copy_stripes_between_striped_servers() {
    let Some(place) = Place::new() else { return };
    let (from, to) = (place.striped(&[2, 3]), place.striped(&[4, 5]));
    let bytes = write_noise(&from.at("f"), LARGE, 6);
    let subject = ["-ss", HOST_SUBJECT, "-ds", HOST_SUBJECT];
    for (n, options) in [&["-p", "2"][..], &["-sbs", "100000"], &["-fast", "-p", "3"]]
        .into_iter()
        .enumerate()
    {
        let name = n.to_string();
        let ends = [url(&from, "f"), url(&to, &name)];
        let mut command = URL_COPY.command().expect("present");
        command.envs(place.variables());
        command
            .args(["-dbg", "-stripe"])
            .args(subject)
            .args(options);
        command.args(ends);
        let client = Process::spawn(command, Options::default()).expect("starts");
        let finished = to.expect_ok(client.wait(LONG));
        assert!(finished.status.success(), "{}", finished.log());
        assert!(finished.log().contains("SPOR "), "{}", finished.log());
        assert_holds(&to.at(&name), &bytes);
    }
}

/// Its data channels prove nothing, so the user names its nodes.
#[test]
fn our_striped_server_takes_and_gives_large_files() {
    let Some(place) = Place::new() else { return };
    let (from, _source_nodes) = place.ours_striped(&[2, 3]);
    let (to, _target_nodes) = place.ours_striped(&[4, 5]);
    let hosts: Vec<String> = (2..=5)
        .flat_map(|last| ["--data-host".to_owned(), node(last).to_string()])
        .collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let options = [&["-p", "2"], &hosts[..]].concat();
    let source = from.local("source");
    let bytes = write_noise(&source, LARGE, 9);
    let log = place.copies(&from, &options, text(&source), &from.url("f"));
    assert!(log.contains("-> SPAS"), "{log}");
    assert_holds(&from.at("f"), &bytes);
    let back = from.local("back");
    let log = place.copies(&from, &options, &from.url("f"), text(&back));
    assert!(log.contains("-> SPOR"), "all nodes send: {log}");
    assert_holds(&back, &bytes);
    let log = place.copies(&to, &options, &from.url("f"), &to.url("g"));
    assert!(log.contains("-> SPOR"), "{log}");
    assert_holds(&to.at("g"), &bytes);
}

/// By the name of the reference client, with its arguments.
fn ours_as_url_copy(folder: &Path) -> Command {
    let link = folder.join("globus-url-copy");
    if !link.exists() {
        symlink(godwit::binary("godwit").expect("present"), &link).expect("a link");
    }
    Command::new(link)
}

/// In each pairing of striped servers: files that arrive, and exit statuses.
#[test]
fn our_client_ends_as_the_reference_client_does() {
    let Some(place) = Place::new() else { return };
    let (theirs, theirs_too) = (place.striped(&[2, 3]), place.striped(&[4, 5]));
    let (ours, _nodes) = place.ours_striped_for(true, &[2, 3]);
    let (ours_too, _others) = place.ours_striped_for(true, &[6, 7]);
    let folder = ours.local("");
    let pairings = [
        (&theirs, &theirs_too, "theirs to theirs"),
        (&theirs, &ours, "theirs to ours"),
        (&ours, &theirs, "ours to theirs"),
        (&ours, &ours_too, "ours to ours"),
    ];
    for (from, to, pairing) in pairings {
        let bytes = write_noise(&from.at("f"), LARGE, 11);
        for options in [&["-stripe"][..], &["-stripe", "-p", "2", "-sbs", "100000"]] {
            for (source, target) in [("f", "new"), ("none", "new"), ("f", "none/new")] {
                let ends = [url(from, source), url(to, target)];
                let status_of = |mut command: Command| {
                    drop(fs::remove_file(to.at(target)));
                    command.envs(place.variables()).env("HOME", &folder);
                    command.args(["-ss", HOST_SUBJECT, "-ds", HOST_SUBJECT]);
                    command.args(options).args(&ends);
                    let client = Process::spawn(command, Options::default()).expect("starts");
                    let finished = to.expect_ok(client.wait(LONG));
                    if finished.status.success() {
                        assert_holds(&to.at(target), &bytes);
                    }
                    let log = format!("{}\n{}\n{}", finished.log(), from.log(), to.log());
                    (finished.status.code(), log)
                };
                let (wanted, original_log) = status_of(URL_COPY.command().expect("present"));
                let (found, log) = status_of(ours_as_url_copy(&folder));
                let case = format!("{pairing}, {options:?}, {source} to {target}");
                assert_eq!(found, wanted, "{case}:\n{original_log}\n{log}");
                let succeeds = (source, target) == ("f", "new");
                assert_eq!(found == Some(0), succeeds, "{case}:\n{log}");
            }
        }
        fs::remove_file(from.at("f")).expect("removes");
        drop(fs::remove_file(to.at("new")));
    }
}

#[test]
fn blocks_of_stripes_are_asked_for_in_the_size_that_was_given() {
    let Some(place) = Place::new() else { return };
    let (from, to) = (place.striped(&[2, 3]), place.striped(&[4, 5]));
    let bytes = write_noise(&from.at("f"), LARGE, 12);
    let mut command = ours_as_url_copy(&from.local(""));
    command.envs(place.variables());
    command.args(["-dbg", "-ss", HOST_SUBJECT, "-ds", HOST_SUBJECT]);
    command.args(["-sbs", "300K", &url(&from, "f"), &url(&to, "f")]);
    let client = Process::spawn(command, Options::default()).expect("starts");
    let finished = to.expect_ok(client.wait(LONG));
    let log = finished.log();
    assert!(finished.status.success(), "{log}");
    assert!(
        log.contains("StripeLayout=Blocked;BlockSize=307200;"),
        "{log}"
    );
    assert_holds(&to.at("f"), &bytes);
}

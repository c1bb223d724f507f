//! Servers with several addresses for the data of one transfer, and servers that only say so.

use std::{
    fs,
    io::Write as _,
    net::{SocketAddr, TcpListener},
    path::Path,
    thread,
    time::{Duration, SystemTime},
};

use godwit_server::{
    Anonymous, DataNode, DataNodes, NodeAddress, NodeKeys, NodeSettings, NodeTls, ServerSettings,
};

use crate::harness::{Ran, Served, bytes, run, text};
use crate::interposed::interposed;

/// Bytes of a file that would go to all stripes.
const LARGE: usize = (16 << 20) + 5;

/// `server`, whose replies are changed.
fn saying(server: &Served, replies: impl Fn(String) -> String + Send + Sync + 'static) -> String {
    url(interposed(server.address, |line| line, replies))
}

/// `server`, which does not know a verb.
fn without(server: &Served, verb: &'static str) -> String {
    let commands = move |line: String| match line.starts_with(verb) {
        true => "WHAT".to_owned(),
        false => line,
    };
    url(interposed(server.address, commands, |line| line))
}

fn url(address: SocketAddr) -> String {
    format!("ftp://{address}")
}

/// A line of a reply to SPAS, or what carries an address in another.
fn is_address(line: &str) -> bool {
    line.starts_with(" 127,0,0,1,")
}

/// Copies a large file to `target`, from here or from `source`, and compares it.
#[track_caller]
fn copy(options: &[&str], source: Option<&Served>, target: &str, at: &Served) -> Ran {
    let data = bytes(LARGE, 3);
    let here = tempfile::tempdir().unwrap();
    let local = here.path().join("f");
    let from = match source {
        Some(server) => {
            fs::write(server.path("f"), &data).unwrap();
            server.url("/f")
        }
        None => {
            fs::write(&local, &data).unwrap();
            text(&local).to_owned()
        }
    };
    let target = format!("{target}/g");
    let arguments = [&["cp", "-vv"][..], options, &[&from, &target]].concat();
    let ran = run(&arguments).expect(0, &[]);
    assert!(fs::read(at.path("g")).unwrap() == data);
    ran
}

#[track_caller]
fn assert_told_once(ran: &Ran, what: &str) {
    assert_eq!(ran.err.matches(what).count(), 1, "{}", ran.err);
}

#[test]
fn a_server_with_one_address_is_asked_once() {
    let to = Served::start();
    let here = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c"] {
        fs::write(here.path().join(name), bytes(LARGE, 1)).unwrap();
    }
    let target = to.url("/there");
    let ran = run(&["cp", "-vv", "-r", "-c", "2", text(here.path()), &target]);
    let ran = ran.expect(0, &["3 files"]);
    let asked = ran.err.matches("-> SPAS").count();
    assert!(
        (1..=2).contains(&asked),
        "each session at most: {}",
        ran.err
    );
    for name in ["a", "b", "c"] {
        let there = to.path("there").join(name);
        assert!(fs::read(there).unwrap() == bytes(LARGE, 1), "{name}");
    }
}

#[test]
fn no_striping_is_obeyed() {
    let (from, to) = (Served::start(), Served::start());
    for source in [None, Some(&from)] {
        let ran = copy(&["--no-striping"], source, &to.url(""), &to);
        assert!(!ran.err.contains("-> SPAS"), "{}", ran.err);
    }
}

#[test]
fn a_server_that_refuses_spas_takes_one_stripe() {
    let (from, to) = (Served::start(), Served::start());
    let target = without(&to, "SPAS");
    for source in [None, Some(&from)] {
        let ran = copy(&["-c", "2"], source, &target, &to);
        assert_told_once(&ran, "one stripe takes all");
        assert!(ran.err.contains("-> PASV"), "{}", ran.err);
    }
}

#[test]
fn a_source_that_refuses_spor_sends_one_stripe() {
    let (from, to) = (Served::start(), Served::start());
    fs::write(from.path("f"), bytes(LARGE, 3)).unwrap();
    let twice = |line: String| match is_address(&line) {
        true => format!("{line}\r\n{line}"),
        false => line,
    };
    let target = format!("{}/g", saying(&to, twice));
    let source = format!("{}/f", without(&from, "SPOR"));
    let ran = run(&["cp", "-vv", "-c", "2", &source, &target]).expect(0, &["-> PORT"]);
    assert_told_once(&ran, "one stripe takes all");
    assert!(fs::read(to.path("g")).unwrap() == bytes(LARGE, 3));
}

/// Nothing proves that they belong to the server.
#[test]
fn stripes_on_other_hosts_are_not_followed_in_the_clear() {
    let (from, to) = (Served::start(), Served::start());
    let elsewhere = |line: String| match is_address(&line) {
        true => " 192,0,2,1,200,1\r\n 192,0,2,2,200,1".to_owned(),
        false => line,
    };
    let target = saying(&to, elsewhere);
    for source in [None, Some(&from)] {
        let ran = copy(&["-c", "2"], source, &target, &to);
        assert_told_once(&ran, "it has its stripes on other hosts (192.0.2.1:51201)");
        assert!(!ran.err.contains("-> SPOR"), "{}", ran.err);
    }
}

/// As a server with data nodes does: its host refuses data connections, its nodes accept them.
#[test]
fn a_server_with_data_on_other_hosts_is_told_of_with_what_helps() {
    let to = Served::start();
    let elsewhere = |line: String| match line.split_once("(127,0,0,1,") {
        // A port below those that servers use.
        Some((code, _)) if code.starts_with("227 ") => {
            "227 Entering Passive Mode (127,9,9,9,4,1).".to_owned()
        }
        _ => line,
    };
    let target = saying(&to, elsewhere);
    let here = tempfile::tempdir().unwrap();
    let local = here.path().join("f");
    for bytes in [1000, LARGE] {
        fs::write(&local, vec![7; bytes]).unwrap();
        let ran = run(&[
            "cp",
            "--no-striping",
            "--retries",
            "1",
            text(&local),
            &format!("{target}/g"),
        ]);
        assert_ne!(ran.code, 0, "{}", ran.err);
        for what in ["127.9.9.9:1025", "--data-host 127.9.9.9", "DCAU"] {
            assert!(ran.err.contains(what), "{bytes}: {}", ran.err);
        }
    }
}

#[test]
fn absurd_addresses_of_stripes_are_refused() {
    let to = Served::start();
    let many = "\r\n 127,0,0,1,200,1".repeat(256);
    for (lines, why) in [
        (" 127,0,0,1,200,256".to_owned(), "cannot be read"),
        (" nothing".to_owned(), "cannot be read"),
        (format!(" 127,0,0,1,200,1{many}"), "more than 256"),
        (
            " 127,0,0,1,200,1\r\n 127,0,0,1,0,22".to_owned(),
            "127.0.0.1:22",
        ),
    ] {
        let changed = move |line: String| match is_address(&line) {
            true => lines.clone(),
            false => line,
        };
        let ran = copy(&[], None, &saying(&to, changed), &to);
        assert_told_once(&ran, why);
    }
}

/// Markers of stripes that a server cannot have cost neither memory nor the copy.
#[test]
fn a_receiver_that_lies_about_its_stripes_is_bounded() {
    let (from, to) = (Served::start(), Served::start());
    for (index, count) in [
        ("0", "4294967295"),
        ("4294967294", "4294967295"),
        ("7", "1"),
        ("0", "0"),
    ] {
        let lies = move |line: String| match line.trim().split_once(": ") {
            Some(("Stripe Index", _)) => format!(" Stripe Index: {index}"),
            Some(("Total Stripe Count", _)) => format!(" Total Stripe Count: {count}"),
            _ => line,
        };
        copy(&[], Some(&from), &saying(&to, lies), &to);
    }
}

#[test]
fn stripes_of_ipv6_are_asked_for() {
    let (from, to) = ["[::1]:0"; 2].map(|at| Served::start_at(at, |_| {})).into();
    for source in [None, Some(&from)] {
        let ran = copy(&[], source, &to.url(""), &to);
        assert!(ran.err.contains("-> SPAS 2"), "{}", ran.err);
    }
}

/// Data nodes in this process, all with the address of loopback, which end with it.
fn nodes_of(settings: &mut ServerSettings, keys: &Path, listen: &[&str]) {
    let made = NodeKeys {
        directory: keys.to_owned(),
        lifetime: Duration::from_secs(3600),
        force: false,
    };
    let now = SystemTime::now();
    made.authority("Site", now).unwrap();
    let tls = |name: &str, host: &str| {
        let pair = made.issue(name, &[host.to_owned()], now).unwrap();
        NodeTls {
            cert: pair.cert,
            key: pair.key,
            authorities: keys.join("site-ca.pem"),
        }
    };
    let mut addresses = Vec::new();
    for (number, listen) in listen.iter().enumerate() {
        let listen: SocketAddr = listen.parse().unwrap();
        let node = NodeSettings {
            listen,
            front_ends: vec!["/O=Site/CN=front".to_owned()],
            users: None,
            tls: tls(&format!("dtn{number}"), &listen.ip().to_string()),
        };
        let mut of_node = ServerSettings::new(&settings.root, Anonymous::Off);
        of_node.data_address = settings.data_address.clone();
        let (sender, receiver) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let node = DataNode::bind(of_node, &node).unwrap();
                sender.send(node.local_addr()).unwrap();
                node.run(std::future::pending()).await;
            });
        });
        let address = receiver.recv_timeout(Duration::from_secs(60)).unwrap();
        addresses.push(address.to_string().parse::<NodeAddress>().unwrap());
    }
    settings.data_nodes = Some(DataNodes {
        addresses,
        tls: tls("front", "front.example"),
    });
}

fn has_ipv6() -> bool {
    let has = TcpListener::bind("[::1]:0").is_ok();
    if !has {
        let mut out = std::io::stderr().lock();
        let _ = writeln!(out, "skipped: this machine has no IPv6");
    }
    has
}

/// From all nodes, and to all.
#[test]
fn nodes_of_ipv6_move_files_striped() {
    if !has_ipv6() {
        return;
    }
    let keys = tempfile::tempdir().unwrap();
    let served = Served::start_at("[::1]:0", |settings| {
        nodes_of(settings, keys.path(), &["[::1]:0"; 2]);
    });
    let ran = copy(&[], None, &served.url(""), &served);
    assert!(ran.err.contains("-> SPAS 2"), "{}", ran.err);
    assert!(ran.err.matches("|2|::1|").count() >= 2, "{}", ran.err);
    let here = tempfile::tempdir().unwrap();
    let local = here.path().join("back");
    let ran = run(&["cp", "-vv", &served.url("/g"), text(&local)]).expect(0, &[]);
    assert!(ran.err.contains("-> SPOR |2|::1|"), "{}", ran.err);
    assert!(fs::read(&local).unwrap() == bytes(LARGE, 3));
}

/// No node can be reached by the family that the client has come by.
#[test]
fn a_node_of_ipv4_alone_is_named_to_clients_of_ipv6() {
    if !has_ipv6() {
        return;
    }
    let keys = tempfile::tempdir().unwrap();
    let served = Served::start_at("[::1]:0", |settings| {
        nodes_of(settings, keys.path(), &["127.0.0.1:0"]);
    });
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("f"), b"x").unwrap();
    let from = here.path().join("f");
    let ran = run(&["cp", "--retries", "1", text(&from), &served.url("/f")]);
    assert_ne!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("data node 127.0.0.1:"), "{}", ran.err);
    assert!(ran.err.contains("data-address"), "{}", ran.err);
    // An address is enough, wherever the link is.
    let keys = tempfile::tempdir().unwrap();
    let served = Served::start_at("[::1]:0", |settings| {
        settings.data_address = vec!["::1".parse().unwrap()];
        nodes_of(settings, keys.path(), &["127.0.0.1:0"]);
    });
    run(&["cp", text(&from), &served.url("/f")]).expect(0, &["1 file"]);
    assert_eq!(fs::read(served.path("f")).unwrap(), b"x");
}

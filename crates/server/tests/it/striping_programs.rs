//! Programs and data nodes: godwitd as it is started, and globus-url-copy as its client.

use std::{
    fs,
    io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    os::unix::fs::MetadataExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use godwit_server::NodeTls;
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    client::{EOD, EOF, block, comma_address, connect, data_block},
    harness::{TestServer, eventually, pattern},
    nodes::{Site, TestNode},
    program::{Program, field, godwitd},
};

/// `godwitd --data-node`, which ends with its owner.
pub(crate) struct NodeProgram {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
}

pub(crate) fn arguments_of(tls: &NodeTls) -> Vec<String> {
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let (cert, ca) = (path(&tls.cert), path(&tls.authorities));
    ["--node-cert", &cert, "--node-ca", &ca]
        .map(str::to_owned)
        .to_vec()
}

impl NodeProgram {
    fn start(site: &Site, number: u8) -> Self {
        Self::with(site, number, site.path(), &["--privsep=false"])
    }

    pub(crate) fn with(site: &Site, number: u8, root: &Path, more: &[&str]) -> Self {
        let host = format!("127.0.0.{number}");
        let mut child = godwitd()
            .args(["--data-node", "--front-ends", "/O=Site/CN=front"])
            .args(more)
            .args(["--node-listen", &format!("{host}:0"), "--root"])
            .arg(root)
            .args(arguments_of(&site.tls(&format!("dtn{number}"), &[&host])))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("data node on ").unwrap();
        Self {
            address: address.parse().unwrap(),
            child,
        }
    }

    /// Stops all its threads: the signal alone lets some go on for a moment.
    fn stop(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.child.id());
        eventually("it stands still", || {
            fs::read_dir(&tasks).unwrap().all(|task| {
                let status = fs::read_to_string(task.unwrap().path().join("status"));
                status.is_ok_and(|status| field(&status, "State").starts_with('T'))
            })
        });
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for NodeProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn programs_are_front_end_and_data_node() {
    let site = Site::new();
    let node = NodeProgram::start(&site, 2);
    let mut arguments = arguments_of(&site.tls("front", &["front.example"]));
    let address = node.address.to_string();
    let root = site.path().to_str().unwrap();
    let more = [
        "--data-nodes",
        &address,
        "--privsep=false",
        "--anonymous",
        "rw",
        "--root",
        root,
    ];
    arguments.extend(more.map(str::to_owned));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let front = Program::start(&arguments);
    let mut ftp = crate::client::Ftp::connect(front.address);
    ftp.await_code(220);
    ftp.login();
    assert_eq!(ftp.put("STOR /f", b"bytes").code, 226);
    assert_eq!(ftp.pasv().ip(), node.address.ip());
    // Root does nothing in the name of users unless it is told to.
    let refused = godwitd()
        .args(
            arguments
                .iter()
                .filter(|argument| **argument != "--privsep=false"),
        )
        .output()
        .unwrap();
    if rustix::process::geteuid().is_root() {
        assert_eq!(refused.status.code(), Some(2));
        let text = String::from_utf8(refused.stderr).unwrap();
        assert!(text.starts_with("godwitd: data-nodes: "), "{text}");
    }
}

/// In this process, in which the front end is.
fn is_open(path: &Path) -> bool {
    let ours = fs::read_dir("/proc/self/fd").unwrap();
    let mut targets = ours.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    targets.any(|target| target == path)
}

/// The front end has opened one file when the name goes to another.
#[test]
fn a_node_refuses_a_name_that_has_gone_to_another_file() {
    let site = Site::new();
    let node = NodeProgram::start(&site, 2);
    let server = site.front_end(&[node.address]);
    let at = |name: &str| site.path().canonicalize().unwrap().join(name);
    fs::write(at("f"), b"one").unwrap();
    fs::write(at("other"), b"other").unwrap();
    let mut ftp = server.login();
    let data = ftp.passive();
    node.stop();
    ftp.send("STOR /f");
    eventually("the front end has opened it", || is_open(&at("f")));
    fs::rename(at("other"), at("f")).unwrap();
    node.signal(Signal::CONT);
    let reply = ftp.final_reply().1;
    assert_eq!(reply.code, 451, "{reply:?}");
    let text = reply.text();
    assert!(text.contains(&node.address.to_string()), "{text}");
    assert!(text.contains("repeat the command"), "{text}");
    drop(data);
    assert_eq!(fs::read(at("f")).unwrap(), b"other");
    assert_eq!(ftp.get("RETR /f"), b"other");
}

/// A machine that stands still closes no connection.
#[test]
fn a_node_that_says_nothing_any_more_is_noticed() {
    let site = Site::new();
    let nodes = [2, 3].map(|number| NodeProgram::start(&site, number));
    let server = site.front_end(&nodes.each_ref().map(|node| node.address));
    let mut ftp = server.login();
    ftp.expect("MODE E", 200);
    let reply = ftp.expect("SPAS", 229);
    let addresses: Vec<_> = reply.lines[1..3].iter().map(|l| comma_address(l)).collect();
    ftp.send("STOR /f");
    let mut data: Vec<_> = addresses.iter().map(|address| connect(*address)).collect();
    ftp.await_code(150);
    data[0].write_all(&data_block(0, b"abcd")).unwrap();
    data[0].write_all(&block(EOF | EOD, 0, 1, b"")).unwrap();
    nodes[1].stop();
    let stopped = Instant::now();
    let (markers, reply) = ftp.final_reply();
    assert_eq!(reply.code, 426, "{reply:?}");
    let why = format!("data node {}: it does not answer", nodes[1].address);
    assert!(reply.text().contains(&why), "{reply:?}");
    let said: Vec<_> = markers
        .iter()
        .filter(|m| m.code == 111)
        .map(|m| m.text())
        .collect();
    assert_eq!(said, ["Range Marker 0-4"]);
    // Far below what a lost connection takes to be noticed by TCP, or by the transfer (60 s).
    assert!(
        stopped.elapsed() < Duration::from_secs(20),
        "{:?}",
        stopped.elapsed()
    );
    // What the node has in hand goes into the file that it has opened. Other bytes under the same
    // name are another file, also for sessions that begin after a reload.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let entered = runtime.enter();
    server.reloader.reload(server.settings.clone()).unwrap();
    drop(entered);
    let mut ftp = server.login();
    ftp.expect("MODE E", 200);
    let before = fs::metadata(site.path().join("f")).unwrap();
    let mut data = ftp.passive();
    ftp.send("STOR /f");
    ftp.await_code(150);
    data.write_all(&data_block(0, b"whole")).unwrap();
    data.write_all(&block(EOF | EOD, 0, 1, b"")).unwrap();
    assert_eq!(ftp.final_reply().1.code, 226);
    nodes[1].signal(Signal::CONT);
    let after = fs::metadata(site.path().join("f")).unwrap();
    assert_ne!(before.ino(), after.ino());
    assert_eq!(before.mode(), after.mode());
    assert_eq!(fs::read(site.path().join("f")).unwrap(), b"whole");
}

/// It has bytes in its sockets when it is given up, and another has the file when it wakes up.
#[test]
fn a_node_that_wakes_up_writes_nothing_any_more() {
    let site = Site::new();
    let node = NodeProgram::start(&site, 2);
    let server = site.front_end(&[node.address]);
    // What the kernel moves by itself (splice), and what it does not.
    for (name, bytes) in [("large", 100_000), ("small", 100)] {
        eventually("the node is well", || {
            server.login().call("PASV").code == 227
        });
        let path = site.path().join(name);
        let mut ftp = server.login();
        ftp.expect("MODE E", 200);
        let mut data = ftp.passive();
        ftp.send(&format!("STOR /{name}"));
        ftp.await_code(150);
        data.write_all(&data_block(0, b"abcd")).unwrap();
        eventually("the first bytes are written", || {
            fs::read(&path).is_ok_and(|bytes| bytes == b"abcd")
        });
        node.stop();
        data.write_all(&data_block(4, &pattern(bytes, 1))).unwrap();
        let (_, reply) = ftp.final_reply();
        assert_eq!(reply.code, 426, "{reply:?}");
        // Into the same file.
        fs::write(&path, b"what others wrote").unwrap();
        let before = fs::metadata(&path).unwrap();
        node.signal(Signal::CONT);
        let limit = Some(Duration::from_secs(20));
        data.set_read_timeout(limit).unwrap();
        let ended = data.read(&mut [0; 10]);
        assert!(
            !ended
                .as_ref()
                .is_err_and(|e| e.kind() == ErrorKind::WouldBlock),
            "the node has given it up: {ended:?}"
        );
        let after = fs::metadata(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"what others wrote", "{name}");
        let changed = |metadata: &fs::Metadata| (metadata.mtime(), metadata.mtime_nsec());
        assert_eq!(changed(&after), changed(&before), "{name}");
    }
}

/// Its client has lost the control connection, which ends the session at once. A session that comes
/// after it gives the file another name when the node is known to be quiet.
#[test]
fn a_node_that_wakes_up_after_its_session_writes_nothing_under_another_name() {
    let site = Site::new();
    let node = NodeProgram::start(&site, 2);
    let server = site.front_end(&[node.address]);
    for (name, bytes) in [("large", 100_000), ("small", 100)] {
        eventually("the node is well", || {
            server.login().call("PASV").code == 227
        });
        let path = site.path().canonicalize().unwrap().join(name);
        let mut ftp = server.login();
        ftp.expect("MODE E", 200);
        let mut data = ftp.passive();
        ftp.send(&format!("STOR /{name}"));
        ftp.await_code(150);
        data.write_all(&data_block(0, b"abcd")).unwrap();
        eventually("the first bytes are written", || {
            fs::read(&path).is_ok_and(|bytes| bytes == b"abcd")
        });
        node.stop();
        data.write_all(&data_block(4, &pattern(bytes, 1))).unwrap();
        assert!(is_open(&path));
        drop(ftp);
        eventually("the session has ended", || !is_open(&path));
        let mut ftp = server.login();
        ftp.expect(&format!("RNFR /{name}"), 350);
        ftp.expect(&format!("RNTO /whole-{name}"), 250);
        let path = site.path().join(format!("whole-{name}"));
        let before = fs::metadata(&path).unwrap();
        node.signal(Signal::CONT);
        data.set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let ended = data.read(&mut [0; 10]);
        assert!(
            !ended
                .as_ref()
                .is_err_and(|e| e.kind() == ErrorKind::WouldBlock),
            "the node has given it up: {ended:?}"
        );
        let after = fs::metadata(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"abcd", "{name}");
        let changed = |metadata: &fs::Metadata| (metadata.mtime(), metadata.mtime_nsec());
        assert_eq!(changed(&after), changed(&before), "{name}");
    }
}

/// Runs globus-url-copy; false where it is not installed.
fn guc(arguments: &[&str]) -> bool {
    let mut command = Command::new("globus-url-copy");
    let output = match command.args(arguments).stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) => {
            let mut out = std::io::stderr().lock();
            let _ = writeln!(out, "skipped: globus-url-copy: {error}");
            return false;
        }
    };
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {text}");
    true
}

fn url(server: &TestServer, name: &str) -> String {
    format!("ftp://{}/{name}", server.address)
}

#[test]
fn globus_url_copy_stores_and_fetches_striped() {
    let site = Site::new();
    let nodes = [2, 3, 4].map(|number| site.node(number));
    let server = site.front_end(&nodes.each_ref().map(|node| node.address));
    let local = tempfile::tempdir().unwrap();
    let bytes = pattern(20_000_000, 7);
    fs::write(local.path().join("f"), &bytes).unwrap();
    let file = |name: &str| format!("file://{}", local.path().join(name).display());
    for (name, options) in [("a", &["-p", "1"][..]), ("b", &["-p", "4"])] {
        let (from, at, to) = (file("f"), url(&server, name), file(name));
        let put = [&["-stripe"], options, &[&from, &at]].concat();
        if !guc(&put) {
            return;
        }
        assert!(fs::read(site.path().join(name)).unwrap() == bytes, "{name}");
        let get = [&["-stripe"], options, &[&at, &to]].concat();
        assert!(guc(&get));
        assert!(
            fs::read(local.path().join(name)).unwrap() == bytes,
            "{name}"
        );
    }
}

#[test]
fn globus_url_copy_stores_and_fetches_striped_over_ipv6() {
    if TcpListener::bind("[::1]:0").is_err() {
        println!("skipped: this machine has no IPv6");
        return;
    }
    let site = Site::new();
    let nodes = [2, 3].map(|number| {
        let mut settings = site.node_settings(number);
        let node = settings.node.as_mut().unwrap();
        node.listen = "[::1]:0".parse().unwrap();
        node.tls = site.tls(&format!("dtn{number}"), &["::1"]);
        TestNode::start(settings)
    });
    let server = site.front_end_with(&nodes.each_ref().map(|node| node.address), |settings| {
        settings.listen = vec!["[::1]:0".parse().unwrap()];
    });
    let mut ftp = server.login();
    ftp.expect("MODE E", 200);
    let reply = ftp.expect("SPAS 2", 229);
    let lines = &reply.lines[1..3];
    assert!(lines.iter().all(|l| l.starts_with("|2|::1|")), "{reply:?}");
    assert_ne!(lines[0], lines[1]);
    let local = tempfile::tempdir().unwrap();
    let bytes = pattern(20_000_000, 9);
    fs::write(local.path().join("f"), &bytes).unwrap();
    let file = |name: &str| format!("file://{}", local.path().join(name).display());
    let at = url(&server, "g");
    let options = ["-ipv6", "-stripe", "-p", "2"];
    if !guc(&[&options[..], &[&file("f"), &at]].concat()) {
        return;
    }
    assert!(fs::read(site.path().join("g")).unwrap() == bytes);
    assert!(guc(&[&options[..], &[&at, &file("h")]].concat()));
    assert!(fs::read(local.path().join("h")).unwrap() == bytes);
}

#[test]
fn globus_url_copy_copies_between_two_striped_servers() {
    let (here, there) = (Site::new(), Site::new());
    let sources = [2, 3].map(|number| here.node(number));
    let sinks = [4, 5, 6].map(|number| there.node(number));
    let source = here.front_end(&sources.each_ref().map(|node| node.address));
    let sink = there.front_end(&sinks.each_ref().map(|node| node.address));
    let bytes = pattern(30_000_000, 8);
    fs::write(here.path().join("f"), &bytes).unwrap();
    fs::write(here.path().join("empty"), b"").unwrap();
    for options in [
        &["-p", "2"][..],
        &["-p", "2", "-sbs", "100000"],
        &["-p", "1"],
    ] {
        fs::remove_file(there.path().join("f")).ok();
        let urls = [url(&source, "f"), url(&sink, "f")];
        if !guc(&[&["-stripe"], options, &[&urls[0], &urls[1]]].concat()) {
            return;
        }
        assert!(
            fs::read(there.path().join("f")).unwrap() == bytes,
            "{options:?}"
        );
    }
    assert!(guc(&[
        "-stripe",
        &url(&source, "empty"),
        &url(&sink, "empty")
    ]));
    assert_eq!(fs::read(there.path().join("empty")).unwrap(), b"");
    // To and from a server without nodes.
    let plain = TestServer::with(|settings| settings.foreign_data_hosts = true);
    assert!(guc(&[
        "-stripe",
        "-p",
        "2",
        &url(&source, "f"),
        &url(&plain, "f")
    ]));
    assert!(plain.read("f") == bytes);
    assert!(guc(&[
        "-stripe",
        "-p",
        "2",
        &url(&plain, "f"),
        &url(&sink, "g")
    ]));
    assert!(fs::read(there.path().join("g")).unwrap() == bytes);
}

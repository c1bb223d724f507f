//! Two servers that do not reach each other, or only one way; and addresses of IPv6.

use std::{fs, net::SocketAddr};

use godwit_server::ServerSettings;
use tokio::net::TcpSocket;

use crate::harness::{Ran, Served, bytes, run};
use crate::interposed::interposed;

/// A server whose data ports are closed to all others.
fn behind_a_wall(server: &Served) -> String {
    // Bound and not listening: connections are refused, and no other test gets the port.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let replies = move |line: String| match line.starts_with("227 ") {
        true => {
            let port = closed.local_addr().unwrap().port();
            format!("227 here (127,0,0,1,{},{})", port >> 8, port & 255)
        }
        false => line,
    };
    url(interposed(server.address, |line| line, replies))
}

/// A server that does not know some verbs.
fn without(server: &Served, verbs: &'static [&str]) -> String {
    let commands = |line: String| match verbs.iter().any(|verb| line.starts_with(verb)) {
        true => "WHAT".to_owned(),
        false => line,
    };
    url(interposed(server.address, commands, |line| line))
}

fn url(address: SocketAddr) -> String {
    format!("ftp://{address}")
}

const LISTENING: &[&str] = &["PASV", "EPSV"];

/// Copies three files between two servers at these URLs. None is looked for in a listing, which
/// would come to us.
fn copy(from: &Served, to: &Served, source: &str, target: &str) -> Ran {
    fs::create_dir(from.path("top")).unwrap();
    for i in 0..3 {
        fs::write(from.path(&format!("top/f{i}")), bytes(300_000, i)).unwrap();
    }
    let sources = [0, 1, 2].map(|i| format!("{source}/top/f{i}"));
    let target = format!("{target}/there/");
    let mut arguments = vec!["cp", "-vv", "-c", "1", "-p", "2"];
    arguments.extend(sources.iter().map(String::as_str));
    arguments.push(&target);
    let ran = run(&arguments);
    for i in (0..3).filter(|_| ran.code == 0) {
        let got = fs::read(to.path(&format!("there/f{i}"))).unwrap();
        assert!(got == bytes(300_000, i), "f{i}");
    }
    ran
}

#[test]
fn a_receiver_that_cannot_be_reached_connects_to_the_sender() {
    let (from, to) = (Served::start(), Served::start());
    let target = behind_a_wall(&to);
    let ran = copy(&from, &to, &from.url(""), &target);
    let learned = format!("{target}: {} cannot connect to it", from.url(""));
    let ran = ran.expect(0, &[&learned, "Connection refused"]);
    assert_eq!(ran.err.matches(&learned).count(), 1, "{}", ran.err);
}

#[test]
fn a_receiver_that_does_not_listen_connects_to_the_sender() {
    let (from, to) = (Served::start(), Served::start());
    let target = without(&to, LISTENING);
    copy(&from, &to, &from.url(""), &target).expect(0, &["no PASV"]);
}

#[test]
fn if_neither_server_reaches_the_other_both_reasons_are_reported() {
    let (from, to) = (Served::start(), Served::start());
    let (source, target) = (behind_a_wall(&from), behind_a_wall(&to));
    let there = format!("{source} cannot connect to {target}, whose data ports may be closed");
    let back = format!("{target} cannot connect to {source}, whose data ports may be closed");
    copy(&from, &to, &source, &target).expect(4, &[&there, &back]);

    let (from, to) = (Served::start(), Served::start());
    let (source, target) = (behind_a_wall(&from), without(&to, LISTENING));
    let there = format!("{target} does not listen (PASV)");
    let back = format!("{target} cannot connect to {source}, whose data ports may be closed");
    copy(&from, &to, &source, &target).expect(4, &[&there, &back]);
}

fn open_to_all(settings: &mut ServerSettings) {
    settings.foreign_data_hosts = true;
}

#[test]
fn servers_have_addresses_of_ipv6() {
    let [from, to] = [(); 2].map(|()| Served::start_at("[::1]:0", |_| {}));
    copy(&from, &to, &from.url(""), &to.url("")).expect(0, &["-> EPSV", "-> EPRT |2|::1|"]);
}

#[test]
fn servers_of_both_kinds_of_addresses_reach_each_other() {
    let from = Served::start_with(open_to_all);
    let to = Served::start_at("[::1]:0", open_to_all);
    copy(&from, &to, &from.url(""), &to.url("")).expect(0, &["-> EPRT |2|::1|"]);
    let (to, from) = (
        Served::start_with(open_to_all),
        Served::start_at("[::1]:0", open_to_all),
    );
    copy(&from, &to, &from.url(""), &to.url("")).expect(0, &["-> PORT 127,0,0,1,"]);
}

#[test]
fn a_server_that_connects_to_no_other_host_is_connected_to() {
    let from = Served::start();
    let to = Served::start_at("[::1]:0", open_to_all);
    copy(&from, &to, &from.url(""), &to.url("")).expect(0, &["connects to no host but ours"]);

    let from = Served::start();
    let to = Served::start_at("[::1]:0", |_| {});
    let reasons = [from.url(""), to.url("")].map(|end| format!("{end} connects to no host but"));
    copy(&from, &to, &from.url(""), &to.url("")).expect(4, &[&reasons[0], &reasons[1]]);
}

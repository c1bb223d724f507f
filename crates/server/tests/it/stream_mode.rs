//! MODE S: whole files, parts, restarts, addresses, checks after a receipt.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener},
};

use crate::{
    client::{accept, comma_address, connect, port_command, read_all},
    harness::{TestServer, pattern},
};

#[test]
fn files_travel_both_ways() {
    let server = TestServer::start();
    let mut ftp = server.login();
    for length in [0, 1, 17, 65_536, 3_000_000] {
        let bytes = pattern(length, 1);
        assert_eq!(ftp.put("STOR /f", &bytes).code, 226);
        assert_eq!(server.read("f"), bytes);
        assert_eq!(ftp.get("RETR /f"), bytes);
    }
}

#[test]
fn active_connections() {
    let server = TestServer::start();
    let bytes = pattern(100_000, 2);
    server.write("f", &bytes);
    let mut ftp = server.login();
    let listener = ftp.active();
    ftp.send("RETR /f");
    let data = accept(&listener);
    ftp.await_code(150);
    assert_eq!(read_all(data), bytes);
    ftp.await_code(226);

    let listener = ftp.active();
    ftp.send("STOR /g");
    let mut data = accept(&listener);
    ftp.await_code(150);
    data.write_all(&bytes).unwrap();
    drop(data);
    ftp.await_code(226);
    assert_eq!(server.read("g"), bytes);
}

#[test]
fn extended_addresses_on_both_families() {
    let server = TestServer::start();
    server.write("f", b"abc");
    let mut ftp = server.login();
    for command in ["EPSV", "EPSV 1"] {
        let reply = ftp.expect(command, 229);
        let port = port_of(&reply.text());
        let data = connect(SocketAddr::new(server.address.ip(), port));
        ftp.expect("RETR /f", 150);
        assert_eq!(read_all(data), b"abc");
        ftp.await_code(226);
    }
    // The client came by IPv4, and no IPv6 address is configured.
    let reply = ftp.expect("EPSV 2", 522);
    assert!(reply.text().contains("(1)"), "{reply:?}");
    ftp.expect("EPSV 3", 501);

    if TcpListener::bind("[::1]:0").is_err() {
        println!("skipped: this machine has no IPv6");
        return;
    }
    let server = TestServer::with(|s| s.listen = vec!["[::1]:0".parse().unwrap()]);
    server.write("f", b"abc");
    let mut ftp = server.login();
    ftp.expect("PASV", 522);
    let port = port_of(&ftp.expect("EPSV", 229).text());
    let data = connect(SocketAddr::new(server.address.ip(), port));
    ftp.expect("RETR /f", 150);
    assert_eq!(read_all(data), b"abc");
    ftp.await_code(226);
    let listener = TcpListener::bind("[::1]:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    ftp.expect(&format!("EPRT |2|::1|{port}|"), 200);
    ftp.send("RETR /f");
    let data = accept(&listener);
    ftp.await_code(150);
    assert_eq!(read_all(data), b"abc");
    ftp.await_code(226);
}

/// The port of `(|||port|)` or `(|1|ip|port|)`.
fn port_of(text: &str) -> u16 {
    let (_, rest) = text.split_once('(').unwrap();
    rest.split('|').nth(3).unwrap().parse().unwrap()
}

#[test]
fn dual_stack_sessions_look_like_ipv4_to_ipv4_clients() {
    let Ok(probe) = TcpListener::bind("[::]:0") else {
        println!("skipped: this machine has no IPv6");
        return;
    };
    drop(probe);
    let server = TestServer::with(|s| s.listen = vec!["[::]:0".parse().unwrap()]);
    server.write("f", b"abc");
    let address = SocketAddr::from(([127, 0, 0, 1], server.address.port()));
    let mut ftp = crate::client::Ftp::connect(address);
    ftp.await_code(220);
    ftp.login();
    assert_eq!(ftp.pasv().ip(), address.ip());
    let listener = ftp.active();
    ftp.send("RETR /f");
    let data = accept(&listener);
    ftp.await_code(150);
    assert_eq!(read_all(data), b"abc");
    ftp.await_code(226);
}

#[test]
fn announced_address_can_differ() {
    let addresses = ["192.0.2.7", "2001:db8::7"].map(|text| text.parse().unwrap());
    let server = TestServer::with(|s| s.data_address = addresses.to_vec());
    let mut ftp = server.login();
    assert_eq!(ftp.pasv().ip().to_string(), "192.0.2.7");
    // Whether the client's host connects cannot be decided.
    ftp.expect("EPSV 2", 522);
    let server = TestServer::with(|s| {
        s.data_address = addresses.to_vec();
        s.foreign_data_hosts = true;
    });
    let mut ftp = server.login();
    let reply = ftp.expect("EPSV 2", 229);
    assert!(reply.text().contains("|2|2001:db8::7|"), "{reply:?}");
}

#[test]
fn ports_stay_in_the_range_and_come_free_again() {
    // A port that is free just now and not ephemeral: the kernel's choices begin at 32768.
    let first = 20_000 + u16::try_from(std::process::id() % 12_000).unwrap();
    let free = (first..32_768)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .unwrap();
    let server = TestServer::with(|s| s.port_range = Some(free..=free));
    let mut ftp = server.login();
    for _ in 0..3 {
        assert_eq!(ftp.pasv().port(), free);
    }
    let mut other = server.login();
    let reply = other.expect("PASV", 425);
    assert!(reply.text().contains("listen"), "{reply:?}");
    ftp.expect("QUIT", 221);
    ftp.expect_end();
    crate::harness::eventually("the port is free again", || other.call("PASV").code == 227);
}

#[test]
fn restart_in_both_forms() {
    let server = TestServer::start();
    let bytes = pattern(1000, 3);
    server.write("f", &bytes);
    let mut ftp = server.login();
    for rest in ["REST 400", "REST 0-400"] {
        ftp.expect(rest, 350);
        assert_eq!(ftp.get("RETR /f"), bytes[400..], "{rest}");
        // One-shot.
        assert_eq!(ftp.get("RETR /f"), bytes, "{rest}");

        server.write("g", &bytes[..400]);
        ftp.expect(rest, 350);
        assert_eq!(ftp.put("STOR /g", &bytes[400..]).code, 226, "{rest}");
        assert_eq!(server.read("g"), bytes, "{rest}");
    }
    ftp.expect("REST 0", 350);
    assert_eq!(ftp.put("STOR /g", b"short").code, 226);
    assert_eq!(server.read("g"), b"short", "REST 0 leaves nothing in place");
}

#[test]
fn appending_and_partial_transfers() {
    let server = TestServer::start();
    let mut ftp = server.login();
    assert_eq!(ftp.put("APPE /f", b"hello ").code, 226);
    assert_eq!(ftp.put("APPE /f", b"world").code, 226);
    assert_eq!(server.read("f"), b"hello world");
    assert_eq!(ftp.get("ERET P 6 3 /f"), b"wor");
    assert_eq!(ftp.get("ERET P 6 300 /f"), b"world");
    assert_eq!(ftp.get("ERET P 600 3 /f"), b"");
    assert_eq!(ftp.put("ESTO A 3 /f", b"XYZ").code, 226);
    assert_eq!(server.read("f"), b"helXYZworld");
    assert_eq!(ftp.put("STOR /f", b"new").code, 226);
    assert_eq!(server.read("f"), b"new");
}

#[test]
fn offsets_beyond_any_file_are_refused() {
    let server = TestServer::start();
    server.write("f", b"abc");
    let mut ftp = server.login();
    let reply = ftp.put(&format!("ESTO A {} /f", u64::MAX - 1), b"xyz");
    assert!(reply.code >= 400, "{reply:?}");
    ftp.expect(&format!("REST {}", u64::MAX - 1), 350);
    let reply = ftp.put("STOR /f", b"xyz");
    assert!(reply.code >= 400, "{reply:?}");
    assert_eq!(server.read("f"), b"abc");
    for past in [4, u64::MAX - 1] {
        ftp.expect(&format!("REST {past}"), 350);
        ftp.pasv();
        ftp.expect("RETR /f", 554);
    }
    ftp.expect("REST 3", 350);
    assert_eq!(ftp.get("RETR /f"), b"");
}

#[test]
fn a_store_under_a_name_of_ours_replaces_nothing() {
    let server = TestServer::start();
    let mut ftp = server.login();
    let mut names = Vec::new();
    for bytes in [b"one", b"two"] {
        let mut data = ftp.passive();
        let reply = ftp.expect("STOU", 150);
        let name = reply.text().strip_prefix("FILE: /").unwrap().to_owned();
        data.write_all(bytes).unwrap();
        drop(data);
        ftp.await_code(226);
        assert_eq!(server.read(&name), bytes);
        names.push(name);
    }
    assert_ne!(names[0], names[1]);
}

#[test]
fn ascii_converts_line_ends() {
    let server = TestServer::start();
    server.write("f", b"one\ntwo\n");
    let mut ftp = server.login();
    ftp.expect("TYPE A", 200);
    assert_eq!(ftp.get("RETR /f"), b"one\r\ntwo\r\n");
    assert_eq!(ftp.put("STOR /g", b"one\r\ntwo\r\nlast\r").code, 226);
    assert_eq!(server.read("g"), b"one\ntwo\nlast\r");
}

#[test]
fn zeros_without_end_and_nowhere() {
    let server = TestServer::at(std::path::Path::new("/"), |_| {});
    let mut ftp = server.login();
    assert_eq!(ftp.get("ERET P 0 100000 /dev/zero"), vec![0; 100_000]);
    assert_eq!(ftp.put("STOR /dev/null", &pattern(100_000, 4)).code, 226);
    assert_eq!(ftp.get("RETR /dev/null"), b"");
    // What takes everything has an end all the same.
    for kind in ["TYPE A", "TYPE I"] {
        ftp.expect(kind, 200);
        ftp.expect(&format!("REST {}", u64::MAX - 1), 350);
        let reply = ftp.put("STOR /dev/null", b"xyz");
        assert!(reply.code >= 400, "{kind}: {reply:?}");
    }
    // Without a region it sends until the client has had enough.
    let mut data = ftp.passive();
    ftp.expect("RETR /dev/zero", 150);
    data.read_exact(&mut vec![1; 1 << 20]).unwrap();
    drop(data);
    assert_eq!(ftp.reply().code, 426);
    ftp.expect("NOOP", 200);
}

#[test]
fn checksums_of_receipts_are_verified_before_success() {
    let server = TestServer::start();
    let mut ftp = server.login();
    ftp.expect("SCKS MD5 25f9e794323b453885f5181f1b624d0b", 200);
    assert_eq!(ftp.put("STOR /f", b"123456789").code, 226);
    ftp.expect("SCKS MD5 25f9e794323b453885f5181f1b624d0b", 200);
    let reply = ftp.put("STOR /f", b"12345678X");
    assert_eq!(reply.code, 550, "{reply:?}");
    assert!(reply.text().contains("INCORRECT_CHECKSUM"), "{reply:?}");
    // Asked for once.
    assert_eq!(ftp.put("STOR /f", b"12345678X").code, 226);
}

#[test]
fn attributes_of_receipts_are_set() {
    let server = TestServer::start();
    let mut ftp = server.login();
    ftp.expect("SITE STORATTR modify=20010203040506;", 250);
    assert_eq!(ftp.put("STOR /f", b"x").code, 226);
    assert_eq!(ftp.expect("MDTM /f", 213).text(), "20010203040506");
}

#[test]
fn commands_behind_a_transfer_wait_for_it() {
    let server = TestServer::start();
    let mut ftp = server.login();
    let mut data = ftp.passive();
    ftp.send_raw(b"STOR /f\r\nNOOP\r\nSIZE /f\r\nPWD\r\n");
    ftp.await_code(150);
    data.write_all(b"sixth.").unwrap();
    drop(data);
    ftp.await_code(226);
    ftp.await_code(200);
    assert_eq!(ftp.await_code(213).text(), "6");
    ftp.await_code(257);
}

#[test]
fn delayed_passive_announces_with_the_transfer() {
    let server = TestServer::start();
    server.write("f", b"abc");
    let mut ftp = server.login();
    ftp.expect("OPTS PASV AllowDelayed=1;", 200);
    ftp.expect("PASV", 200);
    let reply = ftp.expect("RETR /f", 127);
    let data = connect(comma_address(&reply.lines[0]));
    ftp.await_code(150);
    assert_eq!(read_all(data), b"abc");
    ftp.await_code(226);
    // PORT ends the mode.
    let listener = ftp.active();
    ftp.send("RETR /f");
    let data = accept(&listener);
    ftp.await_code(150);
    assert_eq!(read_all(data), b"abc");
    ftp.await_code(226);
    ftp.pasv();
}

#[test]
fn striped_addresses() {
    let server = TestServer::start();
    server.write("f", b"abc");
    let mut ftp = server.login();
    let reply = ftp.expect("SPAS", 229);
    assert_eq!(reply.lines.len(), 3, "{reply:?}");
    let data = connect(comma_address(&reply.lines[1]));
    ftp.expect("RETR /f", 150);
    assert_eq!(read_all(data), b"abc");
    ftp.await_code(226);

    let listener = crate::client::listen();
    let spor = port_command(listener.local_addr().unwrap()).replace("PORT", "SPOR");
    ftp.expect(&spor, 200);
    ftp.send("RETR /f");
    let data = accept(&listener);
    ftp.await_code(150);
    assert_eq!(read_all(data), b"abc");
    ftp.await_code(226);
}

#[test]
fn each_transfer_needs_its_own_address() {
    let server = TestServer::start();
    server.write("f", b"abc");
    let mut ftp = server.login();
    ftp.expect("RETR /f", 425);
    assert_eq!(ftp.get("RETR /f"), b"abc");
    ftp.expect("RETR /f", 425);
}

#[test]
fn transfer_to_an_address_without_listener_fails() {
    let server = TestServer::start();
    server.write("f", b"abc");
    let mut ftp = server.login();
    let listener = ftp.active();
    drop(listener);
    let reply = ftp.call("RETR /f");
    assert_eq!(reply.code, 425, "{reply:?}");
    ftp.expect("NOOP", 200);
}

//! What anonymous users must not do.

use std::{io::Write as _, net::Ipv4Addr};

use godwit_server::Anonymous;

use crate::{
    client::{connect, connect_from, expect_closed, listen, port_command, read_all},
    harness::TestServer,
};

#[test]
fn read_only_means_read_only() {
    let server = TestServer::with(|s| s.anonymous = Anonymous::Ro);
    server.write("f", b"abc");
    std::fs::create_dir(server.path("d")).unwrap();
    let mut ftp = server.login();
    assert_eq!(ftp.get("RETR /f"), b"abc");
    for command in [
        "MKD /x",
        "RMD /d",
        "DELE /f",
        "MFMT 20200101000000 /f",
        "SITE CHMOD 777 /f",
        "SITE TRNC 0 /f",
        "SITE RDEL /d",
        "SITE UTIME 20200101000000 /f",
    ] {
        ftp.expect(command, 550);
    }
    for command in ["STOR /f", "APPE /f", "ESTO A 0 /f", "STOR /new"] {
        ftp.pasv();
        ftp.expect(command, 550);
    }
    ftp.expect("RNFR /f", 350);
    ftp.expect("RNTO /g", 550);
    assert_eq!(server.read("f"), b"abc");
    assert!(!server.path("new").exists());
}

#[test]
fn anonymous_off_refuses_everybody() {
    let server = TestServer::with(|s| s.anonymous = Anonymous::Off);
    let mut ftp = server.connect();
    ftp.expect("USER anonymous", 331);
    ftp.expect("PASS x", 530);
    ftp.expect("LIST", 530);
}

#[test]
fn data_connections_go_only_to_the_client() {
    let server = TestServer::start();
    server.write("f", b"abc");
    let mut ftp = server.login();
    for command in [
        "PORT 127,0,0,2,200,1",
        "PORT 192,0,2,1,200,1",
        "EPRT |1|192.0.2.1|50000|",
        "SPOR 127,0,0,1,200,1 192,0,2,1,200,1",
        // Ports of other services, on the right host.
        "PORT 127,0,0,1,0,22",
        "EPRT |1|127.0.0.1|1023|",
    ] {
        ftp.expect(command, 501);
        ftp.expect("RETR /f", 425);
    }
}

const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

#[test]
fn data_connections_of_other_hosts_are_not_taken() {
    let server = TestServer::start();
    server.write("f", b"abc");
    let mut ftp = server.login();

    let port = ftp.pasv();
    let stranger = connect_from(STRANGER, port);
    ftp.send("RETR /f");
    expect_closed(stranger);
    let own = connect(port);
    ftp.await_code(150);
    assert_eq!(read_all(own), b"abc");
    ftp.await_code(226);

    let port = ftp.pasv();
    let mut stranger = connect_from(STRANGER, port);
    // It may be closed already.
    let _ = stranger.write_all(b"forged");
    ftp.send("STOR /g");
    expect_closed(stranger);
    let mut own = connect(port);
    ftp.await_code(150);
    own.write_all(b"own").unwrap();
    drop(own);
    ftp.await_code(226);
    assert_eq!(server.read("g"), b"own");
}

#[test]
fn data_connections_of_other_hosts_can_be_allowed() {
    let server = TestServer::with(|s| s.foreign_data_hosts = true);
    server.write("f", b"abc");
    let mut ftp = server.login();
    let other = connect_from(STRANGER, ftp.pasv());
    ftp.expect("RETR /f", 150);
    assert_eq!(read_all(other), b"abc");
    ftp.await_code(226);
}

#[test]
fn foreign_hosts_can_be_allowed_but_not_low_ports() {
    let server = TestServer::with(|s| s.foreign_data_hosts = true);
    server.write("f", b"abc");
    let mut ftp = server.login();
    ftp.expect("PORT 192,0,2,1,200,1", 200);
    ftp.expect("PORT 127,0,0,1,0,22", 501);
    let listener = listen();
    ftp.expect(&port_command(listener.local_addr().unwrap()), 200);
    ftp.send("RETR /f");
    let data = crate::client::accept(&listener);
    ftp.await_code(150);
    assert_eq!(read_all(data), b"abc");
    ftp.await_code(226);
}

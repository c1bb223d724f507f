//! Data channels that sessions have in all.

use std::{io::Write as _, net::TcpStream, process::Command};

use crate::{
    client::{EOD, EOF, Ftp, block, comma_address, connect},
    harness::{TestServer, eventually},
    privsep::JO,
    separated_logins::Site,
};

/// A session with two channels that wait for the next file.
fn with_two_channels(server: &TestServer) -> (Ftp, [TcpStream; 2]) {
    let mut ftp = server.login();
    ftp.expect("MODE E", 200);
    let address = ftp.pasv();
    let mut channels = [connect(address), connect(address)];
    ftp.send("STOR /f");
    channels[0]
        .write_all(&[block(EOF, 0, 2, b""), block(EOD, 1, 0, b"x")].concat())
        .unwrap();
    channels[1].write_all(&block(EOD, 0, 0, b"")).unwrap();
    ftp.await_code(150);
    let (_, reply) = ftp.final_reply();
    assert_eq!(reply.code, 226, "{reply:?}");
    (ftp, channels)
}

/// `ftp` gets no data channel of either kind until `first` has ended.
fn waits_for(server: &TestServer, mut ftp: Ftp, first: (Ftp, [TcpStream; 2]), why: &str) {
    let reply = ftp.put("STOR /g", b"abc");
    assert_eq!(reply.code, 451, "{reply:?}");
    assert!(reply.text().contains(why), "{reply:?}");
    let _listener = ftp.active();
    let reply = ftp.expect("RETR /f", 451);
    assert!(reply.text().contains(why), "{reply:?}");
    drop(first);
    // The server learns of the end in its own time.
    eventually("there is room", || ftp.put("STOR /g", b"abc").code == 226);
    assert_eq!(server.read("g"), b"abc");
}

#[test]
fn an_account_has_so_many_data_channels_and_no_more() {
    let server = TestServer::with(|settings| settings.bounds.channels_per_account = 2);
    let first = with_two_channels(&server);
    // Another account is not concerned.
    let mut other = server.connect();
    other.expect("USER ftp", 331);
    other.expect("PASS x", 230);
    assert_eq!(other.put("STOR /h", b"abc").code, 226);
    let why = "more than 2 data channels of one account";
    waits_for(&server, server.login(), first, why);
}

#[test]
fn an_address_has_so_many_data_channels_and_no_more() {
    let server = TestServer::with(|settings| settings.bounds.channels_per_address = 2);
    let first = with_two_channels(&server);
    let mut other = server.connect();
    other.expect("USER ftp", 331);
    other.expect("PASS x", 230);
    let why = "more than 2 data channels of one address";
    waits_for(&server, other, first, why);
}

#[test]
fn a_channel_above_the_limit_fails_its_transfer_at_once() {
    let server = TestServer::with(|settings| settings.bounds.channels_per_account = 1);
    let mut ftp = server.login();
    ftp.expect("MODE E", 200);
    let address = ftp.pasv();
    let _channels = [connect(address), connect(address)];
    ftp.send("STOR /f");
    let reply = ftp.reply();
    let reply = match reply.code {
        // The first was there before the second.
        150 => ftp.final_reply().1,
        _ => reply,
    };
    assert_eq!(reply.code, 451, "{reply:?}");
    ftp.expect("NOOP", 200);
}

#[test]
fn channels_of_a_killed_process_are_released() {
    let arguments = ["--allow-clear-passwords", "--max-channels-per-user", "1"];
    let Some(site) = Site::new(&arguments) else {
        return;
    };
    let login = || {
        let mut ftp = Ftp::connect(site.program.address);
        ftp.await_code(220);
        ftp.expect(&format!("USER {JO}"), 331);
        ftp.expect("PASS se cret", 230);
        ftp.expect("TYPE I", 200);
        ftp
    };
    let mut first = login();
    let [session] = site.program.children("privsep-session")[..] else {
        panic!("one session")
    };
    let mut other = login();
    let _data = connect(comma_address(&first.expect("PASV", 227).lines[0]));
    first.expect("STOR /jo/f", 150);
    let reply = other.put("STOR /jo/g", b"abc");
    assert_eq!(reply.code, 451, "{reply:?}");
    let mut kill = Command::new("kill");
    kill.args(["-KILL", &session.to_string()]);
    assert!(kill.status().unwrap().success());
    first.expect_end();
    eventually("there is room", || {
        other.put("STOR /jo/g", b"abc").code == 226
    });
}

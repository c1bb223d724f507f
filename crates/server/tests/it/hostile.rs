//! Clients that are broken, slow, or mean harm.

use std::{io::Write as _, net::TcpStream, time::Duration};

use crate::{
    client::{Ftp, connect, expect_closed, listen},
    harness::{TestServer, eventually, pattern},
};

#[test]
fn garbage_is_answered_or_cut_off() {
    let server = TestServer::start();
    for bytes in [
        vec![b'A'; 64 * 1024],
        [&vec![b'A'; 200 * 1024][..], b"\r\n"].concat(),
        b"USER a\0b\r\n".to_vec(),
        vec![0; 70_000],
        vec![255; 70_000],
        b"\xff\xfd\x06\xff\xfb\x01\xff\xff\r\n".to_vec(),
        b"\r\n\r\n\r\n   \r\n".to_vec(),
        b"\n\n\r\r\n".to_vec(),
        "PASS x\r\n".repeat(3000).into_bytes(),
        b"REST 18446744073709551616\r\nALLO -1\r\nTYPE \x1b[31m\r\n".to_vec(),
        b"MIC ====\r\nENC \r\nAUTH \r\nADAT !!\r\n".to_vec(),
    ] {
        let ftp = server.connect();
        // The server may have had enough before it has read everything.
        let _ = ftp.socket().write_all(&bytes);
        ftp.close_write();
        expect_closed(ftp.socket().try_clone().unwrap());
    }
    server.login().expect("NOOP", 200);
}

#[test]
fn line_that_is_too_long_is_skipped() {
    let server = TestServer::start();
    let mut ftp = server.login();
    ftp.send_raw(&[&vec![b'A'; 100 * 1024][..], b"\r\nNOOP\r\n"].concat());
    ftp.await_code(500);
    ftp.await_code(200);
    ftp.send_raw(b"MKD a\0b\r\nNOOP\r\n");
    ftp.await_code(501);
    ftp.await_code(200);
    // Telnet negotiation inside a line.
    ftp.send_raw(b"NO\xff\xfb\x01OP\r\n");
    let mut answer = [0; 3];
    std::io::Read::read_exact(&mut ftp.socket(), &mut answer).unwrap();
    assert_eq!(answer, [255, 254, 1]);
    ftp.await_code(200);
}

#[test]
fn idle_clients_are_sent_away() {
    let server = TestServer::with(|s| s.login_limit = Duration::from_millis(50));
    let mut ftp = server.connect();
    ftp.await_code(421);
    ftp.expect_end();
    let server = TestServer::with(|s| s.idle_limit = Duration::from_secs(1));
    let mut ftp = server.login();
    ftp.await_code(421);
    ftp.expect_end();
}

#[test]
fn a_transfer_is_not_idle() {
    let server = TestServer::with(|s| s.idle_limit = Duration::from_secs(1));
    server.write("big", pattern(40_000_000, 1));
    let mut ftp = server.login();
    let data = ftp.passive();
    ftp.expect("RETR /big", 150);
    // The idle limit passes while the transfer waits for us.
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(crate::client::read_all(data).len(), 40_000_000);
    ftp.await_code(226);
}

#[test]
fn an_unused_data_port_times_out_alone() {
    let server = TestServer::with(|s| s.data_limit = Duration::from_millis(1500));
    let mut waiting: Vec<Ftp> = (0..20)
        .map(|i| {
            let mut ftp = server.login();
            ftp.pasv();
            ftp.send(&format!("STOR /f{i}"));
            ftp
        })
        .collect();
    assert_eq!(server.login().put("STOR /other", b"abc").code, 226);
    for ftp in &mut waiting {
        ftp.await_code(425);
        ftp.expect("NOOP", 200);
    }
}

#[test]
fn a_data_connection_that_says_nothing_fails_in_time() {
    let server = TestServer::with(|s| s.data_limit = Duration::from_millis(1500));
    for mode in ["MODE S", "MODE E"] {
        let mut ftp = server.login();
        ftp.expect(mode, 200);
        let data = ftp.passive();
        ftp.send("STOR /f");
        ftp.await_code(150);
        assert_eq!(ftp.final_reply().1.code, 426, "{mode}");
        expect_closed(data);
        ftp.expect("NOOP", 200);
    }
}

#[test]
fn a_lost_client_takes_its_transfer_along() {
    let server = TestServer::start();
    server.write("big", pattern(40_000_000, 1));
    for command in ["STOR /new", "RETR /big"] {
        let mut ftp = server.login();
        let data = ftp.passive();
        ftp.send(command);
        ftp.await_code(150);
        drop(ftp);
        expect_closed(data);
    }
    let roots = [server.path("new"), server.path("big")];
    eventually("files are closed", || {
        std::fs::read_dir("/proc/self/fd").unwrap().all(|entry| {
            let target = entry.and_then(|e| std::fs::read_link(e.path()));
            target.map_or(true, |target| !roots.contains(&target))
        })
    });
}

#[test]
fn a_lost_client_takes_its_listener_along() {
    let server = TestServer::start();
    let mut ftp = server.login();
    let address = ftp.pasv();
    drop(ftp);
    eventually("the data port is closed", || {
        TcpStream::connect(address).is_err()
    });
    let mut ftp = server.login();
    let address = ftp.pasv();
    ftp.send("STOR /f");
    drop(ftp);
    eventually("the data port is closed", || {
        TcpStream::connect(address).is_err()
    });
}

#[test]
fn clients_that_never_read_are_given_up() {
    let server = TestServer::with(|s| s.unread_limit = Duration::from_millis(200));
    let ftp = server.login();
    // More replies than all buffers on the way hold; the server stops reading long before.
    let commands = "HELP\r\n".repeat(10_000);
    let mut socket = ftp.socket().try_clone().unwrap();
    let error = loop {
        if let Err(error) = socket.write_all(commands.as_bytes()) {
            break error;
        }
    };
    assert_ne!(
        error.kind(),
        std::io::ErrorKind::WouldBlock,
        "the server holds on"
    );
    server.login().expect("NOOP", 200);
}

#[test]
fn there_is_a_limit_of_sessions() {
    let server = TestServer::with(|s| s.bounds.connections = 3);
    let mut held: Vec<Ftp> = (0..3).map(|_| server.login()).collect();
    let mut refused = Ftp::connect(server.address);
    assert!(refused.await_code(421).text().contains("Too many sessions"));
    refused.expect_end();
    held.pop();
    eventually("there is room again", || {
        Ftp::connect(server.address).reply().code == 220
    });
}

#[test]
fn a_peer_that_connects_and_leaves_is_no_matter() {
    let server = TestServer::start();
    for _ in 0..200 {
        drop(connect(server.address));
    }
    server.login().expect("NOOP", 200);
}

#[test]
fn a_peer_that_never_answers_delays_no_other_session() {
    let server = TestServer::with(|s| s.data_limit = Duration::from_millis(1500));
    server.write("f", b"abc");
    let mut ftp = server.login();
    // Connects, since the kernel completes connections, and then hears nothing.
    let listener = ftp.active();
    ftp.expect("MODE E", 200);
    ftp.send("RETR /f");
    assert_eq!(server.login().get("RETR /f"), b"abc");
    let (_, reply) = ftp.final_reply();
    assert!(reply.code == 150 || reply.code >= 400, "{reply:?}");
    drop((listener, listen()));
}

#[test]
fn idle_connections_do_not_prevent_logins() {
    let server = TestServer::with(|s| {
        s.bounds.waiting = 20;
        s.bounds.waiting_per_address = 10;
    });
    let mut before = server.login();
    let mut crowd: Vec<_> = (0..200).map(|_| connect(server.address)).collect();
    let mut within = server.connect();
    within.login();
    crowd.extend((0..200).map(|_| connect(server.address)));
    for ftp in [&mut before, &mut within] {
        ftp.expect("NOOP", 200);
    }
    let mut first = Ftp::of(crowd.swap_remove(0));
    first.await_code(220);
    let reply = first.await_code(421);
    assert!(reply.text().contains("have not logged in"), "{reply:?}");
    first.expect_end();
}

#[test]
fn guessing_clients_must_pause() {
    let server = TestServer::with(|s| s.bounds.free_failures = 4);
    let mut user = server.login();
    // Each failure beyond makes the pause longer, so that one is met however slow this goes.
    let mut failures = 0;
    let reply = loop {
        let mut ftp = Ftp::connect(server.address);
        let reply = ftp.reply();
        if reply.code == 421 {
            ftp.expect_end();
            break reply;
        }
        ftp.expect("USER root", 331);
        ftp.expect("PASS x", 530);
        failures += 1;
    };
    assert!(reply.text().contains("failed logins"), "{reply:?}");
    assert!(failures >= 5, "{failures}");
    // Sessions that exist are kept.
    user.expect("NOOP", 200);
}

#[test]
fn guesses_side_by_side_are_no_more_than_guesses_one_by_one() {
    let server = TestServer::with(|s| s.bounds.free_failures = 4);
    let mut all: Vec<Ftp> = (0..100).map(|_| Ftp::connect(server.address)).collect();
    for ftp in &mut all {
        ftp.await_code(220);
        ftp.expect("USER root", 331);
    }
    for ftp in &mut all {
        ftp.send("PASS x");
    }
    let replies = all.iter_mut().map(|ftp| ftp.await_code(530).text());
    let tried = replies
        .filter(|text| !text.contains("failed logins"))
        .count();
    // Five, and one more for each second that a slow machine takes.
    assert!((5..30).contains(&tried), "{tried} of 100 were tried");
}

#[test]
fn anonymous_logins_make_up_for_no_guess() {
    let server = TestServer::with(|s| s.bounds.free_failures = 4);
    // As above, a pause is met however slow this goes.
    let reply = (0..40).find_map(|_| {
        let mut ftp = Ftp::connect(server.address);
        let greeting = ftp.reply();
        if greeting.code == 421 {
            return Some(greeting);
        }
        ftp.expect("USER root", 331);
        ftp.expect("PASS x", 530);
        ftp.expect("USER anonymous", 331);
        let reply = ftp.call("PASS x");
        (reply.code != 230).then_some(reply)
    });
    let reply = reply.expect("a pause");
    assert!(reply.text().contains("failed logins"), "{reply:?}");
}

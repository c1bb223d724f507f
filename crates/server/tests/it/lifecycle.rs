//! Shutdown and reload.

use std::{io::Write as _, time::Duration};

use godwit_server::Anonymous;

use crate::{client::expect_closed, harness::TestServer};

#[test]
fn shutdown_notifies_idle_sessions_and_lets_transfers_end() {
    let mut server = TestServer::with(|s| s.drain = Duration::from_secs(60));
    let mut idle = server.login();
    let mut busy = server.login();
    let mut data = busy.passive();
    busy.send("STOR /f");
    busy.await_code(150);
    server.begin_shutdown();
    idle.await_code(421);
    idle.expect_end();
    data.write_all(b"the rest").unwrap();
    drop(data);
    assert_eq!(busy.final_reply().1.code, 226);
    busy.await_code(421);
    busy.expect_end();
    assert_eq!(server.read("f"), b"the rest");
    server.join();
}

#[test]
fn transfers_are_cut_after_the_drain_time() {
    let mut server = TestServer::with(|s| s.drain = Duration::from_millis(50));
    let mut ftp = server.login();
    let data = ftp.passive();
    ftp.send("STOR /f");
    ftp.await_code(150);
    server.begin_shutdown();
    assert_eq!(ftp.final_reply().1.code, 426);
    ftp.await_code(421);
    ftp.expect_end();
    expect_closed(data);
    server.join();
}

#[test]
fn long_requests_are_cut_after_the_drain_time() {
    let mut server = TestServer::start();
    let file = std::fs::File::create(server.path("big")).unwrap();
    // Bytes that take hours to add up, and no room on the disk.
    file.set_len(1 << 43).unwrap();
    let mut ftp = server.login();
    ftp.send("CKSM SHA512 0 -1 /big");
    server.begin_shutdown();
    // The shutdown may overtake the command.
    let reply = ftp.reply();
    if reply.code != 421 {
        assert!((400..600).contains(&reply.code), "{reply:?}");
        ftp.await_code(421);
    }
    ftp.expect_end();
    server.join();
}

#[test]
fn new_settings_hold_for_new_sessions() {
    let server = TestServer::start();
    let mut old = server.login();
    let mut settings = server.settings.clone();
    settings.anonymous = Anonymous::Ro;
    server.reloader.reload(settings).unwrap();
    let mut new = server.login();
    new.expect("MKD /d", 550);
    old.expect("MKD /d", 257);
}

#[test]
fn bad_settings_leave_the_old_ones_in_force() {
    let server = TestServer::start();
    let mut settings = server.settings.clone();
    settings.root = "/nonexistent/root".into();
    let error = server.reloader.reload(settings).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/root"), "{error}");
    server.login().expect("MKD /d", 257);
}

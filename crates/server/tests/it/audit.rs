//! The audit log.

use std::{fs, path::Path};

use crate::{client::connect, harness::TestServer};

/// `event account path to bytes result` of each line.
pub(crate) fn events(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(line["peer"].as_str().unwrap().starts_with("127.0.0.1:"));
        let of = |key: &str| match &line[key] {
            serde_json::Value::Null => "-".to_owned(),
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        ["event", "account", "path", "to", "octets", "result"]
            .map(of)
            .join(" ")
    });
    lines.collect()
}

#[test]
fn the_audit_log_has_results_and_no_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit");
    let mut server = TestServer::with(|s| s.audit_log = Some(log.clone()));
    let mut ftp = server.connect();
    ftp.expect("USER ro\x1bot", 331);
    ftp.expect("PASS hunter2", 530);
    ftp.expect("USER anonymous", 331);
    ftp.expect("PASS hunter3", 230);
    ftp.expect("TYPE I", 200);
    assert_eq!(ftp.put("STOR /f", b"abc").code, 226);
    assert_eq!(ftp.get("RETR /f"), b"abc");
    ftp.expect("MKD /d", 257);
    ftp.expect("MKD /d", 550);
    ftp.expect("RNFR /f", 350);
    ftp.expect("RNTO /d/g", 250);
    ftp.expect("SITE CHMOD 600 /d/g", 250);
    ftp.expect("DELE /d/g", 250);
    ftp.expect("RMD /d", 250);
    ftp.expect("QUIT", 221);
    ftp.expect_end();
    server.begin_shutdown();
    server.join();
    assert_eq!(
        events(&log),
        [
            "login - - ro\u{1b}ot - failed",
            "login anonymous - anonymous - done",
            "put anonymous /f - 3 done",
            "get anonymous /f - 3 done",
            "mkdir anonymous /d - - done",
            "mkdir anonymous /d - - failed",
            "rename anonymous /f /d/g - done",
            "chmod anonymous /d/g 600 - done",
            "delete anonymous /d/g - - done",
            "rmdir anonymous /d - - done",
            "logout anonymous - - - done",
        ]
    );
    let text = fs::read_to_string(&log).unwrap();
    assert!(
        !text.contains("hunter") && !text.contains('\u{1b}'),
        "{text}"
    );
}

#[test]
fn unfinished_work_is_logged() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit");
    let mut server = TestServer::with(|s| s.audit_log = Some(log.clone()));
    let mut ftp = server.login();
    let data = connect(ftp.pasv());
    ftp.send("STOR /f");
    ftp.await_code(150);
    // Its end would be that of the file.
    drop(ftp);
    server.begin_shutdown();
    server.join();
    drop(data);
    let events = events(&log);
    assert!(events[1].starts_with("put anonymous /f -") && events[1].ends_with("failed"));
    assert_eq!(events[2], "logout anonymous - - - done");
}

#[test]
fn a_reload_opens_the_file_that_has_the_name_now() {
    let folder = tempfile::tempdir().unwrap();
    let [log, old] = ["audit", "audit.1"].map(|name| folder.path().join(name));
    let server = TestServer::with(|s| s.audit_log = Some(log.clone()));
    let mut ftp = server.login();
    fs::rename(&log, &old).unwrap();
    server.reloader.reload(server.settings.clone()).unwrap();
    // The session is older than the file.
    ftp.expect("MKD /d", 257);
    assert_eq!(events(&old).len(), 1);
    assert_eq!(events(&log), ["mkdir anonymous /d - - done"]);
}

#[test]
fn the_transfer_log_has_the_format_of_the_reference_server() {
    let folder = tempfile::tempdir().unwrap();
    let [log, old] = ["transfers", "transfers.1"].map(|name| folder.path().join(name));
    let mut server = TestServer::with(|s| s.transfer_log = Some(log.clone()));
    let mut ftp = server.login();
    assert_eq!(ftp.put("STOR /f", b"abc").code, 226);
    assert_eq!(ftp.get("ERET P 1 2 /f"), b"bc");
    let data = connect(ftp.pasv());
    ftp.expect("RETR /none", 550);
    drop(data);
    fs::rename(&log, &old).unwrap();
    server.reloader.reload(server.settings.clone()).unwrap();
    assert_eq!(ftp.get("RETR /f"), b"abc");
    ftp.expect("QUIT", 221);
    ftp.expect_end();
    server.begin_shutdown();
    server.join();
    let logged = |path| -> Vec<String> {
        let text = fs::read_to_string(path).unwrap();
        let lines = text.lines().map(|line| {
            let (_, from_user) = line.split_once(" USER=").unwrap();
            from_user.to_owned()
        });
        lines.collect()
    };
    let line = |bytes, command| {
        format!(
            "anonymous FILE=/f BUFFER=0 BLOCK=1048576 NBYTES={bytes} VOLUME=/ STREAMS=1 STRIPES=1 \
             DEST=[127.0.0.1] TYPE={command} CODE=226 TASKID=none"
        )
    };
    assert_eq!(logged(&old), [line(3, "STOR"), line(2, "ERET")]);
    assert_eq!(logged(&log), [line(3, "RETR")]);
}

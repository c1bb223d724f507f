//! The dialogue: login, lines, names, commands that need no data connection.

use std::os::unix::fs::PermissionsExt as _;

use crate::harness::{TestServer, pattern};

#[test]
fn anonymous_users_log_in_with_any_password() {
    let server = TestServer::start();
    for user in ["anonymous", "ftp"] {
        let mut ftp = server.connect();
        ftp.expect("PWD", 530);
        ftp.expect(&format!("USER {user}"), 331);
        ftp.expect("PASS anything at all", 230);
        ftp.expect("PWD", 257);
        ftp.expect("SITE WHOAMI", 200);
        ftp.expect("QUIT", 221);
        ftp.expect_end();
    }
}

#[test]
fn other_users_are_refused_and_cut_off_after_some_attempts() {
    let server = TestServer::start();
    let mut ftp = server.connect();
    for _ in 0..5 {
        ftp.expect("USER root", 331);
        let reply = ftp.expect("PASS secret", 530);
        assert_eq!(reply.text(), "Login incorrect.");
    }
    ftp.await_code(421);
    ftp.expect_end();
}

#[test]
fn lines_may_come_in_any_slicing() {
    let server = TestServer::start();
    let mut ftp = server.connect();
    for byte in b"USER anonymous\r\nPASS x\r\nNOOP\r\n" {
        ftp.send_raw(&[*byte]);
    }
    for code in [331, 230, 200] {
        ftp.await_code(code);
    }
    ftp.send_raw("NOOP\r\n".repeat(50).as_bytes());
    for _ in 0..50 {
        ftp.await_code(200);
    }
}

#[test]
fn banner_of_several_lines_is_one_reply() {
    let server = TestServer::with(|s| s.banner = "Welcome.\n220 not the end\nBehave.".to_owned());
    let mut ftp = crate::client::Ftp::connect(server.address);
    let reply = ftp.await_code(220);
    assert_eq!(reply.lines[1], "220 not the end");
    ftp.login();
}

#[test]
fn blanks_before_and_behind_a_name_make_another_file() {
    let server = TestServer::start();
    let mut ftp = server.login();
    let names = ["v", " v", "v ", "  v", "\tv", "-a v"];
    for name in names {
        let reply = ftp.put(&format!("STOR {name}"), name.as_bytes());
        assert_eq!(reply.code, 226, "{name:?}");
    }
    for name in names {
        assert_eq!(server.read(name), name.as_bytes(), "{name:?}");
    }
    ftp.expect("DELE   v", 250);
    ftp.expect("DELE v ", 250);
    ftp.expect("RNFR  v", 350);
    ftp.expect("RNTO  w ", 250);
    assert_eq!(server.read(" w "), b" v");
    assert_eq!(server.read("v"), b"v");
    ftp.expect("MKD  d", 257);
    assert!(server.path(" d").is_dir());
    let listing = ftp.get("NLST -a  d");
    assert_eq!(listing, b"");
}

#[test]
fn a_cr_in_a_name_travels_as_cr_nul() {
    let server = TestServer::start();
    let mut ftp = server.login();
    ftp.send_raw(b"MKD a\r\0b\r\n");
    let made = ftp.await_code(257);
    assert!(server.path("a\rb").is_dir());
    assert!(made.text().contains("\"/a\r\0b\""), "{made:?}");
    ftp.send_raw(b"CWD a\r\0b\r\n");
    ftp.await_code(250);
    ftp.expect("CWD /", 250);
    ftp.send_raw(b"RMD a\r\0b\r\n");
    ftp.await_code(250);
    assert!(!server.path("a\rb").exists());
}

#[test]
fn lines_that_end_in_lf_alone_are_commands() {
    let server = TestServer::start();
    let mut ftp = server.connect();
    ftp.send_raw(b"USER anonymous\nPASS x\nPWD\nQUIT\n");
    for code in [331, 230, 257, 221] {
        ftp.await_code(code);
    }
    ftp.expect_end();
}

#[test]
fn requests_on_the_wrong_kind_of_file_are_refused() {
    let server = TestServer::start();
    server.write("f", b"a\nb\n");
    let mut ftp = server.login();
    std::fs::create_dir(server.path("d")).unwrap();
    ftp.expect("SIZE /d", 550);
    ftp.expect("SIZE /", 550);
    ftp.expect("RMD /", 550);
    ftp.expect("CWD /d", 250);
    ftp.expect("RMD ..", 550);
    ftp.pasv();
    ftp.expect("MLSD /f", 501);
    ftp.pasv();
    ftp.expect("MLSD /none", 550);
    assert_eq!(ftp.expect("SIZE /f", 213).text(), "4");
    ftp.expect("TYPE A", 200);
    ftp.expect("SIZE /f", 550);
    ftp.expect("SIZE /none", 550);
}

#[test]
fn odd_names_survive() {
    let server = TestServer::start();
    let mut ftp = server.login();
    for name in [
        "two  blanks",
        "quo\"te",
        "per%cent",
        "semi;colon=equals",
        "-dash",
        "Grüße-日本",
        &"x".repeat(255),
    ] {
        let path = format!("/{name}");
        assert_eq!(ftp.put(&format!("STOR {path}"), b"abc").code, 226, "{name}");
        assert_eq!(server.read(name), b"abc");
        assert_eq!(ftp.expect(&format!("SIZE {path}"), 213).text(), "3");
        let reply = ftp.expect(&format!("MLST {path}"), 250);
        assert!(reply.lines[1].ends_with(&format!("; {path}")), "{reply:?}");
        ftp.expect(&format!("DELE {path}"), 250);
    }
}

#[test]
fn files_and_directories_are_managed() {
    let server = TestServer::start();
    let mut ftp = server.login();
    ftp.expect("MKD /d", 257);
    ftp.expect("MKD /d", 550);
    ftp.expect("CWD d", 250);
    assert!(ftp.expect("PWD", 257).text().starts_with("\"/d\""));
    server.write("d/f", b"12345");
    ftp.expect("RNFR f", 350);
    ftp.expect("RNTO g", 250);
    ftp.expect("SIZE f", 550);
    assert_eq!(ftp.expect("SIZE g", 213).text(), "5");
    ftp.expect("MFMT 20200229123456 g", 213);
    assert_eq!(ftp.expect("MDTM g", 213).text(), "20200229123456");
    ftp.expect("SITE CHMOD 640 g", 250);
    let mode = std::fs::metadata(server.path("d/g")).unwrap().permissions();
    assert_eq!(mode.mode() & 0o7777, 0o640);
    ftp.expect("SITE TRNC 2 g", 250);
    assert_eq!(server.read("d/g"), b"12");
    ftp.expect("CDUP", 250);
    ftp.expect("RMD d", 550);
    ftp.expect("CWD d/g", 550);
    ftp.expect("DELE d/g", 250);
    ftp.expect("RMD d", 250);
    ftp.expect("CWD d", 550);
}

#[test]
fn trees_are_removed() {
    let server = TestServer::start();
    std::fs::create_dir_all(server.path("t/u/v")).unwrap();
    server.write("t/u/f", b"x");
    let mut ftp = server.login();
    ftp.expect("SITE RDEL /t", 250);
    assert!(!server.path("t").exists());
}

#[test]
fn links_out_of_the_root_lead_nowhere() {
    let server = TestServer::start();
    std::os::unix::fs::symlink("/etc", server.path("out")).unwrap();
    let mut ftp = server.login();
    assert!(ftp.call("SIZE /out/passwd").code >= 500);
    assert!(ftp.call("SIZE /../../etc/passwd").code >= 500);
    assert!(ftp.call("CWD /out").code >= 500);
}

#[test]
fn checksums_of_ranges() {
    let server = TestServer::start();
    server.write("f", b"123456789");
    let mut ftp = server.login();
    for (arguments, want) in [
        ("MD5 0 -1", "25f9e794323b453885f5181f1b624d0b"),
        ("adler32 0 -1", "091e01de"),
        ("CRC32C 0 -1", "e3069283"),
        ("MD5 1 2", "37693cfc748049e45d87b8c7d8b9aacd"),
    ] {
        let reply = ftp.expect(&format!("CKSM {arguments} /f"), 213);
        assert_eq!(reply.text(), want, "{arguments}");
    }
    ftp.expect("CKSM MD5 0 -1 /none", 550);
    assert!(ftp.call("CKSM ROT13 0 -1 /f").code >= 500);
}

#[test]
fn long_checksums_report_and_commands_wait() {
    let server = TestServer::start();
    let file = std::fs::File::create(server.path("big")).unwrap();
    file.set_len(64 << 20).unwrap();
    let mut ftp = server.login();
    ftp.expect("OPTS CKSM Markers=1;", 200);
    ftp.send_raw(b"CKSM SHA256 0 -1 /big\r\nNOOP\r\n");
    loop {
        let reply = ftp.reply();
        if reply.code != 113 {
            assert_eq!(reply.code, 213, "{reply:?}");
            break;
        }
    }
    ftp.await_code(200);
}

#[test]
fn reservation_beyond_the_disk_is_refused() {
    let server = TestServer::start();
    let mut ftp = server.login();
    ftp.expect("ALLO 1000", 200);
    ftp.expect(&format!("ALLO {}", u64::MAX / 2), 200);
    let data = ftp.passive();
    let reply = ftp.call("STOR /f");
    assert_eq!(reply.code, 552, "{reply:?}");
    assert!(reply.text().contains("No space left on device"));
    drop(data);
    assert!(!server.path("f").exists());
    assert_eq!(ftp.put("STOR /f", &pattern(10, 0)).code, 226);
}

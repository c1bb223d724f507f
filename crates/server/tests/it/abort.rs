//! ABOR in every state: never a false success, and the session continues.

use std::io::{Read as _, Write as _};

use crate::{
    client::{Ftp, data_block, expect_closed},
    harness::{TestServer, pattern},
};

fn still_works(server: &TestServer, ftp: &mut Ftp) {
    ftp.expect("MODE S", 200);
    assert_eq!(ftp.put("STOR /after", b"abc").code, 226);
    assert_eq!(server.read("after"), b"abc");
}

#[test]
fn abort_while_idle() {
    let server = TestServer::start();
    let mut ftp = server.login();
    ftp.expect("ABOR", 226);
    ftp.expect("RNFR /", 350);
    ftp.expect("ABOR", 226);
    ftp.pasv();
    ftp.expect("ABOR", 226);
    ftp.expect("STOR /f", 425);
    still_works(&server, &mut ftp);
}

#[test]
fn abort_while_receiving() {
    let server = TestServer::start();
    for mode in ["MODE S", "MODE E"] {
        let mut ftp = server.login();
        ftp.expect(mode, 200);
        let mut data = ftp.passive();
        ftp.send("STOR /f");
        ftp.await_code(150);
        data.write_all(&data_block(0, b"part")).unwrap();
        ftp.send("ABOR");
        assert_eq!(ftp.final_reply().1.code, 426);
        ftp.await_code(226);
        expect_closed(data);
        still_works(&server, &mut ftp);
    }
}

#[test]
fn abort_while_sending() {
    let server = TestServer::start();
    server.write("big", pattern(40_000_000, 1));
    let mut ftp = server.login();
    let mut data = ftp.passive();
    ftp.expect("RETR /big", 150);
    data.read_exact(&mut [0; 1000]).unwrap();
    ftp.send("ABOR");
    ftp.await_code(426);
    ftp.await_code(226);
    expect_closed(data);
    still_works(&server, &mut ftp);
}

#[test]
fn abort_while_waiting_for_the_data_connection() {
    let server = TestServer::start();
    let mut ftp = server.login();
    ftp.pasv();
    ftp.send_raw(b"STOR /f\r\nNOOP\r\nABOR\r\n");
    assert_eq!(ftp.final_reply().1.code, 426);
    ftp.await_code(426);
    ftp.await_code(226);
    still_works(&server, &mut ftp);
}

#[test]
fn abort_while_a_receipt_is_verified() {
    let server = TestServer::start();
    let file = std::fs::File::create(server.path("big")).unwrap();
    // Bytes that take hours to add up, and no room on the disk.
    file.set_len(1 << 43).unwrap();
    let mut ftp = server.login();
    ftp.expect(&format!("SCKS SHA512 {}", "0".repeat(128)), 200);
    let mut data = ftp.passive();
    ftp.expect("ESTO A 0 /big", 150);
    data.write_all(b"abc").unwrap();
    drop(data);
    ftp.send("ABOR");
    assert_eq!(ftp.final_reply().1.code, 426);
    ftp.await_code(226);
    still_works(&server, &mut ftp);
}

//! What the reference server says on its control channel, read as our client reads it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use godwit_proto::Reply;
use godwit_proto::reply::ReplyReader;

use crate::support::{Kind, LONG, Need, Site, have};

struct Session {
    socket: TcpStream,
    reader: ReplyReader,
}

impl Session {
    fn open(site: &Site) -> Session {
        let socket = TcpStream::connect(site.addr()).expect("connects");
        socket.set_read_timeout(Some(LONG)).expect("a limit");
        let mut session = Session {
            socket,
            reader: ReplyReader::default(),
        };
        session.expect(220);
        session
    }

    fn send(&mut self, lines: &str) {
        self.socket.write_all(lines.as_bytes()).expect("sends");
    }

    fn reply(&mut self) -> Reply {
        loop {
            if let Some(reply) = self.reader.next_reply().expect("a reply") {
                return reply;
            }
            let mut bytes = [0; 4096];
            let n = self.socket.read(&mut bytes).expect("an answer in time");
            assert!(n > 0, "the connection ended");
            self.reader.push(&bytes[..n]);
        }
    }

    #[track_caller]
    fn expect(&mut self, code: u16) -> Reply {
        let reply = self.reply();
        assert_eq!(reply.code.get(), code, "{reply}");
        reply
    }

    fn log_in(&mut self) {
        self.send("USER anonymous\r\nPASS x\r\n");
        self.expect(331);
        self.expect(230);
    }
}

fn session() -> Option<(Site, Session)> {
    if !have(&[Need::Gct]) {
        return None;
    }
    let site = Site::new(Kind::Gct);
    let session = Session::open(&site);
    Some((site, session))
}

#[test]
fn fifty_commands_in_one_packet_and_in_single_bytes_are_answered_in_order() {
    let Some((_site, mut session)) = session() else {
        return;
    };
    session.log_in();
    session.send(&"NOOP\r\n".repeat(50));
    for _ in 0..50 {
        session.expect(200);
    }
    session.socket.set_nodelay(true).expect("no delay");
    for byte in "PWD\r\nNOOP\r\nSYST\r\n".chars() {
        session.send(&byte.to_string());
    }
    for code in [257, 200, 215] {
        session.expect(code);
    }
}

#[test]
fn features_are_listed_before_and_after_login_and_unknown_verbs_are_refused() {
    let Some((_site, mut session)) = session() else {
        return;
    };
    session.send("FEAT\r\nXYZZ\r\nMKD x\r\n");
    let before = session.expect(211).body().len();
    session.expect(500);
    session.expect(530);
    session.log_in();
    session.send("FEAT\r\nXYZZ\r\nMKD\r\n");
    let after = session.expect(211).body().len();
    assert!(before < after, "{before} {after}");
    session.expect(500);
    session.expect(501);
}

/// It answers with a line that belongs to no reply.
#[test]
fn a_stray_line_does_not_shift_the_replies_behind_it() {
    let Some((_site, mut session)) = session() else {
        return;
    };
    session.log_in();
    session.send("TYPE E\r\nNOOP\r\nPWD\r\n");
    session.expect(501);
    session.expect(200);
    session.expect(257);
}

#[test]
fn a_command_behind_a_store_is_answered_after_it() {
    let Some((site, mut session)) = session() else {
        return;
    };
    session.log_in();
    session.send("TYPE I\r\nPASV\r\n");
    session.expect(200);
    let text = session.expect(227).text();
    let numbers: Vec<u16> = text
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|word| word.parse().ok())
        .collect();
    let [.., high, low] = numbers[..] else {
        panic!("{text}");
    };
    let path = site.at("f");
    session.send(&format!("STOR {}\r\nNOOP\r\n", path.display()));
    let mut data = TcpStream::connect(("127.0.0.1", high * 256 + low)).expect("connects");
    data.write_all(b"sixth.").expect("sends");
    drop(data);
    for code in [150, 226, 200] {
        session.expect(code);
    }
    assert_eq!(std::fs::read(path).expect("f"), b"sixth.");
}

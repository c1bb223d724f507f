//! Asides to a running transfer: its channels are changed, and it is looked at.

use std::{
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

use godwit_proto::{Reply as WireReply, live::LiveReport};

use crate::{
    client::{ChannelTake, Ftp, Reply, assemble, take_channel},
    harness::{PATIENCE, TestServer, pattern},
};

/// Takes whatever connections come, for as many transfers as come; reads nothing before it is let.
struct Taker {
    takes: Receiver<ChannelTake>,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let open = self.open.lock().unwrap();
        let waited = self
            .opened
            .wait_timeout_while(open, PATIENCE, |open| !*open);
        assert!(*waited.unwrap().0, "the gate was never opened");
    }
}

impl Taker {
    fn new(listener: TcpListener) -> Self {
        let (sender, takes) = channel();
        let gate = Arc::<Gate>::default();
        let for_channels = Arc::clone(&gate);
        thread::spawn(move || {
            for socket in listener.incoming() {
                let (sender, gate) = (sender.clone(), Arc::clone(&for_channels));
                thread::spawn(move || take_all(socket.unwrap(), &sender, &gate));
            }
        });
        Self { takes, gate }
    }

    /// What one transfer brought, on however many channels.
    fn transfer(&self) -> Vec<u8> {
        let mut takes: Vec<ChannelTake> = Vec::new();
        while takes.iter().find_map(|take| take.eof) != Some(takes.len() as u64) {
            takes.push(self.takes.recv_timeout(PATIENCE).expect("all channels"));
        }
        assemble(&takes)
    }
}

fn take_all(mut socket: TcpStream, takes: &Sender<ChannelTake>, gate: &Gate) {
    gate.pass();
    // Until the server closes it, after CLOSE or with the session.
    while socket.peek(&mut [0]).is_ok_and(|n| n > 0) {
        if takes.send(take_channel(&mut socket)).is_err() {
            return;
        }
    }
}

/// A session in MODE E, and who takes its channels.
fn session(server: &TestServer, parallelism: u32) -> (Ftp, Taker) {
    let mut ftp = server.login();
    ftp.expect("MODE E", 200);
    let p = parallelism;
    ftp.expect(&format!("OPTS RETR Parallelism={p},{p},{p};"), 200);
    let taker = Taker::new(ftp.active());
    (ftp, taker)
}

fn report(reply: &Reply) -> LiveReport {
    let code = godwit_proto::ReplyCode::new(reply.code).unwrap();
    LiveReport::from_reply(&WireReply::new(code, reply.text())).expect("a report")
}

#[test]
fn channels_come_and_go_while_data_flows() {
    let server = TestServer::start();
    let bytes = pattern(80_000_000, 1);
    server.write("f", &bytes);
    let (mut ftp, taker) = session(&server, 2);
    ftp.expect("RETR /f", 150);
    let mut changes = 0;
    let mut wanted = [16, 1, 8, 3, 30, 2].into_iter().cycle();
    let mut change = |ftp: &mut Ftp| {
        changes += 1;
        let n = wanted.next().unwrap_or(1);
        ftp.call(&format!("SITE GODWIT CHANNELS {n} 1"))
    };
    // No peer reads, so the transfer cannot end here.
    for _ in 0..60 {
        let reply = change(&mut ftp);
        assert_eq!(reply.code, 258, "{reply:?}");
    }
    taker.gate.open();
    let last = loop {
        let reply = change(&mut ftp);
        if reply.code != 258 {
            break reply;
        }
    };
    // The transfer has ended: its own reply, and then that of the aside that came too late.
    assert_eq!(last.code, 226, "after {changes} changes: {last:?}");
    ftp.await_code(558);
    assert!(taker.transfer() == bytes, "after {changes} changes");
    // The session continues with the existing channels.
    ftp.expect("RETR /f", 125);
    ftp.await_code(226);
    assert!(taker.transfer() == bytes);
}

#[test]
fn a_change_at_the_very_end_of_a_transfer_harms_nothing() {
    let server = TestServer::start();
    let sizes = [0, 1000, 1_500_000, 4_000_000];
    let files = sizes.map(|size| pattern(size, 2));
    for (size, bytes) in sizes.iter().zip(&files) {
        server.write(&size.to_string(), bytes);
    }
    let (mut ftp, taker) = session(&server, 1);
    taker.gate.open();
    let mut too_late = 0;
    for i in 0..1000 {
        let at = i % sizes.len();
        ftp.send(&format!("RETR /{}", sizes[at]));
        let first = ftp.reply();
        assert!(matches!(first.code, 125 | 150), "{first:?}");
        ftp.send(&format!("SITE GODWIT CHANNELS {} {}", 1 + i % 5, 1 + i));
        let mut codes = [ftp.reply().code, ftp.reply().code];
        too_late += usize::from(codes[1] == 558);
        codes.sort_unstable();
        assert!(matches!(codes, [226, 258 | 558]), "{i}: {codes:?}");
        assert!(taker.transfer() == files[at], "{i}");
    }
    println!("{too_late} of 1000 came too late");
}

#[test]
fn a_report_describes_the_senders_side() {
    let server = TestServer::start();
    let bytes = pattern(30_000_000, 3);
    server.write("f", &bytes);
    let (mut ftp, taker) = session(&server, 3);
    ftp.expect("SITE GODWIT REPORT", 558);
    ftp.expect("RETR /f", 150);
    let reply = ftp.expect("SITE GODWIT REPORT", 258);
    let early = report(&reply);
    assert_eq!(early.channels, 3);
    assert!(early.bytes < bytes.len() as u64, "{early:?}");
    taker.gate.open();
    assert!(taker.transfer() == bytes);
    ftp.await_code(226);
    ftp.expect("SITE GODWIT REPORT", 558);
}

#[test]
fn commands_behind_a_transfer_wait_and_live_requests_do_not() {
    let server = TestServer::start();
    let bytes = pattern(30_000_000, 4);
    server.write("f", &bytes);
    let (mut ftp, taker) = session(&server, 1);
    ftp.expect("RETR /f", 150);
    ftp.send("PWD");
    ftp.send("SITE GODWIT CHANNELS 0 1");
    // Of the one before, or behind it: not of this one.
    for other in [0, 2] {
        ftp.expect(&format!("SITE GODWIT CHANNELS 4 {other}"), 558);
    }
    ftp.expect("SITE GODWIT CHANNELS 4 1", 258);
    taker.gate.open();
    assert!(taker.transfer() == bytes);
    for code in [226, 257, 501] {
        ftp.await_code(code);
    }
}

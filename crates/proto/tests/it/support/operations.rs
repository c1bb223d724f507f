//! Sequences of operations from bytes: what the property tests draw and the fuzz targets mutate.
//!
//! Whatever is fed, an interpreter must not panic, must give each command one final reply in order,
//! and must be silent once it is over.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use godwit_proto::{
    Command, RangeSet,
    error::TransferFailure,
    pi::{
        client::{self, ClientConfig, ClientPi},
        server::{Input, Outcome, Output, QUEUE_MAX, ServerPi},
    },
    reply::ReplyReader,
};

use super::{
    addr, epoch,
    script::{Directive, directive},
    server_config,
    shell::FakeShell,
};

/// Lines that a client may send; each is worth one final reply.
pub(crate) const LINES: &[&str] = &[
    "NOOP",
    "MODE E",
    "MODE S",
    "TYPE A",
    "PASV",
    "EPSV",
    "SPAS",
    "PORT 127,0,0,1,142,177",
    "PORT 127,0,0,9,142,177",
    "SPOR 127,0,0,1,142,177 127,0,0,1,142,178",
    "EPSV ALL",
    "OPTS PASV AllowDelayed=1;",
    "OPTS PASV AllowDelayed=0;",
    "OPTS RETR Parallelism=4,4,4;",
    "OPTS RETR Markers=1;",
    "OPTS CKSM Markers=1;",
    "TREV PERF 1",
    "TREV RESTART 0",
    "REST 100",
    "REST 0-10,20-30",
    "ALLO 3000",
    "SCKS ADLER32 0badcafe",
    "RETR /f",
    "RETR /missing",
    "RETR /slow",
    "STOR /f",
    "STOR /missing",
    "STOR /slow",
    "APPE /f",
    "ERET P 0 10 /f",
    "ESTO A 10 /f",
    "LIST",
    "MLSD /d",
    "MLSC /d",
    "MLST /missing",
    "CKSM MD5 0 -1 /f",
    "RNFR /a",
    "RNTO /b",
    "DCAU N",
    "PWD",
    "FEAT",
    "HELP",
    "SITE WHOAMI",
    "SITE GODWIT CHANNELS 3 1",
    "SITE GODWIT CHANNELS 2 2",
    "SITE GODWIT REPORT",
    "SITE GODWIT CHANNELS 0",
    "USER v",
    "PASS w",
    "STAT",
    "",
    "RETR",
    "FOO bar",
];

/// Answers that a shell gives out of turn, too.
const ANSWERS: &[&str] = &[
    "ok",
    "fail ENOENT x",
    "facts file 3",
    "listening 127.0.0.1:36529",
    "page a more",
    "page a",
    "text u",
    "checksum 0badcafe",
    "account /h ro",
    "ready",
    "ready reused",
    "progress 10 0-10",
    "summed 10",
    "live 10 3",
    "live none",
    "done 10 0-10 cached",
    "done 10 -",
    "broken lost 10 0-10",
    "broken ENOENT 0 -",
    "shutdown",
    "closed",
];

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn take(&mut self, n: usize) -> &'a [u8] {
        let (head, tail) = self.0.split_at(n.min(self.0.len()));
        self.0 = tail;
        head
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        self.next().map(|i| from[usize::from(i) % from.len()])
    }
}

/// Feeds a `ServerPi` what `data` spells. The first byte decides whether the shell keeps its
/// contract.
pub(crate) fn server_pi(data: &[u8]) {
    let mut data = Bytes(data);
    let Some(first) = data.next() else { return };
    let mut stage = Server::new(first & 2 == 0);
    if first & 1 == 0 {
        stage.honest(&mut data);
    } else {
        stage.hostile(&mut data);
    }
}

struct Server {
    pi: ServerPi,
    now: Instant,
    shell: FakeShell,
    replies: ReplyReader,
    finals: usize,
    lines: usize,
    transfers_ok: usize,
}

impl Server {
    fn new(log_in: bool) -> Self {
        let now = epoch();
        let mut stage = Self {
            pi: ServerPi::new(server_config(), now),
            now,
            shell: FakeShell::new(Duration::from_millis(10)),
            replies: ReplyReader::default(),
            finals: 0,
            // The greeting is a final reply to nothing.
            lines: 1,
            transfers_ok: 0,
        };
        stage.drain();
        if log_in {
            stage.line(b"USER u");
            stage.line(b"PASS p");
            stage.settle(Duration::from_secs(1));
        }
        stage
    }

    fn line(&mut self, line: &[u8]) {
        self.lines += 1;
        let bytes = [line, b"\r\n"].concat();
        self.input(Input::Bytes(&bytes));
    }

    fn input(&mut self, input: Input<'_>) {
        self.pi.handle_input(self.now, input);
        self.drain();
    }

    /// Carries out what came out, as an honest shell.
    fn drain(&mut self) {
        while let Some(output) = self.pi.poll_output() {
            if let Some(bytes) = self.shell.take(self.now, output) {
                self.hear(&bytes);
            }
        }
    }

    fn hear(&mut self, bytes: &[u8]) {
        self.replies.push(bytes);
        while let Some(reply) = self.replies.next_reply().expect("our replies can be read") {
            let unasked = reply.code.get() == 421
                || (reply.code.get() == 500 && reply.lines[0] == b"Pipeline queue full.");
            self.finals += usize::from(!reply.code.is_preliminary() && !unasked);
            self.transfers_ok += usize::from(reply.lines[0] == b"Transfer Complete.");
        }
    }

    /// Lets time pass: answers of the shell arrive, timeouts are handed in.
    fn settle(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            let due = [self.shell.next_due(), self.pi.poll_timeout()]
                .into_iter()
                .flatten()
                .min();
            match due {
                Some(due) if due <= until && !self.shell.closed => {
                    self.now = self.now.max(due);
                    match self.shell.next_input(self.now) {
                        Some(input) => self.input(input),
                        None => self.input(Input::Timeout),
                    }
                }
                _ => break,
            }
        }
        self.now = until;
    }

    fn honest(&mut self, data: &mut Bytes<'_>) {
        while let Some(operation) = data.next() {
            if self.shell.closed {
                break;
            }
            match operation % 8 {
                0..=3 => {
                    if let Some(line) = data.pick(LINES) {
                        self.line(line.as_bytes());
                    }
                }
                4 => self.line(b"ABOR"),
                5 => {
                    let time = Duration::from_millis(u64::from(operation));
                    self.settle(time);
                }
                6 => {
                    // Any bytes, then the end of whatever line they have begun.
                    let n = usize::from(data.next().unwrap_or(0));
                    let bytes = data.take(n);
                    let clean: Vec<u8> = bytes
                        .iter()
                        .copied()
                        .filter(|byte| !matches!(byte, b'\r' | b'\n' | 0xff))
                        .collect();
                    if clean
                        .first()
                        .is_none_or(|byte| !matches!(byte, b'Q' | b'q' | b' '))
                    {
                        self.line(&clean);
                    }
                }
                _ => self.settle(Duration::from_secs(6)),
            }
        }
        // What runs for ever is ended; then each line must have had its reply.
        if !self.shell.closed {
            self.line(b"ABOR");
            self.settle(Duration::from_secs(30));
        }
        if !self.shell.closed {
            assert_eq!(self.shell.outstanding, 0, "the shell owes nothing");
            assert_eq!(self.finals, self.lines, "one final reply for each line");
        }
        assert!(
            self.transfers_ok <= self.shell.ended_well,
            "a false success"
        );
    }

    /// A shell that answers at random, and bytes at random.
    fn hostile(&mut self, data: &mut Bytes<'_>) {
        let mut closed = false;
        while let Some(operation) = data.next() {
            match operation % 6 {
                0 | 1 => {
                    if let Some(line) = data.pick(LINES) {
                        let bytes = format!("{line}\r\n");
                        self.pi
                            .handle_input(self.now, Input::Bytes(bytes.as_bytes()));
                    }
                }
                2 => {
                    let n = usize::from(data.next().unwrap_or(0));
                    self.pi.handle_input(self.now, Input::Bytes(data.take(n)));
                }
                3 | 4 => {
                    if let Some(words) = data.pick(ANSWERS)
                        && let Directive::Input(input) = directive(words)
                    {
                        self.pi.handle_input(self.now, input);
                    }
                }
                _ => {
                    self.now += Duration::from_secs(u64::from(operation));
                    self.pi.handle_input(self.now, Input::Timeout);
                }
            }
            while let Some(output) = self.pi.poll_output() {
                assert!(!closed, "an output after Close: {output:?}");
                match output {
                    Output::Close => closed = true,
                    Output::Send(bytes) => self.hear(&bytes),
                    _ => {}
                }
            }
            assert!(!closed || self.pi.poll_timeout().is_none());
        }
    }
}

/// Replies that a server may send, whole or in parts.
const REPLIES: &[&[u8]] = &[
    b"200 OK.\r\n",
    b"150 Beginning transfer.\r\n",
    b"226 Transfer Complete.\r\n",
    b"226 Abort finished\r\n",
    b"426 Aborted.\r\n",
    b"421 Service not available\r\n",
    b"550-a\r\n550-b\r\n550 End.\r\n",
    b"111 Range Marker 0-10\r\n",
    b"stray line\r\n",
    b"212-",
    b"\r\n",
    b"530 no\r\n",
    b"258 bytes=1;channels=1;\r\n",
    b"558 no transfer\r\n",
];

const COMMANDS: &[&str] = &[
    "NOOP",
    "RETR /f",
    "STOR /f",
    "ABOR",
    "CKSM MD5 0 -1 /f",
    "PASV",
    "QUIT",
    "MLSC /d",
    "SITE GODWIT REPORT",
];

/// Feeds a `ClientPi` what `data` spells.
pub(crate) fn client_pi(data: &[u8]) {
    let mut data = Bytes(data);
    let mut now = epoch();
    let mut pi = ClientPi::new(ClientConfig::default(), now);
    let mut open = BTreeSet::new();
    let mut over = false;
    while let Some(operation) = data.next() {
        match operation % 6 {
            0 | 1 => {
                if let Some(line) = data.pick(COMMANDS) {
                    let command = Command::parse(line.as_bytes()).expect("a command of ours");
                    let id = pi.submit(now, &command);
                    if !over {
                        open.insert(id);
                    }
                }
            }
            2 | 3 => {
                if let Some(reply) = data.pick(REPLIES) {
                    pi.handle_input(now, client::Input::Bytes(reply));
                }
            }
            4 => {
                let n = usize::from(data.next().unwrap_or(0));
                pi.handle_input(now, client::Input::Bytes(data.take(n)));
            }
            _ => {
                now += Duration::from_secs(u64::from(operation));
                if operation > 250 {
                    pi.handle_input(now, client::Input::Closed);
                } else {
                    pi.handle_input(now, client::Input::Timeout);
                }
            }
        }
        while let Some(output) = pi.poll_output() {
            assert!(!over, "an output after Failed: {output:?}");
            match output {
                client::Output::Final(id, reply) => {
                    assert!(open.remove(&id), "a second final reply");
                    assert!(!reply.code.is_preliminary());
                }
                client::Output::Preliminary(id, reply) => {
                    assert!(open.contains(&id), "1xx for a finished command");
                    assert!(reply.code.is_preliminary());
                }
                client::Output::Failed(_) => over = true,
                client::Output::Send(_) | client::Output::Greeting(_) => {}
            }
        }
        assert!(over || pi.in_flight() == open.len());
        assert!(!over || pi.poll_timeout().is_none());
    }
}

/// More lines than may wait end the session, and the memory they took.
pub(crate) fn flood(line: &[u8]) -> usize {
    let now = epoch();
    let mut pi = ServerPi::new(server_config(), now);
    pi.handle_input(now, Input::Bytes(b"USER u\r\nPASS p\r\n"));
    let mut sent = 0;
    while pi.poll_timeout().is_some() && sent <= 2 * QUEUE_MAX {
        pi.handle_input(now, Input::Bytes(line));
        sent += 1;
    }
    sent
}

/// Inputs that answer nothing: none may have an effect.
pub(crate) fn unasked() -> Vec<Input<'static>> {
    vec![
        Input::Done(Ok(Outcome::Listening(vec![addr("127.0.0.1:1")]))),
        Input::ChecksumProgress(1),
        Input::Live(Some(Box::default())),
        Input::TransferReady { reused: true },
        Input::TransferProgress {
            bytes: 1,
            fresh: RangeSet::new(),
        },
        Input::TransferDone {
            bytes: 1,
            fresh: RangeSet::new(),
            result: Err(TransferFailure::Aborted),
            cached: true,
        },
    ]
}

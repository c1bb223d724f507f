//! Both interpreters, joined in memory: a virtual clock, latency, and a line that can be cut
//! anywhere.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use godwit_proto::{
    ChecksumAlgorithm, Command, Reply,
    command::{Mode, Password},
    pi::{
        client::{self, ClientConfig, ClientPi, ClientPiError, CommandId},
        login::{Credentials, Login, Step},
        server::{self, ServerPi},
        transfer::{Direction, ServerState},
    },
};

use super::support::{epoch, server_config, shell::FakeShell};

const LATENCY: Duration = Duration::from_millis(50);
const SHELL_DELAY: Duration = Duration::from_millis(10);

/// A client and a server on a path.
struct Pair {
    now: Instant,
    client: ClientPi,
    server: ServerPi,
    shell: FakeShell,
    to_server: Line,
    to_client: Line,
    /// What the client was told, in order.
    greeting: Option<Reply>,
    finals: Vec<(CommandId, Reply)>,
    preliminaries: Vec<(CommandId, Reply)>,
    failed: Option<ClientPiError>,
}

/// One direction of the path.
#[derive(Default)]
struct Line {
    packets: VecDeque<(Instant, Vec<u8>)>,
    /// Bytes that still pass; then the connection is gone in both directions.
    passes: Option<usize>,
    closes_at: Option<Instant>,
    closed: bool,
}

impl Line {
    fn write(&mut self, now: Instant, mut bytes: Vec<u8>) {
        if self.closes_at.is_some() {
            return;
        }
        if let Some(passes) = &mut self.passes {
            bytes.truncate(*passes);
            *passes -= bytes.len();
            if *passes == 0 {
                self.closes_at = Some(now + LATENCY);
            }
        }
        self.packets.push_back((now + LATENCY, bytes));
    }

    fn due(&self) -> Option<Instant> {
        let packet = self.packets.front().map(|(at, _)| *at);
        let close = self.closes_at.filter(|_| !self.closed);
        packet.or(close)
    }
}

impl Pair {
    fn new() -> Self {
        let now = epoch();
        Self {
            now,
            client: ClientPi::new(ClientConfig::default(), now),
            server: ServerPi::new(server_config(), now),
            shell: FakeShell::new(SHELL_DELAY),
            to_server: Line::default(),
            to_client: Line::default(),
            greeting: None,
            finals: Vec::new(),
            preliminaries: Vec::new(),
            failed: None,
        }
    }

    /// Greeted and logged in.
    fn logged_in() -> (Self, ServerState) {
        let mut pair = Self::new();
        let features = pair.log_in("u", true).expect("a login");
        (pair, ServerState::new(features))
    }

    fn log_in(
        &mut self,
        user: &str,
        secret: bool,
    ) -> Result<godwit_proto::feature::Features, Step> {
        let credentials = Credentials {
            user: user.to_owned(),
            password: Password::new("secret"),
            secret,
        };
        let mut login = Login::new(credentials, "appname=\"test\";".to_owned());
        self.drive();
        let mut reply = self.greeting.clone().expect("a greeting");
        let mut due = VecDeque::new();
        loop {
            match login.handle_reply(&reply) {
                Step::Send(commands) => {
                    due.extend(commands.iter().map(|c| self.client.submit(self.now, c)));
                    self.drive();
                }
                Step::Wait => {}
                Step::Done(features) => return Ok(*features),
                refused @ Step::Refused { .. } => return Err(refused),
            }
            reply = self.reply_to(due.pop_front().expect("a reply is due"));
        }
    }

    fn submit(&mut self, line: &str) -> CommandId {
        let command = Command::parse(line.as_bytes()).unwrap();
        self.client.submit(self.now, &command)
    }

    /// Sends and waits.
    fn ask(&mut self, command: &Command) -> Reply {
        let id = self.client.submit(self.now, command);
        self.drive();
        self.reply_to(id)
    }

    fn ask_line(&mut self, line: &str) -> Reply {
        self.ask(&Command::parse(line.as_bytes()).unwrap())
    }

    fn reply_to(&self, id: CommandId) -> Reply {
        let found = self.finals.iter().find(|(i, _)| *i == id);
        found.expect("a final reply").1.clone()
    }

    fn codes(&self) -> Vec<u16> {
        self.finals.iter().map(|(_, r)| r.code.get()).collect()
    }

    /// Runs until nothing is on its way and the client waits for nothing.
    fn drive(&mut self) {
        self.drive_for(Duration::from_secs(3600));
    }

    fn drive_for(&mut self, time: Duration) {
        let until = self.now + time;
        for _ in 0..100_000 {
            self.flush();
            let is_quiet = self.client.in_flight() == 0 && self.greeting.is_some();
            let moving = [
                self.to_server.due(),
                self.to_client.due(),
                self.shell.next_due(),
            ];
            let waiting = [self.client.poll_timeout(), self.server.poll_timeout()];
            let next = moving
                .into_iter()
                .chain(waiting.into_iter().filter(|_| !is_quiet))
                .flatten()
                .min();
            match next {
                Some(at) if at <= until => self.now = self.now.max(at),
                _ => return,
            }
            self.step();
        }
        panic!("the pair does not come to rest");
    }

    fn step(&mut self) {
        if let Some(bytes) = arrive(&mut self.to_server, self.now) {
            match bytes {
                Some(bytes) => self
                    .server
                    .handle_input(self.now, server::Input::Bytes(&bytes)),
                None => self.server.handle_input(self.now, server::Input::Closed),
            }
        } else if let Some(bytes) = arrive(&mut self.to_client, self.now) {
            match bytes {
                Some(bytes) => self
                    .client
                    .handle_input(self.now, client::Input::Bytes(&bytes)),
                None => self.client.handle_input(self.now, client::Input::Closed),
            }
        } else if let Some(input) = self.shell.next_input(self.now) {
            self.server.handle_input(self.now, input);
        } else {
            if self.server.poll_timeout().is_some_and(|at| at <= self.now) {
                self.server.handle_input(self.now, server::Input::Timeout);
            }
            if self.client.poll_timeout().is_some_and(|at| at <= self.now) {
                self.client.handle_input(self.now, client::Input::Timeout);
            }
        }
    }

    fn flush(&mut self) {
        while let Some(output) = self.server.poll_output() {
            if let Some(bytes) = self.shell.take(self.now, output) {
                self.to_client.write(self.now, bytes);
            }
            if self.shell.closed {
                self.to_client.closes_at.get_or_insert(self.now + LATENCY);
            }
        }
        // A cut line is cut both ways.
        if self.to_client.closes_at.is_some() && self.to_client.passes.is_some() {
            self.to_server.closes_at.get_or_insert(self.now + LATENCY);
        }
        while let Some(output) = self.client.poll_output() {
            assert!(self.failed.is_none(), "an output after Failed: {output:?}");
            match output {
                client::Output::Send(bytes) => self.to_server.write(self.now, bytes),
                client::Output::Greeting(reply) => self.greeting = Some(reply),
                client::Output::Preliminary(id, reply) => self.preliminaries.push((id, reply)),
                client::Output::Final(id, reply) => self.finals.push((id, reply)),
                client::Output::Failed(error) => self.failed = Some(error),
            }
        }
    }
}

/// What has come to the end of the line: bytes, or its end. `None` where nothing has.
fn arrive(line: &mut Line, now: Instant) -> Option<Option<Vec<u8>>> {
    if line.packets.front().is_some_and(|(at, _)| *at <= now) {
        return line.packets.pop_front().map(|(_, bytes)| Some(bytes));
    }
    if line.packets.is_empty() && !line.closed && line.closes_at.is_some_and(|at| at <= now) {
        line.closed = true;
        return Some(None);
    }
    None
}

#[test]
fn the_opening_tells_the_features() {
    for secret in [true, false] {
        let features = Pair::new().log_in("u", secret).expect("a login");
        assert!(features.parallel && features.rest_stream && features.mlst && features.sbuf);
        assert!(features.pasv_delayed && features.epsv && features.mlsc && !features.dcau);
        assert_eq!(features.checksums, ChecksumAlgorithm::ALL);
    }
}

#[test]
fn a_refused_login_names_its_command() {
    for secret in [true, false] {
        let refused = Pair::new().log_in("mallory", secret).unwrap_err();
        assert!(
            matches!(&refused, Step::Refused { command: "PASS", reply } if reply.code.get() == 530),
            "{refused:?}"
        );
    }
}

/// Everything a mover does: prepare, address, transfer, and the next one on the same connections.
#[test]
fn nothing_is_sent_twice_and_channels_are_reused() {
    let (mut pair, mut state) = Pair::logged_in();
    let mut sent = Vec::new();
    for (direction, parallelism, line) in [
        (Direction::Put, 4, "STOR /a"),
        (Direction::Put, 6, "STOR /b"),
        (Direction::Get, 4, "RETR /a"),
        (Direction::Get, 4, "RETR /b"),
        (Direction::Get, 8, "RETR /c"),
    ] {
        let commands = state.prepare(Mode::ExtendedBlock, direction, parallelism, Some(65536));
        for command in &commands {
            assert_eq!(pair.ask(command).code.get(), 200, "{command:?}");
            sent.push(command.masked());
        }
        if !state.can_reuse(direction) {
            let address = match direction {
                Direction::Put => "PASV",
                Direction::Get => "PORT 127,0,0,1,142,177",
            };
            assert!(pair.ask_line(address).code.is_success());
            sent.push(address.to_owned());
        }
        let id = pair.submit(line);
        pair.drive();
        assert_eq!(pair.reply_to(id).code.get(), 226, "{line}");
        let first = &pair.preliminaries.iter().find(|(i, _)| *i == id).unwrap().1;
        sent.push(format!("{line} {}", first.code));
        state.transfer_done(direction, true);
    }
    assert_eq!(
        sent,
        [
            "MODE E",
            "SBUF 65536",
            "PASV",
            "STOR /a 150",
            "STOR /b 125",
            "OPTS RETR Parallelism=4,4,4;",
            "PORT 127,0,0,1,142,177",
            "RETR /a 150",
            "RETR /b 125",
            "OPTS RETR Parallelism=8,8,8;",
            "PORT 127,0,0,1,142,177",
            "RETR /c 150",
        ]
    );
}

/// §8 row 3.
#[test]
fn fifty_commands_cost_one_round_trip() {
    let (mut pair, _) = Pair::logged_in();
    let begin = pair.now;
    let ids: Vec<_> = (0..50).map(|_| pair.submit("NOOP")).collect();
    pair.drive();
    let last: Vec<_> = pair.finals.iter().rev().take(50).map(|(i, _)| *i).collect();
    assert!(last.iter().rev().eq(&ids), "in order");
    assert_eq!(pair.now - begin, 2 * LATENCY);
}

#[test]
fn pipelined_transfers_wait_for_nothing_but_the_data() {
    let (mut pair, _) = Pair::logged_in();
    let begin = pair.now;
    pair.submit("MODE E");
    pair.submit("PASV");
    for i in 0..10 {
        pair.submit(&format!("STOR /f{i}"));
    }
    pair.drive();
    assert_eq!(pair.codes()[pair.finals.len() - 10..], [226; 10]);
    assert_eq!(pair.shell.received.len(), 10);
    // One round trip for all; PASV and each file take the shell's time.
    assert_eq!(pair.now - begin, 2 * LATENCY + SHELL_DELAY * (1 + 2 * 10));
}

#[test]
fn transfers_pipelined_behind_a_failure_fail_at_once() {
    let (mut pair, _) = Pair::logged_in();
    pair.submit("MODE E");
    pair.submit("PASV");
    for name in ["a", "missing", "b", "c"] {
        pair.submit(&format!("STOR /{name}"));
    }
    pair.submit("PASV");
    pair.submit("STOR /d");
    let begin = pair.now;
    pair.drive();
    let codes = pair.codes();
    assert_eq!(
        codes[codes.len() - 8..],
        [200, 227, 226, 550, 425, 425, 227, 226]
    );
    assert_eq!(pair.shell.received, ["/a", "/d"]);
    assert!(pair.now - begin < Duration::from_secs(1));
}

/// §8 row 7: wherever ABOR meets the transfer, a 226 is never false, each command has its reply,
/// and the session lives.
#[test]
fn abort_at_any_moment() {
    for after in (0..400).step_by(5) {
        for (name, mode) in [("f", "MODE S"), ("slow", "MODE E")] {
            let (mut pair, _) = Pair::logged_in();
            pair.submit(mode);
            pair.submit("PASV");
            pair.submit("ALLO 3000");
            let store = pair.submit(&format!("STOR /{name}"));
            let behind = pair.submit("PWD");
            pair.drive_for(Duration::from_millis(after));
            let abort = pair.submit("ABOR");
            pair.drive();
            assert_eq!(pair.reply_to(abort).code.get(), 226, "{after} ms");
            if pair.reply_to(store).code.is_success() {
                assert_eq!(pair.shell.received, ["/f"], "{after} ms: a false success");
            }
            assert!(matches!(pair.reply_to(behind).code.get(), 257 | 426));
            assert_eq!(pair.ask_line("NOOP").code.get(), 200);
            assert_eq!(pair.ask_line("PASV").code.get(), 227);
            let again = pair.ask_line("STOR /again");
            assert_eq!(again.code.get(), 226, "{after} ms");
            assert_eq!(pair.failed, None);
        }
    }
}

/// §8 row 38: wherever the line breaks, both ends notice, and no upload counts as complete that is
/// not.
#[test]
fn cut_at_any_byte() {
    let mut whole = 0;
    for passes in 1..2000 {
        let (mut pair, _) = Pair::logged_in();
        pair.to_client.passes = Some(passes);
        pair.submit("MODE E");
        pair.submit("PASV");
        let ids = [
            pair.submit("STOR /f"),
            pair.submit("STOR /g"),
            pair.submit("STOR /slow"),
        ];
        // Less than the time between markers, which would come without end.
        pair.drive_for(Duration::from_secs(4));
        let known = |id| {
            pair.finals
                .iter()
                .any(|(i, reply)| *i == id && reply.code.is_success())
        };
        let completed = ids.iter().filter(|id| known(**id)).count();
        assert!(completed <= pair.shell.received.len(), "cut at {passes}");
        if pair.failed.is_none() {
            // More bytes than the dialogue has, and the slow one still runs.
            whole += 1;
            assert_eq!(pair.client.in_flight(), 1);
            break;
        }
        assert_eq!(pair.failed, Some(ClientPiError::Closed { last: None }));
        assert!(pair.shell.closed, "cut at {passes}: the server goes on");
        assert_eq!(
            (pair.client.in_flight(), pair.server.poll_timeout()),
            (0, None)
        );
    }
    assert_eq!(whole, 1, "2000 bytes are too few");
}

#[test]
fn an_idle_session_ends_with_words() {
    let (mut pair, _) = Pair::logged_in();
    pair.drive();
    let due = pair.server.poll_timeout().unwrap();
    pair.now = due;
    pair.server.handle_input(due, server::Input::Timeout);
    pair.drive();
    match &pair.failed {
        Some(ClientPiError::Closed { last: Some(reply) }) => assert_eq!(reply.code.get(), 421),
        other => panic!("{other:?}"),
    }
}

#[test]
fn quit_behind_everything_says_goodbye() {
    let (mut pair, _) = Pair::logged_in();
    pair.submit("PASV");
    pair.submit("RETR /f");
    pair.submit("QUIT");
    pair.drive();
    assert_eq!(pair.codes()[pair.finals.len() - 3..], [227, 226, 221]);
    assert!(pair.shell.closed);
}

#[test]
fn a_server_is_told_once_that_its_receiver_knows_holes() {
    let (mut pair, mut state) = Pair::logged_in();
    assert!(state.features.holes);
    let mut asked = |state: &mut ServerState| -> Vec<String> {
        let commands = state.prepare(Mode::ExtendedBlock, Direction::Get, 4, None);
        for command in &commands {
            assert_eq!(pair.ask(command).code.get(), 200, "{command:?}");
        }
        commands.iter().map(Command::masked).collect()
    };
    let parallelism = "OPTS RETR Parallelism=4,4,4;";
    assert_eq!(asked(&mut state), ["MODE E", parallelism]);
    state.wants_holes = true;
    state.transfer_done(Direction::Get, true);
    assert_eq!(asked(&mut state), ["OPTS RETR Holes=1;"]);
    assert!(
        !state.can_reuse(Direction::Get),
        "channels keep what was said before them"
    );
    assert!(asked(&mut state).is_empty());
    // Nothing is known any more: it is said again.
    state.forget();
    let all = format!("{parallelism}Holes=1;");
    assert_eq!(asked(&mut state), ["TYPE I", "MODE E", all.as_str()]);
    state.wants_holes = false;
    assert_eq!(asked(&mut state), ["OPTS RETR Holes=0;"]);
    state.forget();
    state.features.holes = false;
    state.wants_holes = true;
    assert_eq!(asked(&mut state), ["TYPE I", "MODE E", parallelism]);
}

/// A server without SBUF and markers, as GCT's is: the SITE words are tried; a failure is forgotten
/// cleanly.
#[test]
fn without_sbuf_site_commands_set_buffers() {
    let (pair, mut state) = Pair::logged_in();
    drop(pair);
    state.features.sbuf = false;
    let masked =
        |commands: Vec<Command>| -> Vec<String> { commands.iter().map(Command::masked).collect() };
    let put = (Mode::ExtendedBlock, Direction::Put, 4);
    assert_eq!(
        masked(state.prepare(put.0, put.1, put.2, Some(9))),
        ["MODE E", "SITE RETRBUFSIZE 9", "SITE STORBUFSIZE 9"]
    );
    state.transfer_done(Direction::Put, true);
    assert!(state.prepare(put.0, put.1, 16, Some(9)).is_empty());
    assert!(state.can_reuse(Direction::Put) && !state.can_reuse(Direction::Get));
    // Another buffer, another channel.
    assert_eq!(state.prepare(put.0, put.1, put.2, Some(10)).len(), 2);
    assert!(!state.can_reuse(Direction::Put));
    state.transfer_done(Direction::Put, true);
    state.forget();
    assert!(!state.can_reuse(Direction::Put));
    assert_eq!(
        masked(state.prepare(Mode::Stream, Direction::Get, 4, None)),
        ["TYPE I", "MODE S"]
    );
    state.transfer_done(Direction::Get, true);
    assert!(!state.can_reuse(Direction::Get), "never in MODE S");
}

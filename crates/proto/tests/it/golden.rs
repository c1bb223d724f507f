//! Golden transcripts: `tests/golden/*.txt`.
//!
//! | Line | Meaning |
//! |---|---|
//! | `# ...` | comment; the first names the section of the specification |
//! | `! config WORDS` | first of all: `readonly`, `foreign` (hosts), `ipv6`, `nologin` (no opening dialogue), `greeting`, `gssapi`, `tls`, `tokens`, `anonymous` and `no-clear` (who may log in before AUTH), `private`, `ssh` |
//! | `! server-only` | the lines are not what our client would send: it is left out |
//! | `! WORDS` | what the shell answers, see `support/script.rs` |
//! | `C: line` | the client sends this |
//! | `D0: hex [+n]` | a MODE E header on data channel 0, with n bytes of payload; checked against the next `! done` |
//! | `S: line` | the server sends this |
//! | `> words` | the shell is told this |
//!
//! The runner feeds `C:` and `!` lines to a [`ServerPi`] and compares `S:` and `>` lines; then it
//! feeds `S:` lines to a [`ClientPi`], which must send the `C:` lines and match each final reply to
//! its command.
//!
//! To write the `S:` and `>` lines again, and then review the difference:
//! `GODWIT_GOLDEN=write cargo test -p godwit-proto --test it golden`

use std::{fs, path::PathBuf, time::Instant};

use godwit_proto::{
    Command,
    mode_e::{
        BlockHeader,
        receiver::{ChannelPosition, Receiver},
    },
    pi::{
        client::{self, ClientConfig, ClientPi, ClientPiError},
        server::{ClearLogins, Input, Output, ServerPi},
    },
    security::MinProtection,
};

use super::support::{
    addr, drain, epoch,
    script::{Directive, describe, directive},
    server_config,
};

#[test]
fn golden_transcripts() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let write = std::env::var("GODWIT_GOLDEN").is_ok_and(|v| v == "write");
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no transcripts in {}", folder.display());
    let mut stale = Vec::new();
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&file).unwrap();
        let played = play_server(&name, &text);
        if played != text {
            if write {
                fs::write(&file, &played).unwrap();
            } else {
                stale.push(format!("{name}:\n{}", first_difference(&text, &played)));
            }
        }
        play_client(&name, &played);
    }
    assert!(stale.is_empty(), "{}", stale.join("\n"));
}

fn first_difference(old: &str, new: &str) -> String {
    let mut old_lines = old.lines();
    let mut new_lines = new.lines();
    let mut at = 0;
    loop {
        at += 1;
        match (old_lines.next(), new_lines.next()) {
            (None, None) => return "line ends".to_owned(),
            (was, is) if was != is => {
                return format!("line {at}\n  wanted {was:?}\n  got    {is:?}");
            }
            _ => {}
        }
    }
}

/// The transcript as the server has it.
fn play_server(name: &str, text: &str) -> String {
    let mut stage = Stage::new(text);
    let mut played = String::new();
    for line in text.lines() {
        if line.starts_with("S: ") || line.starts_with("> ") {
            continue;
        }
        played += line;
        played.push('\n');
        stage.line(name, line, &mut played);
    }
    played
}

struct Stage {
    pi: ServerPi,
    now: Instant,
    greeted: bool,
    blocks: Option<(Receiver, u64)>,
}

impl Stage {
    fn new(text: &str) -> Self {
        let mut config = server_config();
        let mut login = true;
        let mut greeted = true;
        let words = text.lines().find_map(|l| l.strip_prefix("! config "));
        for word in words.unwrap_or_default().split_whitespace() {
            match word {
                "readonly" => config.writable = false,
                "foreign" => config.foreign_data_hosts = true,
                "ipv6" => {
                    config.peer = addr("[::1]:40000");
                    config.local = addr("[::1]:2811");
                }
                "nologin" => {
                    login = false;
                    greeted = false;
                }
                "greeting" => config.greeting = "Welcome.\n220 is our code.\nBye.".to_owned(),
                "gssapi" => config.gssapi = true,
                "tls" => config.tls = true,
                "tokens" => config.tokens = true,
                "anonymous" => config.clear_logins = ClearLogins::Anonymous,
                "no-clear" => config.clear_logins = ClearLogins::Never,
                "private" => config.min_protection = MinProtection::Private,
                "ssh" => config.private_channel = true,
                other => panic!("unknown config word {other}"),
            }
        }
        let now = epoch();
        let mut pi = ServerPi::new(config, now);
        if login {
            pi.handle_input(now, Input::Bytes(b"USER u\r\nPASS p\r\n"));
            pi.handle_input(now, Input::Done(Ok(super::support::shell::done())));
            pi.handle_input(now, Input::Bytes(b"TYPE I\r\n"));
            drain(&mut pi);
        }
        Self {
            pi,
            now,
            greeted,
            blocks: None,
        }
    }

    fn line(&mut self, name: &str, line: &str, played: &mut String) {
        if let Some(command) = line.strip_prefix("C: ") {
            let bytes = format!("{command}\r\n");
            self.pi
                .handle_input(self.now, Input::Bytes(bytes.as_bytes()));
        } else if let Some(block) = line.strip_prefix("D0: ") {
            self.block(name, block);
        } else if let Some(words) = line.strip_prefix("! ") {
            if words.starts_with("server-only") {
                return;
            }
            if words.starts_with("config ") {
                // The greeting is shown where the opening dialogue is.
                if !self.greeted {
                    self.show(played);
                }
                return;
            }
            self.check_blocks(name, words);
            match directive(words) {
                Directive::Input(input) => self.pi.handle_input(self.now, input),
                Directive::Tick(time) => self.tick(time),
            }
        } else {
            return;
        }
        self.show(played);
    }

    fn tick(&mut self, time: std::time::Duration) {
        let until = self.now + time;
        while let Some(due) = self.pi.poll_timeout().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.pi.handle_input(self.now, Input::Timeout);
            if self.pi.poll_timeout() == Some(due) {
                break;
            }
        }
        self.now = until;
    }

    fn show(&mut self, played: &mut String) {
        for output in drain(&mut self.pi) {
            if let Output::Send(bytes) = &output {
                let text = String::from_utf8(bytes.clone()).unwrap();
                for line in text.strip_suffix("\r\n").unwrap().split("\r\n") {
                    *played += &format!("S: {line}\n");
                }
            } else if let Some(words) = describe(&output) {
                *played += &format!("> {words}\n");
            }
        }
    }

    fn block(&mut self, name: &str, block: &str) {
        let mut words = block.split_whitespace();
        let hex = words.next().unwrap();
        assert_eq!(hex.len(), 34, "{name}: a header has 17 bytes: {block}");
        let mut bytes = [0; 17];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap();
        }
        let payload: u64 = words.next().map_or(0, |n| n[1..].parse().unwrap());
        let header = BlockHeader::decode(&bytes).unwrap();
        assert_eq!(header.payload_bytes(), payload, "{name}: {block}");
        let (receiver, total) = self.blocks.get_or_insert((Receiver::new(64), 0));
        // Each header of a transcript stands for a channel that is in mid-transfer.
        receiver
            .handle_header(&mut ChannelPosition::Running, &header)
            .unwrap();
        *total += payload;
    }

    fn check_blocks(&mut self, name: &str, words: &str) {
        if let Some(rest) = words.strip_prefix("done ")
            && let Some((receiver, total)) = self.blocks.take()
        {
            let bytes: u64 = rest.split(' ').next().unwrap().parse().unwrap();
            assert_eq!((receiver.is_complete(), total), (true, bytes), "{name}");
        }
    }
}

/// The client's half: it must send the `C:` lines, and each of its commands gets one final reply,
/// in order.
fn play_client(name: &str, text: &str) {
    if text.lines().any(|l| l.starts_with("! server-only")) {
        return;
    }
    let now = epoch();
    let mut pi = ClientPi::new(ClientConfig::default(), now);
    let opening = !text
        .lines()
        .any(|l| l.starts_with("! config") && l.contains("nologin"));
    if opening {
        pi.handle_input(now, client::Input::Bytes(b"220 ready.\r\n"));
    }
    let mut sent = Vec::new();
    let mut live_requests = Vec::new();
    let mut answered = Vec::new();
    let mut farewell = None;
    for line in text.lines() {
        if let Some(line) = line.strip_prefix("C: ") {
            let command = Command::parse(line.as_bytes())
                .unwrap_or_else(|e| panic!("{name}: {line}: {e}, is it `! server-only`?"));
            let id = pi.submit(now, &command);
            sent.push(id);
            if command.is_live_request() {
                live_requests.push(id);
            }
            let mut bytes = Vec::new();
            while let Some(output) = pi.poll_output() {
                match output {
                    client::Output::Send(more) => bytes.extend(more),
                    client::Output::Greeting(_) => {}
                    other => panic!("{name}: {line}: {other:?}"),
                }
            }
            assert_eq!(
                String::from_utf8(bytes).unwrap(),
                format!("{line}\r\n"),
                "{name}"
            );
        } else if let Some(line) = line.strip_prefix("S: ") {
            pi.handle_input(now, client::Input::Bytes(format!("{line}\r\n").as_bytes()));
            while let Some(output) = pi.poll_output() {
                match output {
                    client::Output::Greeting(_) => {}
                    client::Output::Preliminary(id, _) => {
                        assert!(
                            sent.contains(&id) && !answered.contains(&id),
                            "{name}: {line}"
                        );
                    }
                    client::Output::Final(id, _) => answered.push(id),
                    client::Output::Failed(ClientPiError::Closed { last }) => farewell = last,
                    other => panic!("{name}: {line}: {other:?}"),
                }
            }
        }
    }
    if farewell.is_none() && !text.contains("\n> Close") {
        // Live requests overtake others, but not each other.
        let split = |ids: Vec<_>| -> (Vec<_>, Vec<_>) {
            ids.into_iter().partition(|id| live_requests.contains(id))
        };
        assert_eq!(
            split(answered),
            split(sent),
            "{name}: commands and final replies"
        );
    }
}

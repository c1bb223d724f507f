//! Processes that an attacker has taken over, and the monitor. The tests write in their name: they
//! take a descriptor out of a running pre-login process or session, as only root may.

use std::{
    fs::{self, File},
    io::{IoSlice, Write as _},
    mem::MaybeUninit,
    os::fd::{AsFd as _, OwnedFd},
    thread,
};

use rustix::{
    fs::ftruncate,
    io::{Errno, write},
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, sendmsg, shutdown},
    process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open},
};

use crate::{client::Ftp, harness::eventually, privsep::JO, separated_logins::Site};

/// Descriptors of a process: messages of the monitor come in by the first and messages to it go out
/// by the second.
const DOWN: i32 = 0;
const UP: i32 = 1;

const LOG: i32 = 2;

/// Longest message.
const MESSAGE_MAX: usize = 64 * 1024;

const LOGIN: &str =
    r#"{"Login":{"user":"games","password":"x","identity":null,"disbelief":null,"channel":"Tls"}}"#;
const PUT: &str = r#"{"Audit":{"event":"put","path":"/f","result":"done"}}"#;
const TURN_WANTED: &str = "\"TurnWanted\"";
const TURN_ENDED: &str = "\"TurnEnded\"";
const FAR: &str =
    r#"{"Progress":{"transfer":null,"channels":{"now":4294967295,"opened":18446744073709551615}}}"#;

fn site() -> Option<Site> {
    Site::new(&["--allow-clear-passwords", "--login-failures", "1000"])
}

fn taken(process: u32, descriptor: i32) -> OwnedFd {
    let pid = Pid::from_raw(process.try_into().unwrap()).unwrap();
    let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    pidfd_getfd(process, descriptor, PidfdGetfdFlags::empty()).unwrap()
}

/// A message behind its length.
fn framed(message: &str) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap();
    [&length.to_be_bytes()[..], message.as_bytes()].concat()
}

/// What neither pre-login nor a session may send.
fn nonsense() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("no length that can be", vec![0xff; 64]),
        (
            "a message that is too long",
            framed(&" ".repeat(MESSAGE_MAX + 1)),
        ),
        ("an empty message", framed("")),
        ("no message", framed("\u{0}\u{7f}")),
        ("a deep one", framed(&"[".repeat(MESSAGE_MAX))),
        ("one of no kind", framed(r#"{"Root":{}}"#)),
        ("an answer", framed("\"Entered\"")),
        (
            "another file",
            framed(r#"{"Trust":{"name":"../../etc/shadow"}}"#),
        ),
        (
            "another's file",
            framed(r#"{"Trust":{"name":"0a1b2c3d.0","session":1}}"#),
        ),
        (
            "a good message and nonsense",
            [framed(r#"{"Trust":{"name":"0a1b2c3d.0"}}"#), vec![1; 9]].concat(),
        ),
    ]
}

impl Site {
    /// A client before its login, and its pre-login process.
    fn with_pre_login(&self) -> (Ftp, u32) {
        self.await_no_processes();
        let mut ftp = Ftp::connect(self.program.address);
        ftp.await_code(220);
        ftp.call("NOOP");
        let [pre_login] = self.program.children("privsep-front")[..] else {
            panic!("one pre-login process")
        };
        (ftp, pre_login)
    }

    fn with_session(&self) -> (Ftp, u32) {
        let (mut ftp, _) = self.with_pre_login();
        log_in(&mut ftp);
        let [session] = self.program.children("privsep-session")[..] else {
            panic!("one session")
        };
        (ftp, session)
    }

    fn await_no_processes(&self) {
        eventually("all have ended", || {
            self.program.children("privsep-").is_empty()
        });
    }

    /// Another user logs in and stores a file.
    fn serves(&self) {
        let mut ftp = Ftp::connect(self.program.address);
        ftp.await_code(220);
        log_in(&mut ftp);
        ftp.expect("TYPE I", 200);
        assert_eq!(ftp.put("STOR /jo/f", b"abc").code, 226);
        ftp.expect("QUIT", 221);
    }

    /// Descriptors of the monitor without sessions.
    fn descriptors(&self) -> usize {
        self.await_no_processes();
        let folder = format!("/proc/{}/fd", self.program.child.id());
        fs::read_dir(folder).unwrap().count()
    }

    fn gives_descriptors_back(&self, before: usize) {
        eventually("no descriptor is left open", || {
            self.descriptors() <= before
        });
    }
}

fn log_in(ftp: &mut Ftp) {
    ftp.expect(&format!("USER {JO}"), 331);
    ftp.expect("PASS se cret", 230);
}

#[test]
fn a_corrupt_pre_login_ends_only_its_own_connection() {
    let Some(site) = site() else { return };
    site.serves();
    let before = site.descriptors();
    let mut all = nonsense();
    all.extend([
        ("a session's message", framed("\"Ready\"")),
        ("a session's event", framed(PUT)),
        (
            "a user that is no name",
            framed(&LOGIN.replace("games", "a\\nb")),
        ),
        (
            "an identity that is none",
            framed(&LOGIN.replace("\"identity\":null", "\"identity\":\"Jo\"")),
        ),
        (
            "questions without end",
            framed(r#"{"Trust":{"name":"0a1b2c3d.0"}}"#).repeat(1001),
        ),
        ("guesses without end", framed(LOGIN).repeat(6)),
        (
            "failures without end",
            framed(r#"{"HandshakeFailed":{"why":"x"}}"#).repeat(6),
        ),
    ]);
    for (what, bytes) in all {
        let (mut ftp, pre_login) = site.with_pre_login();
        // It may be gone before it has said all of it.
        let _ = File::from(taken(pre_login, UP)).write_all(&bytes);
        assert_eq!(ftp.try_reply(), None, "{what}");
        site.serves();
    }
    site.gives_descriptors_back(before);
}

#[test]
fn half_a_message_delays_only_its_sender() {
    let Some(site) = site() else { return };
    let before = site.descriptors();
    for cut in [1, 4, 9] {
        let (mut ftp, pre_login) = site.with_pre_login();
        let half = &framed(LOGIN)[..cut];
        File::from(taken(pre_login, UP)).write_all(half).unwrap();
        site.serves();
        ftp.expect("QUIT", 221);
        let (mut ftp, session) = site.with_session();
        File::from(taken(session, UP))
            .write_all(&framed(PUT)[..cut])
            .unwrap();
        ftp.expect("NOOP", 200);
        site.serves();
    }
    site.gives_descriptors_back(before);
}

#[test]
fn a_session_that_breaks_the_rules_ends_only_itself() {
    let Some(site) = site() else { return };
    site.serves();
    let before = site.descriptors();
    let mut all = nonsense();
    let forged = r#"{"Audit":{"event":"login","to":"forged","result":"done"}}"#;
    all.extend([
        ("that it begins", framed("\"Ready\"")),
        ("that it cannot begin", framed(r#"{"Unable":{"why":"x"}}"#)),
        ("a message of pre-login", framed(LOGIN)),
        ("a login of another user", framed(forged)),
        (
            "an event of another",
            framed(&PUT.replace("\"path\"", "\"session\":1,\"path\"")),
        ),
        (
            "an account",
            framed(&PUT.replace("\"path\"", "\"account\":\"root\",\"path\"")),
        ),
        ("progress without end", framed(FAR).repeat(100)),
        ("two turns at a time", framed(TURN_WANTED).repeat(2)),
        ("the end of a turn that it has not", framed(TURN_ENDED)),
    ]);
    for (what, bytes) in all {
        let (mut ftp, session) = site.with_session();
        let _ = File::from(taken(session, UP)).write_all(&bytes);
        assert_eq!(ftp.try_reply(), None, "{what}");
        site.serves();
    }
    assert_eq!(site.audited(&["forged"]), 0);
    site.gives_descriptors_back(before);
}

#[test]
fn no_process_sends_the_monitor_descriptors() {
    let Some(site) = site() else { return };
    let sends = |process: u32| {
        let file = File::open("/dev/null").unwrap();
        let beside = [file.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&beside)));
        let bytes = [IoSlice::new(PUT.as_bytes())];
        let flags = SendFlags::NOSIGNAL;
        let down = sendmsg(taken(process, DOWN), &bytes, &mut control, flags);
        let up = sendmsg(taken(process, UP), &bytes, &mut control, flags);
        (down, up)
    };
    let (mut ftp, pre_login) = site.with_pre_login();
    assert_eq!(sends(pre_login), (Err(Errno::PIPE), Err(Errno::NOTSOCK)));
    log_in(&mut ftp);
    let session = site.program.children("privsep-session")[0];
    assert_eq!(sends(session), (Err(Errno::PIPE), Err(Errno::NOTSOCK)));
    ftp.expect("NOOP", 200);
}

/// More than the monitor has threads, so that each of them would be stopped.
#[test]
fn impossible_numbers_do_not_stop_the_monitor() {
    let Some(site) = site() else { return };
    let before = site.descriptors();
    for _ in 0..8 {
        let (mut ftp, session) = site.with_session();
        let folder = format!("/proc/{session}/fd");
        let mut written = 0;
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let is_counter = |target: &std::path::Path| target.ends_with("anon_inode:[eventfd]");
            if fs::read_link(&path).is_ok_and(|target| is_counter(&target)) {
                let name = path.file_name().unwrap().to_str().unwrap();
                let counter = taken(session, name.parse().unwrap());
                let most = u64::MAX - 1_000_000;
                written += usize::from(write(&counter, &most.to_ne_bytes()).is_ok());
            }
        }
        assert!(written >= 4, "{written} counters");
        ftp.send("QUIT");
        drop(ftp);
        site.await_no_processes();
    }
    for _ in 0..8 {
        site.serves();
    }
    site.gives_descriptors_back(before);
}

#[test]
fn a_flood_of_messages_takes_no_login_from_others() {
    let Some(site) = site() else { return };
    let (mut ftp, session) = site.with_session();
    let mut up = File::from(taken(session, UP));
    let question = framed(r#"{"Trust":{"name":"0a1b2c3d.0"}}"#);
    let flood = [framed(PUT).repeat(10), question].concat();
    let floods = thread::spawn(move || while up.write_all(&flood).is_ok() {});
    for _ in 0..10 {
        site.serves();
    }
    // What it asks for it does not read, so the monitor ends it; else it ends with its client.
    ftp.send("QUIT");
    drop(ftp);
    floods.join().unwrap();
    site.serves();
}

/// More of them than processors, all of the account that then asks for a checksum.
#[test]
fn turns_that_are_never_given_back_stop_no_checksum() {
    let Some(site) = site() else { return };
    site.serves();
    let before = site.descriptors();
    let cores = thread::available_parallelism().unwrap().get();
    let mut held = Vec::new();
    for _ in 0..=2 * cores {
        let known = site.program.children("privsep-session");
        let mut ftp = Ftp::connect(site.program.address);
        ftp.await_code(220);
        log_in(&mut ftp);
        let mut sessions = site.program.children("privsep-session");
        sessions.retain(|session| !known.contains(session));
        let mut up = File::from(taken(sessions[0], UP));
        up.write_all(&framed(TURN_WANTED)).unwrap();
        held.push(ftp);
    }
    let mut asks = Ftp::connect(site.program.address);
    asks.await_code(220);
    log_in(&mut asks);
    asks.expect("CKSM MD5 0 -1 /jo/f", 213);
    drop(held);
    drop(asks);
    site.gives_descriptors_back(before);
}

#[test]
fn turns_that_are_asked_for_and_not_read_stop_no_checksum() {
    let Some(site) = site() else { return };
    let (mut ftp, session) = site.with_session();
    let mut up = File::from(taken(session, UP));
    let pairs = [framed(TURN_WANTED), framed(TURN_ENDED)].concat();
    let flood = pairs.repeat(100);
    let floods = thread::spawn(move || while up.write_all(&flood).is_ok() {});
    site.serves();
    let mut asks = Ftp::connect(site.program.address);
    asks.await_code(220);
    log_in(&mut asks);
    for _ in 0..10 {
        asks.expect("CKSM MD5 0 -1 /jo/f", 213);
    }
    ftp.send("QUIT");
    drop(ftp);
    floods.join().unwrap();
    site.serves();
}

#[test]
fn the_log_is_not_theirs_to_close_or_cut() {
    let Some(site) = site() else { return };
    let log = || fs::read(site.program.log.path()).unwrap();
    let (mut ftp, pre_login) = site.with_pre_login();
    let before = log();
    assert!(!before.is_empty());
    let spoils = |process: u32| {
        let lines = taken(process, LOG);
        assert_eq!(shutdown(&lines, Shutdown::Both), Err(Errno::NOTSOCK));
        assert_eq!(ftruncate(&lines, 0), Err(Errno::INVAL));
        let mut lines = File::from(lines);
        lines.write_all(b"forged \x1b]0;title\x07\n").unwrap();
        lines.write_all(&[b'x'; 100_000]).unwrap();
    };
    spoils(pre_login);
    log_in(&mut ftp);
    spoils(site.program.children("privsep-session")[0]);
    ftp.expect("QUIT", 221);
    site.serves();
    site.await_no_processes();
    eventually("the log tells of what came after", || {
        let text = String::from_utf8(log()).unwrap();
        text.contains("forged") && text.matches("login").count() >= 2
    });
    assert!(log().starts_with(&before) && !log().contains(&0x1b));
}

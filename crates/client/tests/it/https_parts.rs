//! Large files over HTTPS: over several connections, and resumed.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use godwit_server::TokenSettings;
use rustix::net::sockopt;
use serde_json::json;

use crate::{
    harness::{Ran, godwit, nap, text, tree},
    https::Door,
    issuer::Issuer,
};

const MIB: u64 = 1 << 20;

/// 50 MB a second, at which a piece of each of several channels has about as many bytes together.
const SLOWLY: &str = "--max-rate=400M";

/// What may be moved again after a break: a piece of each channel, where the first was quick.
const AGAIN_BYTES: u64 = 80 * MIB;

/// Bytes that a socket on the way holds.
const SOCKET_BYTES: usize = 256 << 10;

/// Bytes that are nowhere alike in two places, and cheap to make.
fn make(path: &Path, length: u64) {
    let file = File::create(path).unwrap();
    file.set_len(length).unwrap();
    for at in (0..length - 8).step_by(64 << 10) {
        file.write_all_at(&(at + 1).to_be_bytes(), at).unwrap();
    }
}

/// Carries connections to a server, counts what clients send, breaks them and holds one up.
struct CountingPath {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    sent: AtomicU64,
    received: AtomicU64,
    /// All connections break when so many bytes have gone one way; 0: never.
    breaks_at: AtomicU64,
    /// The first connection that has sent so many bytes gets stuck; 0: none.
    sticks_at: AtomicU64,
    /// Until all have sent so many.
    released_at: AtomicU64,
    /// Bytes that were missing then when it had waited for long.
    missed: AtomicU64,
    /// Answers come so much later, milliseconds.
    delay: AtomicU64,
    /// That have carried more than handshakes and requests without a body.
    lanes: AtomicU64,
    open: Mutex<Vec<TcpStream>>,
}

impl CountingPath {
    fn to(server: SocketAddr, breaks_at: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            breaks_at: AtomicU64::new(breaks_at),
            ..State::default()
        });
        let carried = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(server) else {
                    continue;
                };
                for one in [&client, &server] {
                    // What they hold was counted, and is lost with them.
                    sockopt::set_socket_send_buffer_size(one, SOCKET_BYTES).unwrap();
                    sockopt::set_socket_recv_buffer_size(one, SOCKET_BYTES).unwrap();
                }
                let both = [&client, &server].map(|one| one.try_clone().unwrap());
                carried.open.lock().unwrap().extend(both);
                let (back, to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let state = Arc::clone(&carried);
                thread::spawn(move || state.carry(back, to_client, false));
                let state = Arc::clone(&carried);
                thread::spawn(move || state.carry(client, server, true));
            }
        });
        Self { address, state }
    }

    fn sent(&self) -> u64 {
        self.state.sent.load(Ordering::Relaxed)
    }

    fn received(&self) -> u64 {
        self.state.received.load(Ordering::Relaxed)
    }
}

impl State {
    fn carry(&self, mut from: TcpStream, mut to: TcpStream, is_sent: bool) {
        let counter = match is_sent {
            true => &self.sent,
            false => &self.received,
        };
        let (mut buffer, mut own) = (vec![0; 256 << 10], 0);
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            if !is_sent {
                let delay = self.delay.load(Ordering::Relaxed);
                thread::sleep(Duration::from_millis(delay));
            }
            if to.write_all(&buffer[..read]).is_err() {
                break;
            }
            if own < MIB && own + read as u64 >= MIB {
                self.lanes.fetch_add(1, Ordering::Relaxed);
            }
            own += read as u64;
            let sticks_at = self.sticks_at.load(Ordering::Relaxed);
            if is_sent && sticks_at != 0 && own >= sticks_at {
                self.hold();
            }
            let all = counter.fetch_add(read as u64, Ordering::Relaxed) + read as u64;
            let at = self.breaks_at.load(Ordering::Relaxed);
            if at != 0 && all >= at && self.breaks_at.swap(0, Ordering::Relaxed) != 0 {
                for open in self.open.lock().unwrap().drain(..) {
                    drop(open.shutdown(Shutdown::Both));
                }
            }
        }
        drop(to.shutdown(Shutdown::Both));
    }

    /// Holds one connection up.
    fn hold(&self) {
        if self.sticks_at.swap(0, Ordering::Relaxed) == 0 {
            return;
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        let released_at = self.released_at.load(Ordering::Relaxed);
        let missing = || released_at.saturating_sub(self.sent.load(Ordering::Relaxed));
        while missing() > 0 && Instant::now() < deadline {
            nap();
        }
        self.missed.store(missing(), Ordering::Relaxed);
    }
}

/// A source, a door and the way to it.
struct Sending {
    door: Door,
    path: CountingPath,
    here: tempfile::TempDir,
    /// With which the client logs in instead of a password.
    token: Option<String>,
}

impl Sending {
    fn new(length: u64, breaks_at: u64) -> Self {
        let here = tempfile::tempdir().unwrap();
        Self::to(Door::open(), here, length, breaks_at)
    }

    /// By a client that may only create.
    fn creating(length: u64, breaks_at: u64) -> Self {
        const AT: &str = "https://issuer.example.org/";
        let here = tempfile::tempdir().unwrap();
        let (keys, issuer) = (here.path().join("keys"), Issuer::es256("k"));
        fs::write(&keys, json!({ "keys": [issuer.jwk] }).to_string()).unwrap();
        let door = Door::open_with(|settings| {
            settings.tokens = Some(TokenSettings {
                issuers: vec![format!("{AT}={}", keys.display()).parse().unwrap()],
                audiences: vec!["https://127.0.0.1/".to_owned()],
            });
        });
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let token = issuer.token(&json!({
            "iss": AT, "sub": "robot", "aud": "https://127.0.0.1/", "wlcg.ver": "1.0",
            "exp": now.unwrap().as_secs() + 3600, "scope": "storage.create:/",
        }));
        Self {
            token: Some(token),
            ..Self::to(door, here, length, breaks_at)
        }
    }

    fn to(door: Door, here: tempfile::TempDir, length: u64, breaks_at: u64) -> Self {
        let sending = Self {
            path: CountingPath::to(door.address(), breaks_at),
            door,
            here,
            token: None,
        };
        make(&sending.at("f"), length);
        sending
    }

    fn at(&self, name: &str) -> PathBuf {
        self.here.path().join(name)
    }

    fn command(&self, options: &[&str]) -> std::process::Command {
        let user = match self.token {
            Some(_) => "",
            None => "jo@",
        };
        let url = format!("https://{user}{}/f", self.path.address);
        let ca = self.door.ca();
        let (from, ca) = (self.at("f"), text(&ca));
        let first = ["cp", "--ca", ca, "-v", "--concurrency=1"];
        let mut command = godwit(&[&first[..], options, &[text(&from), &url]].concat());
        match &self.token {
            Some(token) => command.env("BEARER_TOKEN", token),
            None => command.env("GODWIT_PASSWORD", "s3cret"),
        };
        command.env("XDG_STATE_HOME", self.at("state"));
        command
    }

    fn run(&self, options: &[&str]) -> Ran {
        self.command(options).output().unwrap().into()
    }

    #[track_caller]
    fn has_arrived(&self) {
        assert_eq!(tree(&self.door.root("/")), ["f"]);
        self.is_whole();
    }

    #[track_caller]
    fn is_whole(&self) {
        assert!(fs::read(self.at("f")).unwrap() == fs::read(self.door.root("/f")).unwrap());
    }

    /// Bytes that the server has of the unfinished file: where its last byte is.
    fn reached(&self) -> u64 {
        let entries = fs::read_dir(self.door.root("/")).unwrap().flatten();
        let sizes = entries.filter_map(|entry| entry.metadata().ok().map(|found| found.len()));
        sizes.max().unwrap_or(0)
    }
}

#[track_caller]
fn wait_until(holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !holds() {
        assert!(Instant::now() < deadline, "nothing arrives");
        nap();
    }
}

#[test]
fn a_large_file_goes_over_several_connections() {
    let sending = Sending::new(48 * MIB + 5, 0);
    let log = sending.at("log");
    let ran = sending.run(&["--parallelism=4", "--verify=crc32c", "--events", text(&log)]);
    ran.expect(0, &[]);
    sending.has_arrived();
    // Of four, as many as a busy machine lets begin in time.
    assert!(sending.path.state.lanes.load(Ordering::Relaxed) > 1);
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("CRC32C:"), "{log}");
}

#[test]
fn an_upload_whose_connections_break_goes_on() {
    let sending = Sending::new(192 * MIB, 170 * MIB);
    let flags = [
        "--parallelism=2",
        "--retries=5",
        "--retry-pause=0.01",
        SLOWLY,
    ];
    sending.run(&flags).expect(0, &[]);
    sending.has_arrived();
    // Parts that are not confirmed, and what TLS adds.
    let most = 192 * MIB + AGAIN_BYTES + 6 * MIB;
    assert!(sending.path.sent() < most, "{}", sending.path.sent());
}

#[test]
fn an_upload_whose_client_is_killed_goes_on() {
    let length = 208 * MIB;
    let sending = Sending::new(length, 0);
    let flags = ["--parallelism=4", SLOWLY];
    let mut killed = sending.command(&flags).spawn().unwrap();
    wait_until(|| sending.reached() >= 176 * MIB);
    killed.kill().unwrap();
    killed.wait().unwrap();
    let (sent, reached) = (sending.path.sent(), sending.reached());
    assert!(reached < length, "it has ended");
    sending
        .run(&["--parallelism=4"])
        .expect(0, &["bytes are there"]);
    sending.has_arrived();
    let again = sending.path.sent() - sent;
    let most = length - reached + AGAIN_BYTES;
    // TLS and heads of requests.
    let most = most + most / 32;
    assert!(again <= most, "{again} bytes, at most {most}");
}

#[test]
fn what_a_stuck_connection_has_not_sent_others_send() {
    let sending = Sending::new(256 * MIB, 0);
    let state = &sending.path.state;
    // So long a way has parts of seconds: it is in the midst of one.
    state.delay.store(50, Ordering::Relaxed);
    state.sticks_at.store(16 * MIB, Ordering::Relaxed);
    // The rest are buffers of sockets and of the client.
    state.released_at.store(248 * MIB, Ordering::Relaxed);
    sending
        .run(&["--parallelism=4", "--verify=crc32c", "--max-rate=600M"])
        .expect(0, &[]);
    sending.has_arrived();
    let stuck = state.sticks_at.load(Ordering::Relaxed);
    assert_eq!(stuck, 0, "no connection got stuck");
    let missed = state.missed.load(Ordering::Relaxed);
    assert_eq!(missed, 0, "bytes that no other has sent");
    assert!(sending.path.sent() < 264 * MIB, "bytes were sent twice");
}

#[test]
fn who_may_only_create_goes_on_when_connections_break() {
    let sending = Sending::creating(24 * MIB, 3 * MIB);
    let flags = ["--parallelism=2", "--retries=5", "--retry-pause=0.01"];
    sending.run(&flags).expect(0, &[]);
    // What was begun may stay: the server may have forgotten who made it.
    sending.is_whole();
}

#[test]
fn who_may_only_create_begins_again_when_the_client_was_killed() {
    let sending = Sending::creating(96 * MIB, 0);
    let mut killed = sending.command(&["--parallelism=2"]).spawn().unwrap();
    wait_until(|| sending.path.sent() >= 12 * MIB);
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(!sending.door.root("/f").exists(), "it has ended");
    sending.run(&["--parallelism=2"]).expect(0, &[]);
    sending.is_whole();
}

/// A file at a door, and the way to its copy.
struct Fetching {
    door: Door,
    path: CountingPath,
    here: tempfile::TempDir,
}

impl Fetching {
    fn new(length: u64, breaks_at: u64) -> Self {
        let door = Door::open();
        make(&door.root("/f"), length);
        Self {
            path: CountingPath::to(door.address(), breaks_at),
            door,
            here: tempfile::tempdir().unwrap(),
        }
    }

    fn command(&self, options: &[&str]) -> std::process::Command {
        let url = format!("https://jo@{}/f", self.path.address);
        let (to, ca) = (self.here.path().join("data/f"), self.door.ca());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        let first = ["cp", "--ca", text(&ca), "-v", "--concurrency=1"];
        let mut command = godwit(&[&first[..], options, &[&url, text(&to)]].concat());
        command.env("GODWIT_PASSWORD", "s3cret");
        command.env("XDG_STATE_HOME", self.here.path().join("state"));
        command
    }

    #[track_caller]
    fn finish(&self, options: &[&str], said: &[&str]) {
        let ran: Ran = self.command(options).output().unwrap().into();
        ran.expect(0, said);
        let data = self.here.path().join("data");
        assert_eq!(tree(&data), ["f"]);
        assert!(fs::read(data.join("f")).unwrap() == fs::read(self.door.root("/f")).unwrap());
    }

    /// Lets one run until so many bytes have come, and kills it.
    fn killed_after(&self, bytes: u64) {
        let mut killed = self.command(&["--parallelism=4", SLOWLY]).spawn().unwrap();
        wait_until(|| self.path.received() >= bytes);
        killed.kill().unwrap();
        killed.wait().unwrap();
    }
}

#[test]
fn a_download_whose_connections_break_goes_on_in_all_gaps() {
    let fetching = Fetching::new(192 * MIB, 100 * MIB);
    let flags = ["--parallelism=4", "--retries=5", "--retry-pause=0.01"];
    fetching.finish(&flags, &[]);
    // What had come stays, wherever in the file it lies: the rest was in buffers of sockets.
    let most = 192 * MIB + 48 * MIB;
    assert!(
        fetching.path.received() < most,
        "{}",
        fetching.path.received()
    );
}

#[test]
fn a_download_that_was_killed_twice_goes_on_in_all_gaps() {
    let length = 320 * MIB;
    let fetching = Fetching::new(length, 0);
    for bytes in [120 * MIB, 220 * MIB] {
        fetching.killed_after(bytes);
    }
    fetching.finish(&["--parallelism=4"], &["bytes are there"]);
    // Twice, what was not recorded yet, or was on its way in buffers of sockets.
    let most = length + 2 * 48 * MIB + 12 * MIB;
    assert!(
        fetching.path.received() < most,
        "{}",
        fetching.path.received()
    );
}

#[test]
fn a_download_of_a_file_that_has_changed_begins_again() {
    let fetching = Fetching::new(160 * MIB, 0);
    fetching.killed_after(60 * MIB);
    let file = File::options()
        .write(true)
        .open(fetching.door.root("/f"))
        .unwrap();
    file.write_all_at(b"new", 7).unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(5))
        .unwrap();
    // Where it has changed, an earlier run has brought what was there before.
    fetching.finish(&["--parallelism=4"], &[]);
}

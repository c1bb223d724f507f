//! Runs the program; runs our server.

use std::{
    fs,
    io::Write,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::Mutex,
    thread,
    time::Duration,
};

use godwit_server::{Anonymous, Server, ServerSettings};
use tempfile::TempDir;
use tokio::sync::oneshot;

/// A server of ours on a directory of its own, open to anonymous users.
pub(crate) struct Served {
    pub(crate) root: TempDir,
    pub(crate) address: SocketAddr,
    /// The server ends when this is dropped.
    _shutdown: oneshot::Sender<()>,
}

impl Served {
    pub(crate) fn start() -> Self {
        Self::start_with(|_| {})
    }

    /// With other settings.
    pub(crate) fn start_with(change: impl FnOnce(&mut ServerSettings)) -> Self {
        Self::start_at("127.0.0.1:0", change)
    }

    /// At another address.
    pub(crate) fn start_at(address: &str, change: impl FnOnce(&mut ServerSettings)) -> Self {
        let root = tempfile::tempdir().unwrap();
        let mut settings = ServerSettings::new(root.path(), Anonymous::Rw);
        change(&mut settings);
        settings.listen = vec![address.parse().unwrap()];
        let (shutdown, over) = oneshot::channel::<()>();
        let (sender, receiver) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let server = Server::bind(settings).await.unwrap();
                sender.send(server.local_addrs()[0]).unwrap();
                let over = async {
                    let _ = over.await;
                };
                server.run(over).await;
            });
        });
        Self {
            root,
            address: receiver.recv().unwrap(),
            _shutdown: shutdown,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("ftp://{}{path}", self.address)
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }
}

/// The program, with nothing inherited that could change it.
pub(crate) fn godwit(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_godwit"));
    command
        .args(arguments)
        .env_remove("GODWIT_PASSWORD")
        .env_remove("NETRC")
        .env_remove("BEARER_TOKEN")
        .env_remove("BEARER_TOKEN_FILE")
        .env_remove("GODWIT_TOKEN_HOSTS")
        .env_remove("GLOBUS_TCP_PORT_RANGE")
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("XDG_RUNTIME_DIR", env!("CARGO_TARGET_TMPDIR"))
        .env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .stdin(Stdio::null());
    command
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: output.stdout,
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Ran {
    /// Fails the test unless the exit status is `code` and standard error holds all `words`.
    #[track_caller]
    pub(crate) fn expect(self, code: i32, words: &[&str]) -> Self {
        assert_eq!(self.code, code, "{}", self.err);
        for word in words {
            assert!(self.err.contains(word), "no {word:?} in: {}", self.err);
        }
        self
    }
}

pub(crate) fn run(arguments: &[&str]) -> Ran {
    godwit(arguments).output().unwrap().into()
}

/// Runs the words of `options`, and `ends` behind them.
pub(crate) fn run_with(options: &str, ends: &[&str]) -> Ran {
    run(&options
        .split(' ')
        .chain(ends.iter().copied())
        .collect::<Vec<_>>())
}

pub(crate) fn run_with_input(arguments: &[&str], input: &[u8]) -> Ran {
    let mut child = godwit(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = thread::spawn(move || {
        // A program that has failed reads no further.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output.into()
}

/// Checks all `cases`, four at a time: most of their time is spent waiting.
pub(crate) fn for_each_at_once<T: Send>(
    cases: impl IntoIterator<Item = T, IntoIter: Send>,
    check: impl Fn(T) + Sync,
) {
    let cases = Mutex::new(cases.into_iter());
    let next = || cases.lock().unwrap().next();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(case) = next() {
                    check(case);
                }
            });
        }
    });
}

/// Bytes without a pattern that a shifted copy could share, the same for the same seed.
pub(crate) fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut out = Vec::with_capacity(length + 8);
    while out.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(length);
    out
}

/// Every path below `dir`, relative, sorted; directories end in `/`.
pub(crate) fn tree(dir: &Path) -> Vec<String> {
    fn walk(dir: &Path, prefix: &str, out: &mut Vec<String>) {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                out.push(format!("{name}/"));
                walk(&entry.path(), &format!("{name}/"), out);
            } else {
                out.push(name);
            }
        }
    }
    let mut out = Vec::new();
    walk(dir, "", &mut out);
    out.sort();
    out
}

/// Lets others run before something is looked at again.
pub(crate) fn nap() {
    thread::sleep(Duration::from_millis(1));
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

//! Files to move, servers for them, and how failures are printed.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use godwit_lab::peers::ftps::{self, FtpsServer};
use godwit_lab::peers::gct::{self, GctServer};
use godwit_lab::peers::godwit::{self, Godwitd};
use godwit_lab::peers::{
    self, Error, Finished, Missing, arc, gfal, jglobus, plain_ftp, s3, webdav,
};
use tempfile::TempDir;

use crate::whole;

pub(crate) use godwit_lab::peers::file_url;

/// How long anything may take that is waited for. Chosen arbitrarily; a hang costs a run so much.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// What `nobody` is on every distribution that has the peers.
const NOBODY: u32 = 65_534;

/// Each function below, as a test against either server.
macro_rules! against_both {
    ($($name:ident),+ $(,)?) => {
        mod and_the_reference_server {
            $(#[test] fn $name() { super::$name(super::Kind::Gct); })+
        }
        mod and_godwitd {
            $(#[test] fn $name() { super::$name(super::Kind::Godwitd); })+
        }
    };
}
pub(crate) use against_both;

/// A terminal without a user.
const TMUX: peers::Tool = peers::Tool::new("tmux", "tmux");

/// Python, whose library has a client of FTP.
pub(crate) const PYTHON: peers::Tool = peers::Tool::new("python3", "python3");

/// OpenSSH's server, which comes with its client.
const SSHD: peers::Tool = peers::Tool::new("sshd", "openssh-server");

/// What a test cannot do without.
#[derive(Clone, Copy)]
pub(crate) enum Need {
    Gct,
    Godwit,
    Godwitd,
    Service,
    Gfal,
    ArcClient,
    ArcServer,
    JGlobus,
    Curl,
    Lftp,
    Sshd,
    Ftps(ftps::Kind),
    Rclone,
    Python,
    Tmux,
    Webdav(webdav::Kind),
    S3(s3::Kind),
}

/// Whether everything in `needs` is there; prints a skip of the running test if not.
pub(crate) fn have(needs: &[Need]) -> bool {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let found = needs.iter().try_for_each(|need| -> Result<(), Missing> {
        match need {
            Need::Gct => gct::available(),
            Need::Godwit => godwit::binary("godwit").map(drop),
            Need::Godwitd => godwit::binary("godwitd").map(drop),
            Need::Service => godwit::binary("godwit-service").map(drop),
            Need::Gfal => gfal::available(),
            Need::ArcClient => arc::client_available(),
            Need::ArcServer => arc::server_available(),
            Need::JGlobus => jglobus::available(),
            Need::Curl => plain_ftp::CURL.available().map(drop),
            Need::Lftp => plain_ftp::LFTP.available().map(drop),
            Need::Sshd => SSHD.available().map(drop),
            Need::Ftps(kind) => kind.program().map(drop),
            Need::Rclone => plain_ftp::RCLONE.available().map(drop),
            Need::Python => PYTHON.available().map(drop),
            Need::Tmux => TMUX.available().map(drop),
            Need::Webdav(kind) => kind.available(),
            Need::S3(kind) => kind.available().map(drop),
        }
    });
    peers::present(test, found).is_some()
}

/// Whether we are root; prints a skip of the running test if not.
pub(crate) fn am_root(why: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("a test");
        let _ = writeln!(std::io::stderr().lock(), "skipped {test}: {why}");
    }
    root
}

/// A running server for FTP over TLS, with `more` settings; `None`, and a printed skip, where it
/// cannot run.
pub(crate) fn ftps_server(
    kind: ftps::Kind,
    demands_resumption: bool,
    more: &[&str],
) -> Option<FtpsServer> {
    let may = matches!(kind, ftps::Kind::Vsftpd | ftps::Kind::Pyftpdlib)
        || am_root("the server becomes its users");
    (may && have(&[Need::Godwit, Need::Ftps(kind)]))
        .then(|| FtpsServer::start_with(kind, demands_resumption, more).expect("it starts"))
}

/// Which server a [`Site`] runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Godwitd,
    Gct,
}

enum Server {
    Godwitd(Godwitd),
    Gct(GctServer),
}

/// A file that is uploaded or downloaded: its two places and their URLs.
pub(crate) struct OneWay {
    pub(crate) source: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) from: String,
    pub(crate) to: String,
}

/// A server with a directory of its own, and a directory of this machine beside it.
pub(crate) struct Site {
    server: Server,
    root: PathBuf,
    local: PathBuf,
    _directory: TempDir,
}

impl Site {
    pub(crate) fn new(kind: Kind) -> Site {
        Site::start(kind, None)
    }

    pub(crate) fn on_ip(kind: Kind, ip: IpAddr) -> Site {
        Site::start(kind, Some(ip))
    }

    fn start(kind: Kind, ip: Option<IpAddr>) -> Site {
        Site::build(|root| match kind {
            Kind::Godwitd => {
                let config = Godwitd::serving(root);
                let config = ip.map_or(config.clone(), |ip| config.ip(ip));
                Server::Godwitd(config.start().expect("godwitd starts"))
            }
            Kind::Gct => {
                let config = GctServer::serving(root);
                let config = ip.map_or(config.clone(), |ip| config.ip(ip));
                Server::Gct(config.start().expect("the reference server starts"))
            }
        })
    }

    /// Our server, started as the test wants it.
    pub(crate) fn godwitd(start: impl FnOnce(&Path) -> Godwitd) -> Site {
        Site::build(|root| Server::Godwitd(start(root)))
    }

    /// The reference server, started as the test wants it.
    pub(crate) fn gct(start: impl FnOnce(&Path) -> GctServer) -> Site {
        Site::build(|root| Server::Gct(start(root)))
    }

    /// Our server as a user who owns nothing. Only root can start it.
    pub(crate) fn unprivileged_godwitd() -> Site {
        let program = godwit::binary("godwitd").expect("present");
        Site::godwitd(|root| {
            // Outside the tests' own directories: programs and test directories may be private.
            let copy = root.with_file_name("godwitd");
            // By another program: what is open for writing here is so in whatever other tests start
            // meanwhile, and cannot be run.
            let copied = Command::new("cp").arg(program).arg(&copy).status();
            assert!(copied.expect("starts").success());
            let open = fs::Permissions::from_mode(0o755);
            fs::set_permissions(root.parent().expect("a parent"), open).expect("a mode");
            let config = Godwitd::serving(root).binary(copy).user(NOBODY);
            config.start().expect("godwitd starts")
        })
    }

    /// Our server, where there is room for so many bytes.
    pub(crate) fn roomy_godwitd(bytes: u64) -> Site {
        Site::build_in(whole::roomy_folder(bytes), |root| {
            let config = Godwitd::serving(root);
            Server::Godwitd(config.start().expect("godwitd starts"))
        })
    }

    fn build(start: impl FnOnce(&Path) -> Server) -> Site {
        Site::build_in(TempDir::new().expect("a directory"), start)
    }

    fn build_in(directory: TempDir, start: impl FnOnce(&Path) -> Server) -> Site {
        let [root, local] = ["root", "local"].map(|name| directory.path().join(name));
        for path in [&root, &local] {
            fs::create_dir(path).expect("a directory");
        }
        Site {
            server: start(&root),
            root,
            local,
            _directory: directory,
        }
    }

    /// The URL of `path` below the served directory.
    pub(crate) fn url(&self, path: &str) -> String {
        match &self.server {
            Server::Godwitd(server) => server.url(path),
            Server::Gct(server) => server.url(path),
        }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        match &self.server {
            Server::Godwitd(server) => server.addr(),
            Server::Gct(server) => server.addr(),
        }
    }

    /// Where `path` lies that clients see below the served directory.
    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// A path beside the served directory, which clients do not see.
    pub(crate) fn local(&self, path: &str) -> PathBuf {
        self.local.join(path)
    }

    /// The `file://` URL of [`Site::local`].
    /// The file of this name on its way up or down.
    pub(crate) fn one_way(&self, upload: bool, name: &str) -> OneWay {
        let here = (self.local(name), self.local_url(name));
        let there = (self.at(name), self.url(name));
        let ((source, from), (target, to)) = if upload { (here, there) } else { (there, here) };
        OneWay {
            source,
            target,
            from,
            to,
        }
    }

    pub(crate) fn local_url(&self, path: &str) -> String {
        file_url(&self.local(path))
    }

    /// The end of what the server logged.
    pub(crate) fn log(&self) -> String {
        const SHOWN_LINES: usize = 30;
        let log = match &self.server {
            Server::Godwitd(server) => server.log(),
            Server::Gct(server) => server.log(),
        };
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
    }

    /// Kills the server and its sessions at once.
    pub(crate) fn crash(&self) {
        match &self.server {
            Server::Godwitd(server) => server.process().signal_group(peers::process::Signal::KILL),
            Server::Gct(server) => server.crash(),
        }
        .expect("crashes");
    }

    /// The reference server.
    pub(crate) fn gct_server(&self) -> &GctServer {
        match &self.server {
            Server::Gct(server) => server,
            Server::Godwitd(_) => panic!("it is ours"),
        }
    }

    /// The program itself, for signals.
    pub(crate) fn process(&self) -> &peers::Process {
        match &self.server {
            Server::Godwitd(server) => server.process(),
            Server::Gct(server) => server.process(),
        }
    }

    /// Replaces our server, which crashed, by a new one at the same address.
    pub(crate) fn come_back(&mut self) {
        let port = self.addr().port();
        let deadline = Instant::now() + LONG;
        loop {
            // The sockets of the dead server may take a moment to go.
            match Godwitd::serving(&self.root).port(port).start() {
                Ok(server) => {
                    self.server = Server::Godwitd(server);
                    return;
                }
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Runs `globus-url-copy`, which must succeed.
    #[track_caller]
    pub(crate) fn url_copy<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Finished {
        self.url_copy_within(peers::RUN_TIMEOUT, arguments)
    }

    /// Runs `globus-url-copy`, which must succeed within `limit`.
    #[track_caller]
    pub(crate) fn url_copy_within<S>(&self, limit: Duration, arguments: &[S]) -> Finished
    where
        S: AsRef<OsStr>,
    {
        let finished = self.expect_ok(gct::URL_COPY.run_within(limit, arguments));
        let succeeded = finished.status.success();
        assert!(succeeded, "{}", self.story(arguments, &finished));
        finished
    }

    /// Runs `globus-url-copy`, which must fail; what it printed.
    #[track_caller]
    pub(crate) fn url_copy_fails<S: AsRef<OsStr>>(&self, arguments: &[S]) -> String {
        let finished = self.expect_ok(gct::URL_COPY.run(arguments));
        let failed = !finished.status.success();
        assert!(failed, "{}", self.story(arguments, &finished));
        finished.log()
    }

    /// Runs `godwit`, which must succeed.
    #[track_caller]
    pub(crate) fn godwit<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Finished {
        let finished = self.expect_ok(godwit::godwit(arguments));
        let succeeded = finished.status.success();
        assert!(succeeded, "{}", self.story(arguments, &finished));
        finished
    }

    /// Runs `godwit`, which must end with `status`; what it printed.
    #[track_caller]
    pub(crate) fn godwit_exits<S: AsRef<OsStr>>(&self, status: i32, arguments: &[S]) -> String {
        let finished = self.expect_ok(godwit::godwit(arguments));
        let as_wanted = finished.status.code() == Some(status);
        assert!(as_wanted, "{}", self.story(arguments, &finished));
        finished.log()
    }

    /// What a peer returned; a failure is shown together with what the server saw.
    #[track_caller]
    pub(crate) fn expect_ok<T>(&self, result: Result<T, Error>) -> T {
        result.unwrap_or_else(|error| panic!("{error}\n--- server\n{}", self.log()))
    }

    fn story<S: AsRef<OsStr>>(&self, arguments: &[S], finished: &Finished) -> String {
        let arguments: Vec<_> = arguments.iter().map(AsRef::as_ref).collect();
        format!(
            "{} {arguments:?}: {}\n{}--- server\n{}",
            finished.program,
            finished.status,
            finished.log(),
            self.log()
        )
    }
}

/// Noise without a period that block sizes could share, another for each seed.
pub(crate) fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Writes a file of `length` bytes of [`noise`] and returns them.
#[track_caller]
pub(crate) fn write_noise(path: &Path, length: usize, seed: u64) -> Vec<u8> {
    let bytes = noise(length, seed);
    fs::write(path, &bytes).expect("a file");
    bytes
}

/// Makes a file of `length` bytes that are zero but for some noise at the beginning, at every
/// 512 MiB and at the end.
pub(crate) fn write_sparse(path: &Path, length: u64) {
    const MARK: u64 = 70_001;
    let mut file = File::create(path).expect("a file");
    file.set_len(length).expect("a hole");
    let marks = (0..length).step_by(512 << 20).chain([length - MARK]);
    for (seed, at) in (1..).zip(marks) {
        let bytes = noise(usize::try_from(MARK).expect("small"), seed);
        // Half before each mark, so that both sides of a multiple of the block size are covered.
        let at = at.saturating_sub(MARK / 2).min(length - MARK);
        file.seek(SeekFrom::Start(at)).expect("seeks");
        file.write_all(&bytes).expect("writes");
    }
}

/// Compares two files, without holding them in memory or showing them in the message.
#[track_caller]
pub(crate) fn assert_same(one: &Path, other: &Path) {
    let open = |path: &Path| {
        File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let (mut a, mut b) = (open(one), open(other));
    let length = |file: &File| file.metadata().expect("a file").len();
    assert_eq!(length(&a), length(&b), "length of {}", other.display());
    let (mut x, mut y) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut at = 0;
    loop {
        let n = a.read(&mut x).expect("reads");
        b.read_exact(&mut y[..n]).expect("reads as much");
        if n == 0 {
            return;
        }
        if x[..n] != y[..n] {
            let first = (0..n).find(|&i| x[i] != y[i]).map(|i| at + i as u64);
            panic!("{} differs at {first:?}", other.display());
        }
        at += n as u64;
    }
}

/// Asserts that a file holds exactly `expected`.
#[track_caller]
pub(crate) fn assert_holds(path: &Path, expected: &[u8]) {
    let got = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    if got == expected {
        return;
    }
    let first = got.iter().zip(expected).position(|(a, b)| a != b);
    panic!(
        "{}: {} bytes instead of {}, first difference at {first:?}",
        path.display(),
        got.len(),
        expected.len(),
    );
}

/// A directory with files of several sizes, some of them in directories below; their paths.
pub(crate) fn write_tree(root: &Path) -> Vec<String> {
    let sizes = [0, 1, 1000, 70_000, 262_144, 1_500_000];
    let mut paths = Vec::new();
    for (i, folder) in ["", "below/", "below/deeper still/"].iter().enumerate() {
        fs::create_dir_all(root.join(folder)).expect("a directory");
        for (j, size) in sizes.iter().enumerate() {
            let path = format!("{folder}file {j}");
            write_noise(&root.join(&path), *size, (i * 10 + j) as u64);
            paths.push(path);
        }
    }
    paths
}

/// Asserts that both directories hold these files, and `other` no file besides.
#[track_caller]
pub(crate) fn assert_same_tree(paths: &[String], one: &Path, other: &Path) {
    for path in paths {
        assert_same(&one.join(path), &other.join(path));
    }
    assert_eq!(files_below(other), paths.len(), "{}", other.display());
}

/// How many files there are in a directory and below it.
pub(crate) fn files_below(directory: &Path) -> usize {
    fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.expect("an entry").path())
        .map(|path| if path.is_dir() { files_below(&path) } else { 1 })
        .sum()
}

/// Names that are awkward in commands, listings or URLs. The last is as long as names may be.
pub(crate) fn odd_names() -> Vec<String> {
    let mut names: Vec<String> = [
        "in ner  blanks",
        "\"quoted\" 'twice'",
        "100%",
        "%41%",
        "a;b;type=i",
        "Size=3;k=v",
        "-r leading dash",
        "gr\u{fc}\u{df}e \u{65e5}\u{672c} \u{1f426}",
        "back\\slash",
        "hash#question?",
        "star*[ab]",
        "trailing blank ",
        "plus+amp&at@colon:comma,",
        "{braces}~tilde",
        "...",
    ]
    .map(str::to_owned)
    .into();
    names.push("n".repeat(255));
    names
}

/// Bytes that are in the files of a directory, holes not counted.
pub(crate) fn stored_below(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let blocks = entries.filter_map(|entry| Some(entry.metadata().ok()?.blocks()));
    blocks.sum::<u64>() * 512
}

/// Waits until `done`; the panic names `what` when it takes too long.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !done() {
        assert!(Instant::now() < deadline, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Length of a file that may not be there yet.
pub(crate) fn length_of(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// `length` bytes of a file from `offset` on.
#[track_caller]
pub(crate) fn read_at(path: &Path, offset: u64, length: usize) -> Vec<u8> {
    let mut file = File::open(path).expect("a file");
    file.seek(SeekFrom::Start(offset)).expect("seeks");
    let mut bytes = vec![0; length];
    file.read_exact(&mut bytes).expect("reads");
    bytes
}

/// A small file system in memory. `None`, with a printed skip, where it cannot be mounted.
pub(crate) struct SmallDisk(TempDir);

impl SmallDisk {
    pub(crate) fn mount(size: &str) -> Option<SmallDisk> {
        if !am_root("only root can mount a small disk") {
            return None;
        }
        let directory = TempDir::new().expect("a directory");
        let options = format!("size={size},mode=777");
        let finished = peers::Tool::new("mount", "mount")
            .run(
                ["-t", "tmpfs", "-o", &options, "small"]
                    .map(OsStr::new)
                    .into_iter()
                    .chain([directory.path().as_os_str()]),
            )
            .ok()?;
        finished.status.success().then_some(SmallDisk(directory))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn grow(&self, size: &str) {
        let options = format!("remount,size={size}");
        let arguments = [OsStr::new("-o"), options.as_ref(), self.path().as_os_str()];
        let finished = peers::Tool::new("mount", "mount").run(arguments);
        assert!(finished.expect("runs").status.success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a server of a test that failed may still have files open.
        let arguments = [OsStr::new("-l"), self.0.path().as_os_str()];
        let _ = peers::Tool::new("umount", "mount").run(arguments);
    }
}

/// Whether a shell would take this name for a pattern.
pub(crate) fn has_wildcard(name: &str) -> bool {
    name.contains(['*', '?', '['])
}

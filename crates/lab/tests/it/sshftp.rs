//! `sshftp://` through OpenSSH: our client and our server, and the reference implementation in
//! either place.

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use godwit_lab::peers::process::{self, Finished};
use godwit_lab::peers::{RUN_TIMEOUT, Tool, gct, godwit};
use tempfile::TempDir;

use crate::support::{Need, am_root, assert_same, assert_same_tree, have, write_noise, write_tree};

const SSH: Tool = Tool::new("ssh", "openssh-client");
const SSH_KEYGEN: Tool = Tool::new("ssh-keygen", "openssh-client");

/// sshd on an ephemeral port, with keys made here. It lets in who runs the test.
pub(crate) struct Sshd {
    folder: TempDir,
    port: u16,
    served: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sshd {
    /// Our server is where commands are looked for.
    pub(crate) fn start() -> Self {
        let folder = TempDir::new().expect("a folder");
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path(), open).expect("a mode");
        let at = |name: &str| folder.path().join(name);
        for name in ["home", "bin", "root", "local"] {
            fs::create_dir(at(name)).expect("a folder");
        }
        // Where the reference server may write, which does not stay root.
        fs::set_permissions(at("root"), fs::Permissions::from_mode(0o777)).expect("a mode");
        let program = godwit::binary("godwitd").expect("present");
        std::os::unix::fs::symlink(program, at("bin/godwitd")).expect("a link");
        for key in ["host_key", "user_key", "other_key"] {
            let path = at(key);
            let made = SSH_KEYGEN.run(
                ["-q", "-t", "ed25519", "-N", "", "-f"]
                    .map(Path::new)
                    .iter()
                    .copied()
                    .chain([path.as_path()]),
            );
            made.expect("runs").success().expect("a key");
        }
        fs::copy(at("user_key.pub"), at("authorized_keys")).expect("copies");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let host_key = fs::read_to_string(at("host_key.pub")).expect("reads");
        fs::write(at("known_hosts"), format!("[127.0.0.1]:{port} {host_key}")).expect("writes");
        let all = folder.path().display();
        let sshd = format!(
            "HostKey {all}/host_key\nAuthorizedKeysFile {all}/authorized_keys\nStrictModes no\n\
             UsePAM no\nPidFile none\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n\
             PrintMotd no\nPrintLastLog no\n\
             SetEnv HOME={all}/home PATH={all}/bin:/usr/bin:/bin\n"
        );
        fs::write(at("sshd_config"), sshd).expect("writes");
        let client = format!(
            "Host *\n IdentityFile {all}/user_key\n IdentitiesOnly yes\n IdentityAgent none\n \
             UserKnownHostsFile {all}/known_hosts\n \
             GlobalKnownHostsFile /dev/null\n StrictHostKeyChecking yes\n LogLevel ERROR\n"
        );
        fs::write(at("ssh_config"), client).expect("writes");
        let served = Arc::<AtomicUsize>::default();
        let over = Arc::<AtomicBool>::default();
        let thread = std::thread::spawn({
            let (served, over, config) =
                (Arc::clone(&served), Arc::clone(&over), at("sshd_config"));
            move || serve(&listener, &config, &served, &over)
        });
        Self {
            folder,
            port,
            served,
            over,
            thread: Some(thread),
        }
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("sshftp://127.0.0.1:{}{path}", self.port)
    }

    /// Below the directory that is there to be served, by its name on the machine.
    fn root_url(&self, path: &str) -> String {
        self.url(&format!("{}/{path}", self.at("root").display()))
    }

    fn local(&self, path: &str) -> String {
        self.at("local").join(path).display().to_string()
    }

    /// Writes a script that `name`, below the home directory, is to be.
    pub(crate) fn script(&self, name: &str, text: &str) {
        let path = self.at("home").join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("writes");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a mode");
    }

    /// Runs our client with the settings of this place for ssh.
    fn godwit(&self, arguments: &[&str]) -> Finished {
        let ssh = format!("ssh -F {}", self.at("ssh_config").display());
        self.godwit_by(&ssh, arguments)
    }

    fn godwit_by(&self, ssh: &str, arguments: &[&str]) -> Finished {
        let mut command = Command::new(godwit::binary("godwit").expect("present"));
        command.args(arguments).env("GODWIT_SSH", ssh);
        command.env_remove("GLOBUS_REMOTE_SSHFTP");
        process::run(command, RUN_TIMEOUT).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
    }

    fn ssh(&self, words: &[&str]) -> Finished {
        let mut command = SSH.command().expect("present");
        command.arg("-F").arg(self.at("ssh_config")).arg("-p");
        command
            .arg(self.port.to_string())
            .arg("127.0.0.1")
            .args(words);
        process::run(command, RUN_TIMEOUT).expect("runs")
    }

    #[track_caller]
    fn succeeds(&self, arguments: &[&str]) -> String {
        let finished = self.godwit(arguments);
        assert!(
            finished.status.success(),
            "{arguments:?}\n{}",
            finished.log()
        );
        finished.log()
    }

    #[track_caller]
    fn fails(finished: &Finished, status: i32, words: &[&str]) {
        let log = finished.log();
        assert_eq!(finished.status.code(), Some(status), "{log}");
        for words in words {
            assert!(log.contains(words), "{words:?} in {log}");
        }
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        drop(std::net::TcpStream::connect(("127.0.0.1", self.port)));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// One sshd for each connection, as a super-server would: so there is a port before there is a
/// program.
fn serve(listener: &TcpListener, config: &Path, served: &AtomicUsize, over: &AtomicBool) {
    let program = godwit_lab::peers::tool::find_program("sshd").expect("present");
    let mut running = Vec::new();
    for stream in listener.incoming().map_while(Result::ok) {
        if over.load(Ordering::Relaxed) {
            break;
        }
        served.fetch_add(1, Ordering::Relaxed);
        let output = stream.try_clone().expect("a descriptor");
        let sshd = Command::new(&program)
            .args(["-i", "-f"])
            .arg(config)
            .stdin(OwnedFd::from(stream))
            .stdout(OwnedFd::from(output))
            .stderr(Stdio::null())
            .spawn();
        running.push(sshd.expect("sshd starts"));
    }
    for mut sshd in running {
        // Its client may have been killed.
        drop(sshd.kill());
        drop(sshd.wait());
    }
}

/// Whether OpenSSH is here and lets us in; prints a skip of the running test if not.
fn ready(needs: &[Need]) -> bool {
    if !have(needs) {
        return false;
    }
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        // Debian's service makes it at its start.
        fs::create_dir_all("/run/sshd").expect("a folder");
    }
    let probe = Sshd::start();
    let finished = probe.ssh(&["true"]);
    if finished.status.success() {
        return true;
    }
    assert!(!is_root, "{}", finished.log());
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let log = finished.log();
    let _ = writeln!(
        std::io::stderr().lock(),
        "skipped {test}: sshd lets this user in as root only: {log}"
    );
    false
}

const OURS: &[Need] = &[Need::Godwit, Need::Godwitd, Need::Sshd];
const WITH_GCT: &[Need] = &[Need::Godwit, Need::Godwitd, Need::Sshd, Need::Gct];

#[test]
fn a_server_that_is_only_installed_does_everything() {
    if !ready(OURS) {
        return;
    }
    let sshd = Sshd::start();
    let paths = write_tree(&sshd.at("local/tree"));
    let there = sshd.root_url("tree");
    sshd.succeeds(&["cp", "-r", &sshd.local("tree"), &there]);
    assert_same_tree(&paths, &sshd.at("local/tree"), &sshd.at("root/tree"));
    sshd.succeeds(&["cp", "-r", "-c", "3", &there, &sshd.local("back")]);
    assert_same_tree(&paths, &sshd.at("local/tree"), &sshd.at("local/back"));
    let file = sshd.root_url("tree/file%204");
    assert!(sshd.succeeds(&["ls", "-l", &there]).contains("file 5"));
    assert!(sshd.succeeds(&["stat", &file]).contains("262144"));
    assert!(
        sshd.succeeds(&["cksum", "-a", "md5", &file])
            .contains("MD5")
    );
    sshd.succeeds(&["mkdir", "-p", &sshd.root_url("a/b")]);
    sshd.succeeds(&["mv", &file, &sshd.root_url("a/b/moved")]);
    sshd.succeeds(&["chmod", "600", &sshd.root_url("a/b/moved")]);
    let mode = fs::metadata(sshd.at("root/a/b/moved"))
        .expect("is there")
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    sshd.succeeds(&["rm", "-r", &sshd.root_url("a")]);
    assert!(!sshd.at("root/a").exists());
    // A further session is another run of ssh. Slow enough that it is wanted.
    let before = sshd.served.load(Ordering::Relaxed);
    write_noise(&sshd.at("local/large"), 40 << 20, 1);
    let (large, up) = (sshd.local("large"), sshd.root_url("large"));
    sshd.succeeds(&[
        "cp",
        "-c",
        "2",
        "-p",
        "2",
        "--max-rate",
        "200M",
        &large,
        &up,
    ]);
    assert_same(&sshd.at("local/large"), &sshd.at("root/large"));
    assert!(sshd.served.load(Ordering::Relaxed) - before >= 2);
}

#[test]
fn data_channels_belong_to_the_session_and_can_be_private() {
    if !ready(OURS) {
        return;
    }
    let sshd = Sshd::start();
    write_noise(&sshd.at("local/f"), 3 << 20, 2);
    for (level, wire) in [
        (None, "DCAU A, PROT C"),
        (Some("integrity"), "DCAU A, PROT S"),
        (Some("private"), "DCAU A, PROT P"),
    ] {
        let (up, back) = (sshd.root_url("f"), sshd.local("back"));
        let copy = |from: &str, to: &str| {
            let protect = level.map(|level| ["--protect", level]);
            let words = ["cp", "-v", "-p", "3", from, to];
            let words = words.iter().chain(protect.iter().flatten());
            sshd.succeeds(&words.copied().collect::<Vec<_>>())
        };
        let said = copy(&sshd.local("f"), &up);
        assert!(said.contains(wire), "{said}");
        copy(&up, &back);
        assert_same(&sshd.at("local/f"), &sshd.at("local/back"));
    }
    let clear = [
        "cp",
        "-v",
        "--protect",
        "clear",
        &sshd.root_url("f"),
        &sshd.local("back"),
    ];
    assert!(!sshd.succeeds(&clear).contains("DCAU A"));
}

#[test]
fn a_forced_command_keeps_users_beneath_its_root() {
    if !ready(OURS) {
        return;
    }
    let sshd = Sshd::start();
    let config = sshd.at("sshd_config");
    let mut text = fs::read_to_string(&config).expect("reads");
    text += &format!(
        "ForceCommand godwitd --ssh --root {}\n",
        sshd.at("root").display()
    );
    fs::write(&config, text).expect("writes");
    write_noise(&sshd.at("local/f"), 100_000, 3);
    sshd.succeeds(&["cp", &sshd.local("f"), &sshd.url("/f")]);
    assert_same(&sshd.at("local/f"), &sshd.at("root/f"));
    let outside = sshd.godwit(&["cp", &sshd.url("/etc/passwd"), &sshd.local("p")]);
    Sshd::fails(&outside, 4, &["no such file"]);
}

#[test]
fn a_script_of_the_user_says_what_serves() {
    if !ready(OURS) {
        return;
    }
    let sshd = Sshd::start();
    let root = sshd.at("root");
    sshd.script(
        ".globus/sshftp",
        &format!("exec godwitd --ssh --root {}", root.display()),
    );
    fs::write(root.join("there"), "x").expect("writes");
    assert!(sshd.succeeds(&["ls", &sshd.url("/")]).contains("there"));
    // What is named is run instead.
    let named = ["ls", "--ssh-server", "godwitd --ssh", &sshd.root_url("")];
    assert!(sshd.succeeds(&named).contains("there"));
}

#[test]
fn ssh_failures_are_reported_with_advice() {
    if !ready(OURS) {
        return;
    }
    let sshd = Sshd::start();
    let url = sshd.root_url("");
    let ls = ["ls", url.as_str()];
    let config = sshd.at("ssh_config");
    let ssh = format!("ssh -F {}", config.display());

    let none = sshd.godwit_by("no-such-ssh", &ls);
    Sshd::fails(&none, 2, &["cannot run no-such-ssh", "--ssh"]);

    let stranger = format!("{ssh} -o UserKnownHostsFile=/dev/null");
    let stranger = sshd.godwit_by(&stranger, &ls);
    Sshd::fails(
        &stranger,
        3,
        &["does not know the key of the server", "127.0.0.1"],
    );

    let text = fs::read_to_string(&config).expect("reads");
    let text = text.replace("user_key", "other_key");
    fs::write(&config, &text).expect("writes");
    Sshd::fails(
        &sshd.godwit(&ls),
        3,
        &["ssh cannot log in", "by a key or an agent"],
    );
    fs::write(&config, text.replace("other_key", "user_key")).expect("writes");

    fs::remove_file(sshd.at("bin/godwitd")).expect("removes");
    Sshd::fails(
        &sshd.godwit(&ls),
        4,
        &[
            "no GridFTP server for ssh",
            "put godwitd there",
            "--ssh-server",
        ],
    );
    let missing = ["ls", "--ssh-server", "no-such-server", &url];
    Sshd::fails(
        &sshd.godwit(&missing),
        4,
        &["no GridFTP server for ssh", "no-such-server", "127"],
    );
    // What a login shell may print before a server speaks.
    fs::write(sshd.at("root/there"), "x").expect("writes");
    let server = godwit::binary("godwitd").expect("present");
    let talks = format!("echo Welcome; exec {} --ssh", server.display());
    let talks = sshd.succeeds(&["ls", "--ssh-server", &talks, &url]);
    assert!(
        talks.contains("there") && !talks.contains("Welcome"),
        "{talks}"
    );

    // A port without a listener.
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("an address").port();
    drop(free);
    let unreachable = format!("sshftp://127.0.0.1:{port}/");
    Sshd::fails(
        &sshd.godwit(&["ls", &unreachable]),
        4,
        &["Connection refused"],
    );
}

#[test]
fn the_reference_server_serves_our_client() {
    if !ready(WITH_GCT)
        || !am_root("the reference server serves root as another user, which needs root")
    {
        return;
    }
    let sshd = Sshd::start();
    sshd.script(
        ".globus/sshftp",
        &format!(
            "X509_CERT_DIR={cas} exec /usr/sbin/globus-gridftp-server -ssh -anonymous-user nobody",
            cas = sshd.at("home").display()
        ),
    );
    write_noise(&sshd.at("local/f"), 5 << 20, 4);
    for level in ["clear", "identity", "private"] {
        let (up, back) = (sshd.root_url(level), sshd.local("back"));
        sshd.succeeds(&["cp", "--protect", level, "-p", "3", &sshd.local("f"), &up]);
        assert_same(&sshd.at("local/f"), &sshd.at("root").join(level));
        sshd.succeeds(&["cp", "--protect", level, "-p", "3", &up, &back]);
        assert_same(&sshd.at("local/f"), &sshd.at("local/back"));
    }
    assert!(
        sshd.succeeds(&["ls", &sshd.root_url("")])
            .contains("private")
    );
}

#[test]
fn the_reference_client_meets_our_server() {
    if !ready(WITH_GCT) {
        return;
    }
    let sshd = Sshd::start();
    sshd.script(".globus/sshftp", "exec godwitd --ssh");
    // Its words go behind the host, where ssh still takes options.
    let there = sshd.at("home/.globus/sshftp");
    let words = format!("-F {} {}", sshd.at("ssh_config").display(), there.display());
    write_noise(&sshd.at("local/f"), 5 << 20, 5);
    for (name, protection) in [
        ("plain", &[][..]),
        ("private", &["-data-cred", "auto", "-dcpriv"]),
    ] {
        let copy = |from: String, to: String| {
            let mut command = gct::URL_COPY.command().expect("present");
            command
                .env("GLOBUS_REMOTE_SSHFTP", &words)
                // Without a directory of CAs, be it empty, it knows no identities.
                .env("X509_CERT_DIR", sshd.at("home"))
                .args(["-p", "3"]);
            command.args(protection).args([from, to]);
            let finished = process::run(command, RUN_TIMEOUT).expect("runs");
            assert!(finished.status.success(), "{name}: {}", finished.log());
        };
        let local = |path: &str| format!("file://{}", sshd.local(path));
        copy(local("f"), sshd.root_url(name));
        assert_same(&sshd.at("local/f"), &sshd.at("root").join(name));
        copy(sshd.root_url(name), local("back"));
        assert_same(&sshd.at("local/f"), &sshd.at("local/back"));
    }
}

#[test]
fn ssh_gets_no_password_and_no_token() {
    if !have(&[Need::Godwit]) {
        return;
    }
    let folder = TempDir::new().expect("a folder");
    let seen = folder.path().join("seen");
    let ssh = format!("sh -c 'env > {}; exit 1' ssh", seen.display());
    let variables = [
        ("GODWIT_PASSWORD", "secret"),
        ("GODWIT_FURTHER_TOKEN", "secret"),
        ("BEARER_TOKEN", "secret"),
        ("BEARER_TOKEN_FILE", "/secret"),
        ("FOR_A_PROXY_COMMAND", "kept"),
    ];
    let variables = variables.map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let arguments = ["ls", "--ssh", &ssh, "sshftp://127.0.0.1/"];
    let finished = godwit::godwit_with(arguments, variables).expect("runs");
    assert!(!finished.status.success());
    let seen = fs::read_to_string(seen).expect("it was started");
    assert!(seen.contains("FOR_A_PROXY_COMMAND=kept"), "{seen}");
    assert!(!seen.contains("secret"), "{seen}");
}

//! The program that leads to a server: the user's own ssh.

use std::{
    env,
    ffi::OsStr,
    io,
    os::{fd::OwnedFd, unix::net},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use godwit_engine::control::{ControlError, Stream};
use godwit_proto::url::Scheme;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::AsyncReadExt as _,
    net::UnixStream,
    process::{Child, Command as Run},
    time::timeout,
};

use crate::{
    endpoint::Endpoint,
    error::{Error, Result},
    spec::Ssh,
};

/// What is run at the far end: what its administrator or the user has put where the Grid Community
/// Toolkit looks, or else our server as it is. Within single quotes every login shell leaves it
/// alone.
const SERVER: &str = "exec sh -c 'for f in \"$HOME/.globus/sshftp\" /etc/grid-security/sshftp; do \
                      test -x \"$f\" && exec \"$f\"; done; \
    command -v godwitd >/dev/null && exec godwitd --ssh; printf \"500 There is no server for ssh \
    here.\\r\\n\"'";

/// What other programs of its kind tell ssh: nothing but a channel is wanted.
const OPTIONS: [&str; 4] = [
    "-xT",
    "-oForwardAgent=no",
    "-oPermitLocalCommand=no",
    "-oClearAllForwardings=yes",
];

/// Bytes kept of what ssh says on standard error, the last ones.
const SAID_BYTES_MAX: usize = 4096;

/// Time for ssh to end and tell why, once the channel has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Who the server of a session is, for the user.
pub(in crate::session) const WHO: &str = "whom ssh has let us to";

/// Passwords and tokens of ours are no affair of ssh's, which starts programs of its own
/// (ProxyCommand) and may hand variables on to the server (SendEnv).
fn is_secret(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.starts_with(b"GODWIT_") || name.starts_with(b"BEARER_TOKEN")
}

/// A running ssh. Dropped, it is ended, unless it was left to end by itself.
pub(in crate::session) struct SshProcess {
    child: Child,
    said: Arc<Mutex<Vec<u8>>>,
    listener: tokio::task::JoinHandle<()>,
    left: bool,
}

impl SshProcess {
    /// Starts ssh. `further`: another session has asked the user whatever there was to ask.
    pub(super) fn start(
        settings: &Ssh,
        endpoint: &Endpoint,
        further: bool,
    ) -> Result<(Self, Stream)> {
        let started = Self::spawn(settings, endpoint, further);
        started.map_err(|error| Error::System {
            doing: format!("run {}", settings.command),
            error: Arc::new(error),
        })
    }

    fn spawn(settings: &Ssh, endpoint: &Endpoint, further: bool) -> io::Result<(Self, Stream)> {
        let (ours, theirs) = net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        // An interrupt is for us: we end in good order, and need the channel for that.
        let mut command = Run::new("/bin/sh");
        for (name, _) in env::vars_os().filter(|(name, _)| is_secret(name)) {
            command.env_remove(name);
        }
        let mut child = command
            .arg("-c")
            .arg(format!("trap '' INT; exec {} \"$@\"", settings.command))
            .arg("sh")
            .args(arguments(settings, endpoint, further))
            .stdin(OwnedFd::from(theirs.try_clone()?))
            .stdout(OwnedFd::from(theirs))
            .stderr(Stdio::piped())
            .spawn()?;
        let said = Arc::<Mutex<Vec<u8>>>::default();
        let listener = tokio::spawn(listen(child.stderr.take(), Arc::clone(&said)));
        let program = Self {
            child,
            said,
            listener,
            left: false,
        };
        Ok((program, Stream::Local(UnixStream::from_std(ours)?)))
    }

    /// Lets it end by itself: it may serve others (`ControlMaster`).
    pub(in crate::session) fn leave(mut self) {
        self.left = true;
    }

    /// Why there is no session. What ssh has said tells more than that the channel has ended.
    pub(super) async fn explain(
        mut self,
        settings: &Ssh,
        endpoint: &Endpoint,
        error: ControlError,
    ) -> Error {
        let ended = timeout(LAST_WORDS, self.child.wait()).await;
        // Another process may hold it open: an ssh master that stays.
        drop(timeout(LAST_WORDS, &mut self.listener).await);
        let status = ended.ok().and_then(io::Result::ok).and_then(|s| s.code());
        let said = String::from_utf8_lossy(&self.said.lock()).into_owned();
        why(settings, endpoint, status, &said, error)
    }
}

impl Drop for SshProcess {
    fn drop(&mut self) {
        let running = self.child.id().filter(|_| !self.left);
        let pid = running.and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(pid) = pid {
            // Not killed: it may be asking, with the terminal's echo switched off. It may have
            // ended.
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

/// Keeps the end of what comes.
async fn listen(from: Option<tokio::process::ChildStderr>, said: Arc<Mutex<Vec<u8>>>) {
    let Some(mut from) = from else { return };
    let mut buffer = [0; 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let mut said = said.lock();
        said.extend_from_slice(&buffer[..count]);
        let excess = said.len().saturating_sub(SAID_BYTES_MAX);
        said.drain(..excess);
    }
}

fn arguments(settings: &Ssh, endpoint: &Endpoint, further: bool) -> Vec<String> {
    let mut all: Vec<String> = OPTIONS.map(str::to_owned).into();
    if further {
        all.push("-oBatchMode=yes".to_owned());
    }
    // Its own settings may name another port.
    if endpoint.port() != Scheme::Sshftp.default_port() {
        all.extend(["-p".to_owned(), endpoint.port().to_string()]);
    }
    if let Some(user) = endpoint.user() {
        all.extend(["-l".to_owned(), user.to_owned()]);
    }
    let server = settings.server.as_deref().unwrap_or(SERVER);
    all.extend([endpoint.host().to_owned(), server.to_owned()]);
    all
}

/// What a user types to see what ssh has to say.
fn by_hand(settings: &Ssh, endpoint: &Endpoint) -> String {
    let port = match endpoint.port() == Scheme::Sshftp.default_port() {
        true => String::new(),
        false => format!("-p {} ", endpoint.port()),
    };
    let user = endpoint.user().map(|user| format!("{user}@"));
    let user = user.unwrap_or_default();
    format!("{} {port}{user}{}", settings.command, endpoint.host())
}

/// What a user can do about an ssh that has ended with `status`.
fn why(
    settings: &Ssh,
    endpoint: &Endpoint,
    status: Option<i32>,
    said: &str,
    error: ControlError,
) -> Error {
    let Ssh { command, .. } = settings;
    let (name, by_hand) = (endpoint.name(), by_hand(settings, endpoint));
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty());
    let last = last.unwrap_or("it said nothing");
    let unproven = |reason: String| Error::Identity {
        doing: name.clone(),
        reason,
    };
    match status {
        // The shell that was to become it.
        Some(126 | 127) if said.contains("exec: ") => Error::Usage(format!(
            "{name}: cannot run {command}: install OpenSSH's client, or name another with --ssh \
             ({last})"
        )),
        Some(255) if said.contains("Host key verification failed") => unproven(format!(
            "ssh does not know the key of the server, or it is another than before: `{by_hand}` \
             shows it, and asks ({last})"
        )),
        Some(255) if said.contains("Permission denied") => unproven(format!(
            "ssh cannot log in: `{by_hand}` must do without a question, by a key or an agent \
             ({last})"
        )),
        Some(255) => Error::Unreachable {
            endpoint: name,
            error: ControlError::Connect {
                peer: format!("{} by {command}", endpoint.host()).into(),
                error: Arc::new(io::Error::other(last.to_owned())),
            },
        },
        Some(status) => no_server(
            endpoint,
            &format!("what was run there ended with status {status}: {last}"),
        ),
        None => Error::Control {
            doing: format!("log in to {name}"),
            error,
        },
    }
}

/// There is no GridFTP server at the far end.
pub(super) fn no_server(endpoint: &Endpoint, reason: &str) -> Error {
    Error::MissingFeature {
        endpoint: endpoint.name(),
        feature: "GridFTP server for ssh".to_owned(),
        consequence: format!(
            "put godwitd there where commands are looked for, or a script that runs one into \
             ~/.globus/sshftp, or name it with \
             --ssh-server ({reason})"
        ),
    }
}

//! The other programs a transfer can meet, started on loopback and stopped again.
//!
//! Interoperability tests, benchmarks and the lab run real programs against our two ends. This
//! module starts them, waits until they answer, captures what they say within bounds, measures
//! what they cost and leaves nothing running behind.
//!
//! | Module | What it starts |
//! |---|---|
//! | [`gct`] | `globus-gridftp-server` (plain or striped) and `globus-url-copy` |
//! | [`gfal`] | the `gfal-*` commands |
//! | [`arc`] | ARC's commands and its `gridftpd` |
//! | [`jglobus`] | a Java program with the library of that name |
//! | [`plain_ftp`] | `curl`, `lftp` and `rclone` |
//! | [`tar`] | `tar` over one connection of `nc` |
//! | [`http`] | `nginx` |
//! | [`webdav`] | Apache, `nginx` and XRootD with TLS and WebDAV |
//! | [`xrootd`] | `xrootd` |
//! | [`s3`] | moto and versitygw, services of S3 |
//! | [`ssh`] | `sshd`, with keys of its own |
//! | [`iperf3`] | `iperf3`, both ends |
//! | [`godwit`] | our own `godwitd` and `godwit` |
//! | [`striped`] | our own `godwitd` with data nodes |
//! | [`grid`] | nothing: certificates, with which the two above know each other |
//! | [`tool`] | any program that runs to its end |
//! | [`process`] | the process group below all of them |
//! | [`usage`] | processor time and memory of a process group or of the machine |
//!
//! Every server listens on a port that was free and is stopped when its value is
//! dropped: by the process group that was started, never by name. So any number of them may run
//! side by side.
//!
//! A program that is not installed is [`Missing`], which names the package to install. A test
//! turns it into a visible skip:
//!
//! ```no_run
//! use godwit_lab::peers::{self, gct};
//!
//! fn copies_a_file() {
//!     let Some(_) = peers::present("copies_a_file", gct::available()) else {
//!         return;
//!     };
//!     // ...
//! }
//! ```

pub mod arc;
pub mod ftps;
pub mod gct;
pub mod gfal;
pub mod godwit;
pub mod grid;
pub mod http;
pub mod iperf3;
pub mod jglobus;
pub mod plain_ftp;
pub mod postgres;
pub mod process;
pub(crate) mod request;
pub mod s3;
pub mod service;
pub mod ssh;
pub mod striped;
pub mod tar;
pub mod tool;
pub mod usage;
pub mod webdav;
pub mod xrootd;

mod capture;

use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use godwit_engine::host::net::{PortRange, listen};

pub use process::{Finished, Process};
pub use tool::Tool;
pub use usage::{Held, SystemCpu, Usage};

/// Set to `1`, a missing peer fails the test instead of skipping it, so that a machine which is
/// meant to have all peers cannot lose one unnoticed.
pub const REQUIRE_PEERS_ENV: &str = "GODWIT_REQUIRE_PEERS";

/// How long a server may take to say that it listens. They need some 20 ms; a loaded machine with
/// a cold cache needs more. Chosen arbitrarily; smaller values break slow machines.
pub const START_TIMEOUT: Duration = Duration::from_secs(20);

/// How long one command may run unless the caller says otherwise. Chosen arbitrarily; a hanging
/// peer costs a test run this much.
pub const RUN_TIMEOUT: Duration = Duration::from_secs(60);

/// Ports tried before a server that cannot choose one is given up.
const PORTS_TRIED: usize = 5;

/// A program that is not installed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{program} not found; it comes with {package}")]
pub struct Missing {
    /// The program that was looked for.
    pub program: String,
    /// What to install: a Debian package, or for our own programs the command that builds them.
    pub package: String,
}

/// What can go wrong while a peer is started, watched or measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program is not installed: the machine must be prepared.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// The kernel refused us something the harness itself needs.
    #[error("{action}: {source}")]
    Os {
        /// What was attempted.
        action: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A server ended, or closed its output, before it said that it listens.
    #[error("{program} ended before it was ready ({status:?}):\n{log}")]
    EndedEarly {
        /// The program.
        program: String,
        /// Its exit status where it is known.
        status: Option<ExitStatus>,
        /// What it printed.
        log: String,
    },
    /// The program did not do in time what was waited for.
    #[error("{program} did not {what} within {waited:?}:\n{log}")]
    TimedOut {
        /// The program.
        program: String,
        /// What was waited for.
        what: &'static str,
        /// For how long.
        waited: Duration,
        /// What it printed until then.
        log: String,
    },
    /// The program ran and reported failure.
    #[error("{program} failed with {status}:\n{log}")]
    Failed {
        /// The program.
        program: String,
        /// Its exit status.
        status: ExitStatus,
        /// What it printed.
        log: String,
    },
    /// The program said something that the harness does not understand.
    #[error("{program} printed no {expected}:\n{log}")]
    Unexpected {
        /// The program.
        program: String,
        /// What was looked for in its output.
        expected: &'static str,
        /// What it printed.
        log: String,
    },
}

impl Error {
    /// Returns a function that wraps an [`io::Error`] with what was attempted.
    pub(crate) fn os(action: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Os {
            action: action.into(),
            source,
        }
    }
}

/// The value, or `None` after a printed skip of `test` when the peer is missing.
///
/// # Panics
/// When the peer is missing and [`REQUIRE_PEERS_ENV`] is `1`.
pub fn present<T>(test: &str, found: Result<T, Missing>) -> Option<T> {
    match found {
        Ok(value) => Some(value),
        Err(missing) => {
            let required = std::env::var_os(REQUIRE_PEERS_ENV).is_some_and(|v| v == "1");
            assert!(!required, "{test}: {missing}");
            // Written to the stream itself: the test runner hides what the print macros say in
            // tests that pass, and a skip that is not seen is a test that is gone. A closed
            // standard error is no reason to fail.
            let _ = writeln!(io::stderr().lock(), "skipped {test}: {missing}");
            None
        }
    }
}

/// Below the ports that Linux gives to connections (`net.ipv4.ip_local_port_range`, from 32768 by
/// default), so that no connection takes one meanwhile.
const FREE_PORTS: PortRange = 10_000..=32_000;

/// A TCP port on `ip` that was free a moment ago, for programs that cannot choose one themselves.
///
/// Another process that names its port may take it meanwhile: the caller tries again with a new
/// one.
///
/// # Errors
/// [`Error::Os`] when `ip` is not an address of this machine or no port is left.
pub fn free_port(ip: IpAddr) -> Result<u16, Error> {
    listen(ip, Some(&FREE_PORTS), None)
        .and_then(|listener| listener.local_addr())
        .map(|addr| addr.port())
        .map_err(Error::os(format!("find a free port on {ip}")))
}

/// Starts a program that gets its port on `ip` as an argument, on another port where one was taken
/// meanwhile.
pub(crate) fn on_a_free_port<T>(
    ip: IpAddr,
    mut start: impl FnMut(SocketAddr) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut tried = 1;
    loop {
        match start(SocketAddr::new(ip, free_port(ip)?)) {
            Err(Error::EndedEarly { .. }) if tried < PORTS_TRIED => tried += 1,
            other => return other,
        }
    }
}

/// The `ftp://` URL of an absolute path on `server`.
fn ftp_url(server: SocketAddr, path: &str) -> String {
    format!("ftp://{server}{}", encode_path(path))
}

/// The `file://` URL of an absolute path of this machine, as every client here reads it.
pub fn file_url(path: &Path) -> String {
    format!("file://{}", encode_path(&path.to_string_lossy()))
}

/// Percent-encodes what may not stand in the path of a URL (RFC 3986 §3.3), and `;`, which FTP
/// gives a meaning (RFC 1738 §3.2.2).
pub(crate) fn encode_path(path: &str) -> String {
    let mut encoded = String::with_capacity(path.len());
    for &byte in path.as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,=:@".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// `ip` as it stands in a URL: IPv6 in brackets.
fn url_host(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::process::Command;

    use super::*;

    #[test]
    fn missing_names_the_package() {
        let missing = Missing {
            program: "lftp".into(),
            package: "the package lftp".into(),
        };
        assert_eq!(
            missing.to_string(),
            "lftp not found; it comes with the package lftp"
        );
    }

    #[test]
    fn present_passes_values_through() {
        assert_eq!(present("a test", Ok(7)), Some(7));
    }

    #[test]
    #[ignore = "run by a_missing_peer_is_a_printed_skip"]
    fn needs_a_missing_peer() {
        let missing = Tool::new("godwit-no-such-program", "no-such-package");
        assert_eq!(present("this test", missing.available()), None);
    }

    #[test]
    fn a_missing_peer_is_a_printed_skip() {
        let run = |required: &str| {
            let mut command = Command::new(std::env::current_exe().expect("this program"));
            command
                .args(["--ignored", "--exact"])
                .arg("peers::tests::needs_a_missing_peer")
                .env(REQUIRE_PEERS_ENV, required);
            process::run(command, RUN_TIMEOUT).expect("runs")
        };
        let skipped = run("0").success().expect("passes");
        let expected = "skipped this test: godwit-no-such-program not found; \
                        it comes with the package no-such-package\n";
        assert!(
            skipped.stderr_text().contains(expected),
            "{}",
            skipped.log()
        );
        assert!(
            skipped.stdout_text().contains("1 passed"),
            "{}",
            skipped.log()
        );
        assert!(!run("1").status.success(), "a required peer is missing");
    }

    #[test]
    fn free_ports_can_be_bound() {
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let port = free_port(ip).expect("loopback has ports");
        assert_ne!(port, 0);
    }

    #[test]
    fn odd_names_are_encoded_in_urls() {
        let server = "127.0.0.1:21".parse().expect("an address");
        let url = ftp_url(server, "/a b/50%;\u{e9}\"?#");
        assert_eq!(url, "ftp://127.0.0.1:21/a%20b/50%25%3B%C3%A9%22%3F%23");
    }

    #[test]
    fn ipv6_hosts_get_brackets() {
        assert_eq!(url_host("::1".parse().expect("an address")), "[::1]");
    }
}

//! `tar` at both ends of one TCP connection that `nc` makes: what one stream without a protocol of
//! files carries, and so the bound that clients of servers are held against.
//!
//! `nc -N` closes its half of the connection at the end of the archive, which ends the other `nc`.
//! The pipelines run in `sh`, whose exit status is that of their last program.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;

use super::process::{Options, Process, Stream};
use super::{Error, Missing, START_TIMEOUT, Tool};

/// Packs and unpacks.
pub const TAR: Tool = Tool::new("tar", "tar");

/// Makes the connection. Others of this name lack `-N`.
pub const NC: Tool = Tool::new("nc", "netcat-openbsd");

const SHELL: Tool = Tool::new("sh", "dash");

/// Whether both programs are there.
///
/// # Errors
/// [`Missing`], which names the first package that is not.
pub fn available() -> Result<(), Missing> {
    TAR.available()?;
    NC.available()?;
    Ok(())
}

/// A directory that waits for the one who fetches it. Dropping it ends it.
#[derive(Debug)]
pub struct TarServer {
    process: Process,
    addr: SocketAddr,
}

impl TarServer {
    /// Listens on a free port of `ip`.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Os`], [`Error::EndedEarly`] when the port was taken meanwhile,
    /// [`Error::TimedOut`].
    pub fn start(directory: &Path, ip: IpAddr) -> Result<TarServer, Error> {
        available()?;
        let addr = SocketAddr::new(ip, super::free_port(ip)?);
        let script = r#"tar -C "$0" -cf - . | nc -n -v -N -l "$1" "$2""#;
        let mut process = Process::spawn(pipeline(script, directory, addr)?, Options::default())?;
        process.wait_for_line(
            Stream::Stderr,
            "say that it listens",
            START_TIMEOUT,
            |line| line.starts_with("Listening on ").then_some(()),
        )?;
        Ok(TarServer { process, addr })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The shell and its pipeline, to signal or watch them.
    pub fn process(&self) -> &Process {
        &self.process
    }
}

/// The command that fetches the directory of the server at `addr` into `target`, which exists.
///
/// # Errors
/// [`Missing`], which names the package.
pub fn fetch(addr: SocketAddr, target: &Path) -> Result<Command, Missing> {
    available()?;
    pipeline(r#"nc -n -d "$1" "$2" | tar -C "$0" -xf -"#, target, addr)
}

fn pipeline(script: &str, directory: &Path, addr: SocketAddr) -> Result<Command, Missing> {
    let mut command = SHELL.command()?;
    command
        .args(["-c", script])
        .arg(directory)
        .arg(addr.ip().to_string())
        .arg(addr.port().to_string());
    Ok(command)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::Ipv4Addr;

    use tempfile::TempDir;

    use super::*;
    use crate::peers::{RUN_TIMEOUT, present, process};

    #[test]
    fn a_directory_arrives_over_one_connection() {
        let test = "a_directory_arrives_over_one_connection";
        if present(test, available()).is_none() {
            return;
        }
        let (source, target) = (TempDir::new().expect("one"), TempDir::new().expect("two"));
        fs::write(source.path().join("a b"), b"content").expect("a file");
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let server = TarServer::start(source.path(), ip).expect("listens");
        let command = fetch(server.addr(), target.path()).expect("is there");
        let finished = process::run(command, RUN_TIMEOUT).expect("runs");
        finished.success().expect("fetches");
        let arrived = fs::read(target.path().join("a b")).expect("arrived");
        assert_eq!(arrived, b"content");
    }
}

//! Servers that are never of use: jobs that read from them cannot be done.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::plan::ServiceKind;
use crate::path::Rng;

/// Longest life of a connection.
const CONNECTION_LIMIT: Duration = Duration::from_secs(300);

/// How often a thread looks whether all is over.
const LOOK: Duration = Duration::from_millis(100);

/// A server that does what its kind says.
#[derive(Debug)]
pub(super) struct PoisonServer {
    pub(super) kind: ServiceKind,
    pub(super) address: SocketAddr,
    state: Arc<PoisonState>,
}

#[derive(Debug, Default)]
struct PoisonState {
    ended: AtomicBool,
    /// Connected clients that must die.
    victims: Mutex<Vec<SocketAddr>>,
}

impl PoisonServer {
    /// Listens on a port that the kernel chose.
    ///
    /// # Errors
    /// The kernel gives none.
    pub(super) fn start(kind: ServiceKind) -> io::Result<PoisonServer> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let state = Arc::<PoisonState>::default();
        let shared = Arc::clone(&state);
        thread::Builder::new()
            .name("poison".into())
            .spawn(move || {
                for connection in listener.incoming().flatten() {
                    if shared.ended.load(Ordering::Acquire) {
                        break;
                    }
                    let state = Arc::clone(&shared);
                    // An error is a client that went away.
                    thread::spawn(move || drop(state.serve(kind, connection)));
                }
            })?;
        Ok(PoisonServer {
            kind,
            address,
            state,
        })
    }

    /// Clients of a server that kills, once each: the inode of the client's socket.
    pub(super) fn victims(&self) -> Vec<u64> {
        let victims = std::mem::take(&mut *self.state.victims.lock());
        victims.into_iter().filter_map(inode_of).collect()
    }
}

impl Drop for PoisonServer {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::Release);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

impl PoisonState {
    fn serve(&self, kind: ServiceKind, mut client: TcpStream) -> io::Result<()> {
        match kind {
            ServiceKind::SourceRefuses => refuse(client),
            ServiceKind::SourceSendsNoise => {
                let mut rng = Rng::new(client.peer_addr()?.port().into(), 0);
                let deadline = Instant::now() + CONNECTION_LIMIT;
                while !self.ended.load(Ordering::Acquire) && Instant::now() < deadline {
                    let noise: Vec<u8> = (0..512)
                        .flat_map(|_| rng.next_u64().to_le_bytes())
                        .collect();
                    client.write_all(&noise)?;
                }
                Ok(())
            }
            _ => {
                if kind == ServiceKind::UnitKillsAgents {
                    self.victims.lock().push(client.peer_addr()?);
                }
                let deadline = Instant::now() + CONNECTION_LIMIT;
                while !self.ended.load(Ordering::Acquire) && Instant::now() < deadline {
                    thread::sleep(LOOK);
                }
                Ok(())
            }
        }
    }
}

/// Accepts every login, and refuses every other command.
fn refuse(mut client: TcpStream) -> io::Result<()> {
    client.set_read_timeout(Some(CONNECTION_LIMIT))?;
    client.write_all(b"220 ready\r\n")?;
    let lines = BufReader::new(client.try_clone()?).lines();
    for line in lines {
        let line = line?;
        let verb = line.split(' ').next().unwrap_or_default();
        let reply: &[u8] = match verb.to_ascii_uppercase().as_str() {
            "USER" => b"331 password\r\n",
            "PASS" => b"230 logged in\r\n",
            _ => b"450 not now\r\n",
        };
        client.write_all(reply)?;
    }
    Ok(())
}

/// The inode of the socket of this machine that has this address.
fn inode_of(address: SocketAddr) -> Option<u64> {
    let table = fs::read_to_string("/proc/net/tcp").ok()?;
    let port = format!(":{:04X}", address.port());
    let mut lines = table.lines().skip(1);
    lines.find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let ours = fields.next()?.ends_with(&port);
        // Address of the peer, state, queues, timers, retransmissions, user, time-out.
        let inode = fields.nth(7)?.parse().ok()?;
        (ours && inode != 0).then_some(inode)
    })
}

/// Whether a process has the socket.
pub(super) fn has_socket(pid: u32, inode: u64) -> bool {
    let name = format!("socket:[{inode}]");
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    let targets = descriptors
        .flatten()
        .map(|entry| fs::read_link(entry.path()));
    targets
        .flatten()
        .any(|target| target.as_os_str() == name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_of_a_connection_is_found() {
        let server = PoisonServer::start(ServiceKind::UnitKillsAgents).unwrap();
        let _client = TcpStream::connect(server.address).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        let inode = loop {
            if let Some(inode) = server.victims().first() {
                break *inode;
            }
            assert!(Instant::now() < until);
            thread::sleep(Duration::from_millis(5));
        };
        assert!(has_socket(std::process::id(), inode));
        assert!(!has_socket(std::process::id(), inode + 1_000_000));
    }
}

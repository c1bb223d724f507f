//! Connecting.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _},
    sync::{Arc, LazyLock},
    time::SystemTime,
};

use godwit_gsi::{https::HttpsClient, verify::HostName};
use godwit_tls_stream::TlsStream;
use tokio::{
    net::TcpStream,
    sync::Semaphore,
    task::spawn_blocking,
    time::{Instant, timeout},
};

use crate::{
    connection::{BUFFER_BYTES, Connection},
    error::{Cause, Error, Step},
    limits::Limits,
    text::printable,
    url::{Origin, Scheme},
    wire::Wire,
};

/// Whether an address of a server may be connected to.
pub type Policy = Arc<dyn Fn(&Origin, SocketAddr) -> bool + Send + Sync>;

/// Sets options of a socket that is connected, and answers how many bytes may wait in either
/// direction, 16 KiB at least.
pub type Prepare = Arc<dyn Fn(&TcpStream) -> usize + Send + Sync>;

/// Connects to servers.
#[derive(Clone)]
pub struct Connector {
    tls: Option<HttpsClient>,
    policy: Policy,
    limits: Limits,
    prepare: Prepare,
}

impl Connector {
    /// Without `tls` only servers in clear can be connected to.
    #[must_use]
    pub fn new(tls: Option<HttpsClient>, policy: Policy, limits: Limits) -> Self {
        Self {
            tls,
            policy,
            limits,
            prepare: Arc::new(|_| BUFFER_BYTES),
        }
    }

    /// Each socket is prepared so.
    #[must_use]
    pub fn preparing(self, prepare: Prepare) -> Self {
        Self { prepare, ..self }
    }

    /// Connects to a server.
    ///
    /// # Errors
    /// Which step has failed, and why.
    pub async fn connect(&self, origin: &Origin) -> Result<Connection, Error> {
        let addresses = self.resolve(origin).await?;
        self.connect_to(origin, &addresses).await
    }

    /// The addresses of a server that may be connected to; at least one.
    ///
    /// # Errors
    /// When there is none.
    pub async fn resolve(&self, origin: &Origin) -> Result<Vec<SocketAddr>, Error> {
        let failed = |cause| failure(Step::Resolve, origin, cause);
        let limit = self.limits.resolve;
        let found: Vec<SocketAddr> = match origin.host.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, origin.port)],
            Err(_) => timeout(limit, look_up(origin.host.clone(), origin.port))
                .await
                .map_err(|_| failed(Cause::Timeout(limit)))?
                .map_err(|error| failed(error.into()))?,
        };
        let first = *found.first().ok_or_else(|| failed(Cause::NoAddress))?;
        let mut allowed = found;
        allowed.retain(|address| (self.policy)(origin, *address));
        match allowed.is_empty() {
            true => Err(failed(Cause::Refused(first))),
            false => Ok(allowed),
        }
    }

    /// Connects to a server at the first of these addresses that answers. They are what
    /// [`Self::resolve`] has found.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub async fn connect_to(
        &self,
        origin: &Origin,
        addresses: &[SocketAddr],
    ) -> Result<Connection, Error> {
        let tcp = self.tcp(origin, addresses).await;
        let tcp = tcp.map_err(|cause| failure(Step::Connect, origin, cause))?;
        let ends = tcp
            .local_addr()
            .and_then(|here| Ok((here, tcp.peer_addr()?)));
        let ends = ends.map_err(|error| failure(Step::Connect, origin, error.into()))?;
        // Requests and last chunks are to leave at once. It is no failure that they do not.
        let _ = tcp.set_nodelay(true);
        let buffer_bytes = (self.prepare)(&tcp);
        let (wire, tls): (Box<dyn Wire>, _) = match origin.scheme {
            Scheme::Http => (Box::new(tcp), None),
            Scheme::Https => {
                let stream = self.tls(origin, tcp).await;
                let stream = stream.map_err(|cause| failure(Step::Handshake, origin, cause))?;
                let ssl = stream.ssl();
                let cipher = ssl.current_cipher().map_or("none", |cipher| cipher.name());
                let protocol = format!("{}, {cipher}", ssl.version_str());
                (Box::new(stream), Some(protocol))
            }
        };
        let limits = (self.limits, buffer_bytes);
        Connection::new(wire, origin.clone(), ends, tls, limits).await
    }

    async fn tcp(&self, origin: &Origin, addresses: &[SocketAddr]) -> Result<TcpStream, Cause> {
        let limit = self.limits.connect;
        let end = Instant::now() + limit;
        let mut cause = Cause::NoAddress;
        for (number, address) in addresses.iter().enumerate() {
            if !(self.policy)(origin, *address) {
                cause = Cause::Refused(*address);
                continue;
            }
            // One that does not answer leaves time for the others.
            let others = u32::try_from(addresses.len() - number).unwrap_or(u32::MAX);
            let share = end.saturating_duration_since(Instant::now()) / others;
            match timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(tcp)) if self.is_allowed_way(origin, &tcp) => return Ok(tcp),
                Ok(Ok(_)) => cause = Cause::Refused(*address),
                Ok(Err(error)) => cause = error.into(),
                Err(_) => cause = Cause::Timeout(limit),
            }
        }
        Err(cause)
    }

    /// A connection to an address of this host does not leave it: what listens there may trust it
    /// as it trusts loopback.
    fn is_allowed_way(&self, origin: &Origin, tcp: &TcpStream) -> bool {
        let (Ok(here), Ok(there)) = (tcp.local_addr(), tcp.peer_addr()) else {
            return false;
        };
        let loopback = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), origin.port);
        here.ip().to_canonical() != there.ip().to_canonical() || (self.policy)(origin, loopback)
    }

    async fn tls(&self, origin: &Origin, tcp: TcpStream) -> Result<TlsStream<TcpStream>, Cause> {
        let tls = self.tls.as_ref().ok_or(Cause::NoTls)?;
        let host = HostName::new(&origin.host);
        let fault = |error: &dyn std::fmt::Display| Cause::Tls(error.to_string());
        let ssl = tls.ssl(&host, SystemTime::now());
        let ssl = ssl.map_err(|error| fault(&error))?;
        let limit = self.limits.handshake;
        let connected = timeout(limit, TlsStream::connect(ssl, tcp)).await;
        let stream = match connected.map_err(|_| Cause::Timeout(limit))? {
            Ok(stream) => stream,
            Err((error, verdict)) => {
                return Err(match error.into_io_error() {
                    Ok(error) => error.into(),
                    Err(error) => match error.to_string() {
                        text if text.contains("certificate verify failed") => {
                            Cause::Untrusted(verdict.to_string())
                        }
                        text => Cause::Tls(printable(text.as_bytes())),
                    },
                });
            }
        };
        if let Some(check) = tls.server_check(stream.ssl(), host) {
            let checked = spawn_blocking(move || check(SystemTime::now())).await;
            let checked = checked.map_err(|error| fault(&error))?;
            checked.map_err(|refusal| Cause::Untrusted(refusal.to_string()))?;
        }
        Ok(stream)
    }
}

/// The addresses of a name. A thread asks for them. It waits for name servers for as long as the
/// system says, also after the caller has given up, so the number of these threads is bounded.
async fn look_up(host: String, port: u16) -> io::Result<Vec<SocketAddr>> {
    static THREADS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(16)));
    let permit = Arc::clone(&THREADS).acquire_owned().await;
    let permit = permit.map_err(io::Error::other)?;
    let found = spawn_blocking(move || {
        let _permit = permit;
        Ok((host.as_str(), port).to_socket_addrs()?.collect())
    });
    found.await.map_err(io::Error::other)?
}

fn failure(step: Step, origin: &Origin, cause: Cause) -> Error {
    Error {
        step,
        origin: origin.clone(),
        cause,
    }
}

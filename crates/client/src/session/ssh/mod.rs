//! `sshftp://`: a control channel through the user's own ssh, which sees to who is at both ends.
//! Data channels go beside it.
//!
//! ```text
//!   godwit ══ a pair of sockets ══ ssh ──────────── sshd ══ ~/.globus/sshftp,
//!     │                                                      /etc/grid-security/sshftp
//!     └──────────────────── data channels ────────────────── or godwitd --ssh
//! ```

pub(super) mod process;

use std::{
    io,
    net::{IpAddr, UdpSocket},
    sync::Arc,
    time::{Duration, SystemTime},
};

use godwit_engine::control::ControlChannel;
use godwit_gsi::{
    adat,
    cert::{key::KeyKind, own},
    verify::{Bundle, Extended},
};
use godwit_proto::{
    Command, hostport,
    security::{MinProtection, Token},
};

use self::process::{SshProcess, no_server};
use super::{
    connect::addresses,
    login::{Connected, PendingSession, control_config},
    protocol_trace,
};
use crate::{
    auth::identity::Identity,
    context::RunContext,
    endpoint::{Endpoint, capabilities::Observed},
    error::{Error, Result},
};

/// How long a certificate for data channels is valid: longer than copies last. It never
/// leaves the two ends.
const OWN_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);

/// Starts ssh and waits for the greeting of what it leads to.
pub(super) async fn connect(
    context: &Arc<RunContext>,
    endpoint: &Arc<Endpoint>,
) -> Result<Connected> {
    let settings = &context.connections.ssh;
    let further = endpoint.capabilities.has(Observed::Greeted);
    let (program, stream) = SshProcess::start(settings, endpoint, further)?;
    let log = protocol_trace(context, endpoint);
    let name = endpoint.name().into();
    let (control, greeting) =
        match ControlChannel::over(stream, name, control_config(context), log).await {
            Ok(greeted) => greeted,
            Err(error) => return Err(program.explain(settings, endpoint, error).await),
        };
    if greeting.code.get() == 500 {
        return Err(no_server(endpoint, &format!("server said: {greeting}")));
    }
    Ok(Connected {
        control,
        greeting,
        addresses: None,
        program: Some(program),
    })
}

impl PendingSession<'_> {
    /// Gives both ends of data channels an identity that only they know: ssh authenticates us to
    /// the server only. `None`: the server takes none, and the user has not asked for protection.
    pub(super) async fn set_up_identity(
        &mut self,
        protect: Option<MinProtection>,
        has_dcsc: bool,
    ) -> Result<Option<Identity>> {
        if protect == Some(MinProtection::Clear) || protect.is_none() && !has_dcsc {
            return Ok(None);
        }
        let made = match self.context.credentials.ephemeral.get() {
            Some(known) => Ok(known.clone()),
            None => own::thrown_away("godwit", KeyKind::EcP256, OWN_LIFETIME, SystemTime::now()),
        };
        let made = made
            .map(|credential| {
                let known = &self.context.credentials.ephemeral;
                known.get_or_init(|| credential).clone()
            })
            .and_then(|credential| {
                // Once as the credential, and once as the trusted certificate.
                let trusted = credential.certificate().as_x509().to_pem()?;
                Ok(([credential.to_pem()?, trusted].concat(), credential))
            });
        let (pem, credential) = made.map_err(|error| self.unproven(error))?;
        let token = Token::new(adat::encode(&pem));
        let reply = self
            .security("DCSC", format!("P {}", token.reveal()))
            .await?;
        // Servers of the Toolkit take one only where there is a directory of CAs.
        if !reply.code.is_success() && protect.is_none() {
            self.context.reporter.note(format!(
                "{}: data channels are in clear: it takes no identity for them (server said: \
                 {reply})",
                self.endpoint.name()
            ));
            return Ok(None);
        }
        if !reply.code.is_success() {
            let consequence = "data channels cannot be protected; --protect clear takes that";
            return Err(self.lacks("DCSC", "DCSC", consequence, reply));
        }
        let anchors = Extended::new(
            Arc::new(Bundle::default()),
            vec![credential.certificate().clone()],
        );
        Ok(Some(Identity {
            credential,
            anchors: Arc::new(anchors),
        }))
    }

    /// Addresses for data channels, ours first. ssh alone knows where it leads to, and it may have
    /// gone through others: the server says where it is, and the kernel which of our addresses
    /// leads there. Where connections do not prove who is at their ends, and the host has an
    /// address, the server must be at that.
    pub(super) async fn data_addresses(&mut self, proven: bool) -> Result<[IpAddr; 2]> {
        let endpoint = self.endpoint;
        if let Some(known) = endpoint.capabilities.data_addresses.get() {
            return Ok(*known);
        }
        let reply = self.call(&Command::Pasv).await?;
        let announced = reply.code.is_success();
        let announced = announced
            .then(|| hostport::parse_227(&reply.text()))
            .flatten();
        // Where ssh has another name for the host, this finds nothing.
        let named = match announced {
            Some(_) if proven => Vec::new(),
            _ => addresses(self.context, endpoint).await.unwrap_or_default(),
        };
        let mut named = named.iter().map(|address| address.ip().to_canonical());
        let there = match announced.map(|address| address.ip()) {
            Some(address) if named.clone().any(|known| known == address) => Some(address),
            Some(address) => named.find(IpAddr::is_ipv4).or(Some(address)),
            // PASV knows IPv4 alone.
            None => named.find(IpAddr::is_ipv6),
        };
        let Some(there) = there else {
            let consequence = "data channels have nowhere to go";
            return Err(self.lacks("PASV", "address that PASV could tell", consequence, reply));
        };
        let scope = self.context.connections.addresses;
        if !scope.allows_for(endpoint.host(), there) {
            return Err(Error::AddressRefused {
                endpoint: endpoint.name(),
                address: there,
            });
        }
        let here = local_address(there).map_err(|error| Error::System {
            doing: format!("find a way to {there}"),
            error: Arc::new(error),
        })?;
        Ok(*endpoint
            .capabilities
            .data_addresses
            .get_or_init(|| [here, there]))
    }
}

/// The address that leads to `there`. Nothing is sent.
fn local_address(there: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match there {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    // Any port does.
    socket.connect((there, 9))?;
    Ok(socket.local_addr()?.ip())
}

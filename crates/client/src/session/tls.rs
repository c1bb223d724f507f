//! `ftpes://`: TLS by AUTH TLS (RFC 4217), logins by token, and data channels under PROT.

use std::time::SystemTime;

use godwit_engine::{
    control::{ControlError, protection::ProtectionError},
    data::ChannelSecurity,
};
use godwit_gsi::{
    cert::Certificate,
    ftps::{Client, ServerIs, Sessions},
    verify::HostName,
};
use godwit_proto::{
    Command,
    feature::Features,
    pi::login::Credentials,
    security::{MinProtection, Protection, TOKEN_USER},
};

use super::login::{PendingSession, lost};
use crate::{
    auth::{identity, secrets::check_audience},
    context::RunContext,
    error::{Error, Result},
    panics::on_thread,
};

/// A control channel under TLS.
pub(super) struct TlsControl {
    client: Client,
    /// What the server has shown.
    pub(super) certificate: Certificate,
    sessions: Sessions,
}

impl TlsControl {
    /// The peer of a data channel must hold the certificate of the control channel. Data channels
    /// resume the session of the control channel.
    pub(super) fn guard(self) -> ChannelSecurity {
        ChannelSecurity::TlsClient {
            client: self.client,
            server: ServerIs::Holder(Box::new(self.certificate), self.sessions),
        }
    }
}

impl PendingSession<'_> {
    /// Makes the connection one of TLS, with the host of the URL and no other.
    pub(super) async fn start_tls(&mut self) -> Result<TlsControl> {
        let client = client(self.context).map_err(|reason| self.unproven(reason))?;
        let reply = self.security("AUTH", "TLS").await?;
        if reply.code.get() != 234 {
            let consequence = "ftpes:// cannot log in; ftp:// does without, in clear";
            return Err(self.lacks("AUTH", "TLS (AUTH TLS)", consequence, reply));
        }
        let host = ServerIs::Host(HostName::new(self.endpoint.host()));
        let handshake = client.connect(&host, SystemTime::now());
        let handshake = handshake.map_err(|error| self.unproven(error))?;
        let sessions = handshake.sessions();
        let limit = self.context.connections.stall_limit;
        let shown = self.control.start_tls(handshake, limit).await;
        let shown = shown.map_err(|error| match error {
            // The user decides whom to trust; a retry over the network changes nothing.
            ControlError::Protection {
                error: ProtectionError::Handshake(why),
                ..
            } => self.unproven(why),
            error => lost(self.endpoint, error),
        });
        match shown? {
            Some(certificate) => Ok(TlsControl {
                client,
                certificate,
                sessions,
            }),
            None => Err(self.unproven("the server has shown no certificate")),
        }
    }

    /// The user's token, where the URL names no other user and the server takes tokens. A named one
    /// must do.
    pub(super) async fn with_token(&mut self) -> Result<Option<Credentials>> {
        if self.endpoint.user().is_some() {
            return Ok(None);
        }
        let secrets = self.context.connections.secrets.clone();
        let granted = &self.context.connections.granted;
        let granted = granted.token(self.endpoint.host(), self.endpoint.port());
        let is_granted = granted.is_some();
        let named = is_granted || secrets.token_file.is_some();
        let hosts = secrets.token_hosts.clone();
        let doing = || format!("read the token for {}", self.endpoint.name());
        let token = match granted {
            Some(token) => Some(token),
            None => on_thread(doing, move || secrets.token()).await??,
        };
        let Some(token) = token else {
            return Ok(None);
        };
        let reply = self.call(&Command::Feat).await?;
        // A server that does not say so would take it for a password, and might show it somewhere.
        if !Features::from_reply(&reply).tokens {
            return match named {
                true => Err(self.lacks(
                    "FEAT",
                    "logins by bearer token (X-GODWIT TOKEN)",
                    "the one of --token is of no use",
                    reply,
                )),
                false => Ok(None),
            };
        }
        if !is_granted {
            let checked = check_audience(&token, self.endpoint.host(), &hosts);
            checked.map_err(|reason| Error::Identity {
                doing: self.endpoint.name(),
                reason,
            })?;
        }
        Ok(Some(Credentials {
            user: TOKEN_USER.to_owned(),
            password: token,
            secret: true,
        }))
    }

    /// PBSZ and PROT (RFC 4217). TLS has no level between clear and private.
    pub(super) async fn agree_on_tls(&mut self, protect: MinProtection) -> Result<Protection> {
        let level = match protect {
            MinProtection::Clear => Protection::Clear,
            MinProtection::Identity | MinProtection::Integrity | MinProtection::Private => {
                Protection::Private
            }
        };
        let reply = self.security("PBSZ", "0").await?;
        if !reply.code.is_success() && level != Protection::Clear {
            return Err(self.lacks("PBSZ", "PBSZ", "data channels cannot be protected", reply));
        }
        let reply = self.security("PROT", level.to_string()).await?;
        if reply.code.is_success() {
            return Ok(level);
        }
        let consequence = match level {
            Protection::Clear => "it wants data channels private: leave --protect clear out",
            _ => "others could read and change what travels; --protect clear takes that",
        };
        Err(self.lacks("PROT", &format!("PROT {level}"), consequence, reply))
    }
}

/// Our side, made once where it can be: reading all authorities takes a while. It shows the user's
/// certificate to servers that ask, where there is one that would do; then it is made again, for a
/// proxy may be renewed while a long copy runs.
fn client(context: &RunContext) -> std::result::Result<Client, String> {
    if let Some(client) = context.credentials.tls.get() {
        return Ok(client.clone());
    }
    let connections = &context.connections;
    let shown = identity::credential(&connections.locations, SystemTime::now()).ok();
    let client = Client::new(shown.as_ref(), &connections.authorities);
    let client = client.map_err(|error| format!("trusted CAs (--ca): {error}"))?;
    if shown.is_some() {
        return Ok(client);
    }
    Ok(context.credentials.tls.get_or_init(|| client).clone())
}

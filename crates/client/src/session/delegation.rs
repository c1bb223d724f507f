//! Servers that know the user by different credentials. On data channels each trusts only a peer
//! with its own identity (DCAU A), so the client gives one of them a proxy of the other's identity,
//! with the CAs above it (DCSC P).
//!
//! The client never revokes it: a session keeps its partner until its end, and the client's own end
//! of its data channels uses the same identity.

use std::{sync::Arc, time::SystemTime};

use godwit_engine::data::{ChannelSecurity, GsiSecurity};
use godwit_gsi::{
    adat,
    cert::{
        Credential, CredentialError,
        key::KeyKind,
        proxy::{self, ProxyRequest},
    },
    name::DistinguishedName,
    verify::Anchors,
};
use godwit_proto::{
    Command,
    security::{Dcau, Token},
};

use super::Session;
use crate::{
    error::{Error, Result},
    panics::on_thread,
};

impl Session {
    /// Gives both servers one identity on data channels, where those are authenticated.
    pub(super) async fn share_credential(&mut self, source: &mut Session) -> Result<()> {
        let (Some(here), Some(there)) = (self.identity(), source.identity()) else {
            return Ok(());
        };
        if here.peer == there.peer && issuer(&here) == issuer(&there) {
            return Ok(());
        }
        // No other server can verify the identity of a server that is reached by ssh.
        let (from_source, from_here) = (!source.endpoint.is_ssh(), !self.endpoint.is_ssh());
        if from_source && self.install_credential(&there, source).await? {
            return Ok(());
        }
        if from_here && source.install_credential(&here, self).await? {
            return Ok(());
        }
        Err(Error::MissingFeature {
            endpoint: self.endpoint.name(),
            feature: "DCSC".to_owned(),
            consequence: format!(
                "nor has {}, and they know you by other certificates, {} of {} and {} of {}, so \
                 that neither trusts the other: use one proxy for both, or --protect clear",
                source.endpoint.name(),
                here.peer,
                issuer(&here),
                there.peer,
                issuer(&there)
            ),
        })
    }

    fn identity(&self) -> Option<GsiSecurity> {
        match &self.data.params.security {
            Some(ChannelSecurity::Gsi(security)) => Some((**security).clone()),
            _ => None,
        }
    }

    /// Gives this server, for data channels, the identity that `other` has by `theirs`. False where
    /// the server supports no such identity.
    async fn install_credential(&mut self, theirs: &GsiSecurity, other: &Session) -> Result<bool> {
        if !self.server.features.dcsc {
            return Ok(false);
        }
        let (credential, anchors) = (theirs.credential.clone(), Arc::clone(&theirs.anchors));
        let doing = || format!("introduce {} to another server", other.endpoint.name());
        let made = on_thread(doing, move || bundle(&credential, anchors.as_ref())).await?;
        let (credential, pem) = made.map_err(|error| Error::Identity {
            doing: other.endpoint.name(),
            reason: error.to_string(),
        })?;
        let token = Token::new(adat::encode(&pem));
        let name = self.endpoint.name();
        let reply = self
            .security_command("DCSC", format!("P {}", token.reveal()))
            .await?;
        let answer = match reply.code.is_success() {
            true => {
                self.security_command("DCAU", Dcau::OwnIdentity.to_string())
                    .await?
            }
            false => reply,
        };
        if !answer.code.is_success() {
            let text = format!(
                "{name}: takes no other identity for data channels (server said: {answer})"
            );
            self.context.reporter.note(text);
            return Ok(false);
        }
        let level = self
            .identity()
            .map_or(theirs.protection, |security| security.protection);
        let security = GsiSecurity::own_identity(credential, Arc::clone(&theirs.anchors), level);
        self.context.reporter.note(format!(
            "{name}: is {} on data channels, as {} knows you",
            security.peer,
            other.endpoint.name()
        ));
        self.data.params.security = Some(security.into());
        // DCSC drops what was kept.
        self.server.cached = None;
        self.data.set = None;
        Ok(true)
    }

    async fn security_command(
        &mut self,
        verb: &str,
        argument: String,
    ) -> Result<godwit_proto::Reply> {
        let doing = format!("{verb} at {}", self.endpoint.name());
        let verb = verb.to_owned();
        self.ask(&Command::Security { verb, argument }, &doing)
            .await
    }
}

/// The CA above a credential.
fn issuer(security: &GsiSecurity) -> &DistinguishedName {
    let credential = &security.credential;
    let top = credential.chain().last();
    top.unwrap_or(credential.certificate()).issuer()
}

/// A new proxy below `credential`, and what a server needs to authenticate with it and to verify a
/// peer that does the same. The key goes to the server, so it is a new one. Blocks.
fn bundle(
    credential: &Credential,
    anchors: &dyn Anchors,
) -> std::result::Result<(Credential, Vec<u8>), CredentialError> {
    let proxy = proxy::create(
        credential,
        &ProxyRequest::limited(),
        KeyKind::EcP256,
        SystemTime::now(),
    )?;
    let mut pem = proxy.to_pem()?;
    let top = proxy.chain().last().unwrap_or(proxy.certificate());
    // Where the client can read none, the server may trust the CA anyway.
    let authorities = anchors.authorities(top.issuer_hash()).unwrap_or_default();
    for authority in authorities
        .iter()
        .filter(|authority| top.names_as_issuer(authority))
    {
        pem.extend(authority.as_x509().to_pem()?);
    }
    Ok((proxy, pem))
}

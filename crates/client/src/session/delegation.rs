//! Servers that know the user by different credentials. On data channels each believes who is the
//! same as itself (DCAU A), so one of them is given what the other has, with the CAs above it (DCSC
//! P).
//!
//! It is never taken back: a session that has a partner keeps it for life, and our own end of its
//! data channels proves the same.

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
    /// Sees to it that both servers are the same on data channels, where they prove anything there.
    pub(super) async fn share_credential(&mut self, source: &mut Session) -> Result<()> {
        let (Some(here), Some(there)) = (self.identity(), source.identity()) else {
            return Ok(());
        };
        if here.peer == there.peer && issuer(&here) == issuer(&there) {
            return Ok(());
        }
        // What ssh has let in has an identity that no other server can verify.
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
                 that neither believes the other: use one \
                 proxy for both, or --protect clear",
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

    /// This server proves on data channels what `other` does, whose guard is `theirs`. False where
    /// it takes nothing of the kind.
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

/// A proxy of its own below `credential`, and all that a server needs to prove itself with it and
/// to believe the same of another. The key goes to the server, so it is none that exists elsewhere.
/// Blocks.
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
    // Where we have none that could be read, the server may believe the CA anyway.
    let authorities = anchors.authorities(top.issuer_hash()).unwrap_or_default();
    for authority in authorities
        .iter()
        .filter(|authority| top.names_as_issuer(authority))
    {
        pem.extend(authority.as_x509().to_pem()?);
    }
    Ok((proxy, pem))
}

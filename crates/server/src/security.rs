//! A session's security: the handshake in ADAT, who the client is, protected lines, and what data channels prove themselves with.
//!
//! ```text
//!   socket ──octets──► Security::open ──clear commands──► ServerPi ──replies──► Security::seal ──► outbox
//!                          ADAT ──► a blocking thread: `shake_hands` ──► 335 or 235, then `protect`
//! ```

use std::{fmt, sync::Arc, time::SystemTime};

use godwit_engine::control::protection::{ProtectedServer, ProtectionError, Received};
use godwit_engine::data::Guard;
use godwit_gsi::{
    Context, Established, Wrap, adat,
    cert::{Certificate, Credential, CredentialError, credential::certificates_from_pem},
    name::DistinguishedName,
    verify::Extended,
};
use godwit_proto::{
    error::StorageFailure,
    pi::server::{AdatStep, DataChannelSpec},
    security::Token,
};

use crate::gsi::{DataContext, Gsi, refusal};

/// What a session has of security. Nothing, before AUTH.
#[derive(Default)]
pub(crate) struct Security {
    /// Between two ADATs.
    context: Option<Box<Context>>,
    identity: Option<DistinguishedName>,
    /// What was delegated.
    delegated: Option<DataContext>,
    /// DCSC P.
    chosen: Option<DataContext>,
    /// Agreed on; counts from [`Self::protect`] on.
    agreed: Option<Wrap>,
    lines: Option<ProtectedServer>,
}

/// What came of one ADAT.
pub(crate) struct HandshakeStep {
    context: Option<Box<Context>>,
    established: Option<Box<Established>>,
    /// For the interpreter.
    pub(crate) result: Result<AdatStep, StorageFailure>,
}

/// What it holds is nothing for a log.
impl fmt::Debug for HandshakeStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut step = f.debug_struct("HandshakeStep");
        step.field("established", &self.established.is_some());
        step.finish_non_exhaustive()
    }
}

/// Continues a handshake, or begins one where there is no `context`. May take some 100 ms of a processor.
pub(crate) fn shake_hands(
    gsi: &Gsi,
    context: Option<Box<Context>>,
    token: &Token,
) -> HandshakeStep {
    let mut step = HandshakeStep {
        context: None,
        established: None,
        result: Err(refusal("the handshake has failed before")),
    };
    let context = context.map_or_else(|| gsi.acceptor().map(Box::new), Ok);
    let mut context = match context {
        Ok(context) => context,
        Err(error) => {
            step.result = Err(refusal(&error.to_string()));
            return step;
        }
    };
    let heard = adat::decode(token.reveal())
        .map_err(|error| format!("the token is {error}"))
        .and_then(|octets| {
            let heard = context.handle_input(SystemTime::now(), &octets);
            heard.map_err(|error| error.to_string())
        });
    let output = context.poll_output().map(|token| adat::encode(&token));
    step.result = match heard {
        Err(why) => Err(refusal(&why)),
        Ok(()) => match context.outcome() {
            Some(established) => {
                step.established = Some(Box::new(established));
                Ok(AdatStep::Established(output))
            }
            None => {
                step.context = Some(context);
                Ok(AdatStep::More(output.unwrap_or_default()))
            }
        },
    };
    step
}

impl Security {
    /// Who the client has proven to be.
    pub(crate) fn identity(&self) -> Option<&DistinguishedName> {
        self.identity.as_ref()
    }

    /// Of a session that a front has begun.
    pub(crate) fn handed(delegated: Option<DataContext>) -> Self {
        Self {
            delegated,
            ..Self::default()
        }
    }

    /// What was delegated, with its key; empty: nothing.
    pub(crate) fn delegated_pem(&self) -> Result<Vec<u8>, CredentialError> {
        match &self.delegated {
            Some(context) => context.credential.to_pem(),
            None => Ok(Vec::new()),
        }
    }

    /// The context for the next ADAT; none where it is the `first`.
    pub(crate) fn take_context(&mut self, first: bool) -> Option<Box<Context>> {
        let context = self.context.take();
        context.filter(|_| !first)
    }

    /// Keeps what an ADAT has brought.
    pub(crate) fn keep(
        &mut self,
        gsi: &Gsi,
        step: HandshakeStep,
    ) -> Result<AdatStep, StorageFailure> {
        self.context = step.context;
        if let Some(established) = step.established {
            let Established {
                peer,
                delegated,
                wrap,
                ..
            } = *established;
            self.identity = Some(peer.identity().clone());
            self.delegated = delegated.map(|credential| DataContext {
                credential,
                anchors: gsi.anchors(),
            });
            self.agreed = Some(wrap);
        }
        step.result
    }

    /// From now on lines are protected. Says how, for the log; `None`: nothing was agreed on.
    pub(crate) fn protect(&mut self) -> Option<String> {
        let lines = ProtectedServer::new(self.agreed.take()?);
        let how = lines.describe();
        self.lines = Some(lines);
        Some(how)
    }

    /// What octets of the socket are; `None`: themselves, nothing is protected.
    pub(crate) fn open(&mut self, octets: &[u8]) -> Option<Result<Vec<Received>, ProtectionError>> {
        self.lines.as_mut().map(|lines| lines.open(octets))
    }

    /// Replies as they leave.
    pub(crate) fn seal(&mut self, replies: Vec<u8>) -> Result<Vec<u8>, ProtectionError> {
        let Some(lines) = &mut self.lines else {
            return Ok(replies);
        };
        let mut sealed = Vec::new();
        lines.seal(&replies, &mut sealed)?;
        Ok(sealed)
    }

    /// DCSC: what data channels prove themselves with from now on; `None`: what was delegated.
    pub(crate) fn choose(
        &mut self,
        gsi: Option<&Gsi>,
        token: Option<&Token>,
    ) -> Result<(), StorageFailure> {
        self.chosen = match (token, gsi) {
            (None, _) => None,
            (Some(_), None) => return Err(refusal("DCSC is not offered")),
            (Some(token), Some(gsi)) => Some(chosen(gsi, token).map_err(|why| refusal(&why))?),
        };
        Ok(())
    }

    /// What guards data channels made now.
    pub(crate) fn guard(
        &self,
        spec: &DataChannelSpec,
    ) -> Result<Option<Arc<Guard>>, StorageFailure> {
        let context = self.chosen.as_ref().or(self.delegated.as_ref());
        DataContext::guard(context, spec)
    }
}

/// A certificate with its key, its chain, and CAs that its peers may have certificates of.
fn chosen(gsi: &Gsi, token: &Token) -> Result<DataContext, String> {
    let pem = adat::decode(token.reveal()).map_err(|error| format!("the text is {error}"))?;
    let credential = Credential::from_pem(&pem, &pem, None).map_err(|error| error.to_string())?;
    let all: Vec<Certificate> = certificates_from_pem(&pem).map_err(|error| error.to_string())?;
    Ok(DataContext {
        credential,
        anchors: Arc::new(Extended::new(gsi.anchors(), all)),
    })
}

//! A session's security: the handshake in ADAT or of TLS, who the client is, protected lines, and
//! what data channels prove themselves with.
//!
//! ```text
//!   socket ──bytes──► Security::open ──clear commands──► ServerPi ──replies──┐
//!                          ReplyBuffer ◄── Security::seal ◄────────────────────────┘
//!       ADAT ──► a blocking thread: `shake_hands` ──► 335 or 235, then `protect`
//!   AUTH TLS ──► 234, then `protect`: a blocking thread handles bytes, `receive_tls`, until TLS is
//!                established
//! ```

use std::{fmt, net::IpAddr, sync::Arc, time::SystemTime};

use godwit_engine::control::protection::{
    Encapsulation, ProtectedServer, ProtectionError, Received,
};
use godwit_engine::data::ChannelSecurity;
use godwit_gsi::{
    Context, Established, Wrap, adat,
    cert::{Certificate, Credential, CredentialError, credential::certificates_from_pem},
    ftps::{self, Secured},
    name::DistinguishedName,
    verify::{Anchors, Bundle, Extended},
};
use godwit_proto::{
    error::StorageFailure,
    pi::server::{AdatStep, DataChannelSpec},
    security::{Dcau, Protection, Token},
};

use super::{
    gsi::{DataContext, Gsi, refusal},
    identity::ControlProtection,
};

/// The security of a session. Before AUTH there is none.
#[derive(Default)]
pub(crate) struct Security {
    /// Between two ADATs.
    context: Option<Box<Context>>,
    identity: Option<DistinguishedName>,
    /// Why the client's certificate under TLS is not trusted.
    disbelief: Option<String>,
    /// The delegated credential.
    delegated: Option<DataContext>,
    /// DCSC P.
    chosen: Option<DataContext>,
    /// The same as it came.
    chosen_token: Option<Token>,
    /// Agreed on; counts from [`Self::protect`] on.
    agreed: Option<Agreed>,
    lines: Option<ProtectedServer>,
    tls: Tls,
}

enum Agreed {
    Gssapi(Wrap),
    /// With the credential of data channels.
    Tls(Box<ftps::Handshake>, ftps::Server),
}

/// Progress of AUTH TLS.
#[derive(Default)]
enum Tls {
    #[default]
    Unused,
    /// `None`: a step of it runs.
    Shaking(Option<Box<ftps::Handshake>>, ftps::Server),
    Established(ftps::Server),
}

/// Result of a step of a TLS handshake.
pub(crate) struct TlsStep {
    handshake: Box<ftps::Handshake>,
    /// For the peer.
    pub(crate) output: Vec<u8>,
    fault: Option<String>,
}

/// State of a TLS handshake.
pub(crate) enum TlsProgress {
    /// More bytes are needed.
    More,
    /// Lines are protected from here on. `rest` arrived behind the handshake.
    Established {
        /// Version and suite.
        how: String,
        rest: Vec<u8>,
    },
    /// No reply is possible any more.
    Failed(String),
}

impl fmt::Debug for TlsStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut step = f.debug_struct("TlsStep");
        step.field("fault", &self.fault).finish_non_exhaustive()
    }
}

/// Continues a handshake of TLS. Takes some milliseconds of a processor, and reads certificates of
/// CAs where the client shows one.
pub(crate) fn receive_tls(mut handshake: Box<ftps::Handshake>, bytes: &[u8]) -> TlsStep {
    let heard = handshake.handle_input(SystemTime::now(), bytes);
    TlsStep {
        output: handshake.poll_output().unwrap_or_default(),
        fault: heard.err().map(|error| error.to_string()),
        handshake,
    }
}

/// Result of one ADAT.
pub(crate) struct HandshakeStep {
    context: Option<Box<Context>>,
    established: Option<Box<Established>>,
    /// For the interpreter.
    pub(crate) result: Result<AdatStep, StorageFailure>,
}

/// Its contents must not be logged.
impl fmt::Debug for HandshakeStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut step = f.debug_struct("HandshakeStep");
        step.field("established", &self.established.is_some());
        step.finish_non_exhaustive()
    }
}

/// Continues a handshake, or begins one where there is no `context`. Takes some milliseconds of a
/// processor.
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
        .and_then(|bytes| {
            let heard = context.handle_input(SystemTime::now(), &bytes);
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
    /// The client's authenticated identity.
    pub(crate) fn identity(&self) -> Option<&DistinguishedName> {
        self.identity.as_ref()
    }

    /// Of a session that a pre-login process handed over under AUTH GSSAPI, or in clear: that
    /// process protects the lines.
    pub(crate) fn handed(delegated: Option<DataContext>) -> Self {
        Self {
            delegated,
            ..Self::default()
        }
    }

    /// The same under AUTH TLS: data channels have the certificate of `server`.
    pub(crate) fn handed_tls(server: ftps::Server) -> Self {
        Self {
            tls: Tls::Established(server),
            ..Self::default()
        }
    }

    /// The delegated credential with its key; empty: none.
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

    /// Keeps the result of an ADAT.
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
            self.agreed = Some(Agreed::Gssapi(wrap));
        }
        step.result
    }

    /// Gets ready for AUTH TLS.
    pub(crate) fn prepare_tls(
        &mut self,
        server: Option<&ftps::Server>,
    ) -> Result<(), StorageFailure> {
        let server = server.ok_or_else(|| refusal("AUTH TLS is not offered"))?;
        let handshake = server
            .accept()
            .map_err(|error| refusal(&error.to_string()))?;
        self.agreed = Some(Agreed::Tls(Box::new(handshake), server.clone()));
        Ok(())
    }

    /// From now on lines are protected, or a handshake of TLS begins. Says how, for the log, where
    /// that is known; `None`: nothing was agreed on.
    pub(crate) fn protect(&mut self) -> Option<Option<String>> {
        match self.agreed.take()? {
            Agreed::Gssapi(wrap) => {
                let lines = ProtectedServer::new(wrap, Encapsulation::Lines);
                let how = lines.describe();
                self.lines = Some(lines);
                Some(Some(how))
            }
            Agreed::Tls(handshake, server) => {
                self.tls = Tls::Shaking(Some(handshake), server);
                Some(None)
            }
        }
    }

    /// Bytes are for a handshake of TLS: the machine, for [`receive_tls`].
    pub(crate) fn take_handshake(&mut self) -> Option<Box<ftps::Handshake>> {
        match &mut self.tls {
            Tls::Shaking(handshake, _) => handshake.take(),
            Tls::Unused | Tls::Established(_) => None,
        }
    }

    /// A step of a handshake runs: no byte may be read meanwhile.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.tls, Tls::Shaking(None, _))
    }

    /// Takes the machine back.
    pub(crate) fn keep_tls(&mut self, mut step: TlsStep) -> TlsProgress {
        if let Some(fault) = step.fault {
            return TlsProgress::Failed(fault);
        }
        let Tls::Shaking(handshake, server) = &mut self.tls else {
            return TlsProgress::Failed("there is no handshake".to_owned());
        };
        let Some(Secured {
            client, wrap, rest, ..
        }) = step.handshake.outcome()
        else {
            *handshake = Some(step.handshake);
            return TlsProgress::More;
        };
        match client {
            Some(Ok(peer)) => self.identity = Some(peer.identity().clone()),
            Some(Err(refusal)) => self.disbelief = Some(refusal.to_string()),
            None => {}
        }
        self.tls = Tls::Established(server.clone());
        let lines = ProtectedServer::new(wrap, Encapsulation::Records);
        let how = lines.describe();
        self.lines = Some(lines);
        TlsProgress::Established { how, rest }
    }

    /// What protects the control channel.
    pub(crate) fn channel(&self) -> ControlProtection {
        match (&self.tls, &self.lines) {
            (Tls::Established(_), _) => ControlProtection::Tls,
            (_, Some(_)) => ControlProtection::Gssapi,
            (_, None) => ControlProtection::Clear,
        }
    }

    /// Why the client's certificate under TLS is not trusted.
    pub(crate) fn disbelief(&self) -> Option<&str> {
        self.disbelief.as_deref()
    }

    /// Unprotects bytes of the socket; `None`: the connection is not protected.
    pub(crate) fn open(&mut self, bytes: &[u8]) -> Option<Result<Vec<Received>, ProtectionError>> {
        self.lines.as_mut().map(|lines| lines.open(bytes))
    }

    /// Protects replies. During a TLS handshake no reply is possible.
    pub(crate) fn seal(&mut self, replies: Vec<u8>) -> Result<Vec<u8>, ProtectionError> {
        let Some(lines) = &mut self.lines else {
            return Ok(match self.tls {
                Tls::Shaking(..) => Vec::new(),
                Tls::Unused | Tls::Established(_) => replies,
            });
        };
        let mut sealed = Vec::new();
        lines.seal(&replies, &mut sealed)?;
        Ok(sealed)
    }

    /// The bytes that end the protected stream.
    pub(crate) fn close(&mut self) -> Vec<u8> {
        let mut sealed = Vec::new();
        if let Some(lines) = &mut self.lines {
            lines.close(&mut sealed);
        }
        sealed
    }

    /// DCSC: the credential of later data channels; `None`: the delegated one.
    pub(crate) fn choose(
        &mut self,
        gsi: Option<&Gsi>,
        token: Option<&Token>,
    ) -> Result<(), StorageFailure> {
        // Without DCAU no peer is authenticated.
        let anchors = || gsi.map_or_else(|| Arc::new(Bundle::default()) as _, Gsi::anchors);
        let chosen = token.map(|token| chosen(anchors(), token));
        self.chosen = chosen.transpose().map_err(|why| refusal(&why))?;
        self.chosen_token = token.cloned();
        Ok(())
    }

    /// What data channels on other machines prove themselves with.
    pub(crate) fn for_nodes(&self, spec: &DataChannelSpec) -> Result<NodeSecurity, StorageFailure> {
        let ftps = matches!(self.tls, Tls::Established(_));
        let credential = match ftps || spec.dcau == Dcau::None {
            true => None,
            false => self.credential_for_nodes()?,
        };
        Ok(NodeSecurity { ftps, credential })
    }

    fn credential_for_nodes(&self) -> Result<Option<NodeCredential>, StorageFailure> {
        if let Some(token) = &self.chosen_token {
            return Ok(Some(NodeCredential {
                text: token.clone(),
                is_chosen: true,
            }));
        }
        let pem = match &self.delegated {
            Some(context) => context.credential.to_pem(),
            // The node says what is missing.
            None => return Ok(None),
        };
        let pem = pem.map_err(|error| refusal(&error.to_string()))?;
        let text = String::from_utf8(pem).map_err(|error| refusal(&error.to_string()))?;
        Ok(Some(NodeCredential {
            text: Token::new(text),
            is_chosen: false,
        }))
    }

    /// The security of new data channels; `client`: the client's host.
    pub(crate) fn guard(
        &self,
        spec: &DataChannelSpec,
        client: IpAddr,
    ) -> Result<Option<ChannelSecurity>, StorageFailure> {
        if let Tls::Established(server) = &self.tls {
            let private = spec.protection != Protection::Clear;
            return Ok(private.then(|| ChannelSecurity::TlsServer {
                server: server.clone(),
                client,
            }));
        }
        let context = self.chosen.as_ref().or(self.delegated.as_ref());
        DataContext::guard(context, spec)
    }
}

/// What another machine must know of a session's security.
#[derive(Clone, Debug)]
pub(crate) struct NodeSecurity {
    /// The control connection has TLS (AUTH TLS), and data channels have that of FTP.
    pub(crate) ftps: bool,
    /// What data channels prove themselves with; `None`: nothing.
    pub(crate) credential: Option<NodeCredential>,
}

/// What a session's data channels prove themselves with, on its way to another machine.
#[derive(Clone, Debug)]
pub(crate) struct NodeCredential {
    /// PEM; base64 of it where the client has sent it by DCSC.
    pub(crate) text: Token,
    pub(crate) is_chosen: bool,
}

impl NodeCredential {
    /// What it is worth at a node that trusts `anchors`.
    pub(crate) fn context(&self, anchors: Arc<dyn Anchors>) -> Result<DataContext, String> {
        if self.is_chosen {
            return chosen(anchors, &self.text);
        }
        let pem = self.text.reveal().as_bytes();
        let credential = Credential::from_pem(pem, pem, None).map_err(|error| error.to_string())?;
        Ok(DataContext {
            credential,
            anchors,
        })
    }
}

/// A certificate with its key, its chain, and CAs that its peers may have certificates of.
fn chosen(anchors: Arc<dyn Anchors>, token: &Token) -> Result<DataContext, String> {
    let pem = adat::decode(token.reveal()).map_err(|error| format!("the text is {error}"))?;
    let credential = Credential::from_pem(&pem, &pem, None).map_err(|error| error.to_string())?;
    let all: Vec<Certificate> = certificates_from_pem(&pem).map_err(|error| error.to_string())?;
    Ok(DataContext {
        credential,
        anchors: Arc::new(Extended::new(anchors, all)),
    })
}

//! From a connection to a session: both identities or TLS where the URL asks for them, the login,
//! and what protects data. With `sshftp://` the connection is [`super::ssh`]'s, and who we are is
//! settled.
//!
//! ```text
//!   220 ─► (gsiftp: AUTH ─► ADAT ... ─► 235, from then on wrapped) ────────┬─► USER ... TYPE I ─┐
//!       └► (ftpes: AUTH ─► 234, from then on TLS) ─► (FEAT with a token) ──┘                    │
//!          (gsiftp: DCAU, PBSZ, PROT; ftpes: PBSZ, PROT) ◄──────────────────────────────────────┘
//! ```

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use godwit_engine::{
    control::{ControlChannel, ControlError, Event as Spoken},
    data::{ChannelSecurity, GsiSecurity},
};
use godwit_gsi::{
    Channel, Context as Gsi, ContextError, Expect, Settings, Versions, Wrap, adat,
    cert::proxy::ProxyRequest,
    verify::{HostName, Policy},
};
use godwit_proto::{
    Command, Reply,
    feature::Features,
    pi::{
        client::ClientConfig,
        login::{Login, Step},
        transfer::ServerState,
    },
    reply::ReplyReader,
    security::{Dcau, MinProtection, Protection},
};

use super::{
    client_info, protocol_trace,
    ssh::process::{SshProcess, WHO},
};
use crate::{
    auth::identity::Identity,
    context::RunContext,
    endpoint::{Endpoint, capabilities::Observed},
    error::{Error, Result},
    kept_sessions::LoggedIn,
    report::events::Event,
};

/// Tokens that we send before we give a server up: GSI needs four.
const TOKENS_MAX: usize = 16;

/// Tokens that prove who we are; what follows is delegation.
const TOKENS_TO_PROVE: usize = 2;

/// What we announce with PBSZ, bytes: as other clients do. TLS has no use for it.
const PBSZ_BYTES: &str = "1048576";

/// A server that has greeted us.
pub(super) struct Connected {
    pub(super) control: ControlChannel,
    pub(super) greeting: Reply,
    /// Of the connection, ours first, where it is ours.
    pub(super) addresses: Option<[IpAddr; 2]>,
    /// What leads to the server.
    pub(super) program: Option<SshProcess>,
}

/// A URL that can have no protection must not be asked for any.
pub(super) fn check_scheme(context: &RunContext, endpoint: &Endpoint) -> Result<()> {
    let floor = context.connections.protect.unwrap_or(MinProtection::Clear);
    // Whether a bucket has some is known when its service is.
    let has_own = endpoint.is_tls() || endpoint.is_ssh() || endpoint.is_bucket();
    let in_clear = !endpoint.has_identities() && !has_own;
    if floor > MinProtection::Clear && in_clear {
        return Err(Error::Usage(format!(
            "{}: {}:// has no protection: use gsiftp://, ftpes://, sshftp:// or https://, or \
             --protect clear",
            endpoint.name(),
            endpoint.scheme_name()
        )));
    }
    Ok(())
}

/// A server computes checksums without a word: it may be silent for so many times the limit of
/// other replies.
const WORK_FACTOR: u32 = 10;

/// How long servers may be silent.
pub(super) fn control_config(context: &RunContext) -> ClientConfig {
    let reply_limit = context.connections.stall_limit;
    ClientConfig {
        reply_limit,
        work_limit: reply_limit.saturating_mul(WORK_FACTOR),
    }
}

/// Connects to `address`.
pub(super) async fn connect(
    context: &Arc<RunContext>,
    endpoint: &Arc<Endpoint>,
    address: SocketAddr,
) -> Result<Connected> {
    let log = protocol_trace(context, endpoint);
    let connected = ControlChannel::connect(address, control_config(context), log).await;
    let (control, greeting, addresses) = connected.map_err(|error| lost(endpoint, error))?;
    Ok(Connected {
        control,
        greeting,
        addresses: Some(addresses.map(|address| address.ip().to_canonical())),
        program: None,
    })
}

/// Logs in.
pub(super) async fn log_in(
    context: &Arc<RunContext>,
    endpoint: &Arc<Endpoint>,
    connected: Connected,
) -> Result<(LoggedIn, Option<SshProcess>)> {
    let Connected {
        control,
        greeting,
        addresses,
        program,
    } = connected;
    endpoint.capabilities.record(Observed::Greeted);
    let mut opening = PendingSession {
        context,
        endpoint,
        control,
        asked: None,
        round_trip: Duration::MAX,
    };
    let mut proven = None;
    let mut secured = None;
    let protect = context.connections.protect;
    if greeting.code.is_success() && endpoint.has_identities() {
        proven = Some(
            opening
                .prove(protect.unwrap_or(MinProtection::Identity))
                .await?,
        );
    } else if greeting.code.is_success() && endpoint.is_tls() {
        secured = Some(opening.start_tls().await?);
    }
    let credentials = match secured {
        Some(_) => opening.with_token().await?,
        None => None,
    };
    let credentials = match credentials {
        Some(credentials) => credentials,
        None => endpoint.credentials(&context.connections.secrets).await?,
    };
    let user = credentials.user.clone();
    let mut login = Login::new(credentials, client_info(endpoint));
    let mut step = login.handle_reply(&greeting);
    let features = loop {
        match step {
            Step::Send(commands) => opening.submit(&commands),
            Step::Wait => {}
            Step::Done(features) => break *features,
            Step::Refused { command, reply } => return Err(opening.refused(command, reply)),
        }
        step = login.handle_reply(&opening.next_reply().await?);
    };
    if endpoint.is_ssh() {
        let identity = opening.set_up_identity(protect, features.dcsc).await?;
        proven = identity.map(|identity| Proven {
            server: WHO.to_owned(),
            identity,
        });
    }
    let security = match proven {
        None => None,
        Some(proven) => {
            let (server, user) = (proven.server, proven.identity.credential.identity());
            let protect = protect.unwrap_or(MinProtection::Identity);
            let security = opening.agree(protect, &features, proven.identity).await?;
            context.reporter.emit(&Event::Secured {
                endpoint: endpoint.name(),
                server,
                user: user.to_string(),
                control: opening
                    .control
                    .protection()
                    .unwrap_or_else(|| "ssh".to_owned()),
                data: match &security {
                    None => Dcau::None.to_string(),
                    Some(security) => {
                        format!("DCAU {}, PROT {}", Dcau::OwnIdentity, security.protection)
                    }
                },
            });
            security.map(ChannelSecurity::from)
        }
    };
    let security = match secured {
        None => security,
        Some(secured) => {
            let protection = opening
                .agree_on_tls(protect.unwrap_or(MinProtection::Private))
                .await?;
            context.reporter.emit(&Event::Secured {
                endpoint: endpoint.name(),
                server: secured.certificate.subject().to_string(),
                user,
                control: opening.control.protection().unwrap_or_default(),
                data: format!("PROT {protection}"),
            });
            (protection != Protection::Clear).then(|| secured.guard())
        }
    };
    let addresses = match addresses {
        Some(addresses) => addresses,
        None => opening.data_addresses(security.is_some()).await?,
    };
    let opened = LoggedIn {
        control: opening.control,
        addresses,
        server: ServerState::new(features),
        set: None,
        since: Instant::now(),
        markers_requested: false,
        round_trip: opening.round_trip,
        security,
    };
    Ok((opened, program))
}

pub(super) fn lost(endpoint: &Endpoint, error: ControlError) -> Error {
    match error {
        error @ ControlError::Connect { .. } => Error::Unreachable {
            endpoint: endpoint.name(),
            error,
        },
        error => Error::Control {
            doing: format!("log in to {}", endpoint.name()),
            error,
        },
    }
}

/// Both have shown who they are.
struct Proven {
    server: String,
    identity: Identity,
}

/// A session that is not yet one.
pub(super) struct PendingSession<'a> {
    pub(super) context: &'a RunContext,
    pub(super) endpoint: &'a Endpoint,
    pub(super) control: ControlChannel,
    /// When what was sent last was sent, while nothing of it is answered.
    asked: Option<Instant>,
    round_trip: Duration,
}

impl PendingSession<'_> {
    pub(super) async fn call(&mut self, command: &Command) -> Result<Reply> {
        self.submit(std::slice::from_ref(command));
        self.next_reply().await
    }

    /// Sends questions of which none depends on an answer: one round trip for all.
    fn submit(&mut self, commands: &[Command]) {
        for command in commands {
            self.control.submit(command);
        }
        self.asked = Some(Instant::now());
    }

    /// The next final reply.
    async fn next_reply(&mut self) -> Result<Reply> {
        let reply = loop {
            let event = self.control.next_event().await;
            match event.map_err(|error| lost(self.endpoint, error))? {
                Spoken::Final(_, reply) => break reply,
                Spoken::Preliminary(..) => {}
            }
        };
        if let Some(asked) = self.asked.take() {
            self.round_trip = self.round_trip.min(asked.elapsed());
        }
        Ok(reply)
    }

    pub(super) async fn security(
        &mut self,
        verb: &'static str,
        argument: impl Into<String>,
    ) -> Result<Reply> {
        self.call(&Command::Security {
            verb: verb.to_owned(),
            argument: argument.into(),
        })
        .await
    }

    /// The same for questions that depend on no answer: one round trip for all.
    async fn security_at_once<const N: usize>(
        &mut self,
        questions: [(&'static str, String); N],
    ) -> Result<[Reply; N]> {
        let verbs = questions.each_ref().map(|(verb, _)| *verb);
        self.submit(&questions.map(|(verb, argument)| Command::Security {
            verb: verb.to_owned(),
            argument,
        }));
        let mut replies = Vec::new();
        for verb in verbs {
            let reply = self.next_reply().await?;
            // Whatever it answers, the others will have none.
            if reply.code.get() == 421 {
                return Err(self.refused(verb, reply));
            }
            replies.push(reply);
        }
        Ok(replies.try_into().expect("one for each question"))
    }

    fn refused(&self, command: &'static str, reply: Reply) -> Error {
        Error::Login {
            endpoint: self.endpoint.name(),
            command,
            reply: Box::new(reply),
        }
    }

    /// What `verb` was to bring is not to be had, at least now.
    pub(super) fn lacks(
        &self,
        verb: &'static str,
        feature: &str,
        consequence: &str,
        reply: Reply,
    ) -> Error {
        if reply.code.is_transient() {
            return self.refused(verb, reply);
        }
        Error::MissingFeature {
            endpoint: self.endpoint.name(),
            feature: feature.to_owned(),
            consequence: format!("{consequence} (server said: {reply})"),
        }
    }

    pub(super) fn unproven(&self, reason: impl ToString) -> Error {
        Error::Identity {
            doing: self.endpoint.name(),
            reason: reason.to_string(),
        }
    }

    /// Proves to each side who the other is, and protects the control channel from then on. A proxy
    /// goes to the server only where its data channels need it.
    async fn prove(&mut self, protect: MinProtection) -> Result<Proven> {
        let connections = &self.context.connections;
        let (host, port) = (self.endpoint.host(), self.endpoint.port());
        let identity = Identity::load(connections, host, port, SystemTime::now());
        let identity = identity.map_err(|error| self.unproven(error))?;
        let reply = self.security("AUTH", "GSSAPI").await?;
        if reply.code.get() != 334 {
            let feature = "grid identities (AUTH GSSAPI)";
            let consequence = "gsiftp:// cannot log in; ftp:// does without identities, in clear";
            return Err(self.lacks("AUTH", feature, consequence, reply));
        }
        let host = HostName::new(self.endpoint.host());
        let delegates = protect > MinProtection::Clear;
        let settings = Settings {
            credential: identity.credential.clone(),
            anchors: Arc::clone(&identity.anchors),
            policy: Policy::default(),
            server_name: match &host {
                HostName::Name(name) => Some(name.clone()),
                HostName::Address(_) => None,
            },
            expect: match connections.subject_of(self.endpoint.host()) {
                Some(subject) => Expect::Identity(subject.clone()),
                None => Expect::Host(host),
            },
            channel: Channel::Control {
                // Limited: a stolen one starts no jobs.
                delegate: delegates.then(ProxyRequest::limited),
            },
            versions: Versions::Any,
        };
        let mut gsi = Gsi::initiate(settings).map_err(|error| self.unproven(error))?;
        let mut established = None;
        for sent in 0..TOKENS_MAX {
            let Some(token) = gsi.poll_output() else {
                break;
            };
            established = gsi.outcome();
            let reply = self.security("ADAT", adat::encode(&token)).await?;
            let reply = match &mut established {
                // ARC's servers protect the last reply already, others do not yet.
                Some(established) => self.unwrap_reply(&mut established.wrap, reply)?,
                None => reply,
            };
            let is_last = match reply.code.get() {
                335 => false,
                235 => true,
                _ => {
                    let delegating = delegates && sent >= TOKENS_TO_PROVE;
                    return Err(self.not_trusted(&identity, delegating, reply));
                }
            };
            let text = reply.text();
            let first = text.lines().next().unwrap_or_default();
            let told = adat::token_of_reply(first).map_err(|error| self.unproven(error))?;
            if let Some(token) = told {
                gsi.handle_input(SystemTime::now(), &token)
                    .map_err(|error| self.not_proven(&error))?;
            }
            if is_last {
                break;
            }
        }
        let established = established.filter(|_| gsi.poll_output().is_none());
        let Some(established) = established else {
            return Err(self.unproven("the server does not keep to GSI: its handshake has no end"));
        };
        let protected = self.control.protect(established.wrap);
        protected.map_err(|error| lost(self.endpoint, error))?;
        Ok(Proven {
            server: established.peer.identity().to_string(),
            identity,
        })
    }

    /// What a reply says that may be protected already.
    fn unwrap_reply(&self, wrap: &mut Wrap, reply: Reply) -> Result<Reply> {
        let mut reader = ReplyReader::default();
        for line in &reply.lines {
            let line = format!("{} {}", reply.code, String::from_utf8_lossy(line));
            match wrap.clear_reply(&line) {
                Ok(Some(clear)) => reader.push(&clear),
                Ok(None) => return Ok(reply),
                Err(error) => return Err(self.unproven(error)),
            }
        }
        let clear = reader.next_reply().ok().flatten();
        clear.ok_or_else(|| self.unproven("the server does not keep to GSI: it protects no reply"))
    }

    /// The client does not trust the server.
    fn not_proven(&self, error: &ContextError) -> Error {
        self.unproven(format!("identity of the server: {error}"))
    }

    /// The server does not trust the client.
    fn not_trusted(&self, identity: &Identity, delegating: bool, reply: Reply) -> Error {
        let key = identity.credential.info().key;
        if delegating && key.starts_with("EC") && !reply.code.is_transient() {
            return self.unproven(format!(
                "the server refused delegation from this key type, {key}: servers of the Grid \
                 Community Toolkit need RSA (`godwit proxy init` makes it); --protect clear needs \
                 no delegation (server said: {reply})"
            ));
        }
        self.refused("ADAT", reply)
    }

    /// DCAU, PBSZ and PROT. Always said: some servers begin with other levels than the texts have.
    async fn agree(
        &mut self,
        protect: MinProtection,
        features: &Features,
        identity: Identity,
    ) -> Result<Option<GsiSecurity>> {
        if protect == MinProtection::Clear {
            let reply = self.security("DCAU", "N").await?;
            // A server that never heard of DCAU has none.
            if !reply.code.is_success() && features.dcau {
                return Err(self.lacks("DCAU", "DCAU N", "--protect clear needs it", reply));
            }
            return Ok(None);
        }
        let wanted = levels(protect);
        let questions = [
            ("DCAU", "A".to_owned()),
            ("PBSZ", PBSZ_BYTES.to_owned()),
            ("PROT", wanted[0].to_string()),
        ];
        let [dcau, pbsz, prot] = self.security_at_once(questions).await?;
        if !dcau.code.is_success() {
            let consequence = "anybody could be at the other end of its data channels; --protect \
                               clear takes that";
            let feature = "data channel authentication (DCAU A)";
            return Err(self.lacks("DCAU", feature, consequence, dcau));
        }
        if !pbsz.code.is_success() && protect > MinProtection::Identity {
            return Err(self.lacks("PBSZ", "PBSZ", consequence_of(protect), pbsz));
        }
        let mut last = prot;
        for (asked, level) in wanted.iter().enumerate() {
            if asked > 0 {
                last = self.security("PROT", level.to_string()).await?;
            }
            if last.code.is_success() {
                let security =
                    GsiSecurity::own_identity(identity.credential, identity.anchors, *level);
                return Ok(Some(security));
            }
        }
        let wanted: Vec<String> = wanted.iter().map(Protection::to_string).collect();
        let feature = format!("PROT {}", wanted.join(" or "));
        Err(self.lacks("PROT", &feature, consequence_of(protect), last))
    }
}

/// Levels of PROT that do, in the order in which they are asked for: more than was wanted is no
/// harm.
fn levels(floor: MinProtection) -> &'static [Protection] {
    match floor {
        MinProtection::Clear | MinProtection::Identity => {
            &[Protection::Clear, Protection::Safe, Protection::Private]
        }
        MinProtection::Integrity => &[Protection::Safe, Protection::Private],
        MinProtection::Private => &[Protection::Private],
    }
}

/// What could happen without it, for messages.
fn consequence_of(floor: MinProtection) -> &'static str {
    match floor {
        MinProtection::Clear | MinProtection::Identity => {
            "data channels would have a level that the user did not ask for"
        }
        MinProtection::Integrity => "others could change what travels",
        MinProtection::Private => "others could read what travels",
    }
}

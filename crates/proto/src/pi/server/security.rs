//! Security words (RFC 2228, RFC 4217, GFD.020, DCSC).
//!
//! ```text
//!   nothing ──AUTH GSSAPI──► chosen ──ADAT──► established: everything is protected, DCAU is A
//!    │  ▲                     │  ▲ 335 │
//!    │  └──────── 535 ────────┘  └─────┘
//!    └──AUTH TLS──► 234 and a handshake of TLS, then established: PROT P may be had, DCAU is N
//!   private from the beginning (ssh): DCAU is N until DCSC brings the credentials of data channels
//! ```
//! Where nothing is offered or established, a command that asks for what holds anyway (no
//! protection, no data channel authentication) succeeds, since clients send it unconditionally; any
//! other is refused so that no client relies on it.

use crate::{
    error::StorageFailure,
    security::{BadSecurityArgument, Dcau, MinProtection, Protection, Token},
};

use super::{AdatStep, Mechanism, Outcome, Output, Pending, Request, ServerPi, purpose::Purpose};

/// What the session has of security.
#[derive(Debug, Default)]
pub(super) struct Security {
    context: Context,
    /// PROT.
    pub(super) protection: Protection,
    /// DCAU.
    pub(super) dcau: Dcau,
}

/// Of the control channel.
#[derive(Debug, Default, PartialEq, Eq)]
enum Context {
    #[default]
    Nothing,
    /// AUTH was said; `begun`: ADAT too.
    Chosen { begun: bool },
    /// By ADAT.
    Established,
    /// By AUTH TLS.
    Tls,
    /// From the beginning, by another program.
    Private,
}

impl Security {
    pub(super) fn new(private_channel: bool) -> Self {
        Self {
            context: match private_channel {
                true => Context::Private,
                false => Context::Nothing,
            },
            ..Self::default()
        }
    }

    /// The control channel is protected.
    pub(super) fn is_established(&self) -> bool {
        matches!(
            self.context,
            Context::Established | Context::Tls | Context::Private
        )
    }

    pub(super) fn is_tls(&self) -> bool {
        self.context == Context::Tls
    }

    /// Data channels may prove identities (DCAU), also ones that DCSC brings: its key travels in
    /// private.
    pub(super) fn has_identities(&self) -> bool {
        matches!(self.context, Context::Established | Context::Private)
    }

    pub(super) fn establish(&mut self, mechanism: Mechanism) {
        (self.context, self.dcau) = match mechanism {
            Mechanism::Gssapi => (Context::Established, Dcau::OwnIdentity),
            Mechanism::Tls => (Context::Tls, Dcau::None),
        };
    }
}

impl ServerPi {
    pub(super) fn run_security(&mut self, verb: &str, argument: &str) {
        let argument = argument.trim();
        match verb {
            "AUTH" => self.run_auth(argument),
            "ADAT" => self.run_adat(argument),
            "PBSZ" => match argument.parse::<u32>() {
                Ok(size) => self.answer(200, format!("PBSZ={size}")),
                Err(_) => self.answer(501, format!("Bad value for PBSZ: {argument}")),
            },
            "PROT" => self.run_prot(argument),
            "DCAU" => self.run_dcau(argument),
            "DCSC" => self.run_dcsc(argument),
            // A protected command in clear is seen by the shell alone.
            "MIC" | "ENC" | "CONF" => self.answer(503, self.auth_first(verb)),
            "CCC" if self.session.security.is_established() => {
                self.answer(534, "CCC is refused: the control channel stays protected.");
            }
            "CCC" => self.answer(503, self.auth_first(verb)),
            _ => self.answer(504, format!("{verb} is not offered by this server.")),
        }
    }

    fn auth_first(&self, verb: &str) -> String {
        match self.config.gssapi {
            false => format!("{verb} needs AUTH GSSAPI first, which this server does not offer."),
            true => format!("{verb} needs AUTH GSSAPI first."),
        }
    }

    fn run_auth(&mut self, mechanism: &str) {
        let offered = match (self.config.gssapi, self.config.tls) {
            (false, false) => "This server offers no AUTH.",
            (true, false) => "GSSAPI is offered.",
            (false, true) => "TLS is offered.",
            (true, true) => "GSSAPI and TLS are offered.",
        };
        let is_one_of = |known: [&str; 2]| known.iter().any(|k| mechanism.eq_ignore_ascii_case(k));
        let gssapi = self.config.gssapi && is_one_of(["GSSAPI", "GSI"]);
        // RFC 4217: TLS-C is another word for it. The older one, SSL, would mean PROT P at once.
        let tls = self.config.tls && is_one_of(["TLS", "TLS-C"]);
        if !gssapi && !tls {
            return self.answer(504, format!("Unknown authentication type. : {offered}"));
        }
        if self.session.security.is_established() || self.session.is_logged_in() {
            return self.answer(534, "AUTH is refused: the session has its identity.");
        }
        if tls {
            return self.request(Request::StartTls, Purpose::StartTls);
        }
        self.session.security.context = Context::Chosen { begun: false };
        self.answer(334, "Using authentication type; ADAT must follow.");
    }

    fn run_adat(&mut self, token: &str) {
        match &mut self.session.security.context {
            Context::Chosen { begun } => {
                let first = !std::mem::replace(begun, true);
                let token = Token::new(token);
                self.request(Request::Adat { token, first }, Purpose::Adat);
            }
            Context::Nothing => self.answer(503, self.auth_first("ADAT")),
            Context::Established | Context::Tls | Context::Private => {
                self.answer(503, "The session has its identity.");
            }
        }
    }

    pub(super) fn on_adat(&mut self, result: Result<Outcome, StorageFailure>) {
        let more = matches!(result, Ok(Outcome::Adat(AdatStep::More(_))));
        if !more && self.refuses_clear_text("ADAT") {
            return;
        }
        match result {
            Ok(Outcome::Adat(AdatStep::More(token))) => self.answer(335, format!("ADAT={token}")),
            Ok(Outcome::Adat(AdatStep::Established(token))) => {
                let text = match token {
                    Some(token) => format!("ADAT={token}"),
                    None => "GSSAPI Authentication successful.".to_owned(),
                };
                self.answer(235, text);
                self.session.security.establish(Mechanism::Gssapi);
                self.outputs.push_back(Output::Protect);
            }
            // A shell that answers wrongly lets no client in.
            Ok(_) => {
                self.session.security.context = Context::Nothing;
                self.answer(451, "Local error in processing.");
            }
            Err(failure) => {
                self.session.security.context = Context::Nothing;
                self.answer(535, format!("Authentication failed. : {}", failure.text));
                self.count_failed_login();
            }
        }
    }

    pub(super) fn on_start_tls(&mut self, result: Result<Outcome, StorageFailure>) {
        if self.refuses_clear_text("AUTH TLS") {
            return;
        }
        match result {
            Ok(Outcome::Done) => {}
            Ok(_) => return self.answer(451, "Local error in processing."),
            Err(failure) => {
                return self.answer(431, format!("TLS is not to be had now. : {}", failure.text));
            }
        }
        self.answer(234, "AUTH TLS successful: begin the handshake.");
        self.session.security.establish(Mechanism::Tls);
        self.outputs.push_back(Output::Protect);
    }

    /// A client waits for the reply to `verb`, since protection may begin behind it. An attacker on
    /// the path may have sent bytes before that reply, so that they pass for protected: they end
    /// the session.
    fn refuses_clear_text(&mut self, verb: &str) -> bool {
        let came = !self.queue.is_empty() || self.lines.is_inside_line();
        if came {
            self.answer(
                421,
                format!("Clear text behind {verb}, closing control connection."),
            );
            self.end_session();
        }
        came
    }

    /// What comes next may have to be protected: the shell must hand in all clear text that it has
    /// before it answers the outstanding request.
    pub fn may_begin_protection(&self) -> bool {
        matches!(
            self.pending,
            Pending::Request(Purpose::StartTls | Purpose::Adat)
        )
    }

    fn run_prot(&mut self, argument: &str) {
        match argument.parse::<Protection>() {
            Err(_) => self.answer(504, "Unknown protection level."),
            Ok(level) if level == Protection::Clear || self.has_level(level) => {
                self.drop_data_channel();
                self.session.security.protection = level;
                self.answer(200, format!("Protection level set to {level}."));
            }
            Ok(level) => self.answer(536, format!("{level} protection level not supported.")),
        }
    }

    fn has_level(&self, level: Protection) -> bool {
        let security = &self.session.security;
        // RFC 4217: TLS has no other.
        security.has_identities() || security.is_tls() && level == Protection::Private
    }

    fn run_dcau(&mut self, argument: &str) {
        match argument.parse::<Dcau>() {
            Err(BadSecurityArgument::Subject) => self.answer(501, "DCAU S expected subject."),
            Err(BadSecurityArgument::Letter) => self.answer(501, "Bad DCAU mode."),
            Ok(dcau) if dcau == Dcau::None || self.session.security.has_identities() => {
                self.drop_data_channel();
                self.answer(200, format!("DCAU {}.", dcau.letter()));
                self.session.security.dcau = dcau;
            }
            Ok(_) => self.answer(
                504,
                match self.config.gssapi {
                    false => "Bad DCAU mode. : This server offers no data channel authentication.",
                    true => "Bad DCAU mode. : It needs AUTH GSSAPI first.",
                },
            ),
        }
    }

    /// A key is in it: on a protected channel only.
    fn run_dcsc(&mut self, argument: &str) {
        if !self.session.security.has_identities() {
            return match self.config.gssapi {
                true => self.answer(503, self.auth_first("DCSC")),
                false => self.answer(504, "DCSC is not offered by this server."),
            };
        }
        let (kind, blob) = argument.split_once(' ').unwrap_or((argument, ""));
        let context = match kind {
            "P" | "p" => Some(Token::new(blob.trim())),
            "D" | "d" => None,
            _ => return self.answer(500, "Unsupported credential type."),
        };
        self.drop_data_channel();
        self.request(Request::DataContext(context), Purpose::DataContext);
    }

    pub(super) fn on_data_context(&mut self, result: Result<Outcome, StorageFailure>) {
        match result {
            Ok(Outcome::Done) => self.answer(250, "OK."),
            Ok(_) => self.answer(451, "Local error in processing."),
            Err(failure) => self.answer(500, format!("DCSC failed. : {}", failure.text)),
        }
    }

    /// Why no data channel is made, if there is a reason: the administrator demands more, or a
    /// level was asked for that nothing could keep, since a handshake comes before every protected
    /// byte.
    pub(super) fn why_unprotected(&self) -> Option<String> {
        let Security {
            protection, dcau, ..
        } = &self.session.security;
        if self.session.security.is_tls() {
            let missing = self.config.min_protection > MinProtection::Clear
                && *protection == Protection::Clear;
            return missing.then(|| "This server wants PROT P for data channels.".to_owned());
        }
        if let Some(missing) = self.config.min_protection.missing(dcau, *protection) {
            return Some(format!("This server wants {missing} for data channels."));
        }
        let in_vain = *protection != Protection::Clear && *dcau == Dcau::None;
        in_vain.then(|| "Data channels cannot be protected without DCAU A or S.".to_owned())
    }
}

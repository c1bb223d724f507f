//! The machine of both roles.

use std::time::SystemTime;

use super::{Channel, ContextError, Established, Expect, HANDSHAKE_BYTES_MAX, Settings};
use crate::cert::Credential;
use crate::cert::proxy::{self, DelegationRequest, REQUEST_BYTES_MAX};
use crate::der;
use crate::tls::{Keep, ReadOutcome, Role, Tls};
use crate::verify::{Peer, Refusal, verify};
use crate::wrap::Wrap;

/// Longest delegated certificate.
const DELEGATED_BYTES_MAX: usize = crate::cert::certificate::DER_BYTES_MAX;

const NO_DELEGATION: u8 = b'0';
const DELEGATION: u8 = b'D';

/// The machine. The picture is in the module's documents, the contract in the crate's.
pub struct Context {
    role: Role,
    settings: Settings,
    tls: Option<Tls>,
    state: State,
    peer: Option<Peer>,
    delegated: Option<Credential>,
    bytes_in: usize,
    output: Vec<u8>,
    established: Option<Established>,
}

enum State {
    Handshake,
    /// Initiator, 1.3: for the NUL record.
    Nul,
    /// Initiator: for the request, of which so much is here.
    Request(Vec<u8>),
    /// Acceptor: for `0` or `D`.
    Flag,
    /// Acceptor: for the certificate to this request, of which so much is here.
    Delegated(DelegationRequest, Vec<u8>),
    Established,
    Failed,
}

impl Context {
    /// Begins: the first token is ready at once.
    ///
    /// # Errors
    /// When OpenSSL does not take our credential (its key is too short for the policy's strength).
    pub fn initiate(settings: Settings) -> Result<Self, ContextError> {
        let mut context = Self::new(Role::Initiator, settings)?;
        context.with_tls(|_, tls| {
            tls.handshake()?;
            Ok(())
        })?;
        Ok(context)
    }

    /// Waits for the first token.
    ///
    /// # Errors
    /// As [`Context::initiate`].
    pub fn accept(settings: Settings) -> Result<Self, ContextError> {
        Self::new(Role::Acceptor, settings)
    }

    fn new(role: Role, settings: Settings) -> Result<Self, ContextError> {
        let tls = Tls::new(
            role,
            &settings.credential,
            settings.policy.strength,
            settings.versions,
            settings.server_name.as_deref(),
            match settings.channel {
                Channel::ProtectedData => Keep::Secrets,
                Channel::Control { .. } | Channel::ClearData => Keep::Nothing,
            },
        );
        Ok(Self {
            role,
            tls: Some(tls.map_err(ContextError::Credential)?),
            settings,
            state: State::Handshake,
            peer: None,
            delegated: None,
            bytes_in: 0,
            output: Vec::new(),
            established: None,
        })
    }

    /// Bytes from the peer, cut anywhere. Verifying and signing take processor time: some
    /// milliseconds.
    ///
    /// # Errors
    /// Why it has failed. There may still be output then, an alert for the peer.
    pub fn handle_input(&mut self, now: SystemTime, input: &[u8]) -> Result<(), ContextError> {
        match self.state {
            State::Failed => return Err(ContextError::Over),
            State::Established => {
                // Behind the end: it belongs to what follows.
                let Some(established) = &mut self.established else {
                    return Err(ContextError::Over);
                };
                if established.rest.len() + input.len() > HANDSHAKE_BYTES_MAX {
                    return Err(ContextError::TooMuch {
                        max: HANDSHAKE_BYTES_MAX,
                    });
                }
                established.rest.extend_from_slice(input);
                return Ok(());
            }
            _ => {}
        }
        let result = self.advance(now, input);
        if result.is_err() {
            self.state = State::Failed;
            self.tls = None;
        }
        result
    }

    /// A token for the peer.
    pub fn poll_output(&mut self) -> Option<Vec<u8>> {
        if self.output.is_empty() {
            None
        } else {
            Some(std::mem::take(&mut self.output))
        }
    }

    /// The outcome, once. Send what [`Context::poll_output`] still has before anything else.
    pub fn outcome(&mut self) -> Option<Established> {
        self.established.take()
    }

    fn advance(&mut self, now: SystemTime, input: &[u8]) -> Result<(), ContextError> {
        self.bytes_in += input.len();
        if self.bytes_in > HANDSHAKE_BYTES_MAX {
            return Err(ContextError::TooMuch {
                max: HANDSHAKE_BYTES_MAX,
            });
        }
        self.with_tls(|context, tls| {
            tls.feed(input);
            while context.step(tls, now)? {}
            Ok(())
        })?;
        if matches!(self.state, State::Established) {
            self.establish()?;
        }
        Ok(())
    }

    /// Lends the TLS to a step. Its output is kept for the peer only if the step went well: what
    /// OpenSSL made of a peer that was then refused must not leave. After a fault an alert may, and
    /// before the peer was verified nothing else: a fault behind a flight of 1.2 comes after our
    /// certificate was written and before the peer's was looked at.
    fn with_tls(
        &mut self,
        step: impl FnOnce(&mut Self, &mut Tls) -> Result<(), ContextError>,
    ) -> Result<(), ContextError> {
        let mut tls = self.tls.take().ok_or(ContextError::Over)?;
        let result = step(self, &mut tls);
        let output = tls.take_output();
        match &result {
            Ok(()) => self.output.extend(output),
            Err(ContextError::Tls(_)) if self.peer.is_some() => self.output.extend(output),
            Err(ContextError::Tls(_)) => self.output.extend(alerts(&output)),
            Err(_) => {}
        }
        self.tls = Some(tls);
        result
    }

    /// One step; `true` when there may be another.
    fn step(&mut self, tls: &mut Tls, now: SystemTime) -> Result<bool, ContextError> {
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Handshake => {
                let is_over = tls.handshake()?;
                self.verify_peer(tls, now)?;
                self.state = if is_over {
                    self.after_handshake(tls)?
                } else {
                    State::Handshake
                };
                Ok(is_over)
            }
            State::Nul => match read_byte(tls)? {
                None => self.stay(State::Nul),
                Some(0) => self.send_flag(tls),
                Some(_) => Err(ContextError::Protocol("expected the NUL record")),
            },
            State::Flag => match read_byte(tls)? {
                None => self.stay(State::Flag),
                Some(NO_DELEGATION) => self.done(),
                Some(DELEGATION) => self.ask_for_proxy(tls),
                Some(_) => Err(ContextError::Protocol(
                    "expected `0` or `D` behind the handshake",
                )),
            },
            State::Request(mut request) => {
                if !read_element(tls, &mut request, REQUEST_BYTES_MAX)? {
                    return self.stay(State::Request(request));
                }
                self.delegate(tls, &request, now)
            }
            State::Delegated(request, mut certificate) => {
                if !read_element(tls, &mut certificate, DELEGATED_BYTES_MAX)? {
                    return self.stay(State::Delegated(request, certificate));
                }
                self.take_proxy(request, &certificate, now)
            }
            state @ (State::Established | State::Failed) => self.stay(state),
        }
    }

    fn stay(&mut self, state: State) -> Result<bool, ContextError> {
        self.state = state;
        Ok(false)
    }

    fn done(&mut self) -> Result<bool, ContextError> {
        self.stay(State::Established)
    }

    /// As soon as the peer has shown its chain, and before anything goes out that follows from it.
    fn verify_peer(&mut self, tls: &Tls, now: SystemTime) -> Result<(), ContextError> {
        if self.peer.is_some() {
            return Ok(());
        }
        let sent = tls.peer_chain().map_err(|_| Refusal::Malformed)?;
        if sent.is_empty() {
            return Ok(());
        }
        let peer = verify(&sent, &*self.settings.anchors, &self.settings.policy, now)?;
        match &self.settings.expect {
            Expect::Anyone => {}
            Expect::Host(host) => host.check(peer.acting())?,
            Expect::Identity(expected) => {
                if !peer.identity().same_as(expected) {
                    return Err(ContextError::Refused(Refusal::Identity {
                        expected: expected.to_string(),
                        found: peer.identity().to_string(),
                    }));
                }
            }
        }
        self.peer = Some(peer);
        Ok(())
    }

    fn after_handshake(&mut self, tls: &mut Tls) -> Result<State, ContextError> {
        if self.peer.is_none() {
            return Err(ContextError::Refused(Refusal::NoCertificate));
        }
        if self.settings.channel == Channel::ProtectedData {
            return Ok(State::Established);
        }
        match (self.role, tls.is_tls13()) {
            (Role::Initiator, true) => Ok(State::Nul),
            (Role::Initiator, false) => {
                self.send_flag(tls)?;
                Ok(std::mem::replace(&mut self.state, State::Failed))
            }
            (Role::Acceptor, is_tls13) => {
                // In 1.3 the acceptor has nothing left to say here, and GSSAPI wants a token.
                if is_tls13 {
                    tls.write(&[0])?;
                }
                Ok(State::Flag)
            }
        }
    }

    fn send_flag(&mut self, tls: &mut Tls) -> Result<bool, ContextError> {
        match &self.settings.channel {
            Channel::Control { delegate: Some(_) } => {
                tls.write(&[DELEGATION])?;
                self.stay(State::Request(Vec::new()))
            }
            _ => {
                tls.write(&[NO_DELEGATION])?;
                self.done()
            }
        }
    }

    fn ask_for_proxy(&mut self, tls: &mut Tls) -> Result<bool, ContextError> {
        if !matches!(self.settings.channel, Channel::Control { .. }) {
            return Err(ContextError::Protocol("delegation on a data channel"));
        }
        let request = DelegationRequest::new().map_err(ContextError::Delegation)?;
        tls.write(request.der())?;
        self.stay(State::Delegated(request, Vec::new()))
    }

    fn delegate(
        &mut self,
        tls: &mut Tls,
        request: &[u8],
        now: SystemTime,
    ) -> Result<bool, ContextError> {
        let Channel::Control {
            delegate: Some(wanted),
        } = &self.settings.channel
        else {
            return Err(ContextError::Protocol("a request for a proxy unasked"));
        };
        let signed = proxy::sign_request(&self.settings.credential, request, wanted, now)
            .and_then(|certificate| certificate.to_der())
            .map_err(ContextError::Delegation)?;
        tls.write(&signed)?;
        self.done()
    }

    fn take_proxy(
        &mut self,
        request: DelegationRequest,
        certificate: &[u8],
        now: SystemTime,
    ) -> Result<bool, ContextError> {
        let Some(peer) = &self.peer else {
            return Err(ContextError::Refused(Refusal::NoCertificate));
        };
        let delegated = request
            .finish(certificate, peer.chain())
            .map_err(ContextError::Delegation)?;
        // The rules of proxies hold for this one too.
        let mut path = vec![delegated.certificate().clone()];
        path.extend_from_slice(peer.path());
        verify(&path, &*self.settings.anchors, &self.settings.policy, now)?;
        self.delegated = Some(delegated);
        self.done()
    }

    fn establish(&mut self) -> Result<(), ContextError> {
        let (Some(mut tls), Some(peer)) = (self.tls.take(), self.peer.take()) else {
            return Err(ContextError::Over);
        };
        let rest = tls.take_unread();
        if matches!(self.settings.channel, Channel::Control { .. }) && !rest.is_empty() {
            return Err(ContextError::Protocol("bytes behind the last token"));
        }
        self.established = Some(Established {
            peer,
            delegated: self.delegated.take(),
            wrap: Wrap::new(tls),
            rest,
        });
        Ok(())
    }
}

/// The alerts among records. RFC 8446 §5.1: type, version and a length of two bytes, then so many.
fn alerts(records: &[u8]) -> Vec<u8> {
    const ALERT: u8 = 21;
    let mut found = Vec::new();
    let mut rest = records;
    while let [kind, _, _, high, low, ..] = *rest {
        let end = 5 + usize::from(u16::from_be_bytes([high, low]));
        let (record, next) = rest.split_at(end.min(rest.len()));
        if kind == ALERT {
            found.extend_from_slice(record);
        }
        rest = next;
    }
    found
}

/// The byte of a record that has just one.
fn read_byte(tls: &mut Tls) -> Result<Option<u8>, ContextError> {
    let mut buffer = [0; 2];
    match tls.read(&mut buffer)? {
        ReadOutcome::Bytes(1) => Ok(Some(buffer[0])),
        ReadOutcome::Bytes(_) => Err(ContextError::Protocol("expected a single byte")),
        ReadOutcome::Starved => Ok(None),
        ReadOutcome::Closed => Err(ContextError::Protocol("closed before it was established")),
    }
}

/// Reads on until one whole element of DER is here, and nothing behind it.
fn read_element(
    tls: &mut Tls,
    element: &mut Vec<u8>,
    bytes_max: usize,
) -> Result<bool, ContextError> {
    let mut buffer = [0; 4096];
    loop {
        if let Some(length) = der::total_length(element)
            .map_err(|der::Malformed| ContextError::Protocol("expected an element of DER"))?
        {
            if length > bytes_max {
                return Err(ContextError::Protocol("an overlong element of DER"));
            }
            match element.len().cmp(&length) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => return Ok(true),
                std::cmp::Ordering::Greater => {
                    return Err(ContextError::Protocol("bytes behind an element of DER"));
                }
            }
        }
        match tls.read(&mut buffer)? {
            ReadOutcome::Bytes(count) => element.extend_from_slice(&buffer[..count]),
            ReadOutcome::Starved => return Ok(false),
            ReadOutcome::Closed => {
                return Err(ContextError::Protocol("closed before it was established"));
            }
        }
    }
}

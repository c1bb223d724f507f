//! The handshake of GSI in both roles.

use std::time::SystemTime;

use super::handshake::{Driver, Machine};
use super::{Channel, ContextError, Established, Expect, Settings};
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

/// A handshake of GSI. The picture is in the module's documents, the contract in the crate's.
pub struct Context(Machine<GsiDriver>);

struct GsiDriver {
    role: Role,
    settings: Settings,
    state: State,
    peer: Option<Peer>,
    delegated: Option<Credential>,
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
        let (driver, tls) = GsiDriver::new(Role::Initiator, settings)?;
        Ok(Self(Machine::begin(driver, tls)?))
    }

    /// Waits for the first token.
    ///
    /// # Errors
    /// As [`Context::initiate`].
    pub fn accept(settings: Settings) -> Result<Self, ContextError> {
        let (driver, tls) = GsiDriver::new(Role::Acceptor, settings)?;
        Ok(Self(Machine::new(driver, tls)))
    }

    /// Bytes from the peer, cut anywhere. Verifying and signing take processor time: some
    /// milliseconds.
    ///
    /// # Errors
    /// Why it has failed. There may still be output then, an alert for the peer.
    pub fn handle_input(&mut self, now: SystemTime, input: &[u8]) -> Result<(), ContextError> {
        self.0.handle_input(now, input)
    }

    /// A token for the peer.
    pub fn poll_output(&mut self) -> Option<Vec<u8>> {
        self.0.poll_output()
    }

    /// The outcome, once. Send what [`Context::poll_output`] still has before anything else.
    pub fn outcome(&mut self) -> Option<Established> {
        self.0.outcome()
    }
}

impl Driver for GsiDriver {
    type Outcome = Established;

    /// Its output is kept for the peer only if it went well: what OpenSSL made of a peer that was
    /// then refused must not leave. After a fault an alert may, and before the peer was verified
    /// nothing else: a fault behind a flight of 1.2 comes after our certificate was written and
    /// before the peer's was verified.
    fn advance(
        &mut self,
        tls: &mut Tls,
        now: SystemTime,
        output: &mut Vec<u8>,
    ) -> Result<bool, ContextError> {
        let result = self.run(tls, now);
        let written = tls.take_output();
        match &result {
            Ok(_) => output.extend(written),
            Err(ContextError::Tls(_)) if self.peer.is_some() => output.extend(written),
            Err(ContextError::Tls(_)) => output.extend(alerts(&written)),
            Err(_) => {}
        }
        result
    }

    fn finish(&mut self, mut tls: Tls, _now: SystemTime) -> Result<Established, ContextError> {
        let peer = self.peer.take().ok_or(ContextError::Over)?;
        let rest = tls.take_unread();
        if matches!(self.settings.channel, Channel::Control { .. }) && !rest.is_empty() {
            return Err(ContextError::Protocol("bytes behind the last token"));
        }
        Ok(Established {
            peer,
            delegated: self.delegated.take(),
            wrap: Wrap::new(tls),
            rest,
        })
    }

    fn rest(outcome: &mut Established) -> &mut Vec<u8> {
        &mut outcome.rest
    }
}

impl GsiDriver {
    fn new(role: Role, settings: Settings) -> Result<(Self, Tls), ContextError> {
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
        let driver = Self {
            role,
            settings,
            state: State::Handshake,
            peer: None,
            delegated: None,
        };
        Ok((driver, tls.map_err(ContextError::Credential)?))
    }

    fn run(&mut self, tls: &mut Tls, now: SystemTime) -> Result<bool, ContextError> {
        while self.step(tls, now)? {}
        Ok(matches!(self.state, State::Established))
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

//! Both roles, joined in memory.

use std::sync::Arc;

use godwit_gsi::cert::proxy::{self, ProxyRequest};
use godwit_gsi::cert::{Credential, key::KeyKind};
use godwit_gsi::verify::{HostName, Policy};
use godwit_gsi::{Channel, Context, ContextError, Established, Expect, Settings, Versions};

use crate::grid::Grid;
use crate::pki::{Blueprint, now};

/// A user with a proxy and a host, of one grid.
pub(crate) struct Ends {
    pub(crate) grid: Grid,
    pub(crate) user: Credential,
    pub(crate) host: Credential,
}

pub(crate) const HOST: &str = "data.example.org";

impl Ends {
    pub(crate) fn new() -> Self {
        let grid = Grid::new();
        let request = ProxyRequest::default();
        let user = proxy::create(&grid.user, &request, KeyKind::EcP256, now()).expect("makes");
        let host = Blueprint::host("/O=Grid/CN=host/data.example.org", &[HOST]);
        let host = host.issued_by(&grid.authority);
        Self { grid, user, host }
    }

    pub(crate) fn settings(&self, credential: &Credential, channel: Channel) -> Settings {
        Settings {
            credential: credential.clone(),
            anchors: Arc::new(self.grid.anchors()),
            policy: Policy::default(),
            expect: Expect::Anyone,
            channel,
            versions: Versions::Any,
            server_name: None,
        }
    }

    /// A client that delegates this, and expects the host.
    pub(crate) fn client(&self, delegate: Option<ProxyRequest>) -> Settings {
        Settings {
            expect: Expect::Host(HostName::new(HOST)),
            server_name: Some(HOST.to_owned()),
            ..self.settings(&self.user, Channel::Control { delegate })
        }
    }

    pub(crate) fn server(&self) -> Settings {
        self.settings(&self.host, Channel::Control { delegate: None })
    }

    /// One end of a data channel of the user.
    pub(crate) fn data(&self, channel: Channel, versions: Versions) -> Settings {
        Settings {
            expect: Expect::Identity(self.user.identity()),
            versions,
            ..self.settings(&self.user, channel)
        }
    }
}

/// What went over the line, in order: tokens of the initiator at even places.
pub(crate) type Tokens = Vec<Vec<u8>>;

pub(crate) struct Joined {
    pub(crate) initiator: Established,
    pub(crate) acceptor: Established,
    pub(crate) tokens: Tokens,
}

/// Lets both talk, a token at a time, until both are established.
pub(crate) fn join(initiate: Settings, accept: Settings) -> Result<Joined, ContextError> {
    join_changed(initiate, accept, |_, _| {})
}

/// The same, with tokens changed on their way.
pub(crate) fn join_changed(
    initiate: Settings,
    accept: Settings,
    change: impl FnMut(usize, &mut Vec<u8>),
) -> Result<Joined, ContextError> {
    let mut initiator = Context::initiate(initiate)?;
    let mut acceptor = Context::accept(accept)?;
    let tokens = drive(&mut initiator, &mut acceptor, change)?;
    match (initiator.outcome(), acceptor.outcome()) {
        (Some(initiator), Some(acceptor)) => Ok(Joined {
            initiator,
            acceptor,
            tokens,
        }),
        _ => Err(ContextError::Protocol("silence")),
    }
}

/// Until both are silent.
pub(crate) fn drive(
    initiator: &mut Context,
    acceptor: &mut Context,
    mut change: impl FnMut(usize, &mut Vec<u8>),
) -> Result<Tokens, ContextError> {
    let mut tokens = Vec::new();
    // No dialogue has more than eight tokens.
    for _ in 0..8 {
        let number = tokens.len();
        let (from, to) = if number % 2 == 0 {
            (&mut *initiator, &mut *acceptor)
        } else {
            (&mut *acceptor, &mut *initiator)
        };
        let Some(mut token) = from.poll_output() else {
            break;
        };
        change(number, &mut token);
        tokens.push(token.clone());
        to.handle_input(now(), &token)?;
    }
    Ok(tokens)
}

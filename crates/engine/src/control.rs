//! Drives a client's protocol interpreter over a socket.

use std::{net::SocketAddr, sync::Arc};

use godwit_proto::{
    command::Command,
    pi::client::{ClientConfig, ClientPiError, CommandId},
    reply::Reply,
};

/// What the control channel brought.
#[derive(Debug)]
pub enum Event {
    /// 1xx.
    Preliminary(CommandId, Reply),
    /// End of a command.
    Final(CommandId, Reply),
}

/// Why it is over.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ControlError {
    /// No connection.
    #[error("cannot connect to {peer}: {error}")]
    Connect {
        /// Where to.
        peer: SocketAddr,
        /// Why not.
        error: Arc<std::io::Error>,
    },
    /// It broke.
    #[error("control connection to {peer} broke: {error}")]
    Io {
        /// Peer.
        peer: SocketAddr,
        /// Why.
        error: Arc<std::io::Error>,
    },
    /// The dialogue failed.
    #[error("{peer}: {error}")]
    Dialogue {
        /// Peer.
        peer: SocketAddr,
        /// Why.
        error: ClientPiError,
    },
}

/// Sees every line of the dialogue, secrets masked: `true` for what we send.
pub type DialogueLog = Arc<dyn Fn(bool, &str) + Send + Sync>;

/// A control connection.
pub struct ControlChannel {
    _todo: (),
}

impl ControlChannel {
    /// Connects and waits for the greeting. All waits are limited by `config`.
    pub async fn connect(
        peer: SocketAddr,
        config: ClientConfig,
        log: Option<DialogueLog>,
    ) -> Result<(Self, Reply), ControlError> {
        let _ = (peer, config, log);
        todo!()
    }
    /// Queues a command; it is written by the next `next_event` or `call`.
    pub fn submit(&mut self, command: &Command) -> CommandId {
        let _ = command;
        todo!()
    }
    /// The next reply, in command order. Cancel-safe.
    pub async fn next_event(&mut self) -> Result<Event, ControlError> {
        todo!()
    }
    /// Sends one command and waits for its final reply; only while nothing else is in flight.
    pub async fn call(&mut self, command: &Command) -> Result<Reply, ControlError> {
        let _ = command;
        todo!()
    }
    /// Our address of the connection.
    pub fn local_addr(&self) -> SocketAddr {
        todo!()
    }
    /// The server's.
    pub fn peer_addr(&self) -> SocketAddr {
        todo!()
    }
}

//! What a session asks its server through: the control channel of FTP, or requests of HTTP that
//! answer as one would.

use std::sync::Arc;

use godwit_engine::control::{ControlChannel, ControlError, Event};
use godwit_proto::{Command, Reply, pi::client::CommandId};

use super::http::HttpControl;

pub(crate) enum Control {
    Ftp(Box<ControlChannel>),
    Http(Box<HttpControl>),
}

impl Control {
    /// Queues a command.
    pub(crate) fn submit(&mut self, command: &Command) -> CommandId {
        match self {
            Self::Ftp(control) => control.submit(command),
            Self::Http(control) => control.submit(command),
        }
    }

    /// The next reply, in command order; waits for ever when nothing is in flight.
    pub(crate) async fn next_event(&mut self) -> Result<Event, ControlError> {
        match self {
            Self::Ftp(control) => control.next_event().await,
            Self::Http(control) => control.next_event().await,
        }
    }

    /// Sends one command and waits for its final reply; only while nothing else is in flight.
    pub(crate) async fn call(&mut self, command: &Command) -> Result<Reply, ControlError> {
        match self {
            Self::Ftp(control) => control.call(command).await,
            Self::Http(control) => control.call(command).await,
        }
    }

    /// See [`ControlChannel::transfer_number`].
    pub(crate) fn transfer_number(&self, id: CommandId) -> Option<u64> {
        match self {
            Self::Ftp(control) => control.transfer_number(id),
            Self::Http(_) => None,
        }
    }

    /// See [`ControlChannel::data_moves`]. Requests of HTTP have limits of their own.
    pub(crate) fn data_moves(&mut self, moves: Option<bool>) {
        match self {
            Self::Ftp(control) => control.data_moves(moves),
            Self::Http(_) => {}
        }
    }

    /// Ends it in good order.
    pub(crate) async fn quit(self) {
        match self {
            Self::Ftp(control) => control.quit().await,
            // Its connections have nothing to say.
            Self::Http(_) => {}
        }
    }

    /// The server, for messages.
    pub(crate) fn peer(&self) -> Arc<str> {
        match self {
            Self::Ftp(control) => control.peer(),
            Self::Http(control) => control.peer(),
        }
    }
}

//! What a client must send before a transfer, given what the server already has: MODE, OPTS, addresses, REST.
//!
//! [`ServerState`] is our belief of the session state at the server; every function here returns the
//! commands that are missing, so that nothing is sent twice and cached data channels are used exactly when both ends know
//! that they are there.

use crate::{
    command::{Command, Mode, TypeCode},
    feature::Features,
};

/// Direction of the data, seen from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// RETR, ERET.
    Get,
    /// STOR, ESTO.
    Put,
}

/// Who connects for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The server listens (PASV, EPSV).
    ServerPassive,
    /// We listen (PORT, EPRT).
    ServerActive,
}

/// What we believe the server's session state to be.
#[derive(Clone, Debug)]
pub struct ServerState {
    /// FEAT.
    pub features: Features,
    /// TYPE, once known.
    pub type_code: Option<TypeCode>,
    /// MODE.
    pub mode: Mode,
    /// OPTS RETR Parallelism in force for the next data channel object.
    pub parallelism: Option<u32>,
    /// SBUF in force.
    pub socket_buffer_bytes: Option<u64>,
    /// Cached data channels: direction they carry data in. `None`: a new address command is needed.
    pub cached: Option<Direction>,
}

impl ServerState {
    /// After login: TYPE I set, MODE S, nothing cached.
    pub fn new(features: Features) -> Self {
        Self {
            features,
            type_code: Some(TypeCode::Image),
            mode: Mode::Stream,
            parallelism: None,
            socket_buffer_bytes: None,
            cached: None,
        }
    }

    /// Commands that set TYPE, MODE, SBUF (or its SITE kin) and, for a get in MODE E, OPTS RETR Parallelism, as far as they differ from what is in force.
    /// A change of any of MODE, buffers or parallelism drops `cached`.
    /// The state is updated as if they all succeed; on a failure call [`ServerState::forget`].
    pub fn prepare(
        &mut self,
        mode: Mode,
        direction: Direction,
        parallelism: u32,
        socket_buffer_bytes: Option<u64>,
    ) -> Vec<Command> {
        let _ = (mode, direction, parallelism, socket_buffer_bytes);
        todo!()
    }

    /// Data channels kept from the last transfer can carry the next one in `direction`.
    pub fn can_reuse(&self, direction: Direction) -> bool {
        self.mode == Mode::ExtendedBlock && self.cached == Some(direction)
    }

    /// A transfer ended. `cached` says whether our side still has its connections.
    pub fn transfer_done(&mut self, direction: Direction, cached: bool) {
        let _ = (direction, cached);
        todo!()
    }

    /// Something failed: believe nothing but the features.
    pub fn forget(&mut self) {
        todo!()
    }
}

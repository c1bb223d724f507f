//! What a client must send before a transfer, given what the server already has: MODE, OPTS,
//! addresses, REST.
//!
//! [`ServerState`] is our belief of the session state at the server; every function here returns
//! the commands that are missing, so that nothing is sent twice and cached data channels are used
//! exactly when both ends know that they exist.

use crate::{
    command::{Command, Mode, TypeCode},
    feature::Features,
    opts::{Opts, Parallelism, RetrOptions},
    site::Site,
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

/// The session state of the server, as far as the client knows.
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
    /// The receiver of what the server sends understands holes, and wants them.
    pub wants_holes: bool,
    /// OPTS RETR Holes in force; `None`: unknown.
    holes: Option<bool>,
    /// Cached data channels: direction they carry data in. `None`: a new address command is needed.
    pub cached: Option<Direction>,
    /// Addresses of the data channels in force, one a stripe; 1 without SPAS and SPOR.
    pub stripes: u32,
    /// `mode` is what the server has, not merely what it had before something failed.
    mode_known: bool,
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
            wants_holes: false,
            holes: Some(false),
            cached: None,
            stripes: 1,
            mode_known: true,
        }
    }

    /// Commands that set TYPE, MODE, SBUF (or its SITE kin) and, for a get in MODE E, OPTS RETR
    /// Parallelism and Holes, as far as they differ from what is in force. `socket_buffer_bytes`
    /// `None` leaves the buffers as they are. A change of any of MODE, buffers, parallelism or
    /// holes drops `cached`. The state is updated as if they all succeed; on a failure call
    /// [`ServerState::forget`]. The SITE kin may be refused without harm: then the server's kernel
    /// chooses.
    pub fn prepare(
        &mut self,
        mode: Mode,
        direction: Direction,
        parallelism: u32,
        socket_buffer_bytes: Option<u64>,
    ) -> Vec<Command> {
        let mut commands = Vec::new();
        if self.type_code != Some(TypeCode::Image) {
            commands.push(Command::Type(TypeCode::Image));
            self.type_code = Some(TypeCode::Image);
        }
        if !self.mode_known || self.mode != mode {
            commands.push(Command::Mode(mode));
            self.mode = mode;
            self.mode_known = true;
            self.cached = None;
        }
        if let Some(bytes) = socket_buffer_bytes
            && self.socket_buffer_bytes != Some(bytes)
        {
            if self.features.sbuf {
                commands.push(Command::Sbuf(bytes));
            } else {
                // GCT's words are for its receiving and its sending sockets, in this order; one
                // transfer needs one of them, but the next may go the other way.
                commands.extend(["RETRBUFSIZE", "STORBUFSIZE"].map(|word| {
                    Command::Site(Site::Buffer {
                        word: word.to_owned(),
                        bytes,
                    })
                }));
            }
            self.socket_buffer_bytes = Some(bytes);
            self.cached = None;
        }
        // For a put the sender, we, decide.
        if mode == Mode::ExtendedBlock && direction == Direction::Get {
            let options = self.retr_options(parallelism);
            if options != RetrOptions::default() {
                commands.push(Command::Opts(Opts::Retr(options)));
                self.cached = None;
            }
        }
        commands
    }

    fn retr_options(&mut self, parallelism: u32) -> RetrOptions {
        let mut options = RetrOptions::default();
        if self.parallelism != Some(parallelism) {
            // Three equal numbers: GCT reads the first only, ARC wants three.
            options.parallelism = Some(Parallelism {
                start: parallelism,
                min: parallelism,
                max: parallelism,
            });
            self.parallelism = Some(parallelism);
        }
        if self.features.holes && self.holes != Some(self.wants_holes) {
            options.holes = Some(self.wants_holes);
            self.holes = options.holes;
        }
        options
    }

    /// Data channels kept from the last transfer can carry the next one in `direction`.
    pub fn can_reuse(&self, direction: Direction) -> bool {
        self.mode == Mode::ExtendedBlock && self.cached == Some(direction)
    }

    /// A transfer ended well. `cached` says whether our side still has its connections.
    pub fn transfer_done(&mut self, direction: Direction, cached: bool) {
        self.cached = (cached && self.mode == Mode::ExtendedBlock).then_some(direction);
    }

    /// Something failed: nothing but the features is known.
    pub fn forget(&mut self) {
        self.type_code = None;
        self.mode_known = false;
        self.parallelism = None;
        self.holes = None;
        self.socket_buffer_bytes = None;
        self.cached = None;
    }
}

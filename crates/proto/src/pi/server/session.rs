//! What a session remembers between commands (the table of states, and who resets what).

use std::time::Duration;

use crate::{
    checksum::ChecksumAlgorithm,
    command::{Mode, TypeCode},
    facts::FactSelection,
    mode_e::layout::StripeLayout,
    path::FtpPath,
    restart::RestartPoint,
    timestamp::Timestamp,
};

use super::{
    Account, DataChannelSpec, ServerConfig, data_channel::DataChannel, security::Security,
};

/// Seconds between 112 markers, and between 111 markers, unless TREV says otherwise (GCT's default;
/// gfal2 gives up after 360 s without one).
const MARKER_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Session {
    pub(super) login: LoginState,
    pub(super) failed_logins: u32,
    pub(super) account: Account,
    pub(super) cwd: FtpPath,
    pub(super) type_code: TypeCode,
    pub(super) mode: Mode,
    /// REST, for the next transfer of a file.
    pub(super) restart: Option<RestartPoint>,
    /// ALLO, SCKS, STORATTR: for the next receipt.
    pub(super) receipt: ReceiptAttributes,
    pub(super) rename_from: Option<FtpPath>,
    pub(super) symlink_from: Option<FtpPath>,
    pub(super) facts: FactSelection,
    pub(super) recursive: RecursiveListing,
    pub(super) markers: MarkerIntervals,
    pub(super) parallelism: u32,
    pub(super) layout: Option<StripeLayout>,
    /// OPTS RETR Holes.
    pub(super) holes: bool,
    pub(super) socket_buffer_bytes: Option<u64>,
    /// OPTS PASV AllowDelayed.
    pub(super) delayed_passive: bool,
    /// EPSV ALL (RFC 2428 §4).
    pub(super) epsv_only: bool,
    pub(super) data_channel: DataChannel,
    pub(super) security: Security,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum LoginState {
    LoggedOut,
    /// USER was given, PASS is due.
    Named(String),
    LoggedIn {
        user: String,
    },
}

/// Said before a receipt, used by it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ReceiptAttributes {
    pub(super) expected_bytes: Option<u64>,
    pub(super) checksums: Vec<(ChecksumAlgorithm, String)>,
    pub(super) modify: Option<Timestamp>,
}

/// OPTS MLSR.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecursiveListing {
    pub(super) continue_on_error: bool,
    pub(super) follow_links: bool,
}

/// Time between markers of each kind; `None` for none.
#[derive(Clone, Copy, Debug)]
pub(super) struct MarkerIntervals {
    /// TREV PERF: 112 of receipts in MODE E.
    pub(super) performance: Option<Duration>,
    /// TREV RESTART: 111 of receipts in MODE E.
    pub(super) restart: Option<Duration>,
    /// OPTS RETR Markers: 112 of everything else.
    pub(super) asked: Option<Duration>,
    /// OPTS CKSM Markers: 113.
    pub(super) checksum: Option<Duration>,
}

impl ReceiptAttributes {
    /// The last word for each algorithm counts, so that repetition claims no memory.
    pub(super) fn expect_checksum(&mut self, algorithm: ChecksumAlgorithm, value: String) {
        self.checksums.retain(|(known, _)| *known != algorithm);
        self.checksums.push((algorithm, value));
    }
}

impl Session {
    pub(super) fn new(config: &ServerConfig) -> Self {
        Self {
            login: LoginState::LoggedOut,
            failed_logins: 0,
            account: Account {
                home: config.home.clone(),
                writable: config.writable,
                foreign_data_hosts: config.foreign_data_hosts,
            },
            cwd: config.home.clone(),
            type_code: TypeCode::Ascii,
            mode: Mode::Stream,
            restart: None,
            receipt: ReceiptAttributes::default(),
            rename_from: None,
            symlink_from: None,
            facts: FactSelection::DEFAULT,
            recursive: RecursiveListing::default(),
            markers: MarkerIntervals {
                performance: Some(MARKER_INTERVAL),
                restart: Some(MARKER_INTERVAL),
                asked: None,
                checksum: None,
            },
            parallelism: 1,
            layout: None,
            holes: false,
            socket_buffer_bytes: None,
            delayed_passive: false,
            epsv_only: false,
            data_channel: DataChannel::None,
            security: Security::new(config.private_channel),
        }
    }

    pub(super) fn is_logged_in(&self) -> bool {
        matches!(self.login, LoginState::LoggedIn { .. })
    }

    pub(super) fn resolve(&self, path: &FtpPath) -> FtpPath {
        path.resolve(&self.cwd, &self.account.home)
    }

    pub(super) fn resolve_or_cwd(&self, path: Option<&FtpPath>) -> FtpPath {
        path.map_or_else(|| self.cwd.clone(), |path| self.resolve(path))
    }

    /// Everything that is copied into a data channel object made now.
    pub(super) fn data_channel_spec(&self) -> DataChannelSpec {
        DataChannelSpec {
            striped: false,
            parallelism: match self.mode {
                Mode::Stream => 1,
                Mode::ExtendedBlock => self.parallelism,
            },
            layout: self.layout,
            holes: self.holes,
            socket_buffer_bytes: self.socket_buffer_bytes,
            foreign_hosts: self.account.foreign_data_hosts,
            dcau: self.security.dcau.clone(),
            protection: self.security.protection,
        }
    }

    /// Commands that wait for a second one are off (ABOR).
    pub(super) fn forget_sequences(&mut self) {
        self.restart = None;
        self.receipt = ReceiptAttributes::default();
        self.rename_from = None;
        self.symlink_from = None;
    }
}

//! Kinds of failures: few, so that each may have a counter.

use godwit_proto::error::{StorageFailure, TransferFailure};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::counting::Kind;

/// Why something failed, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Class {
    // Logins.
    /// A handshake proved nothing.
    Handshake,
    /// The credentials are not accepted.
    Credentials,
    /// Too many logins from there have failed lately.
    Pause,
    /// The account has too many sessions.
    Sessions,
    /// Their account or its files cannot be served.
    Account,
    // Transfers and changes.
    NotFound,
    Permission,
    Exists,
    Space,
    /// Of storage, all else.
    Storage,
    /// No data connection came up.
    NoConnection,
    NotAuthenticated,
    /// A data connection broke or stalled.
    ConnectionLost,
    Protocol,
    Aborted,
    Checksum,
    /// A limit of this server.
    Limit,
}

impl Class {
    pub(crate) const COUNT: usize = 17;

    /// It is about who may come in.
    pub(crate) fn is_of_logins(self) -> bool {
        matches!(
            self,
            Self::Handshake | Self::Credentials | Self::Pause | Self::Sessions | Self::Account
        )
    }
}

impl Kind for Class {
    const ALL: &'static [Self] = &[
        Self::Handshake,
        Self::Credentials,
        Self::Pause,
        Self::Sessions,
        Self::Account,
        Self::NotFound,
        Self::Permission,
        Self::Exists,
        Self::Space,
        Self::Storage,
        Self::NoConnection,
        Self::NotAuthenticated,
        Self::ConnectionLost,
        Self::Protocol,
        Self::Aborted,
        Self::Checksum,
        Self::Limit,
    ];

    fn index(self) -> usize {
        self as usize
    }

    fn word(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::Credentials => "credentials",
            Self::Pause => "pause",
            Self::Sessions => "sessions",
            Self::Account => "account",
            Self::NotFound => "not_found",
            Self::Permission => "permission",
            Self::Exists => "exists",
            Self::Space => "space",
            Self::Storage => "storage",
            Self::NoConnection => "no_connection",
            Self::NotAuthenticated => "not_authenticated",
            Self::ConnectionLost => "connection_lost",
            Self::Protocol => "protocol",
            Self::Aborted => "aborted",
            Self::Checksum => "checksum",
            Self::Limit => "limit",
        }
    }
}

impl From<&StorageFailure> for Class {
    fn from(failure: &StorageFailure) -> Self {
        // There may be none, or a number that is none.
        let known = [
            (Errno::NOENT, Self::NotFound),
            (Errno::ACCESS, Self::Permission),
            (Errno::PERM, Self::Permission),
            (Errno::ROFS, Self::Permission),
            (Errno::EXIST, Self::Exists),
            (Errno::NOSPC, Self::Space),
            (Errno::DQUOT, Self::Space),
            (Errno::CANCELED, Self::Aborted),
        ];
        let found = known
            .into_iter()
            .find(|(errno, _)| errno.raw_os_error() == failure.errno);
        found.map_or(Self::Storage, |(_, class)| class)
    }
}

impl From<&TransferFailure> for Class {
    fn from(failure: &TransferFailure) -> Self {
        match failure {
            TransferFailure::Storage(failure) => failure.into(),
            TransferFailure::NoConnection(_) => Self::NoConnection,
            TransferFailure::NotAuthenticated(_) => Self::NotAuthenticated,
            TransferFailure::ConnectionLost(_) => Self::ConnectionLost,
            TransferFailure::Protocol(_) => Self::Protocol,
            TransferFailure::Aborted => Self::Aborted,
            TransferFailure::Checksum { .. } => Self::Checksum,
            TransferFailure::Limit(_) => Self::Limit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_storage_says_has_a_class() {
        for (errno, class) in [
            (2, Class::NotFound),
            (13, Class::Permission),
            (28, Class::Space),
            (5, Class::Storage),
            (0, Class::Storage),
            (-1, Class::Storage),
            (i32::MAX, Class::Storage),
        ] {
            let failure = StorageFailure {
                errno,
                doing: String::new(),
                text: String::new(),
            };
            assert_eq!(Class::from(&failure), class, "{errno}");
        }
    }
}

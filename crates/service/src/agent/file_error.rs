//! Errors of the client as the service keeps them.

use godwit_client::error::{Error, WhoActs as ClientWho};
use godwit_proto::error::{FailureKind, failure_kind};
use godwit_service_api::job::{FileError, WhoActs};

pub(super) fn file_error(error: &Error) -> FileError {
    FileError {
        code: code(error).to_owned(),
        message: error.to_string(),
        who: match error.who() {
            Some(ClientWho::User) => WhoActs::User,
            Some(ClientWho::Server) => WhoActs::Destination,
            Some(ClientWho::Network) | None => WhoActs::Service,
            Some(ClientWho::ThisMachine | ClientWho::Developers) => WhoActs::Operator,
        },
        may_pass: error.may_pass() || matches!(error, Error::Interrupted | Error::Changed { .. }),
    }
}

fn code(error: &Error) -> &'static str {
    match error {
        Error::Missing { .. } => "not_found",
        Error::Exists { .. } => "exists",
        Error::DiskFull { .. } => "no_space",
        Error::Mismatch(_) => "checksum",
        Error::Size { .. } => "size",
        Error::Resolve { .. } | Error::Unreachable { .. } | Error::DataRefused { .. } => {
            "unreachable"
        }
        Error::Login { .. } | Error::Identity { .. } => "credential",
        Error::Refused { reply, .. } => match failure_kind(reply) {
            Some(FailureKind::NotFound) => "not_found",
            Some(FailureKind::PermissionDenied) => "permission",
            Some(FailureKind::NoSpace) => "no_space",
            _ => "refused",
        },
        Error::Control { .. } | Error::Transfer { .. } | Error::Interrupted => "interrupted",
        Error::Changed { .. } => "changed",
        Error::Usage(_) | Error::Unfit { .. } | Error::Collides { .. } => "invalid",
        Error::Internal { .. } => "internal",
        Error::Kept { error, .. } => code(error),
        _ => "failed",
    }
}

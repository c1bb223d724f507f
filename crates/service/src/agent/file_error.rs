//! Errors of the client as the service keeps them.

use godwit_client::error::{Error, WhoActs as ClientWho};
use godwit_service_api::job::{FileError, WhoActs};

pub(super) fn file_error(error: &Error) -> FileError {
    FileError {
        code: error.code().to_owned(),
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

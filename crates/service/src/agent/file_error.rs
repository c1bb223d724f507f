//! Errors of the client as the service keeps them.

use godwit_client::error::{Error, WhoActs as ClientWho};
use godwit_service_api::job::{FileError, WhoActs};

/// Code of the client where a destination is full.
const NO_SPACE: &str = "no_space";

pub(super) fn file_error(error: &Error) -> FileError {
    let is_full = error.code() == NO_SPACE;
    FileError {
        code: error.code().to_owned(),
        message: match is_full {
            true => format!("{error}; free space there: until then each attempt fails"),
            false => error.to_string(),
        },
        who: match error.who() {
            Some(ClientWho::User) => WhoActs::User,
            Some(ClientWho::Server) => WhoActs::Destination,
            Some(ClientWho::Network) | None => WhoActs::Service,
            Some(ClientWho::ThisMachine | ClientWho::Developers) => WhoActs::Operator,
        },
        may_pass: error.may_pass()
            || is_full
            || matches!(
                error,
                Error::Interrupted | Error::Changed { .. } | Error::UploadEnded { .. }
            ),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_full_disk_may_pass_and_the_message_says_what_to_do() {
        let full = io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error());
        let full = Error::local("write /data/x", &full);
        let next = Error::DiskFull {
            path: "ftp://h/y".to_owned(),
            error: Box::new(full.clone()),
        };
        for error in [full, next] {
            let error = file_error(&error);
            assert!(error.may_pass && error.code == NO_SPACE, "{error:?}");
            assert!(error.message.contains("free space there"), "{error:?}");
        }
    }
}

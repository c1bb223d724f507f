//! Why a copy has failed.

use godwit_http_client::{Cause, Error, redirect::BadRedirect};
use godwit_proto::error::StorageFailure;

use crate::observe::class::Class;

/// Why a copy has failed: for the client, and for the log.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) class: Class,
    pub(super) text: String,
    /// Another request may succeed.
    pub(super) is_transient: bool,
}

impl Failed {
    pub(super) fn new(class: Class, text: impl Into<String>) -> Self {
        Self {
            class,
            text: text.into(),
            is_transient: false,
        }
    }

    /// The file is another one than when the copy began.
    pub(super) fn changed() -> Self {
        Self::new(Class::Storage, "the source has changed while it was copied")
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        let class = match error.cause {
            Cause::Tls(_) | Cause::Untrusted(_) => Class::NotAuthenticated,
            Cause::Protocol(_) => Class::Protocol,
            Cause::NoAddress | Cause::Refused(_) | Cause::NoTls => Class::NoConnection,
            _ => Class::ConnectionLost,
        };
        Self {
            class,
            text: error.to_string(),
            is_transient: error.is_transient(),
        }
    }
}

impl From<StorageFailure> for Failed {
    fn from(failure: StorageFailure) -> Self {
        Self::new((&failure).into(), failure.to_string())
    }
}

impl From<BadRedirect> for Failed {
    fn from(why: BadRedirect) -> Self {
        Self::new(Class::Protocol, why.to_string())
    }
}

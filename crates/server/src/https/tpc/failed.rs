//! Why a copy has failed.

use godwit_http_client::{Cause, Error, redirect::BadRedirect};
use godwit_proto::error::StorageFailure;
use tracing::info;

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

/// The text for the client when the policy allows no address of a host. The address itself is for
/// the log alone: it would tell how the network inside is built.
pub(super) fn not_allowed(error: &Error) -> String {
    format!(
        "no address of {} may be connected to; the administrator of this server can allow it \
         (allow-copy-host)",
        error.origin.host
    )
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        let class = match error.cause {
            Cause::Tls(_) | Cause::Untrusted(_) => Class::NotAuthenticated,
            Cause::Protocol(_) => Class::Protocol,
            Cause::NoAddress | Cause::Refused(_) | Cause::NoTls => Class::NoConnection,
            _ => Class::ConnectionLost,
        };
        let text = match error.cause {
            Cause::Refused(address) => {
                let address = address.ip();
                info!(origin = ?error.origin, ?address, "copy may not connect to an address");
                not_allowed(&error)
            }
            Cause::Untrusted(_) => format!(
                "{error}; the administrator of this server sets which authorities may vouch for \
                 others (copy-authorities)"
            ),
            _ => error.to_string(),
        };
        Self {
            class,
            text,
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

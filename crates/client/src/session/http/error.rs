//! Why a request has no answer, as a session reports it.

use std::sync::Arc;

use godwit_engine::control::ControlError;
use godwit_http_client::{BadUrl, Step, redirect::BadRedirect};

use crate::{endpoint::Endpoint, error::Error};

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum HttpError {
    #[error("{0}")]
    Connection(#[from] godwit_http_client::Error),
    #[error("{0}")]
    Redirect(#[from] BadRedirect),
    #[error("{0}")]
    Url(#[from] BadUrl),
    /// The server says something that makes no sense.
    #[error("{0}")]
    Senseless(String),
}

impl HttpError {
    /// For what is asked of a session.
    pub(super) fn of_control(self, peer: &Arc<str>) -> ControlError {
        ControlError::Http {
            peer: Arc::clone(peer),
            reason: self.to_string().into(),
        }
    }

    /// For a session that cannot begin.
    pub(super) fn of_opening(self, endpoint: &Endpoint) -> Error {
        use godwit_http_client::Cause;
        let name = endpoint.name();
        let (step, cause) = match self {
            Self::Connection(error) => (error.step, error.cause),
            other => {
                return Error::Control {
                    doing: format!("log in to {name}"),
                    error: other.of_control(&name.as_str().into()),
                };
            }
        };
        let reason = format!("{}", cause);
        match (step, cause) {
            (_, Cause::Refused(address)) => Error::AddressRefused {
                endpoint: name,
                address: address.ip(),
            },
            (Step::Resolve, Cause::Io(error)) => Error::Resolve {
                endpoint: name,
                host: endpoint.host().to_owned(),
                error: Arc::new(error),
            },
            (Step::Resolve | Step::Connect, cause) => Error::Unreachable {
                error: ControlError::Connect {
                    peer: name.as_str().into(),
                    error: Arc::new(match cause {
                        Cause::Io(error) => error,
                        _ => std::io::Error::other(reason),
                    }),
                },
                endpoint: name,
            },
            (Step::Handshake, Cause::Tls(_) | Cause::Untrusted(_)) => Error::Identity {
                doing: name,
                reason,
            },
            _ => Error::Control {
                doing: format!("log in to {name}"),
                error: ControlError::Http {
                    peer: name.as_str().into(),
                    reason: reason.into(),
                },
            },
        }
    }
}

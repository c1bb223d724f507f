//! Names of files at a server until they are complete.

use godwit_proto::{
    FtpPath, Reply,
    error::{FailureKind, failure_kind},
};

use super::{
    Endpoint,
    capabilities::{Capabilities, Lack},
};
use crate::{error::Error, report::reporter::Reporter};

/// The note to the user where files are written in place.
pub(crate) const IN_PLACE: &str = "files are written under their final names at once: what has \
the name is overwritten, and a transfer that is cut leaves a partial file there";

/// The name of a file at a server until it is complete. Each kind is tried if the one before it was
/// refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Naming {
    /// A temporary name that listings hide.
    Hidden,
    /// A temporary name without the leading dot.
    Visible,
    /// The final name at once.
    InPlace,
}

impl Naming {
    /// The kind of name that the server accepts, as far as known.
    pub(crate) fn of(capabilities: &Capabilities, remote: &FtpPath) -> Self {
        match capabilities.lacks(Lack::DottedNames) {
            _ if capabilities.lacks(Lack::Rename) || capabilities.is_in_place(remote) => {
                Self::InPlace
            }
            true => Self::Visible,
            false => Self::Hidden,
        }
    }
}

/// A server refused a name; the file is started again under another one.
#[derive(Clone, Debug)]
pub(crate) struct NameRefused {
    /// The first refusal.
    pub(crate) error: Box<Error>,
    pub(crate) instead: Naming,
}

/// The server refuses names with a leading dot.
pub(crate) fn no_dots(reporter: &Reporter, endpoint: &Endpoint, reply: &Reply) {
    let text = format!(
        "{}: the server refuses names with a leading dot, temporary names have none \
         (godwit-*.part) (server said: {reply})",
        endpoint.name()
    );
    endpoint
        .capabilities
        .learn(Lack::DottedNames, reporter, text);
}

/// True if a server that answered `dotted` for a name with a leading dot, and `plain` for one
/// without, refuses the dot. Neither name exists.
pub(crate) fn refuses_dot((name, dotted): (&str, &Reply), plain: &Reply) -> bool {
    let bare = name.strip_prefix('.').unwrap_or(name);
    let is_passing = |reply| failure_kind(reply) == Some(FailureKind::Transient);
    let of_name = plain.code.is_failure() && !is_passing(dotted) && !is_passing(plain);
    let text = |reply: &Reply, name: &str| reply.text().replace(name, "");
    of_name && (dotted.code != plain.code || text(dotted, name) != text(plain, bare))
}

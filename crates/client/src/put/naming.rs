//! How a file is named at a server until it is whole, and what is done where the server refuses
//! such names.

use std::sync::atomic::Ordering;

use godwit_proto::{FtpPath, odd_bytes::OddBytes, temporary::marked_temporary_name};

use super::Upload;
use crate::{
    context::{Capabilities, Endpoint, RunContext},
    error::Error,
    local,
};

/// "File name not allowed" (RFC 959).
const NAME_NOT_ALLOWED: u16 = 553;

/// How a file is named at a server until it is whole. Each is tried where the one before it was
/// refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Naming {
    /// A temporary name that listings hide.
    Hidden,
    /// A temporary name without the leading dot, which some servers refuse.
    Visible,
    /// The final name at once.
    InPlace,
}

impl Naming {
    /// What the server takes, as far as it has shown.
    pub(crate) fn of(capabilities: &Capabilities) -> Self {
        match capabilities.naming.load(Ordering::Relaxed) {
            0 => Self::Hidden,
            1 => Self::Visible,
            _ => Self::InPlace,
        }
    }
}

impl Upload {
    /// Where the server refused the name of this put: how it is to be named instead. Nothing was
    /// stored then.
    pub(crate) fn refused_name(
        &self,
        context: &RunContext,
        endpoint: &Endpoint,
        error: &Error,
    ) -> Option<Naming> {
        let Error::Refused { reply, started, .. } = error else {
            return None;
        };
        if reply.code.get() != NAME_NOT_ALLOWED || *started || self.is_part {
            return None;
        }
        let capabilities = &endpoint.capabilities.naming;
        let name = self.rename_to.as_ref().and(self.temp_path.file_name());
        let (instead, what) = match name {
            // All names were refused: the reason was none of them.
            None => {
                capabilities.store(Naming::Hidden as u8, Ordering::Relaxed);
                return None;
            }
            Some(name) if name.starts_with(b".") => (Naming::Visible, "a visible temporary name"),
            Some(_) => (Naming::InPlace, "its final name at once"),
        };
        self.may_exist.store(false, Ordering::Relaxed);
        capabilities.fetch_max(instead as u8, Ordering::Relaxed);
        context.note(format_args!(
            "{}: the server refuses the temporary name, so the file is written under {what}: {reply}",
            self.url
        ));
        Some(instead)
    }
}

/// A name beside the final one.
pub(super) fn temporary_beside(remote: &FtpPath, naming: Naming) -> Option<FtpPath> {
    // What some servers change in the final name is in the temporary name too, so that it is seen
    // before anything is renamed.
    let name = marked_temporary_name(local::random(), OddBytes::of(remote.as_bytes()));
    match naming {
        Naming::Hidden => remote.sibling(&name),
        Naming::Visible => remote.sibling(name.strip_prefix(b".").unwrap_or(&name)),
        Naming::InPlace => None,
    }
}

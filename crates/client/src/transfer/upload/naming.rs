//! Which names a server takes for a file until it is whole, and what is done where it refuses one.
//!
//! The order is: a temporary name with a leading dot, one without, the final name at once. The
//! server shows what it takes in three ways, each of which is learned once:
//!
//! - It is asked to rename two files that are not there, one with a dot and one without
//!   ([`Session::can_rename`]). Different refusals tell that it refuses dots.
//! - It refuses to store a file under one name, and stores it under the next
//!   ([`Upload::learn_names`]). Where it refuses all, the first refusal is what the user sees, and
//!   its directory is closed.
//! - It stores a file and refuses to rename it ([`Session::rename`]).
//!
//! [`Session::can_rename`]: crate::session::Session::can_rename
//! [`Session::rename`]: crate::session::Session::rename

use std::sync::atomic::Ordering;

use godwit_proto::{
    FtpPath, Reply,
    error::{FailureKind, failure_kind},
    odd_bytes::OddBytes,
    temporary::marked_temporary_name,
};

use super::Upload;
use crate::{
    context::RunContext,
    endpoint::{
        Endpoint,
        capabilities::{Lack, Observed},
        naming::{IN_PLACE, NameRefused, Naming, no_dots},
    },
    error::Error,
    local::files,
    transfer::source_file::SourceFile,
};

impl Upload {
    /// How the file is to be named instead where `error` refuses to store it under a temporary
    /// name. Nothing was stored then.
    pub(super) fn name_instead_of(
        &self,
        endpoint: &Endpoint,
        error: &Error,
    ) -> Option<NameRefused> {
        let Error::Refused {
            doing,
            reply,
            started: false,
        } = error
        else {
            return None;
        };
        // A bucket hears the final name alone.
        let is_bucket = endpoint.is_bucket();
        if is_bucket || *doing != self.doing() || self.is_part || !may_be_of_the_name(reply) {
            return None;
        }
        let capabilities = &endpoint.capabilities;
        let temporary = self.rename_to.as_ref().and(self.temp_path.file_name());
        let is_told = failure_kind(reply) == Some(FailureKind::PermissionDenied);
        let closed = capabilities.may_be_closed(self.target());
        let dotted = temporary.is_some_and(|name| name.starts_with(b"."));
        let instead = match temporary.filter(|_| !closed) {
            // It stores such files elsewhere, or has looked whether this one is there.
            Some(_) if dotted && capabilities.has(Observed::DottedNamesStored) => None,
            Some(_) if dotted && is_told && capabilities.has(Observed::DottedNamesLookedUp) => None,
            Some(_) if dotted => Some(Naming::Visible),
            Some(_) if !is_told => Some(Naming::InPlace),
            _ => None,
        };
        match instead {
            Some(_) => self.nothing_begun(),
            // The names were not the reason.
            None => capabilities.record_closed_directory(self.target()),
        }
        instead.map(|instead| self.again(error, instead))
    }

    /// The same where a server of HTTP refuses to go on with what an attempt before has left: who
    /// may only create may not change it once the server has forgotten who made it. Once a run.
    pub(super) fn name_instead_of_leftover(
        &self,
        endpoint: &Endpoint,
        error: &Error,
    ) -> Option<NameRefused> {
        let is_refused = error.refusal() == Some(FailureKind::PermissionDenied);
        let goes_on =
            endpoint.is_http() && !endpoint.is_bucket() && self.was_there.load(Ordering::Relaxed);
        let is_refused = is_refused && self.is_of_destination(error);
        (is_refused && goes_on && self.name_refused.is_none() && !self.is_rename_asked())
            .then(|| self.again(error, Naming::Hidden))
    }

    pub(super) fn again(&self, error: &Error, instead: Naming) -> NameRefused {
        let first = self.name_refused.as_ref().map(|refused| &refused.error);
        NameRefused {
            error: first.cloned().unwrap_or_else(|| Box::new(error.clone())),
            instead,
        }
    }

    /// The server has the file under the name it was written to: what that tells of names.
    pub(super) fn learn_names(&self, context: &RunContext, endpoint: &Endpoint) {
        let capabilities = &endpoint.capabilities;
        let is_dotted = |name: &[u8]| name.starts_with(b".");
        let Some(refused) = &self.name_refused else {
            if self.temp_path.file_name().is_some_and(is_dotted) {
                capabilities.record(Observed::DottedNamesStored);
            }
            return;
        };
        let Error::Refused { reply, .. } = &*refused.error else {
            return;
        };
        match refused.instead {
            Naming::InPlace if capabilities.lacks(Lack::Rename) => {}
            Naming::InPlace if capabilities.folder_is_in_place(self.target()) => {
                let folder = self.target().parent().map(|folder| endpoint.url(&folder));
                let folder = folder.unwrap_or_else(|| endpoint.name());
                context.reporter.note(format_args!(
                    "{folder}: the server refuses temporary names, {IN_PLACE} (server said: \
                     {reply})"
                ));
            }
            Naming::InPlace | Naming::Hidden => {}
            Naming::Visible => no_dots(&context.reporter, endpoint, reply),
        }
    }

    /// The final name.
    fn target(&self) -> &FtpPath {
        self.rename_to.as_ref().unwrap_or(&self.temp_path)
    }
}

impl SourceFile {
    /// The same file, to be begun under another name.
    pub(crate) fn under_another_name(&self, refused: NameRefused) -> Self {
        // One that is hidden as before is for what is begun again.
        let begun = self.begun.clone();
        Self {
            begun: begun.filter(|_| refused.instead != Naming::Hidden),
            name_refused: Some(refused),
            ..self.clone()
        }
    }
}

/// A refusal to store that may be one of the name: RFC 959 has 553 for that, others say 550 and
/// 501.
fn may_be_of_the_name(reply: &Reply) -> bool {
    let kind = failure_kind(reply);
    matches!(reply.code.get(), 501 | 550 | 551 | 553)
        && matches!(
            kind,
            Some(FailureKind::Other | FailureKind::PermissionDenied | FailureKind::NotFound)
        )
}

/// A name beside the final one.
pub(crate) fn temporary_beside(remote: &FtpPath, naming: Naming) -> Option<FtpPath> {
    // What some servers change in the final name is in the temporary name too, so that it is seen
    // before anything is renamed.
    let name = marked_temporary_name(files::random(), OddBytes::of(remote.as_bytes()));
    match naming {
        Naming::Hidden => remote.sibling(&name),
        Naming::Visible => remote.sibling(name.strip_prefix(b".").unwrap_or(&name)),
        Naming::InPlace => None,
    }
}

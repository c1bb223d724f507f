//! Gives a file at a server its name, in place of what has it.
//!
//! The old file is never removed before the new one has the name. A server that does not rename
//! over a file is asked to rename the old file, to rename the new one and to remove the old one.
//! Wherever that breaks off, both files are complete under some name, and the error says which.

use std::sync::Arc;

use godwit_engine::control::Event as Spoken;
use godwit_proto::{
    Command, FtpPath, Reply,
    error::{FailureKind, failure_kind},
    temporary,
};
use parking_lot::Mutex;

use crate::{
    context::RunContext,
    endpoint::{
        capabilities::{Lack, Observed},
        naming::{IN_PLACE, no_dots, refuses_dot},
    },
    error::{Error, Result},
    local::files::{self, temporary_name},
    session::{Found, Session},
};

/// Where the file that had a name may lie, once it has stepped backup for another.
#[derive(Debug, Default)]
pub(crate) struct DisplacedFile(Mutex<Option<FtpPath>>);

impl DisplacedFile {
    /// The place; `None`: nothing has stepped backup.
    pub(crate) fn at(&self) -> Option<FtpPath> {
        self.0.lock().clone()
    }

    fn set(&self, at: Option<FtpPath>) {
        *self.0.lock() = at;
    }
}

impl Session {
    /// Renames, replacing what is there. After an error `displaced` tells whether what was at `to`
    /// may lie elsewhere; then `from` is to be kept. May be asked for again with the same
    /// `displaced`.
    pub(crate) async fn rename(
        &mut self,
        from: &FtpPath,
        to: &FtpPath,
        displaced: &DisplacedFile,
    ) -> Result<()> {
        match self.rename_once(from, to).await {
            Ok(()) => {
                self.remove_displaced(displaced).await;
                Ok(())
            }
            // Some servers do not rename over a file.
            Err(exists)
                if exists.refusal() == Some(FailureKind::Exists) && !self.endpoint.is_bucket() =>
            {
                self.rename_in_place_of(from, to, displaced, exists).await
            }
            Err(error) => Err(error),
        }
    }

    async fn rename_in_place_of(
        &mut self,
        from: &FtpPath,
        to: &FtpPath,
        displaced: &DisplacedFile,
        exists: Error,
    ) -> Result<()> {
        // A directory does not step backup for a file.
        if !matches!(self.stat(to).await?, Found::File(_) | Found::Unknown) {
            return Err(exists);
        }
        let Some(old) = self.step_aside(to, displaced).await? else {
            return Err(exists);
        };
        if let Err(error) = self.rename_once(from, to).await {
            if error.refusal().is_none() {
                return Err(error);
            }
            self.rename_once(&old, to)
                .await
                .map_err(|_| error.clone())?;
            displaced.set(None);
            let (from, to) = (self.endpoint.url(from), self.endpoint.url(to));
            return Err(Error::Kept {
                error: Box::new(error),
                kept: format!("{to} is what it was, and what was to replace it is at {from}"),
            });
        }
        self.remove_displaced(displaced).await;
        Ok(())
    }

    /// Renames what is `at` a path to a name of ours beside it: where it lies then; `None`: where
    /// it was.
    async fn step_aside(
        &mut self,
        at: &FtpPath,
        displaced: &DisplacedFile,
    ) -> Result<Option<FtpPath>> {
        let dotted = temporary::backup_name(files::random());
        let bare = dotted.trim_start_matches('.');
        let names = match self.endpoint.capabilities.lacks(Lack::DottedNames) {
            true => vec![bare],
            false => vec![&dotted, bare],
        };
        let beside = names.into_iter().map(|name| at.sibling(name.as_bytes()));
        let places = match displaced.at() {
            Some(old) => vec![old],
            None => beside.flatten().collect(),
        };
        for old in places {
            displaced.set(Some(old.clone()));
            match self.rename_once(at, &old).await {
                Ok(()) => return Ok(Some(old)),
                Err(error) if error.refusal().is_none() => return Err(error),
                Err(_) => displaced.set(None),
            }
        }
        Ok(None)
    }

    /// What had the name has been replaced, and goes.
    pub(crate) async fn remove_displaced(&mut self, displaced: &DisplacedFile) {
        let Some(old) = displaced.at() else { return };
        displaced.set(None);
        let why = match self.remove_files(std::slice::from_ref(&old)).await {
            Ok(failed) => failed.into_iter().next().map(|(_, why)| why),
            Err(why) => Some(why),
        };
        if let Some(why) = why {
            let old = self.endpoint.url(&old);
            let text = format!("{old}: an old file that was replaced, left behind: {why}");
            self.context.reporter.warn(text);
        }
    }

    /// RNFR and RNTO in one round trip.
    async fn rename_once(&mut self, from: &FtpPath, to: &FtpPath) -> Result<()> {
        let doing_tail = format!("to {}", self.endpoint.url(to));
        let doing = format!("rename {doing_tail}");
        if !self.is_usable() {
            return Err(self.not_connected(&doing));
        }
        let rnfr = self.control.submit(&Command::Rnfr(from.clone()));
        let rnto = self.control.submit(&Command::Rnto(to.clone()));
        let mut refused = None;
        loop {
            // A limit that passes is an error: the rename may have happened, and the next attempt
            // looks first. It is longer where a service puts an object together.
            let spoken = tokio::select! {
                spoken = self.commands.control.next_event() => spoken,
                () = stopped(&self.commands.context) => {
                    self.broken = true;
                    return Err(Error::Interrupted);
                }
            };
            match spoken {
                Ok(Spoken::Final(id, reply)) if id == rnfr => {
                    refused = (!reply.code.is_intermediate()).then_some(reply);
                }
                Ok(Spoken::Final(id, reply)) if id == rnto => {
                    let reply = self.checked(Ok(reply), &doing)?;
                    // The first refusal is the telling one; RNTO after it fails for lack of RNFR.
                    return match refused {
                        Some(first) => {
                            self.renames_nothing(from, &first);
                            let from = self.endpoint.url(from);
                            Err(Error::refused(format!("rename {from} {doing_tail}"), first))
                        }
                        None if reply.code.is_success() => Ok(()),
                        None => Err(Error::refused(doing, reply)),
                    };
                }
                Ok(_) => {}
                Err(error) => {
                    self.checked(Err(error), &doing)?;
                }
            }
        }
    }

    /// The server refused an RNFR. Where that was of a file which we have stored just now, it
    /// renames nothing.
    pub(crate) fn renames_nothing(&self, from: &FtpPath, refusal: &Reply) {
        let is_ours = from.file_name().is_some_and(temporary::is_temporary);
        let is_of_renames = matches!(
            failure_kind(refusal),
            Some(FailureKind::NotSupported | FailureKind::PermissionDenied | FailureKind::Other)
        );
        if is_ours && is_of_renames {
            self.lesson(Lack::Rename, refusal, "RNFR", IN_PLACE);
        }
    }

    /// Whether the server can rename, found out without renaming anything: RNFR of what is not
    /// there. Once a server has agreed to an RNFR it may take nothing but RNTO (ProFTPD). The name
    /// has a leading dot, and how it is refused shows whether the server takes such names.
    pub(crate) async fn can_rename(&mut self, directory: &FtpPath) -> Result<bool> {
        let endpoint = Arc::clone(&self.endpoint);
        let capabilities = &endpoint.capabilities;
        // An object has its name when it is whole, and nothing is renamed.
        if !endpoint.is_bucket() && capabilities.record(Observed::RenameProbed) {
            let doing = format!("ask to rename in {}", self.endpoint.url(directory));
            let name = temporary_name();
            let nothing = |name: &str| directory.join(name.as_bytes()).map(Command::Rnfr);
            let Ok(dotted) = nothing(&name) else {
                // No path may be that long.
                return Ok(false);
            };
            let reply = self.ask(&dotted, &doing).await?;
            match (failure_kind(&reply), nothing(name.trim_start_matches('.'))) {
                (Some(FailureKind::NotSupported), _) => {
                    self.lesson(Lack::Rename, &reply, "RNFR", IN_PLACE);
                }
                (Some(FailureKind::NotFound), _) => {
                    capabilities.record(Observed::DottedNamesLookedUp);
                }
                (Some(_), Ok(bare)) => {
                    let plain = self.ask(&bare, &doing).await?;
                    if refuses_dot((&name, &reply), &plain) {
                        no_dots(&self.context.reporter, &endpoint, &reply);
                    }
                }
                (None, _) | (_, Err(_)) => {}
            }
        }
        Ok(!capabilities.lacks(Lack::Rename))
    }
}

/// Ready when the user has asked to stop, and an answer that is due would have come since.
async fn stopped(context: &RunContext) {
    context.stop.cancelled().await;
    tokio::time::sleep(context.connections.stall_limit).await;
}

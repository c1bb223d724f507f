//! The process that removes leftovers of uploads. They belong to many accounts, so it stays root;
//! the sandbox lets it only read directories and remove files beneath the server's root.

use std::{path::PathBuf, time::SystemTime};

use serde::{Deserialize, Serialize};
use tracing::warn;

use super::{Role, child, link::ChildEnd, process::Process, sandbox};
use crate::{config::ServerSettings, storage::leftovers::sweep_and_tell};

/// The first message to a reaper, and the only one.
#[derive(Debug, Serialize, Deserialize)]
struct ReaperSetup {
    parent: u32,
    log_json: bool,
    require_sandbox: bool,
    root: PathBuf,
    /// Files that have changed since stay.
    before: SystemTime,
}

/// One sweep in a process of its own, to its end. Dropping this future kills the process.
pub(crate) async fn reap(settings: &ServerSettings, before: SystemTime) {
    let setup = ReaperSetup {
        parent: std::process::id(),
        log_json: settings.log_json,
        require_sandbox: (settings.separation.as_ref()).is_some_and(|s| s.require_sandbox),
        root: settings.root.clone(),
        before,
    };
    let swept = async {
        let mut reaper = Process::start(Role::Reaper).map_err(|error| error.to_string())?;
        let sent = reaper.link.send(&setup, &[]).await;
        sent.map_err(|error| error.to_string())?;
        // The process logs why it failed.
        reaper
            .process
            .wait()
            .await
            .map_err(|error| error.to_string())
    };
    if let Err(why) = swept.await {
        warn!(%why, "cannot remove leftovers of uploads");
    }
}

pub(super) fn run(link: &ChildEnd) -> Result<(), String> {
    let (setup, _): (ReaperSetup, _) = link.receive().map_err(|error| error.to_string())?;
    child::begin(setup.parent, setup.log_json)?;
    let protection = sandbox::confine_reaper(&setup.root).map_err(|error| error.to_string())?;
    child::accept(&protection, setup.require_sandbox)?;
    sweep_and_tell(&setup.root, setup.before);
    Ok(())
}

//! A front or a session, as the parent has it.

use std::{io, process::Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::{
    Role,
    link::{ParentEnd, pair},
};
use crate::log;

/// A process of ours. Dropping it kills it.
pub(super) struct Process {
    pub(super) process: Child,
    pub(super) link: ParentEnd,
}

impl Process {
    pub(super) fn start(role: Role) -> io::Result<Self> {
        let ends = pair()?;
        // This very program, also where its file has been replaced meanwhile.
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("godwitd")
            .arg(role.argument())
            .env_clear()
            .stdin(Stdio::from(ends.input))
            .stdout(Stdio::from(ends.output))
            .kill_on_drop(true);
        if let Some(filter) = std::env::var_os(log::FILTER_VARIABLE) {
            command.env(log::FILTER_VARIABLE, filter);
        }
        Ok(Self {
            process: command.spawn()?,
            link: ends.parent,
        })
    }

    /// Nothing where it has ended already.
    pub(super) fn signal(&self, signal: Signal) {
        let pid = self.process.id().and_then(|id| i32::try_from(id).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            // It may end at this moment.
            let _ = kill_process(pid, signal);
        }
    }
}

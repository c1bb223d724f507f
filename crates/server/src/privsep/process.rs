//! A child process as the monitor holds it.

use std::{io, process::Stdio};

use rustix::{
    pipe::{PipeFlags, pipe_with},
    process::{Pid, Signal, kill_process},
};
use tokio::{
    net::unix::pipe,
    process::{Child, Command},
    task::JoinHandle,
};

use super::{
    Role,
    link::{MonitorEnd, pair},
    log_lines::pass_on,
};
use crate::observe::log;

/// A child process. Dropping it kills it.
pub(super) struct Process {
    pub(super) process: Child,
    pub(super) link: MonitorEnd,
    /// Ends when all its lines are in the log.
    log: JoinHandle<()>,
}

impl Process {
    pub(super) fn start(role: Role) -> io::Result<Self> {
        let ends = pair()?;
        let (log, lines) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&log, true)?;
        let log = pipe::Receiver::from_owned_fd(log)?;
        // This program, even if its file has been replaced meanwhile.
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("godwitd")
            .arg(role.argument())
            .env_clear()
            .stdin(Stdio::from(ends.input))
            .stdout(Stdio::from(ends.output))
            .stderr(Stdio::from(lines))
            .kill_on_drop(true);
        if let Some(filter) = std::env::var_os(log::FILTER_VARIABLE) {
            command.env(log::FILTER_VARIABLE, filter);
        }
        let process = command.spawn()?;
        Ok(Self {
            process,
            log: tokio::spawn(pass_on(log)),
            link: ends.parent,
        })
    }

    /// Ready when it has ended and the log has its last line.
    pub(super) async fn ended(&mut self) {
        drop(self.process.wait().await);
        drop((&mut self.log).await);
    }

    /// `None` if it has ended already.
    pub(super) fn signal(&self, signal: Signal) {
        let pid = self.process.id().and_then(|id| i32::try_from(id).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            // It may end at this moment.
            let _ = kill_process(pid, signal);
        }
    }
}

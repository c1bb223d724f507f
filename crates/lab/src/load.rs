//! Load beside a transfer: busy processes, or the data channels of a second transfer.
//!
//! The kernel's scheduler shares processors by thread only among the threads of one group. With
//! `kernel.sched_autogroup_enabled` each session is a group, and so is each control group of a
//! batch system: a load in another group gets its share by group, however many processes it or the
//! transfer has. [`ComputeLoad::sharing`] reports which case applies.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::network::Error;
use crate::peers::iperf3;
use crate::peers::process::{Options, Process, Stream};

/// Starts `$1` processes that do nothing as fast as they can, and ends all when the pipe from us
/// does: we may be killed.
const BUSY_SCRIPT: &str = "i=0; while [ $i -lt $1 ]; do while :; do :; done & i=$((i+1)); done; \
                           read -r _; kill -s KILL 0";

/// Most channels one `iperf3` opens.
const IPERF3_CHANNELS_MAX: u32 = 128;

/// In which scheduling group busy processes run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grouping {
    /// Ours, and that of the programs we start: processors are shared by thread.
    #[default]
    WithUs,
    /// A session of their own, as from another terminal: with autogroups, by group.
    OwnSession,
}

/// How processors are shared between a load and the programs we start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// By thread: more movers get more.
    ByThread,
    /// By group: they do not.
    ByGroup,
}

/// Busy processes (`ext.cmp`). Dropping it ends them.
#[derive(Debug)]
pub struct ComputeLoad {
    child: Child,
    pgid: Pid,
    count: usize,
}

impl ComputeLoad {
    /// Starts `count` busy processes at ordinary priority.
    ///
    /// # Errors
    /// [`Error::Os`] when there is no shell or no process left.
    pub fn start(count: usize, grouping: Grouping) -> Result<ComputeLoad, Error> {
        let mut command = match grouping {
            Grouping::WithUs => {
                let mut command = Command::new("/bin/sh");
                command.process_group(0);
                command
            }
            Grouping::OwnSession => {
                // Not the leader of a group yet, so it becomes that of a session without forking.
                let mut command = Command::new("setsid");
                command.arg("/bin/sh");
                command
            }
        };
        let child = command
            .args(["-c", BUSY_SCRIPT, "busy", &count.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(Error::os("-", "start busy processes"))?;
        let pgid = Pid::from_child(&child);
        Ok(ComputeLoad { child, pgid, count })
    }

    /// How many processes.
    pub fn count(&self) -> usize {
        self.count
    }

    /// How they share processors with the programs we start.
    ///
    /// # Errors
    /// [`Error::Os`] when `/proc` cannot be read.
    pub fn sharing(&self) -> Result<Sharing, Error> {
        let ours =
            SchedulingGroup::of("self").map_err(Error::os("-", "read our scheduling group"))?;
        let theirs = SchedulingGroup::of(&self.child.id().to_string())
            .map_err(Error::os("-", "read the scheduling group of the load"))?;
        Ok(if ours == theirs {
            Sharing::ByThread
        } else {
            Sharing::ByGroup
        })
    }
}

impl Drop for ComputeLoad {
    fn drop(&mut self) {
        // Fails only when all have ended. Before the leader is reaped, or the id may be another's.
        let _ = rustix::process::kill_process_group(self.pgid, Signal::KILL);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What decides whether two processes share processors by thread.
#[derive(Debug, PartialEq, Eq)]
struct SchedulingGroup {
    /// `None` where there are no autogroups, or they are off.
    autogroup: Option<String>,
    cgroup: String,
}

impl SchedulingGroup {
    fn of(process: &str) -> io::Result<SchedulingGroup> {
        let on = fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled")
            .is_ok_and(|text| text.trim() == "1");
        let autogroup = on
            .then(|| fs::read_to_string(format!("/proc/{process}/autogroup")).ok())
            .flatten()
            // "/autogroup-5 nice 0"
            .and_then(|text| Some(text.split_ascii_whitespace().next()?.to_owned()));
        let cgroup = match fs::read_to_string(format!("/proc/{process}/cgroup")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            read => read.unwrap_or_default(),
        };
        Ok(SchedulingGroup { autogroup, cgroup })
    }
}

/// Channels of a second transfer between two hosts (`ext.tfr`). Dropping it ends them.
#[derive(Debug)]
pub struct TrafficLoad {
    // In the order they are dropped.
    clients: Vec<Process>,
    _servers: Vec<Process>,
    channels: u32,
}

impl TrafficLoad {
    /// Sends over `channels` connections from one host to another until dropped, with `iperf3`.
    ///
    /// # Errors
    /// [`Error::Program`] when it is not installed or does not start.
    pub fn start(from: &Host, to: &Host, channels: u32) -> Result<TrafficLoad, Error> {
        let mut load = TrafficLoad {
            clients: Vec::new(),
            _servers: Vec::new(),
            channels,
        };
        let mut left = channels;
        while left > 0 {
            let now = left.min(IPERF3_CHANNELS_MAX);
            load.add(from, to, now)?;
            left -= now;
        }
        Ok(load)
    }

    /// How many channels.
    pub fn channels(&self) -> u32 {
        self.channels
    }

    /// Whether all of it still runs.
    ///
    /// # Errors
    /// [`Error::Program`] when the kernel cannot say.
    pub fn is_running(&mut self) -> Result<bool, Error> {
        for client in &mut self.clients {
            if !client.is_running()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn add(&mut self, from: &Host, to: &Host, channels: u32) -> Result<(), Error> {
        let port = to.enter(|| crate::peers::free_port(to.address().into()))??;
        let mut server = iperf3::IPERF3
            .command()
            .map_err(crate::peers::Error::from)?;
        server
            .args(["--server", "--forceflush"])
            .args(["--bind", &to.address().to_string()])
            .args(["--port", &port.to_string()]);
        let mut server = to.spawn(server, Options::default())?;
        server.wait_for_line(
            Stream::Stdout,
            "say that it listens",
            Duration::from_secs(20),
            |line| line.contains("listening").then_some(()),
        )?;
        let mut client = iperf3::IPERF3
            .command()
            .map_err(crate::peers::Error::from)?;
        client
            .args(["--client", &to.address().to_string()])
            .args(["--port", &port.to_string()])
            .args(["--parallel", &channels.to_string()])
            // A day: until it is dropped.
            .args(["--time", "86400", "--interval", "0"]);
        self._servers.push(server);
        self.clients.push(from.spawn(client, Options::default())?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn members(pgid: Pid) -> usize {
        (fs::read_dir("/proc").expect("proc"))
            .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("stat")).ok())
            .filter(|stat| {
                let Some((_, fields)) = stat.rsplit_once(')') else {
                    return false;
                };
                let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
                fields[0] != "Z" && fields[2] == pgid.as_raw_pid().to_string()
            })
            .count()
    }

    fn wait_for(pgid: Pid, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while members(pgid) != count {
            assert!(Instant::now() < deadline, "{} of {count}", members(pgid));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn busy_processes_come_and_go() {
        for grouping in [Grouping::WithUs, Grouping::OwnSession] {
            let load = ComputeLoad::start(2, grouping).expect("starts");
            let pgid = load.pgid;
            // And the shell that started them.
            wait_for(pgid, 3);
            if grouping == Grouping::WithUs {
                assert_eq!(load.sharing().expect("known"), Sharing::ByThread);
            }
            drop(load);
            wait_for(pgid, 0);
        }
    }

    #[test]
    fn busy_processes_end_with_the_pipe() {
        let mut load = ComputeLoad::start(2, Grouping::OwnSession).expect("starts");
        wait_for(load.pgid, 3);
        // What the kernel does when we die.
        drop(load.child.stdin.take());
        wait_for(load.pgid, 0);
    }
}

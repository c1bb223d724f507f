//! A child program in its own process group, which does not outlive its owner.
//!
//! A server that forks leaves sessions behind when only its first process is ended. So every
//! program gets a process group, and the group is what is killed: on [`Process::stop`], when the
//! first process has ended, and on drop. Destructors do not run when a test run is interrupted or
//! killed, so long-lived programs join the group of a guard that was there before them: a shell
//! that waits for the end of a pipe only we hold open, and then kills its own group.
//!
//! Nothing is done by name, and no process id is used after its process was reaped.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};

pub use rustix::process::Signal;

use super::capture::{Capture, LineWait};
use super::usage::{self, Held, MemoryWatch, ProcessGroup, Usage};
use super::{Error, START_TIMEOUT};

/// How long the rest of the output may take to arrive once the group is dead. Only a process that
/// left its group can hold the pipe longer, and then it is not waited for.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Bounds of the interval at which memory is sampled while waiting. It doubles from the first to
/// the second, so that short programs are seen and long ones are left alone.
const SAMPLE_INTERVALS: (Duration, Duration) =
    (Duration::from_millis(2), Duration::from_millis(100));

/// How often it is tried whether a server listens that does not say so.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How a program is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Bytes of standard output and of standard error that are kept, each; beyond that the middle
    /// is lost. Default 1 MiB; 64 KiB would do for servers, a listing of 10 000 files needs more.
    pub output_limit: usize,
    /// Whether a guard process ends the group should we die without cleaning up. Default true; it
    /// costs about 1 ms, so commands that end by themselves go without.
    pub guarded: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            output_limit: 1 << 20,
            guarded: true,
        }
    }
}

/// Which of a program's streams to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A program that ended, with what it printed and what it cost.
#[derive(Debug, Clone)]
pub struct Finished {
    /// The program, for messages.
    pub program: String,
    /// How it ended.
    pub status: ExitStatus,
    /// Standard output, within [`Options::output_limit`].
    pub stdout: Vec<u8>,
    /// Standard error, within [`Options::output_limit`].
    pub stderr: Vec<u8>,
    /// What the whole group cost.
    pub usage: Usage,
}

impl Finished {
    /// Itself, when the exit status is 0.
    ///
    /// # Errors
    /// [`Error::Failed`] with everything the program printed, otherwise.
    pub fn success(self) -> Result<Finished, Error> {
        if self.status.success() {
            return Ok(self);
        }
        Err(Error::Failed {
            log: self.log(),
            program: self.program,
            status: self.status,
        })
    }

    /// Standard output as text; bytes that are not UTF-8 are replaced.
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text; bytes that are not UTF-8 are replaced.
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Both streams as text, labelled.
    pub fn log(&self) -> String {
        log_text(&self.stdout, &self.stderr)
    }
}

/// Runs a command to its end, at most for `timeout`, and measures it.
///
/// The exit status is not judged; see [`Finished::success`].
///
/// # Errors
/// [`Error::Os`] when it cannot be started, [`Error::TimedOut`] when it was killed for taking too
/// long.
pub fn run(command: Command, timeout: Duration) -> Result<Finished, Error> {
    let options = Options {
        guarded: false,
        ..Options::default()
    };
    Process::spawn(command, options)?.wait(timeout)
}

/// A running program and its process group. Dropping it kills the group.
#[derive(Debug)]
pub struct Process {
    program: String,
    child: Child,
    pid: Pid,
    /// The guard's id, or without a guard the program's own.
    pgid: Pid,
    pidfd: OwnedFd,
    stdout: Capture,
    stderr: Capture,
    guard: Option<Guard>,
    started: Instant,
    peak_rss_bytes: u64,
    ended: Option<(ExitStatus, Usage)>,
}

/// Starts a program on the host that has an address.
pub type Spawn<'a> = dyn Fn(IpAddr, Command) -> Result<Process, Error> + 'a;

/// Starts it where we are, whatever its address: on loopback all addresses are ours.
///
/// # Errors
/// [`Error::Os`].
pub fn spawn_here(_: IpAddr, command: Command) -> Result<Process, Error> {
    Process::spawn(command, Options::default())
}

impl Process {
    /// Starts `command` in a new process group, without standard input, its output captured. The
    /// child inherits the network namespace of the calling thread, so a thread that entered a
    /// namespace of the lab starts peers inside it.
    ///
    /// # Errors
    /// [`Error::Os`] when it cannot be started.
    pub fn spawn(mut command: Command, options: Options) -> Result<Process, Error> {
        let program = command.get_program().to_string_lossy().into_owned();
        let guard = options.guarded.then(Guard::start).transpose()?;
        let group = guard.as_ref().map_or(0, |guard| guard.pgid.as_raw_pid());
        let started = Instant::now();
        let mut child = command
            .process_group(group)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(Error::os(format!("start {program}")))?;
        let pid = Pid::from_child(&child);
        // Only fails when descriptors or memory are exhausted; then the child is not left running.
        let pidfd = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(errno) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(Error::os(format!("watch {program}"))(errno.into()));
            }
        };
        let stdout = child.stdout.take().expect("stdout was set to a pipe");
        let stderr = child.stderr.take().expect("stderr was set to a pipe");
        Ok(Process {
            program,
            child,
            pid,
            pgid: guard.as_ref().map_or(pid, |guard| guard.pgid),
            pidfd,
            stdout: Capture::start(stdout, options.output_limit),
            stderr: Capture::start(stderr, options.output_limit),
            guard,
            started,
            peak_rss_bytes: 0,
            ended: None,
        })
    }

    /// The process id of the program.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The program, for messages.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// What it has printed so far on both streams, labelled, within [`Options::output_limit`].
    pub fn log(&self) -> String {
        log_text(&self.stdout.bytes(), &self.stderr.bytes())
    }

    /// Waits until `pick` returns something for a whole line of `stream`; `what` names that line in
    /// messages. Lines printed earlier count too, as far as they lie in the kept first half of the
    /// output.
    ///
    /// # Errors
    /// [`Error::EndedEarly`] when the stream ends first, [`Error::TimedOut`].
    pub fn wait_for_line<T>(
        &mut self,
        stream: Stream,
        what: &'static str,
        timeout: Duration,
        pick: impl FnMut(&str) -> Option<T>,
    ) -> Result<T, Error> {
        let capture = match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        };
        match capture.wait_for_line(Instant::now() + timeout, pick) {
            LineWait::Found(value) => Ok(value),
            LineWait::Closed => {
                // The stream of a dying process ends a moment before the process does, and its
                // last words on the other stream say why.
                let status = match self.wait_exit(DRAIN_TIMEOUT) {
                    Ok(true) => self.reap().ok().map(|(status, _)| status),
                    _ => None,
                };
                if status.is_some() {
                    self.drain();
                }
                Err(Error::EndedEarly {
                    program: self.program.clone(),
                    status,
                    log: self.log(),
                })
            }
            LineWait::TimedOut => Err(Error::TimedOut {
                program: self.program.clone(),
                what,
                waited: timeout,
                log: self.log(),
            }),
        }
    }

    /// Whether the first process still runs.
    ///
    /// # Errors
    /// [`Error::Os`] when the kernel cannot say.
    pub fn is_running(&mut self) -> Result<bool, Error> {
        Ok(self.ended.is_none() && !self.wait_exit(Duration::ZERO)?)
    }

    /// Waits at most `timeout` for the end of the first process; whether it has come.
    ///
    /// # Errors
    /// [`Error::Os`] when the kernel cannot say.
    pub fn ended_within(&mut self, timeout: Duration) -> Result<bool, Error> {
        self.wait_exit(timeout)
    }

    /// Sends a signal to the first process only: what an administrator does to a daemon. Nothing
    /// happens when it has ended.
    ///
    /// # Errors
    /// [`Error::Os`] when the kernel refuses.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        if self.ended.is_some() {
            return Ok(());
        }
        ignore_gone(rustix::process::kill_process(self.pid, signal))
            .map_err(Error::os(format!("signal {}", self.program)))
    }

    /// Waits until something takes connections at `addr`, for a server that does not say when;
    /// `log`: its words.
    ///
    /// # Errors
    /// [`Error::EndedEarly`] and, after [`START_TIMEOUT`], [`Error::TimedOut`], with its words.
    pub fn await_listening(
        &mut self,
        addr: SocketAddr,
        log: impl Fn(&Self) -> String,
    ) -> Result<(), Error> {
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(addr).is_err() {
            if self.ended_within(LOOK_AGAIN)? {
                return Err(Error::EndedEarly {
                    program: self.program.clone(),
                    status: None,
                    log: log(self),
                });
            }
            if Instant::now() > deadline {
                return Err(Error::TimedOut {
                    program: self.program.clone(),
                    what: "listen",
                    waited: START_TIMEOUT,
                    log: log(self),
                });
            }
        }
        Ok(())
    }

    /// Sends a signal to the whole group, for example STOP and CONT to freeze a peer and its
    /// sessions. Nothing happens when it has ended.
    ///
    /// # Errors
    /// [`Error::Os`] when the kernel refuses.
    pub fn signal_group(&self, signal: Signal) -> Result<(), Error> {
        if self.ended.is_some() {
            return Ok(());
        }
        ignore_gone(rustix::process::kill_process_group(self.pgid, signal))
            .map_err(Error::os(format!("signal the group of {}", self.program)))
    }

    /// What the group has cost so far; final once it has ended.
    pub fn usage(&self) -> Usage {
        match self.ended {
            Some((_, usage)) => usage,
            None => self.usage_now(),
        }
    }

    /// What the group holds now.
    pub fn held(&self) -> Held {
        usage::held_by_group(self.group())
    }

    /// Starts to sample the memory of the group every `interval`.
    pub fn watch_memory(&self, interval: Duration) -> MemoryWatch {
        MemoryWatch::start(self.group(), interval)
    }

    /// Waits for the end of the first process, then ends what it left in its group.
    ///
    /// # Errors
    /// [`Error::TimedOut`] when it had to be killed after `timeout`.
    pub fn wait(mut self, timeout: Duration) -> Result<Finished, Error> {
        if self.wait_exit(timeout)? {
            return self.finish();
        }
        let program = self.program.clone();
        self.reap()?;
        self.drain();
        Err(Error::TimedOut {
            program,
            what: "end",
            waited: timeout,
            log: self.log(),
        })
    }

    /// Kills the group and returns what is known of it.
    ///
    /// # Errors
    /// [`Error::Os`] when the kernel refuses.
    pub fn stop(self) -> Result<Finished, Error> {
        self.finish()
    }

    /// Asks the first process to end (TERM), waits at most `grace`, then kills what is left.
    ///
    /// # Errors
    /// [`Error::Os`] when the kernel refuses.
    pub fn terminate(mut self, grace: Duration) -> Result<Finished, Error> {
        self.signal(Signal::TERM)?;
        self.wait_exit(grace)?;
        self.finish()
    }

    fn finish(mut self) -> Result<Finished, Error> {
        let (status, usage) = self.reap()?;
        self.drain();
        Ok(Finished {
            program: self.program.clone(),
            status,
            stdout: self.stdout.bytes(),
            stderr: self.stderr.bytes(),
            usage,
        })
    }

    /// Waits until the first process has ended, without reaping it: until then its counters can
    /// be read and its id cannot be given to another process. False after `timeout`.
    fn wait_exit(&mut self, timeout: Duration) -> Result<bool, Error> {
        if self.ended.is_some() {
            return Ok(true);
        }
        let deadline = Instant::now() + timeout;
        let mut interval = SAMPLE_INTERVALS.0;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if poll_readable(&self.pidfd, left.min(interval))
                .map_err(Error::os(format!("wait for {}", self.program)))?
            {
                return Ok(true);
            }
            if left.is_zero() {
                return Ok(false);
            }
            let peak = usage::peak_rss_bytes(self.pid).unwrap_or(0);
            self.peak_rss_bytes = self.peak_rss_bytes.max(peak);
            interval = (interval * 2).min(SAMPLE_INTERVALS.1);
        }
    }

    /// Waits for what the dead group printed last, which other threads still read.
    fn drain(&self) {
        self.stdout.wait_closed(DRAIN_TIMEOUT);
        self.stderr.wait_closed(DRAIN_TIMEOUT);
    }

    fn group(&self) -> ProcessGroup {
        ProcessGroup {
            pgid: self.pgid,
            guard: (self.pgid != self.pid).then_some(self.pgid),
        }
    }

    fn usage_now(&self) -> Usage {
        let mut usage = usage::of_group(self.group());
        usage.wall = self.started.elapsed();
        usage.peak_rss_bytes = usage.peak_rss_bytes.max(self.peak_rss_bytes);
        usage
    }

    /// Measures, kills the group, then reaps. In this order: the counters of a reaped process are
    /// gone, and its id, which names the group, may belong to another program.
    fn reap(&mut self) -> Result<(ExitStatus, Usage), Error> {
        if let Some(ended) = self.ended {
            return Ok(ended);
        }
        let usage = self.usage_now();
        self.signal_group(Signal::KILL)?;
        let status = self
            .child
            .wait()
            .map_err(Error::os(format!("reap {}", self.program)))?;
        self.ended = Some((status, usage));
        // Reaped last: until then the group's id is ours. Its pipe stays open so long.
        self.guard = None;
        Ok((status, usage))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // No caller is left to report an error to; the group was killed unless the kernel refused.
        let _ = self.reap();
    }
}

/// The process that kills its own group when its pipe from us ends. Dropping it ends it before it
/// can act.
#[derive(Debug)]
struct Guard {
    child: Child,
    pgid: Pid,
}

impl Guard {
    fn start() -> Result<Guard, Error> {
        let child = Command::new("/bin/sh")
            .args(["-c", "read -r _; kill -s KILL 0"])
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(Error::os("start the guard of a process group"))?;
        let pgid = Pid::from_child(&child);
        Ok(Guard { child, pgid })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Waiting closes the pipe first, so the guard must be dead by then. Killing fails only
        // when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn poll_readable(fd: &OwnedFd, timeout: Duration) -> io::Result<bool> {
    let timeout =
        Timespec::try_from(timeout).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    match rustix::event::poll(&mut fds, Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        // The caller's loop comes back with what is left of its time.
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

fn ignore_gone(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Err(rustix::io::Errno::SRCH) => Ok(()),
        other => other.map_err(io::Error::from),
    }
}

fn log_text(stdout: &[u8], stderr: &[u8]) -> String {
    let mut text = String::new();
    for (label, bytes) in [("stdout", stdout), ("stderr", stderr)] {
        if !bytes.is_empty() {
            text.push_str(&format!("--- {label}\n"));
            text.push_str(&String::from_utf8_lossy(bytes));
            if !text.ends_with('\n') {
                text.push('\n');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    fn group_is_alive(pgid: Pid) -> bool {
        // Orphans may stay zombies until init takes them; what counts is that none can run.
        std::fs::read_dir("/proc")
            .expect("proc")
            .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("stat")).ok())
            .filter_map(|stat| {
                let fields = stat.rsplit_once(')')?.1.to_owned();
                let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
                Some((fields[0].to_owned(), fields[2].parse::<i32>().ok()?))
            })
            .any(|(state, group)| group == pgid.as_raw_pid() && state != "Z" && state != "X")
    }

    fn wait_until_group_is_dead(pgid: Pid) {
        let deadline = Instant::now() + LONG;
        while group_is_alive(pgid) {
            assert!(Instant::now() < deadline, "group {pgid:?} is alive");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn output_and_status_come_back() {
        let finished = run(shell("echo out; echo err >&2; exit 3"), LONG).expect("runs");
        assert_eq!(finished.status.code(), Some(3));
        assert_eq!(finished.stdout_text(), "out\n");
        assert_eq!(finished.stderr_text(), "err\n");
        assert_eq!(finished.log(), "--- stdout\nout\n--- stderr\nerr\n");
        assert!(matches!(finished.success(), Err(Error::Failed { .. })));
    }

    #[test]
    fn endless_output_is_bounded_and_does_not_block() {
        let options = Options {
            output_limit: 1000,
            guarded: false,
        };
        let process = Process::spawn(shell("head -c 1000000 /dev/zero"), options).expect("starts");
        let finished = process.wait(LONG).expect("ends").success().expect("0");
        assert!(finished.stdout.len() < 1100, "{}", finished.stdout.len());
    }

    #[test]
    fn slow_programs_are_killed_with_their_children() {
        let command = shell("sleep 1000 & echo $$; sleep 1000");
        let options = Options::default();
        let mut process = Process::spawn(command, options).expect("starts");
        let pick = |line: &str| line.parse::<u32>().ok();
        let id = process
            .wait_for_line(Stream::Stdout, "print its id", LONG, pick)
            .expect("prints");
        assert_eq!(id, process.id());
        let pgid = process.pgid;
        let error = process.wait(Duration::from_millis(1)).expect_err("sleeps");
        assert!(
            matches!(error, Error::TimedOut { what: "end", .. }),
            "{error}"
        );
        wait_until_group_is_dead(pgid);
    }

    #[test]
    fn children_do_not_outlive_their_parent() {
        let finished = run(shell("sleep 1000 & echo $$"), LONG).expect("ends");
        let id = finished.stdout_text().trim().parse().expect("an id");
        let pgid = Pid::from_raw(id).expect("not zero");
        wait_until_group_is_dead(pgid);
    }

    #[test]
    fn dropping_kills_the_group() {
        let mut process =
            Process::spawn(shell("sleep 1000 & sleep 1000"), Options::default()).expect("starts");
        assert!(process.is_running().expect("known"));
        let pgid = process.pgid;
        drop(process);
        wait_until_group_is_dead(pgid);
    }

    #[test]
    fn the_guard_kills_the_group_when_its_pipe_ends() {
        let mut process = Process::spawn(shell("sleep 1000"), Options::default()).expect("starts");
        let guard = process.guard.as_mut().expect("guarded by default");
        // What the kernel does when we die.
        drop(guard.child.stdin.take());
        assert!(process.wait_exit(LONG).expect("known"));
        let finished = process.stop().expect("ends");
        assert_eq!(finished.status.code(), None, "killed by a signal");
    }

    #[test]
    fn a_server_that_dies_early_says_why() {
        let command = shell("echo no such option >&2; exit 2");
        let mut process = Process::spawn(command, Options::default()).expect("starts");
        let error = process
            .wait_for_line(Stream::Stdout, "say that it listens", LONG, |_| Some(()))
            .expect_err("prints no line");
        let Error::EndedEarly { status, log, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(status.and_then(|s| s.code()), Some(2));
        assert!(log.contains("no such option"), "{log}");
    }

    #[test]
    fn termination_is_polite_first() {
        let command =
            shell("trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done");
        let mut process = Process::spawn(command, Options::default()).expect("starts");
        let ready = |line: &str| (line == "ready").then_some(());
        process
            .wait_for_line(Stream::Stdout, "get ready", LONG, ready)
            .expect("ready");
        let finished = process.terminate(LONG).expect("ends").success().expect("0");
        assert_eq!(finished.stdout_text(), "ready\nbye\n");
    }

    #[test]
    fn cost_includes_children() {
        // The inner shell is a child of the measured one and burns the time.
        let script = "sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done'; true";
        let finished = run(shell(script), LONG).expect("ends");
        let usage = finished.usage;
        assert!(usage.cpu() > Duration::ZERO, "{usage:?}");
        assert!(usage.wall >= usage.user, "{usage:?}");
        assert!(usage.peak_rss_bytes > 0, "{usage:?}");
    }

    #[test]
    fn memory_of_a_running_group_is_seen() {
        let mut process = Process::spawn(shell("sleep 1000 & echo up; wait"), Options::default())
            .expect("starts");
        let up = |line: &str| (line == "up").then_some(());
        process
            .wait_for_line(Stream::Stdout, "come up", LONG, up)
            .expect("up");
        let watch = process.watch_memory(Duration::from_secs(1));
        let deadline = Instant::now() + LONG;
        // The first sample is taken at once, on another thread.
        while watch.seen() == 0 {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(1));
        }
        let peak = watch.stop();
        assert!(peak.total_bytes > 0 && peak.single_bytes > 0, "{peak:?}");
    }
}

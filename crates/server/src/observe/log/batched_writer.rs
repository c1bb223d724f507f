//! Writes log lines in batches.
//!
//! A write for each line costs the server and the reader a system call and often a wake-up: with
//! one line for each small file, a twentieth of all time.

use std::{
    io::{self, Write},
    mem,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Longest time that a line waits for others. One that comes when none was sent for so long does
/// not wait.
const WAIT: Duration = Duration::from_millis(20);

/// Lines that wait, bytes: what a pipe holds by default.
const ROOM: usize = 64 * 1024;

/// Waiting lines.
pub(crate) struct BatchedWriter {
    state: Mutex<State>,
    /// A line waits.
    waits: Condvar,
}

struct State {
    out: Box<dyn Write + Send>,
    lines: Vec<u8>,
    /// When lines were sent last.
    sent: Option<Instant>,
    /// A thread sends waiting lines.
    carried: bool,
}

impl BatchedWriter {
    /// Each line is sent at once until there is a thread that [carries](Self::carry) them.
    pub(crate) fn to(out: Box<dyn Write + Send>) -> Self {
        let state = State {
            out,
            lines: Vec::new(),
            sent: None,
            carried: false,
        };
        Self {
            state: Mutex::new(state),
            waits: Condvar::new(),
        }
    }

    /// Starts a thread that sends waiting lines; if it cannot start, no line waits.
    pub(crate) fn carry(&'static self) {
        let carries = mem::replace(&mut self.state().carried, true);
        let send = || {
            loop {
                let state = self.waits.wait_while(self.state(), |s| s.lines.is_empty());
                drop(state);
                thread::sleep(WAIT);
                self.flush();
            }
        };
        let start = || thread::Builder::new().name("log".to_owned()).spawn(send);
        if !carries && start().is_err() {
            self.state().carried = false;
        }
    }

    /// Sends waiting lines.
    pub(crate) fn flush(&self) {
        self.state().send();
    }

    pub(crate) fn put(&self, line: &[u8], at_once: bool) {
        let mut state = self.state();
        let first = state.lines.is_empty();
        state.lines.extend_from_slice(line);
        let quiet = state.sent.is_none_or(|sent| sent.elapsed() >= WAIT);
        if at_once || quiet || !state.carried || state.lines.len() >= ROOM {
            state.send();
        } else if first {
            self.waits.notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic leaves a line out at worst.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn send(&mut self) {
        if self.lines.is_empty() {
            return;
        }
        // The server continues when no process reads its log.
        let _ = self.out.write_all(&self.lines);
        self.lines.clear();
        self.sent = Some(Instant::now());
    }
}

impl<'a> MakeWriter<'a> for &'static BatchedWriter {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line {
            of: self,
            at_once: true,
        }
    }

    /// Warnings and errors do not wait.
    fn make_writer_for(&'a self, event: &Metadata<'_>) -> Line {
        Line {
            of: self,
            at_once: *event.level() <= Level::WARN,
        }
    }
}

/// One line on its way.
pub(crate) struct Line {
    of: &'static BatchedWriter,
    at_once: bool,
}

impl Write for Line {
    /// An event arrives in one call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.of.put(line, self.at_once);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Notes each write.
    struct Writes(mpsc::Sender<String>);

    impl Write for Writes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0
                .send(String::from_utf8_lossy(bytes).into_owned())
                .map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn gathered() -> (&'static BatchedWriter, mpsc::Receiver<String>) {
        let (sender, receiver) = mpsc::channel();
        let lines = BatchedWriter::to(Box::new(Writes(sender)));
        (Box::leak(Box::new(lines)), receiver)
    }

    /// Lines wait for as long as the test runs: no thread writes them.
    fn never_carried() -> (&'static BatchedWriter, mpsc::Receiver<String>) {
        let (lines, writes) = gathered();
        let mut state = lines.state();
        state.carried = true;
        state.sent = Instant::now().checked_add(Duration::from_secs(3600));
        drop(state);
        (lines, writes)
    }

    #[test]
    fn without_a_thread_each_line_leaves_at_once() {
        let (lines, writes) = gathered();
        lines.put(b"a\n", false);
        lines.put(b"b\n", false);
        assert_eq!(writes.try_iter().collect::<Vec<_>>(), ["a\n", "b\n"]);
    }

    #[test]
    fn lines_in_quick_succession_leave_together() {
        let (lines, writes) = never_carried();
        lines.put(b"a\n", false);
        lines.put(b"b\n", false);
        assert_eq!(writes.try_recv(), Err(mpsc::TryRecvError::Empty));
        lines.flush();
        lines.flush();
        assert_eq!(writes.try_iter().collect::<Vec<_>>(), ["a\nb\n"]);
    }

    #[test]
    fn a_warning_flushes_waiting_lines() {
        let (lines, writes) = never_carried();
        lines.put(b"a\n", false);
        lines.put(b"beware\n", true);
        assert_eq!(writes.try_iter().collect::<Vec<_>>(), ["a\nbeware\n"]);
    }

    #[test]
    fn no_more_waits_than_there_is_room_for() {
        let (lines, writes) = never_carried();
        let line = [b'x'; ROOM / 2];
        lines.put(&line, false);
        assert_eq!(writes.try_recv(), Err(mpsc::TryRecvError::Empty));
        lines.put(&line, false);
        assert_eq!(writes.try_recv().map(|all| all.len()), Ok(ROOM));
    }

    #[test]
    fn waiting_lines_are_written() {
        let (lines, writes) = gathered();
        lines.carry();
        lines.carry();
        let written: Vec<String> = (0..100).map(|n| format!("{n}\n")).collect();
        for line in &written {
            lines.put(line.as_bytes(), false);
        }
        let written = written.concat();
        let mut seen = String::new();
        while seen.len() < written.len() {
            let more = writes.recv_timeout(Duration::from_secs(60));
            seen.push_str(&more.expect("lines that wait are sent"));
        }
        assert_eq!(seen, written);
    }

    #[test]
    fn an_event_waits_by_its_level() {
        let (lines, writes) = never_carried();
        let subscriber = tracing_subscriber::fmt().with_writer(lines);
        tracing::subscriber::with_default(subscriber.finish(), || {
            tracing::info!("first");
            assert_eq!(writes.try_recv(), Err(mpsc::TryRecvError::Empty));
            tracing::error!("second");
        });
        let written = writes.try_iter().collect::<Vec<_>>().concat();
        assert!(
            written.contains("first") && written.contains("second"),
            "{written}"
        );
    }
}

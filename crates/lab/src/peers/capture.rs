//! What a program printed, within bounds: the beginning and the end are kept, the middle is lost.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

/// A stream that a thread reads to its end.
#[derive(Debug, Clone)]
pub(super) struct Capture {
    shared: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Debug)]
struct State {
    kept: Kept,
    closed: bool,
}

impl Capture {
    /// Starts to read `source`, keeping at most `limit` bytes of it. It is read to its end however
    /// much it says, so that a talkative program never blocks on a full pipe.
    pub(super) fn start(mut source: impl Read + Send + 'static, limit: usize) -> Capture {
        let capture = Capture {
            shared: Arc::new((
                Mutex::new(State {
                    kept: Kept::new(limit),
                    closed: false,
                }),
                Condvar::new(),
            )),
        };
        let writer = capture.clone();
        std::thread::spawn(move || {
            let mut buffer = [0_u8; 16 * 1024];
            loop {
                match source.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(n) => writer.state().kept.push(&buffer[..n]),
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                    Err(_) => break,
                }
                writer.shared.1.notify_all();
            }
            writer.state().closed = true;
            writer.shared.1.notify_all();
        });
        capture
    }

    /// What is kept so far.
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.state().kept.to_vec()
    }

    /// Waits until `pick` returns something for a whole line, or the stream ends, or `deadline`
    /// passes. Lines beyond the kept beginning are not seen.
    pub(super) fn wait_for_line<T>(
        &self,
        deadline: Instant,
        mut pick: impl FnMut(&str) -> Option<T>,
    ) -> LineWait<T> {
        let mut state = self.state();
        let mut seen = 0;
        loop {
            while let Some(length) = state.kept.head[seen..].iter().position(|&b| b == b'\n') {
                let line = String::from_utf8_lossy(&state.kept.head[seen..seen + length]);
                if let Some(picked) = pick(line.trim_end_matches('\r')) {
                    return LineWait::Found(picked);
                }
                seen += length + 1;
            }
            if state.closed {
                return LineWait::Closed;
            }
            if self.shared.1.wait_until(&mut state, deadline).timed_out() {
                return LineWait::TimedOut;
            }
        }
    }

    /// Waits until the stream has ended, at most for `limit`; false when it has not.
    pub(super) fn wait_closed(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut state = self.state();
        while !state.closed {
            if self.shared.1.wait_until(&mut state, deadline).timed_out() {
                return state.closed;
            }
        }
        true
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.0.lock()
    }
}

/// How [`Capture::wait_for_line`] ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LineWait<T> {
    Found(T),
    Closed,
    TimedOut,
}

/// The first and the last bytes of a stream.
#[derive(Debug)]
struct Kept {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// Bound of each of the two, bytes.
    half: usize,
    dropped: u64,
}

impl Kept {
    fn new(limit: usize) -> Kept {
        Kept {
            head: Vec::new(),
            tail: VecDeque::new(),
            half: limit.div_ceil(2),
            dropped: 0,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        let room = self.half - self.head.len();
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(first);
        self.tail.extend(rest);
        let excess = self.tail.len().saturating_sub(self.half);
        self.tail.drain(..excess);
        self.dropped += excess as u64;
    }

    fn to_vec(&self) -> Vec<u8> {
        let mut bytes = self.head.clone();
        if self.dropped > 0 {
            bytes.extend(format!("\n[{} bytes left out]\n", self.dropped).bytes());
        }
        bytes.extend(&self.tail);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[test]
    fn short_output_is_kept_whole() {
        let mut kept = Kept::new(10);
        kept.push(b"0123");
        kept.push(b"456789");
        assert_eq!(kept.to_vec(), b"0123456789");
    }

    #[test]
    fn long_output_loses_its_middle() {
        let mut kept = Kept::new(4);
        kept.push(b"ab");
        kept.push(b"cdefgh");
        kept.push(b"ij");
        assert_eq!(kept.to_vec(), b"ab\n[6 bytes left out]\nij");
    }

    #[test]
    fn waits_for_whole_lines_only() {
        let capture = Capture::start(&b"one\r\ntwo\nready"[..], 100);
        let picked = capture.wait_for_line(soon(), |line| (line == "two").then_some(2));
        assert_eq!(picked, LineWait::Found(2));
        let picked = capture.wait_for_line(soon(), |line| (line == "ready").then_some(()));
        assert_eq!(picked, LineWait::Closed);
        assert!(capture.wait_closed(Duration::from_secs(10)));
        assert_eq!(capture.bytes(), b"one\r\ntwo\nready");
    }

    #[test]
    fn a_silent_stream_times_out() {
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        let capture = Capture::start(reader, 100);
        let picked = capture.wait_for_line(Instant::now(), |_| Some(()));
        assert_eq!(picked, LineWait::TimedOut);
    }
}

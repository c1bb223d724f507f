//! Failures on a schedule: links that are cut, slowed or corrupt packets, and callbacks at given
//! times, such as killing a server.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use godwit_lab::chaos::Plan;
//! # use godwit_lab::network::{Network, NetworkConfig, Paths};
//! # use godwit_lab::path::{Alteration, Corruption, PathConfig};
//! # let path = PathConfig::new(1_000_000_000, 10_000_000);
//! # let network = Network::start(&NetworkConfig::pair(Paths::same(path)))?;
//! let second = Duration::from_secs(1);
//! let running = Plan::new()
//!     .cut(second, &["left>right", "right>left"])
//!     .heal(2 * second, &["left>right", "right>left"])
//!     .alter(3 * second, "left>right", Alteration::DelayNs(50_000_000))
//!     .call(4 * second, "kill the server", || { /* server.crash() */ })
//!     .start(&network.control())?;
//! // ... the transfer ...
//! let happened = running.stop();
//! # Ok::<(), godwit_lab::network::Error>(())
//! ```

use std::fmt;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::emulator::{self, Control};
use crate::path::Alteration;

/// What is to happen and when. Links change to the nanosecond of the emulator's clock; calls are
/// made within a millisecond or so.
#[derive(Debug, Default)]
pub struct Plan {
    alterations: Vec<(Duration, String, Alteration)>,
    calls: Vec<Call>,
}

struct Call {
    at: Duration,
    what: String,
    action: Box<dyn FnOnce() + Send>,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:?}", self.what, self.at)
    }
}

impl Plan {
    /// Nothing happens.
    pub fn new() -> Plan {
        Plan::default()
    }

    /// Changes a link, `at` after the start.
    #[must_use]
    pub fn alter(mut self, at: Duration, link: &str, to: Alteration) -> Plan {
        self.alterations.push((at, link.to_owned(), to));
        self
    }

    /// Cuts links.
    #[must_use]
    pub fn cut(self, at: Duration, links: &[&str]) -> Plan {
        (links.iter()).fold(self, |plan, link| plan.alter(at, link, Alteration::Cut))
    }

    /// Ends cuts.
    #[must_use]
    pub fn heal(self, at: Duration, links: &[&str]) -> Plan {
        (links.iter()).fold(self, |plan, link| plan.alter(at, link, Alteration::Heal))
    }

    /// Calls `action`, `at` after the start; `what` names it in the account of what happened.
    #[must_use]
    pub fn call(
        mut self,
        at: Duration,
        what: &str,
        action: impl FnOnce() + Send + 'static,
    ) -> Plan {
        self.calls.push(Call {
            at,
            what: what.to_owned(),
            action: Box::new(action),
        });
        self
    }

    /// Starts the clock. Changes of links happen even when the result is dropped; calls do not.
    ///
    /// # Errors
    /// [`emulator::Error`] when a link does not exist or a change makes no sense.
    pub fn start(mut self, control: &Control) -> Result<Running, emulator::Error> {
        let start = Instant::now();
        for (at, link, to) in self.alterations {
            control.alter(&link, at.saturating_sub(start.elapsed()), to)?;
        }
        self.calls.sort_by_key(|call| call.at);
        let (stop, stopped) = mpsc::channel::<()>();
        let calls = self.calls;
        let thread = std::thread::spawn(move || {
            let mut happened = Vec::new();
            for call in calls {
                let left = call.at.saturating_sub(start.elapsed());
                if stopped.recv_timeout(left) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
                (call.action)();
                happened.push(call.what);
            }
            happened
        });
        Ok(Running {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

/// A plan that has begun. Dropping it makes no more calls.
#[derive(Debug)]
pub struct Running {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Vec<String>>>,
}

impl Running {
    /// Waits until all calls are made, and returns their names.
    pub fn wait(mut self) -> Vec<String> {
        self.join()
    }

    /// Makes no more calls, and returns the names of those made.
    pub fn stop(mut self) -> Vec<String> {
        self.stop = None;
        self.join()
    }

    fn join(&mut self) -> Vec<String> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(happened)) => happened,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Vec::new(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic in a call was reported when it happened.
            let _ = thread.join();
        }
    }
}

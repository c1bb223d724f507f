//! Limits of time.

use std::time::Duration;

/// How long each step may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From a name to its addresses.
    pub resolve: Duration,
    /// All addresses of a name together.
    pub connect: Duration,
    /// TLS.
    pub handshake: Duration,
    /// From the end of a request to the head of its answer.
    pub answer: Duration,
    /// Without a byte of a body, in either direction.
    pub silence: Duration,
    /// How long a server is waited for that was asked whether it wants the body.
    pub go_ahead: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            resolve: Duration::from_secs(20),
            connect: Duration::from_secs(30),
            handshake: Duration::from_secs(30),
            answer: Duration::from_secs(120),
            silence: Duration::from_secs(60),
            go_ahead: Duration::from_secs(2),
        }
    }
}

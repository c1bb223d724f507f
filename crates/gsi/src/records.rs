//! What follows the handshake of a protected data channel: clear bytes to records and back, in the
//! caller's buffers.
//!
//! ```text
//!   handshake (OpenSSL) ──► TLS 1.3: the traffic secrets ──► Traffic: keys of both directions
//!                      └──► TLS 1.2: OpenSSL between two buffers, as on control channels
//! ```
//! Bytes are sealed where they were put ([`Outgoing`]), and a record is opened where it lies: the
//! clear bytes of a buffer end up side by side at its beginning, and nothing is copied on the way.
//! See `docs/adr/0065-own-tls-records.md`.

use std::fmt;

use openssl::ssl::SslRef;

use crate::outgoing::Outgoing;
pub use crate::record::{Opened, RECORD_BYTES_MAX, RECORD_CLEAR_BYTES_MAX};
use crate::record::{WrapError, record_bytes};
use crate::tls::{ReadOutcome, Tls, take_traffic};
pub use crate::traffic::{Cipher, SendingKeys};
use crate::traffic::{Content, Suite, Traffic};

/// Most bytes of TLS's own answers that wait for data to be written: a peer may ask for new keys
/// again and again and never let us write. Some hundreds of such answers; one is due after some
/// hundred gigabytes.
const ANSWERS_BYTES_MAX: usize = 16 * 1024;

/// Records that may be sealed under one key.
pub const RECORDS_A_KEY_MAX: u64 = crate::traffic::RECORDS_MAX;

/// The message of the handshake (a record of type [`HANDSHAKE`]) that tells the peer that new keys
/// follow (RFC 8446 §4.6.3).
pub const NEW_KEYS: [u8; 5] = crate::traffic::NEW_KEYS;

/// Type of a record that holds messages of the handshake.
pub const HANDSHAKE: u8 = Content::Handshake as u8;

/// Seals and opens the bytes of one data connection.
pub struct Records(Kind);

enum Kind {
    Tls13(Box<Traffic>),
    Tls12(Box<Tls>),
}

impl Records {
    /// Goes on behind the handshake that `tls` has finished.
    pub(crate) fn behind(mut tls: Tls) -> Self {
        Self(match tls.take_traffic() {
            Some(traffic) => Kind::Tls13(Box::new(traffic)),
            None => Kind::Tls12(Box::new(tls)),
        })
    }

    /// Goes on behind the handshake of a connection whose socket OpenSSL reads and writes itself,
    /// once. `None` with TLS 1.2, which OpenSSL carries further.
    #[must_use]
    pub fn of_connection(ssl: &SslRef) -> Option<Self> {
        let traffic = take_traffic(ssl)?;
        Some(Self(Kind::Tls13(Box::new(traffic))))
    }

    /// Goes on behind a handshake of TLS 1.3 by the suite of this name that had these application
    /// traffic secrets. `None` when they are not of that suite, or there is none.
    #[must_use]
    pub fn with_secrets(suite: &str, ours: &[u8], theirs: &[u8]) -> Option<Self> {
        let traffic = Traffic::new(Suite::named(suite)?, ours, theirs)?;
        Some(Self(Kind::Tls13(Box::new(traffic))))
    }

    /// What seals the records that we send, for the kernel to do it in our stead from now on:
    /// [`Self::seal`] and [`Self::close`] are not to be called any more. `None` with TLS 1.2.
    ///
    /// # Errors
    /// When there are no such keys.
    pub fn sending_keys(&self) -> Result<Option<SendingKeys>, WrapError> {
        match &self.0 {
            Kind::Tls13(traffic) => traffic.sending_keys().map(Some),
            Kind::Tls12(_) => Ok(None),
        }
    }

    /// The keys behind [`Self::sending_keys`], once [`NEW_KEYS`] has been sealed with those: before
    /// more than [`RECORDS_A_KEY_MAX`] records are, and where [`Self::owes_new_keys`].
    ///
    /// # Errors
    /// When there are no such keys.
    pub fn renew_sending_keys(&mut self) -> Result<Option<SendingKeys>, WrapError> {
        match &mut self.0 {
            Kind::Tls13(traffic) => traffic.renew_sending_keys().map(Some),
            Kind::Tls12(_) => Ok(None),
        }
    }

    /// The peer has asked for new keys, which come before anything else is sealed. [`Self::seal`]
    /// sees to it.
    #[must_use]
    pub fn owes_new_keys(&self) -> bool {
        matches!(&self.0, Kind::Tls13(traffic) if traffic.owes_keys())
    }

    /// Makes records of all that was put into `outgoing`: one for each [`RECORD_CLEAR_BYTES_MAX`],
    /// of at most 29 bytes more.
    ///
    /// # Errors
    /// When the stream is broken, after which it stays so.
    pub fn seal(&mut self, outgoing: &mut Outgoing) -> Result<(), WrapError> {
        match &mut self.0 {
            Kind::Tls13(traffic) => traffic.seal(Content::Data, outgoing),
            Kind::Tls12(tls) => {
                outgoing.seal_elsewhere(|part, sealed| Ok(tls.write_to(part, sealed)?))
            }
        }
    }

    /// Opens all whole records at the beginning of `bytes`, in place. Behind the clear bytes the
    /// buffer has no meaning up to [`Opened::taken`].
    ///
    /// # Errors
    /// When a record was changed, is missing, is longer than records are or is not TLS at all.
    pub fn open(&mut self, bytes: &mut [u8]) -> Result<Opened, WrapError> {
        match &mut self.0 {
            Kind::Tls13(traffic) => traffic.open(bytes),
            Kind::Tls12(tls) => open_by(tls, bytes),
        }
    }

    /// Makes the record that says that nothing follows (close_notify), where nothing is in
    /// `outgoing`. A stream that is broken says nothing.
    pub fn close(&mut self, outgoing: &mut Outgoing) {
        match &mut self.0 {
            Kind::Tls13(traffic) => traffic.close(outgoing),
            Kind::Tls12(tls) => {
                tls.close();
                outgoing.set_sealed(tls.take_output());
            }
        }
    }
}

/// Without any key.
impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Tls13(_) => "Records(TLS 1.3)",
            Kind::Tls12(_) => "Records(TLS 1.2)",
        })
    }
}

/// OpenSSL is given whole records only: what they open to is then shorter than they are, and fits
/// where they were.
fn open_by(tls: &mut Tls, bytes: &mut [u8]) -> Result<Opened, WrapError> {
    let mut taken = 0;
    while let Some(length) = record_bytes(&bytes[taken..])? {
        taken += length;
    }
    tls.feed(&bytes[..taken]);
    let mut clear = 0;
    loop {
        // Of one byte more than fits there is never any.
        if clear == taken {
            break;
        }
        match read_bounded(tls, &mut bytes[clear..taken])? {
            ReadOutcome::Bytes(count) => clear += count,
            ReadOutcome::Starved => break,
            ReadOutcome::Closed => {
                return Ok(Opened {
                    clear,
                    taken,
                    is_closed: true,
                });
            }
        }
    }
    Ok(Opened {
        clear,
        taken,
        is_closed: false,
    })
}

/// The next clear bytes, of one record at most.
pub(crate) fn read_bounded(tls: &mut Tls, clear: &mut [u8]) -> Result<ReadOutcome, WrapError> {
    let outcome = tls.read(clear)?;
    match tls.output_waits() > ANSWERS_BYTES_MAX {
        true => Err(WrapError::Answers),
        false => Ok(outcome),
    }
}

//! What the handshakes of GSI and of FTP's own TLS share: the bound of what they read, the bytes
//! for the peer, and the outcome.

use std::time::SystemTime;

use super::{ContextError, HANDSHAKE_BYTES_MAX};
use crate::tls::{Tls, TlsFault};

/// The rules of one kind of handshake.
pub(crate) trait Driver {
    type Outcome;

    /// Goes as far as the bytes that were fed allow; `true` when the handshake is complete. What
    /// `tls` has written for the peer leaves only if it is moved to `output`.
    fn advance(
        &mut self,
        tls: &mut Tls,
        now: SystemTime,
        output: &mut Vec<u8>,
    ) -> Result<bool, ContextError>;

    fn finish(&mut self, tls: Tls, now: SystemTime) -> Result<Self::Outcome, ContextError>;

    /// Bytes behind the handshake.
    fn rest(outcome: &mut Self::Outcome) -> &mut Vec<u8>;
}

/// A handshake of either kind and role.
pub(crate) struct Machine<D: Driver> {
    pub(crate) driver: D,
    /// `None` once it is complete or has failed.
    tls: Option<Tls>,
    bytes_in: usize,
    output: Vec<u8>,
    outcome: Option<D::Outcome>,
}

impl<D: Driver> Machine<D> {
    /// Waits for the peer.
    pub(crate) const fn new(driver: D, tls: Tls) -> Self {
        Self {
            driver,
            tls: Some(tls),
            bytes_in: 0,
            output: Vec::new(),
            outcome: None,
        }
    }

    /// Speaks first: the first bytes are ready at once.
    pub(crate) fn begin(driver: D, mut tls: Tls) -> Result<Self, TlsFault> {
        tls.handshake()?;
        let output = tls.take_output();
        Ok(Self {
            output,
            ..Self::new(driver, tls)
        })
    }

    pub(crate) fn handle_input(
        &mut self,
        now: SystemTime,
        input: &[u8],
    ) -> Result<(), ContextError> {
        if let Some(outcome) = &mut self.outcome {
            let rest = D::rest(outcome);
            check_length(rest.len() + input.len())?;
            rest.extend_from_slice(input);
            return Ok(());
        }
        // An error drops it: nothing follows a failed handshake.
        let mut tls = self.tls.take().ok_or(ContextError::Over)?;
        self.bytes_in += input.len();
        check_length(self.bytes_in)?;
        tls.feed(input);
        match self.driver.advance(&mut tls, now, &mut self.output)? {
            true => self.outcome = Some(self.driver.finish(tls, now)?),
            false => self.tls = Some(tls),
        }
        Ok(())
    }

    pub(crate) fn poll_output(&mut self) -> Option<Vec<u8>> {
        (!self.output.is_empty()).then(|| std::mem::take(&mut self.output))
    }

    pub(crate) const fn outcome(&mut self) -> Option<D::Outcome> {
        self.outcome.take()
    }
}

const fn check_length(bytes: usize) -> Result<(), ContextError> {
    match bytes > HANDSHAKE_BYTES_MAX {
        true => Err(ContextError::TooMuch {
            max: HANDSHAKE_BYTES_MAX,
        }),
        false => Ok(()),
    }
}

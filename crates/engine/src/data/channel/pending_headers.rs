//! Headers of MODE E that are due on a connection.
//!
//! A channel that had no part in a small file has to say so all the same, in an EOD of 17 bytes.
//! With many channels that would be more segments than the files are: such a header waits until
//! there is something to send behind it, or until its mover has nothing else to do.

use godwit_proto::mode_e::{BlockHeader, HEADER_BYTES};

/// Headers that wait at most.
const WAITING_MAX: usize = 16;

#[derive(Default)]
pub(crate) struct PendingHeaders {
    bytes: Vec<u8>,
    /// Bytes of them that the kernel has, or that are sealed.
    sent: usize,
}

impl PendingHeaders {
    /// Behind those that wait.
    pub(crate) fn push(&mut self, header: BlockHeader) {
        self.bytes.drain(..std::mem::take(&mut self.sent));
        self.bytes.extend_from_slice(&header.encode());
    }

    pub(crate) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    /// No other may be pushed before these have left.
    pub(crate) fn is_full(&self) -> bool {
        self.unsent().len() > (WAITING_MAX - 1) * HEADER_BYTES
    }

    /// `bytes` more have left.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.sent += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_headers_leave_in_order() {
        let mut headers = PendingHeaders::default();
        assert!(headers.is_empty());
        headers.push(BlockHeader::data(1, 2));
        headers.push(BlockHeader::data(3, 4));
        headers.sent(20);
        headers.push(BlockHeader::data(5, 6));
        let last = [
            BlockHeader::data(3, 4).encode(),
            BlockHeader::data(5, 6).encode(),
        ];
        assert_eq!(headers.unsent(), &last.concat()[3..]);
        headers.sent(31);
        assert!(headers.is_empty());
    }

    #[test]
    fn pending_headers_are_bounded() {
        let mut headers = PendingHeaders::default();
        for _ in 0..3 * WAITING_MAX {
            if headers.is_full() {
                assert_eq!(headers.unsent().len(), WAITING_MAX * HEADER_BYTES);
                // Whatever takes one at a time never leaves them empty.
                headers.sent(HEADER_BYTES);
            }
            headers.push(BlockHeader::data(0, 1));
            assert!(headers.bytes.len() <= WAITING_MAX * HEADER_BYTES);
        }
    }
}

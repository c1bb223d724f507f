//! Whose turn it is to send the next small file.
//!
//! The channel that is asked first sends a file of one block. Were it always the same channel, it
//! would take files until its window is full, then the next channel would: each in bursts that no
//! queue of a router holds, with a window that grows by them, until all together lose thousands of
//! packets at once. So each channel sends a share, and is then asked last. A share is more than a
//! file: packets of one connection that follow one another cost both ends less.

/// Bytes after which others have their turn: a burst of some forty packets.
const SHARE_BYTES: u64 = 64 << 10;

/// What a channel has sent since others had their turn, bytes.
#[derive(Debug, Default)]
pub(crate) struct RoundRobin(u64);

/// Among those that are asked for the next file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueuePosition {
    /// It is in the midst of its share.
    Front,
    /// It had none of the last.
    Middle,
    /// It has had its share.
    Back,
}

impl RoundRobin {
    /// The position of a channel that has sent `bytes` of the last file.
    pub(crate) fn after(&mut self, bytes: u64) -> QueuePosition {
        if bytes == 0 {
            return QueuePosition::Middle;
        }
        self.0 = self.0.saturating_add(bytes);
        match self.0 < SHARE_BYTES {
            true => QueuePosition::Front,
            false => {
                self.0 = 0;
                QueuePosition::Back
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_files_share_a_turn() {
        let mut share = RoundRobin::default();
        let third = SHARE_BYTES / 3 + 1;
        for _ in 0..3 {
            assert_eq!(share.after(third), QueuePosition::Front);
            assert_eq!(
                share.after(0),
                QueuePosition::Middle,
                "one that another channel sent"
            );
            assert_eq!(share.after(third), QueuePosition::Front);
            assert_eq!(share.after(third), QueuePosition::Back);
        }
        assert_eq!(share.after(u64::MAX), QueuePosition::Back);
    }
}

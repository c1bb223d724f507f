//! From a tuner's setting to what the engine and the workers are told.

use godwit_engine::data::ChannelParams;
use godwit_proto::ByteRange;
use godwit_tune::{Decision, Fixed, Setting, Tuner};

use crate::spec::{Connections, JobSpec, TunerName, TunerSpec};

/// Smallest piece that a file is cut into, octets. Below that a round trip and a slow start cost more than a second
/// session gains. Chosen arbitrarily within a factor of four.
pub(crate) const PIECE_BYTES_MIN: u64 = 8 << 20;

/// Pieces end at multiples of this: whole blocks of files and of MODE E.
const PIECE_BYTES_ALIGN: u64 = 1 << 20;

/// Asks the tuner, keeps to what the user has fixed.
pub(crate) struct Controller {
    setting: Setting,
    reason: String,
}

impl Controller {
    pub(crate) fn new(spec: &TunerSpec) -> Self {
        let mut tuner: Box<dyn Tuner> = match spec.name {
            TunerName::Static => Box::new(Fixed::new(spec.start, spec.bounds)),
            TunerName::Globus => Box::new(Fixed::globus(spec.bounds)),
        };
        let Decision {
            setting, rationale, ..
        } = tuner.first();
        let wanted = Setting {
            concurrency: spec.concurrency.unwrap_or(setting.concurrency),
            parallelism: spec.parallelism.unwrap_or(setting.parallelism),
            ..setting
        };
        let fixed = spec.bounds.project(wanted);
        Self {
            reason: if fixed == setting {
                rationale
            } else {
                format!("{fixed}: fixed by the command line")
            },
            setting: fixed,
        }
    }

    pub(crate) fn setting(&self) -> Setting {
        self.setting
    }

    pub(crate) fn reason(&self) -> &str {
        &self.reason
    }

    /// The engine's share of the setting.
    pub(crate) fn channel_params(&self, job: &JobSpec, connections: &Connections) -> ChannelParams {
        ChannelParams {
            parallelism: self.setting.parallelism,
            // A server that opens more channels than it was asked for is not let in with all of them.
            channels_max: job.tuner.bounds.channels_max,
            block_bytes: job.block_bytes,
            socket_buffer_bytes: job.socket_buffer_bytes,
            congestion: job.congestion.clone(),
            connect_limit: connections.stall_limit.min(CONNECT_LIMIT),
            stall_limit: connections.stall_limit,
        }
    }

    /// The next piece of `left`, which nobody has begun, from its start. Guided self-scheduling (Polychronopoulos, Kuck
    /// 1987): half of an equal share each time, so that pieces shrink towards the end and no session holds
    /// the tail.
    pub(crate) fn piece(&self, left: ByteRange) -> ByteRange {
        let share = left.len() / (2 * u64::from(self.setting.concurrency));
        let length = share
            .max(PIECE_BYTES_MIN)
            .next_multiple_of(PIECE_BYTES_ALIGN);
        // What would remain as a crumb goes along.
        let end = match left.start.checked_add(length) {
            Some(end) if end < left.end && left.end - end >= PIECE_BYTES_MIN / 2 => end,
            _ => left.end,
        };
        ByteRange {
            start: left.start,
            end,
        }
    }
}

/// Time for a data connection to come up. Shorter than the stall limit: a server that cannot reach us should cost
/// seconds, not minutes, before we listen no more.
const CONNECT_LIMIT: std::time::Duration = std::time::Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;
    use godwit_tune::Bounds;

    fn controller(concurrency: u32) -> Controller {
        Controller::new(&TunerSpec {
            name: TunerName::Static,
            start: Setting::new(1, 4),
            parallelism: None,
            concurrency: Some(concurrency),
            bounds: Bounds::up_to(128),
        })
    }

    #[test]
    fn pieces_cover_the_file_once_and_shrink() {
        for size in [0_u64, 1, 8 << 20, 100 << 20, (1 << 30) + 17] {
            let controller = controller(4);
            let (mut at, mut last) = (0, u64::MAX);
            while at < size {
                let piece = controller.piece(ByteRange {
                    start: at,
                    end: size,
                });
                assert_eq!(piece.start, at);
                assert!(piece.end > at && piece.end <= size);
                assert!(piece.len() <= last.max(2 * PIECE_BYTES_MIN));
                (at, last) = (piece.end, piece.len());
            }
            assert_eq!(at, size);
        }
    }

    #[test]
    fn the_last_piece_is_small_beside_the_file() {
        let controller = controller(4);
        let size = 10_u64 << 30;
        let mut left = ByteRange {
            start: 0,
            end: size,
        };
        let mut last = 0;
        while !left.is_empty() {
            let piece = controller.piece(left);
            last = piece.len();
            left.start = piece.end;
        }
        assert!(last < 3 * PIECE_BYTES_MIN, "{last}");
    }

    #[test]
    fn what_the_user_fixes_wins_over_the_tuner() {
        let controller = Controller::new(&TunerSpec {
            name: TunerName::Globus,
            start: Setting::new(1, 4),
            parallelism: Some(3),
            concurrency: None,
            bounds: Bounds::up_to(128),
        });
        assert_eq!(controller.setting(), Setting::new(2, 3));
        assert_eq!(controller.reason(), "2 x 3: fixed by the command line");
    }
}

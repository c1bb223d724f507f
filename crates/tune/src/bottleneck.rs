//! What held a transfer back, judged from the evidence of one epoch.

use std::{collections::BTreeMap, fmt, time::Duration};

use crate::Observation;

/// What bound the goodput of an epoch. The words are part of the outside surface (event log,
/// `godwit explain`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Bottleneck {
    /// The path drops packets without being full.
    NetworkLoss,
    /// The receiver's window had no room while the sender had data.
    ReceiveWindow,
    /// The sender's socket buffer ended the flights.
    SendBuffer,
    /// The path is full: a queue stands before its bottleneck.
    PathCapacity,
    /// The movers had no processor, or used all of it.
    Cpu,
    /// The movers waited for reading.
    SourceStorage,
    /// The movers waited for writing.
    DestinationStorage,
    /// Nothing here was busy: the other end neither gave nor took more.
    Remote,
    /// A configured cap.
    Policy,
}

impl Bottleneck {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 9] = [
        Self::NetworkLoss,
        Self::ReceiveWindow,
        Self::SendBuffer,
        Self::PathCapacity,
        Self::Cpu,
        Self::SourceStorage,
        Self::DestinationStorage,
        Self::Remote,
        Self::Policy,
    ];

    /// The word of the event log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NetworkLoss => "network-loss",
            Self::ReceiveWindow => "receive-window",
            Self::SendBuffer => "send-buffer",
            Self::PathCapacity => "path-capacity",
            Self::Cpu => "cpu",
            Self::SourceStorage => "source-storage",
            Self::DestinationStorage => "destination-storage",
            Self::Remote => "remote",
            Self::Policy => "policy",
        }
    }

    /// Whose turn it is, in one sentence.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::NetworkLoss => {
                "packets are lost before the path is full: ask the network's operator to look for \
                 a bad link, or send with --congestion bbr"
            }
            Self::ReceiveWindow => {
                "the receiver's TCP window is too small for the path: its administrator raises \
                 net.ipv4.tcp_rmem, or set --tcp-buffer"
            }
            Self::SendBuffer => {
                "the sender's TCP buffer is too small for the path: its administrator raises \
                 net.ipv4.tcp_wmem, or set --tcp-buffer"
            }
            Self::PathCapacity => "the path is full: only a faster or less used path helps",
            Self::Cpu => {
                "the processors are the limit: stop other work on the host, or move to one with \
                 more of them"
            }
            Self::SourceStorage => {
                "reading the source is the limit: use faster storage, or read several files at a \
                 time"
            }
            Self::DestinationStorage => {
                "writing the destination is the limit: use faster storage, or spread the files \
                 over more of it"
            }
            Self::Remote => {
                "the other end is the limit: its administrator looks at its storage and its load"
            }
            Self::Policy => {
                "a configured cap is the limit: raise --max-rate, or ask the server's administrator"
            }
        }
    }
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// From this share of the time on, a wait is what binds. Half: then nothing else can bind longer.
const MOST: f64 = 0.5;
/// Share of the movers' time without a processor that counts as a shortage. Below MOST, since a
/// mover that waits for a processor a fifth of its time lets every channel it serves wait too.
const CPU_WAIT: f64 = 0.2;
/// Share of the movers' time spent running, or waiting for a processor, that leaves no room for
/// more.
const CPU_BUSY: f64 = 0.9;
/// A cap counts as reached from this share of it on; pacing in the kernel stays a little below.
const CAP_REACHED: f64 = 0.95;
/// A queue stands when round trips last this much longer than the shortest.
const QUEUE: f64 = 1.25;
/// Loss below one segment in 100 000 does not hold a window back on any path of this planet.
const LOSS: f64 = 1e-5;

/// Whether round trips of `rtt` tell of a queue where the shortest are `least`. Nothing is known of
/// `least` where it is 0.
pub fn is_queue(rtt: Duration, least: Duration) -> bool {
    !least.is_zero() && rtt.as_secs_f64() >= QUEUE * least.as_secs_f64()
}

/// What bound this epoch, as far as its evidence tells; `None` when it tells nothing.
///
/// Goes from the ends inwards, because an end that cannot keep up also empties or fills what lies
/// between: a cap, the processors, storage, the windows, the other end. Only what is left can be
/// the path, and there a standing queue tells a full path from a lossy one.
pub fn classify(seen: &Observation) -> Option<Bottleneck> {
    let at_least = |share: Option<f64>, limit: f64| share.is_some_and(|s| s >= limit);
    if seen
        .rate_cap_bps
        .is_some_and(|cap| cap > 0.0 && seen.goodput_bps() >= CAP_REACHED * cap)
    {
        return Some(Bottleneck::Policy);
    }
    // A mover that runs or waits for a processor all the time has none left for anything else.
    let needs_processor = (seen.cpu_busy).map(|busy| busy + seen.cpu_wait.unwrap_or(0.0));
    let of_the_ends = [
        // Bytes that wait to be written have been read and sent: what is before is only ahead.
        (seen.destination_wait, MOST, Bottleneck::DestinationStorage),
        (seen.cpu_wait, CPU_WAIT, Bottleneck::Cpu),
        (needs_processor, CPU_BUSY, Bottleneck::Cpu),
        (seen.source_wait, MOST, Bottleneck::SourceStorage),
        (seen.receive_window_limited, MOST, Bottleneck::ReceiveWindow),
        (seen.send_buffer_limited, MOST, Bottleneck::SendBuffer),
        (seen.sender_idle, MOST, Bottleneck::Remote),
    ];
    if let Some((.., limit)) = of_the_ends
        .into_iter()
        .find(|(share, limit, _)| at_least(*share, *limit))
    {
        return Some(limit);
    }
    let stretched = match (seen.rtt, seen.rtt_min) {
        (Some(rtt), Some(least)) if !least.is_zero() => Some(is_queue(rtt, least)),
        _ => None,
    };
    match (stretched, seen.loss_ratio) {
        (Some(true), _) => Some(Bottleneck::PathCapacity),
        (_, Some(loss)) if loss >= LOSS => Some(Bottleneck::NetworkLoss),
        _ => None,
    }
}

/// Bytes that moved under each limit, epoch by epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitBytes(BTreeMap<Bottleneck, u64>);

impl LimitBytes {
    /// An epoch of `bytes` was limited so; one that tells nothing does not count.
    pub fn add(&mut self, by: Option<Bottleneck>, bytes: u64) {
        if let Some(limit) = by {
            let sum = self.0.entry(limit).or_default();
            *sum = sum.saturating_add(bytes);
        }
    }

    /// What held for most bytes.
    pub fn most(&self) -> Option<Bottleneck> {
        let most = self.0.iter().max_by_key(|(_, bytes)| **bytes);
        most.map(|(limit, _)| *limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Setting;

    fn seen() -> Observation {
        Observation::new(Setting::new(1, 4), 125_000_000, 1.0)
    }

    #[test]
    fn goodput_alone_tells_nothing() {
        assert_eq!(classify(&seen()), None);
    }

    #[test]
    fn one_piece_of_evidence_each() {
        let ms = Duration::from_millis;
        let s = seen();
        for (seen, limit) in [
            (
                Observation {
                    rate_cap_bps: Some(1.02e9),
                    ..s
                },
                Bottleneck::Policy,
            ),
            (
                Observation {
                    cpu_wait: Some(0.3),
                    ..s
                },
                Bottleneck::Cpu,
            ),
            (
                Observation {
                    cpu_busy: Some(0.97),
                    ..s
                },
                Bottleneck::Cpu,
            ),
            (
                Observation {
                    source_wait: Some(0.8),
                    ..s
                },
                Bottleneck::SourceStorage,
            ),
            (
                Observation {
                    destination_wait: Some(0.8),
                    ..s
                },
                Bottleneck::DestinationStorage,
            ),
            (
                Observation {
                    receive_window_limited: Some(0.9),
                    ..s
                },
                Bottleneck::ReceiveWindow,
            ),
            (
                Observation {
                    send_buffer_limited: Some(0.9),
                    ..s
                },
                Bottleneck::SendBuffer,
            ),
            (
                Observation {
                    sender_idle: Some(0.9),
                    ..s
                },
                Bottleneck::Remote,
            ),
            (
                Observation {
                    rtt: Some(ms(30)),
                    rtt_min: Some(ms(20)),
                    ..s
                },
                Bottleneck::PathCapacity,
            ),
            (
                Observation {
                    rtt: Some(ms(21)),
                    rtt_min: Some(ms(20)),
                    loss_ratio: Some(1e-3),
                    ..s
                },
                Bottleneck::NetworkLoss,
            ),
        ] {
            assert_eq!(classify(&seen), Some(limit), "{seen:?}");
        }
    }

    #[test]
    fn an_end_that_cannot_keep_up_explains_a_full_window() {
        let slow_disk = Observation {
            destination_wait: Some(0.9),
            receive_window_limited: Some(0.9),
            ..seen()
        };
        assert_eq!(classify(&slow_disk), Some(Bottleneck::DestinationStorage));
    }

    #[test]
    fn bytes_that_wait_to_be_written_explain_busy_ends_before() {
        let behind = Observation {
            destination_wait: Some(0.9),
            source_wait: Some(0.9),
            cpu_wait: Some(0.4),
            ..seen()
        };
        assert_eq!(classify(&behind), Some(Bottleneck::DestinationStorage));
    }

    #[test]
    fn movers_that_run_or_wait_for_a_processor_have_no_time_left() {
        let shared = Observation {
            cpu_busy: Some(0.8),
            cpu_wait: Some(0.15),
            ..seen()
        };
        assert_eq!(classify(&shared), Some(Bottleneck::Cpu));
        let idle = Observation {
            cpu_busy: Some(0.7),
            ..shared
        };
        assert_eq!(classify(&idle), None);
    }

    #[test]
    fn the_limit_of_a_run_is_that_of_most_bytes() {
        let mut limits = LimitBytes::default();
        assert_eq!(limits.most(), None);
        limits.add(Some(Bottleneck::Cpu), 5);
        limits.add(Some(Bottleneck::ReceiveWindow), 4);
        limits.add(None, 100);
        assert_eq!(limits.most(), Some(Bottleneck::Cpu));
        limits.add(Some(Bottleneck::ReceiveWindow), 2);
        assert_eq!(limits.most(), Some(Bottleneck::ReceiveWindow));
    }

    #[test]
    fn a_cap_that_is_not_reached_is_no_limit() {
        let slow = Observation {
            rate_cap_bps: Some(2e9),
            ..seen()
        };
        assert_eq!(classify(&slow), None);
    }

    #[test]
    fn nonsense_is_no_evidence() {
        let nonsense = Observation {
            cpu_wait: Some(f64::NAN),
            receive_window_limited: Some(f64::NAN),
            loss_ratio: Some(f64::NAN),
            rate_cap_bps: Some(f64::NAN),
            rtt: Some(Duration::ZERO),
            rtt_min: Some(Duration::ZERO),
            ..seen()
        };
        assert_eq!(classify(&nonsense), None);
    }

    #[test]
    fn names_are_distinct_and_advice_is_one_sentence() {
        let words: std::collections::BTreeSet<_> = Bottleneck::ALL.map(Bottleneck::as_str).into();
        assert_eq!(words.len(), 9);
        assert!(Bottleneck::ALL.iter().all(|l| !l.advice().ends_with('.')));
    }
}

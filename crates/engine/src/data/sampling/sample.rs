//! What a transfer reports while it runs: totals, and the arithmetic between two samples of them.
//! No I/O.

use std::time::Duration;

/// Numbers of a running transfer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the source that are done so far: moved, or holes.
    pub bytes: u64,
    /// Channels that carry it now.
    pub channels: u32,
}

/// Running totals of a transfer since its start; the difference of two samples describes the time
/// between.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Payload bytes moved; for receipts, written.
    pub bytes: u64,
    /// Senders: payload bytes that the peer's kernel has for certain; never more than `bytes`.
    /// `None` for receipts and where the kernel does not tell.
    pub acknowledged: Option<u64>,
    /// Age of `acknowledged`: the kernel is asked seldom, and a division by time needs it.
    pub age: Duration,
    /// Channels that carry it now.
    pub channels: u32,
    /// Senders: what TCP knows. `None` for receipts and where the kernel does not tell.
    pub tcp: Option<TcpTotals>,
    /// Receivers, while they receive: what their kernel sees, means over the connections. `None`
    /// for the others, and where it does not tell.
    pub receiving: Option<ReceivingTcp>,
    /// The threads that serve it.
    pub movers: MoverTotals,
    /// Receivers: the threads of the sender, where it reports them. They wait for the source.
    pub sender_movers: MoverTotals,
    /// Its files.
    pub storage: StorageTotals,
}

/// Means over the open connections that have received anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceivingTcp {
    /// From an acknowledgement to what the sender then sends: a round trip, or longer where the
    /// sender pauses.
    pub rtt: Duration,
    /// The most that the kernel offers to have under way, bytes; 0 where it does not tell.
    pub window_bytes: u64,
}

/// Sums over the data connections of a transfer, closed ones included. Connections that were kept
/// from an earlier transfer count from the first look at them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TcpTotals {
    /// Segments sent, repeated ones included.
    pub segments_sent: u64,
    /// Segments sent again.
    pub segments_retransmitted: u64,
    /// Payload bytes sent again.
    pub bytes_retransmitted: u64,
    /// Time with bytes to send or unacknowledged, microseconds.
    pub busy_us: u64,
    /// Part of it in which the receiver's window had no room.
    pub receive_window_limited_us: u64,
    /// Part of it in which our socket buffer held no more.
    pub send_buffer_limited_us: u64,
    /// Time the connections were part of the transfer, microseconds.
    pub channel_us: u64,
    /// Smoothed round-trip time, mean over the open connections.
    pub rtt: Duration,
    /// Smallest round-trip time seen.
    pub rtt_min: Duration,
    /// Bits per second that the receivers lately acknowledged, sum over the open connections;
    /// `None` where the kernel is too old to tell.
    pub delivery_rate_bps: Option<f64>,
}

/// What the kernel's scheduler says of the mover threads of a transfer, since it was first asked. A
/// thread that serves several transfers is counted whole in each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoverTotals {
    /// Threads.
    pub threads: u32,
    /// Time on a processor, microseconds, sum over the threads.
    pub running_us: u64,
    /// Time in which they could run and had no processor, microseconds (`run_delay` of schedstat).
    pub runnable_us: u64,
    /// Time in all, microseconds, sum over the threads; 0 where the scheduler keeps no account.
    pub elapsed_us: u64,
}

/// Time that movers slept in calls for storage, microseconds: asleep, but not waiting for sockets.
/// It counts the disk behind `sendfile` and not the copying and sending inside the same call, nor
/// any copy to or from the page cache: that is time on a processor. 0 where the scheduler keeps no
/// account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageTotals {
    /// Waiting for the source.
    pub read_us: u64,
    /// Waiting for the destination.
    pub write_us: u64,
}

/// What happened between two samples of a transfer. Shares are in `0..=1`, never NaN, and `None`
/// where nothing is known or no time has passed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Interval {
    /// Payload bytes moved.
    pub bytes: u64,
    /// Payload bytes acknowledged.
    pub acknowledged: Option<u64>,
    /// Segments sent again over segments sent.
    pub loss_ratio: Option<f64>,
    /// Share of the channels' time in which the sender had bytes and the receiver's window no room.
    pub receive_window_limited: Option<f64>,
    /// Share of the channels' time in which the sender's socket buffer held no more.
    pub send_buffer_limited: Option<f64>,
    /// Share of the channels' time in which the sending socket had nothing to send.
    pub sender_idle: Option<f64>,
    /// Share of the movers' time in which they could run and had no processor: at the end whose
    /// movers need processors more.
    pub cpu_wait: Option<f64>,
    /// Share of the movers' time in which they ran: at the same end.
    pub cpu_busy: Option<f64>,
    /// Share of the movers' time of the sending end in which they waited for the source.
    pub source_wait: Option<f64>,
    /// Share of the movers' time of the receiving end in which they waited for the
    /// destination.
    pub destination_wait: Option<f64>,
}

impl Sample {
    /// What happened since `earlier`, a sample of the same transfer; `Sample::default()` is its
    /// start.
    pub fn since(&self, earlier: &Self) -> Interval {
        let mut interval = Interval {
            bytes: self.bytes.saturating_sub(earlier.bytes),
            acknowledged: self
                .acknowledged
                .map(|now| now.saturating_sub(earlier.acknowledged.unwrap_or(0))),
            ..Interval::default()
        };
        if let Some(now) = &self.tcp {
            let then = earlier.tcp.unwrap_or_default();
            let open = now.channel_us.saturating_sub(then.channel_us);
            let of_open = |now: u64, then: u64| share(now.saturating_sub(then), open);
            interval.loss_ratio = share(
                (now.segments_retransmitted).saturating_sub(then.segments_retransmitted),
                now.segments_sent.saturating_sub(then.segments_sent),
            );
            interval.receive_window_limited = of_open(
                now.receive_window_limited_us,
                then.receive_window_limited_us,
            );
            interval.send_buffer_limited =
                of_open(now.send_buffer_limited_us, then.send_buffer_limited_us);
            interval.sender_idle = of_open(now.busy_us, then.busy_us).map(|busy| 1.0 - busy);
        }
        // Each end by its own threads: in the time of both, a wait of one would be half of it at
        // most.
        let here = self.movers.since(&earlier.movers);
        let sender = match self.sender_movers.threads > 0 {
            true => self.sender_movers.since(&earlier.sender_movers),
            false => here,
        };
        let busier = match sender.needs() > here.needs() {
            true => sender,
            false => here,
        };
        interval.cpu_wait = share(busier.runnable_us, busier.elapsed_us);
        interval.cpu_busy = share(busier.running_us, busier.elapsed_us);
        let (now, then) = (&self.storage, &earlier.storage);
        interval.source_wait = share(now.read_us.saturating_sub(then.read_us), sender.elapsed_us);
        interval.destination_wait =
            share(now.write_us.saturating_sub(then.write_us), here.elapsed_us);
        interval
    }
}

impl MoverTotals {
    fn since(&self, earlier: &Self) -> Self {
        Self {
            threads: self.threads,
            running_us: self.running_us.saturating_sub(earlier.running_us),
            runnable_us: self.runnable_us.saturating_sub(earlier.runnable_us),
            elapsed_us: self.elapsed_us.saturating_sub(earlier.elapsed_us),
        }
    }

    /// Share of the time that needs a processor.
    fn needs(&self) -> Option<f64> {
        share(
            self.running_us.saturating_add(self.runnable_us),
            self.elapsed_us,
        )
    }
}

/// `part` of `whole`. The counters are read one after another, so a part may pass its whole by a
/// little.
#[allow(clippy::cast_precision_loss)] // shares need no more than 53 bits
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| (part as f64 / whole as f64).min(1.0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shares_of_the_time_between() {
        let start = Sample {
            bytes: 1000,
            acknowledged: Some(400),
            age: Duration::ZERO,
            channels: 2,
            receiving: None,
            tcp: Some(TcpTotals {
                segments_sent: 100,
                segments_retransmitted: 10,
                busy_us: 900,
                receive_window_limited_us: 500,
                channel_us: 1000,
                ..TcpTotals::default()
            }),
            movers: MoverTotals {
                threads: 1,
                running_us: 100,
                runnable_us: 0,
                elapsed_us: 500,
            },
            sender_movers: MoverTotals::default(),
            storage: StorageTotals {
                read_us: 10,
                write_us: 0,
            },
        };
        let mut end = start;
        end.bytes = 3000;
        end.acknowledged = Some(2400);
        let tcp = end.tcp.as_mut().unwrap();
        tcp.segments_sent = 300;
        tcp.segments_retransmitted = 12;
        tcp.busy_us = 2400;
        tcp.receive_window_limited_us = 1000;
        tcp.send_buffer_limited_us = 200;
        tcp.channel_us = 3000;
        end.movers.running_us = 400;
        end.movers.runnable_us = 250;
        end.movers.elapsed_us = 1500;
        end.storage.read_us = 210;
        let between = end.since(&start);
        assert_eq!(
            between,
            Interval {
                bytes: 2000,
                acknowledged: Some(2000),
                loss_ratio: Some(0.01),
                receive_window_limited: Some(0.25),
                send_buffer_limited: Some(0.1),
                sender_idle: Some(0.25),
                cpu_wait: Some(0.25),
                cpu_busy: Some(0.3),
                source_wait: Some(0.2),
                destination_wait: Some(0.0),
            }
        );
        assert_eq!(end.since(&end).cpu_busy, None, "no time, no share");
        assert_eq!(Sample::default().since(&start), Interval::default());
    }

    #[test]
    fn an_end_that_waits_is_seen_whatever_the_other_does() {
        let movers = |threads, running_us| MoverTotals {
            threads,
            running_us,
            runnable_us: 0,
            elapsed_us: 1000 * u64::from(threads),
        };
        let slow_source = Sample {
            movers: movers(4, 100),
            sender_movers: movers(1, 50),
            storage: StorageTotals {
                read_us: 900,
                write_us: 0,
            },
            ..Sample::default()
        };
        let between = slow_source.since(&Sample::default());
        assert_eq!(between.source_wait, Some(0.9), "of the sender's one thread");
        assert_eq!(between.destination_wait, Some(0.0));
        let busy_receiver = Sample {
            movers: movers(1, 950),
            sender_movers: movers(3, 90),
            ..slow_source
        };
        let between = busy_receiver.since(&Sample::default());
        assert_eq!(between.cpu_busy, Some(0.95), "the busier end");
        assert_eq!(between.source_wait, Some(0.3));
    }

    proptest! {
        #[test]
        fn shares_are_shares_whatever_the_counters_say(a: [u64; 12], b: [u64; 12]) {
            let sample = |n: [u64; 12]| Sample {
                bytes: n[0],
                acknowledged: Some(n[1]),
                age: Duration::ZERO,
                channels: 1,
                receiving: None,
                tcp: Some(TcpTotals {
                    segments_sent: n[2],
                    segments_retransmitted: n[3],
                    busy_us: n[4],
                    receive_window_limited_us: n[5],
                    send_buffer_limited_us: n[6],
                    channel_us: n[7],
                    ..TcpTotals::default()
                }),
                movers: MoverTotals {
                    threads: 1,
                    running_us: n[8],
                    runnable_us: n[9],
                    elapsed_us: n[10],
                },
                sender_movers: MoverTotals {
                    threads: u32::try_from(n[11] % 2).unwrap(),
                    running_us: n[10],
                    runnable_us: n[8],
                    elapsed_us: n[9],
                },
                storage: StorageTotals { read_us: n[11], write_us: n[0] },
            };
            let i = sample(a).since(&sample(b));
            for share in [
                i.loss_ratio, i.receive_window_limited, i.send_buffer_limited, i.sender_idle,
                i.cpu_wait, i.cpu_busy, i.source_wait, i.destination_wait,
            ] {
                prop_assert!(share.is_none_or(|s| (0.0..=1.0).contains(&s)), "{i:?}");
            }
        }
    }
}

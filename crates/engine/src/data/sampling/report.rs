//! A sample as a server reports it to its client ([`godwit_proto::live`]).

use std::time::Duration;

use godwit_proto::live::LiveReport;

use crate::data::sampling::sample::{MoverTotals, Sample, StorageTotals, TcpTotals};

/// A larger fact is read as this: twelve days in microseconds, a petabyte in segments. Sums over
/// millions of transfers fit into 64 bits then, whatever a peer says.
const FACT_MAX: u64 = 1 << 40;

impl From<Sample> for LiveReport {
    fn from(sample: Sample) -> Self {
        let Sample {
            bytes,
            acknowledged,
            // The path to the client adds more age than that.
            age: _,
            channels,
            tcp,
            // The client receives.
            receiving: _,
            sender_movers: _,
            movers,
            storage,
        } = sample;
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let of_tcp = |fact: fn(&TcpTotals) -> u64| tcp.as_ref().map(fact);
        // Without an account of the threads' time the parts of it mean nothing.
        let of_movers = |fact: u64| (movers.elapsed_us > 0).then_some(fact);
        Self {
            bytes,
            channels,
            acknowledged,
            segments_sent: of_tcp(|t| t.segments_sent),
            segments_retransmitted: of_tcp(|t| t.segments_retransmitted),
            bytes_retransmitted: of_tcp(|t| t.bytes_retransmitted),
            channel_us: of_tcp(|t| t.channel_us),
            busy_us: of_tcp(|t| t.busy_us),
            receive_window_limited_us: of_tcp(|t| t.receive_window_limited_us),
            send_buffer_limited_us: of_tcp(|t| t.send_buffer_limited_us),
            rtt_us: tcp.map(|t| micros(t.rtt)),
            rtt_min_us: tcp.map(|t| micros(t.rtt_min)),
            delivery_rate_bps: tcp.and_then(|t| t.delivery_rate_bps).map(whole),
            movers: of_movers(movers.threads.into()),
            mover_us: of_movers(movers.elapsed_us),
            running_us: of_movers(movers.running_us),
            runnable_us: of_movers(movers.runnable_us),
            read_us: of_movers(storage.read_us),
            write_us: of_movers(storage.write_us),
        }
    }
}

impl From<LiveReport> for Sample {
    fn from(report: LiveReport) -> Self {
        let known = |fact: Option<u64>| fact.unwrap_or(0).min(FACT_MAX);
        let tcp = report.segments_sent.map(|segments| TcpTotals {
            segments_sent: segments.min(FACT_MAX),
            segments_retransmitted: known(report.segments_retransmitted),
            bytes_retransmitted: known(report.bytes_retransmitted),
            busy_us: known(report.busy_us),
            receive_window_limited_us: known(report.receive_window_limited_us),
            send_buffer_limited_us: known(report.send_buffer_limited_us),
            channel_us: known(report.channel_us),
            rtt: Duration::from_micros(known(report.rtt_us)),
            rtt_min: Duration::from_micros(known(report.rtt_min_us)),
            delivery_rate_bps: report.delivery_rate_bps.map(fraction),
        });
        Self {
            bytes: report.bytes,
            acknowledged: report.acknowledged,
            age: Duration::ZERO,
            channels: report.channels,
            tcp,
            receiving: None,
            sender_movers: MoverTotals::default(),
            movers: MoverTotals {
                threads: report
                    .movers
                    .map_or(0, |n| u16::try_from(n).unwrap_or(u16::MAX).into()),
                running_us: known(report.running_us),
                runnable_us: known(report.runnable_us),
                elapsed_us: known(report.mover_us),
            },
            storage: StorageTotals {
                read_us: known(report.read_us),
                write_us: known(report.write_us),
            },
        }
    }
}

/// Whole bits per second; the cast saturates, and NaN is 0.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole(rate: f64) -> u64 {
    rate as u64
}

#[allow(clippy::cast_precision_loss)] // a rate needs no more than 53 bits
fn fraction(rate: u64) -> f64 {
    rate as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_peer_makes_sums_overflow() {
        let text = [
            "segments_sent",
            "channel_us",
            "rtt_us",
            "movers",
            "mover_us",
            "read_us",
        ]
        .map(|fact| format!("{fact}={};", u64::MAX))
        .concat();
        let reply = godwit_proto::Reply::new(
            godwit_proto::live::DONE,
            format!("bytes=0;channels=0;{text}"),
        );
        let sample = Sample::from(LiveReport::from_reply(&reply).unwrap());
        let tcp = sample.tcp.unwrap();
        assert_eq!((tcp.segments_sent, tcp.channel_us), (FACT_MAX, FACT_MAX));
        assert_eq!(tcp.rtt, Duration::from_micros(FACT_MAX));
        assert_eq!(sample.movers.threads, u32::from(u16::MAX));
        assert_eq!(sample.movers.elapsed_us, FACT_MAX);
        assert_eq!(sample.storage.read_us, FACT_MAX);
    }

    #[test]
    fn samples_survive_the_wire() {
        let whole = Sample {
            bytes: 1,
            acknowledged: Some(2),
            age: Duration::ZERO,
            channels: 3,
            receiving: None,
            tcp: Some(TcpTotals {
                segments_sent: 4,
                segments_retransmitted: 5,
                bytes_retransmitted: 6,
                busy_us: 7,
                receive_window_limited_us: 8,
                send_buffer_limited_us: 9,
                channel_us: 10,
                rtt: Duration::from_micros(11),
                rtt_min: Duration::from_micros(12),
                delivery_rate_bps: Some(13.0),
            }),
            movers: MoverTotals {
                threads: 14,
                running_us: 15,
                runnable_us: 16,
                elapsed_us: 17,
            },
            sender_movers: MoverTotals::default(),
            storage: StorageTotals {
                read_us: 18,
                write_us: 19,
            },
        };
        for sample in [whole, Sample::default()] {
            let reply = LiveReport::from(sample).to_reply();
            let heard = LiveReport::from_reply(&reply).map(Sample::from);
            assert_eq!(heard, Some(sample), "{}", reply.text());
        }
    }
}

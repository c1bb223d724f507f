//! The totals of a job, from samples of its transfers.

use std::time::Duration;

use godwit_engine::data::{MoverTotals, ReceivingTcp, Sample, TcpTotals};

/// The totals of a job: of transfers that are over and of those that run. `bytes` are those that
/// the receiver has, as far as anybody knows.
pub(crate) fn add(job: &mut Sample, transfer: &Sample) {
    job.bytes += transfer.acknowledged.unwrap_or(transfer.bytes);
    job.age = mean_by_channels(job.age, job.channels, transfer.age, transfer.channels);
    if let Some(tcp) = transfer.tcp {
        job.tcp = Some(job.tcp.map_or(tcp, |sum| {
            add_tcp(sum, job.channels, tcp, transfer.channels)
        }));
    }
    job.receiving = match (job.receiving, transfer.receiving) {
        (Some(a), Some(b)) => Some(receiving_of_both(a, job.channels, b, transfer.channels)),
        (a, b) => a.or(b),
    };
    job.channels += transfer.channels;
    add_movers(&mut job.movers, &transfer.movers);
    add_movers(&mut job.sender_movers, &transfer.sender_movers);
    job.storage.read_us += transfer.storage.read_us;
    job.storage.write_us += transfer.storage.write_us;
}

fn add_movers(movers: &mut MoverTotals, more: &MoverTotals) {
    movers.threads += more.threads;
    movers.running_us += more.running_us;
    movers.runnable_us += more.runnable_us;
    movers.elapsed_us += more.elapsed_us;
}

fn receiving_of_both(
    a: ReceivingTcp,
    a_channels: u32,
    b: ReceivingTcp,
    b_channels: u32,
) -> ReceivingTcp {
    let (a_count, b_count) = (u64::from(a_channels), u64::from(b_channels));
    let windows = a.window_bytes * a_count + b.window_bytes * b_count;
    ReceivingTcp {
        rtt: mean_by_channels(a.rtt, a_channels, b.rtt, b_channels),
        window_bytes: windows.checked_div(a_count + b_count).unwrap_or_default(),
    }
}

fn mean_by_channels(a: Duration, a_channels: u32, b: Duration, b_channels: u32) -> Duration {
    (a * a_channels + b * b_channels)
        .checked_div(a_channels.saturating_add(b_channels))
        .unwrap_or_default()
}

fn add_tcp(a: TcpTotals, a_channels: u32, b: TcpTotals, b_channels: u32) -> TcpTotals {
    let rtt = mean_by_channels(a.rtt, a_channels, b.rtt, b_channels);
    let known = |rtt: &Duration| !rtt.is_zero();
    TcpTotals {
        segments_sent: a.segments_sent + b.segments_sent,
        segments_retransmitted: a.segments_retransmitted + b.segments_retransmitted,
        bytes_retransmitted: a.bytes_retransmitted + b.bytes_retransmitted,
        busy_us: a.busy_us + b.busy_us,
        receive_window_limited_us: a.receive_window_limited_us + b.receive_window_limited_us,
        send_buffer_limited_us: a.send_buffer_limited_us + b.send_buffer_limited_us,
        channel_us: a.channel_us + b.channel_us,
        rtt,
        rtt_min: [a.rtt_min, b.rtt_min]
            .into_iter()
            .filter(known)
            .min()
            .unwrap_or_default(),
        delivery_rate_bps: match (a.delivery_rate_bps, b.delivery_rate_bps) {
            (Some(a), Some(b)) => Some(a + b),
            (one, other) => one.or(other),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_count_received_bytes_and_average_round_trips_by_channel() {
        let transfer = |bytes, acknowledged, channels, ms| Sample {
            bytes,
            acknowledged,
            channels,
            tcp: Some(TcpTotals {
                segments_sent: 10,
                rtt: Duration::from_millis(ms),
                rtt_min: Duration::from_millis(ms),
                ..TcpTotals::default()
            }),
            ..Sample::default()
        };
        let mut job = Sample::default();
        add(&mut job, &transfer(100, Some(90), 3, 10));
        add(&mut job, &transfer(100, None, 1, 50));
        // Over: it has no channel any more.
        add(&mut job, &transfer(100, Some(100), 0, 0));
        assert_eq!((job.bytes, job.channels), (290, 4));
        let tcp = job.tcp.unwrap();
        assert_eq!(tcp.segments_sent, 30);
        assert_eq!(tcp.rtt, Duration::from_millis(20));
        assert_eq!(tcp.rtt_min, Duration::from_millis(10));
    }
}

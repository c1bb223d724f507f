//! Goodput that theory expects, to be drawn beside what was measured.
//!
//! | Function | Source |
//! |---|---|
//! | [`AptModel::goodput_bps`] | Ito, Ohsaki, Imase, "GridFTP-APT", CCGrid 2006, eq. 1 and 2 |
//! | [`mathis_bps`] | Mathis, Semke, Mahdavi, Ott, "The Macroscopic Behavior of the TCP Congestion Avoidance Algorithm", 1997, eq. 3 |
//! | [`cubic_bps`] | RFC 9438 §5.1, eq. 5, and §4.3 for the Reno-friendly region |
//! | [`window_bps`] | one window a round trip |
//!
//! Rates are payload bits per second (goodput) of one connection unless the name says otherwise.

/// Bytes of IP and TCP headers in a data segment: 20 + 20, and 12 for the timestamp option that
/// Linux sends with every segment.
pub const HEADER_BYTES: f64 = 52.0;

/// Payload bytes of a full segment on a path with this MTU, bytes.
pub fn segment_payload_bytes(mtu_bytes: u32) -> f64 {
    f64::from(mtu_bytes) - HEADER_BYTES
}

/// The largest goodput that a link of `rate_bps` (IP packets) leaves after headers, bit/s.
pub fn capacity_bps(rate_bps: f64, mtu_bytes: u32) -> f64 {
    rate_bps * segment_payload_bytes(mtu_bytes) / f64::from(mtu_bytes)
}

/// A path as the model of GridFTP-APT sees it: all connections share one bottleneck and lose
/// packets with the same probability.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AptModel {
    /// Bottleneck, bit/s of IP packets.
    pub rate_bps: f64,
    /// Round-trip time without queueing, s.
    pub rtt_s: f64,
    /// IP packets, bytes.
    pub mtu_bytes: u32,
    /// Window of one connection, bytes of payload in flight.
    pub window_bytes: f64,
}

impl AptModel {
    /// Packet loss probability with `n` connections, `0..=1`; eq. 2 of the paper:
    /// p = 1 / (-2 + 2 B R / N + (2/3) (B R / N)^2), with B the bottleneck in packets/s and R the
    /// round-trip time. Where B R / N is so small that the formula leaves `0..=1`, it is 1.
    pub fn loss(&self, n: f64) -> f64 {
        let share = self.bandwidth_packets() * self.rtt_s / n;
        let denominator = -2.0 + 2.0 * share + 2.0 / 3.0 * share * share;
        if denominator <= 1.0 {
            1.0
        } else {
            1.0 / denominator
        }
    }

    /// Goodput of all `n > 0` connections together, bit/s; eq. 1 of the paper:
    /// G = min(N W / R, N (1 - p) / (2 R) x (-3 + sqrt(6 + 21 p) / sqrt(p))).
    ///
    /// The paper counts packets; ours carry [`segment_payload_bytes`] of payload each. It takes
    /// the bottleneck for the only place that loses, so it never exceeds [`capacity_bps`] by much.
    pub fn goodput_bps(&self, n: f64) -> f64 {
        let payload_bits = segment_payload_bytes(self.mtu_bytes) * 8.0;
        let window_packets = self.window_bytes / segment_payload_bytes(self.mtu_bytes);
        let p = self.loss(n);
        let windowed = n * window_packets / self.rtt_s;
        let lossy =
            n * (1.0 - p) / (2.0 * self.rtt_s) * (-3.0 + (6.0 + 21.0 * p).sqrt() / p.sqrt());
        windowed.min(lossy).max(0.0) * payload_bits
    }

    fn bandwidth_packets(&self) -> f64 {
        self.rate_bps / (8.0 * f64::from(self.mtu_bytes))
    }
}

/// Reno's response function: (MSS / RTT) x C / sqrt(p), C = sqrt(3/2), for random loss and an
/// acknowledgement a segment (Linux grows by acknowledged segments, so delayed acknowledgements do
/// not change C). `0 < loss <= 1`.
pub fn mathis_bps(mss_bytes: f64, rtt_s: f64, loss: f64) -> f64 {
    mss_bytes * 8.0 / rtt_s * 1.5_f64.sqrt() / loss.sqrt()
}

/// CUBIC's response function, RFC 9438 eq. 5 with beta = 0.7 and C = 0.4: an average window of
/// (C (3 + beta) / (4 (1 - beta)))^(1/4) x RTT^(3/4) / p^(3/4) segments, and not less than Reno's,
/// which its Reno-friendly region follows. `0 < loss <= 1`.
pub fn cubic_bps(mss_bytes: f64, rtt_s: f64, loss: f64) -> f64 {
    const BETA: f64 = 0.7;
    const C: f64 = 0.4;
    let factor = (C * (3.0 + BETA) / (4.0 * (1.0 - BETA))).powf(0.25);
    let window = factor * rtt_s.powf(0.75) / loss.powf(0.75);
    (window * mss_bytes * 8.0 / rtt_s).max(mathis_bps(mss_bytes, rtt_s, loss))
}

/// A connection that is limited by its buffers alone: one window a round trip.
pub fn window_bps(window_bytes: f64, rtt_s: f64) -> f64 {
    window_bytes * 8.0 / rtt_s
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(value: f64, expected: f64, ratio: f64) {
        assert!(
            (value / expected - 1.0).abs() < ratio,
            "{value} is not {expected}"
        );
    }

    /// The path of APT-impl: 1 Gbit/s, RTT 20 ms.
    fn impl_path(window_bytes: f64) -> AptModel {
        AptModel {
            rate_bps: 1e9,
            rtt_s: 0.02,
            mtu_bytes: 1500,
            window_bytes,
        }
    }

    #[test]
    fn few_channels_are_limited_by_their_windows() {
        let path = impl_path(65_536.0);
        // 65536 x 8 / 0.02 = 26.2 Mbit/s.
        close(path.goodput_bps(1.0), 26.214e6, 1e-3);
        close(path.goodput_bps(8.0), 8.0 * 26.214e6, 1e-3);
    }

    #[test]
    fn the_loss_formula_by_hand() {
        // B R / N = 1e9 / 12000 x 0.02 / 32 = 52.083; p = 1 / (-2 + 104.17 + 1808.4) = 5.234e-4.
        close(impl_path(65_536.0).loss(32.0), 5.2340e-4, 1e-3);
        // -3 + sqrt(6 + 21 p)/sqrt(p) = -3 + 2.45174/0.0228780 = 104.166; x N (1-p) / (2R)
        // = 83289 packets/s; x 1448 x 8 = 964.8 Mbit/s.
        close(impl_path(1e9).goodput_bps(32.0), 964.8e6, 2e-3);
    }

    #[test]
    fn too_many_channels_lose_everything() {
        let path = impl_path(65_536.0);
        assert_eq!(path.loss(1e9), 1.0);
        assert_eq!(path.goodput_bps(1e9), 0.0);
    }

    #[test]
    fn goodput_stays_below_the_link_and_falls_beyond_the_knee() {
        let path = impl_path(65_536.0);
        let capacity = capacity_bps(1e9, 1500);
        let values: Vec<f64> = (1..=512).map(|n| path.goodput_bps(f64::from(n))).collect();
        assert!(values.iter().all(|g| *g <= capacity * 1.01));
        let best = values.iter().copied().fold(0.0, f64::max);
        assert!(values[511] < best * 0.95);
    }

    #[test]
    fn mathis_at_a_thousandth() {
        // 1448 x 8 / 0.02 x 1.2247 / 0.03162 = 22.43 Mbit/s.
        close(mathis_bps(1448.0, 0.02, 1e-3), 22.43e6, 1e-3);
    }

    #[test]
    fn cubic_matches_the_table_of_its_rfc() {
        // RFC 9438 table 2 (RTT 0.1 s): p = 1e-4 gives 187 segments.
        let window = |p: f64| cubic_bps(1.0, 0.1, p) * 0.1 / 8.0;
        close(window(1e-4), 187.0, 0.01);
        close(window(1e-6), 5_900.0, 0.01);
        // RFC 9438 table 2: at p = 1e-2 it is Reno's 12.
        close(window(1e-2), 12.247, 0.01);
    }

    #[test]
    fn headers_take_their_share() {
        close(capacity_bps(1e9, 1500), 965.33e6, 1e-4);
        close(window_bps(86_000.0, 0.02), 34.4e6, 1e-6);
    }
}

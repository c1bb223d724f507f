//! What CUBIC makes of loss, and loss of CUBIC (RFC 9438 §4.3, §5.1).

/// Payload of a segment, bytes: 1500 less the headers of IP and TCP with timestamps.
pub const SEGMENT_BYTES: f64 = 1448.0;
/// A segment with its headers, bytes.
pub const PACKET_BYTES: f64 = 1500.0;
/// Window to which a loss reduces a larger one, as a part of it (RFC 9438 §4.6).
const BETA: f64 = 0.7;
/// Growth of the window (RFC 9438 §5).
const C: f64 = 0.4;
/// Most that losses of a full link take: with windows of a few segments the formulas end.
const LOSS_MAX: f64 = 0.3;

/// (C (3 + beta) / (4 (1 - beta)))^(1/4), of eq. 5.
fn factor() -> f64 {
    (C * (3.0 + BETA) / (4.0 * (1.0 - BETA))).powf(0.25)
}

/// Mean window of a connection that loses one of `1 / loss` segments, segments.
pub(super) fn window(rtt_s: f64, loss: f64) -> f64 {
    if loss <= 0.0 {
        return f64::INFINITY;
    }
    let cubic = factor() * (rtt_s / loss).powf(0.75);
    cubic.max((1.5 / loss).sqrt())
}

/// The loss that holds a connection to a mean window of so many segments.
pub(super) fn loss(rtt_s: f64, window: f64) -> f64 {
    let window = window.max(1.0);
    let cubic = rtt_s * (factor() / window).powf(4.0 / 3.0);
    cubic.max(1.5 / (window * window)).min(LOSS_MAX)
}

/// Share of a full link that a lone connection leaves unused because its queue is shorter than what
/// a loss takes of the window. `queue` is in bandwidth-delay products.
///
/// After a loss the window is W (1 - (1 - beta) (1 - u)^3), u = t / K, with W = 1 + queue (RFC 9438
/// eq. 1); the link idles until that is a bandwidth-delay product.
pub(super) fn unused(queue: f64) -> f64 {
    let depth = 1.0 - BETA;
    let full = queue.max(0.0) / (1.0 + queue.max(0.0)) / depth;
    if full >= 1.0 {
        return 0.0;
    }
    let rest = full.cbrt();
    let until = 1.0 - rest;
    let queue = queue.max(0.0);
    depth * (1.0 + queue) * (1.0 - rest.powi(4)) / 4.0 - queue * until
}

/// Mean of a DropTail queue that CUBIC keeps filling, as a part of its length; `queue` is that
/// length in bandwidth-delay products. All windows lose together here, which is the emptiest case.
pub(super) fn mean_queue(queue: f64) -> f64 {
    if queue <= 0.0 {
        return 0.0;
    }
    let mean_window = (1.0 + queue) * (1.0 - (1.0 - BETA) / 4.0);
    ((mean_window - 1.0) / queue).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_those_of_the_table_of_the_rfc() {
        // RFC 9438 table 2, R = 0.1 s.
        for (p, segments) in [(1e-2, 12.2), (1e-4, 187.0), (1e-6, 5_900.0)] {
            let ratio = window(0.1, p) / segments;
            assert!((ratio - 1.0).abs() < 0.01, "{p}: {ratio}");
        }
        assert_eq!(window(0.1, 0.0), f64::INFINITY);
    }

    #[test]
    fn loss_is_the_inverse_of_windows() {
        for p in [1e-7, 1e-5, 1e-3, 1e-2] {
            for rtt in [0.002, 0.02, 0.2] {
                let back = loss(rtt, window(rtt, p));
                assert!((back / p - 1.0).abs() < 1e-9, "{p} {rtt}: {back}");
            }
        }
    }

    #[test]
    fn a_shallow_queue_leaves_up_to_seven_percent_unused() {
        assert!((unused(0.0) - 0.075).abs() < 1e-12);
        assert!(unused(0.1) < 0.075 && unused(0.1) > 0.0);
        // 0.7 of 1 + 0.43 is a bandwidth-delay product.
        assert_eq!(unused(0.4286), 0.0);
        assert!(mean_queue(1.0) > 0.8 && mean_queue(0.05) == 0.0);
    }
}

//! CUBIC's window: RFC 9438 §4, in packets.

use super::{hystart::HyStart, window::Window};

/// RFC 9438 §4.1 and §4.6, packets and seconds.
const C: f64 = 0.4;
const BETA: f64 = 0.7;
/// §4.3: additive increase with which an AIMD window of the same decrease has Reno's mean.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

#[derive(Debug, Default)]
pub(super) struct Cubic {
    w_max: f64,
    /// cwnd before the last reduction.
    prior: f64,
    epoch: Option<Avoidance>,
    /// `None`: slow start ends with a loss.
    hystart: Option<HyStart>,
}

/// Congestion avoidance since the last reduction.
#[derive(Debug)]
struct Avoidance {
    since: u64,
    /// Plateau, packets, and when it is reached, s.
    origin: f64,
    k: f64,
    /// W_est of §4.3.
    reno: f64,
}

impl Cubic {
    pub(super) fn new(hystart: bool) -> Self {
        Self {
            hystart: hystart.then(HyStart::default),
            ..Self::default()
        }
    }

    /// `acked` packets left the path, the last of them `rtt` ns after it was sent. Called with the
    /// window before them.
    #[allow(clippy::cast_precision_loss, reason = "times since a loss, ns")]
    pub(super) fn grow(&mut self, w: &mut Window, now: u64, acked: f64, rtt: u64) {
        if w.cwnd < w.ssthresh {
            if (self.hystart.as_mut()).is_some_and(|hystart| hystart.ends(w, now, rtt)) {
                w.ssthresh = w.cwnd;
            }
            w.grow(acked);
            return;
        }
        let (w_max, cwnd) = (self.w_max, w.cwnd);
        // The constants count segments.
        let segments = f64::from(w.config.segments);
        let c = C / segments;
        let epoch = self.epoch.get_or_insert_with(|| Avoidance {
            since: now,
            origin: w_max.max(cwnd),
            k: ((w_max - cwnd).max(0.0) / c).cbrt(),
            reno: cwnd,
        });
        // W_cubic(t + RTT) is where the window should be a round trip from now.
        let t = now.saturating_sub(epoch.since) as f64 / 1e9;
        let rtt = w.rto.srtt_ns().unwrap_or(0.0) / 1e9;
        let cubic = |t: f64| c * (t - epoch.k).powi(3) + epoch.origin;
        let alpha = if epoch.reno >= self.prior { 1.0 } else { ALPHA };
        epoch.reno += alpha * acked / cwnd / segments;
        w.cwnd = if cubic(t) < epoch.reno {
            epoch.reno.max(cwnd)
        } else {
            let target = cubic(t + rtt).clamp(cwnd, 1.5 * cwnd);
            cwnd + (target - cwnd) / cwnd * acked
        };
        w.cwnd = w.cwnd.min(f64::from(w.config.window_max));
    }

    /// The window after a loss; §4.6 and §4.7 (fast convergence).
    pub(super) fn reduced(&mut self, w: &Window) -> f64 {
        let cwnd = w.allowed();
        self.prior = cwnd;
        self.w_max = if cwnd < self.w_max {
            cwnd * (1.0 + BETA) / 2.0
        } else {
            cwnd
        };
        self.epoch = None;
        (cwnd * BETA).max(2.0)
    }

    /// Slow start begins again, after a timeout.
    pub(super) fn restart(&mut self) {
        self.hystart.iter_mut().for_each(HyStart::restart);
    }
}

//! What the kernels at both ends of a transfer report of its connections (`tcp_info`).

use godwit_engine::host::tcp_diag::{TcpConnection, TcpDiag};

use super::RunError;
use super::record::Sender;
use crate::connection_totals::ConnectionTotals;
use crate::host::Host;
use crate::stats;

/// Payload from which on a connection counts as a data channel, bytes.
const CHANNEL_BYTES: u64 = 8 << 10;

/// The connections of a host, those that have closed included.
pub(super) struct Watch {
    diag: TcpDiag,
    /// Connections to this port of the host are no data.
    control: Option<u16>,
    totals: ConnectionTotals,
    live: u32,
}

impl Watch {
    pub(super) fn of(host: &Host) -> Result<Watch, RunError> {
        let diag = host.enter(TcpDiag::open)?.map_err(RunError::Diag)?;
        Ok(Watch {
            diag,
            control: None,
            totals: ConnectionTotals::default(),
            live: 0,
        })
    }

    /// Leaves out connections to this port of the host.
    pub(super) fn without(mut self, control: Option<u16>) -> Watch {
        self.control = control;
        self
    }

    fn connections(&mut self) -> Result<Vec<TcpConnection>, RunError> {
        let mut all = self.diag.connections().map_err(RunError::Diag)?;
        all.retain(|connection| Some(connection.local_port) != self.control);
        Ok(all)
    }

    pub(super) fn look(&mut self) -> Result<(), RunError> {
        let now = self.connections()?;
        let channels = now.iter().filter(|c| c.bytes_received > CHANNEL_BYTES);
        self.live = u32::try_from(channels.count()).unwrap_or(u32::MAX);
        self.totals.update(&now);
        Ok(())
    }

    /// Payload received so far.
    pub(super) fn bytes(&self) -> u64 {
        self.totals.bytes_received()
    }

    /// Connections that are there now and have received data.
    pub(super) fn live(&self) -> u32 {
        self.live
    }

    /// Connections that ever received data.
    pub(super) fn receivers(&self) -> usize {
        self.totals.receivers(CHANNEL_BYTES)
    }
}

/// What is only known by looking again and again at the sending kernel.
#[derive(Default)]
pub(super) struct SenderSeries {
    before: Vec<ConnectionTotals>,
    in_flight: Vec<f64>,
    rtts_ms: Vec<f64>,
}

impl SenderSeries {
    /// From now on, of all `senders`.
    pub(super) fn start<'a>(
        senders: impl Iterator<Item = &'a mut Watch>,
    ) -> Result<SenderSeries, RunError> {
        let mut series = SenderSeries::default();
        for watch in senders {
            watch.look()?;
            series.before.push(watch.totals.clone());
        }
        Ok(series)
    }

    /// Looks at all of them once more.
    pub(super) fn look<'a>(
        &mut self,
        senders: impl Iterator<Item = &'a mut Watch>,
    ) -> Result<(), RunError> {
        let (mut flights, mut rtts) = (Vec::new(), Vec::new());
        for watch in senders {
            let now = watch.connections()?;
            for c in now.iter().filter(|c| c.bytes_sent > CHANNEL_BYTES) {
                flights.push(f64::from(c.unacked) * f64::from(c.segment_bytes));
                rtts.push(f64::from(c.rtt_us) / 1e3);
            }
            watch.totals.update(&now);
        }
        self.in_flight.extend(stats::mean(&flights));
        self.rtts_ms.extend(stats::mean(&rtts));
        Ok(())
    }

    /// From the start until now.
    #[allow(clippy::cast_precision_loss, reason = "shares of time")]
    pub(super) fn summary<'a>(&self, senders: impl Iterator<Item = &'a Watch>) -> Sender {
        let mut sender = Sender::default();
        let (mut busy, mut window, mut buffer) = (0, 0, 0);
        let mut rtt_min_us = u32::MAX;
        let pairs = senders.zip(&self.before);
        let all = pairs.flat_map(|(watch, before)| {
            let connections = watch.totals.connections();
            connections.map(move |connection| (connection, before))
        });
        for (c, before) in all.filter(|(c, _)| c.bytes_sent > CHANNEL_BYTES) {
            let before = (before.connections())
                .find(|b| b.cookie == c.cookie)
                .copied()
                .unwrap_or_default();
            sender.bytes_sent += c.bytes_sent - before.bytes_sent;
            sender.bytes_retransmitted += c.bytes_retransmitted - before.bytes_retransmitted;
            busy += c.busy_us.saturating_sub(before.busy_us);
            window +=
                (c.receive_window_limited_us).saturating_sub(before.receive_window_limited_us);
            buffer += (c.send_buffer_limited_us).saturating_sub(before.send_buffer_limited_us);
            rtt_min_us = rtt_min_us.min(c.rtt_min_us);
        }
        sender.in_flight_bytes = stats::median(&self.in_flight).unwrap_or(0.0);
        sender.rtt_ms = stats::median(&self.rtts_ms).unwrap_or(0.0);
        if rtt_min_us < u32::MAX {
            sender.rtt_min_ms = f64::from(rtt_min_us) / 1e3;
        }
        sender.receive_window_limited = window as f64 / busy.max(1) as f64;
        sender.send_buffer_limited = buffer as f64 / busy.max(1) as f64;
        sender
    }
}

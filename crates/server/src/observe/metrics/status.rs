//! The present connections and their work, for the log.

use std::time::SystemTime;

use tracing::info;

use super::{ConnectionState, Direction, Metrics, lock, prometheus_text::DIRECTIONS};
use crate::observe::event::What;

/// Connections that the log lists one by one; beyond that it has only the number.
const TOLD_MAX: usize = 1000;

impl Metrics {
    /// One line each, and one on all. Names and paths are escaped as everywhere in the log.
    pub(crate) fn log_status(&self) {
        let now = SystemTime::now();
        let connections = self.connections();
        for (number, seen) in connections.iter().take(TOLD_MAX) {
            lock(seen).log(*number, now);
        }
        if connections.len() > TOLD_MAX {
            info!(
                connections = connections.len() - TOLD_MAX,
                "status: and others"
            );
        }
        let [in_, out, list] = DIRECTIONS.map(|direction| &self.moves[direction as usize]);
        info!(
            connections = connections.len(),
            connections_total = self.connections.count(),
            received = in_.done.count(),
            received_bytes = in_.bytes.count(),
            sent = out.done.count(),
            sent_bytes = out.bytes.count(),
            lists = list.done.count(),
            failed = in_.failed.count() + out.failed.count() + list.failed.count(),
            retransmitted_bytes = self.retransmitted.count(),
            seconds = seconds(self.began, now),
            "status"
        );
    }
}

impl ConnectionState {
    fn log(&self, number: u64, now: SystemTime) {
        let login = self.login.as_ref();
        let doing = self.doing.as_ref();
        let verb = doing.map(|doing| match doing.running.what {
            What::Put => "receive",
            What::Get => "send",
            _ => "list",
        });
        info!(
            session = number,
            from = %self.address,
            seconds = seconds(self.since, now),
            user = login.and_then(|login| login.account.as_deref()).map(tracing::field::debug),
            identity = login.and_then(|login| login.identity.as_deref()).map(tracing::field::debug),
            method = login.map(|login| tracing::field::debug(login.method)),
            verb,
            path = doing.map(|doing| tracing::field::debug(&doing.running.path)),
            path_bytes = doing.map(|doing| doing.running.flow.bytes),
            path_seconds = doing.map(|doing| seconds(doing.since, now)),
            channels = self.channels.now,
            transfers = self.transfers,
            received_bytes = self.bytes[Direction::In as usize],
            sent_bytes = self.bytes[Direction::Out as usize],
            "{}",
            match (login, doing) {
                (None, _) => "status: has not logged in",
                (Some(_), None) => "status: idle",
                (Some(_), Some(_)) => "status: transfers",
            }
        );
    }
}

fn seconds(since: SystemTime, now: SystemTime) -> u64 {
    now.duration_since(since).unwrap_or_default().as_secs()
}

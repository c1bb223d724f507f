//! Bytes and retransmissions of all connections of a host, including closed ones.

use std::collections::BTreeMap;

use godwit_engine::host::tcp_diag::TcpConnection;

/// The last state of every connection that was ever seen, so that what closed connections moved
/// still counts.
#[derive(Debug, Clone, Default)]
pub struct ConnectionTotals {
    connections: BTreeMap<u64, TcpConnection>,
}

impl ConnectionTotals {
    /// Takes a new look into account.
    pub fn update(&mut self, connections: &[TcpConnection]) {
        for connection in connections {
            self.connections.insert(connection.cookie, *connection);
        }
    }

    /// All connections that were ever seen.
    pub fn connections(&self) -> impl Iterator<Item = &TcpConnection> {
        self.connections.values()
    }

    /// Payload bytes received over all of them.
    pub fn bytes_received(&self) -> u64 {
        self.connections().map(|c| c.bytes_received).sum()
    }

    /// Connections that received more than `bytes`.
    pub fn receivers(&self, bytes: u64) -> usize {
        self.connections()
            .filter(|c| c.bytes_received > bytes)
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_closed_connections_still_count() {
        let connection = TcpConnection {
            cookie: 1,
            bytes_received: 12_345,
            ..TcpConnection::default()
        };
        let mut totals = ConnectionTotals::default();
        totals.update(&[connection]);
        totals.update(&[]);
        assert_eq!(totals.bytes_received(), 12_345);
        assert_eq!(totals.receivers(12_345), 0);
        assert_eq!(totals.receivers(12_344), 1);
    }
}

//! The metrics in Prometheus text format.

use std::{fs, time::SystemTime};

use godwit_engine::host::prometheus_text::PrometheusText;
use rustix::process::{Resource, getrlimit};

use super::{Class, ConnectionRefusal, Direction, Kind, Method, Metrics, lock};

impl Metrics {
    /// All present values. Reads files of /proc.
    pub(crate) fn prometheus_text(&self) -> String {
        let mut out = PrometheusText::default();
        self.sessions(&mut out);
        self.transfers(&mut out);
        self.nodes(&mut out);
        self.process(&mut out);
        out.into_text()
    }

    fn sessions(&self, out: &mut PrometheusText) {
        let mut sessions = vec![0_u64; Method::ALL.len()];
        let (mut waiting, mut channels) = (0_u64, 0_u64);
        let mut transfers = [0_u64; Direction::COUNT];
        for (_, seen) in self.connections() {
            let seen = lock(&seen);
            match &seen.login {
                Some(login) => sessions[login.method.index()] += 1,
                None => waiting += 1,
            }
            channels += u64::from(seen.channels.now);
            let doing = seen.doing.as_ref();
            if let Some(direction) = doing.and_then(|doing| Direction::of(doing.running.what)) {
                transfers[direction as usize] += 1;
            }
        }
        let mut of = out.gauge(
            "godwitd_sessions",
            "Sessions that have logged in, by how; sessions under sshd are not of this process.",
        );
        for method in Method::ALL {
            of.labelled(&[("method", method.word())], sessions[method.index()]);
        }
        out.gauge(
            "godwitd_connections_waiting",
            "Control connections that have not logged in.",
        )
        .value(waiting);
        out.counter(
            "godwitd_connections_total",
            "Control connections that were let in.",
        )
        .value(self.connections.count());
        let mut of = out.counter(
            "godwitd_connections_refused_total",
            "Control connections that were not even greeted, by which limit they met.",
        );
        for door in ConnectionRefusal::ALL {
            of.labelled(&[("limit", door.word())], self.refused.of(*door));
        }
        let mut of = out.counter("godwitd_logins_total", "Logins that have succeeded.");
        for method in Method::ALL {
            of.labelled(&[("method", method.word())], self.logins.of(*method));
        }
        let mut of = out.counter(
            "godwitd_logins_refused_total",
            "Logins and handshakes that have failed, by cause.",
        );
        for class in Class::ALL.iter().filter(|class| class.is_of_logins()) {
            of.labelled(&[("cause", class.word())], self.logins_refused.of(*class));
        }
        let mut of = out.gauge(
            "godwitd_transfers_running",
            "Transfers that have run for a second or longer.",
        );
        for direction in DIRECTIONS {
            let labels = &[("direction", direction.word())];
            of.labelled(labels, transfers[direction as usize]);
        }
        out.gauge(
            "godwitd_data_channels",
            "Data connections, as sessions reported within the last seconds.",
        )
        .value(channels);
        out.counter(
            "godwitd_data_channels_opened_total",
            "Data connections that have come up.",
        )
        .value(self.channels_opened.count());
    }

    fn transfers(&self, out: &mut PrometheusText) {
        let mut of = out.counter(
            "godwitd_transfers_total",
            "Transfers that have ended: files or parts of files in and out, and lists.",
        );
        for direction in DIRECTIONS {
            let moves = &self.moves[direction as usize];
            for (result, count) in [("done", &moves.done), ("failed", &moves.failed)] {
                let labels = &[("direction", direction.word()), ("result", result)];
                of.labelled(labels, count.count());
            }
        }
        let mut of = out.counter(
            "godwitd_transfer_bytes_total",
            "Bytes of files and listings, also of running and failed transfers.",
        );
        for direction in DIRECTIONS {
            let bytes = self.moves[direction as usize].bytes.count();
            of.labelled(&[("direction", direction.word())], bytes);
        }
        let mut of = out.counter(
            "godwitd_transfer_seconds_total",
            "Time that transfers have taken which have ended.",
        );
        for direction in DIRECTIONS {
            let microseconds = self.moves[direction as usize].microseconds.count();
            of.labelled(&[("direction", direction.word())], seconds(microseconds));
        }
        out.counter(
            "godwitd_retransmitted_bytes_total",
            "Bytes that TCP retransmitted on data connections, of the transfers that were sampled.",
        )
        .value(self.retransmitted.count());
        let mut of = out.counter(
            "godwitd_changes_total",
            "Changes of names, directories and attributes that were asked for.",
        );
        for (result, count) in ["done", "failed"].iter().zip(&self.changes) {
            of.labelled(&[("result", result)], count.count());
        }
        let mut of = out.counter(
            "godwitd_errors_total",
            "Transfers and changes that have failed, by cause.",
        );
        for class in Class::ALL.iter().filter(|class| !class.is_of_logins()) {
            of.labelled(&[("cause", class.word())], self.errors.of(*class));
        }
    }

    fn nodes(&self, out: &mut PrometheusText) {
        let Some(nodes) = lock(&self.nodes).clone() else {
            return;
        };
        let nodes = nodes.samples();
        let mut of = out.gauge(
            "godwitd_node_up",
            "1: the data node is well; 0: no session gets it.",
        );
        for node in &nodes {
            of.labelled(&[("node", &node.name)], u8::from(node.is_well));
        }
        let mut of = out.gauge("godwitd_node_links", "Links of sessions to the data node.");
        for node in &nodes {
            of.labelled(&[("node", &node.name)], node.links);
        }
        let mut of = out.gauge(
            "godwitd_node_data_channels",
            "Data connections of the data node, as it reported within the last seconds.",
        );
        for node in &nodes {
            of.labelled(&[("node", &node.name)], node.channels);
        }
        let mut of = out.counter(
            "godwitd_node_bytes_total",
            "Bytes of files and listings that the data node has moved, since settings were read.",
        );
        for node in &nodes {
            of.labelled(&[("node", &node.name)], node.bytes);
        }
    }

    /// Under the standard names of processes.
    fn process(&self, out: &mut PrometheusText) {
        let began = self.began.duration_since(SystemTime::UNIX_EPOCH);
        out.gauge(
            "process_start_time_seconds",
            "When the server has begun, since 1970.",
        )
        .value(began.unwrap_or_default().as_secs_f64());
        if let Some(bytes) = resident() {
            out.gauge(
                "process_resident_memory_bytes",
                "Memory of the listening process; with --privsep each session has its own.",
            )
            .value(bytes);
        }
        // The directory is open while it is read.
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            out.gauge("process_open_fds", "Descriptors that it has open.")
                .value(open.count().saturating_sub(1));
        }
        if let Some(limit) = getrlimit(Resource::Nofile).current {
            out.gauge("process_max_fds", "Descriptors that it may have open.")
                .value(limit);
        }
        let version = env!("CARGO_PKG_VERSION");
        out.gauge("godwitd_build_info", "The version that runs; always 1.")
            .labelled(&[("version", version)], 1);
    }
}

pub(crate) const DIRECTIONS: [Direction; Direction::COUNT] =
    [Direction::In, Direction::Out, Direction::List];

fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

#[allow(clippy::cast_precision_loss)] // 53 bits of microseconds are centuries
fn seconds(microseconds: u64) -> f64 {
    microseconds as f64 / 1e6
}

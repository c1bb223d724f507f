//! What a job comes to.

use serde::Serialize;

use crate::{
    error::Exit,
    units::{show_bytes, show_rate},
};

/// Last words of a job: the `summary` event, the object of `--json`, and the closing line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Bytes of the files that are there.
    pub bytes: u64,
    /// From the start of the job to its end.
    pub seconds: f64,
    /// `bytes` x 8 / `seconds`.
    pub goodput_bps: f64,
    /// Files that are there.
    pub files_done: u64,
    /// Files that are not.
    pub files_failed: u64,
    /// What was copied to this machine may not be on its disks.
    #[serde(skip)]
    pub is_unsynced: bool,
    /// Bytes that TCP sent again; absent where the system does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmitted_bytes: Option<u64>,
    /// What the transfer waited for; absent where no run measured it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<String>,
    /// What a sync has done beside copying.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub synced: Option<SyncSummary>,
    /// Exit status.
    pub exit: u8,
}

/// Numbers of a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SyncSummary {
    /// Nothing was changed.
    pub dry_run: bool,
    /// Files that were to be copied.
    pub files_differing: u64,
    /// Their bytes, as far as known.
    pub bytes_differing: u64,
    /// Files that were there already.
    pub files_same: u64,
    /// Names that were not in the source and are gone, or would be.
    pub names_removed: u64,
}

impl Summary {
    /// Numbers of a job that took `seconds`.
    #[allow(clippy::cast_precision_loss)] // a rate for people and logs
    pub fn new(bytes: u64, seconds: f64, files_done: u64, files_failed: u64, exit: Exit) -> Self {
        Self {
            bytes,
            seconds,
            goodput_bps: if seconds > 0.0 {
                bytes as f64 * 8.0 / seconds
            } else {
                0.0
            },
            files_done,
            files_failed,
            is_unsynced: false,
            retransmitted_bytes: None,
            limited_by: None,
            synced: None,
            exit: exit.code(),
        }
    }

    /// One line for people.
    pub fn closing_line(&self) -> String {
        let plural = if self.files_done == 1 { "" } else { "s" };
        let cut = if self.exit == Exit::Interrupted.code() {
            "interrupted: "
        } else {
            ""
        };
        let mut line = match self.synced.filter(|synced| synced.dry_run) {
            Some(would) => format!(
                "{cut}dry run: {} to copy, {}",
                would.files_differing,
                show_bytes(would.bytes_differing)
            ),
            None => format!(
                "{cut}{} file{plural}, {} in {:.1} s, {}",
                self.files_done,
                show_bytes(self.bytes),
                self.seconds,
                show_rate(self.goodput_bps)
            ),
        };
        if let Some(synced) = self.synced {
            line.push_str(&format!("; {} the same", synced.files_same));
            let (removed, verb) = match synced.dry_run {
                true => (synced.names_removed, "to remove"),
                false => (synced.names_removed, "removed"),
            };
            if removed > 0 {
                line.push_str(&format!("; {removed} {verb}"));
            }
        }
        if self.files_failed > 0 {
            line.push_str(&format!("; {} failed", self.files_failed));
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_line_counts_failures_only_where_there_are_some() {
        let s = Summary::new(3 << 20, 2.0, 1, 0, Exit::Done);
        assert_eq!(s.closing_line(), "1 file, 3.00 MiB in 2.0 s, 12.6 Mbit/s");
        let s = Summary::new(0, 0.0, 0, 2, Exit::Failed);
        assert_eq!(s.closing_line(), "0 files, 0 B in 0.0 s, 0 bit/s; 2 failed");
    }
}

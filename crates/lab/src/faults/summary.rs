//! The outcomes of faults, summed up by kind.

use serde::Serialize;

use super::{Kind, Outcome};

/// All faults of a kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The kind; `None` for all together.
    pub kind: Option<Kind>,
    /// How many.
    pub faults: usize,
    /// How many met a command that was still running.
    pub happened: usize,
    /// How many the client got over by itself, of those that happened.
    pub overcome: usize,
    /// Most times that a command was given.
    pub runs_max: u32,
    /// Bytes of the files.
    pub bytes: u64,
    /// Bytes sent again.
    pub resent_bytes: u64,
    /// Bytes that were promised to be the most that all of them together send again.
    pub promised_bytes: u64,
    /// Most bytes that one fault led to.
    pub resent_worst_bytes: u64,
    /// Bytes that lay unread in kernels when faults happened.
    pub unread_bytes: u64,
    /// How many sent more again than promised.
    pub sent_too_much: usize,
    /// How many of them did even without what lay unread.
    pub lost_too_much: usize,
    /// How many broke another promise.
    pub failed: usize,
}

impl Row {
    fn of(kind: Option<Kind>, outcomes: &[Outcome]) -> Row {
        let mut row = Row {
            kind,
            faults: 0,
            happened: 0,
            overcome: 0,
            runs_max: 0,
            bytes: 0,
            resent_bytes: 0,
            promised_bytes: 0,
            resent_worst_bytes: 0,
            unread_bytes: 0,
            sent_too_much: 0,
            lost_too_much: 0,
            failed: 0,
        };
        for outcome in outcomes {
            if kind.is_some_and(|kind| kind != outcome.fault.kind) {
                continue;
            }
            row.faults += 1;
            row.happened += usize::from(outcome.happened);
            row.overcome += usize::from(outcome.happened && outcome.runs == 1);
            row.runs_max = row.runs_max.max(outcome.runs);
            row.bytes += outcome.bytes;
            row.resent_bytes += outcome.resent_bytes;
            row.promised_bytes += outcome.resent_max;
            row.resent_worst_bytes = row.resent_worst_bytes.max(outcome.resent_bytes);
            row.unread_bytes += outcome.unread_bytes;
            row.sent_too_much += usize::from(outcome.sent_too_much());
            row.lost_too_much += usize::from(outcome.lost_too_much());
            row.failed += usize::from(!outcome.findings.is_empty());
        }
        row
    }

    /// Whether all promises were kept, what is sent again among them.
    pub fn keeps(&self) -> bool {
        self.sent_too_much == 0 && self.failed == 0
    }

    /// Bytes sent again over bytes of the files, %.
    #[allow(clippy::cast_precision_loss, reason = "a ratio")]
    pub fn resent_percent(&self) -> f64 {
        100.0 * self.resent_bytes as f64 / self.bytes.max(1) as f64
    }
}

/// A row for each kind that there was, and last one for all.
pub fn summarise(outcomes: &[Outcome]) -> Vec<Row> {
    (Kind::ALL.into_iter().map(Some).chain([None]))
        .map(|kind| Row::of(kind, outcomes))
        .filter(|row| row.faults > 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Fault;

    fn outcome(number: u64, kind: Kind) -> Outcome {
        let fault = Fault::draw(1, number, &[kind]);
        Outcome {
            fault,
            happened: true,
            runs: 1,
            seconds: 1.0,
            bytes: 1000,
            resent_bytes: 10,
            unread_bytes: 0,
            resent_max: 20,
            findings: Vec::new(),
        }
    }

    #[test]
    fn kinds_are_counted_apart_and_together() {
        let mut outcomes = vec![
            outcome(0, Kind::Cut),
            outcome(1, Kind::Cut),
            outcome(2, Kind::ServerKilled),
        ];
        outcomes[0].resent_bytes = 30;
        outcomes[0].runs = 2;
        outcomes[2].findings.push("differs".into());
        outcomes[2].happened = false;
        let rows = summarise(&outcomes);
        let kinds: Vec<_> = rows.iter().map(|row| row.kind).collect();
        assert_eq!(kinds, [Some(Kind::ServerKilled), Some(Kind::Cut), None]);
        let cuts = &rows[1];
        assert_eq!((cuts.faults, cuts.happened, cuts.overcome), (2, 2, 1));
        assert_eq!((cuts.resent_bytes, cuts.resent_worst_bytes), (40, 30));
        assert_eq!(cuts.promised_bytes, 40);
        assert_eq!((cuts.sent_too_much, cuts.failed), (1, 0));
        assert!(!cuts.keeps() && !rows[0].keeps());
        assert!(summarise(&[outcome(3, Kind::Slow)])[0].keeps());
        let all = &rows[2];
        assert_eq!((all.faults, all.happened, all.failed), (3, 2, 1));
        assert!((all.resent_percent() - 50.0 / 30.0).abs() < 1e-9);
        assert!(summarise(&[]).is_empty());
    }
}

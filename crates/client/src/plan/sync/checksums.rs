//! Compares checksums of files of the same size, many at a time: both ends compute at once.

use std::sync::{Arc, atomic::Ordering};

use godwit_proto::{ChecksumAlgorithm, facts::Facts};

use super::{FilePair, SyncPlanner, policy::compare_attributes};
use crate::{
    error::{Error, Result},
    plan::{
        checksums::{BYTES_TOGETHER, TOGETHER, checksums, offered},
        copy_path::CopyPath,
    },
    spec::{Level, Verify},
    transfer::verify,
};

/// Files of the same size.
pub(super) struct UndecidedFile {
    pub(super) pair_of: FilePair,
    pub(super) source: Facts,
    pub(super) target: Facts,
}

impl SyncPlanner<'_> {
    /// The cheapest algorithm that each server has, or the one that the user chose for copies.
    pub(super) async fn choose_algorithm(&mut self, ends: [&CopyPath; 2]) -> Result<()> {
        if self.spec.level != Level::Checksum {
            return Ok(());
        }
        let mut candidates = match self.planner.spec.verify {
            Verify::Always(Some(algorithm)) => vec![algorithm],
            _ => ChecksumAlgorithm::ALL.to_vec(),
        };
        for end in ends {
            let CopyPath::There(at) = end else { continue };
            let offered = offered(&mut self.planner.retrying, &at.endpoint).await?;
            candidates.retain(|algorithm| offered.contains(algorithm));
            if candidates.is_empty() {
                return Err(Error::MissingFeature {
                    endpoint: at.endpoint.name(),
                    feature: "CKSM with an algorithm that is wanted here and there".to_owned(),
                    consequence: "--checksum cannot compare; without it sizes and times are"
                        .to_owned(),
                });
            }
        }
        self.algorithm = candidates.first().copied();
        Ok(())
    }

    /// Queues a pair that only checksums can compare.
    pub(super) async fn check_later(&mut self, check_later: UndecidedFile) {
        self.undecided_bytes += check_later.source.size.unwrap_or(0);
        self.undecided.push(check_later);
        if self.undecided.len() >= TOGETHER || self.undecided_bytes >= BYTES_TOGETHER {
            self.check_pending().await;
        }
    }

    /// Compares the queued pairs.
    pub(super) async fn check_pending(&mut self) {
        let undecided = std::mem::take(&mut self.undecided);
        self.undecided_bytes = 0;
        let Some(algorithm) = self.algorithm.filter(|_| !undecided.is_empty()) else {
            return;
        };
        if self.planner.context.stop.is_cancelled() {
            return;
        }
        let counters = Arc::clone(&self.planner.context.counters);
        let count = undecided.len() as u64;
        counters.verifying.fetch_add(count, Ordering::Relaxed);
        let sources = undecided
            .iter()
            .map(|check_later| &check_later.pair_of.source);
        let targets = undecided
            .iter()
            .map(|check_later| &check_later.pair_of.target);
        let (ours, theirs) = tokio::join!(
            checksums(&mut self.other, algorithm, sources.collect()),
            checksums(&mut self.planner.retrying, algorithm, targets.collect()),
        );
        counters.verifying.fetch_sub(count, Ordering::Relaxed);
        for (check_later, (ours, theirs)) in undecided.into_iter().zip(ours.into_iter().zip(theirs))
        {
            let shown = check_later.pair_of.source.to_string();
            let UndecidedFile {
                pair_of,
                source,
                target,
            } = check_later;
            let settled = match (ours, theirs) {
                (Ok(ours), Ok(theirs)) => {
                    let comparison = match verify::agree("", algorithm, ours, theirs) {
                        Ok(_) => compare_attributes(self.keeps_times, &source, &target),
                        Err(_) => crate::plan::sync::policy::Comparison::Differs("checksum"),
                    };
                    self.act(pair_of, &source, comparison).await
                }
                (Err(error), _) | (_, Err(error)) => Err(error),
            };
            if let Err(error) = settled {
                self.planner.fail(shown, error).await;
            }
        }
    }
}

//! Compares checksums of files of the same size, many at a time: both ends compute at once.

use std::sync::{Arc, atomic::Ordering};

use godwit_proto::{ChecksumAlgorithm, facts::Facts};

use super::{
    FilePair, SyncPlanner,
    policy::{Comparison, compare_attributes},
};
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
    /// The cheapest algorithm that each server has, or the one that the user chose for copies. What
    /// a bucket has may differ by object.
    pub(super) async fn choose_algorithms(&mut self, ends: [&CopyPath; 2]) -> Result<()> {
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
        if !ends.into_iter().any(|end| end.in_bucket().is_some()) {
            candidates.truncate(1);
        }
        self.algorithms = candidates;
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
        let algorithms = self.algorithms.clone();
        let [algorithm, further @ ..] = &*algorithms else {
            return;
        };
        if undecided.is_empty() || self.planner.context.stop.is_cancelled() {
            return;
        }
        let counters = Arc::clone(&self.planner.context.counters);
        let count = undecided.len() as u64;
        counters.verifying.fetch_add(count, Ordering::Relaxed);
        let sources = undecided.iter().map(|file| &file.pair_of.source);
        let targets = undecided.iter().map(|file| &file.pair_of.target);
        let (ours, theirs) = tokio::join!(
            checksums(&mut self.other, *algorithm, sources.collect()),
            checksums(&mut self.planner.retrying, *algorithm, targets.collect()),
        );
        let mut untold = Vec::new();
        for (file, both) in undecided.into_iter().zip(ours.into_iter().zip(theirs)) {
            untold.extend(self.settle_by(*algorithm, file, both).await);
        }
        for algorithm in further {
            untold = self.check_further(*algorithm, untold).await;
        }
        counters.verifying.fetch_sub(count, Ordering::Relaxed);
        if self.planner.context.stop.is_cancelled() {
            // What was not asked for is no failure.
            return;
        }
        for (file, refusal) in untold {
            let shown = file.pair_of.source.to_string();
            self.planner.fail(shown, refusal).await;
        }
    }

    /// Compares by another algorithm what could not be compared by those before, with the reason.
    /// The bucket is asked first, which has told all that it knows: the other end computes no more.
    async fn check_further(
        &mut self,
        algorithm: ChecksumAlgorithm,
        undecided: Vec<(UndecidedFile, Error)>,
    ) -> Vec<(UndecidedFile, Error)> {
        let mut files = undecided.iter();
        if files.len() == 0 || self.planner.context.stop.is_cancelled() {
            return undecided;
        }
        let is_source = files.all(|(file, _)| file.pair_of.source.in_bucket().is_some());
        let (bucket, other) = match is_source {
            true => (&mut self.other, &mut self.planner.retrying),
            false => (&mut self.planner.retrying, &mut self.other),
        };
        let place = |file: &UndecidedFile, of_source| match of_source {
            true => file.pair_of.source.clone(),
            false => file.pair_of.target.clone(),
        };
        let places: Vec<_> = undecided
            .iter()
            .map(|(file, _)| place(file, is_source))
            .collect();
        let sums = checksums(bucket, algorithm, places.iter().collect()).await;
        let (mut told, mut untold) = (Vec::new(), Vec::new());
        for ((file, refusal), sum) in undecided.into_iter().zip(sums) {
            match sum {
                Err(error) if error.is_unsupported() => untold.push((file, refusal)),
                sum => told.push((file, refusal, sum)),
            }
        }
        let places: Vec<_> = told
            .iter()
            .map(|(file, ..)| place(file, !is_source))
            .collect();
        let computed = checksums(other, algorithm, places.iter().collect()).await;
        for ((file, refusal, sum), computed) in told.into_iter().zip(computed) {
            let left = self.settle_by(algorithm, file, (sum, computed)).await;
            untold.extend(left.map(|(file, _)| (file, refusal)));
        }
        untold
    }

    /// Does what the checksums of both ends tell. It is left, and why, where one end does not have
    /// the algorithm.
    async fn settle_by(
        &mut self,
        algorithm: ChecksumAlgorithm,
        file: UndecidedFile,
        both: (Result<String>, Result<String>),
    ) -> Option<(UndecidedFile, Error)> {
        let shown = file.pair_of.source.to_string();
        let settled = match both {
            (Ok(ours), Ok(theirs)) => {
                let UndecidedFile {
                    pair_of,
                    source,
                    target,
                } = file;
                let comparison = match verify::agree("", algorithm, ours, theirs) {
                    Ok(_) => compare_attributes(self.keeps_times, &source, &target),
                    Err(_) => Comparison::Differs("checksum"),
                };
                self.act(pair_of, &source, comparison).await
            }
            (Err(error), _) | (_, Err(error)) if !error.is_unsupported() => Err(error),
            (Err(refusal), _) | (_, Err(refusal)) => return Some((file, refusal)),
        };
        if let Err(error) = settled {
            self.planner.fail(shown, error).await;
        }
        None
    }
}

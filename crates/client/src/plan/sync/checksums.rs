//! Files of the same size whose checksums are compared, many at a time: both ends compute at once.

use std::sync::{Arc, atomic::Ordering};

use godwit_proto::{ChecksumAlgorithm, facts::Facts};

use super::{Syncing, judge::judge_alike, meet::Meeting};
use crate::{
    error::{Error, Result},
    plan::{
        checksums::{BYTES_TOGETHER, TOGETHER, checksums, offered},
        goal::Goal,
    },
    spec::{Level, Verify},
    verify,
};

/// Files of the same size.
pub(super) struct Doubt {
    pub(super) meeting: Meeting,
    pub(super) source: Facts,
    pub(super) target: Facts,
}

impl Syncing<'_> {
    /// The cheapest algorithm that each server has, or the one that the user names for copies.
    pub(super) async fn choose_algorithm(&mut self, ends: [&Goal; 2]) -> Result<()> {
        if self.spec.level != Level::Checksum {
            return Ok(());
        }
        let mut candidates = match self.planner.spec.verify {
            Verify::Always(Some(algorithm)) => vec![algorithm],
            _ => ChecksumAlgorithm::ALL.to_vec(),
        };
        for end in ends {
            let Goal::There(at) = end else { continue };
            let offered = offered(&mut self.planner.carrier, &at.endpoint).await?;
            candidates.retain(|algorithm| offered.contains(algorithm));
            if candidates.is_empty() {
                return Err(Error::Lacks {
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

    /// Only checksums tell whether they are the same.
    pub(super) async fn doubt(&mut self, doubt: Doubt) {
        self.doubted_bytes += doubt.source.size.unwrap_or(0);
        self.doubts.push(doubt);
        if self.doubts.len() >= TOGETHER || self.doubted_bytes >= BYTES_TOGETHER {
            self.settle_doubts().await;
        }
    }

    /// Compares those that wait for it.
    pub(super) async fn settle_doubts(&mut self) {
        let doubts = std::mem::take(&mut self.doubts);
        self.doubted_bytes = 0;
        let Some(algorithm) = self.algorithm.filter(|_| !doubts.is_empty()) else {
            return;
        };
        if self.planner.context.stop.is_set() {
            return;
        }
        let counters = Arc::clone(&self.planner.context.counters);
        let count = doubts.len() as u64;
        counters.verifying.fetch_add(count, Ordering::Relaxed);
        let sources = doubts.iter().map(|doubt| &doubt.meeting.source);
        let targets = doubts.iter().map(|doubt| &doubt.meeting.target);
        let (ours, theirs) = tokio::join!(
            checksums(&mut self.other, algorithm, sources.collect()),
            checksums(&mut self.planner.carrier, algorithm, targets.collect()),
        );
        counters.verifying.fetch_sub(count, Ordering::Relaxed);
        for (doubt, (ours, theirs)) in doubts.into_iter().zip(ours.into_iter().zip(theirs)) {
            let shown = doubt.meeting.source.to_string();
            let Doubt {
                meeting,
                source,
                target,
            } = doubt;
            let settled = match (ours, theirs) {
                (Ok(ours), Ok(theirs)) => {
                    let verdict = match verify::agree("", algorithm, ours, theirs) {
                        Ok(_) => judge_alike(self.keeps_times, &source, &target),
                        Err(_) => super::judge::Verdict::Differs("checksum"),
                    };
                    self.act(meeting, &source, verdict).await
                }
                (Err(error), _) | (_, Err(error)) => Err(error),
            };
            if let Err(error) = settled {
                self.planner.fail(shown, error).await;
            }
        }
    }
}

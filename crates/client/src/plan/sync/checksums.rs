//! Files of the same size whose checksums are compared, many at a time: both ends compute at once.

use std::sync::{Arc, atomic::Ordering};

use godwit_engine::digest;
use godwit_proto::{ChecksumAlgorithm, Command, facts::Facts};

use super::{Syncing, judge::judge_alike, meet::Meeting};
use crate::{
    carrier::Carrier,
    error::{Error, Result},
    local,
    plan::{get::step, goal::Goal},
    session::{Session, checksum_in},
    spec::{Level, Verify},
    verify,
};

/// Files that are compared together.
const TOGETHER: usize = 100;

/// And their octets: more of them at a time save nothing.
const OCTETS_TOGETHER: u64 = 1 << 30;

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
            let shown = at.url();
            let ask = async |session: &mut Session| Ok(session.server.features.checksums.clone());
            let step = step(&at.endpoint, &shown);
            let offered = self.planner.carrier.attempt(step, ask).await?;
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
        self.doubted_octets += doubt.source.size.unwrap_or(0);
        self.doubts.push(doubt);
        if self.doubts.len() >= TOGETHER || self.doubted_octets >= OCTETS_TOGETHER {
            self.settle_doubts().await;
        }
    }

    /// Compares those that wait for it.
    pub(super) async fn settle_doubts(&mut self) {
        let doubts = std::mem::take(&mut self.doubts);
        self.doubted_octets = 0;
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

/// Checksums of files of one end, as many as there are files.
async fn checksums(
    carrier: &mut Carrier,
    algorithm: ChecksumAlgorithm,
    places: Vec<&Goal>,
) -> Vec<Result<String>> {
    let endpoint = places.iter().find_map(|place| match place {
        Goal::There(at) => Some(Arc::clone(&at.endpoint)),
        Goal::Here(_) => None,
    });
    let Some(endpoint) = endpoint else {
        return checksums_here(algorithm, &places).await;
    };
    let commands = places.iter().filter_map(|place| match place {
        Goal::There(at) => Some(Command::Cksm {
            algorithm,
            offset: 0,
            length: None,
            path: at.path.clone(),
        }),
        Goal::Here(_) => None,
    });
    let commands: Vec<_> = commands.collect();
    let shown = endpoint.name();
    let ask = async |session: &mut Session| {
        session
            .ask_all(commands.iter().cloned(), "compute checksums")
            .await
    };
    match carrier.attempt(step(&endpoint, &shown), ask).await {
        Ok(replies) => {
            let read =
                |(reply, place)| checksum_in(reply, format!("compute {algorithm} of {place}"));
            replies.into_iter().zip(places).map(read).collect()
        }
        Err(setback) => {
            let error = Error::from(setback);
            places.iter().map(|_| Err(error.clone())).collect()
        }
    }
}

async fn checksums_here(algorithm: ChecksumAlgorithm, places: &[&Goal]) -> Vec<Result<String>> {
    let mut all = Vec::with_capacity(places.len());
    for place in places {
        let Goal::Here(path) = place else { continue };
        let path = path.clone();
        let computing = tokio::task::spawn_blocking(move || {
            let (file, _) = local::open_read(&path)?;
            let computed = digest::of_file(file.as_ref(), algorithm, 0, None, &mut |_| true);
            computed.map_err(Error::Local)
        });
        // A thread that has panicked has told its own story.
        all.push(computing.await.unwrap_or(Err(Error::Interrupted)));
    }
    all
}

//! What must be true, whatever went wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use godwit_service_api::job::{FileState, FileView, JobState, JobView};

use super::work::{FileCopy, PlannedJob};
use crate::faults::watch::{difference, is_temporary};

/// What may be sent twice besides: the counters of servers and of the service are read one after
/// the other, and blocks are on the way between.
const SLACK_BYTES: u64 = 8 << 20;

/// A job, and what the user knows of it.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) planned: PlannedJob,
    pub(super) view: Option<JobView>,
    pub(super) cancel_heard: bool,
    id: Option<String>,
    refused: Option<String>,
}

impl Progress {
    pub(super) fn new(planned: PlannedJob) -> Progress {
        Progress {
            planned,
            view: None,
            cancel_heard: false,
            id: None,
            refused: None,
        }
    }

    pub(super) fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The service answered a submission, or did not.
    pub(super) fn submitted(&mut self, answer: Result<Option<JobView>, String>) {
        match answer {
            Ok(Some(job)) => {
                self.id = Some(job.id.to_string());
                self.view = Some(job);
            }
            Ok(None) => {}
            Err(why) => self.refused = Some(why),
        }
    }

    /// The service has not heard of it.
    pub(super) fn is_new(&self) -> bool {
        self.id.is_none() && self.refused.is_none()
    }

    /// Nothing more will come of it.
    pub(super) fn is_over(&self) -> bool {
        self.refused.is_some() || self.view.as_ref().is_some_and(|job| job.state.is_final())
    }
}

/// What was found of all jobs together.
#[derive(Debug, Default)]
pub(super) struct ServiceVerdict {
    pub(super) files: u64,
    pub(super) bytes: u64,
    pub(super) resent_bytes: u64,
    pub(super) resent_max: u64,
    pub(super) findings: Vec<String>,
}

/// Looks at destinations and counters while jobs run, and at all of it in the end.
#[derive(Debug)]
pub(super) struct Judge {
    roots: Vec<PathBuf>,
    /// By server and path.
    copies: BTreeMap<(usize, PathBuf), FileCopy>,
    seen: BTreeSet<(usize, PathBuf)>,
    /// Bytes that were received and not acknowledged, at most, since the last disturbance began.
    unacknowledged: u64,
    resent_max: u64,
    /// A disk was full, and what did not fit may have failed.
    disk_fills: bool,
    verdict: ServiceVerdict,
}

impl Judge {
    pub(super) fn new(roots: Vec<PathBuf>, jobs: &[PlannedJob], disk_fills: bool) -> Judge {
        let copies = jobs.iter().flat_map(|job| &job.copies);
        Judge {
            roots,
            copies: copies
                .map(|copy| ((copy.server, copy.path.clone()), copy.clone()))
                .collect(),
            seen: BTreeSet::new(),
            unacknowledged: 0,
            resent_max: SLACK_BYTES,
            disk_fills,
            verdict: ServiceVerdict::default(),
        }
    }

    /// A fault begins or ends: what is unacknowledged until now may be sent again.
    pub(super) fn disturbed(&mut self) {
        self.resent_max += std::mem::take(&mut self.unacknowledged);
    }

    /// Looks at what there is now.
    pub(super) fn look(&mut self, received: u64, jobs: &[Progress], disturbed: bool) {
        let done = jobs.iter().filter_map(|job| job.view.as_ref());
        let done: u64 = done.map(|job| job.bytes_done).sum();
        let open = received.saturating_sub(done);
        self.unacknowledged = match disturbed {
            true => self.unacknowledged.max(open),
            false => open,
        };
        self.look_at_files();
    }

    /// Whatever has got a final name must be whole from the first moment.
    fn look_at_files(&mut self) {
        for (server, root) in self.roots.clone().iter().enumerate().skip(1) {
            for path in files_below(root) {
                let short = path.strip_prefix(root).unwrap_or(&path).to_owned();
                let key = (server, short);
                if self.seen.contains(&key) {
                    continue;
                }
                let finding = match self.copies.get(&key) {
                    Some(copy) => difference(&copy.source, &path),
                    None => Some("belongs to no job".to_owned()),
                };
                if let Some(how) = finding {
                    let text = format!("{} got its final name and {how}", key.1.display());
                    self.verdict.findings.push(text);
                }
                self.seen.insert(key);
            }
        }
    }

    /// Judges a job in the end; `files`: as the service lists them.
    pub(super) fn job(&mut self, job: &Progress, files: Option<Vec<FileView>>) {
        let name = job.planned.name;
        let mut find = |text: String| self.verdict.findings.push(format!("job {name} {text}"));
        if let Some(why) = &job.refused {
            find(format!("was refused: {why}"));
        }
        let (Some(view), Some(files)) = (&job.view, files) else {
            return find("was never accepted, or cannot be asked for".to_owned());
        };
        let counts = view.files;
        if !view.state.is_final() {
            find(format!(
                "is {} for too long: {counts:?}, {:?}",
                view.state.as_str(),
                view.why
            ));
        } else if counts.ended() != counts.total || counts.total != files.len() as u64 {
            find(format!("has ended and lists {} of {counts:?}", files.len()));
        }
        let wanted = job.planned.copies.len() as u64 + job.planned.missing;
        let canceled = job.planned.cancels.is_some();
        if view.state.is_final() && !canceled && counts.total != wanted {
            find(format!("has {} files instead of {wanted}", counts.total));
        }
        let state = match (canceled, job.planned.missing > 0) {
            (true, _) => [JobState::Canceled, JobState::Finished],
            (false, true) => [JobState::Partial; 2],
            (false, false) => [JobState::Finished; 2],
        };
        let mut errors = files.iter().filter_map(|file| file.error.as_ref());
        let no_space = self.disk_fills && errors.clone().any(|error| error.code == "no_space");
        if view.state.is_final() && !state.contains(&view.state) && !no_space {
            let first = errors.next();
            find(format!("is {}: {first:?}", view.state.as_str()));
        }
        for file in files {
            let copy = job.planned.copies.iter().find(|copy| {
                let end = format!("/{}", copy.path.display());
                file.destination.ends_with(&end)
            });
            match (file.state, copy) {
                (FileState::Finished | FileState::Skipped, Some(copy)) => {
                    self.verdict.files += 1;
                    let path = self.roots[copy.server].join(&copy.path);
                    if let Some(how) = difference(&copy.source, &path) {
                        find(format!(
                            "says that {} is {:?}, which {how}",
                            file.destination, file.state
                        ));
                    }
                }
                (FileState::Failed, _) if file.error.is_none() => {
                    find(format!("does not say why {} failed", file.destination));
                }
                (FileState::Finished | FileState::Skipped, None) => {
                    find(format!("invented {}", file.destination));
                }
                _ => {}
            }
        }
    }

    /// Counts what was sent twice. What a canceled job has sent is no copy.
    pub(super) fn finish(mut self, received: u64, jobs: &[Progress]) -> ServiceVerdict {
        self.look_at_files();
        self.disturbed();
        for ((server, path), copy) in &self.copies {
            let place = self.roots[*server].join(path);
            if self.seen.contains(&(*server, path.clone())) {
                self.verdict.bytes += copy.bytes;
                if let Some(how) = difference(&copy.source, &place) {
                    let text = format!("in the end {} {how}", path.display());
                    self.verdict.findings.push(text);
                }
            }
        }
        let canceled = jobs.iter().filter(|job| job.planned.cancels.is_some());
        let canceled = canceled.flat_map(|job| &job.planned.copies);
        let unfinished = canceled.filter(|copy| {
            let key = (copy.server, copy.path.clone());
            !self.seen.contains(&key)
        });
        self.resent_max += unfinished.map(|copy| copy.bytes).sum::<u64>();
        let mut verdict = self.verdict;
        verdict.resent_bytes = received.saturating_sub(verdict.bytes);
        verdict.resent_max = self.resent_max;
        if verdict.resent_bytes > verdict.resent_max {
            verdict.findings.push(format!(
                "{} bytes were sent again, {} had not been acknowledged",
                verdict.resent_bytes, verdict.resent_max
            ));
        }
        verdict
    }
}

/// Files with final names.
fn files_below(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else if !is_temporary(entry.file_name().as_encoded_bytes()) {
            found.push(path);
        }
    }
    found
}

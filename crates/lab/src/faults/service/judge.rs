//! What must be true, whatever went wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use godwit_service_api::job::{FileState, FileView, JobState, JobView};

use super::work::{FileCopy, PlannedJob};
use crate::faults::watch::{difference, is_temporary};

/// What may be sent twice besides: what servers have received and not yet written.
const SLACK_BYTES: u64 = 4 << 20;

/// A partial file that vanishes so soon after a fault does so for its sake.
const VANISH_LIMIT: Duration = Duration::from_secs(20);

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

    /// The service may have forgotten what it said of it.
    pub(super) fn doubted(&mut self) {
        self.view = None;
        self.cancel_heard = false;
    }

    /// The service does not know it any more.
    pub(super) fn forgotten(&mut self) {
        self.id = None;
        self.doubted();
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

/// Bytes of a partial file.
#[derive(Debug, Clone, Copy, Default)]
struct PartialBytes {
    held: u64,
    /// Those that may be sent again: they were there when a fault began or ended.
    given_up: u64,
}

/// Looks at destinations and counters while jobs run, and at all of it in the end.
#[derive(Debug)]
pub(super) struct Judge {
    roots: Vec<PathBuf>,
    /// By server and path.
    copies: BTreeMap<(usize, PathBuf), FileCopy>,
    seen: BTreeSet<(usize, PathBuf)>,
    partial: BTreeMap<(usize, u64), PartialBytes>,
    disturbed_at: Instant,
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
            partial: BTreeMap::new(),
            disturbed_at: Instant::now(),
            resent_max: SLACK_BYTES,
            disk_fills,
            verdict: ServiceVerdict::default(),
        }
    }

    /// A fault begins or ends: partial files may be sent again. Complete ones are not sent again.
    pub(super) fn disturbed(&mut self) {
        self.look();
        self.disturbed_at = Instant::now();
        for partial in self.partial.values_mut() {
            self.resent_max += partial.held.saturating_sub(partial.given_up);
            partial.given_up = partial.held.max(partial.given_up);
        }
    }

    /// Looks at what there is now.
    pub(super) fn look(&mut self) {
        let (mut partial, mut complete) = (BTreeMap::new(), BTreeSet::new());
        for (server, root) in self.roots.iter().enumerate().skip(1) {
            for path in files_below(root) {
                // It may have got another name.
                let Ok(file) = path.metadata() else { continue };
                let key = (server, file.ino());
                if is_partial(&path) {
                    let held = file.len().min(file.blocks() * 512);
                    let given_up = self.partial.get(&key).map_or(0, |before| before.given_up);
                    partial.insert(key, PartialBytes { held, given_up });
                } else {
                    complete.insert(key);
                }
            }
        }
        let gone = self.partial.iter();
        let gone = gone.filter(|(key, _)| !partial.contains_key(key) && !complete.contains(key));
        if self.disturbed_at.elapsed() < VANISH_LIMIT {
            let bytes = gone.map(|(_, file)| file.held.saturating_sub(file.given_up));
            self.resent_max += bytes.sum::<u64>();
        }
        self.partial = partial;
        self.look_at_files();
    }

    /// Whatever has got a final name must be whole from the first moment.
    fn look_at_files(&mut self) {
        for (server, root) in self.roots.clone().iter().enumerate().skip(1) {
            for path in files_below(root) {
                if is_partial(&path) {
                    continue;
                }
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
            (false, true) if job.planned.copies.is_empty() => [JobState::Failed; 2],
            (false, true) => [JobState::Partial; 2],
            (false, false) => [JobState::Finished; 2],
        };
        let code = job.planned.code;
        let mut other = files.iter().filter_map(|file| file.error.as_ref());
        if let Some(error) = other.find(|error| code.is_some_and(|code| error.code != code)) {
            find(format!("failed with {error:?} instead of {code:?}"));
        }
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
        self.look();
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
                "{} bytes were sent again, {} were in partial files when a fault began or ended",
                verdict.resent_bytes, verdict.resent_max
            ));
        }
        verdict
    }
}

fn is_partial(path: &Path) -> bool {
    let name = path.file_name();
    name.is_some_and(|name| is_temporary(name.as_encoded_bytes()))
}

/// All files.
fn files_below(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.push(path);
        }
    }
    found
}

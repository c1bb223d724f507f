//! What a service is given to do while faults happen.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use godwit_service_api::job::{FileRequest, JobOptions, JobRequest, Overwrite};

use super::plan::{ServiceKind, ServicePlan};
use crate::path::Rng;

/// The server that sends.
pub(super) const FROM: usize = 0;
/// The one that receives, and whose disk can be full.
pub(super) const TO: usize = 1;
/// The one that receives and wants a password.
pub(super) const TO_GUARDED: usize = 2;

/// Directories of sources with number and longest size of their files.
const SOURCES: [(&str, u32, u64); 6] = [
    ("small", 150, 30_000),
    ("large", 3, 12_000_000),
    ("paced", 3, 8_000_000),
    ("tree/a", 40, 60_000),
    ("tree/a/b", 30, 20_000),
    ("tree/c", 2, 9_000_000),
];

/// Files that are read, made once for all plans of a campaign.
#[derive(Debug)]
pub(super) struct Sources {
    pub(super) root: PathBuf,
    /// By the path below the root.
    sizes: BTreeMap<PathBuf, u64>,
}

impl Sources {
    /// Makes them.
    pub(super) fn make(root: &Path, seed: u64) -> io::Result<Sources> {
        let mut rng = Rng::new(seed, u64::MAX);
        let mut sizes = BTreeMap::new();
        for (folder, count, longest) in SOURCES {
            fs::create_dir_all(root.join(folder))?;
            for number in 0..count {
                let size = match number {
                    0 => longest,
                    1 if longest < 100_000 => 0,
                    _ => longest / 2 + rng.up_to(longest / 2),
                };
                let path = Path::new(folder).join(format!("{number:03}"));
                write_noise(&root.join(&path), size, &mut rng)?;
                sizes.insert(path, size);
            }
        }
        Ok(Sources {
            root: root.to_owned(),
            sizes,
        })
    }

    pub(super) fn below<'a>(
        &'a self,
        folder: &'a str,
    ) -> impl Iterator<Item = (&'a Path, u64)> + 'a {
        let found = self
            .sizes
            .iter()
            .filter(move |(path, _)| path.starts_with(folder));
        found.map(|(path, size)| (path.as_path(), *size))
    }
}

/// No byte is like its neighbours, and no file like another.
fn write_noise(path: &Path, size: u64, rng: &mut Rng) -> io::Result<()> {
    let mut file = io::BufWriter::new(fs::File::create(path)?);
    for _ in 0..size / 8 {
        file.write_all(&rng.next_u64().to_le_bytes())?;
    }
    let rest = usize::try_from(size % 8).unwrap_or(0);
    file.write_all(&rng.next_u64().to_le_bytes()[..rest])?;
    file.flush()
}

/// A job and what must come of it.
#[derive(Debug)]
pub(super) struct PlannedJob {
    pub(super) name: &'static str,
    /// When it is submitted.
    pub(super) due: Duration,
    /// When it is canceled.
    pub(super) cancels: Option<Duration>,
    pub(super) request: JobRequest,
    /// Receiving server and path there, with the source.
    pub(super) copies: Vec<FileCopy>,
    /// Files whose sources do not exist.
    pub(super) missing: u64,
    /// Why its files fail.
    pub(super) code: Option<&'static str>,
}

/// A file that a job copies.
#[derive(Debug, Clone)]
pub(super) struct FileCopy {
    pub(super) server: usize,
    pub(super) path: PathBuf,
    pub(super) source: PathBuf,
    pub(super) bytes: u64,
}

/// Files of a job that cannot be done.
const POISONED_FILES: u64 = 2;

/// The jobs of a plan. `urls`: of the servers, without a path; `poisons`: of those that are of no
/// use.
pub(super) fn jobs(
    plan: &ServicePlan,
    sources: &Sources,
    urls: &[String],
    poisons: &[(ServiceKind, String)],
) -> Vec<PlannedJob> {
    // Beside the stream of numbers that the faults are drawn from.
    let mut rng = Rng::new(!plan.seed, plan.number);
    let mut within = |least: u64, most: u64| Duration::from_millis(least + rng.up_to(most - least));
    let local = format!("file://{}", sources.root.display());
    let remote = urls[FROM].clone();
    let listed = |name: &'static str, folder: &'static str, from: &str, server: usize, due| {
        let copies: Vec<FileCopy> = sources
            .below(folder)
            .map(|(path, bytes)| FileCopy {
                server,
                path: Path::new(name).join(path),
                source: sources.root.join(path),
                bytes,
            })
            .collect();
        let files = sources.below(folder).map(|(path, bytes)| FileRequest {
            source: format!("{from}/{}", path.display()),
            destination: format!("{}/{name}/{}", urls[server], path.display()),
            bytes: Some(bytes),
            ..FileRequest::default()
        });
        PlannedJob {
            name,
            due,
            cancels: None,
            request: request(name, files.collect()),
            copies,
            missing: 0,
            code: None,
        }
    };
    let mut jobs = vec![
        listed("small", "small", &remote, TO, within(0, 2_000)),
        listed("large", "large", &remote, TO, within(0, 6_000)),
        listed("paced", "paced", &local, TO_GUARDED, within(0, 3_000)),
        listed("late", "small", &local, TO_GUARDED, within(4_000, 12_000)),
    ];
    let mut tree = listed("tree", "tree", &remote, TO_GUARDED, within(0, 8_000));
    tree.request.files = vec![FileRequest {
        source: format!("{remote}/tree"),
        destination: format!("{}/tree/tree", urls[TO_GUARDED]),
        recursive: true,
        ..FileRequest::default()
    }];
    jobs.push(tree);
    let mut partly = listed("partly", "tree/a/b", &remote, TO, within(0, 8_000));
    partly.missing = 1;
    partly.request.files.push(FileRequest {
        source: format!("{remote}/small/none"),
        destination: format!("{}/partly/none", urls[TO]),
        ..FileRequest::default()
    });
    jobs.push(partly);
    let mut canceled = listed("canceled", "paced", &local, TO, within(0, 5_000));
    canceled.cancels = Some(canceled.due + within(300, 3_000));
    jobs.push(canceled);
    for (kind, url) in poisons {
        let mut poisoned = listed(kind.name(), "none", &remote, TO, within(0, 5_000));
        poisoned.missing = POISONED_FILES;
        poisoned.code = (*kind == ServiceKind::UnitKillsAgents).then_some("poison");
        poisoned.request.options.attempts = 2;
        if *kind == ServiceKind::SourceHangs {
            // It would fail after minutes: the client waits for each reply, and tries again.
            poisoned.cancels = Some(poisoned.due + within(5_000, 20_000));
        }
        let files = (0..POISONED_FILES).map(|number| FileRequest {
            source: format!("{url}/{number}"),
            destination: format!("{}/{}/{number}", urls[TO], kind.name()),
            bytes: Some(1_000),
            ..FileRequest::default()
        });
        poisoned.request.files = files.collect();
        jobs.push(poisoned);
    }
    if plan.forgets() {
        // The service may have forgotten that it copied a file itself.
        for job in &mut jobs {
            job.request.options.overwrite = Overwrite::Different;
        }
    }
    jobs.sort_by_key(|job| job.due);
    jobs
}

fn request(name: &str, files: Vec<FileRequest>) -> JobRequest {
    JobRequest {
        files,
        options: JobOptions {
            name: Some(name.to_owned()),
            ..JobOptions::default()
        },
    }
}

//! What a job would copy: the listings that it would begin with, and those of its destination.

use std::{
    collections::{HashMap, VecDeque},
    path::Path,
    sync::Arc,
};

use godwit_client::{
    CancellationToken,
    auth::granted::Granted,
    error::Error,
    kept_sessions::KeptSessions,
    manage::{self, ListedName, ListedNames},
    spec::{Connections, top_and_name},
};
use godwit_proto::url::Location;
use godwit_service_api::{
    agent::Preview,
    browse::MAX_LOOKED_AT,
    job::{FileError, Overwrite, WhoActs},
    preview::{
        Fate, JobPreview, MAX_PREVIEW_FAILURES, MAX_PREVIEWED, MAX_PREVIEWED_DIRECTORIES,
        PreviewQuestion, PreviewedFile,
    },
};
use tokio::time::{Instant, timeout_at};

use super::{
    file_error::file_error,
    listing::{self, Silent},
    local::{LocalPlaces, apart},
    plan::{self, UnitSettings, unfit},
};

/// What is asked of the endpoints, within `until`.
pub(super) async fn preview(
    task: &Preview,
    (settings, local): (&UnitSettings, &LocalPlaces),
    until: Instant,
    stop: CancellationToken,
) -> Result<JobPreview, FileError> {
    let ends = BothEnds {
        task,
        settings,
        local,
        stop,
        granted: Granted::default(),
        kept: KeptSessions::default(),
    };
    let found = match task.question.file.recursive {
        true => ends.tree(until).await,
        false => ends.file(until).await,
    };
    ends.kept.close().await;
    found
}

/// Both ends of the job.
struct BothEnds<'a> {
    task: &'a Preview,
    settings: &'a UnitSettings,
    local: &'a LocalPlaces,
    stop: CancellationToken,
    granted: Granted,
    kept: KeptSessions,
}

/// Why there is no answer.
struct Unanswered {
    /// Nothing is there.
    is_absent: bool,
    error: FileError,
}

/// A directory that waits to be listed.
struct Tree {
    source: String,
    destination: String,
    there: There,
}

/// What the destination has in the place of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum There {
    /// A directory, or nothing: it is to be listed.
    Ask,
    /// Nothing.
    Nothing,
    /// A file: what goes below it fails.
    File,
    /// It could not be listed.
    Unknown,
}

/// What a directory of the destination has.
enum Names {
    /// By name; not all of them, where it has more than an agent looks at.
    Listed {
        names: HashMap<Vec<u8>, ListedName>,
        has_more: bool,
    },
    All(There),
}

impl BothEnds<'_> {
    async fn file(&self, until: Instant) -> Result<JobPreview, FileError> {
        let PreviewQuestion { file, .. } = &self.task.question;
        let mut preview = JobPreview::default();
        // What a unit refuses before it connects.
        for url in [&file.source, &file.destination] {
            let of_file = top_and_name(plan::place(url, self.settings)?);
            of_file.ok_or_else(|| unfit(format!("{url}: not the path of a file")))?;
        }
        let found = within(until, self.find(&file.source)).await;
        let found = found.map_err(|refusal| refusal.error)?;
        if found.as_ref().is_some_and(|found| found.is_directory) {
            let why = "it is a directory: a job copies all that is below it, or a file";
            return Err(unfit(format!("{}: {why}", file.source)));
        }
        let bytes = found.and_then(|found| found.size);
        let fate = match within(until, self.find(&file.destination)).await {
            Ok(Some(there)) => fate(&self.task.question, bytes, Some(&there)),
            Ok(None) => Fate::Unknown,
            Err(refusal) if refusal.is_absent => Fate::Copied,
            Err(refusal) => {
                preview.unseen += 1;
                say(&mut preview, &refusal.error);
                Fate::Unknown
            }
        };
        count(&mut preview, bytes, fate);
        preview.first.push(PreviewedFile {
            source: file.source.clone(),
            destination: file.destination.clone(),
            bytes,
            fate,
        });
        Ok(preview)
    }

    /// Directory by directory, those that are nearest first.
    async fn tree(&self, until: Instant) -> Result<JobPreview, FileError> {
        let file = &self.task.question.file;
        let mut preview = JobPreview::default();
        let mut waiting = VecDeque::from([Tree {
            source: file.source.clone(),
            destination: file.destination.clone(),
            there: There::Ask,
        }]);
        plan::place(&file.destination, self.settings)?;
        let mut is_first = true;
        while let Some(tree) = waiting.pop_front() {
            if Instant::now() >= until {
                preview.unlisted += 1;
                continue;
            }
            let names = match within(until, self.names(&tree.source)).await {
                Ok(names) => names,
                Err(refusal) if is_first => return Err(refusal.error),
                Err(refusal) => {
                    preview.failed += 1;
                    say(&mut preview, &refusal.error);
                    continue;
                }
            };
            is_first = false;
            preview.listed += 1;
            if names.has_more {
                preview.failed += 1;
                say(&mut preview, &unfit(too_many(&tree.source)));
            }
            let there = match tree.there {
                There::Ask => self.there(&tree.destination, until, &mut preview).await,
                known => Names::All(known),
            };
            self.take(&mut preview, &tree, names.names, &there, &mut waiting);
        }
        Ok(preview)
    }

    async fn there(&self, url: &str, until: Instant, preview: &mut JobPreview) -> Names {
        match within(until, self.names(url)).await {
            Ok(ListedNames { names, has_more }) => {
                if has_more {
                    preview.unseen += 1;
                    say(preview, &unfit(too_many(url)));
                }
                let names = names.into_iter();
                Names::Listed {
                    names: names.map(|found| (found.name.clone(), found)).collect(),
                    has_more,
                }
            }
            Err(refusal) if refusal.is_absent => Names::All(There::Nothing),
            Err(refusal) => {
                preview.unseen += 1;
                say(preview, &refusal.error);
                Names::All(There::Unknown)
            }
        }
    }

    /// Counts the files of a directory; those below it come later.
    fn take(
        &self,
        preview: &mut JobPreview,
        tree: &Tree,
        mut names: Vec<ListedName>,
        there: &Names,
        waiting: &mut VecDeque<Tree>,
    ) {
        names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        for found in names {
            let at_destination = there.of(&found.name);
            if found.is_directory {
                let next = there.below(&found.name);
                let begun = preview.listed + preview.failed + waiting.len() as u64;
                let below = |url: &str| listing::below(url, &found.name);
                match (below(&tree.source), below(&tree.destination)) {
                    _ if begun >= MAX_PREVIEWED_DIRECTORIES => preview.unlisted += 1,
                    (Ok(source), Ok(destination)) => waiting.push_back(Tree {
                        source,
                        destination,
                        there: next,
                    }),
                    (Err(error), _) | (_, Err(error)) => {
                        preview.failed += 1;
                        say(preview, &error);
                    }
                }
                continue;
            }
            let fate = match there {
                Names::Listed { has_more: true, .. } if at_destination.is_none() => Fate::Unknown,
                Names::Listed { .. } => fate(&self.task.question, found.size, at_destination),
                Names::All(There::Nothing) => Fate::Copied,
                Names::All(There::File) => Fate::Refused,
                Names::All(There::Unknown | There::Ask) => Fate::Unknown,
            };
            count(preview, found.size, fate);
            if preview.first.len() < MAX_PREVIEWED
                && let (Ok(source), Ok(destination)) = (
                    listing::below(&tree.source, &found.name),
                    listing::below(&tree.destination, &found.name),
                )
            {
                preview.first.push(PreviewedFile {
                    source,
                    destination,
                    bytes: found.size,
                    fate,
                });
            }
        }
    }

    fn connected(&self, url: &str) -> Result<(Location, Connections), FileError> {
        let mut place = plan::place(url, self.settings)?;
        let ends = [&mut place, &mut Location::Standard];
        let handed = (self.task.addresses, self.task.credentials.as_slice());
        let connections = plan::connections_for(handed, &self.granted, self.settings, ends)?;
        let connections = Connections {
            kept: Some(self.kept.clone()),
            ..connections
        };
        Ok((place, connections))
    }

    async fn names(&self, url: &str) -> Result<ListedNames, Unanswered> {
        let (place, connections) = self.connected(url)?;
        let stop = self.stop.clone();
        match place {
            Location::Remote(url) => {
                let watch = Arc::new(Silent);
                let listed = manage::list_up_to(MAX_LOOKED_AT, url, connections, watch, stop);
                listed.await.map_err(|error| Unanswered::of(&error))
            }
            Location::Local(path) => {
                let read = move || {
                    let listed = listing::list_here(&path, MAX_LOOKED_AT, &stop);
                    Ok(listed.map_err(|error| Unanswered {
                        is_absent: !path_of(&path).exists(),
                        error: file_error(&error),
                    }))
                };
                apart(self.local, read).await?
            }
            Location::Standard => Err(unfit("not a directory").into()),
        }
    }

    async fn find(&self, url: &str) -> Result<Option<ListedName>, Unanswered> {
        let (place, connections) = self.connected(url)?;
        let stop = self.stop.clone();
        match place {
            Location::Remote(url) => {
                let found = manage::find(url, connections, Arc::new(Silent), stop).await;
                found.map_err(|error| Unanswered::of(&error))
            }
            Location::Local(path) => {
                let shown = url.to_owned();
                let look = move || {
                    let found = std::fs::metadata(path_of(&path));
                    Ok(found
                        .map(|found| (path, found))
                        .map_err(|error| Unanswered {
                            is_absent: error.kind() == std::io::ErrorKind::NotFound,
                            error: file_error(&Error::local(format!("look for {shown}"), &error)),
                        }))
                };
                let (name, found) = apart(self.local, look).await??;
                Ok(Some(ListedName {
                    name,
                    is_directory: found.is_dir(),
                    size: found.is_file().then_some(found.len()),
                }))
            }
            Location::Standard => Err(unfit("not a file").into()),
        }
    }
}

impl Names {
    fn of(&self, name: &[u8]) -> Option<&ListedName> {
        match self {
            Names::Listed { names, .. } => names.get(name),
            Names::All(_) => None,
        }
    }

    /// In the place of a directory.
    fn below(&self, name: &[u8]) -> There {
        match self {
            Names::Listed { names, has_more } => match names.get(name) {
                Some(found) if found.is_directory => There::Ask,
                Some(_) => There::File,
                None if *has_more => There::Ask,
                None => There::Nothing,
            },
            Names::All(there) => *there,
        }
    }
}

impl Unanswered {
    fn of(error: &Error) -> Self {
        Self {
            is_absent: error.is_absent(),
            error: file_error(error),
        }
    }
}

impl From<FileError> for Unanswered {
    fn from(error: FileError) -> Self {
        Self {
            is_absent: false,
            error,
        }
    }
}

async fn within<T>(
    until: Instant,
    asked: impl Future<Output = Result<T, Unanswered>>,
) -> Result<T, Unanswered> {
    timeout_at(until, asked).await.unwrap_or_else(|_| {
        let error = FileError {
            code: "timeout".to_owned(),
            message: "the endpoint did not answer in time".to_owned(),
            who: WhoActs::Service,
            may_pass: true,
        };
        Err(error.into())
    })
}

/// What becomes of a file where the destination has this of its name.
fn fate(question: &PreviewQuestion, bytes: Option<u64>, there: Option<&ListedName>) -> Fate {
    let Some(there) = there else {
        return Fate::Copied;
    };
    if there.is_directory {
        return Fate::Refused;
    }
    match (question.overwrite, bytes.zip(there.size)) {
        (Overwrite::Never, _) => Fate::Refused,
        (Overwrite::Always, _) => Fate::Replaced,
        (Overwrite::Different, Some((source, destination))) if source != destination => {
            Fate::Replaced
        }
        (Overwrite::Different, Some(_)) if !question.preserve_times => Fate::Skipped,
        // Listings do not tell times.
        (Overwrite::Different, _) => Fate::Unknown,
    }
}

fn count(preview: &mut JobPreview, bytes: Option<u64>, fate: Fate) {
    let amount = preview.amount(fate);
    amount.files += 1;
    amount.bytes = amount.bytes.saturating_add(bytes.unwrap_or(0));
    preview.without_size += u64::from(bytes.is_none());
}

fn too_many(url: &str) -> String {
    format!("{url}: it has more than the {MAX_LOOKED_AT} names that were looked at")
}

fn say(preview: &mut JobPreview, error: &FileError) {
    if preview.failures.len() < MAX_PREVIEW_FAILURES {
        preview.failures.push(error.message.clone());
    }
}

fn path_of(bytes: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use godwit_service_api::job::FileRequest;

    use super::*;

    #[test]
    fn what_becomes_of_a_file_is_what_a_unit_does_with_it() {
        let file = |size, is_directory| ListedName {
            name: b"x".to_vec(),
            is_directory,
            size,
        };
        let question = |overwrite, preserve_times| PreviewQuestion {
            file: FileRequest::default(),
            overwrite,
            preserve_times,
            labels: Vec::new(),
        };
        let same = file(Some(7), false);
        for overwrite in [Overwrite::Never, Overwrite::Different, Overwrite::Always] {
            let question = question(overwrite, false);
            assert_eq!(fate(&question, Some(7), None), Fate::Copied);
            let directory = file(None, true);
            assert_eq!(fate(&question, Some(7), Some(&directory)), Fate::Refused);
        }
        for (overwrite, times, bytes, wanted) in [
            (Overwrite::Never, false, Some(7), Fate::Refused),
            (Overwrite::Always, false, Some(7), Fate::Replaced),
            (Overwrite::Different, false, Some(7), Fate::Skipped),
            (Overwrite::Different, false, Some(8), Fate::Replaced),
            (Overwrite::Different, false, None, Fate::Unknown),
            (Overwrite::Different, true, Some(7), Fate::Unknown),
            (Overwrite::Different, true, Some(8), Fate::Replaced),
        ] {
            let found = fate(&question(overwrite, times), bytes, Some(&same));
            assert_eq!(found, wanted, "{overwrite:?} {times} {bytes:?}");
        }
    }
}

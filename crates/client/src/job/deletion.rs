//! The end of a sync: what the source does not have goes, if all else is done.

use std::{fs, io, sync::atomic::Ordering};

use godwit_proto::{FtpPath, url::Location};

use super::Job;
use crate::{
    error::{Error, Exit, Result},
    local::files,
    panics::{on_thread, test_point},
    plan::{Deletion, SealedDeleteList},
    session::{
        Session,
        retry::{Operation, RetryingSession},
    },
};

/// Names that are removed together.
const TOGETHER: usize = 100;

/// Removes what was found, unless something has failed: then perhaps not all of the source was
/// seen.
pub(super) async fn run(job: &Job, delete_list: Option<SealedDeleteList>) {
    let (Some(sync), Some(delete_list)) = (&job.spec.sync, delete_list) else {
        return;
    };
    let (context, counters) = (&job.context, &job.context.counters);
    let count = delete_list.count();
    if count == 0 || context.stop.is_cancelled() {
        return;
    }
    if job.has_failed() {
        context.reporter.warn(format!(
            "nothing was removed, since not all was copied: {count} names are not in the source"
        ));
        return;
    }
    let most = sync.delete.and_then(|delete| delete.most);
    if let Some(most) = most.filter(|most| count > *most) {
        context.reporter.warn(format!(
            "nothing is removed: {count} names are not in the source, and --max-delete is {most}"
        ));
        job.record(Exit::Failed);
        return;
    }
    if sync.dry_run {
        counters.names_removed.store(count, Ordering::Relaxed);
        return;
    }
    if let Err(error) = remove(job, delete_list).await {
        job.file_failed(&job.spec.destination.to_string(), 0.0, 0, &error);
    }
}

async fn remove(job: &Job, delete_list: SealedDeleteList) -> Result<()> {
    let mut retrying = RetryingSession::new(job.pool.clone());
    let failed = |e: io::Error| Error::local(files::spool_context(), &e);
    let mut deletions = delete_list.read().map_err(failed)?.peekable();
    while deletions.peek().is_some() && !job.context.stop.is_cancelled() {
        let batch: io::Result<Vec<_>> = deletions.by_ref().take(TOGETHER).collect();
        let batch = batch.map_err(failed)?;
        let count = batch.len() as u64;
        let left = match &job.spec.destination {
            Location::Remote(url) => {
                let endpoint = job.context.endpoints.of(url);
                let shown = endpoint.name();
                let step = Operation::on(&endpoint, &shown);
                let (names, mut left) = sendable(batch, &shown);
                let mut again = false;
                let remove = async |session: &mut Session| {
                    let again = std::mem::replace(&mut again, true);
                    session.remove_all(&names, again).await
                };
                let failed = retrying.attempt(step, remove).await?;
                left.extend(
                    failed
                        .into_iter()
                        .map(|(path, why)| (endpoint.url(&path), why)),
                );
                left
            }
            _ => {
                let doing = || format!("remove files below {}", job.spec.destination);
                on_thread(doing, move || remove_here(batch)).await?
            }
        };
        let gone = count - left.len() as u64;
        let counters = &job.context.counters;
        counters.names_removed.fetch_add(gone, Ordering::Relaxed);
        for (path, why) in left {
            job.file_failed(&path, 0.0, 0, &why);
        }
    }
    retrying.release();
    Ok(())
}

/// Names that were not removed, and why.
type Unremoved = Vec<(String, Error)>;

/// The names that can be sent to a server, and those that cannot.
fn sendable(batch: Vec<Deletion>, endpoint: &str) -> (Vec<(bool, FtpPath)>, Unremoved) {
    let (mut names, mut left) = (Vec::new(), Vec::new());
    for deletion in batch {
        let shown = format!("{endpoint}{}", deletion.path.escape_ascii());
        match FtpPath::new(deletion.path) {
            Ok(path) => names.push((deletion.is_directory, path)),
            Err(bad) => left.push((
                shown.clone(),
                Error::Usage(format!("remove {shown}: {bad}")),
            )),
        }
    }
    (names, left)
}

/// Those that could not be removed, and why.
fn remove_here(batch: Vec<Deletion>) -> Unremoved {
    let mut left = Vec::new();
    for deletion in batch {
        let path = files::path_of(&deletion.path);
        test_point("remove", &path.display());
        let removed = match deletion.is_directory {
            true => fs::remove_dir(&path),
            false => fs::remove_file(&path),
        };
        match removed {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                let shown = path.display().to_string();
                left.push((shown.clone(), Error::local(format!("remove {shown}"), &e)));
            }
            _ => {}
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_cannot_be_sent_stays_and_is_a_failure() {
        let deletion = |path: &[u8]| Deletion {
            is_directory: false,
            path: path.to_vec(),
        };
        let batch = vec![deletion(b"/d/a"), deletion(b"/d/b\nc"), deletion(b"")];
        let (names, left) = sendable(batch, "ftp://h");
        assert_eq!(names.len(), 1);
        assert_eq!(names[0].1.as_bytes(), b"/d/a");
        let shown: Vec<_> = left.iter().map(|(shown, _)| shown.as_str()).collect();
        assert_eq!(shown, ["ftp://h/d/b\\nc", "ftp://h"]);
        assert!(left.iter().all(|(_, why)| why.exit() == Exit::Usage));
    }
}

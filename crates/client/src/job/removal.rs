//! The end of a sync: what the source does not have goes, if all else is done.

use std::{fs, io, sync::atomic::Ordering};

use godwit_proto::{FtpPath, url::Location};

use super::Job;
use crate::{
    carrier::{Carrier, Step},
    error::{Error, Exit, Result},
    local,
    plan::{Condemned, Remnant},
    session::Session,
};

/// Names that are removed together.
const TOGETHER: usize = 100;

/// Removes what was found, unless something has failed: then perhaps not all of the source was seen.
pub(super) async fn run(job: &Job, condemned: Condemned) {
    let Some(sync) = job.spec.sync.as_ref().filter(|_| condemned.count > 0) else {
        return;
    };
    let (context, counters) = (&job.context, &job.context.counters);
    let count = condemned.count;
    if context.stop.is_set() {
        return;
    }
    if job.has_failed() {
        context.warn(format!(
            "nothing was removed, since not all was copied: {count} names are not in the source"
        ));
        return;
    }
    let most = sync.delete.and_then(|delete| delete.most);
    if let Some(most) = most.filter(|most| count > *most) {
        context.warn(format!(
            "nothing is removed: {count} names are not in the source, and --max-delete is {most}"
        ));
        job.record(Exit::Failed);
        return;
    }
    if sync.dry_run {
        counters.names_removed.store(count, Ordering::Relaxed);
        return;
    }
    if let Err(error) = remove(job, condemned).await {
        job.file_failed(&job.spec.destination.to_string(), 0.0, 0, &error);
    }
}

async fn remove(job: &Job, condemned: Condemned) -> Result<()> {
    let mut carrier = Carrier::new(job.pool.clone());
    let failed = |e: io::Error| Error::local(local::spooling(), &e);
    let mut remnants = condemned.read().map_err(failed)?.peekable();
    while remnants.peek().is_some() && !job.context.stop.is_set() {
        let batch: io::Result<Vec<_>> = remnants.by_ref().take(TOGETHER).collect();
        let batch = batch.map_err(failed)?;
        let count = batch.len() as u64;
        let left = match &job.spec.destination {
            Location::Remote(url) => {
                let endpoint = job.context.endpoint(url);
                let shown = endpoint.name();
                let step = Step {
                    endpoint: &endpoint,
                    sender: None,
                    path: &shown,
                    range: None,
                    attempts: None,
                };
                let names = batch.into_iter().filter_map(|remnant| {
                    let path = FtpPath::new(remnant.path).ok()?;
                    Some((remnant.is_directory, path))
                });
                let names: Vec<_> = names.collect();
                let remove = async |session: &mut Session| session.remove_all(&names).await;
                let left = carrier.attempt(step, remove).await?;
                let left = left
                    .into_iter()
                    .map(|(path, why)| (endpoint.url(&path), why));
                left.collect()
            }
            _ => {
                let removing = tokio::task::spawn_blocking(move || remove_here(batch));
                removing.await.map_err(|_| Error::Interrupted)?
            }
        };
        let gone = count - left.len() as u64;
        let counters = &job.context.counters;
        counters.names_removed.fetch_add(gone, Ordering::Relaxed);
        for (path, why) in left {
            job.file_failed(&path, 0.0, 0, &why);
        }
    }
    carrier.release();
    Ok(())
}

/// Those that could not be removed, and why.
fn remove_here(batch: Vec<Remnant>) -> Vec<(String, Error)> {
    let mut left = Vec::new();
    for remnant in batch {
        let path = local::path_of(&remnant.path);
        let removed = match remnant.is_directory {
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

//! The end of a copy: directories get their times and permissions.

use std::{io, sync::Arc};

use godwit_proto::{FtpPath, url::Location};

use super::Job;
use crate::{
    endpoint::Endpoint,
    error::{Error, Result},
    local::files,
    panics::on_thread,
    plan::{DirectoryAttributes, PathAttributes},
    session::{
        Session,
        retry::{Operation, RetryingSession},
    },
};

/// Directories of a server whose stamps are sent together.
const TOGETHER: usize = 50;

/// Directories that did not get their stamps: how many, and what is said of the first.
#[derive(Debug, Default)]
struct RefusedAttributes {
    count: usize,
    first: Option<String>,
}

impl RefusedAttributes {
    fn add(&mut self, texts: Vec<String>) {
        self.count += texts.len();
        self.first = self.first.take().or(texts.into_iter().next());
    }
}

/// Also where files have failed: what is there has the time of its source, as with rsync.
pub(super) async fn run(job: &Job, all_attributes: DirectoryAttributes) {
    if all_attributes.is_empty() || job.context.stop.is_cancelled() {
        return;
    }
    let mut refused = RefusedAttributes::default();
    if let Err(error) = set_all(job, all_attributes, &mut refused).await {
        job.file_failed(&job.spec.destination.to_string(), 0.0, 0, &error);
    }
    if let Some(first) = refused.first {
        job.context.reporter.warn(format!(
            "the times or permissions of {} directories were not set; the first: {first}",
            refused.count
        ));
    }
}

async fn set_all(
    job: &Job,
    mut all_attributes: DirectoryAttributes,
    refused: &mut RefusedAttributes,
) -> Result<()> {
    let mut retrying = RetryingSession::new(job.pool.clone());
    let failed = |e: io::Error| Error::local(files::spool_context(), &e);
    while let Some(chunk) = all_attributes.pop_chunk().map_err(failed)? {
        match &job.spec.destination {
            Location::Remote(url) => {
                let endpoint = job.context.endpoints.of(url);
                for batch in chunk.chunks(TOGETHER) {
                    if job.context.stop.is_cancelled() {
                        return Ok(());
                    }
                    refused.add(set_there(&mut retrying, &endpoint, batch).await?);
                }
            }
            _ => {
                let doing = || format!("set times below {}", job.spec.destination);
                refused.add(on_thread(doing, move || set_here(&chunk)).await?);
            }
        }
    }
    retrying.release();
    Ok(())
}

async fn set_there(
    retrying: &mut RetryingSession,
    endpoint: &Arc<Endpoint>,
    batch: &[PathAttributes],
) -> Result<Vec<String>> {
    let shown = endpoint.name();
    let step = Operation::on(endpoint, &shown);
    // They were paths of the server before they were noted.
    let paths = batch
        .iter()
        .map(|(path, attributes)| (FtpPath::new(path.clone()), attributes));
    let all_attributes: Vec<_> = paths
        .filter_map(|(path, attributes)| Some((path.ok()?, *attributes)))
        .collect();
    let set = async |session: &mut Session| session.set_directory_attributes(&all_attributes).await;
    Ok(retrying.attempt(step, set).await?)
}

fn set_here(chunk: &[PathAttributes]) -> Vec<String> {
    let mut texts = Vec::new();
    for (path, attributes) in chunk {
        let path = files::path_of(path);
        if let Err(error) = attributes.apply(&path) {
            texts.push(format!("{}: {error}", path.display()));
        }
    }
    texts
}

//! The end of a copy: directories get their times and permissions.

use std::{io, sync::Arc};

use godwit_proto::{FtpPath, url::Location};

use super::Job;
use crate::{
    carrier::{Carrier, Step},
    context::Endpoint,
    error::{Error, Result},
    local,
    panics::on_thread,
    plan::{DirectoryStamps, Stamped},
    session::Session,
};

/// Directories of a server whose stamps are sent together.
const TOGETHER: usize = 50;

/// Directories that did not get their stamps: how many, and what is said of the first.
#[derive(Debug, Default)]
struct Refused {
    count: usize,
    first: Option<String>,
}

impl Refused {
    fn add(&mut self, texts: Vec<String>) {
        self.count += texts.len();
        self.first = self.first.take().or(texts.into_iter().next());
    }
}

/// Also where files have failed: what is there has the time of its source, as with rsync.
pub(super) async fn run(job: &Job, stamps: DirectoryStamps) {
    if stamps.is_empty() || job.context.stop.is_set() {
        return;
    }
    let mut refused = Refused::default();
    if let Err(error) = set_all(job, stamps, &mut refused).await {
        job.file_failed(&job.spec.destination.to_string(), 0.0, 0, &error);
    }
    if let Some(first) = refused.first {
        job.context.warn(format!(
            "the times or permissions of {} directories were not set; the first: {first}",
            refused.count
        ));
    }
}

async fn set_all(job: &Job, mut stamps: DirectoryStamps, refused: &mut Refused) -> Result<()> {
    let mut carrier = Carrier::new(job.pool.clone());
    let failed = |e: io::Error| Error::local(local::spooling(), &e);
    while let Some(chunk) = stamps.pop_chunk().map_err(failed)? {
        match &job.spec.destination {
            Location::Remote(url) => {
                let endpoint = job.context.endpoint(url);
                for batch in chunk.chunks(TOGETHER) {
                    if job.context.stop.is_set() {
                        return Ok(());
                    }
                    refused.add(set_there(&mut carrier, &endpoint, batch).await?);
                }
            }
            _ => {
                let doing = || format!("set times below {}", job.spec.destination);
                refused.add(on_thread(doing, move || set_here(&chunk)).await?);
            }
        }
    }
    carrier.release();
    Ok(())
}

async fn set_there(
    carrier: &mut Carrier,
    endpoint: &Arc<Endpoint>,
    batch: &[Stamped],
) -> Result<Vec<String>> {
    let shown = endpoint.name();
    let step = Step {
        endpoint,
        sender: None,
        path: &shown,
        range: None,
        attempts: None,
    };
    // They were paths of the server before they were noted.
    let paths = batch
        .iter()
        .map(|(path, stamp)| (FtpPath::new(path.clone()), stamp));
    let stamps: Vec<_> = paths
        .filter_map(|(path, stamp)| Some((path.ok()?, *stamp)))
        .collect();
    let set = async |session: &mut Session| session.stamp_directories(&stamps).await;
    Ok(carrier.attempt(step, set).await?)
}

fn set_here(chunk: &[Stamped]) -> Vec<String> {
    let mut texts = Vec::new();
    for (path, stamp) in chunk {
        let path = local::path_of(path);
        if let Err(error) = stamp.put_on(&path) {
            texts.push(format!("{}: {error}", path.display()));
        }
    }
    texts
}

//! Checksums of many files at once, for files that neither size nor time tells apart.

use std::{path::Path, sync::Arc};

use godwit_engine::storage::{PosixStorage, digest};
use godwit_proto::{ChecksumAlgorithm, Command};

use super::copy_path::CopyPath;
use crate::{
    endpoint::Endpoint,
    error::{Error, Result},
    local::files,
    panics::{on_thread, test_point},
    session::{
        Session, checksum_in,
        retry::{Operation, RetryingSession},
    },
};

/// Files that are compared together.
pub(super) const TOGETHER: usize = 100;

/// Bytes that are compared together: larger batches save nothing.
pub(super) const BYTES_TOGETHER: u64 = 1 << 30;

/// The checksum algorithms of a server.
pub(super) async fn offered(
    retrying: &mut RetryingSession,
    endpoint: &Arc<Endpoint>,
) -> Result<Vec<ChecksumAlgorithm>> {
    let shown = endpoint.name();
    let ask = async |session: &mut Session| Ok(session.server.features.checksums.clone());
    Ok(retrying
        .attempt(Operation::on(endpoint, &shown), ask)
        .await?)
}

/// Checksums of files of one end, one result per file.
pub(super) async fn checksums(
    retrying: &mut RetryingSession,
    algorithm: ChecksumAlgorithm,
    places: Vec<&CopyPath>,
) -> Vec<Result<String>> {
    let endpoint = places.iter().find_map(|place| match place {
        CopyPath::There(at) => Some(Arc::clone(&at.endpoint)),
        CopyPath::Here(_) => None,
    });
    let Some(endpoint) = endpoint else {
        let paths = places.into_iter().flat_map(|place| match place {
            CopyPath::Here(path) => Some(path.as_path()),
            CopyPath::There(_) => None,
        });
        return checksums_here(algorithm, paths).await;
    };
    let commands = places.iter().filter_map(|place| match place {
        CopyPath::There(at) => Some(Command::Cksm {
            algorithm,
            offset: 0,
            length: None,
            path: at.path.clone(),
        }),
        CopyPath::Here(_) => None,
    });
    let commands: Vec<_> = commands.collect();
    let shown = endpoint.name();
    let ask = async |session: &mut Session| {
        session
            .ask_all(commands.iter().cloned(), "compute checksums")
            .await
    };
    match retrying
        .attempt(Operation::on(&endpoint, &shown), ask)
        .await
    {
        Ok(replies) => {
            let read =
                |(reply, place)| checksum_in(reply, format!("compute {algorithm} of {place}"));
            replies.into_iter().zip(places).map(read).collect()
        }
        Err(error) => {
            let error = Error::from(error);
            places.iter().map(|_| Err(error.clone())).collect()
        }
    }
}

/// The same for local files.
pub(super) async fn checksums_here(
    algorithm: ChecksumAlgorithm,
    paths: impl Iterator<Item = &Path>,
) -> Vec<Result<String>> {
    let mut all = Vec::new();
    for path in paths {
        let path = path.to_owned();
        let shown = path.display().to_string();
        let compute = move || {
            test_point("checksum", &path.display());
            let (file, _) = files::open_read(&PosixStorage::unconfined(), &path)?;
            let computed = digest::of_file(file.as_ref(), algorithm, 0, None, &mut |_| true);
            computed.map_err(Error::Local)
        };
        let doing = || format!("compute {algorithm} of {shown}");
        all.push(
            on_thread(doing, compute)
                .await
                .and_then(|computed| computed),
        );
    }
    all
}

//! Temporary files that no unit writes any more.

use std::{sync::Arc, time::Duration};

use godwit_client::{CancellationToken, auth::granted::Granted, manage};
use godwit_proto::{temporary::is_temporary, url::Location};
use godwit_service_api::{agent::Removal, job::FileError};
use tokio::sync::mpsc;

use super::{
    file_error::file_error,
    listing::Silent,
    plan::{self, UnitSettings, unfit},
};

/// Time to remove one.
const LIMIT: Duration = Duration::from_secs(60);

/// Removes them, one after the other, on a thread of their own; says which are gone.
pub(super) fn start(
    removals: Vec<Removal>,
    settings: &Arc<UnitSettings>,
    gone: mpsc::UnboundedSender<i64>,
) {
    let settings = Arc::clone(settings);
    let remove = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        for removal in removals {
            let removed = async { tokio::time::timeout(LIMIT, remove(&removal, &settings)).await };
            match runtime.block_on(removed) {
                // The agent may be gone.
                Ok(Ok(())) => drop(gone.send(removal.id)),
                Ok(Err(error)) => {
                    tracing::warn!(id = removal.id, error = error.message, "a file is left");
                }
                Err(_) => tracing::warn!(id = removal.id, "a file is left: no answer"),
            }
        }
        runtime.shutdown_background();
        std::io::Result::Ok(())
    };
    let thread = std::thread::Builder::new().name("godwit-removal".to_owned());
    // The service asks again.
    if let Err(error) = thread.spawn(remove) {
        tracing::warn!(%error, "no thread to remove files");
    }
}

async fn remove(removal: &Removal, settings: &UnitSettings) -> Result<(), FileError> {
    let mut place = plan::place(&removal.url, settings)?;
    let ends = [&mut place, &mut Location::Standard];
    let handed = (removal.addresses, removal.credentials.as_slice());
    let connections = plan::connections_for(handed, &Granted::default(), settings, ends)?;
    let Location::Remote(url) = place else {
        return Err(unfit("no file at a server"));
    };
    let name = url.path.file_name();
    if !name.is_some_and(is_temporary) {
        return Err(unfit("not a temporary file"));
    }
    let removed = manage::remove(
        url,
        removal.upload.as_deref(),
        connections,
        Arc::new(Silent),
        CancellationToken::new(),
    );
    removed.await.map_err(|error| file_error(&error))
}

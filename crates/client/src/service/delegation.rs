//! The user's proxy for the service: the service makes a key, we sign a proxy for it.

use std::{
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use godwit_gsi::cert::{
    CredentialError, files,
    proxy::{ProxyRequest, sign_request_pem},
};
use godwit_service_api::{
    account::{CredentialView, DelegatedChain, DelegationRequest, DelegationView},
    job::FileRequest,
};
use jiff::Timestamp;
use reqwest::Method;

use super::connection::{Connection, ServiceError};

/// A delegated proxy that lasts longer than this is not replaced.
const LEFT_MIN: Duration = Duration::from_secs(2 * 3600);

/// How long a delegated proxy lasts, unless the user's own ends earlier.
const LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// Whether servers of one of these URLs are those of a grid, which ask for a proxy. `https` is
/// the web's, too.
pub(super) fn is_wanted(files: &[FileRequest]) -> bool {
    let mut urls = files
        .iter()
        .flat_map(|file| [&file.source, &file.destination]);
    urls.any(|url| url.starts_with("gsiftp://") || url.starts_with("davs://"))
}

/// Delegates the proxy in this file, where there is one and the service needs it.
///
/// # Errors
/// Why it is not delegated.
pub(super) async fn delegate(connection: &Connection, proxy: &Path) -> Result<(), String> {
    if proxy.symlink_metadata().is_err() {
        return Ok(());
    }
    let of_service = |error: ServiceError| error.to_string();
    let of_proxy = |error: CredentialError| error.to_string();
    let request = connection.request(Method::GET, "/delegation");
    let stored: DelegationView = connection.fetch(request).await.map_err(of_service)?;
    let since_1970 = |end: Timestamp| Duration::from_secs(end.as_second().max(0).unsigned_abs());
    let stored = stored.expires.map(|end| UNIX_EPOCH + since_1970(end));
    let now = SystemTime::now();
    if stored.is_some_and(|end| end > now + LEFT_MIN) {
        return Ok(());
    }
    let credential = files::load_proxy(proxy).map_err(of_proxy)?;
    files::check_time(&credential, proxy, now).map_err(of_proxy)?;
    if stored >= Some(credential.not_after()) {
        // It could not last longer.
        return Ok(());
    }
    if !connection.is_protected() {
        // Who takes the service's place would have a proxy of the user.
        return Err("the service is reached by plain HTTP".to_owned());
    }
    let request = connection.request(Method::POST, "/delegation/request");
    let asked: DelegationRequest = connection.fetch(request).await.map_err(of_service)?;
    let wanted = ProxyRequest {
        lifetime: LIFETIME,
        ..ProxyRequest::default()
    };
    let chain = sign_request_pem(&credential, &asked.request, &wanted, now).map_err(of_proxy)?;
    let request = connection.request(Method::PUT, "/delegation");
    let request = request.json(&DelegatedChain { chain });
    let stored = connection.fetch::<CredentialView>(request).await;
    stored.map(drop).map_err(of_service)
}

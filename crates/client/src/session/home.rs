//! `/~/x`: paths that begin where only the server knows.
//!
//! The server is asked once where that is, before anything else is done, and all later commands,
//! names in the journal and messages have the whole path: so it means the same with servers that
//! expand `~` themselves and with those that do not.

use std::sync::Arc;

use godwit_proto::{FtpPath, url::RemoteUrl};

use super::{
    Session,
    pool::SessionPool,
    retry::{Operation, RetryingSession},
};
use crate::error::{Error, Result};

/// Puts the whole path in the place of those that begin at a home. The sessions are left to the
/// pool.
///
/// # Errors
/// Those of a session, and [`Error::Refused`] where the server knows no such home.
pub(crate) async fn expand_home(pool: &Arc<SessionPool>, urls: Vec<&mut RemoteUrl>) -> Result<()> {
    let mut found: Vec<(String, FtpPath)> = Vec::new();
    let mut retrying = RetryingSession::new(Arc::clone(pool));
    for url in urls {
        let Some(start) = url.home().map(<[u8]>::to_vec) else {
            continue;
        };
        let endpoint = pool.context.endpoints.of(url);
        let start = path(start)?;
        let shown = endpoint.url(&start);
        let known = found.iter().find(|(known, _)| *known == shown);
        let home = match known {
            Some((_, home)) => home.clone(),
            None => {
                let step = Operation::on(&endpoint, &shown);
                let home = retrying.attempt(step, async |s: &mut Session| s.home(&start).await);
                let home = home.await.map_err(Error::from)?;
                // A session to another server takes its place.
                retrying.release();
                found.push((shown, home.clone()));
                home
            }
        };
        url.path = below(&home, &url.path.as_bytes()[start.as_bytes().len()..])?;
    }
    Ok(())
}

/// `rest` is empty or begins with a slash.
fn below(home: &FtpPath, rest: &[u8]) -> Result<FtpPath> {
    let home = home.as_bytes();
    let home = home.strip_suffix(b"/").unwrap_or(home);
    let whole = [home, rest].concat();
    match whole.is_empty() {
        true => Ok(FtpPath::root()),
        false => path(whole),
    }
}

fn path(bytes: Vec<u8>) -> Result<FtpPath> {
    FtpPath::new(bytes).map_err(|error| Error::Usage(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_put_below_homes() {
        for (home, rest, whole) in [
            ("/home/jo", "/x/", "/home/jo/x/"),
            ("/home/jo", "", "/home/jo"),
            ("/", "/x", "/x"),
            ("/", "", "/"),
            ("/", "/", "/"),
        ] {
            let home = FtpPath::new(home).unwrap();
            let found = below(&home, rest.as_bytes()).unwrap();
            assert_eq!(found, FtpPath::new(whole).unwrap());
        }
    }
}

//! Says whether a process on this host works: for health checks of containers.

use std::{
    io,
    net::SocketAddr,
    path::Path,
    time::{Duration, SystemTime},
};

use reqwest::Client;

use crate::{
    ServiceError,
    agent::{BEAT_FILE, BEAT_PERIOD},
    config::{DEFAULT_PORT, ProbeOptions},
};

/// Time for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// An agent whose loop has not run for so long hangs.
const ALIVE_LIMIT: Duration = BEAT_PERIOD.saturating_mul(6);

/// One line about the process: `Ok` if it works, `Err` if it does not.
///
/// # Errors
/// An address that is not of this host.
pub async fn ask(options: &ProbeOptions) -> Result<Result<String, String>, ServiceError> {
    if let Some(state) = &options.state {
        return Ok(agent(state, options.process_only, SystemTime::now()));
    }
    let address = options
        .address
        .unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT)));
    if !address.ip().is_loopback() {
        return Err(ServiceError::Usage(format!(
            "--address {address}: only loopback addresses are asked, since certificates are not \
             checked"
        )));
    }
    service(address).await
}

async fn service(address: SocketAddr) -> Result<Result<String, String>, ServiceError> {
    // Its certificate is for the name that users know; nothing secret is sent.
    let client = Client::builder()
        .no_proxy()
        .timeout(ANSWER_LIMIT)
        .tls_danger_accept_invalid_certs(true)
        .tls_danger_accept_invalid_hostnames(true)
        .build()?;
    let mut why = String::new();
    for scheme in ["https", "http"] {
        let url = format!("{scheme}://{address}/ready");
        match client.get(&url).send().await {
            Ok(answer) if answer.status().is_success() => {
                return Ok(Ok(format!("{url} is ready")));
            }
            Ok(answer) => return Ok(Err(format!("{url}: {}", answer.status()))),
            Err(error) if error.is_connect() => why = format!("nothing answers at {address}"),
            Err(error) => why = format!("{url}: {error}"),
        }
    }
    Ok(Err(why))
}

fn agent(state: &Path, process_only: bool, now: SystemTime) -> Result<String, String> {
    let path = state.join(BEAT_FILE);
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => format!("no agent runs with {}", state.display()),
        _ => format!("{}: {error}", path.display()),
    };
    let beat = std::fs::metadata(&path)
        .and_then(|file| file.modified())
        .map_err(failed)?;
    // A clock that was set back tells nothing.
    let since = |time| now.duration_since(time).unwrap_or_default();
    if since(beat) > ALIVE_LIMIT {
        let seconds = since(beat).as_secs();
        return Err(format!("the agent has not run for {seconds} s"));
    }
    let text = std::fs::read_to_string(&path).map_err(failed)?;
    match text.trim() {
        "answered" => Ok("the service answers the agent".to_owned()),
        state if process_only => Ok(format!("the agent runs; the service: {state}")),
        state => Err(format!("the agent runs; the service: {state}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_works_while_it_writes_and_is_answered() {
        let state = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        assert!(agent(state.path(), false, now).is_err());
        std::fs::write(state.path().join(BEAT_FILE), "answered\n").unwrap();
        assert!(agent(state.path(), false, now).is_ok());
        let later = now + 2 * ALIVE_LIMIT;
        assert!(agent(state.path(), true, later).is_err());
        std::fs::write(state.path().join(BEAT_FILE), "silent\n").unwrap();
        assert!(agent(state.path(), false, now).is_err());
        assert!(agent(state.path(), true, now).is_ok());
    }
}

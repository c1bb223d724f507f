//! From the name of a server to its greeting.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use godwit_engine::host::net;
use tokio::{task::JoinSet, time};

use super::login::{self, Connected};
use crate::{
    context::{Endpoint, RunContext},
    error::{Error, Result},
    panics::{joined_badly, on_thread},
};

/// Time for an address to greet before the next is tried beside it. A machine that is gone says
/// nothing, for a minute.
const CONNECTION_ATTEMPT_DELAY: Duration = Duration::from_secs(1);

/// Connects to the address that greets first: they are tried in turn, the next where one has failed
/// or is late.
pub(super) async fn connect_any(
    context: &Arc<RunContext>,
    endpoint: &Arc<Endpoint>,
) -> Result<Connected> {
    let known = &endpoint.capabilities.addresses;
    let mut untried = known.trial_order(addresses(endpoint).await?).into_iter();
    // In the order in which they were begun.
    let mut trying: Vec<SocketAddr> = Vec::new();
    let mut trials = JoinSet::new();
    let mut last = None;
    let doing = || format!("connect to {}", endpoint.name());
    loop {
        if let Some(address) = untried.next() {
            trying.push(address);
            let (context, endpoint) = (Arc::clone(context), Arc::clone(endpoint));
            trials.spawn(async move {
                let connected = login::connect(&context, &endpoint, address).await;
                (address, connected)
            });
        }
        let ended = tokio::select! {
            ended = trials.join_next() => ended,
            () = time::sleep(CONNECTION_ATTEMPT_DELAY), if untried.len() > 0 => continue,
        };
        match ended {
            Some(Ok((address, Ok(connected)))) => {
                let earlier = trying.iter().take_while(|tried| **tried != address);
                earlier.for_each(|late| known.record(*late, false));
                known.record(address, true);
                return Ok(connected);
            }
            Some(Ok((address, Err(error)))) => {
                trying.retain(|tried| *tried != address);
                known.record(address, false);
                context.note(format!("{}: {error}", endpoint.name()));
                last = Some(error);
            }
            // Not tried elsewhere: a bug must be seen, even where another address answers.
            Some(Err(bug)) => return Err(joined_badly(doing(), bug)),
            None => {
                let none = || Error::Usage(format!("{}: no address", endpoint.name()));
                return Err(last.unwrap_or_else(none));
            }
        }
    }
}

/// All addresses of the host, in the system's order.
pub(super) async fn addresses(endpoint: &Endpoint) -> Result<Vec<SocketAddr>> {
    let (host, port) = (endpoint.host().to_owned(), endpoint.port());
    let doing = || format!("find host {}", endpoint.host());
    let resolved = on_thread(doing, move || net::resolve(&host, port)).await?;
    resolved.map_err(|error| Error::Resolve {
        endpoint: endpoint.name(),
        host: endpoint.host().to_owned(),
        error: Arc::new(error),
    })
}

//! From the name of a server to its greeting.

use std::{
    future::{Future, poll_fn},
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use godwit_engine::host::net;
use tokio::time;

use super::login::{self, Connected};
use crate::{
    context::RunContext,
    endpoint::Endpoint,
    error::{Error, Result},
    panics::on_thread,
};

/// Time for an address to greet before the next is tried beside it. A machine that is gone says
/// nothing, for a minute.
const CONNECTION_ATTEMPT_DELAY: Duration = Duration::from_secs(1);

/// Connects to the address that greets first: they are tried in turn, the next where one has failed
/// or is late. All within the task of the caller, so that a bug of one is seen there even where the
/// caller is stopped in that moment.
pub(super) async fn connect_any(
    context: &Arc<RunContext>,
    endpoint: &Arc<Endpoint>,
) -> Result<Connected> {
    let known = &endpoint.capabilities.addresses;
    let mut untried = known
        .trial_order(addresses(context, endpoint).await?)
        .into_iter();
    // In the order in which they were begun.
    let mut trying: Vec<SocketAddr> = Vec::new();
    let mut trials = Vec::new();
    let mut last = None;
    loop {
        if let Some(address) = untried.next() {
            trying.push(address);
            trials.push(Box::pin(async move {
                let connected = login::connect(context, endpoint, address).await;
                (address, connected)
            }));
        }
        let ended = tokio::select! {
            ended = first_of(&mut trials) => ended,
            () = time::sleep(CONNECTION_ATTEMPT_DELAY), if untried.len() > 0 => continue,
        };
        match ended {
            Some((address, Ok(connected))) => {
                let earlier = trying.iter().take_while(|tried| **tried != address);
                earlier.for_each(|late| known.record(*late, false));
                known.record(address, true);
                return Ok(connected);
            }
            Some((address, Err(error))) => {
                trying.retain(|tried| *tried != address);
                known.record(address, false);
                context
                    .reporter
                    .note(format!("{}: {error}", endpoint.name()));
                last = Some(error);
            }
            None => {
                let none = || Error::Usage(format!("{}: no address", endpoint.name()));
                return Err(last.unwrap_or_else(none));
            }
        }
    }
}

/// What the first that ends has come to; `None` where nothing is left to wait for.
async fn first_of<F: Future>(trials: &mut Vec<Pin<Box<F>>>) -> Option<F::Output> {
    if trials.is_empty() {
        return None;
    }
    let ended = poll_fn(|context| {
        for (at, trial) in trials.iter_mut().enumerate() {
            if let Poll::Ready(ended) = trial.as_mut().poll(context) {
                return Poll::Ready((at, ended));
            }
        }
        Poll::Pending
    });
    let (at, ended) = ended.await;
    drop(trials.swap_remove(at));
    Some(ended)
}

/// All addresses of the host that the run may connect to, in the system's order.
pub(super) async fn addresses(
    context: &RunContext,
    endpoint: &Endpoint,
) -> Result<Vec<SocketAddr>> {
    let (host, port) = (endpoint.host().to_owned(), endpoint.port());
    let doing = || format!("find host {}", endpoint.host());
    let resolved = on_thread(doing, move || net::resolve(&host, port)).await?;
    let mut found = resolved.map_err(|error| Error::Resolve {
        endpoint: endpoint.name(),
        host: endpoint.host().to_owned(),
        error: Arc::new(error),
    })?;
    let first = found.first().map(SocketAddr::ip);
    let scope = context.connections.addresses;
    found.retain(|address| scope.allows_for(endpoint.host(), address.ip()));
    match (found.is_empty(), first) {
        (true, Some(address)) => Err(Error::AddressRefused {
            endpoint: endpoint.name(),
            address,
        }),
        _ => Ok(found),
    }
}

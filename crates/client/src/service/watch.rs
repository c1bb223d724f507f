//! A job until it ends.

use std::time::Duration;

use godwit_service_api::job::JobView;
use reqwest::Method;
use tokio::time;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    connection::{Connection, ServiceError},
    exit_of, show,
};
use crate::{error::Exit, report::events::Observer};

/// Time after a lost stream until the next attempt.
const RECONNECT_PAUSE: Duration = Duration::from_secs(2);

/// Attempts in a row without an answer.
const RECONNECTS: u32 = 30;

/// Shortest time between two lines.
const LINE_PAUSE: Duration = Duration::from_secs(1);

/// Prints what changes until the job is final. Events say when to look; what is shown is the job.
pub(super) async fn watch(
    connection: &Connection,
    id: Uuid,
    json: bool,
    observer: &dyn Observer,
    stop: &CancellationToken,
) -> Result<Exit, ServiceError> {
    let mut failures = 0;
    let mut shown = String::new();
    let mut show = |job: &JobView| {
        let line = if json {
            show::json(job)
        } else {
            show::progress(job)
        };
        if line != shown {
            observer.on_output(line.as_bytes());
            shown = line;
        }
    };
    let follow = async {
        loop {
            match follow(connection, id, &mut failures, &mut show).await {
                Ok(job) => return Ok(exit_of(&job)),
                Err(error @ ServiceError::Refused { .. }) => return Err(error),
                Err(error) if failures >= RECONNECTS => return Err(error),
                Err(_) => failures += 1,
            }
            time::sleep(RECONNECT_PAUSE).await;
        }
    };
    tokio::select! {
        exit = follow => exit,
        () = stop.cancelled() => Err(ServiceError::Interrupted(id)),
    }
}

/// Follows one event stream until the job is final or the stream breaks off.
async fn follow(
    connection: &Connection,
    id: Uuid,
    failures: &mut u32,
    show: &mut impl FnMut(&JobView),
) -> Result<JobView, ServiceError> {
    let request = connection.request(Method::GET, &format!("/jobs/{id}/events"));
    let mut events = connection.send(request).await?;
    loop {
        let job = connection.job(id).await?;
        *failures = 0;
        show(&job);
        if job.state.is_final() {
            return Ok(job);
        }
        time::sleep(LINE_PAUSE).await;
        let more = events
            .chunk()
            .await
            .map_err(|error| connection.unreachable(&error))?;
        if more.is_none() {
            return Err(connection.strange("the event stream ended".to_owned()));
        }
    }
}

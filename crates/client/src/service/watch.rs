//! Jobs until they end.

use std::{cmp, panic, slice, time::Duration};

use godwit_service_api::job::JobView;
use reqwest::Method;
use tokio::{task::JoinSet, time};
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

/// Jobs that are followed at a time: the service limits the streams of a user.
const TOGETHER: usize = 16;

/// Prints what changes until the job is final. Events say when to look; what is shown is the job.
pub(super) async fn watch(
    connection: &Connection,
    id: Uuid,
    json: bool,
    observer: &dyn Observer,
    stop: &CancellationToken,
) -> Result<Exit, ServiceError> {
    let mut shown = String::new();
    let show = |job: &JobView| {
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
    tokio::select! {
        job = ended(connection, id, show) => job.map(|job| exit_of(&job)),
        () = stop.cancelled() => Err(ServiceError::Interrupted(id)),
    }
}

/// Waits until all jobs are final, and prints a line for each as it ends. The exit status is the
/// worst of theirs.
pub(super) async fn wait(
    connection: &Connection,
    ids: &[Uuid],
    limit: Duration,
    json: bool,
    observer: &dyn Observer,
    stop: &CancellationToken,
) -> Result<Exit, ServiceError> {
    let mut open = ids.to_vec();
    let all = async {
        let (mut following, mut worst) = (JoinSet::new(), Exit::Done);
        let mut end = |job: &JobView| {
            let text = match json {
                true => show::json(job),
                false => show::table(slice::from_ref(job)),
            };
            text.lines()
                .for_each(|line| observer.on_output(line.as_bytes()));
            worst = cmp::max_by_key(worst, exit_of(job), |exit| exit.code());
            open.retain(|id| *id != job.id);
            worst
        };
        let (mut last, mut left) = (Exit::Done, Vec::new());
        for id in ids {
            let job = connection.job(*id).await?;
            match job.state.is_final() {
                true => last = end(&job),
                false => left.push(*id),
            }
        }
        let mut next = left.into_iter();
        loop {
            while following.len() < TOGETHER
                && let Some(id) = next.next()
            {
                let connection = connection.clone();
                following.spawn(async move { ended(&connection, id, |_| {}).await });
            }
            let Some(job) = following.join_next().await else {
                return Ok(last);
            };
            let job = job.unwrap_or_else(|error| panic::resume_unwind(error.into_panic()))?;
            last = end(&job);
        }
    };
    tokio::select! {
        exit = all => exit,
        () = stop.cancelled() => {
            Err(ServiceError::Interrupted(open.first().copied().unwrap_or_default()))
        }
        () = time::sleep(limit) => Err(ServiceError::TimedOut {
            left: open.len(),
            all: ids.len(),
            limit,
        }),
    }
}

/// A job when it has ended. A lost connection is made again.
async fn ended(
    connection: &Connection,
    id: Uuid,
    mut show: impl FnMut(&JobView),
) -> Result<JobView, ServiceError> {
    let mut failures = 0;
    loop {
        match follow(connection, id, &mut failures, &mut show).await {
            Ok(job) => return Ok(job),
            Err(error) if !error.may_pass() || failures >= RECONNECTS => return Err(error),
            // Others of the user's streams end some time.
            Err(error) if error.is_limit() => {}
            Err(_) => failures += 1,
        }
        time::sleep(RECONNECT_PAUSE).await;
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

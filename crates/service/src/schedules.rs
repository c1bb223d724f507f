//! Submits what schedules say, when they are due.
//!
//! The leader does it. A time that is due has one job, whichever process submits it and how often
//! it tries: the key of the submission is made of both.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use godwit_service_api::site::Role;
use tokio::time::sleep;
use uuid::Uuid;

use crate::{
    api::{Api, Caller, Incoming},
    problem::{Answer, ApiError},
    scheduling::Board,
    store::{StoreError, model::ScheduleRecord},
    timetable::Timetable,
};

/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// Schedules that are submitted between two looks, each of another owner.
const TOGETHER: u32 = 8;

/// Until one is tried again that could not be submitted or written down.
const RETRY: Duration = Duration::from_mins(1);

/// What submitting needs.
pub(crate) struct ScheduleRunner {
    pub(crate) api: Arc<Api>,
    pub(crate) board: Arc<Board>,
}

impl ScheduleRunner {
    /// Submits while this process leads, until `stop`.
    pub(crate) async fn run(self, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        let mut put_off = HashMap::new();
        loop {
            tokio::select! {
                () = &mut stop => return,
                () = sleep(LOOK) => {}
            }
            if self.board.leads()
                && let Err(error) = submit_due(&self.api, &mut put_off).await
            {
                tracing::warn!(%error, "schedules wait");
            }
        }
    }
}

/// Submits what is due now. What fails is put off, so that it holds up no other schedule.
async fn submit_due(api: &Api, put_off: &mut HashMap<i64, Instant>) -> Result<(), StoreError> {
    let now = Instant::now();
    put_off.retain(|_, until| *until > now);
    let waiting: Vec<i64> = put_off.keys().copied().collect();
    for number in api.store().due_schedules(&waiting, TOGETHER).await? {
        if let Err(error) = submit_one(api, number).await {
            tracing::warn!(schedule = number, %error, "a schedule waits");
            put_off.insert(number, Instant::now() + RETRY);
        }
    }
    Ok(())
}

async fn submit_one(api: &Api, number: i64) -> Result<(), StoreError> {
    let Some(schedule) = api.store().due_schedule(number).await? else {
        return Ok(());
    };
    let timetable = Timetable::parse(&schedule.cron, &schedule.zone).map_err(|_| {
        StoreError::Conflict("this host does not know its time zone, or its cron expression")
    })?;
    let outcome = submit(api, &schedule).await?;
    if let Err(why) = &outcome {
        let (name, owner) = (&schedule.name, &schedule.owner);
        tracing::info!(schedule = name, owner, why, "skipped");
    }
    // Times that passed meanwhile, as while the service was down, are not made up for. The clock
    // may have been set back.
    let now = api.store().now().await?;
    let next = timetable.next(schedule.next.map_or(now, |due| due.max(now)));
    let outcome = outcome.as_ref().copied().map_err(String::as_str);
    api.store().schedule_ran(&schedule, outcome, next).await
}

/// The job of a time that is due, or why there is none.
async fn submit(api: &Api, schedule: &ScheduleRecord) -> Result<Result<Uuid, String>, StoreError> {
    let owner = match api.store().principal(&schedule.owner).await {
        Ok(owner) if !owner.disabled && owner.role >= Role::User => owner,
        Ok(_) | Err(StoreError::NotFound) => return Ok(Err("its owner is disabled".to_owned())),
        Err(error) => return Err(error),
    };
    if let Some(last) = schedule.last_job {
        match api.store().job(last).await {
            Ok(job) if !job.state.is_final() => {
                return Ok(Err(format!("job {last} of the time before has not ended")));
            }
            Ok(_) | Err(StoreError::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    match take(api, &Caller(owner), schedule).await {
        Ok(job) => Ok(Ok(job)),
        // The database did not answer, or another process submits it: the time is still due.
        Err(error) if matches!(error.problem().status, 409 | 503) => Err(StoreError::Conflict(
            "the database does not answer, or another process submits it",
        )),
        Err(error) => Ok(Err(error.problem().detail.clone())),
    }
}

async fn take(api: &Api, caller: &Caller, schedule: &ScheduleRecord) -> Answer<Uuid> {
    let due = schedule.next.map_or(0, |due| due.as_microsecond());
    let key = format!("schedule {} {due}", schedule.number);
    let mut incoming = Incoming::scheduled(api, caller, key, &schedule.name);
    let taken = async {
        incoming.begin(&schedule.request.options).await?;
        for file in &schedule.request.files {
            // The operator may have changed it.
            api.policy().check_file(file)?;
            incoming.push(file.clone()).await?;
        }
        incoming.check_complete()
    };
    let taken: Result<(), ApiError> = taken.await;
    if let Err(error) = taken {
        incoming.abort().await;
        return Err(error);
    }
    Ok(incoming.finish().await?.1.id)
}

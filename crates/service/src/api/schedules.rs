//! Schedules: jobs that the service submits again and again.

use std::sync::Arc;

use axum::{Json as JsonAnswer, extract::State, http::StatusCode};
use godwit_service_api::{
    job::{JobOptions, MAX_INLINE_FILES},
    schedule::{ScheduleRequest, ScheduleView},
};

use super::{
    Api,
    extract::{Caller, Json, Name},
    openapi::Routes,
    submit::{Incoming, check_reserved, is_plain},
};
use crate::{
    problem::{Answer, ApiError, Kind},
    store::model::ScheduleRecord,
    timetable::{Timetable, TimetableError},
};

pub(super) fn routes(routes: &mut Routes) {
    routes
        .add::<__path_list_schedules, _, _>(list_schedules)
        .add::<__path_add_schedule, _, _>(add_schedule)
        .add::<__path_show_schedule, _, _>(show_schedule)
        .add::<__path_remove_schedule, _, _>(remove_schedule)
        .add::<__path_pause_schedule, _, _>(pause_schedule)
        .add::<__path_resume_schedule, _, _>(resume_schedule);
}

fn view(schedule: ScheduleRecord) -> ScheduleView {
    ScheduleView {
        name: schedule.name,
        cron: schedule.cron,
        zone: schedule.zone,
        files: schedule.request.files.len() as u64,
        options: schedule.request.options,
        next: schedule.next,
        paused: schedule.paused,
        runs: Vec::new(),
    }
}

/// Lists schedules of the user
#[utoipa::path(
    get, path = "/api/v1/schedules",
    responses((status = 200, description = "By name", body = Vec<ScheduleView>)),
)]
pub(super) async fn list_schedules(
    State(api): State<Arc<Api>>,
    caller: Caller,
) -> Answer<JsonAnswer<Vec<ScheduleView>>> {
    let schedules = api.store.schedules(caller.name()).await?;
    Ok(JsonAnswer(schedules.into_iter().map(view).collect()))
}

/// Makes a schedule
///
/// Its job is submitted each time that it is due, unless the job of the time before has not ended.
/// Times that pass while the service is down give one job together.
#[utoipa::path(
    post, path = "/api/v1/schedules", request_body = ScheduleRequest,
    responses((status = 201, description = "The schedule", body = ScheduleView)),
)]
pub(super) async fn add_schedule(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Json(request): Json<ScheduleRequest>,
) -> Answer<(StatusCode, JsonAnswer<ScheduleView>)> {
    let invalid = |at: &str, why: &str| ApiError::new(Kind::Invalid, why).at(at);
    let is_name_char = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_name = is_plain(&request.name) && request.name.chars().all(is_name_char);
    // URLs cannot have them as a part of their path.
    if !is_name || matches!(request.name.as_str(), "." | "..") {
        let why = "1 to 200 letters, digits, . _ and -; not . or .. alone";
        return Err(invalid("/name", why));
    }
    let timetable = Timetable::parse(&request.cron, &request.zone);
    let timetable = timetable.map_err(|error| match error {
        TimetableError::Cron(why) => invalid("/cron", &why),
        TimetableError::Zone => invalid("/zone", "no time zone has this name"),
    })?;
    let next = timetable.next(api.store.now().await?);
    if next.is_none() {
        return Err(invalid("/cron", "it is not due within four years"));
    }
    api.check_job(&caller, &request).await?;
    let schedule = ScheduleRecord {
        number: 0,
        owner: caller.name().to_owned(),
        name: request.name,
        cron: request.cron,
        zone: request.zone,
        request: request.job,
        next,
        last_job: None,
        paused: false,
    };
    api.store.add_schedule(&schedule).await?;
    api.audit(
        caller.name(),
        "schedule.add",
        &schedule.name,
        &schedule.cron,
    )
    .await;
    Ok((StatusCode::CREATED, JsonAnswer(view(schedule))))
}

/// Shows a schedule with the last times that it was due
#[utoipa::path(
    get, path = "/api/v1/schedules/{name}",
    params(("name" = String, Path, description = "Schedule")),
    responses((status = 200, description = "The schedule", body = ScheduleView)),
)]
pub(super) async fn show_schedule(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Name(name): Name,
) -> Answer<JsonAnswer<ScheduleView>> {
    let schedule = api.store.schedule(caller.name(), &name).await?;
    let runs = api.store.runs(schedule.number).await?;
    Ok(JsonAnswer(ScheduleView {
        runs,
        ..view(schedule)
    }))
}

/// Removes a schedule
///
/// Its jobs stay.
#[utoipa::path(
    delete, path = "/api/v1/schedules/{name}",
    params(("name" = String, Path, description = "Schedule")),
    responses((status = 204, description = "It begins no submission any more")),
)]
pub(super) async fn remove_schedule(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Name(name): Name,
) -> Answer<StatusCode> {
    api.remove_schedule_of(&caller, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Pauses a schedule
///
/// It submits nothing until it is resumed. Its job that runs goes on.
#[utoipa::path(
    post, path = "/api/v1/schedules/{name}/pause",
    params(("name" = String, Path, description = "Schedule")),
    responses((status = 200, description = "The schedule", body = ScheduleView)),
)]
pub(super) async fn pause_schedule(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Name(name): Name,
) -> Answer<JsonAnswer<ScheduleView>> {
    api.pause_schedule(&caller, &name, true)
        .await
        .map(JsonAnswer)
}

/// Resumes a schedule
///
/// Times that passed meanwhile are not made up for.
#[utoipa::path(
    post, path = "/api/v1/schedules/{name}/resume",
    params(("name" = String, Path, description = "Schedule")),
    responses((status = 200, description = "The schedule", body = ScheduleView)),
)]
pub(super) async fn resume_schedule(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Name(name): Name,
) -> Answer<JsonAnswer<ScheduleView>> {
    api.pause_schedule(&caller, &name, false)
        .await
        .map(JsonAnswer)
}

impl Api {
    /// Removes a schedule of the caller.
    pub(crate) async fn remove_schedule_of(&self, caller: &Caller, name: &str) -> Answer<()> {
        self.store.remove_schedule(caller.name(), name).await?;
        self.audit(caller.name(), "schedule.remove", name, "").await;
        Ok(())
    }

    /// Pauses or resumes a schedule of the caller.
    pub(crate) async fn pause_schedule(
        &self,
        caller: &Caller,
        name: &str,
        paused: bool,
    ) -> Answer<ScheduleView> {
        let owner = caller.name();
        let schedule = self.store.schedule(owner, name).await?;
        let next = match Timetable::parse(&schedule.cron, &schedule.zone) {
            _ if paused => None,
            Ok(timetable) => timetable.next(self.store.now().await?),
            Err(_) => {
                let why = "this host does not know its time zone, or its cron expression";
                return Err(ApiError::new(Kind::Conflict, why));
            }
        };
        let set = self.store.set_schedule_paused(owner, name, paused, next);
        set.await?;
        let action = match paused {
            true => "schedule.pause",
            false => "schedule.resume",
        };
        self.audit(owner, action, name, "").await;
        Ok(view(self.store.schedule(owner, name).await?))
    }

    /// Whether the job of a schedule would be accepted now.
    async fn check_job(&self, caller: &Caller, request: &ScheduleRequest) -> Answer<()> {
        let (options, files) = (&request.job.options, &request.job.files);
        let wrong = |at: &str, why: &str| Err(ApiError::new(Kind::Invalid, why).at(at));
        if files.len() > MAX_INLINE_FILES {
            return wrong("/job/files", "at most 10000 files");
        }
        if options.deadline.is_some() || !options.after.is_empty() || options.dry_run {
            let why = "a schedule has no deadline, no dry run and no job before it";
            return wrong("/job/options", why);
        }
        let checked = async {
            check_reserved(options).map_err(|error| error.below("/options"))?;
            let mut incoming = Incoming::named(self, caller, None);
            let dry_run = JobOptions {
                dry_run: true,
                ..options.clone()
            };
            incoming.begin(&dry_run).await?;
            for (place, file) in files.iter().enumerate() {
                let checked = self.policy.check_file(file);
                checked.map_err(|error| error.below(&format!("/files/{place}")))?;
                incoming.push(file.clone()).await?;
            }
            incoming.check_complete()
        };
        checked.await.map_err(|error| error.below("/job"))
    }
}

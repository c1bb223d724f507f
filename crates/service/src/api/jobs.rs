//! Jobs as users see them, and what they do to them.

use std::{collections::HashMap, sync::Arc};

use axum::{
    Json as JsonAnswer,
    extract::{Path, State},
};
use godwit_service_api::{
    job::{FileState, FileView, JobChange, JobState, JobView},
    page::{DEFAULT_PAGE, MAX_PAGE, Page},
    site::Role,
    why::{Why, WhyCode},
};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;

use super::{
    Api, cursor,
    extract::{Asked, Caller, Id, Json},
    openapi::Routes,
    submit::{check_name, check_priority},
};
use crate::problem::{Answer, ApiError, Kind};
use crate::store::{
    StoreError,
    model::{JobFilter, JobNow, JobRecord},
};

pub(super) fn routes(routes: &mut Routes) {
    routes
        .add::<__path_list_jobs, _, _>(list_jobs)
        .add::<__path_show_job, _, _>(show_job)
        .add::<__path_change_job, _, _>(change_job)
        .add::<__path_list_files, _, _>(list_files)
        .add::<__path_why, _, _>(why)
        .add::<__path_cancel, _, _>(cancel)
        .add::<__path_cancel_file, _, _>(cancel_file)
        .add::<__path_pause, _, _>(pause)
        .add::<__path_resume, _, _>(resume)
        .add::<__path_retry, _, _>(retry);
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct JobsQuery {
    /// States with commas between
    state: Option<String>,
    /// Whose, where not one's own
    owner: Option<String>,
    /// Of every user, for operators
    #[serde(default)]
    all: bool,
    /// `next` of the page before
    cursor: Option<String>,
    /// Most jobs of the page, up to 1000
    limit: Option<u32>,
}

/// Lists jobs, latest first
#[utoipa::path(
    get, path = "/api/v1/jobs", params(JobsQuery),
    responses((status = 200, description = "A page", body = Page<JobView>)),
)]
pub(super) async fn list_jobs(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Asked(asked): Asked<JobsQuery>,
) -> Answer<JsonAnswer<Page<JobView>>> {
    let states = asked.state.iter().flat_map(|states| states.split(','));
    let states = states.map(|name| name.parse::<JobState>());
    let states = states.collect::<Result<Vec<_>, _>>();
    let states = states.map_err(|error| ApiError::new(Kind::Query, error.to_string()))?;
    let filter = api
        .job_filter(&caller, asked.owner, asked.all, states)
        .await?;
    let limit = asked.limit.unwrap_or(DEFAULT_PAGE);
    let page = api.job_page(&filter, asked.cursor.as_deref(), limit);
    Ok(JsonAnswer(page.await?))
}

/// Shows a job
#[utoipa::path(
    get, path = "/api/v1/jobs/{id}", params(("id" = Uuid, Path, description = "Job")),
    responses((status = 200, description = "The job", body = JobView)),
)]
pub(super) async fn show_job(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Id(id): Id,
) -> Answer<JsonAnswer<JobView>> {
    let job = api.visible_job(&caller, id).await?;
    Ok(JsonAnswer(api.view(job)))
}

/// Changes a job that has not ended
#[utoipa::path(
    patch, path = "/api/v1/jobs/{id}", request_body = JobChange,
    params(("id" = Uuid, Path, description = "Job")),
    responses((status = 200, description = "The job as it is now", body = JobView)),
)]
pub(super) async fn change_job(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Id(id): Id,
    Json(change): Json<JobChange>,
) -> Answer<JsonAnswer<JobView>> {
    let mut job = api.visible_job(&caller, id).await?;
    if let Some(priority) = change.priority {
        check_priority(priority)?;
        job.options.priority = priority;
    }
    if change.name.is_some() {
        check_name(change.name.as_deref())?;
        job.options.name = change.name;
    }
    api.store.set_options(id, &job.options).await?;
    let detail = format!("priority {}", job.options.priority);
    api.audit(caller.name(), "job.change", &id.to_string(), &detail)
        .await;
    Ok(JsonAnswer(api.view(job)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct FilesQuery {
    /// Only files in this state
    #[param(value_type = Option<String>)]
    state: Option<FileState>,
    /// `next` of the page before
    cursor: Option<String>,
    /// Most files of the page, up to 1000
    limit: Option<u32>,
}

/// Lists files of a job in the order of their numbers
#[utoipa::path(
    get, path = "/api/v1/jobs/{id}/files",
    params(("id" = Uuid, Path, description = "Job"), FilesQuery),
    responses((status = 200, description = "A page", body = Page<FileView>)),
)]
pub(super) async fn list_files(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Id(id): Id,
    Asked(asked): Asked<FilesQuery>,
) -> Answer<JsonAnswer<Page<FileView>>> {
    let job = api.visible_job(&caller, id).await?;
    let list = format!("files {id} {:?}", asked.state);
    let place = cursor::decode(&list, asked.cursor.as_deref())?;
    let limit = asked.limit.unwrap_or(DEFAULT_PAGE);
    let page = api
        .store
        .files(&job, place.as_deref(), limit, asked.state)
        .await?;
    Ok(JsonAnswer(Page {
        items: page.items,
        next: cursor::encode(&list, page.next),
    }))
}

/// Says why a job waits or is slow
#[utoipa::path(
    get, path = "/api/v1/jobs/{id}/why", params(("id" = Uuid, Path, description = "Job")),
    responses((status = 200, description = "Reasons, most telling first", body = Vec<Why>)),
)]
pub(super) async fn why(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Id(id): Id,
) -> Answer<JsonAnswer<Vec<Why>>> {
    let job = api.visible_job(&caller, id).await?;
    Ok(JsonAnswer(api.reasons(&job)))
}

/// Cancels a job
#[utoipa::path(
    post, path = "/api/v1/jobs/{id}/cancel", params(("id" = Uuid, Path, description = "Job")),
    responses((status = 200, description = "Its agents stop at once", body = JobView)),
)]
pub(super) async fn cancel(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Id(id): Id,
) -> Answer<JsonAnswer<JobView>> {
    api.cancel_job(&caller, id).await?;
    Ok(JsonAnswer(api.view(api.store.job(id).await?)))
}

/// Cancels one file of a job
///
/// The others continue. Files of a job with an order end only together.
#[utoipa::path(
    post, path = "/api/v1/jobs/{id}/files/{index}/cancel",
    params(
        ("id" = Uuid, Path, description = "Job"),
        ("index" = u64, Path, description = "Number of the file"),
    ),
    responses((status = 200, description = "The job as it is now", body = JobView)),
)]
pub(super) async fn cancel_file(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Path((id, index)): Path<(String, String)>,
) -> Answer<JsonAnswer<JobView>> {
    let (Ok(id), Ok(index)) = (id.parse(), index.parse()) else {
        return Err(ApiError::not_found());
    };
    match api.end_file(&caller, id, index).await? {
        true => Ok(JsonAnswer(api.view(api.store.job(id).await?))),
        false => Err(StoreError::Conflict("the file has ended").into()),
    }
}

/// Pauses a job
#[utoipa::path(
    post, path = "/api/v1/jobs/{id}/pause", params(("id" = Uuid, Path, description = "Job")),
    responses((status = 200, description = "Its agents stop; partial files stay", body = JobView)),
)]
pub(super) async fn pause(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Id(id): Id,
) -> Answer<JsonAnswer<JobView>> {
    Ok(JsonAnswer(api.pause_job(&caller, id).await?))
}

/// Resumes a paused job
#[utoipa::path(
    post, path = "/api/v1/jobs/{id}/resume", params(("id" = Uuid, Path, description = "Job")),
    responses((status = 200, description = "It continues", body = JobView)),
)]
pub(super) async fn resume(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Id(id): Id,
) -> Answer<JsonAnswer<JobView>> {
    Ok(JsonAnswer(api.resume_job(&caller, id).await?))
}

/// Tries the failed files of a job again
#[utoipa::path(
    post, path = "/api/v1/jobs/{id}/retry", params(("id" = Uuid, Path, description = "Job")),
    responses((status = 200, description = "They are queued", body = JobView)),
)]
pub(super) async fn retry(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Id(id): Id,
) -> Answer<JsonAnswer<JobView>> {
    Ok(JsonAnswer(api.retry_job(&caller, id).await?))
}

impl Api {
    /// Which jobs a caller may list: one's own, those of `owner`, or, for operators, `all`.
    pub(crate) async fn job_filter(
        &self,
        caller: &Caller,
        owner: Option<String>,
        all: bool,
        states: Vec<JobState>,
    ) -> Answer<JobFilter> {
        let owner = match owner {
            Some(owner) => {
                self.check_sees(caller, &owner).await?;
                Some(owner)
            }
            None if all && caller.is_operator() => None,
            None => Some(caller.name().to_owned()),
        };
        Ok(JobFilter {
            owner,
            states,
            ids: Vec::new(),
        })
    }

    /// A page of a list of jobs, latest first.
    pub(crate) async fn job_page(
        &self,
        filter: &JobFilter,
        cursor: Option<&str>,
        limit: u32,
    ) -> Answer<Page<JobView>> {
        let list = format!("jobs {:?} {:?}", filter.owner, filter.states);
        let place = cursor::decode(&list, cursor)?;
        let page = self.store.jobs(filter, place.as_deref(), limit).await?;
        Ok(Page {
            items: page.items.into_iter().map(|job| self.view(job)).collect(),
            next: cursor::encode(&list, page.next),
        })
    }

    /// Stops a job until it is resumed.
    pub(crate) async fn pause_job(&self, caller: &Caller, id: Uuid) -> Answer<JobView> {
        self.visible_job(caller, id).await?;
        let reason = format!("by {}", caller.name());
        self.store.pause(id, &reason).await?;
        self.steered(caller, "job.pause", id, "").await
    }

    /// Resumes a paused job.
    pub(crate) async fn resume_job(&self, caller: &Caller, id: Uuid) -> Answer<JobView> {
        self.visible_job(caller, id).await?;
        self.store.resume(id).await?;
        self.steered(caller, "job.resume", id, "").await
    }

    /// Tries the failed files of a job again.
    pub(crate) async fn retry_job(&self, caller: &Caller, id: Uuid) -> Answer<JobView> {
        self.visible_job(caller, id).await?;
        let files = self.store.retry_failed(id).await?;
        let detail = format!("{files} files");
        self.steered(caller, "job.retry", id, &detail).await
    }

    /// Stops a job for good.
    pub(crate) async fn cancel_job(&self, caller: &Caller, id: Uuid) -> Answer<()> {
        self.visible_job(caller, id).await?;
        let reason = format!("by {}", caller.name());
        self.store.cancel(id, &reason).await?;
        self.told(caller, "job.cancel", id, "").await
    }

    /// Stops a file for good. False where it has ended before.
    pub(crate) async fn end_file(&self, caller: &Caller, id: Uuid, index: u64) -> Answer<bool> {
        self.visible_job(caller, id).await?;
        let reason = format!("by {}", caller.name());
        let is_canceled = self.store.cancel_file(id, index, &reason).await?;
        if is_canceled {
            self.told(caller, "file.cancel", id, &index.to_string())
                .await?;
        }
        Ok(is_canceled)
    }

    /// Moves a job among those of its share.
    pub(crate) async fn set_priority(&self, caller: &Caller, id: Uuid, priority: u8) -> Answer<()> {
        let mut job = self.visible_job(caller, id).await?;
        check_priority(priority)?;
        job.options.priority = priority;
        self.store.set_options(id, &job.options).await?;
        let detail = format!("priority {priority}");
        self.audit(caller.name(), "job.change", &id.to_string(), &detail)
            .await;
        Ok(())
    }

    /// A job, where the caller may see it: its owner, an admin of the owner's groups, an operator.
    pub(crate) async fn visible_job(&self, caller: &Caller, id: Uuid) -> Answer<JobRecord> {
        let job = self.store.job(id).await?;
        self.check_sees(caller, &job.owner).await?;
        Ok(job)
    }

    /// Jobs of these that the caller may see, at most a page of them.
    pub(crate) async fn visible_jobs(
        &self,
        caller: &Caller,
        ids: &[Uuid],
    ) -> Answer<HashMap<Uuid, JobRecord>> {
        let mut visible = HashMap::new();
        if ids.is_empty() {
            return Ok(visible);
        }
        let filter = JobFilter {
            ids: ids.to_vec(),
            ..JobFilter::default()
        };
        let mut sees: HashMap<String, bool> = HashMap::new();
        for job in self.store.jobs(&filter, None, MAX_PAGE).await?.items {
            let seen = match sees.get(&job.owner) {
                Some(seen) => *seen,
                None => match self.check_sees(caller, &job.owner).await {
                    Ok(()) => true,
                    Err(error) if error.problem().status == 404 => false,
                    Err(error) => return Err(error),
                },
            };
            sees.insert(job.owner.clone(), seen);
            if seen {
                visible.insert(job.id, job);
            }
        }
        Ok(visible)
    }

    async fn check_sees(&self, caller: &Caller, owner: &str) -> Answer<()> {
        if caller.is_operator() || caller.name() == owner {
            return Ok(());
        }
        if caller.0.role < Role::GroupAdmin {
            return Err(ApiError::not_found());
        }
        let owner = match self.store.principal(owner).await {
            Err(StoreError::NotFound) => return Err(ApiError::not_found()),
            found => found?,
        };
        match owner
            .groups
            .iter()
            .any(|group| caller.0.groups.contains(group))
        {
            true => Ok(()),
            false => Err(ApiError::not_found()),
        }
    }

    /// A job was changed: its agents learn of it.
    async fn told(&self, caller: &Caller, action: &str, id: Uuid, detail: &str) -> Answer<()> {
        self.board.job_steered(id, &self.store.agents_of(id).await?);
        self.audit(caller.name(), action, &id.to_string(), detail)
            .await;
        Ok(())
    }

    /// As [`Api::told`], and the job as it is now.
    async fn steered(
        &self,
        caller: &Caller,
        action: &str,
        id: Uuid,
        detail: &str,
    ) -> Answer<JobView> {
        self.told(caller, action, id, detail).await?;
        Ok(self.view(self.store.job(id).await?))
    }

    /// Writes down what was done. It is done, so a failure is no failure of the request.
    pub(crate) async fn audit(&self, who: &str, action: &str, subject: &str, detail: &str) {
        if let Err(error) = self.store.audit(who, action, subject, detail).await {
            tracing::error!(%error, who, action, subject, detail, "the audit was not written");
        }
    }

    /// Why a job waits or is slow, as the leader says.
    pub(super) fn reasons(&self, job: &JobRecord) -> Vec<Why> {
        let of_leader = self.board.job(job.id).why;
        if !of_leader.is_empty() && matches!(job.state, JobState::Queued | JobState::Active) {
            return of_leader;
        }
        let why = |code, text: String| vec![Why { code, text }];
        match job.state {
            JobState::Paused => {
                let reason = job.reason.as_deref().unwrap_or("until it is resumed");
                why(WhyCode::Paused, format!("paused {reason}"))
            }
            JobState::Queued | JobState::Active if job.waits_for_job => why(
                WhyCode::AfterJob,
                "it waits for the jobs in options.after".to_owned(),
            ),
            JobState::Queued => why(
                WhyCode::Scheduling,
                "its turn comes with the next step".to_owned(),
            ),
            _ => Vec::new(),
        }
    }

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "casts of floats saturate"
    )]
    pub(crate) fn view(&self, job: JobRecord) -> JobView {
        let pace = match job.state.is_final() {
            true => JobNow::default(),
            false => self.board.job(job.id),
        };
        let bytes_done = job.bytes_done.saturating_add(pace.bytes);
        let left = job.bytes_total.saturating_sub(bytes_done) as f64;
        let moves = pace.goodput > 0.0 && job.listed;
        JobView {
            why: self.reasons(&job),
            id: job.id,
            owner: job.owner,
            schedule: job.schedule,
            state: job.state,
            options: job.options,
            files: job.files,
            bytes_total: job.bytes_total,
            bytes_done,
            listed: job.listed,
            goodput: pace.goodput,
            eta_seconds: moves.then(|| (left / pace.goodput).ceil() as u64),
            errors: job.errors,
            created: job.created,
            started: job.started,
            ended: job.ended,
        }
    }
}

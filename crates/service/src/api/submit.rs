//! A job comes in: as one JSON object, or as a stream of lines.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{
    body::Bytes,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use godwit_service_api::{
    API, IDEMPOTENCY_KEY,
    job::{
        FileCounts, FileRequest, JobOptions, JobRequest, JobState, JobView, MAX_INLINE_FILES,
        MAX_ORDERED_FILES, Notification,
    },
};
use jiff::Timestamp;
use opentelemetry::trace::SpanKind;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use utoipa::IntoParams;
use uuid::Uuid;

use super::{
    Api, FTS_METADATA,
    extract::{Asked, BODY_BYTES_MAX, BodyParts, Caller, Id, media_type, whole},
    openapi::Routes,
    policy::check_metadata,
};
use crate::problem::{Answer, ApiError, Kind};
use crate::store::{Begun, Quota, RequestDigest, Submission, model::JobRecord};
use crate::traces::{Parent, Span};

/// Longest line of a stream.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Longest key of a submission that may be repeated.
const KEY_BYTES_MAX: usize = 255;

/// A submission as lines takes at most this.
const STREAM_TIME_MAX: Duration = Duration::from_secs(6 * 3600);

pub(super) fn routes(routes: &mut Routes) {
    routes
        .add::<__path_submit, _, _>(submit)
        .add::<__path_clone_job, _, _>(clone_job);
}

/// Submits a job
///
/// As `application/json` with at most 10,000 files, or as `application/x-ndjson`: the job without
/// files on the first line, a file on each further line. With the header `Idempotency-Key` the
/// same submission can be repeated until it is answered: there is one job. The answer to a dry run
/// has no id that means a job. Where the service keeps traces, the job goes on with the one that
/// the header `traceparent` is of.
#[utoipa::path(
    post, path = "/api/v1/jobs", request_body = JobRequest,
    params(("idempotency-key" = Option<String>, Header, description = "One key, one job")),
    responses(
        (status = 201, description = "The job was accepted", body = JobView),
        (status = 200, description = "A dry run, or a job accepted before", body = JobView),
    ),
)]
pub(super) async fn submit(
    State(api): State<Arc<Api>>,
    caller: Caller,
    request: Request,
) -> Answer<Response> {
    let key = key_of(request.headers())?;
    let _permit = api.limits.take_stream(caller.name())?;
    let parent = api.traces.parent_of(request.headers());
    let mut job = Incoming::new(&api, &caller, key).within(parent);
    let media = media_type(request.headers());
    let result = match media.as_str() {
        "application/json" => job.take_object(request).await,
        "application/x-ndjson" => in_time(job.take_lines(request)).await,
        _ => {
            let detail = "send application/json or application/x-ndjson";
            Err(ApiError::new(Kind::MediaType, detail))
        }
    };
    job.answer(result).await
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct CloneQuery {
    /// It starts paused
    #[serde(default)]
    paused: bool,
}

/// Submits a job again
///
/// A new job of the caller with the files and options of another one, whatever became of it.
/// Directories are listed again. `deadline` and `after` were for the first one and are not taken
/// over; neither are `share` and `notify` of another user. `Idempotency-Key` is that of a
/// submission.
#[utoipa::path(
    post, path = "/api/v1/jobs/{id}/clone",
    params(
        ("id" = Uuid, Path, description = "Job"),
        ("idempotency-key" = Option<String>, Header, description = "One key, one job"),
        CloneQuery,
    ),
    responses(
        (status = 201, description = "The new job was accepted", body = JobView),
        (status = 200, description = "A job accepted before", body = JobView),
    ),
)]
pub(super) async fn clone_job(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Id(id): Id,
    Asked(asked): Asked<CloneQuery>,
    headers: HeaderMap,
) -> Answer<Response> {
    let key = key_of(&headers)?;
    let parent = api.traces.parent_of(&headers);
    let cloned = api.clone_of(&caller, id, asked.paused, (key, parent));
    Ok(accepted(cloned.await?))
}

/// A job that was accepted, or a dry run.
fn accepted((status, view): (StatusCode, JobView)) -> Response {
    let location = [(header::LOCATION, format!("{API}/jobs/{}", view.id))];
    match status {
        StatusCode::CREATED => (status, location, axum::Json(view)).into_response(),
        _ => (status, axum::Json(view)).into_response(),
    }
}

async fn in_time(taking: impl Future<Output = Answer<()>>) -> Answer<()> {
    let taken = tokio::time::timeout(STREAM_TIME_MAX, taking).await;
    taken.unwrap_or_else(|_| Err(ApiError::new(Kind::Timeout, "the list takes too long")))
}

/// Refuses metadata that only the interface of FTS3 sets: it names the submitter.
pub(super) fn check_reserved(options: &JobOptions) -> Answer<()> {
    match options
        .metadata
        .as_ref()
        .and_then(|metadata| metadata.get(FTS_METADATA))
    {
        None => Ok(()),
        Some(_) => {
            let why = "it is kept for jobs of the interface of FTS3";
            Err(ApiError::new(Kind::Invalid, why).at(format!("/metadata/{FTS_METADATA}")))
        }
    }
}

fn key_of(headers: &HeaderMap) -> Answer<Option<String>> {
    let Some(key) = headers.get(IDEMPOTENCY_KEY) else {
        return Ok(None);
    };
    let text = key
        .to_str()
        .ok()
        .filter(|key| !key.is_empty() && key.len() <= KEY_BYTES_MAX);
    let wrong = || ApiError::new(Kind::Header, "idempotency-key: 1 to 255 ASCII characters");
    text.map(|key| Some(key.to_owned())).ok_or_else(wrong)
}

/// A submission while it comes in.
pub(crate) struct Incoming<'a> {
    api: &'a Api,
    caller: &'a Caller,
    key: Option<String>,
    /// Where the client has named the job.
    id: Option<Uuid>,
    /// Where a schedule submits it.
    schedule: Option<&'a str>,
    files: u64,
    bytes: u64,
    is_ordered: bool,
    into: Into,
    /// What the request is a part of.
    parent: Option<Parent>,
    since: SystemTime,
    /// Of the submission of a new job.
    span: Span,
}

/// Where files go.
enum Into {
    /// Nothing came yet.
    Nothing,
    /// They are checked only.
    DryRun(Box<JobOptions>),
    /// The job was accepted before; what comes must be the same.
    Repeated(Box<Repeated>),
    /// To the database.
    Job(Box<Submission>),
}

struct Repeated {
    job: Uuid,
    /// Of what was submitted.
    digest: Option<Vec<u8>>,
    /// Of what comes now.
    now: RequestDigest,
}

impl<'a> Incoming<'a> {
    fn new(api: &'a Api, caller: &'a Caller, key: Option<String>) -> Self {
        Self {
            api,
            caller,
            key,
            id: None,
            schedule: None,
            files: 0,
            bytes: 0,
            is_ordered: false,
            into: Into::Nothing,
            parent: None,
            since: SystemTime::now(),
            span: Span::default(),
        }
    }

    /// A part of a trace, where `parent` is one.
    pub(crate) fn within(self, parent: Option<Parent>) -> Self {
        Self { parent, ..self }
    }

    /// A job of this id, where there is one: a second of it is none.
    pub(crate) fn named(api: &'a Api, caller: &'a Caller, id: Option<Uuid>) -> Self {
        Self {
            id,
            ..Self::new(api, caller, None)
        }
    }

    /// The job of a schedule of this name.
    pub(crate) fn scheduled(
        api: &'a Api,
        caller: &'a Caller,
        key: String,
        schedule: &'a str,
    ) -> Self {
        Self {
            schedule: Some(schedule),
            ..Self::new(api, caller, Some(key))
        }
    }

    async fn take_object(&mut self, request: Request) -> Answer<()> {
        let body = whole(request.into_body(), BODY_BYTES_MAX).await?;
        self.take_request(parse(&body)?).await
    }

    async fn take_request(&mut self, job: JobRequest) -> Answer<()> {
        if job.files.len() > MAX_INLINE_FILES {
            let detail = format!("at most {MAX_INLINE_FILES} files; send long lists as lines");
            return Err(ApiError::new(Kind::TooLarge, detail).at("/files"));
        }
        check_reserved(&job.options).map_err(|error| error.below("/options"))?;
        // All are checked before the first is stored.
        for (place, file) in job.files.iter().enumerate() {
            let checked = self.api.policy.check_file(file);
            checked.map_err(|error| error.below(&format!("/files/{place}")))?;
        }
        self.begin(&job.options).await?;
        for file in job.files {
            self.push(file).await?;
        }
        Ok(())
    }

    async fn take_lines(&mut self, request: Request) -> Answer<()> {
        let mut parts = BodyParts::new(request.into_body());
        let mut rest = Vec::new();
        let mut number = 0;
        while let Some(part) = parts.next().await? {
            self.take_part(&part, &mut rest, &mut number).await?;
        }
        if !rest.is_empty() {
            number += 1;
            self.take_line(&rest, number).await?;
        }
        Ok(())
    }

    /// Takes the files of another job, a segment at a time.
    async fn take_job(&mut self, of: JobRecord, paused: bool) -> Answer<()> {
        let segments = self.api.store.submitted_segments(&of).await?;
        let is_own = of.owner == self.caller.name();
        let mut options = of.options.clone();
        if !is_own && let Some(Value::Object(metadata)) = &mut options.metadata {
            // It says who submitted the job of the other user.
            metadata.remove(FTS_METADATA);
        }
        let options = JobOptions {
            share: options.share.filter(|_| is_own),
            notify: if is_own { options.notify } else { Vec::new() },
            deadline: None,
            after: Vec::new(),
            paused,
            ..options
        };
        self.begin(&options).await?;
        for segment in 0..segments {
            for file in self.api.store.submitted_files(&of, segment).await? {
                // The operator may have changed it.
                self.api.policy.check_file(&file)?;
                self.push(file).await?;
            }
        }
        Ok(())
    }

    async fn take_part(
        &mut self,
        part: &Bytes,
        rest: &mut Vec<u8>,
        number: &mut u64,
    ) -> Answer<()> {
        for piece in part.split_inclusive(|byte| *byte == b'\n') {
            if rest.len() + piece.len() > LINE_BYTES_MAX {
                let detail = format!("line {}: at most {LINE_BYTES_MAX} bytes", *number + 1);
                return Err(ApiError::new(Kind::TooLarge, detail));
            }
            rest.extend_from_slice(piece);
            if rest.ends_with(b"\n") {
                *number += 1;
                self.take_line(rest, *number).await?;
                rest.clear();
            }
        }
        Ok(())
    }

    async fn take_line(&mut self, line: &[u8], number: u64) -> Answer<()> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let taken = match self.into {
            Into::Nothing => match parse::<JobRequest>(line) {
                Ok(job) if job.files.is_empty() => match check_reserved(&job.options) {
                    Ok(()) => self.begin(&job.options).await,
                    Err(error) => Err(error.below("/options")),
                },
                Ok(_) => Err(ApiError::new(
                    Kind::Invalid,
                    "each file is a line of its own",
                )),
                Err(error) => Err(error),
            },
            _ => match parse::<FileRequest>(line) {
                Ok(file) => match self.api.policy.check_file(&file) {
                    Ok(()) => self.push(file).await,
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            },
        };
        taken.map_err(|error| error.below(&format!("/{}", number - 1)))
    }

    pub(crate) async fn begin(&mut self, options: &JobOptions) -> Answer<()> {
        let (api, owner) = (self.api, self.caller.name());
        api.check_options(self.caller, options).await?;
        self.is_ordered = !options.order.is_any();
        if options.dry_run {
            self.into = Into::DryRun(Box::new(options.clone()));
            return Ok(());
        }
        let quota = api.quota(self.caller);
        let begun = match self.id {
            Some(id) => api.store.submit_named(owner, id, options, quota).await?,
            None => {
                let key = self.key.as_deref();
                let submitted =
                    api.store
                        .submit_scheduled(owner, key, self.schedule, options, quota);
                submitted.await?
            }
        };
        self.into = match begun {
            Begun::New(mut submission) => {
                let within = (self.parent.as_ref(), self.since);
                self.span = api.traces.begin("submit", SpanKind::Server, within);
                self.span.set("godwit.job.id", submission.id().to_string());
                submission.set_trace(self.span.traceparent());
                Into::Job(submission)
            }
            Begun::Existing { id, digest } => Into::Repeated(Box::new(Repeated {
                job: id,
                digest,
                now: RequestDigest::new(options)?,
            })),
        };
        Ok(())
    }

    pub(crate) async fn push(&mut self, file: FileRequest) -> Answer<()> {
        self.files += 1;
        if self.is_ordered && (self.files > MAX_ORDERED_FILES || file.recursive) {
            let detail = "an order is for at most 100 files, and for no trees";
            return Err(ApiError::new(Kind::Invalid, detail).at("/options/order"));
        }
        self.bytes = self.bytes.saturating_add(file.bytes.unwrap_or(0));
        match &mut self.into {
            Into::Job(submission) => submission.push(file).await?,
            Into::Repeated(repeated) => repeated.now.add(&file)?,
            Into::Nothing | Into::DryRun(_) => {}
        }
        Ok(())
    }

    pub(crate) fn check_complete(&self) -> Answer<()> {
        match self.into {
            Into::Nothing => Err(ApiError::new(Kind::Body, "the body is empty")),
            Into::DryRun(_) | Into::Job(_) if self.files == 0 => {
                let error = ApiError::new(Kind::Invalid, "a job needs at least one file");
                Err(error.at("/files"))
            }
            _ => Ok(()),
        }
    }

    async fn answer(self, taken: Answer<()>) -> Answer<Response> {
        self.end(taken).await.map(accepted)
    }

    /// Ends it: what was taken is complete, or the reason why it is not.
    async fn end(self, taken: Answer<()>) -> Answer<(StatusCode, JobView)> {
        if let Err(error) = taken.and_then(|()| self.check_complete()) {
            self.abort().await;
            return Err(error);
        }
        self.finish().await
    }

    /// What is complete.
    pub(crate) async fn finish(mut self) -> Answer<(StatusCode, JobView)> {
        let api = self.api;
        match self.into {
            Into::Nothing => Err(ApiError::new(Kind::Body, "the body is empty")),
            Into::Repeated(repeated) => {
                let Repeated { job, digest, now } = *repeated;
                if digest.is_some_and(|digest| digest != now.finish()) {
                    let detail = format!("job {job} has other files or options");
                    return Err(ApiError::new(Kind::KeyReused, detail));
                }
                Ok((StatusCode::OK, api.view(api.store.job(job).await?)))
            }
            Into::DryRun(options) => {
                let owner = self.caller.name().to_owned();
                let files = FileCounts {
                    total: self.files,
                    ..FileCounts::default()
                };
                let now = api.store.now().await?;
                let job = unsaved(owner, *options, files, self.bytes, now);
                Ok((StatusCode::OK, api.view(job)))
            }
            Into::Job(submission) => {
                self.span.count("godwit.files", self.files);
                let id = match submission.finish().await {
                    Ok(id) => id,
                    Err(error) => {
                        self.span.outcome("refused", Some("refused"));
                        return Err(error.into());
                    }
                };
                self.span.outcome("accepted", None);
                api.board.metrics().accepted(self.files);
                api.board.work_came();
                let detail = format!("{} files", self.files);
                api.audit(self.caller.name(), "job.submit", &id.to_string(), &detail)
                    .await;
                Ok((StatusCode::CREATED, api.view(api.store.job(id).await?)))
            }
        }
    }

    pub(crate) async fn abort(mut self) {
        self.span.outcome("refused", Some("refused"));
        if let Into::Job(submission) = self.into
            && let Err(error) = submission.abort().await
        {
            tracing::warn!(%error, "a submission that broke off is removed later");
        }
    }
}

/// A job as it would be.
fn unsaved(
    owner: String,
    options: JobOptions,
    files: FileCounts,
    bytes_total: u64,
    created: Timestamp,
) -> JobRecord {
    JobRecord {
        number: 0,
        id: Uuid::nil(),
        owner,
        schedule: None,
        state: JobState::Queued,
        reason: None,
        options,
        files,
        unused_from: u64::MAX,
        bytes_total,
        bytes_done: 0,
        listed: false,
        waits_for_job: false,
        errors: BTreeMap::new(),
        created,
        started: None,
        ended: None,
    }
}

fn parse<T: DeserializeOwned>(text: &[u8]) -> Answer<T> {
    serde_json::from_slice(text).map_err(|error| ApiError::new(Kind::Body, error.to_string()))
}

/// Most entries of lists of options.
const LIST_MAX: usize = 32;

/// Most addresses that a job sends messages to.
const MAILS_MAX: usize = 5;

/// Most bytes of names and labels.
const NAME_BYTES_MAX: usize = 200;

/// Labels of agents that a user may ask for.
pub(super) fn are_labels(labels: &[String]) -> bool {
    labels.len() <= LIST_MAX && labels.iter().all(|label| is_plain(label))
}

impl Api {
    /// Submits a job. With a key that was used for the same before, that job is the answer.
    pub(crate) async fn submit_job(
        &self,
        caller: &Caller,
        key: Option<String>,
        request: JobRequest,
    ) -> Answer<(StatusCode, JobView)> {
        let _permit = self.limits.take_stream(caller.name())?;
        let mut job = Incoming::new(self, caller, key);
        let taken = job.take_request(request).await;
        job.end(taken).await
    }

    /// Submits a job again.
    pub(crate) async fn clone_of(
        &self,
        caller: &Caller,
        id: Uuid,
        paused: bool,
        (key, parent): (Option<String>, Option<Parent>),
    ) -> Answer<(StatusCode, JobView)> {
        let of = self.visible_job(caller, id).await?;
        let _permit = self.limits.take_stream(caller.name())?;
        let mut job = Incoming::new(self, caller, key).within(parent);
        let taken = in_time(job.take_job(of, paused)).await;
        job.end(taken).await
    }

    async fn check_options(&self, caller: &Caller, options: &JobOptions) -> Answer<()> {
        let wrong = |field: &str, why: &str| {
            let error = ApiError::new(Kind::Invalid, why);
            Err(error.at(format!("/options/{field}")))
        };
        check_priority(options.priority).map_err(|error| error.below("/options"))?;
        check_name(options.name.as_deref()).map_err(|error| error.below("/options"))?;
        if !(1..=100).contains(&options.attempts) {
            return wrong("attempts", "1 to 100");
        }
        if !are_labels(&options.labels) {
            return wrong("labels", "at most 32 labels of at most 200 characters");
        }
        self.check_notify(caller, &options.notify).await?;
        if let Some(share) = &options.share
            && !may_use(caller, share)
        {
            return wrong("share", "it is not a share of this user");
        }
        if options.deadline.is_some() && options.deadline <= Some(self.store.now().await?) {
            return wrong("deadline", "it has passed");
        }
        if options.after.len() > LIST_MAX {
            return wrong("after", "at most 32 jobs");
        }
        for (place, id) in options.after.iter().enumerate() {
            let job = self.visible_job(caller, *id).await;
            job.map_err(|error| error.at(format!("/options/after/{place}")))?;
        }
        check_metadata(options.metadata.as_ref()).map_err(|error| error.below("/options"))
    }

    async fn check_notify(&self, caller: &Caller, all: &[Notification]) -> Answer<()> {
        let wrong = |why| Err(ApiError::new(Kind::Invalid, why).at("/options/notify"));
        let mails = all
            .iter()
            .filter(|n| matches!(n, Notification::Mail { .. }));
        let mails = mails.count();
        if all.len() > LIST_MAX || mails > MAILS_MAX {
            return wrong("at most 32, and 5 mail addresses among them");
        }
        for (place, notification) in all.iter().enumerate() {
            let checked = match notification {
                Notification::Webhook { url } => {
                    let checked = self.policy.check_webhook(url);
                    checked.map_err(|error| error.at("/webhook/url"))
                }
                Notification::Mail { address } => {
                    let checked = self.policy.check_mail(address);
                    checked.map_err(|error| error.at("/mail/address"))
                }
            };
            checked.map_err(|error| error.below(&format!("/options/notify/{place}")))?;
        }
        if all.len() > mails && self.store.webhook_key(caller.name()).await?.is_none() {
            return wrong("make a key for its signatures first: POST /api/v1/webhook-key");
        }
        Ok(())
    }

    /// Jobs and files that a user may have which are not final.
    pub(crate) fn quota(&self, caller: &Caller) -> Quota {
        Quota {
            jobs: caller.0.max_jobs.or(self.max_jobs).unwrap_or(u64::MAX),
            files: caller.0.max_files.or(self.max_files).unwrap_or(u64::MAX),
        }
    }
}

pub(super) fn check_priority(priority: u8) -> Answer<()> {
    match (1..=5).contains(&priority) {
        true => Ok(()),
        false => Err(ApiError::new(Kind::Invalid, "1 (last) to 5 (first)").at("/priority")),
    }
}

pub(super) fn check_name(name: Option<&str>) -> Answer<()> {
    match name.is_none_or(is_plain) {
        true => Ok(()),
        false => {
            let detail = "1 to 200 characters, none of which controls a terminal";
            Err(ApiError::new(Kind::Invalid, detail).at("/name"))
        }
    }
}

/// Short text of one line.
pub(super) fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.len() <= NAME_BYTES_MAX && !text.chars().any(char::is_control)
}

/// A share is the user's own, or one of a group of the user's.
fn may_use(caller: &Caller, share: &str) -> bool {
    let mut nodes = share.split('/');
    let is_own = share.rsplit('/').next() == Some(caller.name());
    let in_group = nodes.any(|node| caller.0.groups.iter().any(|group| group == node));
    let fits = is_plain(share) && share.split('/').all(|node| !node.is_empty());
    fits && (caller.is_operator() || is_own && !share.contains('/') || in_group)
}

//! Jobs of FTS3: submitted, shown, canceled.

use std::{collections::HashSet, sync::Arc};

use axum::{
    Json,
    body::{Body, Bytes},
    extract::{Path, Query, Request, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use godwit_service_api::job::JobState;
use jiff::SignedDuration;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use uuid::Uuid;

use super::{
    identity::{Identity, Method},
    refusal::{FtsResult, Refusal},
    states,
    submission::{self, Submitter},
    views,
};
use crate::{
    api::{Api, BODY_BYTES_MAX, Incoming, whole},
    config::host_name,
    store::{
        StoreError,
        model::{JobFilter, JobRecord},
    },
};

/// Most ids of one request.
const IDS_MAX: usize = 1000;

/// Code of the problem that another job has the id.
const KEY_REUSED: &str = "idempotency_key_reused";

/// Most jobs of a list.
const LIST_MAX: u32 = 500;

/// Parts of an answer that wait for their reader.
const PARTS_MAX: usize = 4;

/// Segments of a job that are read at once.
const SEGMENTS: u32 = 16;

/// Shortest rest of a delegated credential for which a job is accepted.
const CREDENTIAL_REST: SignedDuration = SignedDuration::from_hours(1);

/// `POST /jobs`
pub(super) async fn submit(
    State(api): State<Arc<Api>>,
    identity: Identity,
    request: Request,
) -> FtsResult<Json<Value>> {
    if identity.method == Method::Certificate {
        check_delegated(&api, &identity).await?;
    }
    let parent = api.traces().parent_of(request.headers());
    let body = whole(request.into_body(), BODY_BYTES_MAX).await?;
    let by = Submitter {
        dn: identity.dn.clone(),
        organisation: identity.organisation(),
        delegation_id: identity.delegation_id(),
        method: identity.method.as_str().to_owned(),
    };
    let organisation = by.organisation.clone();
    let submitted = submission::parse(&body, by, api.store().now().await?)?;
    let id = submitted
        .sid
        .map(|sid| super::identity::deterministic_id(&organisation, &sid));
    for (place, file) in submitted.files.iter().enumerate() {
        let checked = api.policy().check_copy(file);
        checked.map_err(|error| error.below(&format!("/files/{place}")))?;
    }
    let ends = submitted.files.iter();
    let urls = ends.flat_map(|file| [&file.source, &file.destination]);
    super::operators::check_bans(&api, urls).await?;
    for (endpoint, token) in submitted.tokens {
        let stored =
            api.vault()
                .put_token(identity.caller.name(), &endpoint, token.text, token.expires);
        stored.await.map_err(crate::problem::ApiError::from)?;
    }
    let mut incoming = Incoming::named(&api, &identity.caller, id).within(parent);
    let taken = async {
        incoming.begin(&submitted.options).await?;
        for file in submitted.files {
            incoming.push(file).await?;
        }
        incoming.check_complete()
    };
    if let Err(error) = taken.await {
        incoming.abort().await;
        return Err(error.into());
    }
    let duplicated = || {
        let text = "The sid provided by the user is duplicated";
        Refusal::new(StatusCode::CONFLICT, text)
    };
    match incoming.finish().await {
        Ok((StatusCode::CREATED, job)) => Ok(Json(json!({"job_id": job.id}))),
        Ok(_) => Err(duplicated()),
        Err(error) if error.problem().code == KEY_REUSED => Err(duplicated()),
        Err(error) => Err(error.into()),
    }
}

async fn check_delegated(api: &Api, identity: &Identity) -> FtsResult<()> {
    let now = api.store().now().await?;
    let owned = api.store().credentials(identity.caller.name()).await?;
    let lasts = owned.iter().any(|credential| {
        let rest = credential
            .expires
            .map(|expires| expires.duration_since(now));
        credential.kind == "proxy" && rest.is_none_or(|rest| rest >= CREDENTIAL_REST)
    });
    match lasts {
        true => Ok(()),
        false => Err(Refusal::needs_delegation(&identity.dn)),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ListQuery {
    user_dn: Option<String>,
    vo_name: Option<String>,
    dlg_id: Option<String>,
    state_in: Option<String>,
    source_se: Option<String>,
    dest_se: Option<String>,
    limit: Option<String>,
    time_window: Option<String>,
    fields: Option<String>,
}

/// `GET /jobs`: those that have not ended; with states and a limit or a time, those too that have.
pub(super) async fn list(
    State(api): State<Arc<Api>>,
    identity: Identity,
    Query(asked): Query<ListQuery>,
) -> FtsResult<Json<Value>> {
    if asked.user_dn.as_ref().is_some_and(|dn| *dn != identity.dn) {
        return Err(Refusal::bad_request(
            "Only jobs of the user can be asked for",
        ));
    }
    if asked
        .dlg_id
        .as_ref()
        .is_some_and(|id| *id != identity.delegation_id())
    {
        return Err(Refusal::forbidden(
            "The provided delegation id does not match your delegation id",
        ));
    }
    let limit = match asked.limit.as_deref().map(str::parse::<u32>) {
        None => LIST_MAX,
        Some(Ok(limit)) if limit <= LIST_MAX => limit,
        Some(_) => {
            let text = format!("The limit must be positive and less or equal than {LIST_MAX}");
            return Err(Refusal::bad_request(text));
        }
    };
    let window = asked.time_window.as_deref().map(window).transpose()?;
    let wanted = asked.state_in.as_deref().unwrap_or_default();
    let wanted: Vec<&str> = wanted.split(',').filter(|word| !word.is_empty()).collect();
    let states: Vec<JobState> = wanted
        .iter()
        .flat_map(|word| states::of_job_state(word))
        .copied()
        .collect();
    let with_ended = !wanted.is_empty() && (asked.limit.is_some() || window.is_some());
    if !wanted.is_empty() && states.is_empty() || limit == 0 {
        return Ok(Json(json!([])));
    }
    let filter = JobFilter {
        owner: Some(identity.caller.name().to_owned()),
        states: match (states.is_empty(), with_ended) {
            (true, _) => vec![JobState::Queued, JobState::Active, JobState::Paused],
            (false, true) => states,
            (false, false) => states
                .into_iter()
                .filter(|state| !state.is_final())
                .collect(),
        },
        ids: Vec::new(),
    };
    if filter.states.is_empty() {
        return Ok(Json(json!([])));
    }
    let now = api.store().now().await?;
    let fields = fields(asked.fields.as_deref());
    let host = host_name();
    let page = api.store().jobs(&filter, None, limit).await?;
    let is_like = |shown: &Map<String, Value>, name: &str, wanted: &Option<String>| {
        wanted
            .as_ref()
            .is_none_or(|wanted| shown.get(name).and_then(Value::as_str) == Some(wanted))
    };
    let jobs = page.items.iter().filter(|job| {
        let age = job.ended.map(|ended| now.duration_since(ended));
        window.is_none() || age.is_none() || age <= window
    });
    let jobs = jobs.map(|job| views::job(job, &host)).filter(|shown| {
        is_like(shown, "vo_name", &asked.vo_name)
            && is_like(shown, "source_se", &asked.source_se)
            && is_like(shown, "dest_se", &asked.dest_se)
    });
    let jobs = jobs.map(|shown| Value::Object(only(shown, fields.as_ref())));
    Ok(Json(jobs.collect()))
}

/// Hours, or hours and minutes.
fn window(text: &str) -> FtsResult<SignedDuration> {
    let (hours, minutes) = text.split_once(':').unwrap_or((text, "0"));
    let number = |text: &str| text.parse::<u32>().map(i64::from);
    match (number(hours), number(minutes)) {
        (Ok(hours), Ok(minutes)) => Ok(SignedDuration::from_mins(hours * 60 + minutes)),
        _ => Err(Refusal::bad_request("Invalid time window")),
    }
}

fn fields(names: Option<&str>) -> Option<HashSet<String>> {
    let names = names.filter(|names| !names.is_empty())?;
    Some(names.split(',').map(str::to_owned).collect())
}

fn only(mut shown: Map<String, Value>, fields: Option<&HashSet<String>>) -> Map<String, Value> {
    if let Some(fields) = fields {
        shown.retain(|name, _| fields.contains(name));
    }
    shown
}

/// What a path asks for: one job, or several with commas between.
struct Ids {
    ids: Vec<String>,
    /// A comma asks for a list, even of one.
    is_list: bool,
}

fn ids(text: &str) -> FtsResult<Ids> {
    let mut seen = HashSet::new();
    let ids: Vec<String> = text
        .split(',')
        // Each once: a short path must not ask for one long job a thousand times.
        .filter(|id| !id.is_empty() && seen.insert(*id))
        .map(str::to_owned)
        .collect();
    match (1..=IDS_MAX).contains(&ids.len()) {
        true => Ok(Ids {
            ids,
            is_list: text.contains(','),
        }),
        false => Err(Refusal::bad_request(format!("1 to {IDS_MAX} jobs"))),
    }
}

/// Jobs that the caller may see; else what is shown in their places.
async fn find_all(
    api: &Api,
    identity: &Identity,
    ids: &[String],
) -> FtsResult<Vec<Result<JobRecord, Value>>> {
    let parsed: Vec<Uuid> = ids.iter().filter_map(|id| id.parse().ok()).collect();
    let jobs = api.visible_jobs(&identity.caller, &parsed).await?;
    let found = |id: &String| {
        let job = id.parse().ok().and_then(|id: Uuid| jobs.get(&id));
        job.cloned().ok_or_else(|| {
            json!({
                "job_id": id,
                "http_status": "404 Not Found",
                "http_message": format!("No job with the id \"{id}\" has been found"),
            })
        })
    };
    Ok(ids.iter().map(found).collect())
}

/// A job that the caller may see; else what is shown in its place.
async fn find(api: &Api, identity: &Identity, id: &str) -> FtsResult<Result<JobRecord, Value>> {
    let mut found = find_all(api, identity, &[id.to_owned()]).await?;
    Ok(found.swap_remove(0))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ShowQuery {
    files: Option<String>,
}

/// `GET /jobs/{ids}`
pub(super) async fn show(
    State(api): State<Arc<Api>>,
    identity: Identity,
    Path(text): Path<String>,
    Query(asked): Query<ShowQuery>,
) -> FtsResult<Response> {
    let ids = ids(&text)?;
    let found = find_all(&api, &identity, &ids.ids).await?;
    let status = match (ids.is_list, found.iter().all(Result::is_ok)) {
        (_, true) => StatusCode::OK,
        (true, false) => StatusCode::MULTI_STATUS,
        (false, false) => StatusCode::NOT_FOUND,
    };
    let fields = fields(asked.files.as_deref());
    if fields.is_none() {
        let host = host_name();
        let shown: Vec<Value> = found
            .into_iter()
            .map(|found| match found {
                Ok(job) => with_status(views::job(&job, &host), "200 Ok"),
                Err(missing) => missing,
            })
            .collect();
        return Ok((status, Json(one_or_all(shown, ids.is_list))).into_response());
    }
    let is_list = ids.is_list;
    streamed(api, &identity, status, move |api, parts| async move {
        let host = host_name();
        let mut writer = Writer::new(parts);
        writer.text(if is_list { "[" } else { "" });
        for (place, found) in found.into_iter().enumerate() {
            writer.text(if place > 0 { "," } else { "" });
            match found {
                Err(missing) => writer.text(&missing.to_string()),
                Ok(job) => {
                    let shown = with_status(views::job(&job, &host), "200 Ok").to_string();
                    // The files are the last member of the object.
                    writer.text(shown.strip_suffix('}').unwrap_or(&shown));
                    writer.text(",\"files\":");
                    writer.files(&api, &job, fields.as_ref()).await?;
                    writer.text("}");
                }
            }
        }
        writer.text(if is_list { "]" } else { "" });
        writer.flush().await;
        Ok(())
    })
}

fn one_or_all(mut shown: Vec<Value>, is_list: bool) -> Value {
    match is_list {
        true => Value::Array(shown),
        false => shown.pop().unwrap_or_default(),
    }
}

fn with_status(mut shown: Map<String, Value>, status: &str) -> Value {
    shown.insert("http_status".to_owned(), status.into());
    Value::Object(shown)
}

/// An answer whose length is not known before it is written.
fn streamed<F, R>(
    api: Arc<Api>,
    identity: &Identity,
    status: StatusCode,
    write: F,
) -> FtsResult<Response>
where
    F: FnOnce(Arc<Api>, mpsc::Sender<Result<Bytes, StoreError>>) -> R,
    R: Future<Output = Result<(), StoreError>> + Send + 'static,
{
    let permit = api.limits().take_stream(identity.caller.name())?;
    let (parts, stream) = mpsc::channel(PARTS_MAX);
    let writing = write(api, parts.clone());
    tokio::spawn(async move {
        let _permit = permit;
        tokio::select! {
            written = writing => if let Err(error) = written {
                // Ends the connection, so that the reader does not take a part for the whole.
                let _ = parts.send(Err(error)).await;
            },
            () = parts.closed() => {}
        }
    });
    let body = Body::from_stream(ReceiverStream::new(stream));
    Ok((status, [(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// JSON that is sent as it grows.
struct Writer {
    parts: mpsc::Sender<Result<Bytes, StoreError>>,
    text: Vec<u8>,
}

impl Writer {
    fn new(parts: mpsc::Sender<Result<Bytes, StoreError>>) -> Self {
        Self {
            parts,
            text: Vec::new(),
        }
    }

    fn text(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
    }

    /// All files of a job as an array.
    async fn files(
        &mut self,
        api: &Api,
        job: &JobRecord,
        fields: Option<&HashSet<String>>,
    ) -> Result<(), StoreError> {
        let files = views::Files::new(job, fields);
        let (mut from, mut is_first) = (0, true);
        self.text("[");
        loop {
            let segments = api.store().segments(job, from, SEGMENTS).await?;
            for segment in &segments {
                let key = files.key(segment);
                let submitted = match api.rendered().get(&key) {
                    Some(submitted) => submitted,
                    None => {
                        let requests = api.store().submitted_files(job, segment.number());
                        let submitted = Arc::new(files.fixed(segment, &requests.await?));
                        api.rendered().keep(key, Arc::clone(&submitted));
                        submitted
                    }
                };
                let part = files.render(segment, &submitted)?;
                if part.is_empty() {
                    continue;
                }
                self.text(if is_first { "" } else { "," });
                self.flush().await;
                self.part(part).await;
                is_first = false;
            }
            match segments.last() {
                Some(last) if segments.len() == SEGMENTS as usize => from = last.end(),
                _ => break,
            }
        }
        self.text("]");
        Ok(())
    }

    async fn flush(&mut self) {
        let text = std::mem::take(&mut self.text);
        self.part(text.into()).await;
    }

    async fn part(&self, part: Bytes) {
        // A reader that is gone ends the writing elsewhere.
        let _ = self.parts.send(Ok(part)).await;
    }
}

/// One job that must be there.
async fn one(api: &Api, identity: &Identity, id: &str) -> FtsResult<JobRecord> {
    let found = find(api, identity, id).await?;
    found.map_err(|_| Refusal::not_found(format!("No job with the id \"{id}\" has been found")))
}

/// `GET /jobs/{id}/files`
pub(super) async fn files(
    State(api): State<Arc<Api>>,
    identity: Identity,
    Path(id): Path<String>,
) -> FtsResult<Response> {
    let job = one(&api, &identity, &id).await?;
    streamed(
        api,
        &identity,
        StatusCode::OK,
        move |api, parts| async move {
            let mut writer = Writer::new(parts);
            writer.files(&api, &job, None).await?;
            writer.flush().await;
            Ok(())
        },
    )
}

/// `GET /jobs/{id}/{field}`
pub(super) async fn field(
    State(api): State<Arc<Api>>,
    identity: Identity,
    Path((id, field)): Path<(String, String)>,
) -> FtsResult<Json<Value>> {
    let job = one(&api, &identity, &id).await?;
    let shown = views::job(&job, &host_name()).remove(&field);
    shown
        .map(Json)
        .ok_or_else(|| Refusal::not_found("No such field"))
}

/// `GET /jobs/{id}/dm`: there are no jobs that only delete.
pub(super) async fn deletions(
    State(api): State<Arc<Api>>,
    identity: Identity,
    Path(id): Path<String>,
) -> FtsResult<Json<Value>> {
    one(&api, &identity, &id).await?;
    Ok(Json(json!([])))
}

/// `GET /jobs/{id}/files/{file}/retries`: the last attempt that failed.
pub(super) async fn retries(
    State(api): State<Arc<Api>>,
    identity: Identity,
    Path((id, file)): Path<(String, i64)>,
) -> FtsResult<Json<Value>> {
    let job = one(&api, &identity, &id).await?;
    let (number, index) = views::parts_of_file_id(file);
    let place = index.to_string();
    let found = match number == job.number {
        true => api
            .store()
            .files(&job, Some(&place), 1, None)
            .await?
            .items
            .pop(),
        false => None,
    };
    let found = found.filter(|file| file.index == index);
    let found = found.ok_or_else(|| Refusal::not_found("No file with that id in the job"))?;
    let retries = found.error.iter().map(|error| {
        json!({
            "file_id": file,
            "attempt": found.attempts,
            "datetime": job.ended.or(job.started).map(views::time),
            "reason": states::reason(error),
            "transfer_host": null,
            "log_file": null,
        })
    });
    Ok(Json(retries.collect()))
}

/// What was done to each job of a request that changes some.
async fn change<R>(
    api: &Arc<Api>,
    identity: &Identity,
    text: &str,
    mut act: impl FnMut(Uuid) -> R,
) -> FtsResult<Response>
where
    R: Future<Output = FtsResult<()>>,
{
    let ids = ids(text)?;
    let (mut shown, mut all_done, mut one_missing) = (Vec::new(), true, false);
    for id in &ids.ids {
        let record = match find(api, identity, id).await? {
            Ok(record) => record,
            Err(missing) => {
                (all_done, one_missing) = (false, true);
                shown.push(missing);
                continue;
            }
        };
        let is_open = !record.state.is_final();
        if is_open {
            act(record.id).await?;
        }
        let record = api.store().job(record.id).await?;
        let (status, message) = match is_open {
            true => ("200 Ok", Value::Null),
            false => ("304 Not Modified", "The job is in a terminal state".into()),
        };
        let mut view = views::job(&record, &host_name());
        view.insert("http_message".to_owned(), message);
        all_done &= is_open;
        shown.push(with_status(view, status));
    }
    let status = match (ids.is_list, all_done, one_missing) {
        (true, false, _) => StatusCode::MULTI_STATUS,
        (false, _, true) => StatusCode::NOT_FOUND,
        _ => StatusCode::OK,
    };
    Ok((status, Json(one_or_all(shown, ids.is_list))).into_response())
}

/// `DELETE /jobs/{ids}`
pub(super) async fn cancel(
    State(api): State<Arc<Api>>,
    identity: Identity,
    Path(text): Path<String>,
) -> FtsResult<Response> {
    change(&api, &identity, &text, async |id| {
        Ok(api.cancel_job(&identity.caller, id).await?)
    })
    .await
}

/// `DELETE /jobs/{id}/files/{files}`: the state of each file.
pub(super) async fn cancel_files(
    State(api): State<Arc<Api>>,
    identity: Identity,
    Path((id, text)): Path<(String, String)>,
) -> FtsResult<Json<Value>> {
    let job = one(&api, &identity, &id).await?;
    let files = ids(&text)?;
    if !job.options.order.is_any() || job_type(&job) == "Y" {
        let text = "Multihop, replica or reuse jobs can not be canceled file by file";
        return Err(Refusal::bad_request(text));
    }
    let mut states = Vec::new();
    for file in &files.ids {
        let shown = match file.parse::<i64>().map(views::parts_of_file_id) {
            Ok((number, index)) if number == job.number => {
                end_file(&api, &identity, &job, index).await?
            }
            _ => "File does not belong to the job",
        };
        states.push(Value::from(shown));
    }
    Ok(Json(one_or_all(states, files.is_list)))
}

fn job_type(job: &JobRecord) -> String {
    let extra = submission::extra::<submission::JobExtra>(job.options.metadata.as_ref());
    extra.map_or_else(|| "N".to_owned(), |extra| extra.job_type)
}

/// Cancels a file; its state, in which it may have been before.
async fn end_file(
    api: &Api,
    identity: &Identity,
    job: &JobRecord,
    index: u64,
) -> FtsResult<&'static str> {
    match api.end_file(&identity.caller, job.id, index).await {
        Ok(true) => return Ok("CANCELED"),
        Ok(false) => {}
        Err(error) if error.problem().status == 404 => {
            return Ok("File does not belong to the job");
        }
        Err(error) => return Err(error.into()),
    }
    let job = api.store().job(job.id).await?;
    let place = index.to_string();
    let found = api.store().files(&job, Some(&place), 1, None).await?.items;
    Ok(found
        .first()
        .map_or("CANCELED", |file| states::file_state(file.state)))
}

/// `POST /jobs/{ids}`: another priority.
pub(super) async fn modify(
    State(api): State<Arc<Api>>,
    identity: Identity,
    Path(text): Path<String>,
    request: Request,
) -> FtsResult<Response> {
    let body = whole(request.into_body(), BODY_BYTES_MAX).await?;
    let body: Value = serde_json::from_slice(&body)
        .map_err(|_| Refusal::bad_request("Badly formatted JSON request"))?;
    let priority = match &body["params"]["priority"] {
        Value::Null => None,
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    let priority = priority.map(|priority: i64| u8::try_from(priority.clamp(1, 5)).unwrap_or(3));
    if priority.is_none() && !body["params"]["priority"].is_null() {
        return Err(Refusal::bad_request("Invalid priority value"));
    }
    change(&api, &identity, &text, async |id| match priority {
        Some(priority) => Ok(api.set_priority(&identity.caller, id, priority).await?),
        None => Ok(()),
    })
    .await
}

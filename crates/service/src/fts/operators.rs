//! What operators ask: bans of storages and users, limits of storages, what runs where.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json,
    extract::{Path, Query, Request, State},
    http::StatusCode,
};
use godwit_service_api::{
    job::JobState,
    page::MAX_PAGE,
    site::{EndpointState, Limits},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{
    identity::Identity,
    refusal::{FtsResult, Refusal, invalid},
    submission::{JobExtra, extra, storage},
};
use crate::{
    api::{Api, BODY_BYTES_MAX, whole},
    config::host_name,
    store::{
        endpoint_of,
        model::{EndpointRecord, JobFilter, PrincipalRecord},
    },
};

/// FTS3 counts throughput in these.
const MEGABYTE: f64 = 1024.0 * 1024.0;

fn check_operator(identity: &Identity) -> FtsResult<()> {
    match identity.caller.is_operator() {
        true => Ok(()),
        false => Err(Refusal::forbidden("This is for operators")),
    }
}

async fn object(request: Request) -> FtsResult<Map<String, Value>> {
    let body = whole(request.into_body(), BODY_BYTES_MAX).await?;
    match serde_json::from_slice(&body) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Refusal::bad_request("Expecting a dictionary")),
        Err(_) => Err(Refusal::bad_request("Badly formatted JSON request")),
    }
}

fn text<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    object.get(name)?.as_str().filter(|text| !text.is_empty())
}

/// The endpoints of a storage: all its ports that are known, and the usual one.
async fn endpoints_of(api: &Api, name: &str) -> FtsResult<Vec<EndpointRecord>> {
    let usual = endpoint_of(name).filter(|_| storage(name).is_some());
    let usual = usual.ok_or_else(|| Refusal::bad_request("A storage is scheme://host"))?;
    let mut endpoints = api.store().endpoints().await?;
    let wanted = storage(&usual);
    endpoints.retain(|endpoint| storage(&endpoint.name) == wanted);
    if !endpoints.iter().any(|endpoint| endpoint.name == usual) {
        endpoints.push(EndpointRecord {
            name: usual,
            state: EndpointState::Open,
            limits: Limits::default(),
        });
    }
    Ok(endpoints)
}

/// `POST /ban/se`. `CANCEL`: nothing runs, and jobs there are canceled; `WAIT`: nothing starts.
pub(super) async fn ban_storage(
    State(api): State<Arc<Api>>,
    identity: Identity,
    request: Request,
) -> FtsResult<Json<Value>> {
    check_operator(&identity)?;
    let asked = object(request).await?;
    let missing = || Refusal::bad_request("Missing storage parameter");
    let name = text(&asked, "storage").ok_or_else(missing)?;
    let status = text(&asked, "status")
        .unwrap_or("cancel")
        .to_ascii_uppercase();
    let state = match status.as_str() {
        "CANCEL" if asked.get("allow_submit").and_then(Value::as_bool) == Some(true) => {
            let text = "allow_submit and status = CANCEL can not be combined";
            return Err(Refusal::bad_request(text));
        }
        "CANCEL" => EndpointState::Banned,
        "WAIT" => EndpointState::Draining,
        _ => return Err(Refusal::bad_request("status can only be cancel or wait")),
    };
    let mut jobs: Vec<Uuid> = Vec::new();
    for mut endpoint in endpoints_of(&api, name).await? {
        endpoint.state = state;
        let detail = text(&asked, "message").unwrap_or_default();
        api.put_endpoint(identity.caller.name(), &endpoint, detail)
            .await?;
        jobs.extend(api.store().jobs_at(&endpoint.name).await?);
    }
    jobs.sort_unstable();
    jobs.dedup();
    if state == EndpointState::Banned {
        cancel_all(&api, &identity, &jobs).await?;
    }
    Ok(Json(json!(jobs)))
}

/// Cancels jobs, where they have not ended in the meantime.
async fn cancel_all(api: &Api, identity: &Identity, jobs: &[Uuid]) -> FtsResult<()> {
    for job in jobs {
        match api.cancel_job(&identity.caller, *job).await {
            Ok(()) => {}
            Err(error) if matches!(error.problem().status, 404 | 409) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// `GET /ban/se`
pub(super) async fn banned_storages(
    State(api): State<Arc<Api>>,
    identity: Identity,
) -> FtsResult<Json<Value>> {
    check_operator(&identity)?;
    let endpoints = api.store().endpoints().await?;
    let mut storages = BTreeMap::new();
    for endpoint in endpoints {
        let status = match endpoint.state {
            EndpointState::Open => continue,
            EndpointState::Draining => "WAIT_AS",
            EndpointState::Banned => "CANCEL",
        };
        storages.insert(storage(&endpoint.name), status);
    }
    let shown = storages.into_iter().map(|(name, status)| {
        json!({"se": name, "status": status, "message": null, "admin_dn": null,
            "addition_time": null, "vo": null})
    });
    Ok(Json(shown.collect()))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StorageQuery {
    storage: Option<String>,
    se: Option<String>,
}

/// `DELETE /ban/se?storage=`
pub(super) async fn unban_storage(
    State(api): State<Arc<Api>>,
    identity: Identity,
    Query(asked): Query<StorageQuery>,
) -> FtsResult<StatusCode> {
    check_operator(&identity)?;
    let missing = || Refusal::bad_request("Missing storage parameter");
    let name = asked
        .storage
        .filter(|name| !name.is_empty())
        .ok_or_else(missing)?;
    let mut endpoints = endpoints_of(&api, &name).await?;
    endpoints.retain(|endpoint| endpoint.state != EndpointState::Open);
    if endpoints.is_empty() {
        return Err(Refusal::bad_request("Storage not found"));
    }
    for mut endpoint in endpoints {
        endpoint.state = EndpointState::Open;
        api.put_endpoint(identity.caller.name(), &endpoint, "")
            .await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Refuses files of storages where nothing may run.
pub(super) async fn check_bans<'a>(
    api: &Api,
    urls: impl Iterator<Item = &'a String>,
) -> FtsResult<()> {
    let banned = api.store().banned_endpoints().await?;
    if banned.is_empty() {
        return Ok(());
    }
    for url in urls {
        let (endpoint, name) = (endpoint_of(url).unwrap_or_default(), storage(url));
        let is_banned = |banned: &String| {
            // The name without a port stands for the whole storage.
            *banned == endpoint || Some(banned) == name.as_ref()
        };
        if banned.iter().any(is_banned) {
            let name = name.unwrap_or_default();
            return Err(Refusal::forbidden(format!("{name} is banned")));
        }
    }
    Ok(())
}

/// The user of a distinguished name, or of a name of the service.
async fn user(api: &Api, dn: &str) -> FtsResult<PrincipalRecord> {
    let found = match api.store().principal_by_identity(&format!("dn:{dn}")).await {
        Err(crate::store::StoreError::NotFound) => api.store().principal(dn).await,
        found => found,
    };
    match found {
        Err(crate::store::StoreError::NotFound) => Err(Refusal::not_found("No such user")),
        found => Ok(found?),
    }
}

/// `POST /ban/dn`: the user is refused, and the user's jobs are canceled.
pub(super) async fn ban_user(
    State(api): State<Arc<Api>>,
    identity: Identity,
    request: Request,
) -> FtsResult<Json<Value>> {
    check_operator(&identity)?;
    let asked = object(request).await?;
    let missing = || Refusal::bad_request("Missing dn parameter");
    let user = user(&api, text(&asked, "user_dn").ok_or_else(missing)?).await?;
    if user.name == identity.caller.name() {
        let text = "The user tried to ban himself";
        return Err(Refusal::new(StatusCode::CONFLICT, text));
    }
    let name = user.name.clone();
    api.set_disabled(identity.caller.name(), user, true).await?;
    let jobs = cancel_open(&api, &identity, Some(name), |_| true).await?;
    Ok(Json(json!(jobs.ids)))
}

/// `GET /ban/dn`
pub(super) async fn banned_users(
    State(api): State<Arc<Api>>,
    identity: Identity,
) -> FtsResult<Json<Value>> {
    check_operator(&identity)?;
    let users = api.store().principals().await?;
    let shown = users.into_iter().filter(|user| user.disabled).map(|user| {
        let dn = user
            .identities
            .iter()
            .find_map(|name| name.strip_prefix("dn:"));
        json!({"dn": dn.unwrap_or(&user.name), "message": null, "admin_dn": null,
            "addition_time": null})
    });
    Ok(Json(shown.collect()))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct UserQuery {
    user_dn: Option<String>,
}

/// `DELETE /ban/dn?user_dn=`
pub(super) async fn unban_user(
    State(api): State<Arc<Api>>,
    identity: Identity,
    Query(asked): Query<UserQuery>,
) -> FtsResult<StatusCode> {
    check_operator(&identity)?;
    let missing = || Refusal::bad_request("Missing user_dn parameter");
    let dn = asked
        .user_dn
        .filter(|dn| !dn.is_empty())
        .ok_or_else(missing)?;
    let user = user(&api, &dn).await?;
    api.set_disabled(identity.caller.name(), user, false)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What was canceled.
struct CanceledJobs {
    ids: Vec<Uuid>,
    files: u64,
}

/// Cancels jobs that have not ended: of one user or of all, and of these those that are wanted.
async fn cancel_open(
    api: &Api,
    identity: &Identity,
    owner: Option<String>,
    is_wanted: impl Fn(&Value) -> bool,
) -> FtsResult<CanceledJobs> {
    let filter = JobFilter {
        owner,
        states: vec![JobState::Queued, JobState::Active, JobState::Paused],
        ids: Vec::new(),
    };
    let (mut cursor, mut canceled) = (
        None,
        CanceledJobs {
            ids: Vec::new(),
            files: 0,
        },
    );
    loop {
        let page = api
            .store()
            .jobs(&filter, cursor.as_deref(), MAX_PAGE)
            .await?;
        for job in &page.items {
            let extra = extra::<JobExtra>(job.options.metadata.as_ref());
            if is_wanted(&json!(extra.map(|extra| extra.by.organisation))) {
                canceled.ids.push(job.id);
                canceled.files += job.files.total.saturating_sub(job.files.ended());
            }
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    cancel_all(api, identity, &canceled.ids).await?;
    Ok(canceled)
}

fn affected(canceled: &CanceledJobs) -> Json<Value> {
    Json(json!({
        "affected_files": canceled.files,
        "affected_dm": 0,
        "affected_jobs": canceled.ids.len(),
    }))
}

/// `DELETE /jobs/all`
pub(super) async fn cancel_every_job(
    State(api): State<Arc<Api>>,
    identity: Identity,
) -> FtsResult<Json<Value>> {
    check_operator(&identity)?;
    Ok(affected(
        &cancel_open(&api, &identity, None, |_| true).await?,
    ))
}

/// `DELETE /jobs/vo/{vo}`
pub(super) async fn cancel_organisation(
    State(api): State<Arc<Api>>,
    identity: Identity,
    Path(name): Path<String>,
) -> FtsResult<Json<Value>> {
    check_operator(&identity)?;
    let canceled = cancel_open(&api, &identity, None, |organisation| *organisation == name);
    Ok(affected(&canceled.await?))
}

#[allow(
    clippy::cast_precision_loss,
    reason = "bytes a second of this size fit"
)]
fn limits(endpoint: &EndpointRecord) -> Value {
    let limits = &endpoint.limits;
    let throughput = limits.bytes_per_second.map(|bytes| bytes as f64 / MEGABYTE);
    json!({
        "se_info": {
            "inbound_max_active": limits.sessions,
            "outbound_max_active": limits.sessions,
            "inbound_max_throughput": throughput,
            "outbound_max_throughput": throughput,
        },
        "operations": {},
    })
}

/// `GET /config/se`: limits of storages. Both directions share one.
pub(super) async fn storage_limits(
    State(api): State<Arc<Api>>,
    identity: Identity,
    Query(asked): Query<StorageQuery>,
) -> FtsResult<Json<Value>> {
    check_operator(&identity)?;
    let endpoints = match asked.se.filter(|name| !name.is_empty()) {
        Some(name) => endpoints_of(&api, &name).await?,
        None => api.store().endpoints().await?,
    };
    let shown = endpoints
        .iter()
        .filter_map(|endpoint| Some((storage(&endpoint.name)?, limits(endpoint))));
    Ok(Json(Value::Object(shown.collect())))
}

/// `POST /config/se`
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts of floats saturate"
)]
pub(super) async fn set_storage_limits(
    State(api): State<Arc<Api>>,
    identity: Identity,
    request: Request,
) -> FtsResult<Json<Value>> {
    check_operator(&identity)?;
    let mut shown = Map::new();
    for (name, wanted) in object(request).await? {
        let empty = Map::new();
        let info = wanted["se_info"].as_object().unwrap_or(&empty);
        if wanted["operations"]
            .as_object()
            .is_some_and(|operations| !operations.is_empty())
        {
            return Err(invalid("operations: no storage served here has tapes"));
        }
        let sessions = least(info, ["inbound_max_active", "outbound_max_active"])?;
        let rate = least(info, ["inbound_max_throughput", "outbound_max_throughput"])?;
        for mut endpoint in endpoints_of(&api, &name).await? {
            if let Some(sessions) = sessions {
                endpoint.limits.sessions = Some(sessions as u32);
            }
            if let Some(rate) = rate {
                endpoint.limits.bytes_per_second = Some((rate * MEGABYTE) as u64);
            }
            api.put_endpoint(identity.caller.name(), &endpoint, "")
                .await?;
            shown.insert(name.clone(), limits(&endpoint));
        }
    }
    Ok(Json(json!([shown])))
}

/// The least of what is given.
fn least(info: &Map<String, Value>, names: [&str; 2]) -> FtsResult<Option<f64>> {
    let mut least: Option<f64> = None;
    for name in names {
        let Some(value) = info.get(name).filter(|value| !value.is_null()) else {
            continue;
        };
        let wrong = || Refusal::bad_request(format!("Field {name} is expected to be int"));
        let value = value
            .as_f64()
            .filter(|value| *value >= 0.0)
            .ok_or_else(wrong)?;
        least = Some(least.map_or(value, |least| least.min(value)));
    }
    Ok(least)
}

/// `DELETE /config/se?se=`
pub(super) async fn remove_storage_limits(
    State(api): State<Arc<Api>>,
    identity: Identity,
    Query(asked): Query<StorageQuery>,
) -> FtsResult<StatusCode> {
    check_operator(&identity)?;
    let missing = || Refusal::bad_request("Missing se parameter");
    let name = asked
        .se
        .filter(|name| !name.is_empty())
        .ok_or_else(missing)?;
    for mut endpoint in endpoints_of(&api, &name).await? {
        endpoint.limits = Limits::default();
        api.put_endpoint(identity.caller.name(), &endpoint, "")
            .await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /status/hosts`: units that run, as of one host.
pub(super) async fn hosts(State(api): State<Arc<Api>>, _: Identity) -> FtsResult<Json<Value>> {
    let agents = api.store().agents().await?;
    let active: u64 = agents.iter().map(|agent| u64::from(agent.units)).sum();
    Ok(Json(json!({host_name(): {"active": active, "staging": 0}})))
}

/// `GET /optimizer`: transfers are tuned, always.
pub(super) async fn optimizer(_: Identity) -> Json<Value> {
    Json(json!(true))
}

/// `GET /optimizer/current`: what units use. Nothing is averaged here, and no history is kept.
pub(super) async fn optimizer_now(
    State(api): State<Arc<Api>>,
    identity: Identity,
) -> FtsResult<Json<Value>> {
    check_operator(&identity)?;
    let now = super::views::time(api.store().now().await?);
    let links = api.store().links_in_use().await?;
    let shown = links.iter().map(|link| {
        json!({"source_se": storage(&link.source), "dest_se": storage(&link.destination),
            "datetime": now, "active": link.sessions, "nostreams": link.parallelism,
            "actual_active": link.units, "ema": null, "throughput": null, "success": null,
            "rationale": null, "diff": null, "queue_size": null, "filesize_avg": null,
            "filesize_stddev": null})
    });
    Ok(Json(shown.collect()))
}

/// `GET /optimizer/evolution`: none is kept.
pub(super) async fn optimizer_history(_: Identity) -> Json<Value> {
    Json(json!([]))
}

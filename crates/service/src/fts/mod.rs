//! The REST interface of FTS3, for the clients that sites have: Rucio, DIRAC, the `fts3` package
//! and its command lines. Jobs are those of the service; what FTS3 says of them is a view.
//!
//! # Map
//! - [`router`]: all routes, on an address of their own
//! - `identity`: who asks, in the terms of FTS3
//! - `delegation`: proxies, as gridsite takes them
//! - `submission`: a job comes in (pure); `states`, `views`: how jobs are shown (pure)
//! - `jobs`: what clients do with jobs; `operators`: bans, limits, what runs
//! - `tokens`: tokens that come with files (pure)
//! - `refusal`: errors in the form of FTS3

mod delegation;
mod identity;
mod jobs;
mod operators;
mod refusal;
mod states;
mod submission;
mod tokens;
mod views;

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::Request,
    http::{Uri, uri::PathAndQuery},
    middleware,
    routing::{delete, get, put},
};
#[cfg(any(test, fuzzing))]
use godwit_service_api::job::{FileRequest, JobOptions};
use serde_json::{Value, json};

use self::refusal::Refusal;
use crate::api::Api;

/// All routes.
pub fn router(api: Arc<Api>) -> Router {
    let list = get(jobs::list).post(jobs::submit).put(jobs::submit);
    let job = get(jobs::show).post(jobs::modify).delete(jobs::cancel);
    let routes = Router::new()
        .route("/", get(description))
        .route("/whoami", get(identity::whoami))
        .route(
            "/delegation/{id}",
            get(delegation::show).delete(delegation::remove),
        )
        .route("/delegation/{id}/request", get(delegation::request))
        .route(
            "/delegation/{id}/credential",
            put(delegation::put).post(delegation::put),
        )
        .route("/jobs", list)
        .route("/jobs/{ids}", job)
        .route("/jobs/all", delete(operators::cancel_every_job))
        .route("/jobs/vo/{vo}", delete(operators::cancel_organisation))
        .route("/jobs/{id}/files", get(jobs::files))
        .route("/jobs/{id}/files/{files}", delete(jobs::cancel_files))
        .route("/jobs/{id}/dm", get(jobs::deletions))
        .route("/jobs/{id}/files/{file}/retries", get(jobs::retries))
        .route("/jobs/{id}/{field}", get(jobs::field))
        .merge(of_operators())
        .fallback(async || Refusal::not_found("No such resource"))
        .with_state(api);
    // A layer runs before the routes only of a router that is not its own.
    Router::new()
        .fallback_service(routes)
        .layer(middleware::map_request(plain_path))
}

fn of_operators() -> Router<Arc<Api>> {
    let storages = get(operators::banned_storages)
        .post(operators::ban_storage)
        .delete(operators::unban_storage);
    let users = get(operators::banned_users)
        .post(operators::ban_user)
        .delete(operators::unban_user);
    let limits = get(operators::storage_limits)
        .post(operators::set_storage_limits)
        .delete(operators::remove_storage_limits);
    Router::new()
        .route("/ban/se", storages)
        .route("/ban/dn", users)
        .route("/config/se", limits)
        .route("/status/hosts", get(operators::hosts))
        .route("/optimizer", get(operators::optimizer))
        .route("/optimizer/current", get(operators::optimizer_now))
        .route("/optimizer/evolution", get(operators::optimizer_history))
}

/// A body of `POST /jobs` as a job, for the fuzz target.
#[cfg(any(test, fuzzing))]
pub(crate) fn hear_submission(body: &[u8]) -> Option<(JobOptions, Vec<FileRequest>)> {
    let by = submission::Submitter {
        dn: "/CN=a".to_owned(),
        organisation: "a".to_owned(),
        delegation_id: "a".to_owned(),
        method: "certificate".to_owned(),
    };
    let submitted = submission::parse(body, by, jiff::Timestamp::UNIX_EPOCH).ok()?;
    Some((submitted.options, submitted.files))
}

/// Clients write `//jobs` and `/jobs/` for `/jobs`.
async fn plain_path(mut request: Request) -> Request {
    let path = request.uri().path();
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let plain = format!("/{}", parts.join("/"));
    if plain != path {
        let query = request.uri().query();
        let plain = match query {
            Some(query) => format!("{plain}?{query}"),
            None => plain,
        };
        let mut of_uri = request.uri().clone().into_parts();
        of_uri.path_and_query = PathAndQuery::try_from(plain).ok();
        // Parts of a path are a path.
        if let Ok(uri) = Uri::from_parts(of_uri) {
            *request.uri_mut() = uri;
        }
    }
    request
}

/// `GET /`: what is spoken here. Clients format the versions as numbers.
async fn description() -> Json<Value> {
    Json(json!({
        "delegation": {"major": 1, "minor": 0, "patch": 0},
        "api": {"major": 3, "minor": 14, "patch": 2},
        "core": {"major": "3", "minor": "14", "patch": "2"},
        "schema": {"major": 10, "minor": 0, "patch": 0, "message": null},
        "_links": {
            "fts:whoami": {"href": "/whoami", "title": "Who asks"},
            "fts:joblist": {"href": "/jobs{?vo_name,user_dn,dlg_id,state_in}", "templated": true},
            "fts:job": {
                "href": "/jobs/{id}",
                "templated": true,
                "hints": {"allow": ["GET", "DELETE"]},
            },
            "fts:jobsubmit": {"href": "/jobs", "hints": {"allow": ["POST"]}},
        },
        "godwit": {"version": env!("CARGO_PKG_VERSION")},
    }))
}

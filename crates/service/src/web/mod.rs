//! The page of the service for browsers: HTML that the server writes, and forms. All of it works
//! without a script; with one, what changes is fetched again.
//!
//! # Map
//! - [`router`]: all routes, and the headers of every answer
//! - `login`: logins by token, password, certificate and issuer; `visitor`: who asks by a session,
//!   and forms that their own pages sent; `cookies`: the two cookies
//! - `jobs`: lists; `job`: one job, `files`: its files; `why`: what jobs wait for; `submit`: a new
//!   one,
//!   `browse`: directories to choose from, `preview`: what it would copy
//! - `schedules`, `credentials`, `shares`: what a user has
//! - `network`: endpoints and links; `agents`, `users`, `operator`: for operators
//! - `layout`: what all pages have; `list`: what all lists have; `text`: names, numbers and times
//!   for people; `chart`: pictures; `assets`: style and script
//!
//! # Rules
//! - A page calls what a handler of the API calls: there is no rule of its own here.
//! - Text of users, peers and servers passes through `text::visible`, which bounds it, too: a page
//!   has less than 100 KB, whatever is in the database.
//! - HTML holds no script and no style. The policy of each answer forbids them.

mod agents;
mod assets;
mod browse;
mod chart;
mod cookies;
mod credentials;
mod files;
mod frame;
mod job;
mod jobs;
mod layout;
mod list;
mod login;
mod network;
mod operator;
mod preview;
mod schedules;
mod shares;
mod submit;
mod text;
mod users;
mod visitor;
mod why;

use std::sync::Arc;

use axum::{
    Router,
    extract::Request,
    http::{HeaderName, HeaderValue, header},
    middleware::{Next, from_fn},
    response::{Redirect, Response},
    routing::{get, post},
};

use crate::{accounts::oidc::RETURN_PATH, api::Api};

/// What a page may load, send and be part of.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// What pages need.
#[derive(Clone)]
struct Web {
    api: Arc<Api>,
    /// Browsers reach it by TLS.
    secure: bool,
}

/// All routes of the page. `secure`: browsers reach it by TLS.
pub(crate) fn router(api: Arc<Api>, secure: bool) -> Router {
    Router::new()
        .route("/", get(async || Redirect::to("/jobs")))
        .route("/login", get(login::page).post(login::by_secret))
        .route("/login/certificate", post(login::by_certificate))
        .route("/login/issuer", get(login::to_issuer))
        .route(RETURN_PATH, get(login::from_issuer))
        .route("/logout", post(login::logout))
        .route("/jobs", get(jobs::page))
        .route("/jobs/live", get(jobs::live))
        .route("/jobs/{id}", get(job::page))
        .route("/jobs/{id}/live", get(job::live))
        .route("/jobs/{id}/{action}", post(job::act))
        .route("/submit", get(submit::page).post(submit::submit))
        .route("/schedules", get(schedules::page))
        .route("/schedules/{action}", post(schedules::act))
        .route("/credentials", get(credentials::page))
        .route("/credentials/remove", post(credentials::remove))
        .route("/users", get(users::page))
        .route("/endpoints", get(network::endpoints))
        .route("/links", get(network::links))
        .route("/agents", get(agents::page).post(agents::set))
        .route("/shares", get(shares::page))
        .route("/operator", get(operator::page))
        .route("/operator/{what}", post(operator::set))
        .layer(from_fn(keep_private))
        .route("/assets/{name}", get(assets::get))
        .layer(from_fn(harden))
        .with_state(Web { api, secure })
}

/// Pages are for who asked.
async fn keep_private(request: Request, next: Next) -> Response {
    let mut answer = next.run(request).await;
    let no_store = HeaderValue::from_static("no-store");
    answer.headers_mut().insert(header::CACHE_CONTROL, no_store);
    answer
}

/// Nothing of another site runs in a page, nor a page in another site.
async fn harden(request: Request, next: Next) -> Response {
    let mut answer = next.run(request).await;
    let headers = answer.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        // Browsers must say where a form comes from; other sites learn no address.
        (header::REFERRER_POLICY, "same-origin"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}

//! The API for users: `/api/v1`, JSON, errors as problem details.
//!
//! # Map
//! - [`router`]: all routes, from which the OpenAPI document is made, too
//! - `submit`: a job comes in; `schedules`: jobs that come again and again
//! - `jobs`: lists, one job, its files, what users do to it
//! - `browse`: what is in a directory; `preview`: what a job would copy
//! - `streams`: events of a job as they happen, receipts
//! - `site`: endpoints, links, shares, agents, the audit; `users`: users, tokens, credentials
//! - `extract`: what handlers take from a request; `cursor`: pages
//! - [`policy`]: where jobs may go; [`limits`]: how much a user may ask
//!
//! Of jobs of others users learn nothing, not even that they exist.

mod browse;
pub(crate) mod cursor;
pub(crate) mod extract;
mod jobs;
pub mod limits;
mod openapi;
pub mod policy;
mod preview;
mod schedules;
mod site;
mod streams;
mod submit;
mod users;

use std::sync::Arc;

use axum::{
    Router,
    extract::Request,
    http::{HeaderValue, header},
    middleware::{self, Next},
    response::Response,
};
use tokio::sync::watch;

pub(crate) use self::{
    browse::BROWSE_WAIT,
    extract::{BODY_BYTES_MAX, Caller, whole},
    submit::Incoming,
};
use self::{
    limits::{Limits, RequestRate},
    openapi::Routes,
    policy::EndpointPolicy,
};
use crate::{
    accounts::Accounts,
    credentials::Vault,
    problem::{ApiError, Kind},
    rendered::Rendered,
    scheduling::Board,
    store::Store,
    traces::Traces,
};

/// Member of the metadata of jobs and files that the interface of FTS3 has for itself.
pub(crate) const FTS_METADATA: &str = "fts";

/// What an operator sets of the API.
#[derive(Clone, Debug)]
pub struct ApiSettings {
    /// Where jobs may go.
    pub policy: EndpointPolicy,
    /// Requests of each user.
    pub rate: RequestRate,
    /// Jobs of each user that are not final, where the user has no other limit.
    pub max_jobs: Option<u64>,
    /// Files of each user's jobs that are not final, where the user has no other limit.
    pub max_files: Option<u64>,
}

/// What handlers need.
pub struct Api {
    store: Store,
    accounts: Arc<Accounts>,
    vault: Vault,
    policy: EndpointPolicy,
    limits: Arc<Limits>,
    max_jobs: Option<u64>,
    max_files: Option<u64>,
    board: Arc<Board>,
    rendered: Rendered,
    traces: Traces,
    stopping: watch::Receiver<bool>,
}

impl Api {
    /// Over this database; streams end when `stopping` becomes true.
    pub fn new(
        store: Store,
        accounts: Arc<Accounts>,
        vault: Vault,
        board: Arc<Board>,
        (settings, traces): (ApiSettings, Traces),
        stopping: watch::Receiver<bool>,
    ) -> Self {
        Self {
            store,
            accounts,
            vault,
            policy: settings.policy,
            limits: Arc::new(Limits::new(settings.rate)),
            max_jobs: settings.max_jobs,
            max_files: settings.max_files,
            board,
            rendered: Rendered::new(),
            traces,
            stopping,
        }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn rendered(&self) -> &Rendered {
        &self.rendered
    }

    pub(crate) fn vault(&self) -> &Vault {
        &self.vault
    }

    pub(crate) fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    pub(crate) fn board(&self) -> &Board {
        &self.board
    }

    pub(crate) fn policy(&self) -> &EndpointPolicy {
        &self.policy
    }

    pub(crate) fn traces(&self) -> &Traces {
        &self.traces
    }

    pub(crate) fn limits(&self) -> &Arc<Limits> {
        &self.limits
    }
}

/// All routes of the API.
pub fn router(api: Arc<Api>) -> Router {
    let (router, document) = routes().finish();
    let router = router.merge(openapi::route(&document));
    router
        .fallback(async || ApiError::not_found())
        .method_not_allowed_fallback(async || ApiError::new(Kind::Method, "see the header Allow"))
        .layer(middleware::from_fn(harden))
        .with_state(api)
}

fn routes() -> Routes {
    let mut routes = Routes::default();
    submit::routes(&mut routes);
    browse::routes(&mut routes);
    preview::routes(&mut routes);
    schedules::routes(&mut routes);
    jobs::routes(&mut routes);
    streams::routes(&mut routes);
    site::routes(&mut routes);
    users::routes(&mut routes);
    routes
}

/// Answers are for who asked, and are what they say they are.
async fn harden(request: Request, next: Next) -> Response {
    let mut answer = next.run(request).await;
    let headers = answer.headers_mut();
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    answer
}

//! The gateway: agents poll here for work and report what became of it.
//!
//! A poll renews the agent's lease and counts its results, in one transaction; then it is held back
//! while there is nothing to say. A grant of the leader of this process wakes it; what another node
//! granted is found by looking every second. A poll changes nothing when it comes twice.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, State, rejection::JsonRejection},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use godwit_service_api::{
    AGENT_API,
    agent::{
        Grant, GrantedCredential, Lease, POLL_SECONDS, PROTOCOL, PollRequest, PollResponse, Share,
        Work,
    },
    problem::{MEDIA_TYPE, Problem},
};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::{
    scheduling::Board,
    store::{
        Store, StoreError, endpoint_of,
        model::{GrantedUnit, Polled},
    },
};

/// Longest request: sixteen results of a thousand files, each with an error.
const BODY_BYTES_MAX: usize = 64 << 20;

/// Between two looks at what other nodes have granted.
const LOOK: Duration = Duration::from_secs(1);

/// Where nothing says otherwise, a unit begins with so much.
const FIRST_SHARE: Share = Share {
    concurrency: 2,
    parallelism: 4,
};

/// Most units, results and files that a poll may name.
const UNITS_MAX: usize = 10_000;

/// Finds what proves the owner of a unit to its endpoints.
pub trait CredentialSource: Send + Sync {
    /// For these endpoints, of this user.
    fn find<'a>(&'a self, owner: &'a str, endpoints: &'a [String]) -> Credentials<'a>;
}

/// What [`CredentialSource::find`] gives.
pub type Credentials<'a> = Pin<Box<dyn Future<Output = Vec<GrantedCredential>> + Send + 'a>>;

/// What the gateway needs.
#[derive(Clone)]
pub struct Gateway {
    /// The database.
    pub store: Store,
    /// The leader of this process, if it leads.
    pub board: Arc<Board>,
    /// SHA-256 of tokens that agents may show.
    pub tokens: Arc<[[u8; 32]]>,
    /// What users left for their endpoints; `None`: nothing.
    pub credentials: Option<Arc<dyn CredentialSource>>,
}

/// The routes of agents.
pub fn router(gateway: Gateway) -> Router {
    Router::new()
        .route(&format!("{AGENT_API}/poll"), post(poll))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(gateway)
}

async fn poll(
    State(gateway): State<Gateway>,
    headers: HeaderMap,
    body: Result<Json<PollRequest>, JsonRejection>,
) -> Result<Json<PollResponse>, Refusal> {
    gateway.authenticate(&headers)?;
    let Json(request) = body.map_err(|error| {
        refusal(
            error.status(),
            "invalid_poll",
            "the poll cannot be read",
            error.body_text(),
        )
    })?;
    check(&request)?;
    gateway.poll(request).await.map(Json)
}

fn check(request: &PollRequest) -> Result<(), Refusal> {
    if request.protocol != PROTOCOL {
        let detail = format!(
            "protocol {} is spoken here, not {}",
            PROTOCOL, request.protocol
        );
        let status = StatusCode::UPGRADE_REQUIRED;
        return Err(refusal(
            status,
            "protocol",
            "another version of the protocol",
            detail,
        ));
    }
    let name = &request.agent;
    let is_plain = |c: char| c.is_ascii_graphic();
    if name.is_empty() || name.len() > 200 || !name.chars().all(is_plain) {
        return Err(invalid(
            "the name of an agent is 1 to 200 printable characters",
        ));
    }
    if request.units.len() > UNITS_MAX || request.results.len() > UNITS_MAX {
        return Err(invalid("too many units or results"));
    }
    Ok(())
}

impl Gateway {
    fn authenticate(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let token = headers.get(header::AUTHORIZATION);
        let token = token.and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        let hash: Option<[u8; 32]> = token.map(|token| Sha256::digest(token).into());
        match hash.is_some_and(|hash| self.tokens.contains(&hash)) {
            true => Ok(()),
            false => Err(refusal(
                StatusCode::UNAUTHORIZED,
                "unauthenticated",
                "who are you",
                "agents show a token of this service",
            )),
        }
    }

    async fn poll(&self, request: PollRequest) -> Result<PollResponse, Refusal> {
        let wait = Duration::from_secs(request.wait_seconds.min(POLL_SECONDS));
        // The next poll must come long before the lease ends.
        let until = Instant::now() + wait.min(self.store.lease() / 3);
        let wake = self.board.agent(&request.agent);
        let woken = wake.notified();
        tokio::pin!(woken);
        // Before looking, so that no grant falls between.
        woken.as_mut().enable();
        self.board
            .polled(&request.agent, request.free_slots, &request.units);
        let polled = self.store.poll(&request).await?;
        if polled.more_work || !polled.acknowledged.is_empty() || request.free_slots > 0 {
            self.board.wake_leader();
        }
        for job in &polled.changed {
            self.board.job_changed(*job);
        }
        let Polled {
            acknowledged,
            stop,
            mut undelivered,
            drain,
            ..
        } = polled;
        let shares = self.board.take_shares(&request.agent);
        let is_news = !(acknowledged.is_empty() && stop.is_empty() && shares.is_empty());
        if !is_news && !drain {
            let known: Vec<Lease> = request.units.iter().map(|unit| unit.lease).collect();
            let mut is_woken = false;
            while undelivered.is_empty() && !is_woken && Instant::now() < until {
                tokio::select! {
                    () = &mut woken, if !is_woken => is_woken = true,
                    () = tokio::time::sleep_until(until.min(Instant::now() + LOOK)) => {}
                }
                let held = self.store.held(&request.agent, request.incarnation, &known);
                undelivered = held.await?;
            }
        }
        let mut grants = Vec::with_capacity(undelivered.len());
        for unit in undelivered {
            grants.push(self.grant(unit).await);
        }
        Ok(PollResponse {
            sequence: request.sequence,
            lease_seconds: self.store.lease().as_secs(),
            grants,
            acknowledged,
            stop,
            shares,
            drain,
        })
    }

    async fn grant(&self, unit: GrantedUnit) -> Grant {
        let credentials = match &self.credentials {
            Some(source) => {
                let endpoints = endpoints_of(&unit.work);
                source.find(&unit.owner, &endpoints).await
            }
            None => Vec::new(),
        };
        Grant {
            lease: unit.lease,
            job: unit.job,
            work: unit.work,
            options: unit.options,
            share: self.board.share(unit.lease).unwrap_or(FIRST_SHARE),
            next_result: unit.results,
            credentials,
        }
    }
}

/// A unit goes between one pair of endpoints.
fn endpoints_of(work: &Work) -> Vec<String> {
    let ends = match work {
        Work::Copy(files) => files
            .first()
            .map(|file| (&file.file.source, &file.file.destination)),
        Work::List {
            source,
            destination,
        } => Some((source, destination)),
    };
    let urls = ends.into_iter().flat_map(|(from, to)| [from, to]);
    urls.filter_map(|url| endpoint_of(url)).collect()
}

/// An answer that is a problem.
struct Refusal(Problem);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status);
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut answer = (status, Json(&self.0)).into_response();
        let media = header::HeaderValue::from_static(MEDIA_TYPE);
        answer.headers_mut().insert(header::CONTENT_TYPE, media);
        answer
    }
}

fn refusal(status: StatusCode, code: &str, title: &str, detail: impl Into<String>) -> Refusal {
    Refusal(Problem {
        kind: "about:blank".to_owned(),
        title: title.to_owned(),
        status: status.as_u16(),
        detail: detail.into(),
        code: code.to_owned(),
        pointer: None,
        retry_after: None,
    })
}

fn invalid(detail: &str) -> Refusal {
    refusal(
        StatusCode::UNPROCESSABLE_ENTITY,
        "invalid_poll",
        "the poll is wrong",
        detail,
    )
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::AgentTaken => refusal(
                StatusCode::CONFLICT,
                "agent_taken",
                "the name is taken",
                error.to_string(),
            ),
            error if error.is_passing() => refusal(
                StatusCode::SERVICE_UNAVAILABLE,
                "database",
                "the database does not answer",
                "try again",
            ),
            error => {
                tracing::error!(%error, "a poll failed");
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                refusal(
                    status,
                    "internal",
                    "internal error",
                    "see the log of the service",
                )
            }
        }
    }
}

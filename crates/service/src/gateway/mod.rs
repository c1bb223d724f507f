//! The gateway: agents poll here for work and report what became of it.
//!
//! A poll renews the agent's lease and counts its results, in one transaction; then it is held back
//! while there is nothing to say. A grant of the leader of this process wakes it; what another node
//! granted is found once a second for all agents. A poll changes nothing when it comes twice.
//!
//! # Map
//! - `browsing`: directories that users look into
//! - `bounds`: texts and numbers of agents, made short and plain

pub(crate) mod bounds;
mod browsing;

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::{FromRequestParts, Request, State},
    http::request::Parts,
    routing::post,
};
use godwit_service_api::{
    AGENT_API,
    agent::{
        AddressScope, Grant, GrantedCredential, Lease, POLL_SECONDS, PROTOCOL, PollRequest,
        PollResponse, Removal, UnitFile, Work,
    },
    site::Role,
};
use opentelemetry::trace::SpanKind;
use tokio::time::{Instant, timeout_at};

use crate::{
    accounts::{Accounts, Evidence},
    api::extract::whole,
    credentials::Vault,
    problem::{Answer, ApiError, Kind},
    scheduling::{Board, POLLS_MAX},
    store::{
        Store,
        browsing::AgentReach,
        endpoint_of,
        model::{GrantedUnit, Leftover, Polled},
    },
    traces::{Parent, Traces},
};

/// Longest request: sixteen results of a thousand files, each with an error.
const BODY_BYTES_MAX: usize = 64 << 20;

/// Most units, results and files that a poll may name.
const UNITS_MAX: usize = 10_000;

/// What the gateway needs.
#[derive(Clone)]
pub struct Gateway {
    /// The database.
    pub store: Store,
    /// Who polls.
    pub accounts: Arc<Accounts>,
    /// What users left for their endpoints.
    pub vault: Vault,
    /// Where names may lead agents to.
    pub addresses: AddressScope,
    /// The leader of this process, if it leads.
    pub board: Arc<Board>,
    /// Where spans go.
    pub traces: Traces,
}

/// The routes of agents.
pub fn router(gateway: Gateway) -> Router {
    Router::new()
        .route(&format!("{AGENT_API}/poll"), post(poll))
        .route(&format!("{AGENT_API}/browse"), post(browsing::answer))
        .with_state(gateway)
}

async fn poll(
    State(gateway): State<Gateway>,
    AgentName(name): AgentName,
    request: Request,
) -> Answer<Json<PollResponse>> {
    let Some(_permit) = gateway.board.enter_poll(&name) else {
        let detail = format!("at most {POLLS_MAX} polls of an agent at a time");
        return Err(ApiError::new(Kind::RateLimit, detail).after(1));
    };
    let body = whole(request.into_body(), BODY_BYTES_MAX).await?;
    let read = serde_json::from_slice::<PollRequest>(&body);
    let mut request = read.map_err(|error| ApiError::new(Kind::Body, error.to_string()))?;
    drop(body);
    check(&request, &name)?;
    bounds::apply(&mut request);
    gateway.poll(request).await.map(Json)
}

/// The name that an agent may poll under, by its token or certificate.
struct AgentName(String);

impl FromRequestParts<Gateway> for AgentName {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, gateway: &Gateway) -> Answer<Self> {
        let principal = gateway.accounts.authenticate(&Evidence::of(parts)).await?;
        match principal.role {
            Role::Agent => Ok(Self(principal.name)),
            _ => Err(ApiError::new(Kind::Forbidden, "this is for agents")),
        }
    }
}

fn check(request: &PollRequest, name: &str) -> Answer<()> {
    if request.protocol != PROTOCOL {
        let spoken = request.protocol;
        let detail = format!("protocol {PROTOCOL} is spoken here, not {spoken}");
        return Err(ApiError::new(Kind::Protocol, detail));
    }
    if request.agent != name {
        let detail = format!("this is the token of the agent {name}");
        return Err(ApiError::new(Kind::Forbidden, detail));
    }
    let lists = [
        request.units.len(),
        request.results.len(),
        request.browses.len(),
    ];
    if lists.iter().any(|count| *count > UNITS_MAX) {
        return Err(ApiError::new(Kind::Invalid, "too many units or results"));
    }
    Ok(())
}

impl Gateway {
    async fn poll(&self, request: PollRequest) -> Answer<PollResponse> {
        let wait = Duration::from_secs(request.wait_seconds.min(POLL_SECONDS));
        // The next poll must come long before the lease ends.
        let until = Instant::now() + wait.min(self.store.lease() / 3);
        let reach = AgentReach::of(&request.description);
        let wake = self.board.agent(&request.agent, reach);
        let woken = wake.notified();
        tokio::pin!(woken);
        // Before looking, so that no grant falls between.
        woken.as_mut().enable();
        let polled = self.store.poll(&request).await?;
        let takes_more = request.free_slots > 0 && self.board.work_waits();
        if polled.more_work {
            self.board.work_came();
        } else if takes_more || !polled.acknowledged.is_empty() {
            self.board.wake_leader();
        }
        for job in &polled.changed {
            self.board.job_changed(*job);
        }
        let Polled {
            acknowledged,
            stop,
            mut undelivered,
            shares,
            drain,
            remove,
            tally,
            links,
            ..
        } = polled;
        self.board.metrics().results(tally);
        self.board.count_links(links);
        let renewed = self.vault.latest().await?;
        let credentials = match renewed > request.renewed {
            true => self.renewed(&request).await?,
            false => Vec::new(),
        };
        // Every answer has all shares, as one may be lost; a new one is sent at once.
        let has_news = self.board.are_news(&request.agent, &shares) || !credentials.is_empty();
        let is_news = has_news || !(acknowledged.is_empty() && stop.is_empty());
        let mut questions = self.browses(&request, drain).await?;
        let mut browses_over = self.browses_over(&request).await?;
        let is_quiet = !is_news && !drain && remove.is_empty() && undelivered.is_empty();
        let is_quiet = is_quiet && questions.is_empty() && browses_over.is_empty();
        if is_quiet && timeout_at(until, woken).await.is_ok() {
            let known: Vec<Lease> = request.units.iter().map(|unit| unit.lease).collect();
            let held = self.store.held(&request.agent, request.incarnation, &known);
            undelivered = held.await?;
            questions = self.browses(&request, drain).await?;
            browses_over = self.browses_over(&request).await?;
        }
        let above = self.store.divide_above();
        let is_large = |unit: &GrantedUnit| is_to_divide(&unit.work, above);
        // One agent alone copies a file as fast as a whole, and resumes it.
        let divides = undelivered.iter().any(is_large) && self.store.agents_alive().await? > 1;
        let divides_uploads = divides && self.store.agents_join_uploads().await?;
        let mut grants = Vec::with_capacity(undelivered.len());
        for mut unit in undelivered {
            unit.options.divide_above = (divides && is_large(&unit)).then_some(above);
            unit.options.divides_uploads = divides_uploads;
            grants.push(self.grant(unit).await);
        }
        let mut removals = Vec::with_capacity(remove.len());
        for leftover in remove {
            removals.push(self.removal(leftover).await);
        }
        Ok(PollResponse {
            sequence: request.sequence,
            lease_seconds: self.store.lease().as_secs(),
            grants,
            acknowledged,
            stop,
            shares,
            credentials,
            renewed,
            remove: removals,
            drain,
            browse: questions.directories,
            preview: questions.jobs,
            browses_over,
        })
    }

    /// What the owners of an agent's units have for their endpoints now.
    async fn renewed(&self, request: &PollRequest) -> Answer<Vec<(Lease, Vec<GrantedCredential>)>> {
        if request.units.is_empty() {
            return Ok(Vec::new());
        }
        let held = self.store.held(&request.agent, request.incarnation, &[]);
        let mut renewed = Vec::new();
        for unit in held.await? {
            let found = self
                .vault
                .find(&unit.owner, &endpoints_of(&unit.work))
                .await;
            let found = found.unwrap_or_default();
            if !found.is_empty() {
                renewed.push((unit.lease, found));
            }
        }
        Ok(renewed)
    }

    async fn removal(&self, leftover: Leftover) -> Removal {
        let endpoints = Vec::from_iter(endpoint_of(&leftover.url));
        Removal {
            id: leftover.id,
            addresses: self.addresses,
            credentials: self.credentials(&leftover.owner, &endpoints).await,
            url: leftover.url,
            upload: leftover.upload,
        }
    }

    /// Without them a unit fails by the endpoint's refusal, which says whose turn it is.
    async fn credentials(&self, owner: &str, endpoints: &[String]) -> Vec<GrantedCredential> {
        let found = self.vault.find(owner, endpoints).await;
        found.unwrap_or_else(|error| {
            tracing::error!(%error, owner, "credentials cannot be opened");
            Vec::new()
        })
    }

    async fn grant(&self, unit: GrantedUnit) -> Grant {
        let endpoints = endpoints_of(&unit.work);
        let parent = unit.trace.as_deref().and_then(Parent::parse);
        let mut span = self
            .traces
            .within("lease", SpanKind::Producer, parent.as_ref());
        span.set("godwit.job.id", unit.job.to_string());
        span.set("godwit.unit", unit.lease.unit);
        span.set("godwit.epoch", unit.lease.epoch);
        span.set("godwit.agent", unit.agent);
        Grant {
            credentials: self.credentials(&unit.owner, &endpoints).await,
            // Where this process has no collector the agent may have one.
            trace: span.traceparent().or(unit.trace),
            lease: unit.lease,
            job: unit.job,
            work: unit.work,
            options: unit.options,
            again: unit.again,
            addresses: self.addresses,
            share: unit.share,
            next_result: unit.results,
        }
    }
}

/// It copies a file that is or may be large.
fn is_to_divide(work: &Work, above: u64) -> bool {
    let Work::Copy(files) = work else {
        return false;
    };
    let is_large = |file: &UnitFile| file.file.bytes.is_none_or(|bytes| bytes > above);
    files
        .iter()
        .any(|file| file.part.is_none() && is_large(file))
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

//! Endpoints, links, shares, agents, the audit, and whether the service works.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use axum::{Json as JsonAnswer, extract::State, http::StatusCode};
use godwit_service_api::{
    account::AuditView,
    page::{DEFAULT_PAGE, MAX_PAGE, Page},
    site::{
        AgentRequest, AgentView, EndpointRequest, EndpointView, Health, LinkView, ShareRequest,
        ShareView,
    },
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    Api, cursor,
    extract::{Asked, Json, Name, Operator},
    openapi::Routes,
    submit::is_plain,
};
use crate::problem::{Answer, ApiError, Kind};
use crate::store::{
    agents::Which,
    endpoint_of,
    model::{AgentRecord, EndpointRecord, LinkNow},
};

pub(super) fn routes(routes: &mut Routes) {
    routes
        .add::<__path_health, _, _>(health)
        .add::<__path_ready, _, _>(ready)
        .add::<__path_list_endpoints, _, _>(list_endpoints)
        .add::<__path_set_endpoint, _, _>(set_endpoint)
        .add::<__path_list_links, _, _>(list_links)
        .add::<__path_set_link, _, _>(set_link)
        .add::<__path_list_shares, _, _>(list_shares)
        .add::<__path_set_share, _, _>(set_share)
        .add::<__path_list_agents, _, _>(list_agents)
        .add::<__path_set_agent, _, _>(set_agent)
        .add::<__path_list_audit, _, _>(list_audit);
}

fn works() -> JsonAnswer<Health> {
    JsonAnswer(Health {
        status: "ok".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

/// Says that the process runs
#[utoipa::path(
    get, path = "/health", security(()),
    responses((status = 200, description = "It does", body = Health)),
)]
pub(super) async fn health() -> JsonAnswer<Health> {
    works()
}

/// Says whether requests can be served: the database answers, and the process is not stopping
#[utoipa::path(
    get, path = "/ready", security(()),
    responses((status = 200, description = "They can", body = Health)),
)]
pub(super) async fn ready(State(api): State<Arc<Api>>) -> Answer<JsonAnswer<Health>> {
    if *api.stopping.borrow() {
        return Err(ApiError::new(
            Kind::Stopping,
            "ask another process of the service",
        ));
    }
    api.store.now().await?;
    Ok(works())
}

/// Lists endpoints that an operator has set or that jobs have named
#[utoipa::path(
    get, path = "/api/v1/endpoints",
    responses((status = 200, description = "By name", body = Vec<EndpointView>)),
)]
pub(super) async fn list_endpoints(
    State(api): State<Arc<Api>>,
    Operator(_): Operator,
) -> Answer<JsonAnswer<Vec<EndpointView>>> {
    Ok(JsonAnswer(api.endpoint_views().await?))
}

/// Sets state and limits of an endpoint
#[utoipa::path(
    put, path = "/api/v1/endpoints", request_body = EndpointRequest,
    responses((status = 204, description = "It is set")),
)]
pub(super) async fn set_endpoint(
    State(api): State<Arc<Api>>,
    Operator(operator): Operator,
    Json(request): Json<EndpointRequest>,
) -> Answer<StatusCode> {
    api.change_endpoint(&operator.name, request).await?;
    Ok(StatusCode::NO_CONTENT)
}

impl Api {
    /// Endpoints that an operator has set or that jobs have named, by name, and what they do. An
    /// endpoint has what its pairs have.
    pub(crate) async fn endpoint_views(&self) -> Answer<Vec<EndpointView>> {
        let endpoints = self.store.endpoints().await?;
        let mut now: HashMap<String, LinkNow> = HashMap::new();
        let links = self.store.links_now().await?;
        for link in self.store.links().await? {
            let Some(of_link) = links.get(&link.number) else {
                continue;
            };
            // A pair may have the same endpoint at both ends.
            let ends = BTreeSet::from([link.source, link.destination]);
            for end in ends {
                let all = now.entry(end).or_default();
                all.goodput += of_link.goodput;
                all.waiting_files = all.waiting_files.saturating_add(of_link.waiting_files);
                let (sum, pace) = (&mut all.pace, &of_link.pace);
                sum.sessions = sum.sessions.saturating_add(pace.sessions);
                sum.channels = sum.channels.saturating_add(pace.channels);
            }
        }
        let views = endpoints.into_iter().map(|endpoint| {
            let now = now.remove(&endpoint.name).unwrap_or_default();
            EndpointView {
                name: endpoint.name,
                state: endpoint.state,
                limits: endpoint.limits,
                sessions: now.pace.sessions,
                channels: now.pace.channels,
                goodput: now.goodput,
                files_waiting: now.waiting_files,
                why: Vec::new(),
            }
        });
        Ok(views.collect())
    }

    /// Sets state and limits of an endpoint.
    pub(crate) async fn change_endpoint(&self, who: &str, request: EndpointRequest) -> Answer<()> {
        let record = EndpointRecord {
            name: endpoint_named(&request.name, "/name")?,
            state: request.state,
            limits: request.limits,
        };
        self.put_endpoint(who, &record, "").await
    }

    /// Sets limits of a pair of endpoints.
    pub(crate) async fn change_link(&self, who: &str, link: LinkView) -> Answer<()> {
        let source = endpoint_named(&link.source, "/source")?;
        let destination = endpoint_named(&link.destination, "/destination")?;
        self.store
            .set_link(&source, &destination, &link.limits)
            .await?;
        self.board.work_came();
        let subject = format!("{source} {destination}");
        let detail = format!("{:?}", link.limits);
        self.audit(who, "link.set", &subject, &detail).await;
        Ok(())
    }

    /// The tree of shares, by path.
    pub(crate) async fn share_views(&self) -> Answer<Vec<ShareView>> {
        let shares = self.store.shares().await?;
        let parent = |path: &str| path.rsplit_once('/').map(|(parent, _)| parent.to_owned());
        let mut sums: HashMap<Option<String>, f64> = HashMap::new();
        for share in &shares {
            *sums.entry(parent(&share.path)).or_default() += share.weight;
        }
        let views = shares.into_iter().map(|share| {
            let all = sums.get(&parent(&share.path)).copied().unwrap_or_default();
            ShareView {
                fair: share.weight / all,
                path: share.path,
                weight: share.weight,
                used: 0.0,
            }
        });
        Ok(views.collect())
    }

    /// Sets or removes a share.
    pub(crate) async fn change_share(&self, who: &str, share: ShareRequest) -> Answer<()> {
        let is_path = is_plain(&share.path) && share.path.split('/').all(|node| !node.is_empty());
        if !is_path {
            let error = ApiError::new(Kind::Invalid, "a path is names with / between");
            return Err(error.at("/path"));
        }
        if !share
            .weight
            .is_none_or(|weight| (1e-6..=1e6).contains(&weight))
        {
            return Err(ApiError::new(Kind::Invalid, "0.000001 to 1000000").at("/weight"));
        }
        self.store.set_share(&share.path, share.weight).await?;
        self.board.work_came();
        let detail = share
            .weight
            .map_or("removed".to_owned(), |weight| weight.to_string());
        self.audit(who, "share.set", &share.path, &detail).await;
        Ok(())
    }

    /// Agents that have polled, by name.
    pub(crate) async fn agent_views(&self) -> Answer<Vec<AgentView>> {
        let agents = self.store.agents().await?;
        Ok(agents.into_iter().map(agent_view).collect())
    }

    /// At most `limit` agents after the one of this number, in the order of numbers, and the number
    /// of the last where there may be more.
    pub(crate) async fn agent_page(
        &self,
        after: i64,
        limit: i64,
    ) -> Answer<(Vec<AgentView>, Option<i64>)> {
        let agents = self.store.some_agents(Which::After(after, limit)).await?;
        let is_full = agents.len() as i64 == limit;
        let last = agents.last().filter(|_| is_full).map(|agent| agent.number);
        Ok((agents.into_iter().map(agent_view).collect(), last))
    }

    /// Lets an agent have new work, or not.
    pub(crate) async fn change_agent(
        &self,
        who: &str,
        name: &str,
        request: AgentRequest,
    ) -> Answer<()> {
        self.store.set_draining(name, request.draining).await?;
        self.board.work_came();
        let detail = format!("draining {}", request.draining);
        self.audit(who, "agent.set", name, &detail).await;
        Ok(())
    }

    /// Sets an endpoint, for a reason that the audit keeps.
    pub(crate) async fn put_endpoint(
        &self,
        who: &str,
        record: &EndpointRecord,
        reason: &str,
    ) -> Answer<()> {
        self.store.set_endpoint(record).await?;
        self.board.work_came();
        let detail = format!("{:?} {:?} {reason}", record.state, record.limits);
        self.audit(who, "endpoint.set", &record.name, detail.trim_end())
            .await;
        Ok(())
    }
}

/// The endpoint as jobs have it.
fn endpoint_named(name: &str, pointer: &str) -> Answer<String> {
    let is_bare = |(_, rest): (&str, &str)| !rest.contains(['/', '?', '#', '@']);
    let is_name = is_plain(name) && name.split_once("://").is_some_and(is_bare);
    let endpoint = endpoint_of(name).filter(|_| is_name);
    endpoint.ok_or_else(|| {
        let detail = "an endpoint is scheme://host or scheme://host:port";
        ApiError::new(Kind::Invalid, detail).at(pointer)
    })
}

/// Lists pairs of endpoints that jobs or an operator have named
#[utoipa::path(
    get, path = "/api/v1/links",
    responses((status = 200, description = "All", body = Vec<LinkView>)),
)]
pub(super) async fn list_links(
    State(api): State<Arc<Api>>,
    Operator(_): Operator,
) -> Answer<JsonAnswer<Vec<LinkView>>> {
    let links = api.store.links().await?.into_iter().map(|link| LinkView {
        source: link.source,
        destination: link.destination,
        limits: link.limits,
    });
    Ok(JsonAnswer(links.collect()))
}

/// Sets limits of a pair of endpoints
#[utoipa::path(
    put, path = "/api/v1/links", request_body = LinkView,
    responses((status = 204, description = "They are set")),
)]
pub(super) async fn set_link(
    State(api): State<Arc<Api>>,
    Operator(operator): Operator,
    Json(link): Json<LinkView>,
) -> Answer<StatusCode> {
    api.change_link(&operator.name, link).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists the tree of shares
#[utoipa::path(
    get, path = "/api/v1/shares",
    responses((status = 200, description = "By path", body = Vec<ShareView>)),
)]
pub(super) async fn list_shares(
    State(api): State<Arc<Api>>,
    Operator(_): Operator,
) -> Answer<JsonAnswer<Vec<ShareView>>> {
    Ok(JsonAnswer(api.share_views().await?))
}

/// Sets or removes a share
#[utoipa::path(
    put, path = "/api/v1/shares", request_body = ShareRequest,
    responses((status = 204, description = "It is set")),
)]
pub(super) async fn set_share(
    State(api): State<Arc<Api>>,
    Operator(operator): Operator,
    Json(share): Json<ShareRequest>,
) -> Answer<StatusCode> {
    api.change_share(&operator.name, share).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists agents that have polled
#[utoipa::path(
    get, path = "/api/v1/agents",
    responses((status = 200, description = "By name", body = Vec<AgentView>)),
)]
pub(super) async fn list_agents(
    State(api): State<Arc<Api>>,
    Operator(_): Operator,
) -> Answer<JsonAnswer<Vec<AgentView>>> {
    Ok(JsonAnswer(api.agent_views().await?))
}

fn agent_view(agent: AgentRecord) -> AgentView {
    let goodput = agent.report.units.iter().map(|unit| unit.goodput).sum();
    AgentView {
        name: agent.name,
        version: agent.description.version,
        labels: agent.description.labels,
        alive: agent.alive,
        draining: agent.draining,
        units: agent.units,
        slots: agent.description.slots,
        goodput: if agent.alive { goodput } else { 0.0 },
        seen: Some(agent.seen),
    }
}

/// Lets an agent have new work, or not
#[utoipa::path(
    patch, path = "/api/v1/agents/{name}", request_body = AgentRequest,
    params(("name" = String, Path, description = "Agent")),
    responses((status = 204, description = "It is set")),
)]
pub(super) async fn set_agent(
    State(api): State<Arc<Api>>,
    Operator(operator): Operator,
    Name(name): Name,
    Json(request): Json<AgentRequest>,
) -> Answer<StatusCode> {
    api.change_agent(&operator.name, &name, request).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AuditQuery {
    /// `next` of the page before
    cursor: Option<String>,
    /// Most entries of the page, up to 1000
    limit: Option<u32>,
}

/// Lists who did what, latest first
#[utoipa::path(
    get, path = "/api/v1/audit", params(AuditQuery),
    responses((status = 200, description = "A page", body = Page<AuditView>)),
)]
pub(super) async fn list_audit(
    State(api): State<Arc<Api>>,
    Operator(_): Operator,
    Asked(asked): Asked<AuditQuery>,
) -> Answer<JsonAnswer<Page<AuditView>>> {
    let place = cursor::decode("audit", asked.cursor.as_deref())?;
    let before = match place.map(|place| place.parse()) {
        Some(Ok(before)) => before,
        Some(Err(_)) => return Err(ApiError::new(Kind::Cursor, "use `next` of the page before")),
        None => i64::MAX,
    };
    let limit = asked.limit.unwrap_or(DEFAULT_PAGE).clamp(1, MAX_PAGE);
    let records = api.store.audits(before, limit).await?;
    let is_full = records.len() == limit as usize;
    let last = records
        .last()
        .filter(|_| is_full)
        .map(|record| record.number.to_string());
    let items = records.into_iter().map(|record| AuditView {
        number: record.number,
        at: record.at,
        who: record.who,
        action: record.action,
        subject: record.subject,
        detail: record.detail,
    });
    Ok(JsonAnswer(Page {
        items: items.collect(),
        next: cursor::encode("audit", last),
    }))
}

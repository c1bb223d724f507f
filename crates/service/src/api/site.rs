//! Endpoints, links, shares, agents, the audit, and whether the service works.

use std::sync::Arc;

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
    endpoint_of,
    model::{AgentRecord, EndpointRecord},
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
    let endpoints = api.store.endpoints().await?;
    Ok(JsonAnswer(
        endpoints.into_iter().map(endpoint_view).collect(),
    ))
}

fn endpoint_view(endpoint: EndpointRecord) -> EndpointView {
    EndpointView {
        name: endpoint.name,
        state: endpoint.state,
        limits: endpoint.limits,
        sessions: 0,
        channels: 0,
        goodput: 0.0,
        files_waiting: 0,
        why: Vec::new(),
    }
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
    let record = EndpointRecord {
        name: endpoint_named(&request.name, "/name")?,
        state: request.state,
        limits: request.limits,
    };
    api.put_endpoint(&operator.name, &record, "").await?;
    Ok(StatusCode::NO_CONTENT)
}

impl Api {
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
    let source = endpoint_named(&link.source, "/source")?;
    let destination = endpoint_named(&link.destination, "/destination")?;
    api.store
        .set_link(&source, &destination, &link.limits)
        .await?;
    api.board.work_came();
    let subject = format!("{source} {destination}");
    api.audit(
        &operator.name,
        "link.set",
        &subject,
        &format!("{:?}", link.limits),
    )
    .await;
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
    let shares = api.store.shares().await?;
    let parent = |path: &str| path.rsplit_once('/').map(|(parent, _)| parent.to_owned());
    let views = shares.iter().map(|share| {
        let siblings = shares
            .iter()
            .filter(|other| parent(&other.path) == parent(&share.path));
        let all: f64 = siblings.map(|other| other.weight).sum();
        ShareView {
            path: share.path.clone(),
            weight: share.weight,
            used: 0.0,
            fair: share.weight / all,
        }
    });
    Ok(JsonAnswer(views.collect()))
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
    api.store.set_share(&share.path, share.weight).await?;
    api.board.work_came();
    let detail = share
        .weight
        .map_or("removed".to_owned(), |weight| weight.to_string());
    api.audit(&operator.name, "share.set", &share.path, &detail)
        .await;
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
    let agents = api.store.agents().await?;
    Ok(JsonAnswer(agents.into_iter().map(agent_view).collect()))
}

fn agent_view(agent: AgentRecord) -> AgentView {
    AgentView {
        name: agent.name,
        version: agent.description.version,
        labels: agent.description.labels,
        alive: agent.alive,
        draining: agent.draining,
        units: agent.units,
        slots: agent.description.slots,
        goodput: 0.0,
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
    api.store.set_draining(&name, request.draining).await?;
    api.board.work_came();
    let detail = format!("draining {}", request.draining);
    api.audit(&operator.name, "agent.set", &name, &detail).await;
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

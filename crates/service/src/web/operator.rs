//! What operators set, and who did what.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Redirect, Response},
};
use godwit_service_api::site::{EndpointRequest, EndpointState, Limits, LinkView, ShareRequest};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    Web,
    frame::{PageResult, notice, with_status},
    layout::{Place, page as whole, token},
    network::state_name,
    text::{brief, time, visible},
    visitor::{Form, OperatorVisitor, PageQuery, Posted, Visitor, check_operator},
};
use crate::{
    problem::{Answer, ApiError},
    store::{endpoint_of, model::EndpointRecord},
};

/// Entries of the audit that are shown.
const AUDITS: u32 = 40;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct OperatorQuery {
    endpoint: String,
    source: String,
    destination: String,
    done: String,
}

/// What the forms begin with.
#[derive(Default)]
struct Filled {
    endpoint: Option<EndpointRecord>,
    source: String,
    destination: String,
    link: Limits,
}

pub(super) async fn page(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    PageQuery(asked): PageQuery<OperatorQuery>,
) -> PageResult {
    let done = !asked.done.is_empty();
    let body = body(&web, &visitor, asked, None, done).await?;
    Ok(whole(&visitor, Place::Operator, "Operator", &body))
}

/// Sets an endpoint, a link or a share.
pub(super) async fn set(
    State(web): State<Web>,
    Path(what): Path<String>,
    posted: Posted,
) -> PageResult {
    let Posted { visitor, form } = posted;
    check_operator(&visitor)?;
    match change(&web, &visitor, &what, &form).await {
        Ok(()) => Ok(Redirect::to("/operator?done=yes").into_response()),
        Err(error) => {
            let asked = OperatorQuery::default();
            let body = body(&web, &visitor, asked, Some(&error), false).await?;
            let answer: Response = whole(&visitor, Place::Operator, "Operator", &body);
            Ok(with_status(&error, answer))
        }
    }
}

async fn change(web: &Web, visitor: &Visitor, what: &str, form: &Form) -> Answer<()> {
    let (api, who) = (&web.api, visitor.caller.name());
    match what {
        "endpoint" => {
            let request = EndpointRequest {
                name: form.text("name").to_owned(),
                state: form.choice("state")?.unwrap_or_default(),
                limits: limits(form)?,
            };
            api.change_endpoint(who, request).await
        }
        "link" => {
            let link = LinkView {
                source: form.text("source").to_owned(),
                destination: form.text("destination").to_owned(),
                limits: limits(form)?,
            };
            api.change_link(who, link).await
        }
        "share" => {
            let share = ShareRequest {
                path: form.text("path").to_owned(),
                weight: form.number("weight")?,
            };
            api.change_share(who, share).await
        }
        _ => Err(ApiError::not_found()),
    }
}

fn limits(form: &Form) -> Answer<Limits> {
    // Rates are in bits a second for people.
    let megabits: Option<u64> = form.number("megabits")?;
    Ok(Limits {
        sessions: form.number("sessions")?,
        channels: form.number("channels")?,
        bytes_per_second: megabits.map(|rate| rate.saturating_mul(125_000)),
        files_per_second: form.number("files_per_second")?,
    })
}

async fn filled(web: &Web, asked: OperatorQuery) -> Answer<Filled> {
    let store = web.api.store();
    let mut filled = Filled {
        source: asked.source,
        destination: asked.destination,
        ..Filled::default()
    };
    if let Some(name) = endpoint_of(&asked.endpoint) {
        let mut endpoints = store.endpoints().await?.into_iter();
        filled.endpoint = endpoints.find(|endpoint| endpoint.name == name);
    }
    if !filled.source.is_empty() {
        let mut links = store.links().await?.into_iter();
        let is_it = |link: &crate::store::model::LinkRecord| {
            link.source == filled.source && link.destination == filled.destination
        };
        filled.link = links
            .find(is_it)
            .map(|link| link.limits)
            .unwrap_or_default();
    }
    Ok(filled)
}

async fn body(
    web: &Web,
    visitor: &Visitor,
    asked: OperatorQuery,
    error: Option<&ApiError>,
    done: bool,
) -> Answer<Markup> {
    let filled = filled(web, asked).await?;
    let audits = web.api.store().audits(i64::MAX, AUDITS).await?;
    Ok(html! {
        h1 { "Operator" }
        p class="lede" {
            "What is set here holds over all agents and jobs, from the next seconds on."
        }
        @if let Some(error) = error { (notice(error)) }
        @if done { div class="notice" role="status" { p { "It is set." } } }
        (endpoint_form(visitor, filled.endpoint.as_ref()))
        (link_form(visitor, &filled))
        (share_form(visitor))
        h2 { "Who did what" }
        div class="scroll" {
            table {
                caption { "The audit, the latest first; at most " (AUDITS) }
                thead {
                    tr {
                        th scope="col" { "When" }
                        th scope="col" { "Who" }
                        th scope="col" { "What" }
                        th scope="col" class="middle" { "Of what" }
                        th scope="col" class="wide" { "Detail" }
                    }
                }
                tbody {
                    @for entry in &audits {
                        tr {
                            td class="when" { (time(entry.at)) }
                            td { (brief(&entry.who)) }
                            td { code { (brief(&entry.action)) } }
                            td class="middle" { (brief(&entry.subject)) }
                            td class="wide small" { (visible(&entry.detail)) }
                        }
                    }
                }
            }
        }
    })
}

fn endpoint_form(visitor: &Visitor, endpoint: Option<&EndpointRecord>) -> Markup {
    let now = endpoint.map(|endpoint| endpoint.state).unwrap_or_default();
    let limits = endpoint.map(|endpoint| endpoint.limits).unwrap_or_default();
    let states = [
        (EndpointState::Open, "open: it takes work"),
        (EndpointState::Draining, "draining: what runs continues"),
        (EndpointState::Banned, "banned: nothing runs"),
    ];
    html! {
        form class="sheet" id="endpoint" method="post" action="/operator/endpoint" {
            h2 { "An endpoint" }
            (token(visitor))
            div class="field" {
                label for="endpoint-name" { "Endpoint" }
                input class="url" id="endpoint-name" name="name" required spellcheck="false"
                    placeholder="gsiftp://a.example.org" maxlength="2048"
                    value=(endpoint.map_or("", |endpoint| endpoint.name.as_str()));
            }
            div class="field" {
                label for="endpoint-state" { "State" }
                select id="endpoint-state" name="state" {
                    @for (state, text) in states {
                        option value=(state_name(state)) selected[state == now] { (text) }
                    }
                }
            }
            (limit_fields("endpoint", &limits))
            button type="submit" { "Set the endpoint" }
        }
    }
}

fn link_form(visitor: &Visitor, filled: &Filled) -> Markup {
    let ends = [
        ("source", "From", &filled.source),
        ("destination", "To", &filled.destination),
    ];
    html! {
        form class="sheet" id="link" method="post" action="/operator/link" {
            h2 { "A link" }
            (token(visitor))
            div class="columns" {
                @for (name, label, value) in ends {
                    div class="field" {
                        label for=(format!("link-{name}")) { (label) }
                        input class="url" id=(format!("link-{name}")) name=(name) required
                            spellcheck="false" maxlength="2048" value=(value);
                    }
                }
            }
            (limit_fields("link", &filled.link))
            button type="submit" { "Set the link" }
        }
    }
}

/// Empty fields are no limits.
fn limit_fields(of: &str, limits: &Limits) -> Markup {
    let fields = [
        ("sessions", "Sessions", limits.sessions.map(u64::from)),
        ("channels", "Data channels", limits.channels.map(u64::from)),
        (
            "megabits",
            "Rate, Mbit/s",
            limits.bytes_per_second.map(|rate| rate / 125_000),
        ),
        (
            "files_per_second",
            "Files that start in a second",
            limits.files_per_second.map(u64::from),
        ),
    ];
    html! {
        div class="columns" {
            @for (name, label, value) in fields {
                div class="field" {
                    label for=(format!("{of}-{name}")) { (label) }
                    input id=(format!("{of}-{name}")) name=(name) type="number" min="0"
                        value=[value];
                }
            }
        }
        p class="hint" { "An empty field sets no limit." }
    }
}

fn share_form(visitor: &Visitor) -> Markup {
    html! {
        form class="sheet" id="share" method="post" action="/operator/share" {
            h2 { "A share" }
            (token(visitor))
            div class="columns" {
                div class="field" {
                    label for="share-path" { "Path" }
                    input id="share-path" name="path" required spellcheck="false"
                        placeholder="physics/alice" maxlength="200";
                }
                div class="field" {
                    label for="share-weight" { "Weight; empty removes it" }
                    input id="share-weight" name="weight" inputmode="decimal";
                }
            }
            button type="submit" { "Set the share" }
        }
    }
}

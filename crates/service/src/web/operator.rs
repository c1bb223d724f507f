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
    list::{self, Column, table},
    network::state_name,
    text::{brief, time, visible},
    visitor::{Form, OperatorVisitor, PageQuery, Posted, Visitor, check_operator},
};
use crate::{
    problem::{Answer, ApiError, Kind},
    store::{endpoint_of, model::EndpointRecord},
};

/// Bytes a second of a megabit a second.
const MEGABIT: u64 = 125_000;

/// Name of the field of forms that says whose values they began with.
const SHOWN: &str = "shown";

/// Entries of the audit that are shown.
const AUDITS: u32 = 40;

const COLUMNS: [Column; 5] = [
    ("When", ""),
    ("Who", ""),
    ("What", ""),
    ("Of what", "middle"),
    ("Detail", "wide"),
];

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
    /// `None`: it is none yet.
    link: Option<Limits>,
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
            // What is there already is shown, so that it can be changed.
            let asked = match error.problem().status {
                409 => OperatorQuery {
                    endpoint: form.text("name").to_owned(),
                    source: form.text("source").to_owned(),
                    destination: form.text("destination").to_owned(),
                    done: String::new(),
                },
                _ => OperatorQuery::default(),
            };
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
            let name = canonical(&request.name);
            let mut endpoints = api.store().endpoints().await?.into_iter();
            check_shown(form, &name, endpoints.any(|endpoint| endpoint.name == name))?;
            api.change_endpoint(who, request).await
        }
        "link" => {
            let link = LinkView {
                source: form.text("source").to_owned(),
                destination: form.text("destination").to_owned(),
                limits: limits(form)?,
            };
            let ends = [&link.source, &link.destination].map(|end| canonical(end));
            let mut links = api.store().links().await?.into_iter();
            let is_there =
                links.any(|link| [&link.source, &link.destination] == [&ends[0], &ends[1]]);
            check_shown(form, &ends.join(" "), is_there)?;
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

/// An endpoint as the database names it.
fn canonical(name: &str) -> String {
    endpoint_of(name).unwrap_or_else(|| name.to_owned())
}

/// A form sets all of its fields: what is there already is changed by a form that has shown it.
fn check_shown(form: &Form, name: &str, is_there: bool) -> Answer<()> {
    if !is_there || form.text(SHOWN) == name {
        return Ok(());
    }
    let detail = format!("{name} is there already: its form below has what is set now");
    Err(ApiError::new(Kind::Conflict, detail))
}

fn limits(form: &Form) -> Answer<Limits> {
    // Rates are in bits a second for people.
    let rate = form.maybe("megabits").map(|text| {
        let wrong = || ApiError::new(Kind::Invalid, "megabits a second, as 2.5").at("/megabits");
        bytes_of_megabits(text).ok_or_else(wrong)
    });
    Ok(Limits {
        sessions: form.number("sessions")?,
        channels: form.number("channels")?,
        bytes_per_second: rate.transpose()?,
        files_per_second: form.number("files_per_second")?,
    })
}

/// All digits of a rate: what a form shows is what it sets.
fn megabits_of_bytes(bytes: u64) -> String {
    let (whole, rest) = (bytes / MEGABIT, bytes % MEGABIT * 8);
    let text = format!("{whole}.{rest:06}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A part of a byte counts as one: no rate but 0 becomes 0.
fn bytes_of_megabits(text: &str) -> Option<u64> {
    let (whole, rest) = text.split_once('.').unwrap_or((text, "0"));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !are_digits(whole) || !are_digits(rest) || rest.len() > 6 {
        return None;
    }
    let bits: u64 = format!("{rest:0<6}").parse().ok()?;
    let bytes = whole.parse::<u64>().ok()?.checked_mul(MEGABIT)?;
    bytes.checked_add(bits.div_ceil(8))
}

async fn filled(web: &Web, asked: OperatorQuery) -> Answer<Filled> {
    let store = web.api.store();
    let mut filled = Filled {
        source: canonical(&asked.source),
        destination: canonical(&asked.destination),
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
        filled.link = links.find(is_it).map(|link| link.limits);
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
        (list::done(done.then_some("It is set.")))
        (endpoint_form(visitor, filled.endpoint.as_ref()))
        (link_form(visitor, &filled))
        (share_form(visitor))
        h2 { "Who did what" }
        (table(html! { "The audit, the latest first; at most " (AUDITS) }, &COLUMNS, &html! {
            @for entry in &audits {
                tr {
                    td class="when" { (time(entry.at)) }
                    td { (brief(&entry.who)) }
                    td { code { (brief(&entry.action)) } }
                    td class="middle" { (brief(&entry.subject)) }
                    td class="wide small" { (visible(&entry.detail)) }
                }
            }
        }))
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
            @if let Some(endpoint) = endpoint { (shown(&endpoint.name)) }
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
            @if filled.link.is_some() {
                (shown(&format!("{} {}", filled.source, filled.destination)))
            }
            div class="columns" {
                @for (name, label, value) in ends {
                    div class="field" {
                        label for=(format!("link-{name}")) { (label) }
                        input class="url" id=(format!("link-{name}")) name=(name) required
                            spellcheck="false" maxlength="2048" value=(value);
                    }
                }
            }
            (limit_fields("link", &filled.link.unwrap_or_default()))
            button type="submit" { "Set the link" }
        }
    }
}

/// Whose values a form has.
fn shown(name: &str) -> Markup {
    html! { input type="hidden" name=(SHOWN) value=(name); }
}

/// Empty fields are no limits.
fn limit_fields(of: &str, limits: &Limits) -> Markup {
    let number = |limit: Option<u32>| limit.map(|limit| limit.to_string());
    let rate = limits.bytes_per_second.map(megabits_of_bytes);
    let files = number(limits.files_per_second);
    let fields = [
        ("sessions", "Sessions", number(limits.sessions), "1"),
        ("channels", "Data channels", number(limits.channels), "1"),
        ("megabits", "Rate, Mbit/s", rate, "any"),
        (
            "files_per_second",
            "Files that start in a second",
            files,
            "1",
        ),
    ];
    html! {
        div class="columns" {
            @for (name, label, value, step) in fields {
                div class="field" {
                    label for=(format!("{of}-{name}")) { (label) }
                    input id=(format!("{of}-{name}")) name=(name) type="number" min="0"
                        step=(step) value=[value];
                }
            }
        }
        p class="hint" { "An empty field: no limit. What is set already is shown first." }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_the_same_after_it_was_shown() {
        for bytes in [0, 1, 124_999, 125_000, 312_500, 1_000_001, u64::MAX] {
            let text = megabits_of_bytes(bytes);
            assert_eq!(bytes_of_megabits(&text), Some(bytes), "{text}");
        }
        assert_eq!(megabits_of_bytes(312_500), "2.5");
        assert_eq!(bytes_of_megabits("0.000001"), Some(1));
        for wrong in [
            "",
            ".",
            "1.",
            "-1",
            "1e3",
            "1.0000001",
            "99999999999999999999",
        ] {
            assert_eq!(bytes_of_megabits(wrong), None, "{wrong}");
        }
    }
}

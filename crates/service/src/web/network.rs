//! Endpoints, and the pairs of them that files go between.

use std::{cmp::Ordering, collections::BTreeMap};

use axum::extract::State;
use godwit_service_api::site::{EndpointState, EndpointView, Limits};
use maud::{Markup, html};

use super::{
    Web,
    frame::PageResult,
    layout::{Place, page},
    list::{CHANGE, Column, table},
    text::{brief, bytes, count, of_limit, percent, rate, state},
    visitor::OperatorVisitor,
};
use crate::{
    problem::Answer,
    store::model::{LinkNow, LinkRecord, LinkTally},
};

/// Rows of a table.
const ROWS: usize = 100;

/// Rows and columns of the matrix.
const MATRIX: usize = 8;

const ENDPOINT_COLUMNS: [Column; 9] = [
    ("Endpoint", ""),
    ("State", "middle"),
    ("Goodput", "number"),
    ("Waiting files", "number"),
    ("Sessions", "number middle"),
    ("Channels", "number wide"),
    ("Files/s", "number wide"),
    ("Success, 24 h", "number middle"),
    CHANGE,
];

const LINK_COLUMNS: [Column; 9] = [
    ("From and to", ""),
    ("Goodput", "number"),
    ("Waiting files", "number"),
    ("Units", "number middle"),
    ("Sessions", "number middle"),
    ("Channels", "number middle"),
    ("Success, 24 h", "number wide"),
    ("Copied, 24 h", "number wide"),
    CHANGE,
];

/// A pair of endpoints, and how it does.
struct LinkRow {
    record: LinkRecord,
    now: LinkNow,
    day: LinkTally,
}

impl LinkRow {
    /// The busiest come first.
    fn order(&self, other: &LinkRow) -> Ordering {
        let ended = |link: &LinkRow| link.day.finished + link.day.failed;
        let waiting = other.now.waiting_files.cmp(&self.now.waiting_files);
        let goodput = other.now.goodput.total_cmp(&self.now.goodput);
        goodput.then(waiting).then(ended(other).cmp(&ended(self)))
    }
}

async fn links_of(web: &Web) -> Answer<Vec<LinkRow>> {
    let store = web.api.store();
    let (mut now, mut day) = (store.links_now().await?, store.link_tallies().await?);
    let links = store.links().await?.into_iter();
    let mut links: Vec<LinkRow> = links
        .map(|record| LinkRow {
            now: now.remove(&record.number).unwrap_or_default(),
            day: day.remove(&record.number).unwrap_or_default(),
            record,
        })
        .collect();
    links.sort_by(LinkRow::order);
    Ok(links)
}

pub(super) async fn endpoints(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
) -> PageResult {
    let mut days: BTreeMap<String, LinkTally> = BTreeMap::new();
    for link in links_of(&web).await? {
        let ends = [link.record.source, link.record.destination];
        let both = ends[0] != ends[1];
        for end in ends.into_iter().take(if both { 2 } else { 1 }) {
            let all = days.entry(end).or_default();
            all.finished += link.day.finished;
            all.failed += link.day.failed;
        }
    }
    let mut endpoints = web.api.endpoint_views().await?;
    // Names are in order already.
    endpoints.sort_by(|one, other| {
        let goodput = other.goodput.total_cmp(&one.goodput);
        goodput.then(other.files_waiting.cmp(&one.files_waiting))
    });
    let all = endpoints.len();
    let body = html! {
        h1 { "Endpoints" }
        p class="lede" { "What endpoints use of what they may, and what waits for them." }
        @if endpoints.is_empty() {
            p class="none" { "No job has named an endpoint yet." }
        } @else {
            (table(
                html! { "Endpoints, the busiest first" (of_all(all)) },
                &ENDPOINT_COLUMNS,
                &html! {
                    @for endpoint in endpoints.iter().take(ROWS) {
                        (endpoint_row(endpoint, days.get(&endpoint.name)))
                    }
                },
            ))
        }
    };
    Ok(page(&visitor, Place::Endpoints, "Endpoints", &body))
}

fn of_all(all: usize) -> Markup {
    html! { @if all > ROWS { "; " (ROWS) " of " (all) } }
}

fn endpoint_row(endpoint: &EndpointView, day: Option<&LinkTally>) -> Markup {
    let limits = &endpoint.limits;
    html! {
        tr {
            th scope="row" class="url" {
                (brief(&endpoint.name).in_parts())
                // A telephone has no room for a column of it.
                span class="narrow" { (state(state_name(endpoint.state))) }
            }
            td class="middle" { (state(state_name(endpoint.state))) }
            td class="number" { (goodput(endpoint.goodput, limits)) }
            td class="number" { (count(endpoint.files_waiting)) }
            td class="number middle" {
                (of_limit(endpoint.sessions.into(), limits.sessions.map(u64::from)))
            }
            td class="number wide" {
                (of_limit(endpoint.channels.into(), limits.channels.map(u64::from)))
            }
            td class="number wide" {
                @if let Some(limit) = limits.files_per_second {
                    span class="soft" { "at most " (limit) }
                }
            }
            td class="number middle" { (success(day)) }
            td { a href=(change_path(&[("endpoint", &endpoint.name)])) {
                "Change" span class="unseen" { " " (brief(&endpoint.name)) }
            } }
        }
    }
}

pub(super) fn state_name(state: EndpointState) -> &'static str {
    match state {
        EndpointState::Open => "open",
        EndpointState::Draining => "draining",
        EndpointState::Banned => "banned",
    }
}

fn goodput(now: f64, limits: &Limits) -> Markup {
    html! {
        (rate(now))
        @if let Some(limit) = limits.bytes_per_second {
            br; span class="soft small" { "of " (rate(limit as f64)) }
        }
    }
}

fn success(day: Option<&LinkTally>) -> Markup {
    let ended = day.map_or(0, |day| day.finished + day.failed);
    html! {
        @match day.filter(|_| ended > 0) {
            Some(day) => {
                (percent(day.finished, ended)) " %"
                br; span class="soft small" { "of " (count(ended)) }
            }
            None => { span class="soft" { "–" } }
        }
    }
}

fn change_path(pairs: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, text) in pairs {
        query.append_pair(name, text);
    }
    // What is longer than a page allows can still be typed there.
    let path = format!("/operator?{}", query.finish());
    match path.len() <= 500 {
        true => path,
        false => "/operator".to_owned(),
    }
}

pub(super) async fn links(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
) -> PageResult {
    let links = links_of(&web).await?;
    let body = html! {
        h1 { "Links" }
        p class="lede" { "Pairs of endpoints that jobs or an operator have named." }
        @if links.is_empty() {
            p class="none" { "No job has named a pair of endpoints yet." }
        } @else {
            (matrix(&links))
            (all_links(&links))
        }
    };
    Ok(page(&visitor, Place::Links, "Links", &body))
}

/// The busiest endpoints, from and to.
fn matrix(links: &[LinkRow]) -> Markup {
    let mut sources: Vec<&str> = Vec::new();
    let mut destinations: Vec<&str> = Vec::new();
    for link in links {
        let ends = [
            (&mut sources, &link.record.source),
            (&mut destinations, &link.record.destination),
        ];
        for (list, end) in ends {
            if list.len() < MATRIX && !list.contains(&end.as_str()) {
                list.push(end);
            }
        }
    }
    let of = |source: &str, destination: &str| {
        let mut links = links.iter();
        links.find(|link| link.record.source == source && link.record.destination == destination)
    };
    html! {
        // All that it shows is in the table below, too, which fits a telephone.
        div class="scroll middle" {
            table class="matrix" {
                caption { "Goodput now, and success of the last 24 hours, between the busiest" }
                thead {
                    tr {
                        th scope="col" { "From \\ to" }
                        @for end in &destinations {
                            th scope="col" class="url" { (brief(end).in_parts()) }
                        }
                    }
                }
                tbody {
                    @for source in &sources {
                        tr {
                            th scope="row" class="url" { (brief(source).in_parts()) }
                            @for destination in &destinations { (cell(of(source, destination))) }
                        }
                    }
                }
            }
        }
    }
}

fn cell(link: Option<&LinkRow>) -> Markup {
    html! {
        @match link {
            Some(link) => {
                td class=(if link.now.goodput > 0.0 { "moves" } else { "" }) {
                    (rate(link.now.goodput))
                    br; span class="soft small" { (success_line(&link.day)) }
                }
            }
            None => { td class="empty" { "·" span class="unseen" { "no files" } } }
        }
    }
}

fn success_line(day: &LinkTally) -> String {
    let ended = day.finished + day.failed;
    match ended {
        0 => "nothing ended".to_owned(),
        _ => format!("{} % of {}", percent(day.finished, ended), count(ended)),
    }
}

fn all_links(links: &[LinkRow]) -> Markup {
    let caption = html! { "Links, the busiest first" (of_all(links.len())) };
    html! {
        h2 { "All" }
        (table(caption, &LINK_COLUMNS, &html! {
            @for link in links.iter().take(ROWS) { (link_row(link)) }
        }))
    }
}

fn link_row(link: &LinkRow) -> Markup {
    let LinkRow { record, now, day } = link;
    let limits = &record.limits;
    let ends = [
        ("source", record.source.as_str()),
        ("destination", record.destination.as_str()),
    ];
    html! {
        tr {
            th scope="row" {
                span class="url" { (brief(&record.source).in_parts()) }
                br; span class="url" { "→\u{a0}" (brief(&record.destination).in_parts()) }
                @if let Some(limit) = &now.pace.limited_by {
                    span class="why" { "limited by " (brief(limit)) }
                }
            }
            td class="number" { (goodput(now.goodput, limits)) }
            td class="number" { (count(now.waiting_files)) }
            td class="number middle" { (now.pace.units) }
            td class="number middle" {
                (of_limit(now.pace.sessions.into(), limits.sessions.map(u64::from)))
            }
            td class="number middle" {
                (of_limit(now.pace.channels.into(), limits.channels.map(u64::from)))
            }
            td class="number wide" { (success(Some(day))) }
            td class="number wide" { (bytes(day.bytes)) }
            td { a href=(change_path(&ends)) {
                "Change" span class="unseen" { " " (brief(&record.source)) }
            } }
        }
    }
}

//! The list of jobs.

use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use godwit_service_api::{
    job::{JobState, JobView},
    site::Role,
};
use maud::{Markup, html};
use serde::Deserialize;
use uuid::Uuid;

use super::{
    Web,
    frame::{Html, PageResult},
    layout::{Place, page as whole},
    list::{Column, next_page, table},
    text::{brief, bytes, count, duration, percent, rate, state, time, visible},
    visitor::{PageQuery, Visitor},
    why::{self, Standing},
};
use crate::problem::{Answer, ApiError, Kind};

/// Jobs of a page.
const PAGE: u32 = 50;

/// Whose a job is: where jobs of several users are listed.
const OWNER: Column = ("User", "middle");

const COLUMNS: [Column; 7] = [
    ("Job", ""),
    OWNER,
    ("State", ""),
    ("Files", "number"),
    ("Bytes", "number middle"),
    ("Goodput", "number wide"),
    ("Submitted", "wide"),
];

const STATES: [JobState; 8] = [
    JobState::Queued,
    JobState::Active,
    JobState::Paused,
    JobState::Finished,
    JobState::Partial,
    JobState::Failed,
    JobState::Canceled,
    JobState::Submitting,
];

/// What a list holds. Forms send what is empty, too.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct JobsFilter {
    state: String,
    /// The beginning of a name, or an id.
    q: String,
    owner: String,
    all: String,
    cursor: String,
}

/// What is found.
struct Found {
    jobs: Vec<JobView>,
    next: Option<String>,
    /// Of all that have not ended, on the first page.
    standing: Standing,
    /// It is a search, which has no further pages.
    is_search: bool,
}

impl JobsFilter {
    /// As the query of a URL, from another place on.
    fn with_cursor(&self, cursor: &str) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, text) in [
            ("state", self.state.as_str()),
            ("q", &self.q),
            ("owner", &self.owner),
            ("all", &self.all),
            ("cursor", cursor),
        ] {
            if !text.is_empty() {
                query.append_pair(name, text);
            }
        }
        query.finish()
    }

    async fn find(&self, web: &Web, visitor: &Visitor) -> Answer<Found> {
        let states = match self.state.as_str() {
            "" => Vec::new(),
            name => {
                let parsed = name.parse::<JobState>();
                vec![parsed.map_err(|error| ApiError::new(Kind::Query, error.to_string()))?]
            }
        };
        let some = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        let (api, caller) = (&web.api, &visitor.caller);
        let (owner, all) = (some(&self.owner), !self.all.is_empty());
        let filter = api.job_filter(caller, owner, all, states).await?;
        if let Some(name) = some(&self.q) {
            let found = api.store().jobs_named(&filter, &name, PAGE).await?;
            return Ok(Found {
                jobs: found.into_iter().map(|job| api.view(job)).collect(),
                next: None,
                standing: Standing::default(),
                is_search: true,
            });
        }
        let cursor = some(&self.cursor);
        let page = api.job_page(&filter, cursor.as_deref(), PAGE).await?;
        Ok(Found {
            jobs: page.items,
            next: page.next,
            standing: match cursor {
                None => Standing::of(web, &filter).await?,
                Some(_) => Standing::default(),
            },
            is_search: false,
        })
    }
}

pub(super) async fn page(
    State(web): State<Web>,
    visitor: Visitor,
    PageQuery(asked): PageQuery<JobsFilter>,
) -> PageResult {
    // An id is a job's.
    if let Ok(id) = asked.q.trim().parse::<Uuid>()
        && web.api.visible_job(&visitor.caller, id).await.is_ok()
    {
        return Ok(Redirect::to(&format!("/jobs/{id}")).into_response());
    }
    let found = asked.find(&web, &visitor).await?;
    let is_first = asked.cursor.is_empty();
    let live = format!("/jobs/live?{}", asked.with_cursor(""));
    let body = html! {
        div class="heading" {
            h1 { "Jobs" }
            a class="button" href="/submit" { "Submit a job" }
        }
        (filter(&visitor, &asked))
        @if is_first && !found.is_search {
            div data-live=(live) data-pause="5000" { (list(&found, &asked)) }
        } @else {
            (list(&found, &asked))
        }
    };
    Ok(whole(&visitor, Place::Jobs, "Jobs", &body))
}

/// The table alone, for the script.
pub(super) async fn live(
    State(web): State<Web>,
    visitor: Visitor,
    PageQuery(asked): PageQuery<JobsFilter>,
) -> PageResult {
    let found = asked.find(&web, &visitor).await?;
    let answer: Response = Html(list(&found, &asked)).into_response();
    Ok(answer)
}

fn filter(visitor: &Visitor, asked: &JobsFilter) -> Markup {
    html! {
        form class="filter" method="get" action="/jobs" role="search" {
            div class="grow" {
                label for="q" { "Beginning of the name, or id" }
                input id="q" name="q" type="search" value=(asked.q) maxlength="200"
                    placeholder="Name or id";
            }
            div {
                label for="state" { "State" }
                select id="state" name="state" {
                    option value="" { "all states" }
                    @for state in STATES {
                        option value=(state.as_str()) selected[asked.state == state.as_str()] {
                            (state.as_str())
                        }
                    }
                }
            }
            @if visitor.caller.0.role >= Role::GroupAdmin {
                div {
                    label for="owner" { "User" }
                    input id="owner" name="owner" value=(asked.owner) maxlength="200"
                        placeholder="User" autocapitalize="none";
                }
            }
            @if visitor.is_operator() {
                div class="fit" {
                    label class="check" {
                        input type="checkbox" name="all" value="yes" checked[!asked.all.is_empty()];
                        "Of all users"
                    }
                }
            }
            button class="plain" type="submit" { "Show" }
        }
    }
}

fn list(found: &Found, asked: &JobsFilter) -> Markup {
    let has_owners = !asked.all.is_empty() || !asked.owner.is_empty();
    if found.jobs.is_empty() {
        return html! { p class="none" { "No jobs here." } };
    }
    let caption = html! {
        @if found.is_search {
            "Jobs whose name begins so, by name; at most " (PAGE)
        } @else {
            "Jobs, the latest first"
        }
    };
    let columns = COLUMNS.iter().copied();
    let columns: Vec<Column> = columns
        .filter(|column| has_owners || *column != OWNER)
        .collect();
    let next = found.next.as_ref();
    let next = next.map(|next| format!("/jobs?{}", asked.with_cursor(next)));
    html! {
        (found.standing.part())
        (table(caption, &columns, &html! {
            @for job in &found.jobs { (row(job, has_owners)) }
        }))
        (next_page("jobs", "Earlier jobs", next.as_deref()))
    }
}

fn row(job: &JobView, has_owners: bool) -> Markup {
    let id = job.id.to_string();
    let ended = job.files.ended();
    html! {
        tr {
            th scope="row" {
                a id=(format!("job-{id}")) href=(format!("/jobs/{id}")) { (name(job)) }
                (why::line(job))
            }
            @if has_owners { td class="middle" { (brief(&job.owner)) } }
            td {
                (state(job.state.as_str()))
                @if !job.state.is_final() && job.files.total > 0 {
                    progress max="100" value=(percent(ended, job.files.total))
                        aria-label="Files that have ended" {}
                }
            }
            td class="number" {
                (count(job.files.finished + job.files.skipped))
                span class="soft" { "\u{202f}/\u{202f}" (count(job.files.total)) }
                @if job.files.failed > 0 {
                    br; span class="small" { (count(job.files.failed)) " failed" }
                }
            }
            td class="number middle" { (bytes(job.bytes_done)) }
            td class="number wide" {
                @if job.goodput > 0.0 { (rate(job.goodput)) }
                @if let Some(eta) = job.eta_seconds {
                    br; span class="small soft" { (duration(eta)) " left" }
                }
            }
            td class="when wide" { (time(job.created)) }
        }
    }
}

/// What a job is called.
pub(super) fn name(job: &JobView) -> Markup {
    match &job.options.name {
        Some(name) => html! { (visible(name)) },
        None => {
            let id = job.id.to_string();
            html! { span class="url" { (id) } }
        }
    }
}

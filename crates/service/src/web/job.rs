//! One job: what it does, why it waits, its files and events, and what can be done to it.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Redirect, Response},
};
use godwit_service_api::{
    event::{JobEvent, JobEventKind},
    job::{JobState, JobView},
    page::Page,
};
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;
use uuid::Uuid;

use super::{
    Web, chart, files,
    frame::{Html, PageResult},
    jobs,
    layout::{Place, page as whole, token},
    list,
    text::{brief, bytes, count, duration, files_of, percent, rate, state, time, took, visible},
    visitor::{PageQuery, Posted, Visitor},
    why,
};
use crate::{
    api::cursor,
    problem::{Answer, ApiError},
    scheduling::Sample,
    store::model::{JobRecord, Pace},
};

/// Files of a page.
const FILES: u32 = 25;

/// Events that are shown.
const EVENTS: u32 = 30;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct JobQuery {
    /// `failed`: only those.
    files: String,
    cursor: String,
    /// What was done to it.
    done: String,
}

/// What changes of a job while it runs.
struct Now {
    view: JobView,
    pace: Pace,
    samples: Vec<Sample>,
    now: Timestamp,
}

pub(super) async fn page(
    State(web): State<Web>,
    visitor: Visitor,
    Path(id): Path<String>,
    PageQuery(asked): PageQuery<JobQuery>,
) -> PageResult {
    let record = job(&web, &visitor, &id).await?;
    let api = &web.api;
    let is_failed = asked.files == "failed";
    let list = format!("web {} {is_failed}", record.id);
    let place = cursor::decode(&list, Some(&*asked.cursor).filter(|text| !text.is_empty()))?;
    let files = match is_failed {
        true => {
            api.store()
                .failed_files(&record, place.as_deref(), FILES)
                .await?
        }
        false => {
            api.store()
                .files(&record, place.as_deref(), FILES, None)
                .await?
        }
    };
    let files = Page {
        items: files.items,
        next: cursor::encode(&list, files.next),
    };
    let events = api.store().latest_events(&record, EVENTS).await?;
    let now = now(&web, record).await?;
    let view = &now.view;
    let title = view.options.name.clone();
    let title = title.unwrap_or_else(|| format!("Job {}", view.id));
    let body = html! {
        (list::done(done(&asked.done)))
        h1 { (jobs::name(view)) }
        p class="lede" {
            span class="url" { (view.id) } ", of " (visible(&view.owner))
            @if let Some(schedule) = &view.schedule { ", by the schedule " (visible(schedule)) }
        }
        section aria-label="Progress" data-live=(format!("/jobs/{}/live", view.id)) {
            (live_part(&visitor, &now))
        }
        (files::part(view, &files, is_failed, !asked.cursor.is_empty()))
        (events_part(&events))
        (options_part(&visitor, view))
    };
    Ok(whole(&visitor, Place::Jobs, &title, &body))
}

/// What changes, alone, for the script.
pub(super) async fn live(
    State(web): State<Web>,
    visitor: Visitor,
    Path(id): Path<String>,
) -> PageResult {
    let record = job(&web, &visitor, &id).await?;
    let now = now(&web, record).await?;
    let answer: Response = Html(live_part(&visitor, &now)).into_response();
    Ok(answer)
}

/// Pauses, resumes, cancels a job, tries it again, or submits it again.
pub(super) async fn act(
    State(web): State<Web>,
    Path((id, action)): Path<(String, String)>,
    posted: Posted,
) -> PageResult {
    let Posted { visitor, form } = posted;
    let (api, caller) = (&web.api, &visitor.caller);
    let mut id = id.parse::<Uuid>().map_err(|_| ApiError::not_found())?;
    match action.as_str() {
        "pause" => drop(api.pause_job(caller, id).await?),
        "resume" => drop(api.resume_job(caller, id).await?),
        "cancel" => api.cancel_job(caller, id).await?,
        "retry" => drop(api.retry_job(caller, id).await?),
        "priority" => {
            let priority = form.number("priority")?.unwrap_or(0);
            api.set_priority(caller, id, priority).await?;
        }
        "clone" => {
            let key = form.maybe("key").map(str::to_owned);
            (_, JobView { id, .. }) = api.clone_of(caller, id, false, (key, None)).await?;
        }
        _ => return Err(ApiError::not_found().into()),
    }
    Ok(Redirect::to(&format!("/jobs/{id}?done={action}")).into_response())
}

/// What is said of an action that was done.
fn done(action: &str) -> Option<&'static str> {
    Some(match action {
        "pause" => "The job is paused. Partial files stay for a resume.",
        "resume" => "The job continues.",
        "cancel" => "The job is canceled. Its agents stop at once.",
        "retry" => "The files that failed are queued again.",
        "priority" => "The priority is changed.",
        "clone" => "This is a new job with the same files and options.",
        "submit" => "The job is accepted. You may close this page: the job does not need it.",
        _ => return None,
    })
}

async fn job(web: &Web, visitor: &Visitor, id: &str) -> Answer<JobRecord> {
    let id = id.parse::<Uuid>().map_err(|_| ApiError::not_found())?;
    web.api.visible_job(&visitor.caller, id).await
}

async fn now(web: &Web, record: JobRecord) -> Answer<Now> {
    let board = web.api.board();
    Ok(Now {
        pace: board.job(record.id).pace,
        samples: board.history(record.id),
        now: web.api.store().now().await?,
        view: web.api.view(record),
    })
}

fn live_part(visitor: &Visitor, now: &Now) -> Markup {
    let Now { view, pace, .. } = now;
    let (files, ended) = (&view.files, view.files.ended());
    let percent = percent(ended, files.total);
    let said = format!(
        "{}, {ended} of {} ended",
        view.state.as_str(),
        files_of(files.total)
    );
    html! {
        p data-said=(said) data-final=[view.state.is_final().then_some("")] {
            (state(view.state.as_str()))
            @if !view.listed && view.state != JobState::Submitting {
                span class="soft" { " Its directories are still being listed." }
            }
        }
        progress class="big" max="100" value=(percent) aria-label="Files that have ended" {}
        (why::part(view, pace))
        dl class="facts" {
            (figure("Files done", html! {
                (count(files.finished + files.skipped))
                span class="soft small" { " of " (count(files.total)) }
            }))
            (figure("Bytes", html! {
                (bytes(view.bytes_done))
                @if view.bytes_total > view.bytes_done {
                    span class="soft small" { " of " (bytes(view.bytes_total)) " known" }
                }
            }))
            @if files.failed > 0 { (figure("Failed", html! { (count(files.failed)) })) }
            @if files.skipped > 0 {
                (figure("There already", html! { (count(files.skipped)) }))
            }
            @if files.canceled > 0 { (figure("Canceled", html! { (count(files.canceled)) })) }
            @if files.unused > 0 { (figure("Not needed", html! { (count(files.unused)) })) }
            @if !view.state.is_final() {
                (figure("Goodput", html! { (rate(view.goodput)) }))
                (figure("Time left", html! {
                    (view.eta_seconds.map_or("not known".to_owned(), duration))
                }))
            }
            (moments(now))
        }
        (actions(visitor, now))
        @if now.samples.len() > 1 {
            h2 { "Over time" }
            div class="charts" { (chart::goodput(&now.samples)) (chart::channels(&now.samples)) }
            p class="soft small" {
                "From the memory of this process, by what agents report: since it began to see the \
                job move."
            }
        }
    }
}

fn figure(name: &str, value: Markup) -> Markup {
    html! { div { dt { (name) } dd class="figure" { (value) } } }
}

fn moments(now: &Now) -> Markup {
    let view = &now.view;
    html! {
        div { dt { "Submitted" } dd { (time(view.created)) } }
        @if let Some(started) = view.started { div { dt { "Started" } dd { (time(started)) } } }
        @if let Some(ended) = view.ended { div { dt { "Ended" } dd { (time(ended)) } } }
        @if let Some(started) = view.started {
            div {
                dt { @if view.ended.is_some() { "Took" } @else { "So far" } }
                dd { (took(started, view.ended.unwrap_or(now.now))) }
            }
        }
    }
}

fn actions(visitor: &Visitor, now: &Now) -> Markup {
    let view = &now.view;
    let path = |action: &str| format!("/jobs/{}/{action}", view.id);
    let plain = |action: &str, name: &str| {
        html! {
            form method="post" action=(path(action)) {
                (token(visitor))
                button class="plain" id=(format!("do-{action}")) type="submit" { (name) }
            }
        }
    };
    // Sent twice within a minute, it is one job.
    let key = format!("web-{}-{}", view.id, now.now.as_second() / 60);
    let is_open = !view.state.is_final() && view.state != JobState::Submitting;
    html! {
        div class="actions" role="group" aria-label="Actions" {
            @if matches!(view.state, JobState::Queued | JobState::Active) {
                (plain("pause", "Pause"))
            }
            @if view.state == JobState::Paused { (plain("resume", "Resume")) }
            @if view.files.failed > 0 && view.state != JobState::Canceled {
                (plain("retry", "Try failed files again"))
            }
            @if view.state != JobState::Submitting {
                form method="post" action=(path("clone")) {
                    (token(visitor))
                    input type="hidden" name="key" value=(key);
                    button class="plain" id="do-clone" type="submit" { "Submit again" }
                }
            }
            @if is_open {
                details class="confirm" {
                    summary id="ask-cancel" { "Cancel…" }
                    p class="small" { "What is not copied yet will not be." }
                    form method="post" action=(path("cancel")) {
                        (token(visitor))
                        button class="danger" id="do-cancel" type="submit" { "Cancel this job" }
                    }
                }
            }
        }
    }
}

fn events_part(events: &[(u64, JobEvent)]) -> Markup {
    html! {
        h2 { "Events" }
        @if events.is_empty() {
            p class="none" { "Nothing has happened yet." }
        } @else {
            p class="soft small" { "The latest first; at most " (EVENTS) "." }
            ol class="events" reversed {
                @for (_, event) in events {
                    li { (time(event.at)) span { (event_text(&event.what)) } }
                }
            }
        }
    }
}

fn event_text(what: &JobEventKind) -> Markup {
    html! {
        @match what {
            JobEventKind::State { state: to, reason } => {
                (state(to.as_str()))
                @if let Some(reason) = reason { " " (visible(reason)) }
            }
            JobEventKind::Started { agent, files, bytes: size } => {
                "Agent " (brief(agent)) " took " (files_of(*files)) ", " (bytes(*size)) "."
            }
            JobEventKind::FileFailed { index, attempts, error } => {
                "File " (index) " failed, attempt " (attempts) ": " code { (brief(&error.code)) }
                " " (visible(&error.message))
            }
            JobEventKind::LeaseLost { agent, files } => {
                "Agent " (brief(agent)) " was lost; " (files_of(*files))
                @if *files == 1 { " goes" } @else { " go" } " to another."
            }
            JobEventKind::Divided { index, ranges } => {
                "File " (index) " is copied in " (ranges) " ranges, by any agents."
            }
            JobEventKind::Undivided { index, reason } => {
                "File " (index) " is copied by one agent: " (visible(reason))
            }
            JobEventKind::Progress { bytes_done, .. } => { (bytes(*bytes_done)) " are done." }
        }
    }
}

fn options_part(visitor: &Visitor, view: &JobView) -> Markup {
    let options = &view.options;
    let word = |value: serde_json::Result<serde_json::Value>| {
        let value = value.unwrap_or_default();
        value.as_str().unwrap_or_default().to_owned()
    };
    html! {
        h2 { "Options" }
        dl class="facts" {
            div { dt { "Priority" } dd { (options.priority) " of 5" } }
            div { dt { "Class" } dd { (word(serde_json::to_value(options.class))) } }
            div {
                dt { "Share" }
                dd { (visible(options.share.as_deref().unwrap_or(&view.owner))) }
            }
            div { dt { "Compared" } dd { (word(serde_json::to_value(options.verify))) } }
            div { dt { "Files that exist" } dd { (word(serde_json::to_value(options.overwrite))) } }
            div { dt { "Attempts" } dd { (options.attempts) } }
            @if let Some(deadline) = options.deadline {
                div { dt { "Deadline" } dd { (time(deadline)) } }
            }
            @if !options.labels.is_empty() {
                div {
                    dt { "Labels" }
                    dd { @for label in options.labels.iter().take(8) { (brief(label)) " " } }
                }
            }
        }
        @if !view.state.is_final() && view.state != JobState::Submitting {
            form class="actions" method="post" action=(format!("/jobs/{}/priority", view.id)) {
                (token(visitor))
                div {
                    label for="priority" { "Priority in its share" }
                    select id="priority" name="priority" {
                        @for priority in 1..=5 {
                            option value=(priority) selected[priority == options.priority] {
                                (priority)
                                @if priority == 1 { ", last" }
                                @if priority == 5 { ", first" }
                            }
                        }
                    }
                }
                button class="plain" type="submit" { "Change" }
            }
        }
    }
}

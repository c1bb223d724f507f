//! Jobs of a user that come again and again.

use std::collections::HashMap;

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Redirect, Response},
};
use godwit_service_api::schedule::ScheduleRun;
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    Web,
    frame::PageResult,
    layout::{Place, page as whole, token},
    list::{CHANGE, Column, done, next_page, table},
    text::{brief, count, state, time},
    visitor::{PageQuery, Posted, Visitor},
};
use crate::{problem::ApiError, store::model::ScheduleRecord};

/// Schedules of a page.
const PAGE: usize = 20;

const COLUMNS: [Column; 6] = [
    ("Schedule", ""),
    ("Due", "middle"),
    ("Files", "number wide"),
    ("Next", ""),
    ("Last time", "middle"),
    CHANGE,
];

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct SchedulesQuery {
    /// What was done to one of them.
    done: String,
    /// The last schedule of the page before.
    after: String,
}

pub(super) async fn page(
    State(web): State<Web>,
    visitor: Visitor,
    PageQuery(asked): PageQuery<SchedulesQuery>,
) -> PageResult {
    let (store, owner) = (web.api.store(), visitor.caller.name());
    // A user has at most 100.
    let mut schedules = store.schedules(owner).await?;
    schedules.retain(|schedule| schedule.name > asked.after);
    let next = schedules.get(PAGE).and_then(|_| schedules.get(PAGE - 1));
    let next = next.map(|last| {
        let mut query = form_urlencoded::Serializer::new(String::new());
        format!(
            "/schedules?{}",
            query.append_pair("after", &last.name).finish()
        )
    });
    schedules.truncate(PAGE);
    let runs = store.last_runs(owner).await?;
    let runs: HashMap<i64, ScheduleRun> = runs.into_iter().collect();
    let was_done = match asked.done.as_str() {
        "pause" => Some("It is paused: it submits nothing until it is resumed."),
        "resume" => Some("It is resumed. Times that have passed are not made up for."),
        "remove" => Some("It is removed. Its jobs stay."),
        _ => None,
    };
    let body = html! {
        h1 { "Schedules" }
        p class="lede" {
            "Jobs that the service submits for you again and again. They are made with the command "
            "line or the API."
        }
        (done(was_done))
        @if schedules.is_empty() {
            p class="none" { "There are none." }
        } @else {
            (table("By name", &COLUMNS, &html! {
                @for schedule in &schedules {
                    (row(&visitor, schedule, runs.get(&schedule.number)))
                }
            }))
            (next_page("schedules", "Next schedules", next.as_deref()))
        }
    };
    let answer: Response = whole(&visitor, Place::Schedules, "Schedules", &body);
    Ok(answer)
}

fn row(visitor: &Visitor, schedule: &ScheduleRecord, last: Option<&ScheduleRun>) -> Markup {
    let due = html! { code { (brief(&schedule.cron)) } " " (brief(&schedule.zone)) };
    html! {
        tr {
            th scope="row" class="name" {
                (brief(&schedule.name))
                span class="narrow soft" { (due) }
            }
            td class="middle" { (due) }
            td class="number wide" { (count(schedule.request.files.len() as u64)) }
            td {
                @if schedule.paused {
                    (state("paused"))
                } @else if let Some(at) = schedule.next {
                    (time(at))
                } @else {
                    "never again"
                }
            }
            td class="middle" { @if let Some(run) = last { (run_of(run)) } }
            td { (buttons(visitor, schedule)) }
        }
    }
}

fn run_of(run: &ScheduleRun) -> Markup {
    html! {
        (time(run.due)) ": "
        @if let Some(job) = run.job {
            a href=(format!("/jobs/{job}")) {
                "its job" span class="unseen" { " " (job) }
            }
        } @else {
            "none: " (brief(run.skipped.as_deref().unwrap_or("")))
        }
    }
}

fn buttons(visitor: &Visitor, schedule: &ScheduleRecord) -> Markup {
    let (action, text) = match schedule.paused {
        true => ("resume", "Resume"),
        false => ("pause", "Pause"),
    };
    html! {
        form method="post" action=(format!("/schedules/{action}")) {
            (token(visitor))
            input type="hidden" name="name" value=(schedule.name);
            button class="link" type="submit" {
                (text) span class="unseen" { " " (brief(&schedule.name)) }
            }
        }
        details class="quiet" {
            summary { "Remove" span class="unseen" { " " (brief(&schedule.name)) } }
            form method="post" action="/schedules/remove" {
                (token(visitor))
                input type="hidden" name="name" value=(schedule.name);
                button class="danger" type="submit" { "Remove it" }
            }
        }
    }
}

/// Pauses, resumes or removes a schedule of the visitor.
pub(super) async fn act(
    State(web): State<Web>,
    Path(action): Path<String>,
    posted: Posted,
) -> PageResult {
    let Posted { visitor, form } = posted;
    let (api, caller, name) = (&web.api, &visitor.caller, form.text("name"));
    match action.as_str() {
        "pause" => drop(api.pause_schedule(caller, name, true).await?),
        "resume" => drop(api.pause_schedule(caller, name, false).await?),
        "remove" => api.remove_schedule_of(caller, name).await?,
        _ => return Err(ApiError::not_found().into()),
    }
    Ok(Redirect::to(&format!("/schedules?done={action}")).into_response())
}

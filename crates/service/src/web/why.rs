//! Why jobs wait, or are no faster, and who can do something about it: of one job, and of all that
//! have not ended.

use std::collections::BTreeMap;

use godwit_service_api::{
    job::{JobState, JobView},
    why::{Why, WhyCode},
};
use maud::{Markup, html};

use super::{
    Web,
    text::{brief, count, reason, visible},
};
use crate::{
    problem::Answer,
    store::model::{JobFilter, Pace},
};

/// Jobs of each state that a summary looks at, latest first.
const JOBS: u32 = 1000;

/// Reasons of a job that are shown.
const REASONS: usize = 12;

/// States of jobs that have not ended.
const OPEN: [JobState; 3] = [JobState::Queued, JobState::Active, JobState::Paused];

/// What jobs that have not ended do, or wait for.
#[derive(Default)]
pub(super) struct Standing {
    moving: u64,
    paused: u64,
    waiting: BTreeMap<WhyCode, u64>,
    /// There are more jobs.
    is_part: bool,
}

impl Standing {
    /// Of jobs that fit a filter, but for its ids.
    pub(super) async fn of(web: &Web, filter: &JobFilter) -> Answer<Self> {
        let mut standing = Self::default();
        let wanted = |state: &JobState| filter.states.is_empty() || filter.states.contains(state);
        for state in OPEN.into_iter().filter(wanted) {
            let owner = filter.owner.as_deref();
            let jobs = web.api.store().ids_in(owner, state, JOBS + 1).await?;
            standing.is_part |= jobs.len() > JOBS as usize;
            for why in web
                .api
                .board()
                .hindrances(&jobs[..jobs.len().min(JOBS as usize)])
            {
                match (state, why) {
                    (JobState::Paused, _) => standing.paused += 1,
                    (_, Some(code)) => *standing.waiting.entry(code).or_default() += 1,
                    // The leader has not looked at it yet.
                    (JobState::Queued, None) => {
                        *standing.waiting.entry(WhyCode::Scheduling).or_default() += 1;
                    }
                    (_, None) => standing.moving += 1,
                }
            }
        }
        Ok(standing)
    }

    /// Above a list: how many wait for what, most first.
    pub(super) fn part(&self) -> Markup {
        let waiting: u64 = self.waiting.values().sum();
        let mut reasons: Vec<(WhyCode, u64)> = self
            .waiting
            .iter()
            .map(|(code, jobs)| (*code, *jobs))
            .collect();
        reasons.sort_by_key(|(_, jobs)| std::cmp::Reverse(*jobs));
        html! {
            @if waiting + self.moving + self.paused > 0 {
                section class="standing" aria-label="What waits, and for what" {
                    p {
                        strong { (jobs_that(waiting, "waits", "wait")) } ", "
                        (count(self.moving)) @if self.moving == 1 { " moves" } @else { " move" }
                        @if self.paused > 0 {
                            ", " (count(self.paused))
                            @if self.paused == 1 { " is paused" } @else { " are paused" }
                        }
                        @if self.is_part {
                            span class="soft" {
                                "; counted are the latest " (count(JOBS.into())) " of each state"
                            }
                        }
                    }
                    @if !reasons.is_empty() {
                        ul {
                            @for (code, jobs) in &reasons {
                                li {
                                    strong { (count(*jobs)) } " " (waits_for(*code)) " "
                                    span class="small soft" { (who_acts(*code)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn jobs_that(number: u64, one: &str, many: &str) -> String {
    match number {
        0 => format!("No job {one}"),
        1 => format!("1 job {one}"),
        _ => format!("{} jobs {many}", count(number)),
    }
}

/// What jobs wait for, after their number.
fn waits_for(code: WhyCode) -> &'static str {
    match code {
        WhyCode::EndpointLimit => "for an endpoint that is at its limit",
        WhyCode::LinkLimit => "for a link that is at its limit",
        WhyCode::ShareUsed => "for their turn: others are first",
        WhyCode::AgentsBusy => "for an agent with a free slot",
        WhyCode::NoAgent => "for an agent that reaches them: there is none",
        WhyCode::Paused => "to be resumed",
        WhyCode::Banned => "for an endpoint that an operator drains or has closed",
        WhyCode::EndpointDown => "for an endpoint that does not answer",
        WhyCode::CredentialExpired => "for a credential that has ended or is missing",
        WhyCode::Quota => "for a limit of their share",
        WhyCode::RetryAt => "for the next attempt of files that failed",
        WhyCode::AfterJob => "for another job",
        WhyCode::Scheduling => "for the next step, within seconds",
        WhyCode::LimitedBy => "for what they have begun",
    }
}

/// Who can do something about it.
fn who_acts(code: WhyCode) -> &'static str {
    match code {
        WhyCode::EndpointLimit | WhyCode::LinkLimit => {
            "Nothing to do: it goes on by itself. An operator can raise the limit."
        }
        WhyCode::ShareUsed | WhyCode::Scheduling | WhyCode::AfterJob | WhyCode::RetryAt => {
            "Nothing to do: it goes on by itself."
        }
        WhyCode::AgentsBusy => "Nothing to do: it goes on by itself. An operator can add agents.",
        WhyCode::NoAgent => "An operator must act, or who asked for the label.",
        WhyCode::Paused => "Resume it.",
        WhyCode::Banned => "An operator must act.",
        WhyCode::EndpointDown => "The endpoint's administrator must act.",
        WhyCode::CredentialExpired => "The job's user must store a new credential.",
        WhyCode::Quota => "Nothing to do, or ask an operator for more.",
        WhyCode::LimitedBy => "",
    }
}

/// One line below a job of a list.
pub(super) fn line(job: &JobView) -> Markup {
    html! {
        @if let Some(why) = job.why.first() {
            span class="why" {
                @if job.goodput > 0.0 {
                    "No faster: "
                } @else if job.state != JobState::Paused {
                    strong { "Waits: " }
                }
                (visible(&reason(&why.text)).in_parts())
            }
        }
    }
}

/// All reasons of a job, on its page.
pub(super) fn part(job: &JobView, pace: &Pace) -> Markup {
    let title = match job.state {
        JobState::Paused => "Why it stands still",
        _ if job.goodput > 0.0 => "Why it is no faster",
        _ => "Why it waits",
    };
    let code = |why: &Why| serde_json::to_value(why.code).unwrap_or_default();
    html! {
        @if !job.why.is_empty() || pace.limited_by.is_some() {
            h2 { (title) }
            ul class="reasons" {
                @for why in job.why.iter().take(REASONS) {
                    li {
                        (visible(&reason(&why.text)).in_parts())
                        code { (code(why).as_str().unwrap_or_default()) }
                        span class="next small soft" { (who_acts(why.code)) }
                    }
                }
                @if let Some(limit) = &pace.limited_by {
                    li {
                        @match pace.units {
                            1 => { "Its running unit is limited by " }
                            units => { "Most of its " (units) " running units are limited by " }
                        }
                        (brief(limit))
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_says_how_many_wait_for_what_and_most_first() {
        let waiting = [(WhyCode::NoAgent, 3), (WhyCode::EndpointLimit, 1200)];
        let standing = Standing {
            moving: 1,
            paused: 2,
            waiting: waiting.into(),
            is_part: true,
        };
        let text = standing.part().into_string();
        let begin = "<strong>1\u{202f}203 jobs wait</strong>, 1 moves, 2 are paused";
        assert!(text.contains(begin), "{text}");
        let places = [
            "1\u{202f}200</strong> for an endpoint",
            "3</strong> for an agent",
        ];
        let places = places.map(|part| text.find(part).unwrap());
        assert!(places.is_sorted(), "{text}");
        assert!(text.contains("the latest 1\u{202f}000"), "{text}");
        let idle = Standing::default().part().into_string();
        assert!(idle.is_empty(), "{idle}");
        let none_waits = Standing {
            moving: 2,
            ..Standing::default()
        };
        let text = none_waits.part().into_string();
        assert!(text.contains("No job waits</strong>, 2 move"), "{text}");
    }
}

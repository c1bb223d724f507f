//! Why a queue waits, or what holds back what runs.

use std::{fmt, time::Duration};

/// One reason, with its figures. [`Reason::code`] is stable; the text is for people.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// A part of an endpoint's or a link's budget is taken.
    Limit(TakenLimit),
    /// A rate of an endpoint or a link is used up for a while.
    Rate {
        /// Its name.
        place: String,
        /// It is a link.
        is_link: bool,
        /// `bytes` or `files`.
        unit: &'static str,
        /// Of it, a second.
        limit: u64,
        /// Until the next unit may start.
        wait: Duration,
    },
    /// More channels brought no more goodput on the path.
    PathFull {
        /// Name of the endpoint or the link whose sum it is.
        place: String,
        /// It is a link.
        is_link: bool,
        /// Channels that fill it.
        channels: u32,
        /// Units that run on it.
        units: u32,
    },
    /// Others have a right to what is free.
    ShareUsed {
        /// Path of the share.
        share: String,
        /// Units that run for it.
        units: u32,
        /// The class takes only what others leave.
        scavenger: bool,
    },
    /// Agents that reach both ends have no free slot.
    AgentsBusy {
        /// How many reach them.
        agents: u32,
    },
    /// No agent that is alive reaches both ends and has the labels.
    NoAgent {
        /// Source and destination.
        link: String,
        /// That the job asks for.
        labels: Vec<String>,
    },
    /// The user or an operator paused it.
    Paused,
    /// An operator closed an endpoint.
    Banned {
        /// Its name.
        endpoint: String,
        /// What runs may end.
        draining: bool,
    },
    /// An endpoint does not answer; one unit at a time tries it.
    EndpointDown {
        /// Its name.
        endpoint: String,
    },
    /// A credential has expired or is missing.
    CredentialExpired,
    /// A limit of a share.
    Quota {
        /// Path of the share.
        share: String,
        /// `units` or `bytes`.
        unit: &'static str,
        /// Running.
        used: u64,
        /// At most.
        limit: u64,
    },
    /// A failed file waits for its next attempt.
    RetryAt {
        /// Since start, as all times here.
        at: Duration,
        /// From now.
        wait: Duration,
    },
    /// It waits for another job.
    AfterJob,
    /// Its turn comes with the next step.
    Scheduling,
    /// It runs; what holds most of its units back.
    LimitedBy {
        /// As in the client's event log.
        limit: String,
        /// Units that say so.
        units: u32,
        /// That run.
        of: u32,
    },
}

/// The holders of a limit.
#[derive(Clone, Debug, PartialEq)]
pub struct TakenLimit {
    /// Name of the endpoint, or of the link.
    pub place: String,
    /// It is a link.
    pub is_link: bool,
    /// `sessions` or `channels`.
    pub unit: &'static str,
    /// Of all.
    pub used: u32,
    /// At most.
    pub limit: u32,
    /// Of the share that asks.
    pub own: u32,
    /// What its weight gives it while all others want theirs.
    pub fair: u32,
    /// The share for which one stays free until its other end has room.
    pub kept_for: Option<String>,
    /// Other shares with the most, largest first.
    pub holders: Vec<(String, u32)>,
}

impl Reason {
    /// As programs know it: the codes of the service's API.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Limit(taken) if taken.is_link => "link_limit",
            Self::Limit(_) => "endpoint_limit",
            Self::Rate { is_link: true, .. } | Self::PathFull { is_link: true, .. } => "link_limit",
            Self::Rate { .. } | Self::PathFull { .. } => "endpoint_limit",
            Self::ShareUsed { .. } => "share_used",
            Self::AgentsBusy { .. } => "agents_busy",
            Self::NoAgent { .. } => "no_agent",
            Self::Paused => "paused",
            Self::Banned { .. } => "banned",
            Self::EndpointDown { .. } => "endpoint_down",
            Self::CredentialExpired => "credential_expired",
            Self::Quota { .. } => "quota",
            Self::RetryAt { .. } => "retry_at",
            Self::AfterJob => "after_job",
            Self::Scheduling => "scheduling",
            Self::LimitedBy { .. } => "limited_by",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit(taken) => taken.fmt(f),
            Self::Rate {
                place,
                is_link,
                unit,
                limit,
                wait,
            } => write!(
                f,
                "{} {place}: {} a second {} used up; the next unit starts in {} s",
                kind(*is_link),
                counted(*limit, unit.trim_end_matches('s')),
                if *limit == 1 { "is" } else { "are" },
                wait.as_secs_f64().ceil()
            ),
            Self::PathFull {
                place,
                is_link,
                channels,
                units,
            } => write!(
                f,
                "{} {place}: {} with {}, and more would add nothing",
                kind(*is_link),
                run(*units),
                counted((*channels).into(), "channel")
            ),
            Self::ShareUsed {
                share,
                units,
                scavenger,
            } => {
                if *scavenger {
                    return write!(f, "class scavenger takes only what others leave");
                }
                write!(
                    f,
                    "share {share}: {}; others are first in what is free",
                    run(*units)
                )
            }
            Self::AgentsBusy { agents: 1 } => {
                f.write_str("1 agent reaches both ends; it has no free slot")
            }
            Self::AgentsBusy { agents } => {
                write!(f, "{agents} agents reach both ends; none has a free slot")
            }
            Self::NoAgent { link, labels } if labels.is_empty() => {
                write!(f, "no agent that is alive reaches {link}")
            }
            Self::NoAgent { link, labels } => write!(
                f,
                "no agent that is alive reaches {link} and has the labels {}",
                labels.join(", ")
            ),
            Self::Paused => f.write_str("paused by the user or an operator"),
            Self::Banned {
                endpoint,
                draining: true,
            } => write!(f, "endpoint {endpoint} is draining: nothing new starts"),
            Self::Banned { endpoint, .. } => {
                write!(f, "endpoint {endpoint} was closed by an operator")
            }
            Self::EndpointDown { endpoint } => write!(
                f,
                "endpoint {endpoint} does not answer; one unit at a time tries it"
            ),
            Self::CredentialExpired => f.write_str("a credential has expired or is missing"),
            Self::Quota {
                share,
                unit,
                used,
                limit,
            } => write!(
                f,
                "share {share}: {used} of {limit} {unit} at a time are in use"
            ),
            Self::RetryAt { wait, .. } => write!(
                f,
                "a failed file is tried again in {} s",
                wait.as_secs_f64().ceil()
            ),
            Self::AfterJob => f.write_str("waits for another job"),
            Self::Scheduling => f.write_str("its turn comes with the next step"),
            Self::LimitedBy { limit, units, of } => {
                let are = if *units == 1 { "is" } else { "are" };
                let all = counted((*of).into(), "running unit");
                write!(f, "{units} of {all} {are} limited by {limit}")
            }
        }
    }
}

impl fmt::Display for TakenLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}: {} of {} {}",
            kind(self.is_link),
            self.place,
            self.used,
            self.limit,
            self.unit
        )?;
        if let Some(share) = &self.kept_for {
            write!(f, ", and one is kept for {share}, whose other end is full")?;
        }
        write!(f, "; you have {}, your share is {}", self.own, self.fair)?;
        for (place, (share, units)) in self.holders.iter().enumerate() {
            let before = if place == 0 { "; " } else { ", " };
            write!(f, "{before}{share} has {units}")?;
        }
        Ok(())
    }
}

/// `1 unit`, `2 units`.
fn counted(number: u64, what: &str) -> String {
    let end = if number == 1 { "" } else { "s" };
    format!("{number} {what}{end}")
}

fn run(units: u32) -> String {
    let verb = if units == 1 { "runs" } else { "run" };
    format!("{} {verb}", counted(units.into(), "unit"))
}

fn kind(is_link: bool) -> &'static str {
    if is_link { "link" } else { "endpoint" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_a_thing_is_singular() {
        let busy = |agents| Reason::AgentsBusy { agents }.to_string();
        assert_eq!(busy(1), "1 agent reaches both ends; it has no free slot");
        assert_eq!(busy(2), "2 agents reach both ends; none has a free slot");
        let used = |units| {
            let (share, scavenger) = ("a".to_owned(), false);
            let used = Reason::ShareUsed {
                share,
                units,
                scavenger,
            };
            used.to_string()
        };
        assert_eq!(
            used(1),
            "share a: 1 unit runs; others are first in what is free"
        );
        assert_eq!(
            used(2),
            "share a: 2 units run; others are first in what is free"
        );
        let slow = |units, of| {
            let limit = "x".to_owned();
            Reason::LimitedBy { limit, units, of }.to_string()
        };
        assert_eq!(slow(1, 4), "1 of 4 running units is limited by x");
        assert_eq!(slow(1, 1), "1 of 1 running unit is limited by x");
        assert_eq!(slow(3, 4), "3 of 4 running units are limited by x");
    }
}

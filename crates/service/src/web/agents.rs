//! Agents: what they hold, and whether they get new work.

use axum::{
    extract::State,
    response::{IntoResponse, Redirect},
};
use godwit_service_api::site::{AgentRequest, AgentView};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    Web,
    frame::PageResult,
    layout::{Place, page as whole, token},
    list::{CHANGE, Column, next_page, table},
    text::{brief, of_limit, rate, state, time},
    visitor::{OperatorVisitor, PageQuery, Posted, Visitor, check_operator},
};

/// Agents of a page.
const PAGE: i64 = 100;

const COLUMNS: [Column; 8] = [
    ("Agent", ""),
    ("State", ""),
    ("Units", "number"),
    ("Goodput", "number"),
    ("Labels", "wide"),
    ("Version", "wide"),
    ("Last heard of", "middle"),
    CHANGE,
];

#[derive(Deserialize)]
pub(super) struct AgentsQuery {
    /// Number of the last agent of the page before.
    #[serde(default)]
    after: i64,
}

pub(super) async fn page(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    PageQuery(asked): PageQuery<AgentsQuery>,
) -> PageResult {
    let (agents, next) = web.api.agent_page(asked.after, PAGE).await?;
    let next = next.map(|next| format!("/agents?after={next}"));
    let body = html! {
        h1 { "Agents" }
        p class="lede" {
            "They move the files. One that drains ends what it holds and gets no more."
        }
        @if agents.is_empty() {
            p class="none" { "No agent has asked for work yet." }
        } @else {
            (table("Agents in the order in which they came", &COLUMNS, &html! {
                @for agent in &agents { (row(&visitor, agent)) }
            }))
            (next_page("agents", "Next agents", next.as_deref()))
        }
    };
    Ok(whole(&visitor, Place::Agents, "Agents", &body))
}

fn row(visitor: &Visitor, agent: &AgentView) -> Markup {
    let is = match (agent.alive, agent.draining) {
        (false, _) => "gone",
        (true, true) => "draining",
        (true, false) => "alive",
    };
    html! {
        tr {
            th scope="row" { (brief(&agent.name)) }
            td { (state(is)) }
            td class="number" { (of_limit(agent.units.into(), Some(agent.slots.into()))) }
            td class="number" { (rate(agent.goodput)) }
            td class="wide" { @for label in agent.labels.iter().take(3) { (brief(label)) " " } }
            td class="wide" { (brief(&agent.version)) }
            td class="when middle" { @if let Some(seen) = agent.seen { (time(seen)) } }
            td {
                form method="post" action="/agents" {
                    (token(visitor))
                    input type="hidden" name="name" value=(agent.name);
                    input type="hidden" name="draining"
                        value=(if agent.draining { "" } else { "yes" });
                    button class="link" type="submit" {
                        @if agent.draining { "Give work" } @else { "Drain" }
                        span class="unseen" { " " (brief(&agent.name)) }
                    }
                }
            }
        }
    }
}

/// Lets an agent have new work, or not.
pub(super) async fn set(State(web): State<Web>, posted: Posted) -> PageResult {
    let Posted { visitor, form } = posted;
    check_operator(&visitor)?;
    let request = AgentRequest {
        draining: form.is_checked("draining"),
    };
    // As it is, with blanks.
    let name = form.raw("name");
    let who = visitor.caller.name();
    web.api.change_agent(who, &name, request).await?;
    Ok(Redirect::to("/agents").into_response())
}

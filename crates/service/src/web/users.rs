//! Who may use the service, and when they were seen.

use std::collections::HashMap;

use axum::{extract::State, response::Response};
use godwit_service_api::site::Role;
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    Web,
    frame::PageResult,
    layout::{Place, page as whole},
    list::{Column, next_page, table},
    text::{brief, count, state, time},
    visitor::{OperatorVisitor, PageQuery},
};
use crate::store::{model::ShareRecord, people::UserSummary};

/// Users of a page.
const PAGE: u32 = 30;

/// Shares and groups of a user that are shown.
const NAMES: usize = 3;

const COLUMNS: [Column; 6] = [
    ("User", ""),
    ("Role", ""),
    ("Groups", "wide"),
    ("Shares, and their weights", "wide"),
    ("Tokens", "number middle"),
    ("Seen", ""),
];

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct UsersQuery {
    /// The beginning of a name.
    q: String,
    /// The last user of the page before.
    after: String,
}

pub(super) async fn page(
    State(web): State<Web>,
    OperatorVisitor(visitor): OperatorVisitor,
    PageQuery(asked): PageQuery<UsersQuery>,
) -> PageResult {
    let (store, begin) = (web.api.store(), asked.q.trim());
    let mut users = store.user_summaries(begin, &asked.after, PAGE + 1).await?;
    let is_more = users.len() > PAGE as usize;
    users.truncate(PAGE as usize);
    let next = users.last().filter(|_| is_more);
    let next = next.map(|last| {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query
            .append_pair("q", begin)
            .append_pair("after", &last.name);
        format!("/users?{}", query.finish())
    });
    let shares = store.shares().await?;
    let mut of_users: HashMap<&str, Vec<&ShareRecord>> = HashMap::new();
    for share in &shares {
        let name = share.path.rsplit('/').next().unwrap_or(&share.path);
        of_users.entry(name).or_default().push(share);
    }
    let body = html! {
        h1 { "Users" }
        p class="lede" {
            "Who may use the service. Seen is the last page of a session or the last job: requests "
            "with tokens leave no trace of their own."
        }
        form class="filter" method="get" action="/users" role="search" {
            div class="grow" {
                label for="q" { "Beginning of the name" }
                input id="q" name="q" type="search" value=(asked.q) maxlength="200"
                    placeholder="Name" autocapitalize="none";
            }
            button class="plain" type="submit" { "Show" }
        }
        @if users.is_empty() {
            p class="none" { "No user has such a name." }
        } @else {
            (table("Users by name", &COLUMNS, &html! {
                @for user in &users {
                    (row(user, of_users.get(user.name.as_str()).map_or(&[], Vec::as_slice)))
                }
            }))
            (next_page("users", "Next users", next.as_deref()))
        }
    };
    let answer: Response = whole(&visitor, Place::Users, "Users", &body);
    Ok(answer)
}

fn row(user: &UserSummary, shares: &[&ShareRecord]) -> Markup {
    let seen = user.used.max(user.submitted);
    let jobs = form_urlencoded::Serializer::new(String::new())
        .append_pair("owner", &user.name)
        .finish();
    html! {
        tr {
            th scope="row" class="name" {
                a href=(format!("/jobs?{jobs}")) { (brief(&user.name)) }
                @if user.disabled { " " (state("disabled")) }
            }
            td { (role(user.role)) }
            td class="wide" {
                @for group in user.groups.iter().take(NAMES) { (brief(group)) " " }
                (more(user.groups.len()))
            }
            td class="wide" {
                @for share in shares.iter().take(NAMES) {
                    (brief(&share.path)) ": " (share.weight) " "
                }
                (more(shares.len()))
            }
            td class="number middle" { (count(user.tokens)) }
            td {
                @match seen {
                    Some(at) => (time(at)),
                    None if user.role == Role::Agent => { a href="/agents" { "see Agents" } },
                    None => "never",
                }
            }
        }
    }
}

fn more(all: usize) -> Markup {
    html! {
        @if all > NAMES { span class="soft" { "and " (all - NAMES) " more" } }
    }
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Agent => "agent",
        Role::User => "user",
        Role::GroupAdmin => "group admin",
        Role::Operator => "operator",
    }
}

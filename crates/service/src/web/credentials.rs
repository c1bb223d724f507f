//! What agents log in with for a user. No secret is shown.

use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use godwit_service_api::account::CredentialView;
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;
use uuid::Uuid;

use super::{
    Web,
    frame::PageResult,
    layout::{Place, page as whole, token},
    list::{CHANGE, Column, done, table},
    text::{brief, count, state, time, took},
    visitor::{PageQuery, Posted, Visitor},
};
use crate::problem::ApiError;

/// Rows of the table: a user has at most 1000.
const ROWS: u32 = 40;

const COLUMNS: [Column; 6] = [
    ("Endpoints", ""),
    ("Kind", "middle"),
    ("Stored", "wide"),
    ("Age", "middle"),
    ("Ends", ""),
    CHANGE,
];

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct DoneQuery {
    done: String,
}

pub(super) async fn page(
    State(web): State<Web>,
    visitor: Visitor,
    PageQuery(asked): PageQuery<DoneQuery>,
) -> PageResult {
    let (store, owner) = (web.api.store(), visitor.caller.name());
    let (credentials, all) = store.credential_views(owner, ROWS).await?;
    let delegated = web.api.vault().delegated_id(owner);
    let now = store.now().await?;
    let body = html! {
        h1 { "Credentials" }
        p class="lede" {
            "What agents log in with for you. Each is made with the command line or the API; its "
            "secret is shown nowhere."
        }
        (done((!asked.done.is_empty()).then_some("It is removed.")))
        @if credentials.is_empty() {
            p class="none" { "None are stored." }
        } @else {
            (table(
                html! {
                    @if all > credentials.len() as u64 {
                        "The latest " (count(credentials.len() as u64)) " of " (count(all))
                    } @else {
                        "The latest first"
                    }
                },
                &COLUMNS,
                &html! {
                    @for credential in &credentials {
                        (row(&visitor, credential, credential.id == delegated, now))
                    }
                },
            ))
        }
    };
    let answer: Response = whole(&visitor, Place::Credentials, "Credentials", &body);
    Ok(answer)
}

fn row(
    visitor: &Visitor,
    credential: &CredentialView,
    is_delegated: bool,
    now: Timestamp,
) -> Markup {
    let kind = match is_delegated {
        true => "delegated proxy",
        false => credential.kind.as_str(),
    };
    html! {
        tr {
            th scope="row" class="name" {
                (brief(&credential.endpoint).in_parts())
                span class="narrow soft" { (brief(kind)) }
            }
            td class="middle" { (brief(kind)) }
            td class="when wide" { (time(credential.created)) }
            td class="middle" { (took(credential.created, now)) }
            td {
                @match credential.expires {
                    Some(at) if at <= now => { (state("ended")) " " (time(at)) },
                    Some(at) => { (time(at)) span class="why" { "in " (took(now, at)) } },
                    None => "no end is known",
                }
            }
            td {
                details class="quiet" {
                    summary { "Remove" span class="unseen" { " " (brief(&credential.endpoint)) } }
                    form method="post" action="/credentials/remove" {
                        (token(visitor))
                        input type="hidden" name="id" value=(credential.id);
                        button class="danger" type="submit" { "Remove it" }
                    }
                }
            }
        }
    }
}

/// Removes a credential of the visitor, or what was delegated.
pub(super) async fn remove(State(web): State<Web>, posted: Posted) -> PageResult {
    let Posted { visitor, form } = posted;
    let id = Uuid::parse_str(form.text("id")).map_err(|_| ApiError::not_found())?;
    let (api, caller) = (&web.api, &visitor.caller);
    match id == api.vault().delegated_id(caller.name()) {
        true => api.remove_delegation_of(caller).await?,
        false => api.remove_credential_of(caller, id).await?,
    }
    Ok(Redirect::to("/credentials?done=yes").into_response())
}

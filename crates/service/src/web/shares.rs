//! What a user may have at a time, and for operators the tree of shares.

use axum::extract::State;
use maud::{Markup, html};

use super::{
    Web,
    frame::PageResult,
    layout::{Place, page as whole},
    list::{Column, table},
    text::{brief, count, visible},
    visitor::Visitor,
};

/// Rows of the tree.
const ROWS: usize = 200;

const COLUMNS: [Column; 3] = [
    ("Share", ""),
    ("Weight among its siblings", "number"),
    ("Part while all want more", "number"),
];

pub(super) async fn page(State(web): State<Web>, visitor: Visitor) -> PageResult {
    let quota = web.api.quota(&visitor.caller);
    let tree = match visitor.is_operator() {
        true => Some(web.api.share_views().await?),
        false => None,
    };
    let groups = visitor.caller.groups();
    let body = html! {
        h1 { "Shares" }
        p class="lede" { "What is free goes to those who have least of their share." }
        h2 { "Yours" }
        dl class="facts" {
            div { dt { "Share" } dd class="figure" { (visible(visitor.caller.name())) } }
            div { dt { "Jobs that have not ended" } dd class="figure" { (most(quota.jobs)) } }
            div { dt { "Files of these" } dd class="figure" { (most(quota.files)) } }
            @if !groups.is_empty() {
                div {
                    dt { "Groups, whose shares your jobs can name" }
                    dd { @for group in groups.iter().take(64) { (brief(group)) " " } }
                }
            }
        }
        @if let Some(shares) = tree {
            h2 { "All" }
            p { a href="/operator#share" { "Set a share" } }
            @if shares.is_empty() {
                p class="none" { "No share is set: all users have the same." }
            } @else {
                (table(
                    html! {
                        "Shares by path"
                        @if shares.len() > ROWS { "; " (ROWS) " of " (shares.len()) }
                    },
                    &COLUMNS,
                    &html! {
                        @for share in shares.iter().take(ROWS) {
                            tr {
                                th scope="row" { (visible(&share.path)) }
                                td class="number" { (share.weight) }
                                td class="number" { (format!("{:.1} %", 100.0 * share.fair)) }
                            }
                        }
                    },
                ))
            }
        }
    };
    Ok(whole(&visitor, Place::Shares, "Shares", &body))
}

fn most(limit: u64) -> Markup {
    html! {
        @match limit {
            u64::MAX => { "no limit" }
            limit => { "at most " (count(limit)) }
        }
    }
}

//! Files of a job: what became of them, and who must act.

use godwit_service_api::{
    job::{FileState, FileView, JobView, WhoActs},
    page::Page,
};
use maud::{Markup, html};

use super::{
    list::{Column, table},
    text::{brief, bytes, count, state, visible},
};

/// Codes of errors that are shown.
const CODES: usize = 12;

const COLUMNS: [Column; 4] = [
    ("No.", "number"),
    ("From and to", ""),
    ("State", ""),
    ("Bytes", "number middle"),
];

/// Files of a page, `is_failed`: only those that failed; `is_later`: not the first.
pub(super) fn part(
    view: &JobView,
    files: &Page<FileView>,
    is_failed: bool,
    is_later: bool,
) -> Markup {
    let path = format!("/jobs/{}", view.id);
    let kind = if is_failed { "files=failed&" } else { "" };
    let current = |is: bool| is.then_some("true");
    html! {
        h2 id="files" { "Files" }
        nav class="pager" aria-label="Which files" {
            a href=(format!("{path}#files")) aria-current=[current(!is_failed)] { "All" }
            a href=(format!("{path}?files=failed#files")) aria-current=[current(is_failed)] {
                "Failed (" (count(view.files.failed)) ")"
            }
        }
        @if !view.errors.is_empty() {
            p class="small" {
                "Errors: "
                @for (place, (code, files)) in view.errors.iter().take(CODES).enumerate() {
                    @if place > 0 { ", " }
                    code { (brief(code)) } " " (count(*files))
                }
            }
        }
        @if files.items.is_empty() {
            p class="none" { "No files here." }
        } @else {
            (table("Files in the order of their numbers", &COLUMNS, &html! {
                @for file in &files.items { (file_row(file)) }
            }))
        }
        nav class="pager" aria-label="Further files" {
            @if is_later {
                a href=(format!("{path}?{}#files", kind.trim_end_matches('&'))) { "First files" }
            }
            @if let Some(next) = &files.next {
                a rel="next" href=(format!("{path}?{kind}cursor={next}#files")) { "Next files" }
            }
        }
    }
}

fn file_row(file: &FileView) -> Markup {
    html! {
        tr {
            td class="number" { (file.index) }
            th scope="row" {
                span class="url" { (visible(&file.source).in_parts()) }
                br;
                span class="url soft" { "→\u{a0}" (visible(&file.destination).in_parts()) }
                @if let Some(error) = &file.error {
                    span class="why" {
                        code { (brief(&error.code)) } ": " (visible(&error.message)) ". "
                        strong { (actor(error.who)) }
                        @if file.attempts > 1 { " Tried " (file.attempts) " times." }
                    }
                }
            }
            td { (state(file_state(file.state))) }
            td class="number middle" { @if let Some(size) = file.bytes { (bytes(size)) } }
        }
    }
}

fn file_state(state: FileState) -> &'static str {
    match state {
        FileState::Queued => "queued",
        FileState::Active => "active",
        FileState::Finished => "finished",
        FileState::Skipped => "skipped",
        FileState::Failed => "failed",
        FileState::Canceled => "canceled",
        FileState::Unused => "unused",
    }
}

fn actor(who: WhoActs) -> &'static str {
    match who {
        WhoActs::User => "You must act.",
        WhoActs::Source => "The administrator of the source must act.",
        WhoActs::Destination => "The administrator of the destination must act.",
        WhoActs::Operator => "The operator of this service must act.",
        WhoActs::Service => "It may pass: the service tries again.",
    }
}

//! What a job would copy, above its form.

use godwit_service_api::preview::{Amount, Fate, JobPreview, PreviewedFile};
use maud::{Markup, html};

use super::{
    list::table,
    text::{brief, bytes, count, files_of, visible},
};

pub(super) fn part(preview: &JobPreview) -> Markup {
    let all = preview.amounts().into_iter();
    let files = all.clone().map(|(_, amount)| amount.files);
    let files = files.fold(0, u64::saturating_add);
    let wanted = all.clone().filter(|(fate, _)| is_copied(*fate));
    let size = wanted.clone().map(|(_, amount)| amount.bytes);
    let wanted = wanted.map(|(_, amount)| amount.files);
    let amount = Amount {
        files: wanted.fold(0, u64::saturating_add),
        bytes: size.fold(0, u64::saturating_add),
    };
    let shown = preview.first.len() as u64;
    html! {
        section class="preview" aria-labelledby="preview-title" {
            h2 id="preview-title" { "What would be copied" }
            p role="status" {
                strong {
                    (at_least(preview)) (files_of(amount.files)) ", " (bytes(amount.bytes))
                }
                ". Nothing was submitted."
            }
            (limits(preview))
            @if files > 0 {
                ul {
                    @for (fate, amount) in all.filter(|(_, amount)| amount.files > 0) {
                        li {
                            (files_of(amount.files)) ", " (bytes(amount.bytes)) ": "
                            (meaning(fate))
                        }
                    }
                }
            }
            @if !preview.first.is_empty() {
                (table(
                    html! {
                        @if shown < files || !preview.is_complete() {
                            "The first " (files_of(shown))
                        } @else {
                            "All files"
                        }
                    },
                    &[("From, and to", "url"), ("Size", ""), ("Becomes", "")],
                    &html! { @for file in &preview.first { (row(file)) } },
                ))
            }
        }
    }
}

/// What was not looked at.
fn limits(preview: &JobPreview) -> Markup {
    let failed = preview.failed;
    html! {
        @if preview.unlisted > 0 || failed > 0 || preview.unseen > 0 || preview.without_size > 0 {
            ul class="small" {
                @if preview.unlisted > 0 {
                    li {
                        (count(preview.listed)) " directories were listed, and "
                        (count(preview.unlisted)) " more are known: what is in these is not "
                        "counted."
                    }
                }
                @if failed > 0 {
                    li { (count(failed)) " directories could not be listed, and are not counted." }
                }
                @if preview.unseen > 0 {
                    li {
                        "The destination could not be looked at in " (count(preview.unseen))
                        " places."
                    }
                }
                @if preview.without_size > 0 {
                    li {
                        "The source tells no size of " (files_of(preview.without_size))
                        ": their bytes are not counted."
                    }
                }
                @for failure in &preview.failures { li { (visible(failure)) } }
            }
        }
    }
}

fn row(file: &PreviewedFile) -> Markup {
    html! {
        tr {
            th scope="row" class="url" {
                (brief(&file.source).in_parts())
                span class="soft next" { "→\u{a0}" (brief(&file.destination).in_parts()) }
            }
            td { @if let Some(size) = file.bytes { (bytes(size)) } }
            td { (becomes(file.fate)) }
        }
    }
}

fn at_least(preview: &JobPreview) -> &'static str {
    match preview.is_complete() {
        true => "",
        false => "At least ",
    }
}

/// Its bytes are sent, or may be.
fn is_copied(fate: Fate) -> bool {
    matches!(fate, Fate::Copied | Fate::Replaced | Fate::Unknown)
}

fn becomes(fate: Fate) -> &'static str {
    match fate {
        Fate::Copied => "new",
        Fate::Replaced => "replaced",
        Fate::Skipped => "skipped",
        Fate::Refused => "refused",
        Fate::Unknown => "unknown",
    }
}

fn meaning(fate: Fate) -> &'static str {
    match fate {
        Fate::Copied => "new at the destination",
        Fate::Replaced => "replaced: the destination has another",
        Fate::Skipped => "skipped: the destination has one of this size",
        Fate::Refused => "refused: the destination has something of this name",
        Fate::Unknown => {
            "unknown: what the destination has was not looked at, or only a copy can compare it"
        }
    }
}

//! A new job: one file or one tree.

use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use godwit_service_api::{
    job::{FileRequest, JobOptions, JobRequest},
    preview::JobPreview,
};
use maud::{Markup, html};
use uuid::Uuid;

use super::{
    Web,
    browse::{self, Listing, Side, Step},
    frame::{PageResult, notice, with_status},
    layout::{Place, page as whole, token},
    preview,
    visitor::{Form, Posted, Visitor},
};
use crate::problem::{Answer, ApiError};

pub(super) async fn page(visitor: Visitor) -> Response {
    let body = form_part(&visitor, &Form::default(), None, &Beside::Nothing);
    whole(&visitor, Place::Submit, "Submit a job", &body)
}

/// Submits the job, or only shows what would become of it.
pub(super) async fn submit(State(web): State<Web>, posted: Posted) -> PageResult {
    let Posted { visitor, mut form } = posted;
    if let Some((side, step)) = browse::step(&form) {
        return Ok(with_directory(&web, &visitor, &mut form, side, step).await);
    }
    let submitted = async {
        let request = request(&form)?;
        if form.text("then") == "preview" {
            let preview = web.api.preview(&visitor.caller, request).await?;
            return Ok(FormOutcome::Seen(preview));
        }
        let is_dry = request.options.dry_run;
        let key = form.maybe("key").map(str::to_owned).filter(|_| !is_dry);
        let (_, view) = web.api.submit_job(&visitor.caller, key, request).await?;
        Answer::Ok(match is_dry {
            true => FormOutcome::Checked,
            false => FormOutcome::Job(view.id),
        })
    };
    let page = |beside| {
        let body = form_part(&visitor, &form, None, &beside);
        Ok(whole(&visitor, Place::Submit, "Submit a job", &body))
    };
    match submitted.await {
        Ok(FormOutcome::Job(id)) => {
            Ok(Redirect::to(&format!("/jobs/{id}?done=submit")).into_response())
        }
        Ok(FormOutcome::Checked) => page(Beside::Checked),
        Ok(FormOutcome::Seen(preview)) => page(Beside::Preview(preview)),
        Err(error) => {
            let body = form_part(&visitor, &form, Some(&error), &Beside::Nothing);
            let answer = whole(&visitor, Place::Submit, "Submit a job", &body);
            Ok(with_status(&error, answer))
        }
    }
}

/// What became of the form.
enum FormOutcome {
    Job(Uuid),
    Checked,
    Seen(JobPreview),
}

/// What a page shows beside the form.
enum Beside {
    Nothing,
    /// The job would be accepted.
    Checked,
    Directory(Listing),
    Preview(JobPreview),
}

/// The form as it was sent, and a directory to choose from.
async fn with_directory(
    web: &Web,
    visitor: &Visitor,
    form: &mut Form,
    side: Side,
    step: Step,
) -> Response {
    let page = |form: &Form, error, shown: &Beside| {
        let body = form_part(visitor, form, error, shown);
        whole(visitor, Place::Submit, "Submit a job", &body)
    };
    let request = match step {
        Step::Take { url, is_tree } => {
            browse::take(form, side, &url, is_tree);
            return page(form, None, &Beside::Nothing);
        }
        Step::List(request) => request,
    };
    let url = request.url.clone();
    match web.api.browse(&visitor.caller, request).await {
        Ok(directory) => {
            let listing = Listing {
                side,
                url,
                directory,
            };
            page(form, None, &Beside::Directory(listing))
        }
        Err(error) => with_status(&error, page(form, Some(&error), &Beside::Nothing)),
    }
}

fn request(form: &Form) -> Answer<JobRequest> {
    let usual = JobOptions::default();
    let options = JobOptions {
        name: form.maybe("name").map(str::to_owned),
        priority: form.number("priority")?.unwrap_or(usual.priority),
        class: form.choice("class")?.unwrap_or(usual.class),
        share: form.maybe("share").map(str::to_owned),
        verify: form.choice("verify")?.unwrap_or(usual.verify),
        overwrite: form.choice("overwrite")?.unwrap_or(usual.overwrite),
        attempts: form.number("attempts")?.unwrap_or(usual.attempts),
        preserve_times: form.is_checked("preserve_times"),
        paused: form.is_checked("paused"),
        dry_run: form.text("then") == "check",
        ..usual
    };
    let file = FileRequest {
        source: form.text("source").to_owned(),
        destination: form.text("destination").to_owned(),
        recursive: form.is_checked("recursive"),
        ..FileRequest::default()
    };
    Ok(JobRequest {
        files: vec![file],
        options,
    })
}

fn form_part(visitor: &Visitor, form: &Form, error: Option<&ApiError>, shown: &Beside) -> Markup {
    let is_checked = matches!(shown, Beside::Checked);
    // Sent twice, it is one job.
    let new_key = || format!("web-{}", Uuid::new_v4());
    let key = form.maybe("key").map_or_else(new_key, str::to_owned);
    html! {
        h1 { "Submit a job" }
        p class="lede" {
            "Agents of the service copy the files, and try again what fails in passing."
        }
        @if let Some(error) = error { (notice(error)) }
        @if is_checked {
            div class="notice" role="status" {
                p { "The service would accept this job. Nothing was submitted." }
            }
        }
        @if let Beside::Preview(preview) = shown { (preview::part(preview)) }
        form class="sheet" method="post" action="/submit" {
            (token(visitor))
            input type="hidden" name="key" value=(key);
            // What the key Enter sends: the first button of a form.
            button class="unseen" type="submit" name="then" value="submit" tabindex="-1"
                aria-hidden="true" { "Submit" }
            (url_field(form, Side::Source, "From", "gsiftp://a.example.org/run7/data.h5"))
            (url_field(form, Side::Destination, "To", "gsiftp://b.example.org/run7/data.h5"))
            @if let Beside::Directory(listing) = shown { (browse::part(listing)) }
            div class="field" {
                (check(form, "recursive", "All that is below this directory"))
                span class="hint" {
                    "The second URL is that of the copy, not of the directory that it goes to."
                }
            }
            div class="field" {
                label for="name" { "Name, for lists" }
                input id="name" name="name" value=(form.text("name")) maxlength="200";
            }
            div class="columns" {
                (choice(form, "overwrite", "Files that exist", &[
                    ("never", "fail"),
                    ("different", "are replaced where they differ"),
                    ("always", "are replaced"),
                ]))
                (choice(form, "verify", "Compare afterwards", &[
                    ("size", "sizes"),
                    ("checksum", "checksums of both ends"),
                ]))
                (choice(form, "priority", "Priority in your share", &[
                    ("3", "3, as usual"),
                    ("1", "1, last"),
                    ("2", "2"),
                    ("4", "4"),
                    ("5", "5, first"),
                ]))
                (choice(form, "class", "Class", &[
                    ("normal", "normal"),
                    ("urgent", "urgent"),
                    ("scavenger", "scavenger: what others leave"),
                ]))
                div class="field" {
                    label for="attempts" { "Attempts for each file" }
                    input id="attempts" name="attempts" type="number" min="1" max="100"
                        value=(form.maybe("attempts").unwrap_or("5"));
                }
                div class="field" {
                    label for="share" { "Share that pays" }
                    input id="share" name="share" value=(form.text("share")) maxlength="200"
                        placeholder=(visitor.caller.name()) autocapitalize="none"
                        spellcheck="false";
                }
            }
            div class="field" {
                (check(form, "preserve_times", "Copy the times of the last change"))
                (check(form, "paused", "Start paused"))
            }
            div class="actions" {
                button type="submit" name="then" value="submit" { "Submit" }
                button class="plain" type="submit" name="then" value="preview" { "Preview" }
                button class="plain" type="submit" name="then" value="check" { "Only check" }
            }
        }
    }
}

fn url_field(form: &Form, side: Side, label: &str, example: &str) -> Markup {
    let name = side.field();
    html! {
        div class="field" {
            label for=(name) { (label) }
            input id=(name) name=(name) class="url" value=(form.text(name)) placeholder=(example)
                required autocapitalize="none" spellcheck="false" maxlength="8192";
            button class="plain" type="submit" name="browse" value=(name) formnovalidate {
                "Browse " span class="unseen" { (label) } "…"
            }
        }
    }
}

fn check(form: &Form, name: &str, label: &str) -> Markup {
    html! {
        label class="check" {
            input type="checkbox" name=(name) value="yes" checked[form.is_checked(name)];
            (label)
        }
    }
}

/// The first is what is usual.
fn choice(form: &Form, name: &str, label: &str, values: &[(&str, &str)]) -> Markup {
    html! {
        div class="field" {
            label for=(name) { (label) }
            select id=(name) name=(name) {
                @for (value, text) in values {
                    option value=(value) selected[form.text(name) == *value] { (text) }
                }
            }
        }
    }
}

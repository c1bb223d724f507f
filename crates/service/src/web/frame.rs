//! What every page has, whoever asks; and the page of a failure.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use maud::{DOCTYPE, Markup, html};

use super::{assets, text::visible};
use crate::problem::ApiError;

/// A page without a session.
pub(super) fn bare(status: StatusCode, title: &str, body: &Markup) -> Response {
    (status, whole(title, &html! {}, body)).into_response()
}

pub(super) fn whole(title: &str, head: &Markup, body: &Markup) -> Html {
    Html(html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (visible(title)) " – godwit" }
                link rel="stylesheet" href=(assets::style());
                link rel="icon" type="image/svg+xml" href=(assets::icon());
                script src=(assets::script()) defer {}
            }
            body {
                a class="skip" href="#main" { "Skip to the content" }
                header class="masthead" {
                    div {
                        a class="brand" href="/jobs" { "godwit" }
                        (head)
                    }
                }
                main id="main" tabindex="-1" { (body) }
                footer class="colophon" {
                    div {
                        p id="spoken" class="unseen" role="status" aria-live="polite" {}
                        "godwit-service " (env!("CARGO_PKG_VERSION")) ". Times are UTC."
                    }
                }
            }
        }
    })
}

/// HTML as an answer.
pub(super) struct Html(pub(super) Markup);

impl IntoResponse for Html {
    fn into_response(self) -> Response {
        let media = HeaderValue::from_static("text/html; charset=utf-8");
        ([(header::CONTENT_TYPE, media)], self.0.into_string()).into_response()
    }
}

/// Why there is no page.
pub(super) struct PageError(pub(super) ApiError);

/// What a handler of pages gives.
pub(super) type PageResult = Result<Response, PageError>;

impl From<ApiError> for PageError {
    fn from(error: ApiError) -> Self {
        Self(error)
    }
}

impl From<crate::store::StoreError> for PageError {
    fn from(error: crate::store::StoreError) -> Self {
        Self(error.into())
    }
}

/// Says of an error what failed, where, and what can be done.
pub(super) fn notice(error: &ApiError) -> Markup {
    let problem = error.problem();
    let says_when = problem.detail.contains("try again");
    html! {
        div class="notice bad" role="alert" {
            p { strong { (problem.title) } }
            p {
                (visible(&problem.detail))
                @if let Some(pointer) = &problem.pointer { " (" (visible(pointer)) ")" }
                @if let Some(seconds) = problem.retry_after.filter(|_| !says_when) {
                    "; try again in " (seconds) " s"
                }
            }
        }
    }
}

/// Status of an error, and when to try again.
pub(super) fn with_status(error: &ApiError, mut answer: Response) -> Response {
    let problem = error.problem();
    let status = StatusCode::from_u16(problem.status);
    *answer.status_mut() = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Some(seconds) = problem.retry_after {
        answer
            .headers_mut()
            .insert(header::RETRY_AFTER, seconds.into());
    }
    answer
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let Self(error) = self;
        let body = html! {
            h1 { (error.problem().title) }
            (notice(&error))
            p { a href="/jobs" { "To the jobs" } }
        };
        let answer = bare(StatusCode::OK, &error.problem().title, &body);
        with_status(&error, answer)
    }
}

//! What all pages have: head, navigation, foot; and the page of a failure.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use maud::{DOCTYPE, Markup, html};

use super::{
    assets,
    text::visible,
    visitor::{CSRF, Visitor},
};
use crate::problem::ApiError;

/// Places of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Jobs,
    Submit,
    Endpoints,
    Links,
    Agents,
    Shares,
    Operator,
}

const PLACES: [(Place, &str, &str); 7] = [
    (Place::Jobs, "/jobs", "Jobs"),
    (Place::Submit, "/submit", "Submit"),
    (Place::Endpoints, "/endpoints", "Endpoints"),
    (Place::Links, "/links", "Links"),
    (Place::Agents, "/agents", "Agents"),
    (Place::Shares, "/shares", "Shares"),
    (Place::Operator, "/operator", "Operator"),
];

impl Place {
    fn is_for_all(self) -> bool {
        matches!(self, Place::Jobs | Place::Submit | Place::Shares)
    }
}

/// A page of a visitor.
pub(super) fn page(visitor: &Visitor, place: Place, title: &str, body: &Markup) -> Response {
    let places = PLACES.iter();
    let places = places.filter(|(place, ..)| place.is_for_all() || visitor.is_operator());
    let head = html! {
        nav aria-label="Pages" {
            ul {
                @for (other, path, name) in places {
                    li {
                        a href=(path) aria-current=[(*other == place).then_some("page")] { (name) }
                    }
                }
            }
        }
        div class="whoami" {
            span { span class="unseen" { "Logged in as " } (visible(visitor.caller.name())) }
            form method="post" action="/logout" {
                (token(visitor))
                button class="link" type="submit" { "Log out" }
            }
        }
    };
    whole(title, &head, body).into_response()
}

/// A page of nobody.
pub(super) fn bare(status: StatusCode, title: &str, body: &Markup) -> Response {
    (status, whole(title, &html! {}, body)).into_response()
}

/// The field of every form that says that the visitor's own page sends it.
pub(super) fn token(visitor: &Visitor) -> Markup {
    html! { input type="hidden" name=(CSRF) value=(visitor.form_token()); }
}

fn whole(title: &str, head: &Markup, body: &Markup) -> Html {
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
pub(super) struct Failure(pub(super) ApiError);

/// What a handler of pages gives.
pub(super) type Shown = Result<Response, Failure>;

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self(error)
    }
}

impl From<crate::store::StoreError> for Failure {
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

impl IntoResponse for Failure {
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

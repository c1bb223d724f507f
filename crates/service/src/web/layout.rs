//! Pages of a visitor: navigation, and who is logged in.

use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};

use super::{
    frame::whole,
    text::visible,
    visitor::{CSRF, Visitor},
};

/// Places of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Jobs,
    Submit,
    Schedules,
    Credentials,
    Shares,
    Endpoints,
    Links,
    Agents,
    Users,
    Operator,
}

const PLACES: [(Place, &str, &str); 10] = [
    (Place::Jobs, "/jobs", "Jobs"),
    (Place::Submit, "/submit", "Submit"),
    (Place::Schedules, "/schedules", "Schedules"),
    (Place::Credentials, "/credentials", "Credentials"),
    (Place::Shares, "/shares", "Shares"),
    (Place::Endpoints, "/endpoints", "Endpoints"),
    (Place::Links, "/links", "Links"),
    (Place::Agents, "/agents", "Agents"),
    (Place::Users, "/users", "Users"),
    (Place::Operator, "/operator", "Operator"),
];

impl Place {
    fn is_for_all(self) -> bool {
        use Place::{Credentials, Jobs, Schedules, Shares, Submit};
        matches!(self, Jobs | Submit | Schedules | Credentials | Shares)
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

/// The field of every form that says that the visitor's own page sends it.
pub(super) fn token(visitor: &Visitor) -> Markup {
    html! { input type="hidden" name=(CSRF) value=(visitor.form_token()); }
}

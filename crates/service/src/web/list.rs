//! What lists of all pages have: a table with a caption and its columns, and the way to the rest.

use maud::{Markup, Render, html};

/// Name of a column, and its classes: `number`, and how wide a screen it needs. A name that is
/// `unseen` is read aloud only.
pub(super) type Column = (&'static str, &'static str);

/// The column of what can be done to a row.
pub(super) const CHANGE: Column = ("Change", "unseen");

/// A table, whose first column names the rows.
pub(super) fn table(caption: impl Render, columns: &[Column], rows: &Markup) -> Markup {
    html! {
        div class="scroll" {
            table {
                caption { (caption) }
                thead {
                    tr {
                        @for (name, class) in columns {
                            @if *class == "unseen" {
                                th scope="col" { span class="unseen" { (name) } }
                            } @else {
                                th scope="col" class=[Some(class).filter(|c| !c.is_empty())] {
                                    (name)
                                }
                            }
                        }
                    }
                }
                tbody { (rows) }
            }
        }
    }
}

/// The way to the next page of a list, if there is one. `of_what`: what the list has.
pub(super) fn next_page(of_what: &str, link: &str, path: Option<&str>) -> Markup {
    html! {
        @if let Some(path) = path {
            nav class="pager" aria-label=(format!("Further {of_what}")) {
                a rel="next" href=(path) { (link) }
            }
        }
    }
}

/// What was done, after a form.
pub(super) fn done(text: Option<&str>) -> Markup {
    html! {
        @if let Some(text) = text { div class="notice" role="status" { p { (text) } } }
    }
}

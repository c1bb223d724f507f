//! Directories of endpoints beside the form of a new job: what is chosen there goes into the form.

use godwit_service_api::browse::{BrowseRequest, BrowsedDirectory, BrowsedEntry};
use maud::{Markup, html};

use super::{
    list::table,
    text::{brief, bytes, count, visible},
    visitor::Form,
};

/// Entries of a page.
const ENTRIES: u32 = 40;

/// Longest URL of an entry that can be chosen: a page has many.
const URL_BYTES_MAX: usize = 500;

/// Where a job copies from, or to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Source,
    Destination,
}

/// What a button of the form asks for.
#[derive(Debug)]
pub(super) enum Step {
    /// To see a directory.
    List(BrowseRequest),
    /// To copy it.
    Take { url: String, is_tree: bool },
}

/// A directory that is shown.
pub(super) struct Listing {
    pub(super) side: Side,
    pub(super) url: String,
    pub(super) directory: BrowsedDirectory,
}

impl Side {
    pub(super) fn field(self) -> &'static str {
        match self {
            Side::Source => "source",
            Side::Destination => "destination",
        }
    }

    fn named(name: &str) -> Option<Self> {
        let sides = [Side::Source, Side::Destination];
        sides.into_iter().find(|side| side.field() == name)
    }
}

/// `None`: the form is to be submitted.
pub(super) fn step(form: &Form) -> Option<(Side, Step)> {
    let list = |url: &str, cursor: Option<&str>| {
        Step::List(BrowseRequest {
            url: url.to_owned(),
            cursor: cursor.map(str::to_owned),
            limit: ENTRIES,
            labels: Vec::new(),
        })
    };
    if let Some(side) = Side::named(form.text("browse")) {
        return Some((side, list(form.text(side.field()), None)));
    }
    let side = Side::named(form.text("side"))?;
    let take = |name: &str, is_tree| {
        let url = form.maybe(name)?.to_owned();
        Some(Step::Take { url, is_tree })
    };
    let open = form.maybe("open").map(|url| list(url, None));
    let more = || {
        form.maybe("more")
            .map(|cursor| list(form.text("listed"), Some(cursor)))
    };
    let step = open.or_else(more).or_else(|| take("take", false));
    Some((side, step.or_else(|| take("take-tree", true))?))
}

/// Puts what was chosen into the form. What goes into a directory keeps its name there.
pub(super) fn take(form: &mut Form, side: Side, url: &str, is_tree: bool) {
    match side {
        Side::Source => {
            form.set("source", url.to_owned());
            form.set("recursive", if is_tree { "yes" } else { "" }.to_owned());
        }
        Side::Destination if is_tree => {
            let source = form.text("source").trim_end_matches('/');
            let name = parent_of(source).map_or("", |above| &source[above.len()..]);
            let url = format!("{}/{name}", url.trim_end_matches('/'));
            form.set("destination", url);
        }
        Side::Destination => form.set("destination", url.to_owned()),
    }
}

/// The directory above; `None`: there is none.
fn parent_of(url: &str) -> Option<&str> {
    let url = url.trim_end_matches('/');
    let path = url.find("://")? + 3;
    let path = path + url.get(path..)?.find('/')?;
    let end = url.rfind('/')?;
    (end >= path).then(|| &url[..=end])
}

/// A part of the form, which its buttons send.
pub(super) fn part(listing: &Listing) -> Markup {
    let Listing {
        side,
        url,
        directory,
    } = listing;
    let (what, take_this) = match side {
        Side::Source => ("From", "Copy all of this directory"),
        Side::Destination => ("To", "Copy into this directory"),
    };
    html! {
        section class="browse" aria-labelledby="browse-title" {
            h2 id="browse-title" { (what) ": " (visible(url)) }
            input type="hidden" name="side" value=(side.field());
            input type="hidden" name="listed" value=(url);
            div class="actions" {
                @if let Some(above) = parent_of(url) {
                    (button("open", above, "Up"))
                }
                (button("take-tree", url, take_this))
            }
            @if directory.entries.is_empty() {
                p { "Nothing is here." }
            } @else {
                (table(
                    html! {
                        (count(directory.entries.len() as u64)) " of "
                        @if directory.has_more { "more than " }
                        (count(directory.total)) " entries, directories first"
                    },
                    &[("Name", "name"), ("Size", ""), ("Choose", "")],
                    &html! { @for entry in &directory.entries { (row(*side, entry)) } },
                ))
            }
            @if directory.has_more {
                p class="soft" {
                    "Only the " (count(directory.total)) " that the endpoint names first can be \
                     shown here. Type the URL of another above."
                }
            }
            @if let Some(cursor) = directory.cursor.as_deref().filter(|cursor| is_short(cursor)) {
                (button("more", cursor, "More of this directory"))
            }
        }
    }
}

fn row(side: Side, entry: &BrowsedEntry) -> Markup {
    let (tree, file) = match side {
        Side::Source => ("Copy all", "Copy"),
        Side::Destination => ("Copy into", "Replace"),
    };
    html! {
        tr {
            th scope="row" class="name" {
                (brief(&entry.name)) @if entry.directory { "/" }
            }
            td { @if let Some(size) = entry.bytes { (bytes(size)) } }
            td {
                @if !is_short(&entry.url) {
                    span class="soft" { "its URL is too long for this page" }
                } @else if entry.directory {
                    (button("open", &entry.url, "Open")) " "
                    (button("take-tree", &entry.url, tree))
                } @else {
                    (button("take", &entry.url, file))
                }
            }
        }
    }
}

fn is_short(url: &str) -> bool {
    url.len() <= URL_BYTES_MAX
}

/// It asks for no field that a submission needs.
fn button(name: &str, value: &str, text: &str) -> Markup {
    html! {
        button class="plain" type="submit" name=(name) value=(value) formnovalidate { (text) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_above_ends_at_the_root() {
        assert_eq!(parent_of("ftp://h/a/b/"), Some("ftp://h/a/"));
        assert_eq!(parent_of("ftp://h/a"), Some("ftp://h/"));
        for root in ["ftp://h/", "ftp://h", "file:///", "x", ""] {
            assert_eq!(parent_of(root), None, "{root}");
        }
    }

    #[test]
    fn what_goes_into_a_directory_keeps_its_name() {
        let mut form = Form::default();
        take(&mut form, Side::Destination, "ftp://b/in", true);
        assert_eq!(form.text("destination"), "ftp://b/in/");
        take(&mut form, Side::Source, "ftp://a/run7", true);
        take(&mut form, Side::Destination, "ftp://b/in/", true);
        assert_eq!(form.text("destination"), "ftp://b/in/run7");
        assert!(form.is_checked("recursive"));
        take(&mut form, Side::Source, "ftp://a/x", false);
        assert!(!form.is_checked("recursive"));
    }
}

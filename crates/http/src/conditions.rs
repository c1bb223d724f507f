//! Conditional requests (RFC 9110 §13).

use std::{fmt, time::SystemTime};

/// Entity tags of a list that are read; more of them match nothing.
const TAGS_MAX: usize = 64;

/// An entity tag: equal tags are equal bytes, unless it is weak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityTag {
    /// Equal tags mean equal enough (`W/`).
    pub is_weak: bool,
    /// Between the quotes.
    tag: String,
}

impl EntityTag {
    /// A strong tag. `None`: it has characters that no tag has.
    pub fn strong(tag: impl Into<String>) -> Option<Self> {
        let tag = tag.into();
        is_tag(&tag).then_some(Self {
            is_weak: false,
            tag,
        })
    }

    /// `None`: malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim_matches([' ', '\t']);
        let (is_weak, rest) = match text.strip_prefix("W/") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let tag = rest.strip_prefix('"')?.strip_suffix('"')?;
        is_tag(tag).then(|| Self {
            is_weak,
            tag: tag.to_owned(),
        })
    }

    fn is_strongly(&self, other: &Self) -> bool {
        !self.is_weak && !other.is_weak && self.tag == other.tag
    }
}

fn is_tag(tag: &str) -> bool {
    tag.bytes()
        .all(|byte| byte == 0x21 || (0x23..0x7f).contains(&byte) || byte >= 0x80)
}

impl fmt::Display for EntityTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let weak = if self.is_weak { "W/" } else { "" };
        write!(f, "{weak}\"{}\"", self.tag)
    }
}

/// What a file is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validators {
    /// Of its bytes.
    pub tag: EntityTag,
    /// Last modification.
    pub modified: SystemTime,
}

/// The conditions of a request, as its headers have them.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)] // the header is the documentation
pub struct Conditions<'a> {
    pub if_match: Option<&'a str>,
    pub if_none_match: Option<&'a str>,
    pub if_modified_since: Option<&'a str>,
    pub if_unmodified_since: Option<&'a str>,
}

/// What the conditions of a request say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Carry it out.
    Proceed,
    /// 304: the client has the file already.
    NotModified,
    /// 412.
    Failed,
}

impl Conditions<'_> {
    /// In the order of RFC 9110 §13.2.2. `current`: what is there; `None`: nothing. `reads`: GET or
    /// HEAD.
    pub fn check(&self, current: Option<&Validators>, reads: bool) -> Verdict {
        if let Some(tags) = self.if_match {
            let matches = |current: &Validators| any(tags, |tag| tag.is_strongly(&current.tag));
            if current.and_then(matches) != Some(true) {
                return Verdict::Failed;
            }
        } else if let Some(date) = self.if_unmodified_since.and_then(parse_date)
            && current.is_some_and(|current| seconds(current.modified) > seconds(date))
        {
            return Verdict::Failed;
        }
        if let Some(tags) = self.if_none_match {
            let matches =
                |current: &Validators| any(tags, |tag| tag.tag == current.tag.tag) == Some(true);
            return match (current.is_some_and(matches), reads) {
                (false, _) => Verdict::Proceed,
                (true, true) => Verdict::NotModified,
                (true, false) => Verdict::Failed,
            };
        }
        let since = self.if_modified_since.filter(|_| reads);
        match (since.and_then(parse_date), current) {
            (Some(date), Some(current)) if seconds(current.modified) <= seconds(date) => {
                Verdict::NotModified
            }
            _ => Verdict::Proceed,
        }
    }

    /// Says what may not be there, in a way that cannot be read. [`Self::check`] takes it for met,
    /// as readers may; a change that is made all the same may replace what it should not.
    pub fn excludes_unreadably(&self) -> bool {
        self.if_none_match
            .is_some_and(|tags| any(tags, |_| false).is_none())
    }

    /// Nothing may be there: the file has to be new (`If-None-Match: *`).
    pub fn demands_new(&self) -> bool {
        self.if_none_match.is_some_and(|tags| tags.trim() == "*")
    }
}

/// Whether `If-Range` lets a `Range` count (RFC 9110 §13.1.5).
pub fn range_counts(if_range: Option<&str>, current: &Validators) -> bool {
    let Some(text) = if_range else {
        return true;
    };
    match EntityTag::parse(text) {
        Some(tag) => tag.is_strongly(&current.tag),
        None => parse_date(text).is_some_and(|date| seconds(date) == seconds(current.modified)),
    }
}

/// Whether it is `*`, or a list with a tag that `matches`. `None`: none does as far as it can be
/// read, and that is not to its end.
fn any(list: &str, matches: impl Fn(&EntityTag) -> bool) -> Option<bool> {
    if list.trim() == "*" {
        return Some(true);
    }
    let mut rest = list;
    for count in 0..TAGS_MAX {
        // A tag may have commas between its quotes.
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if rest.is_empty() {
            return (count > 0).then_some(false);
        }
        let open = rest.find('"')?;
        let length = rest[open + 1..].find('"')?;
        let (tag, behind) = rest.split_at(open + 1 + length + 1);
        if matches(&EntityTag::parse(tag)?) {
            return Some(true);
        }
        rest = behind;
    }
    None
}

/// A date of HTTP, in any of its three forms.
pub fn parse_date(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(text.trim()).ok()
}

/// As HTTP writes dates. Years past 9999 and before 1970 have no such form.
pub fn date(time: SystemTime) -> String {
    const SECONDS_MAX: u64 = 253_402_300_799;
    let seconds = seconds(time).min(SECONDS_MAX);
    httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds))
}

/// Dates of HTTP are whole seconds.
fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const OLD: &str = "Thu, 01 Jan 1970 00:00:09 GMT";
    const SAME: &str = "Thu, 01 Jan 1970 00:00:10 GMT";
    const NEW: &str = "Thu, 01 Jan 1970 00:00:11 GMT";

    fn file() -> Validators {
        Validators {
            tag: EntityTag::strong("x,y").unwrap(),
            modified: SystemTime::UNIX_EPOCH + Duration::from_millis(10_500),
        }
    }

    #[test]
    fn conditions_are_checked_in_order() {
        use Verdict::*;
        let none = Conditions::default();
        let matching = |tags| Conditions {
            if_match: Some(tags),
            ..none
        };
        let unlike = |tags| Conditions {
            if_none_match: Some(tags),
            ..none
        };
        let since = |date| Conditions {
            if_modified_since: Some(date),
            ..none
        };
        let before = |date| Conditions {
            if_unmodified_since: Some(date),
            ..none
        };
        // The condition, and its verdict for GET, for PUT, and where there is no file.
        for (conditions, get, put, nothing) in [
            (none, Proceed, Proceed, Proceed),
            (matching("*"), Proceed, Proceed, Failed),
            (matching("\"a\", \"x,y\""), Proceed, Proceed, Failed),
            (matching("W/\"x,y\""), Failed, Failed, Failed),
            (matching("\"x\""), Failed, Failed, Failed),
            (matching("x,y"), Failed, Failed, Failed),
            (unlike("*"), NotModified, Failed, Proceed),
            (unlike("W/\"x,y\""), NotModified, Failed, Proceed),
            (unlike("\"a\",\"b\""), Proceed, Proceed, Proceed),
            (unlike("\"x,y"), Proceed, Proceed, Proceed),
            (since(OLD), Proceed, Proceed, Proceed),
            (since(SAME), NotModified, Proceed, Proceed),
            (since(NEW), NotModified, Proceed, Proceed),
            (since("yesterday"), Proceed, Proceed, Proceed),
            (before(OLD), Failed, Failed, Proceed),
            (before(SAME), Proceed, Proceed, Proceed),
        ] {
            assert_eq!(conditions.check(Some(&file()), true), get, "{conditions:?}");
            assert_eq!(
                conditions.check(Some(&file()), false),
                put,
                "{conditions:?}"
            );
            assert_eq!(conditions.check(None, false), nothing, "{conditions:?}");
        }
        assert!(unlike(" * ").demands_new() && !matching("*").demands_new());
        let many = "\"a\",".repeat(TAGS_MAX + 1);
        for (tags, is_unreadable) in [
            ("*", false),
            ("\"a\", W/\"b\" ,", false),
            ("a", true),
            ("", true),
            ("\"a\", b", true),
            ("\"a", true),
            (" * , \"a\"", true),
            (&*many, true),
        ] {
            assert_eq!(unlike(tags).excludes_unreadably(), is_unreadable, "{tags}");
            assert!(!matching(tags).excludes_unreadably());
        }
    }

    #[test]
    fn a_range_counts_for_the_file_that_the_client_knows() {
        for (text, counts) in [
            (None, true),
            (Some("\"x,y\""), true),
            (Some("W/\"x,y\""), false),
            (Some("\"a\""), false),
            (Some(SAME), true),
            (Some(NEW), false),
            (Some("nonsense"), false),
        ] {
            assert_eq!(range_counts(text, &file()), counts, "{text:?}");
        }
    }

    #[test]
    fn dates_are_read_as_written() {
        for seconds in [0, 1_764_080_000, u64::from(u32::MAX)] {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(parse_date(&date(time)), Some(time));
        }
        assert_eq!(
            date(SystemTime::UNIX_EPOCH - Duration::from_secs(5)),
            date(SystemTime::UNIX_EPOCH)
        );
        let far = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40);
        assert!(date(far).contains("9999"));
    }
}

//! Names, numbers and times for people.

use std::time::Duration;

use godwit_engine::host::terminal::steers;
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, Render, html};

/// Bytes of HTML that a name or a line takes at most.
const BYTES_MAX: usize = 400;

/// Text of a user, a peer or a server: characters that control or reorder are seen as escapes, and
/// what is too long ends in an ellipsis.
pub(super) struct Visible<'a> {
    text: &'a str,
    bytes_max: usize,
    breaks: bool,
}

impl Visible<'_> {
    /// With names of hosts and paths: a line may end between their parts, so that it does not end
    /// within one.
    pub(super) fn in_parts(self) -> Self {
        Self {
            breaks: true,
            ..self
        }
    }
}

/// Where a line may end.
const BREAK: &str = "<wbr>";

/// A name, or a line.
pub(super) fn visible(text: &str) -> Visible<'_> {
    Visible {
        text,
        bytes_max: BYTES_MAX,
        breaks: false,
    }
}

/// The same, shorter: for lists of many.
pub(super) fn brief(text: &str) -> Visible<'_> {
    Visible {
        text,
        bytes_max: BYTES_MAX / 2,
        breaks: false,
    }
}

impl Render for Visible<'_> {
    fn render_to(&self, out: &mut String) {
        let begin = out.len();
        let mut ends_part = false;
        for c in self.text.chars() {
            if self.breaks && ends_part && c.is_alphanumeric() {
                out.push_str(BREAK);
            }
            ends_part = matches!(c, '/' | '.' | '-' | '_' | ':' | '@');
            if out.len() - begin > self.bytes_max {
                out.push('…');
                return;
            }
            match c {
                '&' => out.push_str("&amp;"),
                '<' => out.push_str("&lt;"),
                '>' => out.push_str("&gt;"),
                '"' => out.push_str("&quot;"),
                '\'' => out.push_str("&#39;"),
                c if steers(c) => out.extend(c.escape_unicode()),
                c => out.push(c),
            }
        }
    }
}

/// Bytes, in decimal multiples.
pub(super) fn bytes(bytes: u64) -> String {
    scaled(bytes as f64, "B")
}

/// A rate of bytes, in bits a second as all rates of the project.
pub(super) fn rate(bytes_per_second: f64) -> String {
    scaled(bytes_per_second * 8.0, "bit/s")
}

fn scaled(value: f64, unit: &str) -> String {
    // The sum of nothing is -0.
    let (mut value, mut prefix) = (value.max(0.0) + 0.0, "");
    for next in ["k", "M", "G", "T", "P"] {
        // 999.95 would be shown as 1000.0.
        if value < 999.5 {
            break;
        }
        (value, prefix) = (value / 1000.0, next);
    }
    match (prefix, value < 9.95) {
        ("", _) => format!("{value:.0} {unit}"),
        (_, true) => format!("{value:.2} {prefix}{unit}"),
        (_, false) => format!("{value:.1} {prefix}{unit}"),
    }
}

/// A number with blanks between thousands.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// So many files.
pub(super) fn files_of(number: u64) -> String {
    let noun = if number == 1 { "file" } else { "files" };
    format!("{} {noun}", count(number))
}

/// A part of a whole, in percent, which is 100 only where nothing is missing.
pub(super) fn percent(part: u64, whole: u64) -> u64 {
    if whole == 0 {
        return 0;
    }
    let percent = u128::from(part.min(whole)) * 100 / u128::from(whole);
    u64::try_from(percent).unwrap_or(100)
}

/// A length of time by its two largest units.
pub(super) fn duration(seconds: u64) -> String {
    let units = [("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)];
    let mut left = seconds;
    let mut parts = Vec::new();
    for (name, length) in units {
        if left >= length && parts.len() < 2 || length == 1 && parts.is_empty() {
            parts.push(format!("{} {name}", left / length));
            left %= length;
        } else if !parts.is_empty() {
            break;
        }
    }
    parts.join(" ")
}

/// How long something took.
pub(super) fn took(from: Timestamp, until: Timestamp) -> String {
    let took = until.duration_since(from).max(SignedDuration::ZERO);
    duration(took.as_secs().unsigned_abs())
}

/// A reason, whose arrows between endpoints are of two signs in programs.
pub(super) fn reason(text: &str) -> String {
    text.replace(" -> ", " → ")
}

/// How long ago something was that this process has seen.
pub(super) fn ago(since: Duration) -> String {
    match since.as_secs() {
        0..10 => "now".to_owned(),
        seconds => format!("{} ago", duration(seconds - seconds % 10)),
    }
}

/// A time, for people and for programs.
pub(super) fn time(at: Timestamp) -> Markup {
    let text = at.strftime("%Y-%m-%d %H:%M");
    html! { time datetime=(format!("{at:.0}")) title="UTC" { (text.to_string()) } }
}

/// A word in its state's colour.
pub(super) fn state(name: &str) -> Markup {
    html! { span class=(format!("state {name}")) { (name) } }
}

/// A limit, where one is set.
pub(super) fn of_limit(used: u64, limit: Option<u64>) -> Markup {
    html! {
        (count(used))
        @if let Some(limit) = limit { span class="soft" { " of " (count(limit)) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_is_escaped_shown_and_bounded() {
        let shown = |text: &str| visible(text).render().into_string();
        assert_eq!(
            shown("<b a=\"'&'\">"),
            "&lt;b a=&quot;&#39;&amp;&#39;&quot;&gt;"
        );
        assert_eq!(
            shown("a\u{1b}[2J\n\u{202e}b"),
            "a\\u{1b}[2J\\u{a}\\u{202e}b"
        );
        for text in ["\"".repeat(100_000), "\u{202e}".repeat(100_000)] {
            assert!(shown(&text).len() < BYTES_MAX + 20 && shown(&text).ends_with('…'));
        }
        let parts = visible("ftp://a.b-c/<d").in_parts().render().into_string();
        assert_eq!(parts, "ftp://<wbr>a.<wbr>b-<wbr>c/&lt;d");
        let long = visible(&"a.".repeat(1000))
            .in_parts()
            .render()
            .into_string();
        assert!(long.len() < BYTES_MAX + 20);
        assert!(brief(&"x".repeat(1000)).render().into_string().len() < 220);
    }

    #[test]
    fn numbers_are_short_and_never_too_good() {
        assert_eq!(
            [bytes(0), bytes(999), bytes(1000)],
            ["0 B", "999 B", "1.00 kB"]
        );
        assert_eq!([bytes(10_485_760), bytes(999_999)], ["10.5 MB", "1.00 MB"]);
        let rates = [rate(0.0), rate(-0.0), rate(125e6)];
        assert_eq!(rates, ["0 bit/s", "0 bit/s", "1.00 Gbit/s"]);
        assert_eq!(count(1_234_567), "1\u{202f}234\u{202f}567");
        let files = [0, 1, 2, 1000].map(files_of);
        assert_eq!(
            files,
            ["0 files", "1 file", "2 files", "1\u{202f}000 files"]
        );
        assert_eq!(
            [percent(999, 1000), percent(5, 0), percent(7, 7)],
            [99, 0, 100]
        );
        let durations = [0, 59, 61, 3600, 90_061].map(duration);
        assert_eq!(durations, ["0 s", "59 s", "1 min 1 s", "1 h", "1 d 1 h"]);
    }
}

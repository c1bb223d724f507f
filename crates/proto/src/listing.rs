//! LIST lines, in the shape of `ls -l`.

use crate::{
    facts::{FactType, Facts},
    timestamp::Timestamp,
};

/// `-rw-r--r--   1 owner group  size Mon dd hh:mm name` without line end. Missing facts become `?`.
/// A symbolic link is listed as what it points to, as the facts have it.
/// Files older than six months before `now` show the year instead of the time, as `ls` does.
pub fn format_line(facts: &Facts, links: u64, name: &[u8], now: Timestamp) -> Vec<u8> {
    let owner = facts.unix_owner.as_deref().unwrap_or("?");
    let group = facts.unix_group.as_deref().unwrap_or("?");
    let unknown = |width: usize| "?".repeat(width);
    let mode = facts.unix_mode.map_or_else(|| unknown(9), permissions);
    let size = facts
        .size
        .map_or_else(|| unknown(1), |size| size.to_string());
    let time = facts.modify.map(|modify| time_column(modify, now));
    let time = time.unwrap_or_else(|| unknown(1));
    let kind = match &facts.kind {
        Some(FactType::Dir | FactType::Cdir | FactType::Pdir) => 'd',
        Some(FactType::File) => '-',
        Some(FactType::Other(word)) => match word.as_str() {
            "OS.unix=chr" => 'c',
            "OS.unix=blk" => 'b',
            "OS.unix=fifo" => 'p',
            "OS.unix=socket" => 's',
            _ => '-',
        },
        None => '?',
    };
    let mut line = format!(
        "{kind}{mode} {links:>3} {} {} {size:>12} {time:>12} ",
        one_word(owner),
        one_word(group),
    )
    .into_bytes();
    line.extend(name.iter().map(|b| match b {
        b'\r' | b'\n' | 0 => b'?',
        _ => *b,
    }));
    line
}

/// `rwxr-xr-x` with the set-user-id, set-group-id and sticky bits as `ls` shows them.
fn permissions(mode: u32) -> String {
    let mut out = String::with_capacity(9);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        out.push(if bits & 4 != 0 { 'r' } else { '-' });
        out.push(if bits & 2 != 0 { 'w' } else { '-' });
        out.push(match (bits & 1 != 0, mode & special != 0) {
            (true, false) => 'x',
            (false, false) => '-',
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
        });
    }
    out
}

/// Columns are separated by blanks, so a name of an account must not hold one.
fn one_word(text: &str) -> String {
    if text.is_empty() {
        return "?".to_owned();
    }
    text.chars()
        .map(|c| {
            if c.is_whitespace() || c.is_control() {
                '_'
            } else {
                c
            }
        })
        .collect()
}

/// Half of a Gregorian year, as GNU `ls` reckons "recent".
const RECENT_SECONDS: i64 = 31_556_952 / 2;

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// `Nov 21 06:05`, or `Nov 21  2020` for what is old or in the future. Always 12 characters.
fn time_column(modify: Timestamp, now: Timestamp) -> String {
    let c = modify.civil();
    let month = usize::try_from(c.month - 1)
        .ok()
        .and_then(|m| MONTHS.get(m));
    let month = month.unwrap_or(&MONTHS[0]);
    let age = now.0.saturating_sub(modify.0);
    if (0..RECENT_SECONDS).contains(&age) {
        format!("{month} {:>2} {:02}:{:02}", c.day, c.hour, c.minute)
    } else {
        format!("{month} {:>2} {:>5}", c.day, c.year)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_795_242_095);

    #[test]
    fn recent_file() {
        let facts = Facts {
            kind: Some(FactType::File),
            size: Some(3000),
            modify: Some(Timestamp(1_795_241_134)),
            unix_mode: Some(0o644),
            unix_owner: Some("root".into()),
            unix_group: Some("domain users".into()),
            ..Facts::default()
        };
        assert_eq!(
            String::from_utf8(format_line(&facts, 1, b"a b", NOW)).unwrap(),
            "-rw-r--r--   1 root domain_users         3000 Nov 21 06:05 a b"
        );
    }

    #[test]
    fn unknown_facts_are_question_marks() {
        assert_eq!(
            String::from_utf8(format_line(&Facts::default(), 0, b"x\ny", NOW)).unwrap(),
            "??????????   0 ? ?            ?            ? x?y"
        );
    }

    #[test]
    fn old_and_future_show_the_year() {
        assert_eq!(time_column(NOW, NOW), "Nov 21 06:21");
        assert_eq!(
            time_column(Timestamp(NOW.0 - RECENT_SECONDS), NOW),
            "May 22  2026"
        );
        assert_eq!(time_column(Timestamp(NOW.0 + 1), NOW), "Nov 21  2026");
        assert_eq!(
            time_column(Timestamp(i64::MIN), Timestamp(i64::MAX)),
            "Jan  1     0"
        );
    }

    #[test]
    fn permission_bits() {
        for (mode, want) in [
            (0o755, "rwxr-xr-x"),
            (0o4755, "rwsr-xr-x"),
            (0o2640, "rw-r-S---"),
            (0o1777, "rwxrwxrwt"),
            (0o1776, "rwxrwxrwT"),
        ] {
            assert_eq!(permissions(mode), want);
        }
    }
}

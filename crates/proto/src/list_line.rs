//! LIST lines of other servers, and what their last reply says of a listing. No standard says what
//! LIST sends; these are the shapes that servers have: `ls -l` with its variants, MS-DOS (IIS), and
//! EPLF. A line of any other shape is not understood: nothing is guessed.

use crate::{
    Reply,
    facts::{FactType, Facts},
    text::{decimal, find_ignoring_case},
    timestamp::Timestamp,
};

/// What one line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListLine {
    /// A name and what is known of it. No times but those of EPLF: others are in the zone of the
    /// server, and to the minute or day.
    Entry(Box<Facts>, Vec<u8>),
    /// `total 12`, which `ls -l` writes first: disk blocks of all that follows.
    Total(u64),
}

/// Reads one line, with or without its end.
pub fn parse_line(line: &[u8]) -> Option<ListLine> {
    let mut line = line;
    while let Some(shorter) = line.strip_suffix(b"\r").or(line.strip_suffix(b"\n")) {
        line = shorter;
    }
    if line.iter().any(|b| matches!(b, b'\r' | b'\n' | 0)) {
        return None;
    }
    if let Some(count) = line.strip_prefix(b"total ") {
        let count = std::str::from_utf8(count).ok()?;
        return decimal(count.trim()).map(ListLine::Total);
    }
    let (facts, name) = match line.first()? {
        b'+' => eplf(&line[1..]),
        first if first.is_ascii_digit() => dos(line),
        _ => unix(line),
    }?;
    (!name.is_empty()).then(|| ListLine::Entry(Box::new(facts), name.to_vec()))
}

/// Words of a line, each with where it ends.
fn words(line: &[u8]) -> Vec<(&str, usize)> {
    // Owners and groups may hold blanks; none has so many.
    const WORDS_MAX: usize = 16;
    let mut words = Vec::new();
    let mut at = 0;
    while words.len() < WORDS_MAX {
        at += line[at..].iter().take_while(|b| **b == b' ').count();
        let length = line[at..].iter().take_while(|b| **b != b' ').count();
        // A name may hold anything, and all that counts stands before it.
        let Ok(word) = std::str::from_utf8(&line[at..at + length]) else {
            break;
        };
        if word.is_empty() {
            break;
        }
        at += length;
        words.push((word, at));
    }
    words
}

/// `-rw-r--r--  1 owner group  1234 Nov 25 16:43 name`, the group or the count of links may be
/// absent.
fn unix(line: &[u8]) -> Option<(Facts, &[u8])> {
    let words = words(line);
    let (kind, mode) = permissions(words.first()?.0)?;
    // The size is the last number before the date.
    let size_at = (1..words.len()).find(|at| is_date(&words[at + 1..]))?;
    let size = decimal::<u64>(words[size_at].0)?;
    let (_, date_end) = words.get(size_at + date_words(&words[size_at + 1..])?)?;
    // One blank, and the rest is the name, blanks at its start included.
    let name = line[*date_end..].strip_prefix(b" ")?;
    let mut facts = Facts {
        unix_mode: Some(mode),
        ..Facts::default()
    };
    let mut name = name;
    facts.kind = Some(match kind {
        b'-' => {
            facts.size = Some(size);
            FactType::File
        }
        b'd' => FactType::Dir,
        b'l' => {
            let (own, target) = link(name, size)?;
            name = own;
            facts.unix_slink = Some(target.to_vec());
            facts.unix_mode = None;
            FactType::Other("OS.unix=slink".to_owned())
        }
        b'c' => FactType::Other("OS.unix=chr".to_owned()),
        b'b' => FactType::Other("OS.unix=blk".to_owned()),
        b'p' => FactType::Other("OS.unix=fifo".to_owned()),
        b's' => FactType::Other("OS.unix=sock".to_owned()),
        _ => return None,
    });
    Some((facts, name))
}

/// `name -> target`, either of which may hold an arrow: the size of a link is that of its target.
fn link(text: &[u8], size: u64) -> Option<(&[u8], &[u8])> {
    const ARROW: &[u8] = b" -> ";
    let arrows = text.windows(ARROW.len()).enumerate();
    let arrows = arrows.filter(|(_, window)| *window == ARROW);
    let mut splits = arrows.map(|(at, _)| (&text[..at], &text[at + ARROW.len()..]));
    let first = splits.next()?;
    let mut others = splits.peekable();
    match others.peek() {
        None => Some(first),
        Some(_) => {
            let fits = |(_, target): &(&[u8], &[u8])| target.len() as u64 == size;
            std::iter::once(first).chain(others).find(fits)
        }
    }
}

/// The kind and the bits of `drwxr-xr-x`, with or without a mark of access lists behind.
fn permissions(word: &str) -> Option<(u8, u32)> {
    let word = word.as_bytes();
    let word = match word {
        [word @ .., b'+' | b'.' | b'@'] if word.len() == 10 => word,
        word => word,
    };
    let (kind, letters) = word.split_first()?;
    if letters.len() != 9 || !b"-dlcbps".contains(kind) {
        return None;
    }
    let mut mode = 0;
    for (at, letter) in letters.iter().enumerate() {
        let shift = 8 - at;
        let (execute, special) = match (at % 3, letter) {
            (_, b'-') => (0, 0),
            (0, b'r') | (1, b'w') | (2, b'x') => (1, 0),
            (2, b's') if at < 8 => (1, 1),
            (2, b'S' | b'l' | b'L') if at < 8 => (0, 1),
            (2, b't') if at == 8 => (1, 1),
            (2, b'T') if at == 8 => (0, 1),
            _ => return None,
        };
        mode |= execute << shift;
        // Set-user-id, set-group-id, sticky: above the others, in the same order.
        mode |= special << (9 + shift / 3);
    }
    Some((*kind, mode))
}

fn is_date(words: &[(&str, usize)]) -> bool {
    date_words(words).is_some()
}

/// How many words the date has that these begin with.
fn date_words(words: &[(&str, usize)]) -> Option<usize> {
    let word = |at: usize| words.get(at).map_or("", |(word, _)| *word);
    let time_or_year = |word: &str| is_time(word) || word.len() == 4 && is_number(word);
    if is_month(word(0)) && is_day(word(1)) && time_or_year(word(2)) {
        return Some(3);
    }
    if is_day(word(0)) && is_month(word(1)) && time_or_year(word(2)) {
        return Some(3);
    }
    let iso = word(0).as_bytes();
    let is_iso = iso.len() == 10
        && iso.iter().enumerate().all(|(at, b)| match at {
            4 | 7 => *b == b'-',
            _ => b.is_ascii_digit(),
        });
    (is_iso && is_time(word(1))).then_some(2)
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit())
}

fn is_month(word: &str) -> bool {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    MONTHS.iter().any(|month| month.eq_ignore_ascii_case(word))
}

fn is_day(word: &str) -> bool {
    word.len() <= 2 && decimal::<u8>(word).is_some_and(|day| (1..=31).contains(&day))
}

/// `16:43`, with or without seconds.
fn is_time(word: &str) -> bool {
    let parts: Vec<_> = word.split(':').collect();
    let good = |part: &&str| (1..=2).contains(&part.len()) && is_number(part);
    (2..=3).contains(&parts.len()) && parts.iter().all(good)
}

/// `02-29-20  12:34PM       <DIR>          name`, or a size in place of `<DIR>`.
fn dos(line: &[u8]) -> Option<(Facts, &[u8])> {
    let words = words(line);
    let [(date, _), (time, _), (size, end), ..] = words[..] else {
        return None;
    };
    let date: Vec<_> = date.split(['-', '/']).collect();
    let is_date = date.len() == 3 && date.iter().all(|part| is_number(part) && part.len() <= 4);
    let upper = time.to_ascii_uppercase();
    let clock = upper.strip_suffix("AM").or(upper.strip_suffix("PM"));
    if !is_date || !is_time(clock.unwrap_or(&upper)) {
        return None;
    }
    let rest = &line[end..];
    let facts = |kind, size| Facts {
        kind: Some(kind),
        size,
        ..Facts::default()
    };
    match size {
        // Behind it is a column of blanks, and no name begins with one there.
        "<DIR>" => Some((facts(FactType::Dir, None), rest.trim_ascii_start())),
        size => {
            let size = decimal(&size.replace(',', ""))?;
            let name = rest.strip_prefix(b" ")?;
            Some((facts(FactType::File, Some(size)), name))
        }
    }
}

/// `i8388621.48594,m825718503,r,s280,<TAB>name` (D. J. Bernstein), behind its `+`.
fn eplf(line: &[u8]) -> Option<(Facts, &[u8])> {
    let tab = line.iter().position(|b| *b == b'\t')?;
    let list = std::str::from_utf8(&line[..tab]).ok()?;
    let mut facts = Facts::default();
    for fact in list.split(',') {
        match fact.split_at_checked(1) {
            Some(("/", "")) => facts.kind = Some(FactType::Dir),
            Some(("r", "")) => facts.kind = Some(FactType::File),
            Some(("s", size)) => facts.size = Some(decimal(size)?),
            Some(("m", time)) => facts.modify = decimal(time).map(Timestamp),
            Some(("i", id)) => facts.unique = Some(id.to_owned()),
            _ => {}
        }
    }
    facts.modify = facts.modify.filter(|time| *time <= Timestamp::MAX);
    Some((facts, &line[tab + 1..]))
}

/// Why a listing that ended with this reply is not all of its directory, though the reply may be a
/// success. `lines` came.
pub fn shortfall(reply: &Reply, lines: u64) -> Option<String> {
    const WORDS: [&str; 4] = [
        // vsftpd: "226 Transfer done (but failed to open directory)."
        "failed to open directory",
        // Pure-FTPd: "226-Sorry, we were unable to read [/d]", "226-Output truncated to 2000
        // matches".
        "unable to read",
        "truncated",
        "permission denied",
    ];
    let text = reply.text();
    let said = WORDS
        .iter()
        .find(|w| find_ignoring_case(&text, w).is_some());
    if said.is_some() {
        return Some(text.trim().to_owned());
    }
    let count = announced_count(reply)?;
    (count != lines).then(|| format!("the server counts {count} names, {lines} came"))
}

/// How many lines the server says that its listing has. Pure-FTPd: "226 17 matches total".
pub fn announced_count(reply: &Reply) -> Option<u64> {
    let text = reply.text();
    let before = &text[..find_ignoring_case(&text, " matches total")?];
    decimal(before.rsplit(char::is_whitespace).next()?)
}

/// The server refuses to list a directory since nothing is in it: "550 No files found". To be asked
/// only of a directory that is known to be there. Of NLST (`names`) old servers say so in the words
/// for a missing file, too; of LIST these words may mean anything.
pub fn is_of_emptiness(reply: &Reply, names: bool) -> bool {
    const WORDS: [&str; 3] = ["no files", "directory empty", "directory is empty"];
    const WORDS_OF_NAMES: [&str; 3] = ["no such file", "no match", "not found"];
    let text = reply.text();
    // 426 and 451 are about the transfer.
    matches!(reply.code.get(), 450 | 550)
        && (WORDS.iter())
            .chain(WORDS_OF_NAMES.iter().filter(|_| names))
            .any(|w| find_ignoring_case(&text, w).is_some())
        && find_ignoring_case(&text, "denied").is_none()
}

#[cfg(test)]
mod tests;

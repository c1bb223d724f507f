//! Parses and formats lines of a journal.

use std::{
    collections::{HashMap, HashSet},
    fs::{self, File},
    io::{self, BufRead, BufReader, Write},
    path::Path,
};

use godwit_proto::RangeSet;

use super::{
    HEAD, Order, PartialSource, SourceVersion, UNNAMED, leftovers::LeftoverDirectory, safe_ranges,
};
use crate::local::{compact_set::CompactSet, files};

/// Longest line that is read: two paths, each byte of them encoded.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Hexadecimal digits of the common prefix of a run's temporary names.
const RUN_DIGITS: usize = 8;

/// Most partial files that are remembered. Further ones are not removed.
const PARTIALS_MAX: usize = 100_000;

/// Most directories with partial small files that are remembered. One more drops the earlier ones.
const DIRECTORIES_MAX: usize = 100_000;

/// The records of earlier runs.
#[derive(Debug, Default)]
pub(crate) struct JournalContent {
    /// Files completed since boot.
    pub(crate) finished: CompactSet,
    /// Files completed before.
    pub(crate) finished_before: CompactSet,
    pub(crate) becomes: bool,
    /// The lines being read are of this boot.
    of_this_boot: bool,
    /// Partial files since then: target and temporary path.
    pub(crate) partials: HashMap<Vec<u8>, Vec<u8>>,
    /// The source version of each.
    pub(crate) sources: HashMap<Vec<u8>, PartialSource>,
    pub(crate) leftovers: HashSet<LeftoverDirectory>,
}

/// Reads a journal; empty if there is none.
///
/// # Errors
/// It cannot be read, or is no journal.
pub(crate) fn read(file: &Path) -> io::Result<JournalContent> {
    let mut noted = JournalContent::default();
    let mut reader = match File::open(file) {
        Ok(file) => BufReader::new(file),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(noted),
        Err(e) => return Err(e),
    };
    let (mut line, mut first) = (Vec::new(), true);
    // The next bytes are the rest of a line that is too long.
    let mut too_long = false;
    loop {
        line.clear();
        let mut bounded = io::Read::take(&mut reader, LINE_BYTES_MAX);
        if bounded.read_until(b'\n', &mut line)? == 0 {
            return Ok(noted);
        }
        let whole = line.strip_suffix(b"\n");
        if first && whole != Some(HEAD.as_bytes()) {
            // The first line itself may be torn; then it is the only one.
            if HEAD.as_bytes().starts_with(&line) {
                return Ok(noted);
            }
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "it is no journal of ours",
            ));
        }
        if let Some(line) = whole.filter(|l| !first && !too_long && l.ends_with(b" .")) {
            noted.take(line);
        }
        first = false;
        too_long = whole.is_none();
    }
}

impl JournalContent {
    /// A line of any other form is ignored: it may be two joined lines.
    fn take(&mut self, line: &[u8]) {
        let words: Vec<_> = line.split(|b| *b == b' ').collect();
        match words[..] {
            [b"boot", of, _] => {
                self.of_this_boot = boot().is_some_and(|boot| boot.as_bytes() == of)
            }
            [b"becomes", _] => self.becomes = true,
            [b"part", target, path, _] if self.partials.len() < PARTIALS_MAX => {
                self.sources.remove(target);
                self.partials.insert(target.to_owned(), path.to_owned());
            }
            [keyword @ (b"source" | b"version"), target, size, changed, _] => {
                let size = number(size, 10).and_then(|size| u64::try_from(size).ok());
                let changed = number(changed, 10).and_then(|at| i64::try_from(at).ok());
                // A file written before this boot may have lost any of its bytes.
                if let (Some(size), Some(_)) = (size, changed)
                    && self.of_this_boot
                    && self.partials.contains_key(target)
                {
                    let version = SourceVersion { size, changed };
                    let order = match keyword {
                        b"source" => Order::Ascending,
                        _ => Order::Any,
                    };
                    let same = self.sources.remove(target);
                    let same = same.filter(|of| of.version == version && of.order == order);
                    let source = same.unwrap_or_else(|| PartialSource {
                        version,
                        order,
                        safe: RangeSet::new(),
                        name: None,
                    });
                    self.sources.insert(target.to_owned(), source);
                }
            }
            [b"safe", target, path, name, ranges, _] => {
                // Another run may have begun the same file elsewhere.
                let is_of_it = self.partials.get(target).is_some_and(|of| of == path);
                let source = self.sources.get_mut(target);
                let ranges = safe_ranges::parse_ranges(ranges);
                if let (Some(source), Some(ranges), true) =
                    (source, ranges, is_of_it && self.of_this_boot)
                {
                    source.safe = ranges;
                    source.name = String::from_utf8(decoded(name)).ok();
                    source.name.take_if(|name| name == UNNAMED);
                }
            }
            [b"parts", directory, run, _] if run.len() == RUN_DIGITS => {
                let Some(run) = number(run, 16).and_then(|run| u32::try_from(run).ok()) else {
                    return;
                };
                // Partial files are in the last ones.
                if self.leftovers.len() == DIRECTORIES_MAX {
                    self.leftovers.clear();
                }
                let directory = files::path_of(&decoded(directory));
                self.leftovers.insert(LeftoverDirectory { directory, run });
            }
            [size, changed, _, target, _]
                if number(size, 10).is_some() && number(changed, 10).is_some() =>
            {
                self.partials.remove(target);
                self.sources.remove(target);
                match self.of_this_boot {
                    true => self.finished.insert(line),
                    false => self.finished_before.insert(line),
                };
            }
            _ => {}
        }
    }
}

/// Parses `word` as a number.
fn number(word: &[u8], radix: u32) -> Option<i128> {
    let text = std::str::from_utf8(word).ok()?;
    i128::from_str_radix(text, radix).ok()
}

/// The kernel's id of this boot, one word; `None` if unknown.
pub(crate) fn boot() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    text.split_whitespace().next().map(str::to_owned)
}

/// Encodes it as one word of printable ASCII.
pub(crate) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    let mut rest = bytes;
    while let Some(other) = rest
        .iter()
        .position(|o| *o == b'%' || !o.is_ascii_graphic())
    {
        let (plain, after) = rest.split_at(other);
        out.extend_from_slice(plain);
        // Writing to a `Vec` never fails.
        let _ = write!(out, "%{:02X}", after[0]);
        rest = &after[1..];
    }
    out.extend_from_slice(rest);
}

/// Reverses [`encode`].
pub(crate) fn decoded(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|d| std::str::from_utf8(d).ok());
        let byte = digits.and_then(|d| u8::from_str_radix(d, 16).ok());
        let (byte, after) = match (first, byte) {
            (b'%', Some(byte)) => (byte, &after[2..]),
            _ => (*first, after),
        };
        out.push(byte);
        rest = after;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_directories_the_last_are_known() {
        let mut noted = JournalContent::default();
        for i in 0..=DIRECTORIES_MAX {
            noted.take(format!("parts /d/{i} 89abcdef .").as_bytes());
        }
        let last = LeftoverDirectory {
            directory: format!("/d/{DIRECTORIES_MAX}").into(),
            run: 0x89ab_cdef,
        };
        assert!(noted.leftovers.contains(&last) && noted.leftovers.len() <= DIRECTORIES_MAX);
    }

    #[test]
    fn paths_are_one_word_each() {
        let any: Vec<u8> = (0..=255).collect();
        let encoded = |bytes: &[u8]| {
            let mut text = Vec::new();
            encode(bytes, &mut text);
            text
        };
        assert_eq!(decoded(&encoded(&any)), any);
        assert_eq!(encoded("a b%\n\u{fc}".as_bytes()), b"a%20b%25%0A%C3%BC");
    }
}

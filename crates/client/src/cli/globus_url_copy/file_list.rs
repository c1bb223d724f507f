//! Pairs of URLs: the grammar of `-f` and of alias files, and which pairs go together. Pure.

use godwit_proto::url::Location;

use crate::spec::{NamePair, top_and_name};

/// Source and destination, as text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct UrlPair {
    pub(crate) source: Vec<u8>,
    pub(crate) destination: Vec<u8>,
    pub(crate) offset: Option<u64>,
    pub(crate) length: Option<u64>,
}

impl UrlPair {
    pub(crate) fn new(source: &[u8], destination: &[u8]) -> Self {
        Self {
            source: source.to_vec(),
            destination: destination.to_vec(),
            offset: None,
            length: None,
        }
    }

    /// Its line of a file that `-f` reads.
    pub(crate) fn line(&self) -> Vec<u8> {
        let mut line = [b"\"", &self.source[..], b"\" \"", &self.destination, b"\""].concat();
        match (self.offset, self.length) {
            (None, None) => {}
            (offset, None) => line.extend(format!(" {}", offset.unwrap_or(0)).bytes()),
            (offset, Some(length)) => {
                line.extend(format!(" {},{length}", offset.unwrap_or(0)).bytes());
            }
        }
        line.push(b'\n');
        line
    }
}

/// Reads `source destination [offset[,length]]`, one pair a line, URLs with blanks in double
/// quotes; blank lines, those that begin with `#`, and words after the numbers are ignored. -1
/// stands for a missing number.
///
/// # Errors
/// The number of the malformed line, from 1.
pub(crate) fn pairs(text: &[u8]) -> Result<Vec<UrlPair>, usize> {
    let mut pairs = Vec::new();
    for (at, line) in (1..).zip(text.split(|b| *b == b'\n')) {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let (source, rest) = word(line).ok_or(at)?;
        let (destination, rest) = word(rest).ok_or(at)?;
        let mut pair = UrlPair::new(source, destination);
        if let Some(numbers) = rest.split(u8::is_ascii_whitespace).next()
            && !numbers.is_empty()
        {
            let numbers = std::str::from_utf8(numbers).map_err(|_| at)?;
            let (offset, length) = numbers.split_once(',').unwrap_or((numbers, "-1"));
            pair.length = number(length).ok_or(at)?;
            pair.offset = number(offset).ok_or(at)?;
            // As in a dump: the whole file.
            if pair.length.is_none() {
                pair.offset = pair.offset.filter(|offset| *offset > 0);
            }
        }
        if pair.source == b"-" && pair.destination == b"-" {
            return Err(at);
        }
        pairs.push(pair);
    }
    Ok(pairs)
}

/// The first word and the rest.
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_start();
    let (word, rest) = match text.strip_prefix(b"\"") {
        Some(quoted) => {
            let end = quoted.iter().position(|b| *b == b'"')?;
            (&quoted[..end], &quoted[end + 1..])
        }
        None => {
            let end = text.iter().position(u8::is_ascii_whitespace);
            text.split_at(end.unwrap_or(text.len()))
        }
    };
    (!word.is_empty()).then_some((word, rest.trim_ascii_start()))
}

fn number(text: &str) -> Option<Option<u64>> {
    match text {
        "-1" => Some(None),
        text => text.parse().ok().map(Some),
    }
}

/// Aliases for the hosts of all sources, or of all destinations.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Aliases {
    pub(crate) source: Vec<String>,
    pub(crate) destination: Vec<String>,
}

impl Aliases {
    /// `@source` or `@destination`, and below it `host[:port]`, one a line.
    ///
    /// # Errors
    /// The number of the malformed line, from 1.
    pub(crate) fn parse(text: &str) -> Result<Self, usize> {
        let mut aliases = Self::default();
        let mut of = None;
        for (at, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            match (line.strip_prefix('@'), &of) {
                _ if line.is_empty() || line.starts_with('#') => {}
                (Some(name @ ("source" | "destination")), _) => of = Some(name == "source"),
                (None, Some(true)) => aliases.source.push(line.to_owned()),
                (None, Some(false)) => aliases.destination.push(line.to_owned()),
                _ => return Err(at),
            }
        }
        Ok(aliases)
    }

    /// The pair of this number, with `turns` pairs at a time.
    pub(crate) fn apply(&self, pair: &mut UrlPair, number: usize, turns: usize) {
        let blame = number % turns.max(1);
        for (hosts, url) in [
            (&self.source, &mut pair.source),
            (&self.destination, &mut pair.destination),
        ] {
            if !hosts.is_empty() {
                replace_host(url, &hosts[blame % hosts.len()]);
            }
        }
    }
}

/// A URL without a host stays.
fn replace_host(url: &mut Vec<u8>, host: &str) {
    let Some(at) = url.windows(6).position(|w| w == b"ftp://") else {
        return;
    };
    let start = at + 6;
    if let Some(length) = url[start..].iter().position(|b| *b == b'/') {
        url.splice(start..start + length, host.bytes());
    }
}

/// Pairs that form one job.
#[derive(Debug)]
pub(crate) struct PairGroup {
    pub(crate) pairs: Vec<UrlPair>,
    /// Where there are several: the ends that they have in common, and the names below both.
    pub(crate) listed: Option<PairList>,
}

#[derive(Debug)]
pub(crate) struct PairList {
    pub(crate) source: Location,
    pub(crate) destination: Location,
    pub(crate) names: Vec<NamePair>,
}

impl PairGroup {
    /// A pair that is a job of its own.
    pub(crate) fn alone(pair: UrlPair) -> Self {
        Self {
            pairs: vec![pair],
            listed: None,
        }
    }
}

/// Puts neighbours together that go from one end to one other: they are files of one list, with
/// sessions in common. Where the first failure ends the list, only those of one directory.
pub(crate) fn group(pairs: Vec<UrlPair>, continues: bool) -> Vec<PairGroup> {
    let mut groups: Vec<PairGroup> = Vec::new();
    for pair in pairs {
        let split = split(&pair);
        if let (Some(group), Some(split)) = (groups.last_mut(), &split)
            && let Some(listed) = &mut group.listed
            && (&listed.source, &listed.destination) == (&split.source, &split.destination)
            && (continues || group.pairs.last().map(directories) == Some(directories(&pair)))
        {
            listed.names.extend(split.names.iter().cloned());
            group.pairs.push(pair);
            continue;
        }
        groups.push(PairGroup {
            pairs: vec![pair],
            listed: split,
        });
    }
    for group in &mut groups {
        group.listed = group.listed.take().filter(|_| group.pairs.len() > 1);
    }
    groups
}

/// Both ends of a pair without the parts that their paths have in common at the end.
fn directories(pair: &UrlPair) -> (&[u8], &[u8]) {
    let (mut from, mut to) = (&pair.source[..], &pair.destination[..]);
    let cut = |path: &[u8]| path.iter().rposition(|byte| *byte == b'/');
    while let (Some(a), Some(b)) = (cut(from), cut(to))
        && from[a..] == to[b..]
    {
        (from, to) = (&from[..a], &to[..b]);
    }
    (from, to)
}

/// A pair of whole files below the tops of its ends; `None` where it is none, or may be more.
fn split(pair: &UrlPair) -> Option<PairList> {
    if pair.offset.is_some() || pair.length.is_some() {
        return None;
    }
    let (source, from) = top_and_name(Location::parse(&pair.source).ok()?)?;
    let (destination, to) = top_and_name(Location::parse(&pair.destination).ok()?)?;
    let is_pattern = |name: &[u8]| name.iter().any(|b| b"*?[\0".contains(b));
    if is_pattern(&from) || is_pattern(&to) {
        return None;
    }
    let names = vec![NamePair {
        source: from,
        destination: to,
        ..NamePair::default()
    }];
    Some(PairList {
        source,
        destination,
        names,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_the_original_does() {
        let text = b"# no\n\n  ftp://h/a\tfile:///b\n\"ftp://h/a b\" \"file:///c d\" 5,7\n\
            ftp://h/a file:///b 5\nftp://h/a file:///b 0,-1 size=3;modify=9;\r\n";
        let read = pairs(text).unwrap();
        assert_eq!(read[0], UrlPair::new(b"ftp://h/a", b"file:///b"));
        assert_eq!(read[1].source, b"ftp://h/a b");
        assert_eq!((read[1].offset, read[1].length), (Some(5), Some(7)));
        assert_eq!((read[2].offset, read[2].length), (Some(5), None));
        assert_eq!(read[3], read[0]);
        assert_eq!(read.len(), 4);
        for (bad, line) in [
            (&b"ftp://h/a\n"[..], 1),
            (b"\nftp://h/a \"b\n", 2),
            (b"a b x\n", 1),
            (b"a b 1,x\n", 1),
            (b"a b -2\n", 1),
            (b"- -\n", 1),
        ] {
            assert_eq!(pairs(bad), Err(line), "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn lines_that_are_written_are_read_again() {
        let whole = UrlPair::new(b"ftp://h/a b", b"file:///c");
        let rest = UrlPair {
            offset: Some(3),
            ..whole.clone()
        };
        let part = UrlPair {
            length: Some(0),
            ..rest.clone()
        };
        for pair in [whole, rest, part] {
            assert_eq!(pairs(&pair.line()), Ok(vec![pair]));
        }
    }

    #[test]
    fn pairs_take_turns_at_hosts() {
        let text = "# two\n@source\n a:1 \nb:2\n\n@destination\nc\n";
        let aliases = Aliases::parse(text).unwrap();
        let of = |number, turns| {
            let mut pair = UrlPair::new(b"gsiftp://x:9/p", b"file:///q");
            aliases.apply(&mut pair, number, turns);
            String::from_utf8(pair.source).unwrap()
        };
        assert_eq!(of(0, 1), "gsiftp://a:1/p");
        assert_eq!(of(1, 1), "gsiftp://a:1/p");
        assert_eq!(of(1, 2), "gsiftp://b:2/p");
        assert_eq!(of(2, 3), "gsiftp://a:1/p");
        assert_eq!(Aliases::parse("host\n"), Err(1));
        assert_eq!(Aliases::parse("@elsewhere\n"), Err(1));
    }

    #[test]
    fn neighbours_between_the_same_ends_are_one_job() {
        let pair = |a: &str, b: &str| UrlPair::new(a.as_bytes(), b.as_bytes());
        let groups = group(
            vec![
                pair("ftp://h/d/run/a", "file:///c/run/a"),
                pair("ftp://h/d/b%20c", "file:///other"),
                pair("ftp://g/d/run/a", "file:///c/run/a"),
                pair("ftp://g/~/a", "file:///c/a"),
                pair("ftp://h/d/*", "file:///c/"),
            ],
            true,
        );
        let sizes: Vec<_> = groups.iter().map(|group| group.pairs.len()).collect();
        assert_eq!(sizes, [2, 1, 1, 1]);
        let listed = groups[0].listed.as_ref().unwrap();
        assert_eq!(listed.source.to_string(), "ftp://h/");
        assert_eq!(listed.destination, Location::Local(b"/".to_vec()));
        let names = listed
            .names
            .iter()
            .map(|name| (&name.source[..], &name.destination[..]));
        let expected: [(&[u8], &[u8]); 2] = [(b"d/run/a", b"c/run/a"), (b"d/b c", b"other")];
        assert!(names.eq(expected));
        assert!(groups[1..].iter().all(|group| group.listed.is_none()));
    }

    #[test]
    fn only_files_of_one_directory_are_one_job_where_a_failure_ends_the_list() {
        let pair = |a: &str, b: &str| UrlPair::new(a.as_bytes(), b.as_bytes());
        let groups = group(
            vec![
                pair("ftp://h/d/run/a", "file:///c/run/a"),
                pair("ftp://h/d/b", "file:///c/b"),
                pair("ftp://h/d/c", "file:///c/other"),
                pair("ftp://h/e/d", "file:///c/d"),
            ],
            false,
        );
        let sizes: Vec<_> = groups.iter().map(|group| group.pairs.len()).collect();
        assert_eq!(sizes, [2, 1, 1]);
    }

    #[test]
    fn names_begin_at_the_root_or_at_the_home() {
        let pair = UrlPair::new(b"ftp://h/~/a/b", b"ftp://g/a/c");
        let listed = split(&pair).unwrap();
        assert_eq!(listed.source.to_string(), "ftp://h/~");
        assert_eq!(listed.destination.to_string(), "ftp://g/");
        assert_eq!(listed.names[0].source, b"a/b");
        assert_eq!(listed.names[0].destination, b"a/c");
    }
}

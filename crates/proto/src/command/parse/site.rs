//! SITE's own words.

use super::super::CommandError;
use super::{QUOTED_CHARS_MAX, arguments::Arguments, region, region_words};
use crate::{
    block_checksums::{ALGORITHM, BLOCK_BYTES_MIN, BLOCKS_MAX},
    checksum::ChecksumAlgorithm,
    commit::{Commit, Expected, TemporaryName},
    live::Live,
    site::{BUFFER_WORDS, REFUSED_WORDS, STACK_WORDS, Site},
    text::{decimal, printable, skip_blanks},
    timestamp::Timestamp,
};

/// What the names of facts with a checksum begin with.
const CHECKSUM_FACT: &str = "x.checksum.";

pub(super) fn site(a: Arguments<'_>) -> Result<Site, CommandError> {
    let (word, a) = a.word()?;
    let Ok(word) = String::from_utf8(word.to_ascii_uppercase()) else {
        return Err(unknown_site(word));
    };
    if BUFFER_WORDS.contains(&word.as_str()) {
        let (bytes, _) = a.number()?;
        return Ok(Site::Buffer { word, bytes });
    }
    if REFUSED_WORDS.contains(&word.as_str()) {
        let argument = String::from_utf8_lossy(skip_blanks(a.rest)).into_owned();
        return Ok(Site::Refused { word, argument });
    }
    if STACK_WORDS.iter().any(|(known, _)| *known == word) {
        let drivers = a.text()?;
        return Ok(Site::Stack { word, drivers });
    }
    Ok(match word.as_str() {
        "HELP" => Site::Help,
        "CLIENTINFO" => Site::ClientInfo(a.text()?),
        "TASKID" => Site::TaskId(a.text()?),
        "WHOAMI" => Site::Whoami,
        "VERSION" => Site::Version,
        "CHMOD" => {
            let (word, rest) = a.word()?;
            let mode = std::str::from_utf8(word)
                .ok()
                .filter(|w| w.bytes().all(|b| b.is_ascii_digit()))
                .and_then(|w| u32::from_str_radix(w, 8).ok())
                // gfal2 sends st_mode, with the type of the file.
                .map(|m| m & 0o7777);
            Site::Chmod {
                mode: mode.ok_or_else(|| a.syntax("Invalid mode."))?,
                path: rest.path()?,
            }
        }
        "CHGRP" => {
            let (group, rest) = a.word()?;
            Site::Chgrp {
                group: a.utf8(group)?,
                path: rest.path()?,
            }
        }
        "UTIME" => {
            let (modify, rest) = a.time()?;
            Site::Utime {
                modify,
                path: rest.path()?,
            }
        }
        "TRNC" => {
            let (length, rest) = a.number()?;
            Site::Truncate {
                length,
                path: rest.path()?,
            }
        }
        "RDEL" => Site::RemoveTree(a.path()?),
        "SYMLINKFROM" => Site::SymlinkFrom(a.path()?),
        "SYMLINKTO" => Site::SymlinkTo(a.path()?),
        "SYMLINK" => {
            let (target, rest) = a.word()?;
            let target = Arguments { rest: target, ..a }.path()?;
            let link = rest.path()?;
            if a.rest.starts_with(b" ") || link.as_bytes().contains(&b' ') {
                return Err(a.syntax("Names with blanks: use SITE SYMLINKFROM and SYMLINKTO."));
            }
            Site::Symlink { target, link }
        }
        "GODWIT" => godwit(a)?,
        "STORATTR" => store_attributes(a)?,
        _ => return Err(unknown_site(word.as_bytes())),
    })
}

fn godwit(a: Arguments<'_>) -> Result<Site, CommandError> {
    let (word, a) = a.word()?;
    if word.eq_ignore_ascii_case(b"REPORT") {
        Ok(Site::Live(Live::Report))
    } else if word.eq_ignore_ascii_case(b"CHANNELS") {
        let (n, a) = channels(a)?;
        Ok(Site::Live(Live::Channels(n, a.number()?.0)))
    } else if word.eq_ignore_ascii_case(b"NEXT") {
        Ok(Site::NextChannels(channels(a)?.0))
    } else if word.eq_ignore_ascii_case(b"COMMIT") {
        Ok(Site::Commit(commit(a)?))
    } else if word.eq_ignore_ascii_case(b"LEAVES") {
        leaves(a)
    } else {
        Err(unknown_site(&[b"GODWIT ", word].concat()))
    }
}

fn channels(a: Arguments<'_>) -> Result<(u32, Arguments<'_>), CommandError> {
    match a.number()? {
        (0, _) => Err(a.syntax("A transfer needs a channel.")),
        number => Ok(number),
    }
}

/// `from=...;size=...;modify=...;x.checksum.md5=...; path`. A fact that is not known may be one to
/// rely on, and is refused.
fn commit(a: Arguments<'_>) -> Result<Commit, CommandError> {
    let (facts, rest) = a.word()?;
    let (mut temporary, mut expected) = (None, Expected::default());
    for fact in facts.split(|byte| *byte == b';').filter(|f| !f.is_empty()) {
        let bad = || a.syntax("Invalid fact.");
        let at = fact.iter().position(|byte| *byte == b'=').ok_or_else(bad)?;
        let (name, value) = (&fact[..at], &fact[at + 1..]);
        if name.eq_ignore_ascii_case(b"from") {
            temporary = Some(TemporaryName::new(value).ok_or_else(bad)?);
            continue;
        }
        let name = std::str::from_utf8(name).map_err(|_| bad())?;
        let value = std::str::from_utf8(value).map_err(|_| bad())?;
        if name.eq_ignore_ascii_case("size") {
            expected.size = Some(decimal(value).ok_or_else(bad)?);
        } else if name.eq_ignore_ascii_case("modify") {
            expected.modify = Some(modify(a, value)?);
        } else {
            let algorithm = checksum_fact(name).ok_or_else(bad)?;
            add_checksum(a, algorithm, value, &mut expected.checksums)?;
        }
    }
    Ok(Commit {
        temporary: temporary.ok_or_else(|| a.syntax("The fact 'from' is missing."))?,
        expected,
        path: rest.path()?,
    })
}

fn leaves(a: Arguments<'_>) -> Result<Site, CommandError> {
    let (name, a) = a.word()?;
    if !name.eq_ignore_ascii_case(ALGORITHM.wire_name().as_bytes()) {
        return Err(a.parameter(name));
    }
    let (leaf, a) = a.number()?;
    let (words, path) = region_words(a)?;
    let (offset, length) = region(a, words)?;
    if leaf < BLOCK_BYTES_MIN || length.is_some_and(|n| n.div_ceil(leaf) > BLOCKS_MAX) {
        return Err(a.syntax("Leaves are too small."));
    }
    Ok(Site::BlockChecksums {
        leaf,
        offset,
        length,
        path,
    })
}

fn unknown_site(word: &[u8]) -> CommandError {
    CommandError::UnknownVerb(format!("SITE {}", printable(word, QUOTED_CHARS_MAX)))
}

/// `modify=...;x.checksum.md5=...;`, other attributes pass.
fn store_attributes(a: Arguments<'_>) -> Result<Site, CommandError> {
    let (mut date, mut checksums) = (None, Vec::new());
    let text = a.text()?;
    for (name, value) in text.split(';').filter_map(|p| p.split_once('=')) {
        let name = name.trim_matches(' ');
        if name.eq_ignore_ascii_case("modify") {
            date = Some(modify(a, value)?);
        } else if let Some(algorithm) = checksum_fact(name) {
            add_checksum(a, algorithm, value, &mut checksums)?;
        }
    }
    Ok(Site::StorAttr {
        modify: date,
        checksums,
    })
}

fn modify(a: Arguments<'_>, value: &str) -> Result<Timestamp, CommandError> {
    let time = Timestamp::parse(value).filter(|_| value.len() == 14);
    time.ok_or_else(|| a.syntax("Invalid modify attribute."))
}

/// The algorithm in the name of a fact, known or not.
fn checksum_fact(name: &str) -> Option<&str> {
    let (prefix, algorithm) = name.split_at_checked(CHECKSUM_FACT.len())?;
    prefix
        .eq_ignore_ascii_case(CHECKSUM_FACT)
        .then_some(algorithm)
}

/// A later value replaces an earlier one: at most one per algorithm.
fn add_checksum(
    a: Arguments<'_>,
    algorithm: &str,
    value: &str,
    checksums: &mut Vec<(ChecksumAlgorithm, String)>,
) -> Result<(), CommandError> {
    let Ok(algorithm) = algorithm.parse::<ChecksumAlgorithm>() else {
        return Err(a.syntax("Unknown checksum algorithm requested."));
    };
    let value = algorithm.normalize_value(value);
    let value = value.ok_or_else(|| a.syntax("Invalid checksum attribute."))?;
    checksums.retain(|(known, _)| *known != algorithm);
    checksums.push((algorithm, value));
    Ok(())
}

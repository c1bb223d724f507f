//! Names that a server lists, read with suspicion: a name may not lead outside the directory it is listed in.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
};

use godwit_proto::{
    FtpPath,
    facts::{self, FactType, Facts},
};

/// Octets that the listing of one directory may have: about two million names. Bounds the memory that a server
/// can make us use.
const LISTING_OCTETS_MAX: usize = 256 << 20;

/// One name of a directory.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// One component.
    pub(crate) name: Vec<u8>,
    /// `kind` is absent where only the name is known.
    pub(crate) facts: Facts,
}

impl Entry {
    /// `None`: nobody knows.
    pub(crate) fn is_directory(&self) -> Option<bool> {
        match self.facts.kind {
            Some(FactType::Dir) => Some(true),
            Some(FactType::File) => Some(false),
            _ => None,
        }
    }
}

/// A name that a server must not list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadName {
    /// Lossy.
    pub(crate) name: String,
    pub(crate) why: &'static str,
}

/// Lines of a listing, read lazily.
pub(crate) struct Names {
    raw: Vec<u8>,
    at: usize,
    /// MLSD; else NLST.
    machine: bool,
    directory: FtpPath,
}

impl Names {
    pub(super) fn new(raw: Vec<u8>, machine: bool, directory: &FtpPath) -> Self {
        Self {
            raw,
            at: 0,
            machine,
            directory: directory.clone(),
        }
    }

    /// Only names are known, and each has to be looked at.
    pub(crate) fn is_bare(&self) -> bool {
        !self.machine
    }

    fn entry(&self, line: &[u8]) -> Option<std::result::Result<Entry, BadName>> {
        let (facts, name) = if self.machine {
            facts::parse_line(line)?
        } else {
            (Facts::default(), self.bare(line).to_vec())
        };
        if matches!(facts.kind, Some(FactType::Cdir | FactType::Pdir))
            || name == b"."
            || name == b".."
        {
            return None;
        }
        let bad = |why| BadName {
            name: String::from_utf8_lossy(&name).into_owned(),
            why,
        };
        Some(match why_hostile(&name) {
            Some(why) => Err(bad(why)),
            None => Ok(Entry { name, facts }),
        })
    }

    /// NLST may answer `name` or `directory/name`; anything else keeps its slashes and is refused for them.
    fn bare<'a>(&self, line: &'a [u8]) -> &'a [u8] {
        let directory = self.directory.as_bytes();
        let inside = line
            .strip_prefix(directory)
            .filter(|rest| directory.ends_with(b"/") || rest.starts_with(b"/"));
        match inside {
            Some(rest) => rest.strip_prefix(b"/").unwrap_or(rest),
            None => line.strip_prefix(b"./").unwrap_or(line),
        }
    }
}

impl Iterator for Names {
    type Item = std::result::Result<Entry, BadName>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.at < self.raw.len() {
            let rest = &self.raw[self.at..];
            let end = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
            let line = &rest[..end];
            // GCT doubles the CR in TYPE A.
            let kept = line.iter().rposition(|b| *b != b'\r').map_or(0, |i| i + 1);
            let found = self.entry(&line[..kept]).filter(|_| kept > 0);
            self.at += end + 1;
            if found.is_some() {
                return found;
            }
        }
        None
    }
}

/// Why a name could lead outside its directory, or cannot be a name.
fn why_hostile(name: &[u8]) -> Option<&'static str> {
    if name.is_empty() {
        Some("it is empty")
    } else if name.contains(&b'/') {
        Some("it holds a slash")
    } else if name == b"." || name == b".." {
        Some("it is no name")
    } else if name.contains(&0) {
        Some("it holds a NUL")
    } else if name.iter().any(|b| matches!(b, b'\r' | b'\n')) {
        Some("it holds a line end")
    } else {
        None
    }
}

/// Gathers a listing.
#[derive(Clone, Default)]
pub(super) struct Collected(Arc<Mutex<Vec<u8>>>);

impl Collected {
    pub(super) fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for Collected {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() + octets.len() > LISTING_OCTETS_MAX {
            return Err(io::Error::other(format!(
                "listing of one directory is longer than {} MiB",
                LISTING_OCTETS_MAX >> 20
            )));
        }
        all.extend_from_slice(octets);
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(raw: &[u8], machine: bool) -> Vec<std::result::Result<String, &'static str>> {
        Names::new(raw.to_vec(), machine, &FtpPath::new("/d").unwrap())
            .map(|e| match e {
                Ok(e) => Ok(String::from_utf8(e.name).unwrap()),
                Err(bad) => Err(bad.why),
            })
            .collect()
    }

    #[test]
    fn machine_listings_skip_the_directory_itself_and_refuse_what_leads_out() {
        let raw = b"Type=cdir; .\r\nType=pdir; ..\r\nType=dir; ..\r\nType=file;Size=3; a b\r\r\n\
                    Type=file; ../etc/passwd\r\nType=file; /abs\r\nType=file; z\0\r\nrubbish\r\nType=dir; sub";
        assert_eq!(
            names(raw, true),
            [
                Ok("a b".to_owned()),
                Err("it holds a slash"),
                Err("it holds a slash"),
                Err("it holds a NUL"),
                Ok("sub".to_owned()),
            ]
        );
    }

    #[test]
    fn name_lists_come_with_or_without_their_directory() {
        assert_eq!(
            names(
                b"a\r\n/d/b\r\n./c\r\n\r\n/other/x\r\n/d/../y\r\n..\r\n",
                false
            ),
            [
                Ok("a".to_owned()),
                Ok("b".to_owned()),
                Ok("c".to_owned()),
                Err("it holds a slash"),
                Err("it holds a slash"),
            ]
        );
    }
}

//! Configuration files of `globus-gridftp-server`, and its command line where a file has that.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use super::table::{Kind, row_of_word};

/// Bytes of a file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Files that name others.
const FILES_MAX: usize = 1000;

/// Ends of names that the server passes by in a directory.
const PASSED_BY: [&str; 6] = [
    ".bak",
    ".dpkg-dist",
    ".dpkg-new",
    ".dpkg-old",
    ".rpmnew",
    ".rpmsave",
];

/// One option with its value; `$NAME` for a variable of the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) file: PathBuf,
    pub(super) line: usize,
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            value,
            file,
            line,
        } = self;
        write!(f, "{name} {value} ({}:{line})", file.display())
    }
}

/// Why a configuration cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The system says no.
    #[error("cannot read {path}: {error}")]
    Read {
        /// Which file or directory.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is not what that server takes.
    #[error("{path}:{line}: {name}: {why}")]
    Line {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// The option, or what stands in its place.
        name: String,
        /// What is wrong.
        why: &'static str,
    },
}

impl Said {
    pub(super) fn wrong(&self, why: &'static str) -> ImportError {
        wrong(&self.file, self.line, &self.name, why)
    }
}

/// All that `path` says, in the order in which it counts: of a directory the files by name, of a
/// file that names a directory (`-C`) that one first.
pub(super) fn read(path: &Path) -> Result<Vec<Said>, ImportError> {
    let mut reader = Reader::default();
    reader.place(path)?;
    Ok(reader.said)
}

#[derive(Default)]
struct Reader {
    said: Vec<Said>,
    /// Each is read once, so that none names itself.
    seen: Vec<PathBuf>,
}

impl Reader {
    fn place(&mut self, path: &Path) -> Result<(), ImportError> {
        if self.seen.iter().any(|seen| seen == path) || self.seen.len() == FILES_MAX {
            return Ok(());
        }
        self.seen.push(path.to_owned());
        let failed = |error| ImportError::Read {
            path: path.to_owned(),
            error,
        };
        if fs::metadata(path).map_err(failed)?.is_dir() {
            let entries = fs::read_dir(path).map_err(failed)?;
            let paths = entries.map(|entry| entry.map(|entry| entry.path()));
            let mut paths: Vec<_> = paths.collect::<io::Result<_>>().map_err(failed)?;
            paths.sort();
            for path in paths.iter().filter(|path| counts(path)) {
                self.place(path)?;
            }
            return Ok(());
        }
        if fs::metadata(path).map_err(failed)?.len() > FILE_BYTES_MAX {
            return Err(failed(io::Error::other("too long for a configuration")));
        }
        let text = fs::read_to_string(path).map_err(failed)?;
        let mut own = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            own.extend(said(path, line, text.trim())?);
        }
        // The main file has the last word.
        for said in &own {
            if matches!(&said.name[..], "config_dir" | "configfile") {
                self.place(Path::new(&said.value))?;
            }
        }
        self.said.append(&mut own);
        Ok(())
    }
}

/// That a file of a directory is no backup and none that a package left.
fn counts(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    !name.starts_with('.')
        && !name.ends_with('~')
        && !PASSED_BY.iter().any(|end| name.ends_with(end))
        && !path.is_dir()
}

/// What a line says: `option value`, `$NAME value`, or words of a command line.
fn said(path: &Path, line: usize, text: &str) -> Result<Vec<Said>, ImportError> {
    if text.is_empty() || text.starts_with('#') {
        return Ok(Vec::new());
    }
    let said = |name: &str, value: &str| Said {
        name: name.to_owned(),
        value: value.to_owned(),
        file: path.to_owned(),
        line,
    };
    let words = words(text).ok_or_else(|| wrong(path, line, text, "a quote has no end"))?;
    let (first, rest) = words
        .split_first()
        .ok_or_else(|| wrong(path, line, text, "no option"))?;
    let starts = first.ends_with("globus-gridftp-server");
    if first.starts_with('-') || starts {
        let mut words = if starts { rest } else { &words[..] }.iter();
        let mut all = Vec::new();
        while let Some(word) = words.next() {
            let (row, negated) =
                row_of_word(word).ok_or_else(|| wrong(path, line, word, "unknown option"))?;
            let value = match (row.kind, negated) {
                (Kind::Flag(_), negated) => if negated { "0" } else { "1" }.to_owned(),
                _ => words
                    .next()
                    .cloned()
                    .ok_or_else(|| wrong(path, line, word, "no value"))?,
            };
            all.push(said(row.name, &value));
        }
        return Ok(all);
    }
    match rest {
        [value] => Ok(vec![said(first, value)]),
        [] => Err(wrong(path, line, first, "no value")),
        _ => Err(wrong(
            path,
            line,
            first,
            "more than one value: it needs quotes",
        )),
    }
}

/// Words between blanks, those with blanks in quotes; `None` where a quote has no end.
fn words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (word, behind) = match first {
            quote @ ('"' | '\'') => rest[1..].split_once(quote)?,
            _ => rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len())),
        };
        words.push(word.to_owned());
        rest = behind.trim_start();
    }
    Some(words)
}

fn wrong(path: &Path, line: usize, name: &str, why: &'static str) -> ImportError {
    ImportError::Line {
        path: path.to_owned(),
        line,
        name: name.to_owned(),
        why,
    }
}

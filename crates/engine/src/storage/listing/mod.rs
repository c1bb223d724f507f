//! Listings as streams: LIST, NLST, MLSD and MLSR, made as they are read.

mod glob;
mod tree;

use std::{collections::VecDeque, io, sync::Arc};

use godwit_proto::{
    FtpPath,
    facts::{self, FactType, Facts},
    listing::format_line,
    pi::server::ListForm,
    timestamp::Timestamp,
};
use rustix::io::Errno;

use super::{Entries, FileKind, Identity, Metadata, Result, Storage, errno_failure, into_io};

/// Entries of a directory that are read before its own line is written, which tells how many there
/// are. A larger directory tells it at its end.
const AHEAD_MAX: usize = 1024;
/// Bytes of lines made at a time.
const PIECE_BYTES: usize = 32 << 10;

/// Lines of a listing, each ended by CRLF. Memory is bounded, however large the directory. Names
/// with CR or LF in them, which no client could ask for, are left out.
pub struct Listing {
    rows: Rows,
    form: ListForm,
    now: Timestamp,
    identity: Identity,
    lines: Vec<u8>,
    given: usize,
    failed: Option<io::Error>,
}

impl Listing {
    /// Of `path`: the entries of a directory, or one file (but MLSD: ENOTDIR). For LIST and NLST
    /// the last name may be a pattern (`*`, `?`, `[a-z]`), unless a file has that very name; ENOENT
    /// where nothing matches it. A failure before the first line is returned here; what goes wrong
    /// later is an error of `read`, which carries the failure.
    pub fn open(
        storage: Arc<dyn Storage>,
        path: &FtpPath,
        form: ListForm,
        now: Timestamp,
    ) -> Result<Self> {
        let rows: Rows = match form {
            ListForm::Long | ListForm::Names => plain(&*storage, path)?,
            ListForm::Facts(_) => Box::new(directory(&*storage, path)?),
            ListForm::FactsRecursive {
                continue_on_error,
                follow_links,
                ..
            } => {
                let metadata = storage.stat(path)?;
                if metadata.kind == FileKind::Directory {
                    Box::new(tree::TreeRows::open(
                        storage,
                        path,
                        metadata,
                        continue_on_error,
                        follow_links,
                    )?)
                } else {
                    single(path, metadata)
                }
            }
        };
        Ok(Self {
            rows,
            form,
            now,
            identity: Identity::effective(),
            lines: Vec::new(),
            given: 0,
            failed: None,
        })
    }

    fn write_line(&mut self, row: &Row) {
        match self.form {
            ListForm::Names => self.lines.extend_from_slice(&row.name),
            ListForm::Long => {
                let facts = row.facts(&self.identity);
                let line = format_line(&facts, row.metadata.links, &row.name, self.now);
                self.lines.extend_from_slice(&line);
            }
            ListForm::Facts(selection) | ListForm::FactsRecursive { selection, .. } => {
                let facts = row.facts(&self.identity);
                facts::write_line(&facts, selection, &row.name, &mut self.lines);
            }
        }
        self.lines.extend_from_slice(b"\r\n");
    }
}

impl io::Read for Listing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.given == self.lines.len() {
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            self.lines.clear();
            self.given = 0;
            while self.lines.len() < PIECE_BYTES {
                match self.rows.next() {
                    None => break,
                    Some(Ok(row)) => self.write_line(&row),
                    Some(Err(failure)) => {
                        // What was made before it is still sent.
                        self.failed = Some(into_io(failure));
                        self.rows = Box::new(std::iter::empty());
                        break;
                    }
                }
            }
            if self.lines.is_empty()
                && let Some(error) = self.failed.take()
            {
                return Err(error);
            }
        }
        let count = buffer.len().min(self.lines.len() - self.given);
        buffer[..count].copy_from_slice(&self.lines[self.given..self.given + count]);
        self.given += count;
        Ok(count)
    }
}

/// Entries of a directory as MLSD and MLSC show them, with `.` and `..`. Failures are as for
/// [`Listing::open`].
pub fn directory_facts(
    storage: &dyn Storage,
    path: &FtpPath,
) -> Result<impl Iterator<Item = Result<(Facts, Vec<u8>)>> + Send + use<>> {
    let identity = Identity::effective();
    let rows = directory(storage, path)?;
    Ok(rows.map(move |row| row.map(|row| (row.facts(&identity), row.name))))
}

type Rows = Box<dyn Iterator<Item = Result<Row>> + Send>;

/// One line to be.
struct Row {
    name: Vec<u8>,
    metadata: Metadata,
    /// `.` and `..` have kinds of their own.
    kind: Option<FactType>,
    count: Option<u64>,
    error: Option<&'static str>,
}

impl Row {
    fn of(name: Vec<u8>, metadata: Metadata) -> Self {
        Self {
            name,
            metadata,
            kind: None,
            count: None,
            error: None,
        }
    }

    fn facts(&self, who: &Identity) -> Facts {
        let facts = self.metadata.facts_for(who);
        Facts {
            kind: self.kind.clone().or(facts.kind),
            count: self.count,
            error: self.error.map(str::to_owned),
            ..facts
        }
    }
}

/// A line ends at CR or LF.
fn can_be_sent(name: &[u8]) -> bool {
    !name.iter().any(|b| matches!(b, b'\r' | b'\n'))
}

fn rows_of(entries: Entries) -> impl Iterator<Item = Result<Row>> + Send {
    entries
        .filter(|entry| entry.as_ref().map_or(true, |(name, _)| can_be_sent(name)))
        .map(|entry| entry.map(|(name, metadata)| Row::of(name, metadata)))
}

fn single(path: &FtpPath, metadata: Metadata) -> Rows {
    let name = path.file_name().unwrap_or(b"/").to_vec();
    Box::new(std::iter::once(Ok(Row::of(name, metadata))))
}

/// LIST and NLST.
fn plain(storage: &dyn Storage, path: &FtpPath) -> Result<Rows> {
    let missing = match storage.stat(path) {
        Ok(metadata) if metadata.kind == FileKind::Directory => {
            return Ok(Box::new(rows_of(storage.list(path)?)));
        }
        Ok(metadata) => return Ok(single(path, metadata)),
        Err(failure) if failure.errno == Errno::NOENT.raw_os_error() => failure,
        Err(failure) => return Err(failure),
    };
    let pattern = path
        .file_name()
        .filter(|name| glob::is_pattern(name))
        .map(<[u8]>::to_vec);
    let (Some(pattern), Some(parent)) = (pattern, path.parent()) else {
        return Err(missing);
    };
    let mut found = rows_of(storage.list(&parent)?).filter(move |row| match row {
        Ok(row) => glob::matches(&pattern, &row.name),
        Err(_) => true,
    });
    let first = found.next().ok_or(missing)?;
    Ok(Box::new(std::iter::once(first).chain(found)))
}

/// MLSD.
fn directory(storage: &dyn Storage, path: &FtpPath) -> Result<Directory> {
    let own = storage.stat(path)?;
    if own.kind != FileKind::Directory {
        return Err(errno_failure(format!("list {path}"), Errno::NOTDIR));
    }
    let mut entries: Rows = Box::new(rows_of(storage.list(path)?));
    let above = path.parent().unwrap_or_else(FtpPath::root);
    // Its parent may be out of reach; then there is no line for it.
    let above = storage.stat(&above).ok();
    let mut dots = vec![Row {
        kind: Some(FactType::Cdir),
        ..Row::of(b".".to_vec(), own)
    }];
    dots.extend(above.map(|m| Row {
        kind: Some(FactType::Pdir),
        ..Row::of(b"..".to_vec(), m)
    }));
    let mut ahead: VecDeque<_> = entries.by_ref().take(AHEAD_MAX).collect();
    let mut directory = Directory {
        dots,
        ahead: VecDeque::new(),
        entries,
        sent: 0,
    };
    if ahead.len() < AHEAD_MAX {
        let lines = ahead.len() as u64;
        ahead = directory
            .finish(lines)
            .into_iter()
            .map(Ok)
            .chain(ahead)
            .collect();
    }
    directory.ahead = ahead;
    Ok(directory)
}

struct Directory {
    /// Lines for `.` and `..` that were not given out.
    dots: Vec<Row>,
    ahead: VecDeque<Result<Row>>,
    entries: Rows,
    /// Entries given out.
    sent: u64,
}

impl Directory {
    /// `.` and `..`, now that the number of entries is known.
    fn finish(&mut self, entries: u64) -> Vec<Row> {
        let mut dots = std::mem::take(&mut self.dots);
        let lines = entries + dots.len() as u64;
        if let Some(own) = dots.first_mut() {
            own.count = Some(lines);
        }
        dots
    }
}

impl Iterator for Directory {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.ahead.pop_front().or_else(|| self.entries.next());
        if next.is_some() {
            self.sent += 1;
            return next;
        }
        let dots = self.finish(self.sent);
        self.ahead.extend(dots.into_iter().map(Ok));
        self.ahead.pop_front()
    }
}

//! The rows of MLSR: a tree, depth first.

use std::{collections::HashSet, sync::Arc};

use godwit_proto::{FtpPath, error::StorageFailure, facts::FactType};
use rustix::io::Errno;

use super::{
    super::{Entries, FileKind, Metadata, Result, Storage, errno_failure},
    Row, can_be_sent,
};

/// Directories that are open at a time, one in the other. Each costs a descriptor and a buffer of
/// 32 KiB.
const LEVELS_MAX: usize = 512;
/// Directories that are listed by way of links. Each is listed so once, or links between n
/// directories would give n! paths; this bounds the memory that it takes to know them.
const LINKED_MAX: usize = 65_536;

/// `Error=` where a directory cannot be read, as GCT spells it.
const OPEN_FAILED: &str = "OpenFailed";

pub(super) struct TreeRows {
    storage: Arc<dyn Storage>,
    continue_on_error: bool,
    follow_links: bool,
    /// The row of the top, until it is given out.
    top: Option<Row>,
    levels: Vec<OpenDirectory>,
    linked: HashSet<(u64, u64)>,
}

struct OpenDirectory {
    path: FtpPath,
    /// Name relative to the top; empty for the top itself.
    name: Vec<u8>,
    metadata: Metadata,
    entries: Entries,
}

impl TreeRows {
    pub(super) fn open(
        storage: Arc<dyn Storage>,
        path: &FtpPath,
        metadata: Metadata,
        continue_on_error: bool,
        follow_links: bool,
    ) -> Result<Self> {
        let entries = storage.list(path)?;
        let top = Row {
            kind: Some(FactType::Cdir),
            ..Row::of(b".".to_vec(), metadata.clone())
        };
        Ok(Self {
            storage,
            continue_on_error,
            follow_links,
            top: Some(top),
            levels: vec![OpenDirectory {
                path: path.clone(),
                name: Vec::new(),
                metadata,
                entries,
            }],
            linked: HashSet::new(),
        })
    }

    /// The row of one entry; opens it if it is a directory to go into.
    fn visit(&mut self, path: &FtpPath, row: Row) -> Result<Row> {
        let metadata = &row.metadata;
        let by_link = metadata.link_target.is_some();
        if metadata.kind != FileKind::Directory || (by_link && !self.follow_links) {
            return Ok(row);
        }
        // A loop can be closed by a link only, but it need not be this entry: the way may have led
        // above the top.
        let seen = self
            .levels
            .iter()
            .any(|l| l.metadata.unique == metadata.unique)
            || (by_link && self.linked.contains(&metadata.unique));
        if self.follow_links && seen {
            return Ok(row);
        }
        let bounded =
            self.levels.len() < LEVELS_MAX && (!by_link || self.linked.len() < LINKED_MAX);
        let entries = if bounded {
            self.storage.list(path)
        } else {
            Err(errno_failure(format!("list {path}"), Errno::LOOP))
        };
        match entries {
            Ok(entries) => {
                if by_link {
                    self.linked.insert(metadata.unique);
                }
                self.levels.push(OpenDirectory {
                    path: path.clone(),
                    name: row.name.clone(),
                    metadata: metadata.clone(),
                    entries,
                });
                Ok(row)
            }
            Err(failure) => self.excuse(failure, row),
        }
    }

    /// A directory that cannot be read: a row that says so, or the end of it all.
    fn excuse(&mut self, failure: StorageFailure, row: Row) -> Result<Row> {
        if self.continue_on_error {
            return Ok(Row {
                error: Some(OPEN_FAILED),
                ..row
            });
        }
        self.levels.clear();
        Err(failure)
    }
}

impl Iterator for TreeRows {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.top.is_some() {
            return self.top.take().map(Ok);
        }
        loop {
            let level = self.levels.last_mut()?;
            match level.entries.next() {
                None => drop(self.levels.pop()),
                Some(Ok((name, metadata))) => {
                    if !can_be_sent(&name) {
                        continue;
                    }
                    let Ok(path) = level.path.join(&name) else {
                        continue;
                    };
                    let relative = match level.name.as_slice() {
                        [] => name,
                        above => [above, b"/", &name].concat(),
                    };
                    return Some(self.visit(&path, Row::of(relative, metadata)));
                }
                Some(Err(failure)) => {
                    let level = self.levels.pop()?;
                    let name = if level.name.is_empty() {
                        b".".to_vec()
                    } else {
                        level.name
                    };
                    return Some(self.excuse(failure, Row::of(name, level.metadata)));
                }
            }
        }
    }
}

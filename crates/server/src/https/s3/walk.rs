//! The keys of a bucket in their order, a page at a time, with bounded memory.
//!
//! A directory is read in full for each page that it is a part of, and of its names only as many
//! are kept as the page has room for. A key is a path: a directory `a` is ordered as `a/`, behind
//! `a-b` and before `a0`. A directory in which nothing is counts as the key `d/`. Links to
//! directories and special files are left out; a link to a file is an object.

use std::{
    collections::BinaryHeap,
    sync::atomic::{AtomicBool, Ordering},
};

use godwit_engine::storage::{FileKind, Metadata, Storage};
use godwit_http::s3::requests::KEY_BYTES_MAX;
use godwit_proto::{FtpPath, error::StorageFailure};
use rustix::io::Errno;

use super::place::is_hidden;
use crate::storage::failure;

/// Names that a walk keeps, of all directories that it is in.
const NAMES_MAX: usize = 20_000;

/// And at least of each.
const NAMES_MIN: usize = 16;

/// Where a page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// Behind this key; empty: with the first.
    Key(Vec<u8>),
    /// Behind all keys that begin so.
    Prefix(Vec<u8>),
}

/// What is asked for.
#[derive(Clone, Debug)]
pub(super) struct WantedKeys {
    pub(super) prefix: Vec<u8>,
    pub(super) after: After,
    /// Keys with a slash behind the prefix are told as what they have in common.
    pub(super) is_grouped: bool,
    pub(super) max: usize,
}

/// An entry of a page.
#[derive(Debug)]
pub(super) enum Entry {
    Object(Vec<u8>, Metadata),
    Prefix(Vec<u8>),
}

/// A part of a listing.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) entries: Vec<Entry>,
    /// More follow.
    pub(super) is_truncated: bool,
}

/// The page of the bucket at `bucket`. Blocks.
pub(super) fn page(
    storage: &dyn Storage,
    bucket: &FtpPath,
    wanted: &WantedKeys,
    stop: &AtomicBool,
) -> Result<Page, StorageFailure> {
    let mut walk = Walk {
        storage,
        bucket,
        wanted,
        stop,
        page: Page::default(),
        kept: 0,
    };
    if wanted.max == 0 {
        return Ok(walk.page);
    }
    let end = wanted.prefix.iter().rposition(|byte| *byte == b'/');
    let top = &wanted.prefix[..end.map_or(0, |end| end + 1)];
    let is_path =
        top.split(|byte| *byte == b'/').rev().skip(1).all(|name| {
            !matches!(name, b"" | b"." | b"..") && !name.contains(&0) && !is_hidden(name)
        });
    if is_path {
        walk.directory(top)?;
    }
    Ok(walk.page)
}

struct Walk<'a> {
    storage: &'a dyn Storage,
    bucket: &'a FtpPath,
    wanted: &'a WantedKeys,
    stop: &'a AtomicBool,
    page: Page,
    /// Names that wait.
    kept: usize,
}

/// A name in a directory, in the order of keys: that of a directory has a slash.
struct Name {
    name: Vec<u8>,
    metadata: Metadata,
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.name.cmp(&other.name)
    }
}

/// What one reading of a directory has found.
struct Names {
    first: Vec<Name>,
    has_more: bool,
    /// The directory has nothing at all.
    is_empty: bool,
}

impl Walk<'_> {
    /// `key`: the directory's, with its slash; empty: the bucket. True: the page is full.
    fn directory(&mut self, key: &[u8]) -> Result<bool, StorageFailure> {
        let mut low = None::<Vec<u8>>;
        loop {
            let room = self.wanted.max - self.page.entries.len() + 1;
            let room = room.min(NAMES_MAX.saturating_sub(self.kept)).max(NAMES_MIN);
            let Some(names) = self.names(key, low.as_deref(), room)? else {
                return Ok(false);
            };
            if names.is_empty && !key.is_empty() {
                return self.mark(key);
            }
            low = names.first.last().map(|last| last.name.clone());
            self.kept += names.first.len();
            for name in names.first {
                self.kept -= 1;
                if self.entry(key, name)? {
                    return Ok(true);
                }
            }
            if !names.has_more {
                return Ok(false);
            }
        }
    }

    fn entry(&mut self, key: &[u8], name: Name) -> Result<bool, StorageFailure> {
        let whole = [key, &name.name].concat();
        if name.metadata.kind == FileKind::File {
            return Ok(self.add(Entry::Object(whole, name.metadata)));
        }
        let is_behind = whole.len() > self.wanted.prefix.len();
        if self.wanted.is_grouped && is_behind && whole.starts_with(&self.wanted.prefix) {
            return Ok(self.add(Entry::Prefix(whole)));
        }
        self.directory(&whole)
    }

    fn mark(&mut self, key: &[u8]) -> Result<bool, StorageFailure> {
        if !key.starts_with(&self.wanted.prefix) || !self.is_behind(key, false) {
            return Ok(false);
        }
        let mut metadata = match self.storage.stat(&self.path(key)?) {
            Ok(metadata) => metadata,
            Err(failure) if is_gone(&failure) => return Ok(false),
            Err(failure) => return Err(failure),
        };
        metadata.size = 0;
        Ok(self.add(Entry::Object(key.to_vec(), metadata)))
    }

    /// True: there is no room for it.
    fn add(&mut self, entry: Entry) -> bool {
        if self.page.entries.len() == self.wanted.max {
            self.page.is_truncated = true;
            return true;
        }
        self.page.entries.push(entry);
        false
    }

    fn path(&self, key: &[u8]) -> Result<FtpPath, StorageFailure> {
        let below = key.strip_suffix(b"/").unwrap_or(key);
        let path = match below.is_empty() {
            true => self.bucket.as_bytes().to_vec(),
            false => [self.bucket.as_bytes(), b"/", below].concat(),
        };
        let unfit = |_| failure(Errno::ILSEQ, "list a directory whose name has a line end");
        FtpPath::new(path).map_err(unfit)
    }

    /// The first names of a directory behind `low`, as many as `room`. `None`: there is no such
    /// directory.
    fn names(
        &self,
        key: &[u8],
        low: Option<&[u8]>,
        room: usize,
    ) -> Result<Option<Names>, StorageFailure> {
        let path = self.path(key)?;
        let entries = match self.storage.list(&path) {
            Ok(entries) => entries,
            // Another request has removed it meanwhile, or nothing begins so.
            Err(failure) if is_gone(&failure) => return Ok(None),
            Err(failure) => return Err(failure),
        };
        let mut first = BinaryHeap::new();
        let (mut has_more, mut is_empty) = (false, true);
        for entry in entries {
            if self.stop.load(Ordering::Relaxed) {
                return Err(failure(Errno::CANCELED, &format!("list {path}")));
            }
            let (mut name, metadata) = entry?;
            is_empty = false;
            let is_directory = match metadata.kind {
                _ if is_hidden(&name) => continue,
                FileKind::Directory if metadata.link_target.is_some() => continue,
                FileKind::Directory => true,
                FileKind::File => false,
                FileKind::Special(_) => continue,
            };
            if is_directory {
                name.push(b'/');
            }
            let is_new = low.is_none_or(|low| name.as_slice() > low);
            if !is_new || !self.is_wanted(&[key, &name].concat(), is_directory) {
                continue;
            }
            if key.len() + name.len() > KEY_BYTES_MAX {
                let doing =
                    format!("list {path}: a key would be longer than {KEY_BYTES_MAX} bytes");
                return Err(failure(Errno::NAMETOOLONG, &doing));
            }
            first.push(Name { name, metadata });
            if first.len() > room {
                first.pop();
                has_more = true;
            }
        }
        Ok(Some(Names {
            first: first.into_sorted_vec(),
            has_more,
            is_empty,
        }))
    }

    fn is_wanted(&self, whole: &[u8], is_directory: bool) -> bool {
        let prefix = &self.wanted.prefix;
        let has_prefix = whole.starts_with(prefix);
        let leads_there = is_directory && prefix.starts_with(whole);
        (has_prefix || leads_there) && self.is_behind(whole, is_directory)
    }

    /// It, or something in it, comes behind where the page begins.
    fn is_behind(&self, whole: &[u8], is_directory: bool) -> bool {
        match &self.wanted.after {
            After::Key(key) => whole > key.as_slice() || is_directory && key.starts_with(whole),
            After::Prefix(prefix) => {
                let is_around = is_directory && whole != prefix && prefix.starts_with(whole);
                !whole.starts_with(prefix) && (whole > prefix.as_slice() || is_around)
            }
        }
    }
}

fn is_gone(failure: &StorageFailure) -> bool {
    [Errno::NOENT, Errno::NOTDIR]
        .iter()
        .any(|errno| errno.raw_os_error() == failure.errno)
}

#[cfg(test)]
mod tests {
    use godwit_engine::storage::{MemoryStorage, WriteMode};
    use proptest::prelude::*;

    use super::*;

    fn storage(paths: &[String]) -> MemoryStorage {
        let storage = MemoryStorage::new();
        let at = |text: &str| FtpPath::new(text).unwrap();
        storage.create_dir(&at("/b")).unwrap();
        for path in paths {
            let mut above = "/b".to_owned();
            let names: Vec<_> = path.split('/').collect();
            for name in &names[..names.len() - 1] {
                above = format!("{above}/{name}");
                // It may be there.
                drop(storage.create_dir(&at(&above)));
            }
            let last = names[names.len() - 1];
            if !last.is_empty() {
                drop(storage.open_write(&at(&format!("{above}/{last}")), WriteMode::New));
            }
        }
        storage
    }

    /// All pages of `max` entries.
    fn listed(storage: &MemoryStorage, prefix: &str, is_grouped: bool, max: usize) -> Vec<String> {
        let bucket = FtpPath::new("/b").unwrap();
        let (mut all, mut after) = (Vec::new(), After::Key(Vec::new()));
        loop {
            let wanted = WantedKeys {
                prefix: prefix.into(),
                after,
                is_grouped,
                max,
            };
            let page = page(storage, &bucket, &wanted, &AtomicBool::new(false)).unwrap();
            assert!(page.entries.len() <= max);
            let Some(last) = page.entries.last() else {
                assert!(!page.is_truncated);
                return all;
            };
            after = match last {
                Entry::Object(key, _) => After::Key(key.clone()),
                Entry::Prefix(key) => After::Prefix(key.clone()),
            };
            let keys = page.entries.iter().map(|entry| match entry {
                Entry::Object(key, _) | Entry::Prefix(key) => key.clone(),
            });
            all.extend(keys.map(|key| String::from_utf8(key).unwrap()));
            if !page.is_truncated {
                return all;
            }
        }
    }

    /// What a store of keys would say.
    fn model(paths: &[String], prefix: &str, is_grouped: bool) -> Vec<String> {
        let keys = paths.iter().filter(|key| key.starts_with(prefix));
        let mut keys: Vec<String> = keys
            .map(|key| match key[prefix.len()..].find('/') {
                Some(at) if is_grouped => key[..=prefix.len() + at].to_owned(),
                _ => key.clone(),
            })
            .collect();
        keys.sort();
        keys.dedup();
        keys
    }

    #[test]
    fn keys_are_in_the_order_of_their_bytes() {
        let paths = ["a-b", "a/c", "a/b/d", "a0", "e/", "z"].map(str::to_owned);
        let storage = storage(&paths);
        let all = ["a-b", "a/b/d", "a/c", "a0", "e/", "z"];
        for max in [1, 2, 1000] {
            assert_eq!(listed(&storage, "", false, max), all);
            assert_eq!(
                listed(&storage, "", true, max),
                ["a-b", "a/", "a0", "e/", "z"]
            );
            assert_eq!(listed(&storage, "a/", true, max), ["a/b/", "a/c"]);
            assert_eq!(listed(&storage, "a", true, max), ["a-b", "a/", "a0"]);
            assert_eq!(listed(&storage, "e/", true, max), ["e/"]);
        }
        for none in ["x", "a//", "../", "a/../", "a-b/", "//"] {
            assert_eq!(listed(&storage, none, false, 10), [""; 0], "{none}");
        }
    }

    #[test]
    fn unfinished_files_are_left_out() {
        let part = ".godwit-0123456789abcdef.part".to_owned();
        let uploads = ".godwit-uploads/x/manifest".to_owned();
        let storage = storage(&[part, uploads, "a".to_owned()]);
        assert_eq!(listed(&storage, "", false, 10), ["a"]);
        assert_eq!(listed(&storage, ".godwit-uploads/", false, 10), [""; 0]);
    }

    #[test]
    fn directories_with_more_names_than_a_page_are_read_again() {
        let paths: Vec<_> = (0..500).map(|n| format!("d/{n:03}/")).collect();
        let storage = storage(&paths);
        assert_eq!(listed(&storage, "", false, 7), paths);
        assert_eq!(listed(&storage, "d/2", true, 7), paths[200..300]);
    }

    proptest! {
        #[test]
        fn pages_are_what_a_store_of_keys_would_tell(
            names in proptest::collection::vec("[ab0-]{1,2}(/[ab-]{1,2}){0,3}", 0..40),
            prefix in "[ab0/-]{0,4}",
            max in 1_usize..6,
        ) {
            // A name is a file or a directory: the shorter comes first, and stays what it is.
            let mut paths: Vec<String> = Vec::new();
            for name in names {
                let clashes = |other: &String| {
                    *other == name
                        || other.starts_with(&format!("{name}/"))
                        || name.starts_with(&format!("{other}/"))
                };
                if !paths.iter().any(clashes) {
                    paths.push(name);
                }
            }
            let storage = storage(&paths);
            for is_grouped in [false, true] {
                let found = listed(&storage, &prefix, is_grouped, max);
                prop_assert_eq!(found, model(&paths, &prefix, is_grouped));
            }
        }
    }
}

//! Extra names of the destination, in the order of deletion: contents before their directory.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::DirectoryPair;
use crate::{local::files, plan::copy_path::CopyPath, session::CompleteListing};

/// Bytes of paths that are kept in memory; further ones are in a file.
const HERE_MAX: usize = 1 << 20;

/// Names to delete.
#[derive(Debug, Default)]
pub(super) struct DeleteList {
    here: Vec<u8>,
    spilled: Option<File>,
    pub(super) count: u64,
}

/// Names that may be deleted: the listings of all directories were complete.
#[derive(Debug)]
pub(crate) struct SealedDeleteList(DeleteList);

/// Counts the directories to compare, and those whose listings are complete at both ends.
#[derive(Debug, Default)]
pub(super) struct ListingCensus {
    pub(super) begun: u64,
    complete: u64,
}

impl ListingCensus {
    /// A directory was listed at each end that has it.
    pub(super) fn count(
        &mut self,
        pair: &DirectoryPair,
        source: Option<&CompleteListing>,
        target: Option<&CompleteListing>,
    ) {
        let is_complete =
            (pair.source.is_none() || source.is_some()) && (!pair.is_there || target.is_some());
        self.complete += u64::from(is_complete);
    }

    /// Directories with an incomplete listing.
    pub(super) fn incomplete(&self) -> u64 {
        self.begun - self.complete
    }
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deletion {
    pub(crate) is_directory: bool,
    /// Its path at the destination.
    pub(crate) path: Vec<u8>,
}

impl DeleteList {
    /// # Errors
    /// The file cannot be written.
    pub(super) fn push(&mut self, is_directory: bool, place: &CopyPath) -> io::Result<()> {
        self.here.push(if is_directory { b'd' } else { b'f' });
        self.here.extend_from_slice(place.as_bytes());
        // No path contains a NUL.
        self.here.push(0);
        self.count += 1;
        if self.here.len() < HERE_MAX {
            return Ok(());
        }
        let file = match &mut self.spilled {
            Some(file) => file,
            None => self.spilled.insert(files::anonymous_file()?),
        };
        file.write_all(&self.here)?;
        self.here.clear();
        Ok(())
    }

    /// The list for deletion; `None` if any listing was incomplete.
    pub(super) fn seal(self, census: &ListingCensus) -> Option<SealedDeleteList> {
        (census.incomplete() == 0).then_some(SealedDeleteList(self))
    }
}

impl SealedDeleteList {
    pub(crate) fn count(&self) -> u64 {
        self.0.count
    }

    /// All of them.
    ///
    /// # Errors
    /// The file cannot be read; also as items.
    pub(crate) fn read(self) -> io::Result<impl Iterator<Item = io::Result<Deletion>>> {
        let spilled: Box<dyn Read> = match self.0.spilled {
            Some(mut file) => {
                file.rewind()?;
                Box::new(file)
            }
            None => Box::new(io::empty()),
        };
        let all = BufReader::new(spilled.chain(io::Cursor::new(self.0.here)));
        Ok(all.split(0).map(|line| {
            let mut path = line?;
            let is_directory = path.first() == Some(&b'd');
            path.drain(..path.len().min(1));
            Ok(Deletion { is_directory, path })
        }))
    }
}

/// A directory that is deleted after its contents, unless an entry stays.
#[derive(Debug)]
pub(super) struct DirectoryDeletion {
    place: CopyPath,
    below: Vec<u8>,
    stays: AtomicBool,
    above: Option<Arc<DirectoryDeletion>>,
}

impl DirectoryDeletion {
    pub(super) fn new(place: CopyPath, below: Vec<u8>, above: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self {
            place,
            below,
            stays: AtomicBool::new(false),
            above,
        })
    }

    /// An entry stays.
    pub(super) fn stays(&self) {
        self.stays.store(true, Ordering::Relaxed);
    }

    /// The caller finds nothing more in it. Returns the directories that are complete now and can
    /// be deleted, innermost first, with their paths below the top.
    pub(super) fn released(self: Arc<Self>) -> Vec<(CopyPath, Vec<u8>)> {
        let mut going = Vec::new();
        let mut next = Some(self);
        while let Some(deletion) = next.take().and_then(Arc::into_inner) {
            match deletion.stays.into_inner() {
                true => deletion.above.iter().for_each(|above| above.stays()),
                false => going.push((deletion.place, deletion.below)),
            }
            next = deletion.above;
        }
        going
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::ffi::OsStrExt, path::PathBuf};

    use super::*;

    #[test]
    fn any_number_of_names_comes_back_in_order() {
        let mut delete_list = DeleteList::default();
        let path = |i: u32| PathBuf::from(format!("/some/where/in the tree/line\nend {i}"));
        for i in 0..100_000 {
            delete_list
                .push(i % 3 == 0, &CopyPath::Here(path(i)))
                .unwrap();
        }
        assert!(delete_list.spilled.is_some() && delete_list.here.len() < HERE_MAX);
        assert_eq!(delete_list.count, 100_000);
        let mut count = 0;
        for (i, deletion) in (0..).zip(SealedDeleteList(delete_list).read().unwrap()) {
            let deletion = deletion.unwrap();
            assert_eq!(deletion.is_directory, i % 3 == 0);
            assert_eq!(deletion.path, path(i).as_os_str().as_bytes());
            count += 1;
        }
        assert_eq!(count, 100_000);
    }

    #[test]
    fn directories_are_removed_inside_out_if_they_are_empty() {
        let place = |name: &str| CopyPath::Here(name.into());
        let make = |name: &str, above: Option<&Arc<DirectoryDeletion>>| {
            DirectoryDeletion::new(place(name), name.into(), above.cloned())
        };
        let names = |gone: Vec<(CopyPath, Vec<u8>)>| -> Vec<String> {
            let names = gone.into_iter().map(|(_, name)| String::from_utf8(name));
            names.map(Result::unwrap).collect()
        };
        let top = make("top", None);
        let (a, b) = (make("top/a", Some(&top)), make("top/b", Some(&top)));
        assert_eq!(names(top.released()), [""; 0], "two in it are left");
        assert_eq!(names(b.released()), ["top/b"]);
        let inner = make("top/a/inner", Some(&a));
        assert_eq!(names(a.released()), [""; 0]);
        assert_eq!(names(inner.released()), ["top/a/inner", "top/a", "top"]);
        let top = make("top", None);
        let (a, b) = (make("top/a", Some(&top)), make("top/b", Some(&top)));
        a.stays();
        assert_eq!(names(top.released()), [""; 0]);
        assert_eq!(names(a.released()), [""; 0]);
        assert_eq!(names(b.released()), ["top/b"], "and not the top");
    }
}

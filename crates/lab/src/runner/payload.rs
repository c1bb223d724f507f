//! What runs transfer: endless data, a file, or a set of files.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::RunError;
use crate::file_error::io_error;
use crate::pages;
use crate::scenario::{Cell, Work};
use crate::state::{FOLDER_PREFIX, OwnedFolder};

/// Data that is written at once, bytes.
const BLOCK_BYTES: usize = 1 << 20;

/// What the runs of a scenario move, in memory where there is room.
pub(super) enum Payload {
    /// `/dev/zero`, to `/dev/null`.
    Endless,
    /// One file.
    File(SourceFile),
    /// A directory of files, made again where their number changes.
    Files(FileSet),
}

impl Payload {
    pub(super) fn create(work: &Work) -> Result<Payload, RunError> {
        match (work.file, work.files) {
            (Some(size), _) => Ok(Payload::File(SourceFile::create(size.0)?)),
            (_, Some(_)) => Ok(Payload::Files(FileSet::create()?)),
            _ => Ok(Payload::Endless),
        }
    }

    /// Makes ready for a run in `cell`.
    pub(super) fn prepare(&mut self, cell: &Cell) -> Result<(), RunError> {
        match self {
            Payload::Files(set) => set.prepare(cell),
            Payload::Endless | Payload::File(_) => Ok(()),
        }
    }
}

/// The file that is fetched, and where clients put it that cannot write to `/dev/null`.
pub(super) struct SourceFile {
    path: PathBuf,
    target: PathBuf,
    bytes: u64,
    _folder: TempDir,
}

impl SourceFile {
    fn create(bytes: u64) -> Result<SourceFile, RunError> {
        let folder = folder()?;
        let path = folder.path().join("file");
        let made = File::create(&path).and_then(|file| file.set_len(bytes));
        made.map_err(io_error(&path))?;
        Ok(SourceFile {
            target: folder.path().join("arrived"),
            path,
            bytes,
            _folder: folder,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn target(&self) -> &Path {
        &self.target
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Files of one size in one directory, and the directory that they go to.
pub(super) struct FileSet {
    folder: TempDir,
    /// Outlives runs that are killed: so many bytes of memory must not.
    _owned: OwnedFolder,
    /// How many of what size there are.
    made: (u32, u64),
}

/// What lies in the directory that files go to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Arrived {
    /// Those of full length under a name that the source has.
    pub(super) files: u32,
    /// Of all files, temporary ones included.
    pub(super) bytes: u64,
}

impl FileSet {
    fn create() -> Result<FileSet, RunError> {
        let folder = folder()?;
        let owned = OwnedFolder::note(folder.path()).map_err(io_error(folder.path()))?;
        Ok(FileSet {
            folder,
            _owned: owned,
            made: (0, 0),
        })
    }

    /// The source as the cell has it, nothing at the target, no journal.
    fn prepare(&mut self, cell: &Cell) -> Result<(), RunError> {
        let (source, target) = (self.source(), self.target());
        empty(&target).map_err(io_error(&target))?;
        empty(&self.side()).map_err(io_error(&self.side()))?;
        let wanted = (cell.files, cell.file_bytes);
        if self.made != wanted {
            self.made = (0, 0);
            empty(&source).map_err(io_error(&source))?;
            for index in 0..cell.files {
                let path = source.join(name(index));
                fill(&path, cell.file_bytes, index).map_err(io_error(&path))?;
            }
            self.made = wanted;
        }
        let room = pages::held(cell.files, cell.file_bytes);
        Ok(pages::touch(self.folder.path(), room).map_err(io_error(self.folder.path()))?)
    }

    /// The directory that is copied.
    pub(super) fn source(&self) -> PathBuf {
        self.folder.path().join("source")
    }

    /// Names of its files.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        (0..self.made.0).map(name)
    }

    /// The directory that its files go to; it is there and empty.
    pub(super) fn target(&self) -> PathBuf {
        self.folder.path().join("target")
    }

    /// What clients write beside: an empty directory.
    pub(super) fn side(&self) -> PathBuf {
        self.folder.path().join("side")
    }

    /// Counts what has arrived. Bytes that a file has no room for yet do not count: some programs
    /// give files their length first.
    pub(super) fn arrived(&self) -> Result<Arrived, RunError> {
        let target = self.target();
        let mut arrived = Arrived::default();
        let entries = fs::read_dir(&target).map_err(io_error(&target))?;
        for entry in entries {
            let entry = entry.map_err(io_error(&target))?;
            let path = entry.path();
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                // A server that is being stopped renames and removes.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(io_error(&path)(error).into()),
            };
            let bytes = metadata.len().min(metadata.blocks() * 512);
            arrived.bytes += bytes.min(self.made.1);
            let named = entry.file_name().to_str().is_some_and(is_name);
            arrived.files += u32::from(named && metadata.len() == self.made.1);
        }
        Ok(arrived)
    }
}

/// A directory in memory, or where there is none for that, where temporary files go.
fn folder() -> Result<TempDir, RunError> {
    let memory = Path::new("/dev/shm");
    let base = if memory.is_dir() {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    };
    Ok((tempfile::Builder::new().prefix(FOLDER_PREFIX))
        .tempdir_in(&base)
        .map_err(io_error(&base))?)
}

fn name(index: u32) -> String {
    format!("f{index:06}")
}

fn is_name(name: &str) -> bool {
    (name.strip_prefix('f')).is_some_and(|digits| {
        digits.len() >= 6 && digits.bytes().all(|digit| digit.is_ascii_digit())
    })
}

/// Makes `path` an empty directory.
fn empty(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::create_dir(path)
}

/// Bytes that differ from file to file, and not only zeros, so that no program can omit them.
fn fill(path: &Path, bytes: u64, index: u32) -> io::Result<()> {
    let mut file = File::create(path)?;
    let length = usize::try_from(bytes)
        .unwrap_or(usize::MAX)
        .min(BLOCK_BYTES);
    let seed = index.to_le_bytes();
    let block: Vec<u8> = (0..length).map(|at| seed[at % 4] ^ 0x55).collect();
    let mut left = bytes;
    while left > 0 {
        let part = usize::try_from(left).unwrap_or(usize::MAX).min(length);
        file.write_all(&block[..part])?;
        left -= part as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(files: u32, file_bytes: u64) -> Cell {
        let scenario = crate::scenario::load("pipelining/lan").expect("is embedded");
        let method = &scenario.scenario.method[0];
        Cell {
            files,
            file_bytes,
            ..scenario.scenario.cells(method)[0].clone()
        }
    }

    #[test]
    fn arrived_files_are_counted_by_name_and_length() {
        let mut set = FileSet::create().expect("a folder");
        set.prepare(&cell(3, 5000)).expect("made");
        assert_eq!(fs::read_dir(set.source()).expect("there").count(), 3);
        for index in 0..2 {
            fs::copy(
                set.source().join(name(index)),
                set.target().join(name(index)),
            )
            .expect("copied");
        }
        fs::write(set.target().join(name(2)), [7; 1000]).expect("a part");
        fs::write(set.target().join(".godwit-1.part"), [7; 500]).expect("a temporary one");
        let holes = File::create(set.target().join("holes")).expect("a file");
        holes.set_len(5000).expect("a length");
        let expected = Arrived {
            files: 2,
            bytes: 11_500,
        };
        assert_eq!(set.arrived().expect("counted"), expected);
        set.prepare(&cell(2, 7000)).expect("made again");
        assert_eq!(fs::read_dir(set.source()).expect("there").count(), 2);
        assert_eq!(set.arrived().expect("counted"), Arrived::default());
    }

    #[test]
    fn files_differ() {
        let mut set = FileSet::create().expect("a folder");
        set.prepare(&cell(2, 100)).expect("made");
        let read = |index| fs::read(set.source().join(name(index))).expect("read");
        assert_eq!(read(0).len(), 100);
        assert_ne!(read(0), read(1));
        assert!(!read(0).contains(&0));
    }
}

//! The part of a directory that survives a power failure: what was synced, and nothing else. Real
//! disks keep more, but none promises more.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

/// The disk behind a directory without directories in it.
#[derive(Debug, Default)]
pub(super) struct Durable {
    /// By number. The file is held so that no other gets its number.
    files: HashMap<u64, (File, Vec<u8>)>,
    names: BTreeMap<OsString, u64>,
}

impl Durable {
    /// The bytes of a file were synced. It must be open for reading.
    pub(super) fn file_synced(&mut self, file: &File) -> io::Result<()> {
        let found = file.metadata()?;
        let mut bytes = vec![0; usize::try_from(found.len()).map_err(io::Error::other)?];
        file.read_exact_at(&mut bytes, 0)?;
        self.files.insert(found.ino(), (file.try_clone()?, bytes));
        Ok(())
    }

    /// The names in `directory` were synced. A file that never was has nothing in it.
    pub(super) fn directory_synced(&mut self, directory: &Path) -> io::Result<()> {
        self.names.clear();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let file = File::open(entry.path())?;
            let number = file.metadata()?.ino();
            self.files.entry(number).or_insert((file, Vec::new()));
            self.names.insert(entry.file_name(), number);
        }
        Ok(())
    }

    /// Makes `directory` what the disk has.
    pub(super) fn restore(&mut self, directory: &Path) -> io::Result<()> {
        for entry in fs::read_dir(directory)? {
            fs::remove_file(entry?.path())?;
        }
        let mut restored = Durable::default();
        for (name, number) in &self.names {
            let bytes = self.files.get(number).map(|(_, bytes)| bytes.as_slice());
            let path = directory.join(name);
            fs::write(&path, bytes.unwrap_or_default())?;
            restored.file_synced(&File::open(&path)?)?;
        }
        restored.directory_synced(directory)?;
        *self = restored;
        Ok(())
    }
}

//! Local files: lookups, temporary names, and the rename to the final name.

use std::{
    env,
    ffi::OsStr,
    fs::{self, File},
    hash::{BuildHasher, RandomState},
    io::{self, Read as _},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use godwit_engine::storage::{FileRef, Metadata, PosixStorage, Storage, WriteMode};
pub(crate) use godwit_proto::temporary::is_temporary;
use godwit_proto::{FtpPath, temporary};
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, openat, renameat_with};

use super::{attributes::FileAttributes, durability::LocalDurability};
use crate::{
    error::{Error, Result},
    units::show_bytes,
};

/// Temporary names are tried this often; then another process must be creating them, too.
const NAMES_MAX: u32 = 16;

/// Longest name of most file systems, in bytes (NAME_MAX of Linux). A lookup of a longer one fails.
const NAME_BYTES_MAX: usize = 255;

/// A name that no file has: its digits cannot be guessed.
pub(crate) fn temporary_name() -> String {
    temporary::temporary_name(random())
}

/// A random number: the keys of `RandomState` come from the system's random source.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0_u8)
}

/// The entry at `path`, links followed; `None` if there is none.
pub(crate) fn stat(path: &Path) -> Result<Option<fs::Metadata>> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::local(format!("look at {}", path.display()), &e)),
    }
}

/// Creates a directory unless it exists. True if it is new.
pub(crate) fn make_directory(path: &Path) -> Result<bool> {
    match fs::create_dir(path) {
        Ok(()) => Ok(true),
        Err(_) if path.is_dir() => Ok(false),
        Err(e) => Err(Error::local(
            format!("make directory {}", path.display()),
            &e,
        )),
    }
}

/// Opens a source.
pub(crate) fn open_read(storage: &PosixStorage, path: &Path) -> Result<(FileRef, Metadata)> {
    let file = storage
        .open_read(&as_ftp_path(path)?)
        .map_err(Error::Local)?;
    let metadata = file.as_opened().map_err(Error::Local)?;
    Ok((file, metadata))
}

/// True if a file of size 0 has content: the kernel generates files of `/proc` on reading.
pub(crate) fn has_content(path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let opened = openat(CWD, path, flags, Mode::empty());
    // A file that cannot be read is reported when it is copied.
    opened.is_ok_and(|file| matches!(File::from(file).read(&mut [0]), Ok(1)))
}

/// A file being written, under a temporary name where possible. Dropped before
/// [`TempFile::commit`], it is removed.
#[derive(Debug)]
pub(crate) struct TempFile {
    temporary: Option<TempPath>,
    /// The file that a rename must replace.
    destination: PathBuf,
    /// Permission bits of the file that is replaced.
    mode: Option<u32>,
}

/// The partial file of an earlier run.
#[derive(Debug)]
pub(crate) struct PartialFile {
    pub(crate) at: PathBuf,
    /// A partial file of more bytes is not of this source, and is emptied.
    pub(crate) most: u64,
}

#[derive(Debug)]
struct TempPath(PathBuf);

impl Drop for TempPath {
    fn drop(&mut self) {
        // It may be gone already; another error cannot be handled here.
        let _ = fs::remove_file(&self.0);
    }
}

impl TempFile {
    /// Opens for writing: beside `path` under a temporary name, or in place if `path` is a special
    /// file. `beside` creates a temporary name on each call and records it for the run after a
    /// killed process. The partial file `begun` is resumed if it is in the same directory.
    /// `is_new`: nothing can be at `path`, since its directory was just created.
    pub(crate) fn create(
        storage: &PosixStorage,
        path: &Path,
        is_new: bool,
        begun: Option<PartialFile>,
        beside: &dyn Fn(&Path) -> PathBuf,
    ) -> Result<(Self, FileRef)> {
        use std::os::unix::fs::PermissionsExt;
        as_ftp_path(path)?;
        // Most of many small files are new: this costs one system call at most.
        let is_plain = path
            .file_name()
            .is_some_and(|name| name.len() <= NAME_BYTES_MAX);
        let found = match is_new && is_plain {
            true => Err(io::ErrorKind::NotFound.into()),
            false => fs::symlink_metadata(path),
        };
        let (destination, existing) = match found {
            // Standard output and the like.
            Ok(found) if found.is_symlink() && path.starts_with("/dev") => {
                let destination = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
                let existing = stat(&destination)?;
                (destination, existing)
            }
            // Any user with write access to the directory may have created the link: it is
            // replaced, not its target.
            Ok(found) if found.is_symlink() => (path.to_owned(), None),
            Ok(found) => (path.to_owned(), Some(found)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => (path.to_owned(), None),
            Err(e) => return Err(Error::local(format!("write {}", path.display()), &e)),
        };
        let kind = existing.as_ref().map(fs::Metadata::file_type);
        if kind.is_some_and(|kind| kind.is_dir()) {
            let is_directory =
                io::Error::from_raw_os_error(rustix::io::Errno::ISDIR.raw_os_error());
            return Err(Error::local(
                format!("write {}", path.display()),
                &is_directory,
            ));
        }
        let mut target = Self {
            temporary: None,
            mode: existing.map(|m| m.permissions().mode() & 0o7777),
            destination,
        };
        if kind.is_some_and(|kind| !kind.is_file()) {
            let file = storage
                .open_write(&as_ftp_path(&target.destination)?, WriteMode::Replace)
                .map_err(Error::Local)?;
            return Ok((target, file));
        }
        let is_beside = |begun: &PartialFile| begun.at.parent() == target.destination.parent();
        if let Some(begun) = begun.filter(is_beside)
            && let Ok(found) = fs::symlink_metadata(&begun.at)
            // A link at this name is foreign.
            && found.is_file()
        {
            let mode = match found.len() <= begun.most {
                true => WriteMode::KeepNoFollow,
                false => WriteMode::Replace,
            };
            let file = storage.open_write(&as_ftp_path(&begun.at)?, mode);
            let file = file.map_err(Error::Local)?;
            target.temporary = Some(TempPath(begun.at));
            return Ok((target, file));
        }
        let mut names = 0;
        loop {
            names += 1;
            let beside = beside(&target.destination);
            let name = as_ftp_path(&beside)?;
            match storage.open_write(&name, WriteMode::New) {
                Ok(file) => {
                    target.temporary = Some(TempPath(beside));
                    return Ok((target, file));
                }
                Err(failure)
                    if failure.errno == rustix::io::Errno::EXIST.raw_os_error()
                        && names < NAMES_MAX => {}
                // The temporary name would tell the user nothing.
                Err(mut failure) => {
                    failure.doing = format!("write {}", path.display());
                    return Err(Error::Local(failure));
                }
            }
        }
    }

    /// Opens for writing in place and keeps the contents. Links are followed in `/dev` only: any
    /// user with write access to a directory chooses the target of its links.
    pub(crate) fn in_place(storage: &PosixStorage, path: &Path) -> Result<(Self, FileRef)> {
        let mode = match path.starts_with("/dev") {
            true => WriteMode::Keep,
            false => WriteMode::KeepNoFollow,
        };
        let file = storage
            .open_write(&as_ftp_path(path)?, mode)
            .map_err(|mut failure| {
                if failure.errno == rustix::io::Errno::LOOP.raw_os_error() {
                    failure.text =
                        "it is a symbolic link: name the file that it leads to".to_owned();
                }
                failure
            });
        let target = Self {
            temporary: None,
            destination: path.to_owned(),
            mode: None,
        };
        Ok((target, file.map_err(Error::Local)?))
    }

    /// Keeps the file under its temporary name; returns that path.
    pub(crate) fn keep(&mut self) -> Option<Vec<u8>> {
        let path = std::mem::take(&mut self.temporary.as_mut()?.0);
        std::mem::forget(self.temporary.take());
        Some(path.into_os_string().into_vec())
    }

    /// Where it is until it gets its final name; `None` if it has that.
    pub(crate) fn temp_path(&self) -> Option<&Path> {
        self.temporary.as_ref().map(|temporary| &*temporary.0)
    }

    /// Keeps the first `length` bytes under the temporary name.
    pub(crate) fn cut(&self, length: u64) -> Result<()> {
        let Some(TempPath(path)) = &self.temporary else {
            return Ok(());
        };
        // A link at this name is foreign.
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let cut = openat(CWD, path, flags, Mode::empty());
        let cut = cut.map(File::from).map_err(io::Error::from);
        let cut = cut.and_then(|file| file.set_len(length));
        cut.map_err(|e| Error::local(format!("write {}", self.destination.display()), &e))
    }

    /// True if the file is written under its final name.
    pub(crate) fn is_in_place(&self) -> bool {
        self.temporary.is_none()
    }

    /// Gives `file`, the opened one, its attributes and its final name. Atomic; refused if a file
    /// of `durability` has the name.
    pub(crate) fn commit(
        &mut self,
        file: &FileRef,
        durability: &LocalDurability,
        attributes: Option<&FileAttributes>,
    ) -> Result<()> {
        let Some(temporary) = &self.temporary else {
            return Ok(());
        };
        let failed =
            |e: &io::Error| Error::local(format!("write {}", self.destination.display()), e);
        let own = file.as_opened().map_err(Error::Local)?.unique;
        let attributes = attributes.copied().unwrap_or_default();
        attributes.apply(&temporary.0).map_err(|e| failed(&e))?;
        durability
            .fsync_file(&temporary.0)
            .map_err(|e| failed(&e))?;
        // If the name was free, it must still be free: this saves one lookup for each of many new
        // files.
        let is_new = self.mode.is_none()
            && renameat_with(
                CWD,
                &temporary.0,
                CWD,
                &self.destination,
                RenameFlags::NOREPLACE,
            )
            .is_ok();
        if !is_new {
            if fs::symlink_metadata(&self.destination)
                .is_ok_and(|there| durability.contains(&there))
            {
                let path = self.destination.display().to_string();
                return Err(Error::Collides { path });
            }
            if let Some(mode) = self.mode.filter(|_| attributes.mode.is_none()) {
                use std::os::unix::fs::PermissionsExt;
                // The old bits of another user's file in a shared directory may be refused: the new
                // ones are safe, too.
                let _ = fs::set_permissions(&temporary.0, fs::Permissions::from_mode(mode & 0o777));
            }
            fs::rename(&temporary.0, &self.destination).map_err(|e| failed(&e))?;
        }
        durability.record(own);
        // Nothing is left under the temporary name, so nothing is removed.
        self.keep();
        let safe = durability.fsync_name(&self.destination, own.0);
        safe.map_err(|e| Error::local(format!("write {}", self.destination.display()), &e))
    }
}

/// Reports if fewer than `wanted` bytes are free for a file. `None`: there is space, or it is
/// unknown.
pub(crate) fn shortage(path: &Path, wanted: u64) -> Option<String> {
    let free = PosixStorage::unconfined()
        .free_bytes(&as_ftp_path(path).ok()?)
        .ok()?;
    (free < wanted).then(|| {
        let (wanted, free) = (show_bytes(wanted), show_bytes(free));
        format!(
            "{}: {wanted} are to come, {free} are free: it fits only where holes or compression \
             make it smaller",
            path.display()
        )
    })
}

/// A local path as the storage layer takes it. Names with a line end are refused: no command could
/// carry them.
fn as_ftp_path(path: &Path) -> Result<FtpPath> {
    FtpPath::new(path.as_os_str().as_bytes())
        .map_err(|e| Error::Usage(format!("{}: {e}", path.display())))
}

/// A file that is removed with its last descriptor.
pub(crate) fn anonymous_file() -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let file = openat(CWD, env::temp_dir(), flags, Mode::RUSR | Mode::WUSR)?;
    Ok(file.into())
}

/// Fails if the other fails.
pub(crate) fn spool_context() -> String {
    format!("keep a listing in {}", env::temp_dir().display())
}

/// A local path from bytes.
pub(crate) fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(path: &Path) -> Result<(TempFile, FileRef)> {
        let beside = |path: &Path| path.with_file_name(temporary_name());
        TempFile::create(&PosixStorage::unconfined(), path, false, None, &beside)
    }

    fn names_in(dir: &Path) -> Vec<String> {
        fs::read_dir(dir)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn a_part_is_not_written_into_what_a_symbolic_link_leads_to() {
        let dir = tempfile::tempdir().unwrap();
        let storage = PosixStorage::unconfined();
        let [victim, link, new] = ["victim", "link", "new"].map(|name| dir.path().join(name));
        fs::write(&victim, b"mine").unwrap();
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        let error = TempFile::in_place(&storage, &link)
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("symbolic link") && error.contains("/link"),
            "{error}"
        );
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&new, &link).unwrap();
        assert!(TempFile::in_place(&storage, &link).is_err());
        assert!(!new.exists());
        assert!(TempFile::in_place(&storage, &victim).is_ok());
        assert_eq!(fs::read(&victim).unwrap(), b"mine");
    }

    #[test]
    fn final_names_appear_at_commit_and_drop_removes_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "old").unwrap();
        let (target, file) = create(&path).unwrap();
        file.write_all_at(0, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        drop(target);
        assert_eq!(names_in(dir.path()), ["f"]);
        let (mut target, file) = create(&path).unwrap();
        file.write_all_at(0, b"new").unwrap();
        target
            .commit(&file, &LocalDurability::default(), None)
            .unwrap();
        drop(target);
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names_in(dir.path()), ["f"]);
    }

    #[test]
    fn only_files_of_earlier_runs_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("f"), dir.path().join("F"));
        fs::write(&path, "old").unwrap();
        let durability = LocalDurability::default();
        let put = |path: &Path, text: &[u8]| {
            let (mut target, file) = create(path).unwrap();
            file.write_all_at(0, text).unwrap();
            target.commit(&file, &durability, None)
        };
        put(&path, b"first").unwrap();
        let error = put(&path, b"second").unwrap_err();
        assert!(matches!(error, Error::Collides { .. }), "{error}");
        // Stands for a file system that does not distinguish the two.
        fs::hard_link(&path, &other).unwrap();
        put(&other, b"third").unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(names_in(dir.path()).len(), 2, "no temporary file stays");
    }

    #[test]
    fn foreign_files_in_a_new_directory_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (path, durability) = (dir.path().join("f"), LocalDurability::default());
        let beside = |path: &Path| path.with_file_name(temporary_name());
        let storage = PosixStorage::unconfined();
        let begin = || TempFile::create(&storage, &path, true, None, &beside).unwrap();
        let mut all = [begin(), begin()];
        fs::write(&path, "another user's").unwrap();
        let mut put = |at: usize, text: &[u8]| {
            let (target, file) = &mut all[at];
            file.write_all_at(0, text).unwrap();
            target.commit(file, &durability, None)
        };
        put(0, b"first").unwrap();
        let error = put(1, b"second").unwrap_err();
        assert!(matches!(error, Error::Collides { .. }), "{error}");
        drop(all);
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!(names_in(dir.path()), ["f"]);
    }

    #[test]
    fn a_full_disk_is_reported_with_its_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("not/there/yet");
        assert_eq!(shortage(&path, 0), None);
        let told = shortage(&path, u64::MAX).unwrap();
        assert!(
            told.contains("not/there/yet: ") && told.contains(" are free"),
            "{told}"
        );
    }

    #[test]
    fn a_link_in_place_of_a_partial_file_is_not_cut_through() {
        let dir = tempfile::tempdir().unwrap();
        let (victim, path) = (dir.path().join("victim"), dir.path().join("f"));
        fs::write(&victim, "long").unwrap();
        let (target, file) = create(&path).unwrap();
        file.write_all_at(0, b"12345").unwrap();
        target.cut(3).unwrap();
        assert_eq!(file.metadata().unwrap().size, 3);
        let TempPath(partial) = target.temporary.as_ref().unwrap();
        fs::remove_file(partial).unwrap();
        std::os::unix::fs::symlink(&victim, partial).unwrap();
        assert!(target.cut(0).is_err());
        assert_eq!(fs::read(&victim).unwrap(), b"long");
    }

    #[test]
    fn links_are_replaced_and_modes_stay_modes() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        fs::write(&real, "old").unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink("real", &link).unwrap();
        for path in [&link, &real] {
            let (mut target, file) = create(path).unwrap();
            file.write_all_at(0, b"new").unwrap();
            target
                .commit(&file, &LocalDurability::default(), None)
                .unwrap();
            assert_eq!(fs::read(path).unwrap(), b"new");
            assert!(!fs::symlink_metadata(&link).unwrap().is_symlink());
            let is_kept = path == &link;
            assert_eq!(fs::read(&real).unwrap() == b"old", is_kept);
        }
        assert_eq!(
            fs::metadata(&real).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }

    #[test]
    fn links_to_nothing_are_replaced_and_parents_may_be_links() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink("real", &link).unwrap();
        std::os::unix::fs::symlink("nothing", real.join("f")).unwrap();
        let (mut target, file) = create(&link.join("f")).unwrap();
        file.write_all_at(0, b"new").unwrap();
        target
            .commit(&file, &LocalDurability::default(), None)
            .unwrap();
        assert_eq!(fs::read(real.join("f")).unwrap(), b"new");
        assert!(!fs::symlink_metadata(real.join("f")).unwrap().is_symlink());
        assert!(create(Path::new("a\nb")).is_err());
    }

    #[test]
    fn special_files_are_written_in_place_and_directories_not_at_all() {
        let (target, _) = create(Path::new("/dev/null")).unwrap();
        assert!(target.is_in_place());
        let dir = tempfile::tempdir().unwrap();
        let error = create(dir.path()).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("Is a directory"), "{error}");
        let error = create(&dir.path().join("no/f"))
            .map(|_| ())
            .unwrap_err()
            .to_string();
        assert!(error.contains("no/f: No such file or directory"), "{error}");
    }
}

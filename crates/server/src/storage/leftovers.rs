//! Leftovers of uploads that their client has neither finished nor removed: files under the
//! temporary names of godwit's client. They are removed some time after their last change.
//!
//! The time is the change time of the inode (ctime), which no user can set: a complete file may
//! already have the modification time of its source while it waits for its final name. A file that
//! has changed since the oldest present session began is kept, so a session never loses what it has
//! written, however slow it is.

use std::{
    ffi::CStr,
    io,
    path::Path,
    time::{Duration, SystemTime},
};

use godwit_proto::temporary::is_temporary;
use rustix::{
    fd::{AsFd as _, BorrowedFd, OwnedFd},
    fs::{
        AtFlags, Dir, DirEntry, FileType, Mode, OFlags, Stat, fstat, open, openat, statat, unlinkat,
    },
    io::Errno,
};
use tracing::{info, warn};

/// Directory of a bucket of S3 in which each upload in parts has a directory of its own.
pub(crate) const UPLOADS: &str = ".godwit-uploads";

/// Directories that are open at a time, each inside the one before. What lies deeper is left alone.
const DEPTH_MAX: usize = 256;

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

/// One sweep, and a line on it in the log. Blocks.
pub(crate) fn sweep_and_tell(root: &Path, before: SystemTime) {
    match sweep(root, before) {
        Ok(Swept {
            removed,
            failed,
            last_failure: None,
        }) => info!(removed, failed, "looked for leftovers of uploads"),
        Ok(Swept {
            removed,
            failed,
            last_failure: Some(why),
        }) => warn!(removed, failed, %why, "looked for leftovers of uploads"),
        Err(error) => warn!(%error, ?root, "cannot remove leftovers of uploads"),
    }
}

/// The result of a sweep.
#[derive(Debug, Default)]
struct Swept {
    removed: u64,
    /// Names that could not be looked at, or not removed.
    failed: u64,
    last_failure: Option<Errno>,
}

impl Swept {
    fn note(&mut self, result: Result<(), Errno>) {
        match result {
            // Another process has removed it.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => {
                self.failed += 1;
                self.last_failure = Some(errno);
            }
        }
    }
}

/// Removes what is left over beneath `root`, on its file system alone. No link is followed: each
/// directory is opened in the one above it.
fn sweep(root: &Path, before: SystemTime) -> io::Result<Swept> {
    let mut swept = Swept::default();
    let top = open(root, DIRECTORY, Mode::empty())?;
    let device = fstat(&top)?.st_dev;
    let mut branch = vec![Dir::new(top)?];
    while let Some(here) = branch.last_mut() {
        let deeper = match here.read() {
            None => {
                branch.pop();
                continue;
            }
            Some(Ok(entry)) => visit(here.fd()?, &entry, before, &mut swept),
            Some(Err(errno)) => {
                branch.pop();
                Err(errno)
            }
        };
        let entered = deeper.and_then(|directory| match directory {
            Some(directory) if branch.len() < DEPTH_MAX && fstat(&directory)?.st_dev == device => {
                branch.push(Dir::new(directory)?);
                Ok(())
            }
            _ => Ok(()),
        });
        swept.note(entered);
    }
    Ok(swept)
}

/// Removes a file that is left over; opens a directory.
fn visit(
    here: BorrowedFd<'_>,
    entry: &DirEntry,
    before: SystemTime,
    swept: &mut Swept,
) -> Result<Option<OwnedFd>, Errno> {
    let name = entry.file_name();
    if matches!(name.to_bytes(), b"." | b"..") {
        return Ok(None);
    }
    let look = || statat(here, name, AtFlags::SYMLINK_NOFOLLOW);
    let kind = match entry.file_type() {
        FileType::Unknown => FileType::from_raw_mode(look()?.st_mode),
        kind => kind,
    };
    match kind {
        FileType::Directory => {
            let flags = DIRECTORY | OFlags::NOFOLLOW;
            let directory = openat(here, name, flags, Mode::empty())?;
            if name.to_bytes() != UPLOADS.as_bytes() {
                return Ok(Some(directory));
            }
            sweep_uploads(directory, before, swept)?;
            Ok(None)
        }
        FileType::RegularFile if is_temporary(name.to_bytes()) => {
            let stat = look()?;
            let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            if is_file && changed(&stat) < before {
                unlinkat(here, name, AtFlags::empty())?;
                swept.removed += 1;
            }
            Ok(None)
        }
        _ => Ok(None),
    }
}

/// Removes uploads of which nothing has changed since. One that goes on is left whole, however old
/// its first part is.
fn sweep_uploads(all: OwnedFd, before: SystemTime, swept: &mut Swept) -> Result<(), Errno> {
    let mut uploads = Dir::read_from(&all)?;
    while let Some(entry) = uploads.read() {
        let entry = entry?;
        let name = entry.file_name();
        if !is_upload(name.to_bytes()) {
            continue;
        }
        let removed = remove_upload(all.as_fd(), name, before);
        swept.removed += u64::from(removed == Ok(true));
        swept.note(removed.map(drop));
    }
    Ok(())
}

/// True: it was old, and is removed.
fn remove_upload(all: BorrowedFd<'_>, name: &CStr, before: SystemTime) -> Result<bool, Errno> {
    let flags = DIRECTORY | OFlags::NOFOLLOW;
    let directory = match openat(all, name, flags, Mode::empty()) {
        // No upload.
        Err(Errno::NOTDIR | Errno::LOOP) => return Ok(false),
        directory => directory?,
    };
    if changed(&fstat(&directory)?) >= before {
        return Ok(false);
    }
    let mut parts = Dir::read_from(&directory)?;
    let is_part = |name: &CStr| !matches!(name.to_bytes(), b"." | b"..");
    while let Some(entry) = parts.read() {
        let entry = entry?;
        let stat = statat(&directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
        if is_part(entry.file_name()) && changed(&stat) >= before {
            return Ok(false);
        }
    }
    parts.rewind();
    while let Some(entry) = parts.read() {
        let entry = entry?;
        if is_part(entry.file_name()) {
            unlinkat(&directory, entry.file_name(), AtFlags::empty())?;
        }
    }
    unlinkat(all, name, AtFlags::REMOVEDIR)?;
    Ok(true)
}

/// Whether an upload has this name: 24 bytes in base64 for URLs.
pub(crate) fn is_upload(name: &[u8]) -> bool {
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    name.len() == 32 && name.iter().all(is_digit)
}

fn changed(stat: &Stat) -> SystemTime {
    let seconds = u64::try_from(stat.st_ctime).unwrap_or_default();
    let nanoseconds = u32::try_from(stat.st_ctime_nsec).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    const LEFT: &str = ".godwit-0123456789abcdef.part";

    #[test]
    fn only_leftovers_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join("root").join(name);
        let outside = folder.path().join(LEFT);
        fs::create_dir_all(at("a/b c")).unwrap();
        fs::create_dir(at(".godwit-000000000000000d.part")).unwrap();
        fs::write(&outside, "x").unwrap();
        symlink(folder.path(), at("a/link")).unwrap();
        symlink(&outside, at(".godwit-1111111111111111.part")).unwrap();
        for directory in ["", "a/", "a/b c/", ".godwit-000000000000000d.part/"] {
            for name in [LEFT, "f.part", ".godwit-0123456789abcde.part"] {
                fs::write(at(&format!("{directory}{name}")), "x").unwrap();
            }
        }
        let before = SystemTime::now() - Duration::from_secs(3600);
        assert_eq!(sweep(&at(""), before).unwrap().removed, 0, "all are new");
        let after = SystemTime::now() + Duration::from_secs(3600);
        let swept = sweep(&at(""), after).unwrap();
        assert_eq!((swept.removed, swept.failed), (4, 0));
        assert!(outside.exists());
        assert!(at("a/b c/f.part").exists());
        assert!(at(".godwit-1111111111111111.part").is_symlink());
        assert_eq!(sweep(&at(""), after).unwrap().removed, 0);
    }

    #[test]
    fn an_upload_is_removed_when_nothing_of_it_is_new() {
        let folder = tempfile::tempdir().unwrap();
        let uploads = folder.path().join("bucket").join(UPLOADS);
        let (one, two) = ("1".repeat(32), "2-_".repeat(10) + "zz");
        for id in [&*one, &*two, "other"] {
            fs::create_dir_all(uploads.join(id)).unwrap();
            fs::write(uploads.join(id).join("manifest"), "").unwrap();
            fs::write(uploads.join(id).join("00001"), "").unwrap();
        }
        fs::write(uploads.join("no upload"), "").unwrap();
        let now = SystemTime::now();
        let day = Duration::from_secs(24 * 3600);
        assert_eq!(sweep(folder.path(), now - day).unwrap().removed, 0);
        assert!(uploads.join(&one).join("00001").exists());
        let swept = sweep(folder.path(), now + day).unwrap();
        assert_eq!((swept.removed, swept.failed), (2, 0));
        assert!(!uploads.join(&one).exists() && !uploads.join(&two).exists());
        assert!(uploads.join("no upload").exists());
        assert!(
            uploads.join("other/00001").exists(),
            "it is another program's"
        );
    }
}

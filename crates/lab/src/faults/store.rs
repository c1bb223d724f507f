//! A FUSE file system that shows a directory as it is, and can fail like a bad disk.
//! Programs see an ordinary file system.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{
    DirEntryExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, LockOwner, MountOption, OpenAccMode, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;
use rustix::fs::{CWD, renameat_with, statvfs};

use super::durable::Durable;

/// The device whose presence tells whether there can be such a file system.
const DEVICE: &str = "/dev/fuse";
/// How long the kernel may cache the attributes of a file: not at all, for others change the
/// directory too.
const ATTRIBUTES_VALID: Duration = Duration::ZERO;
/// What a slow disk takes for a read or a write.
const SLOW: Duration = Duration::from_millis(50);

/// What is wrong with the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Reads end with EIO.
    Reads,
    /// Writes end with EIO.
    Writes,
    /// Writes take half of what they are given.
    Short,
    /// Reads and writes take [`SLOW`].
    Slow,
}

/// The mounted file system; gone when dropped.
#[derive(Debug)]
pub(super) struct Store {
    at: PathBuf,
    trouble: Arc<Mutex<(Option<Trouble>, u32)>>,
    directory: PathBuf,
    durable: Arc<Mutex<Durable>>,
    session: Option<BackgroundSession>,
}

/// Whether there can be one.
pub(super) fn available() -> bool {
    let device = File::options().read(true).write(true).open(DEVICE);
    device.is_ok()
}

impl Store {
    /// Shows the files of `directory` at `at`, an empty directory. Directories in it are not shown.
    pub(super) fn mount(directory: &Path, at: &Path) -> io::Result<Store> {
        let trouble = Arc::new(Mutex::new((None, 0)));
        let durable = Arc::new(Mutex::new(Durable::default()));
        let shown = FaultyView {
            directory: directory.to_owned(),
            durable: Arc::clone(&durable),
            trouble: Arc::clone(&trouble),
            names: Mutex::default(),
            open: Mutex::default(),
            handles: AtomicU64::new(1),
        };
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("faults".into())];
        let session = fuser::spawn_mount(shown, at, &config)?;
        Ok(Store {
            at: at.to_owned(),
            trouble,
            directory: directory.to_owned(),
            durable,
            session: Some(session),
        })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.at
    }

    /// All that was not synced is gone. Writers must have ended.
    pub(super) fn lose_power(&self) -> io::Result<()> {
        self.durable.lock().restore(&self.directory)
    }

    /// Lets the next `times` reads or writes meet `trouble`.
    pub(super) fn trouble(&self, trouble: Trouble, times: u32) {
        *self.trouble.lock() = (Some(trouble), times);
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Detached, for a killed program may still have a file open; the thread ends with the last
        // of them.
        let _ = rustix::mount::unmount(&self.at, rustix::mount::UnmountFlags::DETACH);
        drop(self.session.take());
    }
}

struct FaultyView {
    directory: PathBuf,
    durable: Arc<Mutex<Durable>>,
    trouble: Arc<Mutex<(Option<Trouble>, u32)>>,
    /// Files that the kernel knows, by number.
    names: Mutex<HashMap<u64, OsString>>,
    open: Mutex<HashMap<u64, Arc<File>>>,
    handles: AtomicU64,
}

impl FaultyView {
    /// What a read or a write meets.
    fn meets(&self, reads: bool) -> Option<Trouble> {
        let mut trouble = self.trouble.lock();
        let (Some(kind), left @ 1..) = &mut *trouble else {
            return None;
        };
        let concerned = match kind {
            Trouble::Reads => reads,
            Trouble::Writes | Trouble::Short => !reads,
            Trouble::Slow => true,
        };
        *left -= u32::from(concerned);
        concerned.then_some(*kind)
    }

    fn path_of(&self, ino: INodeNo) -> Result<PathBuf, Errno> {
        if ino == INodeNo::ROOT {
            return Ok(self.directory.clone());
        }
        let names = self.names.lock();
        let name = names.get(&ino.0).ok_or(Errno::ENOENT)?;
        Ok(self.directory.join(name))
    }

    /// Looks at a name, and remembers its number.
    fn look(&self, name: &OsStr) -> Result<FileAttr, Errno> {
        let found = fs::symlink_metadata(self.directory.join(name))?;
        self.names.lock().insert(found.ino(), name.to_owned());
        Ok(shown(found.ino(), &found))
    }

    fn attributes(&self, ino: INodeNo, handle: Option<FileHandle>) -> Result<FileAttr, Errno> {
        let found = match handle.and_then(|handle| self.file(handle).ok()) {
            Some(file) => file.metadata()?,
            None => fs::symlink_metadata(self.path_of(ino)?)?,
        };
        Ok(shown(ino.0, &found))
    }

    fn file(&self, handle: FileHandle) -> Result<Arc<File>, Errno> {
        let open = self.open.lock();
        open.get(&handle.0).cloned().ok_or(Errno::EBADF)
    }

    fn keep(&self, file: File) -> FileHandle {
        let handle = self.handles.fetch_add(1, Ordering::Relaxed);
        self.open.lock().insert(handle, Arc::new(file));
        FileHandle(handle)
    }

    fn names_in_order(&self) -> Result<Vec<(u64, OsString)>, Errno> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                names.push((entry.ino(), entry.file_name()));
            }
        }
        names.sort();
        Ok(names)
    }
}

fn shown(ino: u64, found: &Metadata) -> FileAttr {
    let at = |seconds: i64, nanoseconds: i64| {
        let whole = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        UNIX_EPOCH + whole + Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0))
    };
    let changed = at(found.ctime(), found.ctime_nsec());
    let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    FileAttr {
        ino: INodeNo(ino),
        size: found.len(),
        blocks: found.blocks(),
        atime: at(found.atime(), found.atime_nsec()),
        mtime: at(found.mtime(), found.mtime_nsec()),
        ctime: changed,
        crtime: changed,
        kind: FileType::from_std(found.file_type()).unwrap_or(FileType::RegularFile),
        perm: u16::try_from(found.mode() & 0o7777).unwrap_or(0),
        nlink: small(found.nlink()),
        uid: found.uid(),
        gid: found.gid(),
        rdev: 0,
        blksize: small(found.blksize()),
        flags: 0,
    }
}

/// Everything is in one directory, so parents need not be looked at.
impl Filesystem for FaultyView {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.look(name) {
            Ok(attributes) => reply.entry(&ATTRIBUTES_VALID, &attributes, Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(ino, handle) {
            Ok(attributes) => reply.attr(&ATTRIBUTES_VALID, &attributes),
            Err(errno) => reply.error(errno),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = || -> Result<FileAttr, Errno> {
            let file = match handle {
                Some(handle) => self.file(handle)?,
                None => Arc::new(File::options().write(true).open(self.path_of(ino)?)?),
            };
            if let Some(mode) = mode {
                file.set_permissions(fs::Permissions::from_mode(mode & 0o7777))?;
            }
            if let Some(size) = size {
                file.set_len(size)?;
            }
            match modified {
                Some(TimeOrNow::SpecificTime(time)) => file.set_modified(time)?,
                Some(TimeOrNow::Now) => file.set_modified(SystemTime::now())?,
                None => {}
            }
            Ok(shown(ino.0, &file.metadata()?))
        };
        match set() {
            Ok(attributes) => reply.attr(&ATTRIBUTES_VALID, &attributes),
            Err(errno) => reply.error(errno),
        }
    }

    fn unlink(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match fs::remove_file(self.directory.join(name)) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error.into()),
        }
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        name: &OsStr,
        _: INodeNo,
        new: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let rename = || -> Result<(), Errno> {
            let (from, to) = (self.directory.join(name), self.directory.join(new));
            let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
            renameat_with(CWD, &from, CWD, &to, flags).map_err(io::Error::from)?;
            self.look(new)?;
            Ok(())
        };
        match rename() {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let open = || -> Result<File, Errno> {
            let writes = flags.acc_mode() != OpenAccMode::O_RDONLY;
            let path = self.path_of(ino)?;
            // What is synced is read.
            Ok(File::options().read(true).write(writes).open(path)?)
        };
        match open() {
            Ok(file) => reply.opened(self.keep(file), FopenFlags::empty()),
            Err(errno) => reply.error(errno),
        }
    }

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let create = || -> Result<(File, FileAttr), Errno> {
            let exclusive = rustix::fs::OFlags::from_bits_retain(flags.cast_unsigned())
                .contains(rustix::fs::OFlags::EXCL);
            let mut options = File::options();
            options.read(true).write(true).mode(mode & !umask);
            let file = options
                .create(!exclusive)
                .create_new(exclusive)
                .open(self.directory.join(name))?;
            Ok((file, self.look(name)?))
        };
        match create() {
            Ok((file, attributes)) => {
                let (handle, flags) = (self.keep(file), FopenFlags::empty());
                reply.created(&ATTRIBUTES_VALID, &attributes, Generation(0), handle, flags);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.meets(true) {
            Some(Trouble::Reads) => return reply.error(Errno::EIO),
            Some(Trouble::Slow) => std::thread::sleep(SLOW),
            _ => {}
        }
        let read = || -> Result<Vec<u8>, Errno> {
            let file = self.file(handle)?;
            let mut bytes = vec![0; size as usize];
            let mut filled = 0;
            while filled < bytes.len() {
                match file.read_at(&mut bytes[filled..], offset + filled as u64)? {
                    0 => break,
                    length => filled += length,
                }
            }
            bytes.truncate(filled);
            Ok(bytes)
        };
        match read() {
            Ok(bytes) => reply.data(&bytes),
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let data = match self.meets(false) {
            Some(Trouble::Writes) => return reply.error(Errno::EIO),
            Some(Trouble::Short) => &data[..data.len().div_ceil(2)],
            Some(Trouble::Slow) => {
                std::thread::sleep(SLOW);
                data
            }
            _ => data,
        };
        let write = || -> Result<(), Errno> { Ok(self.file(handle)?.write_all_at(data, offset)?) };
        match write() {
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)),
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        let sync = || {
            Ok(self
                .durable
                .lock()
                .file_synced(self.file(handle)?.as_ref())?)
        };
        match sync() {
            Ok(()) => reply.ok(),
            Err::<_, Errno>(errno) => reply.error(errno),
        }
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.durable.lock().directory_synced(&self.directory) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error.into()),
        }
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.open.lock().remove(&handle.0);
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let names = match self.names_in_order() {
            Ok(names) => names,
            Err(errno) => return reply.error(errno),
        };
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for ((ino, name), next) in names.into_iter().zip(1..).skip(from) {
            if reply.add(INodeNo(ino), next, FileType::RegularFile, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match statvfs(&self.directory) {
            Ok(s) => {
                let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
                let (size, part) = (small(s.f_bsize), small(s.f_frsize));
                reply.statfs(
                    s.f_blocks, s.f_bfree, s.f_bavail, s.f_files, s.f_ffree, size, 255, part,
                );
            }
            Err(errno) => reply.error(io::Error::from(errno).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    /// A directory and what shows it; `None`, with a printed skip, where there can be none.
    fn mounted(test: &str) -> Option<(tempfile::TempDir, Store)> {
        let folder = tempfile::tempdir().unwrap();
        let [directory, at] = ["directory", "at"].map(|name| folder.path().join(name));
        for path in [&directory, &at] {
            fs::create_dir(path).unwrap();
        }
        match Store::mount(&directory, &at) {
            Ok(store) => Some((folder, store)),
            Err(error) => {
                let _ = writeln!(io::stderr().lock(), "skipped {test}: {DEVICE}: {error}");
                None
            }
        }
    }

    #[test]
    fn a_good_disk_shows_its_directory_as_it_is() {
        let Some((folder, store)) = mounted("a_good_disk_shows_its_directory_as_it_is") else {
            return;
        };
        let (at, behind) = (store.path(), folder.path().join("directory"));
        fs::write(at.join("a"), "content").unwrap();
        assert_eq!(fs::read(behind.join("a")).unwrap(), b"content");
        fs::rename(at.join("a"), at.join("b")).unwrap();
        assert_eq!(fs::read(at.join("b")).unwrap(), b"content");
        fs::write(behind.join("c"), "more").unwrap();
        let mut names: Vec<_> = (fs::read_dir(at).unwrap())
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["b", "c"]);
        assert_eq!(fs::metadata(at.join("c")).unwrap().len(), 4);
        fs::remove_file(at.join("b")).unwrap();
        assert!(!behind.join("b").exists());
        let taken = File::options()
            .write(true)
            .create_new(true)
            .open(at.join("c"));
        assert_eq!(taken.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn a_bad_disk_fails_so_often_and_no_more() {
        let Some((_folder, store)) = mounted("a_bad_disk_fails_so_often_and_no_more") else {
            return;
        };
        let io_error = Some(rustix::io::Errno::IO.raw_os_error());
        let path = store.path().join("a");
        let mut file = File::create(&path).unwrap();
        store.trouble(Trouble::Writes, 1);
        assert_eq!(
            file.write(b"12345678").unwrap_err().raw_os_error(),
            io_error
        );
        store.trouble(Trouble::Short, 1);
        assert_eq!(file.write(b"12345678").unwrap(), 4);
        assert_eq!(file.write(b"5678").unwrap(), 4);
        drop(file);
        store.trouble(Trouble::Reads, 1);
        let mut read = Vec::new();
        // The kernel may ask for the bytes once more by itself before it tells us.
        let first = File::open(&path).unwrap().read_to_end(&mut read);
        assert!(first.is_err() || read == b"12345678");
        assert_eq!(fs::read(&path).unwrap(), b"12345678");
    }
}

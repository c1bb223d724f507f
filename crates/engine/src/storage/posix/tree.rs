//! Directories: streamed listings, removal of whole trees.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use godwit_proto::FtpPath;
use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, openat, readlinkat, statat, unlinkat},
    io::Errno,
};

use super::{
    super::{Metadata, Result, errno_failure},
    metadata_of,
    root::Root,
    walk::NAMED,
};

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// Directories of a tree under removal that are open at a time; those above are opened again by
/// `..`.
const OPEN_LEVELS_MAX: usize = 32;

/// A directory being listed: one descriptor and one kernel buffer, however many entries there are.
pub(super) struct Listed {
    root: Arc<Root>,
    path: FtpPath,
    dir: Dir,
    ended: bool,
}

impl Listed {
    pub(super) fn open(root: Arc<Root>, path: &FtpPath) -> Result<Self> {
        let dir = root
            .open(path.as_bytes(), DIRECTORY, Mode::empty())
            .and_then(Dir::new)
            .map_err(|e| errno_failure(format!("list {path}"), e))?;
        Ok(Self {
            root,
            path: path.clone(),
            dir,
            ended: false,
        })
    }

    /// `None`: the entry is gone, or a link that leads nowhere.
    fn look(&self, name: &[u8]) -> std::result::Result<Option<Metadata>, Errno> {
        let dir = self.dir.fd()?;
        let stat = match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(e),
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            return Ok(Some(metadata_of(&stat, None)));
        }
        let Ok(target) = readlinkat(dir, name, Vec::new()) else {
            return Ok(None);
        };
        let behind = self.path.join(name).ok().and_then(|path| {
            self.root
                .open(path.as_bytes(), NAMED, Mode::empty())
                .and_then(fstat)
                .ok()
        });
        Ok(behind.map(|stat| metadata_of(&stat, Some(target.into_bytes()))))
    }
}

impl Iterator for Listed {
    type Item = Result<(Vec<u8>, Metadata)>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            let entry = match self.dir.read()? {
                Ok(entry) => entry,
                // The directory itself was removed.
                Err(Errno::NOENT) => return None,
                Err(e) => {
                    self.ended = true;
                    return Some(Err(errno_failure(format!("list {}", self.path), e)));
                }
            };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            match self.look(name) {
                Ok(None) => {}
                Ok(Some(metadata)) => return Some(Ok((name.to_vec(), metadata))),
                Err(e) => {
                    let name = String::from_utf8_lossy(name);
                    return Some(Err(errno_failure(format!("stat {}/{name}", self.path), e)));
                }
            }
        }
        None
    }
}

/// Removes `name` in `parent` and all below it; no link is followed, whatever happens meanwhile.
///
/// Descriptors are bounded, depth is not: levels far above are left and found again by `..`, which
/// must then be the very directory that we came from.
pub(super) fn remove(parent: BorrowedFd<'_>, name: &[u8]) -> std::result::Result<(), Errno> {
    let Some(top) = Level::enter(parent, name)? else {
        return Ok(());
    };
    let mut levels = vec![top];
    while let Some(depth) = levels.len().checked_sub(1) {
        match levels[depth].step()? {
            Step::Removed => {}
            Step::Down(child) => {
                levels.push(child);
                if let Some(far) = depth.checked_sub(OPEN_LEVELS_MAX) {
                    levels[far].dir = None;
                }
            }
            Step::Empty => {
                let Some(done) = levels.pop() else { break };
                match levels.last_mut() {
                    None => remove_empty(parent, &done.name)?,
                    Some(above) => {
                        above.return_from(&done)?;
                        remove_empty(above.fd()?, &done.name)?;
                    }
                }
            }
        }
    }
    Ok(())
}

struct Level {
    name: Vec<u8>,
    id: (u64, u64),
    /// `None`: closed to save descriptors.
    dir: Option<Dir>,
}

enum Step {
    Removed,
    Down(Level),
    Empty,
}

impl Level {
    /// Opens a directory to empty it. `None`: it was no directory, and is removed.
    fn enter(parent: BorrowedFd<'_>, name: &[u8]) -> std::result::Result<Option<Self>, Errno> {
        match openat(parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(fd) => {
                let id = id_of(&fd)?;
                Ok(Some(Self {
                    name: name.to_vec(),
                    id,
                    dir: Some(Dir::new(fd)?),
                }))
            }
            Err(Errno::NOTDIR | Errno::LOOP) => {
                unlinkat(parent, name, AtFlags::empty()).map(|()| None)
            }
            // One that we may not read can still go if it is empty.
            Err(Errno::ACCESS) => unlinkat(parent, name, AtFlags::REMOVEDIR)
                .map(|()| None)
                .map_err(|_| Errno::ACCESS),
            Err(e) => Err(e),
        }
    }

    fn fd(&self) -> std::result::Result<BorrowedFd<'_>, Errno> {
        self.dir.as_ref().ok_or(Errno::BADF)?.fd()
    }

    fn step(&mut self) -> std::result::Result<Step, Errno> {
        let entry = match self.dir.as_mut().ok_or(Errno::BADF)?.read() {
            None | Some(Err(Errno::NOENT)) => return Ok(Step::Empty),
            Some(entry) => entry?,
        };
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            return Ok(Step::Removed);
        }
        let parent = self.fd()?;
        if entry.file_type() != FileType::Directory {
            match unlinkat(parent, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => return Ok(Step::Removed),
                // A directory after all: the file system does not tell kinds, or it was put there
                // meanwhile.
                Err(Errno::ISDIR) => {}
                Err(e) => return Err(e),
            }
        }
        match Self::enter(parent, name) {
            Ok(Some(child)) => Ok(Step::Down(child)),
            Ok(None) | Err(Errno::NOENT) => Ok(Step::Removed),
            Err(e) => Err(e),
        }
    }

    /// Opens this level again where it was closed, coming from `child`, which is in it.
    fn return_from(&mut self, child: &Self) -> std::result::Result<(), Errno> {
        if self.dir.is_some() {
            return Ok(());
        }
        let fd = openat(
            child.fd()?,
            "..",
            DIRECTORY | OFlags::NOFOLLOW,
            Mode::empty(),
        )?;
        if id_of(&fd)? != self.id {
            // Another process moved it: what lies above is not ours to touch.
            return Err(Errno::STALE);
        }
        self.dir = Some(Dir::new(fd)?);
        Ok(())
    }
}

fn remove_empty(parent: BorrowedFd<'_>, name: &[u8]) -> std::result::Result<(), Errno> {
    match unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

fn id_of(fd: &OwnedFd) -> std::result::Result<(u64, u64), Errno> {
    let stat = fstat(fd.as_fd())?;
    Ok(metadata_of(&stat, None).unique)
}

//! Paths followed by hand, one component at a time, where the kernel lacks openat2.
//!
//! No system call here ever sees a slash, a `..` or a link to follow: each component is opened with
//! O_NOFOLLOW in the directory reached so far, links are read and taken apart, and `..` walks again
//! from the root along the names so far. A link that is put in place of a directory meanwhile is
//! thus seen as a link.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::{
    fs::{FileType, Mode, OFlags, fstat, openat, readlinkat},
    io::{Errno, retry_on_intr},
};

/// A directory or anything else, named but not opened for its bytes.
pub(super) const NAMED: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Symbolic links in one path, as in the kernel (MAXSYMLINKS).
const LINKS_MAX: u32 = 40;
/// Components looked at for one path. A path has at most 2048; the rest is room for links with `..`
/// in them.
const STEPS_MAX: u32 = 8192;
/// PATH_MAX less the NUL.
const PATH_LEN_MAX: usize = 4095;

/// What an absolute symbolic link means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AbsoluteLinks {
    /// A way out: EACCES.
    Refused,
    /// Our root is the root of the process, so it stays inside.
    FromRoot,
}

pub(super) fn open(
    root: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    mode: Mode,
    absolute_links: AbsoluteLinks,
) -> Result<OwnedFd, Errno> {
    let follow_last =
        !flags.contains(OFlags::NOFOLLOW) && !flags.contains(OFlags::CREATE | OFlags::EXCL);
    let mut walk = Walk {
        root,
        here: None,
        walked: Vec::new(),
        pending: Vec::new(),
        links: 0,
        absolute_links,
    };
    walk.push(path)?;
    for _ in 0..STEPS_MAX {
        let Some(name) = walk.pending.pop() else {
            return retry_on_intr(|| openat(walk.at(), ".", flags, mode));
        };
        if name == b".." {
            walk.up()?;
        } else if !walk.pending.is_empty() {
            walk.down(name)?;
        } else if let Some(fd) = walk.last(name, flags, mode, follow_last)? {
            return Ok(fd);
        }
    }
    Err(Errno::LOOP)
}

struct Walk<'r> {
    root: BorrowedFd<'r>,
    /// Directory reached; `None` is the root.
    here: Option<OwnedFd>,
    /// Names from the root to `here`; none of them was a link.
    walked: Vec<Vec<u8>>,
    /// Components to come, the next one last.
    pending: Vec<Vec<u8>>,
    links: u32,
    absolute_links: AbsoluteLinks,
}

impl Walk<'_> {
    fn at(&self) -> BorrowedFd<'_> {
        self.here.as_ref().map_or(self.root, AsFd::as_fd)
    }

    fn push(&mut self, path: &[u8]) -> Result<(), Errno> {
        if path.len() > PATH_LEN_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let parts = path.split(|b| *b == b'/').rev();
        self.pending.extend(
            parts
                .filter(|p| !matches!(*p, b"" | b"."))
                .map(<[u8]>::to_vec),
        );
        Ok(())
    }

    fn up(&mut self) -> Result<(), Errno> {
        if self.walked.pop().is_none() && self.absolute_links == AbsoluteLinks::Refused {
            return Err(Errno::ACCESS);
        }
        self.here = None;
        self.pending.extend(self.walked.drain(..).rev());
        Ok(())
    }

    fn down(&mut self, name: Vec<u8>) -> Result<(), Errno> {
        let fd = openat(self.at(), &name, NAMED | OFlags::NOFOLLOW, Mode::empty())?;
        match FileType::from_raw_mode(fstat(&fd)?.st_mode) {
            FileType::Directory => {
                self.here = Some(fd);
                self.walked.push(name);
                Ok(())
            }
            FileType::Symlink => {
                let target = readlinkat(&fd, "", Vec::new())?;
                self.link(target.as_bytes())
            }
            _ => Err(Errno::NOTDIR),
        }
    }

    /// `None`: it was a link; the walk continues.
    fn last(
        &mut self,
        name: Vec<u8>,
        flags: OFlags,
        mode: Mode,
        follow: bool,
    ) -> Result<Option<OwnedFd>, Errno> {
        let flags = flags | OFlags::NOFOLLOW;
        if follow {
            match readlinkat(self.at(), &name, Vec::new()) {
                Ok(target) => return self.link(target.as_bytes()).map(|()| None),
                Err(Errno::INVAL | Errno::NOENT) => {}
                Err(e) => return Err(e),
            }
        }
        let opened = retry_on_intr(|| openat(self.at(), &name, flags, mode));
        let became_link = follow
            && match &opened {
                // With O_PATH a link opens as itself.
                Ok(fd) if flags.contains(OFlags::PATH) => is_link(fd.as_fd())?,
                Err(Errno::LOOP) => true,
                _ => false,
            };
        if became_link {
            self.pending.push(name);
            return Ok(None);
        }
        opened.map(Some)
    }

    /// Puts the target of a link in front of what is to come.
    fn link(&mut self, target: &[u8]) -> Result<(), Errno> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno::LOOP);
        }
        match (target.first(), self.absolute_links) {
            (Some(b'/'), AbsoluteLinks::Refused) => return Err(Errno::ACCESS),
            (Some(b'/'), AbsoluteLinks::FromRoot) => {
                self.here = None;
                self.walked.clear();
            }
            _ => {}
        }
        self.push(target)
    }
}

fn is_link(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(FileType::from_raw_mode(fstat(fd)?.st_mode) == FileType::Symlink)
}

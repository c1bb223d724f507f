//! From paths to descriptors, without leaving the root.

use std::{
    fs,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2},
    io::{Errno, retry_on_intr},
};

use super::walk::{self, AbsoluteLinks, NAMED};

/// openat2 returns EAGAIN while another process renames directories that a `..` passes; it is asked
/// this often.
const RACES_MAX: u32 = 128;

/// Where paths begin and what they must not leave.
pub(super) enum Root {
    /// Nowhere: paths mean what they mean to the process.
    Unconfined,
    /// Beneath `dir`.
    Confined {
        dir: OwnedFd,
        resolver: Resolver,
        absolute_links: AbsoluteLinks,
    },
}

/// What follows names and links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resolver {
    /// openat2(2), Linux 5.6.
    Kernel,
    /// [`walk`], one component at a time.
    ByHand,
}

impl Root {
    pub(super) fn confined(dir: &Path, resolver: Option<Resolver>) -> Result<Self, Errno> {
        let fd = openat(CWD, dir, NAMED | OFlags::DIRECTORY, Mode::empty())?;
        let absolute_links = match fs::canonicalize(dir) {
            Ok(p) if p == Path::new("/") => AbsoluteLinks::FromRoot,
            _ => AbsoluteLinks::Refused,
        };
        let resolver = match resolver {
            Some(chosen) => chosen,
            None => match by_kernel(fd.as_fd(), b".", NAMED, Mode::empty(), absolute_links) {
                Ok(_) => Resolver::Kernel,
                // Before Linux 5.6; and container filters that do not know the call.
                Err(Errno::NOSYS | Errno::PERM) => Resolver::ByHand,
                Err(e) => return Err(e),
            },
        };
        Ok(Self::Confined {
            dir: fd,
            resolver,
            absolute_links,
        })
    }

    /// open(2) of `path`; links are followed beneath the root, unless `flags` has NOFOLLOW.
    pub(super) fn open(&self, path: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        match self {
            Self::Unconfined => retry_on_intr(|| openat(CWD, path, flags, mode)),
            Self::Confined {
                dir,
                resolver,
                absolute_links,
            } => {
                let path = relative(path);
                match resolver {
                    Resolver::Kernel => by_kernel(dir.as_fd(), path, flags, mode, *absolute_links),
                    Resolver::ByHand => walk::open(dir.as_fd(), path, flags, mode, *absolute_links),
                }
            }
        }
    }

    /// The directory that holds `path`, and the name therein. Links are followed up to the
    /// directory; the name is for calls that do not follow it. EBUSY for the root and for names
    /// that are none (`..`).
    pub(super) fn parent<'p>(&self, path: &'p [u8]) -> Result<(OwnedFd, &'p [u8]), Errno> {
        let (head, name) = split(path);
        if matches!(name, b"" | b"." | b"..") {
            return Err(Errno::BUSY);
        }
        let head = match (self, head) {
            (_, []) => b".",
            (_, head) => head,
        };
        Ok((
            self.open(head, NAMED | OFlags::DIRECTORY, Mode::empty())?,
            name,
        ))
    }
}

fn by_kernel(
    dir: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    mode: Mode,
    absolute_links: AbsoluteLinks,
) -> Result<OwnedFd, Errno> {
    let stay = match absolute_links {
        AbsoluteLinks::Refused => ResolveFlags::BENEATH,
        AbsoluteLinks::FromRoot => ResolveFlags::IN_ROOT,
    };
    let resolve = stay | ResolveFlags::NO_MAGICLINKS;
    let mut races = 0;
    loop {
        match openat2(dir, path, flags, mode, resolve) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if races < RACES_MAX => races += 1,
            // Out of the root.
            Err(Errno::XDEV) => return Err(Errno::ACCESS),
            other => return other,
        }
    }
}

/// Without the slashes in front; `.` for the root itself.
fn relative(path: &[u8]) -> &[u8] {
    match path.iter().position(|b| *b != b'/') {
        Some(start) => &path[start..],
        None => b".",
    }
}

/// All up to the last name (empty where there is nothing before it), and the last name (empty for
/// the root).
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path.iter().rposition(|b| *b != b'/').map_or(0, |i| i + 1);
    let start = path[..end]
        .iter()
        .rposition(|b| *b == b'/')
        .map_or(0, |i| i + 1);
    (&path[..start], &path[start..end])
}

/// The last name of `other` where both paths have the same directory, spelled alike.
pub(super) fn sibling<'p>(path: &[u8], other: &'p [u8]) -> Option<&'p [u8]> {
    let (head, name) = split(other);
    (split(path).0 == head && !matches!(name, b"" | b"." | b"..")).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_at_the_last_name() {
        for (path, head, name) in [
            ("/", "", ""),
            ("", "", ""),
            ("a", "", "a"),
            ("/a", "/", "a"),
            ("/a/b//", "/a/", "b"),
        ] {
            assert_eq!(
                split(path.as_bytes()),
                (head.as_bytes(), name.as_bytes()),
                "{path}"
            );
        }
        assert_eq!(sibling(b"/a/b", b"/a/c"), Some(&b"c"[..]));
        assert_eq!(sibling(b"/a/b", b"/c"), None);
        assert_eq!(sibling(b"/a/b", b"/a/.."), None);
        assert_eq!(relative(b"//a/b"), b"a/b");
        assert_eq!(relative(b"/"), b".");
    }
}

//! A file system in memory that can be full.

use std::ffi::CString;
use std::io;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

/// A file system in memory, which only the thread that made it sees, and what that starts.
#[derive(Debug)]
pub(super) struct MemoryDisk {
    path: PathBuf,
    bytes: u64,
}

impl MemoryDisk {
    /// Our own view of what is mounted, then a file system at `path` that ends with us.
    pub(super) fn mount(path: &Path, bytes: u64) -> io::Result<MemoryDisk> {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS)?;
        let ours = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        rustix::mount::mount_change("/", ours)?;
        let options = CString::new(format!("size={bytes},mode=777"))?;
        let flags = MountFlags::NODEV | MountFlags::NOSUID;
        rustix::mount::mount("faults", path, "tmpfs", flags, options.as_c_str())?;
        Ok(MemoryDisk {
            path: path.to_owned(),
            bytes,
        })
    }

    /// Bytes in use.
    pub(super) fn used(&self) -> io::Result<u64> {
        let found = rustix::fs::statvfs(&self.path)?;
        Ok((found.f_blocks - found.f_bfree) * found.f_frsize)
    }

    /// Leaves no room.
    pub(super) fn fill(&self) -> io::Result<()> {
        loop {
            match self.resize(self.used()?) {
                // More was written meanwhile.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
                other => return other,
            }
        }
    }

    /// Gives it all its room again.
    pub(super) fn unfill(&self) -> io::Result<()> {
        self.resize(self.bytes)
    }

    fn resize(&self, bytes: u64) -> io::Result<()> {
        // Size 0 would be no limit.
        let options = CString::new(format!("size={}", bytes.max(1)))?;
        let flags = MountFlags::NODEV | MountFlags::NOSUID;
        rustix::mount::mount_remount(&self.path, flags, options.as_c_str())?;
        Ok(())
    }
}

impl Drop for MemoryDisk {
    fn drop(&mut self) {
        // It ends with the view of the last process that sees it, too.
        let _ = rustix::mount::unmount(&self.path, UnmountFlags::DETACH);
    }
}

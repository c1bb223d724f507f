//! Watches a directory during a transfer: whatever has a final name there must be the whole file,
//! from the first moment on.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

/// How often the thread looks whether it may end.
const PATIENCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

/// A thread that hears of every change below one directory (not of those in directories below it).
#[derive(Debug)]
pub struct TargetWatch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<Vec<String>>>>,
}

impl TargetWatch {
    /// Begins. Files of `target` must be those of the same names in `source`.
    ///
    /// # Errors
    /// The kernel gives no watch.
    pub fn start(target: &Path, source: &Path) -> io::Result<TargetWatch> {
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let wanted = WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::MODIFY
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM;
        inotify::add_watch(&events, target, wanted)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (target, source) = (target.to_owned(), source.to_owned());
        let stop_seen = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("watch".into())
            .spawn(move || look(&events, &target, &source, &stop_seen))?;
        Ok(TargetWatch {
            stop,
            thread: Some(thread),
        })
    }

    /// Ends, after everything that has happened was looked at; what was wrong, a line each.
    ///
    /// # Errors
    /// The kernel gave no events any more.
    pub fn finish(mut self) -> io::Result<Vec<String>> {
        self.stop.store(true, Ordering::Release);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(findings)) => findings,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(Vec::new()),
        }
    }
}

impl Drop for TargetWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

fn look(
    events: &OwnedFd,
    target: &Path,
    source: &Path,
    stop: &AtomicBool,
) -> io::Result<Vec<String>> {
    let mut buffer = [const { MaybeUninit::<u8>::uninit() }; 64 << 10];
    let mut reader = inotify::Reader::new(events, &mut buffer);
    let mut findings = Vec::new();
    loop {
        // Asked for before the last look, so that nothing is missed that happened before it.
        let last = stop.load(Ordering::Acquire);
        if reader.is_buffer_empty() {
            let mut ready = [PollFd::new(events, PollFlags::IN)];
            rustix::io::retry_on_intr(|| rustix::event::poll(&mut ready, Some(&PATIENCE)))?;
        }
        match reader.next() {
            Ok(event) => {
                if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                    findings.push("too much happened to be watched".to_owned());
                }
                let name = event.file_name().map(|name| name.to_bytes().to_vec());
                if let Some(name) = name.filter(|name| !is_temporary(name)) {
                    let name = OsString::from_vec(name);
                    findings.extend(judge(event.events(), target, source, &name));
                }
            }
            Err(rustix::io::Errno::AGAIN) if last => return Ok(findings),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn judge(what: ReadFlags, target: &Path, source: &Path, name: &OsString) -> Option<String> {
    let shown = name.display();
    if what.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
        return Some(format!("{shown} had its final name and went"));
    }
    if what.contains(ReadFlags::MODIFY) {
        return Some(format!("{shown} was written to under its final name"));
    }
    difference(&source.join(name), &target.join(name))
        .map(|how| format!("{shown} got its final name and {how}"))
}

/// The name that our client gives to what is not whole: `.godwit-<16 hexadecimal digits>.part`.
pub(super) fn is_temporary(name: &[u8]) -> bool {
    name.starts_with(b".godwit-") && name.ends_with(b".part")
}

/// What is different in `other`; `None` where it holds exactly what `one` holds.
pub fn difference(one: &Path, other: &Path) -> Option<String> {
    compare(one, other).unwrap_or_else(|error| Some(format!("cannot be compared: {error}")))
}

fn compare(one: &Path, other: &Path) -> io::Result<Option<String>> {
    const PIECE: usize = 256 << 10;
    let (mut a, mut b) = (File::open(one)?, File::open(other)?);
    let (wanted, found) = (a.metadata()?.len(), b.metadata()?.len());
    if wanted != found {
        return Ok(Some(format!("has {found} bytes instead of {wanted}")));
    }
    let (mut x, mut y) = (vec![0; PIECE], vec![0; PIECE]);
    let mut at = 0;
    loop {
        let length = a.read(&mut x)?;
        if length == 0 {
            return Ok(None);
        }
        b.read_exact(&mut y[..length])?;
        if x[..length] != y[..length] {
            let first = (0..length).find(|&i| x[i] != y[i]).map(|i| at + i);
            return Ok(Some(format!("differs at byte {}", first.unwrap_or(at))));
        }
        at += length;
    }
}

/// Temporary files that are left in a directory.
///
/// # Errors
/// It cannot be read.
pub fn temporary_files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut left = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if is_temporary(entry.file_name().as_encoded_bytes()) {
            left.push(entry.path());
        }
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn folders() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let [source, target] = ["source", "target"].map(|name| folder.path().join(name));
        for path in [&source, &target] {
            fs::create_dir(path).unwrap();
        }
        fs::write(source.join("a"), "content").unwrap();
        (folder, source, target)
    }

    /// What is found when this happens in the target.
    fn found(happens: impl FnOnce(&Path)) -> Vec<String> {
        let (_folder, source, target) = folders();
        let watch = TargetWatch::start(&target, &source).unwrap();
        happens(&target);
        watch.finish().unwrap()
    }

    #[test]
    fn whole_files_that_are_renamed_into_place_are_right() {
        let findings = found(|target| {
            let temporary = target.join(".godwit-0123456789abcdef.part");
            fs::write(&temporary, "con").unwrap();
            fs::write(&temporary, "content").unwrap();
            fs::rename(&temporary, target.join("a")).unwrap();
        });
        assert_eq!(findings, Vec::<String>::new());
    }

    #[test]
    fn other_content_is_found_when_the_file_appears() {
        let renamed = |content: &'static str| {
            found(move |target| {
                let temporary = target.join(".godwit-0123456789abcdef.part");
                fs::write(&temporary, content).unwrap();
                fs::rename(&temporary, target.join("a")).unwrap();
            })
        };
        assert_eq!(
            renamed("contend"),
            ["a got its final name and differs at byte 6"]
        );
        assert_eq!(
            renamed("con"),
            ["a got its final name and has 3 bytes instead of 7"]
        );
    }

    #[test]
    fn files_written_in_place_or_removed_are_found() {
        let findings = found(|target| fs::write(target.join("a"), "content").unwrap());
        let in_place = "a was written to under its final name".to_owned();
        assert!(findings.contains(&in_place), "{findings:?}");
        let findings = found(|target| {
            fs::hard_link(target.join("../source/a"), target.join("a")).unwrap();
            fs::remove_file(target.join("a")).unwrap();
        });
        let went = "a had its final name and went".to_owned();
        assert!(findings.contains(&went), "{findings:?}");
    }

    #[test]
    fn a_name_that_the_source_has_not_is_found() {
        let findings = found(|target| fs::write(target.join("b"), "").unwrap());
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].contains("cannot be compared"), "{findings:?}");
    }
}

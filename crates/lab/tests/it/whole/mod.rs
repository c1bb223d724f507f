//! Many files, huge files, many channels, killed programs.

mod channels;
mod deaths;
mod many_files;
mod trees;

use std::{path::Path, process::Command, time::Duration};

use godwit_lab::peers::{Finished, godwit, process};
use parking_lot::{Mutex, MutexGuard};

/// Longest run of one program here.
const RUN_LIMIT: Duration = Duration::from_secs(240);

/// These tests move gigabytes through memory: one at a time.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock()
}

/// A folder on tmpfs where that has room for `bytes` and memory is left, else in the ordinary
/// place.
pub(crate) fn roomy_folder(bytes: u64) -> tempfile::TempDir {
    let tmpfs = Path::new("/dev/shm");
    let free = rustix::fs::statvfs(tmpfs).map_or(0, |s| s.f_bavail * s.f_frsize);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = memory
        .lines()
        .find_map(|l| {
            l.strip_prefix("MemAvailable:")?
                .trim()
                .strip_suffix(" kB")?
                .parse()
                .ok()
        })
        .unwrap_or(0u64)
        * 1024;
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix("godwit-whole-");
    if free > bytes && available > bytes + (4 << 30) {
        builder.tempdir_in(tmpfs)
    } else {
        builder.tempdir()
    }
    .unwrap()
}

fn godwit_cp(arguments: &[&str]) -> Finished {
    let mut command = Command::new(godwit::binary("godwit").unwrap());
    command.args(["cp", "--quiet"]).args(arguments);
    process::run(command, RUN_LIMIT).unwrap()
}

//! `kill -9` of either side never leaves a wrong file under a final name.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use godwit_lab::peers::{
    godwit::{self, Godwitd},
    process::{Options, Process, Signal},
};

use super::{alone, roomy_folder, trees};

const SIZE: u64 = 300_000_000;
const MOMENTS: u64 = 20;

#[derive(Clone, Copy, Debug)]
enum Victim {
    Client,
    Server,
}

/// Bytes in the partial files of a folder.
fn partial_bytes(folder: &Path) -> u64 {
    fs::read_dir(folder)
        .unwrap()
        .filter_map(|e| {
            let e = e.ok()?;
            let partial = e.file_name().to_string_lossy().starts_with(".godwit-");
            partial.then(|| e.metadata().ok()).flatten()
        })
        .map(|m| {
            // Holes are not progress.
            use std::os::unix::fs::MetadataExt;
            m.blocks() * 512
        })
        .sum()
}

/// Copies, kills `victim` when the partial file holds `share` per mille of the bytes, and says what
/// stands under the final name.
fn kill_at(victim: Victim, upload: bool, share: u64, had_old: bool) {
    let (root, folder) = (roomy_folder(2 << 30), roomy_folder(2 << 30));
    let server = Godwitd::serving(root.path())
        .anonymous("rw")
        .start()
        .unwrap();
    let (here, there) = (folder.path().join("file"), root.path().join("file"));
    let (source, target): (&PathBuf, &PathBuf) = if upload {
        (&here, &there)
    } else {
        (&there, &here)
    };
    trees::make_file(source, SIZE, 5);
    let old = b"what was there before";
    if had_old {
        fs::write(target, old).unwrap();
    }
    let mut command = Command::new(godwit::binary("godwit").unwrap());
    command.args(["cp", "--quiet", "--retries", "1", "-p", "4"]);
    let (url, path) = (server.url("file"), here.display().to_string());
    if upload {
        command.args([&path, &url])
    } else {
        command.args([&url, &path])
    };
    let mut client = Process::spawn(command, Options::default()).unwrap();
    let partial = target.parent().unwrap().to_owned();
    let limit = Instant::now() + Duration::from_secs(60);
    while client.is_running().unwrap() && partial_bytes(&partial) * 1000 < share * SIZE {
        assert!(Instant::now() < limit, "no progress");
        std::thread::yield_now();
    }
    match victim {
        Victim::Client => {
            client.signal(Signal::KILL).unwrap();
            let _killed = client.wait(Duration::from_secs(30)).unwrap();
        }
        Victim::Server => {
            server.process().signal_group(Signal::KILL).unwrap();
            let finished = client.wait(Duration::from_secs(90)).unwrap();
            let whole = fs::metadata(target).is_ok_and(|m| m.len() == SIZE);
            assert!(
                whole || finished.status.code() == Some(4),
                "{victim:?} {upload} {share}: {:?} {}",
                finished.status,
                finished.log()
            );
        }
    }
    let context = format!("{victim:?}, upload {upload}, at {share} per mille, old {had_old}");
    match fs::metadata(target) {
        Err(_) => assert!(!had_old, "the old file is gone: {context}"),
        Ok(m) if m.len() == SIZE => trees::assert_same_file(source, target),
        Ok(m) => {
            assert!(
                had_old && fs::read(target).unwrap() == old,
                "{} bytes: {context}",
                m.len()
            );
        }
    }
}

#[test]
fn a_final_name_never_holds_a_wrong_file() {
    let _turn = alone();
    let mut numbers = trees::Numbers::seeded(11);
    for i in 0..MOMENTS {
        for victim in [Victim::Client, Victim::Server] {
            // The first at once, the last when all bytes are there: while it is verified and
            // renamed.
            let share = match i {
                0 => 0,
                1 => 1000,
                _ => numbers.below(1000),
            };
            kill_at(victim, i % 2 == 0, share, numbers.below(2) == 0);
        }
    }
}

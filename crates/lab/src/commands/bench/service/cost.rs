//! What the service costs over `godwit cp`, with a real server and agent.

use std::{fs, path::Path, process::Command, time::Duration};

use super::{NAME, expect};
use crate::{
    commands::bench::{
        BenchError, RUN_LIMIT,
        files::{Files, check_and_remove, run_with_room},
        godwit_cp, io_error,
        record::{BenchCell, RunResult, Unit},
        testbed::Testbed,
    },
    peers::{
        Error,
        godwit::{self, Godwitd},
        service::Service,
    },
};

/// Files of a tree that a real agent copies.
const SMALL_FILES: u32 = 10_000;

/// Bytes of each.
const SMALL_BYTES: usize = 10_000;

/// The contender that the client alone is held against.
const BY_SERVICE: &str = "godwit submit";

/// Time for a process to end.
const END_LIMIT: Duration = Duration::from_secs(20);

/// Seconds that a copy took, and of processors: the client's with agent and service, the server's.
struct Spent {
    wall: f64,
    client: f64,
    server: f64,
}

/// What the service costs over the client alone, with a real server and agent.
pub(super) fn cost(
    testbed: &mut Testbed<'_>,
    files: &mut Files,
    folder: &Path,
) -> Result<(), BenchError> {
    let [large, small] = ["large", "small"].map(|part| format!("{NAME}/cost/{part}"));
    if ![&large, &small]
        .iter()
        .any(|name| testbed.is_asked_for(name))
    {
        return Ok(());
    }
    let bytes = files.bytes(testbed);
    let source = files.source(testbed)?.to_owned();
    let count = u64::from(SMALL_FILES) / testbed.scale();
    let tree = folder.join("tree");
    make_tree(&tree, count).map_err(io_error(&tree))?;
    let server = Godwitd::serving(folder).anonymous("ro").start()?;
    let data = folder.join("service");
    let service = Service::start(&data, folder, &["--requests-per-second", "1000"])?;
    let agent = service.agent("one", folder, &[])?;
    let contenders = [false, true].map(|by_service| {
        let name = if by_service { BY_SERVICE } else { "godwit cp" };
        (by_service, name.to_owned())
    });
    let spent = || {
        (
            agent.usage().cpu() + service.process().usage().cpu(),
            server.usage().cpu(),
        )
    };
    let copy = |by_service, from: &str, to: &Path, room| -> Result<Spent, BenchError> {
        let mut command = match by_service {
            true => {
                let mut command = Command::new(godwit::binary("godwit").map_err(Error::from)?);
                command.args(["submit", "--watch"]);
                command.envs(service.variables());
                command
            }
            false => godwit_cp()?,
        };
        let to = format!("file://{}", to.display());
        if from.ends_with('/') {
            command.arg("-r");
        }
        command.args([&server.url(from), &to]);
        let before = spent();
        let usage = run_with_room(command, room, RUN_LIMIT)?.usage;
        let after = spent();
        Ok(Spent {
            wall: usage.wall.as_secs_f64(),
            client: (usage.cpu() + after.0.saturating_sub(before.0)).as_secs_f64(),
            server: after.1.saturating_sub(before.1).as_secs_f64(),
        })
    };
    let cell = BenchCell {
        name: large,
        title: format!(
            "one file of {:.1} GB from a server to tmpfs",
            bytes as f64 / 1e9
        ),
        unit: Unit::Gbps,
        ours: BY_SERVICE.to_owned(),
        bounds: Vec::new(),
    };
    let name = source.file_name().unwrap_or_default().to_string_lossy();
    testbed.compare(cell, &contenders, |by_service| {
        let target = files.target();
        let spent = copy(*by_service, &name, &target, bytes)?;
        check_and_remove(&target, bytes)?;
        let gigabytes = bytes as f64 / 1e9;
        Ok(RunResult {
            value: gigabytes * 8.0 / spent.wall,
            client_cpu: spent.client / gigabytes,
            server_cpu: spent.server / gigabytes,
        })
    })?;
    let cell = BenchCell {
        name: small,
        title: format!("{count} files of {SMALL_BYTES} bytes from a server to tmpfs"),
        unit: Unit::Files,
        ours: BY_SERVICE.to_owned(),
        bounds: Vec::new(),
    };
    testbed.compare(cell, &contenders, |by_service| {
        let target = folder.join("copies");
        let room = count * SMALL_BYTES as u64;
        let spent = copy(*by_service, "tree/", &target, room)?;
        let arrived = fs::read_dir(&target).map_err(io_error(&target))?.count();
        expect(arrived as u64 == count, "files are missing").map_err(io_error(&target))?;
        fs::remove_dir_all(&target).map_err(io_error(&target))?;
        Ok(RunResult {
            value: count as f64 / spent.wall,
            client_cpu: spent.client * 1e6 / count as f64,
            server_cpu: spent.server * 1e6 / count as f64,
        })
    })?;
    agent.terminate(END_LIMIT)?;
    service.terminate(END_LIMIT)?;
    Ok(())
}

fn make_tree(tree: &Path, files: u64) -> std::io::Result<()> {
    fs::create_dir(tree)?;
    for number in 0..files {
        fs::write(tree.join(format!("file{number:06}")), [7; SMALL_BYTES])?;
    }
    Ok(())
}

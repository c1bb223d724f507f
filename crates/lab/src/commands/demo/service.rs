//! The demo of the transfer service: two agents copy a tree from server to server, and one agent is
//! killed.

use std::{
    fs,
    io::Write,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;

use super::{DemoError, compare};
use crate::{
    file_error::io_error,
    peers::{Error, godwit::Godwitd, service::Service},
};

/// Longest time of a command that asks.
const ASK_LIMIT: Duration = Duration::from_secs(30);

/// Longest time of the job. A lease lasts a minute, and the work of the killed agent waits for its
/// end.
const JOB_LIMIT: Duration = Duration::from_secs(300);

/// Copies `source` and compares it.
///
/// # Errors
/// Anything that fails, and any byte that differs.
pub(super) fn run(folder: &Path, source: &Path, out: &mut dyn Write) -> Result<u32, DemoError> {
    let say = |out: &mut dyn Write, text: &str| {
        writeln!(out, "{text}")
            .and_then(|()| out.flush())
            .map_err(io_error(Path::new("output")))
    };
    let root = folder.join("archive");
    fs::create_dir(&root).map_err(io_error(&root))?;
    let from = Godwitd::serving(source).anonymous("ro").start()?;
    let to = Godwitd::serving(&root).anonymous("rw").start()?;
    let service = Service::start(&folder.join("service"), folder, &[])?;
    say(
        out,
        &format!(
            "\ngodwit-service listens on {}; agents one and two take work from it",
            service.url()
        ),
    )?;
    let one = service.agent("one", folder, &[])?;
    let two = service.agent("two", folder, &[])?;
    let (here, there) = (from.url("/"), to.url("copy/"));
    say(out, &format!("\n$ godwit submit -r {here} {there}"))?;
    let there = there.trim_end_matches('/');
    let submitted = service
        .godwit(["submit", "-r", &here, there], ASK_LIMIT)?
        .success()?;
    let id = submitted.stdout_text().trim().to_owned();
    say(out, &id)?;

    // It must have begun, or there is nothing to lose.
    let begun = Instant::now();
    while begun.elapsed() < ASK_LIMIT && done_bytes(&service, &id)? == 0 {
        thread::sleep(Duration::from_millis(50));
    }
    one.signal(Signal::KILL)?;
    say(
        out,
        "\nagent one is killed; agent two ends the job when the lease of one has ended\n",
    )?;
    let watched = service.godwit(["job", &id, "--watch"], JOB_LIMIT)?;
    for line in watched.stdout_text().lines() {
        say(out, line)?;
    }
    watched.success()?;
    say(out, &format!("\n$ godwit job {id}"))?;
    let details = service.godwit(["job", &id], ASK_LIMIT)?.success()?;
    say(out, details.stdout_text().trim_end())?;
    let compared = compare(source, &root.join("copy"))?;
    say(
        out,
        &format!("\n{compared} files compared: every byte equals its source"),
    )?;
    for process in [one, two] {
        process.terminate(Duration::from_secs(10))?;
    }
    for ended in [
        service.terminate(Duration::from_secs(10)),
        from.terminate(Duration::from_secs(10)),
        to.terminate(Duration::from_secs(10)),
    ] {
        ended?;
    }
    Ok(compared)
}

fn done_bytes(service: &Service, id: &str) -> Result<u64, Error> {
    let job = service
        .godwit(["job", id, "--json"], ASK_LIMIT)?
        .success()?;
    let job: Value = serde_json::from_slice(&job.stdout).unwrap_or_default();
    Ok(job["bytes_done"].as_u64().unwrap_or(0))
}

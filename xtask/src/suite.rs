//! All tests. A few that fail by a race with another program are repeated, alone, and reported as
//! unsteady.

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::Stdio,
    thread,
};

use crate::{cargo, run as command, say};

/// Real peers drop connections now and then on busy processors. More failures than these are no
/// accident.
const REPEATED_AT_MOST: usize = 8;

/// Cargo's name for [`LIMIT`] on this machine.
#[cfg(target_arch = "x86_64")]
const RUNNER: &str = "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER";
#[cfg(target_arch = "aarch64")]
const RUNNER: &str = "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER";

/// What each test program is started by: one that hangs is ended and fails, the others go on. The
/// longest takes a quarter of this.
const LIMIT: &str = "timeout --kill-after=10 2400";

/// Runs every test once; up to [`REPEATED_AT_MOST`] that failed run once more, by themselves, and
/// are named at the end.
///
/// # Errors
///
/// What failed twice, or that too much failed at once.
pub(crate) fn run() -> Result<(), String> {
    let mut test = cargo(&["test", "--workspace", "--no-fail-fast"]);
    test.env(RUNNER, LIMIT);
    say("$ cargo test --workspace --no-fail-fast");
    let mut running = test
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cannot run cargo test: {e}"))?;
    let out = running.stdout.take().ok_or("no standard output")?;
    let err = running.stderr.take().ok_or("no standard error")?;
    let told = thread::spawn(|| passed_on(out, &mut std::io::stdout(), failure));
    let targets = passed_on(err, &mut std::io::stderr(), failed_target);
    let told = told.join().map_err(|_| "cannot read the output")?;
    let status = running.wait().map_err(|e| e.to_string())?;
    if status.success() {
        return Ok(());
    }
    let programs = told.iter().filter(|told| told.test().is_none()).count();
    let failed: Vec<&str> = told.iter().filter_map(Failure::test).collect();
    // A program that ended before it said how it went may hide failures, and so do documents'.
    if failed.is_empty() || programs != targets.len() || failed.len() > REPEATED_AT_MOST {
        return Err(format!("{} tests failed ({status})", failed.len()));
    }
    if let Some(target) = targets.iter().find(|target| target.ends_with("--doc")) {
        return Err(format!("an example in the documents of {target} failed"));
    }
    // The same selection of packages as before, or cargo would build libraries anew.
    let mut again = cargo(&["test", "--workspace", "--lib", "--bins", "--tests"]);
    again.env(RUNNER, LIMIT).args(["--", "--exact"]);
    command(again.args(&failed))?;
    say("failed among the others and passed alone; each is a race to be found:");
    for name in &failed {
        say(&format!("  unsteady: {name}"));
    }
    Ok(())
}

/// What a line of a test program's output says of failures.
#[derive(Debug, PartialEq)]
enum Failure {
    /// The test of this name.
    Test(String),
    /// The program is at its end, with failures.
    Program,
}

impl Failure {
    fn test(&self) -> Option<&str> {
        match self {
            Failure::Test(name) => Some(name),
            Failure::Program => None,
        }
    }
}

/// Copies a stream line by line; what `pick` finds in its lines.
fn passed_on<T>(from: impl Read, to: &mut impl Write, pick: fn(&str) -> Option<T>) -> Vec<T> {
    let lines = BufReader::new(from).lines().map_while(Result::ok);
    lines
        .filter_map(|line| {
            // Who closed our output still wants the verdict.
            let _closed = writeln!(to, "{line}");
            pick(&line)
        })
        .collect()
}

/// `test NAME ... FAILED`, or the closing line of a program with failures.
fn failure(line: &str) -> Option<Failure> {
    if line.starts_with("test result: FAILED") {
        return Some(Failure::Program);
    }
    let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
    Some(Failure::Test(name.to_owned()))
}

/// The arguments in a line of cargo's closing list: `-p PACKAGE --test NAME`, each in backquotes.
fn failed_target(line: &str) -> Option<String> {
    let target = line.trim().strip_prefix('`')?.strip_suffix('`')?;
    target.starts_with("-p ").then(|| target.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Failure, failed_target, failure};

    #[test]
    fn what_failed_is_read_from_the_output() {
        let failed = failure("test a::b ... FAILED");
        assert_eq!(failed, Some(Failure::Test("a::b".to_owned())));
        assert_eq!(failure("test a::b ... ok"), None);
        assert_eq!(
            failure("test result: FAILED. 1 passed"),
            Some(Failure::Program)
        );
        assert_eq!(failure("test result: ok. 1 passed"), None);
        let target = failed_target("    `-p godwit-client --test it`");
        assert_eq!(target.as_deref(), Some("-p godwit-client --test it"));
        assert_eq!(failed_target("error: 1 target failed:"), None);
    }
}

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
    let failed = thread::spawn(|| passed_on(out, &mut std::io::stdout(), failed_test));
    let targets = passed_on(err, &mut std::io::stderr(), failed_target);
    let failed = failed.join().map_err(|_| "cannot read the output")?;
    let status = running.wait().map_err(|e| e.to_string())?;
    if status.success() {
        return Ok(());
    }
    if failed.is_empty() || targets.is_empty() || failed.len() > REPEATED_AT_MOST {
        return Err(format!("{} tests failed ({status})", failed.len()));
    }
    for target in &targets {
        let mut again = cargo(&["test"]);
        again.args(target.split(' ')).args(["--", "--exact"]);
        command(again.args(&failed))?;
    }
    say("failed among the others and passed alone; each is a race to be found:");
    for name in &failed {
        say(&format!("  unsteady: {name}"));
    }
    Ok(())
}

/// Copies a stream line by line; what `pick` finds in its lines.
fn passed_on(
    from: impl Read,
    to: &mut impl Write,
    pick: fn(&str) -> Option<String>,
) -> Vec<String> {
    let lines = BufReader::new(from).lines().map_while(Result::ok);
    lines
        .filter_map(|line| {
            // Who closed our output still wants the verdict.
            let _closed = writeln!(to, "{line}");
            pick(&line)
        })
        .collect()
}

/// The name in `test NAME ... FAILED`.
fn failed_test(line: &str) -> Option<String> {
    let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
    Some(name.to_owned())
}

/// The arguments in a line of cargo's closing list: `-p PACKAGE --test NAME`, each in backquotes.
fn failed_target(line: &str) -> Option<String> {
    let target = line.trim().strip_prefix('`')?.strip_suffix('`')?;
    target.starts_with("-p ").then(|| target.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{failed_target, failed_test};

    #[test]
    fn what_failed_is_read_from_the_output() {
        assert_eq!(failed_test("test a::b ... FAILED").as_deref(), Some("a::b"));
        assert_eq!(failed_test("test a::b ... ok"), None);
        assert_eq!(failed_test("test result: FAILED. 1 passed"), None);
        let target = failed_target("    `-p godwit-client --test it`");
        assert_eq!(target.as_deref(), Some("-p godwit-client --test it"));
        assert_eq!(failed_target("error: 1 target failed:"), None);
    }
}

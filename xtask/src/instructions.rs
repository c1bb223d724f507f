//! Counts the instructions of the pure hot paths and compares them with the stored counts: a guard
//! that a busy machine does not disturb.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{cargo, say};

/// A case and its instructions, a line each. `proto/CASE` is one of `crates/proto/examples/hot.rs`,
/// `engine/CASE` a test of `crates/engine/src/data/hot.rs`.
const KEPT: &str = "xtask/instructions.txt";

/// How the crates of the cases are built.
const PROFILE: &str = "xtask/counted.toml";

/// What a count may differ by, either way, percent. Counts of one build repeat within a tenth of a
/// percent; compilers differ by some. Fewer is a fault as well: write them again, or the next
/// regression has room.
const TOLERANCE_PERCENT: u64 = 10;

/// Times that a case runs, less and more: the difference leaves out what a process costs to start.
const TIMES: [u64; 2] = [1000, 3000];

/// Compares, or with `write` keeps what is counted now. Without valgrind nothing is compared, and
/// it is said.
///
/// # Errors
///
/// Cases that differ by more than the tolerance, or what cannot be built, run or read.
pub(crate) fn check(write: bool) -> Result<(), String> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        say("skipped: instructions are not counted, valgrind is not installed");
        return Ok(());
    }
    let programs = Programs::build()?;
    let kept = fs::read_to_string(KEPT).map_err(|e| format!("{KEPT}: {e}"))?;
    let mut now = String::new();
    let mut faults = Vec::new();
    for line in kept.lines() {
        let (case, before) = line.split_once(' ').ok_or(format!("{KEPT}: {line}"))?;
        let before: u64 = before.parse().map_err(|e| format!("{KEPT}: {line}: {e}"))?;
        let count = programs.count(case)?;
        now.push_str(&format!("{case} {count}\n"));
        if count.abs_diff(before) * 100 > before * TOLERANCE_PERCENT {
            faults.push(format!("{case}: {count} instructions, {before} before"));
        }
    }
    if write {
        return fs::write(KEPT, now).map_err(|e| format!("{KEPT}: {e}"));
    }
    match faults.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "more than {TOLERANCE_PERCENT} % away ({KEPT}; `cargo xtask instructions --write` \
             keeps what is meant):\n{}",
            faults.join("\n")
        )),
    }
}

/// The programs that hold the cases.
struct Programs {
    proto: PathBuf,
    engine: PathBuf,
}

impl Programs {
    fn build() -> Result<Self, String> {
        Ok(Self {
            proto: built(&["build", "--package", "godwit-proto", "--example", "hot"])?,
            engine: built(&["test", "--no-run", "--package", "godwit-engine", "--lib"])?,
        })
    }

    /// Instructions of a case when it runs once.
    fn count(&self, case: &str) -> Result<u64, String> {
        let [less, more] = TIMES;
        Ok((self.counted(case, more)? - self.counted(case, less)?) / (more - less))
    }

    fn counted(&self, case: &str, times: u64) -> Result<u64, String> {
        let times = times.to_string();
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        match case.split_once('/') {
            Some(("proto", name)) => command.arg(&self.proto).args([name, &times]),
            Some(("engine", name)) => (command.arg(&self.engine))
                .args(["--exact", &format!("data::hot::{name}")])
                .env("HOT_TIMES", times),
            _ => return Err(format!("{KEPT}: there is no case {case}")),
        };
        let done = command
            .output()
            .map_err(|e| format!("cannot run valgrind: {e}"))?;
        let said = String::from_utf8_lossy(&done.stderr);
        collected(&said)
            .filter(|_| done.status.success())
            .ok_or(format!("{case}: {said}"))
    }
}

/// Has cargo build a program, and finds it.
fn built(arguments: &[&str]) -> Result<PathBuf, String> {
    let mut command = cargo(arguments);
    command.args(["--quiet", "--message-format", "json", "--config", PROFILE]);
    let done = (command.stderr(Stdio::inherit()).output())
        .map_err(|e| format!("cannot run cargo: {e}"))?;
    let messages = String::from_utf8_lossy(&done.stdout);
    let messages = messages.lines().map(serde_json::from_str::<Value>);
    let mut programs =
        messages.filter_map(|message| Some(message.ok()?["executable"].as_str()?.into()));
    (programs.next_back().filter(|_| done.status.success()))
        .ok_or(format!("cargo {} builds no program", arguments.join(" ")))
}

/// The number in `==7== Collected : 123456`.
fn collected(said: &str) -> Option<u64> {
    let line = said.lines().find(|line| line.contains("Collected :"))?;
    line.split_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::collected;

    #[test]
    fn what_valgrind_says_is_read() {
        let said = "==7== \n==7== Events    : Ir\n==7== Collected : 123456\n";
        assert_eq!(collected(said), Some(123_456));
        assert_eq!(collected("==7== Collected : \n"), None);
        assert_eq!(collected("hot: not found"), None);
    }
}

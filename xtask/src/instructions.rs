//! Counts the instructions of the pure hot paths and compares them with the stored counts: a guard
//! that a busy machine does not disturb.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{cargo, run, say};

/// A case of `crates/proto/examples/hot.rs`, and its instructions, a line each.
const KEPT: &str = "xtask/instructions.txt";

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
    run(&mut cargo(&[
        "build",
        "--quiet",
        "--profile",
        "counted",
        "--package",
        "godwit-proto",
        "--example",
        "hot",
    ]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    let program = target.join("counted/examples/hot");
    let kept = fs::read_to_string(KEPT).map_err(|e| format!("{KEPT}: {e}"))?;
    let mut now = String::new();
    let mut faults = Vec::new();
    for line in kept.lines() {
        let (case, before) = line.split_once(' ').ok_or(format!("{KEPT}: {line}"))?;
        let before: u64 = before.parse().map_err(|e| format!("{KEPT}: {line}: {e}"))?;
        let count = of_case(&program, case)?;
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

fn of_case(program: &Path, case: &str) -> Result<u64, String> {
    let [less, more] = TIMES;
    let count = |times| counted(program, case, times);
    Ok((count(more)? - count(less)?) / (more - less))
}

fn counted(program: &Path, case: &str, times: u64) -> Result<u64, String> {
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([case, &times.to_string()]);
    let done = command
        .output()
        .map_err(|e| format!("cannot run valgrind: {e}"))?;
    let said = String::from_utf8_lossy(&done.stderr);
    collected(&said)
        .filter(|_| done.status.success())
        .ok_or(format!("{case}: {said}"))
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

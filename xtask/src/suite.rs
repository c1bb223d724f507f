//! All tests, two programs of them at a time. A few that fail by a race with another program are
//! repeated, alone, and reported as unsteady.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::Instant,
};

use serde_json::Value;

use crate::{cargo, run as command, say};

/// Real peers drop connections now and then on busy processors. More failures than these are no
/// accident.
const REPEATED_AT_MOST: usize = 8;

/// Programs at a time: most tests wait for something, and one program has long ones at its end.
const AT_ONCE: usize = 2;

/// A program that hangs is ended and fails, the others go on. The longest takes half of this.
const LIMIT_SECONDS: &str = "2400";

/// Runs every test once; up to [`REPEATED_AT_MOST`] that failed run once more, by themselves, and
/// are named at the end.
///
/// # Errors
///
/// What failed twice, or that too much failed at once.
pub(crate) fn run() -> Result<(), String> {
    let programs = built()?;
    let ends = run_all(&programs)?;
    let failed: usize = ends.iter().map(|(_, end)| end.failed.len()).sum();
    // A program that ended before it said how it went may hide failures.
    if let Some((program, end)) = ends.iter().find(|(_, end)| !end.is_told) {
        return Err(format!("{} ended with {}", program.name, end.status));
    }
    if failed > REPEATED_AT_MOST {
        return Err(format!("{failed} tests failed"));
    }
    command(&mut cargo(&["test", "--quiet", "--workspace", "--doc"]))?;
    for (program, end) in ends.iter().filter(|(_, end)| !end.failed.is_empty()) {
        let mut again = program.command();
        command(again.arg("--exact").args(&end.failed))?;
    }
    if failed > 0 {
        say("failed among the others and passed alone; each is a race to be found:");
    }
    for name in ends.iter().flat_map(|(_, end)| &end.failed) {
        say(&format!("  unsteady: {name}"));
    }
    Ok(())
}

/// A program of tests.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Program {
    /// Its package and target.
    name: String,
    /// Of its package, where it runs.
    folder: PathBuf,
    path: PathBuf,
}

impl Program {
    /// Of a line of `cargo test --no-run --message-format=json`; `None`: it is of something else.
    fn of_message(line: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(line).ok()?;
        if message["profile"]["test"] != true {
            return None;
        }
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
        let target = &message["target"];
        let kind = target["kind"][0].as_str()?;
        let package = folder.file_name()?.to_string_lossy();
        Some(Self {
            name: format!("{package} {kind} {}", target["name"].as_str()?),
            folder: folder.to_owned(),
            path: message["executable"].as_str()?.into(),
        })
    }

    fn command(&self) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=10", LIMIT_SECONDS]);
        command.arg(&self.path).current_dir(&self.folder);
        command
    }

    /// Runs all its tests and passes on what it says.
    fn run(&self) -> io::Result<End> {
        let (out, writes) = io::pipe()?;
        let mut command = self.command();
        command.stdin(Stdio::null());
        command.stdout(writes.try_clone()?).stderr(writes);
        let mut running = command.spawn()?;
        // Its ends of the pipe, or the end of the output would never come.
        drop(command);
        let (failed, is_told) = passed_on(out);
        let status = running.wait()?;
        Ok(End {
            status,
            is_told: is_told && status.success() == failed.is_empty(),
            failed,
        })
    }
}

/// How a program of tests ended.
struct End {
    status: ExitStatus,
    /// It ran all its tests, and those that failed are the reason of its status.
    is_told: bool,
    failed: Vec<String>,
}

/// Builds all programs of tests.
fn built() -> Result<Vec<Program>, String> {
    let arguments = ["--workspace", "--no-run"];
    let mut build = cargo(&["test"]);
    build.args(arguments).stdout(Stdio::piped());
    build.arg("--message-format=json-render-diagnostics");
    say("$ cargo test --workspace --no-run");
    let built = build
        .output()
        .map_err(|e| format!("cannot run cargo: {e}"))?;
    if !built.status.success() {
        return Err(format!("the tests cannot be built: {}", built.status));
    }
    let messages = String::from_utf8_lossy(&built.stdout);
    let mut programs: Vec<_> = messages.lines().filter_map(Program::of_message).collect();
    programs.sort_unstable();
    match programs.is_empty() {
        true => Err("no program of tests was built".to_owned()),
        false => Ok(programs),
    }
}

fn run_all(programs: &[Program]) -> Result<Vec<(&Program, End)>, String> {
    let (waiting, ends) = (Mutex::new(programs.iter()), Mutex::new(Vec::new()));
    let next = || {
        waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .next()
    };
    let work = || {
        while let Some(program) = next() {
            say(&format!("     Running {}", program.name));
            let began = Instant::now();
            let end = program.run();
            let seconds = began.elapsed().as_secs();
            say(&format!("     Ended {} after {seconds} s", program.name));
            let mut ends = ends.lock().unwrap_or_else(PoisonError::into_inner);
            ends.push(end.map(|end| (program, end)));
        }
    };
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(work);
        }
    });
    let ends = ends.into_inner().unwrap_or_else(PoisonError::into_inner);
    let ends: io::Result<Vec<_>> = ends.into_iter().collect();
    ends.map_err(|e| format!("cannot run a program of tests: {e}"))
}

/// Prints the output of a program of tests line by line, and what it says of failures in one go,
/// for another one prints too. The tests that failed, and whether it came to its end.
fn passed_on(from: impl Read) -> (Vec<String>, bool) {
    let (mut failed, mut is_told, mut report) = (Vec::new(), false, String::new());
    for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        failed.extend(failure(&line).map(str::to_owned));
        is_told |= line.starts_with("test result: ");
        if report.is_empty() && line != "failures:" {
            print(&format!("{line}\n"));
        } else {
            report.push_str(&line);
            report.push('\n');
        }
    }
    print(&report);
    (failed, is_told)
}

fn print(text: &str) {
    // Who closed our output still wants the verdict.
    let _closed = io::stdout().write_all(text.as_bytes());
}

/// The name in `test NAME ... FAILED`.
fn failure(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

#[cfg(test)]
mod tests {
    use super::{Program, failure};

    #[test]
    fn what_failed_is_read_from_the_output() {
        assert_eq!(failure("test a::b ... FAILED"), Some("a::b"));
        assert_eq!(failure("test a::b ... ok"), None);
        assert_eq!(failure("test result: FAILED. 1 passed"), None);
    }

    #[test]
    fn programs_of_tests_are_found_among_what_was_built() {
        let message = |test: bool| {
            let target = r#"{"kind":["test"],"name":"it"}"#;
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/a/lab/Cargo.toml",
                "target":{target},"profile":{{"test":{test}}},"executable":"/a/target/it-1"}}"#
            )
        };
        let program = Program::of_message(&message(true)).unwrap();
        assert_eq!(program.name, "lab test it");
        assert_eq!(program.folder.to_str(), Some("/a/lab"));
        assert_eq!(Program::of_message(&message(false)), None);
        assert_eq!(Program::of_message(r#"{"reason":"build-finished"}"#), None);
        assert_eq!(Program::of_message("no message"), None);
    }
}

//! Tests of features that kernels differ in, on kernels in an emulated machine.

use std::{path::PathBuf, process::Command};

use crate::{cargo, run as command, say};

/// Of Debian: an old kernel that many run, and the newest, which encrypts what is sent.
const SUITES: [&str; 2] = ["bookworm", "sid"];

/// Parts of the names of tests, all of the engine: the emulated machine is slow, and too slow for
/// those that look at the clock.
const TESTS: [&str; 5] = ["kernel", "backlog", "tcp_diag", "storage", "data_holes"];

/// Runs them, and says which kernel cannot be had here.
///
/// # Errors
///
/// What failed there.
pub(crate) fn check() -> Result<(), String> {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../scripts/under-kernel.sh");
    for suite in SUITES {
        let boots = Command::new(&script).args([suite, "/bin/true"]).output();
        match boots {
            Ok(output) if output.status.success() => {}
            Ok(output) => {
                let why = String::from_utf8_lossy(&output.stderr);
                say(&format!("skipped: the kernel of {suite}: {}", why.trim()));
                continue;
            }
            Err(why) => return Err(format!("cannot run {}: {why}", script.display())),
        }
        let runner = format!(
            "target.'cfg(all())'.runner = ['{}', '{suite}']",
            script.display()
        );
        let mut test = cargo(&[
            "test",
            "--package",
            "godwit-engine",
            "--lib",
            "--test",
            "it",
        ]);
        test.args(["--config", &runner, "--"]).args(TESTS);
        command(&mut test)?;
    }
    Ok(())
}

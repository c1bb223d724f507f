//! The checks that every commit must pass.

use std::{env, process::Command};

use crate::{cargo, files, instructions, run as command, suite, tidy};

pub(crate) fn run() -> Result<(), String> {
    command(&mut cargo(&["fmt", "--all", "--check"]))?;
    tidy::run()?;
    command(
        cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--"])
            .args(["--deny", "warnings"]),
    )?;
    command(
        cargo(&[
            "doc",
            "--quiet",
            "--workspace",
            "--no-deps",
            "--document-private-items",
        ])
        .env("RUSTDOCFLAGS", "--deny warnings"),
    )?;
    // The programs first: tests of whole transfers start them.
    command(&mut cargo(&["build", "--workspace", "--bins"]))?;
    let mut python = Command::new(files::root().join("scripts/test-python.sh"));
    if env::var_os("GODWIT_REQUIRE_PEERS").is_some() {
        python.arg("--workflows");
    }
    command(&mut python)?;
    instructions::check(false)?;
    suite::run()
}

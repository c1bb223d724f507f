//! The one check, and its siblings. `cargo xtask` lists them.

mod book;
mod check;
mod compare;
mod files;
mod instructions;
mod kernels;
mod modules;
mod rules;
mod source;
mod suite;
mod tidy;

use std::process::{Command, ExitCode};

const HELP: &str = "\
usage: cargo xtask <command>

  check           what every commit must pass: format, lints, documents, tidy, tests
  tidy            only the rules of the tree: dead files, dependency arrows, circles of modules,
                  unsafe code, names, lines, the book
  golden          write the golden transcripts anew; review the difference
  fuzz TARGET [SECONDS]
                  run one fuzz target (needs cargo-fuzz and a nightly tool chain; default 60 s)
  instructions [--write]
                  count the instructions of hot paths (needs valgrind) and compare; --write
                  keeps what is counted now
  kernels         run some tests on other kernels, in an emulated machine (needs QEMU and the
                  network)
  modules [--json] [--arrows] [CRATE]...
                  which module imports which: arrows, upward arrows, circles, lines of code
  dist DIR        write man pages, completions and the licences of libraries, as they belong
                  below /usr/share
  bench [ARGS]    build in release mode and compare with the peers; ARGS go to `godwit-lab bench`
  compare DIR [--rounds N] [ARGS]
                  build in release mode and compare with an earlier build, whose programs are in
                  DIR: N rounds (7) of `godwit-lab bench ARGS` in turn
";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next();
    let rest: Vec<String> = arguments.collect();
    let outcome = match command.as_deref() {
        Some("check") => check::run(),
        Some("tidy") => tidy::run(),
        Some("golden") => golden(),
        Some("fuzz") => fuzz(&rest),
        Some("instructions") => instructions::check(rest.iter().any(|word| word == "--write")),
        Some("kernels") => kernels::check(),
        Some("dist") => dist(&rest),
        Some("modules") => modules(&rest),
        Some("bench") => bench(&rest),
        Some("compare") => compare(&rest),
        _ => Err(HELP.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            say(&why);
            ExitCode::FAILURE
        }
    }
}

#[expect(
    clippy::print_stderr,
    reason = "the one place where this program speaks"
)]
fn say(text: &str) {
    eprintln!("{text}");
}

fn golden() -> Result<(), String> {
    let mut command = cargo(&[
        "test",
        "--quiet",
        "--package",
        "godwit-proto",
        "--test",
        "it",
        "golden",
    ]);
    command.env("GODWIT_GOLDEN", "write");
    run(&mut command)
}

fn fuzz(rest: &[String]) -> Result<(), String> {
    let target = rest.first().ok_or(HELP)?;
    let seconds = rest.get(1).map_or("60", String::as_str);
    let mut command = Command::new("cargo");
    command.args(["+nightly", "fuzz", "run", target, "--", "-max_len=4096"]);
    command.arg(format!("-max_total_time={seconds}"));
    run(&mut command)
}

fn dist(rest: &[String]) -> Result<(), String> {
    run(cargo(&["run", "--quiet", "--package", "godwit-dist", "--"]).args(rest))
}

#[expect(
    clippy::print_stdout,
    reason = "what is asked for goes to standard output"
)]
fn modules(rest: &[String]) -> Result<(), String> {
    print!("{}", modules::run(files::root(), rest)?);
    Ok(())
}

#[expect(
    clippy::print_stdout,
    reason = "what is asked for goes to standard output"
)]
fn compare(rest: &[String]) -> Result<(), String> {
    print!("{}", compare::compare(rest)?);
    Ok(())
}

/// Builds the programs that the benchmark runs.
fn bench_build() -> Result<(), String> {
    run(&mut cargo(&[
        "build",
        "--quiet",
        "--release",
        "--workspace",
        "--bins",
    ]))
}

fn bench(rest: &[String]) -> Result<(), String> {
    bench_build()?;
    let mut command = cargo(&[
        "run",
        "--quiet",
        "--release",
        "--package",
        "godwit-lab",
        "--",
        "bench",
    ]);
    command.args(rest);
    run(&mut command)
}

/// Without the variables that cargo has set for us. `ring` is built again where they differ, and
/// with it all that we build.
fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let bytes = name.as_encoded_bytes();
        if bytes.starts_with(b"CARGO_PKG_") || bytes.starts_with(b"CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    command.args(arguments);
    command
}

fn run(command: &mut Command) -> Result<(), String> {
    let line = format!("{command:?}").replace('"', "");
    say(&format!("$ {line}"));
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("failed ({status}): {line}")),
        Err(e) => Err(format!("cannot run {line}: {e}")),
    }
}

//! Entry point of `godwit-lab`: reads the command line, prints, exits.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the one place where this program speaks"
)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use godwit_lab::commands::{bench, demo};

/// Peers, benchmarks and the demo of godwit, on one machine.
#[derive(Parser)]
#[command(
    version,
    after_help = "Examples:\n  godwit-lab demo\n  godwit-lab bench --quick"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Moves a directory of mixed files up and down with 64 channels and verifies every octet
    Demo(demo::Options),
    /// Compares godwit, the Grid Community Toolkit and iperf3 in one run
    Bench(bench::Options),
}

fn main() -> ExitCode {
    let mut out = std::io::stdout().lock();
    let outcome = match Cli::parse().command {
        Command::Demo(options) => demo::run(&options, &mut out).map_err(|e| e.to_string()),
        Command::Bench(options) => bench::run(&options, &mut out).map_err(|e| e.to_string()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("godwit-lab: {error}");
            ExitCode::from(4)
        }
    }
}

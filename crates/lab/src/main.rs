//! Entry point of `godwit-lab`: reads the command line, prints, exits.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the one place where this program speaks"
)]

use std::process::ExitCode;

use clap::Parser as _;
use godwit_lab::commands::{
    Cli, Command, bench, calibrate, campaign, demo, faults, kills, netns_gc, pictures, report, run,
    service, simulate, soak, tournament,
};
use godwit_lab::{netns, network};

/// Exit status when what was asked for makes no sense.
const USAGE: u8 = 2;
/// Exit status when this machine does not allow what was asked.
const UNAVAILABLE: u8 = 3;
/// Exit status of other failures.
const FAILED: u8 = 4;

/// Exit status of what a signal ended.
const INTERRUPTED: u8 = 130;

/// What to say, and the exit status.
type Failure = (String, u8);

fn main() -> ExitCode {
    let mut out = std::io::stdout().lock();
    let outcome = match Cli::parse().command {
        Command::Demo(options) => demo::run(&options, &mut out).map_err(failed),
        Command::Bench(options) => bench::run(&options, &mut out).map_err(failed),
        Command::Calibrate(options) => in_a_network(|| {
            calibrate::run(&options, &mut out).map_err(|error| match error {
                calibrate::Error::Network(error) => no_network(error),
                other => failed(other),
            })
        }),
        Command::Run(options) if options.needs_network() => {
            in_a_network(|| run::run(&options, &mut out).map_err(not_run))
        }
        Command::Run(options) => run::run(&options, &mut out).map_err(not_run),
        Command::Campaign(options) => in_a_network(|| {
            campaign::run(&options, &mut out).map_err(|error| {
                let status = match &error {
                    campaign::CampaignError::Campaign(godwit_lab::campaign::Error::Scenario(_)) => {
                        USAGE
                    }
                    error if error.is_unavailable() => UNAVAILABLE,
                    _ => FAILED,
                };
                (error.to_string(), status)
            })
        }),
        Command::Report(options) => report::run(&options, &mut out).map_err(failed),
        Command::Faults(options) => in_a_network(|| {
            faults::run(&options, &mut out).map_err(|error| {
                let status = if error.is_unavailable() {
                    UNAVAILABLE
                } else {
                    FAILED
                };
                (error.to_string(), status)
            })
        }),
        Command::Pictures(options) => pictures::run(&options, &mut out).map_err(|error| {
            let status = match error {
                pictures::Error::Interrupted => INTERRUPTED,
                _ => FAILED,
            };
            (error.to_string(), status)
        }),
        Command::Service(options) => in_a_network(|| {
            service::run(&options, &mut out).map_err(|error| {
                let status = if error.is_unavailable() {
                    UNAVAILABLE
                } else {
                    FAILED
                };
                (error.to_string(), status)
            })
        }),
        Command::Kills(options) => kills::run(&options, &mut out).map_err(failed),
        Command::Simulate(options) => simulate::run(&options, &mut out).map_err(|error| {
            let status = match error {
                simulate::SimulateError::Scenario(_) => USAGE,
                _ => FAILED,
            };
            (error.to_string(), status)
        }),
        Command::Soak(options) => soak::run(&options, &mut out).map_err(failed),
        Command::Tournament(options) => tournament::run(&options, &mut out).map_err(failed),
        Command::NetnsGc => netns_gc::run(&mut out).map_err(failed),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err((message, status)) => {
            eprintln!("godwit-lab: {message}");
            ExitCode::from(status)
        }
    }
}

/// Runs what needs an emulated network, for an ordinary user in a user namespace.
fn in_a_network(run: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    netns::become_root_of_a_user_namespace().map_err(|error| (error.to_string(), UNAVAILABLE))?;
    run()
}

fn no_network(error: network::Error) -> Failure {
    match error {
        network::Error::Unavailable(_) => (error.to_string(), UNAVAILABLE),
        other => failed(other),
    }
}

fn not_run(error: run::RunScenarioError) -> Failure {
    let status = match &error {
        run::RunScenarioError::Scenario(_) => USAGE,
        error if error.is_unavailable() => UNAVAILABLE,
        _ => FAILED,
    };
    (error.to_string(), status)
}

fn failed(error: impl std::fmt::Display) -> Failure {
    (error.to_string(), FAILED)
}

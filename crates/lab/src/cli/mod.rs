//! The command line.

mod calibrate;
mod netns_gc;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use godwit_lab::netns;
use godwit_lab::network::Error;

/// Exit status when the machine does not allow what was asked.
const UNAVAILABLE: u8 = 3;

/// Real transfers over emulated long fat networks, on one machine.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Calibrate(calibrate::Calibrate),
    NetnsGc(netns_gc::NetnsGc),
}

pub(crate) fn run() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match netns::become_root_of_a_user_namespace() {
        Err(unavailable) => Err(unavailable.into()),
        Ok(()) => match arguments.command {
            Command::Calibrate(command) => command.run(),
            Command::NetnsGc(command) => command.run(),
        },
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("godwit-lab: {error}");
            match error {
                Error::Unavailable(_) => ExitCode::from(UNAVAILABLE),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

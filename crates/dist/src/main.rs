//! `godwit-dist DIR`: writes the manuals, completions and licences that packages install below
//! `/usr/share`.
//!
//! Man pages and completions come from the definitions that the programs read their command lines
//! by: there is no second one.

mod completions;
mod licences;
mod man;

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Command, CommandFactory as _};

/// A program, as its pages and completions need it.
struct Program {
    command: Command,
    /// Section of the manual: 1 for users, 8 for administrators.
    section: &'static str,
}

/// What could not be written.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("cannot write {path}: {error}")]
    Write {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("cannot tell the licences: {0}")]
    Licences(String),
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let outcome = match &arguments[..] {
        [folder] => write_all(Path::new(folder)).map_err(|error| (error.to_string(), 4)),
        _ => Err(("usage: godwit-dist DIR".to_owned(), 2)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err((why, status)) => {
            // Where standard error is gone, the exit status must do.
            drop(writeln!(std::io::stderr(), "godwit-dist: {why}"));
            ExitCode::from(status)
        }
    }
}

fn write_all(folder: &Path) -> Result<(), Error> {
    for program in programs() {
        man::write(&program, folder)?;
        completions::write(&program, folder)?;
    }
    licences::write(folder)
}

fn programs() -> [Program; 4] {
    let of = |command, section| Program { command, section };
    [
        of(godwit_client::cli::command(), "1"),
        of(godwit_server::Arguments::command(), "8"),
        of(godwit_service::config::Arguments::command(), "8"),
        of(godwit_lab::commands::Cli::command(), "1"),
    ]
}

/// Writes a file, and the directories above it.
fn put(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(path, bytes))
        .map_err(|error| Error::Write {
            path: path.to_owned(),
            error,
        })
}

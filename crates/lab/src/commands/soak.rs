//! `godwit-lab soak`: minutes of every kind of load at once, after which nothing may have grown.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, value_parser};

use crate::faults;
use crate::report::trials;
use crate::runner::Environment;
use crate::soak::{self, Length, Soak};

/// How long.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  godwit-lab soak --quick\n  godwit-lab soak --minutes 20 --out \
                  results/soak\n  godwit-lab soak --service --minutes 20"
)]
pub struct Options {
    /// Which commands are given, interrupted and killed is drawn from it
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Length of the load
    #[arg(
        long,
        default_value_t = 20,
        value_name = "M",
        value_parser = value_parser!(u64).range(1..=10_000)
    )]
    pub minutes: u64,
    /// Half a minute: shows that it works, not that nothing grows
    #[arg(long, conflicts_with = "minutes")]
    pub quick: bool,
    /// The transfer service over PostgreSQL instead: jobs are submitted, canceled and paused while
    /// an agent and a process that serves die again and again
    #[arg(long)]
    pub service: bool,
    /// Where the page, its figure and the samples go
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Why the soak stopped, or that it found something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SoakError {
    /// It cannot continue.
    #[error(transparent)]
    Soak(#[from] soak::Error),
    /// The service cannot.
    #[error(transparent)]
    Service(#[from] faults::Error),
    /// Standard output, or a file.
    #[error("write: {0}")]
    Output(#[from] io::Error),
    /// Something grew or broke.
    #[error("not all is as it should be")]
    Bad,
}

/// Runs the soak.
///
/// # Errors
/// [`SoakError`].
pub fn run(options: &Options, out: &mut dyn Write) -> Result<(), SoakError> {
    let length = match options.quick {
        true => Length {
            load: Duration::from_secs(30),
            interval: Duration::from_millis(500),
        },
        false => Length {
            load: Duration::from_secs(60 * options.minutes),
            interval: Duration::from_secs(5),
        },
    };
    let environment = Environment::of_ours("soak", options.quick);
    let mut tell = |line: &str| {
        // A closed pipe is no reason to stop.
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    };
    let soak = match options.service {
        true => faults::service::soak(options.seed, length, &mut tell)?,
        false => soak::run(options.seed, length, &mut tell)?,
    };
    let (page, figure) = trials::soak(&environment, &soak);
    write!(out, "{page}")?;
    if let Some(folder) = &options.out {
        keep(folder, &soak, &page, &figure)?;
    }
    match soak.is_good() {
        true => Ok(()),
        false => Err(SoakError::Bad),
    }
}

fn keep(
    folder: &Path,
    soak: &Soak,
    page: &str,
    figure: &crate::report::FigureFile,
) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let json = serde_json::to_string_pretty(soak).map_err(io::Error::from)?;
    fs::write(folder.join("soak.json"), json + "\n")?;
    fs::write(folder.join("soak.md"), page)?;
    fs::write(folder.join(&figure.name), &figure.svg)
}

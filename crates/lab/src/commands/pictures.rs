//! `godwit-lab pictures`: pictures of the transfer service's page in the evening of a day.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use clap::{Args, value_parser};
use tokio::{
    runtime::Runtime,
    signal::unix::{SignalKind, signal},
};

use crate::pictures::{self, DayPlan, PicturesError};

/// The day, and where pictures go.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  godwit-lab pictures\n  godwit-lab pictures --jobs 1000 \
                        --seconds 20 --out /tmp/pictures\n\n\
                        Needs chromedriver (Debian: chromium-driver) and a godwit-service beside \
                        godwit-lab"
)]
pub struct Options {
    /// Where pictures go
    #[arg(long, value_name = "FOLDER", default_value = "docs/pictures/service")]
    out: PathBuf,
    /// Jobs of the day
    #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u64).range(1..=1_000_000))]
    jobs: u64,
    /// Users that submit them
    #[arg(long, default_value_t = 200, value_parser = value_parser!(u16).range(1..=10_000))]
    users: u16,
    /// Simulated agents, which come and go
    #[arg(long, default_value_t = 40, value_parser = value_parser!(u16).range(1..=1000))]
    agents: u16,
    /// Seconds that the day takes
    #[arg(long, default_value_t = 180, value_parser = value_parser!(u64).range(1..=86_400))]
    seconds: u64,
}

/// Why there are no pictures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There are none.
    #[error(transparent)]
    Pictures(#[from] PicturesError),
    /// Standard output, or threads.
    #[error("write: {0}")]
    Output(#[from] io::Error),
    /// The user, or the system.
    #[error("interrupted")]
    Interrupted,
}

/// Takes the pictures, and prints how the day went.
///
/// # Errors
/// [`Error`].
pub fn run(options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    let plan = DayPlan {
        jobs: options.jobs,
        users: options.users.into(),
        agents: options.agents.into(),
        seconds: options.seconds,
    };
    let mut told = |line: &str| {
        // A closed standard error is no reason to stop.
        let _ = writeln!(io::stderr(), "{line}");
    };
    let found = Runtime::new()?.block_on(async {
        // What they end by default leaves driver, browser and service behind.
        let mut interrupted = signal(SignalKind::interrupt())?;
        let mut ended = signal(SignalKind::terminate())?;
        tokio::select! {
            found = pictures::take(plan, &options.out, &mut told) => Ok(found?),
            _ = interrupted.recv() => Err(Error::Interrupted),
            _ = ended.recv() => Err(Error::Interrupted),
        }
    })?;
    let day = &found.day;
    writeln!(
        out,
        "{} jobs of {} users with {} files in {:.1} s; {} agents, {} departures; {} polls, {} \
         failed",
        day.states.iter().map(|(_, count)| count).sum::<usize>(),
        options.users,
        day.files,
        day.seconds,
        options.agents,
        day.departures,
        day.polls,
        day.failures
    )?;
    let states = day.states.iter();
    let states = states.map(|(state, count)| format!("{count} {}", state.as_str()));
    writeln!(
        out,
        "in the evening: {}",
        states.collect::<Vec<_>>().join(", ")
    )?;
    writeln!(
        out,
        "waits of {} jobs that started: p50 {:.2} s, p90 {:.2} s, p99 {:.2} s, max {:.2} s; {} \
         waited more than 1 s",
        day.waits.len(),
        day.wait(0.5),
        day.wait(0.9),
        day.wait(0.99),
        day.wait(1.0),
        day.waits.iter().filter(|wait| **wait > 1.0).count()
    )?;
    for page in &found.pages {
        writeln!(
            out,
            "{:<10} {:>7.1} ms {:>7} bytes",
            page.name, page.milliseconds, page.bytes
        )?;
    }
    writeln!(
        out,
        "{} kB of pictures in {}",
        found.bytes / 1000,
        options.out.display()
    )?;
    Ok(())
}

//! `godwit-lab run`: runs a scenario and stores its results.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;

use crate::runner::{self, RunError};
use crate::scenario::{self, LIBRARY, ScenarioError};

/// What to run.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  godwit-lab run --list\n  \
                        godwit-lab run apt-impl/evolution --out results/evolution\n  \
                        godwit-lab run apt-impl/evolution --quick --only godwit --out \
                        /tmp/quick\n  \
                        godwit-lab run my-path.toml --out results/my-path\n  \
                        godwit-lab report results/* -o report.html")]
pub struct Options {
    /// An embedded scenario by its name, or a file
    #[arg(value_name = "NAME|FILE", required_unless_present = "list")]
    pub scenario: Option<String>,
    /// Show the names and titles of the embedded scenarios
    #[arg(long)]
    pub list: bool,
    /// Print the scenario as it stands, to start one of your own from
    #[arg(long)]
    pub print: bool,
    /// Fewer cells and repeats: shows the shape within two minutes, not the truth
    #[arg(long)]
    pub quick: bool,
    /// Where results go, a directory without results [default: results/NAME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Runs of every cell, instead of what the scenario says
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: Option<u32>,
    /// Only this method; may be given several times
    #[arg(long, value_name = "METHOD")]
    pub only: Vec<String>,
}

impl Options {
    /// Whether a network is needed for this: not to show what there is.
    pub fn needs_network(&self) -> bool {
        !self.list && !self.print
    }
}

/// Why there are no results.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunScenarioError {
    /// The scenario cannot be used.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// It did not run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Some of its runs failed.
    #[error("{failed} of {runs} runs failed; {} says \
             why", folder.join(runner::RUNS_FILE).display())]
    Failed {
        /// How many.
        failed: u32,
        /// Of how many.
        runs: u32,
        /// Where the results are.
        folder: PathBuf,
    },
    /// Standard output.
    #[error("write: {0}")]
    Output(#[from] io::Error),
}

impl RunScenarioError {
    /// Whether the machine must be prepared first: exit status 3.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, RunScenarioError::Run(error) if error.is_unavailable())
    }
}

/// Runs a scenario.
///
/// # Errors
/// [`RunScenarioError`]; results of runs that did not fail are kept all the same.
pub fn run(options: &Options, out: &mut dyn Write) -> Result<(), RunScenarioError> {
    let Some(name) = options.scenario.as_deref().filter(|_| !options.list) else {
        return list(out);
    };
    let loaded = scenario::load(name)?;
    if options.print {
        return Ok(out.write_all(loaded.text.as_bytes())?);
    }
    let folder = options
        .out
        .clone()
        .unwrap_or_else(|| PathBuf::from("results").join(&loaded.name));
    writeln!(out, "{}", loaded.scenario.title)?;
    out.flush()?;
    let runner_options = runner::Options {
        out: folder.clone(),
        quick: options.quick,
        repeats: options.repeats,
        only: options.only.clone(),
    };
    let tally = runner::run(&loaded, &runner_options, &mut |line| {
        // A closed pipe is no reason to stop measuring.
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    })?;
    crate::report::summarise(&runner::read(&folder)?, out)?;
    if tally.unfaithful > 0 {
        writeln!(
            out,
            "\n{} of {} runs are unfaithful: this machine did not keep up with the path",
            tally.unfaithful, tally.runs
        )?;
    }
    writeln!(out, "\nresults in {}", folder.display())?;
    if tally.failed > 0 {
        return Err(RunScenarioError::Failed {
            failed: tally.failed,
            runs: tally.runs,
            folder,
        });
    }
    Ok(())
}

fn list(out: &mut dyn Write) -> Result<(), RunScenarioError> {
    for entry in LIBRARY {
        let loaded = scenario::load(entry.name)?;
        // A file takes as long as it takes.
        let minutes = match loaded.scenario.work.file {
            Some(_) => "?".to_owned(),
            None => format!("{:.0}", (loaded.scenario.least_seconds() / 60.0).ceil()),
        };
        writeln!(
            out,
            "{:<20} {minutes:>4} min or more  {}",
            entry.name, loaded.scenario.title
        )?;
    }
    Ok(())
}

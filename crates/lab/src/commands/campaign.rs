//! `godwit-lab campaign`: runs a list of scenarios until their pages can be written.

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
};

use clap::Args;

use crate::{
    campaign::{self, CampaignEnd, List, RESULTS},
    file_error::{FileError, io_error},
    scenario::ScenarioError,
};

/// What to run.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  godwit-lab campaign --pages docs/results\n  \
                  godwit-lab campaign --runs 20 --pages docs/results\n  \
                  godwit-lab campaign my-list.toml --state /data/campaign --pages /tmp/pages\n\n\
                  The same command again continues where the last one ended. The state refuses \
                  another build or another text of a scenario. The list of the results in the \
                  book: godwit-lab campaign --print"
)]
pub struct Options {
    /// A list of scenarios [default: all behind the results in the book]
    #[arg(value_name = "LIST")]
    pub list: Option<PathBuf>,
    /// Results, and what is known of them
    #[arg(long, value_name = "DIR", default_value = "campaign")]
    pub state: PathBuf,
    /// Where pages go when all is done
    #[arg(long, value_name = "DIR", required_unless_present = "print")]
    pub pages: Option<PathBuf>,
    /// Quick variants: shows that all runs, not the truth
    #[arg(long)]
    pub quick: bool,
    /// End after so many runs; the next invocation continues
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: Option<u32>,
    /// Print the list, to start one of your own from
    #[arg(long)]
    pub print: bool,
}

/// Why a campaign does not continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CampaignError {
    /// It cannot.
    #[error(transparent)]
    Campaign(#[from] campaign::Error),
    /// The list cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// Standard output.
    #[error("write: {0}")]
    Output(#[from] io::Error),
}

impl From<ScenarioError> for CampaignError {
    fn from(error: ScenarioError) -> Self {
        Self::Campaign(error.into())
    }
}

impl CampaignError {
    /// Whether the machine must be prepared first: exit status 3.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Campaign(error) if error.is_unavailable())
    }
}

/// Continues a campaign.
///
/// # Errors
/// [`CampaignError`]; what has run stays.
pub fn run(options: &Options, out: &mut dyn Write) -> Result<(), CampaignError> {
    let (name, text) = match &options.list {
        None => ("results.toml".to_owned(), RESULTS.to_owned()),
        Some(path) => (
            path.display().to_string(),
            fs::read_to_string(path).map_err(io_error(path))?,
        ),
    };
    let (Some(pages), false) = (&options.pages, options.print) else {
        return Ok(out.write_all(text.as_bytes())?);
    };
    let list = List::parse(&name, &text)?;
    let wanted = campaign::Options {
        state: options.state.clone(),
        pages: pages.clone(),
        quick: options.quick,
        runs: options.runs,
    };
    let outcome = campaign::run(&list, &wanted, &mut |line| {
        // A closed pipe is no reason to stop measuring.
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    })?;
    match outcome {
        CampaignEnd::Interrupted => writeln!(out, "to be continued with the same command")?,
        CampaignEnd::Done { short: 0 } => writeln!(out, "all cells have the runs that were asked")?,
        CampaignEnd::Done { short } => {
            writeln!(
                out,
                "{short} cells have fewer runs than were asked, and no spare one"
            )?;
        }
    }
    Ok(())
}

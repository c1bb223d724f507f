//! `godwit-lab calibrate`: how accurate emulated paths are on this machine, as a table and as JSON.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use crate::calibrate::{Calibration, Effort, calibrate};
use crate::network;

/// How much to measure, and where to keep it.
#[derive(Debug, Args)]
pub struct Options {
    /// About a minute instead of up to five
    #[arg(long)]
    pub quick: bool,
    /// Write calibration.json, calibration.txt and frontier.svg into this folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Why there is no calibration, or none to be content with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no network to measure.
    #[error(transparent)]
    Network(#[from] network::Error),
    /// The result cannot be written.
    #[error("write {}: {source}", path.display())]
    Output {
        /// Where; `-` is standard output.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Round trips or rates are not what was asked for.
    #[error("round trips or rates are out of bounds: this machine is too busy, or too slow")]
    OutOfBounds,
}

/// Measures, prints the table and writes the files.
///
/// # Errors
/// [`Error`]; [`Error::OutOfBounds`] after everything was printed and written.
pub fn run(options: &Options, out: &mut impl Write) -> Result<(), Error> {
    let effort = if options.quick {
        Effort::QUICK
    } else {
        Effort::FULL
    };
    let calibration = calibrate(effort, |what| {
        // A closed standard error is no reason to stop.
        let _ = writeln!(io::stderr(), "{what}");
    })?;
    write!(out, "{calibration}").map_err(|source| Error::Output {
        path: "-".into(),
        source,
    })?;
    if let Some(folder) = &options.out {
        keep(&calibration, folder).map_err(|source| Error::Output {
            path: folder.clone(),
            source,
        })?;
    }
    if calibration.is_within_bounds() {
        Ok(())
    } else {
        Err(Error::OutOfBounds)
    }
}

fn keep(calibration: &Calibration, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let json = serde_json::to_vec_pretty(calibration)?;
    fs::write(folder.join("calibration.json"), json)?;
    fs::write(folder.join("calibration.txt"), calibration.to_string())?;
    let figure = calibration.frontier_figure().to_svg("frontier", true);
    fs::write(folder.join("frontier.svg"), figure)
}

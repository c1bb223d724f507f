//! `godwit-lab calibrate`.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use godwit_lab::calibrate::{Effort, calibrate};
use godwit_lab::network::Error;

/// Measure how far emulated paths can be trusted on this machine.
///
/// Exits with 1 when round trips or rates are out of bounds.
#[derive(Debug, Args)]
pub(super) struct Calibrate {
    /// Half a minute instead of two.
    #[arg(long)]
    quick: bool,
    /// Write calibration.json and calibration.txt here.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Calibrate {
    pub(super) fn run(self) -> Result<ExitCode, Error> {
        let effort = if self.quick {
            Effort::QUICK
        } else {
            Effort::FULL
        };
        let calibration = calibrate(effort, |what| {
            let _ = writeln!(std::io::stderr(), "{what}");
        })?;
        print!("{calibration}");
        if let Some(directory) = self.out {
            let write = || {
                fs::create_dir_all(&directory)?;
                let json = serde_json::to_vec_pretty(&calibration)?;
                fs::write(directory.join("calibration.json"), json)?;
                fs::write(directory.join("calibration.txt"), calibration.to_string())
            };
            write().map_err(|source| Error::Output {
                path: directory.clone(),
                source,
            })?;
        }
        let good = calibration.rtts.iter().all(|check| check.within_bounds)
            && calibration.rates.iter().all(|check| check.within_bounds);
        Ok(if good {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

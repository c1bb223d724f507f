//! `godwit-lab kills`: one large file, whose copy is killed again and again.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum, value_parser};

use crate::faults::{
    self,
    kills::{self, CopyDirection, KillOutcome, KillPlan, Over},
};
use crate::file_error::{FileError, io_error};

/// Where outcomes go, a line each.
const OUTCOMES_FILE: &str = "kills.jsonl";

/// What is copied and how often it is killed.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  godwit-lab kills --quick\n  godwit-lab kills --seed 7 --kills 20 \
                  --size 50G --out results/kills\n  godwit-lab kills --over gridftp --direction \
                  down\n\n\
                  The source is sparse; its copy is not, and needs room in --folder."
)]
pub struct Options {
    /// Draws the moments at which the client is killed
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How often it is killed
    #[arg(long, default_value_t = 20, value_name = "N",
          value_parser = value_parser!(u32).range(1..=10_000))]
    pub kills: u32,
    /// Bytes of the file, as 50G or 200M (of 1000)
    #[arg(long, default_value = "50G", value_name = "SIZE", value_parser = size)]
    pub size: u64,
    /// Three kills in 200 MB
    #[arg(long, conflicts_with_all = ["kills", "size"])]
    pub quick: bool,
    /// To the server, from it, or one after the other
    #[arg(long, value_enum, default_value_t = Directions::Both)]
    pub direction: Directions,
    /// Protocol
    #[arg(long, value_enum, default_value_t = Protocol::Https)]
    pub over: Protocol,
    /// Channels of the client
    #[arg(short, long, default_value_t = 4, value_name = "N",
          value_parser = value_parser!(u32).range(1..=64))]
    pub parallelism: u32,
    /// Where the files lie, in a directory that goes with the end [default: the system's directory
    /// for temporary files]
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Where outcomes go: lines are added to kills.jsonl
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Which ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Directions {
    /// To the server
    Up,
    /// From the server
    Down,
    /// One after the other
    Both,
}

/// By which protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// HTTPS
    Https,
    /// GridFTP with private data channels
    Gridftp,
    /// A bucket of versitygw, in clear
    S3,
}

/// Why the campaign stopped, or that it found something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KillsError {
    /// It cannot continue.
    #[error(transparent)]
    Faults(#[from] faults::Error),
    /// A file of outcomes, or the directory for files.
    #[error(transparent)]
    File(#[from] FileError),
    /// Standard output.
    #[error("write: {0}")]
    Output(#[from] io::Error),
    /// Promises were broken.
    #[error("not all is as it should be")]
    Broken,
}

/// Runs the campaign.
///
/// # Errors
/// [`KillsError`]; outcomes until then are kept.
pub fn run(options: &Options, out: &mut dyn Write) -> Result<(), KillsError> {
    let mut is_good = true;
    for direction in options.directions() {
        let plan = options.plan(*direction);
        let folder = match &options.folder {
            Some(folder) => tempfile::tempdir_in(folder).map_err(io_error(folder))?,
            None => {
                let folder = std::env::temp_dir();
                tempfile::tempdir().map_err(io_error(&folder))?
            }
        };
        let outcome = kills::run(&plan, folder.path())?;
        tell(&outcome, out)?;
        if let Some(folder) = &options.out {
            fs::create_dir_all(folder).map_err(io_error(folder))?;
            let path = folder.join(OUTCOMES_FILE);
            let line = serde_json::to_string(&outcome).map_err(io::Error::from)?;
            let mut file = OpenOptions::new();
            let file = file.create(true).append(true).open(&path);
            writeln!(file.map_err(io_error(&path))?, "{line}").map_err(io_error(&path))?;
        }
        is_good &= outcome.is_good();
    }
    match is_good {
        true => Ok(()),
        false => Err(KillsError::Broken),
    }
}

impl Options {
    fn directions(&self) -> &'static [CopyDirection] {
        match self.direction {
            Directions::Up => &[CopyDirection::Up],
            Directions::Down => &[CopyDirection::Down],
            Directions::Both => &[CopyDirection::Up, CopyDirection::Down],
        }
    }

    fn plan(&self, direction: CopyDirection) -> KillPlan {
        let (kills, bytes) = match self.quick {
            true => (3, 200_000_000),
            false => (self.kills, self.size),
        };
        KillPlan {
            seed: self.seed,
            kills,
            bytes,
            direction,
            over: match self.over {
                Protocol::Https => Over::Https,
                Protocol::Gridftp => Over::Gridftp,
                Protocol::S3 => Over::S3,
            },
            parallelism: self.parallelism,
        }
    }
}

/// A number with a multiple of 1000 behind it.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let factor = match &text[digits.len()..] {
        "" => 1,
        "k" | "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        other => return Err(format!("{other:?} is none of k, M, G, T")),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "a number is missing".to_owned())?;
    let bytes = number.checked_mul(factor).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| "out of range".to_owned())
}

fn tell(outcome: &KillOutcome, out: &mut dyn Write) -> io::Result<()> {
    let plan = &outcome.plan;
    let words = match plan.direction {
        CopyDirection::Up => "up",
        CopyDirection::Down => "down",
    };
    let over = match plan.over {
        Over::Https => "https",
        Over::Gridftp => "gridftp",
        Over::S3 => "s3",
    };
    let per_kill = outcome.resent_bytes / u64::from(outcome.killed.max(1));
    writeln!(
        out,
        "{over} {words}, {:.1} MB over {} channels: {} kills, {} runs, {:.1} s; {:.1} MB sent \
         again, {:.1} MB a kill, {:.1} MB allowed; crc32c {} and {}",
        megabytes(plan.bytes),
        plan.parallelism,
        outcome.killed,
        outcome.runs,
        outcome.seconds,
        megabytes(outcome.resent_bytes),
        megabytes(per_kill),
        megabytes(outcome.resent_max),
        outcome.checksums[0],
        outcome.checksums[1],
    )?;
    if outcome.resent_bytes > outcome.resent_max {
        writeln!(
            out,
            "     BROKEN more was sent again than a range for each kill and channel"
        )?;
    }
    for finding in &outcome.findings {
        writeln!(out, "     BROKEN {}", finding.replace('\n', "\n     "))?;
    }
    out.flush()
}

#[allow(clippy::cast_precision_loss, reason = "shown to a few digits")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_numbers_with_a_multiple_behind_them() {
        assert_eq!(size("50G"), Ok(50_000_000_000));
        assert_eq!(size("200M"), Ok(200_000_000));
        assert_eq!(size("7"), Ok(7));
        for text in ["", "G", "5X", "1.5G", "-1", "0", "99999999999999T"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}

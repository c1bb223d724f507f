//! `godwit-lab service`: how the transfer service divides a path, and how much of several paths it
//! uses, measured with real agents.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum as _, value_parser};
use serde::Serialize;

use crate::network;
use crate::service::fairness::{self, Fairness, Part};
use crate::service::links::{self, JobLoad, LinkOutcome, LinkPlan};
use crate::service::{self, tuning};

/// What is measured.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  godwit-lab service fairness --quick\n  \
                        godwit-lab service fairness --part equal --repeats 5\n  \
                        godwit-lab service tuning --out results/tuning.json\n  \
                        godwit-lab service links --agents 1,2 --load one-file\n\n\
                        Needs emulated networks (see calibrate).")]
pub struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Equal users, weights, scavengers, and small jobs beside a large one
    Fairness {
        /// Only this; may be given again
        #[arg(long = "part", value_name = "PART")]
        parts: Vec<Part>,
        #[command(flatten)]
        common: Common,
    },
    /// Six jobs over one bottleneck: tuned together, each for itself, and not at all
    Tuning {
        #[command(flatten)]
        common: Common,
    },
    /// Agents with a link each, one job over all of them: how much of the links it uses
    Links(Links),
}

#[derive(Debug, Args)]
struct Links {
    /// Numbers of agents
    #[arg(
        long,
        default_value = "1,2,4,8",
        value_delimiter = ',',
        value_name = "N",
        value_parser = value_parser!(u32).range(1..=100)
    )]
    agents: Vec<u32>,
    /// What the job copies; all by default
    #[arg(long = "load", value_delimiter = ',')]
    loads: Vec<JobLoad>,
    /// Rate of each link, Mbit/s: so low that two processors carry all of them
    #[arg(long, default_value_t = 20, value_parser = value_parser!(u64).range(1..=10_000))]
    rate: u64,
    /// Seconds that a link needs for its part
    #[arg(long, default_value_t = 60, value_parser = value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// How often each measurement is made
    #[arg(long, default_value_t = 1, value_name = "N")]
    repeats: usize,
}

#[derive(Debug, Args)]
struct Common {
    /// Less than a minute: shows that it works and who gets more, not how much
    #[arg(long)]
    quick: bool,
    /// How often each measurement is made
    #[arg(long, value_name = "N")]
    repeats: Option<usize>,
    /// Where all numbers go, as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Why there is no result, or none to be content with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It cannot go on.
    #[error(transparent)]
    Service(#[from] service::Error),
    /// Standard output, or the file.
    #[error("write: {0}")]
    Output(#[from] io::Error),
    /// Someone got less than another who should have more.
    #[error("{0}")]
    Unfair(String),
}

impl Error {
    /// Whether the machine must be prepared first: exit status 3.
    pub fn is_unavailable(&self) -> bool {
        let Error::Service(service::Error::Network(error)) = self else {
            return false;
        };
        matches!(error, network::Error::Unavailable(_))
    }
}

/// Measures and prints.
///
/// # Errors
/// [`Error`]; [`Error::Unfair`] after everything was printed and written.
pub fn run(options: &Options, out: &mut dyn Write) -> Result<(), Error> {
    let mut told = |line: &str| {
        // A closed standard error is no reason to stop.
        let _ = writeln!(io::stderr(), "{line}");
    };
    match &options.what {
        What::Fairness { parts, common } => {
            let mut extent = match common.quick {
                true => fairness::FairnessExtent::QUICK,
                false => fairness::FairnessExtent::FULL,
            };
            extent.repeats = common.repeats.unwrap_or(extent.repeats);
            let parts = match parts.as_slice() {
                [] => &Part::ALL,
                parts => parts,
            };
            let found = fairness::run(&extent, parts, &mut told)?;
            keep(common, &(&extent, &found))?;
            show(&found, out)?;
            found.check().map_err(Error::Unfair)
        }
        What::Tuning { common } => {
            let mut extent = match common.quick {
                true => tuning::TuningExtent::quick(),
                false => tuning::TuningExtent::full(),
            };
            extent.repeats = common.repeats.unwrap_or(extent.repeats);
            let found = tuning::run(&extent, &mut told)?;
            keep(common, &(&extent, &found))?;
            show_tuning(&tuning::summarise(&found), out)?;
            Ok(())
        }
        What::Links(what) => measure_links(what, out),
    }
}

fn measure_links(what: &Links, out: &mut dyn Write) -> Result<(), Error> {
    let plan = LinkPlan {
        rate_bps: what.rate * 1_000_000,
        seconds: what.seconds,
    };
    let loads = match what.loads.as_slice() {
        [] => &JobLoad::ALL,
        loads => loads,
    };
    for load in loads {
        for agents in &what.agents {
            for _ in 0..what.repeats {
                show_links(&links::measure(plan, *load, *agents)?, out)?;
            }
        }
    }
    Ok(())
}

fn show_links(of: &LinkOutcome, out: &mut dyn Write) -> io::Result<()> {
    let load = of.load.to_possible_value();
    let load = load.as_ref().map_or("", |load| load.get_name());
    let client = of.client_seconds.map_or(String::new(), |seconds| {
        let part = seconds / of.seconds;
        format!("; godwit cp takes {seconds:.1} s, so the service has {part:.3} of its speed")
    });
    writeln!(
        out,
        "{load:<11} {:>2} agents {:>6} MB {:>6.1} s: {:.3} of all links{client} {}",
        of.agents,
        of.bytes / 1_000_000,
        of.seconds,
        of.share,
        of.unfaithful.join("; ")
    )?;
    out.flush()
}

fn keep(common: &Common, found: &impl Serialize) -> io::Result<()> {
    let Some(file) = &common.out else {
        return Ok(());
    };
    let json = serde_json::to_string_pretty(found).map_err(io::Error::from)?;
    fs::write(file, json + "\n")
}

fn show(found: &Fairness, out: &mut dyn Write) -> io::Result<()> {
    for (bytes, index) in &found.equal {
        let most = bytes.iter().copied().fold(0.0, f64::max);
        let least = bytes.iter().copied().fold(f64::INFINITY, f64::min);
        writeln!(
            out,
            "equal users: Jain {index:.4}; {:.1} to {:.1} MB each",
            least / 1e6,
            most / 1e6
        )?;
    }
    for bytes in &found.weighted {
        let unit = bytes.iter().sum::<f64>() / 7.0;
        let [one, two, four] = bytes.map(|bytes| bytes / unit);
        writeln!(out, "weights 1:2:4: bytes {one:.2}:{two:.2}:{four:.2}")?;
    }
    if !found.small.is_empty() {
        let (median, worst) = fairness::middle_and_most(found.small.iter().map(|times| times.0));
        writeln!(
            out,
            "small jobs start: median {median:.2} s, worst {worst:.2} s"
        )?;
        let (median, worst) = fairness::middle_and_most(found.small.iter().map(|times| times.1));
        writeln!(
            out,
            "small jobs end: median {median:.2} s, worst {worst:.2} s"
        )?;
    }
    for both in &found.scavenged {
        for (what, of) in ["work for all slots", "one file"].iter().zip(both) {
            writeln!(
                out,
                "scavenger beside a job with {what}: it has {:.1} MB alone, {:.1} MB beside; the \
                 scavenger {:.1} MB, then {:.1} MB",
                of.alone / 1e6,
                of.beside / 1e6,
                of.taken / 1e6,
                of.rest / 1e6
            )?;
        }
    }
    Ok(())
}

fn show_tuning(rows: &[tuning::Row], out: &mut dyn Write) -> io::Result<()> {
    for row in rows {
        let path = row.path;
        writeln!(
            out,
            "{:>4} Mbit/s {:>3} ms loss {:<6} {:<11} {:>6.2} MB/s ({:.2} to {:.2}) of best \
             {:.3}, Jain {:.3}",
            path.rate_bps / 1_000_000,
            2 * path.delay_ms,
            path.loss,
            format!("{:?}", row.by),
            row.rate / 1e6,
            row.spread.0 / 1e6,
            row.spread.1 / 1e6,
            row.of_best,
            row.jain
        )?;
    }
    Ok(())
}

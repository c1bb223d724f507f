//! `godwit-lab faults`: kills programs, cuts links, corrupts dialogues, and checks that every file
//! still arrives.

mod service;

use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;

use crate::faults::service::Database;
use crate::faults::{self, Campaign, Dialogues, Fault, Kind, Outcome, Row, kinds_here, summarise};
use crate::network;
use crate::report::trials;
use crate::runner::Environment;

/// Where every outcome goes, a line each.
const OUTCOMES_FILE: &str = "faults.jsonl";
/// The page about them.
const PAGE_FILE: &str = "faults.md";

/// What is to go wrong.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  godwit-lab faults --quick\n  \
                        godwit-lab faults --seed 7 --count 1000 --out results/faults\n  \
                        godwit-lab faults --seed 7 --only 41        (that fault again, and nothing \
                        else)\n  \
                        godwit-lab faults --dialogues --count 300\n  \
                        godwit-lab faults --service postgres --count 100 --jobs 4\n\n\
                        Needs emulated networks (see calibrate) and may mount file systems of its \
                        own.")]
pub struct Options {
    /// Everything is drawn from it: equal seeds give equal faults
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How many faults
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub count: u64,
    /// Stop after so many minutes
    #[arg(long, value_name = "M")]
    pub minutes: Option<u64>,
    /// Twenty faults, none of which takes a minute
    #[arg(long)]
    pub quick: bool,
    /// Only faults of this kind; may be given again. A fault is the same one only with the same
    /// kinds
    #[arg(long = "kind", value_name = "KIND")]
    pub kinds: Vec<Kind>,
    /// Only faults of what clients and servers say to each other: cut listings, lost replies and
    /// the like
    #[arg(long)]
    pub dialogues: bool,
    /// Only faults of the transfer service over this database. Each of --count is a service of its
    /// own that meets several
    #[arg(long, value_name = "DATABASE", conflicts_with_all = ["dialogues", "kinds"])]
    pub service: Option<Database>,
    /// Faults of dialogues or services that are run at the same time: most of their time is waiting
    #[arg(long, default_value_t = 8, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: u32,
    /// Only the fault of this number
    #[arg(long, value_name = "N", conflicts_with = "quick")]
    pub only: Option<u64>,
    /// Where outcomes go
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Why the campaign stopped, or that it found something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FaultsError {
    /// It cannot continue.
    #[error(transparent)]
    Faults(#[from] faults::Error),
    /// Standard output, or a file of outcomes.
    #[error("write: {0}")]
    Output(#[from] io::Error),
    /// Promises were broken.
    #[error(
        "of {faults} faults {broken} broke a promise and {too_much} sent more again than was \
         promised"
    )]
    Broken {
        /// How many broke another promise than that of what is sent again.
        broken: usize,
        /// How many broke that one.
        too_much: usize,
        /// Of how many.
        faults: usize,
    },
}

impl FaultsError {
    /// Whether the machine must be prepared first: exit status 3.
    pub fn is_unavailable(&self) -> bool {
        matches!(
            self,
            FaultsError::Faults(faults::Error::Network(network::Error::Unavailable(_)))
        )
    }
}

/// Runs the campaign.
///
/// # Errors
/// [`FaultsError`]; outcomes until then are kept.
pub fn run(options: &Options, out: &mut dyn Write) -> Result<(), FaultsError> {
    if let Some(database) = options.service {
        return service::run(options, database, out);
    }
    let here = Environment::of_ours("faults", options.quick);
    let mut file = options.out.as_deref().map(create).transpose()?;
    let mut outcomes = Vec::new();
    let mut take = |outcome: Outcome| {
        tell(&outcome, out)?;
        if !outcome.findings.is_empty() {
            writeln!(out, "again: {}", options.again(outcome.fault.number))?;
        }
        if let Some(file) = &mut file {
            serde_json::to_writer(&mut *file, &outcome).map_err(io::Error::from)?;
            writeln!(file)?;
        }
        outcomes.push(outcome);
        Ok::<_, FaultsError>(())
    };
    match options.dialogues {
        true => {
            let dialogues = Dialogues::new(options.seed)?;
            dialogues.run_all(options.faults(), options.jobs, take)?;
        }
        false => {
            let mut campaign = Campaign::new(options.seed);
            options
                .faults()
                .try_for_each(|fault| take(campaign.run(&fault)?))?;
        }
    }
    outcomes.sort_by_key(|outcome| outcome.fault.number);
    let rows = summarise(&outcomes);
    write!(out, "\n{}", KindTable(&rows))?;
    if let Some(folder) = &options.out {
        let page = trials::faults(&here, options.seed, &rows, &outcomes);
        fs::write(folder.join(PAGE_FILE), page)?;
    }
    match rows.last() {
        Some(all) if !all.keeps() => Err(FaultsError::Broken {
            broken: all.failed,
            too_much: all.sent_too_much,
            faults: all.faults,
        }),
        _ => Ok(()),
    }
}

impl Options {
    fn numbers(&self) -> Range<u64> {
        match (self.only, self.quick) {
            (Some(number), _) => number..number.saturating_add(1),
            (None, true) => 0..20,
            (None, false) => 0..self.count,
        }
    }

    /// When no further fault begins.
    fn until(&self) -> Option<Instant> {
        (self.minutes).map(|minutes| Instant::now() + Duration::from_secs(60 * minutes))
    }

    /// The faults, as long as there is time for another.
    fn faults(&self) -> impl Iterator<Item = Fault> + Send {
        let until = self.until();
        let (seed, kinds) = (self.seed, self.kinds());
        self.numbers()
            .take_while(move |_| is_before(until))
            .map(move |number| Fault::draw(seed, number, &kinds))
    }

    fn kinds(&self) -> Vec<Kind> {
        let asked = |kind: &Kind| {
            let named = self.kinds.is_empty() || self.kinds.contains(kind);
            named && (kind.is_of_a_dialogue() || !self.dialogues)
        };
        // What the user asks for is not left out for taking long.
        let short = |kind: &Kind| *kind != Kind::LongCut || !self.quick || !self.kinds.is_empty();
        let mut kinds = kinds_here();
        kinds.retain(|kind| asked(kind) && short(kind));
        kinds
    }

    /// The command that repeats one fault.
    fn again(&self, number: u64) -> String {
        let mut words = format!("godwit-lab faults --seed {} --only {number}", self.seed);
        if self.dialogues {
            words.push_str(" --dialogues");
        }
        // What can be had without being named may be more elsewhere.
        let named = match self.dialogues {
            true => self.kinds.clone(),
            false => self.kinds(),
        };
        for kind in named {
            words.push_str(&format!(" --kind {kind}"));
        }
        words
    }
}

fn is_before(until: Option<Instant>) -> bool {
    until.is_none_or(|until| Instant::now() < until)
}

fn create(folder: &Path) -> io::Result<File> {
    fs::create_dir_all(folder)?;
    File::create_new(folder.join(OUTCOMES_FILE))
}

fn tell(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    let Outcome {
        fault,
        happened,
        runs,
        seconds,
        resent_bytes,
        unread_bytes,
        ..
    } = outcome;
    let missed = if *happened { "" } else { ", too late" };
    let much = if outcome.sent_too_much() {
        " (too much)"
    } else {
        ""
    };
    writeln!(
        out,
        "{:4} {fault}{missed}: {runs} runs, {seconds:.1} s, {:.1} MB again, {:.1} MB lay \
         unread{much}",
        fault.number,
        megabytes(*resent_bytes),
        megabytes(*unread_bytes),
    )?;
    for finding in &outcome.findings {
        writeln!(out, "     BROKEN {}", finding.replace('\n', "\n     "))?;
    }
    out.flush()
}

#[allow(clippy::cast_precision_loss, reason = "shown to a few digits")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

struct KindTable<'a>(&'a [Row]);

impl std::fmt::Display for KindTable<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{:<14} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9} {:>8} {:>8} {:>6}  verdict",
            "",
            "faults",
            "happened",
            "overcome",
            "runs max",
            "GB",
            "again %",
            "worst MB",
            "unread MB",
            "too much",
            "and lost",
            "broken"
        )?;
        for row in self.0 {
            writeln!(
                f,
                "{:<14} {:>6} {:>8} {:>8} {:>8} {:>8.2} {:>8.3} {:>9.1} {:>9.1} {:>8} {:>8} {:>6}  \
                 {}",
                row.kind.map_or("all", Kind::name),
                row.faults,
                row.happened,
                row.overcome,
                row.runs_max,
                megabytes(row.bytes) / 1000.0,
                row.resent_percent(),
                megabytes(row.resent_worst_bytes),
                megabytes(row.unread_bytes),
                row.sent_too_much,
                row.lost_too_much,
                row.failed,
                if row.keeps() { "pass" } else { "FAIL" },
            )?;
        }
        Ok(())
    }
}

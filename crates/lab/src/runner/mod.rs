//! Runs scenarios: every cell and method, again and again, in turn.
//!
//! **What is measured.** A run without end (`/dev/zero` to `/dev/null`) counts what the receiving
//! kernel received in order ([`godwit_engine::host::tcp_diag`]) from `ramp` after the first data
//! for the length of `measure`; login and slow start are not in it. Methods with a tuner run for
//! `evolve` instead, and the last third counts; all of it is kept in bins of half a second. A run
//! of a file counts its size over the life of the client's process; everything is in it. So does a
//! run of a set of files, all of which must be there in the end; one that is not done after
//! `measure` is stopped, with all programs it started, and what has arrived by then counts.
//!
//! **Order.** Repeat by repeat, in each cell by cell, in each method by method, so that whatever
//! drifts meets all alike; every other repeat runs backwards, so that no method is always first.
//!
//! **Fidelity.** A run in which the emulator fell behind is marked unfaithful, kept, and tried
//! again at once, up to three times in all. What other programs of the machine took of its
//! processors is noted with every run; a report says when it was much.
//!
//! **Seeds.** Repeat `r` has the seed `seed + r` for all methods and cells.
//!
//! **What is kept**, in a directory of its own:
//!
//! | File | What is in it |
//! |---|---|
//! | `runs.jsonl` | everything of every run, a line each: [`Run`] |
//! | `runs.csv` | the same in short |
//! | `samples.csv` | what had arrived when, every 100 ms, transfer by transfer |
//! | `events/` | event logs of tuned transfers, by number of run and transfer |
//! | `environment.json` | machine, kernel, versions: [`Environment`] |
//! | `scenario.toml` | the scenario as it was |

mod clients;
mod continued;
mod environment;
mod evolution;
mod loads;
mod measure;
mod output;
mod payload;
mod record;
mod sample;
mod serving;
mod simulated;
mod transfer;
mod watch;

use std::io;
use std::path::PathBuf;

pub use continued::Continued;
pub use environment::Environment;
pub use evolution::{Choice, Course, Evolution};
pub use output::{RUNS_FILE, Results, SCENARIO_FILE, read};
pub use record::{Fidelity, Run, RunOutcome, Sender};
pub use sample::Sample;
pub use simulated::Simulated;

use crate::file_error::FileError;
use crate::netns;
use crate::network;
use crate::peers::Missing;
use crate::scenario::{Cell, Facet, Loaded, Method, Scenario};
use measure::Job;
use output::Output;
use payload::Payload;

/// Runs of one cell until one is faithful. Which ones are repeated depends on the emulator's
/// lateness alone, never on the goodput that was measured.
const ATTEMPTS: u32 = 3;

/// How to run a scenario.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Where results go: a directory that is empty or does not exist.
    pub out: PathBuf,
    /// Whether the quick variant runs.
    pub quick: bool,
    /// Instead of the scenario's repeats.
    pub repeats: Option<u32>,
    /// Names of methods; empty for all.
    pub only: Vec<String>,
}

/// Why a scenario did not run, or a run failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The network, or a program in it.
    #[error(transparent)]
    Network(#[from] network::Error),
    /// None of the methods asked for can run.
    #[error("no method left to run: {0}")]
    NoMethod(String),
    /// A name after `--only` that the scenario does not have.
    #[error("no method {0} in this scenario; it has {1}")]
    UnknownMethod(String, String),
    /// Connections cannot be watched.
    #[error("ask the kernel about connections: {0}")]
    Diag(#[source] io::Error),
    /// The client ended before it was told to.
    #[error("the client ended too early:\n{log}")]
    Ended {
        /// What it printed.
        log: String,
    },
    /// No data came.
    #[error("no data within {seconds:.0} s:\n{log}")]
    NoData {
        /// How long was waited.
        seconds: f64,
        /// What the client printed.
        log: String,
    },
    /// A file did not arrive in time.
    #[error("the file did not arrive within {seconds:.0} s")]
    TooLong {
        /// The limit.
        seconds: f64,
    },
    /// The client reported success, and not all is there.
    #[error("{found} of {wanted} files arrived whole, and the client said that all had:\n{log}")]
    Incomplete {
        /// Files of full length.
        found: u32,
        /// Files of the source.
        wanted: u32,
        /// What the client printed.
        log: String,
    },
    /// The directory for results holds results already.
    #[error("{} holds results already; choose another directory with --out", .0.display())]
    Taken(PathBuf),
    /// Results cannot be written, or read.
    #[error(transparent)]
    File(#[from] FileError),
    /// Results cannot be understood.
    #[error("{}:{line}: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Line in it, from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// The simulator cannot take the path.
    #[error("simulate the path: {0}")]
    Simulation(#[from] godwit_sim::network::InvalidTopology),
    /// The scenario beside results cannot be used.
    #[error(transparent)]
    Scenario(#[from] crate::scenario::ScenarioError),
}

impl RunError {
    /// Whether the machine must be prepared first.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, RunError::Network(network::Error::Unavailable(_)))
    }
}

/// What became of a scenario.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// Runs.
    pub runs: u32,
    /// Those that failed.
    pub failed: u32,
    /// Those whose path was not the one asked for.
    pub unfaithful: u32,
}

/// Runs a scenario; `say` gets a line about every run.
///
/// A failed run is recorded and the others continue.
///
/// # Errors
/// [`RunError`], when nothing can run or results cannot be written.
pub fn run(
    loaded: &Loaded,
    options: &Options,
    say: &mut dyn FnMut(&str),
) -> Result<RunCounts, RunError> {
    netns::available().map_err(network::Error::from)?;
    let mut scenario = loaded.scenario.clone();
    if options.quick {
        scenario = scenario.quick();
    }
    if let Some(repeats) = options.repeats {
        scenario.repeat_all(repeats);
    }
    choose_methods(&mut scenario, &options.only, say)?;
    let mut output = Output::create(&options.out, loaded, &scenario, options.quick)?;
    let mut payload = Payload::create(&scenario.work)?;

    let plan = plan(&scenario);
    let mut tally = RunCounts::default();
    for (place, (repeat, cell, method)) in (1..).zip(&plan) {
        for attempt in 1..=ATTEMPTS {
            tally.runs += 1;
            let (run, samples) = measured(
                &scenario,
                (cell, method),
                &mut payload,
                output.events(),
                (tally.runs, *repeat, attempt),
            )?;
            tally.failed += u32::from(run.result.is_none());
            tally.unfaithful += u32::from(!run.is_faithful());
            output.add(&run, &samples)?;
            say(&format!(
                "[{place}/{}] {}",
                plan.len(),
                describe(&run, &scenario)
            ));
            if run.is_faithful() {
                break;
            }
        }
    }
    Ok(tally)
}

/// One run: its number, repeat and attempt, and what arrived when.
///
/// # Errors
/// What the machine lacks for one run it lacks for all. Other failures are part of the run.
fn measured(
    scenario: &Scenario,
    (cell, method): (&Cell, &Method),
    payload: &mut Payload,
    events: PathBuf,
    (number, repeat, attempt): (u32, u32, u32),
) -> Result<(Run, Vec<Sample>), RunError> {
    payload.prepare(cell)?;
    let seed = scenario.run.seed.wrapping_add(u64::from(repeat));
    let job = Job {
        scenario,
        method,
        cell,
        seed,
        payload,
        events,
        number,
    };
    let mut samples = Vec::new();
    let (result, error) = match job.measure(&mut samples) {
        Ok(outcome) => (Some(outcome), None),
        Err(error) if error.is_unavailable() => return Err(error),
        Err(error) => (None, Some(error.to_string())),
    };
    let run = Run {
        number,
        repeat,
        attempt,
        seed,
        method: method.name.clone(),
        cell: cell.clone(),
        result,
        error,
    };
    Ok((run, samples))
}

/// Every run, in the order of the module's description.
fn plan(scenario: &Scenario) -> Vec<(u32, Cell, Method)> {
    let mut one: Vec<(Cell, Method)> = Vec::new();
    let all: Vec<(Vec<Cell>, &Method)> = (scenario.method.iter())
        .map(|method| (scenario.cells(method), method))
        .collect();
    let longest = all.iter().map(|(cells, _)| cells.len()).max().unwrap_or(0);
    for index in 0..longest {
        for (cells, method) in &all {
            if let Some(cell) = cells.get(index) {
                one.push((cell.clone(), (*method).clone()));
            }
        }
    }
    let mut plan = Vec::new();
    let most = scenario.method.iter().map(|m| scenario.repeats(m)).max();
    for repeat in 0..most.unwrap_or(0) {
        let in_turn = one
            .iter()
            .filter(|(_, method)| repeat < scenario.repeats(method))
            .map(|(cell, method)| (repeat, cell.clone(), method.clone()));
        if repeat % 2 == 0 {
            plan.extend(in_turn);
        } else {
            plan.extend(in_turn.rev());
        }
    }
    plan
}

fn choose_methods(
    scenario: &mut Scenario,
    only: &[String],
    say: &mut dyn FnMut(&str),
) -> Result<(), RunError> {
    if let Some(unknown) = only.iter().find(|name| scenario.method(name).is_none()) {
        let names: Vec<&str> = scenario.method.iter().map(|m| m.name.as_str()).collect();
        return Err(RunError::UnknownMethod(unknown.clone(), names.join(", ")));
    }
    if !only.is_empty() {
        scenario.method.retain(|method| only.contains(&method.name));
    }
    let mut missing: Option<Missing> = None;
    scenario
        .method
        .retain(|method| match clients::available(method) {
            Ok(()) => true,
            Err(reason) => {
                say(&format!("{} is left out: {reason}", method.name));
                missing = Some(reason);
                false
            }
        });
    match missing {
        Some(missing) if scenario.method.is_empty() => Err(RunError::NoMethod(missing.to_string())),
        _ => Ok(()),
    }
}

fn describe(run: &Run, scenario: &Scenario) -> String {
    let mut coordinates: Vec<String> = Vec::new();
    if let Some(method) = scenario.method(&run.method) {
        coordinates = (scenario
            .series_facets()
            .iter()
            .chain(&scenario.figure.panels))
        // The method stands before them, the channels behind.
        .filter(|facet| !matches!(facet, Facet::Method | Facet::Channels))
        .map(|facet| run.cell.facet(*facet, method))
        .collect();
    }
    if run.cell.files > 0 {
        coordinates.push(format!("{} files", run.cell.files));
    }
    let channels = match (run.cell.channels, &run.result) {
        (0, Some(result)) => format!("N -> {:.0}", result.channels_mean),
        (channels, _) => format!("N = {channels}"),
    };
    coordinates.push(channels);
    let outcome = match (&run.result, &run.error) {
        (Some(result), _) => {
            let mark = if run.is_faithful() {
                ""
            } else {
                "  UNFAITHFUL"
            };
            let stopped = if result.stopped { "  stopped" } else { "" };
            format!(
                "{:8.1} Mbit/s  RTT {:.1} ms  late p99 {:.0} us{stopped}{mark}",
                result.goodput_bps / 1e6,
                result.sender.rtt_ms,
                result.fidelity.lateness_p99_us
            )
        }
        (None, error) => format!("FAILED: {}", error.as_deref().unwrap_or("?")),
    };
    format!(
        "{:<16} {:<28} {outcome}",
        run.method,
        coordinates.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_interleaved_and_turned_around() {
        let text = "title = 't'\n[path]\nrate = '1 Gbit/s'\ndelay = '1 ms'\n\
                    [sweep]\nchannels = [1, 2]\n[run]\nrepeats = 2\n\
                    [[method]]\nname='a'\nlabel='a'\nclient='godwit'\nserver='godwitd'\n\
                    [[method]]\nname='b'\nlabel='b'\nclient='godwit'\nserver='godwitd'\n\
                    [[method]]\nname='c'\nlabel='c'\nclient='curl'\nserver='godwitd'\nchannels=1\n";
        let scenario = crate::scenario::parse("t", text).expect("is one");
        let order: Vec<String> = (plan(&scenario).iter())
            .map(|(repeat, cell, method)| format!("{repeat}{}{}", method.name, cell.channels))
            .collect();
        let expected = [
            "0a1", "0b1", "0c1", "0a2", "0b2", "1b2", "1a2", "1c1", "1b1", "1a1",
        ];
        assert_eq!(order, expected);
    }

    #[test]
    fn unknown_methods_are_refused() {
        let mut loaded = crate::scenario::load("apt-impl/evolution").expect("is embedded");
        let only = ["unknown".to_owned()];
        let error = choose_methods(&mut loaded.scenario, &only, &mut |_| {}).expect_err("none");
        assert!(error.to_string().contains("gct, godwit"), "{error}");
    }
}

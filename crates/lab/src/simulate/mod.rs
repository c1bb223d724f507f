//! Simulated scenarios: the same packets on every machine, without a network.
//!
//! | Module | What is in it |
//! |---|---|
//! | `format` | the words of a scenario, and what is wrong with one |
//! | `channels` | static curves, and GridFTP-APT in chunks, over variants of a topology |
//! | `tuners` | every tuner over many drawn paths |
//! | `limits` | transfers whose limit is known, and the limit that godwit names |
//! | `research` | users of a research network, as rates, under four ways to share |
//! | `drawn` | a path drawn from a seed |
//! | `parallel` | runs on two processors; each is a value of its own |
//! | `page` | the pages and their figures |

mod channels;
mod drawn;
mod format;
mod limits;
mod page;
mod parallel;
mod research;
mod tuners;

use std::path::Path;

use serde::Serialize;

pub use channels::{ChannelsResult, ChunkRun, StaticPoint, Variant, VariantResult};
pub use format::SimScenario;
pub use limits::{Kind, LimitCase, LimitRun, LimitsResult};
pub use page::page;
pub use parallel::Workers;
pub use research::{
    DayResult, LinkResult, MapLink, MapSite, ResearchResult, ResearchStudy, ServiceSpec,
    SharingWay, Sizes,
};
pub use tuners::{TunerRun, TunersResult};

use crate::scenario::{Embedded, ScenarioError};

macro_rules! simulations {
    ($($name:literal),* $(,)?) => {
        &[$(Embedded {
            name: concat!("sim/", $name),
            text: include_str!(concat!("../../simulations/", $name, ".toml")),
        }),*]
    };
}

/// The simulations that come with the program.
pub const SIMULATIONS: &[Embedded] = simulations![
    "apt-tau10",
    "apt-tau20",
    "limits",
    "research-network",
    "tuners"
];

/// A scenario with its text.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedSimulation {
    /// `sim/name` for embedded ones, otherwise the name of the file without its ending.
    pub name: String,
    /// The text as it was.
    pub text: String,
    /// What it says.
    pub scenario: SimScenario,
}

/// What a simulation gave.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SimOutcome {
    /// Of a scenario with `channels`.
    Channels(ChannelsResult),
    /// Of a scenario with `tuners`.
    Tuners(TunersResult),
    /// Of a scenario with `limits`.
    Limits(LimitsResult),
    /// Of a scenario with `research`.
    Research(ResearchResult),
}

/// Finds a scenario: first among the embedded ones, then as a file.
///
/// # Errors
/// [`ScenarioError`] when there is neither, or for the first thing that is wrong with it.
pub fn load(name_or_path: &str) -> Result<LoadedSimulation, ScenarioError> {
    let embedded = SIMULATIONS.iter().find(|entry| entry.name == name_or_path);
    let text = match embedded {
        Some(entry) => entry.text.to_owned(),
        None => std::fs::read_to_string(name_or_path).map_err(|error| ScenarioError {
            file: name_or_path.to_owned(),
            line: None,
            field: String::new(),
            reason: if error.kind() == std::io::ErrorKind::NotFound {
                let names: Vec<&str> = SIMULATIONS.iter().map(|entry| entry.name).collect();
                format!(
                    "no file, and no simulation of this name: {}",
                    names.join(", ")
                )
            } else {
                error.to_string()
            },
        })?,
    };
    let stem = Path::new(name_or_path).file_stem().unwrap_or_default();
    Ok(LoadedSimulation {
        name: match embedded {
            Some(entry) => entry.name.to_owned(),
            None => stem.to_string_lossy().into_owned(),
        },
        scenario: format::parse(name_or_path, &text)?,
        text,
    })
}

/// Runs a scenario; equal scenarios give equal outcomes. `quick` runs the ends of what varies, or
/// the first few paths.
pub fn run(scenario: &SimScenario, quick: bool, workers: Workers<'_>) -> SimOutcome {
    if let Some(study) = &scenario.research {
        return SimOutcome::Research(research::run(study, quick, workers));
    }
    if let Some(study) = &scenario.limits {
        return SimOutcome::Limits(limits::run(study, quick, workers));
    }
    match &scenario.tuners {
        Some(study) => SimOutcome::Tuners(tuners::run(study, quick, workers)),
        None => SimOutcome::Channels(channels::run(scenario, quick, workers)),
    }
}

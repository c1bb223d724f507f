//! Campaigns: scenarios run over several invocations until every cell has what is asked, then their
//! pages are written.
//!
//! | Module | What is in it |
//! |---|---|
//! | `list` | which scenarios, and what counts |
//! | `next` | what runs next, from what has run |
//! | `rest` | whether the machine is at rest |
//! | `state` | what is on disk beside results |

mod list;
mod next;
mod rest;
mod state;

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

pub use list::{List, RESULTS};
pub use next::{DoneRun, Next, Wanted, next};
use state::{Rest, StateHead};

use crate::{
    file_error::{FileError, io_error},
    report::{self, FigureFile},
    runner::{self, Continued, Run, RunError},
    scenario::{self, Loaded, ScenarioError},
    simulate::{self, LoadedSimulation, Workers},
};

/// Simulations at the same time.
const THREADS: usize = 2;
/// Between two looks at a machine that is not at rest.
const PAUSE: Duration = Duration::from_secs(5);
/// The scenario of a simulation's results.
const SIMULATED_FILE: &str = "scenario.toml";

/// What an invocation does.
#[derive(Debug, Clone)]
pub struct Options {
    /// Results, and what is known of them.
    pub state: PathBuf,
    /// Where pages go.
    pub pages: PathBuf,
    /// Whether quick variants run.
    pub quick: bool,
    /// Runs of this invocation; `None`: until all is done.
    pub runs: Option<u32>,
}

/// Why a campaign does not continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The list, or a scenario, cannot be used.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A scenario does not run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The state is of other programs.
    #[error("{} has results of another build; choose another --state", .0.display())]
    OtherBuild(PathBuf),
    /// The state is of the quick variant, or of the whole one.
    #[error("{} was begun with another --quick; choose another --state", .0.display())]
    OtherVariant(PathBuf),
    /// The state is of another text of a scenario.
    #[error("{} has results of another text of {name}; remove it, or choose another --state",
            folder.display())]
    OtherText {
        /// Of the scenario.
        folder: PathBuf,
        /// Of the scenario.
        name: String,
    },
    /// The state cannot be understood.
    #[error("{}: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

impl Error {
    /// Whether the machine must be prepared first.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Error::Run(error) if error.is_unavailable())
    }
}

/// What an invocation came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CampaignEnd {
    /// All cells have what was asked, or no spare run; pages are written.
    Done {
        /// Cells with fewer runs.
        short: u32,
    },
    /// The runs of this invocation are used up.
    Interrupted,
}

enum CampaignWork {
    Emulated(Box<Loaded>),
    Simulated(Box<LoadedSimulation>),
}

/// Continues a campaign. `say` gets a line about every run, and the path of every page.
///
/// # Errors
/// [`Error`]; what has run stays.
pub fn run(
    list: &List,
    options: &Options,
    say: &mut dyn FnMut(&str),
) -> Result<CampaignEnd, Error> {
    // All are read first: a wrong name is said before anything runs.
    let load = |name: &String| -> Result<(String, CampaignWork), Error> {
        let work = match name.starts_with("sim/") {
            true => CampaignWork::Simulated(Box::new(simulate::load(name)?)),
            false => CampaignWork::Emulated(Box::new(scenario::load(name)?)),
        };
        Ok((name.clone(), work))
    };
    let works = list
        .scenarios
        .iter()
        .map(load)
        .collect::<Result<Vec<_>, _>>()?;
    StateHead::now(options.quick)?.settle(&options.state)?;
    let mut left = options.runs.unwrap_or(u32::MAX);
    let mut short = 0;
    for (name, work) in &works {
        match work {
            CampaignWork::Emulated(loaded) => {
                let folder = options.state.join(loaded.name.replace('/', "-"));
                match emulated(list, options, loaded, &folder, &mut left, say)? {
                    Some(few) => short += few,
                    None => return Ok(CampaignEnd::Interrupted),
                }
            }
            CampaignWork::Simulated(loaded) => {
                let folder = options.state.join(name.replace('/', "-"));
                if !simulated(options, loaded, &folder, &mut left, say)? {
                    return Ok(CampaignEnd::Interrupted);
                }
            }
        }
    }
    for (name, work) in &works {
        write_pages(list, name, work, options, say)?;
    }
    Ok(CampaignEnd::Done { short })
}

/// Runs what a scenario needs: cells that have less in the end, or `None` if it is not the end.
fn emulated(
    list: &List,
    options: &Options,
    loaded: &Loaded,
    folder: &Path,
    left: &mut u32,
    say: &mut dyn FnMut(&str),
) -> Result<Option<u32>, Error> {
    let path = folder.join(runner::SCENARIO_FILE);
    if fs::read_to_string(&path).is_ok_and(|text| text != loaded.text) {
        let (folder, name) = (folder.to_owned(), loaded.name.clone());
        return Err(Error::OtherText { folder, name });
    }
    let mut continued = match Continued::open(folder, loaded, options.quick, say) {
        Ok(continued) => continued,
        // Programs of others are missing; the other scenarios run.
        Err(RunError::NoMethod(reason)) => {
            say(&format!("{} is left out: {reason}", loaded.name));
            return Ok(Some(0));
        }
        Err(error) => return Err(error.into()),
    };
    let mut rests = state::rests(folder)?;
    let wanted = Wanted {
        runs: list.runs,
        runs_if_long: list.runs_if_long,
        spare: list.spare,
    };
    loop {
        let done: Vec<DoneRun> = (continued.done().iter())
            .filter_map(|(slot, run)| {
                let rest = rests.iter().find(|rest| rest.number == run.number);
                Some(DoneRun {
                    slot: (*slot)?,
                    counts: rest.is_some_and(|rest| counts(run, rest, list)),
                    long: rest.is_some_and(|rest| rest.seconds > list.long.0),
                })
            })
            .collect();
        match next(continued.slots(), &done, wanted) {
            Next::Finished(short) => {
                return Ok(Some(u32::try_from(short.len()).unwrap_or(u32::MAX)));
            }
            Next::Run { .. } if *left == 0 => return Ok(None),
            Next::Run {
                slot,
                repeat,
                attempt,
            } => {
                *left -= 1;
                let before = wait_for_rest(list, say);
                let began = Instant::now();
                let run = continued.run(slot, repeat, attempt)?;
                let processors = thread::available_parallelism().map_or(1, usize::from);
                #[allow(clippy::cast_precision_loss, reason = "a few processors")]
                let during = run
                    .result
                    .as_ref()
                    .map_or(0.0, |r| r.other_cpus() / processors as f64);
                let rest = Rest {
                    number: run.number,
                    before,
                    during,
                    seconds: began.elapsed().as_secs_f64(),
                };
                state::add_rest(folder, &rest)?;
                let mark = if counts(&run, &rest, list) {
                    ""
                } else {
                    "  DOES NOT COUNT"
                };
                say(&format!(
                    "{}: {}{mark}, others {:.0} % before and {:.0} % during it",
                    loaded.name,
                    continued.describe(&run),
                    100.0 * before,
                    100.0 * during
                ));
                rests.push(rest);
            }
        }
    }
}

fn counts(run: &Run, rest: &Rest, list: &List) -> bool {
    let at_rest = rest.before <= list.busy.0 && rest.during <= list.busy.0;
    run.result.is_some() && run.is_faithful() && at_rest
}

/// What a page shows: where a cell has runs that count, none that only had company.
fn shown(runs: Vec<Run>, rests: &[Rest], list: &List) -> Vec<Run> {
    let is_counted = |run: &Run| {
        let mut rests = rests.iter();
        rests.any(|rest| rest.number == run.number && counts(run, rest, list))
    };
    let has_company = |run: &&Run| run.result.is_some() && run.is_faithful() && !is_counted(run);
    let replaced = |run: &&Run| {
        let mut others = runs.iter();
        others
            .any(|other| other.method == run.method && other.cell == run.cell && is_counted(other))
    };
    let left_out = runs.iter().filter(|run| has_company(run) && replaced(run));
    let left_out: Vec<u32> = left_out.map(|run| run.number).collect();
    let mut runs = runs;
    runs.retain(|run| !left_out.contains(&run.number));
    runs
}

/// How busy the machine is when it is at rest, or when the wait is over.
fn wait_for_rest(list: &List, say: &mut dyn FnMut(&str)) -> f64 {
    let until = Instant::now() + Duration::from_secs_f64(list.wait.0);
    let mut said = false;
    loop {
        let busy = rest::busy().unwrap_or(0.0);
        if busy <= list.busy.0 || Instant::now() >= until {
            return busy;
        }
        if !said {
            said = true;
            say(&format!(
                "others use {:.0} % of the processors: waiting",
                100.0 * busy
            ));
        }
        thread::sleep(PAUSE);
    }
}

/// Runs a simulation, if that was not done; `false` if there is no run left.
fn simulated(
    options: &Options,
    loaded: &LoadedSimulation,
    folder: &Path,
    left: &mut u32,
    say: &mut dyn FnMut(&str),
) -> Result<bool, Error> {
    let path = folder.join(SIMULATED_FILE);
    match fs::read_to_string(&path) {
        Ok(text) if text == loaded.text => return Ok(true),
        Ok(_) => {
            let (folder, name) = (folder.to_owned(), loaded.name.clone());
            return Err(Error::OtherText { folder, name });
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(io_error(&path)(error).into()),
    }
    if *left == 0 {
        return Ok(false);
    }
    *left -= 1;
    fs::create_dir_all(folder).map_err(io_error(folder))?;
    let outcome = simulate::run(&loaded.scenario, options.quick, Workers::silent(THREADS));
    let name = loaded.name.replace('/', "-");
    let quick = if options.quick { " --quick" } else { "" };
    let command = format!("godwit-lab simulate {}{quick} --out DIR", loaded.name);
    let (page, figures) = simulate::page(loaded, &outcome, &name, &command);
    write_page(folder, &name, page, figures)?;
    // The last file says that the others are whole.
    fs::write(&path, &loaded.text).map_err(io_error(&path))?;
    say(&format!("{}: simulated", loaded.name));
    Ok(true)
}

fn write_page(
    folder: &Path,
    name: &str,
    page: String,
    figures: Vec<FigureFile>,
) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(io_error(folder))?;
    for FigureFile { name, svg } in figures {
        let path = folder.join(name);
        fs::write(&path, svg).map_err(io_error(&path))?;
    }
    let path = folder.join(format!("{name}.md"));
    Ok(fs::write(&path, page).map_err(io_error(&path))?)
}

fn write_pages(
    list: &List,
    name: &str,
    work: &CampaignWork,
    options: &Options,
    say: &mut dyn FnMut(&str),
) -> Result<(), Error> {
    match work {
        CampaignWork::Emulated(loaded) => {
            let name = loaded.name.replace('/', "-");
            if !options.state.join(&name).join(runner::RUNS_FILE).exists() {
                return Ok(());
            }
            let folder = options.state.join(&name);
            let mut results = runner::read(&folder)?;
            results.runs = shown(results.runs, &state::rests(&folder)?, list);
            let (page, figures) = report::markdown(&results, &name);
            write_page(&options.pages, &name, page, figures)?;
            say(&options
                .pages
                .join(format!("{name}.md"))
                .display()
                .to_string());
        }
        CampaignWork::Simulated(_) => {
            let folder = options.state.join(name.replace('/', "-"));
            fs::create_dir_all(&options.pages).map_err(io_error(&options.pages))?;
            for entry in fs::read_dir(&folder).map_err(io_error(&folder))? {
                let path = entry.map_err(io_error(&folder))?.path();
                let is_page = path
                    .extension()
                    .is_some_and(|end| end == "md" || end == "svg");
                if let Some(file) = path.file_name().filter(|_| is_page) {
                    let to = options.pages.join(file);
                    fs::copy(&path, &to).map_err(io_error(&to))?;
                    say(&to.display().to_string());
                }
            }
        }
    }
    Ok(())
}

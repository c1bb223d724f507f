//! `godwit-lab simulate`: runs a simulated scenario and writes its page.

use std::{
    fs,
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
};

use clap::Args;

use crate::{
    file_error::{FileError, io_error},
    scenario::ScenarioError,
    simulate::{self, SIMULATIONS, Workers},
};

/// Processors of a run: each simulation is on one, so the outcome does not depend on it.
const THREADS: usize = 2;

/// What to simulate.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  godwit-lab simulate --list\n  \
                  godwit-lab simulate sim/apt-tau10 --out results/tau10\n  \
                  godwit-lab simulate sim/tuners --quick --out results/tuners")]
pub struct Options {
    /// A simulation that comes with the program, or a file
    #[arg(value_name = "NAME", required_unless_present = "list")]
    pub name: Option<String>,
    /// Directory for simulation.json, the page and its figures
    #[arg(long, value_name = "DIR", required_unless_present = "list")]
    pub out: Option<PathBuf>,
    /// The ends of what varies, or the first few paths: under two minutes
    #[arg(long)]
    pub quick: bool,
    /// Simulations at the same time; the outcome is the same
    #[arg(long, default_value_t = THREADS, value_name = "N")]
    pub threads: usize,
    /// Names of the simulations that come with the program
    #[arg(long)]
    pub list: bool,
}

/// Why nothing was simulated, or not kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulateError {
    /// The scenario makes no sense.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A file cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Simulates and writes.
///
/// # Errors
/// [`SimulateError`].
pub fn run(options: &Options, out: &mut dyn Write) -> Result<(), SimulateError> {
    let output = Path::new("output");
    if options.list {
        for entry in SIMULATIONS {
            writeln!(out, "{}", entry.name).map_err(io_error(output))?;
        }
        return Ok(());
    }
    let (Some(name), Some(folder)) = (&options.name, &options.out) else {
        return Ok(());
    };
    let loaded = simulate::load(name)?;
    fs::create_dir_all(folder).map_err(io_error(folder))?;
    let progress = |done: usize, of: usize| {
        let end = if done == of { "\n" } else { "" };
        // Progress that cannot be shown is no failure.
        let _ = write!(std::io::stderr(), "\r{done} of {of} simulations{end}");
    };
    let workers = Workers {
        threads: options.threads,
        progress: match std::io::stderr().is_terminal() {
            true => &progress,
            false => &|_, _| {},
        },
    };
    let outcome = simulate::run(&loaded.scenario, options.quick, workers);
    let file = loaded.name.replace('/', "-");
    let quick = if options.quick { " --quick" } else { "" };
    let command = format!("godwit-lab simulate {name}{quick} --out DIR");
    let (page, figures) = simulate::page(&loaded, &outcome, &file, &command);
    let mut keep = |name: String, text: String| -> Result<(), SimulateError> {
        let path = folder.join(name);
        fs::write(&path, text).map_err(io_error(&path))?;
        writeln!(out, "{}", path.display()).map_err(io_error(output))?;
        Ok(())
    };
    let json = serde_json::to_string_pretty(&outcome)
        .map_err(|error| io_error(folder)(std::io::Error::other(error)))?;
    keep("simulation.json".to_owned(), json + "\n")?;
    keep(format!("{file}.md"), page)?;
    for figure in figures {
        keep(figure.name, figure.svg)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(name: Option<&str>, out: Option<&Path>) -> Options {
        Options {
            name: name.map(str::to_owned),
            out: out.map(Path::to_owned),
            quick: true,
            threads: 2,
            list: name.is_none(),
        }
    }

    #[test]
    fn a_file_is_simulated_and_its_page_shows_its_figures() {
        let folder = tempfile::tempdir().unwrap();
        let text = "title = \"t\"\n\n[[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"10 Mbit/s\"\n\
                    delay = \"5 ms\"\n\n[transfer]\nfrom = \"a\"\nto = \"b\"\n\
                    algorithm = \"sack\"\npacket = \"1000 B\"\nwindow = \"4 kB\"\n\n\
                    [channels]\nnumbers = [1, 4]\nsettle = \"1 s\"\nuntil = \"2 s\"\nseeds = 1\n";
        let file = folder.path().join("small.toml");
        fs::write(&file, text).unwrap();
        let out = folder.path().join("out");
        let mut said = Vec::new();
        run(&options(file.to_str(), Some(&out)), &mut said).unwrap();
        let page = fs::read_to_string(out.join("small.md")).unwrap();
        assert!(page.contains("](small.svg)") && out.join("small.svg").exists());
        // Four windows of four packets in 10 ms and the 0.8 ms of a packet fill the link.
        assert!(
            page.contains("| 0 ms, RTO from 0.2 s, tick 10 ms | 4 | 10.0 |"),
            "{page}"
        );
        assert!(out.join("simulation.json").exists());
    }

    #[test]
    fn unknown_names_are_refused_with_those_that_are_known() {
        let error = run(
            &options(Some("sim/no"), Some(Path::new("x"))),
            &mut Vec::new(),
        );
        let error = error.unwrap_err().to_string();
        assert!(
            error.ends_with(
                "sim/apt-tau10, sim/apt-tau20, sim/limits, sim/research-network, sim/tuners"
            ),
            "{error}"
        );
        let mut said = Vec::new();
        run(&options(None, None), &mut said).unwrap();
        assert_eq!(
            said.split(|byte| *byte == b'\n').count(),
            SIMULATIONS.len() + 1
        );
    }
}

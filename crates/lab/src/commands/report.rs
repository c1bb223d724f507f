//! `godwit-lab report`: writes one page about results.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::file_error::{FileError, io_error};
use crate::report::{self, FigureFile};
use crate::runner::{self, RunError};

/// What to report on.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  godwit-lab report results/evolution\n  \
                        godwit-lab report results/* -o report.html --markdown docs/results")]
pub struct Options {
    /// Directories that `godwit-lab run` has filled
    #[arg(value_name = "DIR", required = true)]
    pub folders: Vec<PathBuf>,
    /// The page [default: report.html in the first directory]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Also write each figure to a file of its own in this directory
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,
    /// Also write a Markdown page for each scenario to this directory, its figures beside it
    #[arg(long, value_name = "DIR")]
    pub markdown: Option<PathBuf>,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// Results cannot be read.
    #[error(transparent)]
    Results(#[from] RunError),
    /// A file cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Writes the page and the figures.
///
/// # Errors
/// [`ReportError`].
pub fn run(options: &Options, out: &mut dyn Write) -> Result<(), ReportError> {
    let all = (options.folders.iter())
        .map(|folder| runner::read(folder))
        .collect::<Result<Vec<_>, _>>()?;
    let first = options.folders.first().cloned().unwrap_or_default();
    let page = options
        .output
        .clone()
        .unwrap_or_else(|| first.join("report.html"));
    let say = |out: &mut dyn Write, path: &Path| {
        writeln!(out, "{}", path.display()).map_err(io_error(Path::new("output")))
    };
    fs::write(&page, report::page(&all)).map_err(io_error(&page))?;
    say(out, &page)?;
    let mut names: Vec<String> = Vec::new();
    for results in &all {
        // The same scenario again: its results lie in another directory.
        let plain = results.environment.scenario.replace('/', "-");
        let before = names.iter().filter(|known| **known == plain).count();
        let name = match before {
            0 => plain.clone(),
            _ => format!("{plain}-{}", before + 1),
        };
        names.push(plain);
        if let Some(folder) = &options.svg {
            for path in write_all(folder, report::svgs(results, &name))? {
                say(out, &path)?;
            }
        }
        if let Some(folder) = &options.markdown {
            let (page, figures) = report::markdown(results, &name);
            write_all(folder, figures)?;
            let path = folder.join(format!("{name}.md"));
            fs::write(&path, page).map_err(io_error(&path))?;
            say(out, &path)?;
        }
    }
    Ok(())
}

fn write_all(folder: &Path, files: Vec<FigureFile>) -> Result<Vec<PathBuf>, ReportError> {
    fs::create_dir_all(folder).map_err(io_error(folder))?;
    let write = |FigureFile { name, svg }| {
        let path = folder.join(name);
        fs::write(&path, svg).map_err(io_error(&path))?;
        Ok(path)
    };
    files.into_iter().map(write).collect()
}

//! The one command that runs from the beginning of a soak to its end: it reads names of files from
//! its standard input while it copies them.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::load::client;
use super::{Error, Workplace};
use crate::file_error::io_error;
use crate::peers::Process;

/// Names that it gets at once; the next come when all of them exist.
const BATCH: u64 = 50;
/// How long a batch may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// Bytes of files that come in turn.
const SIZES: [usize; 4] = [1_000, 50_000, 400_000, 4_000_000];

#[derive(Debug)]
pub(super) struct Steady {
    process: Process,
    /// Its end of the list of names; closed, the list ends.
    names: Option<File>,
    list: PathBuf,
}

/// Tells names.
#[derive(Debug)]
pub(super) struct Feed {
    names: File,
}

fn source(place: &Workplace) -> PathBuf {
    place.folder.join("root/steady")
}

fn target(place: &Workplace) -> PathBuf {
    place.folder.join("steady")
}

impl Steady {
    pub(super) fn start(place: &Workplace) -> Result<Steady, Error> {
        let (source, target) = (source(place), target(place));
        let list = place.folder.join("names");
        let made = || -> io::Result<File> {
            fs::create_dir(&source)?;
            fs::create_dir(&target)?;
            for size in SIZES {
                fs::write(
                    place.folder.join(format!("content-{size}")),
                    vec![0x5a; size],
                )?;
            }
            mknodat(CWD, &list, FileType::Fifo, Mode::from_raw_mode(0o600), 0)?;
            // For reading too, or this would wait for the reader.
            File::options().read(true).write(true).open(&list)
        };
        let names = made().map_err(io_error(&list))?;
        // A tuner that looks around makes memory, descriptors and threads rise and fall by itself.
        let words = [
            "cp",
            "-q",
            "--concurrency",
            "4",
            "--parallelism",
            "4",
            "--files-from",
            &list.to_string_lossy(),
            &place.url("steady/"),
            &format!("{}/", target.display()),
        ];
        let process = client(&place.folder, &words.map(str::to_owned))?;
        Ok(Steady {
            process,
            names: Some(names),
            list,
        })
    }

    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// What tells it names, and ends the list when it is dropped.
    pub(super) fn feed(&mut self) -> Option<Feed> {
        self.names.take().map(|names| Feed { names })
    }

    /// Waits for its end, after that of the list; what was wrong.
    pub(super) fn end(self) -> Result<Option<String>, Error> {
        let finished = self.process.wait(LIMIT)?;
        fs::remove_file(&self.list).map_err(io_error(&self.list))?;
        let said = || format!("the long command: {}: {}", finished.status, finished.log());
        Ok((!finished.status.success()).then(said))
    }
}

impl Feed {
    /// Tells names until it is over; what was wrong.
    pub(super) fn run(mut self, place: &Workplace) -> Vec<String> {
        let mut first = 0;
        while !place.is_over() {
            match self.batch(place, first) {
                Ok(None) => {}
                Ok(Some(wrong)) => return vec![wrong],
                Err(error) => return vec![format!("names for the long command: {error}")],
            }
            first += BATCH;
        }
        Vec::new()
    }

    fn batch(&mut self, place: &Workplace, first: u64) -> io::Result<Option<String>> {
        let (source, target) = (source(place), target(place));
        let names: Vec<String> = (first..first + BATCH).map(|n| format!("f{n}")).collect();
        for (name, size) in names.iter().zip(SIZES.iter().cycle()) {
            let content = place.folder.join(format!("content-{size}"));
            fs::hard_link(content, source.join(name))?;
        }
        self.names
            .write_all(format!("{}\n", names.join("\n")).as_bytes())?;
        let deadline = Instant::now() + LIMIT;
        for name in &names {
            while !target.join(name).exists() {
                if Instant::now() >= deadline {
                    return Ok(Some(format!(
                        "the long command has not copied {name} in {LIMIT:?}"
                    )));
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        for name in &names {
            remove(&source, name)?;
            remove(&target, name)?;
        }
        place.files.fetch_add(BATCH, Ordering::Relaxed);
        Ok(None)
    }
}

fn remove(folder: &Path, name: &str) -> io::Result<()> {
    fs::remove_file(folder.join(name))
}

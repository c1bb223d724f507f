//! The benchmark cell of small files: many files of one size from memory to memory over loopback,
//! in both directions.
//!
//! The peer is `globus-url-copy -fast -pp -cc 4`, the fastest options of that client; measured are
//! files per second, and the processor time of each end for a file. Neither client verifies, since
//! the peer cannot. The bound, on paper: a file costs each end some ten system calls on its storage
//! (stat, open, write or read, close, rename) of one to three microseconds each, and the messages
//! between the two ends.

use std::{
    ffi::OsString,
    fs,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use super::{
    BenchError,
    files::run_with_room,
    godwit_cp, io_error,
    record::{BenchCell, RunResult, Unit},
    testbed::Testbed,
};
use crate::pages;
use crate::peers::{
    Error, Tool, Usage, file_url,
    gct::{self, GctServer},
    godwit::Godwitd,
    process::Finished,
};

/// Longest single run: a million files at a thousand a second.
const RUN_LIMIT: Duration = Duration::from_secs(1000);

/// Files of a directory.
const DIRECTORY_FILES: u32 = 1000;

/// Samples a second of a profile: no divisor of what timers do.
const PROFILE_HERTZ: &str = "997";

/// Lines of a profile that are shown.
const PROFILE_LINES: usize = 40;

/// And their characters.
const PROFILE_WIDTH: usize = 110;

/// Finds where processors spend their time.
const PERF: Tool = Tool::new("perf", "linux-perf");

#[derive(Clone, Copy, PartialEq, Eq)]
enum Endpoints {
    Gct,
    Godwit,
}

impl Endpoints {
    fn name(self) -> &'static str {
        match self {
            Self::Gct => "GCT -fast -pp -cc 4",
            Self::Godwit => "godwit, godwitd",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransferDirection {
    Get,
    Put,
}

impl TransferDirection {
    fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
        }
    }
}

/// Servers and folders of the cell.
pub(super) struct Small<'a> {
    folder: &'a Path,
    godwitd: Godwitd,
    gct: Option<GctServer>,
}

impl<'a> Small<'a> {
    /// Starts servers that may be written to.
    pub(super) fn start(testbed: &Testbed<'_>, folder: &'a Path) -> Result<Self, BenchError> {
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let peers = !testbed.options.no_peers && gct::available().is_ok();
        Ok(Self {
            folder,
            godwitd: Godwitd::serving("/").ip(ip).start()?,
            gct: match peers {
                true => Some(GctServer::serving("/").ip(ip).start()?),
                false => None,
            },
        })
    }

    pub(super) fn run(&self, testbed: &mut Testbed<'_>) -> Result<(), BenchError> {
        let files = match testbed.options.quick {
            true => (testbed.options.files / 4).max(1),
            false => testbed.options.files,
        };
        for &bytes in &testbed.options.file_bytes {
            let names = [TransferDirection::Get, TransferDirection::Put]
                .map(|w| (w, format!("small/{}/{bytes}", w.name())));
            if !names.iter().any(|(_, name)| testbed.is_asked_for(name)) {
                continue;
            }
            make(&self.source(), files, bytes)?;
            for (way, name) in names {
                let cell = BenchCell {
                    name: name.clone(),
                    title: format!("small files, {}, {files} x {bytes} bytes", way.name()),
                    unit: Unit::Files,
                    ours: Endpoints::Godwit.name().to_owned(),
                    bounds: Vec::new(),
                };
                let all =
                    [Endpoints::Gct, Endpoints::Godwit].map(|ends| (ends, ends.name().to_owned()));
                let there = match self.gct {
                    Some(_) => &all[..],
                    None => &all[1..],
                };
                testbed.compare(cell, there, |ends| self.measure(*ends, way, files, bytes))?;
                if testbed.options.profile && testbed.is_asked_for(&name) {
                    let text = self.profile(way, files, bytes)?;
                    testbed.say(&text)?;
                }
            }
        }
        Ok(())
    }

    fn source(&self) -> PathBuf {
        self.folder.join("small")
    }

    fn target(&self) -> PathBuf {
        self.folder.join("arrived")
    }

    fn measure(
        &self,
        ends: Endpoints,
        way: TransferDirection,
        files: u32,
        bytes: u64,
    ) -> Result<RunResult, BenchError> {
        let before = self.server_usage(ends);
        let finished = self.move_all(self.command(ends, way)?, files, bytes)?;
        let server = self.server_usage(ends).since(&before);
        let per_file = |usage: Usage| usage.cpu().as_secs_f64() * 1e6 / f64::from(files);
        Ok(RunResult {
            value: f64::from(files) / finished.usage.wall.as_secs_f64(),
            client_cpu: per_file(finished.usage),
            server_cpu: per_file(server),
        })
    }

    fn server_usage(&self, ends: Endpoints) -> Usage {
        match (ends, &self.gct) {
            (Endpoints::Gct, Some(server)) => server.usage(),
            _ => self.godwitd.usage(),
        }
    }

    /// Runs a client and looks whether all is there.
    fn move_all(&self, command: Command, files: u32, bytes: u64) -> Result<Finished, BenchError> {
        let target = self.target();
        clear(&target)?;
        fs::create_dir(&target).map_err(io_error(&target))?;
        let room = pages::held(files, bytes);
        let finished = run_with_room(command, room, RUN_LIMIT)?;
        let arrived = count(&target)?;
        if arrived != files {
            let error = std::io::Error::other(format!("{arrived} files arrived of {files}"));
            return Err(io_error(&target)(error).into());
        }
        clear(&target)?;
        Ok(finished)
    }

    fn command(&self, ends: Endpoints, way: TransferDirection) -> Result<Command, BenchError> {
        let (source, target) = (self.source(), self.target());
        let remote = |path: &Path| {
            let path = format!("{}/", path.display());
            match (ends, &self.gct) {
                (Endpoints::Gct, Some(server)) => server.machine_url(&path),
                _ => self.godwitd.url(&path),
            }
        };
        let local = |path: &Path| match ends {
            Endpoints::Gct => format!("{}/", file_url(path)),
            Endpoints::Godwit => format!("{}/", path.display()),
        };
        let (from, to) = match way {
            TransferDirection::Get => (remote(&source), local(&target)),
            TransferDirection::Put => (local(&source), remote(&target)),
        };
        let mut command = match ends {
            Endpoints::Gct => {
                let mut command = gct::URL_COPY.command().map_err(Error::from)?;
                command.args(["-fast", "-pp", "-cc", "4", "-r", "-cd"]);
                command
            }
            Endpoints::Godwit => {
                let mut command = godwit_cp()?;
                command.args(["--recursive", "--no-journal"]);
                command
            }
        };
        command.args([from, to]);
        Ok(command)
    }

    /// Where all processors spent their time while godwit moved the files once more.
    fn profile(
        &self,
        way: TransferDirection,
        files: u32,
        bytes: u64,
    ) -> Result<String, BenchError> {
        let mut perf = match PERF.command() {
            Ok(perf) => perf,
            Err(missing) => return Ok(format!("no profile: {missing}")),
        };
        let data = self.folder.join("profile");
        let client = self.command(Endpoints::Godwit, way)?;
        perf.args(["record", "--all-cpus", "--quiet", "--event", "cpu-clock"])
            .args(["--freq", PROFILE_HERTZ, "--output"])
            .arg(&data)
            .arg("--")
            .arg(client.get_program())
            .args(client.get_args());
        self.move_all(perf, files, bytes)?;
        let arguments = ["report", "--stdio", "--sort", "comm,symbol", "--input"];
        let shown = PERF.run_within(
            RUN_LIMIT,
            (arguments.map(OsString::from).into_iter()).chain([data.clone().into()]),
        )?;
        fs::remove_file(&data).map_err(io_error(&data))?;
        let text = shown.success()?.stdout_text();
        // Columns as wide as the longest symbol, that of a generic function, are filled with
        // blanks.
        let lines = (text.lines().filter(|line| !line.starts_with('#')))
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .filter(|line| !line.is_empty())
            .map(|line| line.chars().take(PROFILE_WIDTH).collect::<String>());
        Ok(lines.take(PROFILE_LINES).collect::<Vec<_>>().join("\n"))
    }
}

/// Makes a directory of directories with so many files.
fn make(folder: &Path, files: u32, bytes: u64) -> Result<(), BenchError> {
    clear(folder)?;
    let content = vec![b'g'; usize::try_from(bytes).unwrap_or(usize::MAX)];
    for index in 0..files {
        let directory = folder.join(format!("d{:04}", index / DIRECTORY_FILES));
        if index % DIRECTORY_FILES == 0 {
            fs::create_dir_all(&directory).map_err(io_error(&directory))?;
        }
        let path = directory.join(format!("f{index:07}"));
        fs::write(&path, &content).map_err(io_error(&path))?;
    }
    Ok(())
}

/// Removes a directory that may not be there.
fn clear(folder: &Path) -> Result<(), BenchError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(io_error(folder)(error).into())
        }
        _ => Ok(()),
    }
}

/// Files in the directories of a directory.
fn count(folder: &Path) -> Result<u32, BenchError> {
    let mut files = 0;
    for directory in fs::read_dir(folder).map_err(io_error(folder))? {
        let directory = directory.map_err(io_error(folder))?.path();
        let inside = fs::read_dir(&directory).map_err(io_error(&directory))?;
        files += u32::try_from(inside.count()).unwrap_or(u32::MAX);
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_made_a_thousand_a_directory_and_counted() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let source = folder.path().join("source");
        make(&source, 1002, 3).expect("made");
        assert_eq!(fs::read_dir(&source).expect("there").count(), 2);
        assert_eq!(count(&source).expect("counted"), 1002);
        let last = source.join("d0001/f0001001");
        assert_eq!(fs::read(last).expect("read"), b"ggg");
        make(&source, 1, 3).expect("made again");
        assert_eq!(count(&source).expect("counted"), 1);
    }
}

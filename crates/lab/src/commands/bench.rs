//! `godwit-lab bench`: godwit both ends, GCT both ends, mixed ends and iperf3, in turn, in one run.
//!
//! These machines are shared and noisy, so rounds are interleaved (every contender once a round) and what is
//! printed beside each median is the ratio to GCT **of the same round**, median and range.
//!
//! The limit, on paper: loopback TCP copies each octet twice (sender into the kernel, kernel to receiver), a file
//! source adds a page-cache read that `sendfile` hands over without a copy, and a file target adds one copy into the page
//! cache plus the allocation of its pages, which on a virtual machine costs more than the copy.

mod guarded;
mod small;

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use clap::Args;

use crate::peers::{
    Error, Finished,
    gct::{self, GctServer},
    godwit::{self, Godwitd},
    iperf3::{self, Iperf3Server, Iperf3Test},
    process,
};

/// What to measure.
#[derive(Debug, Args)]
pub struct Options {
    /// Rounds; each contender runs once a round
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Two rounds and a quarter of the octets: shows the shape, not the truth
    #[arg(long)]
    pub quick: bool,
    /// Parallel channels to measure
    #[arg(short, long, value_delimiter = ',', default_values_t = [1, 4, 16, 64])]
    pub parallelism: Vec<u16>,
    /// GB (10^9 octets) of a memory-to-memory run
    #[arg(long, default_value_t = 16)]
    pub memory_gb: u64,
    /// GB (10^9 octets) of a file-to-file run; source and target lie on tmpfs
    #[arg(long, default_value_t = 3)]
    pub file_gb: u64,
    /// Small files of a run; a million takes 10 GB of memory
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=2_000_000))]
    pub files: u32,
    /// Octets of a small file
    #[arg(long, value_delimiter = ',', default_values_t = [1000, 10_000])]
    pub file_bytes: Vec<u64>,
    /// After each cell of small files, also show where the processors spent their time (needs perf)
    #[arg(long)]
    pub profile: bool,
    /// Leave the Grid Community Toolkit and iperf3 out
    #[arg(long)]
    pub no_peers: bool,
    /// Only cells whose name contains this (`memory`, `file`, `guarded`, `small`)
    #[arg(long)]
    pub only: Option<String>,
    /// Folder for the files; must be on tmpfs to measure what the cells are called
    #[arg(long, default_value = "/dev/shm")]
    pub tmpfs: PathBuf,
    /// Also write every single measurement to this file, JSON lines
    #[arg(long)]
    pub json: Option<PathBuf>,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A contender failed.
    #[error(transparent)]
    Peer(#[from] Error),
    /// A file could not be made or the report not be written.
    #[error("{path}: {error}")]
    Io {
        /// Where.
        path: String,
        /// Why.
        error: std::io::Error,
    },
}

fn io_error(path: &Path) -> impl FnOnce(std::io::Error) -> BenchError {
    let path = path.display().to_string();
    move |error| BenchError::Io { path, error }
}

/// Longest single run.
const RUN_LIMIT: Duration = Duration::from_secs(300);

/// What moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    /// /dev/zero of the server to /dev/null of the client.
    Memory,
    /// A file on tmpfs of the server to a file on tmpfs of the client.
    File,
}

/// Who serves and who fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Contender {
    GctBoth,
    GodwitBoth,
    GodwitFromGct,
    GctFromGodwit,
    Iperf3,
}

impl Contender {
    const ALL: [Self; 5] = [
        Self::GctBoth,
        Self::GodwitBoth,
        Self::GodwitFromGct,
        Self::GctFromGodwit,
        Self::Iperf3,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::GctBoth => "GCT <- GCT",
            Self::GodwitBoth => "godwit <- godwitd",
            Self::GodwitFromGct => "godwit <- GCT",
            Self::GctFromGodwit => "GCT <- godwitd",
            Self::Iperf3 => "iperf3 -R",
        }
    }
}

/// One run.
#[derive(Clone, Copy, Debug)]
struct Sample {
    goodput_bps: f64,
    /// CPU seconds per 10^9 octets.
    client_cpu: f64,
    server_cpu: f64,
}

struct Bench<'a> {
    options: &'a Options,
    folder: PathBuf,
    gct: Option<GctServer>,
    godwitd: Godwitd,
    iperf3: Option<Iperf3Server>,
}

/// Measures and prints.
///
/// # Errors
/// A contender that is installed fails, or a file cannot be made. Contenders that are not installed are left out, and it is said.
pub fn run(options: &Options, out: &mut dyn Write) -> Result<(), BenchError> {
    let folder = tempfile::Builder::new()
        .prefix("godwit-bench-")
        .tempdir_in(&options.tmpfs)
        .map_err(io_error(&options.tmpfs))?;
    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let report = |error| BenchError::Io {
        path: "report".into(),
        error,
    };
    let mut started = |name: &str, missing: String| {
        writeln!(out, "{name} is left out: {missing}").map_err(report)
    };
    let gct = match gct::available() {
        Ok(()) if options.no_peers => None,
        // Served from the root of the machine: /dev/zero must be in reach.
        Ok(()) => Some(GctServer::serving("/").ip(ip).start()?),
        Err(missing) => {
            started("GCT", missing.to_string())?;
            None
        }
    };
    let iperf3 = match iperf3::IPERF3.available() {
        Ok(_) if options.no_peers => None,
        Ok(_) => Some(Iperf3Server::start(ip)?),
        Err(missing) => {
            started("iperf3", missing.to_string())?;
            None
        }
    };
    let godwitd = Godwitd::serving("/").ip(ip).anonymous("ro").start()?;
    let bench = Bench {
        options,
        folder: folder.path().to_owned(),
        gct,
        godwitd,
        iperf3,
    };
    bench.run(out)
}

impl Bench<'_> {
    fn run(&self, out: &mut dyn Write) -> Result<(), BenchError> {
        let report = |error| BenchError::Io {
            path: "report".into(),
            error,
        };
        let rounds = if self.options.quick {
            2
        } else {
            self.options.rounds
        };
        writeln!(
            out,
            "loopback, {} processors; {rounds} rounds, interleaved; medians; \
             ratio: to GCT <- GCT of the same round, median (min..max)",
            std::thread::available_parallelism().map_or(0, usize::from)
        )
        .map_err(report)?;
        let mut json = match &self.options.json {
            Some(path) => Some(fs::File::create(path).map_err(io_error(path))?),
            None => None,
        };
        for cell in [Cell::Memory, Cell::File] {
            let name = match cell {
                Cell::Memory => "memory",
                Cell::File => "file",
            };
            if !self.is_asked_for(name) {
                continue;
            }
            let bytes = self.prepare(cell)?;
            for &p in &self.options.parallelism {
                writeln!(
                    out,
                    "\n{} to {name}, p = {p}, {:.1} GB",
                    name,
                    bytes as f64 / 1e9
                )
                .map_err(report)?;
                let mut samples: BTreeMap<Contender, Vec<Sample>> = BTreeMap::new();
                for round in 0..rounds {
                    for contender in Contender::ALL {
                        let Some(sample) = self.measure(contender, cell, p, bytes)? else {
                            continue;
                        };
                        if let Some(file) = &mut json {
                            writeln!(
                                file,
                                r#"{{"cell":"{name}","parallelism":{p},"round":{round},"contender":"{}","bytes":{bytes},"goodput_bps":{:.0},"client_cpu_s_per_gb":{:.4},"server_cpu_s_per_gb":{:.4}}}"#,
                                contender.name(),
                                sample.goodput_bps,
                                sample.client_cpu,
                                sample.server_cpu
                            )
                            .map_err(report)?;
                        }
                        samples.entry(contender).or_default().push(sample);
                    }
                }
                print_cell(out, &samples).map_err(report)?;
            }
        }
        if self.is_asked_for("guarded") {
            // What protects takes longer than what moves.
            let bytes = [self.memory_bytes() / 4, self.prepare(Cell::File)?];
            let [source, target] = ["source", "target"].map(|name| self.folder.join(name));
            let guarded = guarded::Guarded::start(self.options, source, target)?;
            guarded.run(rounds, bytes, out, json.as_mut())?;
        }
        if self.is_asked_for("small") {
            let small = small::Small::start(self.options, &self.folder)?;
            small.run(rounds, out, json.as_mut())?;
        }
        Ok(())
    }

    fn scale(&self) -> u64 {
        if self.options.quick { 4 } else { 1 }
    }

    fn memory_bytes(&self) -> u64 {
        self.options.memory_gb * 1_000_000_000 / self.scale()
    }

    fn is_asked_for(&self, name: &str) -> bool {
        let only = self.options.only.as_ref();
        only.is_none_or(|only| name.contains(only.as_str()))
    }

    /// Makes the source and touches the pages that a target will need; how many octets move.
    fn prepare(&self, cell: Cell) -> Result<u64, BenchError> {
        match cell {
            Cell::Memory => Ok(self.memory_bytes()),
            Cell::File => {
                let bytes = self.options.file_gb * 1_000_000_000 / self.scale();
                for name in ["source", "touched"] {
                    let path = self.folder.join(name);
                    let mut file = fs::File::create(&path).map_err(io_error(&path))?;
                    let block: Vec<u8> = (0..1_000_000u32).map(|i| (i % 251) as u8).collect();
                    for _ in 0..bytes / 1_000_000 {
                        file.write_all(&block).map_err(io_error(&path))?;
                    }
                }
                let touched = self.folder.join("touched");
                fs::remove_file(&touched).map_err(io_error(&touched))?;
                Ok(bytes / 1_000_000 * 1_000_000)
            }
        }
    }

    fn measure(
        &self,
        contender: Contender,
        cell: Cell,
        p: u16,
        bytes: u64,
    ) -> Result<Option<Sample>, BenchError> {
        let source = match cell {
            Cell::Memory => "/dev/zero".to_owned(),
            Cell::File => self.folder.join("source").display().to_string(),
        };
        let target = match cell {
            Cell::Memory => PathBuf::from("/dev/null"),
            Cell::File => self.folder.join("target"),
        };
        let godwitd_url = format!(
            "{}/{}",
            self.godwitd.url("").trim_end_matches('/'),
            source.trim_start_matches('/')
        );
        let gct_url = self.gct.as_ref().map(|s| s.machine_url(&source));
        let before_gct = self.gct.as_ref().map(GctServer::usage);
        let before_godwitd = self.godwitd.usage();
        let client = match (contender, gct_url) {
            (Contender::GctBoth, Some(url)) | (Contender::GodwitFromGct, Some(url)) => fetch(
                contender == Contender::GctBoth,
                &url,
                &target,
                cell,
                p,
                bytes,
            )?,
            (Contender::GodwitBoth, _) => fetch(false, &godwitd_url, &target, cell, p, bytes)?,
            (Contender::GctFromGodwit, Some(_)) => {
                fetch(true, &godwitd_url, &target, cell, p, bytes)?
            }
            (Contender::Iperf3, _) => return self.measure_iperf3(cell, p),
            (_, None) => return Ok(None),
        };
        let server = match (contender, &self.gct, before_gct) {
            (Contender::GctBoth | Contender::GodwitFromGct, Some(server), Some(before)) => {
                server.usage().since(&before)
            }
            _ => self.godwitd.usage().since(&before_godwitd),
        };
        if cell == Cell::File {
            let length = fs::metadata(&target).map_err(io_error(&target))?.len();
            if length != bytes {
                let error = std::io::Error::other(format!("{length} octets arrived of {bytes}"));
                return Err(BenchError::Io {
                    path: target.display().to_string(),
                    error,
                });
            }
            fs::remove_file(&target).map_err(io_error(&target))?;
        }
        let gb = bytes as f64 / 1e9;
        Ok(Some(Sample {
            goodput_bps: bytes as f64 * 8.0 / client.usage.wall.as_secs_f64(),
            client_cpu: client.usage.cpu().as_secs_f64() / gb,
            server_cpu: server.cpu().as_secs_f64() / gb,
        }))
    }

    fn measure_iperf3(&self, cell: Cell, p: u16) -> Result<Option<Sample>, BenchError> {
        let (Some(server), Cell::Memory) = (&self.iperf3, cell) else {
            return Ok(None);
        };
        let seconds = if self.options.quick { 1 } else { 4 };
        let before = server.process().usage();
        let test = Iperf3Test {
            streams: p,
            seconds,
            reverse: true,
            ..Iperf3Test::default()
        };
        let report = test.run(server.addr())?;
        let gb = report.goodput_bps / 8e9 * f64::from(seconds);
        Ok(Some(Sample {
            goodput_bps: report.goodput_bps,
            client_cpu: report.client.cpu().as_secs_f64() / gb,
            server_cpu: server.process().usage().since(&before).cpu().as_secs_f64() / gb,
        }))
    }
}

/// One download, from start to end of the client's process. Nobody verifies: GCT's client does not by default.
fn fetch(
    gct: bool,
    url: &str,
    target: &Path,
    cell: Cell,
    p: u16,
    bytes: u64,
) -> Result<Finished, BenchError> {
    let (p, length) = (p.to_string(), bytes.to_string());
    let mut command;
    if gct {
        command = gct::URL_COPY.command().map_err(Error::from)?;
        command.args(["-p", &p]);
        if cell == Cell::Memory {
            command.args(["-len", &length]);
        }
        command.arg(url).arg(format!("file://{}", target.display()));
    } else {
        command = Command::new(godwit::binary("godwit").map_err(Error::from)?);
        command.args(["cp", "--quiet", "--no-verify", "-p", &p]);
        if cell == Cell::Memory {
            command.args(["--length", &length]);
        }
        command.arg(url).arg(target);
    }
    Ok(process::run(command, RUN_LIMIT)?.success()?)
}

fn print_cell(
    out: &mut dyn Write,
    samples: &BTreeMap<Contender, Vec<Sample>>,
) -> std::io::Result<()> {
    writeln!(
        out,
        "  {:<20} {:>8}  {:>20}  {:>10}  {:>10}",
        "", "Gbit/s", "ratio", "client", "server"
    )?;
    let base = samples.get(&Contender::GctBoth);
    for (contender, runs) in samples {
        let ratios = base.map(|base| {
            let mut ratios: Vec<f64> = runs
                .iter()
                .zip(base)
                .map(|(a, b)| a.goodput_bps / b.goodput_bps)
                .collect();
            ratios.sort_by(f64::total_cmp);
            ratios
        });
        let ratio = ratios
            .filter(|r| !r.is_empty())
            .map_or("-".to_owned(), |r| {
                format!("{:.2} ({:.2}..{:.2})", median(&r), r[0], r[r.len() - 1])
            });
        let of = |pick: fn(&Sample) -> f64| {
            let mut values: Vec<f64> = runs.iter().map(pick).collect();
            values.sort_by(f64::total_cmp);
            median(&values)
        };
        writeln!(
            out,
            "  {:<20} {:>8.2}  {:>20}  {:>5.3} s/GB  {:>5.3} s/GB",
            contender.name(),
            of(|s| s.goodput_bps) / 1e9,
            ratio,
            of(|s| s.client_cpu),
            of(|s| s.server_cpu)
        )?;
    }
    out.flush()
}

/// Of sorted values; 0 for none.
fn median(sorted: &[f64]) -> f64 {
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[1.0, 2.0, 9.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), 3.0);
    }
}

//! The cells of protected data channels: a grid of our own, PROT S and PROT P, godwit both ends beside GCT both ends.
//!
//! The limit, on paper: each octet is encrypted once and decrypted once, and both ends share this machine's processors. So
//! goodput cannot pass half of what all processors encrypt together, which `openssl speed` tells; copies by the kernel come on top.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    process::Command,
};

use super::{BenchError, Options, RUN_LIMIT, Sample, io_error, median};
use crate::peers::{
    Error,
    gct::{self, GctServer},
    godwit::{self, Godwitd},
    grid::{self, Grid},
    process,
};

/// Parallel channels.
const CHANNELS: &str = "4";

/// Octets that `openssl speed` encrypts at a time: those of a record.
const RECORD_OCTETS: &str = "16384";

/// What protects data.
#[derive(Clone, Copy)]
struct Level {
    name: &'static str,
    gct: &'static str,
}

const LEVELS: [Level; 2] = [
    Level {
        name: "integrity",
        gct: "-dcsafe",
    },
    Level {
        name: "private",
        gct: "-dcpriv",
    },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ends {
    Gct,
    Godwit,
}

impl Ends {
    fn name(self) -> &'static str {
        match self {
            Self::Gct => "GCT <- GCT",
            Self::Godwit => "godwit <- godwitd",
        }
    }
}

/// Servers of the cells.
pub(super) struct Guarded {
    target: PathBuf,
    source: PathBuf,
    grid: Grid,
    godwitd: Godwitd,
    gct: Option<GctServer>,
}

impl Guarded {
    /// Makes a grid and starts its servers. `source` and `target` are files of the cell that moves files.
    pub(super) fn start(
        options: &Options,
        source: PathBuf,
        target: PathBuf,
    ) -> Result<Self, BenchError> {
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        grid::available().map_err(Error::from)?;
        let grid = Grid::new(&[ip])?;
        let peers = !options.no_peers && gct::available().is_ok();
        Ok(Self {
            target,
            source,
            godwitd: grid.of_godwitd(Godwitd::serving("/").ip(ip)).start()?,
            gct: match peers {
                true => Some(grid.of_gct(GctServer::serving("/").ip(ip)).start()?),
                false => None,
            },
            grid,
        })
    }

    /// Measures and prints; every single measurement goes to `json`. `bytes`: of memory, of the file.
    pub(super) fn run(
        &self,
        rounds: u32,
        bytes: [u64; 2],
        out: &mut dyn Write,
        mut json: Option<&mut fs::File>,
    ) -> Result<(), BenchError> {
        let report = |error| BenchError::Io {
            path: "report".into(),
            error,
        };
        let limits = ["aes-128-gcm", "aes-256-gcm"].map(|cipher| (cipher, both_ways_bps(cipher)));
        for (cell, bytes) in ["memory", "file"].into_iter().zip(bytes) {
            for level in LEVELS {
                let gb = bytes as f64 / 1e9;
                let title = format!(
                    "{cell} to {cell}, {}, p = {CHANNELS}, {gb:.1} GB",
                    level.name
                );
                writeln!(out, "\nguarded: {title}").map_err(report)?;
                let mut samples: BTreeMap<Ends, Vec<Sample>> = BTreeMap::new();
                for round in 0..rounds {
                    for ends in [Ends::Gct, Ends::Godwit] {
                        let Some(sample) = self.measure(ends, cell, level, bytes)? else {
                            continue;
                        };
                        if let Some(file) = &mut json {
                            writeln!(
                                file,
                                r#"{{"cell":"guarded-{cell}","protect":"{}","round":{round},"contender":"{}","bytes":{bytes},"goodput_bps":{:.0},"client_cpu_s_per_gb":{:.4},"server_cpu_s_per_gb":{:.4}}}"#,
                                level.name,
                                ends.name(),
                                sample.goodput_bps,
                                sample.client_cpu,
                                sample.server_cpu
                            )
                            .map_err(report)?;
                        }
                        samples.entry(ends).or_default().push(sample);
                    }
                }
                print(out, &samples, &limits).map_err(report)?;
            }
        }
        Ok(())
    }

    fn measure(
        &self,
        ends: Ends,
        cell: &str,
        level: Level,
        bytes: u64,
    ) -> Result<Option<Sample>, BenchError> {
        let memory = cell == "memory";
        let (source, target) = match memory {
            true => (PathBuf::from("/dev/zero"), PathBuf::from("/dev/null")),
            false => (self.source.clone(), self.target.clone()),
        };
        let source = source.display().to_string();
        let length = bytes.to_string();
        let usage = || match (ends, &self.gct) {
            (Ends::Gct, Some(server)) => server.usage(),
            _ => self.godwitd.usage(),
        };
        let mut command = match (ends, &self.gct) {
            (Ends::Gct, None) => return Ok(None),
            (Ends::Gct, Some(server)) => {
                let mut command = gct::URL_COPY.command().map_err(Error::from)?;
                command.args(["-p", CHANNELS, "-s", grid::HOST_SUBJECT, level.gct]);
                if memory {
                    command.args(["-len", &length]);
                }
                command.arg(guarded(&server.machine_url(&source)));
                command.arg(format!("file://{}", target.display()));
                command
            }
            (Ends::Godwit, _) => {
                let binary = godwit::binary("godwit").map_err(Error::from)?;
                let mut command = Command::new(binary);
                command.args(["cp", "--quiet", "--no-verify", "-p", CHANNELS]);
                command.args(["--protect", level.name]);
                if memory {
                    command.args(["--length", &length]);
                }
                command
                    .arg(guarded(&self.godwitd.url(&source)))
                    .arg(&target);
                command
            }
        };
        command.envs(self.grid.of_user());
        let before = usage();
        let client = process::run(command, RUN_LIMIT)?.success()?;
        let server = usage().since(&before);
        if !memory {
            let length = fs::metadata(&target).map_err(io_error(&target))?.len();
            if length != bytes {
                let error = std::io::Error::other(format!("{length} octets arrived of {bytes}"));
                return Err(io_error(&target)(error));
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
}

/// The same by an identity.
fn guarded(url: &str) -> String {
    url.replacen("ftp://", "gsiftp://", 1)
}

/// What all processors of this machine can encrypt and decrypt again, bit/s; `None` where nobody tells.
fn both_ways_bps(cipher: &str) -> Option<f64> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let arguments = ["speed", "-seconds", "1", "-bytes", RECORD_OCTETS, "-multi"];
    let processors = processors.to_string();
    let arguments = arguments
        .into_iter()
        .chain([processors.as_str(), "-evp", cipher]);
    let finished = grid::OPENSSL.run(arguments).ok()?.success().ok()?;
    Some(encrypted_per_second(&finished.stdout_text())? * 8.0 / 2.0)
}

/// Octets a second, from the last line of `openssl speed`: `AES-128-GCM     9876543.21k`.
fn encrypted_per_second(text: &str) -> Option<f64> {
    let last = text.lines().rfind(|line| !line.trim().is_empty())?;
    let thousands = last.split_whitespace().last()?.strip_suffix('k')?;
    Some(thousands.parse::<f64>().ok()? * 1e3)
}

fn print(
    out: &mut dyn Write,
    samples: &BTreeMap<Ends, Vec<Sample>>,
    limits: &[(&str, Option<f64>)],
) -> std::io::Result<()> {
    writeln!(
        out,
        "  {:<20} {:>8}  {:>20}  {:>10}  {:>10}",
        "", "Gbit/s", "ratio", "client", "server"
    )?;
    let base = samples.get(&Ends::Gct);
    let sorted = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values
    };
    let of = |runs: &[Sample], pick: fn(&Sample) -> f64| {
        median(&sorted(runs.iter().map(pick).collect()))
    };
    for (ends, runs) in samples {
        let pairs = base.into_iter().flatten().zip(runs);
        let ratios = sorted(
            pairs
                .map(|(base, run)| run.goodput_bps / base.goodput_bps)
                .collect(),
        );
        let ratio = match ratios.as_slice() {
            [] => "-".to_owned(),
            all => format!(
                "{:.2} ({:.2}..{:.2})",
                median(all),
                all[0],
                all[all.len() - 1]
            ),
        };
        writeln!(
            out,
            "  {:<20} {:>8.2}  {ratio:>20}  {:>5.3} s/GB  {:>5.3} s/GB",
            ends.name(),
            of(runs, |s| s.goodput_bps) / 1e9,
            of(runs, |s| s.client_cpu),
            of(runs, |s| s.server_cpu)
        )?;
    }
    let ours = samples
        .get(&Ends::Godwit)
        .map(|runs| of(runs, |s| s.goodput_bps));
    for (cipher, limit) in limits {
        if let (Some(limit), Some(ours)) = (limit, ours) {
            writeln!(
                out,
                "  {cipher} both ways     {:>8.2}  godwit has {:.0} % of it",
                limit / 1e9,
                ours / limit * 100.0
            )?;
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_openssl_says_is_read() {
        let text = "version: 3.0.17\nThe 'numbers' are in 1000s of bytes per second processed.\n\
                    type          16384 bytes\nAES-128-GCM   9876543.21k\n";
        assert_eq!(encrypted_per_second(text), Some(9_876_543_210.0));
        assert_eq!(encrypted_per_second("speed: unknown option\n"), None);
        assert_eq!(encrypted_per_second(""), None);
    }
}

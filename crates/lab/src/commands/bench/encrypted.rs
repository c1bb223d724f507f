//! Benchmark cells of protected data channels: PROT S and PROT P in a test grid, godwit at both
//! ends beside GCT at both ends.
//!
//! The limit, on paper: each byte is encrypted once and decrypted once, and both ends share this
//! machine's processors. So goodput cannot exceed half of what all processors encrypt together.
//! `openssl speed` measures that for OpenSSL's ciphers, which the peers use; ring's, which our data
//! channels use, are up to twice as fast. Copies by the kernel come on top.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::Path,
};

use super::{
    BenchError, RUN_LIMIT,
    files::{Files, check_and_remove, run_with_room},
    godwit_cp,
    record::{BenchCell, RunResult},
    testbed::{Testbed, goodput_cell, of_transfer},
};
use crate::peers::{
    Error,
    gct::{self, GctServer},
    godwit::Godwitd,
    grid::{self, Grid},
};

/// Parallel channels.
const CHANNELS: &str = "4";

/// Bytes that `openssl speed` encrypts at a time: those of a record.
const RECORD_BYTES: &str = "16384";

/// What protects data.
#[derive(Clone, Copy)]
struct ProtectionLevel {
    name: &'static str,
    gct: &'static str,
}

const LEVELS: [ProtectionLevel; 2] = [
    ProtectionLevel {
        name: "integrity",
        gct: "-dcsafe",
    },
    ProtectionLevel {
        name: "private",
        gct: "-dcpriv",
    },
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum ServerPair {
    Gct,
    Godwit,
}

impl ServerPair {
    fn name(self) -> &'static str {
        match self {
            Self::Gct => "GCT <- GCT",
            Self::Godwit => "godwit <- godwitd",
        }
    }
}

/// Servers of the cells.
pub(super) struct Encrypted {
    grid: Grid,
    godwitd: Godwitd,
    gct: Option<GctServer>,
}

impl Encrypted {
    /// Makes a grid and starts its servers.
    pub(super) fn start(testbed: &Testbed<'_>) -> Result<Self, BenchError> {
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        grid::available().map_err(Error::from)?;
        let grid = Grid::new(&[ip])?;
        let peers = !testbed.options.no_peers && gct::available().is_ok();
        Ok(Self {
            godwitd: grid.of_godwitd(Godwitd::serving("/").ip(ip)).start()?,
            gct: match peers {
                true => Some(grid.of_gct(GctServer::serving("/").ip(ip)).start()?),
                false => None,
            },
            grid,
        })
    }

    pub(super) fn run(
        &self,
        testbed: &mut Testbed<'_>,
        files: &mut Files,
    ) -> Result<(), BenchError> {
        let limits = ["aes-128-gcm", "aes-256-gcm"].map(|cipher| {
            let name = format!("{cipher} both ways on all processors");
            both_ways_bps(cipher).map(|bps| (name, bps / 1e9))
        });
        // What protects takes longer than what moves.
        let memory = testbed.options.memory_gb * 250_000_000 / testbed.scale();
        for kind in ["memory", "file"] {
            for level in LEVELS {
                let name = format!("guarded/{kind}/{}", level.name);
                if !testbed.is_asked_for(&name) {
                    continue;
                }
                let (source, target, bytes) = match kind {
                    "memory" => (
                        Path::new("/dev/zero").to_owned(),
                        "/dev/null".into(),
                        memory,
                    ),
                    _ => (
                        files.source(testbed)?.to_owned(),
                        files.target(),
                        files.bytes(testbed),
                    ),
                };
                let title = format!(
                    "{kind} to {kind}, {}, {CHANNELS} channels, {:.1} GB",
                    level.name,
                    bytes as f64 / 1e9
                );
                let cell = BenchCell {
                    bounds: limits.iter().flatten().cloned().collect(),
                    ..goodput_cell(name, title, ServerPair::Godwit.name())
                };
                let all = [ServerPair::Gct, ServerPair::Godwit]
                    .map(|ends| (ends, ends.name().to_owned()));
                let there = match self.gct {
                    Some(_) => &all[..],
                    None => &all[1..],
                };
                testbed.compare(cell, there, |ends| {
                    self.measure(*ends, level, &source, &target, bytes)
                })?;
            }
        }
        Ok(())
    }

    fn measure(
        &self,
        ends: ServerPair,
        level: ProtectionLevel,
        source: &Path,
        target: &Path,
        bytes: u64,
    ) -> Result<RunResult, BenchError> {
        let memory = target == Path::new("/dev/null");
        let source = source.display().to_string();
        let length = bytes.to_string();
        let usage = || match (ends, &self.gct) {
            (ServerPair::Gct, Some(server)) => server.usage(),
            _ => self.godwitd.usage(),
        };
        let mut command = match (ends, &self.gct) {
            (ServerPair::Gct, Some(server)) => {
                let mut command = gct::URL_COPY.command().map_err(Error::from)?;
                command.args(["-p", CHANNELS, "-s", grid::HOST_SUBJECT, level.gct]);
                if memory {
                    command.args(["-len", &length]);
                }
                command.arg(encrypted_url(&server.machine_url(&source)));
                command.arg(format!("file://{}", target.display()));
                command
            }
            _ => {
                let mut command = godwit_cp()?;
                command.args(["-p", CHANNELS, "--protect", level.name]);
                if memory {
                    command.args(["--length", &length]);
                }
                command
                    .arg(encrypted_url(&self.godwitd.url(&source)))
                    .arg(target);
                command
            }
        };
        command.envs(self.grid.of_user());
        let before = usage();
        let room = if memory { 0 } else { bytes };
        let client = run_with_room(command, room, RUN_LIMIT)?;
        let server = usage().since(&before);
        if !memory {
            check_and_remove(target, bytes)?;
        }
        Ok(of_transfer(bytes, client.usage, server))
    }
}

/// The same by an identity.
fn encrypted_url(url: &str) -> String {
    url.replacen("ftp://", "gsiftp://", 1)
}

/// What all processors of this machine can encrypt and decrypt again, bit/s; `None` where it
/// is not known.
fn both_ways_bps(cipher: &str) -> Option<f64> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let arguments = ["speed", "-seconds", "1", "-bytes", RECORD_BYTES, "-multi"];
    let processors = processors.to_string();
    let arguments = arguments
        .into_iter()
        .chain([processors.as_str(), "-evp", cipher]);
    let finished = grid::OPENSSL.run(arguments).ok()?.success().ok()?;
    Some(encrypted_per_second(&finished.stdout_text())? * 8.0 / 2.0)
}

/// Bytes a second, from the last line of `openssl speed`: `AES-128-GCM     9876543.21k`.
fn encrypted_per_second(text: &str) -> Option<f64> {
    let last = text.lines().rfind(|line| !line.trim().is_empty())?;
    let thousands = last.split_whitespace().last()?.strip_suffix('k')?;
    Some(thousands.parse::<f64>().ok()? * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_openssl_is_read() {
        let text = "version: 3.0.17\nThe 'numbers' are in 1000s of bytes per second processed.\n\
                    type          16384 bytes\nAES-128-GCM   9876543.21k\n";
        assert_eq!(encrypted_per_second(text), Some(9_876_543_210.0));
        assert_eq!(encrypted_per_second("speed: unknown option\n"), None);
        assert_eq!(encrypted_per_second(""), None);
    }
}

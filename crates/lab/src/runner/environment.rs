//! The machine and the programs that results were made with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::peers::{Missing, gct, godwit, http, iperf3, plain_ftp, s3, ssh, tar};
use crate::scenario::{Client, Scenario, Server};

/// Kept beside the results, `environment.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Name of the scenario.
    pub scenario: String,
    /// When it began, UTC: `2026-01-31 12:00:00`.
    pub began: String,
    /// The command line.
    pub command: String,
    /// Whether it is the quick variant.
    pub quick: bool,
    /// Version of the lab.
    pub lab: String,
    /// Release of the kernel.
    pub kernel: String,
    /// Model of the processors.
    pub processor: String,
    /// How many there are.
    pub processors: usize,
    /// Memory, GB (10^9 bytes).
    pub memory_gb: f64,
    /// Programs and their versions.
    pub programs: Vec<(String, String)>,
    /// Congestion controls that the kernel has.
    pub congestion_controls: String,
    /// The default one; empty in results that did not record it.
    #[serde(default)]
    pub congestion_control: String,
    /// Whether the kernel shares processors by session (`kernel.sched_autogroup_enabled`); `None`
    /// where it cannot.
    #[serde(default)]
    pub autogroups: Option<bool>,
}

impl Environment {
    /// As it is now, with the programs of a scenario.
    pub fn now(name: &str, quick: bool, scenario: &Scenario) -> Environment {
        Environment::with(name, quick, programs(scenario))
    }

    /// As it is now, with our programs and the Grid Community Toolkit's server.
    pub fn of_ours(name: &str, quick: bool) -> Environment {
        let programs = [
            ("godwit", godwit::binary("godwit")),
            ("godwitd", godwit::binary("godwitd")),
            ("globus-gridftp-server", gct::SERVER.available()),
        ];
        Environment::of_programs(name, quick, programs)
    }

    /// As it is now, with those of these programs that are there.
    pub fn of_programs(
        name: &str,
        quick: bool,
        programs: impl IntoIterator<Item = (&'static str, Result<PathBuf, Missing>)>,
    ) -> Environment {
        let there = programs.into_iter().filter_map(|(name, path)| {
            let version = version_of(name, &path.ok()?);
            Some((name.to_owned(), version))
        });
        Environment::with(name, quick, there.collect())
    }

    fn with(name: &str, quick: bool, programs: Vec<(String, String)>) -> Environment {
        let read = |path: &str| {
            let text = fs::read_to_string(path).unwrap_or_default();
            text.trim().to_owned()
        };
        let field = |text: &str, name: &str| {
            text.lines()
                .find(|line| line.starts_with(name))
                .and_then(|line| Some(line.split_once(':')?.1.trim().to_owned()))
                .unwrap_or_default()
        };
        let memory_kib: f64 = field(&read("/proc/meminfo"), "MemTotal")
            .trim_end_matches(" kB")
            .parse()
            .unwrap_or(0.0);
        Environment {
            scenario: name.to_owned(),
            began: jiff::Timestamp::now().strftime("%F %T").to_string(),
            command: command(),
            quick,
            lab: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: read("/proc/sys/kernel/osrelease"),
            processor: field(&read("/proc/cpuinfo"), "model name"),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            memory_gb: (memory_kib * 1.024e-6 * 10.0).round() / 10.0,
            programs,
            congestion_controls: read("/proc/sys/net/ipv4/tcp_available_congestion_control"),
            congestion_control: read("/proc/sys/net/ipv4/tcp_congestion_control"),
            autogroups: match read("/proc/sys/kernel/sched_autogroup_enabled").as_str() {
                "0" => Some(false),
                "1" => Some(true),
                _ => None,
            },
        }
    }
}

fn programs(scenario: &Scenario) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for method in &scenario.method {
        let server = match method.server {
            Server::Godwitd | Server::GodwitdHttps => ("godwitd", godwit::binary("godwitd")),
            Server::GlobusGridftpServer => ("globus-gridftp-server", gct::SERVER.available()),
            Server::Versitygw => ("versitygw", s3::Kind::Versitygw.available()),
            Server::Sshd => ("ssh", ssh::SSH.available()),
            Server::Iperf3 => ("iperf3", iperf3::IPERF3.available()),
            Server::Tar => ("tar", tar::TAR.available()),
        };
        let client = match method.client {
            Client::Godwit => ("godwit", godwit::binary("godwit")),
            Client::GlobusUrlCopy => ("globus-url-copy", gct::URL_COPY.available()),
            Client::Iperf3 => ("iperf3", iperf3::IPERF3.available()),
            Client::Curl => ("curl", plain_ftp::CURL.available()),
            Client::Tnftp => ("tnftp", plain_ftp::TNFTP.available()),
            Client::Ncftp => ("ncftpget", plain_ftp::NCFTPGET.available()),
            Client::Scp => ("ssh", ssh::SSH.available()),
            Client::Lftp => ("lftp", plain_ftp::LFTP.available()),
            Client::Rclone => ("rclone", plain_ftp::RCLONE.available()),
            Client::Davix => ("davix-get", http::DAVIX_GET.available()),
            Client::Aria2 => ("aria2c", http::ARIA2.available()),
            Client::Boto3 => ("boto3", s3::python_with_boto3()),
            Client::Tar => ("tar", tar::TAR.available()),
        };
        for (name, path) in [client, server] {
            if found.iter().any(|(known, _)| known == name) {
                continue;
            }
            let Ok(path) = path else { continue };
            let version = version_of(name, &path);
            found.push((name.to_owned(), version));
        }
    }
    found
}

/// What a program says of its version, its first line.
fn version_of(name: &str, path: &Path) -> String {
    let mut command = Command::new(path);
    match name {
        "ssh" => command.arg("-V"),
        "nginx" => command.arg("-v"),
        // It does not say it.
        "tnftp" => {
            command = Command::new("dpkg-query");
            command.args(["--show", "--showformat=${Version}", name])
        }
        _ if name.starts_with("globus") => command.arg("-version"),
        _ => command.arg("--version"),
    };
    command.output().map_or_else(
        |error| error.to_string(),
        |output| {
            // GCT's programs say it on standard error.
            let all = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&all).into_owned();
            text.lines().next().unwrap_or_default().trim().to_owned()
        },
    )
}

/// The command line, without the folder that the program happens to lie in.
fn command() -> String {
    let mut words = std::env::args();
    let program = words.next().unwrap_or_default();
    let name = Path::new(&program).file_name().map_or_else(
        || program.clone(),
        |name| name.to_string_lossy().into_owned(),
    );
    std::iter::once(name)
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}

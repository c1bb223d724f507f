//! `godwit-lab bench`: compares godwit with other programs (contenders) in interleaved rounds of
//! one run.
//!
//! The machines are shared and noisy, so every contender runs once in each round, and beside each
//! median stands the ratio **within the same round**, median and range. Every run is written to a
//! file of JSON lines; the page in docs/results is made from such files alone.

mod buckets;
mod encrypted;
mod files;
mod https;
mod logins;
mod other_protocols;
mod page;
mod plaintext;
mod record;
mod scale;
mod service;
mod small;
mod testbed;
mod unauthenticated;

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use clap::{Args, value_parser};

use self::{files::Files, record::Line, testbed::Testbed};
use crate::file_error::{FileError, io_error};
use crate::{
    peers::{Error, gct, godwit, http, iperf3, plain_ftp, s3, service::ServiceError, ssh, xrootd},
    runner::Environment,
    service_load::LoadError,
    state::RunDir,
};

/// What to measure.
#[derive(Debug, Args)]
pub struct Options {
    /// Rounds; each contender runs once a round
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Two rounds and a quarter of the bytes: shows the shape, not the truth
    #[arg(long)]
    pub quick: bool,
    /// Parallel channels to measure
    #[arg(short, long, value_delimiter = ',', default_values_t = [1, 4, 16, 64])]
    pub parallelism: Vec<u16>,
    /// GB (10^9 bytes) of a memory-to-memory run
    #[arg(long, default_value_t = 16)]
    pub memory_gb: u64,
    /// GB (10^9 bytes) of a file-to-file run; source and target lie on tmpfs
    #[arg(long, default_value_t = 1)]
    pub file_gb: u64,
    /// Small files of a run; a million takes 10 GB of memory
    #[arg(long, default_value_t = 20_000, value_parser = value_parser!(u32).range(1..=2_000_000))]
    pub files: u32,
    /// Bytes of a small file
    #[arg(long, value_delimiter = ',', default_values_t = [1000, 10_000])]
    pub file_bytes: Vec<u64>,
    /// Of the transfer service.
    #[command(flatten)]
    pub service: Box<service::ServiceSize>,
    /// After each cell of small files, also show where the processors spent their time (needs perf)
    #[arg(long)]
    pub profile: bool,
    /// Leave other programs out
    #[arg(long)]
    pub no_peers: bool,
    /// Only cells with one of these names, or below it: memory/P, file/P, channels,
    /// guarded/memory/..., guarded/file/..., https/get, https/put, s3/get, s3/put, peers/clear,
    /// peers/encrypted, logins/KEYS/..., scale, strangers, small/get/..., small/put/...,
    /// service/DATABASE/..., service/cost/...
    #[arg(long, value_delimiter = ',', value_name = "CELL")]
    pub only: Vec<String>,
    /// Not the cells with one of these names, or below it
    #[arg(long, value_delimiter = ',', value_name = "CELL")]
    pub skip: Vec<String>,
    /// TCP congestion control of everybody who does not choose one, instead of the machine's; put
    /// back in the end (needs root)
    #[arg(long, value_name = "NAME")]
    pub congestion: Option<String>,
    /// Folder for the files; must be on tmpfs to measure what the cells are called
    #[arg(long, default_value = "/dev/shm")]
    pub tmpfs: PathBuf,
    /// Also write every single measurement to this file, JSON lines
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also write a page of it, Markdown
    #[arg(long, value_name = "FILE")]
    pub page: Option<PathBuf>,
    /// Measure nothing: the page is of these files of measurements; of a cell that several have the
    /// last is taken
    #[arg(long, value_name = "FILE", requires = "page")]
    pub from: Vec<PathBuf>,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A contender failed.
    #[error(transparent)]
    Peer(#[from] Error),
    /// The transfer service did not stand its load.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The transfer service did not start.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// A file could not be made or the report not be written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Our client, which copies and nothing else: it compares nothing, and neither knows of other
/// copies nor of earlier ones.
fn godwit_cp() -> Result<Command, Error> {
    let mut command = Command::new(godwit::binary("godwit")?);
    command.args(["cp", "--quiet", "--no-verify"]);
    command.args(["--alone", "--no-path-memory"]);
    Ok(command)
}

/// What connections have unless a program chooses.
const DEFAULT_CONGESTION_CONTROL: &str = "net.ipv4.tcp_congestion_control";

/// Longest single run.
const RUN_LIMIT: Duration = Duration::from_secs(300);

/// Measures, prints, and writes what was asked for.
///
/// # Errors
/// One of our programs fails, or a file cannot be made or read. Programs of others that fail or are
/// not installed are left out, and it is said.
pub fn run(options: &Options, out: &mut dyn Write) -> Result<(), BenchError> {
    let lines = match options.from.as_slice() {
        [] => measure(options, out)?,
        files => read(files)?,
    };
    if let Some(path) = &options.page {
        fs::write(path, page::markdown(&lines)).map_err(io_error(path))?;
    }
    Ok(())
}

fn measure(options: &Options, out: &mut dyn Write) -> Result<Vec<Line>, BenchError> {
    let _chosen = options.congestion.as_deref().map(choose).transpose()?;
    let folder = tempfile::Builder::new()
        .prefix("godwit-bench-")
        .tempdir_in(&options.tmpfs)
        .map_err(io_error(&options.tmpfs))?;
    let mut files = Files::new(folder.path());
    let mut testbed = Testbed::new(options, out, machine(options))?;
    if ["memory", "file", "channels"]
        .iter()
        .any(|family| testbed.may_ask_for(family))
    {
        plaintext::Plaintext::start(&mut testbed)?.run(&mut testbed, &mut files)?;
    }
    if testbed.may_ask_for("guarded") {
        encrypted::Encrypted::start(&testbed)?.run(&mut testbed, &mut files)?;
    }
    if testbed.may_ask_for("https") {
        https::run(&mut testbed, &mut files, folder.path())?;
    }
    if testbed.may_ask_for("s3") && !options.no_peers {
        buckets::run(&mut testbed, &mut files, folder.path())?;
    }
    if testbed.may_ask_for("peers") {
        other_protocols::run(&mut testbed, &mut files, folder.path())?;
    }
    logins::run(&mut testbed)?;
    scale::run(&mut testbed)?;
    unauthenticated::run(&mut testbed)?;
    if testbed.may_ask_for("small") {
        small::Small::start(&testbed, folder.path())?.run(&mut testbed)?;
    }
    if testbed.may_ask_for("service") {
        service::run(&mut testbed, &mut files, folder.path())?;
    }
    Ok(testbed.into_lines())
}

/// Chooses the congestion control of the machine until what is returned is dropped.
fn choose(congestion_control: &str) -> Result<RunDir, BenchError> {
    let run = RunDir::create().map_err(io_error(Path::new("state of the lab")))?;
    run.change_setting(DEFAULT_CONGESTION_CONTROL, |present| {
        (present != congestion_control).then(|| congestion_control.to_owned())
    })
    .map_err(io_error(Path::new(DEFAULT_CONGESTION_CONTROL)))?;
    Ok(run)
}

/// Measurements of earlier runs.
fn read(files: &[PathBuf]) -> Result<Vec<Line>, BenchError> {
    let mut lines = Vec::new();
    for path in files {
        let text = fs::read_to_string(path).map_err(io_error(path))?;
        for line in text.lines() {
            let line = serde_json::from_str(line).map_err(std::io::Error::from);
            lines.push(line.map_err(io_error(path))?);
        }
    }
    Ok(lines)
}

fn machine(options: &Options) -> Environment {
    let ours = [
        ("godwit", godwit::binary("godwit")),
        ("godwitd", godwit::binary("godwitd")),
    ];
    let peers = [
        ("globus-gridftp-server", gct::SERVER.available()),
        ("globus-url-copy", gct::URL_COPY.available()),
        ("iperf3", iperf3::IPERF3.available()),
        ("curl", plain_ftp::CURL.available()),
        ("lftp", plain_ftp::LFTP.available()),
        ("rclone", plain_ftp::RCLONE.available()),
        ("aria2", http::ARIA2.available()),
        ("nginx", http::NGINX.available()),
        ("versitygw", s3::Kind::Versitygw.available()),
        ("xrdcp", xrootd::XRDCP.available()),
        ("ssh", ssh::SSH.available()),
    ];
    let peers = peers.into_iter().filter(|_| !options.no_peers);
    Environment::of_programs("bench", options.quick, ours.into_iter().chain(peers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_holds_no_measurements_is_named() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("runs");
        fs::write(&path, "{}\n").expect("written");
        let error = read(&[path]).expect_err("no line of ours").to_string();
        assert!(error.contains("runs: "), "{error}");
    }
}

//! Agents with a link each, and one job over all of them.
//!
//! Each agent is a host with a path of its own to the host of the service and of a server. All see
//! one directory of sources, as data movers of a site see one parallel file system, so that every
//! byte goes over the link of the agent that sends it.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read as _, Write as _};
use std::net::IpAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use godwit_service_api::job::{JobState, JobView};
use godwit_service_api::site::AgentView;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Error;
use super::site::{ask, make_sources};
use crate::file_error::io_error;
use crate::host::HostConfig;
use crate::network::{Join, Member, Network, NetworkConfig, Paths};
use crate::path::PathConfig;
use crate::peers::godwit::Godwitd;
use crate::peers::process::Process;
use crate::peers::service::Service;
use crate::state::memory_folder;

/// Delay of each link, one way.
const DELAY_NS: u64 = 5_000_000;
/// Share of a packet of 1500 bytes that TCP carries: 20 bytes are IP's, 32 are TCP's.
const PAYLOAD_SHARE: f64 = 1448.0 / 1500.0;
/// Units at a time of an agent: while one begins, another moves.
const SLOTS: &str = "2";
/// Files of more bytes are divided, where the load is one file.
const DIVIDE_ABOVE: u64 = 8 << 20;
/// Bytes of each small file.
const SMALL_BYTES: u64 = 100_000;
/// Bytes of each large file.
const LARGE_BYTES: u64 = 10_000_000;
/// A job may take so many times as long as its links need.
const LIMIT_FACTOR: u32 = 5;
/// Time for all that is no transfer.
const MORE_LIMIT: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// What the job copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum JobLoad {
    /// Files of 10 MB.
    LargeFiles,
    /// One file, which agents divide.
    OneFile,
    /// Files of 100 KB.
    SmallFiles,
}

impl JobLoad {
    /// All of them.
    pub const ALL: [JobLoad; 3] = [JobLoad::LargeFiles, JobLoad::OneFile, JobLoad::SmallFiles];
}

/// Rate of each link, and how long it is busy.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct LinkPlan {
    /// Bits a second.
    pub rate_bps: u64,
    /// Seconds that each link would need for its part of the bytes.
    pub seconds: u64,
}

/// How long a job took.
#[derive(Debug, Clone, Serialize)]
pub struct LinkOutcome {
    /// What it copied.
    pub load: JobLoad,
    /// Agents, and links.
    pub agents: u32,
    /// Bytes of all files.
    pub bytes: u64,
    /// From the acceptance of the job to its end, by the clock of its database.
    pub seconds: f64,
    /// Of what all links together carry.
    pub share: f64,
    /// What `godwit cp` takes for the same files over the same link, where there is one.
    pub client_seconds: Option<f64>,
    /// Why the emulation is not to be trusted.
    pub unfaithful: Vec<String>,
}

/// Copies one job by so many agents.
///
/// # Errors
/// Anything that fails, and a copy that is not complete.
#[allow(clippy::cast_precision_loss, reason = "far from 2^53 bytes")]
pub fn measure(plan: LinkPlan, load: JobLoad, agents: u32) -> Result<LinkOutcome, Error> {
    let of_one = plan.rate_bps as f64 / 8.0 * PAYLOAD_SHARE;
    let (size, files) = files_of(load, plan, agents);
    let bytes = size * files as u64;
    let (folder, _owned) = memory_folder()?;
    let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
    make_sources(&from, size, files).map_err(io_error(&from))?;
    fs::create_dir(&to).map_err(io_error(&to))?;
    let network = Network::start(&star(plan.rate_bps, agents))?;
    let center = network.host("center")?;
    let ip = IpAddr::V4(center.address());
    let server = center.enter(|| Godwitd::serving(&to).ip(ip).start())??;
    let above = DIVIDE_ABOVE.to_string();
    let more = match load {
        JobLoad::OneFile => vec!["--divide-above", &above],
        JobLoad::LargeFiles | JobLoad::SmallFiles => Vec::new(),
    };
    let data = folder.path().join("service");
    let service = center.enter(|| Service::start_at(ip, &data, &from, &more))??;
    let mut processes: Vec<Process> = Vec::new();
    for number in 0..agents {
        let name = name_of(number);
        let start = || service.agent(&name, &from, &["--slots", SLOTS]);
        processes.push(network.host(&name)?.enter(start)??);
    }
    let list = folder.path().join("list");
    let url = |number| server.url(&format!("{number}"));
    write_list(&list, &from, (size, files), url).map_err(io_error(&list))?;
    center.enter(|| wait_for_agents(&service, agents))??;
    network.lap()?;
    let limit = Duration::from_secs(plan.seconds) * LIMIT_FACTOR + MORE_LIMIT;
    let job = center.enter(|| run_job(&service, &list, limit))??;
    let report = network.lap()?;
    check(&from, &to, files)?;
    let client_seconds = match agents {
        1 => {
            let copy = || copy_alone(&service, &from, &server.url("alone/"), limit);
            let seconds = network.host(&name_of(0))?.enter(copy)??;
            check(&from, &to.join("alone"), files)?;
            Some(seconds)
        }
        _ => None,
    };
    let ended = job.ended.unwrap_or(job.created);
    let seconds = ended.duration_since(job.created).as_secs_f64();
    Ok(LinkOutcome {
        load,
        agents,
        bytes,
        seconds,
        share: bytes as f64 / seconds / (of_one * f64::from(agents)),
        client_seconds,
        unfaithful: report.unfaithful,
    })
}

fn name_of(number: u32) -> String {
    format!("agent{number}")
}

/// Agents around a center, each behind a link of its own.
fn star(rate_bps: u64, agents: u32) -> NetworkConfig {
    let paths = Paths::same(PathConfig::new(rate_bps, DELAY_NS));
    let names = (0..agents).map(name_of).chain(["center".to_owned()]);
    let members = names.map(|name| Member {
        host: HostConfig::new(name.clone()),
        site: name,
    });
    let joins = (0..agents).map(|number| Join {
        from: name_of(number),
        to: "center".to_owned(),
        paths: paths.clone(),
    });
    NetworkConfig {
        members: members.collect(),
        joins: joins.collect(),
        ..NetworkConfig::sides(0, 0, paths.clone())
    }
}

/// Bytes of each file, and their number.
fn files_of(load: JobLoad, plan: LinkPlan, agents: u32) -> (u64, usize) {
    let bytes = plan.rate_bps / 8 * plan.seconds * u64::from(agents);
    let each = match load {
        JobLoad::OneFile => bytes,
        JobLoad::SmallFiles => SMALL_BYTES,
        JobLoad::LargeFiles => LARGE_BYTES,
    };
    let files = usize::try_from(bytes / each.max(1)).unwrap_or(usize::MAX);
    (each, files.max(1))
}

/// The files of the job, with their size.
fn write_list(
    list: &Path,
    from: &Path,
    (size, files): (u64, usize),
    url: impl Fn(usize) -> String,
) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(list)?);
    for number in 0..files {
        let line = serde_json::json!({
            "source": format!("file://{}/{number}", from.display()),
            "destination": url(number),
            "bytes": size,
        });
        writeln!(out, "{line}")?;
    }
    out.flush()
}

fn get<T: DeserializeOwned>(service: &Service, path: &str) -> Result<T, Error> {
    let found = ask(service, service.token(), ("GET", path), None)?;
    serde_json::from_value(found).map_err(|error| Error::Refused(error.to_string()))
}

fn wait_for_agents(service: &Service, agents: u32) -> Result<(), Error> {
    let until = Instant::now() + MORE_LIMIT;
    loop {
        let known: Vec<AgentView> = get(service, "/api/v1/agents")?;
        let alive = known.iter().filter(|agent| agent.alive).count();
        if alive >= agents as usize {
            return Ok(());
        }
        if Instant::now() > until {
            return Err(Error::Refused(format!("{alive} of {agents} agents")));
        }
        thread::sleep(LOOK);
    }
}

/// Submits the list, and waits until all is copied.
fn run_job(service: &Service, list: &Path, limit: Duration) -> Result<JobView, Error> {
    let arguments = ["submit".as_ref(), "--from".as_ref(), list.as_os_str()];
    let submitted = service.godwit(arguments, MORE_LIMIT)?.success()?;
    let path = format!("/api/v1/jobs/{}", submitted.stdout_text().trim());
    let until = Instant::now() + limit;
    loop {
        let job: JobView = get(service, &path)?;
        if job.state == JobState::Finished {
            return Ok(job);
        }
        if job.state.is_final() || Instant::now() > until {
            let (state, errors) = (job.state, job.errors);
            return Err(Error::Refused(format!(
                "{state:?}: {errors:?} {:?}",
                job.why
            )));
        }
        thread::sleep(LOOK);
    }
}

/// Copies the files without the service. How long it took.
fn copy_alone(service: &Service, from: &Path, to: &str, limit: Duration) -> Result<f64, Error> {
    let from = format!("{}/", from.display());
    let began = Instant::now();
    let arguments = ["cp", "-r", "--quiet", &from, to];
    service.godwit(arguments, limit)?.success()?;
    Ok(began.elapsed().as_secs_f64())
}

/// Every copy is its source, and nothing else is there.
fn check(from: &Path, to: &Path, files: usize) -> Result<(), Error> {
    let there = fs::read_dir(to).map_err(io_error(to))?.count();
    if there != files {
        return Err(Error::Refused(format!("{there} names, {files} files")));
    }
    for number in 0..files {
        let name = number.to_string();
        let copy = to.join(&name);
        if !is_same(&from.join(&name), &copy).map_err(io_error(&copy))? {
            return Err(Error::Refused(format!("copy {name} differs")));
        }
    }
    Ok(())
}

fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    let mut files = [File::open(one)?, File::open(other)?];
    let mut left = files[0].metadata()?.len();
    if files[1].metadata()?.len() != left {
        return Ok(false);
    }
    let mut blocks = [vec![0; 1 << 16], vec![0; 1 << 16]];
    while left > 0 {
        let now = usize::try_from(left).unwrap_or(usize::MAX).min(1 << 16);
        for (file, block) in files.iter_mut().zip(&mut blocks) {
            file.read_exact(&mut block[..now])?;
        }
        if blocks[0][..now] != blocks[1][..now] {
            return Ok(false);
        }
        left -= now as u64;
    }
    Ok(true)
}

//! Benchmark cells of the transfer service: what one process that serves takes in, hands out and
//! answers, on both databases, with simulated agents; and what the service costs over `godwit cp`.
//!
//! # Map
//! - `queue`: jobs come in and wait; `agents`: units and results; `restore`: a database that is
//!   lost; `flood`, `rucio`: users who ask much; `pages`: those of browsers; `cost`: over
//!   `godwit cp`

mod agents;
mod cost;
mod flood;
mod pages;
mod queue;
mod restore;
mod rucio;

use std::{path::Path, time::Duration};

use godwit_service_api::job::JobView;
use tokio::{runtime::Runtime, task::JoinSet};

use super::{
    BenchError,
    files::Files,
    io_error,
    testbed::{Testbed, goodput_cell},
};
use crate::{
    faults::service::Database,
    service_load::{Account, Http, LoadError, LoadedService, job_lines},
    stats::quantile,
};

/// Sizes of the cells.
#[derive(Debug, clap::Args)]
pub struct ServiceSize {
    /// Service: files of the one large job
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    pub job_files: u64,
    /// Service: files that wait in the jobs of many users
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    pub queue_files: u64,
    /// Service: those jobs; a tenth as many users submit them
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    pub queue_jobs: u64,
    /// Service: agents with work
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    pub busy_agents: usize,
    /// Service: agents without work
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    pub idle_agents: usize,
    /// Service: submitters of Rucio
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub submitters: usize,
    /// Service: files of a job of Rucio
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    pub rucio_files: usize,
    /// Service: seconds between two rounds of a submitter of Rucio, as its daemons rest
    #[arg(long, default_value_t = 60, value_name = "S")]
    pub rucio_seconds: u64,
    /// Service: requests of one user who does not stop
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    pub flood_requests: u64,
    /// Service: jobs in the database, of which browsers ask for pages
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    pub page_jobs: u64,
    /// Service: seconds of a rate
    #[arg(long, default_value_t = 10, value_name = "S")]
    pub rate_seconds: u64,
}

impl ServiceSize {
    /// A fiftieth, with `--quick`.
    fn of(testbed: &Testbed<'_>) -> Self {
        let all = &testbed.options.service;
        let quick = testbed.options.quick;
        let (part, agents_part) = if quick { (50, 50) } else { (1, 1) };
        Self {
            job_files: all.job_files / part,
            queue_files: all.queue_files / part,
            queue_jobs: all.queue_jobs / part,
            busy_agents: all.busy_agents / agents_part,
            idle_agents: all.idle_agents / agents_part,
            submitters: all.submitters.div_ceil(if quick { 25 } else { 1 }),
            rucio_files: all.rucio_files.div_ceil(if quick { 10 } else { 1 }),
            rucio_seconds: if quick { 1 } else { all.rucio_seconds },
            flood_requests: all.flood_requests / part,
            page_jobs: all.page_jobs / part,
            rate_seconds: if quick { 3 } else { all.rate_seconds },
        }
    }
}

/// Name of the cells.
const NAME: &str = "service";

/// The cell in which users have the limits that they have by default.
const FLOOD: &str = "flood";

/// Pairs of endpoints of the queue.
const PAIRS: u64 = 50;

/// Bytes of a file that is a unit of its own.
const LARGE: u64 = 8 << 30;

/// Bytes of a file of which a thousand are a unit.
const SMALL: u64 = 100_000;

/// Connections that submit jobs.
const SUBMITTERS: usize = 8;

/// Jobs that one poll of a user asks for.
const POLLED_JOBS: usize = 100;

/// Units of busy agents take so long.
const UNIT_TIME: Duration = Duration::from_secs(20);

type Facts = Result<Vec<String>, LoadError>;

/// Runs the cells that are asked for.
pub(super) fn run(
    testbed: &mut Testbed<'_>,
    files: &mut Files,
    folder: &Path,
) -> Result<(), BenchError> {
    let size = ServiceSize::of(testbed);
    let runtime = Runtime::new().map_err(io_error("runtime".as_ref()))?;
    for database in [Database::Sqlite, Database::Postgres] {
        let mut cell = |part: &str, title: &str, measure: &dyn Fn(&mut LoadedService) -> Facts| {
            let name = format!("{NAME}/{database}/{part}");
            if !testbed.is_asked_for(&name) {
                return Ok(());
            }
            testbed.begin(goodput_cell(name.clone(), title.to_owned(), "godwit"))?;
            let mut site = match part {
                FLOOD => LoadedService::start_with(database, &[])?,
                _ => LoadedService::start(database)?,
            };
            for fact in measure(&mut site)? {
                testbed.fact(&name, fact)?;
            }
            Ok::<_, BenchError>(())
        };
        cell("accept", "one job of many files", &|site| {
            runtime.block_on(queue::accept(site, &size))
        })?;
        cell("queue", "jobs of many users wait", &|site| {
            runtime.block_on(queue::queue(site, &size))
        })?;
        cell("restore", "the database is lost, jobs wait", &|site| {
            runtime.block_on(restore::restore(site, &size))
        })?;
        cell("leases", "units of one file, done at once", &|site| {
            runtime.block_on(agents::rate(site, &size, LARGE))
        })?;
        cell("results", "units of 1000 files, done at once", &|site| {
            runtime.block_on(agents::rate(site, &size, SMALL))
        })?;
        cell("steer", "an agent waits; a job is canceled", &|site| {
            runtime.block_on(agents::steer(site, &size))
        })?;
        cell("rucio", "submitters and polls of Rucio", &|site| {
            runtime.block_on(rucio::rucio(site, &size))
        })?;
        cell("busy", "many agents with work", &|site| {
            runtime.block_on(agents::busy(site, &size))
        })?;
        cell(FLOOD, "one user asks without end", &|site| {
            runtime.block_on(flood::flood(site, &size))
        })?;
        cell("pages", "pages of browsers, many jobs", &|site| {
            runtime.block_on(pages::pages(site, &size))
        })?;
        cell("idle", "many agents without work", &|site| {
            runtime.block_on(agents::idle(site, &size))
        })?;
    }
    cost::cost(testbed, files, folder)
}

/// A share of samples of seconds, as milliseconds.
fn milliseconds(samples: &[f64], share: f64) -> f64 {
    quantile(samples, share).unwrap_or(f64::NAN) * 1e3
}

/// `p50`, `p99` and the longest of samples of seconds.
fn spread(samples: &[f64]) -> String {
    let of = |share| milliseconds(samples, share);
    format!(
        "p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms ({} samples)",
        of(0.5),
        of(0.99),
        of(1.0),
        samples.len()
    )
}

fn expect(is_so: bool, otherwise: &str) -> Result<(), std::io::Error> {
    match is_so {
        true => Ok(()),
        false => Err(std::io::Error::other(otherwise)),
    }
}

/// Jobs of many users come in, a tenth as many users as jobs.
async fn fill(
    site: &LoadedService,
    jobs: u64,
    files: u64,
    bytes: u64,
) -> Result<Vec<Account>, LoadError> {
    let count = usize::try_from(jobs.div_ceil(10)).unwrap_or(usize::MAX);
    let users = site.accounts("user", count).await?;
    let mut submitters = JoinSet::new();
    for first in 0..SUBMITTERS {
        let address = site.address();
        let users = users.clone();
        submitters.spawn(async move {
            let mine = (first as u64..jobs).step_by(SUBMITTERS);
            for (number, user) in mine.zip(users.iter().cycle().skip(first).step_by(SUBMITTERS)) {
                let mut http = Http::new(address, &user.token);
                let lines = job_lines(files, bytes, number % PAIRS);
                let _: JobView = http.upload("/api/v1/jobs", lines).await?;
            }
            Ok::<_, std::io::Error>(())
        });
    }
    while let Some(submitted) = submitters.join_next().await {
        submitted.map_err(std::io::Error::other)??;
    }
    Ok(users)
}

fn rate_time(size: &ServiceSize) -> Duration {
    Duration::from_secs(size.rate_seconds)
}

//! A service with agents at one end of a path, and a server at the other.

use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use godwit_service_api::job::{JobState, JobView};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::Error;
use crate::file_error::{FileError, io_error};
use crate::host::Host;
use crate::network::{Network, NetworkConfig, Paths};
use crate::path::{PathConfig, Rng};
use crate::peers;
use crate::peers::godwit::{Godwitd, binary};
use crate::peers::process::{self, Options, Process};
use crate::peers::request::exchange;
use crate::peers::service::Service;
use crate::state::{OwnedFolder, memory_folder};

/// Longest wait for an answer on a busy machine.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Longest time to submit a list.
const SUBMIT_LIMIT: Duration = Duration::from_secs(300);
/// Longest wait for jobs to end that were canceled.
const END_LIMIT: Duration = Duration::from_secs(60);
/// Between two looks at a job.
const LOOK: Duration = Duration::from_millis(50);
/// How many files one source stands for. A unit never holds a source twice.
pub(super) const SOURCES: usize = 1000;

/// What there is.
#[derive(Debug, Clone)]
pub(super) struct SiteConfig {
    pub(super) path: PathConfig,
    pub(super) users: usize,
    pub(super) agents: usize,
    pub(super) slots: usize,
    /// Bytes of each source.
    pub(super) file_bytes: u64,
}

/// Programs end before the hosts that they run in, and those before the files.
pub(super) struct Site {
    agents: Vec<Process>,
    service: Service,
    server: Godwitd,
    users: Vec<SiteUser>,
    network: Network,
    jobs: Vec<(usize, String)>,
    lists: usize,
    folder: TempDir,
    _owned: OwnedFolder,
}

struct SiteUser {
    name: String,
    token: String,
}

/// A job to be submitted.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewJob<'a> {
    pub(super) user: usize,
    /// Of its files at the destination: unique.
    pub(super) name: &'a str,
    pub(super) files: usize,
    /// Of the `submit` command.
    pub(super) options: &'a [&'a str],
}

impl Site {
    /// Starts all of it.
    pub(super) fn start(config: &SiteConfig) -> Result<Site, Error> {
        let network = NetworkConfig::pair(Paths::same(config.path.clone()))
            .each_host(|host| host.tuned_buffers(16 << 20));
        let network = Network::start(&network)?;
        let (folder, owned) = memory_folder()?;
        let sources = folder.path().join("sources");
        let target = folder.path().join("target");
        make_sources(&sources, config.file_bytes, SOURCES).map_err(io_error(&sources))?;
        fs::create_dir(&target).map_err(io_error(&target))?;
        let right = network.host("right")?;
        let address = IpAddr::V4(right.address());
        let server = right.enter(|| Godwitd::serving(&target).ip(address).start())??;
        let left = network.host("left")?;
        let data = folder.path().join("service");
        let more = ["--requests-per-second", "1000"];
        let service = left.enter(|| Service::start(&data, &sources, &more))??;
        let slots = config.slots.to_string();
        let mut agents = Vec::new();
        for number in 0..config.agents {
            let name = format!("agent{number}");
            let agent = || service.agent(&name, &sources, &["--slots", &slots]);
            agents.push(left.enter(agent)??);
        }
        let mut site = Site {
            agents,
            service,
            server,
            users: Vec::new(),
            network,
            jobs: Vec::new(),
            lists: 0,
            folder,
            _owned: owned,
        };
        for number in 0..config.users {
            site.add_user(format!("user{number}"))?;
        }
        Ok(site)
    }

    fn left(&self) -> Result<&Host, Error> {
        Ok(self.network.host("left")?)
    }

    fn target(&self, user: usize) -> PathBuf {
        let folder = self.folder.path().join("target");
        folder.join(format!("user{user}"))
    }

    fn add_user(&mut self, name: String) -> Result<(), Error> {
        let token = self.service.token();
        let user = json!({"name": name, "role": "user"});
        self.ask(token, "PUT", "/api/v1/users", Some(&user))?;
        let wish = json!({"label": "lab", "user": name});
        let made = self.ask(token, "POST", "/api/v1/tokens", Some(&wish))?;
        let token = made["token"].as_str().unwrap_or_default().to_owned();
        let target = self.target(self.users.len());
        fs::create_dir(&target).map_err(io_error(&target))?;
        self.users.push(SiteUser { name, token });
        Ok(())
    }

    /// Sets the weight of a user among all others.
    pub(super) fn weigh(&self, user: usize, weight: f64) -> Result<(), Error> {
        let share = json!({"path": self.users[user].name, "weight": weight});
        self.ask(self.service.token(), "PUT", "/api/v1/shares", Some(&share))?;
        Ok(())
    }

    fn ask(
        &self,
        token: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Error> {
        let asked = || ask(&self.service, token, (method, path), body);
        self.left()?.enter(asked)?
    }

    /// Submits a job of the sources, as often as it has files; gives its id.
    pub(super) fn submit(&mut self, job: NewJob<'_>) -> Result<String, Error> {
        let list = self.folder.path().join(format!("list{}", self.lists));
        self.lists += 1;
        self.write_list(&list, job).map_err(io_error(&list))?;
        let mut command = Command::new(binary("godwit").map_err(peers::Error::from)?);
        command.arg("submit").arg("--from").arg(&list);
        command.args(job.options).envs(self.service.variables());
        command.env("GODWIT_SERVICE_TOKEN", &self.users[job.user].token);
        let run = || process::run(command, SUBMIT_LIMIT);
        let ran = self.left()?.enter(run)??.success()?;
        let id = ran.stdout_text().trim().to_owned();
        self.jobs.push((job.user, id.clone()));
        Ok(id)
    }

    fn write_list(&self, list: &Path, job: NewJob<'_>) -> std::io::Result<()> {
        let mut out = std::io::BufWriter::new(fs::File::create(list)?);
        let sources = self.folder.path().join("sources");
        let folder = self.server.url(&format!("user{}", job.user));
        for number in 0..job.files {
            let source = sources.join((number % SOURCES).to_string());
            let name = job.name;
            writeln!(out, "file://{} {folder}/{name}-{number}", source.display())?;
        }
        out.flush()
    }

    /// A job as its owner sees it.
    pub(super) fn job(&self, user: usize, id: &str) -> Result<JobView, Error> {
        let path = format!("/api/v1/jobs/{id}");
        let found = self.ask(&self.users[user].token, "GET", &path, None)?;
        serde_json::from_value(found).map_err(|error| Error::Refused(error.to_string()))
    }

    /// Waits until a job is in a final state.
    pub(super) fn wait_for(
        &self,
        user: usize,
        id: &str,
        limit: Duration,
    ) -> Result<JobView, Error> {
        let until = Instant::now() + limit;
        loop {
            let job = self.job(user, id)?;
            if job.state.is_final() {
                return Ok(job);
            }
            if Instant::now() >= until {
                let why: Vec<_> = job.why.iter().map(|why| why.text.as_str()).collect();
                let state = job.state;
                let text = format!("job {id} is {state:?} after {limit:?}: {why:?}");
                return Err(Error::Refused(format!("{text}\n{}", self.log())));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Bytes that arrived for each of so many users.
    pub(super) fn arrived(&self, users: usize) -> Result<Vec<f64>, Error> {
        let of = |user| bytes_below(&self.target(user)).map_err(Error::from);
        (0..users).map(of).collect()
    }

    /// Bytes of each user over `window`.
    pub(super) fn measure(&self, users: usize, window: Duration) -> Result<Vec<f64>, Error> {
        let before = self.arrived(users)?;
        std::thread::sleep(window);
        let after = self.arrived(users)?;
        Ok(after.iter().zip(before).map(|(a, b)| a - b).collect())
    }

    /// Cancels the job that was submitted first.
    pub(super) fn cancel_first(&self) -> Result<(), Error> {
        let (user, id) = &self.jobs[0];
        self.cancel(*user, id)
    }

    fn cancel(&self, user: usize, id: &str) -> Result<(), Error> {
        let path = format!("/api/v1/jobs/{id}/cancel");
        match self.ask(&self.users[user].token, "POST", &path, None) {
            // It has ended.
            Err(Error::Refused(text)) if text.contains(": 409") => Ok(()),
            other => other.map(drop),
        }
    }

    /// Cancels all jobs, waits until they have ended, and removes what arrived.
    pub(super) fn clear(&mut self) -> Result<(), Error> {
        for (user, id) in std::mem::take(&mut self.jobs) {
            self.cancel(user, &id)?;
            let job = self.wait_for(user, &id, END_LIMIT)?;
            if job.state == JobState::Failed || job.files.failed > 0 {
                return Err(Error::Refused(format!("files failed: {:?}", job.errors)));
            }
        }
        // Canceled units stop by the next poll of their agents.
        std::thread::sleep(Duration::from_secs(4));
        for user in 0..self.users.len() {
            let target = self.target(user);
            let again = fs::remove_dir_all(&target).and_then(|()| fs::create_dir(&target));
            again.map_err(io_error(&target))?;
        }
        Ok(())
    }

    /// Starts a `godwit cp` of all sources into a directory of its own, without the service. It
    /// knows of no other.
    pub(super) fn copy(&self, user: usize, options: &[String]) -> Result<Process, Error> {
        let home = self.folder.path().join(format!("home{user}"));
        if !home.exists() {
            fs::create_dir(&home).map_err(io_error(&home))?;
        }
        let mut command = Command::new(binary("godwit").map_err(peers::Error::from)?);
        command.args(["cp", "-r", "--alone", "--no-path-memory"]);
        command.args(options);
        command.arg(self.folder.path().join("sources").join(""));
        command.arg(self.server.url(&format!("user{user}/")));
        for name in ["HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"] {
            command.env(name, &home);
        }
        Ok(self.left()?.spawn(command, Options::default())?)
    }

    /// What service and agents printed.
    pub(super) fn log(&self) -> String {
        let agents = self.agents.iter().map(Process::log);
        let all = std::iter::once(self.service.process().log()).chain(agents);
        all.collect::<Vec<_>>().join("\n---\n")
    }
}

/// Asks a service on this host as the owner of a token.
pub(super) fn ask(
    service: &Service,
    token: &str,
    (method, path): (&str, &str),
    body: Option<&Value>,
) -> Result<Value, Error> {
    let address = service.url().trim_start_matches("http://");
    let odd = |_| Error::Refused(format!("{address} is no address"));
    let address: SocketAddr = address.parse().map_err(odd)?;
    match exchange(address, token, method, path, body, None, ANSWER_LIMIT)? {
        (200..=299, answer) => Ok(serde_json::from_slice(&answer).unwrap_or(Value::Null)),
        (status, answer) => Err(Error::Refused(format!(
            "{method} {path}: {status} {}",
            String::from_utf8_lossy(&answer)
        ))),
    }
}

/// One file of noise with so many names.
pub(super) fn make_sources(folder: &Path, bytes: u64, names: usize) -> std::io::Result<()> {
    fs::create_dir(folder)?;
    let first = folder.join("0");
    let mut out = std::io::BufWriter::new(fs::File::create(&first)?);
    let mut rng = Rng::new(1, 1);
    for _ in 0..bytes / 8 {
        out.write_all(&rng.next_u64().to_le_bytes())?;
    }
    let rest = usize::try_from(bytes % 8).unwrap_or(0);
    out.write_all(&rng.next_u64().to_le_bytes()[..rest])?;
    out.flush()?;
    (1..names).try_for_each(|number| fs::hard_link(&first, folder.join(number.to_string())))
}

/// What files of a directory occupy; some may go meanwhile.
#[allow(clippy::cast_precision_loss, reason = "far from 2^53 bytes")]
fn bytes_below(folder: &Path) -> Result<f64, FileError> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).map_err(io_error(folder))? {
        let entry = entry.map_err(io_error(folder))?;
        bytes += entry.metadata().map_or(0, |found| found.blocks() * 512);
    }
    Ok(bytes as f64)
}

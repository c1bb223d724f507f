//! Commands to a transfer service: submit, list, watch, wait, cancel, retry, pause, resume.
//!
//! # Map
//! - [`connection`]: requests, and what their refusal means
//! - `login`: tokens of an issuer for the user; `issuer`: how it is asked; [`logins`]: the files
//!   that keep them, and their renewal
//! - `submit`: a job from a command line, a list of files or another job; `delegation`: the
//!   user's proxy for it
//! - `schedule`: jobs that come again and again
//! - `watch`: jobs until they end; `show`: jobs as text

pub mod connection;
mod delegation;
mod issuer;
mod login;
pub mod logins;
mod schedule;
mod show;
mod submit;
mod watch;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use godwit_service_api::{
    job::{FileRequest, JobOptions, JobState, JobView},
    schedule::ScheduleRequest,
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::connection::{Connection, ServiceError};
use crate::{
    error::Exit,
    report::events::{Event, Observer},
};

/// Which service, and what logs in there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceTarget {
    /// `https://host:port`, or `http://` for a service of this machine.
    pub url: String,
    /// File whose first line is the token, where there is no login.
    pub token_file: Option<PathBuf>,
    /// The token itself, from the environment.
    pub token: Option<String>,
    /// PEM file of CAs to trust, in place of the system's.
    pub ca: Option<PathBuf>,
    /// Folder with the user's logins; `None`: none is used.
    pub logins: Option<PathBuf>,
}

/// A command to a service.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceRequest {
    /// Which service.
    pub target: ServiceTarget,
    /// As JSON instead of text.
    pub json: bool,
    /// What to do.
    pub command: ServiceCommand,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum ServiceCommand {
    /// `login`.
    Login {
        /// URL of the issuer, where there are several.
        issuer: Option<String>,
    },
    /// `logout`.
    Logout,
    /// `submit`.
    Submit(Box<Submission>),
    /// `clone`.
    Clone(CloneRequest),
    /// `jobs`.
    Jobs {
        /// Only in these states; empty: all.
        states: Vec<JobState>,
        /// Of every user that the caller may see.
        all_users: bool,
        /// How many at most.
        limit: u32,
    },
    /// `job`.
    Job {
        /// Which.
        id: Uuid,
        /// Until it ends.
        watch: bool,
        /// Files too: those that failed, or all.
        files: Option<FilesShown>,
    },
    /// `wait`.
    Wait {
        /// For which.
        ids: Vec<Uuid>,
        /// How long at most.
        limit: Option<Duration>,
    },
    /// `schedule`.
    Schedule(ScheduleCommand),
    /// `cancel`, `retry`, `pause`, `resume`.
    Change {
        /// To which.
        ids: Vec<Uuid>,
        /// What.
        change: Change,
    },
}

/// Files that `job` lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilesShown {
    /// Those that failed.
    Failed,
    /// All.
    All,
}

/// A new job.
#[derive(Clone, Debug, PartialEq)]
pub struct Submission {
    /// Copies of the command line.
    pub files: Vec<FileRequest>,
    /// More of them, a line each: `SOURCE DESTINATION`, or the JSON of a [`FileRequest`]; `-` is
    /// standard input.
    pub list: Option<PathBuf>,
    /// How.
    pub options: JobOptions,
    /// The same key gives the same job.
    pub idempotency_key: Option<String>,
    /// Until it ends.
    pub watch: bool,
    /// The user's proxy, which the service needs for `gsiftp` and `davs` URLs; `None`: it does not
    /// get it.
    pub proxy: Option<PathBuf>,
}

/// What to do with schedules.
#[derive(Clone, Debug, PartialEq)]
pub enum ScheduleCommand {
    /// Make one.
    Add {
        /// It; more files may be in the list.
        request: Box<ScheduleRequest>,
        /// As [`Submission::list`].
        list: Option<PathBuf>,
    },
    /// All of the user.
    List,
    /// One, with the last times that it was due.
    Show(String),
    /// Make them submit nothing until they are resumed.
    Pause(Vec<String>),
    /// Make them submit again.
    Resume(Vec<String>),
    /// Make them submit nothing any more.
    Remove(Vec<String>),
}

/// A job that is submitted again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloneRequest {
    /// Which.
    pub id: Uuid,
    /// It starts paused.
    pub paused: bool,
    /// The same key gives the same job.
    pub idempotency_key: Option<String>,
    /// Until it ends.
    pub watch: bool,
    /// The user's proxy, which the service needs for `gsiftp` and `davs` URLs; `None`: it does not
    /// get it.
    pub proxy: Option<PathBuf>,
}

/// A change of a job's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// For good.
    Cancel,
    /// Files that failed are tried again.
    Retry,
    /// Nothing of it runs.
    Pause,
    /// It runs again.
    Resume,
}

impl Change {
    /// The last part of its path.
    fn verb(self) -> &'static str {
        match self {
            Change::Cancel => "cancel",
            Change::Retry => "retry",
            Change::Pause => "pause",
            Change::Resume => "resume",
        }
    }
}

/// Runs a command; results go to `observer` line by line.
///
/// # Errors
/// The service cannot be reached or refuses. A job that ended without all of its files is no
/// error: the exit status says so.
pub async fn run(
    request: ServiceRequest,
    observer: &dyn Observer,
    stop: &CancellationToken,
) -> Result<Exit, ServiceError> {
    let target = &request.target;
    let connection = match &request.command {
        ServiceCommand::Login { .. } | ServiceCommand::Logout => Connection::anonymous(target)?,
        _ => Connection::new(target)?,
    };
    let ended = run_at(&connection, request, observer, stop).await;
    for text in connection.take_warnings() {
        observer.on_event(&Event::Warning { text });
    }
    ended
}

async fn run_at(
    connection: &Connection,
    request: ServiceRequest,
    observer: &dyn Observer,
    stop: &CancellationToken,
) -> Result<Exit, ServiceError> {
    let print = |text: String| {
        text.lines()
            .for_each(|line| observer.on_output(line.as_bytes()))
    };
    let (json, target) = (request.json, &request.target);
    match request.command {
        ServiceCommand::Login { issuer } => {
            let issuer = issuer.as_deref();
            login::login(connection, target, issuer, json, &print, stop).await?;
        }
        ServiceCommand::Logout => login::logout(connection, target, observer).await?,
        ServiceCommand::Submit(submission) => {
            let watch = submission.watch;
            if submission.list.is_some() || delegation::is_wanted(&submission.files) {
                delegate(connection, submission.proxy.as_deref(), observer).await;
            }
            connection.check_login().await?;
            let lists = connection.for_lists(target)?;
            let job = submit::submit(&lists, *submission).await?;
            if !(watch && json) {
                print(show::accepted(&job, json));
            }
            if watch {
                return watch::watch(connection, job.id, json, observer, stop).await;
            }
        }
        ServiceCommand::Clone(again) => {
            delegate(connection, again.proxy.as_deref(), observer).await;
            let lists = connection.for_lists(target)?;
            let job = submit::again(&lists, &again).await?;
            if !(again.watch && json) {
                print(show::accepted(&job, json));
            }
            if again.watch {
                return watch::watch(connection, job.id, json, observer, stop).await;
            }
        }
        ServiceCommand::Jobs {
            states,
            all_users,
            limit,
        } => {
            let jobs = connection.jobs(&states, all_users, limit).await?;
            match json {
                true => jobs.iter().for_each(|job| print(show::json(job))),
                false => print(show::table(&jobs)),
            }
        }
        ServiceCommand::Job {
            id, watch: true, ..
        } => {
            return watch::watch(connection, id, json, observer, stop).await;
        }
        ServiceCommand::Job {
            id,
            files,
            watch: false,
        } => {
            let job = connection.job(id).await?;
            match json {
                true => print(show::json(&job)),
                false => print(show::details(&job)),
            }
            let Some(shown) = files else {
                return Ok(Exit::Done);
            };
            let mut cursor = None;
            loop {
                let page = connection.files(id, shown, cursor.as_deref()).await?;
                for file in &page.items {
                    match json {
                        true => print(show::json(file)),
                        false => print(show::file(file)),
                    }
                }
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
        }
        ServiceCommand::Wait { ids, limit } => {
            let limit = limit.unwrap_or(Duration::MAX);
            return watch::wait(connection, &ids, limit, json, observer, stop).await;
        }
        ServiceCommand::Schedule(command) => {
            schedule::run(connection, command, json, &print).await?;
        }
        ServiceCommand::Change { ids, change } => {
            for id in ids {
                let job = connection.change(id, change).await?;
                match json {
                    true => print(show::json(&job)),
                    false => print(format!("{id}\t{}", job.state.as_str())),
                }
            }
        }
    }
    Ok(Exit::Done)
}

/// Delegates the user's proxy, where it may be. The service says what it needs.
async fn delegate(connection: &Connection, proxy: Option<&Path>, observer: &dyn Observer) {
    if let Some(proxy) = proxy
        && let Err(why) = delegation::delegate(connection, proxy).await
    {
        let text = format!("your proxy is not delegated: {why}");
        observer.on_event(&Event::Warning { text });
    }
}

/// The exit status of a job that ended, as `cp` has it.
fn exit_of(job: &JobView) -> Exit {
    match job.state {
        JobState::Finished => Exit::Done,
        JobState::Partial => Exit::Partly,
        JobState::Canceled => Exit::Interrupted,
        _ => Exit::Failed,
    }
}

//! What users may type about a transfer service.

use std::{env, ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, Subcommand, ValueEnum};
use godwit_gsi::cert::files::{Locations, effective_uid};
use godwit_service_api::{
    DEFAULT_PORT,
    job::{
        Class, FileOrder, FileRequest, JobOptions, JobRequest, JobState, Notification, Overwrite,
        Verify,
    },
    schedule::ScheduleRequest,
};
use uuid::Uuid;

use super::Resolved;
use crate::{
    local::directories,
    service::{
        Change, CloneRequest, FilesShown, ScheduleCommand, ServiceCommand, ServiceRequest,
        ServiceTarget, Submission,
    },
};

pub(super) const SUBMIT_AFTER_HELP: &str = "\
Examples:
  godwit submit gsiftp://a.example.org/run7/x.root gsiftp://b.example.org/run7/
  godwit submit -r --watch gsiftp://a.example.org/run7 gsiftp://b.example.org/run7
  godwit submit --from list.txt --name run7 --priority 5

The id of the job is printed. A line of a list is SOURCE DESTINATION, or a JSON object with \
source, destination, bytes, checksum, recursive and metadata. With --watch the exit status is that \
of cp: 0 all done, 1 some files failed, 4 failed; without it 0 says that the job was accepted.";

pub(super) const CLONE_AFTER_HELP: &str = "\
Examples:
  godwit clone 0198c1d2-7f5e-7a10-9b60-2a51c8a4d011
  godwit clone --watch 0198c1d2-7f5e-7a10-9b60-2a51c8a4d011

The job may run or have ended, and may be that of another user whose jobs you see; the new one is \
yours. Its id is printed. Directories are listed again. Deadline and --after are not taken over.";

pub(super) const SCHEDULE_ADD_AFTER_HELP: &str = "\
Examples:
  godwit schedule add '15 3 * * *' -r gsiftp://a.example.org/run gsiftp://b.example.org/run
  godwit schedule add '0 6 * * MON' --zone Europe/Berlin --name weekly --from list.txt

Options are those of submit but --deadline, --after, --dry-run, --idempotency-key and --watch, \
which are of one job; no proxy is delegated. The job is submitted each time that the schedule is \
due, unless its job of the time before has not ended. The schedule has the name of --name, else \
that of the first source, else `schedule`; other characters than letters, digits, . _ and - \
become -.";

pub(super) const WAIT_AFTER_HELP: &str = "\
Examples:
  godwit wait 0198c1d2-7f5e-7a10-9b60-2a51c8a4d011 && sbatch analysis.sh
  godwit wait --timeout 2h $(cat submitted)
  godwit submit --from list.txt > id && godwit wait --json $(cat id) | jq .errors

A line is printed for each job as it ends: id, state, files, bytes, name. A lost connection is \
made again.

Exit status: the worst of the jobs' as cp has it: 0 all done, 1 some files failed, 4 a job \
failed, 130 a job was canceled; 124 the time of --timeout is over.";

pub(super) const LOGIN_AFTER_HELP: &str = "\
Examples:
  godwit login --service https://fts.example.org:8447
  godwit login --service https://fts.example.org:8447 --issuer https://login.example.org/

An address and a code are printed: open the address in any browser, on any machine, and log in \
there. The commands then use the token that comes of it, and renew it as long as the issuer \
allows, until godwit logout. It is kept in $XDG_CONFIG_HOME/godwit/logins \
(~/.config/godwit/logins), a file for each service, and goes to that service only.

The service is that of --service, else of GODWIT_SERVICE; there is no default.";

pub(super) const TARGET_AFTER_HELP: &str = "\
The service is that of --service, else of GODWIT_SERVICE, else the one of this machine, which \
`godwit-service serve` starts. The token is the first line of the file of --service-token, else \
GODWIT_SERVICE_TOKEN, else that of godwit login at the service that is named, else, where none is \
named, the one that `godwit-service serve` stored for this user.";

/// Which service.
#[derive(Clone, Debug, Args)]
pub(crate) struct TargetArgs {
    /// The first line of FILE is the token that logs in there
    #[arg(long, value_name = "FILE")]
    service_token: Option<PathBuf>,
    #[command(flatten)]
    service: ServiceArgs,
}

/// A service without what logs in there.
#[derive(Clone, Debug, Args)]
struct ServiceArgs {
    /// The service, as `https://fts.example.org:8447`
    #[arg(long, value_name = "URL")]
    service: Option<String>,
    /// CAs to trust about the service, PEM; the default is those of the system
    #[arg(long, value_name = "FILE")]
    service_ca: Option<PathBuf>,
    /// As JSON, an object a line
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct LoginArgs {
    /// Where to log in, if the service trusts several issuers
    #[arg(long, value_name = "URL")]
    issuer: Option<String>,
    #[command(flatten)]
    service: ServiceArgs,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct LogoutArgs {
    #[command(flatten)]
    service: ServiceArgs,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct SubmitArgs {
    /// What to copy; the last one is where to
    #[arg(value_name = "URL")]
    urls: Vec<OsString>,
    /// More copies, a line each; - is standard input
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Directories with all below them
    #[arg(short, long)]
    recursive: bool,
    /// Shown in lists
    #[arg(long)]
    name: Option<String>,
    /// 1 (last) to 5 (first) among your jobs
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=5))]
    priority: u8,
    /// What it may take from others; scavenger takes only what is left
    #[arg(long, value_enum, default_value_t = ClassArg::Normal)]
    class: ClassArg,
    /// The share that pays for it, as physics/alice
    #[arg(long, value_name = "PATH")]
    share: Option<String>,
    /// Compare checksums of both ends, not only sizes
    #[arg(long)]
    verify: bool,
    /// What becomes of files that exist
    #[arg(long, value_enum, default_value_t = OverwriteArg::Never)]
    overwrite: OverwriteArg,
    /// Whether files wait for each other: alternatives are ways to one file, hops a way of it
    #[arg(long, value_enum, default_value_t = OrderArg::Any)]
    order: OrderArg,
    /// Attempts for a file that fails for a reason that may pass
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    attempts: u32,
    /// When it must be done, as 2030-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    deadline: Option<String>,
    /// Starts when job ID is done. May be repeated
    #[arg(long, value_name = "ID", value_parser = job_id)]
    after: Vec<Uuid>,
    /// Only agents with this label. May be repeated
    #[arg(long, value_name = "LABEL")]
    label: Vec<String>,
    /// Copies have the time of the last change of their source
    #[arg(long)]
    preserve_times: bool,
    /// An https URL that is sent a signed report when the job has ended. May be repeated
    #[arg(long, value_name = "URL")]
    webhook: Vec<String>,
    /// An address that is sent a message when the job has ended. May be repeated
    #[arg(long, value_name = "ADDRESS")]
    mail: Vec<String>,
    /// Starts paused
    #[arg(long)]
    paused: bool,
    /// Check it, and keep nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    #[command(flatten)]
    new: NewJobArgs,
    #[command(flatten)]
    target: TargetArgs,
}

/// How a job begins.
#[derive(Clone, Debug, Args)]
struct NewJobArgs {
    /// The same key gives the same job, however often it is submitted
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// The service does not get a proxy signed by yours, as it does for gsiftp URLs
    #[arg(long)]
    no_delegation: bool,
    /// Wait for the end, and show progress
    #[arg(short, long)]
    watch: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleVerb {
    /// Make a schedule; its name and the first time are printed
    #[command(after_help = SCHEDULE_ADD_AFTER_HELP)]
    Add(Box<ScheduleAddArgs>),
    /// List your schedules: name, cron expression, time zone, next time or paused, files
    List {
        #[command(flatten)]
        target: TargetArgs,
    },
    /// Show a schedule, and what became of the last times that it was due
    Show {
        /// The schedule
        #[arg(value_name = "NAME", value_parser = plain_name)]
        name: String,
        #[command(flatten)]
        target: TargetArgs,
    },
    /// Pause schedules: they submit nothing until they are resumed. A job that runs goes on
    Pause(SchedulesArgs),
    /// Resume schedules; times that passed meanwhile are not made up for
    Resume(SchedulesArgs),
    /// Remove schedules; their jobs stay
    Remove(SchedulesArgs),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct SchedulesArgs {
    /// The schedules
    #[arg(value_name = "NAME", required = true, value_parser = plain_name)]
    names: Vec<String>,
    #[command(flatten)]
    target: TargetArgs,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ScheduleAddArgs {
    /// When: minute, hour, day of the month, month, day of the week
    #[arg(value_name = "CRON")]
    cron: String,
    /// Time zone whose clock counts, as Europe/Berlin
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    zone: String,
    #[command(flatten)]
    submit: SubmitArgs,
}

fn plain_name(text: &str) -> Result<String, String> {
    match !matches!(text, "" | "." | "..") && schedule_name(text) == text {
        true => Ok(text.to_owned()),
        false => Err("a name has letters, digits, . _ and -".to_owned()),
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct CloneArgs {
    /// The job
    #[arg(value_name = "ID", value_parser = job_id)]
    id: Uuid,
    /// The new one starts paused
    #[arg(long)]
    paused: bool,
    #[command(flatten)]
    new: NewJobArgs,
    #[command(flatten)]
    target: TargetArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ClassArg {
    Urgent,
    Normal,
    Scavenger,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OverwriteArg {
    Never,
    Different,
    Always,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OrderArg {
    Any,
    Alternatives,
    Hops,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct JobsArgs {
    /// Only in this state: queued, active, paused, finished, partial, failed, canceled. May be
    /// repeated
    #[arg(long, value_name = "STATE", value_parser = state)]
    state: Vec<JobState>,
    /// Of all users, as far as you may see them
    #[arg(long)]
    all: bool,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: u32,
    #[command(flatten)]
    target: TargetArgs,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct JobArgs {
    /// The job
    #[arg(value_name = "ID", value_parser = job_id)]
    id: Uuid,
    /// Wait for the end, and show progress
    #[arg(short, long)]
    watch: bool,
    /// With each file that failed, why, and who must act
    #[arg(long, conflicts_with = "watch")]
    failed: bool,
    /// With each file
    #[arg(long, conflicts_with_all = ["watch", "failed"])]
    files: bool,
    #[command(flatten)]
    target: TargetArgs,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct WaitArgs {
    /// The jobs
    #[arg(value_name = "ID", value_parser = job_id, required = true)]
    ids: Vec<Uuid>,
    /// How long at most: seconds, or a number with s, m, h or d. The jobs continue after it
    #[arg(long, value_name = "DURATION", value_parser = crate::units::duration)]
    timeout: Option<Duration>,
    #[command(flatten)]
    target: TargetArgs,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ChangeArgs {
    /// The jobs
    #[arg(value_name = "ID", value_parser = job_id, required = true)]
    ids: Vec<Uuid>,
    #[command(flatten)]
    target: TargetArgs,
}

fn job_id(text: &str) -> Result<Uuid, String> {
    text.parse()
        .map_err(|_| "no id of a job, as `godwit submit` and `godwit jobs` print it".to_owned())
}

fn state(text: &str) -> Result<JobState, String> {
    serde_json::from_value(text.into()).map_err(|_| format!("{text:?} is no state of a job"))
}

fn of_environment(name: &str) -> Option<String> {
    env::var(name).ok().filter(|text| !text.is_empty())
}

impl ServiceArgs {
    /// The user says which service it is.
    fn is_named(&self) -> bool {
        self.service.is_some() || of_environment("GODWIT_SERVICE").is_some()
    }

    /// A command about a login, which is never at a service that the user did not name.
    fn named_request(self, verb: &str, command: ServiceCommand) -> Resolved<ServiceRequest> {
        match self.is_named() {
            true => Ok(self.request(command)),
            false => Err(format!(
                "{verb}: name the service: --service URL, or GODWIT_SERVICE"
            )),
        }
    }

    /// Without a token.
    fn target(self) -> (ServiceTarget, bool) {
        let url = self.service.or_else(|| of_environment("GODWIT_SERVICE"));
        let target = ServiceTarget {
            url: url.unwrap_or_else(|| format!("http://127.0.0.1:{DEFAULT_PORT}")),
            token_file: None,
            token: None,
            ca: self.service_ca,
            logins: directories::config().map(|config| config.join("logins")),
        };
        (target, self.json)
    }

    fn request(self, command: ServiceCommand) -> ServiceRequest {
        let (target, json) = self.target();
        ServiceRequest {
            target,
            json,
            command,
        }
    }
}

impl TargetArgs {
    fn request(self, command: ServiceCommand) -> ServiceRequest {
        // The token of this machine's service is for that service alone.
        let is_local = !self.service.is_named();
        let mut request = self.service.request(command);
        let target = &mut request.target;
        if is_local {
            // Any user of this machine could listen at the address of the default.
            target.logins = None;
        }
        match (self.service_token, of_environment("GODWIT_SERVICE_TOKEN")) {
            (Some(file), _) => (target.token_file, target.logins) = (Some(file), None),
            (None, Some(token)) => target.token = Some(token),
            (None, None) if is_local => {
                let local = directories::state().map(|state| state.join("service/token"));
                target.token_file = local.filter(|path| path.exists());
            }
            (None, None) => {}
        }
        request
    }
}

impl LoginArgs {
    pub(super) fn request(self) -> Resolved<ServiceRequest> {
        let issuer = self.issuer;
        self.service
            .named_request("login", ServiceCommand::Login { issuer })
    }
}

impl LogoutArgs {
    pub(super) fn request(self) -> Resolved<ServiceRequest> {
        self.service.named_request("logout", ServiceCommand::Logout)
    }
}

impl SubmitArgs {
    pub(super) fn request(self) -> Resolved<ServiceRequest> {
        let (submission, target) = self.submission()?;
        Ok(target.request(ServiceCommand::Submit(Box::new(submission))))
    }

    fn submission(self) -> Resolved<(Submission, TargetArgs)> {
        let files = files(&self.urls, self.recursive)?;
        if files.is_empty() && self.from.is_none() {
            return Err("submit: give a source and a destination, or --from FILE".to_owned());
        }
        let deadline = self
            .deadline
            .map(|text| text.parse().map_err(|e| format!("--deadline {text}: {e}")));
        let webhooks = self.webhook.into_iter();
        let webhooks = webhooks.map(|url| Notification::Webhook { url });
        let mails = self.mail.into_iter();
        let mails = mails.map(|address| Notification::Mail { address });
        let options = JobOptions {
            name: self.name,
            priority: self.priority,
            class: match self.class {
                ClassArg::Urgent => Class::Urgent,
                ClassArg::Normal => Class::Normal,
                ClassArg::Scavenger => Class::Scavenger,
            },
            share: self.share,
            verify: if self.verify {
                Verify::Checksum
            } else {
                Verify::Size
            },
            overwrite: match self.overwrite {
                OverwriteArg::Never => Overwrite::Never,
                OverwriteArg::Different => Overwrite::Different,
                OverwriteArg::Always => Overwrite::Always,
            },
            order: match self.order {
                OrderArg::Any => FileOrder::Any,
                OrderArg::Alternatives => FileOrder::Alternatives,
                OrderArg::Hops => FileOrder::Hops,
            },
            attempts: self.attempts,
            deadline: deadline.transpose()?,
            after: self.after,
            labels: self.label,
            preserve_times: self.preserve_times,
            paused: self.paused,
            dry_run: self.dry_run,
            notify: webhooks.chain(mails).collect(),
            ..JobOptions::default()
        };
        let submission = Submission {
            files,
            list: self.from,
            options,
            idempotency_key: self.new.idempotency_key,
            watch: self.new.watch && !self.dry_run,
            proxy: (!self.new.no_delegation && !self.dry_run).then(proxy),
        };
        Ok((submission, self.target))
    }
}

impl ScheduleVerb {
    pub(super) fn request(self) -> Resolved<ServiceRequest> {
        let (command, target) = match self {
            ScheduleVerb::Add(args) => args.command()?,
            ScheduleVerb::List { target } => (ScheduleCommand::List, target),
            ScheduleVerb::Show { name, target } => (ScheduleCommand::Show(name), target),
            ScheduleVerb::Pause(args) => (ScheduleCommand::Pause(args.names), args.target),
            ScheduleVerb::Resume(args) => (ScheduleCommand::Resume(args.names), args.target),
            ScheduleVerb::Remove(args) => (ScheduleCommand::Remove(args.names), args.target),
        };
        Ok(target.request(ServiceCommand::Schedule(command)))
    }
}

impl ScheduleAddArgs {
    fn command(self) -> Resolved<(ScheduleCommand, TargetArgs)> {
        let (submission, target) = self.submit.submission()?;
        if submission.watch || submission.idempotency_key.is_some() {
            return Err("schedule add: --watch and --idempotency-key are for submit".to_owned());
        }
        let source = submission.files.first().map(|file| file.source.as_str());
        let last = |url: &str| {
            url.trim_end_matches('/')
                .rsplit('/')
                .next()
                .map(str::to_owned)
        };
        let name = submission
            .options
            .name
            .clone()
            .or_else(|| source.and_then(last));
        let request = ScheduleRequest {
            name: schedule_name(&name.unwrap_or_default()),
            cron: self.cron,
            zone: self.zone,
            job: JobRequest {
                files: submission.files,
                options: submission.options,
            },
        };
        let (request, list) = (Box::new(request), submission.list);
        Ok((ScheduleCommand::Add { request, list }, target))
    }
}

/// A name that a schedule may have; other characters become `-`.
fn schedule_name(text: &str) -> String {
    let plain = |c: char| match c.is_ascii_alphanumeric() || "._-".contains(c) {
        true => c,
        false => '-',
    };
    match text.chars().map(plain).collect::<String>() {
        name if name.is_empty() => "schedule".to_owned(),
        name => name,
    }
}

impl CloneArgs {
    pub(super) fn request(self) -> ServiceRequest {
        self.target.request(ServiceCommand::Clone(CloneRequest {
            id: self.id,
            paused: self.paused,
            idempotency_key: self.new.idempotency_key,
            watch: self.new.watch,
            proxy: (!self.new.no_delegation).then(proxy),
        }))
    }
}

/// Where the user's proxy is, if there is one.
fn proxy() -> PathBuf {
    Locations::new(|name| env::var_os(name), effective_uid()).proxy
}

impl JobsArgs {
    pub(super) fn request(self) -> ServiceRequest {
        self.target.request(ServiceCommand::Jobs {
            states: self.state,
            all_users: self.all,
            limit: self.limit,
        })
    }
}

impl JobArgs {
    pub(super) fn request(self) -> ServiceRequest {
        let files = match (self.failed, self.files) {
            (true, _) => Some(FilesShown::Failed),
            (false, true) => Some(FilesShown::All),
            (false, false) => None,
        };
        self.target.request(ServiceCommand::Job {
            id: self.id,
            watch: self.watch,
            files,
        })
    }
}

impl WaitArgs {
    pub(super) fn request(self) -> ServiceRequest {
        self.target.request(ServiceCommand::Wait {
            ids: self.ids,
            limit: self.timeout,
        })
    }
}

impl ChangeArgs {
    pub(super) fn request(self, change: Change) -> ServiceRequest {
        self.target.request(ServiceCommand::Change {
            ids: self.ids,
            change,
        })
    }
}

/// Copies of the words of a command line: the last word is the destination of all others. One that
/// ends in a slash, and that of several sources, is the directory that they go to.
fn files(words: &[OsString], recursive: bool) -> Resolved<Vec<FileRequest>> {
    let Some((last, sources)) = words.split_last() else {
        return Ok(Vec::new());
    };
    if sources.is_empty() {
        return Err("submit: give a source and a destination".to_owned());
    }
    let destination = url(last)?;
    let into = sources.len() > 1 || destination.ends_with('/');
    let copy = |word: &OsString| {
        let source = url(word)?;
        let destination = match into {
            false => destination.clone(),
            true => {
                let name = source
                    .trim_end_matches('/')
                    .rsplit('/')
                    .next()
                    .unwrap_or("");
                format!("{}/{name}", destination.trim_end_matches('/'))
            }
        };
        Ok(FileRequest {
            source,
            destination,
            recursive,
            ..FileRequest::default()
        })
    };
    sources.iter().map(copy).collect()
}

/// A URL as it is; a path of this machine as a `file:` URL.
fn url(word: &OsString) -> Resolved<String> {
    let text = word
        .to_str()
        .ok_or_else(|| format!("{word:?} is not UTF-8"))?;
    if text.contains("://") {
        return Ok(text.to_owned());
    }
    let path = std::path::absolute(text).map_err(|error| format!("{text}: {error}"))?;
    let path = path
        .to_str()
        .ok_or_else(|| format!("{text}: the path is not UTF-8"))?;
    let slash = if text.ends_with('/') && !path.ends_with('/') {
        "/"
    } else {
        ""
    };
    let escaped = path
        .replace('%', "%25")
        .replace('#', "%23")
        .replace('?', "%3F");
    Ok(format!("file://{escaped}{slash}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(words: &[&str]) -> Vec<(String, String)> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let files = files(&words, false).expect("copies");
        files
            .into_iter()
            .map(|file| (file.source, file.destination))
            .collect()
    }

    #[test]
    fn a_directory_gets_files_under_their_names() {
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(
            pairs(&["ftp://a/x", "ftp://b/y"]),
            [pair("ftp://a/x", "ftp://b/y")]
        );
        assert_eq!(
            pairs(&["ftp://a/x", "ftp://b/d/"]),
            [pair("ftp://a/x", "ftp://b/d/x")]
        );
        let two = pairs(&["ftp://a/x", "ftp://a/y", "ftp://b/d"]);
        assert_eq!(
            two,
            [
                pair("ftp://a/x", "ftp://b/d/x"),
                pair("ftp://a/y", "ftp://b/d/y")
            ]
        );
    }

    #[test]
    fn a_path_becomes_a_file_url() {
        assert_eq!(url(&"/tmp/a%b".into()).expect("a URL"), "file:///tmp/a%25b");
    }

    #[test]
    fn a_login_is_for_a_service_that_the_user_names() {
        let args = |service: Option<&str>| ServiceArgs {
            service: service.map(str::to_owned),
            service_ca: None,
            json: false,
        };
        let login = |service| args(service).named_request("login", ServiceCommand::Logout);
        let error = login(None).expect_err("no service");
        assert!(error.contains("--service"), "{error}");
        assert!(login(Some("http://127.0.0.1:8447")).is_ok());
        let logins = |service| {
            let target = TargetArgs {
                service_token: None,
                service: args(service),
            };
            target.request(ServiceCommand::Logout).target.logins
        };
        assert_eq!(logins(None), None);
        assert!(logins(Some("http://127.0.0.1:8447")).is_some());
    }
}

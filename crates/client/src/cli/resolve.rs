//! From raw flags to a resolved request.

#[cfg(test)]
mod tests;

use std::ffi::OsString;

use clap::{ArgMatches, FromArgMatches, error::ErrorKind};
use godwit_engine::host::net;
use godwit_gsi::{
    cert::files::{self, Locations},
    ftps::Authorities,
};
use godwit_proto::url::{Location, RemoteUrl, Scheme, masked};

use super::{
    Cli, Common, CpArgs, ProxyVerb, Resolved, UploadsVerb, Urls, Verb, command,
    endpoints::{check_between, check_ends, check_standard, location},
    sync_args,
    transfer_args::job_of,
};
use crate::{
    auth::secrets::Secrets,
    error::Exit,
    service::{Change, ServiceRequest},
    spec::{
        Connections, FilesFrom, Invocation, JobSpec, ListStyle, Manage, Part, Preserve, Proxy,
        ProxyInfo, ProxyInit, Request, Ssh, addresses::AddressScope, nesting::check_nesting,
    },
};

/// Nothing to run: the user asked for help, or the command line is wrong.
#[derive(Debug)]
pub struct EarlyExit {
    /// What to print.
    pub text: String,
    /// [`Exit::Done`] for help and version, which go to standard output; else standard error.
    pub exit: Exit,
}

/// The environment of the process.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Sources of passwords and tokens, and whether a user can be asked.
    pub secrets: Secrets,
    /// `GLOBUS_TCP_PORT_RANGE`.
    pub port_range: Option<String>,
    /// Paths of credentials and trusted CAs from the environment.
    pub locations: Locations,
    /// `GODWIT_SSH` and `GLOBUS_REMOTE_SSHFTP`, or the defaults.
    pub ssh: Ssh,
}

impl Default for Environment {
    /// An empty environment.
    fn default() -> Self {
        Self {
            secrets: Secrets::default(),
            port_range: None,
            locations: Locations::new(|_| None, files::effective_uid()),
            ssh: Ssh::default(),
        }
    }
}

/// Reads a command line, program name first.
pub fn parse(arguments: &[OsString], environment: &Environment) -> Result<Invocation, EarlyExit> {
    let early_exit = |e: clap::Error| EarlyExit {
        exit: match e.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Exit::Done,
            _ => Exit::Usage,
        },
        text: without_passwords(e.render().to_string(), arguments),
    };
    let matches = command()
        .try_get_matches_from(arguments)
        .map_err(early_exit)?;
    let cli = Cli::from_arg_matches(&matches).map_err(early_exit)?;
    let (request, common) = request(cli.verb, &matches, arguments).map_err(wrong)?;
    Ok(Invocation {
        request,
        verbosity: if common.quiet {
            0
        } else {
            1 + common.verbose.min(2)
        },
        connections: connections(&common, environment).map_err(wrong)?,
    })
}

fn wrong(text: String) -> EarlyExit {
    EarlyExit {
        text: format!("godwit: {text}\n"),
        exit: Exit::Usage,
    }
}

fn connections(common: &Common, environment: &Environment) -> Resolved<Connections> {
    let port_range = match &environment.port_range {
        None => None,
        Some(text) if text.trim().is_empty() => None,
        Some(text) => Some(net::parse_port_range(text).ok_or_else(|| {
            format!("GLOBUS_TCP_PORT_RANGE={text}: wanted two ports as 50000,51000")
        })?),
    };
    Ok(Connections {
        kept: None,
        stall_limit: common.stall_timeout,
        secrets: Secrets {
            password_file: common.password_file.clone(),
            token_file: common.token.clone(),
            token_hosts: [&environment.secrets.token_hosts[..], &common.token_host].concat(),
            aws: (environment.secrets.aws.clone())
                .at(common.s3.endpoint.clone(), common.s3.region.clone()),
            ..environment.secrets.clone()
        },
        authorities: match &common.ca {
            None => Authorities::System,
            Some(path) if path.is_dir() => Authorities::Directory(path.clone()),
            Some(path) => Authorities::File(path.clone()),
        },
        addresses: AddressScope::Any,
        data_hosts: common.data_host.clone(),
        stripe_block: None,
        port_range,
        protect: common.protect,
        locations: environment.locations.clone(),
        proxies: (common.proxy.iter())
            .map(|named| (named.host.clone(), named.file.clone()))
            .collect(),
        subjects: common.subject.clone(),
        granted: Default::default(),
        ssh: Ssh {
            command: (common.ssh.clone()).unwrap_or_else(|| environment.ssh.command.clone()),
            server: (common.ssh_server.clone()).or_else(|| environment.ssh.server.clone()),
        },
        buckets: common.s3.options()?,
    })
}

fn request(
    verb: Verb,
    matches: &ArgMatches,
    arguments: &[OsString],
) -> Resolved<(Request, Common)> {
    let manage = |m| Request::Manage(m);
    Ok(match verb {
        Verb::Cp(args) => {
            let common = args.common.clone();
            let job = job(*args, arguments)?;
            check_objects(&job.destination, &common)?;
            (Request::Copy(Box::new(job)), common)
        }
        Verb::Ls {
            long,
            classify,
            json,
            url,
            common,
        } => {
            let style = match (long, classify, json) {
                (true, ..) => ListStyle::Long,
                (_, true, _) => ListStyle::Classified,
                (.., true) => ListStyle::Json,
                _ => ListStyle::Names,
            };
            let url = remote(&url)?;
            (manage(Manage::List { url, style }), common)
        }
        Verb::Stat { json, urls } => {
            let Urls { urls, common } = urls;
            let urls = remotes(&urls)?;
            (manage(Manage::Stat { urls, json }), common)
        }
        Verb::Cksum { algorithm, urls } => {
            let places = urls
                .urls
                .iter()
                .map(location)
                .collect::<Resolved<Vec<_>>>()?;
            if places.contains(&Location::Standard) {
                return Err("cksum works on files: give a path or a URL instead of -".to_owned());
            }
            (manage(Manage::Checksum { algorithm, places }), urls.common)
        }
        Verb::Mkdir { parents, urls } => (
            manage(Manage::MakeDirectory {
                urls: remotes(&urls.urls)?,
                parents,
            }),
            urls.common,
        ),
        Verb::Rm { recursive, urls } => (
            manage(Manage::Remove {
                urls: remotes(&urls.urls)?,
                recursive,
            }),
            urls.common,
        ),
        Verb::Uploads(verb) => {
            let (url, aborts, common) = match verb {
                UploadsVerb::Ls { url, common } => (remote(&url)?, false, common),
                UploadsVerb::Rm { url, common } => (remote(&url)?, true, common),
            };
            if url.scheme != Scheme::S3 {
                return Err(format!("{url}: wanted a bucket (s3://)"));
            }
            (manage(Manage::Uploads { url, aborts }), common)
        }
        Verb::Mv { from, to, common } => {
            let (from, to) = (remote(&from)?, remote(&to)?);
            if (&from.host, from.port, &from.user) != (&to.host, to.port, &to.user) {
                return Err(format!(
                    "mv renames within one server: {from} and {to} are on two"
                ));
            }
            (manage(Manage::Rename { from, to }), common)
        }
        Verb::Chmod { mode, urls } => (
            manage(Manage::ChangeMode {
                urls: remotes(&urls.urls)?,
                mode,
            }),
            urls.common,
        ),
        Verb::Sync(args) => {
            let common = args.common.clone();
            let matches = matches.subcommand().map(|(_, matches)| matches);
            let job = sync_args::job(*args, matches, arguments)?;
            check_objects(&job.destination, &common)?;
            (Request::Copy(Box::new(job)), common)
        }
        Verb::Proxy(verb) => (Request::Proxy(proxy(verb)), Common::of_no_server()),
        Verb::Guc { words } => (Request::UrlCopy(words), Common::of_no_server()),
        Verb::Login(args) => of_service(args.request()?),
        Verb::Logout(args) => of_service(args.request()?),
        Verb::Submit(args) => of_service(args.request()?),
        Verb::Clone(args) => of_service(args.request()),
        Verb::Schedule(verb) => of_service(verb.request()?),
        Verb::Jobs(args) => of_service(args.request()),
        Verb::Job(args) => of_service(args.request()),
        Verb::Wait(args) => of_service(args.request()),
        Verb::Cancel(args) => of_service(args.request(Change::Cancel)),
        Verb::Retry(args) => of_service(args.request(Change::Retry)),
        Verb::Pause(args) => of_service(args.request(Change::Pause)),
        Verb::Resume(args) => of_service(args.request(Change::Resume)),
        Verb::Explain { json, log, common } => (Request::Explain { log, json }, common),
        Verb::Top { json, once, common } => (Request::Top { json, once }, common),
    })
}

fn of_service(request: ServiceRequest) -> (Request, Common) {
    (Request::Service(Box::new(request)), Common::of_no_server())
}

/// What is said of objects says nothing of other files.
fn check_objects(destination: &Location, common: &Common) -> Resolved<()> {
    let is_bucket = matches!(destination, Location::Remote(url) if url.scheme == Scheme::S3);
    match common.s3.of_objects() {
        Some(option) if !is_bucket => Err(format!("{option}: {destination} is no bucket")),
        _ => Ok(()),
    }
}

fn job(args: CpArgs, arguments: &[OsString]) -> Resolved<JobSpec> {
    let mut places = args
        .places
        .iter()
        .map(location)
        .collect::<Resolved<Vec<_>>>()?;
    let destination = places.pop().ok_or("no destination")?;
    let part = match (args.offset, args.length) {
        (None, None) => None,
        (offset, length) => Some(Part {
            offset: offset.unwrap_or(0),
            length,
            stays: false,
            resumes: false,
        }),
    };
    check_ends(&places, &destination)?;
    check_between(&places, &destination, &args.transfer)?;
    check_standard(&places, &destination, args.recursive, part)?;
    if args.recursive {
        check_nesting(&places, &destination)?;
    }
    if let Some(Part { offset, length, .. }) = part {
        if args.recursive || places.len() > 1 {
            return Err(
                "--offset and --length take one file: leave -r and other sources out".into(),
            );
        }
        let end = offset.checked_add(length.unwrap_or(0));
        if end.is_none_or(|end| end > i64::MAX.unsigned_abs()) {
            return Err("--offset and --length reach past the end of any file".to_owned());
        }
    }
    let preserve = args.preserve.unwrap_or_default();
    if preserve != Preserve::default() {
        if places.contains(&Location::Standard) || destination == Location::Standard {
            return Err("--preserve needs files at both ends, - is none".to_owned());
        }
        if part.is_some() {
            return Err("--preserve takes whole files: leave --offset and --length out".to_owned());
        }
    }
    let files_from = args.files_from.clone().map(|file| FilesFrom::List {
        file: (file.as_os_str() != "-").then_some(file),
        nul: args.from0,
    });
    if files_from.is_some() {
        if places.len() > 1 || part.is_some() {
            return Err("--files-from takes one source, a directory, and whole files".to_owned());
        }
        if places.contains(&Location::Standard) || destination == Location::Standard {
            return Err("--files-from needs directories at both ends, - is none".to_owned());
        }
    }
    Ok(JobSpec {
        recursive: args.recursive,
        files_from,
        part,
        preserve,
        ..job_of(args.transfer, places, destination, arguments)?
    })
}

fn proxy(verb: ProxyVerb) -> Proxy {
    match verb {
        ProxyVerb::Init(args) => Proxy::Init(ProxyInit {
            pair: args.cert.zip(args.key),
            out: args.out,
            key: args.key_type,
            lifetime: args.hours,
            limited: args.limited,
            legacy: args.legacy,
            path_length: args.path_length,
            passphrase_on_stdin: args.passphrase_stdin,
        }),
        ProxyVerb::Info {
            file,
            valid_for,
            json,
        } => Proxy::Info(ProxyInfo {
            file,
            valid_for,
            json,
        }),
    }
}

fn remote(text: &OsString) -> Resolved<RemoteUrl> {
    match location(text)? {
        Location::Remote(url) => Ok(url),
        Location::Local(_) | Location::Standard => Err(format!(
            "{}: wanted a URL of a server (gsiftp:// or ftp://)",
            masked(&text.to_string_lossy())
        )),
    }
}

fn remotes(texts: &[OsString]) -> Resolved<Vec<RemoteUrl>> {
    texts.iter().map(remote).collect()
}

/// Clap's message, which quotes the command line.
pub(crate) fn without_passwords(text: String, arguments: &[OsString]) -> String {
    arguments.iter().fold(text, |text, argument| {
        let argument = argument.to_string_lossy();
        text.replace(&*argument, &masked(&argument))
    })
}

//! What a grant asks of the client.

use std::{
    collections::HashMap,
    path::{Component, Path, PathBuf},
    str::FromStr,
};

use godwit_client::auth::{
    aws::AwsEnvironment,
    granted::{Granted, GrantedSecret},
};
use godwit_client::spec::{
    CongestionChoice, Connections, Durability, EpochMode, ExistingFiles, FilesFrom, JobSpec,
    JournalSpec, NamePair, Part, Preserve, Rates, SettingLimit, SharedUpload, TunerSpec, Verify,
    addresses::AddressScope, top_and_name,
};
use godwit_gsi::cert::Credential;
use godwit_proto::{
    ChecksumAlgorithm,
    command::Password,
    temporary::is_temporary,
    url::{Location, RemoteUrl, Scheme},
};
use godwit_service_api::{
    agent::{
        self, FileEnd, FilePart, Grant, GrantOptions, GrantedCredential, Secret, UnitFile, Work,
    },
    job::{self, FileError, Overwrite, WhoActs},
};
use godwit_tune::{Bounds, Method, Setting};

use crate::traces::Traces;

/// Sessions and channels that no share has.
const NO_LIMIT: u32 = 65_535;

/// MODE E block.
const BLOCK_BYTES: u64 = 1 << 20;

/// Attempts of the client for each range. The service repeats whole files, later.
const ATTEMPTS: u32 = 3;

/// What all units of an agent have in common.
pub(super) struct UnitSettings {
    pub(super) journals: PathBuf,
    pub(super) connections: Connections,
    pub(super) own_credentials: bool,
    pub(super) local: Vec<PathBuf>,
    pub(super) rates: Rates,
    pub(super) traces: Traces,
}

/// Jobs of the client, one after the other. Events name a file by its source, so two files of one
/// source are not in the same round; and a round compares checksums of one algorithm.
pub(super) struct Plan {
    pub(super) rounds: Vec<Round>,
    /// Files that cannot be tried.
    pub(super) refused: Vec<(u64, FileError)>,
}

pub(super) struct Round {
    pub(super) spec: JobSpec,
    pub(super) connections: Connections,
    /// By their sources as events name them.
    pub(super) files: HashMap<String, PlannedFile>,
    pub(super) journal: PathBuf,
    /// Files of this machine are synced when the job has ended.
    pub(super) syncs_at_end: bool,
}

pub(super) struct PlannedFile {
    pub(super) index: u64,
    pub(super) bytes: Option<u64>,
    /// What both ends must agree with.
    checksum: Option<(ChecksumAlgorithm, String)>,
    /// Other units copy it, too.
    part: Option<FilePart>,
}

impl PlannedFile {
    /// Both ends have agreed on `checksum`; the user may know better.
    pub(super) fn finished(&self, size: u64, checksum: Option<&str>) -> FileEnd {
        if self.is_range() {
            return FileEnd::Copied;
        }
        let checksum = checksum.map(str::to_ascii_lowercase);
        let Some((algorithm, wanted)) = &self.checksum else {
            return FileEnd::Finished { size, checksum };
        };
        let wanted = format!("{}:{wanted}", algorithm.wire_name().to_ascii_lowercase());
        match checksum {
            Some(checksum) if checksum == wanted => FileEnd::Finished {
                size,
                checksum: Some(checksum),
            },
            Some(other) => FileEnd::Failed(FileError {
                code: "checksum".to_owned(),
                message: format!("both ends have {other}, the job expects {wanted}"),
                who: WhoActs::User,
                may_pass: false,
            }),
            None => FileEnd::Failed(FileError {
                code: "checksum".to_owned(),
                message: format!("no checksum was taken, and the job expects {wanted}"),
                who: WhoActs::Service,
                may_pass: true,
            }),
        }
    }
}

/// The jobs of a unit.
///
/// # Errors
/// Those that concern all of it.
pub(super) fn rounds(
    grant: &Grant,
    settings: &UnitSettings,
    limit: &SettingLimit,
    granted: &Granted,
) -> Result<Plan, FileError> {
    let Work::Copy(files) = &grant.work else {
        return Err(unfit("a listing is no copy"));
    };
    let mut refused = Vec::new();
    let mut groups: Vec<Group> = Vec::new();
    for file in files {
        match placed(file, settings) {
            Ok(placed) => match groups.iter_mut().find(|group| group.takes(&placed)) {
                Some(group) => group.add(placed),
                None => groups.push(Group::of(placed)),
            },
            Err(error) => refused.push((file.index, error)),
        }
    }
    let mut rounds = Vec::new();
    for (number, group) in groups.into_iter().enumerate() {
        let journal = format!("{}-{}-{number}", grant.job, grant.lease.unit);
        let journal = settings.journals.join(journal);
        rounds.push(group.round(grant, settings, limit, granted, journal)?);
    }
    Ok(Plan { rounds, refused })
}

/// The same job with nothing to copy.
pub(super) fn without_files(spec: JobSpec) -> JobSpec {
    JobSpec {
        files_from: Some(FilesFrom::Pairs([].into())),
        ..spec
    }
}

struct Placed {
    source: Location,
    destination: Location,
    name: NamePair,
    shown: String,
    file: PlannedFile,
}

struct Group {
    source: Location,
    destination: Location,
    algorithm: Option<ChecksumAlgorithm>,
    names: Vec<NamePair>,
    files: HashMap<String, PlannedFile>,
}

/// What of a divided file a round does.
enum PartRound {
    Range(Part),
    /// All is copied.
    End,
}

impl Group {
    fn of(placed: Placed) -> Self {
        let mut group = Self {
            source: placed.source.clone(),
            destination: placed.destination.clone(),
            algorithm: placed.file.algorithm(),
            names: Vec::new(),
            files: HashMap::new(),
        };
        group.add(placed);
        group
    }

    fn takes(&self, placed: &Placed) -> bool {
        self.source == placed.source
            && self.destination == placed.destination
            && self.algorithm == placed.file.algorithm()
            && placed.file.part.is_none()
            && !self.files.values().any(|file| file.part.is_some())
            && !self.files.contains_key(&placed.shown)
    }

    fn add(&mut self, placed: Placed) {
        self.names.push(placed.name);
        self.files.insert(placed.shown, placed.file);
    }

    fn round(
        self,
        grant: &Grant,
        settings: &UnitSettings,
        limit: &SettingLimit,
        granted: &Granted,
        journal: PathBuf,
    ) -> Result<Round, FileError> {
        let (mut source, mut destination) = (self.source, self.destination);
        let ends = [&mut source, &mut destination];
        let handed = (grant.addresses, grant.credentials.as_slice());
        let connections = connections_for(handed, granted, settings, ends)?;
        let part = self.files.values().find_map(|file| file.part.as_ref());
        let part = part.map(|part| match part.range {
            Some((from, to)) => PartRound::Range(Part {
                offset: from,
                length: Some(to.saturating_sub(from)),
                stays: true,
                resumes: grant.again,
            }),
            None => PartRound::End,
        });
        let is_range = matches!(part, Some(PartRound::Range(_)));
        let mut names = self.names;
        for upload in names.iter_mut().filter_map(|pair| pair.upload.as_mut()) {
            upload.may_be_complete = grant.again && !is_range;
        }
        let is_bucket = matches!(&destination, Location::Remote(url) if url.scheme == Scheme::S3);
        let may_divide = part.is_none() && (!is_bucket || grant.options.divides_uploads);
        let syncs_at_end = matches!(destination, Location::Local(_));
        Ok(Round {
            spec: JobSpec {
                sources: vec![source],
                destination,
                recursive: false,
                shallow: false,
                dotted: false,
                files_from: Some(FilesFrom::Pairs(names.into())),
                existing: match is_range {
                    true => ExistingFiles::Replace,
                    false => existing(&grant.options, grant.again || journal.exists()),
                },
                sync: None,
                preserve: Preserve {
                    times: grant.options.preserve_times && !is_range,
                    modes: false,
                },
                // The service knows what is copied of a divided file.
                journal: match part {
                    Some(_) => JournalSpec::Never,
                    None => JournalSpec::File(journal.clone()),
                },
                durability: Durability::Batch,
                divide_above: grant.options.divide_above.filter(|_| may_divide),
                part: match part {
                    Some(PartRound::Range(part)) => Some(part),
                    Some(PartRound::End) | None => None,
                },
                tuner: tuner(settings.rates),
                limit: limit.clone(),
                pipelining: None,
                socket_buffer_bytes: None,
                block_bytes: BLOCK_BYTES,
                sparse: true,
                striping: true,
                direct_io: false,
                processors: None,
                congestion: CongestionChoice::System,
                verify: match (self.algorithm, grant.options.verify) {
                    _ if is_range => Verify::Never,
                    (Some(algorithm), _) => Verify::Always(Some(algorithm)),
                    (None, job::Verify::Checksum) => Verify::Always(None),
                    (None, job::Verify::Size) => Verify::Never,
                },
                attempts: ATTEMPTS,
                retry_pause: None,
                events: None,
                metrics_file: None,
                json: false,
                tui: false,
                command: format!("unit {} of job {}", grant.lease.unit, grant.job),
            },
            connections,
            files: self.files,
            journal,
            syncs_at_end,
        })
    }
}

impl PlannedFile {
    fn algorithm(&self) -> Option<ChecksumAlgorithm> {
        self.checksum.as_ref().map(|(algorithm, _)| *algorithm)
    }

    fn is_range(&self) -> bool {
        self.part.as_ref().is_some_and(|part| part.range.is_some())
    }
}

/// What becomes of files that exist. Where the unit runs `again` they may be what an earlier lease
/// of the job has finished and could not report. Nothing but their bytes can tell that.
fn existing(options: &GrantOptions, again: bool) -> ExistingFiles {
    match options.overwrite {
        Overwrite::Always => ExistingFiles::Replace,
        Overwrite::Different if options.preserve_times => ExistingFiles::KeepSame,
        Overwrite::Different => ExistingFiles::KeepSameSize,
        Overwrite::Never if again => ExistingFiles::RefuseOthers,
        Overwrite::Never => ExistingFiles::Refuse,
    }
}

/// The unit uses its share, no more and no less: the service tunes the sum of all shares, and a
/// second tuner below would hide from it what that sum does.
fn tuner(rates: Rates) -> TunerSpec {
    TunerSpec {
        method: Method::Static(Setting::new(NO_LIMIT, NO_LIMIT)),
        bounds: Bounds::up_to(u32::MAX),
        epoch: None,
        mode: EpochMode::Live,
        remembers: false,
        weight: None,
        rates,
    }
}

fn placed(file: &UnitFile, settings: &UnitSettings) -> Result<Placed, FileError> {
    let request = &file.file;
    let ends = [&request.source, &request.destination];
    let [from, to] = ends.map(|url| place(url, settings));
    let (from, to) = (from?, to?);
    if matches!((&from, &to), (Location::Local(_), Location::Local(_))) {
        return Err(unfit("one end must be a server"));
    }
    let shown = match &from {
        Location::Local(path) => path_of(path).display().to_string(),
        place => place.to_string(),
    };
    let odd = |url: &String| unfit(format!("{}: not the path of a file", masked(url)));
    let (source, name) = top_and_name(from).ok_or_else(|| odd(&request.source))?;
    let (destination, target) = top_and_name(to).ok_or_else(|| odd(&request.destination))?;
    let mut names = NamePair {
        source: name,
        destination: target,
        bytes: request.bytes,
        checksum: request.checksum.as_deref().map(checksum).transpose()?,
        ..NamePair::default()
    };
    let checksum = names.checksum.clone();
    if let Some(part) = &file.part {
        let odd = || unfit("not a temporary file beside the destination");
        let (at, temporary) = top_and_name(place(&part.temporary, settings)?).ok_or_else(odd)?;
        let beside = temporary.strip_prefix(folder_of(&names.destination));
        let beside = beside.filter(|name| at == destination && is_temporary(name));
        let name = beside.ok_or_else(odd)?.to_vec();
        names.bytes = Some(part.size);
        names.changed = Some(part.changed);
        names.upload = part.upload.clone().map(|known_as| SharedUpload {
            known_as,
            may_be_complete: false,
        });
        match part.range {
            Some(_) => (names.destination, names.checksum) = (temporary, None),
            None => names.assembled = Some(name),
        }
    }
    Ok(Placed {
        source,
        destination,
        name: names,
        shown,
        file: PlannedFile {
            index: file.index,
            bytes: request.bytes,
            checksum,
            part: file.part.clone(),
        },
    })
}

/// A name up to its last slash.
fn folder_of(name: &[u8]) -> &[u8] {
    let slash = name.iter().rposition(|byte| *byte == b'/');
    &name[..slash.map_or(0, |slash| slash + 1)]
}

/// A URL of a unit, where this agent may go.
pub(super) fn place(url: &str, settings: &UnitSettings) -> Result<Location, FileError> {
    if !url.contains("://") {
        return Err(unfit("not a URL"));
    }
    match Location::parse(url.as_bytes()) {
        Ok(Location::Local(path)) if is_allowed(path_of(&path), &settings.local) => {
            Ok(Location::Local(path))
        }
        Ok(Location::Local(_)) => Err(refused(format!(
            "{}: this agent opens no local file there",
            masked(url)
        ))),
        Ok(Location::Remote(remote))
            if remote.scheme == Scheme::Sshftp && !settings.own_credentials =>
        {
            Err(refused("this agent lends nobody its ssh keys".to_owned()))
        }
        Ok(Location::Remote(remote))
            if matches!(remote.scheme, Scheme::Http | Scheme::Dav) && !settings.own_credentials =>
        {
            Err(refused("this agent speaks no HTTP in clear".to_owned()))
        }
        Ok(place @ Location::Remote(_)) => Ok(place),
        Ok(Location::Standard) => Err(unfit("not a URL")),
        Err(error) => Err(unfit(error)),
    }
}

/// The file lies below a directory that is allowed, links followed as far as there is something.
fn is_allowed(path: &Path, allowed: &[PathBuf]) -> bool {
    let plain = |c: Component<'_>| matches!(c, Component::RootDir | Component::Normal(_));
    if !path.is_absolute() || !path.components().all(plain) {
        return false;
    }
    let real = path.ancestors().find_map(|above| above.canonicalize().ok());
    allowed.iter().any(|folder| {
        let real_folder = folder.canonicalize().ok();
        let is_real = |(real, folder): (&PathBuf, PathBuf)| real.starts_with(folder);
        path.starts_with(folder) && real.as_ref().zip(real_folder).is_some_and(is_real)
    })
}

fn path_of(bytes: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}

/// Connections to addresses in the scope, with what was handed over for these ends, and nothing
/// else unless the agent is the user's own. What is renewed later goes to `granted`.
pub(super) fn connections_for(
    (scope, credentials): (agent::AddressScope, &[GrantedCredential]),
    granted: &Granted,
    settings: &UnitSettings,
    ends: [&mut Location; 2],
) -> Result<Connections, FileError> {
    let mut connections = settings.connections.clone();
    connections.addresses = match scope {
        agent::AddressScope::Public => AddressScope::Public,
        agent::AddressScope::Site => AddressScope::Site,
        agent::AddressScope::Any => AddressScope::Any,
    };
    if !settings.own_credentials {
        connections.secrets = Default::default();
        connections.proxies.clear();
        connections.locations.user.clear();
        connections.locations.proxy = settings.journals.join("no-proxy-was-granted");
    }
    connections.secrets.may_ask = false;
    connections.granted = granted.clone();
    let remotes = ends.into_iter().filter_map(|end| match end {
        Location::Remote(url) => Some(url),
        Location::Local(_) | Location::Standard => None,
    });
    for url in remotes {
        let fitting = credentials.iter().filter(|one| is_for(one, url));
        let fitting: Vec<_> = fitting.collect();
        let has_keys = |one: &&GrantedCredential| matches!(one.secret, Secret::Keys(_));
        if url.scheme == Scheme::S3 && !settings.own_credentials && !fitting.iter().any(has_keys) {
            return Err(FileError {
                code: "credential".to_owned(),
                message: format!(
                    "no keys are stored for s3://{}: POST /api/v1/credentials",
                    url.host
                ),
                who: WhoActs::User,
                may_pass: false,
            });
        }
        for credential in fitting {
            take(granted, &credential.secret, url)?;
        }
    }
    Ok(connections)
}

fn is_for(credential: &GrantedCredential, url: &RemoteUrl) -> bool {
    match Location::parse(credential.endpoint.as_bytes()) {
        Ok(Location::Remote(of)) => {
            let [of_host, host] = [&of.host, &url.host].map(|host| host.trim_end_matches('.'));
            (of.scheme, of.port) == (url.scheme, url.port) && of_host.eq_ignore_ascii_case(host)
        }
        _ => false,
    }
}

/// Renews a credential of a unit that runs. A name with its password stands in the unit's URLs, and
/// is for its next run.
pub(super) fn renew(granted: &Granted, credential: &GrantedCredential) {
    let place = Location::parse(credential.endpoint.as_bytes());
    if let Ok(Location::Remote(mut url)) = place
        && let Err(error) = take(granted, &credential.secret, &mut url)
    {
        tracing::warn!(message = error.message, "a credential was not renewed");
    }
}

fn take(granted: &Granted, secret: &Secret, url: &mut RemoteUrl) -> Result<(), FileError> {
    match secret {
        Secret::Proxy(pem) => {
            let credential = Credential::from_pem(pem.as_bytes(), pem.as_bytes(), None);
            let credential = credential.map_err(|error| FileError {
                code: "credential".to_owned(),
                message: format!("the stored proxy is none: {error}"),
                who: WhoActs::User,
                may_pass: false,
            })?;
            granted.set(
                &url.host,
                url.port,
                GrantedSecret::Proxy(Box::new(credential)),
            );
        }
        Secret::Token(token) => {
            let token = Password::new(token.as_str());
            granted.set(&url.host, url.port, GrantedSecret::Token(token));
        }
        Secret::Keys(keys) => {
            let secret = Password::new(keys.secret.as_str());
            let token = keys.token.as_deref().map(Password::new);
            let aws = AwsEnvironment::of_keys(keys.access.clone(), secret, token)
                .at(keys.service.clone(), keys.region.clone());
            granted.set(&url.host, url.port, GrantedSecret::Keys(Box::new(aws)));
        }
        Secret::Password { user, password } => {
            url.user = Some(user.clone());
            url.password = Some(Password::new(password.as_str()));
        }
    }
    Ok(())
}

fn checksum(text: &str) -> Result<(ChecksumAlgorithm, String), FileError> {
    let odd = || unfit(format!("{text:?}: wanted algorithm:value as a checksum"));
    let (algorithm, value) = text.split_once(':').ok_or_else(odd)?;
    let algorithm = ChecksumAlgorithm::from_str(algorithm).map_err(|_| odd())?;
    Ok((algorithm, algorithm.normalize_value(value).ok_or_else(odd)?))
}

fn masked(url: &str) -> String {
    godwit_proto::url::masked(url)
}

pub(super) fn unfit(message: impl ToString) -> FileError {
    FileError {
        code: "invalid".to_owned(),
        message: message.to_string(),
        who: WhoActs::User,
        may_pass: false,
    }
}

fn refused(message: String) -> FileError {
    FileError {
        code: "refused".to_owned(),
        message,
        who: WhoActs::Operator,
        may_pass: false,
    }
}

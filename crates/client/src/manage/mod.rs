//! The commands that copy nothing: `ls`, `stat`, `cksum`, `mkdir`, `rm`, `mv`, `chmod`.

mod lines;
mod removal;

use std::{sync::Arc, time::SystemTime};

use godwit_engine::{
    data::ChannelParams,
    storage::{PosixStorage, digest},
};
use godwit_proto::{
    ChecksumAlgorithm, Command, FtpPath,
    error::FailureKind,
    facts::Facts,
    listing,
    site::Site,
    timestamp::Timestamp,
    url::{Location, RemoteUrl, Scheme},
};
use tokio_util::sync::CancellationToken;

use self::lines::{json_error, json_line, stat_lines, word_of};
use crate::{
    context::RunContext,
    error::{Error, Exit, Result},
    local::files,
    panics::{on_thread, test_point},
    plan::{ListingItem, gather, hostile},
    report::events::{Event, FileState, Observer},
    session::{
        DirectoryEntry, DisplacedFile, Found, Session, home,
        pool::SessionPool,
        retry::{Operation, RetryingSession},
    },
    spec::{Connections, ListStyle, Manage, place_of, sought_at},
};

/// Attempts of one operation. Few, since a user waits for the answer.
const ATTEMPTS: u32 = 3;

/// Deepest tree that `rm -r` goes down, and most directories that `mkdir -p` makes.
const DEPTH_MAX: usize = 200;

/// Names of one directory that are kept at a time, a few hundred bytes each. Bounds the memory that
/// a server can make the client use.
const ENTRIES_MAX: usize = 1_000_000;

/// Runs an operation on each of its paths; each failure is reported to the observer.
pub async fn run(
    what: Manage,
    connections: Connections,
    observer: Arc<dyn Observer>,
    stop: CancellationToken,
) -> Exit {
    let mut manager = Manager::new(connections, observer, stop);
    Box::pin(manager.run(what)).await;
    manager.end().await;
    manager.exit()
}

/// One name of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedName {
    /// Bytes as the server has them.
    pub name: Vec<u8>,
    /// It has names below it.
    pub is_directory: bool,
    /// Of a file, where the server tells.
    pub size: Option<u64>,
}

/// Names of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedNames {
    /// One level, in any order; neither files nor directories are left out.
    pub names: Vec<ListedName>,
    /// The directory has further ones.
    pub has_more: bool,
}

/// All names of a directory.
///
/// # Errors
/// The server refuses, or has more names than are kept together.
pub async fn list(
    url: RemoteUrl,
    connections: Connections,
    observer: Arc<dyn Observer>,
    stop: CancellationToken,
) -> Result<Vec<ListedName>> {
    let shown = url.to_string();
    let listed = list_up_to(ENTRIES_MAX, url, connections, observer, stop).await?;
    match listed.has_more {
        true => Err(too_many(&shown)),
        false => Ok(listed.names),
    }
}

/// The first names of a directory that the server sends, `most` at most. No more is read than
/// these, where the server sends them a line at a time; of HTTP the whole answer is read.
///
/// # Errors
/// The server refuses.
pub async fn list_up_to(
    most: usize,
    mut url: RemoteUrl,
    connections: Connections,
    observer: Arc<dyn Observer>,
    stop: CancellationToken,
) -> Result<ListedNames> {
    let mut manager = Manager::new(connections, observer, stop);
    let listed = manager.list_names(&mut url, most).await;
    manager.end().await;
    listed
}

/// What a URL names; `None`: the server has no command that would tell.
///
/// # Errors
/// There is nothing, or the server refuses.
pub async fn find(
    mut url: RemoteUrl,
    connections: Connections,
    observer: Arc<dyn Observer>,
    stop: CancellationToken,
) -> Result<Option<ListedName>> {
    let mut manager = Manager::new(connections, observer, stop);
    let found = manager.find_name(&mut url).await;
    manager.end().await;
    found
}

/// Removes a file at a server; one that is not there is as good as removed. `upload`: it is an
/// upload to a bucket, by [`crate::spec::SharedUpload::known_as`].
///
/// # Errors
/// It cannot be removed.
pub async fn remove(
    url: RemoteUrl,
    upload: Option<&str>,
    connections: Connections,
    observer: Arc<dyn Observer>,
    stop: CancellationToken,
) -> Result<()> {
    let mut manager = Manager::new(connections, observer, stop);
    let removed = manager.remove_known(&url, upload).await;
    manager.end().await;
    match removed {
        Err(error) if !error.is_absent() => Err(error),
        _ => Ok(()),
    }
}

/// What is in a directory, or the beginning of it.
struct FirstEntries {
    entries: Vec<DirectoryEntry>,
    /// Why some names are left out.
    incomplete: Option<Error>,
    has_more: bool,
}

fn too_many(url: &str) -> Error {
    Error::Usage(format!(
        "{url}: has more than {ENTRIES_MAX} names, which cannot be kept together"
    ))
}

struct Manager {
    context: Arc<RunContext>,
    retrying: RetryingSession,
    done: u64,
    exits: Vec<Exit>,
}

impl Manager {
    fn new(connections: Connections, observer: Arc<dyn Observer>, stop: CancellationToken) -> Self {
        let stall_limit = connections.stall_limit;
        let storage = PosixStorage::unconfined();
        let context = RunContext::new(connections, observer, None, stop, storage);
        let params = ChannelParams {
            connect_limit: stall_limit,
            stall_limit,
            ..ChannelParams::default()
        };
        let pool = SessionPool::new(Arc::clone(&context), params, ATTEMPTS, None);
        Self {
            retrying: RetryingSession::new(pool),
            context,
            done: 0,
            exits: Vec::new(),
        }
    }

    /// Ends the session, or leaves it to a later run.
    async fn end(&mut self) {
        self.retrying.end().await;
        self.retrying.pool.close().await;
    }

    async fn list_names(&mut self, url: &mut RemoteUrl, most: usize) -> Result<ListedNames> {
        home::expand_home(&self.retrying.pool, vec![url]).await?;
        let path = sought_at(url)?;
        let mut first = self.first_entries(url, &path, most).await?;
        if let Some(error) = first.incomplete {
            return Err(error);
        }
        self.measure(url, &path, &mut first.entries).await?;
        let listed = first
            .entries
            .into_iter()
            .filter(|entry| !entry.is_special());
        let names = listed.map(|entry| ListedName {
            is_directory: entry.is_directory() == Some(true),
            size: entry.facts.size,
            name: entry.name,
        });
        Ok(ListedNames {
            names: names.collect(),
            has_more: first.has_more,
        })
    }

    async fn find_name(&mut self, url: &mut RemoteUrl) -> Result<Option<ListedName>> {
        home::expand_home(&self.retrying.pool, vec![url]).await?;
        let (is_directory, facts) = match self.find(url).await? {
            Found::Directory(facts) => (true, facts),
            Found::File(facts) => (false, facts),
            Found::Missing | Found::Unknown => return Ok(None),
        };
        Ok(Some(ListedName {
            name: url.path.as_bytes().to_vec(),
            is_directory,
            size: facts.size.filter(|_| !is_directory),
        }))
    }

    async fn run(&mut self, mut what: Manage) {
        for url in what.urls() {
            let shown = url.to_string();
            let pool = Arc::clone(&self.retrying.pool);
            if let Err(error) = home::expand_home(&pool, vec![url]).await {
                self.record(&shown, Err(error));
                return;
            }
        }
        match what {
            Manage::List { url, style } => {
                let result = self.list(&url, style).await;
                let result = result.inspect_err(|error| {
                    self.print_error(&url, error, style == ListStyle::Json);
                });
                self.record(&url.to_string(), result);
            }
            Manage::Stat { urls, json } => {
                for url in urls {
                    let result = self.stat(&url, json).await;
                    let result = result.inspect_err(|error| self.print_error(&url, error, json));
                    self.record(&url.to_string(), result);
                }
            }
            Manage::Checksum { algorithm, places } => {
                for place in places {
                    let result = self.checksum(&place, algorithm).await;
                    self.record(&place.to_string(), result);
                }
            }
            Manage::MakeDirectory { urls, parents } => {
                for url in urls {
                    let result = self.make_directory(&url, parents).await;
                    self.record(&url.to_string(), result);
                }
            }
            Manage::Remove { urls, recursive } => {
                for url in urls {
                    let result = self.remove(&url, recursive).await;
                    self.record(&url.to_string(), result);
                }
            }
            Manage::Rename { from, to } => {
                let result = self.rename(&from, &to).await;
                self.record(&from.to_string(), result);
            }
            Manage::Uploads { url, aborts } => {
                let result = self.uploads(&url, aborts).await;
                self.record(&url.to_string(), result);
            }
            Manage::ChangeMode { urls, mode } => {
                for url in urls {
                    let path = url.path.clone();
                    let command = Command::Site(Site::Chmod { mode, path });
                    let result = self.command(&url, "change mode of", command).await;
                    self.record(&url.to_string(), result);
                }
            }
        }
    }

    fn record(&mut self, path: &str, result: Result<()>) {
        let Err(error) = result else {
            self.done += 1;
            return;
        };
        self.exits.push(error.exit());
        if matches!(error, Error::Interrupted) {
            self.context.reporter.warn(format!("interrupted: {path}"));
        } else {
            self.context.reporter.emit(&Event::File {
                path: path.to_owned(),
                bytes: 0,
                size: None,
                seconds: 0.0,
                checksum: None,
                computed: None,
                state: FileState::Failed,
                error: Some(error),
            });
        }
    }

    fn print(&self, line: &[u8]) {
        self.context.reporter.observer().on_output(line);
    }

    /// An error as a line of JSON, where all lines are.
    fn print_error(&self, url: &RemoteUrl, error: &Error, json: bool) {
        if json {
            self.print(&json_error(url, error));
        }
    }

    fn exit(&self) -> Exit {
        let has = |e| self.exits.contains(&e);
        if self.context.stop.is_cancelled() || has(Exit::Interrupted) {
            Exit::Interrupted
        } else if self.exits.is_empty() {
            Exit::Done
        } else if self.done > 0 {
            Exit::Partly
        } else if has(Exit::Failed) {
            Exit::Failed
        } else if has(Exit::Refused) {
            Exit::Refused
        } else {
            Exit::Usage
        }
    }

    async fn with<T>(
        &mut self,
        url: &RemoteUrl,
        body: impl AsyncFnMut(&mut Session) -> Result<T>,
    ) -> Result<T> {
        let endpoint = self.context.endpoints.of(url);
        let shown = url.to_string();
        let step = Operation::on(&endpoint, &shown);
        Ok(self.retrying.attempt(step, body).await?)
    }

    async fn find(&mut self, url: &RemoteUrl) -> Result<Found> {
        let path = sought_at(url)?;
        let found = self
            .with(url, async |s: &mut Session| s.stat(&path).await)
            .await?;
        if found == Found::Missing {
            return Err(Error::Missing {
                what: url.to_string(),
            });
        }
        Ok(found)
    }

    async fn command(&mut self, url: &RemoteUrl, verb: &str, command: Command) -> Result<()> {
        let doing = format!("{verb} {url}");
        let mut again = false;
        let ask = async |s: &mut Session| {
            let first = !std::mem::replace(&mut again, true);
            match s.ask_ok(&command, &doing).await {
                Err(error) if first || !is_done_already(&command, &error) => Err(error),
                // The reply to the first attempt was lost, not its effect.
                _ => Ok(()),
            }
        };
        self.with(url, ask).await
    }

    async fn list(&mut self, url: &RemoteUrl, style: ListStyle) -> Result<()> {
        let path = sought_at(url)?;
        let found = self.find(url).await?;
        let is_file = matches!(found, Found::File(_));
        let (mut entries, incomplete) = match found {
            Found::File(facts) => {
                let name = path.file_name().unwrap_or(path.as_bytes()).to_vec();
                let facts = *facts;
                (vec![DirectoryEntry { name, facts }], None)
            }
            _ => self.entries(url, &path).await?,
        };
        let path = match is_file {
            true => path.parent().unwrap_or_else(FtpPath::root),
            false => path,
        };
        if style != ListStyle::Names {
            self.measure(url, &path, &mut entries).await?;
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let now = now();
        for entry in &entries {
            let mut line = match style {
                ListStyle::Names | ListStyle::Classified => entry.name.clone(),
                ListStyle::Long => listing::format_line(&entry.facts, 1, &entry.name, now),
                ListStyle::Json => {
                    let path = match is_file {
                        true => url.path.clone(),
                        false => path.join(&entry.name).unwrap_or_else(|_| path.clone()),
                    };
                    let url = RemoteUrl {
                        path,
                        ..url.clone()
                    };
                    json_line(&url, word_of(&entry.facts), &entry.facts)
                }
            };
            if style == ListStyle::Classified && entry.is_directory() == Some(true) {
                line.push(b'/');
            }
            self.print(&line);
        }
        incomplete.map_or(Ok(()), Err)
    }

    /// Asks one by one for the facts of names in `directory` that a server without MLSD or MLST has
    /// not sent.
    async fn measure(
        &mut self,
        url: &RemoteUrl,
        directory: &FtpPath,
        entries: &mut [DirectoryEntry],
    ) -> Result<()> {
        let is_bare = |facts: &Facts| facts.modify.is_none() || facts.kind.is_none();
        let bare = entries.iter_mut().filter(|entry| is_bare(&entry.facts));
        let (paths, bare): (Vec<_>, Vec<_>) = bare
            .filter_map(|entry| Some((directory.join(&entry.name).ok()?, entry)))
            .unzip();
        if paths.is_empty() {
            return Ok(());
        }
        let measure = async |s: &mut Session| s.measure_all(&paths).await;
        let measured = self.with(url, measure).await?;
        for (DirectoryEntry { facts, .. }, measured) in bare.into_iter().zip(measured) {
            facts.modify = facts.modify.or(measured.modify);
            if facts.kind.is_none() {
                (facts.kind, facts.size) = (measured.kind, measured.size);
            }
        }
        Ok(())
    }

    /// Names of a directory, and why they are not all: hostile ones are left out. All are kept, to
    /// be sorted or because the operation changes the directory.
    async fn entries(
        &mut self,
        url: &RemoteUrl,
        path: &FtpPath,
    ) -> Result<(Vec<DirectoryEntry>, Option<Error>)> {
        let first = self.first_entries(url, path, ENTRIES_MAX).await?;
        match first.has_more {
            true => Err(too_many(&url.to_string())),
            false => Ok((first.entries, first.incomplete)),
        }
    }

    async fn first_entries(
        &mut self,
        url: &RemoteUrl,
        path: &FtpPath,
        most: usize,
    ) -> Result<FirstEntries> {
        let endpoint = self.context.endpoints.of(url);
        let context = Arc::clone(&self.context);
        let mut entries = Vec::new();
        let mut has_more = false;
        let mut bad = None;
        let gathered = gather(&mut self.retrying, &endpoint, path, |listed| {
            match listed {
                ListingItem::Again => {
                    entries.clear();
                    bad = None;
                }
                ListingItem::Name(Ok(_)) if entries.len() == most => {
                    has_more = true;
                    // Ends the listing.
                    return Err(too_many(&url.to_string()));
                }
                ListingItem::Name(Ok(entry)) => entries.push(entry),
                ListingItem::Name(Err(name)) => {
                    let error = hostile(url.to_string(), name);
                    if let Some(before) = bad.replace(error) {
                        context.reporter.warn(before);
                    }
                }
            }
            Ok(())
        })
        .await;
        let complete = match gathered {
            Err(_) if has_more => None,
            gathered => gathered?,
        };
        Ok(FirstEntries {
            entries,
            incomplete: bad.filter(|_| complete.is_none()),
            has_more,
        })
    }

    async fn stat(&mut self, url: &RemoteUrl, json: bool) -> Result<()> {
        let (kind, facts) = match self.find(url).await? {
            Found::Directory(facts) => ("directory", *facts),
            Found::File(facts) => ("file", *facts),
            Found::Missing | Found::Unknown => ("unknown", Facts::default()),
        };
        if json {
            self.print(&json_line(url, kind, &facts));
            return Ok(());
        }
        for line in stat_lines(url, kind, &facts) {
            self.print(line.as_bytes());
        }
        Ok(())
    }

    async fn checksum(
        &mut self,
        place: &Location,
        verify_mode: Option<ChecksumAlgorithm>,
    ) -> Result<()> {
        let value = match place {
            Location::Local(path) => {
                let algorithm = verify_mode.unwrap_or(ChecksumAlgorithm::Crc32c);
                let path = files::path_of(path);
                let (file, _) = files::open_read(&self.context.local.storage, &path)?;
                let doing = || format!("compute {algorithm} of {place}");
                let shown = place.to_string();
                let compute = move || {
                    test_point("cksum", &shown);
                    digest::of_file(file.as_ref(), algorithm, 0, None, &mut |_| true)
                };
                let value = on_thread(doing, compute).await?.map_err(Error::Local)?;
                format!("{algorithm} {value}")
            }
            Location::Remote(url) => {
                let path = url.path.clone();
                let compute = async |session: &mut Session| {
                    let offered = &session.server.features.checksums;
                    let mut algorithms = ChecksumAlgorithm::ALL.to_vec();
                    algorithms.retain(|algorithm| offered.contains(algorithm));
                    let algorithms = verify_mode.map_or(algorithms, |algorithm| vec![algorithm]);
                    let found = session.first_checksum(&algorithms, 0, None, &path);
                    let (algorithm, value) = found.await?;
                    Ok(format!("{algorithm} {value}"))
                };
                self.with(url, compute).await?
            }
            Location::Standard => {
                return Err(Error::Usage("cksum works on files".to_owned()));
            }
        };
        self.print(format!("{value}  {place}").as_bytes());
        Ok(())
    }

    async fn make_directory(&mut self, url: &RemoteUrl, parents: bool) -> Result<()> {
        let path = sought_at(url)?;
        if !parents {
            return self
                .command(url, "make directory", Command::Mkd(path))
                .await;
        }
        let mut missing = vec![path];
        // Up to an existing directory, then down again.
        while let Some(parent) = missing.last().and_then(FtpPath::parent) {
            if parent == FtpPath::root() || missing.len() > DEPTH_MAX {
                break;
            }
            let found = self
                .with(url, async |s: &mut Session| s.stat(&parent).await)
                .await?;
            if found != Found::Missing {
                break;
            }
            missing.push(parent);
        }
        while let Some(path) = missing.pop() {
            let make = async |s: &mut Session| s.make_directory(&path).await;
            self.with(url, make).await?;
        }
        Ok(())
    }

    async fn rename(&mut self, from: &RemoteUrl, to: &RemoteUrl) -> Result<()> {
        if from.scheme == Scheme::S3 && from.names_directory() {
            let why = "a bucket has no directories that could be renamed";
            return Err(Error::Usage(format!("{from}: {why}")));
        }
        let source = place_of(from)?;
        let mut target = place_of(to)?;
        let look = async |s: &mut Session| s.stat(&target).await;
        let found = self.with(to, look).await?;
        if matches!(found, Found::Directory(_)) {
            let name = source.file_name().unwrap_or_default();
            target = target
                .join(name)
                .map_err(|e| Error::Usage(format!("{from}: {e}")))?;
        } else if to.names_directory() {
            return Err(Error::Missing {
                what: to.to_string(),
            });
        }
        if from.scheme == Scheme::S3 && source == target {
            return Err(Error::Usage(format!("{from}: has that name already")));
        }
        let look = async |s: &mut Session| s.stat(&source).await;
        let moved = self.with(from, look).await?;
        let (displaced, mut again) = (DisplacedFile::default(), false);
        let rename = async |s: &mut Session| {
            // The reply to the first attempt may be lost, not its effect.
            if std::mem::replace(&mut again, true)
                && s.stat(&source).await? == Found::Missing
                && may_be_the_same(&moved, &s.stat(&target).await?)
            {
                s.remove_displaced(&displaced).await;
                return Ok(());
            }
            s.rename(&source, &target, &displaced).await
        };
        let renamed = self.with(from, rename).await;
        renamed.map_err(|error| match displaced.at() {
            None => error,
            Some(at) => Error::Kept {
                error: Box::new(error),
                kept: format!("what was at {to} may be at {at}, and {from} where it was or there"),
            },
        })
    }
}

/// True if an earlier attempt of the command has done its work.
fn is_done_already(command: &Command, error: &Error) -> bool {
    match command {
        Command::Dele(_) | Command::Rmd(_) | Command::Site(Site::RemoveTree(_)) => {
            error.is_absent()
        }
        Command::Mkd(_) => error.refusal() == Some(FailureKind::Exists),
        _ => false,
    }
}

/// True unless facts show that the file at a path is another one than `moved`.
fn may_be_the_same(moved: &Found, there: &Found) -> bool {
    match (moved, there) {
        (Found::File(moved), Found::File(there)) => {
            let differ = |one: Option<&String>, other| one.zip(other).is_some_and(|(a, b)| a != b);
            moved.size == there.size && !differ(moved.unique.as_ref(), there.unique.as_ref())
        }
        (Found::Directory(_), Found::Directory(_)) | (Found::Unknown, Found::Unknown) => true,
        _ => false,
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Timestamp(since.map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX)))
}

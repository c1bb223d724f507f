//! Sources of `--files-from`: names relative to one directory.
//!
//! The grammar is rsync's: one path per line, relative to the source with or without a leading
//! slash; empty lines and lines that start with `#` or `;` are ignored. Lists with NUL after each
//! name have no comments. A directory is created; its files are copied with `-r`. The list is read
//! while files are copied.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::{self, BufRead, BufReader, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use godwit_proto::{
    ChecksumAlgorithm, FtpPath,
    pi::transfer::Direction,
    url::{Location, RemoteUrl},
};
use tokio::sync::mpsc;

use super::{
    Planner,
    checksums::{checksums, offered},
    copy_path::CopyPath,
    local_walk::put,
    needs_recursive,
    parallel_listing::PendingDirectory,
    remote_walk::get,
    trail::Trail,
};
use crate::{
    endpoint::Endpoint,
    error::{Error, Result},
    local::{attributes::FileAttributes, files, journal::Completion},
    panics::{caught_now, test_point},
    report::events::FileEnd,
    session::{Found, Session, retry::Operation},
    spec::{ExistingFiles, FilesFrom, NamePair, SharedUpload, Verify, place_of},
    transfer::{
        source_file::{LocalEnd, Origin, Peer, RemotePath, SourceFile},
        verify,
    },
};

/// Names that are checked together.
const BATCH_MAX: usize = 100;
/// Longest name that is read.
const NAME_BYTES_MAX: u64 = 64 << 10;

/// Where the names of a source at a server go.
enum ListBase {
    Here(PathBuf),
    There(RemoteUrl),
}

/// A name below each of the two ends, relative, without `.` and empty components.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Name {
    source: Vec<u8>,
    destination: Vec<u8>,
    /// Bytes that the source must have.
    bytes: Option<u64>,
    /// Its checksum.
    checksum: Option<Arc<(ChecksumAlgorithm, String)>>,
    /// When it must have been changed.
    changed: Option<i64>,
    /// Where other jobs have put all of it, beside the destination.
    assembled: Option<Vec<u8>>,
    /// The upload to a bucket that other jobs send, too.
    upload: Option<SharedUpload>,
}

impl Name {
    /// The same at both ends.
    fn of_both(line: &[u8]) -> Result<Self> {
        let source = relative(line)?;
        Ok(Self {
            destination: source.clone(),
            source,
            bytes: None,
            checksum: None,
            changed: None,
            assembled: None,
            upload: None,
        })
    }

    fn of_pair(pair: &NamePair) -> Result<Self> {
        Ok(Self {
            source: relative(&pair.source)?,
            destination: relative(&pair.destination)?,
            bytes: pair.bytes,
            checksum: pair.checksum.clone().map(Arc::new),
            changed: pair.changed,
            assembled: pair.assembled.clone(),
            upload: pair.upload.clone(),
        })
    }

    /// That the source is what was said; what other jobs have done of its copy.
    fn check(&self, mut file: SourceFile) -> Result<SourceFile> {
        let what = || file.source();
        let is_other_size = self.bytes.is_some() && file.size.is_some() && self.bytes != file.size;
        match (self.changed, self.bytes.zip(file.size)) {
            (Some(wanted), _) if is_other_size || file.changed != Some(wanted) => {
                return Err(Error::Changed { what: what() });
            }
            (None, Some((wanted, size))) if is_other_size => {
                let why = format!("has {size} bytes, and {wanted} were expected");
                return Err(Error::unfit(what(), why));
            }
            _ => {}
        }
        file.expected = self.checksum.clone();
        file.upload = self.upload.clone();
        if let Some(name) = &self.assembled {
            let at = file
                .remote
                .sibling(name)
                .filter(|_| file.direction() == Direction::Put);
            let at = at.ok_or_else(|| Error::Usage(format!("{}: no name", shown(name))))?;
            file.begun = Some(at.as_bytes().to_vec());
            file.is_assembled = true;
        }
        Ok(file)
    }
}

impl Planner {
    /// Exactly one source, a directory, and a destination that is or becomes one.
    pub(super) async fn plan_listed(&mut self, list: &FilesFrom) -> Result<()> {
        let spec = Arc::clone(&self.spec);
        let mut names = read(list)?;
        let mut made = HashSet::new();
        loop {
            let mut batch = Vec::new();
            if names.recv_many(&mut batch, BATCH_MAX).await == 0 || self.context.stop.is_cancelled()
            {
                return Ok(());
            }
            let mut good = Vec::with_capacity(batch.len());
            for name in batch {
                match name {
                    Ok(name) => good.push(name),
                    Err(error) => self.fail(list.to_string(), error).await,
                }
            }
            match (spec.sources.first(), &spec.destination) {
                (Some(Location::Remote(url)), Location::Local(to)) => {
                    let to = ListBase::Here(files::path_of(to));
                    self.listed_gets(url, &to, &good, &mut made).await?;
                }
                (Some(Location::Remote(url)), Location::Remote(to)) => {
                    let to = ListBase::There(to.clone());
                    self.listed_gets(url, &to, &good, &mut made).await?;
                }
                (Some(Location::Local(from)), Location::Remote(url)) => {
                    let from = files::path_of(from);
                    self.listed_puts(&from, url, &good, &mut made).await?;
                }
                // The command line was checked for it.
                _ => return Ok(()),
            }
        }
    }

    async fn listed_gets(
        &mut self,
        url: &RemoteUrl,
        to: &ListBase,
        names: &[Name],
        made: &mut HashSet<FtpPath>,
    ) -> Result<()> {
        let endpoint = self.context.endpoints.of(url);
        let mut wanted = Vec::with_capacity(names.len());
        for name in names {
            match below(url, &name.source) {
                Ok(remote) => wanted.push((name, remote)),
                Err(error) => self.fail(shown(&name.source), error).await,
            }
        }
        let remotes: Vec<_> = wanted.iter().map(|(_, remote)| remote.clone()).collect();
        let server = endpoint.name();
        let look = async |session: &mut Session| session.stat_all(&remotes, false).await;
        let found = self
            .retrying
            .attempt(Operation::on(&endpoint, &server), look)
            .await?;
        if let ListBase::There(url) = to {
            let there = found.iter().zip(&wanted);
            let folders = there.flat_map(|(found, (name, _))| {
                ancestors(
                    url,
                    &name.destination,
                    matches!(found, Ok(Found::Directory(_))),
                )
            });
            self.make_folders(&self.context.endpoints.of(url), folders.collect(), made)
                .await?;
        }
        let goals: Vec<_> = (wanted.iter())
            .map(|(name, _)| self.destination(to, &name.destination))
            .collect();
        let mut existing = self.existing(&goals).await?.into_iter();
        for (((name, remote), found), goal) in wanted.into_iter().zip(found).zip(goals) {
            let what = endpoint.url(&remote);
            let existing = existing.next().flatten();
            let listed = match goal {
                Ok(goal) => {
                    self.listed_get(&endpoint, (name, remote), goal, found, existing)
                        .await
                }
                Err(error) => Err(error),
            };
            if let Err(error) = listed {
                self.fail(what, error).await;
            }
        }
        Ok(())
    }

    /// What lies at the destinations of files, where that matters.
    async fn existing(&mut self, goals: &[Result<CopyPath>]) -> Result<Vec<Option<Existing>>> {
        if self.spec.existing == ExistingFiles::Replace {
            return Ok(Vec::new());
        }
        let there = goals.iter().flatten().find_map(|goal| match goal {
            CopyPath::There(at) => Some(Arc::clone(&at.endpoint)),
            CopyPath::Here(_) => None,
        });
        let Some(endpoint) = there else {
            return goals.iter().map(existing_here).collect();
        };
        let paths: Vec<_> = goals
            .iter()
            .flatten()
            .filter_map(CopyPath::path_there)
            .collect();
        let server = endpoint.name();
        let look = async |session: &mut Session| session.stat_destinations(&paths).await;
        let found = self
            .retrying
            .attempt(Operation::on(&endpoint, &server), look)
            .await?;
        let mut found = found.into_iter();
        let of_goal = |goal: &Result<CopyPath>| {
            let found = goal.as_ref().ok().and_then(|_| found.next());
            match found.transpose()? {
                Some(Found::File(facts) | Found::Directory(facts)) => Ok(Some(Existing {
                    size: facts.size,
                    modified: facts.modify.map(|time| time.0),
                })),
                Some(Found::Missing | Found::Unknown) | None => Ok(None),
            }
        };
        goals.iter().map(of_goal).collect()
    }

    /// Submits a file unless what lies at its destination is to stay. What an earlier run of this
    /// job has put there is not a stranger's.
    async fn submit_unless(&mut self, file: SourceFile, existing: Option<Existing>) -> Result<()> {
        let journal = self.context.local.journal.get().filter(|j| j.has_any());
        let finished = (journal.zip(file.completed()))
            .is_some_and(|(journal, mark)| journal.has(&mark) != Completion::No);
        let Some(existing) = existing.filter(|_| !finished) else {
            self.submit(file).await;
            return Ok(());
        };
        let same_size = file.size.is_some() && existing.size == file.size;
        let keeps = match self.spec.existing {
            ExistingFiles::Replace => false,
            ExistingFiles::Refuse => {
                let what = file.target();
                return Err(Error::Exists { what });
            }
            ExistingFiles::KeepSameSize => same_size,
            ExistingFiles::RefuseOthers => {
                return match same_size {
                    true => self.skip_if_same(&file).await,
                    false => Err(Error::Exists {
                        what: file.target(),
                    }),
                };
            }
            ExistingFiles::KeepSame => {
                let modified = file.modified_seconds();
                same_size && modified.is_some() && modified == existing.modified
            }
        };
        match keeps {
            true => self.keep(&file),
            false => self.submit(file).await,
        }
        Ok(())
    }

    /// Whether an earlier run has copied what lies there, by its checksum if the job verifies.
    async fn skip_if_same(&mut self, file: &SourceFile) -> Result<()> {
        let algorithm = match self.spec.verify {
            Verify::Never | Verify::WherePossible => {
                self.skip_copied(file, None);
                return Ok(());
            }
            Verify::Always(algorithm) => algorithm,
        };
        let [source, target] = ends(file);
        let algorithm = match algorithm {
            Some(algorithm) => algorithm,
            None => self.common_algorithm([&source, &target]).await?,
        };
        let mut values = Vec::with_capacity(2);
        for end in [&source, &target] {
            values.extend(checksums(&mut self.retrying, algorithm, vec![end]).await);
        }
        let values: Vec<_> = values.into_iter().collect::<Result<_>>()?;
        let [ours, theirs] = <[String; 2]>::try_from(values).unwrap_or_default();
        let doing = file.target();
        match verify::agree(&doing, algorithm, ours, theirs) {
            Ok(agreed) => {
                verify::check_expected(&doing, Some(&agreed), file.expected.as_deref())?;
                self.skip_copied(file, Some(&agreed));
                Ok(())
            }
            Err(_) => Err(Error::Exists { what: doing }),
        }
    }

    /// The first algorithm that the servers of both ends have.
    async fn common_algorithm(&mut self, ends: [&CopyPath; 2]) -> Result<ChecksumAlgorithm> {
        let mut common = ChecksumAlgorithm::ALL.to_vec();
        for end in ends {
            if let CopyPath::There(at) = end {
                let offered = offered(&mut self.retrying, &at.endpoint).await?;
                common.retain(|algorithm| offered.contains(algorithm));
            }
        }
        common
            .first()
            .copied()
            .ok_or_else(|| Error::MissingFeature {
                endpoint: self.spec.destination.to_string(),
                feature: "CKSM with an algorithm that both ends have".to_owned(),
                consequence: "the file cannot be verified".to_owned(),
            })
    }

    /// The destination has it already.
    fn keep(&self, file: &SourceFile) {
        let same = &self.context.counters.files_same;
        same.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let end = FileEnd::Kept;
        self.context.reporter.ended(&file.source(), &end);
    }

    fn destination(&self, to: &ListBase, name: &[u8]) -> Result<CopyPath> {
        Ok(match to {
            ListBase::Here(folder) => CopyPath::Here(folder.join(files::path_of(name))),
            ListBase::There(url) => CopyPath::There(RemotePath {
                endpoint: self.context.endpoints.of(url),
                path: below(url, name)?,
            }),
        })
    }

    async fn listed_get(
        &mut self,
        endpoint: &Arc<Endpoint>,
        (name, remote): (&Name, FtpPath),
        destination: CopyPath,
        found: Result<Found>,
        existing: Option<Existing>,
    ) -> Result<()> {
        let facts = match found? {
            Found::Missing => {
                let what = endpoint.url(&remote);
                return Err(Error::Missing { what });
            }
            Found::Directory(facts) => {
                if let CopyPath::Here(here) = &destination {
                    make_all_local(here)?;
                }
                let attributes = FileAttributes::of_facts(&facts);
                if !self.spec.recursive && matches!(self.spec.files_from, Some(FilesFrom::Pairs(_)))
                {
                    return Err(needs_recursive(&endpoint.url(&remote)));
                }
                if !self.spec.recursive {
                    self.preserve_directory(&destination, attributes).await;
                } else {
                    let branch = PendingDirectory {
                        trail: Trail::new(&remote),
                        remote,
                        destination,
                        is_new: false,
                        attributes: Some(attributes),
                        above: facts.unique.into_iter().collect(),
                        depth: 0,
                    };
                    self.walk_remote(endpoint, branch).await;
                }
                return Ok(());
            }
            Found::File(facts) => *facts,
            Found::Unknown => Default::default(),
        };
        if let CopyPath::Here(here) = &destination
            && let Some(folder) = here.parent()
        {
            make_all_local(folder)?;
        }
        let file = name.check(get(endpoint, remote, destination, &facts))?;
        self.submit_unless(file, existing).await
    }

    /// Creates directories at a server, each once.
    async fn make_folders(
        &mut self,
        endpoint: &Arc<Endpoint>,
        mut folders: Vec<FtpPath>,
        made: &mut HashSet<FtpPath>,
    ) -> Result<()> {
        folders.retain(|folder| made.insert(folder.clone()));
        // A directory that could not be created is reported by the files in it.
        for result in self.make_all_remote(endpoint, &folders).await? {
            if let Err(error) = result {
                self.context.reporter.note(error);
            }
        }
        Ok(())
    }

    async fn listed_puts(
        &mut self,
        from: &Path,
        url: &RemoteUrl,
        names: &[Name],
        made: &mut HashSet<FtpPath>,
    ) -> Result<()> {
        let endpoint = self.context.endpoints.of(url);
        let mut found = Vec::with_capacity(names.len());
        let mut folders = Vec::new();
        for name in names {
            match stat_local(from, url, name) {
                Ok((here, remote, metadata)) => {
                    folders.extend(ancestors(url, &name.destination, metadata.is_dir()));
                    found.push((name, here, remote, metadata));
                }
                Err(error) => {
                    let here = from.join(files::path_of(&name.source));
                    self.fail(here.display().to_string(), error).await;
                }
            }
        }
        self.make_folders(&endpoint, folders, made).await?;
        let goals: Vec<_> = (found.iter())
            .map(|(_, _, remote, _)| {
                Ok(CopyPath::There(RemotePath {
                    endpoint: Arc::clone(&endpoint),
                    path: remote.clone(),
                }))
            })
            .collect();
        let mut existing = self.existing(&goals).await?.into_iter();
        for (name, here, remote, metadata) in found {
            let existing = existing.next().flatten();
            if !metadata.is_dir() {
                let what = here.display().to_string();
                let file = put(&endpoint, LocalEnd::Path(here), remote, Some(&metadata));
                let submitted = match name.check(file) {
                    Ok(file) => self.submit_unless(file, existing).await,
                    Err(error) => Err(error),
                };
                if let Err(error) = submitted {
                    self.fail(what, error).await;
                }
            } else if self.spec.recursive {
                let what = here.display().to_string();
                if let Err(error) = self.walk_from(&endpoint, here, remote, &metadata).await {
                    self.fail(what, error).await;
                }
            } else if matches!(self.spec.files_from, Some(FilesFrom::Pairs(_))) {
                let what = here.display().to_string();
                self.fail(what.clone(), needs_recursive(&what)).await;
            } else {
                let destination =
                    self.destination(&ListBase::There(url.clone()), &name.destination)?;
                let attributes = FileAttributes::of_metadata(&metadata);
                self.preserve_directory(&destination, attributes).await;
            }
        }
        Ok(())
    }
}

/// Where a file comes from, and where it goes.
fn ends(file: &SourceFile) -> [CopyPath; 2] {
    let here = |end: &LocalEnd| match end {
        LocalEnd::Path(path) => CopyPath::Here(path.clone()),
        LocalEnd::Standard => CopyPath::Here(PathBuf::new()),
    };
    let there = CopyPath::There(RemotePath {
        endpoint: Arc::clone(&file.endpoint),
        path: file.remote.clone(),
    });
    match &file.other {
        Peer::To(end) => [there, here(end)],
        Peer::From(Origin::Here(end)) => [here(end), there],
        Peer::From(Origin::Server(at)) => [CopyPath::There(at.clone()), there],
    }
}

fn stat_local(
    from: &Path,
    url: &RemoteUrl,
    name: &Name,
) -> Result<(PathBuf, FtpPath, fs::Metadata)> {
    let here = from.join(files::path_of(&name.source));
    let metadata = files::stat(&here)?.ok_or_else(|| Error::Missing {
        what: here.display().to_string(),
    })?;
    Ok((here, below(url, &name.destination)?, metadata))
}

/// `name` below the directory of `url`.
fn below(url: &RemoteUrl, name: &[u8]) -> Result<FtpPath> {
    let mut path = place_of(url)?.as_bytes().to_vec();
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    FtpPath::new(path)
        .map_err(|e| Error::Usage(format!("{}: cannot be named at a server: {e}", shown(name))))
}

/// The directories that `name` needs below that of `url`, outermost first, and `name` itself if it
/// `is_directory`.
fn ancestors(url: &RemoteUrl, name: &[u8], is_directory: bool) -> Vec<FtpPath> {
    let Ok(top) = place_of(url) else {
        // That is said of each name.
        return Vec::new();
    };
    // The root is there.
    let mut folders = Vec::from_iter((top != FtpPath::root()).then_some(top));
    let ends = name.iter().enumerate().filter(|(_, b)| **b == b'/');
    let ends = ends
        .map(|(at, _)| at)
        .chain(is_directory.then_some(name.len()));
    folders.extend(ends.filter_map(|end| below(url, &name[..end]).ok()));
    folders
}

/// What lies at the destination of a file.
#[derive(Clone, Copy, Debug)]
struct Existing {
    size: Option<u64>,
    /// Seconds since 1970.
    modified: Option<i64>,
}

fn existing_here(goal: &Result<CopyPath>) -> Result<Option<Existing>> {
    let Ok(CopyPath::Here(path)) = goal else {
        return Ok(None);
    };
    let found = files::stat(path)?;
    Ok(found.map(|found| Existing {
        size: Some(found.len()),
        modified: Some(found.mtime()),
    }))
}

fn make_all_local(folder: &Path) -> Result<()> {
    let doing = || format!("make directory {}", folder.display());
    fs::create_dir_all(folder).map_err(|e| Error::local(doing(), &e))
}

/// Names of the list, read on a thread of its own, since standard input may block. The channel is
/// bounded.
fn read(list: &FilesFrom) -> Result<mpsc::Receiver<Result<Name>>> {
    let failed = |e: io::Error| Error::local(format!("read {list}"), &e);
    let (sender, names) = mpsc::channel(BATCH_MAX);
    let shown = list.to_string();
    let (reader, nul): (Box<dyn Read + Send>, _) = match list {
        FilesFrom::List {
            file: Some(path),
            nul,
        } => (Box::new(File::open(path).map_err(failed)?), *nul),
        FilesFrom::List { file: None, nul } => (Box::new(io::stdin()), *nul),
        FilesFrom::Pairs(pairs) => {
            let pairs = Arc::clone(pairs);
            tokio::task::spawn_local(async move {
                for pair in pairs.iter() {
                    if sender.send(Name::of_pair(pair)).await.is_err() {
                        return;
                    }
                }
            });
            return Ok(names);
        }
    };
    std::thread::Builder::new()
        .name("godwit-list".to_owned())
        .spawn(move || {
            let reading = || read_names(BufReader::new(reader), nul, &shown, &sender);
            if let Err(bug) = caught_now(|| format!("read {shown}"), reading) {
                // Otherwise the list would seem to end there.
                let _ = sender.blocking_send(Err(bug));
            }
        })
        .map_err(failed)?;
    Ok(names)
}

/// Sends the names until the list ends or the receiver is dropped.
fn read_names(
    mut reader: impl BufRead,
    nul: bool,
    shown: &str,
    sender: &mpsc::Sender<Result<Name>>,
) {
    loop {
        test_point("list", &shown);
        let name = match next_name(&mut reader, nul) {
            Ok(Some(name)) => name,
            Ok(None) => return,
            Err(e) => Some(Err(Error::local(format!("read {shown}"), &e))),
        };
        let ends = matches!(&name, Some(Err(Error::Local(_))));
        if name.is_some_and(|name| sender.blocking_send(name).is_err()) || ends {
            return;
        }
    }
}

/// The next line: `None` at the end, `Some(None)` for a comment or an empty line.
#[allow(
    clippy::type_complexity,
    reason = "a line may be an end, nothing, bad or a name"
)]
fn next_name(reader: &mut impl BufRead, nul: bool) -> io::Result<Option<Option<Result<Name>>>> {
    let end = if nul { 0 } else { b'\n' };
    let mut line = Vec::new();
    if reader.take(NAME_BYTES_MAX).read_until(end, &mut line)? == 0 {
        return Ok(None);
    }
    if line.len() as u64 == NAME_BYTES_MAX {
        let why = format!("a name of more than {NAME_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let line = line.strip_suffix(&[end]).unwrap_or(&line);
    let line = match nul {
        true => line,
        false => line.strip_suffix(b"\r").unwrap_or(line),
    };
    let comment = !nul && matches!(line.first(), Some(b'#' | b';'));
    Ok(Some(
        (!line.is_empty() && !comment).then(|| Name::of_both(line)),
    ))
}

/// Removes `.` and empty components. A name that leads out of the directory is refused.
fn relative(line: &[u8]) -> Result<Vec<u8>> {
    let components = line.split(|b| *b == b'/');
    let kept: Vec<_> = components.filter(|c| !c.is_empty() && *c != b".").collect();
    if kept.contains(&&b".."[..]) {
        return Err(Error::Usage(format!(
            "{}: leads out of the source",
            shown(line)
        )));
    }
    if kept.is_empty() {
        return Err(Error::Usage(format!("{}: names no file", shown(line))));
    }
    Ok(kept.join(&b'/'))
}

fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &[u8], nul: bool) -> Vec<std::result::Result<String, String>> {
        let mut reader = text;
        let mut names = Vec::new();
        while let Some(line) = next_name(&mut reader, nul).unwrap() {
            names.extend(line.map(|name| match name {
                Ok(name) => Ok(String::from_utf8(name.source).unwrap()),
                Err(error) => Err(error.to_string()),
            }));
        }
        names
    }

    #[test]
    fn lines_are_paths_below_the_source() {
        let text = b"a\n\n# no\n; no\n/b//c/./d \r\n./e\n../out\nx/../y\n/\nlast";
        let out = |name: &str| Err(format!("{name}: leads out of the source"));
        assert_eq!(
            names(text, false),
            [
                Ok("a".to_owned()),
                Ok("b/c/d ".to_owned()),
                Ok("e".to_owned()),
                out("../out"),
                out("x/../y"),
                Err("/: names no file".to_owned()),
                Ok("last".to_owned()),
            ]
        );
    }

    #[test]
    fn names_that_end_in_nul_hold_anything_else() {
        let text = b"#a\0b\nc\0\0d";
        let expected = ["#a", "b\nc", "d"].map(|n| Ok(n.to_owned()));
        assert_eq!(names(text, true), expected);
    }

    #[test]
    fn folders_come_from_the_top_down() {
        let Ok(Location::Remote(url)) = Location::parse(b"ftp://h/top/") else {
            panic!("a URL");
        };
        let shown = |name: &[u8], dir| -> Vec<_> {
            let all = ancestors(&url, name, dir);
            all.iter().map(ToString::to_string).collect()
        };
        assert_eq!(shown(b"a/b/f", false), ["/top", "/top/a", "/top/a/b"]);
        assert_eq!(shown(b"a/b", true), ["/top", "/top/a", "/top/a/b"]);
    }
}

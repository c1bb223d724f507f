//! Files at servers that are copied to this machine or to another server.

use std::{path::PathBuf, sync::Arc};

use godwit_proto::{
    FtpPath,
    facts::Facts,
    url::{Location, RemoteUrl, names_directory},
};

use super::{
    DEPTH_MAX, Planner,
    copy_path::CopyPath,
    needs_recursive,
    parallel_listing::{
        ActiveListing, ListingEvent, ListingItem, ListingResult, ParallelListing, PendingDirectory,
        gather,
    },
    pattern::{Pattern, is_pattern, only_last},
    too_deep,
    trail::Trail,
};
use crate::{
    endpoint::Endpoint,
    error::{Error, Result},
    local::{attributes::FileAttributes, files},
    session::{BadName, DirectoryEntry, Found, ListingLines, Session, retry::Operation},
    spec::{place_of, sought_at},
    transfer::source_file::{LocalEnd, Origin, Peer, RemotePath, SourceFile, is_device},
};

/// Names of a directory that wait for a check until its listing is complete.
const UNCLEAR_MAX: usize = 10_000;

impl Planner {
    pub(super) async fn plan_gets(&mut self, destination: &Location) -> Result<()> {
        let spec = Arc::clone(&self.spec);
        let mut sources = Vec::new();
        for source in &spec.sources {
            let Location::Remote(url) = source else {
                continue;
            };
            match self.expand_remote(url).await {
                Ok(found) => sources.extend(found),
                Err(error @ Error::Interrupted) => return Err(error),
                Err(error) => self.fail(url.to_string(), error).await,
            }
        }
        let (destination, is_directory) = match destination {
            Location::Standard => return self.plan_output(sources).await,
            Location::Local(path) => self.goal_here(path, &sources)?,
            Location::Remote(url) => self.goal_there(url, &sources).await?,
        };
        for source in sources {
            let shown = source.endpoint.url(&source.path);
            let target = match source.path.file_name() {
                Some(name) if is_directory && !(source.contents && source.found.is_directory()) => {
                    destination.join(name)
                }
                _ => Ok(destination.clone()),
            };
            let planned = match target {
                Ok(target) => self.plan_get(source, target).await,
                Err(error) => Err(error),
            };
            if let Err(error) = planned {
                self.fail(shown, error).await;
            }
        }
        Ok(())
    }

    /// Where `sources` go on this machine, and whether it is a directory.
    fn goal_here(&self, destination: &[u8], sources: &[FoundSource]) -> Result<(CopyPath, bool)> {
        // Without a `.` at its end, which would prevent its creation.
        let path: PathBuf = files::path_of(destination).components().collect();
        let existing = files::stat(&path)?;
        let is_directory = names_directory(destination)
            || self.copies_into(existing.as_ref().is_some_and(std::fs::Metadata::is_dir));
        self.check_many(sources.len() > 1, is_directory)?;
        if is_directory && existing.is_none() && !sources.is_empty() {
            files::make_directory(&path)?;
        }
        Ok((CopyPath::Here(path), is_directory))
    }

    /// Where they go at another server, likewise.
    async fn goal_there(
        &mut self,
        destination: &RemoteUrl,
        sources: &[FoundSource],
    ) -> Result<(CopyPath, bool)> {
        let at = RemotePath {
            endpoint: self.context.endpoints.of(destination),
            path: place_of(destination)?,
        };
        let is_directory = match sources.is_empty() {
            true => false,
            false => self.directory_there(destination, &at).await?,
        };
        self.check_preserve(&at).await?;
        self.check_many(sources.len() > 1, is_directory)?;
        Ok((CopyPath::There(at), is_directory))
    }

    async fn plan_output(&mut self, sources: Vec<FoundSource>) -> Result<()> {
        for source in sources {
            let shown = source.endpoint.url(&source.path);
            match source.found.facts() {
                Err(()) => {
                    self.fail(shown, needs_recursive(&source.path.to_string()))
                        .await
                }
                Ok(facts) => {
                    let to = Peer::To(LocalEnd::Standard);
                    let file = file(source.endpoint, source.path, to, &facts);
                    self.submit(file).await;
                }
            }
        }
        Ok(())
    }

    async fn plan_get(&mut self, source: FoundSource, target: CopyPath) -> Result<()> {
        match &source.found {
            Found::Directory(facts) => {
                let shown = source.endpoint.url(&source.path);
                if self.spec.shallow && !source.contents {
                    return Ok(());
                }
                if !self.spec.recursive {
                    return Err(needs_recursive(&shown));
                }
                let branch = PendingDirectory {
                    above: facts.unique.iter().cloned().collect(),
                    trail: Trail::new(&source.path),
                    remote: source.path,
                    destination: target,
                    is_new: false,
                    attributes: Some(FileAttributes::of_facts(facts)),
                    depth: 0,
                };
                for branch in self.make(&source.endpoint, vec![branch]).await {
                    self.walk_remote(&source.endpoint, branch).await;
                }
                Ok(())
            }
            found => {
                let facts = found.facts().unwrap_or_default();
                // This source needs no further listing: the workers may use the session.
                self.retrying.release();
                self.submit(get(&source.endpoint, source.path, target, &facts))
                    .await;
                Ok(())
            }
        }
    }

    /// Depth first, so that the stack stays short; several directories at once, since each costs
    /// round trips.
    pub(super) async fn walk_remote(&mut self, endpoint: &Arc<Endpoint>, top: PendingDirectory) {
        // The first listing uses the session that exists.
        self.retrying.release();
        let mut listers = ParallelListing::new(&self.retrying.pool, endpoint);
        let mut branches = vec![top];
        while !self.context.stop.is_cancelled() {
            while listers.wants(branches.len())
                && let Some(mut branch) = branches.pop()
            {
                // Once, since a directory may be listed again; before its subdirectories, which its
                // listing names.
                if let Some(attributes) = branch.attributes.take() {
                    self.preserve_directory(&branch.destination, attributes)
                        .await;
                }
                listers.begin(branch);
            }
            let Some(listing) = listers.next().await else {
                break;
            };
            let (reading, listed) = match listing {
                // The session that lists the names checks them after the listing.
                ListingEvent::ListingLines(reading, lines) if lines.needs_stat() => {
                    reading.kept.push(lines);
                    continue;
                }
                ListingEvent::ListingLines(reading, lines) => {
                    self.walk_lines(endpoint, reading, &lines, &mut branches)
                        .await;
                    continue;
                }
                ListingEvent::Over(reading, ListingResult::Later) => {
                    branches.push(reading.branch);
                    continue;
                }
                ListingEvent::Over(reading, listed) => (reading, listed),
            };
            if let ListingResult::Failed(error) = listed {
                self.fail(endpoint.url(&reading.branch.remote), error).await;
            } else if !reading.kept.is_empty() || !reading.unclear.is_empty() {
                listers.rest();
                self.walk_deferred(endpoint, *reading, &mut branches).await;
            }
            self.retrying.release();
        }
        listers.release();
    }

    async fn walk_deferred(
        &mut self,
        endpoint: &Arc<Endpoint>,
        mut reading: ActiveListing,
        branches: &mut Vec<PendingDirectory>,
    ) {
        for lines in std::mem::take(&mut reading.kept) {
            self.walk_lines(endpoint, &mut reading, &lines, branches)
                .await;
        }
        let unclear = std::mem::take(&mut reading.unclear).into_iter().map(Ok);
        self.walk_names(endpoint, &reading.branch, unclear, branches)
            .await;
    }

    async fn walk_lines(
        &mut self,
        endpoint: &Arc<Endpoint>,
        reading: &mut ActiveListing,
        lines: &ListingLines,
        branches: &mut Vec<PendingDirectory>,
    ) {
        let branch = &reading.branch;
        let text = match lines.text() {
            Ok(text) => text,
            Err(error) => return self.fail(endpoint.url(&branch.remote), error).await,
        };
        let ActiveListing { names, unclear, .. } = reading;
        // No session is free to check a name while the directory is listed.
        let needs_stat = lines.needs_stat();
        let clear = names.read(lines, &text).filter_map(|entry| match entry {
            Ok(entry) if !needs_stat && entry.is_unclear() && unclear.len() < UNCLEAR_MAX => {
                unclear.push(entry);
                None
            }
            entry => Some(entry),
        });
        self.walk_names(endpoint, branch, clear, branches).await;
    }

    async fn walk_names(
        &mut self,
        endpoint: &Arc<Endpoint>,
        branch: &PendingDirectory,
        names: impl Iterator<Item = std::result::Result<DirectoryEntry, BadName>>,
        branches: &mut Vec<PendingDirectory>,
    ) {
        let mut below = Vec::new();
        for entry in names {
            if self.context.stop.is_cancelled() {
                return;
            }
            let directory = || endpoint.url(&branch.remote);
            let (what, walked) = match entry {
                Ok(entry) => match branch.remote.join(&entry.name) {
                    Ok(remote) => (
                        endpoint.url(&remote),
                        self.walk_entry(endpoint, branch, entry, remote, &mut below)
                            .await,
                    ),
                    Err(bad) => (directory(), Err(Error::unfit(directory(), bad))),
                },
                Err(bad) => (directory(), Err(hostile(directory(), bad))),
            };
            if let Err(error) = walked {
                self.fail(what, error).await;
            }
        }
        branches.extend(self.make(endpoint, below).await);
    }

    async fn walk_entry(
        &mut self,
        endpoint: &Arc<Endpoint>,
        branch: &PendingDirectory,
        entry: DirectoryEntry,
        remote: FtpPath,
        below: &mut Vec<PendingDirectory>,
    ) -> Result<()> {
        let what = || endpoint.url(&remote);
        let destination = branch.destination.join(&entry.name)?;
        let (is_directory, facts) = match entry.is_directory() {
            Some(is_directory) => (is_directory, entry.facts),
            None if entry.is_special() => {
                self.context
                    .reporter
                    .warn(format!("{}: neither file nor directory, left out", what()));
                return Ok(());
            }
            None => match self.stat_entry(endpoint, &remote, &entry).await? {
                Found::Directory(facts) => (true, *facts),
                Found::File(facts) => (false, *facts),
                Found::Unknown => (false, Facts::default()),
                // It was listed, so it should exist.
                Found::Missing => return Err(Error::Missing { what: what() }),
            },
        };
        if !is_directory {
            let file = SourceFile {
                is_new: branch.is_new,
                ..get(endpoint, remote, destination, &facts)
            };
            self.submit(file).await;
            return Ok(());
        }
        if self.spec.shallow {
            return Ok(());
        }
        let trail = branch.trail.on_to(&entry.name, &facts);
        let attributes = Some(FileAttributes::of_facts(&facts));
        let unique = facts.unique;
        let is_above = unique.as_ref().is_some_and(|u| branch.above.contains(u));
        let Some(trail) = trail.filter(|_| !is_above) else {
            self.context.reporter.warn(format!(
                "{}: leads back to a directory above it, left out",
                what()
            ));
            return Ok(());
        };
        if branch.depth == DEPTH_MAX {
            return Err(too_deep(&what()));
        }
        let mut above = branch.above.clone();
        above.extend(unique);
        below.push(PendingDirectory {
            remote,
            destination,
            is_new: false,
            above,
            attributes,
            trail,
            depth: branch.depth + 1,
        });
        Ok(())
    }

    /// Creates the destination directories of `these`. Returns those that exist now.
    pub(super) async fn make(
        &mut self,
        source: &Arc<Endpoint>,
        branches: Vec<PendingDirectory>,
    ) -> Vec<PendingDirectory> {
        let there = branches
            .iter()
            .find_map(|branch| match &branch.destination {
                CopyPath::Here(_) => None,
                CopyPath::There(at) => Some(Arc::clone(&at.endpoint)),
            });
        let made: Vec<Result<bool>> = match there {
            None => branches.iter().map(|b| b.destination.make_here()).collect(),
            Some(there) => {
                let paths: Vec<_> = branches
                    .iter()
                    .flat_map(|b| b.destination.path_there())
                    .collect();
                match self.make_all_remote(&there, &paths).await {
                    Ok(made) => (made.into_iter())
                        .map(|made| made.map(|()| false))
                        .collect(),
                    Err(error) => paths.iter().map(|_| Err(error.clone())).collect(),
                }
            }
        };
        let mut good = Vec::with_capacity(branches.len());
        for (branch, made) in branches.into_iter().zip(made) {
            match made {
                Ok(is_new) => good.push(PendingDirectory { is_new, ..branch }),
                Err(error) => self.fail(source.url(&branch.remote), error).await,
            }
        }
        good
    }

    /// The files that a source names: itself, or the matches of its pattern.
    async fn expand_remote(&mut self, url: &RemoteUrl) -> Result<Vec<FoundSource>> {
        let endpoint = self.context.endpoints.of(url);
        let contents = names_directory(url.path.as_bytes());
        let path = sought_at(url)?;
        let source = |path, found| FoundSource {
            endpoint: Arc::clone(&endpoint),
            path,
            contents,
            found,
        };
        if is_device(&path) {
            return Ok(vec![source(path, Found::Unknown)]);
        }
        // The characters of a pattern may be part of a name, which then matches itself.
        let found = self.stat_remote(&endpoint, &path).await?;
        let patterned = is_pattern(path.as_bytes());
        if found != Found::Missing && !(patterned && found == Found::Unknown) {
            return Ok(vec![source(path, found)]);
        }
        let missing = || Error::Missing {
            what: url.to_string(),
        };
        if !patterned {
            return Err(missing());
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(missing());
        };
        if is_pattern(parent.as_bytes()) {
            return Err(only_last(&url.to_string()));
        }
        let pattern = Pattern::new(name, &url.to_string(), self.spec.dotted)?;
        let mut sources = Vec::new();
        let mut matching = Vec::new();
        let mut failed = Vec::new();
        let gathered = gather(&mut self.retrying, &endpoint, &parent, |listed| {
            match listed {
                ListingItem::Again => {
                    matching.clear();
                    failed.clear();
                }
                ListingItem::Name(Ok(entry)) => {
                    matching.extend(Some(entry).filter(|entry| pattern.matches(&entry.name)));
                }
                // The pattern may match it.
                ListingItem::Name(Err(bad)) => failed.push(hostile(endpoint.url(&parent), bad)),
            }
            Ok(())
        })
        .await;
        failed.extend(gathered.err().map(Error::from));
        for entry in matching {
            let path = parent
                .join(&entry.name)
                .map_err(|bad| Error::Usage(format!("{url}: {bad}")));
            let path = match path {
                Ok(path) => path,
                Err(error) => {
                    failed.push(error);
                    continue;
                }
            };
            let found = match entry.is_directory() {
                Some(true) => Found::Directory(Box::new(entry.facts)),
                Some(false) => Found::File(Box::new(entry.facts)),
                None if entry.is_special() => {
                    let what = endpoint.url(&path);
                    self.context
                        .reporter
                        .warn(format!("{what}: neither file nor directory, left out"));
                    continue;
                }
                None => match self.stat_entry(&endpoint, &path, &entry).await? {
                    Found::Missing => {
                        let what = endpoint.url(&path);
                        failed.push(Error::Missing { what });
                        continue;
                    }
                    found => found,
                },
            };
            sources.push(source(path, found));
        }
        if let Some(error) = failed.pop_if(|_| sources.is_empty()) {
            return Err(error);
        }
        for error in failed {
            self.fail(url.to_string(), error).await;
        }
        if sources.is_empty() {
            return Err(missing());
        }
        sources.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(sources)
    }

    /// The facts of a name that its listing does not report.
    async fn stat_entry(
        &mut self,
        endpoint: &Arc<Endpoint>,
        path: &FtpPath,
        entry: &DirectoryEntry,
    ) -> Result<Found> {
        if !entry.is_link() {
            return self.stat_remote(endpoint, path).await;
        }
        let shown = endpoint.url(path);
        let follow = async |session: &mut Session| session.stat_link_target(path).await;
        Ok(self
            .retrying
            .attempt(Operation::on(endpoint, &shown), follow)
            .await?)
    }

    pub(super) async fn stat_remote(
        &mut self,
        endpoint: &Arc<Endpoint>,
        path: &FtpPath,
    ) -> Result<Found> {
        let shown = endpoint.url(path);
        let step = Operation::on(endpoint, &shown);
        let look = async |session: &mut Session| session.stat(path).await;
        Ok(self.retrying.attempt(step, look).await?)
    }
}

/// A source of a download.
struct FoundSource {
    endpoint: Arc<Endpoint>,
    path: FtpPath,
    /// The URL ended in `/`: the contents, not the directory itself.
    contents: bool,
    found: Found,
}

impl Found {
    fn is_directory(&self) -> bool {
        matches!(self, Self::Directory(_))
    }

    /// The facts of a file; an error for a directory.
    fn facts(&self) -> std::result::Result<Facts, ()> {
        match self {
            Self::Directory(_) => Err(()),
            Self::File(facts) => Ok((**facts).clone()),
            Self::Missing | Self::Unknown => Ok(Facts::default()),
        }
    }
}

/// Copies `source` to `destination`.
pub(super) fn get(
    source: &Arc<Endpoint>,
    path: FtpPath,
    destination: CopyPath,
    facts: &Facts,
) -> SourceFile {
    let source = Arc::clone(source);
    match destination {
        CopyPath::Here(here) => file(source, path, Peer::To(LocalEnd::Path(here)), facts),
        CopyPath::There(at) => {
            let from = Origin::Server(RemotePath {
                endpoint: source,
                path,
            });
            file(at.endpoint, at.path, Peer::From(from), facts)
        }
    }
}

fn file(endpoint: Arc<Endpoint>, remote: FtpPath, other: Peer, facts: &Facts) -> SourceFile {
    SourceFile {
        endpoint,
        remote,
        other,
        size: facts.size,
        changed: facts.modify.map(|t| t.0),
        attributes: Some(FileAttributes::of_facts(facts)),
        expected: None,
        is_new: false,
        begun: None,
        pipeline_failures: 0,
        name_refused: None,
        is_assembled: false,
        upload: None,
    }
}

pub(crate) fn hostile(directory: String, bad: BadName) -> Error {
    if bad.is_line {
        let (doing, line) = (format!("list {directory}"), bad.name);
        let why = format!("the line {line:?} is not understood");
        return Error::Listing { doing, why };
    }
    Error::HostileName {
        directory,
        name: bad.name,
        why: bad.why,
    }
}

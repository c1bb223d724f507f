//! Files at servers, to be copied here.

use std::{path::PathBuf, sync::Arc};

use godwit_proto::{
    FtpPath,
    facts::{FactType, Facts},
    pi::transfer::Direction,
    url::Location,
    url::RemoteUrl,
};

use super::{
    DEPTH_MAX, Item, LocalEnd, Planner, is_device,
    listers::{Branch, Listed, Listers},
    needs_recursive,
    pattern::{Pattern, is_pattern, only_last},
    too_deep,
};
use crate::{
    carrier::Step,
    context::Endpoint,
    error::{Error, Result},
    local,
    session::{Found, Names, Session},
    spec::{names_directory, without_end_slash},
};

impl Planner {
    /// `destination` is `None` for standard output.
    pub(super) async fn plan_gets(&mut self, destination: Option<&[u8]>) -> Result<()> {
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
        let Some(destination) = destination else {
            return self.plan_output(sources).await;
        };
        let path = local::path_of(destination);
        let existing = local::look(&path)?;
        let is_directory = names_directory(destination)
            || existing.as_ref().is_some_and(std::fs::Metadata::is_dir);
        self.check_many(sources.len() > 1, is_directory)?;
        if is_directory && existing.is_none() && !sources.is_empty() {
            local::make_directory(&path)?;
        }
        for source in sources {
            let target = match source.path.file_name() {
                Some(name) if is_directory && !(source.contents && source.found.is_directory()) => {
                    path.join(local::path_of(name))
                }
                _ => path.clone(),
            };
            let shown = source.endpoint.url(&source.path);
            if let Err(error) = self.plan_get(source, target).await {
                self.fail(shown, error).await;
            }
        }
        Ok(())
    }

    async fn plan_output(&mut self, sources: Vec<Source>) -> Result<()> {
        for source in sources {
            let shown = source.endpoint.url(&source.path);
            match source.found.facts() {
                Err(()) => {
                    self.fail(shown, needs_recursive(&source.path.to_string()))
                        .await
                }
                Ok(facts) => {
                    let item = get(source.endpoint, source.path, LocalEnd::Standard, &facts);
                    self.hand_on(item).await;
                }
            }
        }
        Ok(())
    }

    async fn plan_get(&mut self, source: Source, target: PathBuf) -> Result<()> {
        match &source.found {
            Found::Directory(facts) => {
                let shown = source.endpoint.url(&source.path);
                if !self.spec.recursive {
                    return Err(needs_recursive(&shown));
                }
                local::make_directory(&target)?;
                let branch = Branch {
                    above: facts.unique.iter().cloned().collect(),
                    remote: source.path,
                    local: target,
                    depth: 0,
                };
                self.walk_remote(&source.endpoint, branch).await;
                Ok(())
            }
            found => {
                let facts = found.facts().unwrap_or_default();
                // Nothing is listed any more for this source: the workers may have the session.
                self.carrier.release();
                let item = get(source.endpoint, source.path, LocalEnd::Path(target), &facts);
                self.hand_on(item).await;
                Ok(())
            }
        }
    }

    /// Depth first, so that what is still to be listed stays short; several directories at once, since each costs round trips.
    pub(super) async fn walk_remote(&mut self, endpoint: &Arc<Endpoint>, top: Branch) {
        // The first lister takes the session that we have.
        self.carrier.release();
        let mut listers = Listers::new(&self.carrier.pool, endpoint);
        let mut branches = vec![top];
        while !self.context.stop.is_set() {
            while listers.wants(branches.len())
                && let Some(branch) = branches.pop()
            {
                listers.begin(branch);
            }
            let Some((branch, listed)) = listers.next().await else {
                break;
            };
            let walked = match listed {
                Listed::Names(names) => {
                    // Names are looked at with the session that listed them.
                    if names.is_bare() {
                        listers.rest();
                    }
                    self.walk_branch(endpoint, &branch, names, &mut branches)
                        .await
                }
                Listed::Failed(error) => Err(error),
                Listed::Later => {
                    branches.push(branch);
                    continue;
                }
            };
            if let Err(error) = walked {
                self.fail(endpoint.url(&branch.remote), error).await;
            }
            self.carrier.release();
        }
        listers.release();
    }

    async fn walk_branch(
        &mut self,
        endpoint: &Arc<Endpoint>,
        branch: &Branch,
        names: Names,
        branches: &mut Vec<Branch>,
    ) -> Result<()> {
        for entry in names {
            let entry = match entry {
                Ok(entry) => entry,
                Err(bad) => {
                    let directory = endpoint.url(&branch.remote);
                    let error = Error::HostileName {
                        directory: directory.clone(),
                        name: bad.name,
                        why: bad.why,
                    };
                    self.fail(directory, error).await;
                    continue;
                }
            };
            let Ok(remote) = branch.remote.join(&entry.name) else {
                continue;
            };
            let local = branch.local.join(local::path_of(&entry.name));
            let (is_directory, facts) = match entry.is_directory() {
                Some(is_directory) => (is_directory, entry.facts),
                None if matches!(entry.facts.kind, Some(FactType::Other(_))) => {
                    let what = endpoint.url(&remote);
                    self.context
                        .warn(format!("{what}: neither file nor directory, left out"));
                    continue;
                }
                None => match self.look_remote(endpoint, &remote).await? {
                    Found::Directory(facts) => (true, *facts),
                    Found::File(facts) => (false, *facts),
                    Found::Unknown => (false, entry.facts),
                    Found::Missing => continue,
                },
            };
            if !is_directory {
                let item = get(Arc::clone(endpoint), remote, LocalEnd::Path(local), &facts);
                self.hand_on(item).await;
                continue;
            }
            let unique = facts.unique;
            if unique.as_ref().is_some_and(|u| branch.above.contains(u)) {
                let what = endpoint.url(&remote);
                self.context.warn(format!(
                    "{what}: leads back to a directory above it, left out"
                ));
                continue;
            }
            if let Err(error) = local::make_directory(&local) {
                self.fail(endpoint.url(&remote), error).await;
                continue;
            }
            if branch.depth == DEPTH_MAX {
                let what = endpoint.url(&remote);
                self.fail(what.clone(), too_deep(&what)).await;
                continue;
            }
            let mut above = branch.above.clone();
            above.extend(unique);
            branches.push(Branch {
                remote,
                local,
                above,
                depth: branch.depth + 1,
            });
        }
        Ok(())
    }

    /// The files that a source means: itself, or what its pattern matches.
    async fn expand_remote(&mut self, url: &RemoteUrl) -> Result<Vec<Source>> {
        let endpoint = self.context.endpoint(url);
        let contents = names_directory(url.path.as_bytes());
        let path = without_end_slash(&url.path);
        let source = |path, found| Source {
            endpoint: Arc::clone(&endpoint),
            path,
            contents,
            found,
        };
        if is_device(&path) {
            return Ok(vec![source(path, Found::Unknown)]);
        }
        // A name may hold the characters of a pattern: then it means itself.
        let found = self.look_remote(&endpoint, &path).await?;
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
        let pattern = Pattern::new(name, &url.to_string())?;
        let mut sources = Vec::new();
        for entry in self.list_remote(&endpoint, &parent).await? {
            let Ok(entry) = entry else { continue };
            if !pattern.matches(&entry.name) {
                continue;
            }
            let Ok(path) = parent.join(&entry.name) else {
                continue;
            };
            let found = match entry.is_directory() {
                Some(true) => Found::Directory(Box::new(entry.facts)),
                Some(false) => Found::File(Box::new(entry.facts)),
                None => self.look_remote(&endpoint, &path).await?,
            };
            sources.push(source(path, found));
        }
        if sources.is_empty() {
            return Err(missing());
        }
        sources.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(sources)
    }

    async fn list_remote(&mut self, endpoint: &Arc<Endpoint>, path: &FtpPath) -> Result<Names> {
        let shown = endpoint.url(path);
        let step = step(endpoint, &shown);
        let list = async |session: &mut Session| session.list(path).await;
        Ok(self.carrier.attempt(step, list).await?)
    }

    pub(super) async fn look_remote(
        &mut self,
        endpoint: &Arc<Endpoint>,
        path: &FtpPath,
    ) -> Result<Found> {
        let shown = endpoint.url(path);
        let step = step(endpoint, &shown);
        let look = async |session: &mut Session| session.look(path).await;
        Ok(self.carrier.attempt(step, look).await?)
    }
}

/// A source of a get, found.
struct Source {
    endpoint: Arc<Endpoint>,
    path: FtpPath,
    /// The URL ended in `/`: what is inside, not the directory itself.
    contents: bool,
    found: Found,
}

impl Found {
    fn is_directory(&self) -> bool {
        matches!(self, Self::Directory(_))
    }

    /// What is known of a file; Err for a directory.
    fn facts(&self) -> std::result::Result<Facts, ()> {
        match self {
            Self::Directory(_) => Err(()),
            Self::File(facts) => Ok((**facts).clone()),
            Self::Missing | Self::Unknown => Ok(Facts::default()),
        }
    }
}

pub(super) fn get(
    endpoint: Arc<Endpoint>,
    remote: FtpPath,
    local: LocalEnd,
    facts: &Facts,
) -> Item {
    Item {
        direction: Direction::Get,
        endpoint,
        remote,
        local,
        size: facts.size,
        changed: facts.modify.map(|t| t.0),
        setbacks: 0,
    }
}

pub(super) fn step<'a>(endpoint: &'a Arc<Endpoint>, path: &'a str) -> Step<'a> {
    Step {
        endpoint,
        path,
        range: None,
        attempts: None,
    }
}

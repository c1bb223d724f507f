//! Local files that are copied to a server.

use std::{
    fs, io,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use godwit_proto::{
    FtpPath,
    url::{Location, RemoteUrl, names_directory},
};

use super::{
    DEPTH_MAX, Planner,
    copy_path::{CopyPath, join},
    needs_recursive,
    pattern::{Pattern, is_pattern, only_last},
    too_deep,
};
use crate::{
    endpoint::Endpoint,
    error::{Error, Result},
    local::{attributes::FileAttributes, files},
    session::{Found, Session, retry::Operation},
    spec::place_of,
    transfer::source_file::{LocalEnd, Origin, Peer, RemotePath, SourceFile, changed, is_device},
};

/// Directories that are read before their subdirectories are created.
const BRANCHES_MAX: usize = 32;

/// A directory that is still to be read. It exists at the server.
struct PendingLocalDirectory {
    local: PathBuf,
    remote: FtpPath,
    /// Device and inode of each directory from the top down to this one: a repeated pair is a loop.
    above: Vec<(u64, u64)>,
    attributes: FileAttributes,
    depth: usize,
}

impl Planner {
    pub(super) async fn plan_puts(&mut self, destination: &RemoteUrl) -> Result<()> {
        let spec = Arc::clone(&self.spec);
        let endpoint = self.context.endpoints.of(destination);
        let base = place_of(destination)?;
        let mut sources = Vec::new();
        for source in &spec.sources {
            match source {
                Location::Standard => sources.push(None),
                Location::Local(path) => match expand_local(path, self.spec.dotted) {
                    Ok(found) => sources.extend(found.into_iter().map(Some)),
                    Err(error) => self.fail(source.to_string(), error).await,
                },
                Location::Remote(_) => {}
            }
        }
        if sources.is_empty() {
            return Ok(());
        }
        let at = RemotePath {
            endpoint: Arc::clone(&endpoint),
            path: base.clone(),
        };
        let is_directory = self.directory_there(destination, &at).await?;
        self.check_preserve(&at).await?;
        self.check_many(sources.len() > 1, is_directory)?;
        for source in sources {
            let Some(path) = source else {
                if is_directory {
                    return Err(Error::Usage(format!(
                        "{destination}: is a directory, standard input needs a file name"
                    )));
                }
                self.retrying.release();
                let file = put(&endpoint, LocalEnd::Standard, base.clone(), None);
                self.submit(file).await;
                continue;
            };
            let shown = path.display().to_string();
            if let Err(error) = self.plan_put(&endpoint, path, &base, is_directory).await {
                self.fail(shown, error).await;
            }
        }
        Ok(())
    }

    /// True if a destination is a directory. If it must be one and is missing, it is created.
    pub(super) async fn directory_there(
        &mut self,
        destination: &RemoteUrl,
        at: &RemotePath,
    ) -> Result<bool> {
        let found = match is_device(&at.path) {
            true => Found::Unknown,
            false => self.stat_remote(&at.endpoint, &at.path).await?,
        };
        let wants_directory = destination.names_directory();
        if wants_directory && !is_device(&at.path) {
            match found {
                Found::Missing => self.make_remote(&at.endpoint, &at.path).await?,
                // Where nothing can be listed it may be missing.
                Found::Unknown => match self.make_remote(&at.endpoint, &at.path).await {
                    Err(error) if error.refusal().is_none() => return Err(error),
                    _ => {}
                },
                Found::File(_) | Found::Directory(_) => {}
            }
        }
        Ok(wants_directory || self.copies_into(matches!(found, Found::Directory(_))))
    }

    async fn plan_put(
        &mut self,
        endpoint: &Arc<Endpoint>,
        path: PathBuf,
        base: &FtpPath,
        into_directory: bool,
    ) -> Result<()> {
        let shown = path.display().to_string();
        let metadata = files::stat(&path)?.ok_or_else(|| Error::Missing {
            what: shown.clone(),
        })?;
        let contents = names_directory(path.as_os_str().as_bytes());
        let target = match path.file_name() {
            Some(name) if into_directory && !(contents && metadata.is_dir()) => {
                join(base, name.as_bytes())?
            }
            _ => base.clone(),
        };
        if !metadata.is_dir() {
            // This source needs no further command: the workers may use the session.
            self.retrying.release();
            let file = put(endpoint, LocalEnd::Path(path), target, Some(&metadata));
            self.submit(file).await;
            return Ok(());
        }
        if self.spec.shallow && !contents {
            return Ok(());
        }
        if !self.spec.recursive {
            return Err(needs_recursive(&shown));
        }
        self.make_remote(endpoint, &target).await?;
        self.walk_from(endpoint, path, target, &metadata).await
    }

    /// The contents of a directory that exists at the server.
    pub(super) async fn walk_from(
        &mut self,
        endpoint: &Arc<Endpoint>,
        local: PathBuf,
        remote: FtpPath,
        metadata: &fs::Metadata,
    ) -> Result<()> {
        let mut directories = vec![PendingLocalDirectory {
            local,
            remote,
            above: vec![(metadata.dev(), metadata.ino())],
            attributes: FileAttributes::of_metadata(metadata),
            depth: 0,
        }];
        while !directories.is_empty() {
            // Depth first, so that the stack stays short; several at a time, so that directories
            // are created together.
            let mut below = Vec::new();
            for directory in directories.split_off(directories.len().saturating_sub(BRANCHES_MAX)) {
                if self.context.stop.is_cancelled() {
                    return Err(Error::Interrupted);
                }
                let destination = CopyPath::There(RemotePath {
                    endpoint: Arc::clone(endpoint),
                    path: directory.remote.clone(),
                });
                self.preserve_directory(&destination, directory.attributes)
                    .await;
                if let Err(error) = self.walk_local(endpoint, &directory, &mut below).await {
                    self.fail(directory.local.display().to_string(), error)
                        .await;
                }
            }
            let remotes: Vec<_> = below.iter().map(|b| b.remote.clone()).collect();
            let made = self.make_all_remote(endpoint, &remotes).await?;
            for (directory, made) in below.into_iter().zip(made) {
                match made {
                    Ok(()) => directories.push(directory),
                    Err(error) => {
                        self.fail(directory.local.display().to_string(), error)
                            .await
                    }
                }
            }
        }
        Ok(())
    }

    async fn walk_local(
        &mut self,
        endpoint: &Arc<Endpoint>,
        directory: &PendingLocalDirectory,
        below: &mut Vec<PendingLocalDirectory>,
    ) -> Result<()> {
        let shown = directory.local.display();
        if directory.depth > DEPTH_MAX {
            return Err(too_deep(&shown.to_string()));
        }
        let failed = |e: &io::Error| Error::local(format!("read directory {shown}"), e);
        for entry in fs::read_dir(&directory.local).map_err(|e| failed(&e))? {
            let entry = entry.map_err(|e| failed(&e))?;
            let path = entry.path();
            if let Err(error) = self.plan_entry(endpoint, directory, &path, below).await {
                self.fail(path.display().to_string(), error).await;
            }
        }
        Ok(())
    }

    async fn plan_entry(
        &mut self,
        endpoint: &Arc<Endpoint>,
        directory: &PendingLocalDirectory,
        path: &Path,
        below: &mut Vec<PendingLocalDirectory>,
    ) -> Result<()> {
        let shown = || path.display().to_string();
        let name = path.file_name().unwrap_or_default();
        let remote = join(&directory.remote, name.as_bytes())?;
        // Links are followed: the protocol has no way to copy one.
        let metadata = files::stat(path)?.ok_or_else(|| Error::Missing { what: shown() })?;
        let kind = metadata.file_type();
        if kind.is_file() {
            let local = LocalEnd::Path(path.to_owned());
            let file = put(endpoint, local, remote, Some(&metadata));
            self.submit(file).await;
            return Ok(());
        }
        if !kind.is_dir() {
            let what = if kind.is_socket() {
                "a socket"
            } else {
                "a device or pipe"
            };
            self.context
                .reporter
                .warn(format!("{}: {what}, left out", shown()));
            return Ok(());
        }
        if self.spec.shallow {
            return Ok(());
        }
        let identity = (metadata.dev(), metadata.ino());
        if directory.above.contains(&identity) {
            let what = shown();
            self.context.reporter.warn(format!(
                "{what}: leads back to a directory above it, left out"
            ));
            return Ok(());
        }
        let mut above = directory.above.clone();
        above.push(identity);
        below.push(PendingLocalDirectory {
            local: path.to_owned(),
            remote,
            above,
            attributes: FileAttributes::of_metadata(&metadata),
            depth: directory.depth + 1,
        });
        Ok(())
    }

    async fn make_remote(&mut self, endpoint: &Arc<Endpoint>, path: &FtpPath) -> Result<()> {
        let shown = endpoint.url(path);
        let make = async |session: &mut Session| session.make_directory(path).await;
        let step = Operation::on(endpoint, &shown);
        Ok(self.retrying.attempt(step, make).await?)
    }

    /// Creates directories in this order, in few round trips. Returns a result for each.
    pub(super) async fn make_all_remote(
        &mut self,
        endpoint: &Arc<Endpoint>,
        paths: &[FtpPath],
    ) -> Result<Vec<Result<()>>> {
        if paths.is_empty() {
            return Ok(Vec::new());
        }
        let shown = endpoint.name();
        let make = async |session: &mut Session| session.make_directories(paths).await;
        let step = Operation::on(endpoint, &shown);
        let mut made = self.retrying.attempt(step, make).await?;
        for (made, path) in made.iter_mut().zip(paths) {
            if made.as_ref().is_err_and(Error::may_pass) {
                *made = self.make_remote(endpoint, path).await;
            }
        }
        Ok(made)
    }
}

/// The files that a source names: itself, or the matches of its pattern.
fn expand_local(bytes: &[u8], dotted: bool) -> Result<Vec<PathBuf>> {
    let path = files::path_of(bytes);
    if files::stat(&path)?.is_some() || !is_pattern(bytes) {
        return Ok(vec![path]);
    }
    let shown = path.display().to_string();
    let parent = path.parent().unwrap_or(Path::new(""));
    if is_pattern(parent.as_os_str().as_bytes()) {
        return Err(only_last(&shown));
    }
    let name = path.file_name().unwrap_or_default();
    let pattern = Pattern::new(name.as_bytes(), &shown, dotted)?;
    let here = if parent.as_os_str().is_empty() {
        Path::new(".")
    } else {
        parent
    };
    let failed = |e: &io::Error| Error::local(format!("read directory {}", here.display()), e);
    let mut found = Vec::new();
    for entry in fs::read_dir(here).map_err(|e| failed(&e))? {
        let name = entry.map_err(|e| failed(&e))?.file_name();
        if pattern.matches(name.as_bytes()) {
            found.push(parent.join(name));
        }
    }
    if found.is_empty() {
        return Err(Error::Missing { what: shown });
    }
    found.sort();
    Ok(found)
}

pub(super) fn put(
    endpoint: &Arc<Endpoint>,
    from: LocalEnd,
    remote: FtpPath,
    metadata: Option<&fs::Metadata>,
) -> SourceFile {
    let file = metadata.filter(|m| m.is_file());
    let size = file.map(fs::Metadata::len).filter(|size| match &from {
        LocalEnd::Path(path) => *size > 0 || !files::has_content(path),
        LocalEnd::Standard => true,
    });
    SourceFile {
        endpoint: Arc::clone(endpoint),
        remote,
        other: Peer::From(Origin::Here(from)),
        size,
        changed: file.and_then(changed),
        // A file without a size is not regular, or its content is generated by the kernel on
        // reading.
        attributes: file
            .filter(|_| size.is_some())
            .map(FileAttributes::of_metadata),
        expected: None,
        is_new: false,
        begun: None,
        pipeline_failures: 0,
        name_refused: None,
        is_assembled: false,
        upload: None,
    }
}

//! What a session can find out about files and do to them without moving their bytes.

use std::{collections::VecDeque, fmt::Display, time::Duration};

use godwit_engine::control::Event as Spoken;
use godwit_proto::{
    ChecksumAlgorithm, Command, FtpPath, Reply,
    block_checksums::{ALGORITHM, BlockChecksums},
    error::{FailureKind, failure_kind},
    facts::{self, FactType, Facts},
    site::Site,
    timestamp::Timestamp,
};
use tokio::time::sleep;

use crate::{
    endpoint::capabilities::Lack,
    error::{Error, Result},
    session::{ControlSession, Session},
};

/// Commands sent together. Fewer than any server queues.
pub(crate) const TOGETHER_MAX: usize = 100;

/// Within it a server notices that a session's control connection was closed, and ends its work.
const LATE_PAUSE: Duration = Duration::from_millis(500);

/// A name to be removed, and whether it is a directory's.
type Named = (bool, FtpPath);

/// What could not be removed, and why.
type Refusals = Vec<(FtpPath, Error)>;

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Missing,
    /// A file; what is known of it.
    File(Box<Facts>),
    Directory(Box<Facts>),
    /// The server has no command that would tell.
    Unknown,
}

impl Found {
    pub(crate) fn is_link(&self) -> bool {
        let Self::File(facts) = self else {
            return false;
        };
        facts.kind.as_ref().is_some_and(FactType::is_link)
    }
}

impl ControlSession {
    /// Where `start` is, `~` or `~name`. The session must be new: then its working directory is the
    /// user's home.
    pub(crate) async fn home(&mut self, start: &FtpPath) -> Result<FtpPath> {
        let doing = format!("find {}", self.endpoint.url(start));
        let own = self.working_directory(&doing).await?;
        if start.as_bytes() == b"~" {
            return Ok(own);
        }
        self.ask_ok(&Command::Cwd(start.clone()), &doing).await?;
        let home = self.working_directory(&doing).await?;
        self.ask_ok(&Command::Cwd(own), &doing).await?;
        Ok(home)
    }

    pub(crate) async fn working_directory(&mut self, doing: &str) -> Result<FtpPath> {
        let reply = self.ask_ok(&Command::Pwd, doing).await?;
        let told = named_directory(reply.text().as_bytes());
        told.ok_or_else(|| Error::refused(doing, reply))
    }

    /// Bytes of a file, where the server tells.
    pub(crate) async fn size(&mut self, path: &FtpPath) -> Result<Option<u64>> {
        Ok(match self.ask_size(path).await? {
            SizeReply::Known(size) => Some(size),
            SizeReply::Missing | SizeReply::Refused(_) | SizeReply::Unknown => None,
        })
    }

    pub(crate) async fn ask_size(&mut self, path: &FtpPath) -> Result<SizeReply> {
        if self.endpoint.capabilities.lacks(Lack::Size) {
            return Ok(SizeReply::Unknown);
        }
        let doing = format!("ask the size of {}", self.endpoint.url(path));
        let reply = self.ask(&Command::Size(path.clone()), &doing).await?;
        Ok(match failure_kind(&reply) {
            None => reply
                .text()
                .trim()
                .parse()
                .map_or(SizeReply::Unknown, SizeReply::Known),
            Some(FailureKind::NotFound | FailureKind::NotADirectory) => SizeReply::Missing,
            Some(FailureKind::NotSupported) => {
                let instead = "sizes are not known and not compared";
                self.lesson(Lack::Size, &reply, "SIZE", instead);
                SizeReply::Unknown
            }
            Some(_) => SizeReply::Refused(reply),
        })
    }

    /// What MLST tells of each of `paths`, in order, asked all at once. `None` for what is no file,
    /// and where the server has no MLST.
    pub(crate) async fn facts_of_all(&mut self, paths: &[FtpPath]) -> Result<Vec<Option<Facts>>> {
        if self.endpoint.capabilities.lacks(Lack::Mlst) {
            return Ok(Vec::new());
        }
        let mut facts = Vec::with_capacity(paths.len());
        for paths in paths.chunks(TOGETHER_MAX) {
            let commands = paths.iter().map(|p| Command::Mlst(Some(p.clone())));
            for reply in self.ask_all(commands, "look at files").await? {
                let found = reply.code.is_success().then(|| found_in(reply.body()));
                facts.push(match found {
                    Some(Found::File(facts)) => Some(*facts),
                    _ => None,
                });
            }
        }
        Ok(facts)
    }

    /// What older commands tell of each of `paths`, in order, asked all at once: size, time, and
    /// whether it is a directory.
    pub(crate) async fn measure_all(&mut self, paths: &[FtpPath]) -> Result<Vec<Facts>> {
        let mut all = Vec::with_capacity(paths.len());
        for paths in paths.chunks(TOGETHER_MAX / 3) {
            let commands = paths.iter().flat_map(|p| {
                // Every path we send is absolute, so the working directory may change.
                [Command::Cwd, Command::Size, Command::Mdtm].map(|ask| ask(p.clone()))
            });
            let replies = self.ask_all(commands, "look at files").await?;
            all.extend(replies.chunks(3).map(measured));
        }
        Ok(all)
    }

    /// Removes a file.
    pub(crate) async fn remove_file(&mut self, path: &FtpPath) -> Result<()> {
        let doing = format!("remove {}", self.endpoint.url(path));
        self.ask_ok(&Command::Dele(path.clone()), &doing).await?;
        Ok(())
    }

    /// Sends commands together and waits for their final replies, in order. At most
    /// [`TOGETHER_MAX`]. The user's interrupt ends it, unless it came before: then this is part of
    /// the cleaning up.
    pub(crate) async fn ask_all(
        &mut self,
        commands: impl Iterator<Item = Command>,
        doing: &str,
    ) -> Result<Vec<Reply>> {
        self.broken |= self.prefetched.is_some();
        if !self.is_usable() {
            return Err(self.not_connected(doing));
        }
        let stop = self.context.stop.clone();
        let heeds_stop = !stop.is_cancelled();
        let submit = |command: Command| {
            self.has_moved |= matches!(command, Command::Cwd(_));
            self.control.submit(&command)
        };
        let mut due: VecDeque<_> = commands.map(submit).collect();
        let mut replies = Vec::with_capacity(due.len());
        while let Some(id) = due.front() {
            let spoken = tokio::select! {
                spoken = self.control.next_event() => spoken,
                () = stop.cancelled(), if heeds_stop => {
                    self.broken = true;
                    return Err(Error::Interrupted);
                }
            };
            match spoken {
                Ok(Spoken::Final(of, reply)) if of == *id => {
                    replies.push(self.checked(Ok(reply), doing)?);
                    due.pop_front();
                }
                Ok(_) => {}
                Err(error) => {
                    self.checked(Err(error), doing)?;
                }
            }
        }
        Ok(replies)
    }

    /// The server's checksum of `length` bytes (`None`: to the end) of a file from `offset`,
    /// lower-case hexadecimal.
    pub(crate) async fn checksum(
        &mut self,
        algorithm: ChecksumAlgorithm,
        offset: u64,
        length: Option<u64>,
        path: &FtpPath,
    ) -> Result<String> {
        let doing = format!("compute {algorithm} of {}", self.endpoint.url(path));
        let command = Command::Cksm {
            algorithm,
            offset,
            length,
            path: path.clone(),
        };
        let reply = self.ask(&command, &doing).await?;
        checksum_in(reply, doing)
    }

    /// The same by the first of `algorithms`, or, of an object in a bucket, by the first of which
    /// its service has a value: it tells those that the object was stored with.
    pub(crate) async fn first_checksum(
        &mut self,
        algorithms: &[ChecksumAlgorithm],
        offset: u64,
        length: Option<u64>,
        path: &FtpPath,
    ) -> Result<(ChecksumAlgorithm, String)> {
        let [algorithm, others @ ..] = algorithms else {
            return Err(Error::MissingFeature {
                endpoint: self.endpoint.name(),
                feature: "CKSM".to_owned(),
                consequence: "checksums cannot be had".to_owned(),
            });
        };
        let refused = match self.checksum(*algorithm, offset, length, path).await {
            Err(error) if self.endpoint.is_bucket() && error.is_unsupported() => error,
            value => return Ok((*algorithm, value?)),
        };
        for algorithm in others {
            match self.checksum(*algorithm, offset, length, path).await {
                Err(error) if error.is_unsupported() => {}
                value => return Ok((*algorithm, value?)),
            }
        }
        Err(refused)
    }

    /// The server's checksums of the leaves of a region, to be asked only where
    /// [`godwit_proto::feature::Features::leaves`] is said.
    pub(crate) async fn leaves(
        &mut self,
        leaf: u64,
        offset: u64,
        length: Option<u64>,
        path: &FtpPath,
    ) -> Result<BlockChecksums> {
        let url = self.endpoint.url(path);
        let doing = format!("compute {ALGORITHM} of the leaves of {url}");
        let command = Command::Site(Site::BlockChecksums {
            leaf,
            offset,
            length,
            path: path.clone(),
        });
        let reply = self.ask(&command, &doing).await?;
        BlockChecksums::from_reply(&reply).ok_or_else(|| Error::refused(doing, reply))
    }
}

/// Nothing is there, by the reply to MLST.
fn is_missing(reply: &Reply) -> bool {
    use FailureKind::{NotADirectory, NotFound};
    matches!(failure_kind(reply), Some(NotFound | NotADirectory))
}

/// What may have to list a directory.
impl Session {
    /// Makes a directory; one that exists already is fine.
    pub(crate) async fn make_directory(&mut self, path: &FtpPath) -> Result<()> {
        let made = self.make_directories(std::slice::from_ref(path)).await?;
        made.into_iter().next().unwrap_or(Ok(()))
    }

    /// Makes directories in this order, all asked for at once; those that exist already are fine.
    /// How each went, in order. An error where the session is lost.
    pub(crate) async fn make_directories(&mut self, paths: &[FtpPath]) -> Result<Vec<Result<()>>> {
        let mut made = Vec::with_capacity(paths.len());
        for paths in paths.chunks(TOGETHER_MAX) {
            let commands = paths.iter().map(|p| Command::Mkd(p.clone()));
            let replies = self.ask_all(commands, "make directories").await?;
            for (path, reply) in paths.iter().zip(replies) {
                let doing = format!("make directory {}", self.endpoint.url(path));
                made.push(match failure_kind(&reply) {
                    None => match self.check_arrived(path).await {
                        Err(error) if !self.is_usable() => return Err(error),
                        checked => checked,
                    },
                    Some(FailureKind::Exists) => Ok(()),
                    Some(FailureKind::Transient) => Err(Error::refused(doing, reply)),
                    // Servers say "550 cannot create" of directories that exist: look.
                    Some(_) => match self.stat(path).await? {
                        Found::Directory(_) => Ok(()),
                        _ => Err(Error::refused(doing, reply)),
                    },
                });
            }
        }
        Ok(made)
    }

    /// What is at each of `paths`, in order, asked all at once where the server has MLST.
    /// A name that is `listed` is there: its directory is not listed again to find that out.
    pub(crate) async fn stat_all(
        &mut self,
        paths: &[FtpPath],
        listed: bool,
    ) -> Result<Vec<Result<Found>>> {
        self.stat_each(paths, listed, |_| false).await
    }

    async fn stat_each(
        &mut self,
        paths: &[FtpPath],
        listed: bool,
        is_missing: impl Fn(&Reply) -> bool,
    ) -> Result<Vec<Result<Found>>> {
        let mut found = Vec::with_capacity(paths.len());
        for paths in paths.chunks(TOGETHER_MAX) {
            let mut replies = Vec::new();
            if !self.endpoint.capabilities.lacks(Lack::Mlst) {
                let commands = paths.iter().map(|p| Command::Mlst(Some(p.clone())));
                replies = self.ask_all(commands, "look at files").await?;
            }
            let mut replies = replies.into_iter();
            for path in paths {
                found.push(match replies.next() {
                    Some(reply) if reply.code.is_success() && !found_in(reply.body()).is_link() => {
                        Ok(found_in(reply.body()))
                    }
                    Some(reply) if is_missing(&reply) => Ok(Found::Missing),
                    // Whatever else it is, it is asked again with the words for it.
                    _ => match self.stat_or_list_parent(path, listed).await {
                        Err(error) if !self.is_usable() => return Err(error),
                        looked => looked,
                    },
                });
            }
        }
        Ok(found)
    }

    /// The same of destinations, most of which are free: a server that says so is not asked again
    /// for each of them.
    pub(crate) async fn stat_destinations(
        &mut self,
        paths: &[FtpPath],
    ) -> Result<Vec<Result<Found>>> {
        self.stat_each(paths, false, is_missing).await
    }

    /// Removes files, all asked for at once, also after the user's interrupt. Those that could not
    /// be, and why; what is not there is as good as removed.
    pub(crate) async fn remove_files(
        &mut self,
        paths: &[FtpPath],
    ) -> Result<Vec<(FtpPath, Error)>> {
        let names: Vec<_> = paths.iter().map(|path| (false, path.clone())).collect();
        self.remove_all(&names, false).await
    }

    /// The same of files and, where that is said, of directories, in this order. `again`: an
    /// earlier attempt may have removed some, and its replies were lost. A server that does not
    /// say why it refuses to remove one is asked whether it is there.
    pub(crate) async fn remove_all(
        &mut self,
        names: &[(bool, FtpPath)],
        again: bool,
    ) -> Result<Vec<(FtpPath, Error)>> {
        Ok(self.remove_named(names, again).await?.0)
    }

    /// As [`Self::remove_files`], of names to which a session that broke was told to write: its
    /// server may still carry that out, so names under which nothing lay are removed once more.
    pub(crate) async fn remove_late_files(
        &mut self,
        paths: &[FtpPath],
    ) -> Result<Vec<(FtpPath, Error)>> {
        let names: Vec<_> = paths.iter().map(|path| (false, path.clone())).collect();
        let (mut failed, absent) = self.remove_named(&names, false).await?;
        if !absent.is_empty() {
            sleep(LATE_PAUSE).await;
            failed.extend(self.remove_named(&absent, false).await?.0);
        }
        Ok(failed)
    }

    /// Those that could not be removed, and why, and those that were not there.
    async fn remove_named(
        &mut self,
        names: &[Named],
        again: bool,
    ) -> Result<(Refusals, Vec<Named>)> {
        let (mut failed, mut absent) = (Vec::new(), Vec::new());
        for names in names.chunks(TOGETHER_MAX) {
            let commands = names.iter().map(|(is_directory, path)| match is_directory {
                true => Command::Rmd(path.clone()),
                false => Command::Dele(path.clone()),
            });
            let replies = self.ask_all(commands, "remove files").await?;
            for (name, reply) in names.iter().zip(replies) {
                let path = &name.1;
                let is_gone = match failure_kind(&reply) {
                    None => true,
                    Some(FailureKind::NotFound) => {
                        absent.push(name.clone());
                        true
                    }
                    Some(FailureKind::Other) if again => {
                        // Where that does not tell either, the refusal counts.
                        let found = self.stat(path).await;
                        matches!(found, Ok(Found::Missing))
                    }
                    Some(_) => false,
                };
                if !is_gone {
                    let doing = format!("remove {}", self.endpoint.url(path));
                    failed.push((path.clone(), Error::refused(doing, reply)));
                }
            }
        }
        Ok((failed, absent))
    }
}

/// The checksum in an answer to CKSM, lower-case hexadecimal.
pub(crate) fn checksum_in(reply: Reply, doing: impl Display) -> Result<String> {
    let value = reply.text().trim().to_ascii_lowercase();
    let is_checksum = !value.is_empty() && value.bytes().all(|b| b.is_ascii_hexdigit());
    if reply.code.is_success() && is_checksum {
        Ok(value)
    } else {
        Err(Error::refused(doing.to_string(), reply))
    }
}

pub(crate) enum SizeReply {
    Known(u64),
    Missing,
    /// The server has the command; its answer does not tell whether there is a file.
    Refused(Reply),
    Unknown,
}

pub(crate) fn found_in(body: &[Vec<u8>]) -> Found {
    match body.iter().find_map(|line| facts::parse_line(line)) {
        None => Found::Unknown,
        Some((facts, _)) => match facts.kind {
            Some(FactType::Dir | FactType::Cdir | FactType::Pdir) => {
                Found::Directory(Box::new(facts))
            }
            _ => Found::File(Box::new(facts)),
        },
    }
}

/// The answers to CWD, SIZE and MDTM of one path.
fn measured(replies: &[Reply]) -> Facts {
    let [into, size, time] = replies else {
        return Facts::default();
    };
    let told = |reply: &Reply| {
        let text = reply.text();
        reply.code.is_success().then(|| text.trim().to_owned())
    };
    let is_directory = into.code.is_success();
    // Some servers tell a size of directories.
    let size = told(size).filter(|_| !is_directory);
    let size = size.and_then(|text| text.parse().ok());
    Facts {
        kind: match (is_directory, size) {
            (true, _) => Some(FactType::Dir),
            (false, Some(_)) => Some(FactType::File),
            (false, None) => None,
        },
        size,
        modify: told(time).and_then(|text| Timestamp::parse(&text)),
        ..Facts::default()
    }
}

/// The path in `257 "/a ""b"" c" is ...`, quotes in it doubled (RFC 959, appendix II).
fn named_directory(text: &[u8]) -> Option<FtpPath> {
    let start = text.iter().position(|b| *b == b'"')?;
    let mut path = Vec::new();
    let mut rest = text[start + 1..].iter();
    while let Some(byte) = rest.next() {
        if *byte == b'"' && rest.as_slice().first() != Some(&b'"') {
            return FtpPath::new(path).ok().filter(FtpPath::is_absolute);
        }
        if *byte == b'"' {
            rest.next();
        }
        path.push(*byte);
    }
    None
}

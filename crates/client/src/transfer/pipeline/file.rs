//! A small file on its way among others: what is asked of the server for it, all at once, and what
//! becomes of the answers.

use std::{
    fmt::{self, Display},
    sync::Arc,
    time::Instant,
};

use godwit_engine::{
    data::{Sink, TransferJob, TransferReport},
    storage::{FileRef, HashingFile, digest},
};
use godwit_proto::{
    ChecksumAlgorithm, Command, FtpPath, Reply,
    commit::{Commit, Expected, TemporaryName},
    error::{FailureKind, StorageFailure, failure_kind},
    pi::transfer::Direction,
    site::Site,
    timestamp::Timestamp,
};
use tokio::task::JoinHandle;

use crate::{
    context::RunContext,
    endpoint::Endpoint,
    error::{Error, Result},
    local::{attributes::FileAttributes, durability::LocalDurability, journal::RESUME_BYTES_MIN},
    panics::joined_badly,
    session::{SessionPair, checksum_in},
    spec::JobSpec,
    transfer::{
        FileTransfer, OpenFile, SMALL_BYTES_MAX,
        source_file::{LocalEnd, Origin, Peer, SourceFile, is_device},
        verify::{self, AgreedChecksum},
    },
};

/// Failures of pipelines after which a file goes alone.
const PIPELINE_FAILURES_MAX: u8 = 8;

/// Bytes whose checksum is computed at once; more of them on a thread of its own.
const DIGEST_INLINE_BYTES_MAX: u64 = 256 << 10;

/// A file whose both ends are open.
pub(crate) struct PipelinedFile {
    pub(crate) source_file: SourceFile,
    pub(crate) began: Instant,
    size: u64,
    check: Option<PendingCheck>,
    transfer: OpenFile,
    digest: Option<JoinHandle<LocalDigest>>,
    /// What a get writes to, where its checksum is made of what passes.
    summed: Option<Arc<HashingFile>>,
    /// The answer to the check of its source, where that is at another server.
    at_source: Option<Reply>,
}

type LocalDigest = std::result::Result<String, StorageFailure>;

/// What tells whether a file is right.
enum PendingCheck {
    Checksum(ChecksumAlgorithm),
    /// The server compares, and gives the file its name: what is expected of it, and the digest as
    /// the event log has it.
    Commit(Box<Commit>, Option<AgreedChecksum>),
    /// Of a put that is not compared: at least the size.
    Size,
}

/// Whether a file can travel among others, as far as it depends on the file and on what is known of
/// its server.
pub(crate) fn is_pipelinable(source_file: &SourceFile, spec: &JobSpec) -> bool {
    let capabilities = &source_file.endpoint.capabilities;
    source_file.size.is_some_and(|size| size <= SMALL_BYTES_MAX)
        && spec.part.is_none()
        && !spec.divides(source_file.size)
        && !matches!(
            source_file.other,
            Peer::To(LocalEnd::Standard) | Peer::From(Origin::Here(LocalEnd::Standard))
        )
        && source_file.pipeline_failures < PIPELINE_FAILURES_MAX
        && source_file.begun.is_none()
        && !is_device(&source_file.remote)
        && !(source_file.direction() == Direction::Put
            && capabilities.may_be_closed(&source_file.remote))
        // A name that the server may mangle needs a look first.
        && capabilities.passes(&source_file.remote)
        && match &source_file.other {
            Peer::From(Origin::Server(at)) => at.endpoint.capabilities.passes(&at.path),
            _ => true,
        }
}

impl PipelinedFile {
    /// Opens the local end. Asks nothing of the server.
    pub(crate) fn open(
        session: &SessionPair,
        source_file: SourceFile,
        spec: &JobSpec,
    ) -> std::result::Result<Self, Box<(SourceFile, Error)>> {
        let (transfer, check) = match Self::open_ends(session, &source_file, spec) {
            Ok(open) => open,
            Err(error) => return Err(Box::new((source_file, error))),
        };
        let size = transfer.length().unwrap_or(0);
        let summed = match (&check, transfer.file()) {
            (Some(PendingCheck::Checksum(algorithm)), Some(file))
                if source_file.direction() == Direction::Get && size <= HashingFile::BYTES_MAX =>
            {
                Some(HashingFile::new(Arc::clone(file), *algorithm))
            }
            _ => None,
        };
        Ok(Self {
            size,
            began: Instant::now(),
            source_file,
            check,
            transfer,
            digest: None,
            summed,
            at_source: None,
        })
    }

    fn open_ends(
        session: &SessionPair,
        source_file: &SourceFile,
        spec: &JobSpec,
    ) -> Result<(OpenFile, Option<PendingCheck>)> {
        let transfer = OpenFile::open(session, source_file, spec)?;
        let algorithm = verify::choose(session, spec.verify, false)?;
        let puts = source_file.direction() == Direction::Put;
        if puts && session.server.features.commit {
            let attributes = source_file.attributes.as_ref();
            let modify = attributes.and_then(|attributes| attributes.modified);
            let modify = modify.filter(|_| session.keeps_times());
            let commit = commit(&*transfer, algorithm, modify).map_err(Error::Local)?;
            // What was read just now is what the time belongs to.
            source_file.check_unchanged()?;
            if let Some(PendingCheck::Commit(_, agreed)) = &commit {
                let doing = format!("put {}", source_file.target());
                let expected = source_file.expected.as_deref();
                verify::check_expected(doing, agreed.as_ref(), expected)?;
                return Ok((transfer, commit));
            }
        }
        let checksum = algorithm.filter(|_| !transfer.is_in_place());
        let size_tells = puts && session.server.features.size;
        let check =
            (checksum.map(PendingCheck::Checksum)).or(size_tells.then_some(PendingCheck::Size));
        Ok((transfer, check))
    }

    /// RETR or STOR.
    pub(crate) fn command(&self) -> Command {
        self.transfer.whole_command()
    }

    /// The server refuses its temporary name. True where another is tried.
    pub(crate) fn refused_name(&mut self, endpoint: &Endpoint, error: &Error) -> bool {
        let Some(refused) = self.transfer.refused_name(endpoint, error) else {
            return false;
        };
        self.source_file = self.source_file.under_another_name(refused);
        true
    }

    /// The server has it under its temporary name.
    pub(crate) fn stored(&self, context: &RunContext) {
        self.transfer.stored(context, &self.source_file.endpoint);
    }

    /// What is asked right behind it.
    pub(crate) fn check(&self) -> Option<Command> {
        let path = self.transfer.remote();
        Some(match self.check.as_ref()? {
            PendingCheck::Commit(commit, _) => Command::Site(Site::Commit(Commit::clone(commit))),
            PendingCheck::Checksum(algorithm) => whole_checksum(*algorithm, path),
            PendingCheck::Size => Command::Size(path.clone()),
        })
    }

    /// What the data plane has to do.
    pub(crate) fn job(&self) -> TransferJob {
        let mut job = self.transfer.whole_job();
        if let (TransferJob::Receive(Sink::File { file, .. }), Some(summed)) =
            (&mut job, &self.summed)
        {
            *file = Arc::clone(summed) as FileRef;
        }
        job
    }

    /// What is asked of the server that sends it: the file, and its checksum.
    pub(crate) fn at_source(&self) -> Option<(Command, Option<Command>)> {
        let Peer::From(Origin::Server(at)) = &self.source_file.other else {
            return None;
        };
        let check = match &self.check {
            Some(PendingCheck::Checksum(algorithm)) => Some(whole_checksum(*algorithm, &at.path)),
            Some(PendingCheck::Commit(..) | PendingCheck::Size) | None => None,
        };
        Some((Command::Retr(at.path.clone()), check))
    }

    /// What that server has said of the check.
    pub(crate) fn checked_at_source(&mut self, reply: Option<Reply>) {
        self.at_source = reply;
    }

    /// Bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Bytes that a later run would have to move again: it resumes larger files.
    pub(crate) fn unresumable_bytes(&self) -> u64 {
        match self.size > RESUME_BYTES_MIN {
            true => 0,
            false => self.size,
        }
    }

    pub(crate) fn doing(&self) -> impl Display {
        let verb = match self.source_file.direction() {
            Direction::Get => "get",
            Direction::Put => "put",
        };
        let SourceFile {
            endpoint, remote, ..
        } = &self.source_file;
        fmt::from_fn(move |f| write!(f, "{verb} {}", endpoint.url(remote)))
    }

    /// Its bytes have moved: whether that were all.
    pub(crate) fn moved(&mut self, report: &TransferReport) -> Result<()> {
        if !self.transfer.is_whole(report) {
            return Err(Error::Size {
                doing: self.doing().to_string(),
                expected: self.size,
                got: report.bytes,
            });
        }
        if let Some(&PendingCheck::Checksum(algorithm)) = self.check.as_ref()
            && self.size > DIGEST_INLINE_BYTES_MAX
            && let Some(file) = self.transfer.file().map(Arc::clone)
        {
            let size = self.size;
            let compute = move || compute(&file, algorithm, size);
            self.digest = Some(tokio::task::spawn_blocking(compute));
        }
        Ok(())
    }

    /// Compares with what the server says of its end.
    pub(crate) async fn verify(
        &mut self,
        session: &SessionPair,
        spec: &JobSpec,
        reply: Option<Reply>,
    ) -> Result<Option<AgreedChecksum>> {
        if !self.is_named_by_server() {
            self.source_file.check_unchanged()?;
        }
        let (Some(check), Some(reply)) = (&self.check, reply) else {
            return Ok(None);
        };
        match check {
            PendingCheck::Commit(_, agreed) if reply.code.is_success() => {
                self.renamed();
                Ok(agreed.clone())
            }
            PendingCheck::Commit(..) => {
                let to = self.source_file.endpoint.url(&self.source_file.remote);
                Err(Error::refused(format!("check {to} and name it"), reply))
            }
            &PendingCheck::Checksum(algorithm) => {
                let asked = checksum_in(
                    reply,
                    format_args!("compute {algorithm} of {}", self.doing()),
                );
                let theirs = match asked {
                    Ok(theirs) => theirs,
                    Err(error) => return verify::unable(session, spec.verify, error),
                };
                let ours = match self.at_source.take() {
                    Some(reply) => {
                        let asked = format!("compute {algorithm} of {}", self.source_file.source());
                        match checksum_in(reply, asked) {
                            Ok(ours) => ours,
                            Err(error) => return verify::unable(session, spec.verify, error),
                        }
                    }
                    None => self.own_digest(algorithm).await?,
                };
                let agreed = verify::agree(self.doing(), algorithm, ours, theirs)?;
                let expected = self.source_file.expected.as_deref();
                verify::check_expected(self.doing(), Some(&agreed), expected)?;
                Ok(Some(agreed))
            }
            PendingCheck::Size => match reply.text().trim().parse() {
                Ok(got) if reply.code.is_success() && got != self.size => Err(Error::Size {
                    doing: self.doing().to_string(),
                    expected: self.size,
                    got,
                }),
                _ => Ok(None),
            },
        }
    }

    async fn own_digest(&mut self, algorithm: ChecksumAlgorithm) -> Result<String> {
        let doing = format!("compute {algorithm} of {}", self.doing());
        let summed = self.summed.take().and_then(|summed| summed.finish());
        if let Some((_, digest)) = summed.filter(|(bytes, _)| *bytes == self.size) {
            return Ok(digest);
        }
        let digested = match self.digest.take() {
            Some(digest) => digest.await.map_err(|bug| joined_badly(doing, bug))?,
            None => {
                let why = || "it has no file".to_owned();
                let file = self.transfer.file();
                let file = file.ok_or_else(|| Error::Internal { doing, why: why() })?;
                compute(file, algorithm, self.size)
            }
        };
        digested.map_err(Error::Local)
    }

    /// Gives a file that was fetched its name.
    pub(crate) fn commit(&self, durability: &LocalDurability) -> Result<()> {
        self.transfer.commit(durability)
    }

    /// The temporary and the final name of a put that is still to be renamed.
    pub(crate) fn names(&self) -> Option<(&FtpPath, &FtpPath)> {
        self.transfer.names().filter(|_| !self.is_named_by_server())
    }

    /// The check is all that is still asked for it.
    fn is_named_by_server(&self) -> bool {
        matches!(self.check, Some(PendingCheck::Commit(..)))
    }

    /// What has to be asked between the transfer and the check.
    pub(crate) fn attribute_commands(&self, session: &SessionPair) -> Vec<Command> {
        let named = self.is_named_by_server();
        let mode =
            (self.source_file.attributes.filter(|_| named)).map(|attributes| FileAttributes {
                modified: None,
                ..attributes
            });
        session.attribute_commands(mode.as_ref(), self.transfer.remote())
    }

    /// Whether the server has what it should and cannot give it its name: a matter of this file
    /// alone.
    pub(crate) fn is_rename_failure(&self, reply: &Reply) -> bool {
        self.is_named_by_server()
            && matches!(
                failure_kind(reply),
                Some(
                    FailureKind::PermissionDenied
                        | FailureKind::Exists
                        | FailureKind::NotFound
                        | FailureKind::NotADirectory
                        | FailureKind::IsADirectory
                        | FailureKind::NoSpace
                )
            )
    }

    /// It has its final name at the server.
    pub(crate) fn renamed(&self) {
        self.transfer.mark_renamed();
    }

    /// What it leaves at the server when it goes no further.
    pub(crate) fn leftover(&self) -> Option<&FtpPath> {
        self.transfer.leftover()
    }

    /// What is there of a file that is not little stays, for when it goes alone.
    pub(crate) fn keep(&mut self) {
        if self.size > RESUME_BYTES_MIN {
            self.source_file.begun = self.transfer.keep();
        }
    }

    /// Back to where it came from. `alone`: it may be the reason.
    pub(crate) fn into_item(mut self, alone: bool) -> SourceFile {
        self.source_file.pipeline_failures = match alone {
            true => PIPELINE_FAILURES_MAX,
            false => self.source_file.pipeline_failures.saturating_add(1),
        };
        self.source_file
    }
}

/// What the server is asked where it compares and renames by itself: of files whose checksum can be
/// told before they are sent.
fn commit(
    put: &dyn FileTransfer,
    algorithm: Option<ChecksumAlgorithm>,
    modify: Option<Timestamp>,
) -> std::result::Result<Option<PendingCheck>, StorageFailure> {
    let (Some((temporary, path)), Some(file), Some(size)) = (put.names(), put.file(), put.length())
    else {
        return Ok(None);
    };
    let temporary = temporary.file_name().and_then(TemporaryName::new);
    let Some(temporary) =
        temporary.filter(|_| algorithm.is_none() || size <= DIGEST_INLINE_BYTES_MAX)
    else {
        return Ok(None);
    };
    let mut expected = Expected {
        size: Some(size),
        modify,
        ..Expected::default()
    };
    let mut agreed = None;
    if let Some(algorithm) = algorithm {
        let digest = compute(file, algorithm, size)?;
        agreed = Some(verify::agreed(algorithm, &digest));
        expected.checksums.push((algorithm, digest));
    }
    let commit = Commit {
        temporary,
        expected,
        path: path.clone(),
    };
    Ok(Some(PendingCheck::Commit(Box::new(commit), agreed)))
}

fn whole_checksum(algorithm: ChecksumAlgorithm, path: &FtpPath) -> Command {
    Command::Cksm {
        algorithm,
        offset: 0,
        length: None,
        path: path.clone(),
    }
}

fn compute(file: &FileRef, algorithm: ChecksumAlgorithm, size: u64) -> LocalDigest {
    // One byte more, so that a file that is too long does not pass.
    digest::of_file(file.as_ref(), algorithm, 0, Some(size + 1), &mut |_| true)
}

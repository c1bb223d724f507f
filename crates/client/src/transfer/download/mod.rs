//! One file from a server.

mod resumed;
mod stdout;

use std::{os::unix::ffi::OsStrExt, path::Path, sync::Arc};

use godwit_engine::{
    data::{Sink, TransferJob, TransferReport},
    storage::FileRef,
};
use godwit_proto::{
    ByteRange, ChecksumAlgorithm, Command, FtpPath, RangeSet, RestartPoint,
    command::Mode,
    error::{FailureKind, TransferFailure},
    pi::transfer::Direction,
};
use parking_lot::Mutex;

use self::{
    resumed::{PROOF_BYTES, order_of},
    stdout::{StdoutSink, StdoutWriter},
};
use super::{
    FileTransfer, LocalFuture, PieceSize, SMALL_BYTES_MAX,
    range_outcome::RangeOutcome,
    remote_source::RemoteSource,
    resume::{self, Replica},
    source_file::{LocalEnd, SourceFile, is_worth_resuming},
    verify::{self, AgreedChecksum, Regions},
};
use crate::{
    endpoint::capabilities::Lack,
    error::{Error, Result},
    local::{
        attributes::FileAttributes,
        durability::LocalDurability,
        files::{self, PartialFile, TempFile},
        journal::{Order, SafeRanges, SourceVersion},
    },
    session::{NextTransfer, SessionPair, TransferOutcome, TransferPlan},
    spec::{Part, Verify},
};

/// Bytes of a file for which room is looked for. Chosen arbitrarily: those of a smaller one are
/// here soon enough to see.
const SHORTAGE_CHECK_BYTES_MIN: u64 = 64 << 20;

/// A get that has begun: its destination is open.
pub(crate) struct Download {
    from: RemoteSource,
    /// URL.
    url: String,
    verify_mode: Verify,
    attributes: Option<FileAttributes>,
    to: DownloadTarget,
    /// What is here is the beginning of the file, and the server sends the rest:
    /// [`resume::is_in_order`].
    in_order: bool,
    /// What its checksum must be.
    expected: Option<Arc<(ChecksumAlgorithm, String)>>,
    /// Bytes of its beginning that an earlier run has left.
    resumed_bytes: u64,
    /// What is there of a file whose bytes come in any order; then it is no beginning.
    safe: Option<Arc<SafeRanges>>,
    /// Which version of the source it is of.
    version: Mutex<Option<SourceVersion>>,
}

enum DownloadTarget {
    File {
        target: Mutex<TempFile>,
        file: FileRef,
        /// Where in it the first byte goes.
        at: u64,
    },
    StdoutSink(Arc<StdoutSink>),
}

impl Download {
    /// Opens the destination, once it is sure that the server understands the name.
    pub(crate) async fn begin(
        session: &mut SessionPair,
        source_file: &SourceFile,
        to: &LocalEnd,
        part: Option<Part>,
        verify_mode: Verify,
    ) -> Result<Self> {
        session.check_name(&source_file.remote).await?;
        let is_asked = resume::is_in_order(session)
            && matches!(to, LocalEnd::Path(_))
            && is_worth_resuming(source_file, part);
        let version = match is_asked {
            true => Box::pin(resume::version(session, &source_file.remote)).await?,
            false => None,
        };
        Self::open_version(session, source_file, to, part, verify_mode, version)
    }

    /// Opens the destination. Asks nothing of the server.
    pub(crate) fn open(
        session: &SessionPair,
        source_file: &SourceFile,
        to: &LocalEnd,
        part: Option<Part>,
        verify_mode: Verify,
    ) -> Result<Self> {
        Self::open_version(session, source_file, to, part, verify_mode, None)
    }

    /// The same of a known version of the source: what is here of it is resumed in order.
    fn open_version(
        session: &SessionPair,
        source_file: &SourceFile,
        to: &LocalEnd,
        part: Option<Part>,
        verify_mode: Verify,
        version: Option<SourceVersion>,
    ) -> Result<Self> {
        let journal = session.context.local.journal.get();
        let goes_on = version.is_some_and(|version| {
            let order = order_of(session);
            let noted = journal.and_then(|journal| journal.source_of(&source_file.target(), order));
            version.changed.is_some() && noted == Some(version)
        });
        let url = source_file.endpoint.url(&source_file.remote);
        let from = RemoteSource::new(&source_file.remote, source_file.size, part, &url)?;
        let algorithm = verify::choose(session, verify_mode, part.is_some())?;
        let to = match to {
            LocalEnd::Path(path) => {
                let begun = source_file.begun.as_deref().map(|begun| PartialFile {
                    at: files::path_of(begun),
                    most: match version {
                        // Nothing tells what it is of.
                        Some(_) if !goes_on => 0,
                        _ => source_file.size.unwrap_or(0),
                    },
                });
                let beside = |destination: &Path| match journal {
                    Some(journal) => {
                        journal.temp_beside(destination, source_file.size, || source_file.target())
                    }
                    None => destination.with_file_name(files::temporary_name()),
                };
                let stays = part.filter(|part| part.stays);
                let (target, file) = match stays {
                    None => {
                        let storage = &session.context.local.storage;
                        TempFile::create(storage, path, source_file.is_new, begun, &beside)?
                    }
                    Some(_) => TempFile::in_place(&session.context.local.storage, path)?,
                };
                session.context.warn_no_direct_io(&file, path.display());
                if stays.is_none() && !target.is_in_place() {
                    warn_of_shortage(session, path, &file, from.length);
                }
                DownloadTarget::File {
                    target: Mutex::new(target),
                    file,
                    at: stays.map_or(0, |part| part.offset),
                }
            }
            LocalEnd::Standard => DownloadTarget::StdoutSink(Arc::new(StdoutSink::new(algorithm)?)),
        };
        let in_order = match &to {
            DownloadTarget::File { target, .. } => {
                version.is_some() && from.length.is_some() && !target.lock().is_in_place()
            }
            DownloadTarget::StdoutSink(_) => false,
        };
        let there = match &to {
            DownloadTarget::File { file, .. } if in_order && source_file.begun.is_some() => {
                file.metadata().map_err(Error::Local)?.size
            }
            _ => 0,
        };
        let target = || source_file.target();
        let safe = match &to {
            DownloadTarget::File { target: file, .. } if order_of(session) == Order::Any => {
                let path = file
                    .lock()
                    .temp_path()
                    .map(|path| path.as_os_str().as_bytes().to_vec());
                let of = path.zip(from.length).filter(|_| in_order);
                of.map(|(path, size)| {
                    let safe = SafeRanges::of_journal(journal, target(), path, size, there);
                    Arc::new(safe)
                })
            }
            _ => None,
        };
        let resumed_bytes = match &safe {
            Some(_) => 0,
            None => there,
        };
        if let (true, Some(version), Some(journal)) = (in_order, version, journal) {
            journal.record_source(&source_file.target(), version, order_of(session));
        }
        Ok(Self {
            from,
            url,
            verify_mode,
            attributes: source_file.attributes,
            to,
            in_order,
            expected: source_file.expected.clone(),
            resumed_bytes,
            safe,
            version: Mutex::new(version),
        })
    }

    /// All of it, where its length is known.
    fn whole(&self) -> Option<ByteRange> {
        self.from.length.and_then(|l| ByteRange::new(0, l))
    }

    /// Fetches bytes of the region, `None` for all of it. On failure tells which of them are there
    /// already. `next` is what will be asked for next, on the same session, whatever comes of this
    /// one.
    async fn fetch(
        &self,
        session: &mut SessionPair,
        range: Option<ByteRange>,
        next: Option<NextTransfer>,
    ) -> (Result<u64>, RangeSet) {
        let doing = format!("get {}", self.url);
        for last_try in [false, true] {
            let mut in_mode_e = !session.endpoint.capabilities.lacks(Lack::Port);
            let fetched = self.fetch_once(session, range, next.clone(), &doing, &mut in_mode_e);
            let (result, safe) = fetched.await;
            match result {
                // The server cannot connect to us: addresses are translated, or something filters.
                // Not the file's fault.
                Err(error)
                    if !last_try && in_mode_e && safe.is_empty() && cannot_reach_us(&error) =>
                {
                    if !session.server.features.parallel
                        || session.endpoint.capabilities.lacks(Lack::ModeE)
                    {
                        return (Err(error), safe);
                    }
                    let text = format!(
                        "{}: cannot connect to us, so gets use one data channel (MODE S): {error}",
                        session.endpoint.name()
                    );
                    session.endpoint.capabilities.learn(
                        Lack::Port,
                        &session.context.reporter,
                        text,
                    );
                    if !session.is_usable() {
                        return (Err(error), safe);
                    }
                }
                other => return (other, safe),
            }
        }
        (Err(Error::Interrupted), RangeSet::new())
    }

    async fn fetch_once(
        &self,
        session: &mut SessionPair,
        range: Option<ByteRange>,
        next: Option<NextTransfer>,
        doing: &str,
        in_mode_e: &mut bool,
    ) -> (Result<u64>, RangeSet) {
        let way = match self.from.way(session, range) {
            Ok(way) => way,
            Err(error) => return (Err(error), RangeSet::new()),
        };
        let plan = TransferPlan {
            doing,
            direction: Direction::Get,
            stream: way.stream || self.is_stream(),
            striped: (self.from.length).is_none_or(|length| length > SMALL_BYTES_MAX),
            ahead: way.rest.map(|n| Command::Rest(RestartPoint::Offset(n))),
            command: way.command,
            length: way.cut.or(way.limit),
            next,
            may_block: self.is_stream(),
            counts: true,
            feeds: false,
            may_be_cut: false,
            is_cut: way.cut.is_some(),
            began: None,
            safe: self.safe.as_ref(),
            stored_as: None,
        };
        if let (true, DownloadTarget::File { target, .. }) = (self.is_beginning(), &self.to)
            // A later run takes all that is there for the beginning.
            && let Err(error) = target.lock().cut(way.rest.unwrap_or(0))
        {
            return (Err(error), RangeSet::new());
        }
        if let (true, Some(safe)) = (
            range.is_none_or(|range| Some(range) == self.whole()),
            &self.safe,
        ) {
            // All of it is written again.
            safe.clear();
        }
        let (base, stream_start, limit) = (way.base, way.stream_start, way.limit);
        let outcome = session
            .transfer(plan, |mode| {
                // In MODE S the client connects: a failure is none of the server to reach it.
                *in_mode_e = mode == Mode::ExtendedBlock;
                let sink = self.sink(base, stream_start, limit);
                TransferJob::Receive(match way.cut {
                    Some(bytes) => Sink::Prefix {
                        sink: Box::new(sink),
                        bytes,
                    },
                    None => sink,
                })
            })
            .await;
        self.evaluate(outcome, base, range, doing)
    }

    fn sink(&self, base: u64, stream_start: u64, limit: Option<u64>) -> Sink {
        match &self.to {
            DownloadTarget::File { file, at, .. } => Sink::File {
                file: Arc::clone(file),
                base: at + base,
                stream_start,
                limit,
            },
            DownloadTarget::StdoutSink(output) => {
                Sink::Stream(Box::new(StdoutWriter(Arc::clone(output))))
            }
        }
    }

    fn evaluate(
        &self,
        outcome: TransferOutcome,
        base: u64,
        range: Option<ByteRange>,
        doing: &str,
    ) -> (Result<u64>, RangeSet) {
        let mut safe = RangeSet::new();
        let mut bytes = 0;
        if let Some(report) = &outcome.report {
            bytes = report.bytes;
            for r in report.safe.iter() {
                let shifted = (r.start.checked_add(base), r.end.checked_add(base));
                if let (Some(start), Some(end)) = shifted {
                    safe.insert(ByteRange { start, end });
                }
            }
        }
        if let Err(error) = outcome.result {
            return (Err(error), safe);
        }
        let Some(wanted) = range.or_else(|| self.whole()) else {
            return (Ok(bytes), safe);
        };
        let complete = match self.to {
            DownloadTarget::File { .. } => safe.contains(wanted) && bytes >= wanted.len(),
            DownloadTarget::StdoutSink(_) => bytes == wanted.len(),
        };
        if complete {
            (Ok(wanted.len()), safe)
        } else {
            let error = Error::Size {
                doing: doing.to_owned(),
                expected: wanted.len(),
                got: bytes,
            };
            (Err(error), safe)
        }
    }

    async fn compare_output(
        &self,
        session: &mut SessionPair,
        output: &StdoutSink,
        doing: &str,
    ) -> Result<Option<AgreedChecksum>> {
        let Some((algorithm, ours)) = output.checksum() else {
            return Ok(None);
        };
        let length = self.from.length.filter(|_| self.from.is_part);
        match session
            .checksum(algorithm, self.from.offset, length, &self.from.path)
            .await
        {
            Ok(theirs) => verify::agree(doing, algorithm, ours, theirs).map(Some),
            Err(error) => verify::unable(session, self.verify_mode, error),
        }
    }

    /// Those that the file is to have. What a bucket lists is when it was stored.
    async fn attributes_of_file(&self, session: &mut SessionPair) -> Option<FileAttributes> {
        let attributes = self.attributes?;
        if attributes.modified.is_none() || !session.endpoint.is_bucket() {
            return Some(attributes);
        }
        let paths = std::slice::from_ref(&self.from.path);
        let told = session.times_of_objects(paths).await.pop().flatten();
        Some(FileAttributes {
            modified: told.or(attributes.modified),
            ..attributes
        })
    }

    fn commit_with(
        &self,
        durability: &LocalDurability,
        attributes: Option<FileAttributes>,
    ) -> Result<()> {
        match &self.to {
            DownloadTarget::File { target, file, .. } => {
                target.lock().commit(file, durability, attributes.as_ref())
            }
            DownloadTarget::StdoutSink(_) => Ok(()),
        }
    }
}

impl FileTransfer for Download {
    fn length(&self) -> Option<u64> {
        self.from.length
    }

    fn file(&self) -> Option<&FileRef> {
        match &self.to {
            DownloadTarget::File { file, .. } => Some(file),
            DownloadTarget::StdoutSink(_) => None,
        }
    }

    fn remote(&self) -> &FtpPath {
        &self.from.path
    }

    fn is_stream(&self) -> bool {
        matches!(self.to, DownloadTarget::StdoutSink(_))
    }

    fn is_in_place(&self) -> bool {
        matches!(&self.to, DownloadTarget::File { target, .. } if target.lock().is_in_place())
    }

    fn has_version(&self) -> bool {
        let version = *self.version.lock();
        self.in_order && version.is_some_and(|version| version.changed.is_some())
    }

    fn can_split(&self, session: &SessionPair) -> bool {
        session.server.features.eret && !self.is_stream()
    }

    fn piece_size(&self) -> PieceSize {
        match self.in_order {
            true => PieceSize::All,
            false => PieceSize::Short,
        }
    }

    /// Else one might write what another has found to be of an older version.
    fn takes_turns(&self) -> bool {
        self.safe.is_some()
    }

    fn can_follow(&self, _: &SessionPair) -> bool {
        !self.in_order
    }

    /// Nothing that needs a REST or MODE S.
    fn prefetch(
        self: Arc<Self>,
        session: &SessionPair,
        range: Option<ByteRange>,
    ) -> Option<NextTransfer> {
        let way = self.from.way(session, range).ok()?;
        let follows = !way.stream && way.rest.is_none() && !self.is_stream();
        follows.then_some(NextTransfer::Get(way.command))
    }

    fn missing<'a>(
        &'a self,
        session: &'a mut SessionPair,
    ) -> LocalFuture<'a, Result<Option<Vec<ByteRange>>>> {
        Box::pin(async move {
            let whole = self.whole();
            if let Some(safe) = &self.safe {
                return Ok((!safe.is_empty()).then(|| safe.missing()));
            }
            if self.in_order {
                let left = whole.and_then(|whole| ByteRange::new(self.resumed_bytes, whole.end));
                let left = left.filter(|_| self.resumed_bytes > 0);
                return Ok(left.map(|left| Vec::from_iter(Some(left).filter(|r| !r.is_empty()))));
            }
            let (true, Some(whole), Some(file)) = (self.can_split(session), whole, self.file())
            else {
                return Ok(None);
            };
            let copies = (Replica::Remote(&self.from.path), Replica::Local(file));
            resume::missing(session, copies, whole, true).await
        })
    }

    /// A get knows itself what it has written, and not whether that is still right.
    fn find_resumable<'a>(
        &'a self,
        session: &'a mut SessionPair,
        source_file: &'a SourceFile,
        todo: &'a mut Vec<Option<ByteRange>>,
    ) -> LocalFuture<'a, Result<u64>> {
        Box::pin(async move {
            let begins = |range: &Option<ByteRange>| range.is_none_or(|range| range.start == 0);
            let is_begun = match &self.safe {
                Some(safe) => !safe.is_empty(),
                None => !todo.iter().any(begins),
            };
            if self.in_order && is_begun && !self.is_unchanged(session, source_file).await? {
                *todo = vec![None];
            }
            Ok(0)
        })
    }

    fn move_range<'a>(
        &'a self,
        session: &'a mut SessionPair,
        mut range: Option<ByteRange>,
        next: Option<NextTransfer>,
        _: &'a dyn Fn(),
    ) -> LocalFuture<'a, RangeOutcome> {
        Box::pin(async move {
            if self.has_come(range) {
                // With all of the file, by another way.
                return RangeOutcome::whole(0);
            }
            let (mut result, mut safe) = self.fetch(session, range, next).await;
            if self.is_refused_in_order(range, &result) && session.is_usable() {
                // From the first byte on it needs no REST.
                range = None;
                (result, safe) = Box::pin(self.fetch(session, range, None)).await;
            }
            let error = match result {
                Ok(bytes) => return RangeOutcome::whole(bytes),
                Err(error) => error,
            };
            match range.or_else(|| self.whole()) {
                Some(range) if self.safe.is_some() => {
                    self.after_failure_in_any_order(range, &safe, error)
                }
                Some(whole) if self.in_order => {
                    let (moved, left) = self.after_failure(whole, &safe, &error);
                    RangeOutcome::failed(error, moved, vec![left])
                }
                Some(whole) if self.can_split(session) => {
                    let mut gaps: Vec<_> = safe.gaps(whole).into_iter().collect();
                    // All of it is here, and the server called it a failure: that is no success,
                    // whatever it was. Where checksums decide, a little that comes well is.
                    if gaps.is_empty() && self.finish_asks(session) {
                        gaps.push(ByteRange {
                            start: whole.end - whole.len().min(PROOF_BYTES),
                            end: whole.end,
                        });
                    }
                    if gaps.is_empty() {
                        return RangeOutcome::failed(error, 0, vec![range]);
                    }
                    let moved = whole.len() - gaps.iter().map(|g| g.len()).sum::<u64>();
                    RangeOutcome::failed(error, moved, gaps.into_iter().map(Some).collect())
                }
                _ => RangeOutcome::failed(error, 0, vec![range]),
            }
        })
    }

    fn whole_command(&self) -> Command {
        Command::Retr(self.from.path.clone())
    }

    fn whole_job(&self) -> TransferJob {
        TransferJob::Receive(self.sink(0, 0, self.from.length))
    }

    fn is_whole(&self, report: &TransferReport) -> bool {
        let whole = self.whole();
        whole.is_some_and(|whole| report.bytes >= whole.len() && report.safe.contains(whole))
    }

    fn finish_asks(&self, session: &SessionPair) -> bool {
        let is_part = self.from.is_part;
        self.is_stream() || !matches!(verify::choose(session, self.verify_mode, is_part), Ok(None))
    }

    fn finish<'a>(
        &'a self,
        session: &'a mut SessionPair,
        _: u64,
    ) -> LocalFuture<'a, Result<Option<AgreedChecksum>>> {
        Box::pin(async move {
            let doing = format!("get {}", self.url);
            let agreed = match &self.to {
                DownloadTarget::File { file, at, .. } => {
                    let algorithm = verify::choose(session, self.verify_mode, self.from.is_part)?;
                    // What went into a device cannot be read again.
                    match algorithm.filter(|_| !self.is_in_place()) {
                        None => None,
                        Some(algorithm) => {
                            let regions = Regions {
                                doing: &doing,
                                remote: &self.from.path,
                                remote_offset: self.from.offset,
                                local: file,
                                local_offset: *at,
                                length: self.from.length.filter(|_| self.from.is_part),
                            };
                            verify::compare(session, self.verify_mode, algorithm, regions).await?
                        }
                    }
                }
                DownloadTarget::StdoutSink(output) => {
                    self.compare_output(session, output, &doing).await?
                }
            };
            verify::check_expected(&doing, agreed.as_ref(), self.expected.as_deref())?;
            let attributes = self.attributes_of_file(session).await;
            self.commit_with(&session.context.local.durability, attributes)?;
            Ok(agreed)
        })
    }

    fn commit(&self, durability: &LocalDurability) -> Result<()> {
        self.commit_with(durability, self.attributes)
    }

    fn keep(&self) -> Option<Vec<u8>> {
        if let Some(safe) = &self.safe {
            safe.flush();
        }
        match &self.to {
            DownloadTarget::File { target, .. } => target.lock().keep(),
            DownloadTarget::StdoutSink(_) => None,
        }
    }
}

/// Of a file whose end is far away, so that a full disk is not news when it is full.
fn warn_of_shortage(session: &SessionPair, path: &Path, file: &FileRef, length: Option<u64>) {
    let Some(length) = length.filter(|length| *length >= SHORTAGE_CHECK_BYTES_MIN) else {
        return;
    };
    let resumed_bytes = file.metadata().map_or(0, |metadata| metadata.stored);
    if let Some(shortage) = files::shortage(path, length.saturating_sub(resumed_bytes)) {
        session.context.reporter.warn(shortage);
    }
}

/// The server could not open its data connection to us.
fn cannot_reach_us(error: &Error) -> bool {
    match error {
        Error::Transfer { failure, .. } => matches!(failure, TransferFailure::NoConnection(_)),
        Error::Refused { reply, started, .. } => {
            let text = reply.text();
            !started
                && (reply.code.get() == 425
                    || text.contains("error in connect")
                    || text.contains("nable to connect")
                    || text.contains("Connection refused")
                    || text.contains("No route to host"))
                && error.refusal() != Some(FailureKind::NotFound)
        }
        _ => false,
    }
}

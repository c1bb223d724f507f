//! One file to a server: of ours, or of another server ([`third_party`]).

mod check;
mod in_order;
mod naming;
mod open;
mod send;
mod stdin;
mod third_party;

use std::{
    io::{self, Read},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use godwit_engine::{
    data::{TransferJob, TransferReport},
    storage::FileRef,
};
use godwit_proto::{ByteRange, ChecksumAlgorithm, Command, FtpPath, error::FailureKind};

use self::{
    naming::temporary_beside,
    open::{length_of, open_source},
    stdin::StdinSource,
};
use super::{
    FileTransfer, LocalFuture, PieceSize,
    range_outcome::RangeOutcome,
    remote_source::RemoteSource,
    resume::{self, Replica},
    source_file::{LocalEnd, Origin, SourceFile, is_device},
    stealable_ranges::StealableRanges,
    verify::{self, AgreedChecksum},
};
use crate::{
    context::RunContext,
    endpoint::{
        Endpoint,
        capabilities::Lack,
        naming::{NameRefused, Naming},
        uploads::PartedUpload,
    },
    error::{Error, Result},
    local::{
        attributes::FileAttributes,
        journal::{Journal, Order, SafeRanges, SourceVersion},
    },
    session::{DisplacedFile, Found, NextTransfer, SessionPair},
    spec::{Part, Verify},
};

/// A put that has begun: its source is open and its name at the server chosen.
pub(crate) struct Upload {
    /// Where the bytes go at first.
    temp_path: FtpPath,
    /// The final name, where it is another one.
    rename_to: Option<FtpPath>,
    /// URL of the final name.
    url: String,
    verify_mode: Verify,
    attributes: Option<FileAttributes>,
    /// What its checksum must be.
    expected: Option<Arc<(ChecksumAlgorithm, String)>>,
    is_part: bool,
    /// What the server has of the part may be of an earlier job.
    resumes_part: bool,
    /// Other jobs have sent it, and a failure does not remove it.
    is_assembled: bool,
    /// Other jobs send other parts of the same upload to a bucket: where its object will be.
    divided: Option<FtpPath>,
    offset: u64,
    length: Option<u64>,
    from: UploadSource,
    /// Something may lie under the temporary name.
    may_exist: AtomicBool,
    /// The other server was asked for parts of it.
    is_relayed_in_parts: AtomicBool,
    /// The server was asked to give it its final name. The answer may be lost, and not what it did.
    rename_asked: AtomicBool,
    /// What had the final name.
    displaced: DisplacedFile,
    /// A session has sent bytes of it before their turn.
    was_prefetched: AtomicBool,
    journal: Option<Arc<Journal>>,
    /// What sessions are sending, for those who come to help.
    stealable: StealableRanges,
    /// What the server has under the temporary name is the beginning of the file:
    /// [`resume::is_in_order`].
    in_order: bool,
    /// What the server has of a file that it takes in parts; then it is no beginning.
    safe: Option<Arc<SafeRanges>>,
    /// An attempt before has left bytes under the temporary name, and this one goes on with them.
    was_there: AtomicBool,
    /// Which version of the source is sent.
    version: Option<SourceVersion>,
    /// It was begun before, under a name that the server refused.
    name_refused: Option<NameRefused>,
}

/// What is sent.
enum UploadSource {
    File(FileRef),
    /// Read once, in order.
    Stream(Arc<StdinSource>),
    /// At the server of the [`SessionPair`].
    Server(RemoteSource),
}

impl Upload {
    /// Opens the source and finds out under which name the file can be written.
    pub(crate) async fn begin(
        session: &mut SessionPair,
        source_file: &SourceFile,
        from: &Origin,
        part: Option<Part>,
        verify_mode: Verify,
    ) -> Result<Self> {
        let can_rename = match source_file.remote.parent() {
            Some(parent) if !writes_in_place(source_file, part) => {
                session.can_rename(&parent).await?
            }
            _ => false,
        };
        if let (Origin::Server(at), Some(source)) = (from, &mut session.sender) {
            source.check_name(&at.path).await?;
        }
        let put = Self::open(session, source_file, from, part, verify_mode, can_rename)?;
        // What an earlier run has left of another version is not resumed.
        if let Some(may_exist) =
            partial_beside(source_file).filter(|may_exist| *may_exist != put.temp_path)
        {
            Box::pin(session.remove_files(&[may_exist])).await?;
        }
        Ok(put)
    }

    /// Opens the source. Asks nothing of the server.
    pub(crate) fn open(
        session: &SessionPair,
        source_file: &SourceFile,
        from: &Origin,
        part: Option<Part>,
        verify_mode: Verify,
        can_rename: bool,
    ) -> Result<Self> {
        let url = source_file.endpoint.url(&source_file.remote);
        let algorithm = verify::choose(session, verify_mode, part.is_some())?;
        let offset = part.map_or(0, |p| p.offset);
        let wanted = part.and_then(|p| p.length);
        let resumes_part = part.is_some_and(|p| p.resumes);
        let (from, length) = match from {
            Origin::Here(LocalEnd::Standard) => {
                let stdin: Box<dyn Read + Send> = Box::new(io::stdin());
                let input = Arc::new(StdinSource::new(stdin, algorithm));
                (UploadSource::Stream(input), wanted)
            }
            Origin::Here(end @ LocalEnd::Path(path)) => {
                let planned_file = source_file.size.is_some();
                let (from, left) = open_source(&session.context, path, algorithm, planned_file)?;
                let reached = |end: Option<u64>| end.is_some_and(|end| offset <= end);
                if reached(source_file.size) && left.is_some() && !reached(left) {
                    let what = path.display().to_string();
                    return Err(Error::Changed { what });
                }
                let length = length_of(end, &from, left, offset, wanted)?;
                (from, length)
            }
            Origin::Server(at) => {
                let source = RemoteSource::new(&at.path, source_file.size, part, &at.url())?;
                let length = source.length;
                (UploadSource::Server(source), length)
            }
        };
        let version = source_file.size.map(|size| SourceVersion {
            size,
            changed: source_file.changed,
        });
        let in_order = match &from {
            UploadSource::File(_) => resume::is_in_order(session),
            UploadSource::Stream(_) => false,
            // Without a time nothing would tell that what is there is of another version.
            UploadSource::Server(_) => {
                let features = session
                    .sender
                    .as_ref()
                    .map(|sender| &sender.server.features);
                let has_parts = features.is_some_and(|has| has.eret || has.rest_stream);
                let has_time = version.is_some_and(|version| version.changed.is_some());
                let passes = session.endpoint.is_http() && session.is_through_client();
                passes && has_parts && has_time
            }
        };
        let journal = session.context.local.journal.get();
        let is_of_version = || {
            let order = match session.endpoint.is_http() {
                true => Order::Any,
                false => Order::Ascending,
            };
            let noted = journal.and_then(|journal| journal.source_of(&url, order));
            noted.is_some() && noted == version
        };
        // What lies at a server of HTTP may have gaps that the journal alone knows.
        let needs_account = in_order || session.endpoint.is_http();
        let is_usable =
            || source_file.is_assembled || !needs_account || in_order && is_of_version();
        let divided = match (&source_file.upload, session.endpoint.is_bucket()) {
            (Some(upload), true) => {
                let begun = partial_beside(source_file);
                let at = begun.as_ref().unwrap_or(&source_file.remote);
                let uploads = &session.endpoint.uploads;
                let odd = || Error::Usage(format!("{url}: no upload in parts is known by that"));
                let to = uploads.join(at, &upload.known_as).ok_or_else(odd)?;
                if upload.may_be_complete {
                    // The service may still put it together.
                    uploads.set_asked(at);
                }
                Some(to)
            }
            _ => None,
        };
        if let (true, Some(there)) = (session.endpoint.is_bucket(), partial_beside(source_file))
            && let Some(version) = journal.and_then(|journal| journal.version_of(&url))
        {
            let uploads = &session.endpoint.uploads;
            uploads.adopt(&there, &source_file.remote, &version);
        }
        let may_exist = partial_beside(source_file).filter(|_| is_usable());
        let goes_on = may_exist.is_some();
        let capabilities = Naming::of(&session.endpoint.capabilities, &source_file.remote);
        let refused = source_file.name_refused.as_ref();
        let naming = refused.map_or(capabilities, |refused| refused.instead.max(capabilities));
        let temp_path = match can_rename && !writes_in_place(source_file, part) {
            // The name of what an earlier run has left was refused as well.
            true if refused.is_some() => temporary_beside(&source_file.remote, naming),
            true => may_exist.or_else(|| temporary_beside(&source_file.remote, naming)),
            false => None,
        };
        let in_order = in_order && part.is_none() && temp_path.is_some();
        let safe = length.filter(|_| in_order && session.endpoint.is_http());
        let safe = safe.map(|size| {
            let place = temp_path.iter().flat_map(|path| path.as_bytes()).copied();
            let there = if goes_on { size } else { 0 };
            let (url, place) = (url.clone(), place.collect());
            Arc::new(SafeRanges::of_journal(journal, url, place, size, there))
        });
        Ok(Self {
            in_order: in_order && length.is_some(),
            safe,
            was_there: AtomicBool::new(false),
            version,
            rename_to: temp_path.is_some().then(|| source_file.remote.clone()),
            temp_path: temp_path.unwrap_or_else(|| source_file.remote.clone()),
            url,
            verify_mode,
            attributes: source_file.attributes,
            expected: source_file.expected.clone(),
            is_part: part.is_some(),
            resumes_part,
            is_assembled: source_file.is_assembled,
            divided: divided.filter(|_| part.is_some()),
            offset,
            length,
            from,
            may_exist: AtomicBool::new(goes_on || resumes_part),
            is_relayed_in_parts: AtomicBool::new(false),
            rename_asked: AtomicBool::new(false),
            displaced: DisplacedFile::default(),
            was_prefetched: AtomicBool::new(false),
            journal: journal.cloned(),
            stealable: StealableRanges::default(),
            name_refused: source_file.name_refused.clone(),
        })
    }

    /// Which bytes of `range` are not at the server, `None`: of the whole file. `None` where
    /// neither end can tell.
    async fn missing_of(
        &self,
        session: &mut SessionPair,
        range: Option<ByteRange>,
    ) -> Result<Option<Vec<ByteRange>>> {
        if self.in_order {
            return Box::pin(self.missing_in_order(session)).await;
        }
        if self.divided.is_some() {
            return Box::pin(self.missing_of_divided(session, range)).await;
        }
        let from = match &self.from {
            UploadSource::File(file) => Replica::Local(file),
            UploadSource::Server(source) => Replica::AtSource(&source.path),
            UploadSource::Stream(_) => return Ok(None),
        };
        let whole = self.length.and_then(|l| ByteRange::new(0, l));
        let is_told = !self.is_part || self.resumes_part;
        let (true, true, Some(region)) = (
            is_told,
            self.may_exist.load(Ordering::Relaxed) && self.can_split(session),
            range.or(whole),
        ) else {
            return Ok(None);
        };
        let copies = (from, Replica::Remote(&self.temp_path));
        let is_all = Some(region) == whole && !self.is_part;
        let at = ByteRange {
            start: self.offset + region.start,
            end: self.offset + region.end,
        };
        let missing = resume::missing(session, copies, at, is_all).await?;
        let of_part = |range: ByteRange| ByteRange {
            start: range.start - self.offset,
            end: range.end - self.offset,
        };
        Ok(missing.map(|missing| missing.into_iter().map(of_part).collect()))
    }

    /// Another server sends it.
    pub(crate) fn is_relayed(&self) -> bool {
        matches!(self.from, UploadSource::Server(_))
    }

    fn bytes_of(&self, ranges: &[Option<ByteRange>]) -> u64 {
        let bytes = |range: &Option<ByteRange>| self.region(*range).map_or(0, ByteRange::len);
        ranges.iter().map(bytes).sum()
    }

    fn region(&self, range: Option<ByteRange>) -> Option<ByteRange> {
        range.or_else(|| self.length.and_then(|l| ByteRange::new(0, l)))
    }

    fn doing(&self) -> String {
        format!("put {}", self.url)
    }

    /// The error is not the server's that sends the file.
    fn is_of_destination(&self, error: &Error) -> bool {
        match error {
            Error::Refused { doing, .. } => !self.is_relayed() || *doing == self.doing(),
            _ => true,
        }
    }

    /// What was read once is there, and cannot be sent again to a server that does not rename.
    fn unrenamed(&self, session: &SessionPair, error: Error) -> Error {
        let is_kept = self.is_stream() && session.endpoint.capabilities.lacks(Lack::Rename);
        match error.refusal().filter(|_| is_kept) {
            Some(_) => Error::Kept {
                error: Box::new(error),
                kept: format!(
                    "it is complete at {}",
                    session.endpoint.url(&self.temp_path)
                ),
            },
            None => error,
        }
    }

    fn is_rename_asked(&self) -> bool {
        self.rename_asked.load(Ordering::Relaxed)
    }

    /// From now on something may lie under the temporary name.
    fn mark_started(&self) {
        let first = !self.may_exist.swap(true, Ordering::Relaxed);
        if let Some(journal) = self
            .journal
            .as_ref()
            .filter(|_| first && self.rename_to.is_some())
        {
            journal.record_temp(&self.url, self.temp_path.as_bytes(), self.length);
            if let Some(version) = self.version.filter(|_| self.in_order) {
                let order = match self.safe {
                    Some(_) => Order::Any,
                    None => Order::Ascending,
                };
                journal.record_source(&self.url, version, order);
            }
        }
    }

    /// Nothing lies under the temporary name.
    fn nothing_begun(&self) {
        self.may_exist.store(false, Ordering::Relaxed);
    }
}

impl FileTransfer for Upload {
    fn length(&self) -> Option<u64> {
        self.length
    }

    fn file(&self) -> Option<&FileRef> {
        match &self.from {
            UploadSource::File(file) => Some(file),
            UploadSource::Stream(_) | UploadSource::Server(_) => None,
        }
    }

    fn remote(&self) -> &FtpPath {
        &self.temp_path
    }

    /// Standard input or a pipe.
    fn is_stream(&self) -> bool {
        matches!(self.from, UploadSource::Stream(_))
    }

    fn has_whole_stream(&self) -> bool {
        matches!(&self.from, UploadSource::Stream(input) if input.is_whole())
    }

    fn has_version(&self) -> bool {
        self.in_order && self.has_source_time()
    }

    fn can_split(&self, session: &SessionPair) -> bool {
        let sends_parts = match (&self.from, &session.sender) {
            (UploadSource::File(_), _) => true,
            // Nothing of an older file may stay behind the last part.
            (UploadSource::Server(_), Some(source)) => {
                let features = &source.server.features;
                let has_parts = match session.is_through_client() {
                    // Else nothing would tell that two parts are of two versions.
                    true => features.rest_stream && self.has_source_time(),
                    false => features.eret,
                };
                has_parts && (self.is_part || self.rename_to.is_some())
            }
            _ => false,
        };
        session.server.features.esto && sends_parts
    }

    fn can_be_cut(&self, session: &SessionPair) -> bool {
        self.can_split(session) && (!self.is_relayed() || session.can_call_off())
    }

    /// Each of them would send all that is not there.
    fn takes_turns(&self) -> bool {
        self.safe.is_some()
    }

    /// What another server sends cannot be stolen from. Parts of an upload begin where its own do.
    fn piece_size(&self) -> PieceSize {
        match self.is_relayed() && self.divided.is_none() {
            true => PieceSize::Long,
            false => PieceSize::All,
        }
    }

    /// Bytes go out behind those of another file, before the server has agreed to take them: a
    /// final name is not in reach then.
    fn can_follow(&self, session: &SessionPair) -> bool {
        let ours = matches!(self.from, UploadSource::File(_));
        ours && self.rename_to.is_some() && self.can_split(session)
    }

    fn prefetch(
        self: Arc<Self>,
        session: &SessionPair,
        range: Option<ByteRange>,
    ) -> Option<NextTransfer> {
        let range = self.region(range);
        let command = self.store(session, range).ok()?;
        self.can_follow(session).then(|| NextTransfer::Put {
            ahead: self.allo_command(session, range),
            command,
            job: Arc::new(move || {
                self.mark_started();
                self.was_prefetched.store(true, Ordering::Relaxed);
                self.job(range)
            }),
        })
    }

    fn prefetch_wasted(&self, session: &SessionPair) -> bool {
        self.was_prefetched.swap(false, Ordering::Relaxed) && !session.has_begun_next()
    }

    fn will_move(&self, range: Option<ByteRange>) {
        if let Some(range) = self.region(range) {
            self.stealable.begin(range);
        }
    }

    fn steal_range(&self, least: u64) -> Option<ByteRange> {
        self.stealable.take(least)
    }

    fn has_stealable_range(&self, least: u64) -> bool {
        self.stealable.may_have(least)
    }

    fn begin_divided<'a>(
        &'a self,
        session: &'a mut SessionPair,
    ) -> LocalFuture<'a, Result<PartedUpload>> {
        Box::pin(async move {
            let no_bucket = || Error::Usage(format!("{}: not in a bucket", self.url));
            let (to, attributes) = self.stored_as(session).ok_or_else(no_bucket)?;
            let size = self.length.unwrap_or(0);
            session
                .begin_upload(&self.temp_path, (&to, attributes), size)
                .await
        })
    }

    fn missing<'a>(
        &'a self,
        session: &'a mut SessionPair,
    ) -> LocalFuture<'a, Result<Option<Vec<ByteRange>>>> {
        Box::pin(self.missing_of(session, None))
    }

    fn find_resumable<'a>(
        &'a self,
        session: &'a mut SessionPair,
        source_file: &'a SourceFile,
        todo: &'a mut Vec<Option<ByteRange>>,
    ) -> LocalFuture<'a, Result<u64>> {
        Box::pin(async move {
            if self.in_order && !source_file.is_unchanged()? {
                let what = source_file.source();
                return Err(Error::Changed { what });
            }
            if self.in_order {
                // Whatever ranges there were.
                let before = self.bytes_of(todo);
                if let Some(missing) = self.missing_of(session, None).await? {
                    *todo = missing.into_iter().rev().map(Some).collect();
                }
                return Ok(before.saturating_sub(self.bytes_of(todo)));
            }
            let mut resumed_bytes = 0;
            let mut left = Vec::new();
            for range in todo.iter() {
                let bytes = range.map(ByteRange::len).or(self.length);
                match (self.missing_of(session, *range).await?, bytes) {
                    (Some(ranges), Some(bytes)) => {
                        let missing = ranges.iter().map(|r| r.len()).sum::<u64>();
                        resumed_bytes += bytes.saturating_sub(missing);
                        // The last is sent first.
                        left.extend(ranges.into_iter().rev().map(Some));
                    }
                    _ => left.push(*range),
                }
            }
            *todo = left;
            Ok(resumed_bytes)
        })
    }

    fn move_range<'a>(
        &'a self,
        session: &'a mut SessionPair,
        range: Option<ByteRange>,
        next: Option<NextTransfer>,
        began: &'a dyn Fn(),
    ) -> LocalFuture<'a, RangeOutcome> {
        Box::pin(async move {
            if self.has_arrived(range) {
                // With another attempt.
                return RangeOutcome::whole(0);
            }
            let outcome = self.send_region(session, range, next, began).await;
            if outcome.result.is_ok() {
                self.stored(&session.context, &session.endpoint);
            }
            outcome
        })
    }

    fn whole_command(&self) -> Command {
        self.mark_started();
        Command::Stor(self.temp_path.clone())
    }

    fn whole_job(&self) -> TransferJob {
        self.job(self.region(None))
    }

    fn is_whole(&self, report: &TransferReport) -> bool {
        report.bytes == self.length.unwrap_or(0)
    }

    fn finish<'a>(
        &'a self,
        session: &'a mut SessionPair,
        bytes: u64,
    ) -> LocalFuture<'a, Result<Option<AgreedChecksum>>> {
        Box::pin(async move {
            if let Some((from, to)) = self.names()
                && self.rename_asked.load(Ordering::Relaxed)
                && session.stat(from).await? == Found::Missing
            {
                if session.endpoint.is_bucket() {
                    // An object that came of the upload would have been found by its mark.
                    return Err(Error::Size {
                        doing: self.doing(),
                        expected: self.length.unwrap_or(bytes),
                        got: 0,
                    });
                }
                // It was renamed and we have not heard of it, if what has the name now is the file.
                let agreed = self.check(session, to, bytes).await?;
                session.remove_displaced(&self.displaced).await;
                self.mark_renamed();
                return Ok(agreed);
            }
            self.check_source(session).await?;
            if self.is_assembled && session.endpoint.is_bucket() {
                // What others have sent, and its checksums.
                self.ask_upload(session).await?;
            }
            if !is_device(&self.temp_path) {
                let checked = session.check_arrived(&self.temp_path).await;
                checked.map_err(|error| match error {
                    // The temporary name means nothing to the user.
                    Error::Mangled { seen, .. } => Error::Mangled {
                        url: self.url.clone(),
                        seen,
                    },
                    other => other,
                })?;
            }
            let agreed = self.check(session, &self.temp_path, bytes).await;
            let agreed = agreed.map_err(|error| match error.refusal() {
                // The server still carried out what a lost session of ours had asked: that one has
                // given the name away, and the file is moved again.
                Some(FailureKind::NotFound) if self.names().is_some() => Error::Size {
                    doing: self.doing(),
                    expected: self.length.unwrap_or(bytes),
                    got: 0,
                },
                _ => error,
            })?;
            if let Some(attributes) = self.attributes {
                let all_attributes = [(&self.temp_path, attributes)];
                session
                    .set_attributes(&all_attributes, Some(&self.url))
                    .await?;
            }
            if let Some((from, to)) = self.names() {
                self.rename_asked.store(true, Ordering::Relaxed);
                let renamed = session.rename(from, to, &self.displaced).await;
                renamed.map_err(|error| self.unrenamed(session, error))?;
                self.mark_renamed();
            }
            Ok(agreed)
        })
    }

    fn stored(&self, context: &RunContext, endpoint: &Endpoint) {
        self.learn_names(context, endpoint);
    }

    fn names(&self) -> Option<(&FtpPath, &FtpPath)> {
        self.rename_to.as_ref().map(|to| (&self.temp_path, to))
    }

    fn mark_renamed(&self) {
        self.nothing_begun();
    }

    fn keep(&self) -> Option<Vec<u8>> {
        let lies = self.leftover()?.as_bytes().to_vec();
        if let Some(safe) = &self.safe {
            safe.flush();
        }
        self.nothing_begun();
        Some(lies)
    }

    fn leftover(&self) -> Option<&FtpPath> {
        let is_own = self.rename_to.is_some() && !self.is_assembled;
        (is_own && self.may_exist.load(Ordering::Relaxed)).then_some(&self.temp_path)
    }

    fn explain(&self, error: Error) -> Error {
        // Where all names were refused, the first refusal tells most.
        let error = match (&self.name_refused, error) {
            (Some(refused), Error::Refused { started: false, .. }) if !self.is_rename_asked() => {
                Error::clone(&refused.error)
            }
            (_, error) => error,
        };
        let Some((at, (from, to))) = self.displaced.at().zip(self.names()) else {
            return error;
        };
        let beside = |name: &FtpPath| String::from_utf8_lossy(name.as_bytes()).into_owned();
        Error::Kept {
            error: Box::new(error),
            kept: format!(
                "what was at {} may be at {}, and what was to replace it at {} or {}",
                self.url,
                beside(&at),
                beside(from),
                beside(to)
            ),
        }
    }

    fn refused_name(&self, endpoint: &Endpoint, error: &Error) -> Option<NameRefused> {
        self.name_instead_of_leftover(endpoint, error)
            .or_else(|| self.name_instead_of(endpoint, error))
    }

    fn refused_rename(&self, endpoint: &Endpoint, error: &Error) -> Option<NameRefused> {
        let is_asked = self.rename_to.is_some() && self.is_rename_asked();
        let is_refused = matches!(error, Error::Refused { .. });
        (is_asked && is_refused && endpoint.capabilities.lacks(Lack::Rename))
            .then(|| self.again(error, Naming::InPlace))
    }
}

/// A part goes into what is there; a device cannot be renamed over.
fn writes_in_place(source_file: &SourceFile, part: Option<Part>) -> bool {
    part.is_some() || is_device(&source_file.remote)
}

/// Where an earlier run has begun it.
fn partial_beside(source_file: &SourceFile) -> Option<FtpPath> {
    let may_exist = FtpPath::new(source_file.begun.as_deref()?).ok()?;
    (may_exist.parent() == source_file.remote.parent()).then_some(may_exist)
}

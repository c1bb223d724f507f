//! One file from a server.

use std::{
    io::{self, Write},
    os::fd::AsFd,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use godwit_engine::{
    data::{Sink, TransferJob},
    digest::Digest,
    storage::FileRef,
};
use godwit_proto::{
    ByteRange, ChecksumAlgorithm, Command, RangeSet, RestartPoint,
    command::Mode,
    error::{FailureKind, TransferFailure},
    pi::transfer::Direction,
};

use crate::{
    context::{Learned, known},
    error::{Error, Result},
    local::{self, Begun, Target},
    plan::{Item, LocalEnd, is_worth_taking_up},
    remote::RemoteSource,
    session::{Next, Outcome, Session, TransferPlan},
    spec::{Part, Verify},
    stamp::Stamp,
    taking_up::{self, Copy, Version},
    verify::{self, Agreed, Regions},
    written::Written,
};

/// Bytes of a file for which room is looked for. Chosen arbitrarily: those of a smaller one are
/// here soon enough to see.
const FAR_AWAY: u64 = 64 << 20;

/// Bytes of a range that are fetched again where all of it is here and only the server's word is
/// missing. Chosen arbitrarily.
pub(crate) const PROOF_BYTES: u64 = 64 << 10;

/// A get that has begun: its destination is open.
pub(crate) struct Get {
    from: RemoteSource,
    /// URL.
    url: String,
    wish: Verify,
    stamp: Option<Stamp>,
    to: Destination,
    /// What is here is the beginning of the file, and the server sends the rest:
    /// [`taking_up::is_in_order`].
    in_order: bool,
    /// Bytes of it that an earlier run has left.
    there: u64,
    /// Which version of the source it is of.
    version: Mutex<Option<Version>>,
}

enum Destination {
    File {
        target: Mutex<Target>,
        file: FileRef,
        /// Where in it the first byte goes.
        at: u64,
    },
    Output(Arc<Output>),
}

impl Get {
    /// Opens the destination, once it is sure that the server understands the name.
    pub(crate) async fn begin(
        session: &mut Session,
        item: &Item,
        to: &LocalEnd,
        part: Option<Part>,
        wish: Verify,
    ) -> Result<Self> {
        session.check_name(&item.remote).await?;
        let is_asked = taking_up::is_in_order(session)
            && matches!(to, LocalEnd::Path(_))
            && is_worth_taking_up(item, part);
        let version = match is_asked {
            true => Box::pin(taking_up::version(session, &item.remote)).await?,
            false => None,
        };
        Self::open_version(session, item, to, part, wish, version)
    }

    /// Opens the destination. Asks nothing of the server.
    pub(crate) fn open(
        session: &Session,
        item: &Item,
        to: &LocalEnd,
        part: Option<Part>,
        wish: Verify,
    ) -> Result<Self> {
        Self::open_version(session, item, to, part, wish, None)
    }

    /// The same of a known version of the source: what is here of it is gone on with in order.
    fn open_version(
        session: &Session,
        item: &Item,
        to: &LocalEnd,
        part: Option<Part>,
        wish: Verify,
        version: Option<Version>,
    ) -> Result<Self> {
        let journal = session.context.journal.get();
        let goes_on = version.is_some_and(|version| {
            let noted = journal.and_then(|journal| journal.source_of(&item.target()));
            version.changed.is_some() && noted == Some(version)
        });
        let url = item.endpoint.url(&item.remote);
        let from = RemoteSource::new(&item.remote, item.size, part, &url)?;
        let algorithm = verify::choose(session, wish, part.is_some())?;
        let to = match to {
            LocalEnd::Path(path) => {
                let begun = item.begun.as_deref().map(|begun| Begun {
                    at: local::path_of(begun),
                    most: match version {
                        // Nothing tells what it is of.
                        Some(_) if !goes_on => 0,
                        _ => item.size.unwrap_or(0),
                    },
                });
                let beside = |destination: &Path| match journal {
                    Some(journal) => {
                        journal.begins_beside(destination, item.size, || item.target())
                    }
                    None => destination.with_file_name(local::temporary_name()),
                };
                let stays = part.filter(|part| part.stays);
                let (target, file) = match stays {
                    None => {
                        let storage = &session.context.storage;
                        Target::create(storage, path, item.is_new, begun, &beside)?
                    }
                    Some(_) => Target::within(&session.context.storage, path)?,
                };
                (session.context).tell_of_direct_io(&file, path.display());
                if stays.is_none() && !target.is_in_place() {
                    warn_of_shortage(session, path, &file, from.length);
                }
                Destination::File {
                    target: Mutex::new(target),
                    file,
                    at: stays.map_or(0, |part| part.offset),
                }
            }
            LocalEnd::Standard => Destination::Output(Arc::new(Output::new(algorithm)?)),
        };
        let in_order = match &to {
            Destination::File { target, .. } => {
                version.is_some() && from.length.is_some() && !lock(target).is_in_place()
            }
            Destination::Output(_) => false,
        };
        let there = match &to {
            Destination::File { file, .. } if in_order && item.begun.is_some() => {
                file.metadata().map_err(Error::Local)?.size
            }
            _ => 0,
        };
        if let (true, Some(version), Some(journal)) = (in_order, version, journal) {
            journal.begins_from(&item.target(), version);
        }
        Ok(Self {
            from,
            url,
            wish,
            stamp: item.stamp,
            to,
            in_order,
            there,
            version: Mutex::new(version),
        })
    }

    pub(crate) fn length(&self) -> Option<u64> {
        self.from.length
    }

    /// Which bytes of the whole file are not here; `None` where nobody can tell.
    pub(crate) async fn missing(&self, session: &mut Session) -> Result<Option<Vec<ByteRange>>> {
        let whole = self.from.length.and_then(|l| ByteRange::new(0, l));
        if self.in_order {
            let left = whole.and_then(|whole| ByteRange::new(self.there, whole.end));
            let left = left.filter(|_| self.there > 0);
            return Ok(left.map(|left| Vec::from_iter(Some(left).filter(|r| !r.is_empty()))));
        }
        let (true, Some(whole), Destination::File { file, .. }) =
            (self.can_split(session), whole, &self.to)
        else {
            return Ok(None);
        };
        let copies = (Copy::There(&self.from.path), Copy::Here(file));
        taking_up::missing(session, copies, whole, true).await
    }

    /// Leaves what is here for a later attempt or run; where it lies.
    pub(crate) fn keep(&self) -> Option<Vec<u8>> {
        match &self.to {
            Destination::File { target, .. } => lock(target).keep(),
            Destination::Output(_) => None,
        }
    }

    /// What is here of it is its beginning.
    pub(crate) fn is_in_order(&self) -> bool {
        self.in_order
    }

    /// The server does not send what is behind the beginning, or not so.
    pub(crate) fn is_refused_in_order(
        &self,
        range: Option<ByteRange>,
        result: &Result<u64>,
    ) -> bool {
        let goes_on = self.in_order && range.is_some_and(|range| range.start > 0);
        // After others the same REST is tried again. ProFTPD says 451 where it takes none.
        let is_of_command = matches!(
            result,
            Err(Error::Refused { reply, started: false, .. })
                if !matches!(reply.code.get(), 421 | 425 | 426 | 450)
        );
        goes_on && is_of_command
    }

    /// A later run can tell whether what is here is of the same version.
    pub(crate) fn has_version(&self) -> bool {
        let version = *lock(&self.version);
        self.in_order && version.is_some_and(|version| version.changed.is_some())
    }

    /// Before more is fetched of a file of which an attempt has brought its beginning: whether the
    /// source is still the same. One of another size is not what was asked for; of another time, it
    /// begins at its first byte.
    pub(crate) async fn is_unchanged(&self, session: &mut Session, item: &Item) -> Result<bool> {
        let now = taking_up::version(session, &self.from.path).await?;
        let (Some(now), Some(before)) = (now, *lock(&self.version)) else {
            return Ok(false);
        };
        if now.size != before.size {
            let what = item.source();
            return Err(Error::Changed { what });
        }
        if now != before {
            *lock(&self.version) = Some(now);
            if let Some(journal) = session.context.journal.get() {
                journal.begins_from(&item.target(), now);
            }
        }
        Ok(now == before)
    }

    /// What is to be fetched after an attempt at `range` of a file in order has failed, and how
    /// many bytes it has brought.
    pub(crate) fn after_failure(
        &self,
        range: ByteRange,
        safe: &RangeSet,
        error: &Error,
    ) -> (u64, Option<ByteRange>) {
        // The server has passed over the REST.
        let is_elsewhere = matches!(
            error,
            Error::Transfer {
                failure: TransferFailure::Protocol(_),
                ..
            }
        );
        if is_elsewhere {
            return (0, None);
        }
        let first_gap = safe.gaps(range).into_iter().next();
        // All of it is here, and the server called it a failure: a little that comes well is a
        // success.
        let proof = range.end - range.len().min(PROOF_BYTES);
        let start = first_gap.map_or(proof, |gap| gap.start);
        (start - range.start, ByteRange::new(start, range.end))
    }

    /// Several sessions may each fetch a part.
    pub(crate) fn can_split(&self, session: &Session) -> bool {
        session.server.features.eret && matches!(self.to, Destination::File { .. })
    }

    /// What fetches `range` (`None`: all of it), where that can follow another transfer without a
    /// pause: nothing that needs a REST or MODE S.
    pub(crate) fn ahead(&self, session: &Session, range: Option<ByteRange>) -> Option<Next> {
        let way = self.from.way(session, range).ok()?;
        let follows = !way.stream && way.rest.is_none() && !self.is_stream();
        follows.then_some(Next::Get(way.command))
    }

    /// Fetches bytes of the region, `None` for all of it. On failure tells which of them are there
    /// already. `next` is what will be asked for next, on the same session, whatever comes of this
    /// one.
    pub(crate) async fn fetch(
        &self,
        session: &mut Session,
        range: Option<ByteRange>,
        next: Option<Next>,
    ) -> (Result<u64>, RangeSet) {
        let doing = format!("get {}", self.url);
        for last_try in [false, true] {
            let mode_e_before = !known(&session.endpoint.learned.no_port);
            let (result, safe) = self.fetch_once(session, range, next.clone(), &doing).await;
            match result {
                // The server cannot connect to us: addresses are translated, or something filters.
                // Not the file's fault.
                Err(error)
                    if !last_try && mode_e_before && safe.is_empty() && no_way_in(&error) =>
                {
                    if !session.server.features.parallel
                        || known(&session.endpoint.learned.no_mode_e)
                    {
                        return (Err(error), safe);
                    }
                    let text = format!(
                        "{}: cannot connect to us, so gets use one data channel (MODE S): {error}",
                        session.endpoint.name()
                    );
                    Learned::learn(&session.endpoint.learned.no_port, &session.context, text);
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
        session: &mut Session,
        range: Option<ByteRange>,
        next: Option<Next>,
        doing: &str,
    ) -> (Result<u64>, RangeSet) {
        let way = match self.from.way(session, range) {
            Ok(way) => way,
            Err(error) => return (Err(error), RangeSet::new()),
        };
        let plan = TransferPlan {
            doing,
            direction: Direction::Get,
            stream: way.stream || self.is_stream(),
            ahead: way.rest.map(|n| Command::Rest(RestartPoint::Offset(n))),
            command: way.command,
            length: way.cut.or(way.limit),
            next,
            may_block: self.is_stream(),
            counts: true,
            may_be_cut: false,
            is_cut: way.cut.is_some(),
            began: None,
        };
        if let (true, Destination::File { target, .. }) = (self.in_order, &self.to)
            // A later run takes all that is there for the beginning.
            && let Err(error) = lock(target).cut(way.rest.unwrap_or(0))
        {
            return (Err(error), RangeSet::new());
        }
        let (base, stream_start, limit) = (way.base, way.stream_start, way.limit);
        let outcome = session
            .transfer(plan, |_: Mode| {
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
        self.judge(outcome, base, range, doing)
    }

    fn sink(&self, base: u64, stream_start: u64, limit: Option<u64>) -> Sink {
        match &self.to {
            Destination::File { file, at, .. } => Sink::File {
                file: Arc::clone(file),
                base: at + base,
                stream_start,
                limit,
            },
            Destination::Output(output) => Sink::Stream(Box::new(Writer(Arc::clone(output)))),
        }
    }

    fn judge(
        &self,
        outcome: Outcome,
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
        let wanted = range.or_else(|| self.from.length.and_then(|l| ByteRange::new(0, l)));
        let Some(wanted) = wanted else {
            return (Ok(bytes), safe);
        };
        let complete = match self.to {
            Destination::File { .. } => safe.contains(wanted) && bytes >= wanted.len(),
            Destination::Output(_) => bytes == wanted.len(),
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

    /// Where all of the file goes.
    pub(crate) fn whole(&self) -> Sink {
        self.sink(0, 0, self.from.length)
    }

    /// Whether `safe` is all that was wanted.
    pub(crate) fn holds_all(&self, safe: &RangeSet) -> bool {
        let wanted = self.from.length.and_then(|l| ByteRange::new(0, l));
        wanted.is_some_and(|wanted| safe.contains(wanted))
    }

    /// What is written, where it can be read again.
    pub(crate) fn file(&self) -> Option<&FileRef> {
        match &self.to {
            Destination::File { file, .. } => Some(file),
            Destination::Output(_) => None,
        }
    }

    /// Written under its final name, which stands for something that is no file.
    pub(crate) fn is_in_place(&self) -> bool {
        matches!(&self.to, Destination::File { target, .. } if lock(target).is_in_place())
    }

    /// Gives the file its name.
    pub(crate) fn commit(&self, written: &Written) -> Result<()> {
        match &self.to {
            Destination::File { target, file, .. } => {
                lock(target).commit(file, written, self.stamp.as_ref())
            }
            Destination::Output(_) => Ok(()),
        }
    }

    /// Bytes go to standard output.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.to, Destination::Output(_))
    }

    /// Finishing asks the server something.
    pub(crate) fn finish_asks(&self, session: &Session) -> bool {
        match &self.to {
            Destination::File { .. } => !matches!(
                verify::choose(session, self.wish, self.from.is_part),
                Ok(None)
            ),
            Destination::Output(_) => true,
        }
    }

    /// Compares checksums and gives the file its name.
    pub(crate) async fn finish(&self, session: &mut Session) -> Result<Option<Agreed>> {
        let doing = format!("get {}", self.url);
        let agreed = match &self.to {
            Destination::File { file, at, .. } => {
                let algorithm = verify::choose(session, self.wish, self.from.is_part)?;
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
                        verify::compare(session, self.wish, algorithm, regions).await?
                    }
                }
            }
            Destination::Output(output) => self.compare_output(session, output, &doing).await?,
        };
        self.commit(&session.context.written)?;
        Ok(agreed)
    }

    async fn compare_output(
        &self,
        session: &mut Session,
        output: &Output,
        doing: &str,
    ) -> Result<Option<Agreed>> {
        let Some((algorithm, ours)) = output.checksum() else {
            return Ok(None);
        };
        let length = self.from.length.filter(|_| self.from.is_part);
        match session
            .checksum(algorithm, self.from.offset, length, &self.from.path)
            .await
        {
            Ok(theirs) => verify::agree(doing, algorithm, ours, theirs).map(Some),
            Err(error) => verify::unable(session, self.wish, error),
        }
    }
}

/// Of a file whose end is far away, so that a full disk is not news when it is full.
fn warn_of_shortage(session: &Session, path: &Path, file: &FileRef, length: Option<u64>) {
    let Some(length) = length.filter(|length| *length >= FAR_AWAY) else {
        return;
    };
    let there = file.metadata().map_or(0, |metadata| metadata.stored);
    if let Some(shortage) = local::shortage(path, length.saturating_sub(there)) {
        session.context.warn(shortage);
    }
}

/// The server could not open its data connection to us.
fn no_way_in(error: &Error) -> bool {
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

/// Standard output, with the checksum of what went there.
pub(crate) struct Output {
    /// Unbuffered: payload goes to the descriptor as it comes, and nothing is left behind at the
    /// end.
    file: std::fs::File,
    digest: Mutex<Option<(ChecksumAlgorithm, Digest)>>,
}

impl Output {
    fn new(algorithm: Option<ChecksumAlgorithm>) -> Result<Self> {
        let descriptor = io::stdout()
            .as_fd()
            .try_clone_to_owned()
            .map_err(|e| Error::local("open standard output", &e))?;
        Ok(Self {
            file: descriptor.into(),
            digest: Mutex::new(algorithm.map(|a| (a, Digest::new(a)))),
        })
    }

    /// Once: the digest is used up.
    fn checksum(&self) -> Option<(ChecksumAlgorithm, String)> {
        lock(&self.digest).take().map(|(a, d)| (a, d.finish()))
    }
}

struct Writer(Arc<Output>);

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = (&self.0.file).write(bytes)?;
        if let Some((_, digest)) = &mut *lock(&self.0.digest) {
            digest.update(&bytes[..written]);
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

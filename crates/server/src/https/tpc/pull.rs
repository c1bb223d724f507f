//! GET from the other server, on one connection or on several.
//!
//! One connection gets the file as a whole. Several get pieces: the first, whose answer says how
//! long the file is, then each the next one that none has got. What a connection has not got when
//! it breaks is asked for again.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use godwit_engine::storage::FileRef;
use godwit_http::{digest::Checksum, range::ContentRange};
use godwit_http_client::{Answer, Connection, Method, Patience, Request, StatusCode, header};
use godwit_proto::{ByteRange, ChecksumAlgorithm};
use hyper::header::HeaderValue;
use tokio::{task::JoinSet, time::sleep};
use tracing::info;

use super::{
    failed::Failed,
    remote::{IDENTITY, ListedVersion, Remote, Validator, checksums_of, is_encoded, refused},
};
use crate::{
    access::copies::CopyPlace,
    https::put::{Receipt, WRITE_BYTES},
    observe::class::Class,
};

/// The first piece, and the least of the others.
const PIECE_BYTES: u64 = 16 << 20;

/// Longer pieces save round trips, and shorter ones end together.
const PIECE_BYTES_MAX: u64 = 256 << 20;

/// Requests that are sent again in one copy, and the time before each.
const RETRIES_MAX: u32 = 3;
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// All questions for one answer together.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);

/// Bytes of one copy on their way to the disk, and the least of one connection.
const BUFFERS_BYTES: usize = 16 << 20;
const BUFFER_BYTES_MIN: usize = 128 << 10;

/// A file on its way from the other server.
pub(super) struct Pull {
    remote: Arc<Remote>,
    file: FileRef,
    streams: u32,
    /// Of the whole file, made while it arrives in order.
    algorithms: Vec<ChecksumAlgorithm>,
    retries: AtomicU32,
    /// Bytes that are gathered for a write.
    buffer: usize,
    /// Length of the file; `None`: it ends where the answer ends.
    size: Option<u64>,
    validator: Option<Validator>,
    /// In its place, where the answers of the source name no version.
    listed: Option<ListedVersion>,
    /// Where the next piece begins, and how long it is.
    next: AtomicU64,
    piece: u64,
}

/// The first answer.
pub(super) struct Begun {
    pull: Pull,
    kept: Option<Connection>,
    answer: Answer,
    /// Where its bytes end.
    end: Option<u64>,
}

impl Pull {
    pub(super) fn new(
        remote: Arc<Remote>,
        file: FileRef,
        streams: u32,
        algorithms: Vec<ChecksumAlgorithm>,
    ) -> Self {
        Self {
            remote,
            file,
            streams,
            algorithms,
            retries: AtomicU32::new(0),
            buffer: WRITE_BYTES,
            size: None,
            validator: None,
            listed: None,
            next: AtomicU64::new(0),
            piece: PIECE_BYTES,
        }
    }

    /// Waits for the first answer.
    pub(super) async fn begin(mut self) -> Result<Begun, Failed> {
        let mut kept = None;
        let first = ByteRange {
            start: 0,
            end: PIECE_BYTES,
        };
        let mut wanted = (self.streams > 1).then_some(first);
        let mut answer = self.ask(&mut kept, wanted).await?;
        if answer.status == StatusCode::RANGE_NOT_SATISFIABLE && wanted.take().is_some() {
            // No range begins in an empty file.
            answer = self.ask(&mut kept, None).await?;
        }
        // XRootD 5 has no sensible answer where the file ends before the range.
        let is_whole = answer.status != StatusCode::PARTIAL_CONTENT
            || content_range(&answer).is_ok_and(|(_, size)| size <= PIECE_BYTES);
        if !is_whole && Validator::of(&answer).is_none() {
            // What makes no sense would make none again.
            if content_range(&answer).is_ok() {
                self.listed = self.remote.listed().await.unwrap_or(None);
            }
            if self.listed.is_none() {
                // Nothing would say that the pieces are of the same file.
                wanted = None;
            }
            // The first answer may be of the version before the listed one.
            kept = None;
            answer = self.ask(&mut kept, wanted).await?;
        }
        let end = match (answer.status, wanted) {
            // A server that knows no ranges sends the whole.
            (StatusCode::OK, _) => {
                self.size = answer.bytes();
                self.size
            }
            (StatusCode::PARTIAL_CONTENT, Some(wanted)) => {
                let (range, size) = content_range(&answer)?;
                if range.start != 0 || range.end != wanted.end.min(size) {
                    return Err(other_range());
                }
                self.size = Some(size);
                Some(range.end)
            }
            (status, _) => {
                let text = format!("remote side answered GET with status code {status}");
                return Err(Failed::new(Class::Protocol, text));
            }
        };
        self.validator = Validator::of(&answer);
        self.next = AtomicU64::new(end.unwrap_or(0));
        Ok(Begun {
            pull: self,
            kept,
            answer,
            end,
        })
    }

    /// The answer to a GET; the first of those that succeed.
    async fn ask(
        &self,
        kept: &mut Option<Connection>,
        range: Option<ByteRange>,
    ) -> Result<Answer, Failed> {
        loop {
            let asked = async {
                let make = |target: &str| get(target, range, self.validator.as_ref());
                let patience = Patience::new(Some(0), ANSWER_LIMIT);
                let answer = self.remote.ask(kept, patience, make).await?;
                match answer.status {
                    StatusCode::RANGE_NOT_SATISFIABLE => Ok(answer),
                    status if status.is_success() && is_encoded(&answer) => {
                        let text = "the source sends another form of the file than it has";
                        let text = format!("{text} (Content-Encoding)");
                        Err(Failed::new(Class::Protocol, text))
                    }
                    status if status.is_success() => Ok(answer),
                    _ => Err(refused(answer).await),
                }
            };
            match asked.await {
                Err(failed) if self.may_retry(&failed) => {
                    *kept = None;
                    sleep(RETRY_PAUSE).await;
                }
                asked => return asked,
            }
        }
    }

    fn may_retry(&self, failed: &Failed) -> bool {
        let may = failed.is_transient && self.retries.fetch_add(1, Ordering::Relaxed) < RETRIES_MAX;
        if may {
            info!(remote = ?self.remote.url, why = ?failed.text, "copy asks again");
        }
        may
    }

    /// The piece that is next.
    fn take_piece(&self) -> Option<ByteRange> {
        let size = self.size?;
        let start = self.next.fetch_add(self.piece, Ordering::Relaxed);
        (start < size).then(|| ByteRange {
            start,
            end: size.min(start + self.piece),
        })
    }

    /// One connection of several.
    async fn work(
        self: Arc<Self>,
        mut kept: Option<Connection>,
        mut first: Option<(Answer, Option<u64>)>,
    ) -> Result<(), Failed> {
        loop {
            let (answer, start, end) = match first.take() {
                Some((answer, end)) => (Some(answer), 0, end),
                None => match self.take_piece() {
                    Some(range) => (None, range.start, Some(range.end)),
                    None => return Ok(()),
                },
            };
            let receipt = Receipt::new(Arc::clone(&self.file), start, self.buffer, []);
            self.receive(&mut kept, receipt, answer, end).await?;
        }
    }

    /// Takes bytes up to `end`, and asks again for those that are missing.
    async fn receive(
        &self,
        kept: &mut Option<Connection>,
        mut receipt: Receipt,
        mut answer: Option<Answer>,
        end: Option<u64>,
    ) -> Result<Vec<Checksum>, Failed> {
        let mut counted = receipt.offset();
        loop {
            let taken = async {
                let answer = match answer.take() {
                    Some(answer) => answer,
                    None => self.resume(kept, receipt.offset(), end).await?,
                };
                self.take(answer, &mut receipt, end, &mut counted).await
            };
            match taken.await {
                Ok(()) => break,
                Err(failed) if self.may_resume(end) && self.may_retry(&failed) => {
                    *kept = None;
                    if end == Some(receipt.offset()) {
                        // What was lost came behind the last byte.
                        break;
                    }
                    sleep(RETRY_PAUSE).await;
                }
                Err(failed) => return Err(failed),
            }
        }
        let found = receipt.finish().await?;
        self.count(&receipt, &mut counted);
        Ok(found)
    }

    /// Only with a version it is known that the rest is of the same file.
    fn may_resume(&self, end: Option<u64>) -> bool {
        end.is_some() && (self.validator.is_some() || self.listed.is_some())
    }

    /// What has come in pieces is of one version.
    async fn check_listed(&self) -> Result<(), Failed> {
        if self.listed.is_none() {
            return Ok(());
        }
        // Those before were for the pieces.
        self.retries.store(0, Ordering::Relaxed);
        loop {
            match self.remote.listed().await {
                Ok(now) if now == self.listed => return Ok(()),
                Ok(_) => return Err(Failed::changed()),
                Err(failed) if self.may_retry(&failed) => sleep(RETRY_PAUSE).await,
                Err(failed) => return Err(failed),
            }
        }
    }

    /// Asks for what is missing.
    async fn resume(
        &self,
        kept: &mut Option<Connection>,
        start: u64,
        end: Option<u64>,
    ) -> Result<Answer, Failed> {
        let end = end.unwrap_or(start);
        let answer = self.ask(kept, Some(ByteRange { start, end })).await?;
        match answer.status {
            StatusCode::PARTIAL_CONTENT => {}
            StatusCode::RANGE_NOT_SATISFIABLE => return Err(Failed::changed()),
            _ => {
                let text = "the source serves no ranges, and its connection broke";
                return Err(Failed::new(Class::Protocol, text));
            }
        }
        let (range, size) = content_range(&answer)?;
        let validator = self.validator.as_ref();
        let is_other = validator.is_some_and(|validator| validator.contradicts(&answer));
        if is_other || Some(size) != self.size {
            return Err(Failed::changed());
        }
        match (range.start, range.end) == (start, end) {
            true => Ok(answer),
            false => Err(other_range()),
        }
    }

    /// Takes the body of an answer.
    async fn take(
        &self,
        mut answer: Answer,
        receipt: &mut Receipt,
        end: Option<u64>,
        counted: &mut u64,
    ) -> Result<(), Failed> {
        while let Some(chunk) = answer.chunk().await? {
            if end.is_some_and(|end| receipt.offset() + chunk.len() as u64 > end) {
                let text = "the source sends more bytes than it has announced";
                return Err(Failed::new(Class::Protocol, text));
            }
            receipt.take(&chunk).await?;
            self.count(receipt, counted);
        }
        match end.is_none_or(|end| receipt.offset() == end) {
            true => Ok(()),
            false => {
                let text = "the source sends fewer bytes than it has announced";
                Err(Failed::new(Class::Protocol, text))
            }
        }
    }

    /// Reports what is in the file.
    fn count(&self, receipt: &Receipt, counted: &mut u64) {
        let written = receipt.written_to();
        self.remote.progress.add(written - *counted);
        *counted = written;
    }
}

impl Begun {
    pub(super) fn size(&self) -> Option<u64> {
        self.pull.size
    }

    /// Whether an end that comes too early is noticed.
    pub(super) fn is_delimited(&self) -> bool {
        self.answer.is_delimited()
    }

    pub(super) fn validator(&self) -> Option<Validator> {
        self.pull.validator.clone()
    }

    /// Those that the answer itself has.
    pub(super) fn checksums(&self) -> Result<Vec<Checksum>, Failed> {
        checksums_of(&self.answer.headers)
    }

    /// Takes all bytes. The checksums are those that were made on the way, and the connection may
    /// be used again.
    pub(super) async fn finish(
        self,
        place: &CopyPlace,
    ) -> Result<(Vec<Checksum>, Option<Connection>), Failed> {
        let Self {
            mut pull,
            mut kept,
            answer,
            end,
        } = self;
        if end == pull.size {
            let algorithms = std::mem::take(&mut pull.algorithms);
            let receipt = Receipt::new(Arc::clone(&pull.file), 0, pull.buffer, algorithms);
            let found = pull.receive(&mut kept, receipt, Some(answer), end).await?;
            pull.check_listed().await?;
            return Ok((found, kept));
        }
        let left = pull.size.unwrap_or(0).saturating_sub(end.unwrap_or(0));
        let piece = left / (4 * u64::from(pull.streams));
        pull.piece = piece.clamp(PIECE_BYTES, PIECE_BYTES_MAX);
        let others = left.div_ceil(pull.piece).min(u64::from(pull.streams) - 1);
        let extra = place.extra_streams(u32::try_from(others).unwrap_or(u32::MAX));
        let share = BUFFERS_BYTES / (extra.count as usize + 1);
        pull.buffer = share.clamp(BUFFER_BYTES_MIN, WRITE_BYTES);
        let pull = Arc::new(pull);
        let mut workers = JoinSet::new();
        workers.spawn(Arc::clone(&pull).work(kept, Some((answer, end))));
        for _ in 0..extra.count {
            workers.spawn(Arc::clone(&pull).work(None, None));
        }
        // The first failure drops the set, and with it the other connections.
        while let Some(worked) = workers.join_next().await {
            worked.unwrap_or_else(|_| Err(Failed::new(Class::Aborted, "the copy was stopped")))?;
        }
        pull.check_listed().await?;
        Ok((Vec::new(), None))
    }
}

fn get(target: &str, range: Option<ByteRange>, validator: Option<&Validator>) -> Request {
    let request = Request::new(Method::GET, target).with(header::ACCEPT_ENCODING, IDENTITY);
    let range = range.map(|range| format!("bytes={}-{}", range.start, range.end.saturating_sub(1)));
    match range.and_then(|range| HeaderValue::try_from(range).ok()) {
        Some(range) => Validator::add(validator, request.with(header::RANGE, range)),
        None => Validator::add(validator, request),
    }
}

/// The range that the answer has, and the length of the file.
fn content_range(answer: &Answer) -> Result<(ByteRange, u64), Failed> {
    let range = answer.header(header::CONTENT_RANGE.as_str());
    match range.and_then(ContentRange::parse) {
        Some(ContentRange {
            range: Some(range),
            size: Some(size),
        }) => Ok((range, size)),
        _ => Err(other_range()),
    }
}

fn other_range() -> Failed {
    let text = "the source has sent another range than it was asked for";
    Failed::new(Class::Protocol, text)
}

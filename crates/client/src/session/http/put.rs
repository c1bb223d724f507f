//! What a lane does for a transfer to the server: PUT of a whole file.

use std::{
    io::Read,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use godwit_engine::{data::RateLimit, storage::FileRef};
use godwit_http_client::{
    Buffers, Bytes, HeaderName, HeaderValue, Method, Request, StatusCode,
    body::{ChunkSender, channel},
    header,
};
use godwit_proto::error::{StorageFailure, TransferFailure};
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    bucket::{
        signing::{ENCRYPTION_HEADER, unencrypted},
        told_sums,
        uploads::MARK_HEADER,
    },
    exchange::Exchange,
    get::{FILE_PAUSE, unreached},
    region::{Failure, HALF_BYTES_MIN},
    replies::{Failed, refusal},
    wire::{CHECKSUM_HEADER, Wire},
};
use crate::{
    endpoint::uploads::{crc32c_of, crc32c_text},
    report::progress::RequestTotals,
};

/// Bytes that are read at a time, at most.
const CHUNK_BYTES: usize = 256 << 10;

/// What is read of a file for a slow connection: what it sends in this time, and no less than that.
const CHUNK_TIME: Duration = Duration::from_millis(20);
const CHUNK_BYTES_MIN: usize = 16 << 10;

/// Before that, what is taken says little of how fast a connection is.
const BUFFERED_TIME: Duration = Duration::from_millis(100);

const _: () = assert!(
    CHUNK_BYTES as u64 <= HALF_BYTES_MIN,
    "others take what is read first"
);

/// A server may write or hash for so many times the limit of other answers once it has all bytes.
pub(super) const WORK_FACTOR: u32 = 10;

/// A transfer to the server.
pub(super) struct PutJob {
    pub(super) target: String,
    pub(super) source: LaneSource,
    /// Bytes, where they are known.
    pub(super) length: Option<u64>,
    outflow: Outflow,
    /// It becomes an object of a bucket: what is said of it.
    object: Option<Vec<(HeaderName, HeaderValue)>>,
    pub(super) cancel: CancellationToken,
    /// For the one that looks after it.
    pub(super) watcher: Notify,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Why the body could not be made.
    unread: Option<StorageFailure>,
    ended: Option<Option<Failure>>,
    /// A bucket has stored it.
    is_stored: bool,
    /// An earlier request has, whose answer was lost.
    was_stored_before: bool,
    /// The `ETag` that it has given it.
    tag: Option<String>,
    /// The CRC32C that a bucket has computed.
    crc32c: Option<u32>,
}

/// Where the bytes come from.
pub(super) enum LaneSource {
    File {
        file: FileRef,
        base: u64,
    },
    /// Read once.
    Stream(Mutex<Option<Box<dyn Read + Send>>>),
}

impl PutJob {
    pub(super) fn new(
        target: String,
        source: LaneSource,
        length: Option<u64>,
        rate: Arc<RateLimit>,
        totals: Arc<RequestTotals>,
    ) -> Self {
        Self {
            target,
            source,
            length,
            outflow: Outflow::new(rate, totals, &Buffers::default()),
            object: None,
            cancel: CancellationToken::new(),
            watcher: Notify::new(),
            state: Mutex::default(),
        }
    }

    /// The same for a bucket: these headers are said of the object.
    pub(super) fn of_object(self, headers: Vec<(HeaderName, HeaderValue)>) -> Self {
        Self {
            object: Some(headers),
            ..self
        }
    }

    pub(super) fn totals(&self) -> &Arc<RequestTotals> {
        &self.outflow.totals
    }

    /// A bucket has stored it, whatever came after that.
    pub(super) fn is_stored(&self) -> bool {
        self.state.lock().is_stored
    }

    /// Bytes that this request has sent, or an earlier one that has stored them.
    pub(super) fn bytes(&self) -> u64 {
        match self.state.lock().was_stored_before {
            // The service may refuse this one before it has read them.
            true => self.length.unwrap_or(0),
            false => self.outflow.totals.bytes.load(Ordering::Relaxed),
        }
    }

    /// The `ETag` that a bucket has given it.
    pub(super) fn tag(&self) -> Option<String> {
        self.state.lock().tag.clone()
    }

    /// What a bucket has computed of all bytes.
    pub(super) fn crc32c(&self) -> Option<u32> {
        self.state.lock().crc32c
    }

    /// The lane has ended.
    pub(super) fn left(&self, failure: Option<Failure>) {
        let mut state = self.state.lock();
        // A body that we could not make is not the server's fault.
        let failure = match state.unread.take() {
            Some(unread) => Some(Failure::Transfer(TransferFailure::Storage(unread))),
            None => failure,
        };
        state.ended = Some(failure);
        drop(state);
        self.outflow.totals.channels.store(0, Ordering::Relaxed);
        self.watcher.notify_one();
    }

    /// How it has ended, if it has.
    pub(super) fn take_end(&self) -> Option<Option<Failure>> {
        self.state.lock().ended.take()
    }
}

/// Sends it. Why that has failed.
pub(super) async fn run(wire: &mut Wire, job: &Arc<PutJob>) -> Option<Failure> {
    job.outflow.totals.channels.store(1, Ordering::Relaxed);
    tokio::select! {
        sent = send(wire, job) => sent.err(),
        () = job.cancel.cancelled() => None,
    }
}

async fn send(wire: &mut Wire, job: &Arc<PutJob>) -> Result<(), Failure> {
    let limit = wire.server.limits.answer.saturating_mul(WORK_FACTOR);
    let checksum = match (&job.object, &job.source) {
        (Some(_), LaneSource::File { file, base }) => {
            checksum(file, *base, job.length.unwrap_or(0))
                .map_err(|failure| Failure::Transfer(TransferFailure::Storage(failure)))?
        }
        _ => None,
    };
    // A redirected request gets another body.
    let request = |target: &str| {
        let (sender, body) = channel(job.length);
        job.outflow.take_back();
        tokio::spawn(feed(Arc::clone(job), sender));
        let mut request = Request::new(Method::PUT, target)
            .with_body(body)
            .answered_within(limit);
        let Some(headers) = &job.object else {
            return request.expecting_continue();
        };
        request.headers.extend(headers.iter().cloned());
        request.headers.extend(checksum_headers(checksum));
        request
    };
    let exchange = wire.send(&job.target, request).await;
    let mut exchange = exchange.map_err(unreached)?;
    if exchange.answer.status == StatusCode::PRECONDITION_FAILED
        && let Some(own) = stored_before(wire, job).await?
    {
        wire.done(exchange).await;
        exchange = own;
        job.state.lock().was_stored_before = true;
    }
    let status = exchange.answer.status;
    if !status.is_success() {
        let text = exchange.reason().await;
        return Err(Failure::Refused(
            refusal(status, &text, Failed::Status),
            job.outflow.sent() > 0,
        ));
    }
    if let Some(bucket) = &wire.server.bucket
        && exchange.is_well_without_condition
    {
        bucket.lacks_conditions();
    }
    if let Some(headers) = &job.object {
        let tag = exchange.header(header::ETAG).map(str::to_owned);
        let mut state = job.state.lock();
        (state.is_stored, state.tag) = (true, tag);
        drop(state);
        let said = headers.iter();
        let said = said.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
        if let Some(refused) = unencrypted(said, exchange.answer.header(ENCRYPTION_HEADER)) {
            return Err(Failure::Refused(refused, false));
        }
        job.state.lock().crc32c = confirmed(&exchange, checksum)?;
    }
    wire.done(exchange).await;
    Ok(())
}

/// What is there where nothing may be replaced, if it is what an earlier request has stored whose
/// answer was lost.
async fn stored_before(wire: &mut Wire, job: &PutJob) -> Result<Option<Exchange>, Failure> {
    let mut headers = job.object.iter().flatten();
    let Some((_, mark)) = headers.find(|(name, _)| name == MARK_HEADER) else {
        return Ok(None);
    };
    let request = |target: &str| {
        let (name, value) = told_sums::MODE;
        Request::new(Method::HEAD, target).with(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        )
    };
    let exchange = wire.send(&job.target, request).await.map_err(unreached)?;
    let told = exchange.answer.header(MARK_HEADER);
    let is_own = told.is_some_and(|told| told.as_bytes() == mark.as_bytes());
    Ok((is_own && exchange.answer.bytes() == job.length).then_some(exchange))
}

/// The CRC32C of so many bytes of a file, which a bucket compares with those that come; `None`:
/// they can be read only once.
pub(super) fn checksum(
    file: &FileRef,
    base: u64,
    length: u64,
) -> Result<Option<u32>, StorageFailure> {
    if file.read_once_within().is_some() {
        return Ok(None);
    }
    let mut buffer = vec![0; CHUNK_BYTES];
    let (mut value, mut at) = (0, 0);
    while at < length {
        let bytes = usize::try_from(length - at).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
        let read = file.read_at(base + at, &mut buffer[..bytes])?;
        if read == 0 {
            // What sends it says so.
            break;
        }
        value = crc32c::crc32c_append(value, &buffer[..read]);
        at += read as u64;
    }
    Ok(Some(value))
}

/// What a bucket is told of the bytes that come.
pub(super) fn checksum_headers(
    value: Option<u32>,
) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    let value = value.and_then(|value| HeaderValue::try_from(crc32c_text(value)).ok());
    let headers = value.map(|value| {
        [
            (
                "x-amz-sdk-checksum-algorithm",
                HeaderValue::from_static("CRC32C"),
            ),
            (CHECKSUM_HEADER, value),
        ]
    });
    let headers = headers.into_iter().flatten();
    headers.map(|(name, value)| (HeaderName::from_static(name), value))
}

/// What a bucket says that it has computed, if it is what was sent.
pub(super) fn confirmed(exchange: &Exchange, sent: Option<u32>) -> Result<Option<u32>, Failure> {
    let told = exchange.answer.header(CHECKSUM_HEADER).and_then(crc32c_of);
    match (told, sent) {
        (Some(told), Some(sent)) if told != sent => Err(Failure::lost(format!(
            "the service has stored bytes with CRC32C {told:08x} where {sent:08x} were sent"
        ))),
        (told, _) => Ok(told),
    }
}

/// Reads the file into the body of a request, once the server wants it.
async fn feed(job: Arc<PutJob>, mut sender: ChunkSender) {
    if !sender.wanted().await {
        return;
    }
    let fed = match &job.source {
        LaneSource::File { file, base } => {
            let length = job.length.unwrap_or(0);
            let outflow = &job.outflow;
            // One connection sends all of it.
            let turn = (outflow.turn(), Some(f64::INFINITY));
            outflow
                .file(file, *base, length, &sender, turn, |_, _| length)
                .await
        }
        LaneSource::Stream(stream) => {
            let taken = stream.lock().take();
            match taken {
                Some(stream) => feed_stream(&job, stream, &sender).await,
                None => Err(StorageFailure {
                    errno: 0,
                    doing: "read what is sent".to_owned(),
                    text: "the server sends the request elsewhere, and it can be read only once"
                        .to_owned(),
                }),
            }
        }
    };
    if let Err(failure) = fed {
        job.state.lock().unread = Some(failure);
        // The end of the sender would be taken for the end of the file.
        job.cancel.cancel();
        sender.gone().await;
    }
}

/// The reader may wait for ever, and has a thread that may.
async fn feed_stream(
    job: &PutJob,
    mut stream: Box<dyn Read + Send>,
    sender: &ChunkSender,
) -> Result<(), StorageFailure> {
    let (chunks, mut read) = tokio::sync::mpsc::channel(2);
    let reading = tokio::task::spawn_blocking(move || {
        loop {
            let mut buffer = vec![0; CHUNK_BYTES];
            match stream.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    buffer.truncate(count);
                    if chunks.blocking_send(buffer).is_err() {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    });
    while let Some(chunk) = read.recv().await {
        job.outflow.granted().await;
        if !job.outflow.pass_on(sender, chunk.into()).await {
            return Ok(());
        }
    }
    let failed = |text: String| StorageFailure {
        errno: 0,
        doing: "read what is sent".to_owned(),
        text,
    };
    match reading.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed("the thread that reads has ended".to_owned())),
    }
}

/// Bytes to read at a time, after so many: a connection that is slow is to have few ahead, which no
/// other can take. It was as fast as `pace` before, bytes a second.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a bounded number of bytes
fn chunk_bytes(at: u64, since: Duration, pace: Option<f64>) -> usize {
    let bytes_per_second = match since < BUFFERED_TIME {
        // What the connection takes at first lies in its buffers.
        true => pace.unwrap_or(0.0),
        false => at as f64 / since.as_secs_f64(),
    };
    let bytes = bytes_per_second * CHUNK_TIME.as_secs_f64();
    (bytes as usize).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES)
}

/// Bytes on their way into the body of a request: within the rate, and counted.
pub(super) struct Outflow {
    rate: Arc<RateLimit>,
    totals: Arc<RequestTotals>,
    /// Of this request.
    sent: AtomicU64,
    reads: Mutex<Reads>,
    buffers: Buffers,
}

/// What requests read, one after the other.
#[derive(Default)]
struct Reads {
    /// Of the request that may.
    turn: u64,
    /// Bytes, by all of them.
    taken: u64,
}

impl Outflow {
    pub(super) fn new(rate: Arc<RateLimit>, totals: Arc<RequestTotals>, buffers: &Buffers) -> Self {
        Self {
            rate,
            totals,
            sent: AtomicU64::new(0),
            reads: Mutex::default(),
            buffers: buffers.clone(),
        }
    }

    /// Bytes that are on their way.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// The turn of a request that begins now.
    pub(super) fn turn(&self) -> u64 {
        self.reads.lock().turn
    }

    /// Requests that have begun read no more. The bytes that they have read, whether these were
    /// sent or not: of a source that is read once they are gone.
    pub(super) fn stop(&self) -> u64 {
        let mut reads = self.reads.lock();
        reads.turn += 1;
        reads.taken
    }

    /// What was sent has not arrived.
    pub(super) fn take_back(&self) {
        let sent = self.sent.swap(0, Ordering::Relaxed);
        self.totals.bytes.fetch_sub(sent, Ordering::Relaxed);
    }

    /// Sends so many bytes of a file, or less: `on_sent` is told how many of them are on their way
    /// and how many are read next, and answers how many it are all together. It reads none once the
    /// request's `turn` is over. `pace`: bytes a second that its connection has moved before.
    pub(super) async fn file(
        &self,
        file: &FileRef,
        base: u64,
        mut length: u64,
        sender: &ChunkSender,
        (turn, pace): (u64, Option<f64>),
        on_sent: impl Fn(u64, u64) -> u64,
    ) -> Result<(), StorageFailure> {
        let mut at = 0;
        let start = Instant::now();
        let mut chunk = chunk_bytes(0, Duration::ZERO, pace);
        while at < length {
            while file.readable_at(base + at) == 0 {
                sleep(FILE_PAUSE).await;
                length = on_sent(at, chunk as u64);
                if at >= length {
                    return Ok(());
                }
            }
            let bytes = usize::try_from(length - at).map_or(chunk, |left| left.min(chunk));
            // What is read may be gone, so nothing is that need wait.
            self.granted().await;
            let mut buffer = self.buffers.take(bytes);
            let began = Instant::now();
            let room = &mut buffer.room()[..bytes];
            let Some(read) = self.read(file, base + at, room, turn)? else {
                // The end of the sender would be taken for the end of the body.
                sender.gone().await;
                return Ok(());
            };
            let us = u64::try_from(began.elapsed().as_micros()).unwrap_or(0);
            self.totals.read_us.fetch_add(us, Ordering::Relaxed);
            if read == 0 {
                return Err(StorageFailure {
                    errno: 0,
                    doing: "read what is sent".to_owned(),
                    text: format!("the file ends {} bytes too early", length - at),
                });
            }
            buffer.add(read);
            if !self.pass_on(sender, buffer.into_chunk()).await {
                return Ok(());
            }
            if self.turn() != turn {
                sender.gone().await;
                return Ok(());
            }
            at += read as u64;
            chunk = chunk_bytes(at, start.elapsed(), pace);
            length = on_sent(at, chunk as u64);
        }
        Ok(())
    }

    /// Waits until the rate allows more.
    async fn granted(&self) {
        while let Err(until) = self.rate.grant() {
            sleep_until(until.into()).await;
        }
    }

    /// `None`: the turn is over.
    fn read(
        &self,
        file: &FileRef,
        at: u64,
        buffer: &mut [u8],
        turn: u64,
    ) -> Result<Option<usize>, StorageFailure> {
        let mut reads = self.reads.lock();
        if reads.turn != turn {
            return Ok(None);
        }
        let read = file.read_at(at, buffer)?;
        reads.taken += read as u64;
        Ok(Some(read))
    }

    /// `false`: the request is over.
    async fn pass_on(&self, sender: &ChunkSender, chunk: Bytes) -> bool {
        let bytes = chunk.len() as u64;
        // Before it is: the answer to the last bytes may come before this goes on.
        self.sent.fetch_add(bytes, Ordering::Relaxed);
        self.totals.bytes.fetch_add(bytes, Ordering::Relaxed);
        let is_taken = sender.send(chunk).await.is_ok();
        match is_taken {
            true => self.rate.spend(bytes),
            // Unless all was taken back meanwhile.
            false => {
                let less = |sent: u64| sent.checked_sub(bytes);
                let order = Ordering::Relaxed;
                if self.sent.fetch_update(order, order, less).is_ok() {
                    self.totals.bytes.fetch_sub(bytes, order);
                }
            }
        }
        is_taken
    }
}

#[cfg(test)]
mod tests {
    use godwit_engine::storage::{NullStorage, Storage};
    use godwit_proto::FtpPath;

    use super::*;

    const LENGTH: u64 = 1 << 20;

    fn outflow(rate: Arc<RateLimit>) -> Outflow {
        let totals = Arc::new(RequestTotals::new(true));
        Outflow::new(rate, totals, &Buffers::default())
    }

    fn zeros() -> FileRef {
        let path = FtpPath::new("/1M").unwrap();
        NullStorage::new(LENGTH).open_read(&path).unwrap()
    }

    #[tokio::test]
    async fn what_waits_for_its_rate_has_read_nothing_and_reads_nothing_once_its_turn_is_over() {
        let rate = Arc::new(RateLimit::default());
        // A fifth of a second.
        rate.set(Some(8 * (5 << 20)));
        rate.spend(1 << 20);
        let outflow = outflow(Arc::clone(&rate));
        let (sender, body) = channel(None);
        let file = zeros();
        let sends = outflow.file(&file, 0, LENGTH, &sender, (outflow.turn(), None), |_, _| {
            LENGTH
        });
        tokio::pin!(sends);
        let soon = Duration::from_millis(50);
        assert!(tokio::time::timeout(soon, &mut sends).await.is_err());
        assert_eq!(outflow.stop(), 0);
        rate.set(None);
        drop(body);
        sends.await.unwrap();
        assert_eq!(outflow.stop(), 0);
    }

    #[tokio::test]
    async fn what_was_read_for_a_request_that_is_over_stays_read() {
        let outflow = outflow(Arc::default());
        let (sender, body) = channel(None);
        drop(body);
        let file = zeros();
        let sends = outflow.file(&file, 0, LENGTH, &sender, (outflow.turn(), None), |_, _| {
            LENGTH
        });
        sends.await.unwrap();
        assert_eq!(outflow.sent(), 0);
        assert!(outflow.stop() > 0);
        outflow.take_back();
        assert!(outflow.stop() > 0);
    }
}

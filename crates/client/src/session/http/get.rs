//! What a lane does for a transfer from the server: GET of one piece after the other.

use std::{
    io::Write,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use godwit_engine::{data::RateLimit, storage::FileRef};
use godwit_http::range::ContentRange;
use godwit_http_client::{HeaderName, HeaderValue, Method, Request, StatusCode, header};
use godwit_proto::error::{StorageFailure, TransferFailure};
use parking_lot::Mutex;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::{
    bucket::{
        times::time_in,
        told_sums::{self, ObjectSums},
    },
    commands::IDENTITY,
    error::HttpError,
    exchange::Exchange,
    region::{Failure, Piece, Region, Validator},
    replies::{Failed, refusal, reply},
    wire::Wire,
};

/// Time until a file is asked again that others must first read or write.
pub(super) const FILE_PAUSE: Duration = Duration::from_millis(1);

/// A transfer from the server.
pub(super) struct GetJob {
    pub(super) region: Region,
    /// Path, as it is in requests.
    pub(super) target: String,
    /// Byte of the file at the server that is byte 0 of the region.
    pub(super) remote: u64,
    /// The region ends where the file does, whose length is known.
    pub(super) is_to_the_end: bool,
    /// More may come than is wanted.
    pub(super) is_cut: bool,
    /// Bytes of the whole file, where some of it are there already.
    pub(super) size: Option<u64>,
    pub(super) sink: LaneSink,
    pub(super) rate: Arc<RateLimit>,
    /// All lanes let go at once.
    pub(super) cancel: CancellationToken,
}

/// Where the bytes go.
pub(super) enum LaneSink {
    /// Byte 0 of the region is byte `base` of the file.
    File {
        file: FileRef,
        base: u64,
        /// Linux lets one write to a file at a time, and others spin meanwhile.
        turn: Mutex<()>,
    },
    /// In order, by one lane.
    Stream(Mutex<Box<dyn Write + Send>>),
}

impl LaneSink {
    /// Bytes from `at` on that it takes now.
    pub(super) fn room(&self, at: u64) -> u64 {
        match self {
            Self::File { file, base, .. } => file.writable_at(base + at),
            Self::Stream(_) => u64::MAX,
        }
    }

    async fn write(&self, mut at: u64, mut bytes: &[u8]) -> Result<(), StorageFailure> {
        match self {
            Self::File { file, base, turn } => {
                while !bytes.is_empty() {
                    let room = usize::try_from(self.room(at)).unwrap_or(usize::MAX);
                    let (now, later) = bytes.split_at(room.min(bytes.len()));
                    if now.is_empty() {
                        tokio::time::sleep(FILE_PAUSE).await;
                        continue;
                    }
                    let turn = turn.lock();
                    file.write_all_at(base + at, now)?;
                    drop(turn);
                    at += now.len() as u64;
                    bytes = later;
                }
                Ok(())
            }
            Self::Stream(writer) => {
                let mut writer = writer.lock();
                let written = writer.write_all(bytes).and_then(|()| writer.flush());
                written.map_err(|error| StorageFailure {
                    errno: error.raw_os_error().unwrap_or(0),
                    doing: "write".to_owned(),
                    text: error.to_string(),
                })
            }
        }
    }
}

/// Fetches pieces until none is left. Why it has ended early.
pub(super) async fn run(wire: &mut Wire, job: &GetJob, lane: usize) -> Option<Failure> {
    if job.region.is_awaited() {
        // Whatever fails is found out when something is asked for.
        tokio::select! {
            () = wire.connect_ahead() => {}
            () = job.region.is_through() => return None,
            () = job.cancel.cancelled() => return None,
        }
    }
    while let Some(piece) = job.region.take(lane).await {
        let fetched = tokio::select! {
            fetched = fetch(wire, job, lane, piece) => fetched,
            () = job.cancel.cancelled() => return None,
        };
        if let Err(failure) = fetched {
            return Some(failure);
        }
    }
    None
}

async fn fetch(wire: &mut Wire, job: &GetJob, lane: usize, piece: Piece) -> Result<(), Failure> {
    let from = job.remote + piece.start;
    // All of it is asked for as such: any server has that.
    let is_whole = piece.is_first && piece.is_rest && from == 0 && job.is_to_the_end;
    let range = match piece.end {
        _ if is_whole => None,
        Some(end) => Some(format!(
            "bytes={from}-{}",
            (job.remote + end).saturating_sub(1)
        )),
        None => Some(format!("bytes={from}-")),
    };
    let validator = job.region.validator();
    let server = Arc::clone(&wire.server);
    let bucket = server.bucket.as_ref();
    let request = |target: &str| {
        let mut request = Request::new(Method::GET, target);
        let mut add = |name, text: &str| {
            if let Ok(value) = HeaderValue::try_from(text) {
                request.headers.insert(name, value);
            }
        };
        add(header::ACCEPT_ENCODING, IDENTITY);
        if is_whole && bucket.is_some() {
            let (name, value) = told_sums::MODE;
            add(HeaderName::from_static(name), value);
        }
        if let Some(range) = &range {
            add(header::RANGE, range);
        }
        // A date is compared with that of the answer alone: versitygw holds a condition of whole
        // seconds against its finer clock, and refuses what has not changed.
        if let Some(Validator::Tag(tag)) = &validator {
            add(header::IF_MATCH, tag);
        }
        request
    };
    let mut exchange = match wire.send(&job.target, request).await {
        Ok(exchange) => exchange,
        Err(error) => return Err(Failure::Crowded(Box::new(unreached(error)))),
    };
    let is_part = range.is_some();
    let has_parts = check_head(&mut exchange, job, piece, (is_part, bucket.is_some())).await?;
    let told = match &validator {
        Some(Validator::Listed(_)) => validator.clone(),
        _ => validator_of(&exchange),
    };
    if validator.is_some() && told != validator {
        return Err(Failure::Changed);
    }
    if piece.is_first && told.is_none() {
        server.names_no_version.store(true, Ordering::Relaxed);
    }
    if piece.is_first && told.is_none() && has_parts && !piece.is_rest {
        job.region.ask_version(lane);
        return Ok(());
    }
    if let (Some(bucket), true) = (bucket, piece.is_first) {
        bucket.times.keep(&job.target, time_in(&exchange.answer));
    }
    if piece.is_first {
        // Nothing would tell that a further part is of another version.
        let has_parts = has_parts && told.is_some();
        job.region.begun(lane, told, has_parts);
    }
    if receive(&mut exchange, job, lane, piece).await? {
        if let Some(bucket) = bucket.filter(|_| is_whole) {
            bucket
                .sums
                .keep(&job.target, ObjectSums::read(&exchange.answer));
        }
        wire.done(exchange).await;
    }
    Ok(())
}

/// Whether the answer is what was asked for, and parts can be asked for, too.
async fn check_head(
    exchange: &mut Exchange,
    job: &GetJob,
    piece: Piece,
    (is_part, is_bucket): (bool, bool),
) -> Result<bool, Failure> {
    let status = exchange.answer.status;
    let is_encoded = exchange
        .header(header::CONTENT_ENCODING)
        .is_some_and(|encoding| !encoding.eq_ignore_ascii_case(IDENTITY));
    // A bucket sends the bytes that it has, whatever their encoding is.
    if status.is_success() && is_encoded && !is_bucket {
        let text = "the server sends another form of the file than it has (Content-Encoding)";
        return Err(Failure::Refused(reply(501, text), false));
    }
    let from = job.remote + piece.start;
    match status {
        StatusCode::PARTIAL_CONTENT if is_part => {
            let told = exchange.header(header::CONTENT_RANGE);
            let told = told.and_then(ContentRange::parse);
            let Some(ContentRange {
                range: Some(range),
                size,
            }) = told
            else {
                return Err(Failure::lost(
                    "the server does not say which bytes it sends",
                ));
            };
            let end = piece.end.map(|end| job.remote + end);
            let ends_there = size.is_none_or(|size| Some(size) == end);
            let is_of_size = job.size.is_none() || size.is_none() || size == job.size;
            if !is_of_size || size.is_some() && job.is_to_the_end && piece.is_rest && !ends_there {
                return Err(Failure::Changed);
            }
            if range.start != from || end.is_some_and(|end| range.end != end) {
                return Err(Failure::lost(format!(
                    "the server sends bytes {} to {} where others were asked for",
                    range.start, range.end
                )));
            }
            Ok(true)
        }
        StatusCode::OK if !is_part || piece.is_first && from == 0 => {
            let told = exchange
                .answer
                .bytes()
                .map(|bytes| bytes.checked_sub(job.remote));
            if let (Some(told), Some(end), true) = (told, job.region.end(), job.is_to_the_end)
                && told != Some(end)
            {
                return Err(Failure::Changed);
            }
            let ranges = exchange.header(header::ACCEPT_RANGES);
            Ok(!is_part && ranges.is_some_and(|ranges| ranges.contains("bytes")))
        }
        StatusCode::OK if piece.is_first => {
            let text = "the server sends no parts of files";
            Err(Failure::Refused(reply(504, text), false))
        }
        StatusCode::PRECONDITION_FAILED | StatusCode::RANGE_NOT_SATISFIABLE => {
            Err(Failure::Changed)
        }
        status if status.is_success() => Err(Failure::lost(format!(
            "the server answers {status} to a request for a part of a file"
        ))),
        status => {
            let text = exchange.reason().await;
            let refused = Failure::Refused(refusal(status, &text, Failed::Status), !piece.is_first);
            let is_busy = matches!(status.as_u16(), 429 | 503);
            Err(match is_busy {
                true => Failure::Crowded(Box::new(refused)),
                false => refused,
            })
        }
    }
}

fn validator_of(exchange: &Exchange) -> Option<Validator> {
    // An empty one is of objects that came past the service, and tells nothing apart.
    let strong = |tag: &&str| tag.starts_with('"') && *tag != r#""""#;
    let tag = exchange.header(header::ETAG).filter(strong);
    let date = || exchange.header(header::LAST_MODIFIED);
    match tag {
        Some(tag) => Some(Validator::Tag(tag.to_owned())),
        None => date().map(|date| Validator::Date(date.to_owned())),
    }
}

/// Takes the bytes of the piece; `false`: the answer has more than are wanted now.
async fn receive(
    exchange: &mut Exchange,
    job: &GetJob,
    lane: usize,
    piece: Piece,
) -> Result<bool, Failure> {
    let mut at = piece.start;
    loop {
        while let Err(until) = job.rate.grant() {
            sleep_until(until.into()).await;
        }
        let chunk = exchange.answer.chunk().await;
        let chunk = chunk.map_err(|error| unreached(error.into()))?;
        let end = job.region.end_of(lane);
        let Some(mut chunk) = chunk else {
            if let Some(end) = end.filter(|end| at < *end) {
                let missing = end - at;
                return Err(Failure::lost(format!(
                    "the answer ends {missing} bytes too early"
                )));
            }
            job.region.done(lane, end.is_none());
            return Ok(true);
        };
        let room = end.map_or(u64::MAX, |end| end.saturating_sub(at));
        let is_more = chunk.len() as u64 > room;
        if is_more {
            if piece.end == end && !job.is_cut {
                return Err(Failure::lost("the server sends more than was asked for"));
            }
            chunk.truncate(usize::try_from(room).unwrap_or(0));
        }
        job.rate.spend(chunk.len() as u64);
        let began = Instant::now();
        let written = job.sink.write(at, &chunk).await;
        written.map_err(|failure| Failure::Transfer(TransferFailure::Storage(failure)))?;
        let us = u64::try_from(began.elapsed().as_micros()).unwrap_or(0);
        job.region.totals.write_us.fetch_add(us, Ordering::Relaxed);
        at += chunk.len() as u64;
        job.region.written(lane, chunk.len() as u64);
        if job.region.retires(lane) {
            return Ok(false);
        }
        if end.is_some_and(|end| at >= end) {
            let is_last = piece.end == end && end == job.region.end() && !job.is_cut;
            if is_last && exchange.answer.bytes().is_none() {
                // Only the end of the answer tells that there is no more of it.
                let more = exchange.answer.chunk().await;
                if more.map_err(|error| unreached(error.into()))?.is_some() {
                    return Err(Failure::lost("the server sends more than was asked for"));
                }
            }
            job.region.done(lane, false);
            return Ok(piece.end == end && !is_more);
        }
    }
}

/// No answer, or not all of it.
pub(super) fn unreached(error: HttpError) -> Failure {
    use godwit_http_client::Step;
    let text = error.to_string();
    match error {
        HttpError::Connection(error) => match error.step {
            Step::Resolve | Step::Connect | Step::Handshake => {
                Failure::Transfer(TransferFailure::NoConnection(text))
            }
            Step::Request | Step::Body => Failure::lost(text),
        },
        HttpError::Redirect(_) | HttpError::Url(_) | HttpError::Senseless(_) => {
            Failure::Refused(reply(501, &text), false)
        }
    }
}

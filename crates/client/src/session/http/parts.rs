//! What a lane does for a transfer to a server that takes parts: PUT of one piece after the other.
//!
//! To a bucket each piece is a part of an upload, and has its number. Elsewhere the pieces go into
//! a file with a temporary name, which an empty PUT has made. The server has those that it has
//! confirmed; it may have others. Where it takes open parts, a piece ends where the region says
//! when the lane gets there, and the answer is compared with that.

use std::sync::{Arc, atomic::Ordering};

use godwit_engine::{data::RateLimit, storage::FileRef};
use godwit_http::{
    dav::STORED_HEADER,
    range::ContentRange,
    s3::{self, answers::Part},
};
use godwit_http_client::{
    Buffers, HeaderValue, Method, Request,
    body::{ChunkSender, channel},
    header, printable,
};
use godwit_proto::{ByteRange, FtpPath, error::TransferFailure};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{
    exchange::Exchange,
    get::{FILE_PAUSE, unreached},
    put::{Outflow, WORK_FACTOR, checksum, checksum_headers, confirmed},
    region::{Failure, HALF_BYTES_MIN, Piece, Region},
    replies::{Failed, refusal},
    wire::Wire,
};
use crate::{
    endpoint::{
        Endpoint,
        capabilities::Lack,
        uploads::{PartedUpload, crc32c_text},
    },
    report::{progress::RequestTotals, reporter::Reporter},
};

/// A transfer to the server, in pieces.
pub(super) struct PartsJob {
    pub(super) region: Region,
    /// The server takes parts that end before their ranges do.
    pub(super) are_open: bool,
    /// The parts are those of an upload to a bucket, under this name.
    pub(super) upload: Option<(FtpPath, PartedUpload)>,
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) reporter: Arc<Reporter>,
    /// Path, as it is in requests.
    pub(super) target: String,
    /// Byte of the file at the server that is byte 0 of the region.
    pub(super) remote: u64,
    /// Byte of the file here that is.
    pub(super) base: u64,
    /// Bytes of the whole file.
    pub(super) size: u64,
    pub(super) file: FileRef,
    pub(super) rate: Arc<RateLimit>,
    /// All lanes let go at once.
    pub(super) cancel: CancellationToken,
}

impl PartsJob {
    /// Whether bytes of what a request was to send are gone: they were read, and can be read once.
    /// It reads no more.
    fn has_gone(&self, outflow: &Outflow) -> bool {
        let is_read = outflow.stop() > 0;
        is_read && self.file.read_once_within().is_some()
    }

    /// The number of the part that begins there, in an upload to a bucket, and where it goes.
    fn numbered(&self, start: u64) -> Result<Option<(u32, String)>, Failure> {
        let Some((_, upload)) = &self.upload else {
            return Ok(None);
        };
        let at = self.remote + start;
        let number = upload.number_at(at);
        let number = number.ok_or_else(|| Failure::lost(format!("no part begins at {at}")))?;
        let pairs = [
            ("partNumber", &*number.to_string()),
            ("uploadId", &upload.id),
        ];
        Ok(Some((
            number,
            format!("{}{}", self.target, s3::query(&pairs)),
        )))
    }

    /// A bucket has stored a part: it is asked for when the upload is completed.
    fn stored(&self, part: Option<Part>) {
        if let Some(((temp_path, upload), part)) = self.upload.as_ref().zip(part) {
            self.endpoint.uploads.add(temp_path, &upload.id, part);
        }
    }

    fn fail(&self, failure: Failure) {
        // First: no piece may be handed out behind those that lanes let go.
        self.region.fail(failure);
        self.cancel.cancel();
    }

    /// What a request says that it sends of the file.
    fn range(&self, start: u64, end: u64) -> ContentRange {
        ContentRange {
            range: ByteRange::new(self.remote + start, self.remote + end),
            size: Some(self.size),
        }
    }
}

/// A part of an upload to a bucket, as the answer to it says. `sent`: its CRC32C.
fn part_of(
    exchange: &Exchange,
    number: u32,
    size: u64,
    sent: Option<u32>,
) -> Result<Part, Failure> {
    let crc32c = confirmed(exchange, sent)?;
    let tag = exchange.header(header::ETAG);
    let tag = tag.ok_or_else(|| Failure::lost("the service names no ETag of a part"))?;
    Ok(Part {
        number,
        size,
        tag: tag.to_owned(),
        crc32c: crc32c.map(crc32c_text),
    })
}

/// Sends pieces until none is left. Why it has ended early.
pub(super) async fn run(wire: &mut Wire, job: &Arc<PartsJob>, lane: usize) -> Option<Failure> {
    let mut is_first = true;
    let buffers = Buffers::default();
    while let Some(piece) = job.region.take(lane).await {
        let sent = tokio::select! {
            biased;
            () = job.cancel.cancelled() => return None,
            () = job.region.is_outrun(lane) => Ok(()),
            sent = send(wire, job, (lane, piece), is_first, &buffers) => sent,
        };
        if let Err(failure) = sent {
            return Some(failure);
        }
        is_first = false;
    }
    None
}

async fn send(
    wire: &mut Wire,
    job: &Arc<PartsJob>,
    (lane, piece): (usize, Piece),
    is_first: bool,
    buffers: &Buffers,
) -> Result<(), Failure> {
    let limit = wire.server.limits.answer.saturating_mul(WORK_FACTOR);
    let start = piece.start;
    // The server waits for a request's bytes no longer than it thinks right.
    while job.file.readable_at(job.base + start) == 0 {
        sleep(FILE_PAUSE).await;
    }
    let numbered = job.numbered(start)?;
    // Of one that says its length, others take nothing.
    let closed_end = piece.end.filter(|_| !job.are_open);
    let sum = match (&numbered, closed_end) {
        (Some(_), Some(end)) => checksum(&job.file, job.base + start, end - start)
            .map_err(|failure| Failure::Transfer(TransferFailure::Storage(failure)))?,
        _ => None,
    };
    if job.region.end_of(lane).is_none() {
        // Another lane has sent it meanwhile.
        return Ok(());
    }
    // What refuses one part refuses the next: where the server has taken one, no lane waits a round
    // trip to ask. What can be read once would be gone if one more connection is too many.
    let must_ask = !job.region.has_some() || job.file.read_once_within().is_some();
    let asks_first = is_first && must_ask;
    // Its bytes count where another lane sends them, until this one has sent them sooner.
    let totals = match piece.is_again {
        true => Arc::new(RequestTotals::new(true)),
        false => Arc::clone(&job.region.totals),
    };
    let outflow = Arc::new(Outflow::new(Arc::clone(&job.rate), totals, buffers));
    let mut unconfirmed = Unconfirmed(Some(Arc::clone(&outflow)));
    let request = |target: &str| {
        // Others may have taken of it since an earlier attempt, or sent all of it.
        let own_end = job.region.sent(lane, start, (start, HALF_BYTES_MIN));
        let end = closed_end.or(own_end).unwrap_or(start);
        let (sender, body) = channel((!job.are_open).then_some(end - start));
        let is_gone = job.has_gone(&outflow);
        outflow.take_back();
        let turn = outflow.turn();
        let own = (Arc::clone(job), Arc::clone(&outflow));
        match (is_gone, own_end) {
            (true, _) => job.fail(Failure::lost(
                "the connection was closed in the middle of a part",
            )),
            // Without its bytes it is no request.
            (false, None) => drop(sender),
            (false, Some(_)) => {
                drop(tokio::spawn(feed(own, (lane, start), end, sender, turn)));
            }
        }
        let mut request = Request::new(Method::PUT, target)
            .with_body(body)
            .answered_within(limit);
        match &numbered {
            Some(_) => request.headers.extend(checksum_headers(sum)),
            None => {
                let range = HeaderValue::try_from(job.range(start, end).to_string());
                // Digits and signs are a header. Without one, this would be the whole file.
                let range = range.unwrap_or(HeaderValue::from_static("none"));
                request.headers.insert(header::CONTENT_RANGE, range);
            }
        }
        match asks_first {
            true => request.expecting_continue(),
            false => request,
        }
    };
    let target = numbered.as_ref().map_or(&job.target, |(_, target)| target);
    let sent = wire.send(target, request).await;
    let mut exchange = sent.map_err(|error| {
        let failure = unreached(error);
        // A server that has no room for a connection may close it while the first part is sent.
        match (is_first || outflow.sent() == 0) && !job.has_gone(&outflow) {
            true => Failure::Crowded(Box::new(failure)),
            false => failure,
        }
    })?;
    let status = exchange.answer.status;
    if status.is_success() {
        let Some(end) = job.region.end_of(lane) else {
            return Ok(());
        };
        let sent = job.range(start, end);
        if start + outflow.sent() != end {
            let text = format!("the server answers {status} before it can have {sent}");
            return Err(Failure::lost(text));
        }
        let part = numbered.as_ref().map(|(number, _)| {
            let size = end - start;
            part_of(&exchange, *number, size, sum)
        });
        let part = part.transpose()?;
        match exchange.answer.header(STORED_HEADER) {
            _ if !job.are_open => {}
            None => {
                return Err(goes_on_closed(job, format!("HTTP {status} names no bytes")));
            }
            Some(stored) if ContentRange::parse(stored) == Some(sent) => {}
            Some(stored) => {
                let stored = printable(stored.as_bytes());
                let text = format!("the server says it has stored {stored}, and not {sent}");
                return Err(Failure::lost(text));
            }
        }
        if job.region.confirmed(lane) {
            job.stored(part);
            unconfirmed.0 = None;
            if piece.is_again {
                let bytes = &job.region.totals.bytes;
                bytes.fetch_add(end - start, Ordering::Relaxed);
            }
        }
        wire.done(exchange).await;
        return Ok(());
    }
    let text = exchange.reason().await;
    let refused = Failure::Refused(refusal(status, &text, Failed::Status), true);
    let is_gone = job.has_gone(&outflow);
    Err(match status.as_u16() {
        429 | 503 if !is_gone => Failure::Crowded(Box::new(refused)),
        // It was aborted, or is too old: the file is sent again.
        404 if numbered.is_some() && text.starts_with("NoSuchUpload") => {
            if let Some((temp_path, _)) = &job.upload {
                job.endpoint.uploads.forget(temp_path);
            }
            Failure::lost(format!("the service has ended the upload: {text}"))
        }
        // A request that was given up has come to the server late, and writes these bytes.
        409 => Failure::lost(format!(
            "the server answers {status} to bytes from {}: {text}",
            job.remote + start
        )),
        // What is between, or another of its machines, is older.
        411 | 501 if job.are_open => goes_on_closed(job, format!("HTTP {status}: {text}")),
        // Where it has taken some it means something else.
        400 if job.are_open && !job.region.has_some() => {
            goes_on_closed(job, format!("HTTP {status}: {text}"))
        }
        _ => refused,
    })
}

/// The attempt that follows sends parts that say how long they are.
fn goes_on_closed(job: &PartsJob, text: String) -> Failure {
    let name = job.endpoint.name();
    let says =
        format!("{name}: no parts that end early: uploads go in parts of a length that is said");
    let capabilities = &job.endpoint.capabilities;
    capabilities.learn(Lack::OpenParts, &job.reporter, says);
    Failure::lost(format!("it does not take parts that end early: {text}"))
}

/// Takes back what was sent, unless the server has confirmed it.
struct Unconfirmed(Option<Arc<Outflow>>);

impl Drop for Unconfirmed {
    fn drop(&mut self) {
        if let Some(outflow) = &self.0 {
            // What still reads for it belongs to no piece of the lane any more.
            outflow.stop();
            outflow.take_back();
        }
    }
}

/// Reads the piece into the body of a request, once the server wants it.
async fn feed(
    (job, outflow): (Arc<PartsJob>, Arc<Outflow>),
    (lane, start): (usize, u64),
    end: u64,
    mut sender: ChunkSender,
    turn: u64,
) {
    if !sender.wanted().await {
        return;
    }
    let at = job.base + start;
    let on_sent = |bytes, next| {
        let end = job.region.sent(lane, start, (start + bytes, next));
        end.map_or(bytes, |end| end - start)
    };
    let turn = (turn, job.region.pace(lane));
    let fed = outflow.file(&job.file, at, end - start, &sender, turn, on_sent);
    if let Err(failure) = fed.await {
        job.fail(Failure::Transfer(TransferFailure::Storage(failure)));
        sender.gone().await;
    }
}

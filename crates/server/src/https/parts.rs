//! PUT of a part of a file (`Content-Range`): several connections write one file at the same time,
//! in any order.
//!
//! A part goes into a file that is there, and that has a temporary name as godwit's clients choose
//! it. So a file that lacks parts has no final name: MOVE gives that, and not while a part is
//! written. What was answered with success is as durable as the settings want.
//!
//! A part with a `Content-Length` has all its bytes. One in chunks is open: its range says how far
//! it may go, and it ends with its last chunk, so that a client can have another connection send
//! what a slow one has not sent yet. The answer says which bytes are stored.
//!
//! A part that somebody else still writes is taken over, so that a client can go on at once when
//! its connection has died and the server does not know that yet. Of two requests that write the
//! same bytes, the one that came first is refused. A part with a length writes all its bytes from
//! the beginning, an open one those that have come.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use godwit_engine::storage::{FileKind, Metadata, WriteMode};
use godwit_http::{dav::STORED_HEADER, range::ContentRange, target::Target};
use godwit_proto::{ByteRange, temporary};
use hyper::{
    HeaderMap, StatusCode,
    body::{Body as _, Incoming},
    header::{self, HeaderName},
};
use tokio::{sync::watch, time::timeout};

use super::{
    answer::{HttpAnswer, Rejected, check_change, empty, set},
    put::{Receipt, WRITE_BYTES, check_headers, current, failed},
    received::next_bytes,
    record::Transfer,
    session::HttpSession,
};
use crate::{observe::event::What, transfers::checksums::blocking};

/// Time for a part that is taken over to let go.
const LETTING_GO_LIMIT: Duration = Duration::from_secs(10);

/// Largest size that a file can have: `off_t` is signed.
const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// Device and inode.
type FileId = (u64, u64);

/// Tells a part that it is taken over; closed when that has let go.
type Stop = Arc<watch::Sender<bool>>;

/// Parts that came so far.
static ARRIVED: AtomicU64 = AtomicU64::new(0);

/// Parts that are written now, by file.
static WRITTEN: Mutex<BTreeMap<FileId, Vec<Active>>> = Mutex::new(BTreeMap::new());

pub(super) async fn put_part(
    session: &HttpSession,
    target: &Target,
    headers: &HeaderMap,
    body: &mut Incoming,
) -> Result<HttpAnswer, Rejected> {
    session.check_writes()?;
    // HTTP/1.1 has no third way to say where a body ends.
    let part = StoredPart::of(target, headers, body.size_hint().exact())?;
    let (storage, path) = (session.storage(), target.path.clone());
    let found = blocking(move || current(&*storage, &path, Some(part.range.len()))).await?;
    let found = part.check_file(found)?;
    check_change(headers, Some(&found))?;
    // First of all: a client that may not write the file stops none that does.
    let (storage, path) = (session.storage(), target.path.clone());
    let file = blocking(move || storage.open_write(&path, WriteMode::Existing)).await?;
    let unique = file.as_opened()?.unique;
    let place = Arc::new(Place::take(unique, part).await?);
    place.claim(part.first_claim()).await?;
    // It may have got its final name before: from here on it keeps this one.
    let (storage, path) = (session.storage(), target.path.clone());
    if found.unique != unique || blocking(move || storage.stat(&path)).await?.unique != unique {
        return Err(conflict("another file has got this name"));
    }
    let mut transfer = Transfer::begin(&session.recorder, What::Put, &target.path, WRITE_BYTES);
    let receipt = Receipt::new(Arc::clone(&file), part.range.start, WRITE_BYTES, []);
    let mut receipt = receipt.keeping(Arc::clone(&place) as _);
    let stored = async {
        let end = tokio::select! {
            end = receive(session, body, (&place, part), &mut receipt, &mut transfer) => end?,
            () = place.taken_over() => {
                return Err(taken());
            }
        };
        receipt.finish().await?;
        let committer = &session.committer;
        committer.commit(Some(file), Vec::new()).await?;
        Ok(ByteRange { end, ..part.range })
    };
    let stored: Result<ByteRange, Rejected> = stored.await;
    transfer.end(stored.as_ref().err().map(failed));
    stored.map(|range| {
        let mut answer = empty(StatusCode::NO_CONTENT);
        let stored = ContentRange {
            range: Some(range),
            size: Some(part.size),
        };
        let name = HeaderName::from_static(STORED_HEADER);
        set(&mut answer, name, stored.to_string());
        answer
    })
}

/// Takes the body; where it has ended. One that breaks off has no end.
async fn receive(
    session: &HttpSession,
    body: &mut Incoming,
    (place, part): (&Place, StoredPart),
    receipt: &mut Receipt,
    transfer: &mut Transfer,
) -> Result<u64, Rejected> {
    let bad = |text: &str| Rejected::new(StatusCode::BAD_REQUEST, text);
    let mut at = part.range.start;
    while let Some(bytes) = next_bytes(body, session.data_limit).await? {
        let end = at + bytes.len() as u64;
        if end > part.range.end {
            return Err(bad("the body has more bytes than Content-Range"));
        }
        if part.is_open {
            place.claim(end).await?;
        }
        transfer.moved(bytes.len());
        receipt.take(&bytes).await?;
        at = end;
    }
    match at > part.range.start {
        true => Ok(at),
        false => Err(bad("a part has at least one byte")),
    }
}

/// Lets parts wait until the file has got another name. Refused while one is written.
pub(super) fn hold(file: &Metadata) -> Result<Place, Rejected> {
    let mut all = written();
    if all.contains_key(&file.unique) {
        return Err(conflict("a part of the file is written just now"));
    }
    let active = all.entry(file.unique).or_default();
    Ok(Place::add(active, file.unique, None))
}

fn conflict(text: &str) -> Rejected {
    Rejected::new(StatusCode::CONFLICT, text)
}

fn taken() -> Rejected {
    conflict("another request writes these bytes")
}

fn written() -> MutexGuard<'static, BTreeMap<FileId, Vec<Active>>> {
    WRITTEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a request writes.
#[derive(Clone, Copy, Debug)]
struct StoredPart {
    range: ByteRange,
    /// The body may end before the range does.
    is_open: bool,
    /// Of the whole file.
    size: u64,
    /// Later requests have higher numbers.
    arrival: u64,
}

impl StoredPart {
    /// `bytes`: of the body, where it says so.
    fn of(target: &Target, headers: &HeaderMap, bytes: Option<u64>) -> Result<Self, Rejected> {
        let bad = |text: &str| Err(Rejected::new(StatusCode::BAD_REQUEST, text));
        if !check_headers(target, headers)?.is_empty() {
            return bad("checksums are of whole files, and this is a part of one");
        }
        let mut told = headers.get_all(header::CONTENT_RANGE).iter();
        let told = match (told.next(), told.next()) {
            (Some(told), None) => told.to_str().ok().and_then(ContentRange::parse),
            _ => None,
        };
        let Some(ContentRange {
            range: Some(range),
            size: Some(size),
        }) = told
        else {
            return bad("a part has a Content-Range of the form: bytes FIRST-LAST/SIZE");
        };
        if size > FILE_BYTES_MAX {
            let text = "no file can have so many bytes";
            return Err(Rejected::new(StatusCode::PAYLOAD_TOO_LARGE, text));
        }
        if bytes.is_some_and(|bytes| bytes != range.len()) {
            return bad("Content-Length and Content-Range disagree");
        }
        let name = target.path.file_name();
        if !name.is_some_and(temporary::is_temporary) {
            let text = "parts are stored under temporary names alone: .godwit-<16 digits>.part";
            return Err(Rejected::new(StatusCode::FORBIDDEN, text));
        }
        Ok(Self {
            range,
            is_open: bytes.is_none(),
            size,
            arrival: ARRIVED.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// Where the bytes end that it writes in any case.
    fn first_claim(self) -> u64 {
        match self.is_open {
            true => self.range.start + 1,
            false => self.range.end,
        }
    }

    /// The file that it may go into.
    fn check_file(self, found: Option<Metadata>) -> Result<Metadata, Rejected> {
        let Some(found) = found else {
            let text = "there is no such file: a PUT of no bytes makes it";
            return Err(Rejected::new(StatusCode::NOT_FOUND, text));
        };
        if found.kind != FileKind::File || found.link_target.is_some() {
            let text = "parts go into plain files";
            return Err(Rejected::new(StatusCode::FORBIDDEN, text));
        }
        if found.size > self.size {
            return Err(conflict(
                "the file has more bytes than the size of the part says",
            ));
        }
        Ok(found)
    }
}

/// A part that is written, as others see it.
struct Active {
    /// `None`: no part, the file gets another name.
    part: Option<StoredPart>,
    /// Where the bytes end that are its own until it lets go.
    claimed: u64,
    /// Where those begin that a later request has written, or writes.
    limit: u64,
    stop: Stop,
}

/// The right to write a part.
pub(super) struct Place {
    file: FileId,
    stop: Stop,
    stopped: watch::Receiver<bool>,
}

impl Place {
    /// A place without bytes, once the file does not get another name.
    async fn take(file: FileId, part: StoredPart) -> Result<Self, Rejected> {
        let_go(|| {
            let mut all = written();
            let active = all.entry(file).or_default();
            for other in active.iter() {
                match other.part {
                    None => return Ok(Err(vec![Arc::clone(&other.stop)])),
                    Some(written) if written.size != part.size => {
                        return Err(conflict("other parts of the file say another size"));
                    }
                    Some(_) => {}
                }
            }
            Ok(Ok(Self::add(active, file, Some(part))))
        })
        .await
    }

    /// Makes the part's bytes up to `end` its own. Waits for earlier requests that write some of
    /// them, and tells them to stop. A later request has them before this one.
    async fn claim(&self, end: u64) -> Result<(), Rejected> {
        let_go(|| {
            let mut all = written();
            let active = all.entry(self.file).or_default();
            let is_own = |other: &Active| Arc::ptr_eq(&other.stop, &self.stop);
            let own = active.iter().position(is_own);
            let Some((own, part)) = own.and_then(|own| Some((own, active[own].part?))) else {
                return Err(taken());
            };
            let start = active[own].claimed;
            if end > active[own].limit {
                return Err(taken());
            }
            let mut before = Vec::new();
            for other in active.iter().filter(|other| !is_own(other)) {
                let Some(written) = other.part else {
                    continue;
                };
                if written.range.start < end && start < other.claimed {
                    if part.arrival < written.arrival {
                        return Err(taken());
                    }
                    before.push(Arc::clone(&other.stop));
                }
            }
            if !before.is_empty() {
                return Ok(Err(before));
            }
            active[own].claimed = end;
            // Also when this part has ended: what it has answered for stays as it is.
            for other in active.iter_mut() {
                let is_earlier = |written: StoredPart| written.arrival < part.arrival;
                if other.part.is_some_and(is_earlier) && other.claimed <= start {
                    other.limit = other.limit.min(start);
                }
            }
            Ok(Ok(()))
        })
        .await
    }

    fn add(active: &mut Vec<Active>, file: FileId, part: Option<StoredPart>) -> Self {
        let (stop, stopped) = watch::channel(false);
        let stop = Arc::new(stop);
        active.push(Active {
            part,
            claimed: part.map_or(0, |part| part.range.start),
            limit: u64::MAX,
            stop: Arc::clone(&stop),
        });
        Self {
            file,
            stop,
            stopped,
        }
    }

    async fn taken_over(&self) {
        let mut stopped = self.stopped.clone();
        // An error would be the end of a sender that this has.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = written();
        if let Some(active) = all.get_mut(&self.file) {
            active.retain(|other| !Arc::ptr_eq(&other.stop, &self.stop));
            if active.is_empty() {
                all.remove(&self.file);
            }
        }
    }
}

/// Tries until no other has to let go first; `Err` within: those that have to.
async fn let_go<T>(
    mut attempt: impl FnMut() -> Result<Result<T, Vec<Stop>>, Rejected>,
) -> Result<T, Rejected> {
    let trying = async {
        loop {
            let before = match attempt()? {
                Ok(done) => return Ok(done),
                Err(before) => before,
            };
            for stop in &before {
                stop.send_replace(true);
            }
            for stop in before {
                stop.closed().await;
            }
        }
    };
    let late = |_| Err(taken());
    timeout(LETTING_GO_LIMIT, trying).await.unwrap_or_else(late)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(start: u64, arrival: u64) -> StoredPart {
        StoredPart {
            range: ByteRange::new(start, start + 10).unwrap(),
            is_open: false,
            size: 100,
            arrival,
        }
    }

    async fn claimed(file: FileId, part: StoredPart) -> Result<Place, Rejected> {
        let place = Place::take(file, part).await?;
        place.claim(part.first_claim()).await?;
        Ok(place)
    }

    #[tokio::test]
    async fn a_later_request_takes_over_and_an_earlier_one_does_not() {
        const FILE: FileId = (u64::MAX, 1);
        let second = claimed(FILE, part(0, 2)).await.unwrap();
        let _beside = claimed(FILE, part(10, 1)).await.unwrap();
        let first = claimed(FILE, part(5, 1)).await;
        assert_eq!(first.err().unwrap().status, StatusCode::CONFLICT);
        assert!(!*second.stopped.borrow());
        let third = tokio::spawn(claimed(FILE, part(0, 3)));
        second.taken_over().await;
        drop(second);
        third.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn an_open_part_shares_its_range_until_it_comes_to_bytes_of_another() {
        const FILE: FileId = (u64::MAX, 3);
        let open = |start, arrival| StoredPart {
            is_open: true,
            ..part(start, arrival)
        };
        // Whichever arrives first, they meet at byte 5.
        for [whole, rest] in [[1, 2], [4, 3]] {
            let whole = claimed(FILE, open(0, whole)).await.unwrap();
            let rest = claimed(FILE, open(5, rest)).await.unwrap();
            rest.claim(10).await.unwrap();
            whole.claim(5).await.unwrap();
            assert!(!*whole.stopped.borrow() && !*rest.stopped.borrow());
        }
        let whole = claimed(FILE, open(0, 5)).await.unwrap();
        whole.claim(6).await.unwrap();
        let rest = tokio::spawn(claimed(FILE, open(5, 6)));
        whole.taken_over().await;
        drop(whole);
        let rest = rest.await.unwrap().unwrap();
        // What comes later may be in place of a request whose client is gone.
        let again = claimed(FILE, open(0, 7)).await.unwrap();
        assert!(!*rest.stopped.borrow());
        let goes_on = tokio::spawn(async move { again.claim(6).await });
        rest.taken_over().await;
        drop(rest);
        goes_on.await.unwrap().unwrap();
        let _later = claimed(FILE, open(5, 9)).await.unwrap();
        let earlier = claimed(FILE, open(0, 8)).await.unwrap();
        let refused = earlier.claim(6).await.unwrap_err();
        assert_eq!(refused.status, StatusCode::CONFLICT);
    }

    #[tokio::test]
    async fn what_a_later_request_has_written_is_not_written_over_by_an_earlier_one() {
        const FILE: FileId = (u64::MAX, 4);
        let open = |start, arrival| StoredPart {
            is_open: true,
            ..part(start, arrival)
        };
        let earlier = claimed(FILE, open(0, 1)).await.unwrap();
        let later = claimed(FILE, open(5, 2)).await.unwrap();
        later.claim(15).await.unwrap();
        drop(later);
        earlier.claim(5).await.unwrap();
        let refused = earlier.claim(6).await.unwrap_err();
        assert_eq!(refused.status, StatusCode::CONFLICT);
    }

    #[tokio::test]
    async fn a_part_waits_for_a_file_that_gets_another_name() {
        const FILE: FileId = (u64::MAX, 2);
        let renamed = Place::add(written().entry(FILE).or_default(), FILE, None);
        let waiting = tokio::spawn(Place::take(FILE, part(0, 1)));
        renamed.taken_over().await;
        assert!(!waiting.is_finished());
        drop(renamed);
        waiting.await.unwrap().unwrap();
    }
}

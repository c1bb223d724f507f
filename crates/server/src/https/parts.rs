//! PUT of a part of a file (`Content-Range`): several connections write one file at the same time,
//! in any order.
//!
//! A part goes into a file that is there, and that has a temporary name as godwit's clients choose
//! it. So a file that lacks parts has no final name: MOVE gives that, and not while a part is
//! written. What was answered with success is as durable as the settings want.
//!
//! A part that somebody else still writes is taken over, so that a client can go on at once when
//! its connection has died and the server does not know that yet. Of two clients that write under
//! one name, the one that came first is refused.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use godwit_engine::storage::{FileKind, Metadata, WriteMode};
use godwit_http::{range::ContentRange, target::Target};
use godwit_proto::{ByteRange, temporary};
use hyper::{
    HeaderMap, StatusCode,
    body::{Body as _, Incoming},
    header,
};
use tokio::{sync::watch, time::timeout};

use super::{
    answer::{HttpAnswer, Rejected, check_change, empty},
    put::{Receipt, WRITE_BYTES, check_headers, current, failed, receive},
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

/// Parts that are written now, by file.
static WRITTEN: Mutex<BTreeMap<FileId, Vec<Active>>> = Mutex::new(BTreeMap::new());

pub(super) async fn put_part(
    session: &HttpSession,
    target: &Target,
    headers: &HeaderMap,
    body: &mut Incoming,
) -> Result<HttpAnswer, Rejected> {
    session.check_writes()?;
    let part = StoredPart::of(target, headers, body.size_hint().exact())?;
    let (storage, path) = (session.storage(), target.path.clone());
    let found = blocking(move || current(&*storage, &path, Some(part.range.len()))).await?;
    let found = part.check_file(found)?;
    check_change(headers, Some(&found))?;
    // Before it is opened: what is open could be written when it has its final name.
    let place = Arc::new(Place::take(found.unique, part).await?);
    let (storage, path) = (session.storage(), target.path.clone());
    let file = blocking(move || storage.open_write(&path, WriteMode::Keep)).await?;
    if file.as_opened()?.unique != found.unique {
        return Err(conflict("another file has got this name"));
    }
    let mut transfer = Transfer::begin(&session.recorder, What::Put, &target.path, WRITE_BYTES);
    let receipt = Receipt::new(Arc::clone(&file), part.range.start, WRITE_BYTES, []);
    let mut receipt = receipt.keeping(Arc::clone(&place) as _);
    let stored = async {
        tokio::select! {
            received = receive(session, body, &mut receipt, &mut transfer) => received?,
            () = place.taken_over() => {
                return Err(conflict("another request writes these bytes"));
            }
        }
        receipt.finish().await?;
        let committer = &session.committer;
        Ok(committer.commit(Some(file), Vec::new()).await?)
    };
    let stored: Result<(), Rejected> = stored.await;
    transfer.end(stored.as_ref().err().map(failed));
    stored.map(|()| empty(StatusCode::NO_CONTENT))
}

/// Keeps parts from a file that gets another name. Refused while one is written.
pub(super) fn hold(file: &Metadata) -> Result<Place, Rejected> {
    let mut all = written();
    if all.contains_key(&file.unique) {
        return Err(conflict("a part of the file is written just now"));
    }
    let whole = StoredPart {
        range: ByteRange::ALL,
        size: u64::MAX,
    };
    Ok(Place::add(
        all.entry(file.unique).or_default(),
        file.unique,
        whole,
    ))
}

fn conflict(text: &str) -> Rejected {
    Rejected::new(StatusCode::CONFLICT, text)
}

fn written() -> MutexGuard<'static, BTreeMap<FileId, Vec<Active>>> {
    WRITTEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a request writes.
#[derive(Clone, Copy, Debug)]
struct StoredPart {
    range: ByteRange,
    /// Of the whole file.
    size: u64,
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
        match bytes {
            Some(bytes) if bytes == range.len() => {}
            Some(_) => return bad("Content-Length and Content-Range disagree"),
            None => {
                let text = "a part has a Content-Length";
                return Err(Rejected::new(StatusCode::LENGTH_REQUIRED, text));
            }
        }
        let name = target.path.file_name();
        if !name.is_some_and(temporary::is_temporary) {
            let text = "parts are stored under temporary names alone: .godwit-<16 digits>.part";
            return Err(Rejected::new(StatusCode::FORBIDDEN, text));
        }
        Ok(Self { range, size })
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
    part: StoredPart,
    stop: Stop,
}

/// The right to write a part.
pub(super) struct Place {
    file: FileId,
    stop: Stop,
    stopped: watch::Receiver<bool>,
}

impl Place {
    /// Waits for those that write some of the same bytes, and tells them to stop.
    async fn take(file: FileId, part: StoredPart) -> Result<Self, Rejected> {
        let taking = async {
            loop {
                let before = match Self::try_take(file, part)? {
                    Ok(place) => return Ok(place),
                    Err(before) => before,
                };
                for stop in before {
                    stop.closed().await;
                }
            }
        };
        let late = |_| Err(conflict("another request writes these bytes"));
        timeout(LETTING_GO_LIMIT, taking).await.unwrap_or_else(late)
    }

    /// `Err`: those that have to let go first.
    fn try_take(file: FileId, part: StoredPart) -> Result<Result<Self, Vec<Stop>>, Rejected> {
        let mut all = written();
        let active = all.entry(file).or_default();
        if active.iter().any(|other| other.part.size != part.size) {
            let text = "other parts of the file say another size, or it gets another name";
            return Err(conflict(text));
        }
        let overlapping: Vec<_> = (active.iter())
            .filter(|other| {
                let other = other.part.range;
                other.start < part.range.end && part.range.start < other.end
            })
            .map(|other| Arc::clone(&other.stop))
            .collect();
        if !overlapping.is_empty() {
            for stop in &overlapping {
                stop.send_replace(true);
            }
            return Ok(Err(overlapping));
        }
        Ok(Ok(Self::add(active, file, part)))
    }

    fn add(active: &mut Vec<Active>, file: FileId, part: StoredPart) -> Self {
        let (stop, stopped) = watch::channel(false);
        let stop = Arc::new(stop);
        active.push(Active {
            part,
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

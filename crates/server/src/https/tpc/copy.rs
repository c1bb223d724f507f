//! A copy from the request to its end.

use std::{pin::pin, sync::Arc, time::Duration};

use godwit_engine::storage::{FileKind, FileRef, Metadata};
use godwit_http::{digest::Checksum, target::Target};
use godwit_http_client::{Cause, Connection};
use godwit_proto::{ChecksumAlgorithm, FtpPath, error::StorageFailure};
use hyper::{HeaderMap, StatusCode, header};
use rustix::io::Errno;
use tokio::{sync::watch, time::timeout};
use tracing::info;

use super::{
    failed::{Failed, not_allowed},
    order::{CopyDirection, Order},
    pull::Pull,
    push::Push,
    remote::{Presence, Remote, Told, Validator, compare},
    report::{CopyProgress, report},
};
use crate::{
    access::copies::CopyPlace,
    https::{
        answer::{HttpAnswer, Rejected, check_change, conditions, set, validators, with_body},
        body::{AnswerBody, CHUNK_BYTES, LineBody},
        put::{Partial, WRITE_BYTES, check_headers, current},
        record::Transfer,
        session::HttpSession,
    },
    observe::{
        class::Class,
        event::{Entry, What},
    },
    storage::failure,
    transfers::checksums::{blocking, checksum, open},
};

/// How long a copy waits for a checksum that the client does not demand, when all else is done.
const UNASKED_LIMIT: Duration = Duration::from_secs(300);

/// Files up to this length are asked about on the connection that they came on; others while they
/// come, since the source may read the whole file.
const SMALL_BYTES: u64 = 16 << 20;

/// A copy that may begin.
struct Copy {
    session: Arc<HttpSession>,
    order: Order,
    path: FtpPath,
    remote: Arc<Remote>,
    place: CopyPlace,
}

/// What moves.
enum CopyWork {
    Pull(Arrival),
    Push(FileRef, Metadata),
}

/// A file that arrives.
struct Arrival {
    partial: Partial,
    is_new: bool,
    /// Checksums that the client says the file has.
    stated: Vec<Checksum>,
}

pub(in crate::https) async fn copy(
    session: &Arc<HttpSession>,
    target: &Target,
    headers: &HeaderMap,
) -> Result<HttpAnswer, Rejected> {
    let order = Order::read(headers)?;
    let place = session.copy_place()?;
    let (remote, client_info) = (&order.remote, &order.client_info);
    info!(
        session = session.recorder.who.session,
        user = ?session.recorder.who.account.as_deref().unwrap_or(""),
        direction = ?order.direction,
        path = ?target.path,
        ?remote,
        ?client_info,
        "HTTPS copy"
    );
    match order.direction {
        CopyDirection::Pull => pull(session, target, headers, order, place).await,
        CopyDirection::Push => push(session, target, headers, order, place).await,
    }
}

async fn pull(
    session: &Arc<HttpSession>,
    target: &Target,
    headers: &HeaderMap,
    order: Order,
    place: CopyPlace,
) -> Result<HttpAnswer, Rejected> {
    session.check_writes()?;
    let stated = check_headers(target, headers)?;
    let (storage, path) = (session.storage(), target.path.clone());
    let current = blocking(move || current(&*storage, &path, None)).await?;
    if let Some(current) = &current {
        if current.kind == FileKind::Directory {
            let text = "there is a directory of this name";
            return Err(Rejected::new(StatusCode::METHOD_NOT_ALLOWED, text));
        }
        if !order.replaces {
            let text = "the destination exists, and Overwrite is F";
            return Err(Rejected::new(StatusCode::PRECONDITION_FAILED, text));
        }
    }
    check_change(headers, current.as_ref())?;
    let is_new = !order.replaces || conditions(headers).demands_new();
    let mut transfer = Transfer::begin(&session.recorder, What::Put, &target.path, WRITE_BYTES);
    let created = Partial::create(session, &target.path).await;
    let partial = created.map_err(|failure| {
        transfer.end(Some(((&failure).into(), &failure.to_string())));
        Rejected::of_new_name(failure)
    })?;
    let copy = Copy::new(session, target, order, place);
    copy.check_address(&mut transfer).await?;
    let arrival = Arrival {
        partial,
        is_new,
        stated,
    };
    Ok(copy.start(CopyWork::Pull(arrival), transfer))
}

async fn push(
    session: &Arc<HttpSession>,
    target: &Target,
    headers: &HeaderMap,
    order: Order,
    place: CopyPlace,
) -> Result<HttpAnswer, Rejected> {
    let opened = open_file(session, &target.path).await;
    if let Err(failure) = &opened {
        let entry = Entry::new(What::Get).path(&target.path);
        let entry = entry.class(Some(failure.into())).ended(Some(failure));
        session.recorder.record(&entry);
    }
    let (file, metadata) = opened?;
    check_change(headers, Some(&metadata))?;
    let mut transfer = Transfer::begin(&session.recorder, What::Get, &target.path, CHUNK_BYTES);
    let copy = Copy::new(session, target, order, place);
    copy.check_address(&mut transfer).await?;
    Ok(copy.start(CopyWork::Push(file, metadata), transfer))
}

/// Of a file whose answer did not say how long it is. An answer that ends with its connection, and
/// that nothing else vouches for, may have been cut off.
async fn check_length(
    file: &FileRef,
    told: Option<u64>,
    is_vouched_for: bool,
) -> Result<(), Failed> {
    let file = Arc::clone(file);
    let here = blocking(move || file.metadata()).await?.size;
    let text = match told {
        Some(bytes) if bytes == here => return Ok(()),
        Some(bytes) => format!("the source has sent {here} bytes of {bytes}"),
        None if is_vouched_for => return Ok(()),
        None => "nothing says whether the source has sent the whole file".to_owned(),
    };
    Err(Failed::new(Class::Protocol, text))
}

/// Ready when the server stops and has waited for copies as long as it may.
async fn stopped(mut stop: watch::Receiver<bool>) {
    drop(stop.wait_for(|stops| *stops).await);
}

async fn open_file(
    session: &HttpSession,
    path: &FtpPath,
) -> Result<(FileRef, Metadata), StorageFailure> {
    let file = open(session.storage(), path.clone()).await?;
    let path = path.clone();
    blocking(move || {
        let metadata = file.as_opened()?;
        match metadata.kind {
            FileKind::File => Ok((file, metadata)),
            // It may have no end.
            _ => Err(failure(
                Errno::PERM,
                &format!("read the special file {path}"),
            )),
        }
    })
    .await
}

impl Copy {
    fn new(
        session: &Arc<HttpSession>,
        target: &Target,
        mut order: Order,
        place: CopyPlace,
    ) -> Self {
        let remote = Remote {
            connector: place.connector().clone(),
            url: order.remote.clone(),
            headers: std::mem::take(&mut order.headers),
            progress: Arc::new(CopyProgress::default()),
        };
        Self {
            session: Arc::clone(session),
            order,
            path: target.path.clone(),
            remote: Arc::new(remote),
            place,
        }
    }

    /// Refuses a server whose addresses are not allowed. Other failures are told in the answer.
    async fn check_address(&self, transfer: &mut Transfer) -> Result<(), Rejected> {
        let origin = &self.order.remote.origin;
        match self.remote.connector.resolve(origin).await {
            Err(error) if matches!(error.cause, Cause::Refused(_)) => {
                transfer.end(Some((Class::NoConnection, &error.to_string())));
                Err(Rejected::new(StatusCode::FORBIDDEN, not_allowed(&error)))
            }
            _ => Ok(()),
        }
    }

    /// Starts the work, and answers with its markers.
    fn start(self, work: CopyWork, mut transfer: Transfer) -> HttpAnswer {
        let stop = self.session.stop.subscribe();
        let body = LineBody::new(|lines| {
            tokio::spawn(async move {
                let progress = Arc::clone(&self.remote.progress);
                let moving = async {
                    match work {
                        CopyWork::Pull(arrival) => self.pull(arrival).await,
                        CopyWork::Push(file, metadata) => self.push(file, &metadata).await,
                    }
                };
                let working = async {
                    tokio::select! {
                        biased;
                        moved = moving => moved,
                        () = stopped(stop) => {
                            Err(Failed::new(Class::Aborted, "the server is shutting down"))
                        }
                    }
                };
                report(working, &progress, &mut transfer, lines).await;
                drop(self.place);
            })
        });
        let mut answer = with_body(StatusCode::ACCEPTED, AnswerBody::Lines(body));
        set(&mut answer, header::CONTENT_TYPE, "text/perf-marker-stream");
        answer
    }

    async fn pull(&self, arrival: Arrival) -> Result<(), Failed> {
        let Arrival {
            mut partial,
            is_new,
            stated,
        } = arrival;
        let algorithms = [ChecksumAlgorithm::Adler32].into_iter();
        let algorithms = algorithms.chain(stated.iter().map(|(algorithm, _)| *algorithm));
        let (remote, file) = (Arc::clone(&self.remote), Arc::clone(&partial.file));
        let pull = Pull::new(remote, file, self.order.streams, algorithms.collect());
        let begun = pull.begin().await?;
        self.check_space(begun.size()).await?;
        let (validator, size) = (begun.validator(), begun.size());
        let is_delimited = begun.is_delimited();
        let mut told = Told {
            checksums: begun.checksums()?,
            ..Told::default()
        };
        let is_small = size.is_some_and(|size| size <= SMALL_BYTES);
        let mut found = match told.checksums.is_empty() {
            false => begun.finish(&self.place).await?.0,
            true if is_small => {
                let (found, kept) = begun.finish(&self.place).await?;
                let asking = self.remote.tell(kept, validator.as_ref(), size);
                told = self.told(self.patiently(asking).await)?;
                found
            }
            true => {
                let found;
                (found, told) = self
                    .finish_while_asking(begun.finish(&self.place), validator, size)
                    .await?;
                found
            }
        };
        if size.is_none() {
            let is_verified = !told.checksums.is_empty() || !stated.is_empty();
            check_length(&partial.file, told.bytes, is_delimited || is_verified).await?;
        }
        self.verify(&partial.file, &mut found, &told.checksums)
            .await?;
        for (algorithm, _) in &stated {
            self.find(&partial.file, &mut found, *algorithm).await?;
        }
        compare(&stated, &found)?;
        let named = partial.give_name(&self.session, &self.path, is_new).await;
        Ok(named?)
    }

    /// Takes a large file, while the source makes its checksum.
    async fn finish_while_asking(
        &self,
        moving: impl Future<Output = Result<(Vec<Checksum>, Option<Connection>), Failed>>,
        validator: Option<Validator>,
        size: Option<u64>,
    ) -> Result<(Vec<Checksum>, Told), Failed> {
        let (mut moving, mut told) = (pin!(moving), None);
        let mut asking = pin!(self.remote.tell(None, validator.as_ref(), size));
        let (found, _) = loop {
            tokio::select! {
                moved = &mut moving => break moved?,
                asked = &mut asking, if told.is_none() => told = Some(asked),
            }
        };
        let told = match told {
            Some(told) => told,
            None => self.patiently(asking).await,
        };
        Ok((found, self.told(told)?))
    }

    /// A checksum that the client does not demand is not waited for as long.
    async fn patiently(
        &self,
        asking: impl Future<Output = Result<Told, Failed>>,
    ) -> Result<Told, Failed> {
        match self.order.must_verify {
            true => asking.await,
            false => timeout(UNASKED_LIMIT, asking)
                .await
                .unwrap_or(Ok(Told::default())),
        }
    }

    /// A server that cannot be asked says nothing.
    fn told(&self, told: Result<Told, Failed>) -> Result<Told, Failed> {
        match told {
            Err(failed) if failed.is_transient && !self.order.must_verify => Ok(Told::default()),
            told => told,
        }
    }

    async fn check_space(&self, size: Option<u64>) -> Result<(), Failed> {
        // The login may have ended while the source made it wait.
        let (storage, path) = (Arc::clone(&self.session.unscoped), self.path.clone());
        let Some(size) = size.filter(|size| *size > 0) else {
            return Ok(());
        };
        let free = blocking(move || storage.free_bytes(&path)).await?;
        match free < size {
            true => {
                let doing = format!("store {size} bytes at {}", self.path);
                Err(failure(Errno::NOSPC, &doing).into())
            }
            false => Ok(()),
        }
    }

    async fn push(&self, file: FileRef, metadata: &Metadata) -> Result<(), Failed> {
        let push = Push {
            remote: Arc::clone(&self.remote),
            file: Arc::clone(&file),
            size: metadata.size,
            replaces: self.order.replaces,
        };
        let (mut found, kept) = push.run().await?;
        let now = {
            let file = Arc::clone(&file);
            blocking(move || file.metadata()).await?
        };
        if validators(&now).tag != validators(metadata).tag {
            return Err(Failed::changed());
        }
        let asking = self.remote.tell(kept, None, Some(metadata.size));
        let asked = self.patiently(asking).await;
        let told = self.told(asked)?;
        if told.presence == Presence::Absent {
            let text = "the destination has answered with success, and does not have the file";
            return Err(Failed::new(Class::NotFound, text));
        }
        if let Some(bytes) = told.bytes.filter(|bytes| *bytes != metadata.size) {
            let text = format!("the destination has {bytes} bytes of {}", metadata.size);
            return Err(Failed::new(Class::Checksum, text));
        }
        self.verify(&file, &mut found, &told.checksums).await
    }

    /// Compares the checksums of both sides; `found` are those that are known here.
    async fn verify(
        &self,
        file: &FileRef,
        found: &mut Vec<Checksum>,
        told: &[Checksum],
    ) -> Result<(), Failed> {
        let Some((first, _)) = told.first() else {
            return match self.order.must_verify {
                true => {
                    let text = "checksum verification is demanded, and the remote side has none";
                    Err(Failed::new(Class::Checksum, text))
                }
                false => Ok(()),
            };
        };
        let is_known = |(algorithm, _): &Checksum| found.iter().any(|(of, _)| of == algorithm);
        if !told.iter().any(is_known) {
            self.find(file, found, *first).await?;
        }
        compare(told, found)
    }

    /// Reads the file for a checksum that was not made on the way.
    async fn find(
        &self,
        file: &FileRef,
        found: &mut Vec<Checksum>,
        algorithm: ChecksumAlgorithm,
    ) -> Result<(), Failed> {
        if !found.iter().any(|(of, _)| *of == algorithm) {
            let turns = &self.session.turns;
            let file = Arc::clone(file);
            let hex = checksum(file, algorithm, 0, None, turns, &mut |_| true).await?;
            found.push((algorithm, hex));
        }
        Ok(())
    }
}

//! GET, HEAD, PUT and DELETE of objects.

use std::sync::Arc;

use godwit_engine::storage::{FileKind, FileRef, Metadata};
use godwit_http::{
    conditions::{Validators, Verdict, range_counts},
    range::{Selection, select},
};
use godwit_proto::{ByteRange, ChecksumAlgorithm, FtpPath, error::StorageFailure};
use hyper::{HeaderMap, StatusCode, header};
use rustix::io::Errno;

use super::{
    super::{
        answer::{
            HttpAnswer, check_change, conditions, empty, header_text, set, set_validators,
            validators,
        },
        body::{AnswerBody, CHUNK_BYTES, ChunkBody, FileChunks, Part},
        change::{is_directory, sync_parent},
        get::{OpenResource, content_range, open},
        put::{Partial, Receipt, WRITE_BYTES, current, metadata, prune},
        record::Transfer,
        session::HttpSession,
    },
    bucket,
    notes::{CRC32C, Notes},
    payload::{Payload, base64_of},
    place::ObjectPlace,
    refused::S3Error,
};
use crate::{
    observe::event::{Entry, What},
    transfers::checksums::blocking,
};

/// How often a directory is made that another request removes again and again.
const MAKINGS_MAX: usize = 3;

pub(super) enum Found {
    Object(FileRef, Metadata),
    Mark(Metadata),
}

/// What has the key.
pub(super) async fn find(session: &HttpSession, place: &ObjectPlace) -> Result<Found, S3Error> {
    let opened = open(session, &place.path).await;
    match (opened, place.is_mark) {
        (Ok(OpenResource::File(file, metadata)), false) => Ok(Found::Object(file, metadata)),
        (Ok(OpenResource::Directory(_)), true) => {
            let (storage, path) = (session.storage(), place.path.clone());
            let metadata = blocking(move || storage.stat(&path)).await?;
            Ok(Found::Mark(metadata))
        }
        (Ok(_), _) => Err(S3Error::no_key()),
        (Err(failure), _) => Err(missing(session, place, failure).await),
    }
}

/// Without its bucket an object is missing for another reason.
async fn missing(session: &HttpSession, place: &ObjectPlace, failure: StorageFailure) -> S3Error {
    let refused = S3Error::from(failure);
    if refused.status != StatusCode::NOT_FOUND {
        return refused;
    }
    let found = bucket::find(session, &place.bucket).await;
    found.err().unwrap_or(refused)
}

pub(super) async fn head(
    session: &HttpSession,
    place: &ObjectPlace,
    headers: &HeaderMap,
) -> Result<HttpAnswer, S3Error> {
    let found = find(session, place).await?;
    let (metadata, notes) = match found {
        Found::Mark(metadata) => (metadata, Notes::default()),
        Found::Object(file, metadata) => {
            let notes = notes_of(&file, &metadata).await?;
            (metadata, notes)
        }
    };
    if let Some(answer) = unmet(headers, &validators(&metadata))? {
        return Ok(answer);
    }
    let size = match place.is_mark {
        true => 0,
        false => metadata.size,
    };
    let mut answer = empty(StatusCode::OK);
    if let Some(range) = chosen(headers, &validators(&metadata), size)? {
        answer = empty(StatusCode::PARTIAL_CONTENT);
        set(
            &mut answer,
            header::CONTENT_RANGE,
            content_range(range, size),
        );
        set(&mut answer, header::CONTENT_LENGTH, range.len());
    } else {
        set(&mut answer, header::CONTENT_LENGTH, size);
        notes.tell_checksums(headers, &mut answer);
    }
    describe(&mut answer, notes, &metadata);
    Ok(answer)
}

pub(super) async fn get(
    session: &HttpSession,
    place: &ObjectPlace,
    headers: &HeaderMap,
) -> Result<HttpAnswer, S3Error> {
    let found = find(session, place).await.inspect_err(|refused| {
        let entry = Entry::new(What::Get).path(&place.path);
        let entry = entry
            .class(Some(refused.class()))
            .ended(Some(&refused.text));
        session.recorder.record(&entry);
    })?;
    let (file, metadata) = match found {
        Found::Object(file, metadata) => (file, metadata),
        Found::Mark(_) => return head(session, place, headers).await,
    };
    let (known, size) = (validators(&metadata), metadata.size);
    if let Some(answer) = unmet(headers, &known)? {
        return Ok(answer);
    }
    let chosen = chosen(headers, &known, size)?;
    let range = chosen.unwrap_or(ByteRange {
        start: 0,
        end: size,
    });
    let mut answer = match chosen {
        None => empty(StatusCode::OK),
        Some(range) => {
            let mut answer = empty(StatusCode::PARTIAL_CONTENT);
            set(
                &mut answer,
                header::CONTENT_RANGE,
                content_range(range, size),
            );
            answer
        }
    };
    let notes = notes_of(&file, &metadata).await?;
    if chosen.is_none() {
        notes.tell_checksums(headers, &mut answer);
    }
    describe(&mut answer, notes, &metadata);
    set(&mut answer, header::CONTENT_LENGTH, range.len());
    let transfer = Transfer::begin(&session.recorder, What::Get, &place.path, CHUNK_BYTES);
    let chunks = Box::new(FileChunks::new(file, [Part::Range(range)]));
    *answer.body_mut() = AnswerBody::Chunks(ChunkBody::new(chunks, Some(range.len()), transfer));
    Ok(answer)
}

pub(super) async fn notes_of(file: &FileRef, metadata: &Metadata) -> Result<Notes, StorageFailure> {
    let (file, metadata) = (Arc::clone(file), metadata.clone());
    blocking(move || Ok(Notes::of_file(&*file, &metadata))).await
}

fn describe(answer: &mut HttpAnswer, notes: Notes, metadata: &Metadata) {
    notes.describe(answer, metadata);
    set_validators(answer, &validators(metadata));
    set(answer, header::ACCEPT_RANGES, "bytes");
}

/// The answer where a condition is not met.
fn unmet(headers: &HeaderMap, known: &Validators) -> Result<Option<HttpAnswer>, S3Error> {
    match conditions(headers).check(Some(known), true) {
        Verdict::Proceed => Ok(None),
        Verdict::NotModified => {
            let mut answer = empty(StatusCode::NOT_MODIFIED);
            set_validators(&mut answer, known);
            Ok(Some(answer))
        }
        Verdict::Failed => Err(S3Error::precondition()),
    }
}

/// The part that is asked for. `None`: all.
fn chosen(
    headers: &HeaderMap,
    known: &Validators,
    size: u64,
) -> Result<Option<ByteRange>, S3Error> {
    let range = header_text(headers, header::RANGE)
        .filter(|_| range_counts(header_text(headers, header::IF_RANGE), known));
    match range.map(|range| select(range, size)) {
        None | Some(Selection::Whole) => Ok(None),
        Some(Selection::Unsatisfiable) => Err(S3Error::range(size)),
        Some(Selection::Parts(ranges)) => match ranges[..] {
            [range] => Ok(Some(range)),
            _ => Err(S3Error::not_implemented("a list of ranges")),
        },
    }
}

pub(super) async fn put(
    session: &HttpSession,
    place: &ObjectPlace,
    headers: &HeaderMap,
    body: Payload<'_>,
) -> Result<HttpAnswer, S3Error> {
    session.check_writes()?;
    if place.is_mark {
        return put_mark(session, place, body).await;
    }
    let notes = Notes::of_request(headers)?;
    check_name(session, place, headers, body.length()).await?;
    let mut transfer = Transfer::begin(&session.recorder, What::Put, &place.path, WRITE_BYTES);
    let is_new = conditions(headers).demands_new();
    let stored = store(session, place, body, notes, is_new, &mut transfer).await;
    let failure = stored.as_ref().err();
    transfer.end(failure.map(|refused| (refused.class(), &*refused.text)));
    let (held, known) = stored?;
    let mut answer = empty(StatusCode::OK);
    set_validators(&mut answer, &known);
    for (name, value) in held {
        set(&mut answer, header::HeaderName::from_static(name), value);
    }
    Ok(answer)
}

/// Refuses a name that is a directory's, and what a condition excludes.
pub(super) async fn check_name(
    session: &HttpSession,
    place: &ObjectPlace,
    headers: &HeaderMap,
    length: Option<u64>,
) -> Result<(), S3Error> {
    if headers.contains_key(header::IF_MATCH) {
        // Nothing would keep another writer away between the look and the new name.
        return Err(S3Error::not_implemented("If-Match of a change"));
    }
    let bucket = bucket::find(session, &place.bucket).await?;
    let (storage, path) = (session.storage(), place.path.clone());
    let found = blocking(move || {
        if let Some(length) = length.filter(|length| *length > 0)
            && storage.free_bytes(&bucket)? < length
        {
            let doing = format!("store {length} bytes at {path}");
            return Err(crate::storage::failure(Errno::NOSPC, &doing));
        }
        current(&*storage, &path, None)
    });
    let current = found.await.map_err(of_new_name)?;
    if current
        .as_ref()
        .is_some_and(|current| current.kind == FileKind::Directory)
    {
        let text = "there is a directory of this name, which holds other keys";
        return Err(S3Error::new(StatusCode::CONFLICT, "InvalidRequest", text));
    }
    Ok(check_change(headers, current.as_ref())?)
}

/// A component of the key may be a file.
fn of_new_name(failure: StorageFailure) -> S3Error {
    match failure.errno == Errno::NOTDIR.raw_os_error() {
        true => {
            let text = "what the key has before a slash is an object, which holds no other keys";
            S3Error::new(StatusCode::CONFLICT, "InvalidRequest", text)
        }
        false => failure.into(),
    }
}

type Held = Vec<(&'static str, String)>;

async fn store(
    session: &HttpSession,
    place: &ObjectPlace,
    mut body: Payload<'_>,
    notes: Notes,
    is_new: bool,
    transfer: &mut Transfer,
) -> Result<(Held, Validators), S3Error> {
    let partial = begin(session, place).await?;
    let own = ChecksumAlgorithm::Crc32c;
    let algorithms = body.algorithms().into_iter().chain([own]);
    let mut receipt = Receipt::new(Arc::clone(&partial.file), 0, WRITE_BYTES, algorithms);
    while let Some(bytes) = body.next().await? {
        transfer.moved(bytes.len());
        receipt.take(&bytes).await?;
    }
    let found = receipt.finish().await?;
    let held = body.compare(&found)?;
    let mut checksums = held.clone();
    if !held.iter().any(|(name, _)| *name == CRC32C) {
        let own = found.iter().find(|(algorithm, _)| *algorithm == own);
        checksums.extend(own.map(|(_, value)| (CRC32C, base64_of(value))));
    }
    let notes = notes.with_checksums(&checksums);
    let known = finish(session, place, partial, &notes, is_new).await?;
    Ok((held, known))
}

/// A file under a temporary name beside the object's. Directories that are made for it go with it,
/// if it does not get its name.
pub(super) async fn begin(session: &HttpSession, place: &ObjectPlace) -> Result<Partial, S3Error> {
    let mut made = Vec::new();
    match create(session, place, &mut made).await {
        Ok(mut partial) => {
            partial.made = made;
            Ok(partial)
        }
        Err(refused) => {
            let storage = Arc::clone(&session.unscoped);
            let pruned = blocking(move || {
                prune(&*storage, &made);
                Ok(())
            });
            pruned.await?;
            Err(refused)
        }
    }
}

async fn create(
    session: &HttpSession,
    place: &ObjectPlace,
    made: &mut Vec<FtpPath>,
) -> Result<Partial, S3Error> {
    for _ in 1..MAKINGS_MAX {
        match Partial::create(session, &place.path).await {
            Err(failure) if failure.errno == Errno::NOENT.raw_os_error() => {
                made.extend(make_directories(session, place).await?);
            }
            created => return created.map_err(of_new_name),
        }
    }
    Partial::create(session, &place.path)
        .await
        .map_err(of_new_name)
}

/// Gives a whole file its name.
pub(super) async fn finish(
    session: &HttpSession,
    place: &ObjectPlace,
    mut partial: Partial,
    notes: &Notes,
    is_new: bool,
) -> Result<Validators, S3Error> {
    if let Some(modified) = notes.modified() {
        partial.set_modified(modified).await?;
    }
    let (file, kept) = (Arc::clone(&partial.file), notes.clone());
    blocking(move || kept.put(&*file)).await?;
    let named = partial.give_name(session, &place.path, is_new).await;
    named.map_err(of_new_name)?;
    Ok(validators(&metadata(&partial.file).await?))
}

/// Makes the directories of a key, below its bucket. Returns those that were not there.
async fn make_directories(
    session: &HttpSession,
    place: &ObjectPlace,
) -> Result<Vec<FtpPath>, S3Error> {
    let (storage, unscoped) = (session.storage(), Arc::clone(&session.unscoped));
    let wanted = directories(place);
    let making = blocking(move || {
        // Those that are there are left alone: a login may have no right to make them.
        let known = wanted.iter().rposition(|path| storage.stat(path).is_ok());
        let Some(known) = known else {
            return Ok(None);
        };
        let mut made = Vec::new();
        for path in &wanted[known + 1..] {
            match storage.create_dir(path) {
                Err(failure) if failure.errno == Errno::EXIST.raw_os_error() => {}
                Err(failure) => {
                    prune(&*unscoped, &made);
                    return Err(failure);
                }
                Ok(()) => made.push(path.clone()),
            }
        }
        Ok(Some((made, wanted[known..].to_vec())))
    });
    let making = making.await.map_err(of_new_name)?;
    let (made, parents) = making.ok_or_else(S3Error::no_bucket)?;
    for path in &made {
        let entry = Entry::new(What::Mkdir).path(path);
        session
            .recorder
            .change(entry, &Ok::<(), StorageFailure>(()));
    }
    // The names in them; the last is that of the object's directory, which is committed with it.
    let parents = parents[..parents.len().saturating_sub(1)].to_vec();
    session.unscoped_committer.commit(None, parents).await?;
    Ok(made)
}

/// The bucket, and the directories below it that lead to the key.
fn directories(place: &ObjectPlace) -> Vec<FtpPath> {
    let mut directories = Vec::new();
    let mut above = place.path.parent();
    while let Some(path) = above.filter(|path| path.parent().is_some()) {
        above = path.parent();
        directories.push(path);
    }
    directories.reverse();
    directories
}

/// An object whose key ends in a slash is a directory.
async fn put_mark(
    session: &HttpSession,
    place: &ObjectPlace,
    body: Payload<'_>,
) -> Result<HttpAnswer, S3Error> {
    bucket::find(session, &place.bucket).await?;
    body.whole(0).await.map_err(|refused| match refused.code {
        "MaxMessageLengthExceeded" => {
            S3Error::argument("the key is that of a directory, which has no bytes")
        }
        _ => refused,
    })?;
    let above = make_directories(session, place).await?;
    let (storage, unscoped) = (session.storage(), Arc::clone(&session.unscoped));
    let path = place.path.clone();
    let made = blocking(move || {
        match storage.create_dir(&path) {
            Err(failure) if failure.errno == Errno::EXIST.raw_os_error() => {}
            Err(failure) => {
                prune(&*unscoped, &above);
                return Err(failure);
            }
            Ok(()) => {}
        }
        storage.stat(&path)
    });
    let made = made.await;
    let entry = Entry::new(What::Mkdir).path(&place.path);
    session.recorder.change(entry, &made);
    let made = made.map_err(of_new_name)?;
    if made.kind != FileKind::Directory {
        let text = "there is an object of this name without the slash";
        return Err(S3Error::new(StatusCode::CONFLICT, "InvalidRequest", text));
    }
    sync_parent(session, &place.path).await?;
    let mut answer = empty(StatusCode::OK);
    set_validators(&mut answer, &validators(&made));
    Ok(answer)
}

pub(super) async fn delete(
    session: &HttpSession,
    place: &ObjectPlace,
    headers: &HeaderMap,
) -> Result<HttpAnswer, S3Error> {
    session.check_writes()?;
    bucket::find(session, &place.bucket).await?;
    remove(session, place, headers).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Removes an object, if there is one, and directories that are empty without it.
pub(super) async fn remove(
    session: &HttpSession,
    place: &ObjectPlace,
    headers: &HeaderMap,
) -> Result<(), S3Error> {
    let gone = |failure: &StorageFailure| {
        [Errno::NOENT, Errno::NOTDIR]
            .iter()
            .any(|errno| errno.raw_os_error() == failure.errno)
    };
    let (storage, path) = (session.storage(), place.path.clone());
    let current = match blocking(move || storage.stat(&path)).await {
        Ok(current) => Some(current),
        Err(failure) if gone(&failure) => None,
        Err(failure) => return Err(failure.into()),
    };
    // A directory is no object, and one that others are in has no mark of its own.
    let current = current.filter(|current| match current.kind {
        FileKind::Directory => place.is_mark && is_directory(current),
        _ => !place.is_mark,
    });
    check_change(headers, current.as_ref())?;
    // The directory of the login stays: without it the key would reach nothing.
    if current.is_none() || place.path == session.home {
        return Ok(());
    }
    let (storage, path, is_mark) = (session.storage(), place.path.clone(), place.is_mark);
    let removed = blocking(move || {
        let removed = match is_mark {
            true => storage.remove_dir(&path),
            false => storage.remove_file(&path),
        };
        match removed {
            Err(failure) if gone(&failure) => Ok(()),
            Err(failure) if is_mark && failure.errno == Errno::NOTEMPTY.raw_os_error() => Ok(()),
            other => other,
        }
    });
    let removed = removed.await;
    session
        .recorder
        .change(Entry::new(What::Delete).path(&place.path), &removed);
    removed?;
    match sync_parent(session, &place.path).await {
        // With another object, its last.
        Err(failure) if gone(&failure) => {}
        other => other?,
    }
    // The first is the bucket, which stays, as the directory of the login does. So does one that
    // is not empty, or that the login may not remove.
    let (storage, above) = (session.storage(), directories(place));
    let home = above.iter().rposition(|path| *path == session.home);
    let first = home.map_or(1, |home| home + 1).min(above.len());
    let pruned = blocking(move || {
        prune(&*storage, &above[first..]);
        Ok(())
    });
    Ok(pruned.await?)
}

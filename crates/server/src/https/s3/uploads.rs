//! Objects in parts. Each part is a file, in a directory of its upload below the bucket:
//!
//! ```text
//!   /bucket/.godwit-uploads/ID/manifest     whose upload it is, and of what
//!                             /00001         a part, renamed there when it is whole
//! ```
//! What no client finishes, `--reap-after` removes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::SystemTime,
};

use base64::{
    Engine as _, engine::general_purpose::STANDARD, engine::general_purpose::URL_SAFE_NO_PAD,
};
use godwit_engine::storage::{
    FastPath, File, FileKind, Metadata, Storage, WriteMode, digest::Digest,
};
use godwit_http::s3::{
    PART_BYTES_MAX,
    answers::Part,
    requests::{Query, part_number},
    written::{Answer, time},
};
use godwit_proto::{ChecksumAlgorithm, FtpPath, error::StorageFailure};
use hyper::{HeaderMap, StatusCode, header};
use rustix::{
    fs::{XattrFlags, fgetxattr, fsetxattr},
    io::Errno,
    rand::{GetRandomFlags, getrandom},
};
use serde::{Deserialize, Serialize};

use super::{
    super::{
        answer::{HttpAnswer, empty, set, set_validators, validators},
        change::long_call,
        put::{Partial, Receipt, WRITE_BYTES, metadata},
        record::Transfer,
        session::HttpSession,
    },
    bucket,
    listing::{is_encoded, max_of},
    notes::Notes,
    payload::{Payload, base64_of},
    place::ObjectPlace,
    refused::S3Error,
    xml,
};
use crate::{
    access::{long_calls::CallKind, rights::Operation},
    observe::event::What,
    storage::{
        failure,
        leftovers::{UPLOADS, is_upload},
    },
    transfers::checksums::blocking,
};

/// Uploads of an account that are open in a bucket at a time.
const UPLOADS_MAX: usize = 1000;

/// Those of all accounts: a listing reads them all.
const UPLOADS_OF_BUCKET_MAX: usize = 10_000;

/// Bytes of the name of an upload: random ones behind those of its account.
const ID_BYTES: usize = 24;

const ACCOUNT_BYTES: usize = 6;

/// How often an upload is begun while the ends of others remove the directory of all.
const BEGINNINGS_MAX: usize = 100;

/// How often a directory is removed that parts still arrive in.
const REMOVALS_MAX: usize = 3;

const MANIFEST: &str = "manifest";

/// Bytes of one: key and metadata.
const MANIFEST_BYTES_MAX: usize = 32 << 10;

/// Parts and uploads that one answer has.
const ENTRIES_MAX: usize = 1000;

/// Attribute of the CRC32C of a part, where the file system has attributes.
const ATTRIBUTE: &str = "user.godwit.crc32c";

/// What an upload is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    key: Vec<u8>,
    pub(super) notes: Notes,
}

/// An upload that is open.
pub(super) struct Upload {
    pub(super) directory: FtpPath,
    pub(super) manifest: Manifest,
}

fn directory_of_all(bucket: &FtpPath) -> Result<FtpPath, StorageFailure> {
    bucket
        .join(UPLOADS.as_bytes())
        .map_err(|_| failure(Errno::INVAL, "name uploads"))
}

pub(super) fn named(directory: &FtpPath, name: &str) -> Result<FtpPath, StorageFailure> {
    directory
        .join(name.as_bytes())
        .map_err(|_| failure(Errno::INVAL, "name a part"))
}

pub(super) fn part_name(number: u32) -> String {
    format!("{number:05}")
}

/// Refuses who may not store the object: parts lie where the login may have no rights.
fn check_rights(session: &HttpSession, place: &ObjectPlace) -> Result<(), S3Error> {
    session.check_writes()?;
    match session.may(Operation::Create, &place.path) {
        true => Ok(()),
        false => Err(S3Error::denied("the login may not store this object")),
    }
}

pub(super) async fn create(
    session: &HttpSession,
    place: &ObjectPlace,
    headers: &HeaderMap,
) -> Result<HttpAnswer, S3Error> {
    check_rights(session, place)?;
    if place.is_mark {
        return Err(S3Error::argument(
            "the key is that of a directory, which has no bytes",
        ));
    }
    let manifest = Manifest {
        key: place.key.clone(),
        notes: Notes::of_request(headers)?,
    };
    let bucket = bucket::find(session, &place.bucket).await?;
    let storage = Arc::clone(&session.unscoped);
    let account = session.sharing.clone();
    let made = blocking(move || begin(&*storage, &bucket, &account, &manifest));
    let Some((id, directory)) = made.await? else {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let text = "the account, or the bucket, has too many open uploads: abort some";
        return Err(S3Error::new(status, "SlowDown", text));
    };
    let parents = [directory.parent(), Some(directory)];
    let parents = parents.into_iter().flatten().collect();
    session.unscoped_committer.commit(None, parents).await?;
    let mut answer = Answer::new("InitiateMultipartUploadResult");
    answer.field("Bucket", &place.bucket);
    let key = answer.key("Key", &place.key);
    key.or_else(|_| answer.key("Key", b""))
        .map_err(|why| S3Error::argument(&why.to_string()))?;
    answer.field("UploadId", &id);
    Ok(xml(StatusCode::OK, answer.finish()))
}

/// Name and directory of a new upload. `None`: there are too many.
fn begin(
    storage: &dyn Storage,
    bucket: &FtpPath,
    account: &str,
    manifest: &Manifest,
) -> Result<Option<(String, FtpPath)>, StorageFailure> {
    let all = directory_of_all(bucket)?;
    let Some(id) = new_id(storage, &all, account)? else {
        return Ok(None);
    };
    let directory = named(&all, &id)?;
    let mut made = make(storage, &all, &directory);
    for _ in 1..BEGINNINGS_MAX {
        match made {
            // The last upload has ended, and its end has removed the directory of all.
            Err(failure) if is_gone(&failure) => made = make(storage, &all, &directory),
            _ => break,
        }
    }
    if made.is_err() {
        // Others may be in it.
        drop(storage.remove_dir(&all));
    }
    made?;
    let write = || {
        let file = storage.open_write(&named(&directory, MANIFEST)?, WriteMode::New)?;
        let text = serde_json::to_vec(manifest).unwrap_or_default();
        file.write_all_at(0, &text)
    };
    let written = write();
    if written.is_err() {
        // The first failure is told.
        drop(storage.remove_tree(&directory));
        drop(storage.remove_dir(&all));
    }
    written?;
    Ok(Some((id, directory)))
}

fn make(storage: &dyn Storage, all: &FtpPath, directory: &FtpPath) -> Result<(), StorageFailure> {
    match storage.create_dir(all) {
        Err(failure) if failure.errno == Errno::EXIST.raw_os_error() => {}
        made => made?,
    }
    storage.create_dir(directory)
}

/// A name that says whose upload it is. `None`: there are too many.
fn new_id(
    storage: &dyn Storage,
    all: &FtpPath,
    account: &str,
) -> Result<Option<String>, StorageFailure> {
    let mut bytes = [0; ID_BYTES];
    let (of_account, random) = bytes.split_at_mut(ACCOUNT_BYTES);
    let mut digest = Digest::new(ChecksumAlgorithm::Sha256);
    digest.update(account.as_bytes());
    let digits = digest.finish();
    for (byte, digits) in of_account.iter_mut().zip(digits.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).unwrap_or_default();
        *byte = u8::from_str_radix(digits, 16).unwrap_or_default();
    }
    getrandom(random, GetRandomFlags::empty()).map_err(|errno| failure(errno, "name an upload"))?;
    let of_account = URL_SAFE_NO_PAD.encode(of_account);
    let (mut count, mut own) = (0, 0);
    let listed = match storage.list(all) {
        Err(failure) if is_gone(&failure) => None,
        listed => Some(listed?),
    };
    for entry in listed.into_iter().flatten() {
        let is_own = entry?.0.starts_with(of_account.as_bytes());
        (count, own) = (count + 1, own + usize::from(is_own));
        if count >= UPLOADS_OF_BUCKET_MAX || own >= UPLOADS_MAX {
            return Ok(None);
        }
    }
    Ok(Some(URL_SAFE_NO_PAD.encode(bytes)))
}

fn read_manifest(storage: &dyn Storage, directory: &FtpPath) -> Result<Manifest, StorageFailure> {
    let file = storage.open_read(&named(directory, MANIFEST)?)?;
    let mut text = vec![0; MANIFEST_BYTES_MAX];
    let mut got = 0;
    while got < text.len() {
        match file.read_at(got as u64, &mut text[got..])? {
            0 => break,
            more => got += more,
        }
    }
    serde_json::from_slice(&text[..got])
        .map_err(|_| failure(Errno::NOENT, "read what an upload is of"))
}

fn is_gone(failure: &StorageFailure) -> bool {
    failure.errno == Errno::NOENT.raw_os_error()
}

/// The upload of this name, if it is one of the object.
pub(super) async fn find(
    session: &HttpSession,
    place: &ObjectPlace,
    id: &str,
) -> Result<Upload, S3Error> {
    check_rights(session, place)?;
    if !is_upload(id.as_bytes()) {
        return Err(S3Error::no_upload());
    }
    let bucket = bucket::find(session, &place.bucket).await?;
    let (storage, id) = (Arc::clone(&session.unscoped), id.to_owned());
    let found = blocking(move || {
        let directory = named(&directory_of_all(&bucket)?, &id)?;
        let manifest = read_manifest(&*storage, &directory)?;
        Ok(Upload {
            directory,
            manifest,
        })
    });
    match found.await {
        Ok(upload) if upload.manifest.key == place.key => Ok(upload),
        Err(failure) if !is_gone(&failure) => Err(failure.into()),
        _ => Err(S3Error::no_upload()),
    }
}

pub(super) async fn put_part(
    session: &HttpSession,
    place: &ObjectPlace,
    id: &str,
    number: Option<&str>,
    body: Payload<'_>,
) -> Result<HttpAnswer, S3Error> {
    let number = number.and_then(part_number);
    let number = number.ok_or_else(|| S3Error::argument("partNumber is 1 to 10000"))?;
    if body.length().is_some_and(|length| length > PART_BYTES_MAX) {
        let text = "a part has at most 5 GiB";
        return Err(S3Error::new(
            StatusCode::BAD_REQUEST,
            "EntityTooLarge",
            text,
        ));
    }
    let upload = find(session, place, id).await?;
    let mut transfer = Transfer::begin(&session.recorder, What::Put, &place.path, WRITE_BYTES);
    let stored = store(session, &upload, number, body, &mut transfer).await;
    let failure = stored.as_ref().err();
    transfer.end(failure.map(|refused| (refused.class(), &*refused.text)));
    let (held, metadata) = stored?;
    let mut answer = empty(StatusCode::OK);
    set_validators(&mut answer, &validators(&metadata));
    for (name, value) in held {
        set(&mut answer, header::HeaderName::from_static(name), value);
    }
    Ok(answer)
}

async fn store(
    session: &HttpSession,
    upload: &Upload,
    number: u32,
    mut body: Payload<'_>,
    transfer: &mut Transfer,
) -> Result<(Vec<(&'static str, String)>, Metadata), S3Error> {
    let path = named(&upload.directory, &part_name(number))?;
    let (storage, directory, length) = (
        Arc::clone(&session.unscoped),
        upload.directory.clone(),
        body.length().unwrap_or(0),
    );
    let free = blocking(move || storage.free_bytes(&directory)).await?;
    if length > 0 && free < length {
        return Err(failure(Errno::NOSPC, &format!("store {length} bytes")).into());
    }
    let made = Partial::unscoped(session, &path).await;
    let mut partial = made.map_err(of_upload)?;
    let mut algorithms = body.algorithms();
    algorithms.push(ChecksumAlgorithm::Crc32c);
    let mut receipt = Receipt::new(Arc::clone(&partial.file), 0, WRITE_BYTES, algorithms);
    let mut got = 0;
    while let Some(bytes) = body.next().await? {
        got += bytes.len() as u64;
        if got > PART_BYTES_MAX {
            let text = "a part has at most 5 GiB";
            return Err(S3Error::new(
                StatusCode::BAD_REQUEST,
                "EntityTooLarge",
                text,
            ));
        }
        transfer.moved(bytes.len());
        receipt.take(&bytes).await?;
    }
    let found = receipt.finish().await?;
    let held = body.compare(&found)?;
    let crc32c = found
        .into_iter()
        .find(|(of, _)| *of == ChecksumAlgorithm::Crc32c);
    if let Some((_, crc32c)) = crc32c {
        let file = Arc::clone(&partial.file);
        let noted = blocking(move || {
            note_crc32c(&*file, &crc32c);
            Ok(())
        });
        noted.await?;
    }
    let named = partial.give_name_unscoped(session, &path).await;
    named.map_err(of_upload)?;
    Ok((held, metadata(&partial.file).await?))
}

/// Its directory is gone: another request has completed or aborted it.
fn of_upload(failure: StorageFailure) -> S3Error {
    match is_gone(&failure) {
        true => S3Error::no_upload(),
        false => failure.into(),
    }
}

fn note_crc32c(file: &dyn File, digits: &str) {
    if let FastPath::Descriptor(descriptor) = file.fast_path() {
        // Without it clients have to believe the size.
        let digits = digits.as_bytes();
        let _ = fsetxattr(descriptor, ATTRIBUTE, digits, XattrFlags::empty());
    }
}

/// In base64.
fn noted_crc32c(file: &dyn File) -> Option<String> {
    let FastPath::Descriptor(descriptor) = file.fast_path() else {
        return None;
    };
    let mut digits = [0; 8];
    let count = fgetxattr(descriptor, ATTRIBUTE, &mut digits).ok()?;
    let digits = std::str::from_utf8(digits.get(..count)?).ok()?;
    let sum = base64_of(digits);
    STANDARD
        .decode(&sum)
        .is_ok_and(|sum| sum.len() == 4)
        .then_some(sum)
}

/// A part as it is told.
pub(super) fn part_of(number: u32, file: &dyn File, metadata: &Metadata) -> Part {
    Part {
        number,
        size: metadata.size,
        tag: validators(metadata).tag.to_string(),
        crc32c: noted_crc32c(file),
    }
}

pub(super) async fn list_parts(
    session: &HttpSession,
    place: &ObjectPlace,
    id: &str,
    query: &Query,
) -> Result<HttpAnswer, S3Error> {
    let max = max_of(query, "max-parts", ENTRIES_MAX)?;
    let marker = match query.get("part-number-marker") {
        None | Some("") => 0,
        Some(text) => text
            .parse::<u32>()
            .map_err(|_| S3Error::argument("part-number-marker is no number"))?,
    };
    let upload = find(session, place, id).await?;
    let (storage, directory) = (Arc::clone(&session.unscoped), upload.directory);
    let listed = blocking(move || {
        let mut numbers = Vec::new();
        for entry in storage.list(&directory)? {
            let number = std::str::from_utf8(&entry?.0).ok().and_then(part_number);
            numbers.extend(number.filter(|number| *number > marker));
        }
        numbers.sort_unstable();
        let is_truncated = max > 0 && numbers.len() > max;
        numbers.truncate(max);
        let mut parts = Vec::new();
        for number in numbers {
            let file = match storage.open_read(&named(&directory, &part_name(number))?) {
                Err(failure) if is_gone(&failure) => continue,
                file => file?,
            };
            let metadata = file.as_opened()?;
            parts.push((part_of(number, &*file, &metadata), metadata.modified));
        }
        Ok((parts, is_truncated))
    });
    let (parts, is_truncated) = listed.await.map_err(of_upload)?;
    let mut answer = Answer::new("ListPartsResult");
    answer.field("Bucket", &place.bucket);
    answer.field("UploadId", id);
    answer.field("PartNumberMarker", &marker.to_string());
    if let Some((last, _)) = parts.last().filter(|_| is_truncated) {
        answer.field("NextPartNumberMarker", &last.number.to_string());
    }
    answer.field("MaxParts", &max.to_string());
    answer.field("IsTruncated", &is_truncated.to_string());
    answer.field("StorageClass", "STANDARD");
    for (part, modified) in &parts {
        answer.part(part, *modified);
    }
    Ok(xml(StatusCode::OK, answer.finish()))
}

pub(super) async fn abort(
    session: &HttpSession,
    place: &ObjectPlace,
    id: &str,
) -> Result<HttpAnswer, S3Error> {
    let upload = find(session, place, id).await?;
    remove(session, upload.directory).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

pub(super) async fn remove(session: &HttpSession, directory: FtpPath) -> Result<(), S3Error> {
    let storage = Arc::clone(&session.unscoped);
    let removed = blocking(move || {
        let mut removed = storage.remove_tree(&directory);
        for _ in 1..REMOVALS_MAX {
            match removed {
                // A part has arrived meanwhile.
                Err(failure) if failure.errno == Errno::NOTEMPTY.raw_os_error() => {
                    removed = storage.remove_tree(&directory);
                }
                _ => break,
            }
        }
        removed?;
        if let Some(all) = directory.parent() {
            // Another upload may be there.
            drop(storage.remove_dir(&all));
        }
        Ok(())
    });
    removed.await.map_err(of_upload)
}

/// ListMultipartUploads: those of objects that the login may store.
pub(super) async fn list(
    session: &HttpSession,
    bucket: &FtpPath,
    query: &Query,
) -> Result<HttpAnswer, S3Error> {
    let known = [
        "encoding-type",
        "key-marker",
        "max-uploads",
        "prefix",
        "upload-id-marker",
        "uploads",
    ];
    if !query.has_only(&known) {
        return Err(S3Error::not_implemented("the request"));
    }
    let max = max_of(query, "max-uploads", ENTRIES_MAX)?;
    let (storage, at) = (Arc::clone(&session.unscoped), bucket.clone());
    let turn = session.long_calls.turn(CallKind::Listing).await?;
    let listed = long_call(session, &turn, move |_, stop| all(&*storage, &at, stop));
    let listed = listed.await?;
    let marker = (
        query
            .get("key-marker")
            .unwrap_or_default()
            .as_bytes()
            .to_vec(),
        query.get("upload-id-marker").unwrap_or_default().to_owned(),
    );
    let prefix = query.get("prefix").unwrap_or_default().as_bytes();
    let is_behind = |key: &[u8], id: &str| match marker.1.is_empty() {
        true => key > marker.0.as_slice(),
        false => (key, id) > (marker.0.as_slice(), marker.1.as_str()),
    };
    let name = String::from_utf8_lossy(bucket.file_name().unwrap_or_default()).into_owned();
    let mut found: Vec<_> = (listed.into_iter())
        .filter(|(key, id, _)| key.starts_with(prefix) && is_behind(key, id))
        .filter(|(key, ..)| {
            let place = ObjectPlace::within(&name, bucket, key);
            place.is_ok_and(|place| check_rights(session, &place).is_ok())
        })
        .collect();
    found.sort_unstable();
    // Nothing can be asked for behind a page without entries.
    let is_truncated = max > 0 && found.len() > max;
    found.truncate(max);
    let mut answer = Answer::new("ListMultipartUploadsResult");
    answer.field("Bucket", &name);
    if is_encoded(query)? {
        answer.encode_keys();
    }
    answer.field("MaxUploads", &max.to_string());
    answer.field("IsTruncated", &is_truncated.to_string());
    let mut write = || {
        answer.key("KeyMarker", &marker.0)?;
        answer.key("Prefix", prefix)?;
        if let Some((key, id, _)) = found.last().filter(|_| is_truncated) {
            answer.key("NextKeyMarker", key)?;
            answer.field("NextUploadIdMarker", id);
        }
        for (key, id, initiated) in &found {
            answer.within("Upload", |answer| {
                answer.key("Key", key)?;
                answer.field("UploadId", id);
                answer.field("Initiated", &time(*initiated));
                answer.field("StorageClass", "STANDARD");
                Ok(())
            })?;
        }
        Ok(())
    };
    let written: Result<(), godwit_http::s3::written::BadText> = write();
    written.map_err(|why| S3Error::argument(&why.to_string()))?;
    Ok(xml(StatusCode::OK, answer.finish()))
}

type Listed = (Vec<u8>, String, SystemTime);

/// Key, name and time of all open uploads: at most as many as there may be.
fn all(
    storage: &dyn Storage,
    bucket: &FtpPath,
    stop: &AtomicBool,
) -> Result<Vec<Listed>, StorageFailure> {
    let all = directory_of_all(bucket)?;
    let entries = match storage.list(&all) {
        Err(failure) if is_gone(&failure) => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        if stop.load(Ordering::Relaxed) {
            return Err(failure(Errno::CANCELED, "list uploads"));
        }
        let (name, metadata) = entry?;
        if found.len() == UPLOADS_OF_BUCKET_MAX {
            break;
        }
        if !is_upload(&name) || metadata.kind != FileKind::Directory {
            continue;
        }
        let id = String::from_utf8_lossy(&name).into_owned();
        let directory = named(&all, &id)?;
        let initiated = match storage.stat(&named(&directory, MANIFEST)?) {
            Ok(manifest) => manifest.modified,
            Err(failure) if is_gone(&failure) => continue,
            Err(failure) => return Err(failure),
        };
        match read_manifest(storage, &directory) {
            Ok(manifest) => found.push((manifest.key, id, initiated)),
            Err(failure) if is_gone(&failure) => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::{fs, thread};

    use godwit_engine::storage::PosixStorage;

    use super::*;

    fn manifest() -> Manifest {
        Manifest {
            key: b"k".to_vec(),
            notes: Notes::default(),
        }
    }

    fn with_bucket() -> (tempfile::TempDir, PosixStorage, FtpPath) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("b")).unwrap();
        let storage = PosixStorage::rooted(folder.path()).unwrap();
        (folder, storage, FtpPath::new("/b").unwrap())
    }

    #[test]
    fn an_account_with_many_uploads_leaves_room_to_others() {
        let (folder, storage, bucket) = with_bucket();
        let (id, _) = begin(&storage, &bucket, "jo", &manifest())
            .unwrap()
            .unwrap();
        let all = folder.path().join("b").join(UPLOADS);
        for number in 1..UPLOADS_MAX {
            fs::create_dir(all.join(format!("{}{number:024}", &id[..8]))).unwrap();
        }
        let refused = begin(&storage, &bucket, "jo", &manifest()).unwrap();
        assert!(refused.is_none());
        let (id, _) = begin(&storage, &bucket, "sam", &manifest())
            .unwrap()
            .unwrap();
        assert!(is_upload(id.as_bytes()));
    }

    #[test]
    fn uploads_begin_while_others_end() {
        let (folder, storage, bucket) = with_bucket();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let begun = begin(&storage, &bucket, "jo", &manifest()).unwrap();
                        let (_, directory) = begun.unwrap();
                        storage.remove_tree(&directory).unwrap();
                        drop(storage.remove_dir(&directory.parent().unwrap()));
                    }
                });
            }
        });
        assert!(!folder.path().join("b").join(UPLOADS).exists());
    }
}

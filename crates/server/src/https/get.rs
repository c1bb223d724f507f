//! GET and HEAD: files whole or in parts, and directories as pages.

use std::sync::Arc;

use godwit_engine::storage::{Entries, FileKind, FileRef, Metadata, Storage};
use godwit_http::{
    conditions::{Validators, Verdict, range_counts},
    digest::Form,
    range::{ContentRange, Selection, select},
    target::Target,
};
use godwit_proto::{ByteRange, FtpPath, error::StorageFailure};
use hyper::{
    HeaderMap, StatusCode,
    body::Bytes,
    header::{self, HeaderName},
};
use rustix::{
    io::Errno,
    rand::{GetRandomFlags, getrandom},
};

use super::{
    answer::{
        HttpAnswer, Rejected, conditions, empty, header_text, set, set_validators, validators,
        with_body,
    },
    body::{AnswerBody, CHUNK_BYTES, ChunkBody, FileChunks, Part},
    listing::Listing,
    record::Transfer,
    session::HttpSession,
};
use crate::{
    observe::event::{Entry, What},
    storage::failure,
    transfers::checksums::{blocking, checksum},
};

/// Files are what their users say they are: a server that guessed would let one user's page run in
/// the browser of another.
const FILE_TYPE: &str = "application/octet-stream";

pub(super) enum OpenResource {
    File(FileRef, Metadata),
    Directory(Entries),
}

pub(super) async fn get(
    session: &HttpSession,
    target: &Target,
    headers: &HeaderMap,
) -> Result<HttpAnswer, Rejected> {
    let opened = open(session, &target.path).await;
    if let Err(failure) = &opened {
        let entry = Entry::new(What::Get).path(&target.path);
        let entry = entry.class(Some(failure.into())).ended(Some(failure));
        session.recorder.record(&entry);
    }
    match opened? {
        OpenResource::File(file, metadata) => {
            of_file(session, target, headers, file, &metadata).await
        }
        OpenResource::Directory(entries) => {
            let chunks = Box::new(Listing::new(&target.path, entries));
            let transfer =
                Transfer::begin(&session.recorder, What::List, &target.path, CHUNK_BYTES);
            let body = ChunkBody::new(chunks, None, transfer);
            Ok(page(AnswerBody::Chunks(body)))
        }
    }
}

pub(super) async fn head(
    session: &HttpSession,
    target: &Target,
    headers: &HeaderMap,
) -> Result<HttpAnswer, Rejected> {
    match open(session, &target.path).await? {
        OpenResource::Directory(_) => Ok(page(AnswerBody::Text(Bytes::new()))),
        OpenResource::File(file, metadata) => {
            let known = validators(&metadata);
            if let Some(answer) = unmet(headers, &known)? {
                return Ok(answer);
            }
            let mut answer = empty(StatusCode::OK);
            describe(&mut answer, &known);
            set(&mut answer, header::CONTENT_TYPE, FILE_TYPE);
            set(&mut answer, header::CONTENT_LENGTH, metadata.size);
            add_digest(&mut answer, session, headers, file).await?;
            Ok(answer)
        }
    }
}

fn page(body: AnswerBody) -> HttpAnswer {
    let mut answer = with_body(StatusCode::OK, body);
    set(
        &mut answer,
        header::CONTENT_TYPE,
        "text/html; charset=utf-8",
    );
    answer
}

pub(super) async fn open(
    session: &HttpSession,
    path: &FtpPath,
) -> Result<OpenResource, StorageFailure> {
    let (storage, path) = (session.storage(), path.clone());
    blocking(move || open_now(&*storage, &path)).await
}

fn open_now(storage: &dyn Storage, path: &FtpPath) -> Result<OpenResource, StorageFailure> {
    let file = match storage.open_read(path) {
        Err(failure) if failure.errno == Errno::ISDIR.raw_os_error() => {
            return storage.list(path).map(OpenResource::Directory);
        }
        file => file?,
    };
    let metadata = file.as_opened()?;
    match metadata.kind {
        FileKind::File => Ok(OpenResource::File(file, metadata)),
        // It may have no end.
        _ => Err(failure(
            Errno::PERM,
            &format!("read the special file {path}"),
        )),
    }
}

async fn of_file(
    session: &HttpSession,
    target: &Target,
    headers: &HeaderMap,
    file: FileRef,
    metadata: &Metadata,
) -> Result<HttpAnswer, Rejected> {
    let known = validators(metadata);
    if let Some(answer) = unmet(headers, &known)? {
        return Ok(answer);
    }
    let size = metadata.size;
    let range = header_text(headers, header::RANGE)
        .filter(|_| range_counts(header_text(headers, header::IF_RANGE), &known));
    let (status, kind, content_range, parts) = match range.map(|range| select(range, size)) {
        None | Some(Selection::Whole) => {
            let all = ByteRange {
                start: 0,
                end: size,
            };
            (
                StatusCode::OK,
                FILE_TYPE.to_owned(),
                None,
                vec![Part::Range(all)],
            )
        }
        Some(Selection::Unsatisfiable) => {
            let whole = ContentRange {
                range: None,
                size: Some(size),
            };
            let text = "no requested range begins inside the file";
            let refused = Rejected::new(StatusCode::RANGE_NOT_SATISFIABLE, text);
            return Err(refused.with(header::CONTENT_RANGE, whole.to_string()));
        }
        Some(Selection::Parts(ranges)) => match ranges[..] {
            [range] => (
                StatusCode::PARTIAL_CONTENT,
                FILE_TYPE.to_owned(),
                Some(content_range(range, size)),
                vec![Part::Range(range)],
            ),
            _ => {
                let (kind, parts) = multipart(&ranges, size)?;
                (StatusCode::PARTIAL_CONTENT, kind, None, parts)
            }
        },
    };
    let bytes = parts.iter().map(Part::bytes).sum();
    let mut answer = empty(status);
    describe(&mut answer, &known);
    set(&mut answer, header::CONTENT_TYPE, kind);
    set(&mut answer, header::CONTENT_LENGTH, bytes);
    if let Some(range) = content_range {
        set(&mut answer, header::CONTENT_RANGE, range);
    }
    add_digest(&mut answer, session, headers, Arc::clone(&file)).await?;
    let transfer = Transfer::begin(&session.recorder, What::Get, &target.path, CHUNK_BYTES);
    let chunks = Box::new(FileChunks::new(file, parts));
    *answer.body_mut() = AnswerBody::Chunks(ChunkBody::new(chunks, Some(bytes), transfer));
    Ok(answer)
}

/// The answer where a condition is not met.
fn unmet(headers: &HeaderMap, known: &Validators) -> Result<Option<HttpAnswer>, Rejected> {
    match conditions(headers).check(Some(known), true) {
        Verdict::Proceed => Ok(None),
        Verdict::NotModified => {
            let mut answer = empty(StatusCode::NOT_MODIFIED);
            set_validators(&mut answer, known);
            Ok(Some(answer))
        }
        Verdict::Failed => {
            let text = "the file has changed";
            Err(Rejected::new(StatusCode::PRECONDITION_FAILED, text))
        }
    }
}

fn describe(answer: &mut HttpAnswer, known: &Validators) {
    set_validators(answer, known);
    set(answer, header::ACCEPT_RANGES, "bytes");
}

pub(super) fn content_range(range: ByteRange, size: u64) -> String {
    let range = ContentRange {
        range: Some(range),
        size: Some(size),
    };
    range.to_string()
}

/// Several ranges (RFC 9110 §14.6), and the type of the body.
fn multipart(ranges: &[ByteRange], size: u64) -> Result<(String, Vec<Part>), StorageFailure> {
    let mut random = [0; 16];
    getrandom(&mut random, GetRandomFlags::empty())
        .map_err(|errno| failure(errno, "make a boundary"))?;
    let boundary = format!("{:032x}", u128::from_be_bytes(random));
    let mut parts = Vec::with_capacity(2 * ranges.len() + 1);
    for range in ranges {
        let head = format!(
            "\r\n--{boundary}\r\nContent-Type: {FILE_TYPE}\r\nContent-Range: {}\r\n\r\n",
            content_range(*range, size)
        );
        parts.push(Part::Text(head.into_bytes()));
        parts.push(Part::Range(*range));
    }
    let end = format!("\r\n--{boundary}--\r\n");
    parts.push(Part::Text(end.into_bytes()));
    Ok((format!("multipart/byteranges; boundary={boundary}"), parts))
}

/// The form and the algorithm of a checksum that a request wants. RFC 3230 comes first, since its
/// clients may send both.
pub(super) fn wanted(
    headers: &HeaderMap,
) -> Option<(Form, HeaderName, godwit_proto::ChecksumAlgorithm)> {
    let forms = [
        (Form::Rfc3230, "want-digest", "digest"),
        (Form::Rfc9530, "want-repr-digest", "repr-digest"),
    ];
    forms.into_iter().find_map(|(form, want, name)| {
        let algorithm = form.preferred(header_text(headers, want)?)?;
        Some((form, HeaderName::from_static(name), algorithm))
    })
}

/// The checksum of the whole file, whatever part of it is sent. Reads the file.
async fn add_digest(
    answer: &mut HttpAnswer,
    session: &HttpSession,
    headers: &HeaderMap,
    file: FileRef,
) -> Result<(), StorageFailure> {
    let Some((form, name, algorithm)) = wanted(headers) else {
        return Ok(());
    };
    let hex = checksum(file, algorithm, 0, None, &session.turns, &mut |_| true).await?;
    set(answer, name, form.write(algorithm, &hex));
    Ok(())
}

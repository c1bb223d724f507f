//! CopyObject, within this server.

use std::sync::Arc;

use godwit_engine::storage::digest::Digest;
use godwit_http::{
    conditions::{Conditions, Verdict},
    s3::{
        requests::copy_source,
        written::{Answer, time},
    },
};
use godwit_proto::ChecksumAlgorithm;
use hyper::{HeaderMap, StatusCode};

use super::{
    super::{
        answer::{HttpAnswer, conditions, header_text, validators},
        change::long_call,
        put::WRITE_BYTES,
        record::Transfer,
        session::HttpSession,
    },
    completion::append,
    notes::{CRC32C, Notes},
    object::{Found, begin, check_name, find, finish, notes_of},
    payload::{Payload, base64_of},
    place::ObjectPlace,
    refused::S3Error,
    xml,
};
use crate::{access::long_calls::CallKind, observe::event::What};

pub(super) async fn copy(
    session: &HttpSession,
    place: &ObjectPlace,
    headers: &HeaderMap,
    body: Payload<'_>,
) -> Result<HttpAnswer, S3Error> {
    session.check_writes()?;
    body.whole(0).await?;
    let text = |name| header_text(headers, name);
    let source = text("x-amz-copy-source").ok_or_else(|| S3Error::argument("no source"))?;
    let source = copy_source(source).map_err(|why| S3Error::argument(&why.to_string()))?;
    let source = ObjectPlace::new(&source)?;
    if place.is_mark || source.is_mark {
        return Err(S3Error::not_implemented("to copy a directory"));
    }
    let replaces_notes = match text("x-amz-metadata-directive") {
        None | Some("COPY") => false,
        Some("REPLACE") => true,
        Some(_) => {
            return Err(S3Error::argument(
                "x-amz-metadata-directive is COPY or REPLACE",
            ));
        }
    };
    if source.path == place.path && !replaces_notes {
        let text = "an object is copied to itself with other metadata alone";
        return Err(S3Error::new(
            StatusCode::BAD_REQUEST,
            "InvalidRequest",
            text,
        ));
    }
    let Found::Object(file, metadata) = find(session, &source).await? else {
        return Err(S3Error::no_key());
    };
    let conditions_of_source = Conditions {
        if_match: text("x-amz-copy-source-if-match"),
        if_none_match: text("x-amz-copy-source-if-none-match"),
        if_modified_since: text("x-amz-copy-source-if-modified-since"),
        if_unmodified_since: text("x-amz-copy-source-if-unmodified-since"),
    };
    if conditions_of_source.check(Some(&validators(&metadata)), true) != Verdict::Proceed {
        return Err(S3Error::precondition());
    }
    let notes = match replaces_notes {
        true => Notes::of_request(headers)?,
        false => notes_of(&file, &metadata).await?.dated(&metadata),
    };
    check_name(session, place, headers, Some(metadata.size)).await?;
    let mut transfer = Transfer::begin(&session.recorder, What::Put, &place.path, WRITE_BYTES);
    let is_new = conditions(headers).demands_new();
    let copying = async {
        let turn = session.long_calls.turn(CallKind::Change).await?;
        let partial = begin(session, place).await?;
        let (size, into) = (metadata.size, Arc::clone(&partial.file));
        let copied = long_call(session, &turn, move |_, stop| {
            let mut digest = Digest::new(ChecksumAlgorithm::Crc32c);
            append(&*file, size, &*into, 0, stop, &mut |bytes| {
                digest.update(bytes);
            })?;
            Ok(digest.finish())
        });
        let notes = notes.with_checksums(&[(CRC32C, base64_of(&copied.await?))]);
        finish(session, place, partial, &notes, is_new).await
    };
    let copied = copying.await;
    let failure = copied.as_ref().err();
    transfer.end(failure.map(|refused| (refused.class(), &*refused.text)));
    let known = copied?;
    let mut answer = Answer::new("CopyObjectResult");
    answer.field("LastModified", &time(known.modified));
    answer.field("ETag", &known.tag.to_string());
    Ok(xml(StatusCode::OK, answer.finish()))
}

//! PROPFIND: properties of a file, or of a directory and what is in it.

use godwit_engine::storage::{Entries, FileKind, Metadata};
use godwit_http::{
    dav::{BadXml, Depth, PROPFIND_BYTES_MAX, Wanted},
    multistatus::{HEAD, Resource, TAIL},
    target::Target,
};
use godwit_proto::{FtpPath, error::StorageFailure};
use hyper::{
    HeaderMap, StatusCode,
    body::{Bytes, Incoming},
    header,
};

use super::{
    answer::{HttpAnswer, Rejected, header_text, set, validators, with_body},
    body::{AnswerBody, CHUNK_BYTES, ChunkBody, Chunks},
    received::whole,
    record::Transfer,
    session::HttpSession,
};
use crate::{observe::event::What, transfers::checksums::blocking};

const XML: &str = "application/xml; charset=utf-8";

/// Trees of any size would make a small request cost very much (RFC 4918 §9.1).
const FINITE_DEPTH: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:error \
    xmlns:D=\"DAV:\"><D:propfind-finite-depth/></D:error>\n";

pub(super) async fn propfind(
    session: &HttpSession,
    target: &Target,
    headers: &HeaderMap,
    body: &mut Incoming,
) -> Result<HttpAnswer, Rejected> {
    let bad = |text: &str| Rejected::new(StatusCode::BAD_REQUEST, text);
    let depth = Depth::parse(header_text(headers, "depth")).ok_or_else(|| bad("bad Depth"))?;
    let body = whole(body, PROPFIND_BYTES_MAX, session.data_limit).await?;
    let wanted = Wanted::read(&body).map_err(|why| match why {
        BadXml::Large => Rejected::new(StatusCode::PAYLOAD_TOO_LARGE, why.to_string()),
        _ => bad(&why.to_string()),
    })?;
    let (storage, path) = (session.storage(), target.path.clone());
    let wants_free_bytes = wanted.wants_free_bytes();
    let (first, entries) = blocking(move || {
        let metadata = storage.stat(&path)?;
        let is_directory = metadata.kind == FileKind::Directory;
        let mut first = resource(&path, &metadata);
        if wants_free_bytes && is_directory {
            first.free_bytes = storage.free_bytes(&path).ok();
        }
        let entries = match is_directory && depth == Depth::One {
            true => Some(storage.list(&path)?),
            false => None,
        };
        Ok((first, entries))
    })
    .await?;
    if depth == Depth::Infinity && first.is_collection {
        let body = AnswerBody::Text(FINITE_DEPTH.into());
        let mut answer = with_body(StatusCode::FORBIDDEN, body);
        set(&mut answer, header::CONTENT_TYPE, XML);
        return Ok(answer);
    }
    let chunks = Box::new(Properties {
        path: target.path.clone(),
        wanted,
        first: Some(first),
        entries,
        is_over: false,
    });
    let transfer = Transfer::begin(&session.recorder, What::List, &target.path, CHUNK_BYTES);
    let body = AnswerBody::Chunks(ChunkBody::new(chunks, None, transfer));
    let mut answer = with_body(StatusCode::MULTI_STATUS, body);
    set(&mut answer, header::CONTENT_TYPE, XML);
    Ok(answer)
}

fn resource(path: &FtpPath, metadata: &Metadata) -> Resource {
    let is_collection = metadata.kind == FileKind::Directory;
    Resource {
        path: path.as_bytes().to_vec(),
        is_collection,
        size: (!is_collection).then_some(metadata.size),
        modified: Some(metadata.modified),
        tag: (!is_collection).then(|| validators(metadata).tag.to_string()),
        free_bytes: None,
    }
}

struct Properties {
    path: FtpPath,
    wanted: Wanted,
    first: Option<Resource>,
    entries: Option<Entries>,
    is_over: bool,
}

impl Chunks for Properties {
    fn next(&mut self) -> Result<Option<Bytes>, StorageFailure> {
        if self.is_over {
            return Ok(None);
        }
        let mut text = String::new();
        if let Some(first) = self.first.take() {
            text.push_str(HEAD);
            first.write(&self.wanted, &mut text);
        }
        while text.len() < CHUNK_BYTES {
            let Some(entry) = self.entries.as_mut().and_then(Iterator::next) else {
                text.push_str(TAIL);
                self.is_over = true;
                break;
            };
            let (name, metadata) = entry?;
            // Others are names that no request can have.
            if let Ok(path) = self.path.join(&name) {
                resource(&path, &metadata).write(&self.wanted, &mut text);
            }
        }
        Ok(Some(text.into()))
    }
}

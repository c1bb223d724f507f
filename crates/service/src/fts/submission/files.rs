//! Files of a submission: each pair of a source and a destination.

use godwit_service_api::job::{FileRequest, MAX_ORDERED_FILES};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::values::{TAPE_METADATA_MAX, file_size, labeled, limited, scitag, stored, tape, text};
use crate::fts::{
    refusal::{FtsResult, Refusal, invalid},
    tokens::{self, EndpointTokens},
};

/// Most bytes of a URL.
const URL_BYTES_MAX: usize = 1100;

/// Most bytes of a file's metadata, as JSON.
const FILE_METADATA_MAX: usize = 4096;

/// Most bytes of all that is kept of a file beside its URLs, as JSON.
const FILE_BYTES_MAX: usize = FILE_METADATA_MAX + 2 * TAPE_METADATA_MAX + 1024;

/// What FTS3 says of a file and ours does not: kept with its metadata.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::fts) struct FileExtra {
    pub(in crate::fts) file_index: u64,
    pub(in crate::fts) activity: String,
    pub(in crate::fts) selection_strategy: String,
    /// As submitted; `ADLER32` where the user gave none.
    pub(in crate::fts) checksum: String,
    pub(in crate::fts) user_filesize: u64,
    pub(in crate::fts) file_metadata: Value,
    pub(in crate::fts) staging_metadata: Value,
    pub(in crate::fts) archive_metadata: Value,
    pub(in crate::fts) scitag: Option<i64>,
}

/// A pair of a file.
pub(super) struct Row {
    pub(super) source: String,
    pub(super) destination: String,
    pub(super) extra: FileExtra,
}

impl Row {
    pub(super) fn request(self, mode: &str) -> FileRequest {
        let checksum = self.extra.checksum.split_once(':').filter(|_| mode != "n");
        FileRequest {
            recursive: false,
            bytes: Some(self.extra.user_filesize).filter(|bytes| *bytes > 0),
            checksum: checksum.map(|(algorithm, value)| {
                // Clients leave zeros out that the algorithm has.
                let value = value.to_ascii_lowercase();
                let algorithm = algorithm.to_ascii_lowercase();
                match algorithm.as_str() {
                    "adler32" | "crc32" | "crc32c" => format!("{algorithm}:{value:0>8}"),
                    _ => format!("{algorithm}:{value}"),
                }
            }),
            metadata: stored(&self.extra),
            source: self.source,
            destination: self.destination,
        }
    }
}

pub(super) fn read_file(
    index: u64,
    file: &Value,
    rows: &mut Vec<Row>,
    tokens: &mut EndpointTokens,
) -> FtsResult<()> {
    let file = file
        .as_object()
        .ok_or_else(|| invalid("a file is not a dictionary"))?;
    let sources = urls(file, "sources")?;
    let destinations = urls(file, "destinations")?;
    tokens::read(file, &sources, &destinations, tokens)?;
    let pairs = sources.len().saturating_mul(destinations.len());
    if pairs > 1 && pairs as u64 > MAX_ORDERED_FILES {
        let text = format!("a file has at most {MAX_ORDERED_FILES} pairs of URLs");
        return Err(invalid(text));
    }
    let extra = FileExtra {
        file_index: index,
        activity: text(file, "activity").unwrap_or_else(|| "default".to_owned()),
        selection_strategy: text(file, "selection_strategy").unwrap_or_else(|| "auto".to_owned()),
        checksum: text(file, "checksum").unwrap_or_else(|| "ADLER32".to_owned()),
        user_filesize: file_size(file.get("filesize"))?,
        file_metadata: labeled(file.get("metadata"), FILE_METADATA_MAX)?,
        staging_metadata: tape(file.get("staging_metadata"))?,
        archive_metadata: tape(file.get("archive_metadata"))?,
        scitag: scitag(file.get("scitag"))?,
    };
    let attached = stored(&extra).unwrap_or_default();
    limited(attached, FILE_BYTES_MAX)?;
    for source in &sources {
        for destination in &destinations {
            rows.push(Row {
                source: source.clone(),
                destination: destination.clone(),
                extra: extra.clone(),
            });
        }
    }
    Ok(())
}

fn urls(file: &Map<String, Value>, name: &str) -> FtsResult<Vec<String>> {
    let missing = || Refusal::bad_request(format!("Missing parameter: '{name}'"));
    let list = file
        .get(name)
        .filter(|list| !list.is_null())
        .ok_or_else(missing)?;
    let list = match list {
        Value::Array(list) => list,
        // FTS3 goes through the letters of a text, and so the first of them lacks a scheme.
        Value::String(text) => {
            let first = text.chars().next().unwrap_or(' ');
            return Err(invalid(format!("Missing scheme ({first})")));
        }
        _ => return Err(invalid(format!("{name} is not a list"))),
    };
    let url = |value: &Value| {
        let url = value
            .as_str()
            .ok_or_else(|| invalid(format!("{name} holds no text")))?;
        let url = url.trim();
        check_url(url)?;
        Ok(url.to_owned())
    };
    list.iter().map(url).collect()
}

fn check_url(url: &str) -> FtsResult<()> {
    if url.len() > URL_BYTES_MAX {
        return Err(invalid(format!("a URL is longer than {URL_BYTES_MAX}")));
    }
    let Some((scheme, rest)) = url
        .split_once("://")
        .filter(|(scheme, _)| !scheme.is_empty())
    else {
        return Err(invalid(format!("Missing scheme ({url})")));
    };
    if scheme.eq_ignore_ascii_case("file") {
        return Err(invalid(format!("Can not transfer local files ({url})")));
    }
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if host.is_empty() {
        return Err(invalid(format!("Missing host ({url})")));
    }
    match path.is_empty() {
        true => Err(invalid(format!("Missing path ({url})"))),
        false => Ok(()),
    }
}

/// The storage of a URL: its scheme and host, without the port.
pub(in crate::fts) fn storage(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split('/').next()?;
    let host = match authority.strip_prefix('[') {
        Some(address) => format!("[{}]", address.split(']').next()?),
        None => authority.split(':').next()?.to_owned(),
    };
    Some(format!("{scheme}://{host}"))
}

pub(super) fn common<'a>(mut urls: impl Iterator<Item = &'a str>) -> Option<String> {
    let first = storage(urls.next()?)?;
    urls.all(|url| storage(url).as_ref() == Some(&first))
        .then_some(first)
}

//! ListObjects, in both versions.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use godwit_http::s3::{
    requests::Query,
    written::{Answer, BadText, time},
};
use godwit_proto::FtpPath;
use hyper::StatusCode;

use super::{
    super::{
        answer::{HttpAnswer, validators},
        body::CHUNK_BYTES,
        change::long_call,
        record::Transfer,
        session::HttpSession,
    },
    refused::S3Error,
    walk::{After, Entry, Page, WantedKeys, page},
    xml,
};
use crate::{access::long_calls::CallKind, observe::event::What};

/// Entries of a page: as many as services give.
const ENTRIES_MAX: usize = 1000;

/// What a request asks for.
pub(super) struct ListRequest {
    wanted: WantedKeys,
    is_second: bool,
    is_encoded: bool,
    /// As they came, for the answer.
    start: String,
    token: Option<String>,
}

impl ListRequest {
    pub(super) fn new(query: &Query) -> Result<Self, S3Error> {
        let is_second = match query.get("list-type") {
            None => false,
            Some("2") => true,
            Some(_) => return Err(S3Error::argument("list-type is 2")),
        };
        let known: &[&str] = match is_second {
            true => &[
                "continuation-token",
                "delimiter",
                "encoding-type",
                "fetch-owner",
                "list-type",
                "max-keys",
                "prefix",
                "start-after",
            ],
            false => &["delimiter", "encoding-type", "marker", "max-keys", "prefix"],
        };
        if !query.has_only(known) {
            return Err(S3Error::not_implemented("the request"));
        }
        let is_grouped = match query.get("delimiter") {
            None | Some("") => false,
            Some("/") => true,
            Some(_) => return Err(S3Error::not_implemented("a delimiter other than /")),
        };
        let max = max_of(query, "max-keys", ENTRIES_MAX)?;
        let start = match is_second {
            true => query.get("start-after"),
            false => query.get("marker"),
        };
        let start = start.unwrap_or_default().to_owned();
        let token = query.get("continuation-token").map(str::to_owned);
        let prefix = query.get("prefix").unwrap_or_default();
        // A marker may be a common prefix of the page before, which is longer than the prefix.
        let is_common = !is_second
            && is_grouped
            && start.ends_with('/')
            && start.starts_with(prefix)
            && start.len() > prefix.len();
        let after = match &token {
            Some(token) => read_token(token)?,
            None if is_common => After::Prefix(start.clone().into_bytes()),
            None => After::Key(start.clone().into_bytes()),
        };
        Ok(Self {
            wanted: WantedKeys {
                prefix: prefix.into(),
                after,
                is_grouped,
                max,
            },
            is_second,
            is_encoded: is_encoded(query)?,
            start,
            token,
        })
    }
}

/// Keys are to be percent-encoded.
pub(super) fn is_encoded(query: &Query) -> Result<bool, S3Error> {
    match query.get("encoding-type") {
        None | Some("") => Ok(false),
        Some("url") => Ok(true),
        Some(_) => Err(S3Error::argument("encoding-type is url")),
    }
}

/// How many entries are asked for.
pub(super) fn max_of(query: &Query, name: &str, most: usize) -> Result<usize, S3Error> {
    match query.get(name) {
        None | Some("") => Ok(most),
        Some(text) => {
            let max = text
                .parse::<u32>()
                .ok()
                .and_then(|max| usize::try_from(max).ok());
            let max = max.ok_or_else(|| S3Error::argument(&format!("{name} is no number")))?;
            Ok(max.min(most))
        }
    }
}

/// Where the next page begins.
fn token(last: &Entry) -> String {
    let (kind, key) = match last {
        Entry::Object(key, _) => ("k", key),
        Entry::Prefix(key) => ("p", key),
    };
    format!("{kind}{}", URL_SAFE_NO_PAD.encode(key))
}

fn read_token(token: &str) -> Result<After, S3Error> {
    let read = |text| URL_SAFE_NO_PAD.decode(text).ok();
    let after = match (token.strip_prefix('k'), token.strip_prefix('p')) {
        (Some(key), _) => read(key).map(After::Key),
        (_, Some(key)) => read(key).map(After::Prefix),
        _ => None,
    };
    after.ok_or_else(|| S3Error::argument("the continuation token is none of this server"))
}

pub(super) async fn list(
    session: &HttpSession,
    name: &str,
    bucket: FtpPath,
    asked: ListRequest,
) -> Result<HttpAnswer, S3Error> {
    let (wanted, path) = (asked.wanted.clone(), bucket.clone());
    let mut transfer = Transfer::begin(&session.recorder, What::List, &bucket, CHUNK_BYTES);
    let listing = async {
        let turn = session.long_calls.turn(CallKind::Listing).await?;
        let page = long_call(session, &turn, move |storage, stop| {
            page(storage, &path, &wanted, stop)
        });
        page.await
    };
    let found = listing.await.map_err(S3Error::from);
    let written = found.and_then(|page| {
        written(name, &asked, &page).map_err(|why| S3Error::argument(&why.to_string()))
    });
    if let Ok(body) = &written {
        transfer.moved(body.len());
    }
    let failure = written.as_ref().err();
    transfer.end(failure.map(|refused| (refused.class(), &*refused.text)));
    Ok(xml(StatusCode::OK, written?))
}

fn written(name: &str, asked: &ListRequest, page: &Page) -> Result<String, BadText> {
    let wanted = &asked.wanted;
    let mut answer = Answer::new("ListBucketResult");
    answer.field("Name", name);
    if asked.is_encoded {
        answer.encode_keys();
    }
    answer.key("Prefix", &wanted.prefix)?;
    answer.field("MaxKeys", &wanted.max.to_string());
    if wanted.is_grouped {
        answer.field("Delimiter", "/");
    }
    answer.field("IsTruncated", &page.is_truncated.to_string());
    let last = page.entries.last().filter(|_| page.is_truncated);
    if asked.is_second {
        answer.field("KeyCount", &page.entries.len().to_string());
        answer.key("StartAfter", asked.start.as_bytes())?;
        if let Some(token) = &asked.token {
            answer.field("ContinuationToken", token);
        }
        if let Some(last) = last {
            answer.field("NextContinuationToken", &token(last));
        }
    } else {
        answer.key("Marker", asked.start.as_bytes())?;
        if let Some(Entry::Object(key, _) | Entry::Prefix(key)) = last {
            answer.key("NextMarker", key)?;
        }
    }
    for entry in &page.entries {
        match entry {
            Entry::Prefix(key) => {
                answer.within("CommonPrefixes", |answer| answer.key("Prefix", key))?;
            }
            Entry::Object(key, metadata) => answer.within("Contents", |answer| {
                answer.key("Key", key)?;
                answer.field("LastModified", &time(metadata.modified));
                answer.field("ETag", &validators(metadata).tag.to_string());
                answer.field("Size", &metadata.size.to_string());
                answer.field("StorageClass", "STANDARD");
                Ok(())
            })?,
        }
    }
    Ok(answer.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(query: &str) -> Result<ListRequest, S3Error> {
        ListRequest::new(&Query::parse(query).unwrap())
    }

    #[test]
    fn pages_go_on_where_the_one_before_has_ended() {
        let entry = Entry::Prefix(b"a/".to_vec());
        let query = format!("list-type=2&continuation-token={}", token(&entry));
        let read = asked(&query).unwrap();
        assert_eq!(read.wanted.after, After::Prefix(b"a/".to_vec()));
        let read = asked("marker=a/&delimiter=/").unwrap();
        assert_eq!(read.wanted.after, After::Prefix(b"a/".to_vec()));
        let read = asked("marker=a/b&max-keys=5000").unwrap();
        assert_eq!(read.wanted.after, After::Key(b"a/b".to_vec()));
        assert_eq!((read.wanted.max, read.is_second), (ENTRIES_MAX, false));
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for (query, code) in [
            ("list-type=3", "InvalidArgument"),
            ("delimiter=-", "NotImplemented"),
            ("versions", "NotImplemented"),
            ("acl", "NotImplemented"),
            ("max-keys=-1", "InvalidArgument"),
            ("encoding-type=x", "InvalidArgument"),
            ("list-type=2&continuation-token=x", "InvalidArgument"),
            ("list-type=2&continuation-token=k!", "InvalidArgument"),
        ] {
            assert_eq!(asked(query).err().unwrap().code, code, "{query}");
        }
    }
}

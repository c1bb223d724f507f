//! A directory as a bucket lists it: page by page, in the lines of MLSD.

use std::io::Write;

use godwit_http::{multistatus::Resource, s3::answers::Page};
use godwit_http_client::StatusCode;
use godwit_proto::{
    FtpPath,
    error::{StorageFailure, TransferFailure},
    facts::{FactSelection, FactType, Facts, write_line},
};

use super::commands::{directory, prefix_of};
use crate::session::http::{
    HttpControl,
    commands::{facts, senseless},
    error::HttpError,
    region::Failure,
    replies::{Failed, refusal},
};

impl HttpControl {
    /// Writes the lines of a directory as its pages come; how many bytes. It has ended well when
    /// the last page is here: what was written before that is a part of a listing.
    pub(in crate::session::http) async fn list_bucket(
        &mut self,
        listed: &FtpPath,
        sink: &mut (dyn Write + Send),
    ) -> Result<u64, Failure> {
        let lost = |error: HttpError| Failure::lost(error.to_string());
        let prefix = prefix_of(listed);
        let nothing = || refusal(StatusCode::NOT_FOUND, "", Failed::Status);
        let Ok(text) = std::str::from_utf8(&prefix) else {
            return Err(Failure::Refused(nothing(), false));
        };
        let (mut token, mut bytes, mut is_first) = (None::<String>, 0, true);
        loop {
            let mut query = vec![
                ("list-type", "2"),
                ("encoding-type", "url"),
                ("delimiter", "/"),
                ("prefix", text),
            ];
            query.extend(token.as_deref().map(|token| ("continuation-token", token)));
            let target = self.bucket().map_err(lost)?.itself(&query);
            let page = match self.page(&target).await.map_err(lost)? {
                Ok(page) => page,
                Err(refused) => return Err(Failure::Refused(refused, !is_first)),
            };
            let is_empty = page.objects.is_empty() && page.prefixes.is_empty();
            let is_last = page.next.is_none();
            if is_first && is_empty && is_last && !prefix.is_empty() {
                return Err(Failure::Refused(nothing(), false));
            }
            // An empty page shows nothing while others follow it.
            if is_last || !is_empty {
                let lines = lines(&prefix, &page, is_first);
                sink.write_all(&lines).map_err(|error| {
                    let (doing, text) = ("take a listing".to_owned(), error.to_string());
                    let errno = error.raw_os_error().unwrap_or(0);
                    let failure = StorageFailure { errno, doing, text };
                    Failure::Transfer(TransferFailure::Storage(failure))
                })?;
                bytes += lines.len() as u64;
                is_first = false;
            }
            match page.next {
                None => return Ok(bytes),
                Some(next) if Some(&next) == token.as_ref() => {
                    return Err(lost(senseless("GET", "it is the same page again")));
                }
                next => token = next,
            }
        }
    }
}

/// The lines of a page. What cannot be a name in a directory keeps its slashes, so that it is
/// refused where names are read: `//`, `.` and `..` are parts of keys like others.
fn lines(prefix: &[u8], page: &Page, is_first: bool) -> Vec<u8> {
    let mut lines = Vec::new();
    if is_first {
        let itself = Facts {
            kind: Some(FactType::Cdir),
            ..Facts::default()
        };
        write_line(&itself, FactSelection::DEFAULT, b".", &mut lines);
        lines.extend_from_slice(b"\r\n");
    }
    let mut add = |facts: &Facts, key: &[u8], name: &[u8]| {
        let is_name = !matches!(name, b"" | b"." | b"..")
            && !name.iter().any(|b| matches!(b, b'/' | b'\r' | b'\n' | 0));
        match is_name {
            true => write_line(facts, FactSelection::DEFAULT, name, &mut lines),
            false => {
                let whole = [b"/", key].concat();
                write_line(facts, FactSelection::DEFAULT, &whole, &mut lines);
            }
        }
        lines.extend_from_slice(b"\r\n");
    };
    let root = FtpPath::root();
    for object in &page.objects {
        let name = object.key.strip_prefix(prefix).unwrap_or(b"");
        // By this some programs make an empty directory.
        if name.is_empty() && object.size == 0 && object.key == prefix {
            continue;
        }
        let resource = Resource {
            is_collection: false,
            size: Some(object.size),
            modified: object.modified,
            ..directory(&root)
        };
        add(&facts(&resource), &object.key, name);
    }
    for key in &page.prefixes {
        let name = key
            .strip_prefix(prefix)
            .and_then(|rest| rest.strip_suffix(b"/"));
        add(&facts(&directory(&root)), key, name.unwrap_or(b""));
    }
    lines
}

//! A directory as PROPFIND lists it, in the lines of MLSD: what reads those trusts no name. The
//! answer is read while it comes, and of one of any length little is held.

use std::io::{self, BufRead, Read, Write};

use godwit_http::{
    dav::BadXml,
    multistatus::{Hrefs, Resources},
};
use godwit_http_client::{Bytes, StatusCode};
use godwit_proto::{
    FtpPath, Reply,
    facts::{FactSelection, FactType, Facts, write_line},
};
use tokio::sync::mpsc;

use super::{
    HttpControl,
    commands::{decoded, facts, senseless, without_slash},
    error::HttpError,
    get::unreached,
    region::{Failure, Validator},
    replies::{Failed, reply},
    server::Dav,
    transfer::listing_failure,
};

/// Parts of the answer that wait to be read.
const CHUNKS: usize = 4;

/// Bytes of lines that are handed on together.
const LINES_BYTES: usize = 64 << 10;

impl HttpControl {
    /// Writes the lines of a directory as its answer comes; how many bytes. It has ended well when
    /// all of the answer is here: what was written before that is a part of a listing.
    pub(super) async fn list(
        &mut self,
        directory: &FtpPath,
        sink: Box<dyn Write + Send>,
    ) -> Result<u64, Failure> {
        let lost = |error: HttpError| Failure::lost(error.to_string());
        if self.server().dav() == Dav::No {
            return Err(Failure::Refused(no_listings(), false));
        }
        let mut exchange = (self.propfind(directory, true, "1").await).map_err(lost)?;
        let status = exchange.answer.status;
        if status != StatusCode::MULTI_STATUS {
            let lacks = matches!(status.as_u16(), 405 | 501);
            let refused = self.refused(exchange, Failed::Status).await;
            let refused = if lacks { no_listings() } else { refused };
            return Err(Failure::Refused(refused, false));
        }
        self.server().set_dav(Dav::Yes);
        let base = without_slash(&decoded(exchange.url.target())).to_vec();
        let hrefs = self.server().hrefs();
        let (sender, chunks) = mpsc::channel(CHUNKS);
        let chunk = Bytes::new();
        let body = Chunks { chunks, chunk };
        // A large one takes a while.
        let writing = tokio::task::spawn_blocking(move || write_lines(&base, body, hrefs, sink));
        let read = loop {
            match exchange.answer.chunk().await {
                Ok(Some(chunk)) => {
                    if sender.send(chunk).await.is_err() {
                        break Ok(());
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(lost(error.into())),
            }
        };
        drop(sender);
        // Nothing is written of this answer any more when another one is asked for.
        let written = (writing.await).unwrap_or(Err(Unlisted::Senseless(BadXml::Malformed)));
        read?;
        let bytes = written.map_err(|why| match why {
            Unlisted::NotDirectory => Failure::Refused(reply(550, "not a directory"), false),
            Unlisted::Nameless => lost(senseless("PROPFIND", "the directory itself is not in it")),
            Unlisted::Senseless(why) => lost(senseless("PROPFIND", &why.to_string())),
            Unlisted::Untaken(error) => listing_failure(&error),
        })?;
        self.wire.done(exchange).await;
        Ok(bytes)
    }

    /// The version of a file by what the server lists. `None`: that tells none.
    pub(super) async fn listed_version(
        &mut self,
        path: &FtpPath,
    ) -> Result<Option<Validator>, Failure> {
        match self.look(path).await {
            Ok(Ok(found)) => Ok(Validator::listed(&found)),
            // What has come of the file stays.
            Ok(Err(refusal)) => Err(Failure::Refused(refusal, true)),
            Err(HttpError::Connection(error)) => Err(unreached(error.into())),
            Err(error) => Err(Failure::lost(error.to_string())),
        }
    }

    /// Fails if a file has another version now.
    pub(super) async fn check_listed(
        &mut self,
        path: &FtpPath,
        known: &Validator,
    ) -> Result<(), Failure> {
        match self.listed_version(path).await? {
            Some(now) if now == *known => Ok(()),
            _ => Err(Failure::Changed),
        }
    }
}

fn no_listings() -> Reply {
    reply(550, "the server has no listings: it speaks no WebDAV")
}

/// Why there is no listing.
#[derive(Debug)]
enum Unlisted {
    /// It is a file.
    NotDirectory,
    /// The directory is not among what is listed.
    Nameless,
    Senseless(BadXml),
    /// The lines are not taken.
    Untaken(io::Error),
}

impl From<BadXml> for Unlisted {
    fn from(why: BadXml) -> Self {
        Self::Senseless(why)
    }
}

/// An answer that another task reads from its server.
struct Chunks {
    chunks: mpsc::Receiver<Bytes>,
    chunk: Bytes,
}

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Chunks {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.chunk.is_empty()
            && let Some(chunk) = self.chunks.blocking_recv()
        {
            self.chunk = chunk;
        }
        Ok(&self.chunk)
    }

    fn consume(&mut self, count: usize) {
        self.chunk = self.chunk.slice(count..);
    }
}

fn write_lines(
    base: &[u8],
    body: impl BufRead,
    hrefs: Hrefs,
    mut sink: impl Write,
) -> Result<u64, Unlisted> {
    let mut resources = Resources::new(body, hrefs)?;
    let (mut lines, mut bytes, mut has_own) = (Vec::new(), 0, false);
    while let Some(resource) = resources.next()? {
        let path = without_slash(&resource.path);
        if path == base {
            if !resource.is_collection {
                return Err(Unlisted::NotDirectory);
            }
            let itself = Facts {
                kind: Some(FactType::Cdir),
                ..facts(&resource)
            };
            write_line(&itself, FactSelection::DEFAULT, b".", &mut lines);
            has_own = true;
        } else {
            let below = path
                .strip_prefix(base)
                .and_then(|rest| rest.strip_prefix(b"/"));
            let has_line_end = path.iter().any(|b| matches!(b, b'\r' | b'\n' | 0));
            // Else whole, so that it is refused where names are read.
            let whole = [b"/", path].concat();
            let name = below.filter(|_| !has_line_end).unwrap_or(&whole);
            write_line(&facts(&resource), FactSelection::DEFAULT, name, &mut lines);
        }
        lines.extend_from_slice(b"\r\n");
        if lines.len() >= LINES_BYTES {
            bytes += lines.len() as u64;
            sink.write_all(&lines).map_err(Unlisted::Untaken)?;
            lines.clear();
        }
    }
    if !has_own {
        return Err(Unlisted::Nameless);
    }
    sink.write_all(&lines).map_err(Unlisted::Untaken)?;
    Ok(bytes + lines.len() as u64)
}

#[cfg(test)]
mod tests {
    use godwit_http::multistatus::{HEAD, TAIL};

    use super::*;

    fn listed(hrefs: &[(&str, bool)]) -> String {
        let mut body = HEAD.to_owned();
        for (href, is_collection) in hrefs {
            let kind = match is_collection {
                true => "<D:collection/>",
                false => "",
            };
            body += &format!(
                "<D:response><D:href>{href}</D:href><D:propstat><D:prop><D:resourcetype>{kind}\
                 </D:resourcetype></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat>\
                 </D:response>"
            );
        }
        body += TAIL;
        let mut lines = Vec::new();
        let bytes = write_lines(b"/d e", body.as_bytes(), Hrefs::Encoded, &mut lines);
        assert_eq!(bytes.unwrap(), lines.len() as u64);
        String::from_utf8(lines).unwrap()
    }

    #[test]
    fn names_are_listed_and_those_outside_keep_a_slash() {
        let listed = listed(&[
            ("/d%20e/", true),
            ("https://h/d%20e/a%20b", false),
            ("/d%20e/sub/", true),
            ("/other", false),
            ("/d%20e/x%2Fy", false),
            ("/d%20e/x%0Ay", false),
            ("/d%20e/../z", false),
        ]);
        let names: Vec<_> = listed
            .lines()
            .map(|line| line.split_once("; ").unwrap().1)
            .collect();
        let expected = [".", "a b", "sub", "//other", "x/y", "//d e/x?y", "../z"];
        assert_eq!(names, expected);
    }
}

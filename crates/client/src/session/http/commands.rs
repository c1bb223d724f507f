//! Commands of a session as requests of HTTP and WebDAV.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, SystemTime},
};

use godwit_engine::control::{ControlError, Event};
use godwit_http::{
    conditions::parse_date,
    digest::Form,
    multistatus::{self, Hrefs, Resource},
};
use godwit_http_client::{Body, Bytes, HeaderValue, Method, Patience, Request, StatusCode, header};
use godwit_proto::{
    ChecksumAlgorithm, Command, FtpPath, Reply,
    error::{FailureKind, failure_kind},
    facts::{FactSelection, FactType, Facts, write_line},
    pi::client::CommandId,
    reply::{BodyStyle, ReplyCode},
    timestamp::Timestamp,
};

use super::{
    error::HttpError,
    exchange::Exchange,
    replies::{Failed, not_offered, refusal, reply},
    server::{Dav, HttpServer},
    wire::{Wire, dav_method},
};

/// Bytes of a PROPFIND's answer for one resource.
const RESOURCE_BYTES_MAX: usize = 1 << 20;

/// The properties that listings need.
const PROPERTIES: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n\
    <D:propfind xmlns:D=\"DAV:\"><D:prop><D:resourcetype/><D:getcontentlength/>\
    <D:getlastmodified/></D:prop></D:propfind>";

/// A server reads a whole file for its checksum, and moves a tree by copying it: it may think for
/// so many times the limit of other answers.
const WORK_FACTOR: u32 = 10;

/// Asks a server of HTTP what a session asks.
pub(crate) struct HttpControl {
    pub(super) wire: Wire,
    peer: Arc<str>,
    queue: VecDeque<(CommandId, Command)>,
    next: u64,
    /// The RNFR that was agreed to.
    pub(super) from: Option<FtpPath>,
    /// Further connections, for requests that are sent at the same time: the next such use them.
    pub(super) more_wires: Vec<Wire>,
}

/// What is at a path, or the refusal to tell.
pub(super) type Looked = Result<Resource, Reply>;

impl HttpControl {
    pub(super) fn new(wire: Wire, peer: Arc<str>) -> Self {
        Self {
            wire,
            peer,
            queue: VecDeque::new(),
            next: 0,
            from: None,
            more_wires: Vec::new(),
        }
    }

    pub(in crate::session) fn peer(&self) -> Arc<str> {
        Arc::clone(&self.peer)
    }

    pub(super) fn server(&self) -> &Arc<HttpServer> {
        &self.wire.server
    }

    pub(in crate::session) fn submit(&mut self, command: &Command) -> CommandId {
        let id = CommandId(self.next);
        self.next += 1;
        self.queue.push_back((id, command.clone()));
        id
    }

    pub(in crate::session) async fn next_event(&mut self) -> Result<Event, ControlError> {
        let Some((id, command)) = self.queue.pop_front() else {
            return std::future::pending().await;
        };
        let answered = self.carry_out(&command).await;
        match answered {
            Ok(reply) => Ok(Event::Final(id, reply)),
            Err(error) => Err(error.of_control(&self.peer)),
        }
    }

    pub(in crate::session) async fn call(
        &mut self,
        command: &Command,
    ) -> Result<Reply, ControlError> {
        self.submit(command);
        loop {
            match self.next_event().await? {
                Event::Final(_, reply) => return Ok(reply),
                Event::Preliminary(..) => {}
            }
        }
    }

    async fn carry_out(&mut self, command: &Command) -> Result<Reply, HttpError> {
        if self.server().bucket.is_some() {
            return Box::pin(self.carry_out_in_bucket(command)).await;
        }
        match command {
            Command::Mlst(Some(path)) => {
                let found = self.look(path).await?;
                Ok(found.map_or_else(|refusal| refusal, |found| described(&found, path)))
            }
            Command::Size(path) => self.size(path).await,
            Command::Mdtm(path) => self.modified(path).await,
            Command::Cwd(path) => Ok(match self.look(path).await? {
                Ok(found) if found.is_collection => reply(250, "directory"),
                Ok(_) => reply(550, "not a directory"),
                Err(refusal) => refusal,
            }),
            Command::Pwd => Ok(reply(257, "\"/\"")),
            Command::Noop => Ok(reply(200, "OK")),
            Command::Dele(path) => self.remove_file(path).await,
            Command::Rmd(path) => self.remove_directory(path).await,
            Command::Mkd(path) => self.make_directory(path).await,
            Command::Rnfr(path) => {
                self.from = Some(path.clone());
                self.rename_from(path).await
            }
            Command::Rnto(path) => match self.from.take() {
                Some(from) => self.rename(&from, path).await,
                None => Ok(reply(503, "RNFR first")),
            },
            Command::Cksm {
                algorithm,
                offset: 0,
                length: None,
                path,
            } => self.checksum(*algorithm, path).await,
            // Room cannot be set aside, and is not missed.
            Command::Allo(_) => Ok(reply(202, "not needed")),
            other => Ok(not_offered(other.verb())),
        }
    }

    /// What is at a path: by PROPFIND, or by HEAD at a server without WebDAV.
    pub(super) async fn look(&mut self, path: &FtpPath) -> Result<Looked, HttpError> {
        if self.server().dav() == Dav::No {
            return self.look_by_head(path).await;
        }
        let mut exchange = self.propfind(path, false, "0").await?;
        let status = exchange.answer.status;
        if status != StatusCode::MULTI_STATUS {
            let refused = self.refused(exchange, Failed::Status).await;
            // Servers without WebDAV answer so, or to every method that they do not know.
            let may_lack = matches!(status.as_u16(), 400 | 403 | 405 | 501);
            if may_lack && self.server().dav() == Dav::Unknown {
                let looked = self.look_by_head(path).await?;
                if looked.is_ok() {
                    self.server().set_dav(Dav::No);
                }
                return Ok(looked);
            }
            return Ok(Err(refused));
        }
        let body = exchange.body(RESOURCE_BYTES_MAX).await?;
        let is_there = |exchange: &Exchange| exchange.url.target().to_owned();
        let asked = is_there(&exchange);
        self.wire.done(exchange).await;
        self.server().set_dav(Dav::Yes);
        let hrefs = self.server().hrefs();
        let resources = (body.as_deref()).map(|body| multistatus::read(body, hrefs));
        let resources = match resources {
            Some(Ok(resources)) => resources,
            Some(Err(error)) => return Err(senseless("PROPFIND", &error.to_string())),
            None => return Err(senseless("PROPFIND", "it is too long")),
        };
        let of_path = |resource: &Resource| {
            let own = without_slash(&resource.path);
            own == without_slash(path.as_bytes()) || own == without_slash(&decoded(&asked))
        };
        let found = resources.into_iter().find(of_path);
        found
            .map(Ok)
            .ok_or_else(|| senseless("PROPFIND", "it is not about the path that was asked for"))
    }

    pub(super) async fn propfind(
        &mut self,
        path: &FtpPath,
        is_directory: bool,
        depth: &'static str,
    ) -> Result<Exchange, HttpError> {
        let target = self.server().target_of(path, is_directory);
        let request = |target: &str| {
            Request::new(dav_method(b"PROPFIND"), target)
                .with(
                    header::HeaderName::from_static("depth"),
                    HeaderValue::from_static(depth),
                )
                .with(
                    header::CONTENT_TYPE,
                    HeaderValue::from_static("application/xml; charset=utf-8"),
                )
                .with_body(Body::Bytes(Bytes::from_static(PROPERTIES.as_bytes())))
        };
        self.wire.send(&target, request).await
    }

    pub(super) async fn head(
        &mut self,
        path: &FtpPath,
        headers: &[(&'static str, String)],
    ) -> Result<Exchange, HttpError> {
        let target = self.server().target_of(path, false);
        let mut patience = Patience::new(None, self.work_limit());
        loop {
            let request = |target: &str| {
                let mut request = Request::new(Method::HEAD, target)
                    .with(header::ACCEPT_ENCODING, HeaderValue::from_static(IDENTITY))
                    .answered_within(patience.limit());
                for (name, value) in headers {
                    if let Ok(value) = HeaderValue::try_from(value) {
                        request = request.with(header::HeaderName::from_static(name), value);
                    }
                }
                request
            };
            match self.wire.send(&target, request).await {
                Err(HttpError::Connection(error)) if patience.asks_again(&error) => {}
                answered => return answered,
            }
        }
    }

    /// What HEAD tells. A path that is redirected to the same with a slash is a directory.
    async fn look_by_head(&mut self, path: &FtpPath) -> Result<Looked, HttpError> {
        let exchange = self.head(path, &[]).await?;
        if !exchange.answer.status.is_success() {
            return Ok(Err(self.refused(exchange, Failed::Status).await));
        }
        let asked = HttpServer::target(path, true);
        let is_collection = exchange.url.target() == asked;
        let found = Resource {
            path: path.as_bytes().to_vec(),
            is_collection,
            size: exchange.answer.bytes().filter(|_| !is_collection),
            modified: exchange.header(header::LAST_MODIFIED).and_then(parse_date),
            tag: None,
            free_bytes: None,
        };
        self.wire.done(exchange).await;
        Ok(Ok(found))
    }

    async fn size(&mut self, path: &FtpPath) -> Result<Reply, HttpError> {
        Ok(match self.look(path).await? {
            Ok(found) if found.is_collection => reply(550, "is a directory"),
            Ok(found) => match found.size {
                Some(size) => reply(213, &size.to_string()),
                None => reply(501, "the server does not tell the size"),
            },
            Err(refusal) => refusal,
        })
    }

    async fn modified(&mut self, path: &FtpPath) -> Result<Reply, HttpError> {
        let found = self.look(path).await?;
        Ok(found.map_or_else(
            |refusal| refusal,
            |found| match found.modified.and_then(timestamp) {
                Some(time) => reply(213, &time.to_string()),
                None => reply(501, "the server does not tell the time"),
            },
        ))
    }

    /// DELETE removes a whole tree: a directory is not removed by the command for files. Another
    /// client may put a directory there between the question and the answer.
    async fn remove_file(&mut self, path: &FtpPath) -> Result<Reply, HttpError> {
        match self.look(path).await? {
            Ok(found) if found.is_collection => return Ok(reply(550, "is a directory")),
            Ok(_) => {}
            Err(refusal) => return Ok(refusal),
        }
        self.change(Method::DELETE, path, false, &[], Failed::Status)
            .await
    }

    /// Only one that is empty. Another client may put a file there between the question and the
    /// answer, which is removed with it.
    async fn remove_directory(&mut self, path: &FtpPath) -> Result<Reply, HttpError> {
        let mut exchange = self.propfind(path, true, "1").await?;
        if exchange.answer.status != StatusCode::MULTI_STATUS {
            return Ok(self.refused(exchange, Failed::Status).await);
        }
        let base = decoded(exchange.url.target());
        // What is longer has more than one name.
        let Some(body) = exchange.body(RESOURCE_BYTES_MAX).await? else {
            return Ok(reply(550, "directory not empty"));
        };
        self.wire.done(exchange).await;
        let Ok(resources) = multistatus::read(&body, self.server().hrefs()) else {
            return Err(senseless("PROPFIND", "it is malformed or too long"));
        };
        match &resources[..] {
            [own] if without_slash(&own.path) != without_slash(&base) => {
                return Err(senseless("PROPFIND", "the directory itself is not in it"));
            }
            [own] if own.is_collection => {}
            [_] => return Ok(reply(550, "not a directory")),
            [] => return Err(senseless("PROPFIND", "it names nothing")),
            _ => return Ok(reply(550, "directory not empty")),
        }
        self.change(Method::DELETE, path, true, &[], Failed::Status)
            .await
    }

    async fn make_directory(&mut self, path: &FtpPath) -> Result<Reply, HttpError> {
        let method = dav_method(b"MKCOL");
        self.change(method, path, true, &[], Failed::Making).await
    }

    /// MOVE takes both names at once: only here can it be said that what has the first is missing.
    async fn rename_from(&mut self, path: &FtpPath) -> Result<Reply, HttpError> {
        if self.server().dav() == Dav::No {
            return Ok(reply(502, "operation not supported: no WebDAV"));
        }
        let follows = matches!(self.queue.front(), Some((_, Command::Rnto(_))));
        if follows {
            return Ok(reply(350, "ready"));
        }
        let found = self.look(path).await?;
        Ok(found.map_or_else(|refusal| refusal, |_| reply(350, "ready")))
    }

    /// Replaces a file, as FTP's servers do, and no directory, which MOVE would do, too. Another
    /// client may put a directory there between the question and the answer.
    async fn rename(&mut self, from: &FtpPath, to: &FtpPath) -> Result<Reply, HttpError> {
        let mut moved = self.move_once(from, to, false, "F").await?;
        // nginx moves a directory by names with a slash alone.
        if moved.text().contains("HTTP 400")
            && self
                .look(from)
                .await?
                .is_ok_and(|found| found.is_collection)
        {
            moved = self.move_once(from, to, true, "F").await?;
        }
        if moved.code.get() != 550 || !moved.text().contains("HTTP 412") {
            return Ok(moved);
        }
        match self.look(to).await? {
            Ok(found) if found.is_collection => Ok(reply(550, "is a directory")),
            // Who cannot tell what is there may not have it replaced.
            Err(refusal) if failure_kind(&refusal) != Some(FailureKind::NotFound) => Ok(refusal),
            Ok(_) | Err(_) => self.move_once(from, to, false, "T").await,
        }
    }

    async fn move_once(
        &mut self,
        from: &FtpPath,
        to: &FtpPath,
        is_directory: bool,
        overwrite: &'static str,
    ) -> Result<Reply, HttpError> {
        if self.server().hrefs() == Hrefs::Literal && to.as_bytes().contains(&b'?') {
            return Ok(reply(553, "names end at a question mark there"));
        }
        let headers = [
            ("destination", self.server().destination(to, is_directory)),
            ("overwrite", overwrite.as_bytes().to_vec()),
        ];
        let method = dav_method(b"MOVE");
        self.change(method, from, is_directory, &headers, Failed::Status)
            .await
    }

    /// RFC 3230 and RFC 9530. A server that does not know the algorithm answers without.
    async fn checksum(
        &mut self,
        algorithm: ChecksumAlgorithm,
        path: &FtpPath,
    ) -> Result<Reply, HttpError> {
        let name = digest_name(algorithm);
        let wanted = [
            ("want-digest", name.to_owned()),
            ("want-repr-digest", format!("{name}=10")),
        ];
        let exchange = self.head(path, &wanted).await?;
        if !exchange.answer.status.is_success() {
            return Ok(self.refused(exchange, Failed::Status).await);
        }
        let told = [(Form::Rfc3230, "digest"), (Form::Rfc9530, "repr-digest")];
        let value = told.into_iter().find_map(|(form, header)| {
            let found = form.read(exchange.answer.header(header)?).ok()?;
            let mut found = found.into_iter().filter(|(of, _)| *of == algorithm);
            found.next().map(|(_, hex)| hex)
        });
        self.wire.done(exchange).await;
        Ok(match value {
            Some(hex) => reply(213, &hex),
            None => reply(504, &format!("the server tells no {algorithm}")),
        })
    }

    /// A request that changes something; its success has no content of interest.
    async fn change(
        &mut self,
        method: Method,
        path: &FtpPath,
        is_directory: bool,
        headers: &[(&'static str, Vec<u8>)],
        failed: Failed,
    ) -> Result<Reply, HttpError> {
        let target = self.server().target_of(path, is_directory);
        let limit = self.work_limit();
        let request = |target: &str| {
            let mut request = Request::new(method.clone(), target).answered_within(limit);
            for (name, value) in headers {
                if let Ok(value) = HeaderValue::from_bytes(value) {
                    request = request.with(header::HeaderName::from_static(name), value);
                }
            }
            request
        };
        let exchange = self.wire.send(&target, request).await?;
        let status = exchange.answer.status;
        // A tree of which a part could not be removed (RFC 4918 §9.6.1).
        if !status.is_success() || status == StatusCode::MULTI_STATUS {
            return Ok(self.refused(exchange, failed).await);
        }
        self.wire.done(exchange).await;
        let code = match *method.as_str() == *"MKCOL" {
            true => 257,
            false => 250,
        };
        Ok(reply(code, "done"))
    }

    /// Makes an empty file, unless there is one.
    pub(super) async fn make_empty(
        &mut self,
        path: &FtpPath,
    ) -> Result<Result<(), Reply>, HttpError> {
        let request = |target: &str| {
            Request::new(Method::PUT, target)
                .with(header::IF_NONE_MATCH, HeaderValue::from_static("*"))
                .with_body(Body::Bytes(Bytes::new()))
        };
        let target = HttpServer::target(path, false);
        let exchange = self.wire.send(&target, request).await?;
        let status = exchange.answer.status;
        if status.is_success() {
            self.wire.done(exchange).await;
            return Ok(Ok(()));
        }
        let refused = self.refused(exchange, Failed::Status).await;
        Ok(match status {
            StatusCode::PRECONDITION_FAILED => Ok(()),
            _ => Err(refused),
        })
    }

    /// The reply for an answer that is no success.
    pub(super) async fn refused(&mut self, mut exchange: Exchange, failed: Failed) -> Reply {
        let text = exchange.reason().await;
        let status = exchange.answer.status;
        self.wire.done(exchange).await;
        refusal(status, &text, failed)
    }

    pub(super) fn work_limit(&self) -> Duration {
        self.server().limits.answer.saturating_mul(WORK_FACTOR)
    }
}

/// The encoding that is none.
pub(super) const IDENTITY: &str = "identity";

pub(super) fn senseless(what: &str, why: &str) -> HttpError {
    HttpError::Senseless(format!("the answer to {what} makes no sense: {why}"))
}

/// The names of RFC 3230, RFC 9530 and of grids.
fn digest_name(algorithm: ChecksumAlgorithm) -> &'static str {
    match algorithm {
        ChecksumAlgorithm::Adler32 => "adler32",
        ChecksumAlgorithm::Crc32c => "crc32c",
        ChecksumAlgorithm::Crc64Nvme => "crc64nvme",
        ChecksumAlgorithm::Crc32 => "crc32",
        ChecksumAlgorithm::Md5 => "md5",
        ChecksumAlgorithm::Sha1 => "sha",
        ChecksumAlgorithm::Sha256 => "sha-256",
        ChecksumAlgorithm::Sha512 => "sha-512",
    }
}

pub(super) fn without_slash(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

/// The path of a target of ours.
pub(super) fn decoded(target: &str) -> Vec<u8> {
    let path = target.split('?').next().unwrap_or_default();
    godwit_http::target::Target::of_path(path)
        .map_or_else(|_| path.as_bytes().to_vec(), |t| t.path.as_bytes().to_vec())
}

pub(super) fn timestamp(time: SystemTime) -> Option<Timestamp> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_secs()).ok().map(Timestamp)
}

/// What a listing says of a file or directory.
pub(super) fn facts(found: &Resource) -> Facts {
    Facts {
        kind: Some(match found.is_collection {
            true => FactType::Dir,
            false => FactType::File,
        }),
        size: found.size.filter(|_| !found.is_collection),
        modify: found.modified.and_then(timestamp),
        ..Facts::default()
    }
}

pub(super) fn described(found: &Resource, path: &FtpPath) -> Reply {
    let mut line = Vec::new();
    write_line(
        &facts(found),
        FactSelection::DEFAULT,
        path.as_bytes(),
        &mut line,
    );
    let code = ReplyCode::of(250);
    Reply::with_body(code, BodyStyle::Blank, "Listing", [line], "End")
}

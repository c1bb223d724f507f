//! PUT to the other server.

use std::{future::pending, sync::Arc, time::Duration};

use godwit_engine::storage::{FileRef, digest::Digest};
use godwit_http::digest::Checksum;
use godwit_http_client::{
    Answer, Bytes, Connection, Method, Request, body, body::ChunkSender, header,
    redirect::Redirects,
};
use godwit_proto::{ChecksumAlgorithm, error::StorageFailure};
use hyper::header::HeaderValue;

use super::{
    failed::Failed,
    remote::{Presence, Remote, refused},
};
use crate::{https::body::CHUNK_BYTES, observe::class::Class, transfers::checksums::blocking};

/// Some servers read the whole file before they answer.
const STORED_LIMIT: Duration = Duration::from_secs(300);

/// A file on its way to the other server.
pub(super) struct Push {
    pub(super) remote: Arc<Remote>,
    pub(super) file: FileRef,
    pub(super) size: u64,
    /// A file that is there already may be replaced.
    pub(super) replaces: bool,
}

impl Push {
    /// Sends all bytes. Returns their checksum, and a connection that may be used again.
    pub(super) async fn run(&self) -> Result<(Vec<Checksum>, Option<Connection>), Failed> {
        let mut kept = None;
        if !self.replaces {
            self.check_absent().await?;
        }
        let mut way = Redirects::new(self.remote.url.clone());
        loop {
            let mut connection = self.remote.connection(&way, kept.take()).await?;
            let (answer, found) = self.put(&way, &mut connection).await?;
            if Redirects::is_redirect(answer.status) {
                way.follow(answer.header(header::LOCATION.as_str()))?;
                kept = Some(connection);
                continue;
            }
            return match (answer.status.is_success(), found) {
                (true, Some(found)) => Ok((vec![found], Some(connection))),
                (true, None) => {
                    let text = "the destination has answered before it had all bytes";
                    Err(Failed::new(Class::Protocol, text))
                }
                (false, _) => Err(refused(answer).await),
            };
        }
    }

    /// A server may ignore the condition of the PUT.
    async fn check_absent(&self) -> Result<(), Failed> {
        let (class, text) = match self.remote.tell(None, None, None).await?.presence {
            Presence::Absent => return Ok(()),
            Presence::There => (Class::Exists, "the destination exists, and Overwrite is F"),
            Presence::Unknown => {
                let text = "cannot tell whether the destination exists, and Overwrite is F";
                (Class::Protocol, text)
            }
        };
        Err(Failed::new(class, text))
    }

    /// One request; the checksum if all bytes were sent.
    async fn put(
        &self,
        way: &Redirects,
        connection: &mut Connection,
    ) -> Result<(Answer, Option<Checksum>), Failed> {
        let (sender, body) = body::channel(Some(self.size));
        let mut request = Request::new(Method::PUT, way.url().target())
            .with_body(body)
            .expecting_continue()
            .answered_within(STORED_LIMIT);
        if !self.replaces {
            request = request.with(header::IF_NONE_MATCH, HeaderValue::from_static("*"));
        }
        let mut found = None;
        let feeding = async {
            match self.feed(sender).await {
                Ok(checksum) => {
                    found = Some(checksum);
                    pending().await
                }
                Err(failed) => failed,
            }
        };
        let answer = tokio::select! {
            // An empty body is sent at once.
            biased;
            failed = feeding => return Err(failed),
            answer = connection.send(self.remote.signed(way, request)) => answer?,
        };
        Ok((answer, found))
    }

    async fn feed(&self, sender: ChunkSender) -> Result<Checksum, Failed> {
        let algorithm = ChecksumAlgorithm::Adler32;
        let (mut offset, mut digest) = (0, Digest::new(algorithm));
        while offset < self.size {
            let chunk;
            (chunk, digest) = self.read(offset, digest).await?;
            if chunk.is_empty() {
                return Err(Failed::changed());
            }
            offset += chunk.len() as u64;
            if sender.send(chunk).await.is_err() {
                // The other server has answered, or is gone: the request says it.
                return pending().await;
            }
            self.remote.progress.set(offset);
        }
        Ok((algorithm, digest.finish()))
    }

    async fn read(
        &self,
        offset: u64,
        mut digest: Digest,
    ) -> Result<(Bytes, Digest), StorageFailure> {
        let file = Arc::clone(&self.file);
        let left = usize::try_from(self.size - offset).unwrap_or(CHUNK_BYTES);
        blocking(move || {
            let mut chunk = vec![0; left.min(CHUNK_BYTES)];
            let got = file.read_at(offset, &mut chunk)?;
            chunk.truncate(got);
            digest.update(&chunk);
            Ok((chunk.into(), digest))
        })
        .await
    }
}

//! An answer to a request: its headers, its body, and why it refuses.

use std::time::Duration;

use godwit_http::s3::answers::Refusal;
use godwit_http_client::{Answer, Connection, Method, Url, header};
use tokio::time::timeout;

use super::{bucket::signing::meant, error::HttpError};

/// Bytes of the answer to a request that has failed.
const REASON_BYTES_MAX: usize = 4 << 10;

/// The same where a service of S3 says why.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// Time for what is read of an answer beside what was asked for.
pub(super) const UNWANTED_LIMIT: Duration = Duration::from_secs(5);

/// An answer, and where it has come from.
pub(super) struct Exchange {
    pub(super) answer: Answer,
    /// Path and query of the last redirect, or of the request.
    pub(super) url: Url,
    pub(super) connection: Connection,
    pub(super) method: Method,
    /// The connection shows the user's certificate.
    pub(super) with_credentials: bool,
    /// Why a service of S3 refuses it.
    pub(super) refusal: Option<Refusal>,
    pub(super) signed: Signed,
    /// The service has refused it with its condition, and its status is well without: that was for
    /// the condition, and not for anything else, if the body says nothing else.
    pub(super) is_well_without_condition: bool,
}

/// What is remembered of a request to a bucket.
#[derive(Clone, Copy, Default)]
pub(super) struct Signed {
    /// Of its keys.
    pub(super) generation: u32,
    /// How far the service's clock was ahead, as far as was known.
    pub(super) ahead_seconds: i64,
    /// Its body can be made again.
    pub(super) is_repeatable: bool,
    /// It is only for where nothing is.
    pub(super) is_conditional: bool,
}

impl Exchange {
    /// A header's text.
    pub(super) fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.answer.header(name.as_str())
    }

    /// How the connection is protected; `None`: in clear.
    pub(super) fn tls(&self) -> Option<&str> {
        self.connection.tls()
    }

    /// The whole body of at most so many bytes; `None`: it is longer.
    pub(super) async fn body(&mut self, bytes_max: usize) -> Result<Option<Vec<u8>>, HttpError> {
        let mut body = Vec::new();
        while let Some(chunk) = self.answer.chunk().await? {
            if body.len() + chunk.len() > bytes_max {
                return Ok(None);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Some(body))
    }

    /// Reads why a service of S3 refuses it, which its status may not say.
    pub(super) async fn read_refusal(&mut self) {
        if self.answer.status.is_success() || self.method == Method::HEAD {
            return;
        }
        let body = timeout(UNWANTED_LIMIT, self.body(REFUSAL_BYTES_MAX)).await;
        let Ok(Ok(Some(body))) = body else { return };
        self.refusal = Refusal::read(&body);
        if let Some(refusal) = &self.refusal {
            self.answer.status = meant(self.answer.status, &refusal.code);
        }
    }

    /// What the server says of a failure; nothing where it says it in HTML.
    pub(super) async fn reason(&mut self) -> String {
        if let Some(Refusal { code, message }) = &self.refusal {
            return match code.as_str() {
                "RequestTimeTooSkewed" => {
                    let theirs = self.header(header::DATE).unwrap_or("another time");
                    format!(
                        "{code}: {message} The service's clock says {theirs}: set the clock of \
                         this machine."
                    )
                }
                "ExpiredToken" | "TokenRefreshRequired" => format!(
                    "{code}: {message} The keys have expired, and where they come from there are \
                     no newer ones: run the same command with new ones."
                ),
                _ => format!("{code}: {message}"),
            };
        }
        let is_text = self
            .header(header::CONTENT_TYPE)
            .is_some_and(|kind| kind.starts_with("text/plain"));
        let mut said = Vec::new();
        let read = async {
            while said.len() < REASON_BYTES_MAX
                && let Ok(Some(chunk)) = self.answer.chunk().await
            {
                said.extend_from_slice(&chunk);
            }
        };
        // The status says enough.
        let _ = timeout(UNWANTED_LIMIT, read).await;
        said.truncate(REASON_BYTES_MAX);
        match is_text {
            true => String::from_utf8_lossy(&said).trim().to_owned(),
            false => String::new(),
        }
    }
}

//! One poll over HTTP, and what was found in a directory.

use std::{fs, io, path::PathBuf, time::Duration};

use godwit_service_api::{
    AGENT_API,
    agent::{BrowseAnswer, PollRequest, PollResponse},
    problem::Problem,
};
use reqwest::{Certificate, Client, Identity, StatusCode};
use serde::Serialize;
use zeroize::Zeroizing;

/// Time for an answer beside what the service may hold it back.
const ANSWER_LIMIT: Duration = Duration::from_secs(15);

const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Longest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// How an agent proves itself to the service, and the service to it.
#[derive(Clone, Default)]
pub struct Authentication {
    /// Sent with each poll.
    pub token: Option<Zeroizing<String>>,
    /// Certificate chain and key, PEM.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// CAs that the agent trusts for the service, PEM; `None`: the system's.
    pub authority: Option<PathBuf>,
}

impl std::fmt::Debug for Authentication {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authentication")
            .field("certificate", &self.certificate)
            .field("authority", &self.authority)
            .finish_non_exhaustive()
    }
}

/// Why a poll failed.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// No connection, or it broke.
    #[error("{0}")]
    Http(String),
    /// The service said no.
    #[error("the service refuses polls: {0}")]
    Refused(Box<Problem>),
    /// The service said something else.
    #[error("the service answered {status}")]
    Status {
        /// What.
        status: StatusCode,
    },
    /// No answer.
    #[error("no answer in time")]
    Late,
    /// The answer is none.
    #[error("the service's answer is none: {0}")]
    Answer(String),
    /// A file of our own.
    #[error("{}: {error}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl From<reqwest::Error> for LinkError {
    fn from(error: reqwest::Error) -> Self {
        // Its own text stops before the cause.
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(deeper) = cause {
            text = format!("{text}: {deeper}");
            cause = deeper.source();
        }
        LinkError::Http(text)
    }
}

#[derive(Clone)]
pub(super) struct Link {
    client: Client,
    url: String,
    token: Option<Zeroizing<String>>,
}

impl Link {
    pub(super) fn new(service: &str, authentication: &Authentication) -> Result<Self, LinkError> {
        let read = |path: &PathBuf| {
            fs::read(path).map_err(|error| LinkError::File {
                path: path.clone(),
                error,
            })
        };
        let mut client = Client::builder().connect_timeout(CONNECT_LIMIT).no_proxy();
        if let Some((certificate, key)) = &authentication.certificate {
            let (certificate, key) = (read(certificate)?, Zeroizing::new(read(key)?));
            client = client.identity(Identity::from_pkcs8_pem(&certificate, &key)?);
        }
        if let Some(authority) = &authentication.authority {
            let authorities = Certificate::from_pem_bundle(&read(authority)?)?;
            client = client.tls_certs_only(authorities);
        }
        Ok(Self {
            client: client.build()?,
            url: format!("{}{AGENT_API}", service.trim_end_matches('/')),
            token: authentication.token.clone(),
        })
    }

    pub(super) async fn poll(&self, request: &PollRequest) -> Result<PollResponse, LinkError> {
        let limit = Duration::from_secs(request.wait_seconds) + ANSWER_LIMIT;
        let body = self.bounded(limit, "poll", request).await?;
        serde_json::from_slice(&body).map_err(|error| LinkError::Answer(error.to_string()))
    }

    pub(super) async fn browsed(&self, answer: &BrowseAnswer) -> Result<(), LinkError> {
        self.bounded(ANSWER_LIMIT, "browse", answer).await.map(drop)
    }

    async fn bounded(
        &self,
        limit: Duration,
        what: &str,
        request: &impl Serialize,
    ) -> Result<Vec<u8>, LinkError> {
        let answer = tokio::time::timeout(limit, self.exchange(what, request)).await;
        answer.unwrap_or(Err(LinkError::Late))
    }

    async fn exchange(&self, what: &str, request: &impl Serialize) -> Result<Vec<u8>, LinkError> {
        let mut post = self
            .client
            .post(format!("{}/{what}", self.url))
            .json(request);
        if let Some(token) = &self.token {
            post = post.bearer_auth(token.as_str());
        }
        let mut answer = post.send().await?;
        let status = answer.status();
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await? {
            if body.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err(LinkError::Answer("it is too long".to_owned()));
            }
            body.extend_from_slice(&chunk);
        }
        if status.is_success() {
            return Ok(body);
        }
        Err(match serde_json::from_slice(&body) {
            Ok(problem) => LinkError::Refused(Box::new(problem)),
            Err(_) => LinkError::Status { status },
        })
    }
}

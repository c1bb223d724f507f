//! Requests to a transfer service.

use std::{
    fs,
    io::{self, BufRead},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use godwit_proto::command::Password;
use godwit_service_api::{
    API,
    account::UserView,
    job::{FileView, JobState, JobView},
    page::{MAX_PAGE, Page},
    problem::Problem,
};
use reqwest::{Certificate, Client, Method, RequestBuilder, Response, StatusCode, Url};
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::{
    Change, FilesShown, ServiceTarget,
    issuer::{IssuerError, is_local, is_local_http},
    logins::{LoginError, LoginFile, StoredLogin},
};
use crate::error::Exit;

/// Time for a connection to come up.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);

/// Longest silence within an answer. Event streams send a comment more often than that.
const READ_LIMIT: Duration = Duration::from_secs(60);

/// Longest time until the answer to a list of files, as the service has it.
const LIST_LIMIT: Duration = Duration::from_secs(6 * 3600);

/// Most bytes of an answer that is not a stream.
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// Most bytes of a token.
const MAX_TOKEN_BYTES: u64 = 64 << 10;

/// Why a service did not do it.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// A file of the user's cannot be read.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A line of a list of files.
    #[error("{}: line {line}: {why}", path.display())]
    List {
        /// Which.
        path: PathBuf,
        /// From 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// There is no answer.
    #[error("{url}: {why}")]
    Unreachable {
        /// Of the service.
        url: String,
        /// Why.
        why: String,
    },
    /// It answered with an error.
    #[error("{url}: {problem}")]
    Refused {
        /// Of the service.
        url: String,
        /// What it says.
        problem: Box<Problem>,
    },
    /// The answer is not that of a transfer service.
    #[error("{url}: the answer is not that of a transfer service: {why}")]
    Answer {
        /// Of the service.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// What `godwit login` does or has done.
    #[error(transparent)]
    Login(#[from] LoginError),
    /// The user stopped waiting; the job continues.
    #[error("stopped watching; the job continues (godwit job {0})")]
    Interrupted(Uuid),
    /// The user gave no more time to wait; the jobs continue.
    #[error("{left} of {all} jobs have not ended after {} s; they continue", limit.as_secs_f64())]
    TimedOut {
        /// Jobs that have not ended.
        left: usize,
        /// All.
        all: usize,
        /// The time.
        limit: Duration,
    },
}

impl ServiceError {
    /// The same request may succeed later.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            ServiceError::Refused { problem, .. } => problem.status == 429 || problem.status >= 500,
            ServiceError::Unreachable { .. } | ServiceError::Answer { .. } => true,
            ServiceError::Login(LoginError::Issuer(error)) => {
                matches!(error, IssuerError::Unreachable { .. })
            }
            _ => false,
        }
    }

    /// The user asks too much at a time.
    pub(super) fn is_limit(&self) -> bool {
        self.status() == Some(429)
    }

    /// The status of HTTP that a service refused with.
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            ServiceError::Refused { problem, .. } => Some(problem.status),
            _ => None,
        }
    }

    /// How it ends the process.
    pub fn exit(&self) -> Exit {
        match self {
            ServiceError::File { .. } | ServiceError::List { .. } => Exit::Usage,
            ServiceError::Refused { problem, .. } => match problem.status {
                401 | 403 => Exit::Refused,
                400 | 404 | 409 | 413 | 415 | 422 => Exit::Usage,
                _ => Exit::Failed,
            },
            ServiceError::Unreachable { .. } | ServiceError::Answer { .. } => Exit::Failed,
            ServiceError::Interrupted(_) => Exit::Interrupted,
            ServiceError::Login(error) => match error {
                LoginError::File { .. } | LoginError::Impossible { .. } => Exit::Usage,
                LoginError::Issuer(
                    IssuerError::Unreachable { .. } | IssuerError::Answer { .. },
                ) => Exit::Failed,
                LoginError::Issuer(_)
                | LoginError::Needed { .. }
                | LoginError::Mistrusted { .. } => Exit::Refused,
                LoginError::Interrupted => Exit::Interrupted,
            },
            ServiceError::TimedOut { .. } => Exit::TimedOut,
        }
    }
}

/// A service, and who we are there.
#[derive(Clone)]
pub struct Connection {
    client: Client,
    base: String,
    url: Url,
    credential: Credential,
}

/// What requests show.
#[derive(Clone)]
enum Credential {
    Nothing,
    Token(Password),
    Login(Arc<StoredLogin>),
}

impl Connection {
    /// Reads the token or the login, and the CAs.
    ///
    /// # Errors
    /// A file cannot be read, or the URL has another scheme than `http` and `https`.
    pub fn new(target: &ServiceTarget) -> Result<Self, ServiceError> {
        Self::with_limit(target, READ_LIMIT)?.with_credential_of(target)
    }

    /// The same for lists of files, which are answered when all of them has come in.
    pub(super) fn for_lists(&self, target: &ServiceTarget) -> Result<Self, ServiceError> {
        let credential = self.credential.clone();
        Ok(Connection {
            credential,
            ..Self::with_limit(target, LIST_LIMIT)?
        })
    }

    /// Without a token.
    pub(super) fn anonymous(target: &ServiceTarget) -> Result<Self, ServiceError> {
        Self::with_limit(target, READ_LIMIT)
    }

    pub(super) fn with_token(self, token: Password) -> Self {
        let credential = Credential::Token(token);
        Connection { credential, ..self }
    }

    fn with_limit(target: &ServiceTarget, read_limit: Duration) -> Result<Self, ServiceError> {
        let base = target.url.trim_end_matches('/').to_owned();
        let wrong = |why: String| ServiceError::Unreachable {
            url: base.clone(),
            why,
        };
        let url = Url::parse(&base).ok();
        let url = url.filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.ok_or_else(|| {
            wrong("the URL of a service begins with https:// or http://".to_owned())
        })?;
        let mut builder = Client::builder()
            .connect_timeout(CONNECT_LIMIT)
            .read_timeout(read_limit)
            .redirect(reqwest::redirect::Policy::none());
        if is_local_http(&url) {
            builder = builder.no_proxy();
        }
        if let Some(path) = &target.ca {
            let pem = fs::read(path).map_err(|error| failed(path, error))?;
            let authorities = Certificate::from_pem_bundle(&pem);
            builder = builder.tls_certs_only(authorities.map_err(|e| wrong(e.to_string()))?);
        }
        let client = builder.build().map_err(|error| wrong(explained(&error)))?;
        Ok(Connection {
            client,
            base,
            url,
            credential: Credential::Nothing,
        })
    }

    fn with_credential_of(self, target: &ServiceTarget) -> Result<Self, ServiceError> {
        if let Some(token) = &target.token {
            return Ok(self.with_token(Password::new(token)));
        }
        let file = target.logins.as_deref();
        let file = file.and_then(|folder| self.login_file(folder));
        if let Some(login) = file.map(StoredLogin::open).transpose()?.flatten() {
            let credential = Credential::Login(Arc::new(login));
            return Ok(Connection { credential, ..self });
        }
        match &target.token_file {
            Some(path) => Ok(self.with_token(Password::new(first_line(path)?))),
            None => Ok(self),
        }
    }

    /// What the user has to know of the login, and has not been told.
    pub(super) fn take_warnings(&self) -> Vec<String> {
        match &self.credential {
            Credential::Login(login) => login.take_warnings(),
            Credential::Nothing | Credential::Token(_) => Vec::new(),
        }
    }

    /// Where the login at this service is, or would be.
    pub(super) fn login_file(&self, folder: &Path) -> Option<LoginFile> {
        LoginFile::of(folder, &self.url)
    }

    /// As the user wrote it.
    pub(super) fn url(&self) -> &str {
        &self.base
    }

    /// The other end has proven to be the service, or is on this machine.
    pub(super) fn is_protected(&self) -> bool {
        self.url.scheme() == "https" || is_local(&self.url)
    }

    /// It is on this machine, without TLS.
    pub(super) fn is_local(&self) -> bool {
        is_local_http(&self.url)
    }

    /// Renews a login that the service refuses, before a request that cannot be sent twice.
    pub(super) async fn check_login(&self) -> Result<(), ServiceError> {
        match &self.credential {
            Credential::Login(_) => {
                let request = self.request(Method::GET, "/me");
                self.fetch::<UserView>(request).await.map(drop)
            }
            Credential::Nothing | Credential::Token(_) => Ok(()),
        }
    }

    /// A request below the prefix of the API, without what logs in.
    pub(super) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client
            .request(method, format!("{}{API}{path}", self.base))
    }

    /// Sends it; an answer that is an error becomes one. Where the service refuses a login, that is
    /// renewed, once.
    pub(super) async fn send(&self, request: RequestBuilder) -> Result<Response, ServiceError> {
        let login = match &self.credential {
            Credential::Nothing => {
                return self.attempt(request).await.map_err(|error| match error {
                    ServiceError::Refused { problem, .. } if problem.status == 401 => {
                        let (service, why) = (self.base.clone(), problem.detail);
                        LoginError::Needed { service, why }.into()
                    }
                    other => other,
                });
            }
            Credential::Token(token) => {
                return self.attempt(request.bearer_auth(token.reveal())).await;
            }
            Credential::Login(login) => login,
        };
        let again = request.try_clone();
        let token = login.token().await?;
        let answer = self.attempt(request.bearer_auth(token.reveal())).await;
        let (Some(401), Some(again)) = (answer.as_ref().err().and_then(|e| e.status()), again)
        else {
            return answer;
        };
        let token = login.token_after(&token).await?;
        let answer = self.attempt(again.bearer_auth(token.reveal())).await;
        answer.map_err(|error| match error.status() {
            Some(401) => login
                .refused("the service does not accept the login")
                .into(),
            _ => error,
        })
    }

    async fn attempt(&self, request: RequestBuilder) -> Result<Response, ServiceError> {
        let answer = request
            .send()
            .await
            .map_err(|error| self.unreachable(&error))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let body = self.body(answer).await?;
        let problem = serde_json::from_slice(&body).unwrap_or_else(|_| unknown_problem(status));
        let problem = Box::new(problem);
        Err(ServiceError::Refused {
            url: self.base.clone(),
            problem,
        })
    }

    /// Sends it and reads the answer.
    pub(super) async fn fetch<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
    ) -> Result<T, ServiceError> {
        let answer = self.send(request).await?;
        let body = self.body(answer).await?;
        serde_json::from_slice(&body).map_err(|error| self.strange(error.to_string()))
    }

    async fn body(&self, mut answer: Response) -> Result<Vec<u8>, ServiceError> {
        let mut body = Vec::new();
        while let Some(part) = answer
            .chunk()
            .await
            .map_err(|error| self.unreachable(&error))?
        {
            if body.len() + part.len() > MAX_ANSWER_BYTES {
                return Err(self.strange(format!("it is longer than {MAX_ANSWER_BYTES} bytes")));
            }
            body.extend_from_slice(&part);
        }
        Ok(body)
    }

    /// A job.
    ///
    /// # Errors
    /// There is none of this name that the caller may see.
    pub async fn job(&self, id: Uuid) -> Result<JobView, ServiceError> {
        self.fetch(self.request(Method::GET, &format!("/jobs/{id}")))
            .await
    }

    /// Jobs, the latest first, at most `limit`.
    pub(super) async fn jobs(
        &self,
        states: &[JobState],
        all_users: bool,
        limit: u32,
    ) -> Result<Vec<JobView>, ServiceError> {
        let mut jobs: Vec<JobView> = Vec::new();
        let mut cursor: Option<String> = None;
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        while jobs.len() < limit {
            let states: Vec<_> = states.iter().map(|state| state.as_str()).collect();
            let want = (limit - jobs.len()).min(MAX_PAGE as usize);
            let mut query = vec![("limit", want.to_string())];
            if !states.is_empty() {
                query.push(("state", states.join(",")));
            }
            if all_users {
                query.push(("all", "true".to_owned()));
            }
            query.extend(cursor.take().map(|cursor| ("cursor", cursor)));
            let request = self.request(Method::GET, "/jobs").query(&query);
            let page: Page<JobView> = self.fetch(request).await?;
            jobs.extend(page.items);
            match page.next {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        jobs.truncate(limit);
        Ok(jobs)
    }

    /// A page of a job's files.
    pub(super) async fn files(
        &self,
        id: Uuid,
        shown: FilesShown,
        cursor: Option<&str>,
    ) -> Result<Page<FileView>, ServiceError> {
        let mut query = vec![("limit", MAX_PAGE.to_string())];
        if shown == FilesShown::Failed {
            query.push(("state", "failed".to_owned()));
        }
        query.extend(cursor.map(|cursor| ("cursor", cursor.to_owned())));
        let request = self.request(Method::GET, &format!("/jobs/{id}/files"));
        self.fetch(request.query(&query)).await
    }

    /// Changes the state of a job, and returns the job.
    ///
    /// # Errors
    /// It is final, or not the caller's.
    pub async fn change(&self, id: Uuid, change: Change) -> Result<JobView, ServiceError> {
        let path = format!("/jobs/{id}/{}", change.verb());
        self.fetch(self.request(Method::POST, &path)).await
    }

    pub(super) fn unreachable(&self, error: &reqwest::Error) -> ServiceError {
        ServiceError::Unreachable {
            url: self.base.clone(),
            why: explained(error),
        }
    }

    pub(super) fn strange(&self, why: String) -> ServiceError {
        ServiceError::Answer {
            url: self.base.clone(),
            why,
        }
    }
}

/// An error with its causes, without the URL, which may carry a query.
fn explained(error: &reqwest::Error) -> String {
    let mut text = match error.is_connect() {
        true => "cannot connect".to_owned(),
        false => "the request failed".to_owned(),
    };
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// An error answer without problem details, from a proxy perhaps.
fn unknown_problem(status: StatusCode) -> Problem {
    Problem {
        kind: "about:blank".to_owned(),
        title: status.canonical_reason().unwrap_or("error").to_owned(),
        status: status.as_u16(),
        detail: "the answer gives no details".to_owned(),
        code: format!("http_{}", status.as_u16()),
        pointer: None,
        retry_after: None,
    }
}

pub(super) fn failed(path: &Path, error: io::Error) -> ServiceError {
    ServiceError::File {
        path: path.to_owned(),
        error,
    }
}

fn first_line(path: &Path) -> Result<String, ServiceError> {
    let file = fs::File::open(path).map_err(|error| failed(path, error))?;
    let mut line = String::new();
    let mut reader = io::BufReader::new(io::Read::take(file, MAX_TOKEN_BYTES));
    reader
        .read_line(&mut line)
        .map_err(|error| failed(path, error))?;
    Ok(line.trim().to_owned())
}

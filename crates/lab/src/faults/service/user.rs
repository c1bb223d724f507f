//! The user who submits jobs and asks for their outcome.

use std::time::Duration;

use godwit_service_api::job::{FileView, JobRequest, JobView};
use godwit_service_api::page::Page;
use serde_json::{Value, json};

use super::balancer::Nodes;
use crate::peers::request::{Answer, exchange};

/// Longest wait for an answer. A process that stands still gives none.
const ANSWER_LIMIT: Duration = Duration::from_secs(4);

/// A user with a token.
#[derive(Debug)]
pub(super) struct User {
    nodes: Nodes,
    token: String,
    turn: usize,
    /// What no answer may hold.
    secrets: Vec<String>,
    /// Answers that held it.
    pub(super) leaks: Vec<String>,
}

/// What the service says of a thing.
pub(super) enum Asked<T> {
    /// This.
    Is(Box<T>),
    /// There is none.
    Unknown,
    /// Nothing that can be read.
    NoAnswer,
}

impl User {
    pub(super) fn new(nodes: Nodes, token: String, secrets: Vec<String>) -> User {
        User {
            nodes,
            token,
            turn: 0,
            secrets,
            leaks: Vec::new(),
        }
    }

    /// Stores a password for an endpoint; whether it is stored.
    pub(super) fn lend(&mut self, endpoint: &str, user: &str, password: &str) -> bool {
        let secret = json!({"password": {"user": user, "password": password}});
        let body = json!({"endpoint": endpoint, "secret": secret});
        let stored = self.ask("POST", "/api/v1/credentials", Some(&body), None);
        stored.is_some_and(|(status, _)| (200..300).contains(&status))
    }

    /// Submits a job once, however often it is called with this key. `Err`: it is refused.
    pub(super) fn submit(
        &mut self,
        request: &JobRequest,
        key: &str,
    ) -> Result<Option<JobView>, String> {
        let body = serde_json::to_value(request).map_err(|error| error.to_string())?;
        match self.ask("POST", "/api/v1/jobs", Some(&body), Some(key)) {
            Some((200 | 201, body)) => match serde_json::from_slice(&body) {
                Ok(job) => Ok(Some(job)),
                Err(error) => Err(format!("the answer is no job: {error}")),
            },
            Some((status @ (400..=428 | 431..=499), body)) => {
                Err(format!("{status}: {}", String::from_utf8_lossy(&body)))
            }
            _ => Ok(None),
        }
    }

    /// Cancels a job; whether the service has heard it.
    pub(super) fn cancel(&mut self, id: &str) -> bool {
        let path = format!("/api/v1/jobs/{id}/cancel");
        let answer = self.ask("POST", &path, None, None);
        // 409: it has ended.
        answer.is_some_and(|(status, _)| status == 409 || (200..300).contains(&status))
    }

    /// Pauses or resumes a job; whether the service has heard it, or knows that it has ended.
    pub(super) fn change(&mut self, id: &str, what: &str) -> bool {
        let answer = self.ask("POST", &format!("/api/v1/jobs/{id}/{what}"), None, None);
        answer.is_some_and(|(status, _)| status == 409 || (200..300).contains(&status))
    }

    pub(super) fn job(&mut self, id: &str) -> Asked<JobView> {
        match self.ask("GET", &format!("/api/v1/jobs/{id}"), None, None) {
            Some((200, body)) => match serde_json::from_slice(&body) {
                Ok(job) => Asked::Is(job),
                Err(_) => Asked::NoAnswer,
            },
            Some((404, _)) => Asked::Unknown,
            _ => Asked::NoAnswer,
        }
    }

    /// All files of a job.
    pub(super) fn files(&mut self, id: &str) -> Option<Vec<FileView>> {
        let (mut files, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let place = cursor.map_or(String::new(), |cursor| format!("&cursor={cursor}"));
            let page: Page<FileView> =
                self.get(&format!("/api/v1/jobs/{id}/files?limit=100{place}"))?;
            files.extend(page.items);
            cursor = page.next;
            if cursor.is_none() {
                return Some(files);
            }
        }
    }

    /// Whatever else answers, for what it may not hold.
    pub(super) fn look_around(&mut self) {
        for path in [
            "jobs?all=true&limit=1000",
            "agents",
            "credentials",
            "endpoints",
            "shares",
            "tokens",
            "audit",
        ] {
            self.ask("GET", &format!("/api/v1/{path}"), None, None);
        }
    }

    fn get<T: serde::de::DeserializeOwned>(&mut self, path: &str) -> Option<T> {
        match self.ask("GET", path, None, None)? {
            (200, body) => serde_json::from_slice(&body).ok(),
            _ => None,
        }
    }

    /// The answer of one of the processes that serve.
    fn ask(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        key: Option<&str>,
    ) -> Option<Answer> {
        let nodes = self.nodes.lock().clone();
        for _ in 0..nodes.len() {
            self.turn += 1;
            let node = nodes[self.turn % nodes.len()];
            let asked = exchange(node, &self.token, method, path, body, key, ANSWER_LIMIT);
            let Ok((status, answer)) = asked else {
                continue;
            };
            let text = String::from_utf8_lossy(&answer);
            for secret in &self.secrets {
                if text.contains(secret.as_str()) {
                    self.leaks
                        .push(format!("the answer to {method} {path} has a secret"));
                }
            }
            return Some((status, answer));
        }
        None
    }
}

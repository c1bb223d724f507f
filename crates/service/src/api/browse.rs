//! What is in a directory, before a job is submitted. The service reaches no endpoint itself: an
//! agent looks, with the user's credentials.

use std::{sync::Arc, time::Duration};

use axum::{Json as JsonAnswer, extract::State};
use godwit_proto::url::without_last_slashes;
use godwit_service_api::{
    agent::Browsed,
    browse::{BrowseRequest, BrowsedDirectory, MAX_BROWSED},
    job::MAX_URL_BYTES,
    site::EndpointState,
};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::{
    Api,
    extract::{Caller, Json},
    openapi::Routes,
    submit::are_labels,
};
use crate::{
    problem::{Answer, ApiError, Kind},
    scheduling::Board,
    store::{
        Store, StoreError,
        browsing::{BrowseLimits, Question, WaitingBrowse},
    },
};

/// Longest that a user waits for what an agent finds.
pub(crate) const BROWSE_WAIT: Duration = Duration::from_secs(20);

/// Between two looks for the answer, which may come to another process.
const LOOK: Duration = Duration::from_millis(100);

const LIMITS: BrowseLimits = BrowseLimits {
    wait: Duration::from_secs(30),
    of_user: 4,
    of_all: 200,
};

pub(super) fn routes(routes: &mut Routes) {
    routes.add::<__path_browse, _, _>(browse);
}

/// Lists a directory of an endpoint
///
/// An agent lists it with the user's credentials, within 20 seconds. The endpoint
/// chose the names: escape them before they are shown.
#[utoipa::path(
    post, path = "/api/v1/browse", request_body = BrowseRequest,
    responses((status = 200, description = "A part of the directory", body = BrowsedDirectory)),
)]
pub(super) async fn browse(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Json(request): Json<BrowseRequest>,
) -> Answer<JsonAnswer<BrowsedDirectory>> {
    api.browse(&caller, request).await.map(JsonAnswer)
}

/// Goes with whoever asked: where a user closes the page, the agent stops.
struct OpenQuestion {
    store: Store,
    board: Arc<Board>,
    id: Option<Uuid>,
}

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let (store, board) = (self.store.clone(), Arc::clone(&self.board));
            // What stays is removed by time.
            tokio::spawn(async move { end(&store, &board, id).await });
        }
    }
}

/// Nobody waits any more: the agent that looks is told so. Whether there was one.
async fn end(store: &Store, board: &Board, id: Uuid) -> Result<bool, StoreError> {
    let ended = store.end_browse(id).await?;
    if let Some(agent) = &ended.agent {
        board.wake_agent(agent);
    }
    Ok(ended.agent.is_some())
}

impl Api {
    /// What is in a directory.
    pub(crate) async fn browse(
        &self,
        caller: &Caller,
        request: BrowseRequest,
    ) -> Answer<BrowsedDirectory> {
        let wrong = |at: &str, why: &str| Err(ApiError::new(Kind::Invalid, why).at(at));
        if !(1..=MAX_BROWSED).contains(&request.limit) {
            return wrong("/limit", "1 to 200");
        }
        let cursor = request.cursor.as_ref();
        if cursor.is_some_and(|cursor| cursor.len() > MAX_URL_BYTES + 1) {
            return wrong("/cursor", "not one of this list");
        }
        if !are_labels(&request.labels) {
            return wrong("/labels", "at most 32 labels of at most 200 characters");
        }
        let checked = self.policy.check_url(&request.url);
        checked.map_err(|error| error.at("/url"))?;
        let within = format!("{}/", without_last_slashes(&request.url));
        let limit = request.limit as usize;
        match self.ask(caller, Question::Directory(request)).await? {
            Browsed::Directory(mut directory) => {
                // An agent says what is in this directory, and nothing of others.
                directory.entries.retain(|entry| {
                    let name = entry.url.strip_prefix(&within);
                    name.is_some_and(is_one_name) && entry.url.len() <= MAX_URL_BYTES
                });
                directory.entries.truncate(limit);
                Ok(directory)
            }
            Browsed::Failed(error) => Err(ApiError::new(Kind::Listing, error.message)),
            Browsed::Preview(_) => Err(ApiError::new(Kind::Listing, "the agent answers else")),
        }
    }

    /// What an agent that reaches the endpoints answers.
    pub(super) async fn ask(&self, caller: &Caller, question: Question) -> Answer<Browsed> {
        let endpoints = question.endpoints();
        let known = self.store.endpoints().await?;
        let is_banned = |name: &&String| {
            let mut known = known.iter().filter(|known| &known.name == *name);
            known.any(|known| known.state == EndpointState::Banned)
        };
        if let Some(endpoint) = endpoints.iter().find(is_banned) {
            let why = format!("an operator keeps all work from {endpoint}");
            let place = match question {
                Question::Directory(_) => "/url",
                Question::Job(_) => "/files/0",
            };
            return Err(ApiError::new(Kind::Endpoint, why).at(place));
        }
        let _permit = self.limits.take_stream(caller.name())?;
        let asked = self.store.add_browse(caller.name(), &question, LIMITS);
        let id = asked.await?;
        let mut open = OpenQuestion {
            store: self.store.clone(),
            board: Arc::clone(&self.board),
            id: Some(id),
        };
        self.board.browse_came(WaitingBrowse::of(id, &question));
        let found = self.browsed(id).await;
        let was_taken = end(&self.store, &self.board, id).await?;
        open.id = None;
        found?.ok_or_else(|| {
            let (who, reach) = match endpoints.len() {
                0 | 1 => ("the endpoint has", "the endpoint"),
                _ => ("an endpoint has", "both endpoints"),
            };
            let who = match was_taken {
                true => format!("the agent or {who} not answered"),
                false => format!("no agent that reaches {reach} has asked for work"),
            };
            let endpoints = endpoints.join(", ");
            let why = format!("{endpoints}: {who} within {} s", BROWSE_WAIT.as_secs());
            ApiError::new(Kind::NoAnswer, why).after(5)
        })
    }

    /// Waits for the answer; `None`: there is none in time.
    async fn browsed(&self, id: Uuid) -> Answer<Option<Browsed>> {
        let until = Instant::now() + BROWSE_WAIT;
        while Instant::now() < until {
            if *self.stopping.borrow() {
                return Err(ApiError::new(Kind::Stopping, "ask again").after(5));
            }
            match self.store.browse_answer(id).await {
                Ok(Some(text)) => {
                    let read = serde_json::from_str(&text);
                    return read.map(Some).map_err(|error| {
                        let error = StoreError::Corrupt(error.to_string());
                        ApiError::from(error)
                    });
                }
                Ok(None) => sleep(LOOK).await,
                Err(StoreError::NotFound) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }
}

/// What is behind a directory in the URL of an entry leads nowhere else.
pub(super) fn is_one_name(text: &str) -> bool {
    let name = text.strip_suffix('/').unwrap_or(text).to_ascii_lowercase();
    let is_plain = name
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'/');
    let dots = name.replace("%2e", ".");
    is_plain && !name.contains("%2f") && !["", ".", ".."].contains(&dots.as_str())
}

#[cfg(test)]
mod tests {
    use super::is_one_name;

    #[test]
    fn an_entry_is_one_name_below_its_directory() {
        for good in ["a", "a/", "%C3%BC", "..a", "a%20b"] {
            assert!(is_one_name(good), "{good}");
        }
        for bad in [
            "", "/", ".", "../", "%2e%2E", ".%2e/", "a/b", "a%2Fb", "a b", "\u{202e}", "a\n",
        ] {
            assert!(!is_one_name(bad), "{bad:?}");
        }
    }
}

//! Directories that users look into: agents get the question with an answer to a poll, and send
//! what they found at once.

use axum::{extract::State, http::StatusCode};
use godwit_service_api::agent::{Browse, BrowseAnswer, Browsed, PollRequest};
use godwit_service_api::browse::MAX_BROWSED;
use uuid::Uuid;

use super::{AgentName, Gateway, bounds};
use crate::{
    api::{BROWSE_WAIT, whole},
    problem::{Answer, ApiError, Kind},
    store::browsing::AgentReach,
};

/// Longest answer: 200 entries with long names and URLs.
const BODY_BYTES_MAX: usize = 4 << 20;

pub(super) async fn answer(
    State(gateway): State<Gateway>,
    AgentName(agent): AgentName,
    request: axum::extract::Request,
) -> Answer<StatusCode> {
    let body = whole(request.into_body(), BODY_BYTES_MAX).await?;
    let read = serde_json::from_slice::<BrowseAnswer>(&body);
    let mut answer = read.map_err(|error| ApiError::new(Kind::Body, error.to_string()))?;
    match &mut answer.found {
        Browsed::Directory(directory) => {
            directory.entries.truncate(MAX_BROWSED as usize);
            directory.entries.iter_mut().for_each(bounds::entry);
        }
        Browsed::Failed(error) => bounds::error(error),
    }
    let text = serde_json::to_string(&answer.found).unwrap_or_default();
    let done = gateway.store.answer_browse(answer.id, &agent, &text);
    match done.await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(ApiError::not_found()),
    }
}

impl Gateway {
    /// What users wait to see at endpoints that the agent reaches.
    pub(super) async fn browses(&self, request: &PollRequest, drain: bool) -> Answer<Vec<Browse>> {
        let takes = !drain && request.description.slots > 0;
        if !takes || !self.board.browse_waits_for(&request.agent) {
            return Ok(Vec::new());
        }
        let reach = AgentReach::of(&request.description);
        let taken = self.store.take_browses(&request.agent, &reach).await?;
        let mut browses = Vec::with_capacity(taken.len());
        for mut browse in taken {
            // They have chosen the agent, and agents of earlier releases do not know them.
            browse.request.labels.clear();
            browses.push(Browse {
                id: browse.id,
                credentials: self.credentials(&browse.owner, &[browse.endpoint]).await,
                request: browse.request,
                addresses: self.addresses,
                seconds: BROWSE_WAIT.as_secs(),
            });
        }
        Ok(browses)
    }

    /// What the agent looks for, and nobody waits for any more.
    pub(super) async fn browses_over(&self, request: &PollRequest) -> Answer<Vec<Uuid>> {
        match request.browses.is_empty() {
            true => Ok(Vec::new()),
            false => {
                let over = self.store.browses_over(&request.agent, &request.browses);
                Ok(over.await?)
            }
        }
    }
}

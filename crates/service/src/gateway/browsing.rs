//! What users look at before they submit: agents get the question with an answer to a poll, and
//! send what they found at once.

use axum::{extract::State, http::StatusCode};
use godwit_service_api::agent::{Browse, BrowseAnswer, Browsed, PollRequest, Preview};
use godwit_service_api::browse::{BrowseRequest, MAX_BROWSED};
use uuid::Uuid;

use super::{AgentName, Gateway, bounds};
use crate::{
    api::{BROWSE_WAIT, whole},
    problem::{Answer, ApiError, Kind},
    store::browsing::{AgentReach, Question},
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
        Browsed::Preview(preview) => bounds::preview(preview),
        Browsed::Failed(error) => bounds::error(error),
    }
    let text = serde_json::to_string(&answer.found).unwrap_or_default();
    let done = gateway.store.answer_browse(answer.id, &agent, &text);
    match done.await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(ApiError::not_found()),
    }
}

/// What an agent is asked.
#[derive(Default)]
pub(super) struct Questions {
    pub(super) directories: Vec<Browse>,
    pub(super) jobs: Vec<Preview>,
}

impl Questions {
    pub(super) fn is_empty(&self) -> bool {
        self.directories.is_empty() && self.jobs.is_empty()
    }
}

impl Gateway {
    /// What users wait to see at endpoints that the agent reaches.
    pub(super) async fn browses(&self, request: &PollRequest, drain: bool) -> Answer<Questions> {
        let mut questions = Questions::default();
        let takes = !drain && request.description.slots > 0;
        if !takes || !self.board.browse_waits_for(&request.agent) {
            return Ok(questions);
        }
        let reach = AgentReach::of(&request.description);
        let taken = self.store.take_browses(&request.agent, &reach).await?;
        for browse in taken {
            let endpoints = browse.question.endpoints();
            let credentials = self.credentials(&browse.owner, &endpoints).await;
            let (id, addresses, seconds) = (browse.id, self.addresses, BROWSE_WAIT.as_secs());
            match browse.question {
                Question::Directory(request) => questions.directories.push(Browse {
                    id,
                    // They have chosen the agent, and agents of earlier releases do not know them.
                    request: BrowseRequest {
                        labels: Vec::new(),
                        ..request
                    },
                    addresses,
                    credentials,
                    seconds,
                }),
                Question::Job(question) => questions.jobs.push(Preview {
                    id,
                    question,
                    addresses,
                    credentials,
                    seconds,
                }),
            }
        }
        Ok(questions)
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

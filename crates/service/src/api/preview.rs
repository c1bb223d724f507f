//! What a job would copy, before it is submitted: the checks of a submission, then an agent's
//! listings.

use std::sync::Arc;

use axum::{Json as JsonAnswer, extract::State};
use godwit_proto::url::without_last_slashes;
use godwit_service_api::{
    agent::Browsed,
    job::{FileRequest, JobOptions, JobRequest, MAX_URL_BYTES},
    preview::{JobPreview, PreviewQuestion},
};

use super::{
    Api,
    browse::is_one_name,
    extract::{Caller, Json},
    openapi::Routes,
};
use crate::{
    problem::{Answer, ApiError, Kind},
    store::browsing::Question,
};

pub(super) fn routes(routes: &mut Routes) {
    routes.add::<__path_preview, _, _>(preview);
}

/// Says what a job would copy, and submits nothing
///
/// The job has one file or one tree. It is checked as at its submission. Then an agent lists the
/// source, directory by directory, and the same directories of the destination, with the user's
/// credentials, for 15 seconds and at most 200 directories: the answer says what was not listed.
/// The endpoints chose the names: escape them before they are shown.
#[utoipa::path(
    post, path = "/api/v1/preview", request_body = JobRequest,
    responses((status = 200, description = "As far as it was looked at", body = JobPreview)),
)]
pub(super) async fn preview(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Json(request): Json<JobRequest>,
) -> Answer<JsonAnswer<JobPreview>> {
    api.preview(&caller, request).await.map(JsonAnswer)
}

impl Api {
    /// What a job would copy.
    pub(crate) async fn preview(&self, caller: &Caller, request: JobRequest) -> Answer<JobPreview> {
        let [file] = request.files.as_slice() else {
            let error = ApiError::new(Kind::Invalid, "a preview is of one file or one tree");
            return Err(error.at("/files"));
        };
        let question = PreviewQuestion {
            file: file.clone(),
            overwrite: request.options.overwrite,
            preserve_times: request.options.preserve_times,
            labels: request.options.labels.clone(),
        };
        for (url, field) in [(&file.source, "source"), (&file.destination, "destination")] {
            let checked = self.policy.check_url(url);
            checked.map_err(|error| error.at(format!("/files/0/{field}")))?;
        }
        let file = file.clone();
        let options = JobOptions {
            dry_run: true,
            ..request.options.clone()
        };
        let request = JobRequest { options, ..request };
        self.submit_job(caller, None, request).await?;
        match self.ask(caller, Question::Job(question)).await? {
            Browsed::Preview(mut preview) => {
                // An agent says what lies below these two places, and nothing of others.
                preview.first.retain(|found| {
                    is_of(&file, &file.source, &found.source)
                        && is_of(&file, &file.destination, &found.destination)
                });
                Ok(preview)
            }
            Browsed::Failed(error) => Err(ApiError::new(Kind::Listing, error.message)),
            Browsed::Directory(_) => Err(ApiError::new(Kind::Listing, "the agent answers else")),
        }
    }
}

/// The file itself, or one below the tree.
fn is_of(file: &FileRequest, url: &str, found: &str) -> bool {
    if !file.recursive {
        return found == url;
    }
    let below = found.strip_prefix(without_last_slashes(url));
    let names = below.and_then(|below| below.strip_prefix('/'));
    found.len() <= MAX_URL_BYTES && names.is_some_and(|names| names.split('/').all(is_one_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_names_files_of_the_tree_only() {
        let tree = FileRequest {
            recursive: true,
            ..FileRequest::default()
        };
        let is = |url: &str, found: &str| is_of(&tree, url, found);
        assert!(is("ftp://h/d", "ftp://h/d/a/b%20c") && is("ftp://h/d/", "ftp://h/d/a"));
        for found in [
            "ftp://h/d",
            "ftp://h/d/",
            "ftp://h/dx",
            "ftp://h/d/a/../b",
            "ftp://h/d//b",
            "ftp://i/d/a",
            "ftp://h/d/%2e%2e/a",
            "ftp://h/d/a b",
        ] {
            assert!(!is("ftp://h/d", found), "{found}");
        }
        let one = FileRequest::default();
        assert!(is_of(&one, "ftp://h/d", "ftp://h/d"));
        assert!(!is_of(&one, "ftp://h/d", "ftp://h/d/a"));
    }
}

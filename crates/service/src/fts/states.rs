//! States of jobs and files in the words of FTS3, and reasons in its form.

use godwit_service_api::job::{FileError, FileState, JobState, WhoActs};

/// Of a job; the second of a pair of words that clients poll for is final.
pub(super) fn job_state(state: JobState) -> &'static str {
    match state {
        JobState::Submitting | JobState::Queued | JobState::Paused => "SUBMITTED",
        JobState::Active => "ACTIVE",
        JobState::Finished => "FINISHED",
        JobState::Partial => "FINISHEDDIRTY",
        JobState::Failed => "FAILED",
        JobState::Canceled => "CANCELED",
    }
}

/// States of ours that a word of FTS3 means; empty: none of ours.
pub(super) fn of_job_state(word: &str) -> &'static [JobState] {
    match word {
        "SUBMITTED" => &[JobState::Queued, JobState::Paused],
        "ACTIVE" => &[JobState::Active],
        "FINISHED" => &[JobState::Finished],
        "FINISHEDDIRTY" => &[JobState::Partial],
        "FAILED" => &[JobState::Failed],
        "CANCELED" => &[JobState::Canceled],
        _ => &[],
    }
}

/// Of a file.
pub(super) fn file_state(state: FileState) -> &'static str {
    match state {
        FileState::Queued => "SUBMITTED",
        FileState::Active => "ACTIVE",
        FileState::Finished | FileState::Skipped => "FINISHED",
        FileState::Failed => "FAILED",
        FileState::Canceled => "CANCELED",
        FileState::Unused => "NOT_USED",
    }
}

/// `SCOPE [errno] text`. Rucio compares the text for files that exist.
pub(super) fn reason(error: &FileError) -> String {
    let (scope, number, text) = match error.code.as_str() {
        "canceled" => ("GENERAL_FAILURE", 125, None),
        "exists" => (
            "DESTINATION",
            17,
            Some("Destination file exists and overwrite is not enabled"),
        ),
        "not_found" => (side(error.who, "SOURCE"), 2, None),
        "permission" | "credential" => (side(error.who, "TRANSFER"), 13, None),
        "no_space" => ("DESTINATION", 28, None),
        "checksum" => ("TRANSFER", 5, None),
        "unreachable" => (side(error.who, "TRANSFER"), 113, None),
        "interrupted" => ("TRANSFER", 110, None),
        "refused" => (side(error.who, "TRANSFER"), 70, None),
        _ => ("GENERAL_FAILURE", 70, None),
    };
    format!("{scope} [{number}] {}", text.unwrap_or(&error.message))
}

fn side(who: WhoActs, otherwise: &'static str) -> &'static str {
    match who {
        WhoActs::Source => "SOURCE",
        WhoActs::Destination => "DESTINATION",
        _ => otherwise,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_of_a_job_has_a_word_that_leads_back() {
        use JobState::*;
        for state in [Queued, Active, Paused, Finished, Partial, Failed, Canceled] {
            assert!(of_job_state(job_state(state)).contains(&state), "{state:?}");
        }
        assert!(of_job_state("ARCHIVING").is_empty());
    }

    #[test]
    fn a_file_that_exists_has_the_text_that_rucio_compares() {
        let error = FileError {
            code: "exists".to_owned(),
            message: "550 /x: it is there".to_owned(),
            who: WhoActs::User,
            may_pass: false,
        };
        assert_eq!(
            reason(&error),
            "DESTINATION [17] Destination file exists and overwrite is not enabled"
        );
    }

    #[test]
    fn the_side_that_must_act_is_the_scope() {
        let error = FileError {
            code: "unreachable".to_owned(),
            message: "connect: timed out".to_owned(),
            who: WhoActs::Source,
            may_pass: true,
        };
        assert_eq!(reason(&error), "SOURCE [113] connect: timed out");
    }
}

//! Which file of a job with an order comes next, and how the job ends. Each such file is a segment
//! of its own, which gets its unit when its turn comes.

use godwit_service_api::job::{FileCounts, FileOrder, JobState};

use super::StoreError;

/// The order of a job, of its column.
pub(super) fn read(text: Option<String>) -> Result<FileOrder, StoreError> {
    match text {
        Some(text) => serde_json::from_value(text.into()).map_err(StoreError::corrupt),
        None => Ok(FileOrder::Any),
    }
}

/// What became of the files of a job so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ends {
    pub(super) total: u64,
    /// Finished or skipped.
    pub(super) done: u64,
    pub(super) failed: u64,
    pub(super) canceled: u64,
    /// Directories that are still to be listed.
    pub(super) listings: u64,
}

/// What a job does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It goes on.
    Wait,
    /// It is the turn of this file, unless it was before.
    File(u64),
    /// It ends.
    End(JobState),
}

/// By its order, and what became of its files.
pub(super) fn next(order: FileOrder, ends: &Ends) -> Next {
    let ended = ends.done + ends.failed + ends.canceled;
    let all_ended = ended >= ends.total && ends.listings == 0;
    let without_success = match ends.failed {
        0 => JobState::Canceled,
        _ => JobState::Failed,
    };
    match order {
        FileOrder::Any if !all_ended => Next::Wait,
        FileOrder::Any => Next::End(match ends.done {
            done if done == ends.total => JobState::Finished,
            0 => without_success,
            _ => JobState::Partial,
        }),
        FileOrder::Alternatives if ends.done > 0 => Next::End(JobState::Finished),
        FileOrder::Hops if ends.failed + ends.canceled > 0 => Next::End(without_success),
        FileOrder::Hops if all_ended => Next::End(JobState::Finished),
        FileOrder::Alternatives if all_ended => Next::End(without_success),
        _ => Next::File(ended),
    }
}

/// Number of the first file that waits for its turn, or that needs none any more.
pub(super) fn unused_from(order: FileOrder, files: &FileCounts) -> u64 {
    let ends = Ends {
        total: files.total,
        done: files.finished + files.skipped,
        failed: files.failed,
        canceled: files.canceled,
        listings: 0,
    };
    match next(order, &ends) {
        _ if order.is_any() => u64::MAX,
        Next::File(index) => index + 1,
        Next::End(_) | Next::Wait => files.ended(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(order: FileOrder, done: u64, failed: u64, canceled: u64) -> Next {
        let ends = Ends {
            total: 3,
            done,
            failed,
            canceled,
            listings: 0,
        };
        next(order, &ends)
    }

    #[test]
    fn a_job_ends_by_its_order_and_its_files() {
        use FileOrder::{Alternatives, Any, Hops};
        use JobState::{Canceled, Failed, Finished, Partial};
        let ends = [
            (Any, (3, 0, 0), Finished),
            (Any, (0, 3, 0), Failed),
            (Any, (1, 2, 0), Partial),
            (Any, (1, 0, 2), Partial),
            (Any, (0, 0, 3), Canceled),
            (Alternatives, (1, 0, 0), Finished),
            (Alternatives, (1, 2, 0), Finished),
            (Alternatives, (0, 3, 0), Failed),
            (Hops, (3, 0, 0), Finished),
            (Hops, (0, 1, 0), Failed),
            (Hops, (2, 1, 0), Failed),
        ];
        for (order, (done, failed, canceled), end) in ends {
            let next = after(order, done, failed, canceled);
            assert_eq!(next, Next::End(end), "{order:?} {done} {failed} {canceled}");
        }
    }

    #[test]
    fn the_turn_of_a_file_comes_after_the_end_of_the_one_before() {
        assert_eq!(after(FileOrder::Alternatives, 0, 0, 0), Next::File(0));
        assert_eq!(after(FileOrder::Alternatives, 0, 2, 0), Next::File(2));
        assert_eq!(after(FileOrder::Hops, 1, 0, 0), Next::File(1));
        assert_eq!(after(FileOrder::Any, 1, 1, 0), Next::Wait);
    }
}

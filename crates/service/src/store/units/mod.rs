//! Units, segments and counters of jobs, inside a transaction.
//!
//! - [`mod@row`]: the hot row of a unit; [`queue`]: how it waits, is granted, and goes back
//! - [`segments`]: files of a job, cut into units
//! - [`results`]: what agents say of files; [`failures`]: again later, or given up
//! - [`losses`]: units whose agents were lost; [`cancellation`]: files that the user canceled
//! - [`divided`]: files that several units copy; [`leftovers`]: what they leave
//! - [`job_row`]: counters, state and events of a job
//!
//! Locks are taken in this order: unit, segment, job. A job's row comes last, as many share it.
//! Units are locked by number, segments by key.

mod cancellation;
pub(super) mod divided;
mod failures;
mod job_row;
mod leftovers;
mod losses;
mod queue;
mod results;
mod row;
mod segments;

pub(super) use self::{
    cancellation::cancel_place,
    job_row::{Changes, MARK, add_events, remove_row, reopen, set_state, wait_for},
    losses::{lose, take_back},
    queue::{End, PickedUnit, insert_picked, take_first},
    results::{Batch, take_results},
    row::{UNIT, UNIT_COLUMNS, UnitRow},
    segments::{NewSegment, append, directory, link_number, release_file, stage},
};

/// Value of `file_exception.failed` of a file that was given up.
pub(super) const FAILED: i64 = 1;

/// The same of a file that the user canceled.
pub(super) const CANCELED: i64 = 2;

/// Counters of bytes stop there: servers and agents say how large files are, and a sum that
/// overflows would be an error of the database for ever.
const BYTES_MAX: i64 = 1 << 62;

/// Most that one transaction adds to a counter of bytes.
const CHANGE_MAX: i64 = 1 << 60;

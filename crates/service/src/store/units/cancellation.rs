//! Files that the user canceled while the rest of their job goes on.

use godwit_service_api::job::{FileError, WhoActs};

use super::{CANCELED, divided::Part, job_row::Changes, queue, row::UnitRow, segments::Segment};
use crate::store::{
    StoreError,
    database::{Work, json},
    manifest::Outcome,
};

/// Ends the file at a place of a segment, whose units these are. An agent that has it is told to
/// stop; what else the unit holds goes back to the queue. False where the file has ended before.
pub(in crate::store) async fn cancel_place(
    work: &mut Work,
    units: &[UnitRow],
    place: u32,
    reason: &str,
    changes: &mut Changes,
) -> Result<bool, StoreError> {
    let Some(any) = units.first() else {
        return Ok(false);
    };
    let mut segment = Segment::lock(work, any).await?;
    let has = |unit: &&UnitRow| unit.open(&segment.outcomes).binary_search(&place).is_ok();
    let Some(unit) = units.iter().find(has) else {
        return Ok(false);
    };
    let mut rest = unit.open(&segment.outcomes);
    rest.retain(|open| *open != place);
    let error = FileError {
        code: "canceled".to_owned(),
        message: format!("canceled {reason}"),
        who: WhoActs::User,
        may_pass: false,
    };
    let text = "INSERT INTO file_exception (job, number, failed, attempts, error, agent, at)
        VALUES ($1, $2, $3, 0, $4, '', {now})
        ON CONFLICT (job, number) DO UPDATE SET failed = $3, error = $4, at = {now}";
    let query = work.query(text).bind(unit.job);
    let query = query.bind(segment.base + i64::from(place)).bind(CANCELED);
    query.bind(json(&error)?).execute(work.connection()).await?;
    // The other ranges of a divided file end with it.
    let part = Part::new(unit, segment.base, place);
    part.give_up(work, changes).await?;
    segment.set(place, Outcome::Odd);
    segment.write(work).await?;
    changes.job(unit.job).canceled += 1;
    changes.more_work(unit.job);
    match rest.is_empty() {
        true => queue::delete(work, unit).await?,
        false => queue::give_back(work, unit, &rest, unit.losses).await?,
    }
    Ok(true)
}

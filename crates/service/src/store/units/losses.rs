//! Units whose agents were lost.

use godwit_service_api::{
    agent::POISON,
    event::JobEventKind,
    job::{FileError, WhoActs},
};

use super::{
    divided::Part,
    failures::{self, Failure},
    job_row::{self, Changes},
    queue::{self, PickedUnit},
    row::UnitRow,
    segments::{self, Segment},
};
use crate::store::{
    StoreError,
    database::Work,
    manifest::Outcome,
    policy::{self, AfterLoss},
};

/// The unit of a grant that does not count any more goes back.
pub(in crate::store) async fn take_back(
    work: &mut Work,
    unit: &UnitRow,
    changes: &mut Changes,
) -> Result<(), StoreError> {
    let segment = Segment::lock(work, unit).await?;
    let open = unit.open(&segment.outcomes);
    match open.is_empty() {
        true => queue::delete(work, unit).await,
        false => queue::release(work, unit, &open, changes).await,
    }
}

/// A unit whose agents were lost, so many times by now, goes back, in halves where too many were.
pub(in crate::store) async fn lose(
    work: &mut Work,
    unit: &UnitRow,
    agent: &str,
    losses: u32,
    changes: &mut Changes,
) -> Result<(), StoreError> {
    segments::drop_staged(work, unit).await?;
    if job_row::is_final(work, unit.job).await? {
        return queue::delete(work, unit).await;
    }
    let mut segment = Segment::lock(work, unit).await?;
    let open = unit.open(&segment.outcomes);
    let event = JobEventKind::LeaseLost {
        agent: agent.to_owned(),
        files: open.len() as u64,
    };
    changes.event(unit.job, event);
    changes.more_work(unit.job);
    match policy::after_loss(&open, losses) {
        AfterLoss::Again if open.is_empty() => queue::delete(work, unit).await,
        AfterLoss::Again => queue::give_back(work, unit, &open, losses).await,
        AfterLoss::Halves(left, right) => {
            for places in [&left, &right] {
                for place in places {
                    segment.set(*place, Outcome::Odd);
                }
                let new = PickedUnit {
                    losses: losses - 1,
                    attempts: unit.attempts,
                    ..PickedUnit::of(places)
                };
                queue::insert_picked(work, unit, &new).await?;
            }
            segment.write(work).await?;
            queue::delete(work, unit).await
        }
        AfterLoss::Poison(place) => {
            let error = FileError {
                code: POISON.to_owned(),
                message: format!("{losses} agents were lost with it, the last was {agent}"),
                who: WhoActs::Operator,
                may_pass: false,
            };
            if unit.directories {
                return failures::fail_listing(work, unit, segment, agent, &error, 0, changes)
                    .await;
            }
            segment.set(place, Outcome::Odd);
            let index = segment.base + i64::from(place);
            Part::new(unit, segment.base, place)
                .give_up(work, changes)
                .await?;
            let failure = Failure {
                index,
                agent,
                error: &error,
                most: 0,
            };
            failures::fail(work, unit, &failure, changes).await?;
            segment.write(work).await?;
            queue::delete(work, unit).await
        }
    }
}

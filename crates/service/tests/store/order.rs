//! Files of a job that wait for each other, and files that are canceled alone.

use godwit_service::store::{Store, StoreError};
use godwit_service_api::job::{FileOrder, FileRequest, FileState, JobOptions, JobState};
use uuid::Uuid;

use crate::support::*;

/// Three files, each from a server of its own.
fn three() -> Vec<FileRequest> {
    let from = |n: usize| FileRequest {
        source: format!("gsiftp://source{n}.example.org/x"),
        ..file(0)
    };
    // The first pair of ends comes again: an order is that of the list.
    vec![from(1), from(2), from(1)]
}

async fn submit_in(store: &Store, order: FileOrder) -> Uuid {
    let options = JobOptions {
        order,
        ..JobOptions::default()
    };
    submit_with(store, three(), &options).await
}

async fn states(store: &Store, id: Uuid) -> Vec<FileState> {
    let job = store.job(id).await.unwrap();
    views(store, &job)
        .await
        .iter()
        .map(|view| view.state)
        .collect()
}

both! {

async fn the_next_alternative_starts_when_one_has_failed(fixture) {
    use FileState::{Active, Failed, Finished, Unused};
    let store = &fixture.store;
    let id = submit_in(store, FileOrder::Alternatives).await;
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    let first = agent.take(store, leader, 9).await;
    assert_eq!(first.iter().flat_map(indices).collect::<Vec<_>>(), [0]);
    assert_eq!(states(store, id).await, [Active, Unused, Unused]);
    let gone = result(first[0].lease, 0, vec![failed(0, error("not_found", false))]);
    agent.poll(store, &[], vec![gone]).await;
    let second = agent.take(store, leader, 9).await;
    assert_eq!(second.iter().flat_map(indices).collect::<Vec<_>>(), [1]);
    assert_eq!(states(store, id).await, [Failed, Active, Unused]);
    agent.poll(store, &[], vec![all_finished(&second[0])]).await;
    assert_eq!(states(store, id).await, [Failed, Finished, Unused]);
    let job = store.job(id).await.unwrap();
    let counts = (job.files.finished, job.files.failed, job.files.unused);
    assert_eq!((job.state, counts), (JobState::Finished, (1, 1, 1)));
    assert!(store.queues().await.unwrap().is_empty());
    assert!(matches!(store.retry_failed(id).await, Err(StoreError::Conflict(_))));
}

async fn a_job_fails_with_its_last_alternative(fixture) {
    let store = &fixture.store;
    let id = submit_in(store, FileOrder::Alternatives).await;
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    for index in 0..3 {
        let unit = agent.take(store, leader, 9).await.remove(0);
        let gone = result(unit.lease, 0, vec![failed(index, error("not_found", false))]);
        agent.poll(store, &[], vec![gone]).await;
    }
    let job = store.job(id).await.unwrap();
    assert_eq!((job.state, job.files.failed), (JobState::Failed, 3));
}

async fn a_hop_that_may_pass_is_tried_again_before_the_next_one(fixture) {
    use FileState::{Finished, Unused};
    let store = &fixture.store;
    let id = submit_in(store, FileOrder::Hops).await;
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    let unit = agent.take(store, leader, 9).await.remove(0);
    let later = result(unit.lease, 0, vec![failed(0, error("unreachable", true))]);
    agent.poll(store, &[], vec![later]).await;
    assert!(agent.take(store, leader, 9).await.is_empty());
    fixture.execute("UPDATE unit SET not_before = 0").await;
    let unit = agent.take(store, leader, 9).await.remove(0);
    assert_eq!(indices(&unit), [0]);
    agent.poll(store, &[], vec![all_finished(&unit)]).await;
    let unit = agent.take(store, leader, 9).await.remove(0);
    assert_eq!(indices(&unit), [1]);
    agent.poll(store, &[], vec![all_finished(&unit)]).await;
    assert_eq!(states(store, id).await[..2], [Finished, Finished]);
    let unit = agent.take(store, leader, 9).await.remove(0);
    agent.poll(store, &[], vec![all_finished(&unit)]).await;
    assert_eq!(store.job(id).await.unwrap().state, JobState::Finished);
    let other = submit_in(store, FileOrder::Hops).await;
    let unit = agent.take(store, leader, 9).await.remove(0);
    let gone = result(unit.lease, 0, vec![failed(0, error("not_found", false))]);
    agent.poll(store, &[], vec![gone]).await;
    let job = store.job(other).await.unwrap();
    assert_eq!((job.state, job.files.failed, job.files.unused), (JobState::Failed, 1, 2));
    assert_eq!(states(store, other).await, [FileState::Failed, Unused, Unused]);
    // The chain goes on where it broke.
    assert_eq!(store.retry_failed(other).await.unwrap(), 1);
    for index in 0..3 {
        let unit = agent.take(store, leader, 9).await.remove(0);
        assert_eq!(indices(&unit), [index]);
        agent.poll(store, &[], vec![all_finished(&unit)]).await;
    }
    let job = store.job(other).await.unwrap();
    assert_eq!((job.state, job.files.finished), (JobState::Finished, 3));
}

async fn files_of_an_order_end_with_their_job(fixture) {
    use FileState::{Canceled, Unused};
    let store = &fixture.store;
    let id = submit_in(store, FileOrder::Hops).await;
    let alone = store.cancel_file(id, 0, "by alice").await;
    assert!(matches!(alone, Err(StoreError::Conflict(_))));
    store.cancel(id, "by alice").await.unwrap();
    assert_eq!(states(store, id).await, [Canceled, Unused, Unused]);
    let job = store.job(id).await.unwrap();
    assert_eq!((job.files.canceled, job.files.unused), (1, 2));
}

async fn a_file_is_canceled_while_others_of_its_job_continue(fixture) {
    use FileState::{Canceled, Finished};
    let store = &fixture.store;
    let id = submit(store, 3).await;
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    assert!(store.cancel_file(id, 2, "by alice").await.unwrap());
    assert!(!store.cancel_file(id, 2, "by alice").await.unwrap());
    let unknown = store.cancel_file(id, 3, "by alice").await;
    assert!(matches!(unknown, Err(StoreError::NotFound)));
    let held = agent.take(store, leader, 9).await.remove(0);
    assert_eq!(indices(&held), [0, 1]);
    // An agent has it: the agent stops, and gets the rest again.
    assert!(store.cancel_file(id, 0, "by alice").await.unwrap());
    let polled = agent.poll(store, &[held.lease], Vec::new()).await;
    assert_eq!(polled.stop.len(), 1);
    let rest = agent.granted(store, leader, 9).await.remove(0);
    assert_eq!(indices(&rest), [1]);
    agent.poll(store, &[], vec![all_finished(&rest)]).await;
    assert_eq!(states(store, id).await, [Canceled, Finished, Canceled]);
    let job = store.job(id).await.unwrap();
    assert_eq!((job.state, job.files.canceled), (JobState::Partial, 2));
    assert_eq!(store.retry_failed(id).await.unwrap(), 0);
    let other = submit(store, 1).await;
    assert!(store.cancel_file(other, 0, "by alice").await.unwrap());
    assert_eq!(store.job(other).await.unwrap().state, JobState::Canceled);
    assert!(!store.cancel_file(other, 0, "by alice").await.unwrap());
}

}

//! Leases and results: who may write, what counts once, what goes back.

use std::time::Duration;

use godwit_service::store::{StoreError, model::GrantOrder};
use godwit_service_api::{
    agent::{FileEnd, FileOutcome, HANDED_BACK, POISON, StopReason, UnitResult, Work},
    event::JobEventKind,
    job::{FileState, JobOptions, JobState},
};

use crate::support::*;

both! {

async fn a_poll_that_was_overtaken_is_refused_while_the_lease_lasts(fixture) {
    let store = &fixture.store;
    let mut agent = Agent::new("dtn1");
    let late = agent.request(&[], Vec::new());
    agent.poll(store, &[], Vec::new()).await;
    assert!(matches!(store.poll(&late).await, Err(StoreError::Conflict(_))));
    fixture.execute("UPDATE agent SET lease_until = 0").await;
    store.poll(&late).await.unwrap();
}

async fn every_message_may_come_twice(fixture) {
    let store = &fixture.store;
    let id = submit(store, 20).await;
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    let granted = agent.take(store, leader, 1).await;
    let unit = &granted[0];
    let mut part = result(unit.lease, 0, vec![finished(0), finished(1), finished(1)]);
    part.last = false;
    let request = agent.request(&[unit.lease], vec![part]);
    for _ in 0..2 {
        let polled = store.poll(&request).await.unwrap();
        assert_eq!(polled.acknowledged, [(unit.lease, 0)]);
        assert!(polled.stop.is_empty() && polled.undelivered.is_empty());
    }
    let rest = (2..16).map(finished).collect();
    let request = agent.request(&[], vec![result(unit.lease, 1, rest)]);
    for _ in 0..2 {
        let polled = store.poll(&request).await.unwrap();
        assert_eq!(polled.acknowledged, [(unit.lease, 1)]);
        assert!(polled.stop.is_empty());
    }
    let job = store.job(id).await.unwrap();
    assert_eq!((job.files.finished, job.bytes_done), (16, 160));
}

async fn a_grant_takes_the_first_files_of_a_unit_and_leaves_the_rest(fixture) {
    let store = &fixture.store;
    let id = submit(store, 100).await;
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    // The first unit of a job is small and whole.
    let mut granted = agent.take(store, leader, 1).await;
    let queue = store.queues().await.unwrap().remove(0);
    let of = |files| GrantOrder { files, ..agent.order(queue.key) };
    granted.extend(agent.grant(store, leader, &[of(10), of(50), of(0)]).await);
    let firsts = granted.iter().map(|unit| (indices(unit)[0], indices(unit).len()));
    assert_eq!(firsts.collect::<Vec<_>>(), [(0, 16), (76, 24), (16, 10), (26, 50)]);
    assert_eq!(granted.iter().map(|unit| unit.bytes).sum::<u64>(), 1000);
    assert!(store.queues().await.unwrap().is_empty());
    let results = granted.iter().map(all_finished).collect();
    agent.poll(store, &[], results).await;
    let job = store.job(id).await.unwrap();
    assert_eq!((job.state, job.files.finished), (JobState::Finished, 100));
}

async fn a_grant_that_was_not_delivered_goes_back_when_its_job_may_not_run(fixture) {
    let store = &fixture.store;
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    let paused = submit(store, 2).await;
    let unit = agent.take(store, leader, 1).await.remove(0);
    store.pause(paused, "by alice").await.unwrap();
    let polled = agent.poll(store, &[], Vec::new()).await;
    assert!(polled.shares.is_empty() && polled.undelivered.is_empty());
    assert_eq!(fixture.number("SELECT COUNT(*) FROM unit WHERE agent IS NOT NULL").await, 0);
    // The answer with the grant was only late.
    let polled = agent.poll(store, &[unit.lease], Vec::new()).await;
    assert_eq!(polled.stop[0].why, StopReason::Fenced);
    store.resume(paused).await.unwrap();
    let again = agent.take(store, leader, 1).await.remove(0);
    assert_eq!(indices(&again), [0, 1]);
    store.cancel(paused, "by alice").await.unwrap();
    agent.poll(store, &[], Vec::new()).await;
    assert_eq!(fixture.number("SELECT COUNT(*) FROM unit").await, 0);
    agent.poll(store, &[], vec![all_finished(&again)]).await;
    let job = store.job(paused).await.unwrap();
    assert_eq!((job.state, job.files.finished), (JobState::Canceled, 0));
}

async fn a_unit_whose_results_are_lost_goes_back(fixture) {
    let store = &fixture.store;
    let id = submit(store, 3).await;
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    let unit = agent.take(store, leader, 1).await.remove(0);
    // The database was restored: it acknowledged result 0 and does not know it.
    let late = result(unit.lease, 1, vec![finished(1)]);
    let polled = agent.poll(store, &[], vec![late]).await;
    assert_eq!(polled.acknowledged, [(unit.lease, 1)]);
    assert_eq!((polled.stop[0].lease, polled.stop[0].why), (unit.lease, StopReason::Fenced));
    assert_eq!(store.job(id).await.unwrap().files.finished, 0);
    let again = agent.take(store, leader, 1).await.remove(0);
    assert!(again.again && !unit.again);
    assert_eq!(indices(&again), [0, 1, 2]);
}

async fn a_unit_number_that_comes_again_has_another_epoch(fixture) {
    let store = &fixture.store;
    submit(store, 1).await;
    let epoch = fixture.number("SELECT epoch FROM unit").await;
    fixture.execute("DELETE FROM unit").await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    submit(store, 1).await;
    let later = fixture.number("SELECT epoch FROM unit").await;
    assert!(later > epoch + 4096);
}

async fn a_unit_with_which_its_agent_dies_is_halved_at_once(fixture) {
    let store = &fixture.store;
    let id = submit(store, 2).await;
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    let died = |lease| UnitResult {
        error: Some(error(POISON, false)),
        ..result(lease, 0, Vec::new())
    };
    let unit = agent.take(store, leader, 1).await.remove(0);
    agent.poll(store, &[], vec![died(unit.lease)]).await;
    let halves = agent.take(store, leader, 2).await;
    assert_eq!(halves.iter().map(indices).collect::<Vec<_>>(), [[0], [1]]);
    let results = vec![all_finished(&halves[0]), died(halves[1].lease)];
    agent.poll(store, &[], results).await;
    let job = store.job(id).await.unwrap();
    assert_eq!((job.state, job.files.finished, job.files.failed), (JobState::Partial, 1, 1));
    let views = views(store, &job).await;
    assert_eq!(views[1].error.as_ref().unwrap().code, POISON);
}

async fn an_answer_that_was_lost_is_given_again(fixture) {
    let store = &fixture.store;
    submit(store, 3).await;
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    let unit = agent.take(store, leader, 1).await.remove(0);
    let polled = agent.poll(store, &[], Vec::new()).await;
    assert_eq!(polled.undelivered.len(), 1);
    assert_eq!(polled.undelivered[0].lease, unit.lease);
    assert_eq!(indices(&polled.undelivered[0]), [0, 1, 2]);
    assert!(agent.poll(store, &[unit.lease], Vec::new()).await.undelivered.is_empty());
    let held = store.held("dtn1", agent.incarnation, &[]).await.unwrap();
    assert_eq!(held.len(), 1);
}

async fn a_stale_agent_is_fenced_and_never_counted(fixture) {
    let store = &fixture.store;
    let id = submit(store, 3).await;
    let leader = lead(store).await;
    let mut slow = Agent::new("slow");
    let old = slow.take(store, leader, 1).await.remove(0);
    fixture.end_leases().await;
    let lost = store.expire(leader).await.unwrap();
    assert_eq!((lost.len(), lost[0].lease, lost[0].agent.as_str()), (1, old.lease, "slow"));
    let mut other = Agent::new("other");
    let new = other.take(store, leader, 1).await.remove(0);
    assert_eq!((new.lease.unit, new.lease.epoch), (old.lease.unit, old.lease.epoch + 1));
    let polled = slow.poll(store, &[old.lease], vec![all_finished(&old)]).await;
    assert_eq!(polled.acknowledged, [(old.lease, 0)]);
    assert_eq!((polled.stop[0].lease, polled.stop[0].why), (old.lease, StopReason::Fenced));
    assert_eq!(store.job(id).await.unwrap().files.finished, 0);
    other.poll(store, &[], vec![all_finished(&new)]).await;
    assert_eq!(store.job(id).await.unwrap().state, JobState::Finished);
    // Its unit is gone: what it repeats is acknowledged, what it runs is stopped.
    let polled = slow.poll(store, &[old.lease], Vec::new()).await;
    assert_eq!(polled.stop[0].why, StopReason::Fenced);
    let events = store.events(id, 0, 100).await.unwrap();
    let numbers: Vec<u64> = events.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<u64>>());
    let lost = |e: &JobEventKind| matches!(e, JobEventKind::LeaseLost { files: 3, .. });
    assert!(events.iter().any(|(_, event)| lost(&event.what)));
    assert_eq!(store.events(id, numbers.len() as u64 - 1, 100).await.unwrap().len(), 1);
}

async fn a_second_process_of_a_name_waits_for_the_lease_of_the_first(fixture) {
    let store = &fixture.store;
    submit(store, 3).await;
    let leader = lead(store).await;
    let mut first = Agent::new("dtn1");
    let unit = first.take(store, leader, 1).await.remove(0);
    let mut second = Agent::new("dtn1");
    let request = second.request(&[], Vec::new());
    assert!(matches!(store.poll(&request).await, Err(StoreError::AgentTaken)));
    fixture.end_leases().await;
    assert!(store.poll(&request).await.unwrap().undelivered.is_empty());
    assert_eq!(store.queues().await.unwrap()[0].ready, 1);
    let request = first.request(&[unit.lease], Vec::new());
    assert!(matches!(store.poll(&request).await, Err(StoreError::AgentTaken)));
}

async fn only_the_leader_writes_as_such(fixture) {
    let store = &fixture.store;
    submit(store, 3).await;
    let old = lead(store).await;
    assert_eq!(lead(store).await, old);
    let term = Duration::from_secs(10);
    assert_eq!(store.lead("node2", term).await.unwrap(), None);
    store.step_down(old).await.unwrap();
    let new = store.lead("node2", term).await.unwrap().unwrap();
    assert!(new.epoch > old.epoch);
    let mut agent = Agent::new("dtn1");
    agent.poll(store, &[], Vec::new()).await;
    let order = agent.order(store.queues().await.unwrap()[0].key);
    let granted = store.grant(old, std::slice::from_ref(&order)).await;
    assert!(matches!(granted, Err(StoreError::NotLeader)));
    assert!(matches!(store.expire(old).await, Err(StoreError::NotLeader)));
    let keep = Default::default();
    assert!(matches!(store.maintain(old, keep).await, Err(StoreError::NotLeader)));
    assert_eq!(store.grant(new, &[order]).await.unwrap().len(), 1);
}

async fn nothing_expires_for_a_lease_after_the_database_was_away(fixture) {
    let store = &fixture.store;
    submit(store, 3).await;
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    let unit = agent.take(store, leader, 1).await.remove(0);
    fixture.end_leases().await;
    fixture.execute("UPDATE leader SET renewed = renewed - 60000000").await;
    lead(store).await;
    assert!(store.expire(leader).await.unwrap().is_empty());
    // The same agent continues under the same epoch.
    assert!(agent.poll(store, &[unit.lease], Vec::new()).await.stop.is_empty());
    fixture.end_leases().await;
    assert_eq!(store.expire(leader).await.unwrap().len(), 1);
}

async fn agents_that_drain_or_are_dead_get_nothing(fixture) {
    let store = &fixture.store;
    submit(store, 3).await;
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    agent.poll(store, &[], Vec::new()).await;
    store.set_draining("dtn1", true).await.unwrap();
    assert!(agent.poll(store, &[], Vec::new()).await.drain);
    assert!(agent.granted(store, leader, 1).await.is_empty());
    store.set_draining("dtn1", false).await.unwrap();
    fixture.end_leases().await;
    assert!(agent.granted(store, leader, 1).await.is_empty());
    assert!(!store.agents().await.unwrap()[0].alive);
    assert_eq!(agent.take(store, leader, 1).await.len(), 1);
    let agents = store.agents().await.unwrap();
    assert_eq!((agents[0].alive, agents[0].units), (true, 1));
    assert_eq!(store.leased().await.unwrap().len(), 1);
    let missing = store.set_draining("dtn9", true).await;
    assert!(matches!(missing, Err(StoreError::NotFound)));
}

async fn a_canceled_job_stops_its_agents_and_keeps_what_was_done(fixture) {
    let store = &fixture.store;
    let id = submit(store, 1500).await;
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    let unit = agent.take(store, leader, 1).await.remove(0);
    store.cancel(id, "by alice").await.unwrap();
    assert!(matches!(store.cancel(id, "again").await, Err(StoreError::Conflict(_))));
    assert!(store.queues().await.unwrap().is_empty());
    let polled = agent.poll(store, &[unit.lease], Vec::new()).await;
    assert_eq!(polled.stop[0].why, StopReason::Canceled);
    let last = result(unit.lease, 0, vec![finished(0)]);
    agent.poll(store, &[], vec![last]).await;
    let job = store.job(id).await.unwrap();
    assert_eq!((job.state, job.files.finished), (JobState::Canceled, 1));
    assert_eq!((job.files.canceled, job.reason.as_deref()), (1499, Some("by alice")));
    assert_eq!(count_in(store, id, FileState::Canceled).await, 1499);
    assert_eq!(fixture.number("SELECT COUNT(*) FROM unit").await, 0);
}

async fn units_of_a_canceled_job_go_with_their_agent(fixture) {
    let store = &fixture.store;
    let id = submit(store, 3).await;
    let leader = lead(store).await;
    Agent::new("dtn1").take(store, leader, 1).await;
    store.cancel(id, "by alice").await.unwrap();
    fixture.end_leases().await;
    store.expire(leader).await.unwrap();
    assert_eq!(fixture.number("SELECT COUNT(*) FROM unit").await, 0);
}

async fn a_paused_job_gives_its_work_back_and_goes_on(fixture) {
    let store = &fixture.store;
    let id = submit(store, 3).await;
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    let unit = agent.take(store, leader, 1).await.remove(0);
    store.pause(id, "by alice").await.unwrap();
    let polled = agent.poll(store, &[unit.lease], Vec::new()).await;
    assert_eq!(polled.stop[0].why, StopReason::Paused);
    let last = result(unit.lease, 0, vec![finished(1)]);
    for _ in 0..2 {
        let polled = agent.poll(store, &[], vec![last.clone()]).await;
        assert!(polled.stop.is_empty());
        assert_eq!(polled.acknowledged.len(), 1);
    }
    assert!(agent.granted(store, leader, 1).await.is_empty());
    let order = agent.order(store.queues().await.unwrap()[0].key);
    assert!(store.grant(leader, &[order]).await.unwrap().is_empty());
    store.resume(id).await.unwrap();
    assert_eq!(store.job(id).await.unwrap().state, JobState::Active);
    let unit = agent.take(store, leader, 1).await.remove(0);
    assert_eq!(indices(&unit), [0, 2]);
}

async fn errors_that_may_pass_are_tried_again_later(fixture) {
    let store = &fixture.store;
    let options = JobOptions { attempts: 2, ..JobOptions::default() };
    let id = submit_with(store, files(3), &options).await;
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    let unit = agent.take(store, leader, 1).await.remove(0);
    let ends = vec![
        finished(0),
        failed(1, error("unreachable", true)),
        failed(2, error("not_found", false)),
    ];
    let polled = agent.poll(store, &[], vec![result(unit.lease, 0, ends)]).await;
    assert!(polled.more_work);
    let job = store.job(id).await.unwrap();
    assert_eq!((job.state, job.files.failed), (JobState::Active, 1));
    assert_eq!(job.errors.get("not_found"), Some(&1));
    let queues = store.queues().await.unwrap();
    assert_eq!((queues[0].ready, queues[0].waiting), (0, 1));
    let wait = queues[0].not_before.unwrap().duration_since(store.now().await.unwrap());
    assert!((1..8).contains(&wait.as_secs()), "{wait:?}");
    assert!(store.grant(leader, &[agent.order(queues[0].key)]).await.unwrap().is_empty());
    fixture.execute("UPDATE unit SET not_before = 0").await;
    let unit = agent.take(store, leader, 1).await.remove(0);
    assert_eq!(indices(&unit), [1]);
    let ends = vec![failed(1, error("unreachable", true))];
    agent.poll(store, &[], vec![result(unit.lease, 0, ends)]).await;
    let job = store.job(id).await.unwrap();
    assert_eq!((job.state, job.files.finished, job.files.failed), (JobState::Partial, 1, 2));
    let views = views(store, &job).await;
    assert_eq!((views[1].state, views[1].attempts), (FileState::Failed, 2));
    assert_eq!(views[1].error.as_ref().unwrap().code, "unreachable");
    // The user tries again.
    assert_eq!(store.retry_failed(id).await.unwrap(), 2);
    let job = store.job(id).await.unwrap();
    assert_eq!((job.state, job.files.failed, job.errors.len()), (JobState::Active, 0, 0));
    let unit = agent.take(store, leader, 1).await.remove(0);
    assert_eq!(indices(&unit), [1, 2]);
    agent.poll(store, &[], vec![all_finished(&unit)]).await;
    assert_eq!(store.job(id).await.unwrap().state, JobState::Finished);
    assert_eq!(store.retry_failed(id).await.unwrap(), 0);
}

async fn files_that_failed_in_any_order_are_counted_when_they_end(fixture) {
    let store = &fixture.store;
    let id = submit(store, 4).await;
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    let unit = agent.take(store, leader, 1).await.remove(0);
    let failed = |index| failed(index, error("unreachable", true));
    let ends = vec![failed(3), failed(0), failed(2), failed(1)];
    agent.poll(store, &[], vec![result(unit.lease, 0, ends)]).await;
    fixture.execute("UPDATE unit SET not_before = 0").await;
    let unit = agent.take(store, leader, 1).await.remove(0);
    assert_eq!(indices(&unit), [0, 1, 2, 3]);
    agent.poll(store, &[], vec![all_finished(&unit)]).await;
    assert_eq!(store.job(id).await.unwrap().state, JobState::Finished);
}

async fn a_unit_that_failed_as_a_whole_fails_its_open_files(fixture) {
    let store = &fixture.store;
    let id = submit(store, 4).await;
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    let unit = agent.take(store, leader, 1).await.remove(0);
    let mut last = result(unit.lease, 0, vec![finished(2), failed(3, error("exists", false))]);
    last.error = Some(error("unreachable", true));
    agent.poll(store, &[], vec![last]).await;
    fixture.execute("UPDATE unit SET not_before = 0").await;
    let unit = agent.take(store, leader, 1).await.remove(0);
    assert_eq!(indices(&unit), [0, 1]);
    let mut last = result(unit.lease, 0, Vec::new());
    last.error = Some(error("permission", false));
    agent.poll(store, &[], vec![last]).await;
    let job = store.job(id).await.unwrap();
    assert_eq!((job.state, job.files.failed), (JobState::Partial, 3));
    assert_eq!(job.errors.get("permission"), Some(&2));
}

async fn files_that_cost_three_agents_are_found_by_halving(fixture) {
    let store = &fixture.store;
    let id = submit(store, 4).await;
    let leader = lead(store).await;
    for turn in 0..40 {
        let mut agent = Agent::new(&format!("dtn{turn}"));
        let granted = agent.take(store, leader, 8).await;
        if granted.is_empty() {
            break;
        }
        // Whoever has file 2 dies, others finish.
        let (bad, good): (Vec<_>, Vec<_>) =
            granted.iter().partition(|unit| indices(unit).contains(&2));
        agent.poll(store, &bad.iter().map(|u| u.lease).collect::<Vec<_>>(),
            good.iter().map(|u| all_finished(u)).collect()).await;
        if !bad.is_empty() {
            fixture.end_leases().await;
            assert_eq!(store.expire(leader).await.unwrap().len(), bad.len());
        }
    }
    let job = store.job(id).await.unwrap();
    assert_eq!((job.state, job.files.finished, job.files.failed), (JobState::Partial, 3, 1));
    let views = views(store, &job).await;
    assert_eq!(views[2].error.as_ref().unwrap().code, "poison");
}

async fn trees_are_listed_and_what_they_hold_moves(fixture) {
    let store = &fixture.store;
    let id = submit_with(store, vec![tree()], &JobOptions::default()).await;
    assert!(!store.job(id).await.unwrap().listed);
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    let unit = agent.take(store, leader, 1).await.remove(0);
    assert!(matches!(&unit.work, Work::List { source, .. } if source.ends_with("/tree")));
    let mut part = result(unit.lease, 0, Vec::new());
    part.found = vec![found("a", false), found("d", true)];
    part.last = false;
    for _ in 0..2 {
        agent.poll(store, &[unit.lease], vec![part.clone()]).await;
    }
    assert_eq!(store.job(id).await.unwrap().files.total, 0);
    // Its agent is lost: the next one begins from the start.
    fixture.end_leases().await;
    store.expire(leader).await.unwrap();
    let unit = agent.take(store, leader, 1).await.remove(0);
    let mut part = result(unit.lease, 0, Vec::new());
    part.found = vec![found("a", false), found("b", false), found("d", true)];
    let polled = agent.poll(store, &[], vec![part]).await;
    assert!(polled.more_work);
    let job = store.job(id).await.unwrap();
    assert_eq!((job.files.total, job.listed, job.bytes_total), (2, false, 20));
    let granted = agent.take(store, leader, 4).await;
    let (lists, copies): (Vec<_>, Vec<_>) =
        granted.iter().partition(|unit| matches!(unit.work, Work::List { .. }));
    assert_eq!((lists.len(), copies.len()), (1, 1));
    let mut refused = result(lists[0].lease, 0, Vec::new());
    refused.error = Some(error("permission", false));
    agent.poll(store, &[], vec![refused, all_finished(copies[0])]).await;
    let job = store.job(id).await.unwrap();
    assert_eq!((job.state, job.files.total, job.files.failed), (JobState::Partial, 3, 1));
    let failed: Vec<_> = views(store, &job).await;
    let failed: Vec<_> = failed.iter().filter(|v| v.state == FileState::Failed).collect();
    assert!(failed.len() == 1 && failed[0].source.ends_with("/tree/d"));
    // A listing that is tried again and finds nothing ends the job well.
    assert_eq!(store.retry_failed(id).await.unwrap(), 1);
    let unit = agent.take(store, leader, 1).await.remove(0);
    agent.poll(store, &[], vec![result(unit.lease, 0, Vec::new())]).await;
    let job = store.job(id).await.unwrap();
    assert_eq!((job.state, job.files.total, job.listed), (JobState::Finished, 2, true));
}

async fn a_directory_that_is_handed_back_is_listed_again(fixture) {
    let store = &fixture.store;
    let id = submit_with(store, vec![tree()], &JobOptions::default()).await;
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    let unit = agent.take(store, leader, 1).await.remove(0);
    let mut part = result(unit.lease, 0, Vec::new());
    (part.found, part.last) = (vec![found("a", false)], false);
    // The agent was started again, and has not the rest of the list.
    let mut back = result(unit.lease, 1, Vec::new());
    back.error = Some(error(HANDED_BACK, true));
    agent.poll(store, &[], vec![part, back]).await;
    let unit = agent.take(store, leader, 1).await.remove(0);
    let mut whole = result(unit.lease, 0, Vec::new());
    whole.found = vec![found("a", false), found("b", false)];
    agent.poll(store, &[], vec![whole]).await;
    let job = store.job(id).await.unwrap();
    assert_eq!((job.files.total, job.listed), (2, true));
}

async fn a_listing_that_leads_elsewhere_is_refused(fixture) {
    let store = &fixture.store;
    let id = submit_with(store, vec![tree()], &JobOptions::default()).await;
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    let unit = agent.take(store, leader, 1).await.remove(0);
    let mut part = result(unit.lease, 0, Vec::new());
    (part.found, part.last) = (vec![found("a", false)], false);
    agent.poll(store, &[unit.lease], vec![part.clone()]).await;
    let mut evil = found("b", false);
    evil.destination = "gsiftp://b.example.org/home/alice/.ssh/b".into();
    (part.sequence, part.found) = (1, vec![found("c", false), evil]);
    let polled = agent.poll(store, &[unit.lease], vec![part]).await;
    assert_eq!(polled.acknowledged, [(unit.lease, 1)]);
    assert_eq!(polled.stop[0].why, StopReason::Fenced);
    let job = store.job(id).await.unwrap();
    assert_eq!((job.files.total, job.listed), (0, false));
    assert_eq!(fixture.number("SELECT COUNT(*) FROM segment").await, 1);
    // It is listed again later.
    assert_eq!(store.queues().await.unwrap()[0].waiting, 1);
}

async fn sizes_that_servers_invent_do_not_stop_the_service(fixture) {
    let store = &fixture.store;
    let id = submit_with(store, vec![tree()], &JobOptions::default()).await;
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    let unit = agent.take(store, leader, 1).await.remove(0);
    for sequence in 0..20 {
        let mut part = result(unit.lease, sequence, Vec::new());
        let names = (0..1000).map(|n| found(&format!("{sequence}-{n}"), false));
        part.found = names.collect();
        part.found.iter_mut().for_each(|file| file.bytes = Some(u64::MAX));
        part.last = sequence == 19;
        agent.poll(store, &[unit.lease], vec![part]).await;
    }
    let job = store.job(id).await.unwrap();
    assert_eq!((job.files.total, job.bytes_total), (20_000, 1 << 62));
    assert_eq!(store.queues().await.unwrap()[0].files, 20_000);
    let unit = agent.take(store, leader, 1).await.remove(0);
    let mut done = all_finished(&unit);
    for file in &mut done.files {
        file.end = FileEnd::Finished { size: u64::MAX, checksum: None };
    }
    agent.poll(store, &[], vec![done]).await;
    assert!(store.job(id).await.unwrap().files.finished > 0);
}

async fn sizes_and_checksums_of_agents_are_kept(fixture) {
    let store = &fixture.store;
    let mut unknown = file(0);
    unknown.bytes = None;
    let id = submit_with(store, vec![unknown, file(1)], &JobOptions::default()).await;
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    let unit = agent.take(store, leader, 1).await.remove(0);
    let sum = Some("adler32:1a2b3c4d".to_owned());
    let end = FileEnd::Finished { size: 77, checksum: sum.clone() };
    let skipped = FileOutcome { index: 1, bytes: 0, end: FileEnd::Skipped };
    let ends = vec![FileOutcome { index: 0, bytes: 77, end }, skipped, finished(500)];
    agent.poll(store, &[], vec![result(unit.lease, 0, ends)]).await;
    let job = store.job(id).await.unwrap();
    assert_eq!((job.state, job.files.skipped), (JobState::Finished, 1));
    assert_eq!((job.bytes_total, job.bytes_done), (87, 77));
    let views = views(store, &job).await;
    assert_eq!((views[0].bytes, &views[0].checksum), (Some(77), &sum));
    assert_eq!(views[1].state, FileState::Skipped);
}

}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_of_the_server_loses_nothing_that_was_acknowledged() {
    let Some(fixture) = crate::fixture::Fixture::postgres().await else {
        return;
    };
    let (store, server) = (&fixture.store, fixture.server.as_ref().unwrap());
    let id = submit(store, 20).await;
    let leader = lead(store).await;
    let mut agent = Agent::new("dtn1");
    let granted = agent.take(store, leader, 2).await;
    let polled = agent
        .poll(store, &[granted[1].lease], vec![all_finished(&granted[0])])
        .await;
    assert_eq!(polled.acknowledged.len(), 1);
    server.crash();
    let request = agent.request(&[], vec![all_finished(&granted[1])]);
    let refused = store.poll(&request).await.unwrap_err();
    assert!(refused.is_passing(), "{refused:?}");
    server.begin();
    let mut polled = store.poll(&request).await;
    while polled.as_ref().is_err_and(StoreError::is_passing) {
        tokio::time::sleep(Duration::from_millis(50)).await;
        polled = store.poll(&request).await;
    }
    assert_eq!(polled.unwrap().acknowledged.len(), 1);
    let job = store.job(id).await.unwrap();
    assert_eq!((job.state, job.files.finished), (JobState::Finished, 20));
}

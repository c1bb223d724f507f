//! Each change of what waits has a mark, by which the leader reads no more than what has changed.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use godwit_service::store::{
    Store,
    model::{QueueKey, QueueRecord},
};
use godwit_service_api::job::{FileOrder, JobOptions};
use uuid::Uuid;

use crate::support::*;

/// Longer than a test takes.
const WITHIN: Duration = Duration::from_secs(3600);

/// What waits, as one sees it who follows the marks.
struct Follower<'a> {
    store: &'a Store,
    marks: HashMap<i64, i64>,
    queues: BTreeMap<QueueKey, QueueRecord>,
}

impl<'a> Follower<'a> {
    fn new(store: &'a Store) -> Self {
        Self {
            store,
            marks: HashMap::new(),
            queues: BTreeMap::new(),
        }
    }

    async fn read(&mut self, jobs: &[i64]) {
        self.queues.retain(|key, _| !jobs.contains(&key.job));
        let queues = self.store.queues_of(jobs).await.unwrap();
        let queues = queues.into_iter().map(|queue| (queue.key, queue));
        self.queues.extend(queues);
    }

    /// Reads what has a new mark, and says how many jobs that were. Then it knows everything.
    async fn follow(&mut self, after: &str) -> usize {
        let marks = self.store.changed_jobs(WITHIN).await.unwrap();
        let is_new = |(job, mark): &&(i64, i64)| self.marks.insert(*job, *mark) != Some(*mark);
        let new: Vec<i64> = marks.iter().filter(is_new).map(|(job, _)| *job).collect();
        self.read(&new).await;
        let all = self.store.queues().await.unwrap();
        let known: Vec<QueueRecord> = self.queues.values().cloned().collect();
        assert_eq!(known, all, "after {after}");
        new.len()
    }
}

both! {
    async fn each_change_of_what_waits_is_marked_once(fixture) {
        let store = &fixture.store;
        let leader = lead(store).await;
        let mut seen = Follower::new(store);
        let first = submit(store, 40).await;
        assert_eq!(seen.follow("a submission").await, 1);
        assert_eq!(seen.follow("nothing").await, 0);
        let options = JobOptions { after: vec![first], ..JobOptions::default() };
        let second = submit_with(store, files(1), &options).await;
        let hops = JobOptions { order: FileOrder::Hops, ..JobOptions::default() };
        let hops = submit_with(store, files(2), &hops).await;
        let listed = submit_with(store, vec![tree()], &JobOptions::default()).await;
        assert_eq!(seen.follow("three submissions").await, 3);
        store.pause(first, "by a test").await.unwrap();
        assert_eq!(seen.follow("a pause").await, 1);
        store.resume(first).await.unwrap();
        let urgent = JobOptions { priority: 5, ..JobOptions::default() };
        store.set_options(first, &urgent).await.unwrap();
        assert_eq!(seen.follow("a resumption and another priority").await, 1);
        store.cancel_file(first, 30, "by a test").await.unwrap();
        assert_eq!(seen.follow("the end of a file").await, 1);

        let mut agent = Agent::new("one");
        let units = agent.take(store, leader, 10).await;
        let of = |job: Uuid| {
            let unit = units.iter().filter(move |unit| unit.job == job);
            unit.min_by_key(|unit| unit.lease.unit).unwrap()
        };
        // What a leader has granted it reads itself.
        let granted: Vec<i64> = units.iter().map(|unit| unit.queue.job).collect();
        seen.read(&granted).await;
        seen.follow("grants").await;

        // Of 16 files one is to be tried again; a file is given up; a directory is listed; the
        // second file of the hops comes.
        let mut part = all_finished(of(first));
        part.files[3] = failed(indices(of(first))[3], error("busy", true));
        let mut listing = result(of(listed).lease, 0, Vec::new());
        listing.found = vec![found("a", false), found("b", true)];
        let leases: Vec<_> = units.iter().map(|unit| unit.lease).collect();
        let results = vec![part, listing, all_finished(of(hops))];
        agent.poll(store, &leases, results).await;
        assert_eq!(seen.follow("results").await, 3);

        // The agent starts again without the rest of the first job, which then goes back.
        let rest: Vec<_> = units.iter().filter(|unit| unit.job == first).collect();
        let rest = rest.iter().find(|unit| unit.lease != of(first).lease).unwrap();
        let mut back = result(rest.lease, 0, Vec::new());
        back.error = Some(error(godwit_service_api::agent::HANDED_BACK, true));
        agent.poll(store, &leases, vec![back]).await;
        assert_eq!(seen.follow("a unit that was handed back").await, 1);

        store.cancel(hops, "by a test").await.unwrap();
        store.cancel(first, "by a test").await.unwrap();
        seen.follow("two ends").await;
        assert!(store.job(second).await.unwrap().state.is_final());
        assert!(seen.queues.values().all(|queue| queue.job == listed));
    }

    async fn a_job_that_waited_for_another_is_marked_when_that_ends(fixture) {
        let store = &fixture.store;
        let leader = lead(store).await;
        let mut seen = Follower::new(store);
        let first = submit(store, 1).await;
        let options = JobOptions { after: vec![first], ..JobOptions::default() };
        submit_with(store, files(1), &options).await;
        seen.follow("submissions").await;
        let mut agent = Agent::new("one");
        let units = agent.take(store, leader, 1).await;
        seen.read(&[units[0].queue.job]).await;
        agent.poll(store, &[units[0].lease], vec![all_finished(&units[0])]).await;
        seen.follow("the end of the first").await;
        assert!(seen.queues.values().all(|queue| queue.held.is_none()));
        assert_eq!(seen.queues.len(), 1);
    }

    async fn files_that_are_tried_again_and_lost_units_are_marked(fixture) {
        let store = &fixture.store;
        let leader = lead(store).await;
        let mut seen = Follower::new(store);
        let job = submit(store, 2).await;
        seen.follow("a submission").await;
        let mut agent = Agent::new("one");
        let units = agent.take(store, leader, 1).await;
        seen.read(&[units[0].queue.job]).await;
        let files = indices(&units[0]).into_iter();
        let files = files.map(|index| failed(index, error("gone", false))).collect();
        agent.poll(store, &[units[0].lease], vec![result(units[0].lease, 0, files)]).await;
        seen.follow("an end without success").await;
        assert_eq!(store.retry_failed(job).await.unwrap(), 2);
        assert_eq!(seen.follow("a new attempt").await, 1);
        let units = agent.take(store, leader, 1).await;
        seen.read(&[units[0].queue.job]).await;
        // Another process of the agent, once its lease has ended.
        fixture.execute("UPDATE agent SET lease_until = 0").await;
        Agent::new("one").poll(store, &[], Vec::new()).await;
        assert_eq!(seen.follow("a lost unit").await, 1);
        assert_eq!(seen.queues.len(), 1);
    }

    async fn no_mark_comes_twice_where_the_clock_stands_or_is_set_back(fixture) {
        let store = &fixture.store;
        let job = submit(store, 1).await;
        fixture.execute("UPDATE job SET changed = changed + 1000000000000").await;
        let mut marks = Vec::new();
        for _ in 0..3 {
            store.pause(job, "by a test").await.unwrap();
            store.resume(job).await.unwrap();
            marks.push(store.changed_jobs(WITHIN).await.unwrap()[0].1);
        }
        assert!(marks.windows(2).all(|pair| pair[0] < pair[1]), "{marks:?}");
    }

    async fn some_agents_and_their_units_are_read_by_number(fixture) {
        use godwit_service::store::agents::Which;
        let store = &fixture.store;
        let leader = lead(store).await;
        submit(store, 1).await;
        let mut agents: Vec<Agent> = ["c", "B", "a-1"].map(Agent::new).into();
        for agent in &mut agents {
            agent.poll(store, &[], Vec::new()).await;
        }
        let granted = agents[1].granted(store, leader, 1).await;
        let names = |agents: Vec<godwit_service::store::model::AgentRecord>| -> Vec<String> {
            agents.into_iter().map(|agent| agent.name).collect()
        };
        let page = store.some_agents(Which::After(0, 2)).await.unwrap();
        let (first, last) = (page[0].number, page[1].number);
        let held = store.leased_by(&[first, last]).await.unwrap();
        assert_eq!(held[0].lease, granted[0].lease);
        assert_eq!(names(page), ["c", "B"]);
        let rest = store.some_agents(Which::After(last, 2)).await.unwrap();
        assert_eq!(names(rest), ["a-1"]);
        assert!(store.leased_by(&[first]).await.unwrap().is_empty());
        let recent = store.some_agents(Which::Within(WITHIN)).await.unwrap();
        assert_eq!(recent.len(), 3);
        assert_eq!(names(store.agents().await.unwrap()), ["B", "a-1", "c"]);
    }
}

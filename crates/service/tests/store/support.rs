//! A small service: jobs, agents and a leader for the tests of the store.

use std::time::Duration;

use godwit_service::store::{
    Begun, Quota, Store,
    model::{GrantOrder, GrantedUnit, JobRecord, Leadership, Polled},
};
use godwit_service_api::{
    agent::{
        AgentDescription, FileEnd, FileOutcome, FoundFile, Lease, PROTOCOL, PollRequest, Share,
        UnitProgress, UnitResult, Work,
    },
    job::{FileError, FileRequest, FileState, FileView, JobOptions, WhoActs},
};
use uuid::Uuid;

/// One test for each engine.
macro_rules! both {
    ($($(#[$meta:meta])* async fn $name:ident($fixture:ident) $body:block)*) => {$(
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            async fn claim($fixture: &crate::fixture::Fixture) $body

            $(#[$meta])*
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                claim(&crate::fixture::Fixture::sqlite().await).await;
            }

            $(#[$meta])*
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                if let Some(fixture) = crate::fixture::Fixture::postgres().await {
                    claim(&fixture).await;
                }
            }
        }
    )*};
}
pub(crate) use both;

pub(crate) fn file(n: usize) -> FileRequest {
    FileRequest {
        source: format!("gsiftp://a.example.org/data/f{n}"),
        destination: format!("gsiftp://b.example.org/copy/f{n}"),
        bytes: Some(10),
        ..FileRequest::default()
    }
}

pub(crate) fn files(count: usize) -> Vec<FileRequest> {
    (0..count).map(file).collect()
}

pub(crate) fn tree() -> FileRequest {
    FileRequest {
        source: "gsiftp://a.example.org/tree".into(),
        destination: "gsiftp://b.example.org/copy".into(),
        recursive: true,
        ..FileRequest::default()
    }
}

pub(crate) async fn submit_with(
    store: &Store,
    files: Vec<FileRequest>,
    options: &JobOptions,
) -> Uuid {
    match store
        .submit("alice", None, options, Quota::NONE)
        .await
        .unwrap()
    {
        Begun::New(mut submission) => {
            for file in files {
                submission.push(file).await.unwrap();
            }
            submission.finish().await.unwrap()
        }
        Begun::Existing { id, .. } => panic!("{id} exists"),
    }
}

pub(crate) async fn submit(store: &Store, count: usize) -> Uuid {
    submit_with(store, files(count), &JobOptions::default()).await
}

pub(crate) async fn lead(store: &Store) -> Leadership {
    let leader = store.lead("node1", Duration::from_secs(10)).await.unwrap();
    leader.expect("nobody else leads")
}

pub(crate) async fn views(store: &Store, job: &JobRecord) -> Vec<FileView> {
    let (mut views, mut cursor) = (Vec::new(), None);
    loop {
        let page = store
            .files(job, cursor.as_deref(), 1000, None)
            .await
            .unwrap();
        views.extend(page.items);
        match page.next {
            Some(next) => cursor = Some(next),
            None => return views,
        }
    }
}

pub(crate) async fn count_in(store: &Store, job: Uuid, state: FileState) -> usize {
    let job = store.job(job).await.unwrap();
    let views = views(store, &job).await;
    views.iter().filter(|view| view.state == state).count()
}

/// An agent as the store sees it.
pub(crate) struct Agent {
    pub(crate) name: String,
    pub(crate) incarnation: Uuid,
    sequence: u64,
}

impl Agent {
    pub(crate) fn new(name: &str) -> Agent {
        Agent {
            name: name.into(),
            incarnation: Uuid::new_v4(),
            sequence: 0,
        }
    }

    pub(crate) fn request(&mut self, units: &[Lease], results: Vec<UnitResult>) -> PollRequest {
        self.sequence += 1;
        PollRequest {
            protocol: PROTOCOL,
            agent: self.name.clone(),
            incarnation: self.incarnation,
            sequence: self.sequence,
            description: AgentDescription {
                slots: 4,
                joins_uploads: true,
                endpoints: vec!["*".into()],
                ..AgentDescription::default()
            },
            free_slots: 4,
            units: units.iter().map(|lease| progress(*lease)).collect(),
            results,
            renewed: None,
            removed: Vec::new(),
            browses: Vec::new(),
            wait_seconds: 0,
        }
    }

    pub(crate) async fn poll(
        &mut self,
        store: &Store,
        units: &[Lease],
        results: Vec<UnitResult>,
    ) -> Polled {
        let request = self.request(units, results);
        store.poll(&request).await.unwrap()
    }

    /// Polls, and takes up to `count` units of whatever waits.
    pub(crate) async fn take(
        &mut self,
        store: &Store,
        leader: Leadership,
        count: usize,
    ) -> Vec<GrantedUnit> {
        store.poll(&self.request(&[], Vec::new())).await.unwrap();
        self.granted(store, leader, count).await
    }

    pub(crate) async fn granted(
        &self,
        store: &Store,
        leader: Leadership,
        count: usize,
    ) -> Vec<GrantedUnit> {
        let queues = store.queues().await.unwrap();
        let ready = queues.iter().filter(|queue| queue.held.is_none());
        let orders = ready.flat_map(|queue| {
            let order = self.order(queue.key);
            (0..queue.ready).map(move |_| order.clone())
        });
        let orders: Vec<GrantOrder> = orders.take(count).collect();
        self.grant(store, leader, &orders).await
    }

    /// What it gets for these orders.
    pub(crate) async fn grant(
        &self,
        store: &Store,
        leader: Leadership,
        orders: &[GrantOrder],
    ) -> Vec<GrantedUnit> {
        let leased = store.grant(leader, orders).await.unwrap();
        let held = store.held(&self.name, self.incarnation, &[]).await.unwrap();
        let is_new = |unit: &GrantedUnit| leased.iter().any(|leased| leased.lease == unit.lease);
        held.into_iter().filter(is_new).collect()
    }

    pub(crate) fn order(&self, queue: godwit_service::store::model::QueueKey) -> GrantOrder {
        GrantOrder {
            queue,
            agent: self.name.clone(),
            incarnation: self.incarnation,
            share: godwit_service_api::agent::Share {
                concurrency: 2,
                parallelism: 4,
            },
            files: u32::MAX,
        }
    }
}

fn progress(lease: Lease) -> UnitProgress {
    UnitProgress {
        lease,
        bytes: 0,
        open_bytes: 0,
        files: 0,
        goodput: 0.0,
        setting: Share::default(),
        limited_by: None,
    }
}

pub(crate) fn indices(unit: &GrantedUnit) -> Vec<u64> {
    match &unit.work {
        Work::Copy(files) => files.iter().map(|file| file.index).collect(),
        Work::List { .. } => Vec::new(),
    }
}

pub(crate) fn finished(index: u64) -> FileOutcome {
    let (size, checksum) = (10, None);
    FileOutcome {
        index,
        bytes: 10,
        end: FileEnd::Finished { size, checksum },
    }
}

pub(crate) fn failed(index: u64, error: FileError) -> FileOutcome {
    FileOutcome {
        index,
        bytes: 0,
        end: FileEnd::Failed(error),
    }
}

pub(crate) fn error(code: &str, may_pass: bool) -> FileError {
    FileError {
        code: code.into(),
        message: "it did not work".into(),
        who: WhoActs::Source,
        may_pass,
    }
}

pub(crate) fn result(lease: Lease, sequence: u64, files: Vec<FileOutcome>) -> UnitResult {
    UnitResult {
        lease,
        sequence,
        files,
        found: Vec::new(),
        last: true,
        undivided: Vec::new(),
        error: None,
    }
}

pub(crate) fn all_finished(unit: &GrantedUnit) -> UnitResult {
    let files = indices(unit).into_iter().map(finished).collect();
    result(unit.lease, 0, files)
}

pub(crate) fn found(name: &str, directory: bool) -> FoundFile {
    FoundFile {
        source: format!("gsiftp://a.example.org/tree/{name}"),
        destination: format!("gsiftp://b.example.org/copy/{name}"),
        directory,
        bytes: (!directory).then_some(10),
    }
}

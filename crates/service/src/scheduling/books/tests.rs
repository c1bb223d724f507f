//! What the leader knows by the changes that it reads is what it would know by reading everything.

use godwit_service_api::{
    agent::{
        AgentDescription, FileEnd, FileOutcome, PROTOCOL, PollRequest, Share, UnitProgress,
        UnitResult, Work,
    },
    job::{FileError, FileRequest, WhoActs},
    why::WhyCode,
};
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::store::{
    Begun, Quota,
    model::{GrantedUnit, QueueRecord},
};

/// A leader with its database, an agent, and users.
struct Site {
    store: Store,
    board: Board,
    leader: Leadership,
    books: Books,
    jobs: Vec<Uuid>,
    agent: Uuid,
    polls: u64,
    url: String,
    _folder: TempDir,
}

impl Site {
    /// `in_turn`: rounds read what has no mark, too.
    async fn new(in_turn: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}?mode=rwc", folder.path().join("db").display());
        let store = Store::migrate(&url).await.unwrap();
        let leader = store.lead("one", Duration::from_secs(3600)).await.unwrap();
        let board = Board::default();
        let mut books = Books::open(&store, &board).await.unwrap();
        books.in_turn = in_turn;
        Self {
            leader: leader.unwrap(),
            board,
            books,
            store,
            jobs: Vec::new(),
            agent: Uuid::new_v4(),
            polls: 0,
            url,
            _folder: folder,
        }
    }

    async fn submit(&mut self, owner: &str, files: usize, options: &JobOptions) -> Uuid {
        let key = None;
        let begun = self.store.submit(owner, key, options, Quota::NONE).await;
        let Begun::New(mut submission) = begun.unwrap() else {
            panic!("there is such a job");
        };
        for file in 0..files {
            let request = FileRequest {
                source: format!("gsiftp://a{}.example.org/{file}", file % 2),
                destination: format!("gsiftp://b.example.org/{file}"),
                bytes: Some(10),
                ..FileRequest::default()
            };
            submission.push(request).await.unwrap();
        }
        let job = submission.finish().await.unwrap();
        self.jobs.push(job);
        job
    }

    /// A look with a round, and with all that is done at leisure.
    async fn look(&mut self) {
        (self.books.round, self.books.leisure) = (Instant::now(), Instant::now());
        let (store, board) = (&self.store, &self.board);
        self.books.look(store, board, self.leader).await.unwrap();
    }

    /// Looks until there is nothing more to see.
    async fn settle(&mut self) {
        self.look().await;
        self.look().await;
        while !self.books.waiting.next(1).is_empty() || self.books.said.turn.is_some() {
            self.look().await;
        }
        while !self.books.said.is_written() {
            self.look().await;
        }
    }

    /// The agent polls; `end`: what becomes of the files of the units that it has.
    async fn poll(&mut self, end: Option<&FileEnd>) {
        let held = self.store.held("agent", self.agent, &[]).await.unwrap();
        let result = |unit: &GrantedUnit| {
            let Work::Copy(files) = &unit.work else {
                panic!("there are no trees");
            };
            let files = files.iter().map(|file| FileOutcome {
                index: file.index,
                bytes: 10,
                end: end.cloned().expect("an end"),
            });
            UnitResult {
                lease: unit.lease,
                sequence: unit.results,
                files: files.collect(),
                found: Vec::new(),
                last: true,
                undivided: Vec::new(),
                error: None,
            }
        };
        let results: Vec<UnitResult> = match end {
            Some(_) => held.iter().map(result).collect(),
            None => Vec::new(),
        };
        let progress = |unit: &GrantedUnit| UnitProgress {
            lease: unit.lease,
            bytes: 0,
            open_bytes: 5,
            files: 0,
            goodput: 1e6,
            setting: Share::default(),
            limited_by: None,
        };
        self.polls += 1;
        let request = PollRequest {
            protocol: PROTOCOL,
            agent: "agent".to_owned(),
            incarnation: self.agent,
            sequence: self.polls,
            description: AgentDescription {
                slots: 2,
                endpoints: vec!["*".to_owned()],
                ..AgentDescription::default()
            },
            free_slots: 2,
            units: held.iter().map(progress).collect(),
            results,
            renewed: None,
            removed: Vec::new(),
            browses: Vec::new(),
            wait_seconds: 0,
        };
        self.store.poll(&request).await.unwrap();
    }

    /// Queues by what the leader has read.
    fn known(&self) -> Vec<QueueRecord> {
        let queues = self.books.waiting.all();
        queues.map(|queue| queue.record.clone()).collect()
    }

    /// What the leader knows and says is what it would know and say by reading everything.
    async fn check(&mut self) {
        assert_eq!(self.known(), self.store.queues().await.unwrap());
        let leased = self.store.leased().await.unwrap();
        let leased: HashSet<Lease> = leased.iter().map(|unit| unit.lease).collect();
        let known: HashSet<Lease> = self.books.holders.leases.keys().copied().collect();
        assert_eq!(known, leased);
        let said = self.books.said.all().clone();
        assert_eq!(self.store.jobs_now().await.unwrap(), said);
        for job in &self.jobs {
            let said = said.get(job).cloned().unwrap_or_default();
            assert_eq!(self.board.job(*job), said, "told to users");
        }
        // All at once, whatever was said before.
        let jobs: Vec<i64> = self.known().iter().map(|queue| queue.key.job).collect();
        let now = self.books.now();
        jobs.iter()
            .for_each(|job| self.books.reason_about(*job, now));
        let retries = |said: &HashMap<Uuid, crate::store::model::JobNow>| {
            let mut said = said.clone();
            let whys = said.values_mut().flat_map(|now| &mut now.why);
            whys.filter(|why| why.code == WhyCode::RetryAt)
                .for_each(|why| why.text.clear());
            said
        };
        assert_eq!(retries(self.books.said.all()), retries(&said));
    }
}

#[derive(Clone, Debug)]
enum Act {
    Submit {
        files: usize,
        paused: bool,
        after: Option<usize>,
        hops: bool,
    },
    Pause(usize),
    Resume(usize),
    Cancel(usize),
    CancelFile(usize, u64),
    Priority(usize, u8),
    Retry(usize),
    Finish,
    Fail {
        may_pass: bool,
    },
    Poll,
    Drain(bool),
    Look,
}

fn act() -> impl Strategy<Value = Act> {
    let job = || 0..8_usize;
    prop_oneof![
        4 => (1..40_usize, prop::bool::weighted(0.2), prop::option::weighted(0.2, job()),
            prop::bool::weighted(0.1)).prop_map(|(files, paused, after, hops)| {
                Act::Submit { files: if hops { 2 } else { files }, paused, after, hops }
            }),
        1 => job().prop_map(Act::Pause),
        1 => job().prop_map(Act::Resume),
        1 => job().prop_map(Act::Cancel),
        1 => (job(), 0..40_u64).prop_map(|(job, file)| Act::CancelFile(job, file)),
        1 => (job(), 1..=5_u8).prop_map(|(job, priority)| Act::Priority(job, priority)),
        1 => job().prop_map(Act::Retry),
        3 => Just(Act::Finish),
        2 => any::<bool>().prop_map(|may_pass| Act::Fail { may_pass }),
        2 => Just(Act::Poll),
        1 => any::<bool>().prop_map(Act::Drain),
        4 => Just(Act::Look),
    ]
}

async fn perform(site: &mut Site, act: Act) {
    let jobs = site.jobs.clone();
    let job = |at: usize| {
        jobs.get(at % jobs.len().max(1))
            .copied()
            .unwrap_or_default()
    };
    let store = site.store.clone();
    // What cannot be is refused.
    match act {
        Act::Submit {
            files,
            paused,
            after,
            hops,
        } => {
            let after = after.and_then(|at| jobs.get(at)).copied();
            let options = JobOptions {
                paused,
                after: after.into_iter().collect(),
                order: match hops {
                    true => godwit_service_api::job::FileOrder::Hops,
                    false => godwit_service_api::job::FileOrder::Any,
                },
                ..JobOptions::default()
            };
            site.submit(["al", "jo"][files % 2], files, &options).await;
        }
        Act::Pause(at) => drop(store.pause(job(at), "by a test").await),
        Act::Resume(at) => drop(store.resume(job(at)).await),
        Act::Cancel(at) => drop(store.cancel(job(at), "by a test").await),
        Act::CancelFile(at, file) => drop(store.cancel_file(job(at), file, "by a test").await),
        Act::Priority(at, priority) => {
            let options = JobOptions {
                priority,
                ..JobOptions::default()
            };
            drop(store.set_options(job(at), &options).await);
        }
        Act::Retry(at) => drop(store.retry_failed(job(at)).await),
        Act::Finish => {
            let (size, checksum) = (10, None);
            site.poll(Some(&FileEnd::Finished { size, checksum })).await;
        }
        Act::Fail { may_pass } => {
            let error = FileError {
                code: "busy".to_owned(),
                message: "it is busy".to_owned(),
                who: WhoActs::Source,
                may_pass,
            };
            site.poll(Some(&FileEnd::Failed(error))).await;
        }
        Act::Poll => site.poll(None).await,
        Act::Drain(drain) => drop(store.set_draining("agent", drain).await),
        Act::Look => {
            // As polls wake it: without a round.
            site.books.round = Instant::now() + ROUND;
            site.board.work_came();
            let (store, board) = (&site.store, &site.board);
            site.books.look(store, board, site.leader).await.unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn by_what_changed_the_leader_knows_what_it_would_know_by_everything(
        acts in prop::collection::vec(act(), 1..40),
    ) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let mut site = Site::new(false).await;
            for act in acts {
                perform(&mut site, act).await;
            }
            site.settle().await;
            site.check().await;
        });
    }
}

#[tokio::test]
async fn what_has_no_mark_is_found_in_turn() {
    for in_turn in [false, true] {
        let mut site = Site::new(in_turn).await;
        let options = JobOptions::default();
        for _ in 0..3 {
            site.submit("jo", 1, &options).await;
        }
        site.settle().await;
        assert_eq!(site.known().len(), 3);
        let raw = sqlx::AnyPool::connect(&site.url).await.unwrap();
        for change in [
            "UPDATE job SET state = 'paused' WHERE number = 2",
            "UPDATE job SET state = 'canceled', ended = 1 WHERE number = 3",
            "UPDATE job SET changed = 0",
        ] {
            sqlx::query(change).execute(&raw).await.unwrap();
        }
        site.settle().await;
        let is_known = site.known() == site.store.queues().await.unwrap();
        assert_eq!(is_known, in_turn);
    }
}

#[tokio::test]
async fn the_next_leader_says_what_is_so_and_no_more() {
    let mut site = Site::new(true).await;
    let options = JobOptions::default();
    let jobs = [
        site.submit("jo", 1, &options).await,
        site.submit("al", 1, &options).await,
    ];
    site.poll(None).await;
    site.settle().await;
    site.check().await;
    // While no process leads.
    site.store.cancel(jobs[0], "by a test").await.unwrap();
    site.submit(
        "jo",
        3,
        &JobOptions {
            paused: true,
            ..options
        },
    )
    .await;
    site.poll(None).await;
    site.books = Books::open(&site.store, &site.board).await.unwrap();
    site.settle().await;
    site.check().await;
    assert_eq!(site.books.holders.leases.len(), 1);
    assert_eq!(site.board.job(jobs[0]).why, []);
}

#[tokio::test]
async fn a_look_reads_some_jobs_and_grants_before_it_has_read_all() {
    let mut site = Site::new(true).await;
    for _ in 0..2 * JOBS_TOGETHER {
        site.submit("jo", 1, &JobOptions::default()).await;
    }
    site.poll(None).await;
    site.look().await;
    assert_eq!(site.known().len(), JOBS_TOGETHER);
    assert!(!site.books.holders.leases.is_empty());
    site.settle().await;
    site.check().await;
    // What has not changed is not read: then one job is.
    site.books.in_turn = false;
    let within = Duration::from_secs(3600);
    let marks = site.store.changed_jobs(within).await.unwrap();
    let waiting = &mut site.books.waiting;
    waiting.marks_are(&marks, true, Instant::now());
    while !site.books.waiting.next(1).is_empty() {
        site.books.read_jobs(&site.store).await.unwrap();
    }
    site.store.pause(site.jobs[7], "by a test").await.unwrap();
    let marks = site.store.changed_jobs(within).await.unwrap();
    site.books.waiting.marks_are(&marks, true, Instant::now());
    assert_eq!(site.books.waiting.next(usize::MAX).len(), 1);
}

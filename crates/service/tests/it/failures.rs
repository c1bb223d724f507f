//! What becomes of jobs when agents and servers fail.

use std::{collections::BTreeMap, fs, time::Duration};

use godwit_service::store::model::JobRecord;
use godwit_service_api::{
    agent::{
        AgentDescription, FileEnd, FileOutcome, Grant, Lease, PROTOCOL, PollRequest, PollResponse,
        StopReason, UnitResult,
    },
    event::JobEventKind,
    job::{JobOptions, JobState, Verify},
    why::WhyCode,
};
use uuid::Uuid;

use crate::harness::{Served, Service, bytes, file, slow};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_agent_ends_what_a_killed_process_held() {
    let one = Served::start();
    let service = Service::start().await;
    let local = tempfile::tempdir().unwrap();
    let (mut process, _state) = service.agent_process("killed", local.path()).await;
    let contents: Vec<_> = (0..12).map(|n| bytes((6 << 20) + n, n as u64)).collect();
    let mut files = Vec::new();
    for (number, content) in contents.iter().enumerate() {
        one.write(&number.to_string(), content);
        let here = format!("file://{}/{number}", local.path().display());
        files.push(file(one.url(&format!("/{number}")), here));
    }
    let options = JobOptions {
        verify: Verify::Checksum,
        ..JobOptions::default()
    };
    let job = service.submit(files, options).await;
    let moves = |_: &JobRecord| service.board.job(job).bytes > 0;
    service.until(job, Duration::from_secs(20), moves).await;
    process.0.kill().unwrap();
    process.0.wait().unwrap();
    let before = service.store.job(job).await.unwrap();
    assert!(before.files.finished < 12, "{before:?}");
    let slow = |config: &mut _| slow(config, local.path());
    let _agent = service.agent("other", slow).await;
    let total: u64 = contents.iter().map(|content| content.len() as u64).sum();
    let ends_in_bounds = |job: &JobRecord| {
        let shown = job.bytes_done + service.board.job(job.id).bytes;
        // What the leader says is up to a second old: files that ended since count twice.
        assert!(shown < 2 * total, "{shown} of {total} bytes");
        job.state.is_final()
    };
    let limit = Duration::from_secs(90);
    let record = service.until(job, limit, ends_in_bounds).await;
    assert_eq!(record.state, JobState::Finished, "{record:?}");
    // Some were there, put by the dead agent: they are the job's own.
    assert_eq!(record.files.finished, 12, "{record:?}");
    assert_eq!(record.bytes_done, total);
    for (number, content) in contents.iter().enumerate() {
        let copy = fs::read(local.path().join(number.to_string())).unwrap();
        assert!(copy == *content, "file {number} differs");
    }
    let events = service.store.events(job, 0, 1000).await.unwrap();
    let lost = events.iter().any(|(_, event)| {
        matches!(&event.what, JobEventKind::LeaseLost { agent, .. } if agent == "killed")
    });
    assert!(lost, "{events:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_leaves_no_core_file() {
    let service = Service::start().await;
    let local = tempfile::tempdir().unwrap();
    let (mut process, _state) = service.agent_process("a", local.path()).await;
    let limits = format!("/proc/{}/limits", process.0.id());
    let is_none = |line: &str| {
        line.strip_prefix("Max core file size")
            .is_some_and(|rest| rest.split_whitespace().take(2).eq(["0", "0"]))
    };
    for wait in 0.. {
        let text = fs::read_to_string(&limits).unwrap();
        if text.lines().any(is_none) {
            break;
        }
        assert!(wait < 400, "{text}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    process.0.kill().unwrap();
    process.0.wait().unwrap();
}

/// An agent of which the test sends each poll.
pub(crate) struct Puppet<'a> {
    service: &'a Service,
    token: String,
    pub(crate) poll: PollRequest,
}

impl<'a> Puppet<'a> {
    pub(crate) async fn of(service: &'a Service, name: &str) -> Self {
        let poll = PollRequest {
            protocol: PROTOCOL,
            agent: name.to_owned(),
            incarnation: Uuid::new_v4(),
            sequence: 0,
            description: AgentDescription {
                endpoints: vec!["*".to_owned()],
                slots: 1,
                ..AgentDescription::default()
            },
            free_slots: 1,
            units: Vec::new(),
            results: Vec::new(),
            renewed: None,
            removed: Vec::new(),
            browses: Vec::new(),
            wait_seconds: 1,
        };
        let token = service.token(name).await;
        Self {
            service,
            token,
            poll,
        }
    }

    /// One poll.
    pub(crate) async fn ask(&mut self) -> PollResponse {
        self.poll.sequence += 1;
        self.service.poll(&self.token, &self.poll).await
    }

    /// Polls until it has a unit.
    pub(crate) async fn grant(&mut self) -> Grant {
        for _ in 0..60 {
            if let Some(grant) = self.ask().await.grants.pop() {
                return grant;
            }
        }
        panic!("no grant");
    }

    async fn unit(&mut self) -> Lease {
        self.grant().await.lease
    }

    /// Reports what became of the only file of the unit, `None`: that it goes back. It takes no
    /// more then.
    pub(crate) async fn tell(&mut self, lease: Lease, end: Option<FileEnd>) -> PollResponse {
        let outcome = |end| FileOutcome {
            index: 0,
            bytes: 0,
            end,
        };
        self.poll.free_slots = 0;
        self.poll.results = vec![UnitResult {
            lease,
            sequence: 0,
            files: end.map(outcome).into_iter().collect(),
            found: Vec::new(),
            last: true,
            undivided: Vec::new(),
            error: None,
        }];
        let answer = self.ask().await;
        self.poll.results.clear();
        answer
    }

    /// Reports that the only file of the unit has so many bytes.
    async fn report(&mut self, lease: Lease, size: u64) -> (Vec<(Lease, u64)>, Vec<StopReason>) {
        let checksum = None;
        let end = FileEnd::Finished { size, checksum };
        let answer = self.tell(lease, Some(end)).await;
        let stops = answer.stop.iter().map(|stop| stop.why).collect();
        (answer.acknowledged, stops)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_that_comes_after_the_lease_is_not_counted() {
    let service = Service::start().await;
    let (mut late, mut next) = (
        Puppet::of(&service, "late").await,
        Puppet::of(&service, "next").await,
    );
    let files = vec![file("ftp://a/f".to_owned(), "ftp://b/f".to_owned())];
    let job = service.submit(files, JobOptions::default()).await;
    let old = late.unit().await;
    let new = next.unit().await;
    assert_eq!((new.unit, new.epoch), (old.unit, old.epoch + 1));
    // It need not be told again.
    let fenced = (vec![(old, 0)], vec![StopReason::Fenced]);
    assert_eq!(late.report(old, 7).await, fenced);
    let record = service.store.job(job).await.unwrap();
    assert_eq!((record.files.finished, record.state), (0, JobState::Active));
    assert_eq!(next.report(new, 9).await, (vec![(new, 0)], vec![]));
    // What is told again changes nothing.
    next.report(new, 9).await;
    late.report(old, 7).await;
    let record = service.store.job(job).await.unwrap();
    assert_eq!(
        (record.files.finished, record.bytes_done),
        (1, 9),
        "{record:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_tried_again_when_their_server_is_back() {
    let (one, other) = (Served::start(), Served::start());
    let service = Service::start().await;
    let _agent = service.agent("a", |_| {}).await;
    one.write("f", b"content");
    let files = vec![file(one.url("/f"), other.url("/f"))];
    let (address, root) = other.stop().await;
    let job = service.submit(files, JobOptions::default()).await;
    let mut failed = false;
    for _ in 0..600 {
        let events = service.store.events(job, 0, 100).await.unwrap();
        failed = events.iter().any(|(_, event)| {
            matches!(&event.what, JobEventKind::FileFailed { error, .. } if error.may_pass)
        });
        if failed {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(failed, "{:?}", service.store.job(job).await);
    let other = Served::start_at(address, root);
    let record = service.ended(job).await;
    assert_eq!(record.state, JobState::Finished, "{record:?}");
    assert_eq!(fs::read(other.path("f")).unwrap(), b"content");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_files_of_a_server_that_refuses_connections_are_unreachable() {
    let (here, there) = (Served::start(), Served::start());
    let service = Service::start().await;
    let local = tempfile::tempdir().unwrap();
    let _agent = service
        .agent("a", |config| slow(config, local.path()))
        .await;
    for name in ["a", "b"] {
        here.write(name, b"content");
        fs::write(local.path().join(name), b"content").unwrap();
    }
    let gone = there.url("");
    there.stop().await;
    let local = format!("file://{}", local.path().display());
    let once = JobOptions {
        attempts: 1,
        ..JobOptions::default()
    };
    let ends = [
        (here.url(""), gone.clone()),
        (gone.clone(), here.url("")),
        (local.clone(), gone.clone()),
        (gone, local),
    ];
    for (from, to) in ends {
        let pair = |name| file(format!("{from}/{name}"), format!("{to}/{name}-copy"));
        let job = service.submit(vec![pair("a"), pair("b")], once.clone());
        let record = service.ended(job.await).await;
        let errors = BTreeMap::from([("unreachable".to_owned(), 2)]);
        assert_eq!(record.errors, errors, "{from} -> {to}: {record:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_node_says_why_and_leads_on_with_the_same_leases() {
    let one = Served::start();
    let service = Service::start().await;
    let local = tempfile::tempdir().unwrap();
    let slow = |config: &mut _| slow(config, local.path());
    let _agent = service.agent("a", slow).await;
    one.write("long", &bytes(64 << 20, 5));
    let here = format!("file://{}", local.path().join("long").display());
    let files = vec![file(one.url("/long"), here)];
    let job = service.submit(files, JobOptions::default()).await;
    let labelled = JobOptions {
        labels: vec!["nobody has it".to_owned()],
        ..JobOptions::default()
    };
    let files = vec![file(one.url("/long"), "ftp://b/f".to_owned())];
    let waiting = service.submit(files, labelled).await;
    let (next, _stop) = service.node("next");
    let follows = |_: &JobRecord| next.job(job).bytes > 0 && !next.job(waiting).why.is_empty();
    service.until(job, Duration::from_secs(20), follows).await;
    assert!(!next.leads());
    assert_eq!(next.job(waiting).why[0].code, WhyCode::NoAgent);
    let before = service.store.leased().await.unwrap();
    service.stop_leading();
    let leads = |_: &JobRecord| next.leads();
    service.until(job, Duration::from_secs(10), leads).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let after = service.store.leased().await.unwrap();
    assert_eq!(after.len(), 1);
    assert_eq!(
        (after[0].lease, after[0].share),
        (before[0].lease, before[0].share)
    );
}

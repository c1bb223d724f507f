//! Agents do what jobs ask for, whatever becomes of them.

use std::{
    fs,
    time::{Duration, Instant},
};

use godwit_service::{agent::Config, store::model::JobRecord};
use godwit_service_api::job::{FileRequest, FileState, JobOptions, JobState, Overwrite, Verify};

use crate::harness::{Served, Service, bytes, file, slow};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_go_between_servers_and_to_and_from_the_agent() {
    let (one, other) = (Served::start(), Served::start());
    let service = Service::start().await;
    let local = tempfile::tempdir().unwrap();
    let local_folder = |config: &mut Config| config.local = vec![local.path().to_owned()];
    let agent = service.agent("a", local_folder).await;
    let mut files = Vec::new();
    for number in 0..20 {
        let content = bytes(1000 * number, number as u64);
        one.write(&format!("in/{number}"), &content);
        let target = other.url(&format!("/out/{}/{number}", number % 3));
        files.push(file(one.url(&format!("/in/{number}")), target));
    }
    let large = bytes(3 << 20, 99);
    one.write("large", &large);
    let here = format!("file://{}", local.path().join("deep/large").display());
    files.push(file(one.url("/large"), here.clone()));
    fs::write(local.path().join("up"), b"from the agent").unwrap();
    let up = format!("file://{}", local.path().join("up").display());
    files.push(file(up, other.url("/up")));
    // The same source twice.
    files.push(file(one.url("/large"), other.url("/copy of large")));
    let options = JobOptions {
        verify: Verify::Checksum,
        ..JobOptions::default()
    };
    let job = service.submit(files, options).await;
    let record = service.ended(job).await;
    assert_eq!(record.state, JobState::Finished, "{record:?}");
    assert_eq!(record.files.finished, 23);
    for number in 0..20 {
        let copy = fs::read(other.path(&format!("out/{}/{number}", number % 3))).unwrap();
        assert_eq!(copy, bytes(1000 * number, number as u64));
    }
    assert_eq!(fs::read(local.path().join("deep/large")).unwrap(), large);
    assert_eq!(fs::read(other.path("copy of large")).unwrap(), large);
    assert_eq!(fs::read(other.path("up")).unwrap(), b"from the agent");
    let views = service.store.files(&record, None, 100, None).await.unwrap();
    assert!(
        views.items.iter().all(|view| view.checksum.is_some()),
        "{views:?}"
    );
    agent.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_missing_fails_alone_and_says_why() {
    let (one, other) = (Served::start(), Served::start());
    let service = Service::start().await;
    let _agent = service.agent("a", |_| {}).await;
    one.write("good", b"good");
    other.write("taken", b"older");
    let files = vec![
        file(one.url("/good"), other.url("/good")),
        file(one.url("/missing"), other.url("/missing")),
        file(one.url("/good"), other.url("/taken")),
        file(
            one.url("/good"),
            "file:///tmp/nobody-may-write-here".to_owned(),
        ),
    ];
    let job = service.submit(files, JobOptions::default()).await;
    let record = service.ended(job).await;
    assert_eq!(record.state, JobState::Partial, "{record:?}");
    let views = service.store.files(&record, None, 100, None).await.unwrap();
    let code = |index: usize| {
        let error = views.items[index].error.as_ref();
        error.map(|error| error.code.clone()).unwrap_or_default()
    };
    assert_eq!(views.items[0].state, FileState::Finished, "{views:?}");
    assert_eq!(code(1), "not_found", "{views:?}");
    assert_eq!(code(2), "exists", "{views:?}");
    assert_eq!(code(3), "refused", "{views:?}");
    assert_eq!(fs::read(other.path("taken")).unwrap(), b"older");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_with_another_checksum_than_was_said_replaces_nothing() {
    let (one, other) = (Served::start(), Served::start());
    let service = Service::start().await;
    let local = tempfile::tempdir().unwrap();
    let local_folder = |config: &mut Config| config.local = vec![local.path().to_owned()];
    let _agent = service.agent("a", local_folder).await;
    one.write("small", b"new");
    one.write("large", &bytes(20 << 20, 3));
    fs::write(local.path().join("up"), b"new").unwrap();
    let here = |name: &str| format!("file://{}", local.path().join(name).display());
    let pairs = [
        (one.url("/small"), other.url("/small")),
        (one.url("/large"), other.url("/large")),
        (here("up"), other.url("/up")),
        (one.url("/small"), here("down")),
        (one.url("/large"), here("down large")),
    ];
    for name in ["small", "large", "up"] {
        other.write(name, b"older");
    }
    for name in ["down", "down large"] {
        fs::write(local.path().join(name), b"older").unwrap();
    }
    let wrong = |(source, destination)| FileRequest {
        checksum: Some("adler32:00000001".to_owned()),
        ..file(source, destination)
    };
    let options = JobOptions {
        overwrite: Overwrite::Always,
        ..JobOptions::default()
    };
    let files = pairs.map(wrong).to_vec();
    let job = service.submit(files, options).await;
    let record = service.ended(job).await;
    assert_eq!(record.state, JobState::Failed, "{record:?}");
    assert_eq!(record.errors["checksum"], 5, "{record:?}");
    let names = ["small", "large", "up"].map(|name| other.path(name));
    let down = ["down", "down large"].map(|name| local.path().join(name));
    for path in names.iter().chain(&down) {
        assert_eq!(fs::read(path).unwrap(), b"older", "{}", path.display());
    }
    let mut left: Vec<_> = fs::read_dir(local.path()).unwrap().collect();
    left.extend(fs::read_dir(other.root.path()).unwrap());
    assert_eq!(left.len(), 6, "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_leads_to_the_host_of_the_agent_is_refused() {
    let (one, other) = (Served::start(), Served::start());
    let service = Service::start().await;
    let _agent = service.agent("a", |_| {}).await;
    one.write("good", b"good");
    let named = |url: String| url.replace("127.0.0.1", "localhost");
    let mut tree = file(named(one.url("/")), other.url("/tree"));
    tree.recursive = true;
    let files = vec![
        file(named(one.url("/good")), other.url("/from")),
        file(one.url("/good"), named(other.url("/to"))),
        tree,
    ];
    let once = JobOptions {
        attempts: 1,
        ..JobOptions::default()
    };
    let job = service.submit(files, once).await;
    let record = service.ended(job).await;
    assert_eq!(record.state, JobState::Failed, "{record:?}");
    assert!(record.errors["address_refused"] > 0, "{record:?}");
    let left: Vec<_> = fs::read_dir(other.root.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_is_listed_and_copied() {
    let (one, other) = (Served::start(), Served::start());
    let service = Service::start().await;
    let _agent = service.agent("a", |_| {}).await;
    for name in ["top", "a/one", "a/b/two", "a/b/c/three x", "d/four"] {
        one.write(&format!("tree/{name}"), name.as_bytes());
    }
    let mut tree = file(one.url("/tree"), other.url("/copy"));
    tree.recursive = true;
    let job = service.submit(vec![tree], JobOptions::default()).await;
    let record = service.ended(job).await;
    assert_eq!(record.state, JobState::Finished, "{record:?}");
    assert_eq!(record.files.finished, 5);
    for name in ["top", "a/one", "a/b/two", "a/b/c/three x", "d/four"] {
        let copy = fs::read(other.path(&format!("copy/{name}"))).unwrap();
        assert_eq!(copy, name.as_bytes());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_agent_finishes_what_a_dead_one_held() {
    let (one, other) = (Served::start(), Served::start());
    let service = Service::start().await;
    let dead = service.agent("dead", |_| {}).await;
    let large = bytes(64 << 20, 5);
    one.write("large", &large);
    let mut files = vec![file(one.url("/large"), other.url("/large"))];
    for number in 0..40 {
        one.write(&format!("{number}"), &bytes(5000, number));
        files.push(file(
            one.url(&format!("/{number}")),
            other.url(&format!("/{number}")),
        ));
    }
    let job = service.submit(files, JobOptions::default()).await;
    let is_active = |job: &JobRecord| job.started.is_some();
    service.until(job, Duration::from_secs(20), is_active).await;
    let _state = dead.cut_off();
    let _agent = service.agent("b", |_| {}).await;
    let record = service.ended(job).await;
    assert_eq!(record.state, JobState::Finished, "{record:?}");
    assert_eq!(record.files.finished + record.files.skipped, 41);
    assert_eq!(fs::read(other.path("large")).unwrap(), large);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_canceled_job_stops_and_leaves_no_partial_file() {
    let one = Served::start();
    let service = Service::start().await;
    let local = tempfile::tempdir().unwrap();
    let slow = |config: &mut Config| slow(config, local.path());
    let _agent = service.agent("a", slow).await;
    one.write("long", &bytes(64 << 20, 5));
    let here = format!("file://{}", local.path().join("long").display());
    let files = vec![file(one.url("/long"), here)];
    let job = service.submit(files, JobOptions::default()).await;
    let moves = |_: &JobRecord| service.board.job(job).bytes > 0;
    service.until(job, Duration::from_secs(20), moves).await;
    service.store.cancel(job, "enough").await.unwrap();
    let agents = service.store.agents_of(job).await.unwrap();
    service.board.job_steered(job, &agents);
    let began = Instant::now();
    let is_empty = || fs::read_dir(local.path()).unwrap().next().is_none();
    while !service.store.leased().await.unwrap().is_empty() || !is_empty() {
        assert!(began.elapsed() < Duration::from_secs(30), "it goes on");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let record = service.store.job(job).await.unwrap();
    assert_eq!(record.state, JobState::Canceled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draining_agent_hands_its_work_back_at_once() {
    let (one, other) = (Served::start(), Served::start());
    let service = Service::start().await;
    let at_once = |config: &mut Config| config.drain = Duration::ZERO;
    let agent = service.agent("first", at_once).await;
    one.write("large", &bytes(64 << 20, 5));
    let job = service
        .submit(
            vec![file(one.url("/large"), other.url("/large"))],
            JobOptions::default(),
        )
        .await;
    let is_active = |job: &JobRecord| job.started.is_some();
    service.until(job, Duration::from_secs(20), is_active).await;
    agent.drain().await;
    assert!(service.store.leased().await.unwrap().is_empty());
    let _agent = service.agent("second", |_| {}).await;
    let record = service.ended(job).await;
    assert_eq!(record.state, JobState::Finished, "{record:?}");
}

//! Several agents copy one file.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use godwit_service::store::model::JobRecord;
use godwit_service_api::{
    event::JobEventKind,
    job::{JobOptions, JobState, Verify},
};
use uuid::Uuid;

use crate::harness::{DIVIDE_ABOVE, Served, Service, bytes, file, slow};

pub(crate) async fn events(service: &Service, job: Uuid) -> Vec<JobEventKind> {
    let events = service.store.events(job, 0, 1000).await.unwrap();
    events.into_iter().map(|(_, event)| event.what).collect()
}

/// Agents that took something of a job.
pub(crate) async fn workers(service: &Service, job: Uuid) -> BTreeSet<String> {
    let events = events(service, job).await.into_iter();
    let agents = events.filter_map(|event| match event {
        JobEventKind::Started { agent, .. } => Some(agent),
        _ => None,
    });
    agents.collect()
}

/// Hidden files in a directory.
fn temporary(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with('.')).collect()
}

/// With a single agent nothing is divided.
pub(crate) async fn both_poll(service: &Service) {
    while service.store.agents_alive().await.unwrap() < 2 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn checksums() -> JobOptions {
    JobOptions {
        verify: Verify::Checksum,
        ..JobOptions::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_copy_ranges_of_one_file_between_servers() {
    let (one, other) = (Served::start(), Served::start());
    let service = Service::start().await;
    let _first = service.agent("first", |config| config.slots = 1).await;
    let _second = service.agent("second", |config| config.slots = 1).await;
    both_poll(&service).await;
    let content = bytes(20 << 20, 7);
    one.write("large", &content);
    let files = vec![file(one.url("/large"), other.url("/deep/copy"))];
    let job = service.submit(files, checksums()).await;
    let record = service.ended(job).await;
    assert_eq!(record.state, JobState::Finished, "{record:?}");
    assert_eq!((record.files.finished, record.bytes_done), (1, 20 << 20));
    assert!(fs::read(other.path("deep/copy")).unwrap() == content);
    assert_eq!(temporary(&other.path("deep")), [""; 0]);
    let events = events(&service, job).await;
    let ranges = JobEventKind::Divided {
        index: 0,
        ranges: 20,
    };
    assert!(events.contains(&ranges), "{events:?}");
    assert_eq!(workers(&service, job).await.len(), 2, "{events:?}");
    let views = service.store.files(&record, None, 10, None).await.unwrap();
    assert!(views.items[0].checksum.is_some(), "{views:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_range_of_a_killed_agent_is_copied_by_another() {
    let to = Served::start();
    let service = Service::start().await;
    let local = tempfile::tempdir().unwrap();
    let slow = |config: &mut _| slow(config, local.path());
    let _other = service.agent("other", slow).await;
    let (mut process, _state) = service.agent_process("killed", local.path()).await;
    let content = bytes(96 << 20, 3);
    fs::write(local.path().join("large"), &content).unwrap();
    let here = format!("file://{}", local.path().join("large").display());
    both_poll(&service).await;
    let job = service
        .submit(vec![file(here, to.url("/copy"))], checksums())
        .await;
    while workers(&service, job).await.len() < 2 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    process.0.kill().unwrap();
    process.0.wait().unwrap();
    let record = service.ended(job).await;
    assert_eq!(record.state, JobState::Finished, "{record:?}");
    assert!(fs::read(to.path("copy")).unwrap() == content);
    assert_eq!(temporary(to.root.path()), [""; 0]);
    let events = events(&service, job).await;
    let lost = JobEventKind::LeaseLost {
        agent: "killed".to_owned(),
        files: 1,
    };
    assert!(events.contains(&lost), "{events:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_removes_what_the_ranges_have_written() {
    let to = Served::start();
    let service = Service::start().await;
    let local = tempfile::tempdir().unwrap();
    let slow = |config: &mut _| slow(config, local.path());
    let _first = service.agent("first", slow).await;
    let _second = service.agent("second", slow).await;
    both_poll(&service).await;
    fs::write(local.path().join("large"), bytes(96 << 20, 5)).unwrap();
    let here = format!("file://{}", local.path().join("large").display());
    let job = service
        .submit(vec![file(here, to.url("/copy"))], checksums())
        .await;
    let copies = |job: &JobRecord| job.bytes_done > 0;
    service.until(job, Duration::from_secs(30), copies).await;
    assert_eq!(temporary(to.root.path()).len(), 1);
    service.store.cancel(job, "by the test").await.unwrap();
    let record = service.store.job(job).await.unwrap();
    assert_eq!((record.state, record.bytes_done), (JobState::Canceled, 0));
    for _ in 0..600 {
        if temporary(to.root.path()).is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(fs::read_dir(to.root.path()).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_changes_between_ranges_is_copied_again_or_fails() {
    let to = Served::start();
    let service = Service::start().await;
    let local = tempfile::tempdir().unwrap();
    let slow = |config: &mut _| slow(config, local.path());
    let _first = service.agent("first", slow).await;
    let _second = service.agent("second", slow).await;
    both_poll(&service).await;
    let source = |name: &str| local.path().join(name);
    let mut jobs = Vec::new();
    for (name, attempts) in [("again", 2), ("once", 1)] {
        fs::write(source(name), bytes(48 << 20, 5)).unwrap();
        let options = JobOptions {
            attempts,
            ..checksums()
        };
        let here = format!("file://{}", source(name).display());
        let files = vec![file(here, to.url(&format!("/{name}")))];
        let job = service.submit(files, options).await;
        let copies = |job: &JobRecord| job.bytes_done > 0;
        service.until(job, Duration::from_secs(30), copies).await;
        jobs.push(job);
        // Agents that read the old file go on reading it.
        fs::write(source("new"), bytes(9 << 20, 6)).unwrap();
        fs::rename(source("new"), source(name)).unwrap();
    }
    let record = service.ended(jobs[0]).await;
    assert_eq!(record.state, JobState::Finished, "{record:?}");
    assert!(fs::read(to.path("again")).unwrap() == bytes(9 << 20, 6));
    let record = service.ended(jobs[1]).await;
    assert_eq!(record.state, JobState::Failed, "{record:?}");
    assert_eq!(record.errors.keys().collect::<Vec<_>>(), ["changed"]);
    assert!(!to.path("once").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_destination_that_takes_no_ranges_gets_the_file_from_one_agent() {
    let one = Served::start();
    let service = Service::start().await;
    let local = tempfile::tempdir().unwrap();
    let may = |config: &mut godwit_service::agent::Config| {
        config.local = vec![local.path().to_owned()];
    };
    let _first = service.agent("first", may).await;
    let _second = service.agent("second", may).await;
    both_poll(&service).await;
    let content = bytes(usize::try_from(DIVIDE_ABOVE).unwrap() + 1, 8);
    one.write("large", &content);
    let here = local.path().join("copy");
    let files = vec![file(
        one.url("/large"),
        format!("file://{}", here.display()),
    )];
    let job = service.submit(files, checksums()).await;
    let record = service.ended(job).await;
    assert_eq!(record.state, JobState::Finished, "{record:?}");
    assert!(fs::read(here).unwrap() == content);
    let events = events(&service, job).await;
    let undivided = JobEventKind::Undivided {
        index: 0,
        reason: "the destination is no server".to_owned(),
    };
    assert!(events.contains(&undivided), "{events:?}");
}

//! Commands of `godwit` to a service of one person, with servers of ours at both ends.

use std::time::Duration;

use godwit_client::{
    CancellationToken,
    error::Exit,
    report::events::{Event, Observer},
    service::{
        self, CloneRequest, ScheduleCommand, ServiceCommand, ServiceRequest, ServiceTarget,
        Submission, connection::ServiceError,
    },
};
use godwit_service_api::{
    job::{FileRequest, JobOptions, JobRequest, Overwrite},
    schedule::ScheduleRequest,
};
use parking_lot::Mutex;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{harness::Served, site::Site};

/// What a command printed.
#[derive(Default)]
pub(crate) struct Printed {
    lines: Mutex<Vec<String>>,
    warnings: Mutex<Vec<String>>,
}

impl Printed {
    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.into_inner()
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        self.warnings.lock().clone()
    }
}

impl Observer for Printed {
    fn on_event(&self, event: &Event) {
        if let Event::Warning { text } = event {
            self.warnings.lock().push(text.clone());
        }
    }

    fn on_output(&self, line: &[u8]) {
        let line = String::from_utf8(line.to_vec()).unwrap();
        self.lines.lock().push(line);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_submission_prints_its_id_and_how_to_see_what_failed() {
    let (from, to) = (Served::start(), Served::start());
    let (site, running) = Site::laptop(&[]).await;
    let files = vec![FileRequest {
        source: from.url("/missing"),
        destination: to.url("/missing"),
        ..FileRequest::default()
    }];
    let submission = Submission {
        files,
        list: None,
        options: JobOptions::default(),
        idempotency_key: None,
        watch: true,
        proxy: None,
    };
    let command = ServiceCommand::Submit(Box::new(submission));
    let (exit, printed) = godwit(&site, command, false).await;
    assert_eq!(exit.unwrap(), Exit::Failed);
    let id = &printed[0];
    assert!(id.parse::<Uuid>().is_ok(), "{printed:?}");
    let last = printed.last().unwrap();
    let told =
        format!("failed: 0 of 1 files, 0 of 0 bytes, 1 failed (godwit job --failed {id} says why)");
    assert_eq!(last, &told);
    drop(site);
    running.await.unwrap();
}

/// Runs a command as the user of this token.
pub(crate) async fn godwit(
    site: &Site,
    command: ServiceCommand,
    json: bool,
) -> (Result<Exit, ServiceError>, Vec<String>) {
    let target = ServiceTarget {
        url: site.url.clone(),
        token_file: None,
        token: Some(site.operator.clone()),
        ca: None,
        logins: None,
    };
    let (request, printed) = (
        ServiceRequest {
            target,
            json,
            command,
        },
        Printed::default(),
    );
    let exit = service::run(request, &printed, &CancellationToken::default()).await;
    (exit, printed.into_lines())
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_ends_with_the_last_job_and_the_worst_status() {
    let (from, to) = (Served::start(), Served::start());
    from.write("a", b"content");
    let (site, running) = Site::laptop(&[]).await;
    let user = site.operator();
    let submit = async |name: &str, paused: bool| {
        let file = json!({"source": from.url(name), "destination": to.url(name)});
        let options = json!({"paused": paused, "attempts": 1});
        let id = user
            .submit(json!({"files": [file], "options": options}))
            .await;
        id.parse::<Uuid>().unwrap()
    };
    let wait = async |ids: &[Uuid], limit: u64, json: bool| {
        let limit = Some(Duration::from_secs(limit));
        let ids = ids.to_vec();
        godwit(&site, ServiceCommand::Wait { ids, limit }, json).await
    };
    let [whole, missing, paused] = [
        submit("/a", false).await,
        submit("/missing", false).await,
        submit("/a", true).await,
    ];
    let (exit, printed) = wait(&[whole], 120, false).await;
    assert_eq!(exit.unwrap(), Exit::Done);
    assert_eq!(printed, [format!("{whole}\tfinished\t1/1\t7\t")]);

    let (exit, printed) = wait(&[missing, whole], 120, true).await;
    assert_eq!(exit.unwrap(), Exit::Failed);
    let printed: Vec<Value> = printed
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(printed.len(), 2);
    assert!(
        printed
            .iter()
            .any(|job| job["errors"] == json!({"not_found": 1})),
        "{printed:?}"
    );

    let (exit, printed) = wait(&[paused, whole], 2, false).await;
    let error = exit.unwrap_err();
    assert_eq!((error.exit(), printed.len()), (Exit::TimedOut, 1));
    assert_eq!(
        error.to_string(),
        "1 of 2 jobs have not ended after 2 s; they continue"
    );

    let cancel = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        user.ok(Method::POST, &format!("/jobs/{paused}/cancel"), Value::Null)
            .await;
    };
    let ids = [paused, missing];
    let ((exit, printed), ()) = tokio::join!(wait(&ids, 120, false), cancel);
    assert_eq!((exit.unwrap(), printed.len()), (Exit::Interrupted, 2));

    let (exit, printed) = wait(&[Uuid::nil()], 120, false).await;
    assert_eq!((exit.unwrap_err().exit(), printed.len()), (Exit::Usage, 0));
    drop(site);
    running.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clone_copies_what_was_submitted_again() {
    let (from, to) = (Served::start(), Served::start());
    from.write("tree/a", b"content");
    from.write("plain", b"plain");
    let (site, running) = Site::laptop(&[]).await;
    let user = site.operator();
    let file = |name: &str, recursive: bool| {
        let (source, destination) = (from.url(name), to.url(name));
        json!({"source": source, "destination": destination, "recursive": recursive})
    };
    let options = json!({"name": "nightly", "overwrite": "different"});
    let files = [file("/plain", false), file("/tree", true)];
    let first = user
        .submit(json!({"files": files, "options": options}))
        .await;
    let wait = async |id: &str| {
        let ids = vec![id.parse().unwrap()];
        let limit = Some(Duration::from_secs(120));
        let (exit, _) = godwit(&site, ServiceCommand::Wait { ids, limit }, false).await;
        assert_eq!(exit.unwrap(), Exit::Done);
        user.get(&format!("/jobs/{id}")).await
    };
    assert_eq!(wait(&first).await["files"]["total"], 2);
    // One more is there by the time of the second job, which lists the directory again.
    from.write("tree/b", b"more");
    let clone = CloneRequest {
        id: first.parse().unwrap(),
        paused: true,
        idempotency_key: Some("again".to_owned()),
        watch: false,
        proxy: None,
    };
    let mut ids = Vec::new();
    for _ in 0..2 {
        let (exit, printed) = godwit(&site, ServiceCommand::Clone(clone.clone()), false).await;
        assert_eq!(exit.unwrap(), Exit::Done);
        ids.extend(printed);
    }
    assert!(ids[0] == ids[1] && ids[0] != first, "{ids:?}");
    let second = user.get(&format!("/jobs/{}", ids[0])).await;
    assert_eq!(
        (&second["state"], &second["options"]["name"]),
        (&json!("paused"), &json!("nightly"))
    );
    user.ok(
        Method::POST,
        &format!("/jobs/{}/resume", ids[0]),
        Value::Null,
    )
    .await;
    let second = wait(&ids[0]).await;
    assert_eq!(second["files"]["total"], 3);
    assert_eq!(std::fs::read(to.path("tree/b")).unwrap(), b"more");
    drop(site);
    running.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_submits_when_it_is_due_and_not_over_its_last_job() {
    let (from, to) = (Served::start(), Served::start());
    from.write("a", b"content");
    let (site, running) = Site::laptop(&[]).await;
    let user = site.operator();
    let schedule = async |command: ScheduleCommand| {
        let (exit, printed) = godwit(&site, ServiceCommand::Schedule(command), false).await;
        exit.map(|_| printed)
    };
    let request = |cron: &str| {
        let file = FileRequest {
            source: from.url("/a"),
            destination: to.url("/b"),
            ..FileRequest::default()
        };
        let options = JobOptions {
            overwrite: Overwrite::Always,
            ..JobOptions::default()
        };
        let job = JobRequest {
            files: vec![file],
            options,
        };
        let (name, zone) = ("nightly".to_owned(), "Europe/Berlin".to_owned());
        let request = Box::new(ScheduleRequest {
            name,
            cron: cron.to_owned(),
            zone,
            job,
        });
        ScheduleCommand::Add {
            request,
            list: None,
        }
    };
    let wrong = schedule(request("15 3 * *")).await.unwrap_err();
    assert_eq!(wrong.exit(), Exit::Usage, "{wrong}");
    // Far from now, so that only the test makes it due.
    let made = schedule(request("15 3 29 2 *")).await.unwrap();
    let line = "nightly\t15 3 29 2 *\tEurope/Berlin\t2028-02-29T02:15:00Z\t1";
    assert_eq!(made, [line]);
    assert_eq!(schedule(ScheduleCommand::List).await.unwrap(), made);
    assert!(
        schedule(request("0 0 29 2 *")).await.is_err(),
        "the name is taken"
    );

    let path = site.folder.path().join("data/service.db");
    let url = format!("sqlite:{}", path.display());
    let database = sqlx::SqlitePool::connect(&url).await.unwrap();
    let due = async |at: i64| {
        let query = sqlx::query("UPDATE schedule SET next_at = $1");
        query.bind(at).execute(&database).await.unwrap();
    };
    let runs = async |count: usize| {
        for _ in 0..600 {
            let runs = user.get("/schedules/nightly").await["runs"].clone();
            if runs.as_array().unwrap().len() == count {
                return runs;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("it does not run");
    };
    // Days were missed: one job.
    due(1_000_000).await;
    let first = runs(1).await[0]["job"].as_str().unwrap().to_owned();
    let wait = ServiceCommand::Wait {
        ids: vec![first.parse().unwrap()],
        limit: Some(Duration::from_secs(120)),
    };
    assert_eq!(godwit(&site, wait, false).await.0.unwrap(), Exit::Done);
    assert_eq!(std::fs::read(to.path("b")).unwrap(), b"content");
    assert_eq!(
        user.get(&format!("/jobs/{first}")).await["schedule"],
        "nightly"
    );
    let next = user.get("/schedules/nightly").await["next"].clone();
    assert_eq!(next, "2028-02-29T02:15:00Z");

    // The job of the time before has not ended.
    let options = json!({"paused": true});
    let file = json!({"source": from.url("/a"), "destination": to.url("/c")});
    let paused = user
        .submit(json!({"files": [file], "options": options}))
        .await;
    let query = sqlx::query("UPDATE schedule SET last_job = $1").bind(&paused);
    query.execute(&database).await.unwrap();
    due(2_000_000).await;
    let skipped = runs(2).await[0].clone();
    assert_eq!(skipped["job"], Value::Null);
    assert!(
        skipped["skipped"].as_str().unwrap().contains(&paused),
        "{skipped}"
    );
    let shown = schedule(ScheduleCommand::Show("nightly".to_owned()))
        .await
        .unwrap();
    assert!(
        shown.len() == 3 && shown[1].contains("skipped"),
        "{shown:?}"
    );

    let names = vec!["nightly".to_owned()];
    let paused = schedule(ScheduleCommand::Pause(names.clone()))
        .await
        .unwrap();
    assert_eq!(paused, ["nightly\t15 3 29 2 *\tEurope/Berlin\tpaused\t1"]);
    assert_eq!(schedule(ScheduleCommand::List).await.unwrap(), paused);
    let resumed = schedule(ScheduleCommand::Resume(names.clone()))
        .await
        .unwrap();
    assert_eq!(resumed, made);
    let unknown = ScheduleCommand::Pause(vec!["weekly".to_owned()]);
    assert_eq!(schedule(unknown).await.unwrap_err().exit(), Exit::Usage);

    let remove = ScheduleCommand::Remove(names);
    assert!(schedule(remove.clone()).await.unwrap().is_empty());
    assert_eq!(schedule(remove).await.unwrap_err().exit(), Exit::Usage);
    database.close().await;
    drop(site);
    running.await.unwrap();
}

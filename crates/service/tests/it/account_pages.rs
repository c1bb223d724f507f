//! The pages of what users have: credentials and schedules; and of users, for operators.

use godwit_service::store::{Store, model::ScheduleRecord};
use godwit_service_api::job::{JobOptions, JobRequest};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    browser::Browser,
    pages::{EVIL, check_page, rows, rows_of_all},
    site::{Site, User, files},
};

const PASSWORD: &str = "a-very-secret-word";

async fn add_password(user: &User<'_>, endpoint: &str, more: Value) -> String {
    let secret = json!({"password": {"user": "hidden-user", "password": PASSWORD}});
    let mut stored = json!({"endpoint": endpoint, "secret": secret});
    let fields = stored.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    let view = user.ok(Method::POST, "/credentials", stored).await;
    view["id"].as_str().unwrap().to_owned()
}

async fn add_schedule(user: &User<'_>, name: &str) {
    let job = json!({"files": files(2)});
    let schedule = json!({"name": name, "cron": "15 3 * * *", "zone": "UTC", "job": job});
    user.ok(Method::POST, "/schedules", schedule).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn users_see_and_remove_their_own_credentials_and_no_secret() {
    let site = Site::start(&["--requests-per-second", "1000"]).await;
    let alice = site.user("alice", "user", &[]).await;
    let bob = site.user("bob", "user", &[]).await;
    let id = add_password(&alice, "gsiftp://a.example.org", json!({})).await;
    let ended = json!({"expires": "2020-01-01T00:00:00Z"});
    add_password(&alice, "gsiftp://old.example.org", ended).await;
    let kept = add_password(&alice, &format!("ftp://h/{EVIL}\"'"), json!({})).await;
    let mut of_alice = Browser::logged_in(&site, &alice.token).await;
    let page = of_alice.page("/credentials").await;
    check_page("/credentials", &page);
    assert_eq!(rows(&page), 3);
    for shown in [
        "gsiftp://a.example.org",
        "password",
        "no end is known",
        ">ended<",
    ] {
        assert!(page.contains(shown), "{shown}");
    }
    for secret in [PASSWORD, "hidden-user"] {
        assert!(!page.contains(secret), "{secret}");
    }
    // Another user sees none of them, and removes none.
    let mut of_bob = Browser::logged_in(&site, &bob.token).await;
    let page = of_bob.page("/credentials").await;
    assert!(page.contains("None are stored.") && !page.contains("example.org"));
    let fields = [("id", id.as_str())];
    assert_eq!(
        of_bob.post("/credentials/remove", &fields).await.status,
        404
    );
    let wrong = of_alice.post("/credentials/remove", &[("id", "x")]).await;
    assert_eq!(wrong.status, 404);
    let without_token = of_alice.send("/credentials/remove", &fields).await;
    assert_eq!(without_token.status, 403, "a form of another site");
    assert_eq!(alice.get("/credentials").await.as_array().unwrap().len(), 3);
    let answer = of_alice.post("/credentials/remove", &fields).await;
    assert_eq!(answer.location(), "/credentials?done=yes");
    let page = of_alice.page("/credentials?done=yes").await;
    assert!(page.contains("It is removed.") && !page.contains("gsiftp://a.example.org"));
    let left = alice.get("/credentials").await;
    let mut left = left.as_array().unwrap().iter();
    assert!(left.any(|one| one["id"] == kept.as_str()));
    // What takes the most room, and more of it than a page shows.
    for number in 0..50 {
        let endpoint = format!("ftp://h/{number}{}", "\"".repeat(280));
        add_password(&alice, &endpoint, json!({})).await;
    }
    let page = of_alice.page("/credentials").await;
    check_page("/credentials", &page);
    assert!(
        rows(&page) == 40 && page.contains("The latest 40 of 52"),
        "{page}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn users_pause_resume_and_remove_their_own_schedules() {
    let site = Site::start(&["--requests-per-second", "1000"]).await;
    let alice = site.user("alice", "user", &[]).await;
    let bob = site.user("bob", "user", &[]).await;
    for name in ["nightly", "weekly"] {
        add_schedule(&alice, name).await;
    }
    let mut of_alice = Browser::logged_in(&site, &alice.token).await;
    let page = of_alice.page("/schedules").await;
    check_page("/schedules", &page);
    assert_eq!(rows(&page), 2);
    for shown in ["nightly", "15 3 * * *", "UTC"] {
        assert!(page.contains(shown), "{shown}");
    }
    let fields = [("name", "nightly")];
    let mut of_bob = Browser::logged_in(&site, &bob.token).await;
    assert!(of_bob.page("/schedules").await.contains("There are none."));
    for action in ["pause", "resume", "remove", "x"] {
        let path = format!("/schedules/{action}");
        assert_eq!(of_bob.post(&path, &fields).await.status, 404, "{action}");
        let without_token = of_alice.send(&path, &fields).await;
        assert_eq!(
            without_token.status, 403,
            "{action}: a form of another site"
        );
    }
    for (action, paused, text) in [("pause", true, ">Resume<"), ("resume", false, ">Pause<")] {
        let path = format!("/schedules/{action}");
        let answer = of_alice.post(&path, &fields).await;
        assert_eq!(answer.location(), format!("/schedules?done={action}"));
        let schedule = alice.get("/schedules/nightly").await;
        assert_eq!(schedule["paused"], paused);
        assert!(!schedule["next"].is_null());
        let page = of_alice.page(answer.location()).await;
        assert!(page.contains("role=\"status\"") && page.replace(" <", "<").contains(text));
        assert_eq!(page.contains("state paused"), paused);
        assert_eq!(
            of_alice.post(&path, &fields).await.status,
            409,
            "{action} twice"
        );
    }
    let answer = of_alice.post("/schedules/remove", &fields).await;
    assert_eq!(answer.location(), "/schedules?done=remove");
    assert_eq!(rows(&of_alice.page("/schedules").await), 1);
    let audit = site.operator().get("/audit").await.to_string();
    for action in ["schedule.pause", "schedule.resume", "schedule.remove"] {
        assert!(audit.contains(action), "{action}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_schedules_are_only_text_and_many_are_on_several_pages() {
    let site = Site::start(&["--requests-per-second", "1000"]).await;
    let alice = site.user("alice", "user", &[]).await;
    let url = format!("sqlite:{}", site.folder.path().join("db").display());
    let store = Store::open(&url).await.unwrap();
    let evil = |number: usize| format!("{EVIL}\u{202e}{number:02}{}", "\"".repeat(150));
    for number in 0..60 {
        let schedule = ScheduleRecord {
            number: 0,
            owner: "alice".to_owned(),
            name: evil(number).replace('\u{202e}', ""),
            cron: evil(number),
            zone: evil(number),
            request: JobRequest {
                files: Vec::new(),
                options: JobOptions::default(),
            },
            next: Some(store.now().await.unwrap()),
            last_job: None,
            paused: true,
        };
        store.add_schedule(&schedule).await.unwrap();
        let name = &schedule.name;
        store
            .set_schedule_paused("alice", name, true, None)
            .await
            .unwrap();
        let added = store.schedule("alice", name).await.unwrap();
        store
            .schedule_ran(&added, Err(&evil(number)), added.next)
            .await
            .unwrap();
    }
    let mut browser = Browser::logged_in(&site, &alice.token).await;
    let seen = rows_of_all(&mut browser, "/schedules", "none: &lt;script&gt;").await;
    assert_eq!(seen, 60);
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_see_who_is_there() {
    let site = Site::start(&["--requests-per-second", "1000"]).await;
    let operator = site.operator();
    let alice = site.user("alice", "user", &["physics"]).await;
    for (path, weight) in [("physics/alice", 2.5), ("alice", 7.0)] {
        let share = json!({"path": path, "weight": weight});
        operator.ok(Method::PUT, "/shares", share).await;
    }
    let gone = json!({"name": "gone", "role": "group_admin", "disabled": true});
    operator.ok(Method::PUT, "/users", gone).await;
    let mut of_alice = Browser::logged_in(&site, &alice.token).await;
    assert_eq!(of_alice.get("/users").await.status, 403);
    assert!(!of_alice.page("/jobs").await.contains("/users"));
    let mut browser = Browser::logged_in(&site, &operator.token).await;
    let page = browser.page("/users?q=alice").await;
    check_page("/users", &page);
    assert_eq!(rows(&page), 1);
    for shown in ["alice", "physics/alice: 2.5", "alice: 7", "<time "] {
        assert!(page.contains(shown), "{shown}");
    }
    let page = browser.page("/users?q=gone").await;
    for shown in ["group admin", "state disabled", "never"] {
        assert!(page.contains(shown), "{shown}");
    }
    for none in ["%25", "al%00ice%00x", "no"] {
        let page = browser.page(&format!("/users?q={none}")).await;
        assert!(page.contains("No user has such a name."), "{none}");
    }
    // Names that take the most room, page after page.
    for number in 0..65 {
        let name = format!("{EVIL}\u{202e}{number:02}").replace('/', "\"");
        let groups: Vec<_> = (0..64)
            .map(|n| format!("{n}{}", "\"".repeat(190)))
            .collect();
        let user = json!({"name": name + &"\"".repeat(150), "role": "user", "groups": groups});
        operator.ok(Method::PUT, "/users", user).await;
    }
    let seen = rows_of_all(&mut browser, "/users?q=%3Cscript", "&lt;script&gt;").await;
    assert_eq!(seen, 65);
}

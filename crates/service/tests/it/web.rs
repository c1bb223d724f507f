//! The pages: who sees what, and what can be done without a script.

use reqwest::Method;
use serde_json::json;
use uuid::Uuid;

use crate::{
    browser::{Browser, tags},
    pages::{PAGES, all_pages, check_page, next_of, poll, rows},
    site::{Site, files},
};

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_forbids_what_a_page_does_not_need() {
    let site = Site::start(&[]).await;
    let operator = site.operator();
    let id = operator.submit(json!({"files": files(3)})).await;
    let mut browser = Browser::logged_in(&site, &operator.token).await;
    all_pages(&mut browser, std::slice::from_ref(&id)).await;
    let live = format!("/jobs/{id}/live");
    let none = format!("/jobs/{}", Uuid::new_v4());
    for path in PAGES
        .iter()
        .copied()
        .chain([live.as_str(), &none, "/jobs/live", "/"])
    {
        let answer = browser.get(path).await;
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "same-origin"),
            ("cache-control", "no-store"),
            (
                "content-security-policy",
                "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                 connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
            ),
        ] {
            assert_eq!(answer.header(name), value, "{path}");
        }
    }
    let page = browser.page("/login").await;
    let assets = tags(&page);
    let assets = assets.iter().filter_map(|tag| {
        let place = tag.attribute("src").or(tag.attribute("href"))?;
        place.starts_with("/assets/").then_some(place)
    });
    let assets: Vec<&str> = assets.collect();
    assert_eq!(assets.len(), 3);
    for path in assets {
        let answer = browser.get(path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.header("cache-control").contains("immutable"));
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
    }
    assert_eq!(browser.get("/assets/style.css").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_others_are_not_found_and_operators_alone_see_the_site() {
    let site = Site::start(&[]).await;
    let alice = site.user("alice", "user", &["physics"]).await;
    let bob = site.user("bob", "user", &["physics"]).await;
    let carol = site.user("carol", "group_admin", &["physics"]).await;
    let id = alice
        .submit(json!({"files": files(1), "options": {"name": "secret run"}}))
        .await;
    let mut of_bob = Browser::logged_in(&site, &bob.token).await;
    for path in [
        format!("/jobs/{id}"),
        format!("/jobs/{id}/live"),
        "/jobs/x".to_owned(),
    ] {
        let answer = of_bob.get(&path).await;
        assert_eq!(answer.status, 404, "{path}");
        assert!(!answer.text.contains("secret run"));
    }
    for action in [
        "pause", "resume", "cancel", "retry", "clone", "priority", "x",
    ] {
        let path = format!("/jobs/{id}/{action}");
        let answer = of_bob.post(&path, &[("priority", "5")]).await;
        assert_eq!(answer.status, 404, "{action}");
    }
    for query in [
        "?all=yes",
        "?q=secret",
        &format!("?q={id}"),
        "?all=yes&q=secret",
    ] {
        let page = of_bob.page(&format!("/jobs{query}")).await;
        assert!(page.contains("No jobs here."), "{query}");
    }
    assert_eq!(of_bob.get("/jobs?owner=alice").await.status, 404);
    for path in ["/endpoints", "/links", "/agents", "/operator"] {
        assert_eq!(of_bob.get(path).await.status, 403, "{path}");
    }
    for path in [
        "/agents",
        "/operator/endpoint",
        "/operator/link",
        "/operator/share",
    ] {
        let fields = [("name", "ftp://a"), ("path", "bob"), ("weight", "100")];
        assert_eq!(of_bob.post(path, &fields).await.status, 403, "{path}");
    }
    let page = of_bob.page("/jobs").await;
    assert!(!page.contains("/operator") && !page.contains("/agents"));
    assert_eq!(alice.get(&format!("/jobs/{id}")).await["state"], "queued");
    let mut of_carol = Browser::logged_in(&site, &carol.token).await;
    assert!(
        of_carol
            .page("/jobs?owner=alice")
            .await
            .contains("secret run")
    );
    assert!(
        of_carol
            .page(&format!("/jobs/{id}"))
            .await
            .contains("secret run")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_submitted_and_steered_without_a_script() {
    let site = Site::start(&["--max-files", "100"]).await;
    let alice = site.user("alice", "user", &[]).await;
    let mut browser = Browser::logged_in(&site, &alice.token).await;
    let fields = |source: &'static str, then: &'static str| {
        [
            ("source", source),
            ("destination", "gsiftp://b.example.org/copy"),
            ("recursive", "yes"),
            ("name", "run 7"),
            ("overwrite", "different"),
            ("verify", "checksum"),
            ("priority", "4"),
            ("attempts", "7"),
            ("key", "web-1"),
            ("then", then),
        ]
    };
    let answer = browser
        .post("/submit", &fields("gsiftp://a.example.org/run7", "check"))
        .await;
    assert_eq!(answer.status, 200);
    assert!(
        answer.text.contains("would accept this job"),
        "{}",
        answer.text
    );
    assert_eq!(
        alice.get("/jobs").await["items"].as_array().unwrap().len(),
        0
    );
    // What is wrong is said, and what was typed stays.
    let answer = browser
        .post("/submit", &fields("gsiftp://127.0.0.1/x", "submit"))
        .await;
    assert_eq!(answer.status, 422);
    assert!(
        answer.text.contains("The service does not go there"),
        "{}",
        answer.text
    );
    assert!(answer.text.contains("value=\"gsiftp://127.0.0.1/x\""));
    assert!(answer.text.contains("role=\"alert\""));
    let wrong = [
        ("source", "ftp://a.example.org/x"),
        ("destination", "ftp://b.example.org/x"),
    ];
    for field in [
        ("priority", "9"),
        ("overwrite", "x"),
        ("attempts", "-1"),
        ("attempts", "x"),
    ] {
        let answer = browser
            .post("/submit", &[&wrong[..], &[field]].concat())
            .await;
        assert_eq!(answer.status, 422, "{field:?}");
    }
    let answer = browser
        .post("/submit", &fields("gsiftp://a.example.org/run7", "submit"))
        .await;
    assert_eq!(answer.status, 303, "{}", answer.text);
    let path = answer
        .location()
        .strip_suffix("?done=submit")
        .unwrap()
        .to_owned();
    let again = browser
        .post("/submit", &fields("gsiftp://a.example.org/run7", "submit"))
        .await;
    assert_eq!(
        again.location(),
        answer.location(),
        "sent twice, it is one job"
    );
    let id = path.strip_prefix("/jobs/").unwrap().to_owned();
    let job = alice.get(&format!("/jobs/{id}")).await;
    let options = &job["options"];
    assert_eq!(options["name"], "run 7");
    assert_eq!(
        (&options["overwrite"], &options["verify"]),
        (&json!("different"), &json!("checksum"))
    );
    assert_eq!(
        (&options["priority"], &options["attempts"]),
        (&json!(4), &json!(7))
    );
    for (action, state, button) in [
        ("pause", "paused", "Resume"),
        ("resume", "queued", "Pause"),
        ("cancel", "canceled", "Submit again"),
    ] {
        let answer = browser.post(&format!("{path}/{action}"), &[]).await;
        assert_eq!(answer.location(), format!("{path}?done={action}"));
        assert_eq!(alice.get(&format!("/jobs/{id}")).await["state"], state);
        let page = browser.page(&format!("{path}?done={action}")).await;
        check_page(&path, &page);
        assert!(page.contains(button) && page.contains("role=\"status\""));
        assert_eq!(page.contains("Cancel this job"), state != "canceled");
    }
    let answer = browser.post(&format!("{path}/pause"), &[]).await;
    assert_eq!(answer.status, 409);
    assert!(
        answer.text.contains("only a job that waits or moves"),
        "{}",
        answer.text
    );
    let answer = browser
        .post(&format!("{path}/clone"), &[("key", "web-2")])
        .await;
    let clone = answer
        .location()
        .strip_suffix("?done=clone")
        .unwrap()
        .to_owned();
    assert_ne!(clone, path);
    let answer = browser
        .post(&format!("{clone}/priority"), &[("priority", "1")])
        .await;
    assert_eq!(answer.status, 303);
    let clone = clone.strip_prefix("/jobs/").unwrap();
    assert_eq!(
        alice.get(&format!("/jobs/{clone}")).await["options"]["priority"],
        1
    );
    let page = browser.page("/shares").await;
    assert!(page.contains("at most 100"));
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_found_by_state_name_and_id_a_page_at_a_time() {
    let site = Site::start(&["--requests-per-second", "1000"]).await;
    let alice = site.user("alice", "user", &[]).await;
    let mut ids = Vec::new();
    for n in 0..60 {
        let options = json!({"name": format!("Run {n:02}"), "paused": n < 5});
        ids.push(
            alice
                .submit(json!({"files": files(1), "options": options}))
                .await,
        );
    }
    let mut browser = Browser::logged_in(&site, &alice.token).await;
    let page = browser.page("/jobs").await;
    assert_eq!(rows(&page), 50);
    assert!(page.contains("Run 59") && !page.contains("Run 09"));
    let page = browser.page(&next_of(&page).unwrap()).await;
    assert_eq!(rows(&page), 10);
    assert!(page.contains("Run 09") && !page.contains("rel=\"next\""));
    assert_eq!(browser.get("/jobs?cursor=AAAA").await.status, 400);
    assert_eq!(browser.get("/jobs?state=sleeping").await.status, 400);
    assert_eq!(rows(&browser.page("/jobs?state=paused").await), 5);
    assert_eq!(rows(&browser.page("/jobs?state=failed").await), 0);
    assert_eq!(rows(&browser.page("/jobs?q=run+1").await), 10);
    assert_eq!(rows(&browser.page("/jobs?q=RUN&state=paused").await), 5);
    assert_eq!(rows(&browser.page("/jobs?q=%25un").await), 0);
    let answer = browser.get(&format!("/jobs?q={}", ids[7])).await;
    assert_eq!(answer.location(), format!("/jobs/{}", ids[7]));
    // A new name is found, the old one is not.
    let change = json!({"name": "Other"});
    alice
        .ok(Method::PATCH, &format!("/jobs/{}", ids[7]), change)
        .await;
    assert_eq!(rows(&browser.page("/jobs?q=other").await), 1);
    assert_eq!(rows(&browser.page("/jobs?q=run+07").await), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_begins_with_how_many_jobs_wait_and_for_what() {
    let site = Site::start(&["--requests-per-second", "1000"]).await;
    let alice = site.user("alice", "user", &[]).await;
    let bob = site.user("bob", "user", &[]).await;
    for (user, paused) in [
        (&alice, false),
        (&alice, false),
        (&alice, true),
        (&bob, false),
    ] {
        let options = json!({"name": "run", "paused": paused});
        let job = json!({"files": files(1), "options": options});
        user.submit(job).await;
    }
    let mut browser = Browser::logged_in(&site, &alice.token).await;
    let page = browser.page("/jobs").await;
    let begin = "<strong>2 jobs wait</strong>, 0 move, 1 is paused";
    assert!(page.contains(begin), "{page}");
    // The leader says for what, in the summary and below each job.
    let mut page = String::new();
    for _ in 0..600 {
        page = browser.page("/jobs/live").await;
        if page.contains("<strong>2</strong> for an agent that reaches them: there is none") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let lines = page.matches("<strong>Waits: </strong>no agent that is alive reaches");
    assert_eq!(lines.count(), 2, "{page}");
    let paused = browser.page("/jobs?state=paused").await;
    assert!(
        paused.contains("No job waits</strong>, 0 move, 1 is paused"),
        "{paused}"
    );
    for path in ["/jobs?state=failed", "/jobs?q=run"] {
        assert!(!browser.page(path).await.contains("is paused"), "{path}");
    }
    let operator = site.operator();
    let mut browser = Browser::logged_in(&site, &operator.token).await;
    let page = browser.page("/jobs?all=yes").await;
    assert!(page.contains("<strong>3 jobs wait</strong>"), "{page}");
    assert!(
        !browser.page("/jobs").await.contains("wait"),
        "none is the operator's"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_requests_hold_for_pages() {
    let site = Site::start(&["--requests-per-second", "2"]).await;
    let alice = site.user("alice", "user", &[]).await;
    let mut browser = Browser::logged_in(&site, &alice.token).await;
    let mut limited = None;
    for _ in 0..40 {
        let answer = browser.get("/jobs").await;
        if answer.status == 429 {
            limited = Some(answer);
            break;
        }
    }
    let limited = limited.unwrap();
    assert!(limited.header("retry-after").parse::<u64>().unwrap() >= 1);
    check_page("/jobs", &limited.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_set_endpoints_links_shares_and_agents() {
    let site = Site::start(&[]).await;
    let operator = site.operator();
    let agent = site.user("dtn1", "agent", &[]).await;
    poll(&site, &agent.token, "dtn1", 0, |_| ()).await;
    let mut browser = Browser::logged_in(&site, &operator.token).await;
    let fields = [
        ("name", "gsiftp://A.example.org:2811"),
        ("state", "draining"),
        ("sessions", "40"),
        ("megabits", "1000"),
    ];
    let answer = browser.post("/operator/endpoint", &fields).await;
    assert_eq!(answer.location(), "/operator?done=yes", "{}", answer.text);
    let endpoint = &operator.get("/endpoints").await[0];
    assert_eq!(endpoint["name"], "gsiftp://a.example.org");
    assert_eq!(endpoint["limits"]["bytes_per_second"], 125_000_000);
    let page = browser.page("/endpoints").await;
    assert!(
        page.contains("draining") && page.contains("1.00 Gbit/s") && page.contains("of 40"),
        "{page}"
    );
    let page = browser
        .page("/operator?endpoint=gsiftp%3A%2F%2Fa.example.org")
        .await;
    assert!(page.contains("value=\"1000\"") && page.contains("value=\"40\""));
    // A form that has not shown what is set sets nothing, and shows it.
    let name = ("name", "gsiftp://A.example.org");
    let open = [name, ("state", "open"), ("megabits", "2.5")];
    let answer = browser.post("/operator/endpoint", &open).await;
    assert_eq!(answer.status, 409);
    check_page("/operator/endpoint", &answer.text);
    let own = "name=\"shown\" value=\"gsiftp://a.example.org\"";
    assert!(answer.text.contains(own) && answer.text.contains("value=\"1000\""));
    assert_eq!(operator.get("/endpoints").await[0], *endpoint);
    let shown = ("shown", "gsiftp://a.example.org");
    let fields = [&open[..], &[shown]].concat();
    let answer = browser.post("/operator/endpoint", &fields).await;
    assert_eq!(answer.status, 303, "{}", answer.text);
    let limits = &operator.get("/endpoints").await[0]["limits"];
    assert_eq!(limits["bytes_per_second"], 312_500);
    let fields = [
        ("source", "gsiftp://a.example.org"),
        ("destination", "gsiftp://b.example.org"),
        ("channels", "64"),
    ];
    assert_eq!(browser.post("/operator/link", &fields).await.status, 303);
    assert!(browser.page("/links").await.contains("of 64"));
    let answer = browser.post("/operator/link", &fields[..2]).await;
    assert_eq!(answer.status, 409);
    let own = "value=\"gsiftp://a.example.org gsiftp://b.example.org\"";
    assert!(answer.text.contains(own) && answer.text.contains("value=\"64\""));
    let fields = [("path", "physics/alice"), ("weight", "2.5")];
    assert_eq!(browser.post("/operator/share", &fields).await.status, 303);
    assert!(browser.page("/shares").await.contains("physics/alice"));
    for (path, field) in [
        ("/operator/endpoint", ("name", "no endpoint")),
        ("/operator/share", ("path", "a//b")),
        ("/operator/link", ("sessions", "many")),
    ] {
        let answer = browser.post(path, &[field]).await;
        assert_eq!(answer.status, 422, "{path}");
        check_page(path, &answer.text);
    }
    assert_eq!(browser.post("/operator/moon", &[]).await.status, 404);
    let drain = [("name", "dtn1"), ("draining", "yes")];
    assert_eq!(browser.post("/agents", &drain).await.location(), "/agents");
    assert_eq!(operator.get("/agents").await[0]["draining"], true);
    assert!(browser.page("/agents").await.contains("Give work"));
    assert_eq!(browser.post("/agents", &[("name", "x")]).await.status, 404);
    let page = browser.page("/operator").await;
    for action in [
        "endpoint.set",
        "link.set",
        "share.set",
        "agent.set",
        "login",
    ] {
        assert!(page.contains(action), "{action}");
    }
}

//! What a job would copy, before it is submitted.

use godwit_service_api::{
    agent::{Browsed, Preview},
    preview::{Amount, Fate, JobPreview, PreviewedFile},
};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    browser::Browser,
    harness::{Agent, Served},
    pages::{EVIL, answer, check_page, poll},
    site::{Site, User, problem, refusal},
};

/// The first job that an agent is to look at, by polls after that of this number.
async fn question(site: &Site, token: &str, last: u64) -> Preview {
    for sequence in last + 1..last + 40 {
        let answer = poll(site, token, "dtn1", sequence, |_| ());
        if let Some(preview) = answer.await.preview.pop() {
            return preview;
        }
    }
    panic!("no question came");
}

fn tree(source: &str, destination: &str, options: Value) -> Value {
    let file = json!({"source": source, "destination": destination, "recursive": true});
    json!({"files": [file], "options": options})
}

/// Files and bytes by what becomes of them.
fn amounts(preview: &Value) -> [(u64, u64); 5] {
    ["copied", "replaced", "skipped", "refused", "unknown"].map(|fate| {
        let amount = &preview[fate];
        let number = |name: &str| amount[name].as_u64().unwrap();
        (number("files"), number("bytes"))
    })
}

async fn counts_at_end(user: &User<'_>, job: &str) -> [u64; 3] {
    loop {
        let view = user.get(&format!("/jobs/{job}")).await;
        let files = &view["files"];
        if !view["ended"].is_null() {
            let counts = ["finished", "skipped", "failed"];
            return counts.map(|name| files[name].as_u64().unwrap());
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_preview_says_is_what_the_job_does() {
    let (source, destination) = (Served::start(), Served::start());
    for name in [
        "same",
        "other",
        "new",
        "in/same",
        "in/new",
        "fresh/a b",
        "taken/x",
    ] {
        source.write(&format!("top/{name}"), b"seven b");
    }
    for (name, content) in [
        ("same", "7 bytes"),
        ("other", "not seven"),
        ("in/same", "7 bytes"),
        ("taken", "a file"),
        ("elsewhere", "x"),
    ] {
        destination.write(&format!("copy/{name}"), content.as_bytes());
    }
    let site = Site::of_ftp().await;
    let mover = site.user("dtn1", "agent", &[]).await;
    let _agent = Agent::start(&site.url, mover.token.clone(), "dtn1", |_| ());
    let user = site.user("jo", "user", &[]).await;
    let (from, to) = (source.url("/top"), destination.url("/copy"));
    let preview = async |options: Value| {
        let job = tree(&from, &to, options);
        user.ok(Method::POST, "/preview", job).await
    };
    let never = preview(json!({})).await;
    assert_eq!(amounts(&never), [(3, 21), (0, 0), (0, 0), (4, 28), (0, 0)]);
    let always = preview(json!({"overwrite": "always"})).await;
    assert_eq!(amounts(&always), [(3, 21), (3, 21), (0, 0), (1, 7), (0, 0)]);
    let timed = json!({"overwrite": "different", "preserve_times": true});
    let timed = preview(timed).await;
    assert_eq!(amounts(&timed), [(3, 21), (1, 7), (0, 0), (1, 7), (2, 14)]);
    let different = preview(json!({"overwrite": "different"})).await;
    assert_eq!(
        amounts(&different),
        [(3, 21), (1, 7), (2, 14), (1, 7), (0, 0)]
    );
    assert_eq!(
        (&different["listed"], &different["unlisted"]),
        (&json!(4), &json!(0))
    );
    assert_eq!(
        (&different["failed"], &different["unseen"]),
        (&json!(0), &json!(0))
    );
    let first = different["first"].as_array().unwrap();
    let named = |name: &str| {
        let url = source.url(&format!("/top/{name}"));
        let mut files = first.iter().filter(|file| file["source"] == url);
        let file = files.next().unwrap();
        assert_eq!(
            file["destination"],
            destination.url(&format!("/copy/{name}"))
        );
        file["fate"].as_str().unwrap().to_owned()
    };
    let names = ["new", "other", "same", "taken/x", "fresh/a%20b"];
    let fates = ["copied", "replaced", "skipped", "refused", "copied"];
    assert_eq!(names.map(named), fates);
    // Nothing was written or submitted.
    assert!(!destination.path("copy/fresh").exists());
    assert_eq!(user.get("/jobs").await["items"], json!([]));
    let job = user
        .submit(tree(&from, &to, json!({"overwrite": "different"})))
        .await;
    assert_eq!(counts_at_end(&user, &job).await, [4, 2, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_is_of_one_file_or_of_as_many_directories_as_fit() {
    let server = Served::start();
    for number in 0..230 {
        server.write(&format!("many/{number:03}/x"), b"1");
    }
    server.write("one", b"seven b");
    let site = Site::of_ftp().await;
    let mover = site.user("dtn1", "agent", &[]).await;
    let _agent = Agent::start(&site.url, mover.token.clone(), "dtn1", |_| ());
    let user = site.user("jo", "user", &[]).await;
    let many = tree(&server.url("/many"), &server.url("/copy"), json!({}));
    let preview = user.ok(Method::POST, "/preview", many).await;
    let (listed, unlisted) = (&preview["listed"], &preview["unlisted"]);
    // On a slow machine the time ends first.
    assert_eq!(listed.as_u64().unwrap() + unlisted.as_u64().unwrap(), 231);
    assert!(unlisted.as_u64().unwrap() >= 31, "{preview}");
    assert!(preview["first"].as_array().unwrap().len() <= 40);
    let one = async |source: &str, destination: &str| {
        let file = json!({"source": server.url(source), "destination": server.url(destination)});
        let sent = user
            .send(Method::POST, "/preview", json!({"files": [file]}))
            .await;
        match sent.status().as_u16() {
            200 => Ok(amounts(&sent.json().await.unwrap())),
            _ => Err(problem(sent).await),
        }
    };
    let none = (0, 0);
    assert_eq!(
        one("/one", "/two").await,
        Ok([(1, 7), none, none, none, none])
    );
    assert_eq!(
        one("/one", "/one").await,
        Ok([none, none, none, (1, 7), none])
    );
    assert_eq!(
        one("/one", "/many").await,
        Ok([none, none, none, (1, 7), none])
    );
    for (source, destination) in [("/none", "/x"), ("/many", "/x"), ("/one", "/many/")] {
        let refused = one(source, destination).await;
        assert_eq!(refused, Err(refusal(502, "listing_failed")), "{source}");
    }
    // What a submission refuses, a preview refuses, too.
    for (job, code) in [
        (json!({"files": []}), "invalid_value"),
        (json!({"files": crate::site::files(2)}), "invalid_value"),
        (
            tree("gsiftp://h/d", "ftp://h/d", json!({})),
            "endpoint_not_allowed",
        ),
        (
            tree("ftp://h/d", "file:///d", json!({})),
            "endpoint_not_allowed",
        ),
        (
            tree("ftp://h/d", "ftp://h/e", json!({"share": "other"})),
            "invalid_value",
        ),
    ] {
        let (status, found) = user.refused(Method::POST, "/preview", job).await;
        assert_eq!((status, &*found), (422, code));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_looked_at_by_an_agent_of_both_ends_with_the_users_credentials() {
    let site = Site::of_ftp().await;
    let mover = site.user("dtn1", "agent", &[]).await;
    let user = site.user("jo", "user", &[]).await;
    let other = site.user("bob", "user", &[]).await;
    for endpoint in ["ftp://a", "ftp://b", "ftp://c"] {
        let password = json!({"password": {"user": "a", "password": "secret"}});
        let stored = json!({"endpoint": endpoint, "secret": password});
        user.ok(Method::POST, "/credentials", stored).await;
    }
    for (user, credentials, last) in [(&other, 0, 0), (&user, 2, 100)] {
        let job = tree("ftp://a/d", "ftp://b/d", json!({"overwrite": "always"}));
        let asked = user.ok(Method::POST, "/preview", job);
        let agent = async {
            let of_one_end = poll(&site, &mover.token, "dtn1", last, |poll| {
                poll.description.endpoints = vec!["ftp://a*".to_owned()];
            });
            assert!(of_one_end.await.preview.is_empty());
            let question = question(&site, &mover.token, last).await;
            assert_eq!(question.credentials.len(), credentials);
            let preview = || Browsed::Preview(JobPreview::default());
            assert_eq!(
                answer(&site, &other.token, question.id, preview()).await,
                403
            );
            assert_eq!(
                answer(&site, &mover.token, question.id, preview()).await,
                204
            );
        };
        let (found, ()) = tokio::join!(asked, agent);
        assert_eq!(found["first"], json!([]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_shows_what_a_job_would_copy_and_submits_nothing() {
    let site = Site::of_ftp().await;
    let mover = site.user("dtn1", "agent", &[]).await;
    let user = site.user("jo", "user", &[]).await;
    let mut browser = Browser::logged_in(&site, &user.token).await;
    let token = browser.form_token().await;
    let forms = [
        ("form", token.as_str()),
        ("source", "ftp://a/d"),
        ("destination", "ftp://b/d"),
        ("recursive", "yes"),
        ("name", "run 7"),
        ("then", "preview"),
    ];
    let file = |source: String, destination: String| PreviewedFile {
        source,
        destination,
        bytes: Some(u64::MAX),
        fate: Fate::Copied,
    };
    let mut first = vec![
        file("ftp://a/elsewhere".to_owned(), "ftp://b/d/x".to_owned()),
        file("ftp://a/d/x".to_owned(), format!("ftp://b/d/{EVIL}")),
        file("ftp://a/d/x".to_owned(), "ftp://b/d/../x".to_owned()),
    ];
    let long = |n: usize| format!("{n}{}", "'".repeat(3000));
    first.extend((0..100).map(|n| {
        let [source, destination] = ["a", "b"].map(|end| format!("ftp://{end}/d/{}", long(n)));
        file(source, destination)
    }));
    let hostile = JobPreview {
        copied: Amount {
            files: u64::MAX,
            bytes: u64::MAX,
        },
        unknown: Amount {
            files: 7,
            bytes: u64::MAX,
        },
        listed: u64::MAX,
        unlisted: 3,
        failures: vec![format!("550 {EVIL}\u{202e}\u{1b}{}", "x".repeat(10_000)); 50],
        first,
        ..JobPreview::default()
    };
    let page = browser.send("/submit", &forms);
    let agent = async {
        let id = question(&site, &mover.token, 0).await.id;
        let found = Browsed::Preview(hostile);
        assert_eq!(answer(&site, &mover.token, id, found).await, 204);
    };
    let (page, ()) = tokio::join!(page, agent);
    assert_eq!(page.status, 200);
    check_page("/submit", &page.text);
    for shown in [
        "At least ",
        "value=\"run 7\"",
        "3 more are known",
        "Nothing was submitted",
    ] {
        assert!(page.text.contains(shown), "{shown}");
    }
    assert!(!page.text.contains("elsewhere") && !page.text.contains("/../"));
    assert_eq!(page.text.matches("ftp://<wbr>a/<wbr>d/").count(), 38);
    assert_eq!(user.get("/jobs").await["items"], json!([]));
    let without_token = browser.send("/submit", &forms[1..]).await;
    assert_eq!(without_token.status, 403, "a form of another site");
}

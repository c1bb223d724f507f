//! Directories that users look into before they submit.

use std::time::{Duration, Instant};

use godwit_service_api::{
    agent::{Browse, Browsed, PollRequest, Secret},
    browse::{BrowsedDirectory, BrowsedEntry},
    job::{FileError, WhoActs},
};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::{io::AsyncReadExt as _, net::TcpListener, task::JoinHandle};
use uuid::Uuid;

use crate::{
    browser::{Browser, tags},
    harness::{Agent, Served},
    pages::{EVIL, answer, check_page, poll},
    site::{Site, User, problem, refusal},
};

/// The first question that an agent gets, by polls after that of this number.
async fn question(site: &Site, token: &str, last: u64) -> Browse {
    for sequence in last + 1..last + 40 {
        let answer = poll(site, token, "dtn1", sequence, |_| ());
        if let Some(browse) = answer.await.browse.pop() {
            return browse;
        }
    }
    panic!("no question came");
}

fn names(listed: &Value) -> Vec<&str> {
    let entries = listed["entries"].as_array().unwrap();
    let names = entries.iter().map(|entry| entry["name"].as_str().unwrap());
    names.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_lists_a_directory_a_part_at_a_time() {
    let server = Served::start();
    for name in ["b", "a b", "dir/in", "other/in", "\u{1b}[2J<b>", "c"] {
        server.write(&format!("top/{name}"), b"seven b");
    }
    let site = Site::of_ftp().await;
    let mover = site.user("dtn1", "agent", &[]).await;
    let _agent = Agent::start(&site.url, mover.token.clone(), "dtn1", |_| ());
    let user = site.user("jo", "user", &[]).await;
    let (mut seen, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let asked = json!({"url": server.url("/top"), "limit": 2, "cursor": cursor});
        let part = user.ok(Method::POST, "/browse", asked).await;
        assert_eq!(part["total"], 6);
        for entry in part["entries"].as_array().unwrap() {
            let is_directory = entry["directory"] == true;
            assert_eq!(entry["bytes"].as_u64(), (!is_directory).then_some(7));
        }
        seen.extend(names(&part).iter().map(|name| (*name).to_owned()));
        cursor = part["cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(seen, ["dir", "other", "\u{1b}[2J<b>", "a b", "b", "c"]);
    let asked = json!({"url": server.url("/top/dir/")});
    let part = user.ok(Method::POST, "/browse", asked).await;
    assert_eq!(part["entries"][0]["url"], server.url("/top/dir/in"));

    let browse = async |url: &str, more: Value| {
        let mut body = json!({"url": url});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        user.refused(Method::POST, "/browse", body).await
    };
    let none = json!({});
    let listed = browse(&server.url("/none"), none.clone()).await;
    assert_eq!(listed, refusal(502, "listing_failed"));
    for (url, code) in [
        ("gsiftp://h/x", "endpoint_not_allowed"),
        ("ftp://u:p@h/x", "credentials_in_url"),
        ("/etc", "invalid_url"),
        ("file:///etc", "endpoint_not_allowed"),
    ] {
        let (status, found) = browse(url, none.clone()).await;
        assert_eq!((status, &*found), (422, code), "{url}");
    }
    for more in [
        json!({"limit": 0}),
        json!({"limit": 201}),
        json!({"cursor": "x".repeat(10_000)}),
    ] {
        let refused = browse(&server.url("/top"), more).await;
        assert_eq!(refused, refusal(422, "invalid_value"));
    }
    let banned = json!({"name": server.url(""), "state": "banned"});
    site.operator().ok(Method::PUT, "/endpoints", banned).await;
    let refused = browse(&server.url("/top"), none).await;
    assert_eq!(refused, refusal(422, "endpoint_not_allowed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_get_the_credentials_of_who_asks_and_say_nothing_of_other_places() {
    let site = Site::of_ftp().await;
    let mover = site.user("dtn1", "agent", &[]).await;
    let (alice, bob) = (
        site.user("alice", "user", &[]).await,
        site.user("bob", "user", &[]).await,
    );
    let password = json!({"password": {"user": "a", "password": "secret"}});
    let stored = json!({"endpoint": "ftp://h", "secret": password});
    alice.ok(Method::POST, "/credentials", stored).await;
    let entry = |url: String| BrowsedEntry {
        name: format!("{EVIL}{}", "x".repeat(5000)),
        url,
        bytes: Some(u64::MAX),
        ..BrowsedEntry::default()
    };
    let mut entries = vec![
        entry("ftp://other/d/x".to_owned()),
        entry("ftp://h/dx".to_owned()),
    ];
    entries.extend((0..500).map(|n| entry(format!("ftp://h/d/{n}"))));
    let found = Browsed::Directory(BrowsedDirectory {
        entries,
        total: 502,
        ..BrowsedDirectory::default()
    });
    for (user, credentials, last) in [(&bob, 0, 0), (&alice, 1, 100)] {
        let asked = user.ok(Method::POST, "/browse", json!({"url": "ftp://h/d"}));
        let agent = async {
            let question = question(&site, &mover.token, last).await;
            assert_eq!(question.credentials.len(), credentials);
            for credential in &question.credentials {
                assert!(matches!(credential.secret, Secret::Password { .. }));
            }
            let id = question.id;
            let answer = |token: &str, id| {
                let (token, found) = (token.to_owned(), found.clone());
                let site = &site;
                async move { answer(site, &token, id, found).await }
            };
            assert_eq!(answer(&alice.token, id).await, 403);
            assert_eq!(answer(&mover.token, Uuid::new_v4()).await, 404);
            assert_eq!(answer(&mover.token, id).await, 204);
            assert_eq!(answer(&mover.token, id).await, 404);
        };
        let (listed, ()) = tokio::join!(asked, agent);
        let entries = listed["entries"].as_array().unwrap();
        assert_eq!(entries.len(), 100);
        for entry in entries {
            assert!(entry["url"].as_str().unwrap().starts_with("ftp://h/d/"));
            assert!(entry["name"].as_str().unwrap().len() <= 1000);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_no_agent_answers_ends_and_few_wait_at_a_time() {
    let site = Site::of_ftp().await;
    let mover = site.user("dtn1", "agent", &[]).await;
    let user = site.user("jo", "user", &[]).await;
    let ask = |user: User<'_>| {
        let post = user.request(Method::POST, "/browse");
        post.json(&json!({"url": "ftp://h/d"})).send()
    };
    let waiting: Vec<_> = (0..5).map(|_| tokio::spawn(ask(user.clone()))).collect();
    // An agent that reaches other endpoints gets none of them.
    let elsewhere = poll(&site, &mover.token, "dtn1", 1, |poll| {
        poll.description.endpoints = vec!["ftp://elsewhere".to_owned()];
        poll.wait_seconds = 0;
    });
    assert!(elsewhere.await.browse.is_empty());
    let mut ended = Vec::new();
    for waiting in waiting {
        ended.push(problem(waiting.await.unwrap().unwrap()).await);
    }
    ended.sort();
    let late = refusal(504, "no_answer");
    let wanted = [
        refusal(429, "quota"),
        late.clone(),
        late.clone(),
        late.clone(),
        late,
    ];
    assert_eq!(ended, wanted);
    // Their places are free again.
    let asked = user.ok(Method::POST, "/browse", json!({"url": "ftp://h/d"}));
    let agent = async {
        let id = question(&site, &mover.token, 0).await.id;
        let found = Browsed::Directory(BrowsedDirectory::default());
        assert_eq!(answer(&site, &mover.token, id, found).await, 204);
    };
    assert_eq!(tokio::join!(asked, agent).0["entries"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_go_to_agents_with_the_labels_that_the_user_asks_for() {
    let site = Site::of_ftp().await;
    let mover = site.user("dtn1", "agent", &[]).await;
    let user = site.user("jo", "user", &[]).await;
    let asked = json!({"url": "ftp://h/d", "labels": ["tape"]});
    let asked = user.ok(Method::POST, "/browse", asked);
    let agent = async {
        for sequence in 1..4 {
            let polled = poll(&site, &mover.token, "dtn1", sequence, |_| ());
            assert!(polled.await.browse.is_empty(), "it lacks the label");
        }
        let labelled = |poll: &mut PollRequest| {
            poll.description.labels = vec!["disk".to_owned(), "tape".to_owned()];
        };
        let polled = poll(&site, &mover.token, "dtn1", 4, labelled).await;
        let question = &polled.browse[0];
        // Agents of earlier releases do not know them.
        assert!(question.request.labels.is_empty());
        let found = Browsed::Directory(BrowsedDirectory::default());
        assert_eq!(answer(&site, &mover.token, question.id, found).await, 204);
    };
    assert_eq!(tokio::join!(asked, agent).0["entries"], json!([]));
    let labels = vec!["x"; 33];
    let asked = json!({"url": "ftp://h/d", "labels": labels});
    let refused = user.refused(Method::POST, "/browse", asked).await;
    assert_eq!(refused, refusal(422, "invalid_value"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_stops_to_look_when_its_user_goes_away() {
    // A server that accepts connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ftp://{}/d", silent.local_addr().unwrap());
    let site = Site::of_ftp().await;
    let mover = site.user("dtn1", "agent", &[]).await;
    let _agent = Agent::start(&site.url, mover.token.clone(), "dtn1", |_| ());
    let user = site.user("jo", "user", &[]).await;
    let mut connections = Vec::new();
    let mut asked = Vec::new();
    for _ in 0..4 {
        let post = user.request(Method::POST, "/browse");
        asked.push(tokio::spawn(post.json(&json!({"url": url})).send()));
        connections.push(silent.accept().await.unwrap().0);
    }
    let post = user.request(Method::POST, "/browse");
    let more = post.json(&json!({"url": url})).send().await.unwrap();
    assert_eq!(more.status(), 429, "one user has four places");
    let began = Instant::now();
    asked.iter().for_each(JoinHandle::abort);
    for mut connection in connections {
        let mut byte = [0];
        while !matches!(connection.read(&mut byte).await, Ok(0) | Err(_)) {}
    }
    // Twenty seconds later they would have given up by themselves.
    assert!(
        began.elapsed() < Duration::from_secs(15),
        "{:?}",
        began.elapsed()
    );
    // The user may ask again.
    loop {
        let post = user.request(Method::POST, "/browse");
        let mut again = tokio::spawn(post.json(&json!({"url": url})).send());
        tokio::select! {
            accepted = silent.accept() => {
                accepted.unwrap();
                again.abort();
                break;
            }
            refused = &mut again => assert_eq!(refused.unwrap().unwrap().status(), 429),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_shows_directories_and_takes_what_is_chosen() {
    let site = Site::of_ftp().await;
    let mover = site.user("dtn1", "agent", &[]).await;
    let user = site.user("jo", "user", &[]).await;
    let mut browser = Browser::logged_in(&site, &user.token).await;
    let token = browser.form_token().await;
    let forms = [
        ("form", token.as_str()),
        ("source", "ftp://h/d"),
        ("name", "run 7"),
    ];
    let entry = |n: usize| BrowsedEntry {
        name: format!("{EVIL}\u{202e}\u{1b}{}", "\"".repeat(900)),
        url: format!("ftp://h/d/{n}%22{}", "'".repeat(450)),
        directory: n.is_multiple_of(2),
        bytes: None,
    };
    let hostile = BrowsedDirectory {
        entries: (0..300).map(entry).collect(),
        total: u64::MAX,
        has_more: true,
        cursor: Some(format!("f{EVIL}")),
    };
    let failed = FileError {
        code: "x".to_owned(),
        message: format!("550 {EVIL}\u{202e}"),
        who: WhoActs::Source,
        may_pass: false,
    };
    let founds = [
        (Browsed::Directory(hostile), 200, 0),
        (Browsed::Failed(failed), 502, 100),
    ];
    for (found, status, last) in founds {
        let fields = [&forms[..], &[("browse", "source")]].concat();
        let page = browser.send("/submit", &fields);
        let agent = async {
            let id = question(&site, &mover.token, last).await.id;
            assert_eq!(answer(&site, &mover.token, id, found).await, 204);
        };
        let (page, ()) = tokio::join!(page, agent);
        assert_eq!(page.status, status);
        check_page("/submit", &page.text);
        assert!(
            page.text.contains("value=\"run 7\""),
            "what was typed stays"
        );
        let tags = tags(&page.text);
        let opens = tags
            .iter()
            .filter(|tag| tag.attribute("name") == Some("open"));
        assert_eq!(opens.count() > 10, status == 200);
    }
    // A choice goes into the form, as text only.
    let evil = format!("ftp://h/{EVIL}");
    for (name, value, field) in [
        ("take", evil.as_str(), "source"),
        ("take-tree", "ftp://h/d/", "destination"),
    ] {
        let fields = [&forms[..], &[("side", field), (name, value)]].concat();
        let page = browser.send("/submit", &fields).await;
        assert_eq!(page.status, 200);
        check_page("/submit", &page.text);
        let tags = tags(&page.text);
        let mut fields = tags.iter().filter(|tag| tag.attribute("id") == Some(field));
        let value = fields.next().unwrap().attribute("value").unwrap();
        let wanted = evil.replace('<', "&lt;").replace('>', "&gt;");
        assert!(value == wanted || value == "ftp://h/d/d", "{value}");
    }
    let page = browser
        .send("/submit", &[("browse", "source"), ("source", "ftp://h/d")])
        .await;
    assert_eq!(page.status, 403, "a form of another site");
    let fields = [("browse", "source"), ("source", "gsiftp://elsewhere/d")];
    assert_eq!(browser.post("/submit", &fields).await.status, 422);
}

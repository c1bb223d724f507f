//! What text of users, peers and servers becomes on the pages.

use godwit_service_api::{
    agent::{FileEnd, FileOutcome, PollRequest, Share, UnitProgress, UnitResult, Work},
    job::{FileError, WhoActs},
};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    browser::Browser,
    pages::{EVIL, PAGE_BYTES_MAX, all_pages, poll},
    site::Site,
};

#[tokio::test(flavor = "multi_thread")]
async fn text_of_users_peers_and_servers_is_only_text_on_every_page() {
    let site = Site::start(&[]).await;
    let operator = site.operator();
    let evil = |end: &str| format!("gsiftp://a.example.org/{EVIL}/\"onload=alert(1)/'{end}");
    let job = json!({
        "files": [
            {"source": evil("from"), "destination": "gsiftp://b.example.org/x"},
            {"source": "gsiftp://a.example.org/y", "destination": evil("to\u{202e}gpj")},
        ],
        "options": {"name": format!("{EVIL}\u{202e}name"), "labels": [EVIL]},
    });
    let id = operator.submit(job).await;
    // Names of users, agents, endpoints and shares.
    let name = "<img/src=x/onerror=alert(1)>".replace('/', "\u{a0}");
    let user = json!({"name": name, "role": "agent", "groups": [EVIL.replace('/', "")]});
    operator.ok(Method::PUT, "/users", user).await;
    let token = json!({"label": EVIL, "user": name});
    let token = operator.ok(Method::POST, "/tokens", token).await;
    let token = token["token"].as_str().unwrap();
    let endpoint =
        json!({"name": "gsiftp://<b>\"onclick=x'.example.org", "limits": {"sessions": 3}});
    operator.ok(Method::PUT, "/endpoints", endpoint).await;
    let share = json!({"path": EVIL.replace("</", "<"), "weight": 2.0});
    operator.ok(Method::PUT, "/shares", share).await;
    // What servers say, by way of an agent.
    let describe = |request: &mut PollRequest| {
        request.description.labels.push("x".to_owned());
        request.description.labels.insert(0, EVIL.to_owned());
    };
    let mut answer = poll(&site, token, &name, 0, describe).await;
    for sequence in 1..20 {
        if !answer.grants.is_empty() {
            break;
        }
        answer = poll(&site, token, &name, sequence, describe).await;
    }
    let grant = answer.grants.first().unwrap().clone();
    let Work::Copy(copied) = grant.work else {
        panic!("no tree was submitted");
    };
    let error = FileError {
        code: format!("e{EVIL}"),
        message: format!("550 {EVIL} \u{1b}[2J\u{202e}drow"),
        who: WhoActs::Source,
        may_pass: false,
    };
    let progress = UnitProgress {
        lease: grant.lease,
        bytes: 5,
        open_bytes: 5,
        files: 0,
        goodput: 1e6,
        setting: Share {
            concurrency: 1,
            parallelism: 2,
        },
        limited_by: Some(format!("{EVIL}\u{202e}")),
    };
    poll(&site, token, &name, 30, |request| {
        describe(request);
        request.units = vec![progress];
        request.wait_seconds = 0;
    })
    .await;
    let mut browser = Browser::logged_in(&site, &operator.token).await;
    let mut limited = false;
    for _ in 0..100 {
        let page = browser.page(&format!("/jobs/{id}/live")).await;
        limited = page.contains("Its running unit is limited by");
        if limited {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert!(limited, "the report is shown");
    let outcome = |index| FileOutcome {
        index,
        bytes: 0,
        end: FileEnd::Failed(error.clone()),
    };
    let result = UnitResult {
        lease: grant.lease,
        sequence: grant.next_result,
        files: copied.iter().map(|file| outcome(file.index)).collect(),
        found: Vec::new(),
        last: true,
        error: None,
        undivided: Vec::new(),
    };
    poll(&site, token, &name, 31, |request| {
        describe(request);
        request.results = vec![result];
        request.wait_seconds = 0;
    })
    .await;
    let all = all_pages(&mut browser, std::slice::from_ref(&id)).await;
    for seen in [
        "&lt;script&gt;alert(1)&lt;/script&gt;\\u{202e}name",
        "/&quot;onload=alert(1)/&#39;from",
        "&#39;to\\u{202e}gpj",
        "550 &lt;script&gt;",
        "\\u{202e}drow",
        "&lt;img\u{a0}src=x\u{a0}onerror=alert(1)&gt;",
        "&lt;b&gt;&quot;onclick=x&#39;.example.org",
        "&quot;onmouseover=alert(1)",
    ] {
        assert!(all.contains(seen), "{seen}");
    }
    assert!(all.contains("The administrator of the source must act."));
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_small_whatever_the_database_holds() {
    let site = Site::start(&["--requests-per-second", "1000"]).await;
    let operator = site.operator();
    // Each character becomes six.
    let quotes = "\"".repeat(190);
    for n in 0..60 {
        let options = json!({"name": format!("{quotes}{n}"), "labels": vec![quotes.as_str(); 32]});
        let end = format!("{}{n}", "'".repeat(40));
        let file = json!({"source": format!("gsiftp://{end}a.example.org/x"),
            "destination": "gsiftp://b.example.org/x"});
        let job = json!({"files": [file], "options": options});
        let answer = operator.send(Method::POST, "/jobs", job).await;
        // Hosts with quotes are refused: those of operators are not.
        assert_eq!(answer.status(), 422);
        let name = format!("gsiftp://{quotes}{n}");
        let endpoint = json!({"name": &name[..200]});
        operator.ok(Method::PUT, "/endpoints", endpoint).await;
        let link = json!({"source": &name[..200], "destination": "gsiftp://b", "limits": {}});
        operator.ok(Method::PUT, "/links", link).await;
        let share = json!({"path": format!("{quotes}{n}"), "weight": 1.0});
        operator.ok(Method::PUT, "/shares", share).await;
    }
    let long = |n: usize| {
        let path = format!("{}{n}", "\"'<>&".repeat(1500));
        json!({"source": format!("gsiftp://a.example.org/{path}"),
            "destination": format!("gsiftp://b.example.org/{path}")})
    };
    let list: Vec<Value> = (0..40).map(long).collect();
    let options = json!({"name": quotes, "labels": vec![quotes.as_str(); 32]});
    let mut id = String::new();
    for _ in 0..60 {
        let job = json!({"files": list[..2], "options": options});
        operator.submit(job).await;
    }
    id += &operator
        .submit(json!({"files": list, "options": options}))
        .await;
    let mut browser = Browser::logged_in(&site, &operator.token).await;
    let all = all_pages(&mut browser, std::slice::from_ref(&id)).await;
    assert!(all.contains('…'));
    let answer = browser
        .post("/submit", &[("source", &quotes.repeat(40))])
        .await;
    assert!(answer.text.len() < PAGE_BYTES_MAX, "{}", answer.text.len());
}

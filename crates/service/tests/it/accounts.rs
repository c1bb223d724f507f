//! Tokens, passwords, limits and secrets over HTTP.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::site::{Site, files, problem, refusal};

#[tokio::test(flavor = "multi_thread")]
async fn tokens_end_and_are_removed_and_users_are_disabled() {
    let site = Site::start(&[]).await;
    let alice = site.user("alice", "user", &[]).await;
    let short = json!({"label": "short", "lifetime_seconds": 1});
    let short = alice.ok(Method::POST, "/tokens", short).await;
    let short = site.with(short["token"].as_str().unwrap());
    assert_eq!(short.get("/me").await["name"], "alice");
    let other = alice
        .ok(Method::POST, "/tokens", json!({"label": "other"}))
        .await;
    let second = site.with(other["token"].as_str().unwrap());
    let listed = alice.get("/tokens").await.to_string();
    assert!(listed.contains("other") && !listed.contains("gwt_"));
    let path = format!("/tokens/{}", other["id"].as_str().unwrap());
    let bob = site.user("bob", "user", &[]).await;
    assert_eq!(bob.refused(Method::DELETE, &path, Value::Null).await.0, 404);
    alice.ok(Method::DELETE, &path, Value::Null).await;
    let refused = refusal(401, "unauthenticated");
    assert_eq!(
        second.refused(Method::GET, "/me", Value::Null).await,
        refused
    );
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert_eq!(
        short.refused(Method::GET, "/me", Value::Null).await,
        refused
    );
    let disabled = json!({"name": "alice", "role": "user", "disabled": true});
    site.operator().ok(Method::PUT, "/users", disabled).await;
    assert_eq!(
        alice.refused(Method::GET, "/me", Value::Null).await,
        refused
    );
    for token in ["", "gwt_", "gwt_AAAA", "x.y.z", "\u{e9}"] {
        assert_eq!(
            site.with(token)
                .refused(Method::GET, "/me", Value::Null)
                .await,
            refused
        );
    }
    let answer = site
        .client
        .get(format!("{}/api/v1/me", site.url))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.headers()["www-authenticate"], "Bearer");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_gives_a_token_until_it_is_guessed_too_often() {
    let site = Site::start(&[]).await;
    let user = json!({"name": "alice", "role": "user", "password": "correct horse"});
    site.operator().ok(Method::PUT, "/users", user).await;
    let login = async |password: &str| {
        let body = json!({"user": "alice", "password": password});
        site.with("").send(Method::POST, "/login", body).await
    };
    let answer = login("correct horse").await;
    assert_eq!(answer.status(), StatusCode::CREATED);
    let token: Value = answer.json().await.unwrap();
    let alice = site.with(token["token"].as_str().unwrap());
    assert_eq!(alice.get("/me").await["has_password"], true);
    // What is not said of the password stays.
    let user = json!({"name": "alice", "role": "user", "groups": ["g"]});
    site.operator().ok(Method::PUT, "/users", user).await;
    assert_eq!(login("correct horse").await.status(), StatusCode::CREATED);
    // Many at the same time are no way round the limit.
    let mut logins = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let (client, url) = (site.client.clone(), format!("{}/api/v1/login", site.url));
        let body = json!({"user": "alice", "password": "wrong horse"});
        let login = client.post(url).json(&body).send();
        logins.spawn(async { login.await.unwrap().status() });
    }
    let statuses = logins.join_all().await;
    let tried = statuses.iter().filter(|s| **s == StatusCode::UNAUTHORIZED);
    // One may be forgiven meanwhile.
    assert!((20..=24).contains(&tried.count()), "{statuses:?}");
    assert_eq!(
        problem(login("correct horse").await).await,
        refusal(429, "too_many_logins")
    );
    // A user with a token is not affected.
    assert_eq!(alice.get("/me").await["name"], "alice");
    let short = json!({"name": "bob", "role": "user", "password": "short"});
    assert_eq!(
        site.operator()
            .refused(Method::PUT, "/users", short)
            .await
            .0,
        422
    );
}

/// `GODWIT_FLOOD` is another number of requests, for a try by hand.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_one_user_is_refused_and_others_are_served() {
    let number = std::env::var("GODWIT_FLOOD").map_or(10_000, |text| text.parse().unwrap());
    let site: &Site = Box::leak(Box::new(Site::start(&["--max-jobs", "50"]).await));
    let alice = site.user("alice", "user", &[]).await;
    let bob = site.user("bob", "user", &[]).await;
    let left = Arc::new(AtomicI64::new(number));
    let began = Instant::now();
    let floods = (0..16).map(|_| {
        let (alice, left) = (alice.clone(), Arc::clone(&left));
        tokio::spawn(async move {
            let (mut accepted, body) = (0, json!({"files": files(1)}));
            while left.fetch_sub(1, Ordering::Relaxed) > 0 {
                let answer = alice.send(Method::POST, "/jobs", body.clone()).await;
                if answer.status() == StatusCode::CREATED {
                    accepted += 1;
                    continue;
                }
                assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
                let wait = answer.headers()["retry-after"].to_str().unwrap();
                assert!(wait.parse::<u64>().unwrap() >= 1);
            }
            accepted
        })
    });
    let floods: Vec<_> = floods.collect();
    let mut slowest = Duration::ZERO;
    for _ in 0..20 {
        let asked = Instant::now();
        bob.submit(json!({"files": files(1)})).await;
        slowest = slowest.max(asked.elapsed());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut accepted = 0;
    for flood in floods {
        accepted += flood.await.unwrap();
    }
    println!(
        "{number} requests in {:?}, bob waited {slowest:?} at most",
        began.elapsed()
    );
    assert_eq!(accepted, 50);
    assert!(slowest < Duration::from_secs(10), "{slowest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_has_limits_of_requests_and_jobs() {
    let site = Site::start(&["--requests-per-second", "5", "--max-jobs", "2"]).await;
    let alice = site.user("alice", "user", &[]).await;
    alice.submit(json!({"files": files(1)})).await;
    alice.submit(json!({"files": files(1)})).await;
    let third = alice
        .refused(Method::POST, "/jobs", json!({"files": files(1)}))
        .await;
    assert_eq!(third, refusal(429, "quota"));
    assert_eq!(
        alice.get("/jobs").await["items"].as_array().unwrap().len(),
        2
    );
    let mut limited = None;
    for _ in 0..50 {
        let answer = alice.send(Method::GET, "/me", Value::Null).await;
        if answer.status() == StatusCode::TOO_MANY_REQUESTS {
            limited = Some(answer);
            break;
        }
    }
    let limited = limited.unwrap();
    assert!(limited.headers().contains_key("retry-after"));
    assert_eq!(problem(limited).await.1, "rate_limit");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_of_the_document_wants_a_token() {
    let site = Site::start(&[]).await;
    let url = format!("{}/api/v1/openapi.json", site.url);
    let document: Value = site
        .client
        .get(url)
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let id = "00000000-0000-7000-8000-000000000000";
    let mut routes = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            let url = format!(
                "{}{}",
                site.url,
                path.replace("{id}", id).replace("{name}", "x")
            );
            let method: Method = method.to_uppercase().parse().unwrap();
            let answer = site
                .client
                .request(method.clone(), url)
                .send()
                .await
                .unwrap();
            let status = answer.status().as_u16();
            match path.as_str() {
                "/health" | "/ready" => assert_eq!(status, 200),
                "/api/v1/login" => assert_eq!(status, 415),
                "/api/v1/login/issuers" => assert_eq!(status, 200),
                _ => assert_eq!(status, 401, "{method} {path}"),
            }
            routes += 1;
        }
    }
    assert!(routes >= 30, "{routes}");
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_in_no_answer_no_log_and_no_file_of_the_database() {
    let (password, secret, token) = ("planted-password", "planted-secret", "planted-token");
    let site = Site::start(&[]).await;
    let operator = site.operator();
    let mut said = String::new();
    let alice = json!({"name": "alice", "role": "user", "password": password});
    said += &operator.ok(Method::PUT, "/users", alice).await.to_string();
    let wanted = json!({"label": "l", "user": "alice"});
    let text = operator.ok(Method::POST, "/tokens", wanted).await;
    let alice = site.with(text["token"].as_str().unwrap());
    for body in [
        json!({"endpoint": "ftp://*", "secret": {"password": {"user": "u", "password": secret}}}),
        json!({"endpoint": "ftp://h", "secret": {"token": token}}),
    ] {
        let view = alice.ok(Method::POST, "/credentials", body.clone()).await;
        said += &view.to_string();
        let path = format!("/credentials/{}", view["id"].as_str().unwrap());
        said += &alice.ok(Method::PUT, &path, body).await.to_string();
    }
    let job = json!({"files": [{"source": format!("ftp://u:{secret}@a.example.org/x"),
        "destination": "ftp://b.example.org/x"}]});
    for (method, path, body) in [
        (Method::POST, "/jobs", job),
        (
            Method::POST,
            "/login",
            json!({"user": "alice", "password": {"x": password}}),
        ),
        (
            Method::POST,
            "/login",
            json!({"user": "bob", "password": password}),
        ),
        (
            Method::POST,
            "/credentials",
            json!({"endpoint": "ftp://h", "secret": {"proxy": secret}}),
        ),
        (
            Method::POST,
            "/credentials",
            json!({"endpoint": "ftp://h", "secret": secret}),
        ),
        (
            Method::POST,
            "/credentials",
            json!({"endpoint": "ftp://h", "secret": {"token": [token]}}),
        ),
        (Method::GET, "/credentials", Value::Null),
        (Method::GET, "/jobs", Value::Null),
        (Method::GET, "/tokens", Value::Null),
        (Method::GET, "/me", Value::Null),
    ] {
        said += &alice.send(method, path, body).await.text().await.unwrap();
    }
    for path in ["/users", "/audit", "/tokens?user=alice"] {
        said += &operator.get(path).await.to_string();
    }
    let kept = site.database_bytes();
    assert!(kept.len() > 10_000 && said.len() > 1000);
    for planted in ["planted", text["token"].as_str().unwrap(), "$argon2"] {
        assert!(!said.contains(planted), "{planted} in {said}");
        let is_hash = planted == "$argon2";
        let found = kept
            .windows(planted.len())
            .any(|part| part == planted.as_bytes());
        assert_eq!(found, is_hash, "{planted} in the database");
    }
}

//! Reports of ended jobs.

use std::{sync::Arc, time::Duration};

use axum::{Router, extract::State, http::HeaderMap, http::StatusCode, routing::post};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use parking_lot::Mutex;
use reqwest::Method;
use ring::hmac;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::site::Site;

type Reports = Arc<Mutex<Vec<(HeaderMap, String)>>>;

/// Fails once, then takes what it is sent.
async fn take(State(reports): State<Reports>, headers: HeaderMap, body: String) -> StatusCode {
    let mut reports = reports.lock();
    reports.push((headers, body));
    match reports.len() {
        1 => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::NO_CONTENT,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_job_is_reported_with_a_signature_until_it_is_taken() {
    let reports = Reports::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let router = Router::new()
        .route("/hook", post(take))
        .with_state(Arc::clone(&reports));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let site = Site::start(&["--allow-any-webhook"]).await;
    let jo = site.user("jo", "user", &[]).await;
    let file = json!({"source": "ftp://a.example.org/x", "destination": "ftp://b.example.org/x"});
    let job = json!({
        "files": [file],
        "options": {"notify": [{"webhook": {"url": url}}], "metadata": {"run": 7}},
    });
    let keyless = jo.refused(Method::POST, "/jobs", job.clone()).await;
    assert_eq!(keyless, (422, "invalid_value".to_owned()));
    jo.ok(Method::POST, "/webhook-key", Value::Null).await;
    let key = jo.ok(Method::POST, "/webhook-key", Value::Null).await;
    let key = key["key"]
        .as_str()
        .unwrap()
        .strip_prefix("whsec_")
        .unwrap()
        .to_owned();
    let id = jo.submit(job).await;
    assert!(reports.lock().is_empty(), "it has not ended");
    jo.ok(Method::POST, &format!("/jobs/{id}/cancel"), Value::Null)
        .await;
    for _ in 0..300 {
        if reports.lock().len() > 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let reports = reports.lock().clone();
    assert_eq!(reports.len(), 2, "one that was taken is not sent again");
    let key = hmac::Key::new(hmac::HMAC_SHA256, &BASE64_STANDARD.decode(key).unwrap());
    for (headers, body) in &reports {
        let header = |name: &str| headers[name].to_str().unwrap();
        assert_eq!(
            header("webhook-id"),
            reports[0].0["webhook-id"].to_str().unwrap()
        );
        let signed = format!(
            "{}.{}.{body}",
            header("webhook-id"),
            header("webhook-timestamp")
        );
        let signature = header("webhook-signature").strip_prefix("v1,").unwrap();
        let signature = BASE64_STANDARD.decode(signature).unwrap();
        hmac::verify(&key, signed.as_bytes(), &signature).unwrap();
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!(
            (&body["type"], &body["id"]),
            (&json!("job.ended"), &json!(id))
        );
        assert_eq!(
            (&body["state"], &body["metadata"]["run"]),
            (&json!("canceled"), &json!(7))
        );
    }
}

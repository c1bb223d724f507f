//! What `--metrics` serves.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    harness::Served,
    scraped::{Scraped, asked_for},
    site::Site,
};

async fn scrape(site: &Site) -> Scraped {
    let url = format!("http://{}/metrics", site.metrics.unwrap());
    let answer = site.client.get(url).send().await.unwrap();
    let media = answer.headers()["content-type"].to_str().unwrap();
    assert!(media.starts_with("text/plain; version=0.0.4"), "{media}");
    Scraped::of(&answer.text().await.unwrap())
}

/// Scrapes until it is so.
async fn until(site: &Site, is_so: impl Fn(&Scraped) -> bool) -> Scraped {
    for _ in 0..600 {
        let scraped = scrape(site).await;
        if is_so(&scraped) {
            return scraped;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{:#?}", scrape(site).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scrape_shows_what_waits_runs_and_has_ended() {
    let (one, other) = (Served::start(), Served::start());
    one.write("f", b"content");
    let (site, _running) = Site::laptop(&["--metrics", "127.0.0.1:0"]).await;
    let jo = site.operator();
    let pairs = |names: &[&str]| -> Value {
        let pair = |name: &&str| {
            let path = format!("/{name}");
            json!({"source": one.url(&path), "destination": other.url(&path)})
        };
        names.iter().map(pair).collect()
    };
    let options = json!({"class": "urgent", "paused": true});
    let held = json!({"files": pairs(&["f", "f2", "f3"]), "options": options});
    jo.submit(held).await;
    jo.submit(json!({"files": pairs(&["f", "lost"])})).await;
    let ended = |scraped: &Scraped| {
        scraped.get("godwit_service_failed_attempts_total{code=\"not_found\"}") == Some(1.0)
            && scraped.value("godwit_service_files_total{end=\"finished\"}") == 1.0
            && scraped
                .get("godwit_service_waiting_reports{kind=\"mail\"}")
                .is_some()
    };
    let scraped = until(&site, ended).await;
    for (name, value) in [
        ("godwit_service_leads", 1.0),
        ("godwit_service_accepted_jobs_total", 2.0),
        ("godwit_service_accepted_files_total", 5.0),
        ("godwit_service_files_total{end=\"failed\"}", 1.0),
        ("godwit_service_bytes_total", 7.0),
        (
            "godwit_service_failed_attempts_total{code=\"not_found\"}",
            1.0,
        ),
        ("godwit_service_lost_units_total", 0.0),
        ("godwit_service_waiting_reports{kind=\"webhook\"}", 0.0),
    ] {
        assert_eq!(scraped.value(name), value, "{name}");
    }
    let paused = "{class=\"urgent\",state=\"paused\"}";
    let waits = |scraped: &Scraped| {
        scraped.value(&format!("godwit_service_waiting_files{paused}")) == 3.0
            && scraped.value("godwit_service_running_units") == 0.0
            && scraped.value("godwit_service_agents{state=\"alive\"}") == 1.0
    };
    let scraped = until(&site, waits).await;
    let latency = "godwit_service_request_seconds_count{interface=\"api\",kind=\"write\"}";
    assert!(scraped.value(latency) >= 2.0);
    for name in [
        "godwit_service_granted_units_total",
        "godwit_service_scheduling_seconds_count",
        "godwit_service_database_seconds_count{part=\"commit\"}",
        "godwit_service_requests_total{interface=\"agents\",status=\"2xx\"}",
    ] {
        assert!(scraped.value(name) > 0.0, "{name}: {scraped:#?}");
    }
    let asked = asked_for(&["godwit_service_"]);
    let names = scraped.names();
    let unknown: Vec<_> = (asked.iter())
        .filter(|name| !names.contains(name.as_str()))
        .collect();
    assert!(unknown.is_empty() && !asked.is_empty(), "{unknown:?}");
}

#[tokio::test]
async fn metrics_are_at_their_own_address_alone() {
    let site = Site::start(&["--metrics", "127.0.0.1:0"]).await;
    let operator = site.operator();
    let refused = operator.refused(Method::GET, "/../../metrics", Value::Null);
    assert_eq!(refused.await, (404, "not_found".to_owned()));
    let jobs = format!("http://{}/api/v1/jobs", site.metrics.unwrap());
    let answer = site.client.get(jobs).send().await.unwrap();
    assert_eq!(answer.status(), 404);
}

//! A user who asks for more than is allowed.

use std::time::{Duration, Instant};

use godwit_service_api::job::JobView;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};

use super::{Facts, ServiceSize, spread};
use crate::service_load::{Http, LoadedService};

/// Connections of the user who does not stop, and every which request is a job.
const FLOODERS: u64 = 32;
const JOB_EVERY: u64 = 10;

/// What one connection of a user who does not stop was answered.
#[derive(Default)]
struct Flooded {
    done: u64,
    refused: u64,
    jobs: Vec<String>,
}

async fn flood_by(mut http: Http, requests: u64) -> std::io::Result<Flooded> {
    let mut flooded = Flooded::default();
    let file = json!({
        "source": "gsiftp://dtn.example.org/f", "destination": "gsiftp://store.example.net/f",
    });
    let job = json!({"files": [file]}).to_string();
    for number in 0..requests {
        let (method, body) = match number % JOB_EVERY {
            0 => ("POST", job.as_bytes()),
            _ => ("GET", &b""[..]),
        };
        let (status, answer) = http.ask(method, "/api/v1/jobs", body).await?;
        match (status, method) {
            (200..300, "POST") => {
                let job: JobView = serde_json::from_slice(&answer)?;
                flooded.jobs.push(job.id.to_string());
                flooded.done += 1;
            }
            (200..300, _) => flooded.done += 1,
            (429, _) => flooded.refused += 1,
            _ => {
                let text = String::from_utf8_lossy(&answer).into_owned();
                return Err(std::io::Error::other(format!(
                    "answered with {status}: {text}"
                )));
            }
        }
    }
    Ok(flooded)
}

/// One user asks more than is allowed, over many connections; another asks meanwhile. Every job
/// that was accepted is there.
pub(super) async fn flood(site: &LoadedService, size: &ServiceSize) -> Facts {
    let users = site.accounts("user", 2).await?;
    let (began, cpu) = (Instant::now(), site.cpu());
    let mut connections = JoinSet::new();
    for _ in 0..FLOODERS {
        connections.spawn(flood_by(
            site.http(&users[0]),
            size.flood_requests / FLOODERS,
        ));
    }
    let (mut other, mut asked) = (site.http(&users[1]), Vec::new());
    let mut all = Flooded::default();
    while !connections.is_empty() {
        let sent = Instant::now();
        let _: Value = other.must("GET", "/api/v1/jobs", b"").await?;
        asked.push(sent.elapsed().as_secs_f64());
        sleep(Duration::from_millis(50)).await;
        while let Some(ended) = connections.try_join_next() {
            let one = ended.map_err(std::io::Error::other)??;
            all.done += one.done;
            all.refused += one.refused;
            all.jobs.extend(one.jobs);
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let cpu = (site.cpu() - cpu).as_secs_f64() / seconds;
    let mut operator = site.operator();
    for job in &all.jobs {
        let path = format!("/api/v1/jobs/{job}");
        let _: JobView = operator.must("GET", &path, b"").await?;
        // The operator has the same limit.
        sleep(Duration::from_millis(25)).await;
    }
    let total = all.done + all.refused;
    Ok(vec![
        format!(
            "{total} requests in {seconds:.0} s, {:.0} a second; {} done, {} refused (429), \
             nothing else; {:.0} % of a processor",
            total as f64 / seconds,
            all.done,
            all.refused,
            100.0 * cpu
        ),
        format!("{} jobs were accepted, and each is there", all.jobs.len()),
        format!("requests of another user meanwhile: {}", spread(&asked)),
    ])
}

//! Submitters as Rucio has them, over the interface of FTS3: jobs of many files with the metadata
//! that Rucio gives each, and polls of many jobs with the members of files that its poller reads.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{sleep, sleep_until};
use uuid::Uuid;

use super::{Account, Http};

/// Members of files that the poller of Rucio 41 asks for.
const MEMBERS: &str = "file_state,dest_surl,finish_time,start_time,staging_start,staging_finished,\
    reason,source_surl,file_metadata";

/// Between two looks at jobs that have not ended.
const LOOK: Duration = Duration::from_millis(200);

/// Bytes of a file.
const FILE_BYTES: u64 = 100_000;

/// What the daemons of one Rucio do, which have one account.
#[derive(Debug)]
pub struct Rucio {
    fts: SocketAddr,
    token: String,
    /// Files of a job.
    files: usize,
    /// Most jobs of a poll.
    polled: usize,
    /// Ids of all jobs.
    jobs: Mutex<Vec<String>>,
    /// Seconds of submissions.
    pub submissions: Mutex<Vec<f64>>,
    /// Seconds of polls.
    pub polls: Mutex<Vec<f64>>,
    /// Seconds of reads of one job.
    pub reads: Mutex<Vec<f64>>,
    /// Bytes of the answers to polls.
    pub poll_bytes: AtomicU64,
}

#[derive(Deserialize)]
struct Submitted {
    job_id: String,
}

#[derive(Deserialize)]
struct PolledJob<'a> {
    http_status: &'a str,
    job_state: &'a str,
    #[serde(default, borrow)]
    files: Vec<PolledFile<'a>>,
}

#[derive(Deserialize)]
struct PolledFile<'a> {
    file_state: &'a str,
    file_metadata: PolledMetadata<'a>,
}

#[derive(Deserialize)]
struct PolledMetadata<'a> {
    request_id: &'a str,
}

impl Rucio {
    /// Submits jobs of so many files, and polls so many jobs at a time.
    pub fn new(fts: SocketAddr, account: &Account, files: usize, polled: usize) -> Rucio {
        Rucio {
            fts,
            token: account.token.clone(),
            files,
            polled,
            jobs: Mutex::default(),
            submissions: Mutex::default(),
            polls: Mutex::default(),
            reads: Mutex::default(),
            poll_bytes: AtomicU64::new(0),
        }
    }

    /// Jobs that were submitted.
    pub fn jobs(&self) -> usize {
        self.jobs.lock().len()
    }

    /// One submitter: from `first` to `until` it submits a job, reads it and polls, every
    /// `interval`.
    ///
    /// # Errors
    /// A request is refused, or its answer is not what Rucio needs.
    pub async fn work(
        self: Arc<Self>,
        pair: usize,
        first: Instant,
        until: Instant,
        interval: Duration,
    ) -> io::Result<()> {
        let mut next = first;
        while next < until {
            sleep_until(next.into()).await;
            let id = self.submit(pair).await?;
            self.read(&id).await?;
            self.poll().await?;
            next += interval;
        }
        Ok(())
    }

    /// Submits one job, between a pair of endpoints.
    ///
    /// # Errors
    /// It is refused.
    pub async fn submit(&self, pair: usize) -> io::Result<String> {
        let body = submission(self.files, pair).to_string();
        let began = Instant::now();
        // Rucio has a connection for each request, and writes a slash too many.
        let mut http = Http::new(self.fts, &self.token);
        let submitted: Submitted = http.must("POST", "//jobs", body.as_bytes()).await?;
        self.submissions.lock().push(began.elapsed().as_secs_f64());
        self.jobs.lock().push(submitted.job_id.clone());
        Ok(submitted.job_id)
    }

    async fn read(&self, id: &str) -> io::Result<()> {
        let (answer, seconds) = self.get(&format!("//jobs/{id}")).await?;
        self.reads.lock().push(seconds);
        let job: PolledJob<'_> = serde_json::from_slice(&answer)?;
        check(job.http_status == "200 Ok", "a job was not read")
    }

    /// The latest jobs, with their files.
    async fn poll(&self) -> io::Result<()> {
        let ids = {
            let jobs = self.jobs.lock();
            jobs[jobs.len().saturating_sub(self.polled)..].to_vec()
        };
        let path = format!("//jobs/{}?files={MEMBERS}", ids.join(","));
        let (answer, seconds) = self.get(&path).await?;
        self.polls.lock().push(seconds);
        let bytes = answer.len() as u64;
        self.poll_bytes.fetch_add(bytes, Ordering::Relaxed);
        let jobs: Vec<PolledJob<'_>> = match serde_json::from_slice(&answer) {
            // A poll of one job is answered with an object.
            Err(_) if ids.len() == 1 => vec![serde_json::from_slice(&answer)?],
            parsed => parsed?,
        };
        let is_whole = |job: &PolledJob<'_>| {
            let has_id = |file: &PolledFile<'_>| !file.file_metadata.request_id.is_empty();
            job.http_status == "200 Ok"
                && job.files.len() == self.files
                && job.files.iter().all(has_id)
        };
        let all = jobs.len() == ids.len() && jobs.iter().all(is_whole);
        check(all, "a poll lacks jobs or files")
    }

    async fn get(&self, path: &str) -> io::Result<(Vec<u8>, f64)> {
        let mut http = Http::new(self.fts, &self.token);
        let began = Instant::now();
        let (status, answer) = http.ask("GET", path, b"").await?;
        let seconds = began.elapsed().as_secs_f64();
        match status {
            200 => Ok((answer, seconds)),
            status => {
                let text = String::from_utf8_lossy(&answer);
                let start: String = text.chars().take(200).collect();
                Err(io::Error::other(format!("GET /jobs: {status}: {start}")))
            }
        }
    }

    /// Waits until all jobs have ended; each of their files must have arrived.
    ///
    /// # Errors
    /// A job has ended otherwise, or has not ended after `limit`.
    pub async fn finish(&self, limit: Duration) -> io::Result<()> {
        let began = Instant::now();
        let jobs = self.jobs.lock().clone();
        for id in jobs {
            let path = format!("//jobs/{id}?files={MEMBERS}");
            loop {
                let (answer, _) = self.get(&path).await?;
                let job: PolledJob<'_> = serde_json::from_slice(&answer)?;
                let finished = |file: &PolledFile<'_>| file.file_state == "FINISHED";
                match job.job_state {
                    "SUBMITTED" | "ACTIVE" if began.elapsed() < limit => sleep(LOOK).await,
                    "FINISHED" if job.files.iter().all(finished) => break,
                    state => return Err(io::Error::other(format!("job {id} is {state}"))),
                }
            }
        }
        Ok(())
    }
}

fn check(is_so: bool, otherwise: &str) -> io::Result<()> {
    match is_so {
        true => Ok(()),
        false => Err(io::Error::other(otherwise)),
    }
}

/// A body as Rucio's submitter sends it.
fn submission(files: usize, pair: usize) -> Value {
    let file = |number: usize| {
        let name = format!("AOD.{pair:05}._{number:06}.pool.root.1");
        let request = Uuid::new_v4();
        let checksum = format!("{number:08x}");
        json!({
            "sources": [format!("gsiftp://dtn{pair}.example.org:2811/rucio/mc23/{name}")],
            "destinations": [format!("gsiftp://store{pair}.example.net:2811/rucio/mc23/{name}")],
            "metadata": {
                "request_id": request.simple().to_string(),
                "scope": "mc23_13p6TeV",
                "name": name,
                "activity": "Production Output",
                "request_type": "TRANSFER",
                "src_type": "DISK",
                "dst_type": "DISK",
                "src_rse": format!("SITE{pair}_DATADISK"),
                "dst_rse": format!("STORE{pair}_DATADISK"),
                "src_rse_id": "5f1b3c9f9d7a4d1d9b0c0d6c1f0e9a11",
                "dest_rse_id": "0f2e4f0fb7a94b2f8a2a1e9a6d3c7b22",
                "filesize": FILE_BYTES,
                "md5": null,
                "adler32": checksum,
            },
            "filesize": FILE_BYTES,
            "checksum": format!("ADLER32:{checksum}"),
            "selection_strategy": "auto",
            "activity": "Production Output",
        })
    };
    json!({
        "files": (0..files).map(file).collect::<Vec<_>>(),
        "params": {
            "account": "root",
            "verify_checksum": "both",
            "copy_pin_lifetime": -1,
            "bring_online": null,
            "job_metadata": {
                "issuer": "rucio",
                "multi_sources": false,
                "overwrite_when_only_on_disk": false,
            },
            "overwrite": true,
            "overwrite_when_only_on_disk": false,
            "priority": 3,
            "s3alternate": false,
            "max_time_in_queue": 168,
        },
    })
}

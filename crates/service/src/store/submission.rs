//! A job comes in: files are packed into segments as they arrive, one transaction a segment.

use std::{collections::HashMap, net::Ipv6Addr};

use godwit_proto::url::Scheme;
use godwit_service_api::job::{FileOrder, FileRequest, JobOptions, JobState};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::{
    Store, StoreError,
    database::{self, Columns as _, Work, json, micros},
    manifest::SEGMENT_FILES,
    units::{self, NewSegment},
};

/// How a submission begins.
#[derive(Debug)]
pub enum Begun {
    /// The files are to follow.
    New(Box<Submission>),
    /// The owner has submitted this job under the same key.
    Existing {
        /// Its name for users.
        id: Uuid,
        /// [`RequestDigest`] of what was submitted.
        digest: Option<Vec<u8>>,
    },
}

/// What a user may have at a time that is not final.
#[derive(Clone, Copy, Debug)]
pub struct Quota {
    /// Jobs.
    pub jobs: u64,
    /// Files that have not ended.
    pub files: u64,
}

impl Quota {
    /// No limit.
    pub const NONE: Quota = Quota {
        jobs: u64::MAX,
        files: u64::MAX,
    };
}

/// Tells whether two submissions are the same: options and all files, whatever the form of the
/// request.
#[derive(Clone)]
pub struct RequestDigest(Sha256);

impl RequestDigest {
    /// Of a submission whose files follow.
    pub fn new(options: &JobOptions) -> Result<Self, StoreError> {
        let mut digest = RequestDigest(Sha256::new());
        digest.add_line(options)?;
        Ok(digest)
    }

    /// Adds the next file.
    pub fn add(&mut self, file: &FileRequest) -> Result<(), StoreError> {
        self.add_line(file)
    }

    fn add_line(&mut self, value: &impl Serialize) -> Result<(), StoreError> {
        self.0.update(json(value)?);
        self.0.update(b"\n");
        Ok(())
    }

    /// Of all of it.
    pub fn finish(self) -> Vec<u8> {
        self.0.finalize().to_vec()
    }
}

/// What names a job.
struct JobName<'a> {
    /// The owner's.
    key: Option<&'a str>,
    /// For users.
    id: Uuid,
    /// The schedule that it is of.
    schedule: Option<&'a str>,
}

/// Files that a submission holds back so that segments fill up, over all pairs of endpoints.
const MAX_HELD: usize = 16 * SEGMENT_FILES;

/// The same in bytes: URLs and metadata may be long.
const MAX_HELD_BYTES: usize = 4 << 20;

/// A job whose files come in. Dropped before [`Submission::finish`] it is removed later by
/// [`Store::maintain`].
pub struct Submission {
    store: Store,
    number: i64,
    id: Uuid,
    owner: String,
    quota: Quota,
    digest: RequestDigest,
    held: HashMap<Pair, HeldFiles>,
    pushed: u64,
    count: usize,
    bytes: usize,
    links: HashMap<(String, String), i64>,
    first: bool,
    order: FileOrder,
    trace: Option<String>,
}

#[derive(Default)]
struct HeldFiles {
    /// Number of the first in the submission.
    first: u64,
    files: Vec<FileRequest>,
    bytes: usize,
}

/// Endpoints of a file, and whether it is a tree.
type Pair = (String, String, bool);

impl std::fmt::Debug for Submission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Submission({})", self.id)
    }
}

impl Store {
    /// Begins a job of `owner`. With a key that the owner has used the job of then is the answer;
    /// one whose submission broke off, or still goes on elsewhere, is replaced.
    ///
    /// # Errors
    /// Also where the owner has as many jobs as `quota` allows.
    pub async fn submit(
        &self,
        owner: &str,
        key: Option<&str>,
        options: &JobOptions,
        quota: Quota,
    ) -> Result<Begun, StoreError> {
        self.submit_scheduled(owner, key, None, options, quota)
            .await
    }

    /// Begins a job of a schedule of `owner`, where it is one.
    pub async fn submit_scheduled(
        &self,
        owner: &str,
        key: Option<&str>,
        schedule: Option<&str>,
        options: &JobOptions,
        quota: Quota,
    ) -> Result<Begun, StoreError> {
        let name = JobName {
            key,
            id: Uuid::now_v7(),
            schedule,
        };
        self.begin_job(owner, name, options, quota).await
    }

    /// Begins a job whose id the client has chosen. It is the key, too.
    pub async fn submit_named(
        &self,
        owner: &str,
        id: Uuid,
        options: &JobOptions,
        quota: Quota,
    ) -> Result<Begun, StoreError> {
        let key = id.to_string();
        let name = JobName {
            key: Some(&key),
            id,
            schedule: None,
        };
        self.begin_job(owner, name, options, quota).await
    }

    async fn begin_job(
        &self,
        owner: &str,
        name: JobName<'_>,
        options: &JobOptions,
        quota: Quota,
    ) -> Result<Begun, StoreError> {
        let JobName { key, id, schedule } = name;
        let mut work = self.database.begin().await?;
        lock_owner(&mut work, owner, quota).await?;
        if let Some(key) = key {
            let text = "SELECT number, id, state, request FROM job
                WHERE owner = $1 AND idempotency_key = $2 {lock}";
            let query = work.query(text).bind(owner.to_owned()).bind(key.to_owned());
            if let Some(row) = query.fetch_optional(work.connection()).await? {
                if row.name::<JobState>(2)? != JobState::Submitting {
                    return Ok(Begun::Existing {
                        id: row.uuid(1)?,
                        digest: row.maybe_bytes(3)?,
                    });
                }
                abandon(&mut work, row.int(0)?).await?;
            }
        }
        check_quota(&mut work, owner, quota, 1, 0).await?;
        let text = "INSERT INTO job
            (id, owner, idempotency_key, state, options, deadline, ordered, schedule, name,
            created, touched)
            VALUES ($1, $2, $3, 'submitting', $4, $5, $6, $7, $8, {now}, {now})
            RETURNING number";
        let row = work
            .query(text)
            .bind(id.to_string())
            .bind(owner.to_owned())
            .bind(key.map(str::to_owned))
            .bind(json(options)?)
            .bind(micros(options.deadline))
            .bind(match options.order {
                FileOrder::Any => None,
                order => Some(database::name(order)?),
            })
            .bind(schedule.map(str::to_owned))
            .bind(name_in_searches(options))
            .fetch_one(work.connection())
            .await;
        let row = match row {
            Err(sqlx::Error::Database(e)) if e.is_unique_violation() => {
                return Err(StoreError::Conflict(
                    "the same submission began at the same time",
                ));
            }
            other => other?,
        };
        let number = row.int(0)?;
        work.commit().await?;
        Ok(Begun::New(Box::new(Submission {
            store: self.clone(),
            number,
            id,
            owner: owner.to_owned(),
            quota,
            digest: RequestDigest::new(options)?,
            held: HashMap::new(),
            pushed: 0,
            count: 0,
            bytes: 0,
            links: HashMap::new(),
            first: true,
            order: options.order,
            trace: None,
        })))
    }
}

impl Submission {
    /// Name of the job for users.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// Where a trace of the job goes on, as a header `traceparent`.
    pub fn set_trace(&mut self, trace: Option<String>) {
        self.trace = trace;
    }

    /// Adds a file, or a tree. Writes when a segment is full.
    pub async fn push(&mut self, file: FileRequest) -> Result<(), StoreError> {
        let pair = pair_of(&file)?;
        self.digest.add(&file)?;
        let bytes = size_of(&file);
        let held = self.held.entry(pair.clone()).or_default();
        if held.files.is_empty() {
            held.first = self.pushed;
        }
        held.files.push(file);
        held.bytes += bytes;
        self.pushed += 1;
        self.count += 1;
        self.bytes += bytes;
        // The first unit starts while the rest comes in, as soon as the job is complete. Files that
        // wait for each other are segments of their own.
        if held.files.len() == SEGMENT_FILES || !self.order.is_any() {
            return self.write(pair).await;
        }
        if self.count > MAX_HELD || self.bytes > MAX_HELD_BYTES {
            let largest = self.held.iter().max_by_key(|(_, held)| held.bytes);
            if let Some(pair) = largest.map(|(pair, _)| pair.clone()) {
                return self.write(pair).await;
            }
        }
        Ok(())
    }

    async fn write(&mut self, pair: Pair) -> Result<(), StoreError> {
        let HeldFiles { files, bytes, .. } = self.held.remove(&pair).unwrap_or_default();
        self.count -= files.len();
        self.bytes -= bytes;
        let (source, destination, directories) = pair;
        let mut work = self.store.database.begin().await?;
        let more = files.len() as u64;
        lock_owner(&mut work, &self.owner, self.quota).await?;
        check_quota(&mut work, &self.owner, self.quota, 0, more).await?;
        let ends = (source, destination);
        let link = match self.links.get(&ends) {
            Some(link) => *link,
            None => {
                let link = units::link_number(&mut work, &ends.0, &ends.1).await?;
                self.links.insert(ends, link);
                link
            }
        };
        let text = "UPDATE job SET touched = {now}
            WHERE number = $1 AND state = 'submitting' AND touched > 0";
        let query = work.query(text).bind(self.number);
        if query.execute(work.connection()).await?.rows_affected() == 0 {
            return Err(StoreError::Conflict(
                "a later submission took the place of this one",
            ));
        }
        let segment = NewSegment {
            job: self.number,
            link,
            directories,
            files: &files,
            staged: None,
            first: self.first && !directories,
            waits: !self.order.is_any(),
        };
        units::append(&mut work, &segment).await?;
        work.commit().await?;
        self.first &= directories;
        Ok(())
    }

    /// Ends the list: the job is accepted, and the work can start. What came in is removed where it
    /// cannot be accepted.
    pub async fn finish(mut self) -> Result<Uuid, StoreError> {
        let accepted = self.accept().await;
        if accepted.is_err()
            && let Err(error) = self.abort().await
        {
            tracing::warn!(%error, "a submission that was refused is removed later");
        }
        accepted
    }

    async fn accept(&mut self) -> Result<Uuid, StoreError> {
        // Files of a short job have the numbers of their lines, as far as pairs of ends allow.
        while let Some((pair, _)) = self.held.iter().min_by_key(|(_, held)| held.first) {
            self.write(pair.clone()).await?;
        }
        let mut work = self.store.database.begin().await?;
        let text = "SELECT options, total + listings FROM job
            WHERE number = $1 AND state = 'submitting' AND touched > 0 {lock}";
        let query = work.query(text).bind(self.number);
        let Some(row) = query.fetch_optional(work.connection()).await? else {
            return Err(StoreError::Conflict(
                "a later submission took the place of this one",
            ));
        };
        if row.int(1)? == 0 {
            return Err(StoreError::Invalid("a job needs at least one file"));
        }
        let options: JobOptions = row.json(0)?;
        let text = "UPDATE job SET request = $2, submitted = next_segment, trace = $3
            WHERE number = $1";
        let query = work.query(text);
        let query = query.bind(self.number).bind(self.digest.clone().finish());
        let query = query.bind(self.trace.clone());
        query.execute(work.connection()).await?;
        if !self.order.is_any() {
            units::release_file(&mut work, self.number, 0).await?;
        }
        let state = match options.paused {
            true => JobState::Paused,
            false => JobState::Queued,
        };
        let reason = options.paused.then_some("by its submission");
        units::set_state(&mut work, self.number, state, reason).await?;
        units::wait_for(&mut work, self.number, &options.after).await?;
        work.commit().await?;
        Ok(self.id)
    }

    /// Removes what came in.
    pub async fn abort(self) -> Result<(), StoreError> {
        let mut work = self.store.database.begin().await?;
        let is_dropped = abandon(&mut work, self.number).await?;
        work.commit().await?;
        match is_dropped {
            true => self.store.remove_job(self.number).await,
            false => Ok(()),
        }
    }
}

/// A submission takes no more files and is not counted; [`Store::maintain`] removes it. False where
/// it has been accepted.
async fn abandon(work: &mut Work, job: i64) -> Result<bool, StoreError> {
    let text = "UPDATE job SET touched = 0, idempotency_key = NULL
        WHERE number = $1 AND state = 'submitting'";
    let query = work.query(text).bind(job);
    Ok(query.execute(work.connection()).await?.rows_affected() > 0)
}

/// Other transactions that add to what a user has wait for the end of this one.
async fn lock_owner(work: &mut Work, owner: &str, quota: Quota) -> Result<(), StoreError> {
    if quota.jobs < u64::MAX || quota.files < u64::MAX {
        let query = work.query("SELECT name FROM principal WHERE name = $1 {lock}");
        let query = query.bind(owner.to_owned());
        query.fetch_optional(work.connection()).await?;
    }
    Ok(())
}

/// Whether `jobs` and `files` may be added to what a user has.
async fn check_quota(
    work: &mut Work,
    owner: &str,
    quota: Quota,
    jobs: u64,
    files: u64,
) -> Result<(), StoreError> {
    let adds_to_limit = jobs > 0 && quota.jobs < u64::MAX || files > 0 && quota.files < u64::MAX;
    if !adds_to_limit {
        return Ok(());
    }
    let text = "SELECT COUNT(*),
        CAST(COALESCE(SUM(total - finished - skipped - failed - canceled), 0) AS bigint)
        FROM job WHERE owner = $1 AND ended IS NULL AND touched > 0";
    let query = work.query(text).bind(owner.to_owned());
    let row = query.fetch_one(work.connection()).await?;
    let checks = [
        ("jobs", row.count(0)?, jobs, quota.jobs),
        ("files", row.count(1)?, files, quota.files),
    ];
    for (what, has, more, most) in checks {
        if more > 0 && has.saturating_add(more) > most {
            return Err(StoreError::Quota { what, has, most });
        }
    }
    Ok(())
}

/// Bytes of memory, about.
fn size_of(file: &FileRequest) -> usize {
    let metadata = file.metadata.as_ref().map(|metadata| metadata.to_string());
    let texts = [
        Some(&file.source),
        Some(&file.destination),
        file.checksum.as_ref(),
        metadata.as_ref(),
    ];
    let texts = texts.into_iter().flatten().map(String::len);
    std::mem::size_of::<FileRequest>() + texts.sum::<usize>()
}

fn pair_of(file: &FileRequest) -> Result<Pair, StoreError> {
    let error = StoreError::Invalid("a URL is scheme://host/path");
    match (endpoint_of(&file.source), endpoint_of(&file.destination)) {
        (Some(source), Some(destination)) => Ok((source, destination, file.recursive)),
        _ => Err(error),
    }
}

/// `scheme://host:port` of a URL, without a user. The port is left out where it is the usual one of
/// the scheme; names are in lower case and have no dot at their end, and addresses have their usual
/// form.
pub fn endpoint_of(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let scheme = scheme.to_ascii_lowercase();
    let authority = authority.to_ascii_lowercase();
    let host = authority
        .rsplit_once('@')
        .map_or(authority.as_str(), |(_, host)| host);
    let (host, port) = match host.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (host, None),
    };
    if scheme.is_empty() || host.is_empty() && scheme != "file" {
        return None;
    }
    let usual_port = Scheme::named(&scheme).map(Scheme::default_port);
    let host = host.strip_suffix('.').unwrap_or(host);
    let address = host.trim_matches(['[', ']']).parse::<Ipv6Addr>();
    let host = address.map_or(host.to_owned(), |address| format!("[{address}]"));
    Some(match port.map(|port| (port, port.parse::<u16>())) {
        Some((_, Ok(port))) if Some(port) == usual_port => format!("{scheme}://{host}"),
        Some((_, Ok(port))) => format!("{scheme}://{host}:{port}"),
        Some((port, Err(_))) => format!("{scheme}://{host}:{port}"),
        None => format!("{scheme}://{host}"),
    })
}

/// The name by which a job is found. No text of PostgreSQL has a NUL.
fn name_in_searches(options: &JobOptions) -> Option<String> {
    let name = options.name.as_deref().filter(|name| !name.contains('\0'));
    name.map(str::to_lowercase)
}

#[cfg(test)]
mod tests {
    use super::endpoint_of;

    #[test]
    fn endpoints_are_scheme_host_and_port() {
        let of = |url| endpoint_of(url).unwrap_or_default();
        for url in [
            "gsiftp://A.example.org:2811/x//y",
            "gsiftp://a.example.org:02811",
            "GSIFTP://a.example.org./",
            "gsiftp://a.EXAMPLE.org.:2811",
        ] {
            assert_eq!(of(url), "gsiftp://a.example.org", "{url}");
        }
        assert_eq!(of("gsiftp://a:021/x"), "gsiftp://a:21");
        assert_eq!(of("ftp://a:21/x"), "ftp://a");
        assert_eq!(of("ftpes://a:2811/x"), "ftpes://a:2811");
        assert_eq!(of("ftp://[0:0::1]:21/x"), "ftp://[::1]");
        assert_eq!(of("ftp://user:p%40@h/x@y"), "ftp://h");
        assert_eq!(of("ftp://[::1]:2021"), "ftp://[::1]:2021");
        assert_eq!(of("file:///tmp/x"), "file://");
        assert_eq!(of("ftp:///x"), "");
        assert_eq!(of("/tmp/x"), "");
    }
}

//! A job comes in: files are packed into segments as they arrive, one transaction a segment.

use std::collections::HashMap;

use godwit_service_api::job::{FileRequest, JobOptions, JobState};
use uuid::Uuid;

use super::{
    Store, StoreError,
    database::{Columns as _, json, micros},
    manifest::SEGMENT_FILES,
    units::{self, NewSegment},
};

/// How a submission begins.
#[derive(Debug)]
pub enum Begun {
    /// The files are to follow.
    New(Submission),
    /// The owner has submitted this job under the same key.
    Existing(Uuid),
}

/// Files that a submission holds back so that segments fill up, over all pairs of endpoints.
const MAX_HELD: usize = 16 * SEGMENT_FILES;

/// A job whose files come in. Dropped before [`Submission::finish`] it is removed later by
/// [`Store::maintain`], or by the next submission under the same key.
pub struct Submission {
    store: Store,
    number: i64,
    id: Uuid,
    /// With the number of the first of them in the submission.
    held: HashMap<Pair, (u64, Vec<FileRequest>)>,
    pushed: u64,
    count: usize,
    links: HashMap<(String, String), i64>,
    first: bool,
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
    pub async fn submit(
        &self,
        owner: &str,
        key: Option<&str>,
        options: &JobOptions,
    ) -> Result<Begun, StoreError> {
        let mut work = self.database.begin().await?;
        if let Some(key) = key {
            let text = "SELECT number, id, state FROM job
                WHERE owner = $1 AND idempotency_key = $2 {lock}";
            let query = work.query(text).bind(owner.to_owned()).bind(key.to_owned());
            if let Some(row) = query.fetch_optional(work.connection()).await? {
                if row.name::<JobState>(2)? != JobState::Submitting {
                    return Ok(Begun::Existing(row.uuid(1)?));
                }
                units::remove_job(&mut work, row.int(0)?).await?;
            }
        }
        let id = Uuid::now_v7();
        let text = "INSERT INTO job
            (id, owner, idempotency_key, state, options, deadline, created, touched)
            VALUES ($1, $2, $3, 'submitting', $4, $5, {now}, {now}) RETURNING number";
        let row = work
            .query(text)
            .bind(id.to_string())
            .bind(owner.to_owned())
            .bind(key.map(str::to_owned))
            .bind(json(options)?)
            .bind(micros(options.deadline))
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
        Ok(Begun::New(Submission {
            store: self.clone(),
            number,
            id,
            held: HashMap::new(),
            pushed: 0,
            count: 0,
            links: HashMap::new(),
            first: true,
        }))
    }
}

impl Submission {
    /// Name of the job for users.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// Adds a file, or a tree. Writes when a segment is full.
    pub async fn push(&mut self, file: FileRequest) -> Result<(), StoreError> {
        let pair = pair_of(&file)?;
        let new = || (self.pushed, Vec::new());
        let (_, files) = self.held.entry(pair.clone()).or_insert_with(new);
        files.push(file);
        self.pushed += 1;
        self.count += 1;
        // The first unit starts while the rest comes in, as soon as the job is complete.
        if files.len() == SEGMENT_FILES {
            return self.write(pair).await;
        }
        if self.count > MAX_HELD {
            let longest = self.held.iter().max_by_key(|(_, (_, files))| files.len());
            if let Some(pair) = longest.map(|(pair, _)| pair.clone()) {
                return self.write(pair).await;
            }
        }
        Ok(())
    }

    async fn write(&mut self, pair: Pair) -> Result<(), StoreError> {
        let (_, files) = self.held.remove(&pair).unwrap_or_default();
        self.count -= files.len();
        let (source, destination, directories) = pair;
        let mut work = self.store.database.begin().await?;
        let ends = (source, destination);
        let link = match self.links.get(&ends) {
            Some(link) => *link,
            None => {
                let link = units::link_number(&mut work, &ends.0, &ends.1).await?;
                self.links.insert(ends, link);
                link
            }
        };
        let text = "UPDATE job SET touched = {now} WHERE number = $1 AND state = 'submitting'";
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
        };
        units::append(&mut work, &segment).await?;
        work.commit().await?;
        self.first &= directories;
        Ok(())
    }

    /// Ends the list: the job is accepted, and the work can start.
    pub async fn finish(mut self) -> Result<Uuid, StoreError> {
        // Files of a short job have the numbers of their lines, as far as pairs of ends allow.
        while let Some((pair, _)) = self.held.iter().min_by_key(|(_, (first, _))| *first) {
            self.write(pair.clone()).await?;
        }
        let mut work = self.store.database.begin().await?;
        let text = "SELECT options, total + listings FROM job
            WHERE number = $1 AND state = 'submitting' {lock}";
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
        let state = match options.paused {
            true => JobState::Paused,
            false => JobState::Queued,
        };
        let reason = options.paused.then_some("submitted so");
        units::set_state(&mut work, self.number, state, reason).await?;
        units::wait_for(&mut work, self.number, &options.after).await?;
        work.commit().await?;
        Ok(self.id)
    }

    /// Removes what came in.
    pub async fn abort(self) -> Result<(), StoreError> {
        let mut work = self.store.database.begin().await?;
        let text = "SELECT number FROM job WHERE number = $1 AND state = 'submitting' {lock}";
        let query = work.query(text).bind(self.number);
        if query.fetch_optional(work.connection()).await?.is_some() {
            units::remove_job(&mut work, self.number).await?;
        }
        work.commit().await
    }
}

fn pair_of(file: &FileRequest) -> Result<Pair, StoreError> {
    let error = StoreError::Invalid("a URL is scheme://host/path");
    match (endpoint_of(&file.source), endpoint_of(&file.destination)) {
        (Some(source), Some(destination)) => Ok((source, destination, file.recursive)),
        _ => Err(error),
    }
}

/// `scheme://host:port` of a URL, the port only where the URL has one, without a user.
pub fn endpoint_of(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let named = !host.is_empty() || scheme.eq_ignore_ascii_case("file");
    (named && !scheme.is_empty()).then(|| format!("{scheme}://{host}").to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::endpoint_of;

    #[test]
    fn endpoints_are_scheme_host_and_port() {
        let of = |url| endpoint_of(url).unwrap_or_default();
        assert_eq!(
            of("gsiftp://A.example.org:2811/x//y"),
            "gsiftp://a.example.org:2811"
        );
        assert_eq!(of("ftp://user:p%40@h/x@y"), "ftp://h");
        assert_eq!(of("ftp://[::1]:21"), "ftp://[::1]:21");
        assert_eq!(of("file:///tmp/x"), "file://");
        assert_eq!(of("ftp:///x"), "");
        assert_eq!(of("/tmp/x"), "");
    }
}

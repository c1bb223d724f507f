//! Files of a job as users see them.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    ops::{Range, RangeInclusive},
};

use godwit_service_api::{
    job::{FileError, FileState, FileView, JobState, WhoActs},
    page::{MAX_PAGE, Page},
};
use sqlx::any::AnyRow;

use super::{
    Store, StoreError,
    database::Columns as _,
    jobs::parse_cursor,
    manifest::{self, Outcome, Outcomes},
    model::JobRecord,
    units::{self, UNIT, UnitRow},
};

/// A segment at one time, without the list of its files, which never changes.
#[derive(Debug)]
pub struct SegmentState<'a> {
    job: &'a JobRecord,
    number: i64,
    base: i64,
    files: i64,
    directories: bool,
    outcomes: Outcomes,
    receipts: Option<Vec<u8>>,
    exceptions: BTreeMap<i64, FileException>,
    /// Places of files that agents have.
    active: BTreeSet<u32>,
}

#[derive(Debug)]
struct FileException {
    failed: bool,
    canceled: bool,
    attempts: u32,
    error: FileError,
}

/// What became of a file, without what was submitted.
#[derive(Debug)]
pub struct FileStatus<'a> {
    /// Place in its segment.
    pub place: u32,
    /// Number in its job.
    pub index: u64,
    /// Where it is.
    pub state: FileState,
    /// How often it was tried.
    pub attempts: u32,
    /// Of the last attempt that failed.
    pub error: Option<Cow<'a, FileError>>,
}

impl SegmentState<'_> {
    /// Number among the segments of its job.
    pub fn number(&self) -> i64 {
        self.number
    }

    /// Number of its first file.
    pub fn first(&self) -> u64 {
        self.base.unsigned_abs()
    }

    /// Number of the file after its last.
    pub fn end(&self) -> i64 {
        self.base + self.files
    }

    /// Sizes and checksums by place, where agents reported more than was submitted.
    ///
    /// # Errors
    /// What the database holds of them is damaged.
    pub fn receipts(&self) -> Result<BTreeMap<u32, (u64, Option<String>)>, StoreError> {
        manifest::decode_receipts(self.receipts.as_deref())
    }

    /// Its files in their order. Of directories only those whose listing failed.
    pub fn files(&self) -> impl Iterator<Item = FileStatus<'_>> {
        let places = 0..u32::try_from(self.files).unwrap_or(0);
        places.filter_map(|place| self.status(place))
    }

    fn status(&self, place: u32) -> Option<FileStatus<'_>> {
        let job = self.job;
        let index = self.base + i64::from(place);
        let exception = self.exceptions.get(&index);
        let failed = exception.is_some_and(|e| e.failed);
        if self.directories && !failed {
            return None;
        }
        let tried = exception.map_or(0, |e| e.attempts);
        let is_canceled = exception.is_some_and(|e| e.canceled);
        let (state, attempts) = match self.outcomes.get(place) {
            Outcome::Finished => (FileState::Finished, tried + 1),
            Outcome::Skipped => (FileState::Skipped, tried + 1),
            _ if is_canceled => (FileState::Canceled, tried),
            _ if failed => (FileState::Failed, tried),
            _ if index as u64 >= job.unused_from => (FileState::Unused, tried),
            _ if job.state == JobState::Canceled => (FileState::Canceled, tried),
            _ if job.state.is_final() => (FileState::Failed, tried),
            _ if self.active.contains(&place) => (FileState::Active, tried),
            _ => (FileState::Queued, tried),
        };
        let late = state == FileState::Failed && !failed;
        Some(FileStatus {
            place,
            index: index as u64,
            state,
            attempts,
            error: match late {
                true => Some(Cow::Owned(deadline_error())),
                false => exception.map(|e| Cow::Borrowed(&e.error)),
            },
        })
    }
}

impl Store {
    /// Files of a job in the order of their numbers, from the one that `cursor` names.
    pub async fn files(
        &self,
        job: &JobRecord,
        cursor: Option<&str>,
        limit: u32,
        state: Option<FileState>,
    ) -> Result<Page<FileView>, StoreError> {
        let mut from = match cursor {
            Some(cursor) => parse_cursor(cursor)?,
            None => 0,
        };
        let limit = limit.clamp(1, MAX_PAGE) as usize;
        let mut items = Vec::new();
        while let Some(segment) = self.segments(job, from, 1).await?.pop() {
            for file in self.views(&segment).await? {
                let wanted = state.is_none_or(|state| state == file.state);
                if (file.index as i64) < from || !wanted {
                    continue;
                }
                if items.len() == limit {
                    let next = Some(file.index.to_string());
                    return Ok(Page { items, next });
                }
                items.push(file);
            }
            from = segment.end();
        }
        Ok(Page { items, next: None })
    }

    /// Files of a job that were given up, as [`Store::files`]. Segments without such are not read,
    /// so that a few among millions are found as fast. Files that were open when a deadline passed
    /// are not among them.
    pub async fn failed_files(
        &self,
        job: &JobRecord,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<Page<FileView>, StoreError> {
        let mut from = match cursor {
            Some(cursor) => parse_cursor(cursor)?,
            None => 0,
        };
        let limit = limit.clamp(1, MAX_PAGE) as usize;
        let mut items = Vec::new();
        loop {
            // Not as a parameter: the index has these alone.
            let text = format!(
                "SELECT number FROM file_exception WHERE job = $1 AND number >= $2
                AND failed = {} ORDER BY number LIMIT 1",
                units::FAILED
            );
            let query = self.database.query(&text).bind(job.number).bind(from);
            let row = query.fetch_optional(self.database.reader()).await?;
            let Some(row) = row else {
                return Ok(Page { items, next: None });
            };
            let first = row.int(0)?;
            if items.len() == limit {
                let next = Some(first.to_string());
                return Ok(Page { items, next });
            }
            let Some(segment) = self.segments(job, first, 1).await?.pop() else {
                return Ok(Page { items, next: None });
            };
            from = segment.end();
            for file in self.views(&segment).await? {
                if (file.index as i64) < first || file.state != FileState::Failed {
                    continue;
                }
                if items.len() == limit {
                    let next = Some(file.index.to_string());
                    return Ok(Page { items, next });
                }
                items.push(file);
            }
        }
    }

    /// Segments of a job in their order, from the one with file number `from`, at most `limit`.
    pub async fn segments<'a>(
        &self,
        job: &'a JobRecord,
        from: i64,
        limit: u32,
    ) -> Result<Vec<SegmentState<'a>>, StoreError> {
        let text = "SELECT seq, base, files, directories, outcomes, receipts
            FROM segment WHERE job = $1 AND staged IS NULL AND seq >=
            COALESCE((SELECT seq FROM segment WHERE job = $1 AND base <= $2
            ORDER BY base DESC LIMIT 1), 0)
            AND base + files > $2 ORDER BY seq LIMIT $3";
        let query = self.database.query(text).bind(job.number).bind(from);
        let rows = query.bind(i64::from(limit));
        let rows = rows.fetch_all(self.database.reader()).await?;
        let segments = rows.iter().map(|row| {
            Ok(SegmentState {
                job,
                number: row.int(0)?,
                base: row.int(1)?,
                files: row.int(2)?,
                directories: row.flag(3)?,
                outcomes: Outcomes::from_bytes(row.bytes(4)?),
                receipts: row.maybe_bytes(5)?,
                exceptions: BTreeMap::new(),
                active: BTreeSet::new(),
            })
        });
        let mut segments = segments.collect::<Result<Vec<_>, StoreError>>()?;
        let (Some(first), Some(last)) = (segments.first(), segments.last()) else {
            return Ok(segments);
        };
        let (exceptions, active) = tokio::try_join!(
            self.exceptions(job, first.base..last.end()),
            self.active(job, first.number..=last.number),
        )?;
        for (number, exception) in exceptions {
            let place = segments.partition_point(|segment| segment.end() <= number);
            if let Some(segment) = segments.get_mut(place) {
                segment.exceptions.insert(number, exception);
            }
        }
        for unit in active {
            let place = segments.binary_search_by_key(&unit.segment, |segment| segment.number);
            if let Some(segment) = place.ok().and_then(|place| segments.get_mut(place)) {
                segment.active.extend(unit.open(&segment.outcomes));
            }
        }
        Ok(segments)
    }

    async fn exceptions(
        &self,
        job: &JobRecord,
        files: Range<i64>,
    ) -> Result<Vec<(i64, FileException)>, StoreError> {
        let text = "SELECT number, failed, attempts, error FROM file_exception
            WHERE job = $1 AND number >= $2 AND number < $3";
        let query = self.database.query(text).bind(job.number);
        let rows = query.bind(files.start).bind(files.end);
        let rows = rows.fetch_all(self.database.reader()).await?;
        let exception = |row: &AnyRow| {
            let exception = FileException {
                failed: row.int(1)? == units::FAILED,
                canceled: row.int(1)? == units::CANCELED,
                attempts: row.small(2)?,
                error: row.json(3)?,
            };
            Ok((row.int(0)?, exception))
        };
        rows.iter().map(exception).collect()
    }

    /// Units that agents have.
    async fn active(
        &self,
        job: &JobRecord,
        segments: RangeInclusive<i64>,
    ) -> Result<Vec<UnitRow>, StoreError> {
        if job.state.is_final() {
            return Ok(Vec::new());
        }
        let text = format!(
            "SELECT {UNIT} FROM unit
            WHERE agent IS NOT NULL AND job = $1 AND segment >= $2 AND segment <= $3"
        );
        let query = self.database.query(&text).bind(job.number);
        let rows = query.bind(*segments.start()).bind(*segments.end());
        let rows = rows.fetch_all(self.database.reader()).await?;
        rows.iter().map(UnitRow::read).collect()
    }

    /// Files of a segment as they were when it was read.
    async fn views(&self, segment: &SegmentState<'_>) -> Result<Vec<FileView>, StoreError> {
        if segment.directories && segment.exceptions.is_empty() {
            return Ok(Vec::new());
        }
        let mut files = self.submitted_files(segment.job, segment.number).await?;
        let mut receipts = segment.receipts()?;
        let views = segment.files().filter_map(|status| {
            let file = std::mem::take(files.get_mut(status.place as usize)?);
            let (bytes, checksum) = receipts.remove(&status.place).unzip();
            Some(FileView {
                index: status.index,
                source: file.source,
                destination: file.destination,
                bytes: bytes.or(file.bytes),
                state: status.state,
                attempts: status.attempts,
                error: status.error.map(Cow::into_owned),
                checksum: checksum.flatten().or(file.checksum),
                metadata: file.metadata,
            })
        });
        Ok(views.collect())
    }
}

/// Of files that were open when the deadline of their job passed.
fn deadline_error() -> FileError {
    FileError {
        code: "deadline".to_owned(),
        message: "the deadline of the job passed".to_owned(),
        who: WhoActs::User,
        may_pass: false,
    }
}

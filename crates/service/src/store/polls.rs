//! What an agent reports: its lease is renewed and its results are counted in one transaction.

use std::collections::HashMap;

use godwit_service_api::{
    agent::{
        AgentDescription, HANDED_BACK, Lease, POISON, PollRequest, Share, Stop, StopReason,
        UnitResult,
    },
    event::JobEventKind,
    job::JobState,
};

use super::{
    Store, StoreError,
    database::{Columns as _, Work, json},
    endpoint_of, found,
    leases::{self, micros},
    model::{AgentReport, Leftover, Polled},
    policy::LOSSES_TO_SPLIT,
    units::{self, Batch, Changes, End, UNIT, UnitRow},
};

/// Most temporary files that an agent is asked to remove at once.
const TOGETHER: usize = 20;

/// Of so many, as the agent may not reach all.
const LOOKED_AT: i64 = 200;

/// Agents are asked so often, each time a lease later than before.
const REMOVALS_MAX: i64 = 20;

impl Store {
    /// Takes in a poll. It may be repeated: a result counts once, by unit, epoch and number.
    pub async fn poll(&self, poll: &PollRequest) -> Result<Polled, StoreError> {
        let mut work = match poll.results.is_empty() {
            true => self.database.begin_without_sync().await?,
            false => self.database.begin().await?,
        };
        let mut changes = Changes::default();
        let agent = self.renew(&mut work, poll, &mut changes).await?;
        let mut polled = Polled {
            drain: agent.draining,
            ..Polled::default()
        };
        let mut taking = Taking {
            agent: &agent,
            above: self.divide_above,
            units: HashMap::new(),
            batch: Batch::default(),
            changes,
        };
        let results = taking.in_order(&mut work, &poll.results).await?;
        let mut ended: Vec<Lease> = Vec::new();
        for result in results {
            let taken = taking.take_result(&mut work, result).await?;
            polled.acknowledged.push((result.lease, result.sequence));
            if taken == Taken::Fenced {
                let (lease, why) = (result.lease, StopReason::Fenced);
                polled.stop.push(Stop { lease, why });
            }
            if result.last || taken == Taken::Fenced {
                ended.push(result.lease);
            }
        }
        let Taking {
            mut batch,
            mut changes,
            ..
        } = taking;
        batch.write(&mut work).await?;
        let known: Vec<Lease> = poll.units.iter().map(|unit| unit.lease).collect();
        let running = known.iter().filter(|lease| !ended.contains(lease));
        let running: Vec<Lease> = running.copied().collect();
        polled
            .stop
            .extend(stops(&mut work, &agent, &running).await?);
        let reported = poll.results.iter().map(|result| result.lease);
        let known: Vec<Lease> = known.into_iter().chain(reported).collect();
        polled.shares = leases::read_shares(&mut work, agent.number).await?;
        let back = take_back_unknown(&mut work, &polled.shares, &known, &mut changes).await?;
        polled.shares.retain(|(lease, _)| !back.contains(lease));
        polled.undelivered = leases::read_undelivered(&mut work, &polled.shares, &known).await?;
        if !agent.draining {
            polled.remove = leftovers(&mut work, poll, micros(self.lease)).await?;
        }
        polled.more_work = changes.have_more_work();
        polled.tally = changes.tally();
        polled.links = changes.take_links();
        polled.changed = changes.write(&mut work).await?;
        work.commit().await?;
        Ok(polled)
    }

    /// Agents that poll and take work.
    pub async fn agents_alive(&self) -> Result<u64, StoreError> {
        let text = "SELECT COUNT(*) FROM agent WHERE lease_until >= {now} AND draining = 0";
        let query = self.database.query(text);
        query.fetch_one(self.database.reader()).await?.count(0)
    }

    /// Whether each of them sends ranges to uploads of others.
    ///
    /// # Errors
    /// The database fails.
    pub async fn agents_join_uploads(&self) -> Result<bool, StoreError> {
        let text = "SELECT description FROM agent WHERE lease_until >= {now} AND draining = 0";
        let query = self.database.query(text);
        let rows = query.fetch_all(self.database.reader()).await?;
        for row in &rows {
            let description: AgentDescription = row.json(0)?;
            if !description.joins_uploads {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Renews the lease of an agent, or makes it known.
    async fn renew(
        &self,
        work: &mut Work,
        poll: &PollRequest,
        changes: &mut Changes,
    ) -> Result<PollingAgent, StoreError> {
        let text = "SELECT number, incarnation,
            CASE WHEN lease_until >= {now} THEN 1 ELSE 0 END, draining, sequence FROM agent
            WHERE name = $1 {lock}";
        let query = work.query(text).bind(poll.agent.clone());
        let incarnation = poll.incarnation.to_string();
        let description = json(&poll.description)?;
        let report = json(&AgentReport {
            free_slots: poll.free_slots,
            units: poll.units.clone(),
        })?;
        let lease = micros(self.lease);
        let Some(row) = query.fetch_optional(work.connection()).await? else {
            let text = "INSERT INTO agent
                (name, incarnation, description, sequence, lease_until, seen, report)
                VALUES ($1, $2, $3, $4, {now} + $5, {now}, $6) RETURNING number";
            let query = work.query(text).bind(poll.agent.clone()).bind(incarnation);
            let query = query
                .bind(description)
                .bind(poll.sequence as i64)
                .bind(lease)
                .bind(report);
            let number = query.fetch_one(work.connection()).await?.int(0)?;
            return Ok(PollingAgent {
                number,
                name: poll.agent.clone(),
                draining: false,
            });
        };
        let number = row.int(0)?;
        let same = row.text(1)? == incarnation;
        let (is_alive, last) = (row.flag(2)?, row.int(4)?);
        if same && is_alive && (poll.sequence as i64) < last {
            return Err(StoreError::Conflict("the agent has polled since"));
        }
        if !same {
            if is_alive {
                return Err(StoreError::AgentTaken);
            }
            let name = &poll.agent;
            while !leases::lose_units(work, number, name, changes)
                .await?
                .is_empty()
            {}
        }
        let draining = row.flag(3)?;
        let text = "UPDATE agent SET incarnation = $2, description = $3, sequence = $4,
            lease_until = {now} + $5, seen = {now}, report = $6 WHERE number = $1";
        let query = work
            .query(text)
            .bind(number)
            .bind(incarnation)
            .bind(description);
        let query = query.bind(poll.sequence as i64).bind(lease).bind(report);
        query.execute(work.connection()).await?;
        Ok(PollingAgent {
            number,
            name: poll.agent.clone(),
            draining,
        })
    }
}

struct PollingAgent {
    number: i64,
    name: String,
    draining: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    Counted,
    /// It was counted before, or its unit has ended.
    Repeated,
    /// The unit is not the agent's any more.
    Fenced,
}

/// Results of a poll as they are taken in.
struct Taking<'a> {
    agent: &'a PollingAgent,
    /// Files of more bytes may be divided.
    above: u64,
    /// Units that were read when they were locked. Those of picked files are read again: what
    /// becomes of one may change others of the same file.
    units: HashMap<i64, UnitRow>,
    batch: Batch,
    changes: Changes,
}

impl Taking<'_> {
    /// Locks the units of results, by number. Their results come one segment after the other, so
    /// that polls lock segments in the same order.
    async fn in_order<'a>(
        &mut self,
        work: &mut Work,
        results: &'a [UnitResult],
    ) -> Result<Vec<&'a UnitResult>, StoreError> {
        let mut segments = HashMap::new();
        if results.len() > 1 {
            let ids: Vec<i64> = results.iter().map(|result| result.lease.unit).collect();
            let text = format!("SELECT {UNIT} FROM unit WHERE id IN {{list}} ORDER BY id {{lock}}");
            let query = work.query(&text).bind(json(&ids)?);
            for row in query.fetch_all(work.connection()).await? {
                let unit = UnitRow::read(&row)?;
                segments.insert(unit.id, (unit.job, unit.segment));
                if !unit.has_picks() {
                    self.units.insert(unit.id, unit);
                }
            }
        }
        let mut sorted: Vec<&UnitResult> = results.iter().collect();
        sorted.sort_by_key(|result| {
            let segment = segments.get(&result.lease.unit);
            (segment, result.lease, result.sequence)
        });
        Ok(sorted)
    }

    /// As it is now.
    async fn unit(&mut self, work: &mut Work, id: i64) -> Result<Option<UnitRow>, StoreError> {
        if self.batch.has_ended(id) {
            return Ok(None);
        }
        if let Some(unit) = self.units.remove(&id) {
            return Ok(Some(unit));
        }
        let text = format!("SELECT {UNIT} FROM unit WHERE id = $1 {{lock}}");
        let query = work.query(&text).bind(id);
        let row = query.fetch_optional(work.connection()).await?;
        row.as_ref().map(UnitRow::read).transpose()
    }

    async fn take_result(
        &mut self,
        work: &mut Work,
        result: &UnitResult,
    ) -> Result<Taken, StoreError> {
        let Some(unit) = self.unit(work, result.lease.unit).await? else {
            return Ok(Taken::Repeated);
        };
        let (agent, batch, changes) = (self.agent, &mut self.batch, &mut self.changes);
        if unit.agent != Some(agent.number) || unit.epoch != result.lease.epoch {
            // What the agent itself gave back with its last result may be told again.
            let given_back = unit.agent.is_none() && unit.epoch == result.lease.epoch;
            return Ok(match given_back && result.sequence < unit.results {
                true => Taken::Repeated,
                false => Taken::Fenced,
            });
        }
        match result.sequence.cmp(&unit.results) {
            std::cmp::Ordering::Less => return Ok(Taken::Repeated),
            // Results come in order, so the one between was acknowledged and is lost: the database
            // was restored, or a replica without the last commits took its place.
            std::cmp::Ordering::Greater => {
                batch.write(work).await?;
                units::take_back(work, &unit, changes).await?;
                return Ok(Taken::Fenced);
            }
            std::cmp::Ordering::Equal => {}
        }
        let error = result.error.as_ref();
        if result.last && error.is_some_and(|error| error.code == POISON) {
            batch.write(work).await?;
            units::lose(work, &unit, &agent.name, LOSSES_TO_SPLIT, changes).await?;
            return Ok(Taken::Counted);
        }
        let mut placed = Ok(());
        if unit.directories && !result.found.is_empty() {
            let directory = units::directory(work, &unit).await?;
            match found::placed(&directory, &result.found) {
                Ok(files) => units::stage(work, &unit, &files).await?,
                Err(error) => placed = Err(error),
            }
        }
        let error = placed.as_ref().err().or(error);
        let end = (result.last || placed.is_err()).then_some(End {
            error: error.filter(|error| error.code != HANDED_BACK),
            listed: error.is_none(),
        });
        for undivided in &result.undivided {
            let event = JobEventKind::Undivided {
                index: undivided.index,
                reason: undivided.reason.clone(),
            };
            changes.event(unit.job, event);
        }
        let by = (agent.name.as_str(), self.above);
        units::take_results(work, &unit, by, &result.files, end, batch, changes).await?;
        Ok(Taken::Counted)
    }
}

/// Units of jobs that may not run, which the agent holds and does not know of: their grant was on
/// its way when the job was canceled or paused. They go back, as no agent will report them. An
/// agent that learns of one all the same is told to stop it.
async fn take_back_unknown(
    work: &mut Work,
    held: &[(Lease, Share)],
    known: &[Lease],
    changes: &mut Changes,
) -> Result<Vec<Lease>, StoreError> {
    let unknown = held.iter().map(|(lease, _)| lease);
    let unknown = unknown.filter(|lease| !known.contains(lease));
    let unknown: Vec<i64> = unknown.map(|lease| lease.unit).collect();
    if unknown.is_empty() {
        return Ok(Vec::new());
    }
    let text = format!(
        "SELECT {UNIT} FROM unit WHERE id IN {{list}} AND job IN
        (SELECT number FROM job WHERE state NOT IN ('queued', 'active')) ORDER BY id {{lock}}"
    );
    let query = work.query(&text).bind(json(&unknown)?);
    let rows = query.fetch_all(work.connection()).await?;
    let mut back = Vec::with_capacity(rows.len());
    for row in &rows {
        let unit = UnitRow::read(row)?;
        units::take_back(work, &unit, changes).await?;
        back.push(Lease {
            unit: unit.id,
            epoch: unit.epoch,
        });
    }
    Ok(back)
}

/// Units that the agent works on and must not.
async fn stops(
    work: &mut Work,
    agent: &PollingAgent,
    running: &[Lease],
) -> Result<Vec<Stop>, StoreError> {
    if running.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<i64> = running.iter().map(|lease| lease.unit).collect();
    let text = "SELECT unit.id, unit.epoch, job.state FROM unit JOIN job ON job.number = unit.job
        WHERE unit.agent = $2 AND unit.id IN {list}";
    let query = work.query(text).bind(json(&ids)?).bind(agent.number);
    let rows = query.fetch_all(work.connection()).await?;
    let mut held = Vec::with_capacity(rows.len());
    for row in &rows {
        let (unit, epoch) = (row.int(0)?, row.int(1)?);
        held.push((Lease { unit, epoch }, row.name::<JobState>(2)?));
    }
    let why = |lease: &Lease| match held.iter().find(|(held, _)| held == lease) {
        None => Some(StopReason::Fenced),
        Some((_, JobState::Paused)) => Some(StopReason::Paused),
        Some((_, state)) => state.is_final().then_some(StopReason::Canceled),
    };
    let stops = running.iter().filter_map(|lease| {
        let why = why(lease)?;
        Some(Stop { lease: *lease, why })
    });
    Ok(stops.collect())
}

/// Forgets what an agent has removed, and says what it is to remove a lease (microseconds) later.
async fn leftovers(
    work: &mut Work,
    poll: &PollRequest,
    lease: i64,
) -> Result<Vec<Leftover>, StoreError> {
    if !poll.removed.is_empty() {
        let query = work.query("DELETE FROM leftover WHERE attempts > 0 AND id IN {list}");
        let query = query.bind(json(&poll.removed)?);
        query.execute(work.connection()).await?;
    }
    // After a lease all agents that wrote it have stopped, whatever became of them.
    let text = "SELECT id, owner, url, upload FROM leftover WHERE since < {now} - $1
        AND (upload IS NULL OR $3 = 1) ORDER BY since LIMIT $2";
    let query = work.query(text).bind(lease).bind(LOOKED_AT);
    let query = query.bind(i64::from(poll.description.joins_uploads));
    let rows = query.fetch_all(work.connection()).await?;
    let mut found = Vec::new();
    for row in &rows {
        let url = row.text(2)?;
        let endpoint = endpoint_of(&url).unwrap_or_default();
        let patterns = &poll.description.endpoints;
        if found.len() < TOGETHER
            && patterns
                .iter()
                .any(|pattern| godwit_scheduler::matches(pattern, &endpoint))
        {
            found.push(Leftover {
                id: row.int(0)?,
                owner: row.text(1)?,
                url,
                upload: row.maybe_text(3)?,
            });
        }
    }
    let ids: Vec<i64> = found.iter().map(|leftover| leftover.id).collect();
    if !ids.is_empty() {
        // The owner may have to store valid keys first, which takes hours.
        let text = "UPDATE leftover SET since = {now} + attempts * $2, attempts = attempts + 1
            WHERE id IN {list}";
        let query = work.query(text).bind(json(&ids)?).bind(lease);
        query.execute(work.connection()).await?;
        let query = work.query("DELETE FROM leftover WHERE attempts > $1");
        query.bind(REMOVALS_MAX).execute(work.connection()).await?;
    }
    Ok(found)
}

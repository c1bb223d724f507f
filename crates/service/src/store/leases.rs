//! Who leads, who gets what waits, and what becomes of leases that end without their agent.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use godwit_service_api::{
    agent::{AgentDescription, GrantOptions, Lease, Share, UnitFile, Work as AgentWork},
    event::JobEventKind,
    job::{JobOptions, JobState},
};
use uuid::Uuid;

use super::{
    Store, StoreError,
    database::{Columns as _, Work, json},
    manifest::{Manifest, Outcomes},
    model::{GrantOrder, GrantedUnit, JobNow, Leadership, LostUnit, QueueKey},
    units::{self, Changes, UNIT, UNIT_COLUMNS, UnitRow, divided},
};

/// An agent by number, with the sessions and channels of the unit that it gets.
type Taker = (i64, u32, u32);

/// The same, with the most files of the unit.
type Order = (Taker, u32);

/// Units that one transaction takes back.
const MAX_LOST: i64 = 500;

impl Store {
    /// Takes or renews the leadership for `term`; `None`: another node leads. `node` is unique for
    /// each process that runs.
    ///
    /// A leader renews every few seconds. A longer gap than a third of an agent's lease means that
    /// the database did not answer, perhaps to no one: then no lease expires for its whole length.
    pub async fn lead(&self, node: &str, term: Duration) -> Result<Option<Leadership>, StoreError> {
        let text = "INSERT INTO leader (id, node, epoch, until, renewed, steady_since)
            VALUES (1, $1, 1, {now} + $2, {now}, {now})
            ON CONFLICT (id) DO UPDATE SET node = $1, until = {now} + $2, renewed = {now},
            epoch = CASE WHEN leader.node = $1 THEN leader.epoch ELSE leader.epoch + 1 END,
            steady_since = CASE WHEN {now} - leader.renewed BETWEEN 0 AND $3
                THEN leader.steady_since ELSE {now} END
            WHERE leader.node = $1 OR leader.until < {now}
            RETURNING epoch";
        let query = self.database.query(text).bind(node.to_owned());
        let query = query.bind(micros(term)).bind(micros(self.lease / 3));
        let row = query.fetch_optional(self.database.writer()).await?;
        row.map(|row| Ok(Leadership { epoch: row.int(0)? }))
            .transpose()
    }

    /// Gives the leadership up, so that another takes it at once.
    pub async fn step_down(&self, leader: Leadership) -> Result<(), StoreError> {
        let text = "UPDATE leader SET until = 0 WHERE epoch = $1";
        let query = self.database.query(text).bind(leader.epoch);
        query.execute(self.database.writer()).await?;
        Ok(())
    }

    /// What each agent holds.
    pub async fn held_by_all(&self) -> Result<HashSet<(String, Lease)>, StoreError> {
        let text = "SELECT agent.name, unit.id, unit.epoch
            FROM unit JOIN agent ON agent.number = unit.agent WHERE unit.agent IS NOT NULL";
        let query = self.database.query(text);
        let rows = query.fetch_all(self.database.reader()).await?;
        rows.iter()
            .map(|row| {
                let lease = Lease {
                    unit: row.int(1)?,
                    epoch: row.int(2)?,
                };
                Ok((row.text(0)?, lease))
            })
            .collect()
    }

    /// Agents that hold units of a job.
    pub async fn agents_of(&self, job: Uuid) -> Result<Vec<String>, StoreError> {
        let text = "SELECT name FROM agent WHERE number IN (SELECT agent FROM unit
            WHERE job = (SELECT number FROM job WHERE id = $1) AND agent IS NOT NULL)";
        let query = self.database.query(text).bind(job.to_string());
        let rows = query.fetch_all(self.database.reader()).await?;
        rows.iter().map(|row| row.text(0)).collect()
    }

    /// Gives units to agents. An order is passed over where its queue has nothing that may be
    /// taken, or the agent is not alive, drains or is another incarnation.
    pub async fn grant(
        &self,
        leader: Leadership,
        orders: &[GrantOrder],
    ) -> Result<Vec<GrantedUnit>, StoreError> {
        let mut work = self.database.begin().await?;
        check_leader(&mut work, leader).await?;
        let mut agents: BTreeMap<&str, Option<(i64, bool)>> = BTreeMap::new();
        let mut queues: BTreeMap<QueueKey, Vec<Order>> = BTreeMap::new();
        for order in orders {
            let agent = match agents.get(order.agent.as_str()) {
                Some(agent) => *agent,
                None => {
                    let agent = agent_that_takes_work(&mut work, order).await?;
                    agents.insert(&order.agent, agent);
                    agent
                }
            };
            if let Some((number, joins_uploads)) = agent {
                if !joins_uploads && has_shared_uploads(&mut work, order.queue.job).await? {
                    continue;
                }
                let Share {
                    concurrency,
                    parallelism,
                } = order.share;
                let taker = (number, concurrency, parallelism);
                let orders = queues.entry(order.queue).or_default();
                orders.push((taker, order.files));
            }
        }
        let mut taken: BTreeMap<Taker, Vec<i64>> = BTreeMap::new();
        for (queue, orders) in &queues {
            let text = format!(
                "SELECT {UNIT} FROM unit WHERE job = $1 AND link = $2 AND agent IS NULL
                AND not_before <= {{now}}
                AND EXISTS (SELECT 1 FROM job WHERE number = $1 AND state IN ('queued', 'active'))
                AND NOT EXISTS (SELECT 1 FROM job_after WHERE job = $1)
                ORDER BY id LIMIT $3 {{skip}}"
            );
            let query = work.query(&text).bind(queue.job).bind(queue.link);
            let query = query.bind(orders.len() as i64);
            let rows = query.fetch_all(work.connection()).await?;
            let mut ready = rows.iter().map(UnitRow::read);
            let mut rest: Option<UnitRow> = None;
            for (taker, files) in orders {
                let Some(mut unit) = rest.take().map(Ok).or_else(|| ready.next()).transpose()?
                else {
                    break;
                };
                let id = units::take_first(&mut work, &mut unit, *files).await?;
                taken.entry(*taker).or_default().push(id);
                rest = (id != unit.id).then_some(unit);
            }
        }
        let mut ids: Vec<i64> = Vec::new();
        for ((agent, concurrency, parallelism), units) in &taken {
            let text = "UPDATE unit SET agent = $2, epoch = epoch + 1, results = 0,
                concurrency = $3, parallelism = $4 WHERE id IN {list}";
            let query = work.query(text).bind(json(units)?).bind(*agent);
            let query = query.bind(i64::from(*concurrency));
            let query = query.bind(i64::from(*parallelism));
            query.execute(work.connection()).await?;
            ids.extend(units);
        }
        let granted = read_granted(&mut work, &json(&ids)?, "").await?;
        start_jobs(&mut work, &granted).await?;
        work.commit().await?;
        Ok(granted)
    }

    /// Changes what running units may use. Units are locked by number, as polls do it.
    pub async fn set_shares(
        &self,
        leader: Leadership,
        shares: &BTreeMap<Lease, Share>,
    ) -> Result<(), StoreError> {
        let mut work = self.database.begin().await?;
        check_leader(&mut work, leader).await?;
        for (lease, share) in shares {
            let text = "UPDATE unit SET concurrency = $3, parallelism = $4
                WHERE id = $1 AND epoch = $2";
            let query = work.query(text).bind(lease.unit).bind(lease.epoch);
            let query = query.bind(i64::from(share.concurrency));
            let query = query.bind(i64::from(share.parallelism));
            query.execute(work.connection()).await?;
        }
        work.commit().await
    }

    /// What the leader says of jobs.
    pub async fn jobs_now(&self) -> Result<HashMap<Uuid, JobNow>, StoreError> {
        let query = self
            .database
            .query("SELECT id, why, bytes, goodput, pace FROM job_now");
        let rows = query.fetch_all(self.database.reader()).await?;
        rows.iter()
            .map(|row| {
                let now = JobNow {
                    why: row.json(1)?,
                    bytes: row.count(2)?,
                    goodput: row.real(3)?,
                    pace: row.json(4)?,
                };
                Ok((row.uuid(0)?, now))
            })
            .collect()
    }

    /// Sets what the leader says of jobs, of some hundreds at most; `None`: no more.
    pub async fn set_jobs_now(
        &self,
        leader: Leadership,
        jobs: &[(Uuid, Option<JobNow>)],
    ) -> Result<(), StoreError> {
        // What a crash of the machine takes back, the next leader says again.
        let mut work = self.database.begin_without_sync().await?;
        check_leader(&mut work, leader).await?;
        let gone = jobs.iter().filter(|(_, now)| now.is_none());
        let gone: Vec<String> = gone.map(|(id, _)| id.to_string()).collect();
        if !gone.is_empty() {
            let text = "DELETE FROM job_now WHERE id IN (SELECT text FROM {texts} AS gone)";
            let query = work.query(text).bind(json(&gone)?);
            query.execute(work.connection()).await?;
        }
        let said = jobs
            .iter()
            .filter_map(|(id, now)| Some((id, now.as_ref()?)));
        let said: Vec<_> = said.collect();
        if said.is_empty() {
            return work.commit().await;
        }
        let rows = (0..said.len()).map(|row| {
            let [a, b, c, d, e] = [1, 2, 3, 4, 5].map(|column| 5 * row + column);
            format!("(${a}, ${b}, ${c}, ${d}, ${e})")
        });
        let rows: Vec<String> = rows.collect();
        let text = format!(
            "INSERT INTO job_now (id, why, bytes, goodput, pace) VALUES {}
            ON CONFLICT (id) DO UPDATE
            SET why = excluded.why, bytes = excluded.bytes, goodput = excluded.goodput,
            pace = excluded.pace",
            rows.join(", ")
        );
        let mut query = work.query(&text);
        for (id, now) in said {
            query = query.bind(id.to_string()).bind(json(&now.why)?);
            query = query.bind(now.bytes as i64).bind(now.goodput);
            query = query.bind(json(&now.pace)?);
        }
        query.execute(work.connection()).await?;
        work.commit().await
    }

    /// Units that an agent holds, but for those that it knows of.
    pub async fn held(
        &self,
        agent: &str,
        incarnation: Uuid,
        known: &[Lease],
    ) -> Result<Vec<GrantedUnit>, StoreError> {
        let mut work = self.database.begin().await?;
        let text = "SELECT number FROM agent WHERE name = $1 AND incarnation = $2";
        let query = work.query(text).bind(agent.to_owned());
        let query = query.bind(incarnation.to_string());
        let Some(row) = query.fetch_optional(work.connection()).await? else {
            return Ok(Vec::new());
        };
        let held = read_shares(&mut work, row.int(0)?).await?;
        read_undelivered(&mut work, &held, known).await
    }

    /// Takes back the units of agents whose lease has ended; call until nothing comes back.
    pub async fn expire(&self, leader: Leadership) -> Result<Vec<LostUnit>, StoreError> {
        let mut work = self.database.begin().await?;
        check_leader(&mut work, leader).await?;
        let text = "SELECT 1 FROM leader WHERE {now} - steady_since < $1";
        let query = work.query(text).bind(micros(self.lease));
        if query.fetch_optional(work.connection()).await?.is_some() {
            return Ok(Vec::new());
        }
        let text = "SELECT number, name FROM agent WHERE lease_until < {now}
            AND EXISTS (SELECT 1 FROM unit WHERE unit.agent = agent.number)
            ORDER BY number LIMIT 1 {lock}";
        let query = work.query(text);
        let Some(row) = query.fetch_optional(work.connection()).await? else {
            return Ok(Vec::new());
        };
        let (number, name) = (row.int(0)?, row.text(1)?);
        let mut changes = Changes::default();
        let lost = lose_units(&mut work, number, &name, &mut changes).await?;
        changes.write(&mut work).await?;
        work.commit().await?;
        Ok(lost)
    }
}

/// Takes back units of an agent, as many as one transaction should.
pub(super) async fn lose_units(
    work: &mut Work,
    agent: i64,
    name: &str,
    changes: &mut Changes,
) -> Result<Vec<LostUnit>, StoreError> {
    let text = format!("SELECT {UNIT} FROM unit WHERE agent = $1 ORDER BY id LIMIT $2 {{lock}}");
    let query = work.query(&text).bind(agent).bind(MAX_LOST);
    let rows = query.fetch_all(work.connection()).await?;
    let units = rows.iter().map(UnitRow::read);
    let mut units = units.collect::<Result<Vec<UnitRow>, StoreError>>()?;
    units.sort_by_key(|unit| (unit.job, unit.segment));
    let mut lost = Vec::with_capacity(units.len());
    for unit in units {
        units::lose(work, &unit, name, unit.losses + 1, changes).await?;
        lost.push(LostUnit {
            lease: Lease {
                unit: unit.id,
                epoch: unit.epoch,
            },
            queue: QueueKey {
                job: unit.job,
                link: unit.link,
            },
            agent: name.to_owned(),
        });
    }
    Ok(lost)
}

/// Refuses what a former leader writes.
pub(super) async fn check_leader(work: &mut Work, leader: Leadership) -> Result<(), StoreError> {
    let query = work.query("SELECT epoch FROM leader WHERE id = 1 AND epoch = $1 {lock}");
    let query = query.bind(leader.epoch);
    match query.fetch_optional(work.connection()).await? {
        Some(_) => Ok(()),
        None => Err(StoreError::NotLeader),
    }
}

/// The number of the agent of an order, where it takes work: one that ends has no slots. And
/// whether it sends ranges to uploads of others.
async fn agent_that_takes_work(
    work: &mut Work,
    order: &GrantOrder,
) -> Result<Option<(i64, bool)>, StoreError> {
    let text = "SELECT number, description FROM agent WHERE name = $1 AND incarnation = $2
        AND draining = 0 AND lease_until >= {now}";
    let query = work.query(text).bind(order.agent.clone());
    let query = query.bind(order.incarnation.to_string());
    let Some(row) = query.fetch_optional(work.connection()).await? else {
        return Ok(None);
    };
    let description: AgentDescription = row.json(1)?;
    let agent = (row.int(0)?, description.joins_uploads);
    Ok((description.slots > 0).then_some(agent))
}

/// Whether several agents send an object of a job. Others, of an older version, would fail at it.
async fn has_shared_uploads(work: &mut Work, job: i64) -> Result<bool, StoreError> {
    let text = "SELECT 1 FROM divided_file WHERE job = $1 AND upload IS NOT NULL LIMIT 1";
    let query = work.query(text).bind(job);
    let row = query.fetch_optional(work.connection()).await?;
    Ok(row.is_some())
}

/// Jobs become active; each grant is an event.
async fn start_jobs(work: &mut Work, granted: &[GrantedUnit]) -> Result<(), StoreError> {
    let mut jobs: BTreeMap<i64, Vec<JobEventKind>> = BTreeMap::new();
    for unit in granted {
        let files = match &unit.work {
            AgentWork::Copy(files) => files.len() as u64,
            AgentWork::List { .. } => 0,
        };
        let started = JobEventKind::Started {
            agent: unit.agent.clone(),
            files,
            bytes: unit.bytes,
        };
        jobs.entry(unit.queue.job).or_default().push(started);
    }
    for (job, mut events) in jobs {
        let text = "UPDATE job SET state = 'active', started = COALESCE(started, {now})
            WHERE number = $1 AND state = 'queued'";
        let query = work.query(text).bind(job);
        if query.execute(work.connection()).await?.rows_affected() == 1 {
            let state = JobState::Active;
            events.insert(
                0,
                JobEventKind::State {
                    state,
                    reason: None,
                },
            );
        }
        units::add_events(work, job, &events).await?;
    }
    Ok(())
}

/// What units of an agent may use.
pub(super) async fn read_shares(
    work: &mut Work,
    agent: i64,
) -> Result<Vec<(Lease, Share)>, StoreError> {
    let text = "SELECT id, epoch, concurrency, parallelism FROM unit WHERE agent = $1";
    let query = work.query(text).bind(agent);
    let rows = query.fetch_all(work.connection()).await?;
    rows.iter()
        .map(|row| {
            let lease = Lease {
                unit: row.int(0)?,
                epoch: row.int(1)?,
            };
            let share = Share {
                concurrency: row.small(2)?,
                parallelism: row.small(3)?,
            };
            Ok((lease, share))
        })
        .collect()
}

/// Units that an agent holds and does not name.
pub(super) async fn read_undelivered(
    work: &mut Work,
    held: &[(Lease, Share)],
    known: &[Lease],
) -> Result<Vec<GrantedUnit>, StoreError> {
    let unknown = held.iter().map(|(lease, _)| lease);
    let unknown = unknown.filter(|lease| !known.contains(lease));
    let unknown: Vec<i64> = unknown.map(|lease| lease.unit).collect();
    let may_run = "AND job.state IN ('queued', 'active')";
    read_granted(work, &json(&unknown)?, may_run).await
}

/// Reads units with their files: those of a JSON array that fit.
async fn read_granted(
    work: &mut Work,
    list: &str,
    fit: &str,
) -> Result<Vec<GrantedUnit>, StoreError> {
    if list == "[]" {
        return Ok(Vec::new());
    }
    // A segment of large files is many units: it is read once.
    let text = "SELECT job, seq, base, manifest, outcomes FROM segment
        WHERE (job, seq) IN (SELECT unit.job, unit.segment FROM unit WHERE unit.id IN {list})";
    let query = work.query(text).bind(list.to_owned());
    let rows = query.fetch_all(work.connection()).await?;
    let mut segments = HashMap::with_capacity(rows.len());
    for row in &rows {
        let (manifest, outcomes) = (Manifest::open(&row.bytes(3)?)?, row.bytes(4)?);
        let parts = (row.count(2)?, manifest, Outcomes::from_bytes(outcomes));
        segments.insert((row.int(0)?, row.int(1)?), parts);
    }
    let text = format!(
        "SELECT {UNIT}, agent.name, job.id, job.owner, job.options,
        divided.temporary, divided.size, divided.changed, divided.upload, job.trace
        FROM unit JOIN agent ON agent.number = unit.agent
        JOIN job ON job.number = unit.job
        JOIN segment ON segment.job = unit.job AND segment.seq = unit.segment
        LEFT JOIN divided_file AS divided
        ON divided.job = unit.job AND divided.number = segment.base + unit.first
        WHERE unit.id IN {{list}} {fit} ORDER BY unit.id"
    );
    let query = work.query(&text).bind(list.to_owned());
    let rows = query.fetch_all(work.connection()).await?;
    rows.iter()
        .map(|row| {
            let unit = UnitRow::read(row)?;
            let column = |number: usize| UNIT_COLUMNS + number;
            let options: JobOptions = row.json(column(3))?;
            let segment = segments.get(&(unit.job, unit.segment));
            let (base, manifest, outcomes) =
                segment.ok_or_else(|| StoreError::corrupt("a unit is in no segment"))?;
            let part = divided::part_of(&unit, row, column(4))?;
            let open = unit.open(outcomes);
            let picked = open.iter().map(|place| {
                let index = base + u64::from(*place);
                let (file, part) = (manifest.file(*place)?, part.clone());
                Ok(UnitFile { index, file, part })
            });
            let mut picked = picked.collect::<Result<Vec<UnitFile>, StoreError>>()?;
            let what = match (unit.directories, picked.pop()) {
                (true, Some(UnitFile { file, .. })) => AgentWork::List {
                    source: file.source,
                    destination: file.destination,
                },
                (_, last) => {
                    picked.extend(last);
                    AgentWork::Copy(picked)
                }
            };
            Ok(GrantedUnit {
                agent: row.text(column(0))?,
                lease: Lease {
                    unit: unit.id,
                    epoch: unit.epoch,
                },
                queue: QueueKey {
                    job: unit.job,
                    link: unit.link,
                },
                job: row.uuid(column(1))?,
                owner: row.text(column(2))?,
                work: what,
                bytes: unit.bytes,
                options: GrantOptions {
                    verify: options.verify,
                    overwrite: options.overwrite,
                    preserve_times: options.preserve_times,
                    class: options.class,
                    divide_above: None,
                    divides_uploads: false,
                },
                again: unit.is_again(),
                results: unit.results,
                share: unit.share,
                trace: row.maybe_text(column(8))?,
            })
        })
        .collect()
}

/// Microseconds of a length of time.
pub(super) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

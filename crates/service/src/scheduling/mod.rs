//! The leader: one node at a time, by a row of the database, hands units to agents.
//!
//! # Map
//! - [`run`]: becomes leader, or waits to
//! - [`Board`]: what leader, gateway and API of one process tell each other
//! - `lifetimes`: credentials that end
//! - `books`: the scheduler's leases and queues beside those of the database
//! - `waiting`: what waits, and which jobs are to be read; `holders`: agents and their leases;
//!   `said`: why jobs wait, and how fast they are
//! - `history`: how fast jobs were; `links`: how pairs of endpoints do
//! - `convert`: values of the scheduler
//!
//! The leader looks when something wakes it, and every second whatever happens: what changed of
//! units and queues is read from the database and told to [`godwit_scheduler`], which says what
//! goes where. What takes long is done in slices, a little with each look. A leader that was
//! replaced writes nothing, since each write names its epoch; the next begins from what the
//! database says.

mod board;
mod books;
mod convert;
mod history;
mod holders;
mod lifetimes;
mod links;
mod said;
mod waiting;

use std::time::{Duration, Instant};

pub use self::board::Board;
use self::books::Books;
pub(crate) use self::{board::POLLS_MAX, history::Sample};
use crate::store::{
    Store, StoreError,
    model::{Leadership, Retention},
};

/// The leadership lasts so long without being renewed.
const TERM: Duration = Duration::from_secs(10);

/// Between two renewals.
const RENEW: Duration = Duration::from_secs(2);

/// Between two looks where nothing wakes the leader.
const LOOK: Duration = Duration::from_secs(1);

/// Least time between two looks.
const LOOK_GAP: Duration = Duration::from_millis(20);

/// Between two looks for agents whose lease has ended.
const EXPIRE: Duration = Duration::from_secs(2);

/// Between two samples of how fast jobs are, and two writings of which files ended where.
const SAMPLE: Duration = Duration::from_secs(5);

/// Between two runs of the maintenance.
const MAINTAIN: Duration = Duration::from_secs(30);

/// Leads whenever it may, until `stop`. `node` is unique among the processes of the service.
pub async fn run(store: Store, board: &Board, node: &str, stop: impl Future<Output = ()>) {
    tokio::pin!(stop);
    let mut term: Option<Term> = None;
    let mut sampled = Instant::now();
    let mut browsed = Instant::now();
    loop {
        let began = Instant::now();
        if browsed.elapsed() >= LOOK {
            browsed = began;
            match store.waiting_browses().await {
                Ok(waiting) => board.set_browses(waiting),
                Err(error) => tracing::warn!(%error, "users wait for directories"),
            }
        }
        if sampled.elapsed() >= SAMPLE {
            sampled = began;
            board.take_samples();
            count_links(&store, board).await;
        }
        let pause = match look(&store, board, node, &mut term).await {
            Ok(pause) => pause,
            Err(StoreError::NotLeader) => {
                tracing::warn!("another node leads");
                term = None;
                LOOK
            }
            Err(error) => {
                tracing::warn!(%error, "the leader could not look");
                LOOK
            }
        };
        board.set_leads(term.is_some());
        let took = began.elapsed();
        tokio::select! {
            () = &mut stop => break,
            () = tokio::time::sleep(pause) => {}
            // A third of the time at least is left to the polls.
            () = board.leader_woken() => tokio::time::sleep(LOOK_GAP.max(took / 2)).await,
        }
    }
    if let Some(term) = term
        && let Err(error) = store.step_down(term.leadership).await
    {
        tracing::warn!(%error, "the leadership ends by itself");
    }
}

/// Files that ended, by pair of endpoints: a statistic, of which a crash may lose some seconds.
async fn count_links(store: &Store, board: &Board) {
    let links = board.take_links();
    if links.is_empty() {
        return;
    }
    if let Err(error) = store.count_links(&links).await {
        tracing::warn!(%error, "files that ended are counted later");
        board.count_links(links);
    }
}

struct Term {
    leadership: Leadership,
    books: Books,
    renewed: Instant,
    expired: Instant,
    maintained: Instant,
}

async fn look(
    store: &Store,
    board: &Board,
    node: &str,
    term: &mut Option<Term>,
) -> Result<Duration, StoreError> {
    if term
        .as_ref()
        .is_none_or(|term| term.renewed.elapsed() >= RENEW)
    {
        let asked = Instant::now();
        let Some(leadership) = store.lead(node, TERM).await? else {
            *term = None;
            // What the leader says and does is told here, too.
            board.set_jobs(store.jobs_now().await?);
            board.held_are(store.held_by_all().await?);
            return Ok(LOOK);
        };
        match term {
            Some(term) if term.leadership == leadership => term.renewed = asked,
            _ => {
                tracing::info!(epoch = leadership.epoch, "this node leads");
                *term = Some(Term {
                    leadership,
                    books: Books::open(store, board).await?,
                    renewed: asked,
                    expired: asked,
                    maintained: asked,
                });
                // The last leader may have granted more.
                board.held_are(store.held_by_all().await?);
            }
        }
    }
    let Some(term) = term else {
        return Ok(LOOK);
    };
    if term.expired.elapsed() >= EXPIRE {
        term.expired = Instant::now();
        loop {
            let lost = store.expire(term.leadership).await?;
            if lost.is_empty() {
                break;
            }
            board.work_came();
            board.metrics().lost(lost.len() as u64);
            term.books.lost(&lost);
            for unit in lost {
                tracing::warn!(agent = unit.agent, unit = unit.lease.unit, "lease lost");
            }
        }
    }
    let began = Instant::now();
    let rest = term.books.look(store, board, term.leadership).await?;
    let took = began.elapsed();
    board.metrics().stepped(took);
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    tracing::debug!(micros, "the leader looked");
    if term.maintained.elapsed() >= MAINTAIN {
        term.maintained = Instant::now();
        store
            .maintain(term.leadership, Retention::default())
            .await?;
    }
    Ok(rest.min(LOOK))
}

//! Threads that carry transfers, each with connections of its own: TLS and files of one do not wait
//! for those of another, nor for the session.

use std::{sync::Arc, thread};

use godwit_engine::data::MoverClock;
use tokio::sync::mpsc;

use super::{
    get::{self, GetJob},
    parts::{self, PartsJob},
    put::{self, PutJob},
    region::Failure,
    server::HttpServer,
    wire::Wire,
};
use crate::{
    error::{Error, Result},
    report::progress::RequestTotals,
};

/// What a lane is to do.
#[derive(Clone)]
pub(super) enum Work {
    Get(Arc<GetJob>),
    Put(Arc<PutJob>),
    Parts(Arc<PartsJob>),
}

impl Work {
    fn totals(&self) -> &Arc<RequestTotals> {
        match self {
            Self::Get(job) => &job.region.totals,
            Self::Put(job) => job.totals(),
            Self::Parts(job) => &job.region.totals,
        }
    }
}

/// The lanes of a session. They stay for its next transfer.
#[derive(Default)]
pub(crate) struct Lanes(Vec<mpsc::UnboundedSender<(usize, Work)>>);

impl Lanes {
    /// Gives work to a lane; `true`: it is a new one.
    pub(super) fn start(
        &mut self,
        server: &Arc<HttpServer>,
        lane: usize,
        work: &Work,
    ) -> Result<bool> {
        let mut is_new = false;
        while self.0.len() <= lane {
            self.0.push(open(server)?);
            is_new = true;
        }
        if self.0[lane].send((lane, work.clone())).is_err() {
            // It has panicked, which its thread has reported.
            self.0[lane] = open(server)?;
            is_new = true;
            drop(self.0[lane].send((lane, work.clone())));
        }
        Ok(is_new)
    }

    /// Ends all behind the first `count`; how many.
    pub(super) fn keep(&mut self, count: usize) -> u32 {
        let more = self.0.len().saturating_sub(count);
        self.0.truncate(count);
        u32::try_from(more).unwrap_or(u32::MAX)
    }

    /// Ends all; how many.
    pub(crate) fn close(&mut self) -> u32 {
        self.keep(0)
    }
}

fn open(server: &Arc<HttpServer>) -> Result<mpsc::UnboundedSender<(usize, Work)>> {
    let system = |error: std::io::Error| Error::System {
        doing: "start a thread for data".to_owned(),
        error: Arc::new(error),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system)?;
    let (sender, mut works) = mpsc::unbounded_channel();
    let server = Arc::clone(server);
    let run = move || {
        runtime.block_on(async {
            let mut wire = Wire::new(server);
            let clock = Arc::<MoverClock>::default();
            clock.runs_here();
            while let Some((lane, work)) = works.recv().await {
                // Where it panics, the transfer must not wait for it.
                let end = Leaving { lane, work: &work };
                work.totals().carried_by(&clock);
                wire.watched_by(work.totals());
                let failure = match &work {
                    Work::Get(job) => get::run(&mut wire, job, lane).await,
                    Work::Put(job) => put::run(&mut wire, job).await,
                    Work::Parts(job) => parts::run(&mut wire, job, lane).await,
                };
                wire.unwatched();
                end.with(failure);
            }
        });
    };
    let thread = thread::Builder::new().name("godwit-http".to_owned());
    thread.spawn(run).map_err(system)?;
    Ok(sender)
}

/// A lane at work.
struct Leaving<'a> {
    lane: usize,
    work: &'a Work,
}

impl Leaving<'_> {
    fn with(self, failure: Option<Failure>) {
        self.leave(failure);
        std::mem::forget(self);
    }

    fn leave(&self, failure: Option<Failure>) {
        match self.work {
            Work::Get(job) => job.region.left(self.lane, failure),
            Work::Put(job) => job.left(failure),
            Work::Parts(job) => job.region.left(self.lane, failure),
        }
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.leave(Some(Failure::lost("the thread that carried it has ended")));
    }
}

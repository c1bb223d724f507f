//! A file that passes this machine on its way from one server to another: neither can send it to
//! the other, as one is of HTTP and the other is not, or both are and carry out no copies.
//!
//! ```text
//!   source ── RETR, GET ──► window of bytes in memory ── STOR, PUT ──► destination
//! ```
//! Two transfers of the two sessions run at the same time. Where the window is full the source
//! waits, and where it is empty the destination does. The first that fails is to blame: it breaks
//! the other off.

mod window;

use std::{cell::OnceCell, future::Future, sync::Arc};

use godwit_engine::{
    data::{Sink, Source, TransferJob},
    storage::FileRef,
};
use godwit_proto::{ByteRange, pi::transfer::Direction};
use tokio::{sync::Notify, time::timeout};

pub(crate) use self::window::WindowMemory;
use self::window::{Window, WindowReader};
use super::{
    Session, TransferOutcome, TransferPlan,
    third_party::{ThirdPartyOutcome, ThirdPartyPlan, state::Role},
    transfer::CALLING_OFF_LIMIT,
};
use crate::{
    endpoint::capabilities::Observed,
    error::{Error, Result},
};

/// Which of the two transfers has failed first.
#[derive(Default)]
struct Blame {
    role: OnceCell<Role>,
    changed: Notify,
}

impl Blame {
    fn put_on(&self, role: Role, window: &Window) {
        let _ = self.role.set(role);
        window.break_off();
        self.changed.notify_waiters();
    }

    /// Runs the transfer of `role` to its end, or for a moment after the other has failed; `None`:
    /// it has not ended by then.
    async fn run<T>(&self, role: Role, transfer: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(transfer);
        let other_failed = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if self.role.get().is_some_and(|blamed| *blamed != role) {
                    return;
                }
                changed.await;
            }
        };
        tokio::select! {
            ended = &mut transfer => Some(ended),
            () = other_failed => timeout(CALLING_OFF_LIMIT, transfer).await.ok(),
        }
    }
}

impl Session {
    /// Moves bytes of a file from the server of `source` to that of this session.
    pub(super) async fn pass_from(
        &mut self,
        source: &mut Session,
        plan: &ThirdPartyPlan<'_>,
    ) -> ThirdPartyOutcome {
        self.report_passing(source);
        let stop = self.context.stop.clone();
        let files = self.context.target.now().setting.concurrency;
        let memory = self.context.windows.clone();
        let window = tokio::select! {
            window = memory.window(plan.passed.region, files) => window,
            () = stop.cancelled() => return ThirdPartyOutcome::failed(Error::Interrupted),
        };
        let blame = Blame::default();
        let fetching = async {
            let fetched = source.transfer_into(&window, plan).await;
            match &fetched {
                Ok(()) => window.complete(),
                Err(_) => blame.put_on(Role::Sender, &window),
            }
            fetched
        };
        let storing = async {
            window.begun().await;
            if blame.role.get().is_some() {
                return None;
            }
            let stored = self.transfer_from(&window, plan).await;
            if stored.result.is_err() {
                blame.put_on(Role::Receiver, &window);
            }
            Some(stored)
        };
        let (fetched, stored) = tokio::join!(
            blame.run(Role::Sender, fetching),
            blame.run(Role::Receiver, storing),
        );
        if fetched.is_none() {
            source.leave_transfer();
        }
        if stored.is_none() {
            self.leave_transfer();
        }
        let stored = stored.flatten();
        let mut outcome = ThirdPartyOutcome::failed(Error::Interrupted);
        outcome.result = match (blame.role.get(), fetched, &stored) {
            (Some(Role::Sender), Some(fetched), _) => fetched,
            (Some(Role::Receiver), _, Some(stored)) => stored.result.clone(),
            (None, Some(fetched), Some(stored)) => fetched.and(stored.result.clone()),
            _ => outcome.result,
        };
        if let Some(stored) = stored {
            outcome.bytes = stored.report.map(|report| report.bytes);
            outcome.safe = stored.safe;
        }
        outcome
    }

    /// Says once that files pass here, which costs more than one could think.
    fn report_passing(&self, source: &Session) {
        if self.endpoint.capabilities.record(Observed::FedByClient) {
            self.context.reporter.note(format!(
                "{}: files from {} pass through this machine: neither server can send to the other",
                self.endpoint.name(),
                source.endpoint.name()
            ));
        }
    }

    /// Fetches what is to pass.
    async fn transfer_into(
        &mut self,
        window: &Arc<Window>,
        plan: &ThirdPartyPlan<'_>,
    ) -> Result<()> {
        let passed = plan.passed;
        let file: FileRef = Arc::clone(window) as FileRef;
        let job = |_| {
            let sink = Sink::File {
                file,
                base: passed.base,
                stream_start: passed.stream_start,
                limit: passed.limit,
            };
            TransferJob::Receive(match passed.cut {
                Some(bytes) => Sink::Prefix {
                    sink: Box::new(sink),
                    bytes,
                },
                None => sink,
            })
        };
        let transfer = TransferPlan {
            doing: plan.retrieving,
            direction: Direction::Get,
            stream: plan.stream,
            striped: false,
            ahead: plan.restart.clone(),
            command: plan.retrieve.clone(),
            length: passed.cut.or(passed.limit),
            next: None,
            may_block: false,
            counts: true,
            feeds: true,
            may_be_cut: false,
            is_cut: passed.cut.is_some(),
            began: None,
            safe: None,
            stored_as: None,
        };
        let fetched = Box::pin(self.transfer(transfer, job)).await;
        fetched.result?;
        match passed.region {
            Some(region) if !window.has(region) => Err(Error::Size {
                doing: plan.retrieving.to_owned(),
                expected: region.len(),
                got: fetched.report.map_or(0, |report| report.bytes),
            }),
            _ => Ok(()),
        }
    }

    /// Stores what passes.
    async fn transfer_from(
        &mut self,
        window: &Arc<Window>,
        plan: &ThirdPartyPlan<'_>,
    ) -> TransferOutcome {
        let region = plan.passed.region;
        let job = |_| {
            TransferJob::Send(match region {
                Some(region) => Source::File {
                    file: Arc::clone(window) as FileRef,
                    base: region.start,
                    ranges: vec![ByteRange {
                        start: 0,
                        end: region.len(),
                    }],
                },
                None => Source::Stream(Box::new(WindowReader {
                    window: Arc::clone(window),
                    at: 0,
                })),
            })
        };
        let transfer = TransferPlan {
            doing: plan.storing,
            direction: Direction::Put,
            stream: region.is_none(),
            striped: plan.long,
            ahead: plan.ahead.clone(),
            command: plan.store.clone(),
            length: None,
            next: None,
            may_block: region.is_none(),
            counts: true,
            feeds: false,
            may_be_cut: false,
            is_cut: false,
            began: None,
            safe: plan.safe.as_ref(),
            stored_as: plan.stored_as.clone(),
        };
        Box::pin(self.transfer(transfer, job)).await
    }

    /// A transfer was given up before its end: nothing more can be asked.
    fn leave_transfer(&mut self) {
        self.broken = true;
        self.data.lanes.close();
        self.data.set = None;
    }
}

//! One transfer over the stripes of a session: orders to each, and one end of all.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use super::{
    data_node::{Node, lock},
    each,
    front_link::{CHANNELS_MAX, FrontLink},
    stripes::{Shares, Stripes},
};
use crate::nodes::{
    front::leases::Leases,
    messages::{
        Counts, Done, Form, Job, LastEod, NodeOrder, NodeReport, RANGES_MAX, SameFile, Spans,
        Start, shown,
    },
};
use godwit_engine::{
    data::{
        FRESH_RANGES_MAX, Sample, Sink, Source, TcpTotals, TransferEvent, TransferJob,
        TransferReport,
    },
    storage::{FileRef, Metadata},
};
use godwit_proto::{
    RangeSet,
    command::{Mode, TypeCode},
    error::{StorageFailure, TransferFailure},
    pi::server::{TransferKind, TransferRequest},
};
use tokio::time::sleep_until;
use tracing::warn;

/// A running transfer. Dropping it ends it.
pub(crate) struct StripedTransfer {
    stripes: Arc<Stripes>,
    sends: bool,
    /// While the file is open here no other has its number.
    _open: Option<FileRef>,
    /// The file that nodes write.
    written: Option<(u64, u64)>,
    parts: Vec<StripePart>,
    /// Of nodes that send to one address: who says EOF for all.
    eof_by: usize,
    leases: Option<Leases>,
    is_ready: bool,
    failure: Option<TransferFailure>,
    fresh: Mutex<RangeSet>,
    started: Instant,
    elapsed: Option<Duration>,
    events: VecDeque<TransferEvent>,
    /// Until then a node that was lost may write; so long the end of the transfer is not told.
    quiet_at: Option<Instant>,
    aborted: AtomicBool,
}

/// What one stripe has said of it.
#[derive(Default)]
struct StripePart {
    /// What its reports call the transfer.
    transfer: u64,
    counts: Counts,
    is_ready: bool,
    /// It knows that no more is to be sent.
    is_finishing: bool,
    is_over: bool,
    cached: bool,
    channels_peak: u32,
    eods: u64,
}

impl StripedTransfer {
    /// Orders it. `job`: the file as it is open at the front end, as bytes; `file`: which it is.
    ///
    /// # Errors
    /// It cannot be said in an order, or not over these stripes.
    pub(crate) fn start(
        stripes: &Arc<Stripes>,
        request: &TransferRequest,
        job: &TransferJob,
        file: Option<&Metadata>,
    ) -> Result<Self, TransferFailure> {
        let receives = matches!(request.kind, TransferKind::Receive { .. });
        let is_of_a_file = !matches!(request.kind, TransferKind::List { .. });
        let as_text = request.type_code == TypeCode::Ascii;
        // A stream, and a listing, has one connection.
        let count = match request.mode {
            // Ends of lines cannot be counted before they are read: one sends all.
            Mode::ExtendedBlock if as_text && stripes.shares == Shares::Joined => 1,
            Mode::ExtendedBlock if is_of_a_file => stripes.links.len(),
            _ => 1,
        };
        if count > 1 && as_text && receives {
            let why = "a text cannot be received over several stripes: TYPE I, or PASV";
            return Err(TransferFailure::Limit(why.to_owned()));
        }
        let job_at = |link: &FrontLink| {
            let same = file.map_or(SameFile::Unknown, |file| same(&link.node, file, receives));
            job_of(request, job, same)
        };
        let mut leases = None;
        let mut starts = Vec::new();
        for (index, link) in stripes.links.iter().take(count).enumerate() {
            let mut job = job_at(link)?;
            if let Job::Send { ranges, .. } = &mut job {
                let leased = matches!(stripes.shares, Shares::Leased | Shares::Joined);
                if count > 1 && leased && !as_text {
                    let ranges = std::mem::take(ranges).ranges();
                    leases.get_or_insert_with(|| Leases::new(ranges, count));
                } else if as_text && index > 0 {
                    // Each address has an EOF, but a text goes to the first.
                    *ranges = Spans::default();
                }
            }
            starts.push((link, job));
        }
        let mut parts = Vec::new();
        for (link, job) in starts {
            let transfer = link.next_transfer();
            let mode = request.mode;
            let start = Start {
                transfer,
                job,
                mode,
            };
            link.send(NodeOrder::Start(Box::new(start)));
            parts.push(StripePart {
                transfer,
                ..StripePart::default()
            });
        }
        Ok(Self {
            stripes: Arc::clone(stripes),
            sends: !receives,
            _open: file_of(job).cloned(),
            written: file.filter(|_| receives).map(|file| file.unique),
            parts,
            eof_by: 0,
            leases,
            is_ready: false,
            failure: None,
            fresh: Mutex::default(),
            started: Instant::now(),
            elapsed: None,
            events: VecDeque::new(),
            quiet_at: None,
            aborted: AtomicBool::new(false),
        })
    }

    /// The next event; after `Done` never returns again. Cancel-safe.
    pub(crate) async fn next_event(&mut self) -> TransferEvent {
        loop {
            if let (Some(TransferEvent::Done(_)), Some(quiet_at)) =
                (self.events.front(), self.quiet_at)
            {
                sleep_until(quiet_at.into()).await;
            }
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            if self.is_over() {
                return std::future::pending().await;
            }
            let is_awaited = |index: usize| self.parts.get(index).is_some_and(|p| !p.is_over);
            let (index, said) = self.stripes.next(is_awaited).await;
            match said {
                Ok(NodeReport::Refused { why }) => {
                    let why = self.named(index, TransferFailure::ConnectionLost(why));
                    self.loses(index, true);
                    self.ends(index, Some(why));
                }
                Ok(report) => self.on_report(index, report),
                Err(gone) => {
                    let node = Arc::clone(&self.stripes.links[index].node);
                    node.lost(&gone);
                    self.loses(index, false);
                    let why = format!("data node {}: {}", node.address, gone.why);
                    self.ends(index, Some(TransferFailure::ConnectionLost(why)));
                }
            }
        }
    }

    /// The link of a stripe has ended. `is_told`: by a report.
    fn loses(&mut self, index: usize, is_told: bool) {
        let quiet_in = self.stripes.links[index].quiet_in(is_told);
        self.is_cut_off(quiet_in);
        if self.written.is_some() {
            let quiet_at = Instant::now() + quiet_in;
            self.quiet_at = self.quiet_at.max(Some(quiet_at));
        }
    }

    /// What a node does to the file from now on is not known, until it knows that it is not heard.
    fn is_cut_off(&self, quiet_in: Duration) {
        if let Some(file) = self.written {
            let user = &self.stripes.user;
            self.stripes.unfenced.add(user, file, quiet_in);
        }
    }

    fn on_report(&mut self, index: usize, report: NodeReport) {
        let transfer = self.parts[index].transfer;
        match report {
            NodeReport::Ready {
                transfer: of,
                reused,
            } if of == transfer => {
                self.parts[index].is_ready = true;
                self.announce(reused);
                self.lease(index);
            }
            NodeReport::Progress {
                transfer: of,
                counts,
                fresh,
            } if of == transfer => {
                self.heard(index, counts, &fresh);
                self.lease(index);
            }
            NodeReport::Done(done) if done.transfer == transfer => {
                let Done {
                    transfer: _,
                    counts,
                    fresh,
                    failure,
                    cached,
                    channels_peak,
                    eods,
                } = *done;
                self.heard(index, counts, &fresh);
                let part = &mut self.parts[index];
                part.cached = cached;
                part.eods = eods;
                part.channels_peak = channels_peak.min(CHANNELS_MAX);
                let failure = failure.map(|why| self.named(index, why));
                self.ends(index, failure);
            }
            // Of no transfer, or of one before.
            _ => {}
        }
    }

    /// Says that the data connections are up, once they are.
    fn announce(&mut self, reused: bool) {
        let ready = match self.sends {
            true => self.parts.iter().all(|part| part.is_ready || part.is_over),
            false => true,
        };
        if ready && !self.is_ready && self.failure.is_none() {
            self.is_ready = true;
            self.events.push_back(TransferEvent::Ready { reused });
        }
    }

    fn heard(&mut self, index: usize, counts: Counts, fresh: &Spans) {
        let counts = Counts {
            channels: counts.channels.min(CHANNELS_MAX),
            ..counts
        };
        let part = &mut self.parts[index];
        let node = &self.stripes.links[index].node;
        node.add_bytes(counts.bytes.saturating_sub(part.counts.bytes));
        part.counts = counts;
        self.stripes.links[index].set_channels(counts.channels);
        let all: RangeSet = fresh.ranges().into_iter().collect();
        lock(&self.fresh).union_within(&all, FRESH_RANGES_MAX);
    }

    /// Gives a stripe what it shall send next, and tells all when nothing is left to give.
    fn lease(&mut self, index: usize) {
        let Some(leases) = &mut self.leases else {
            return;
        };
        let (link, counts) = (&self.stripes.links[index], &self.parts[index].counts);
        let ranges = leases.next(index, counts.bytes, self.started.elapsed());
        if !ranges.is_empty() {
            let ranges = Spans::of(&ranges);
            link.send(NodeOrder::Lease { ranges });
        }
        if leases.is_exhausted() {
            self.finish();
        }
    }

    /// Nothing is left to give.
    fn finish(&mut self) {
        let is_joined = self.stripes.shares == Shares::Joined;
        let eof_by = self.eof_by;
        let others = || (self.parts.iter().enumerate()).filter(|(index, _)| *index != eof_by);
        let others_are_over = others().all(|(_, part)| part.is_over);
        let eods = others().fold(0, |sum: u64, (_, part)| sum.saturating_add(part.eods));
        for (index, part) in self.parts.iter_mut().enumerate() {
            let ending = match index {
                _ if !is_joined => LastEod::Eof { others: 0 },
                // When all that it counts is known.
                _ if index == eof_by && others_are_over => LastEod::Eof { others: eods },
                _ if index == eof_by => continue,
                _ => LastEod::Eod,
            };
            // A node that is not ready yet would not know what for.
            if part.is_ready && !std::mem::replace(&mut part.is_finishing, true) {
                self.stripes.links[index].send(NodeOrder::Finish { ending });
            }
        }
    }

    /// A failure of one of several nodes tells which.
    fn named(&self, index: usize, why: TransferFailure) -> TransferFailure {
        let node = &self.stripes.links[index].node.address;
        let name = |text: String| format!("data node {node}: {}", shown(&text));
        match why {
            TransferFailure::NoConnection(text) => TransferFailure::NoConnection(name(text)),
            TransferFailure::ConnectionLost(text) => TransferFailure::ConnectionLost(name(text)),
            TransferFailure::Protocol(text) => TransferFailure::Protocol(name(text)),
            TransferFailure::Limit(text) => TransferFailure::Limit(name(text)),
            // The text of others is that of the system.
            TransferFailure::Storage(StorageFailure {
                errno: 0,
                doing,
                text,
            }) => {
                let (doing, text) = (shown(&doing), shown(&text));
                warn!(%node, doing, why = text, "a data node refuses a file");
                TransferFailure::Storage(StorageFailure {
                    errno: 0,
                    doing,
                    text: name(text),
                })
            }
            other => other,
        }
    }

    fn ends(&mut self, index: usize, failure: Option<TransferFailure>) {
        self.parts[index].is_over = true;
        let failure = failure.filter(|failure| !self.does_without(index, failure));
        if let Some(failure) = failure
            && self.failure.is_none()
        {
            self.failure = Some(failure);
            // The others have no use any more; what they have written they still tell.
            self.order_rest(|| NodeOrder::Abort);
        }
        if (self.leases.as_ref()).is_some_and(Leases::is_exhausted) && self.failure.is_none() {
            self.finish();
        }
        if self.is_over() {
            let elapsed = self.started.elapsed();
            self.elapsed = Some(elapsed);
            let cached = self.failure.is_none() && self.parts.iter().all(|part| part.cached);
            self.stripes.cached.store(cached, Ordering::Relaxed);
            let sum =
                |of: fn(&StripePart) -> u64| self.parts.iter().map(of).fold(0, u64::saturating_add);
            let report = TransferReport {
                bytes: sum(|part| part.counts.bytes),
                safe: RangeSet::new(),
                result: self.failure.clone().map_or(Ok(()), Err),
                cached: usize::from(cached),
                channels_peak: u32::try_from(sum(|part| part.channels_peak.into()))
                    .unwrap_or(u32::MAX),
                elapsed,
                unsent: Vec::new(),
            };
            self.events.push_back(TransferEvent::Done(report));
        }
    }

    /// Of nodes that all send to one address, one that has no connection to it is no loss: the
    /// client does not know of it, and it has been given nothing to send.
    fn does_without(&mut self, index: usize, failure: &TransferFailure) -> bool {
        let is_unknown = !self.parts[index].is_ready && self.leases.is_some();
        let is_lost = matches!(
            failure,
            TransferFailure::ConnectionLost(_) | TransferFailure::NoConnection(_)
        );
        let is_joined = self.stripes.shares == Shares::Joined;
        if !(self.sends && is_joined && is_unknown && is_lost && self.failure.is_none()) {
            return false;
        }
        let can_say_eof = |part: &StripePart| !part.is_over && !part.is_finishing;
        if index == self.eof_by {
            let Some(other) = self.parts.iter().position(can_say_eof) else {
                return false;
            };
            self.eof_by = other;
        }
        warn!(%failure, "the other data nodes send its share");
        self.announce(false);
        true
    }

    fn is_over(&self) -> bool {
        self.parts.iter().all(|part| part.is_over)
    }

    fn order_rest(&self, order: impl Fn() -> NodeOrder) {
        let rest = self.stripes.links.iter().zip(&self.parts);
        let rest = rest.filter(|(_, part)| !part.is_over);
        rest.for_each(|(link, _)| link.send(order()));
    }

    /// Safe since the last call.
    pub(crate) fn take_fresh(&self) -> RangeSet {
        std::mem::take(&mut *lock(&self.fresh))
    }

    /// Bytes of each stripe; empty where there is one.
    pub(crate) fn stripes(&self) -> Vec<u64> {
        match self.parts.len() {
            1 => Vec::new(),
            _ => self.parts.iter().map(|part| part.counts.bytes).collect(),
        }
    }

    /// Names of the nodes that take part, each once.
    pub(crate) fn nodes(&self) -> Vec<String> {
        let part = self.stripes.links.iter().take(self.parts.len());
        let names: BTreeSet<_> = part.map(|link| link.node.address.to_string()).collect();
        names.into_iter().collect()
    }

    /// Totals at the last reports.
    pub(crate) fn sample(&self) -> Sample {
        let counts = self.parts.iter().map(|part| part.counts);
        let mut sample = Sample::default();
        for Counts {
            bytes,
            channels,
            retransmitted,
        } in counts
        {
            sample.bytes = sample.bytes.saturating_add(bytes);
            sample.channels = sample.channels.saturating_add(channels);
            if let Some(again) = retransmitted {
                let tcp = sample.tcp.get_or_insert_with(TcpTotals::default);
                tcp.bytes_retransmitted = tcp.bytes_retransmitted.saturating_add(again);
            }
        }
        sample
    }

    /// So many channels in all.
    pub(crate) fn steer(&self, channels: u32) {
        let channels = each(channels, self.parts.len());
        self.order_rest(|| NodeOrder::Steer { channels });
    }

    pub(crate) fn drain(&self) {
        self.order_rest(|| NodeOrder::Drain);
    }

    pub(crate) fn abort(&self) {
        if !self.aborted.swap(true, Ordering::Relaxed) {
            self.order_rest(|| NodeOrder::Abort);
        }
    }
}

impl Drop for StripedTransfer {
    fn drop(&mut self) {
        if !self.is_over() {
            self.abort();
            // Only sessions that continue this file wait until the nodes have stopped.
            let parts = self.stripes.links.iter().zip(&self.parts);
            let running = parts.filter(|(_, part)| !part.is_over);
            let quiet_in = running.map(|(link, _)| link.quiet_in(false)).max();
            self.is_cut_off(quiet_in.unwrap_or_default());
        }
    }
}

/// What a node is ordered to do: `request`, of the file as the front end has opened it.
fn job_of(
    request: &TransferRequest,
    job: &TransferJob,
    file: SameFile,
) -> Result<Job, TransferFailure> {
    let ascii = request.type_code == TypeCode::Ascii;
    match (&request.kind, job) {
        (TransferKind::List { path, form }, _) => Ok(Job::List {
            path: path.clone(),
            form: Form::from(*form),
        }),
        (TransferKind::Send { path, .. }, TransferJob::Send(Source::File { base, ranges, .. })) => {
            if ranges.len() > RANGES_MAX {
                return Err(TransferFailure::Limit(format!(
                    "{} ranges to send by data nodes; the most are {RANGES_MAX}",
                    ranges.len()
                )));
            }
            Ok(Job::Send {
                path: path.clone(),
                file,
                base: *base,
                ranges: Spans::of(ranges),
                ascii,
            })
        }
        (
            TransferKind::Receive { path, .. },
            TransferJob::Receive(Sink::File {
                base,
                stream_start,
                limit,
                ..
            }),
        ) => Ok(Job::Receive {
            path: path.clone(),
            file,
            base: *base,
            stream_start: *stream_start,
            limit: *limit,
            ascii,
        }),
        _ => Err(TransferFailure::Limit(
            "data nodes move files and listings only".to_owned(),
        )),
    }
}

/// The file that is open for it.
fn file_of(job: &TransferJob) -> Option<&FileRef> {
    match job {
        TransferJob::Send(Source::File { file, .. })
        | TransferJob::Receive(Sink::File { file, .. }) => Some(file),
        _ => None,
    }
}

/// How a node finds out that a name leads it to this file.
fn same(node: &Node, file: &Metadata, receives: bool) -> SameFile {
    let since = file.modified.duration_since(SystemTime::UNIX_EPOCH);
    match since {
        _ if node.same_inodes() => SameFile::Inode(file.unique.1),
        Ok(since) if !receives => SameFile::Looks {
            size: file.size,
            seconds: since.as_secs(),
            nanoseconds: since.subsec_nanos(),
        },
        _ => SameFile::Unknown,
    }
}

#[cfg(test)]
mod tests;

//! Asks the kernel about a transfer: seldom, and never between file and socket.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    data::sampling::{
        cpu_time::{MoverClock, MoverTally},
        sample::{Sample, StorageTotals},
        tcp_tally::TcpTally,
    },
    host::tcp_diag::{AddressPair, TcpDiag},
};
use parking_lot::Mutex;

/// Least time between two looks. A transfer that is over sooner, and was not asked about, is never
/// looked at.
const PAUSE_MIN: Duration = Duration::from_millis(20);

/// A look that takes long (many channels) is followed by a pause this many times as long: at most 2
/// % of a processor.
const PAUSE_FACTOR: u32 = 50;

/// What the kernel knows of the connections of one transfer.
pub struct KernelSampler {
    sending: bool,
    /// Connections that came and went since the last look. Apart from `seen`, so that a mover never
    /// waits for a look.
    news: Mutex<Vec<News>>,
    seen: Mutex<Seen>,
}

struct News {
    addresses: AddressPair,
    at: Instant,
    change: Change,
}

enum Change {
    Joined { fresh: bool },
    Left,
}

#[derive(Default)]
struct Seen {
    kernel: Kernel,
    tcp: TcpTally,
    acknowledged: Option<u64>,
    movers: MoverTally,
    /// When, and the time it took.
    looked: Option<(Instant, Duration)>,
    /// The transfer is over, its connections may carry another one.
    closed: bool,
}

#[derive(Default)]
enum Kernel {
    #[default]
    NotAsked,
    Answers(TcpDiag),
    Silent,
}

impl KernelSampler {
    /// Of a transfer that has no connections yet. `sending`: bytes leave this host.
    #[must_use]
    pub fn new(sending: bool) -> Self {
        Self {
            sending,
            news: Mutex::default(),
            seen: Mutex::default(),
        }
    }

    /// A connection carries the transfer from now on. `fresh`: and has carried nothing before.
    pub fn joined(&self, addresses: AddressPair, fresh: bool) {
        self.note(addresses, Change::Joined { fresh });
    }

    /// A connection carries it no more.
    pub fn left(&self, addresses: AddressPair) {
        self.note(addresses, Change::Left);
    }

    fn note(&self, addresses: AddressPair, change: Change) {
        let at = Instant::now();
        self.news.lock().push(News {
            addresses,
            at,
            change,
        });
    }

    /// Looks, unless it was done lately. `bytes`: how many bytes have been moved, read before the
    /// call.
    pub fn look(&self, bytes: u64, clocks: &[Arc<MoverClock>]) {
        let mut seen = self.seen.lock();
        // A look that came before the first connection has found nothing to rest on.
        let rested = !seen.tcp.is_known()
            || (seen.looked)
                .is_none_or(|(at, took)| at.elapsed() >= PAUSE_MIN.max(took * PAUSE_FACTOR));
        if rested {
            self.look_now(&mut seen, bytes, clocks, true);
        }
    }

    /// The last look, before the connections are free for other transfers.
    pub fn close(&self, bytes: u64, clocks: &[Arc<MoverClock>], elapsed: Duration) {
        let mut seen = self.seen.lock();
        if seen.looked.is_some() || elapsed >= PAUSE_MIN {
            // A receiver's connections tell of the present only.
            self.look_now(&mut seen, bytes, clocks, self.sending);
        }
        seen.closed = true;
    }

    fn look_now(&self, seen: &mut Seen, bytes: u64, clocks: &[Arc<MoverClock>], asks: bool) {
        if seen.closed {
            return;
        }
        let begun = Instant::now();
        seen.movers.update(clocks.iter().map(|clock| clock.read()));
        if asks {
            for News {
                addresses,
                at,
                change,
            } in std::mem::take(&mut *self.news.lock())
            {
                match change {
                    Change::Joined { fresh } => seen.tcp.joined(addresses, fresh, at),
                    Change::Left => seen.tcp.left(addresses, at),
                }
            }
            seen.ask(bytes);
        }
        seen.looked = Some((begun, begun.elapsed()));
    }

    /// Fills in what the last look has found.
    pub fn fill(&self, sample: &mut Sample) {
        let seen = self.seen.lock();
        if let Kernel::Answers(_) = seen.kernel {
            if self.sending {
                sample.acknowledged = seen.acknowledged;
                if !seen.closed {
                    sample.age = seen.looked.map_or(Duration::ZERO, |(at, _)| at.elapsed());
                }
                sample.tcp = (seen.looked).and_then(|(at, _)| seen.tcp.totals(at));
            } else if !seen.closed {
                sample.receiving = seen.tcp.receiving();
            }
        }
        sample.movers = seen.movers.totals();
        let asleep = seen.movers.asleep_us();
        sample.storage = if self.sending {
            StorageTotals {
                read_us: asleep,
                write_us: 0,
            }
        } else {
            StorageTotals {
                read_us: 0,
                write_us: asleep,
            }
        };
    }
}

impl Seen {
    fn ask(&mut self, bytes: u64) {
        if let Kernel::NotAsked = self.kernel {
            self.kernel = match TcpDiag::open() {
                Ok(diag) => Kernel::Answers(diag),
                Err(e) => silent(&e),
            };
        }
        let Kernel::Answers(diag) = &mut self.kernel else {
            return;
        };
        match diag.look_up(&self.tcp.addresses()) {
            Ok(answers) => {
                self.tcp.update(&answers, Instant::now());
                // `bytes` is older than the answers, so what is not queued of it has arrived.
                let arrived = self.tcp.queued().map(|queued| bytes.saturating_sub(queued));
                self.acknowledged = self.acknowledged.max(arrived);
            }
            Err(e) => self.kernel = silent(&e),
        }
    }
}

fn silent(error: &std::io::Error) -> Kernel {
    tracing::debug!(%error, "the kernel does not report on TCP connections");
    Kernel::Silent
}

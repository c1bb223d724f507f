//! Logins that are tried: how many of one address at a time, and in which order where they take a
//! processor.
//!
//! ```text
//!   begin ──► waits behind others of its address ──► runs ──► failed, or has succeeded
//!     └── refused: failures of the address, or too many that wait        (dropped: failed)
//! ```
//! An attempt that runs counts as one that fails: an address has no more at a time than it may have
//! failures, so that guesses side by side are no more than guesses one by one. Addresses take
//! turns.

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    sync::Arc,
    time::Instant,
};

use tokio::sync::oneshot;

use super::Admission;
use crate::access::limits::{Limits, Refusal, network};

/// Attempts of one address that may wait.
const WAITING_MAX: usize = 256;

/// Passwords that are verified at a time, in the whole server: each takes some ten megabytes, or as
/// many as its hash says.
pub(crate) const VERIFICATIONS_MAX: usize = 4;

/// The running and the waiting attempts.
#[derive(Default)]
pub(crate) struct Attempts {
    costly: usize,
    running: HashMap<IpAddr, u32>,
    /// By address; the first is the next whose turn it is. No queue is empty.
    waiting: VecDeque<(IpAddr, VecDeque<WaitingLogin>)>,
}

struct WaitingLogin {
    costly: bool,
    turn: oneshot::Sender<Result<Attempt, Refusal>>,
}

/// A login attempt. It fails unless it is reported as succeeded.
pub(crate) struct Attempt {
    admission: Arc<Admission>,
    address: IpAddr,
    costly: bool,
    /// `None`: it has failed.
    success: Option<Success>,
}

#[derive(Clone, Copy)]
enum Success {
    /// The client authenticated.
    Proven,
    Anonymous,
}

impl Attempt {
    /// The costly part has ended: the next attempt may start.
    pub(crate) fn verified(&mut self) {
        if std::mem::take(&mut self.costly) {
            let handed_on = self.admission.with_attempts(|attempts, limits| {
                attempts.costly -= 1;
                attempts.grant_next(&self.admission, limits, Instant::now())
            });
            deliver(handed_on);
        }
    }

    /// `proven`: the client authenticated.
    pub(crate) fn succeeded(mut self, proven: bool) {
        self.success = Some(match proven {
            true => Success::Proven,
            false => Success::Anonymous,
        });
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let (now, address) = (Instant::now(), self.address);
        let handed_on = self.admission.with_attempts(|attempts, limits| {
            match self.success {
                None => limits.failed(now, address),
                Some(Success::Proven) => limits.proven(address),
                Some(Success::Anonymous) => {}
            }
            attempts.end(address, self.costly);
            attempts.grant_next(&self.admission, limits, now)
        });
        deliver(handed_on);
    }
}

/// Granted turns, to be sent without the lock. A turn that no session takes ends when dropped.
pub(crate) type GrantedAttempts = Vec<(
    oneshot::Sender<Result<Attempt, Refusal>>,
    Result<Attempt, Refusal>,
)>;

pub(crate) fn deliver(handed_on: GrantedAttempts) {
    for (turn, decision) in handed_on {
        drop(turn.send(decision));
    }
}

impl Attempts {
    /// An attempt of `address` begins, at once or when its turn comes.
    pub(crate) fn begin(
        &mut self,
        limits: &Limits,
        now: Instant,
        address: IpAddr,
        costly: bool,
        turn: oneshot::Sender<Result<Attempt, Refusal>>,
    ) -> Result<(), Refusal> {
        let address = network(address);
        limits.may_try(now, address)?;
        let waiting = WaitingLogin { costly, turn };
        let Some((_, queue)) = self.waiting.iter_mut().find(|(of, _)| *of == address) else {
            let queue = VecDeque::from([waiting]);
            self.waiting.push_back((address, queue));
            return Ok(());
        };
        queue.retain(|waiting| !waiting.turn.is_closed());
        if queue.len() >= WAITING_MAX {
            return Err(Refusal::Attempts(WAITING_MAX));
        }
        queue.push_back(waiting);
        Ok(())
    }

    fn end(&mut self, address: IpAddr, costly: bool) {
        self.costly -= usize::from(costly);
        if let Some(running) = self.running.get_mut(&address) {
            *running -= 1;
            if *running == 0 {
                self.running.remove(&address);
            }
        }
    }

    /// The attempts whose turn has come, one of each address after the other.
    pub(crate) fn grant_next(
        &mut self,
        admission: &Arc<Admission>,
        limits: &Limits,
        now: Instant,
    ) -> GrantedAttempts {
        let mut handed_on = Vec::new();
        let mut passed_over = 0;
        while passed_over < self.waiting.len()
            && let Some((address, mut queue)) = self.waiting.pop_front()
        {
            while queue.front().is_some_and(|first| first.turn.is_closed()) {
                queue.pop_front();
            }
            let Some(first) = queue.front() else { continue };
            let running = self.running.get(&address).copied().unwrap_or(0);
            let has_slot = !first.costly || self.costly < slots();
            match limits.may_try_beside(now, address, running) {
                Err(why) => {
                    let all = queue.drain(..);
                    handed_on.extend(all.map(|waiting| (waiting.turn, Err(why.clone()))));
                }
                Ok(true)
                    if has_slot && let Some(WaitingLogin { costly, turn }) = queue.pop_front() =>
                {
                    self.costly += usize::from(costly);
                    *self.running.entry(address).or_default() += 1;
                    let attempt = Attempt {
                        admission: Arc::clone(admission),
                        address,
                        costly,
                        success: None,
                    };
                    handed_on.push((turn, Ok(attempt)));
                    passed_over = 0;
                }
                Ok(_) => passed_over += 1,
            }
            if !queue.is_empty() {
                self.waiting.push_back((address, queue));
            }
        }
        handed_on
    }
}

fn slots() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    VERIFICATIONS_MAX.min(cores)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Bounds;

    type PendingAttempt = oneshot::Receiver<Result<Attempt, Refusal>>;

    fn admission(free_failures: u32) -> Arc<Admission> {
        Admission::new(Bounds {
            free_failures,
            ..Bounds::default()
        })
    }

    fn ip(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    /// An attempt as a [`crate::access::admission::ConnectionPermit`] begins it.
    fn begin(
        admission: &Arc<Admission>,
        address: IpAddr,
        costly: bool,
    ) -> Result<PendingAttempt, Refusal> {
        let (turn, decision) = oneshot::channel();
        let mut begun = Ok(());
        let handed_on = admission.with_attempts(|attempts, limits| {
            let now = Instant::now();
            begun = attempts.begin(limits, now, address, costly, turn);
            attempts.grant_next(admission, limits, now)
        });
        deliver(handed_on);
        begun.map(|()| decision)
    }

    /// Those whose turn has come.
    fn running(all: &mut Vec<PendingAttempt>) -> Vec<Result<Attempt, Refusal>> {
        let mut come = Vec::new();
        all.retain_mut(|decision| match decision.try_recv() {
            Ok(decision) => {
                come.push(decision);
                false
            }
            Err(_) => true,
        });
        come
    }

    #[test]
    fn guesses_side_by_side_are_no_more_than_guesses_one_by_one() {
        let admission = admission(10);
        let all = (0..250).map(|_| begin(&admission, ip(1), false).unwrap());
        let mut all: Vec<PendingAttempt> = all.collect();
        let mut tried = 0;
        loop {
            let mut come = running(&mut all);
            assert!(come.iter().filter(|decision| decision.is_ok()).count() <= 10);
            let Some(Ok(attempt)) = come.pop() else { break };
            tried += 1;
            // It fails; the others that run are looked at in the next round.
            drop(attempt);
            for other in come {
                tried += usize::from(other.is_ok());
            }
        }
        assert_eq!(
            tried, 11,
            "ten that are free, and one that makes them pause"
        );
        assert!(begin(&admission, ip(1), false).is_err());
        assert!(begin(&admission, ip(2), false).is_ok());
    }

    #[test]
    fn successful_logins_cause_no_pause() {
        let admission = admission(2);
        for round in 0..50 {
            let decision = begin(&admission, ip(1), true).unwrap().try_recv().unwrap();
            decision.unwrap().succeeded(round % 2 == 0);
        }
        let all = (0..50).map(|_| begin(&admission, ip(1), false).unwrap());
        let mut all: Vec<PendingAttempt> = all.collect();
        let mut succeeded = 0;
        while !all.is_empty() {
            for decision in running(&mut all) {
                decision.unwrap().succeeded(true);
                succeeded += 1;
            }
        }
        assert_eq!(succeeded, 50);
    }

    #[test]
    fn addresses_take_turns() {
        let admission = admission(1000);
        let mut crowd: Vec<PendingAttempt> = (0..200)
            .map(|_| begin(&admission, ip(1), true).unwrap())
            .collect();
        let mut run = running(&mut crowd);
        assert_eq!(run.len(), slots());
        let mut other = vec![begin(&admission, ip(2), true).unwrap()];
        assert!(running(&mut other).is_empty());
        drop(run.pop());
        let next = running(&mut other).pop().or_else(|| {
            // It is behind one of the crowd at most.
            drop(running(&mut crowd));
            running(&mut other).pop()
        });
        assert!(next.is_some_and(|decision| decision.is_ok()));
    }

    #[test]
    fn excess_and_abandoned_logins_do_not_wait() {
        let admission = admission(1000);
        let first: Vec<_> = (0..slots())
            .map(|_| begin(&admission, ip(1), true))
            .collect();
        let gone: Vec<_> = (0..WAITING_MAX)
            .map(|_| begin(&admission, ip(1), true))
            .collect();
        assert_eq!(
            begin(&admission, ip(1), true).err(),
            Some(Refusal::Attempts(WAITING_MAX))
        );
        assert!(begin(&admission, ip(2), true).is_ok());
        drop(gone);
        let mut last = vec![begin(&admission, ip(1), true).unwrap()];
        // A turn that is dropped before it is taken is handed on.
        drop(first);
        assert!(
            running(&mut last)
                .pop()
                .is_some_and(|decision| decision.is_ok())
        );
        admission.with_attempts(|attempts, _| {
            assert_eq!((attempts.costly, attempts.running.len()), (0, 0));
            Vec::new()
        });
    }

    #[test]
    fn a_password_that_is_verified_makes_room_for_the_next() {
        let admission = admission(1000);
        let begun = (0..=slots()).map(|_| begin(&admission, ip(1), true).unwrap());
        let mut all: Vec<PendingAttempt> = begun.collect();
        let mut run = running(&mut all);
        assert_eq!((run.len(), all.len()), (slots(), 1));
        run[0].as_mut().unwrap().verified();
        assert_eq!(running(&mut all).len(), 1);
    }
}

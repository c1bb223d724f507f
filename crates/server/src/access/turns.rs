//! Processors for checksums, in turns.
//!
//! ```text
//!   a turn ends ──► the account that has waited longest ──► its session that has waited longest
//! ```
//! Each turn lasts some milliseconds, so a checksum that takes hours delays a short one by little.
//! Accounts take turns round robin: an account that asks for three hundred checksums gets as much
//! as an account that asks for one. A checksum that waits for its turn holds no thread.
//!
//! There is one [`Queue`] for a server. Where each session is a process, the monitor has the queue
//! and `privsep::turns` passes its turns on to the sessions.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{mpsc, oneshot};

/// Sessions of this process that wait for the monitor, before they wait for each other.
const REQUESTS_QUEUED: usize = 16;

/// Where the sessions of this process get their turns.
pub(crate) enum Turns {
    /// From this process.
    Queue(Arc<Queue>),
    /// From the monitor, one at a time.
    Monitor(mpsc::Sender<TurnRequest>),
}

/// The channel by which a session of this process gets a turn of the monitor's.
pub(crate) type TurnRequest = oneshot::Sender<Turn>;

/// The turns of a whole server.
pub(crate) struct Queue(Mutex<State>);

struct State {
    /// Turns that no session has. While there are any, no session waits.
    free: usize,
    /// Accounts with sessions that wait, in the order of their turns.
    accounts: VecDeque<Arc<str>>,
    waiting: HashMap<Arc<str>, VecDeque<oneshot::Sender<Turn>>>,
}

/// The turns of the sessions of one account.
#[derive(Clone)]
pub(crate) enum AccountTurns {
    Queue {
        queue: Arc<Queue>,
        account: Arc<str>,
    },
    Monitor(mpsc::Sender<TurnRequest>),
}

/// One turn. It ends when this is dropped.
pub(crate) struct Turn(Origin);

enum Origin {
    /// The queue passes it on.
    Queue(Arc<Queue>),
    /// The other end learns that the turn has ended.
    Monitor { _ended: oneshot::Sender<()> },
    /// The source of turns has ended.
    Ended,
}

impl Turns {
    /// `count` turns at a time.
    pub(crate) fn new(count: usize) -> Self {
        Self::Queue(Arc::new(Queue(Mutex::new(State {
            free: count,
            accounts: VecDeque::new(),
            waiting: HashMap::new(),
        }))))
    }

    /// The turns come from the monitor; the receiver yields each request for one.
    pub(crate) fn of_monitor() -> (Self, mpsc::Receiver<TurnRequest>) {
        let (sender, requests) = mpsc::channel(REQUESTS_QUEUED);
        (Self::Monitor(sender), requests)
    }

    /// `account`: with whom the session shares. The monitor knows it already.
    pub(crate) fn of(&self, account: &str) -> AccountTurns {
        match self {
            Self::Queue(queue) => AccountTurns::Queue {
                queue: Arc::clone(queue),
                account: account.into(),
            },
            Self::Monitor(requests) => AccountTurns::Monitor(requests.clone()),
        }
    }
}

impl Turn {
    /// A turn that the monitor has given to this process, and what resolves when it ends.
    pub(crate) fn of_monitor() -> (Self, oneshot::Receiver<()>) {
        let (ended, receiver) = oneshot::channel();
        (Self(Origin::Monitor { _ended: ended }), receiver)
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a turn that has ended to the next session that waits.
    fn pass_on(self: Arc<Self>) {
        loop {
            let Some(next) = self.lock().next() else {
                return;
            };
            match next.send(Turn(Origin::Queue(Arc::clone(&self)))) {
                Ok(()) => return,
                // That session has ended. The turn must not pass itself on from within its drop.
                Err(mut turn) => turn.0 = Origin::Ended,
            }
        }
    }

    /// Waits for a turn. Cancel-safe.
    async fn next(self: &Arc<Self>, account: &Arc<str>) -> Turn {
        let given = {
            let mut state = self.lock();
            if state.free > 0 {
                state.free -= 1;
                return Turn(Origin::Queue(Arc::clone(self)));
            }
            let (sender, given) = oneshot::channel();
            if !state.waiting.contains_key(account) {
                state.accounts.push_back(Arc::clone(account));
            }
            let waiting = state.waiting.entry(Arc::clone(account)).or_default();
            waiting.push_back(sender);
            given
        };
        // The queue outlives us; if it did not, working at once would be the lesser harm.
        given.await.unwrap_or(Turn(Origin::Ended))
    }
}

impl State {
    /// Who has the next turn. `None`: no session waits, and the turn is free.
    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        let Some(account) = self.accounts.pop_front() else {
            self.free += 1;
            return None;
        };
        let queue = self.waiting.get_mut(&account)?;
        let next = queue.pop_front();
        match queue.is_empty() {
            true => drop(self.waiting.remove(&account)),
            false => self.accounts.push_back(account),
        }
        next
    }
}

impl AccountTurns {
    /// Waits for a turn. Cancel-safe.
    pub(crate) async fn next(&self) -> Turn {
        match self {
            Self::Queue { queue, account } => queue.next(account).await,
            Self::Monitor(requests) => {
                let (request, given) = oneshot::channel();
                // Without the monitor this process is about to end.
                drop(requests.send(request).await);
                given.await.unwrap_or(Turn(Origin::Ended))
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Origin::Queue(queue) = std::mem::replace(&mut self.0, Origin::Ended) {
            queue.pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::{Pin, pin},
        task::{Context, Poll, Waker},
    };

    use super::*;

    fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn accounts_take_turns_whatever_number_of_sessions_they_have() {
        let turns = Turns::new(1);
        let (jo, kim) = (turns.of("jo"), turns.of("kim"));
        let mut turn = poll(pin!(jo.next()));
        assert!(turn.is_ready());
        let mut waiting = Vec::new();
        for (name, of) in [("j1", &jo), ("j2", &jo), ("j3", &jo), ("k1", &kim)] {
            let mut next = Box::pin(of.next());
            assert!(poll(next.as_mut()).is_pending());
            waiting.push((name, next));
        }
        let mut order = Vec::new();
        while !waiting.is_empty() {
            drop(turn);
            let mut polled = waiting.iter_mut().enumerate();
            let (at, given) = polled
                .find_map(|(at, (_, next))| {
                    let given = poll(next.as_mut());
                    given.is_ready().then_some((at, given))
                })
                .expect("a turn that ends is passed on");
            turn = given;
            order.push(waiting.remove(at).0);
        }
        assert_eq!(order, ["j1", "k1", "j2", "j3"]);
    }

    #[test]
    fn turns_of_sessions_that_are_gone_are_passed_on() {
        let turns = Turns::new(2);
        let jo = turns.of("jo");
        let first = poll(pin!(jo.next()));
        let second = poll(pin!(jo.next()));
        assert!(first.is_ready() && second.is_ready());
        for _ in 0..300 {
            let mut gone = Box::pin(jo.next());
            assert!(poll(gone.as_mut()).is_pending());
        }
        let mut last = pin!(jo.next());
        assert!(poll(last.as_mut()).is_pending());
        drop(first);
        assert!(poll(last.as_mut()).is_ready());
        drop(second);
        let Turns::Queue(queue) = &turns else {
            unreachable!("it was made so")
        };
        let state = queue.lock();
        assert_eq!(
            (state.free, state.accounts.len(), state.waiting.len()),
            (2, 0, 0)
        );
    }
}

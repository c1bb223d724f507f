//! Processors for checksums, in turns.
//!
//! ```text
//!   turn ends ──► the account that has waited longest ──► its session that has waited longest
//! ```
//! Each turn is some milliseconds long, so that a checksum of hours delays one of a moment by
//! little. Accounts come round robin: one that asks for three hundred checksums gets as much as one
//! that asks for one. Nothing holds a thread while it waits.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

/// The turns of a whole server.
pub(crate) struct Turns(Mutex<State>);

struct State {
    /// Turns that nobody has. Where there are some, nobody waits.
    free: usize,
    /// Accounts of which somebody waits, in the order of their turns.
    accounts: VecDeque<Arc<str>>,
    waiting: HashMap<Arc<str>, VecDeque<oneshot::Sender<Turn>>>,
}

/// What sessions of one account use.
#[derive(Clone)]
pub(crate) struct TurnsOf {
    turns: Arc<Turns>,
    account: Arc<str>,
}

/// One turn. It ends when this is dropped.
pub(crate) struct Turn(Option<Arc<Turns>>);

impl Turns {
    /// So many at a time.
    pub(crate) fn new(free: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            free,
            accounts: VecDeque::new(),
            waiting: HashMap::new(),
        })))
    }

    pub(crate) fn of(self: &Arc<Self>, account: &str) -> TurnsOf {
        TurnsOf {
            turns: Arc::clone(self),
            account: account.into(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A turn has ended.
    fn pass_on(self: Arc<Self>) {
        let mut turn = Turn(Some(self));
        while let Some(turns) = turn.0.take() {
            let Some(next) = turns.lock().next() else {
                return;
            };
            turn.0 = Some(turns);
            match next.send(turn) {
                Ok(()) => return,
                // Who waited for it is gone.
                Err(back) => turn = back,
            }
        }
    }
}

impl State {
    /// Whose turn it is. `None`: nobody waits, and the turn is free.
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

impl TurnsOf {
    /// Waits for a turn. Cancel-safe.
    pub(crate) async fn next(&self) -> Turn {
        let given = {
            let mut state = self.turns.lock();
            if state.free > 0 {
                state.free -= 1;
                return Turn(Some(Arc::clone(&self.turns)));
            }
            let (sender, given) = oneshot::channel();
            if !state.waiting.contains_key(&self.account) {
                state.accounts.push_back(Arc::clone(&self.account));
            }
            let account = Arc::clone(&self.account);
            state.waiting.entry(account).or_default().push_back(sender);
            given
        };
        // The queue is never dropped before us; were it, to work at once is the lesser harm.
        given.await.unwrap_or(Turn(None))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            turns.pass_on();
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
    fn turns_of_those_who_are_gone_are_passed_on() {
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
        let state = turns.lock();
        assert_eq!(
            (state.free, state.accounts.len(), state.waiting.len()),
            (2, 0, 0)
        );
    }
}

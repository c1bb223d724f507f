//! How many data channels sessions have in all: those of one account together, and those of one address.
//!
//! Sessions may be processes of their own, and one may die with channels open. So the numbers are the kernel's (semaphores of
//! eventfd(2)): what is left for each account and each address, and for each session what it holds, which whoever outlives it
//! gives back. Each step is a system call that never waits, and nobody is asked.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use godwit_engine::data::Allowance;
use rustix::{
    event::{EventfdFlags, eventfd},
    io::{read, retry_on_intr, write},
};

use crate::{limits::Bounds, metrics::Channels};

/// So many of something, in however many processes.
#[derive(Debug)]
pub(crate) struct Pool(OwnedFd);

/// A session's part in the pools of its account and its address.
#[derive(Debug)]
pub(crate) struct Share {
    account: Arc<Pool>,
    address: Arc<Pool>,
    held: Pool,
    bounds: Bounds,
    /// For who counts; of this process alone.
    now: AtomicU32,
    opened: AtomicU64,
}

impl Pool {
    pub(crate) fn new(count: u32) -> io::Result<Self> {
        let flags = EventfdFlags::SEMAPHORE | EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        Ok(Self(eventfd(count, flags)?))
    }

    /// False: none is left.
    fn take(&self) -> bool {
        retry_on_intr(|| read(&self.0, &mut [0; 8])).is_ok()
    }

    fn give(&self) {
        // It fails above 2^64 - 2 only.
        let _ = retry_on_intr(|| write(&self.0, &1_u64.to_ne_bytes()));
    }
}

impl Share {
    pub(crate) fn new(account: Arc<Pool>, address: Arc<Pool>, bounds: Bounds) -> io::Result<Self> {
        Ok(Self {
            account,
            address,
            held: Pool::new(0)?,
            bounds,
            now: AtomicU32::new(0),
            opened: AtomicU64::new(0),
        })
    }

    /// What another process makes the same share of.
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        [&*self.account, &*self.address, &self.held].map(|pool| pool.0.as_fd())
    }

    /// The other side of [`Self::descriptors`]. `None`: some are missing.
    pub(crate) fn of_descriptors(
        descriptors: &mut impl Iterator<Item = OwnedFd>,
        bounds: Bounds,
    ) -> Option<Self> {
        let mut pool = || descriptors.next().map(Pool);
        Some(Self {
            account: Arc::new(pool()?),
            address: Arc::new(pool()?),
            held: pool()?,
            bounds,
            now: AtomicU32::new(0),
            opened: AtomicU64::new(0),
        })
    }

    /// Those that this process has taken.
    pub(crate) fn channels(&self) -> Channels {
        Channels {
            now: self.now.load(Ordering::Relaxed),
            opened: self.opened.load(Ordering::Relaxed),
        }
    }

    /// False: nothing is held any more.
    fn put_back(&self) -> bool {
        let held = self.held.take();
        if held {
            self.account.give();
            self.address.give();
        }
        held
    }
}

impl Allowance for Share {
    fn take(&self) -> Result<(), String> {
        let too_many = |max, of| Err(format!("more than {max} data channels of one {of}"));
        if !self.account.take() {
            return too_many(self.bounds.channels_per_account, "account");
        }
        if !self.address.take() {
            self.account.give();
            return too_many(self.bounds.channels_per_address, "address");
        }
        self.held.give();
        self.now.fetch_add(1, Ordering::Relaxed);
        self.opened.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn give_back(&self) {
        if self.put_back() {
            self.now.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// What a session leaves behind, in this process or another.
impl Drop for Share {
    fn drop(&mut self) {
        while self.put_back() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds() -> Bounds {
        Bounds {
            channels_per_account: 3,
            channels_per_address: 4,
            ..Bounds::default()
        }
    }

    fn pools() -> (Arc<Pool>, Arc<Pool>, Arc<Pool>) {
        let pool = |count| Arc::new(Pool::new(count).unwrap());
        (pool(3), pool(3), pool(4))
    }

    fn share(account: &Arc<Pool>, address: &Arc<Pool>) -> Share {
        Share::new(Arc::clone(account), Arc::clone(address), bounds()).unwrap()
    }

    /// How many more there may be.
    fn left(share: &Share) -> usize {
        let taken = (0..100).take_while(|_| share.take().is_ok()).count();
        (0..taken).for_each(|_| share.give_back());
        taken
    }

    #[test]
    fn sessions_share_what_their_account_and_their_address_may_have() {
        let (jo, kim, host) = pools();
        let (first, second, other) = (share(&jo, &host), share(&jo, &host), share(&kim, &host));
        assert!(first.take().is_ok() && first.take().is_ok() && second.take().is_ok());
        for of_jo in [&first, &second] {
            let why = of_jo.take().unwrap_err();
            assert_eq!(why, "more than 3 data channels of one account");
        }
        assert_eq!(left(&other), 1);
        assert!(other.take().is_ok());
        let why = other.take().unwrap_err();
        assert_eq!(why, "more than 4 data channels of one address");
        first.give_back();
        assert_eq!((left(&second), left(&other)), (1, 1));
        // What was refused was not counted, and what was given back is given back once.
        for share in [&first, &second, &other] {
            (0..9).for_each(|_| share.give_back());
        }
        assert_eq!((left(&second), left(&other)), (3, 3));
    }

    #[test]
    fn what_a_process_held_that_has_died_is_given_back() {
        let (jo, _, host) = pools();
        let (ours, bystander) = (share(&jo, &host), share(&jo, &host));
        let theirs = ours
            .descriptors()
            .map(|fd| fd.try_clone_to_owned().unwrap());
        let theirs = Share::of_descriptors(&mut theirs.into_iter(), bounds()).unwrap();
        assert!(theirs.take().is_ok() && theirs.take().is_ok());
        assert_eq!(left(&bystander), 1);
        // Nothing of it is run any more.
        std::mem::forget(theirs);
        drop(ours);
        assert_eq!(left(&bystander), 3);
        assert!(Share::of_descriptors(&mut std::iter::empty(), bounds()).is_none());
    }
}

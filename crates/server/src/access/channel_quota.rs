//! The number of data channels of all sessions of one account, and of one address.
//!
//! Sessions may be processes, and a process may die with channels open. So the kernel holds the
//! numbers (eventfd(2)): how many are left for each account and address, and how many each session
//! has taken and given back. From the latter the monitor gives back the rest when the process ends.
//! Each step is one system call that does not block.
//!
//! A compromised session may write any number. The monitor reads each number once, without a loop,
//! and accepts no more than a session can have. Where the number of an account or an address is too
//! high it makes a new one. The channels that such a session takes are lost until the last session
//! of its account and address ends.

use std::{
    fs, io,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use godwit_engine::data::ChannelLimiter;
use rustix::{
    event::{EventfdFlags, eventfd},
    io::{read, retry_on_intr, write},
};

use crate::config::Bounds;
use serde::{Deserialize, Serialize};

/// Data channels of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Channels {
    pub(crate) now: u32,
    /// Since the session began, the present ones among them.
    pub(crate) opened: u64,
}

/// A counter that several processes may share.
#[derive(Debug)]
pub(crate) struct SharedCounter {
    left: OwnedFd,
    max: u32,
}

/// The number of times that an event occurred, perhaps in another process.
#[derive(Debug)]
struct Tally(OwnedFd);

/// A session's part in the pools of its account and its address.
#[derive(Debug)]
pub(crate) struct ChannelQuota {
    account: Arc<SharedCounter>,
    address: Arc<SharedCounter>,
    taken: Tally,
    given: Tally,
    bounds: Bounds,
    /// What this process has taken and not given back.
    now: AtomicU32,
    opened: AtomicU64,
}

impl SharedCounter {
    pub(crate) fn new(max: u32) -> io::Result<Self> {
        let flags = EventfdFlags::SEMAPHORE | EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let left = eventfd(max, flags)?;
        Ok(Self { left, max })
    }

    /// False: none is left.
    fn take(&self) -> bool {
        retry_on_intr(|| read(&self.left, &mut [0; 8])).is_ok()
    }

    fn give(&self, count: u32) {
        add(&self.left, count);
    }

    /// No session has written more into it than there can be.
    pub(crate) fn is_sound(&self) -> bool {
        let path = format!("/proc/self/fdinfo/{}", self.left.as_raw_fd());
        let count = fs::read_to_string(path).ok().and_then(|text| {
            let count = text
                .lines()
                .find_map(|l| l.strip_prefix("eventfd-count:"))?;
            u64::from_str_radix(count.trim(), 16).ok()
        });
        count.is_none_or(|count| count <= u64::from(self.max))
    }
}

impl Tally {
    fn new() -> io::Result<Self> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        Ok(Self(eventfd(0, flags)?))
    }

    fn count(&self) {
        add(&self.0, 1);
    }

    /// How often since this was asked last.
    fn take(&self) -> u64 {
        let mut count = [0; 8];
        match retry_on_intr(|| read(&self.0, &mut count)) {
            Ok(_) => u64::from_ne_bytes(count),
            Err(_) => 0,
        }
    }
}

fn add(counter: &OwnedFd, count: u32) {
    // It fails above 2^64 - 2 only, which is above what anything here can be.
    let _ = retry_on_intr(|| write(counter, &u64::from(count).to_ne_bytes()));
}

impl ChannelQuota {
    pub(crate) fn new(
        account: Arc<SharedCounter>,
        address: Arc<SharedCounter>,
        bounds: Bounds,
    ) -> io::Result<Self> {
        Ok(Self {
            account,
            address,
            taken: Tally::new()?,
            given: Tally::new()?,
            bounds,
            now: AtomicU32::new(0),
            opened: AtomicU64::new(0),
        })
    }

    /// What another process makes the same share of.
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 4] {
        let Self {
            account,
            address,
            taken,
            given,
            ..
        } = self;
        [&account.left, &address.left, &taken.0, &given.0].map(AsFd::as_fd)
    }

    /// The other side of [`Self::descriptors`]. `None`: some are missing.
    pub(crate) fn of_descriptors(
        descriptors: &mut impl Iterator<Item = OwnedFd>,
        bounds: Bounds,
    ) -> Option<Self> {
        let mut next = || descriptors.next();
        let mut pool = |max| Some(Arc::new(SharedCounter { left: next()?, max }));
        Some(Self {
            account: pool(bounds.channels_per_account)?,
            address: pool(bounds.channels_per_address)?,
            taken: Tally(next()?),
            given: Tally(next()?),
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

    /// Channels that were taken in whatever process and not given back, as far as can be.
    fn take_rest(&self) -> u32 {
        let most = self.account.max.min(self.address.max);
        let rest = self.taken.take().saturating_sub(self.given.take());
        u32::try_from(rest).unwrap_or(u32::MAX).min(most)
    }
}

impl ChannelLimiter for ChannelQuota {
    fn acquire(&self) -> Result<(), String> {
        let too_many = |max, of| Err(format!("more than {max} data channels of one {of}"));
        if !self.account.take() {
            return too_many(self.bounds.channels_per_account, "account");
        }
        if !self.address.take() {
            self.account.give(1);
            return too_many(self.bounds.channels_per_address, "address");
        }
        self.taken.count();
        self.now.fetch_add(1, Ordering::Relaxed);
        self.opened.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn release(&self) {
        let now = &self.now;
        let fewer = |now: u32| now.checked_sub(1);
        let held = now.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
        if held.is_ok() {
            self.given.count();
            self.account.give(1);
            self.address.give(1);
        }
    }
}

/// What a session leaves behind, in this process or another.
impl Drop for ChannelQuota {
    fn drop(&mut self) {
        let rest = self.take_rest();
        self.account.give(rest);
        self.address.give(rest);
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

    fn pools() -> (Arc<SharedCounter>, Arc<SharedCounter>, Arc<SharedCounter>) {
        let pool = |count| Arc::new(SharedCounter::new(count).unwrap());
        (pool(3), pool(3), pool(4))
    }

    fn share(account: &Arc<SharedCounter>, address: &Arc<SharedCounter>) -> ChannelQuota {
        ChannelQuota::new(Arc::clone(account), Arc::clone(address), bounds()).unwrap()
    }

    /// How many more there may be.
    fn left(share: &ChannelQuota) -> usize {
        let taken = (0..100).take_while(|_| share.acquire().is_ok()).count();
        (0..taken).for_each(|_| share.release());
        taken
    }

    #[test]
    fn sessions_share_quotas_of_account_and_address() {
        let (jo, kim, host) = pools();
        let (first, second, other) = (share(&jo, &host), share(&jo, &host), share(&kim, &host));
        assert!(first.acquire().is_ok() && first.acquire().is_ok() && second.acquire().is_ok());
        for of_jo in [&first, &second] {
            let why = of_jo.acquire().unwrap_err();
            assert_eq!(why, "more than 3 data channels of one account");
        }
        assert_eq!(left(&other), 1);
        assert!(other.acquire().is_ok());
        let why = other.acquire().unwrap_err();
        assert_eq!(why, "more than 4 data channels of one address");
        first.release();
        assert_eq!((left(&second), left(&other)), (1, 1));
        // What was refused was not counted, and what was given back is given back once.
        for share in [&first, &second, &other] {
            (0..9).for_each(|_| share.release());
        }
        assert_eq!((left(&second), left(&other)), (3, 3));
    }

    #[test]
    fn channels_of_dead_processes_are_released() {
        let (jo, _, host) = pools();
        let (ours, bystander) = (share(&jo, &host), share(&jo, &host));
        let theirs = ours
            .descriptors()
            .map(|fd| fd.try_clone_to_owned().unwrap());
        let theirs = ChannelQuota::of_descriptors(&mut theirs.into_iter(), bounds()).unwrap();
        assert!(theirs.acquire().is_ok() && theirs.acquire().is_ok());
        assert_eq!(left(&bystander), 1);
        // Nothing of it is run any more.
        std::mem::forget(theirs);
        drop(ours);
        assert_eq!(left(&bystander), 3);
        assert!(ChannelQuota::of_descriptors(&mut std::iter::empty(), bounds()).is_none());
    }

    /// A share of another process, which can write what it likes into all that it was given.
    fn hostile(of: &ChannelQuota) -> [OwnedFd; 4] {
        of.descriptors().map(|fd| fd.try_clone_to_owned().unwrap())
    }

    fn write_most(to: &OwnedFd) {
        write(to, &(u64::MAX - 100).to_ne_bytes()).unwrap();
    }

    #[test]
    fn a_session_releases_no_more_than_its_limit() {
        let (jo, _, host) = pools();
        let (ours, bystander) = (share(&jo, &host), share(&jo, &host));
        let [.., taken, _] = hostile(&ours);
        assert!(bystander.acquire().is_ok());
        write_most(&taken);
        // It ends, and no more than the account's three are there, whatever else was taken.
        drop(ours);
        assert!(left(&bystander) <= 5, "{}", left(&bystander));
        assert!(!jo.is_sound());
    }

    #[test]
    fn a_session_that_gives_back_more_than_it_took_gives_nothing() {
        let (jo, _, host) = pools();
        let (ours, bystander) = (share(&jo, &host), share(&jo, &host));
        let [.., given] = hostile(&ours);
        write_most(&given);
        drop(ours);
        assert_eq!(left(&bystander), 3);
        assert!(jo.is_sound() && host.is_sound());
    }

    #[test]
    fn a_pool_with_more_than_there_can_be_is_noticed() {
        let (jo, kim, host) = pools();
        let ours = share(&jo, &host);
        let [account, address, ..] = hostile(&ours);
        write(&account, &1_u64.to_ne_bytes()).unwrap();
        assert!(!jo.is_sound());
        read(&address, &mut [0; 8]).unwrap();
        write_most(&address);
        assert!(!host.is_sound() && kim.is_sound());
        // A full counter takes nothing, and writing to it does not block.
        drop(ours);
    }
}

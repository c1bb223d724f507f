//! Notifications of a mover to sessions, kept until it has nothing else to do.
//!
//! A mover works through a queue of small files faster than a session wakes, and one wake-up for
//! each file would cost more than the file does. So the notifications of one round leave together.
//! They wait for a millisecond at most, or for the one call of storage that lasts longer.

use std::{
    cell::RefCell,
    time::{Duration, Instant},
};

/// Longest wait while the mover goes from one file to the next.
const AGE_MAX: Duration = Duration::from_millis(1);

type Notification = Box<dyn FnOnce()>;

#[derive(Default)]
struct Batch {
    /// This thread calls [`flush`] again and again.
    is_mover: bool,
    notifications: Vec<Notification>,
    since: Option<Instant>,
}

thread_local! {
    static BATCH: RefCell<Batch> = RefCell::default();
}

/// From now on this thread keeps its notifications: it must call [`flush`] before it sleeps or
/// ends.
pub(crate) fn begin() {
    BATCH.with_borrow_mut(|batch| batch.is_mover = true);
}

/// Runs `notification`, which must not block: soon on a mover, at once on other threads. In the
/// order of the calls.
pub fn notify(notification: impl FnOnce() + 'static) {
    let at_once = BATCH.with_borrow_mut(|batch| {
        if !batch.is_mover {
            return Some(notification);
        }
        batch.since.get_or_insert_with(Instant::now);
        batch.notifications.push(Box::new(notification));
        None
    });
    if let Some(notification) = at_once {
        notification();
    }
}

/// Runs all, where the first has waited long enough.
pub(crate) fn flush_if_old() {
    let since = BATCH.with_borrow(|batch| batch.since);
    if since.is_some_and(|since| since.elapsed() >= AGE_MAX) {
        flush();
    }
}

/// Runs all that were kept.
pub(crate) fn flush() {
    let mut notifications = BATCH.with_borrow_mut(|batch| {
        batch.since = None;
        std::mem::take(&mut batch.notifications)
    });
    // Outside the borrow: one notification may lead to another.
    notifications
        .drain(..)
        .for_each(|notification| notification());
    BATCH.with_borrow_mut(|batch| {
        if batch.notifications.is_empty() {
            batch.notifications = notifications;
        }
    });
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, rc::Rc, thread};

    use super::*;

    #[test]
    fn notifications_are_batched_in_order() {
        let heard = Rc::new(RefCell::new(Vec::new()));
        let say = |n: u32| {
            let heard = Rc::clone(&heard);
            notify(move || heard.borrow_mut().push(n));
        };
        say(1);
        assert_eq!(*heard.borrow(), [1]);
        begin();
        (2..5).for_each(say);
        assert_eq!(*heard.borrow(), [1]);
        flush();
        assert_eq!(*heard.borrow(), [1, 2, 3, 4]);
        flush();
        assert_eq!(heard.borrow().len(), 4);
    }

    #[test]
    fn old_news_do_not_wait_for_the_end_of_a_round() {
        begin();
        let heard = Rc::new(Cell::new(false));
        let hears = Rc::clone(&heard);
        notify(move || hears.set(true));
        while !heard.get() {
            thread::yield_now();
            flush_if_old();
        }
    }

    #[test]
    fn notifications_of_notifications_wait() {
        begin();
        let heard = Rc::new(Cell::new(0));
        let (first, second) = (Rc::clone(&heard), Rc::clone(&heard));
        notify(move || {
            first.set(1);
            notify(move || second.set(2));
        });
        flush();
        assert_eq!(heard.get(), 1);
        flush();
        assert_eq!(heard.get(), 2);
    }
}

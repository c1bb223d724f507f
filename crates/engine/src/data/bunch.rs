//! What a mover has to tell, kept until it has nothing else to do.
//!
//! A mover goes through a queue of small files faster than anybody is woken, and whoever were woken
//! for each of them would cost more than the files do. So news of one round leave together. They
//! wait for a millisecond at most, or for the one call of storage that lasts longer.

use std::{
    cell::RefCell,
    time::{Duration, Instant},
};

/// Longest wait while the mover goes from one file to the next.
const AGE_MAX: Duration = Duration::from_millis(1);

type News = Box<dyn FnOnce()>;

#[derive(Default)]
struct Bunch {
    /// This thread comes back to [`tell_all`].
    is_mover: bool,
    news: Vec<News>,
    since: Option<Instant>,
}

thread_local! {
    static BUNCH: RefCell<Bunch> = RefCell::default();
}

/// From now on this thread keeps its news: it must call [`tell_all`] before it sleeps or ends.
pub(super) fn begin() {
    BUNCH.with_borrow_mut(|bunch| bunch.is_mover = true);
}

/// Runs `news`, which must not wait for anybody: soon, on a mover; at once elsewhere. In the order
/// of the calls.
pub fn tell(news: impl FnOnce() + 'static) {
    let at_once = BUNCH.with_borrow_mut(|bunch| {
        if !bunch.is_mover {
            return Some(news);
        }
        bunch.since.get_or_insert_with(Instant::now);
        bunch.news.push(Box::new(news));
        None
    });
    if let Some(news) = at_once {
        news();
    }
}

/// Tells all, where the first has waited long enough.
pub(super) fn tell_if_old() {
    let since = BUNCH.with_borrow(|bunch| bunch.since);
    if since.is_some_and(|since| since.elapsed() >= AGE_MAX) {
        tell_all();
    }
}

/// Tells all that was kept.
pub(super) fn tell_all() {
    let mut news = BUNCH.with_borrow_mut(|bunch| {
        bunch.since = None;
        std::mem::take(&mut bunch.news)
    });
    // Outside: what one says may lead to more.
    news.drain(..).for_each(|news| news());
    BUNCH.with_borrow_mut(|bunch| {
        if bunch.news.is_empty() {
            bunch.news = news;
        }
    });
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, rc::Rc, thread};

    use super::*;

    #[test]
    fn news_wait_on_a_mover_only_and_keep_their_order() {
        let heard = Rc::new(RefCell::new(Vec::new()));
        let say = |n: u32| {
            let heard = Rc::clone(&heard);
            tell(move || heard.borrow_mut().push(n));
        };
        say(1);
        assert_eq!(*heard.borrow(), [1]);
        begin();
        (2..5).for_each(say);
        assert_eq!(*heard.borrow(), [1]);
        tell_all();
        assert_eq!(*heard.borrow(), [1, 2, 3, 4]);
        tell_all();
        assert_eq!(heard.borrow().len(), 4);
    }

    #[test]
    fn old_news_do_not_wait_for_the_end_of_a_round() {
        begin();
        let heard = Rc::new(Cell::new(false));
        let hears = Rc::clone(&heard);
        tell(move || hears.set(true));
        while !heard.get() {
            thread::yield_now();
            tell_if_old();
        }
    }

    #[test]
    fn what_follows_from_news_is_kept_for_the_next_time() {
        begin();
        let heard = Rc::new(Cell::new(0));
        let (first, second) = (Rc::clone(&heard), Rc::clone(&heard));
        tell(move || {
            first.set(1);
            tell(move || second.set(2));
        });
        tell_all();
        assert_eq!(heard.get(), 1);
        tell_all();
        assert_eq!(heard.get(), 2);
    }
}

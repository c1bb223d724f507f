//! Panics are bugs of ours. One in a task or thread becomes an [`Error::Internal`], so that the
//! work of the task counts as failed; nothing else would report it.

use std::{
    any::Any,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    task::Poll,
};

use crate::error::{Error, Result};

/// Runs `work`.
///
/// # Errors
/// It panicked. Its values are dropped; what it borrowed may be half changed, and the caller must
/// not rely on it.
pub(crate) async fn caught<T>(
    doing: impl FnOnce() -> String,
    work: impl Future<Output = T>,
) -> Result<T> {
    let mut work = pin!(work);
    let outcome = poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    });
    outcome.await.map_err(|panic| internal(doing(), &*panic))
}

/// The same for synchronous work.
pub(crate) fn caught_now<T>(doing: impl FnOnce() -> String, work: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| internal(doing(), &*panic))
}

/// Runs `work` on a thread that may block.
///
/// # Errors
/// It panicked.
pub(crate) async fn on_thread<T: Send + 'static>(
    doing: impl FnOnce() -> String,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.map_err(|error| joined_badly(doing(), error))
}

/// The error of a task that could not be joined.
pub(crate) fn joined_badly(doing: impl Into<String>, error: tokio::task::JoinError) -> Error {
    match error.try_into_panic() {
        Ok(panic) => internal(doing.into(), &*panic),
        Err(cancelled) => Error::Internal {
            doing: doing.into(),
            why: cancelled.to_string(),
        },
    }
}

fn internal(doing: String, panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::Internal {
        doing,
        why: format!("panicked: {}", text.unwrap_or("without a message")),
    }
}

/// Panics if a test of a debug build asks for it: `GODWIT_TEST_PANIC` is `WORKER:NAME`, and `name`
/// ends in `NAME`.
#[cfg(debug_assertions)]
pub(crate) fn test_point(worker: &str, name: &dyn std::fmt::Display) {
    use std::sync::LazyLock;
    static ASKED: LazyLock<Option<String>> =
        LazyLock::new(|| std::env::var("GODWIT_TEST_PANIC").ok());
    let asked = ASKED.as_deref().and_then(|asked| asked.split_once(':'));
    if let Some((of, end)) = asked.filter(|(of, _)| *of == worker) {
        let name = name.to_string();
        assert!(!name.ends_with(end), "the test of {of} wants it so");
    }
}

/// Nothing in releases.
#[cfg(not(debug_assertions))]
pub(crate) fn test_point(_worker: &str, _name: &dyn std::fmt::Display) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_internal_error_wherever_it_happens() {
        let doing = || "do it".to_owned();
        let in_task = caught(doing, async {
            tokio::task::yield_now().await;
            panic!("no {}", 1);
        });
        let errors: [Result<()>; 3] = [
            in_task.await,
            caught_now(doing, || panic!("no 1")),
            on_thread(doing, || panic!("no 1")).await,
        ];
        for error in errors.map(Result::unwrap_err) {
            assert!(matches!(error, Error::Internal { .. }));
            assert_eq!(error.to_string(), "do it: internal error: panicked: no 1");
            assert!(!error.may_pass() && error.exit().code() == 4);
        }
        assert_eq!(caught(doing, async { 7 }).await.unwrap(), 7);
    }
}

//! From system errors to [`StorageFailure`]s.

use std::io;

use godwit_proto::error::StorageFailure;
use rustix::io::Errno;

/// The one conversion from an [`io::Error`] to a failure. `doing` says what was tried and on what,
/// e.g. `open /p/f for reading`. An error that carries a failure gives that failure back.
pub fn failure(doing: impl Into<String>, error: &io::Error) -> StorageFailure {
    if let Some(inner) = error
        .get_ref()
        .and_then(|e| e.downcast_ref::<StorageFailure>())
    {
        return inner.clone();
    }
    StorageFailure {
        errno: error.raw_os_error().unwrap_or(0),
        doing: doing.into(),
        text: text_of(error),
    }
}

/// The C library's text without Rust's "(os error 13)", which does not help a reader of the
/// sentence. English, since Rust never calls setlocale.
pub(crate) fn text_of(error: &io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(errno) => {
            let suffix = format!(" (os error {errno})");
            text.strip_suffix(&suffix).unwrap_or(&text).to_owned()
        }
        None => text,
    }
}

/// The failure of a system call of ours.
pub(crate) fn errno_failure(doing: impl Into<String>, errno: Errno) -> StorageFailure {
    failure(doing, &io::Error::from(errno))
}

/// The conversion back, for streams: [`failure`] finds the failure in it again.
pub(crate) fn into_io(failure: StorageFailure) -> io::Error {
    io::Error::other(failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_the_c_librarys_alone() {
        let got = failure("open /p/f for reading", &io::Error::from_raw_os_error(2));
        assert_eq!(got.errno, 2);
        assert_eq!(got.text, "No such file or directory");
        assert_eq!(
            got.to_string(),
            "open /p/f for reading: No such file or directory"
        );
        let ours = failure("read f", &io::Error::other("out of luck"));
        assert_eq!((ours.errno, ours.text.as_str()), (0, "out of luck"));
    }

    #[test]
    fn a_failure_survives_the_trip_through_io() {
        let first = errno_failure("write /f", Errno::NOSPC);
        assert_eq!(failure("copy", &into_io(first.clone())), first);
    }
}

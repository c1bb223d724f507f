//! `mock://` URLs, for test suites of FTS3's clients: nothing is copied, and the queries of both
//! URLs say what becomes of the file. Without the feature `mock-storage` there are none.
//!
//! Of the source `size` and `checksum` are read, of the destination `time`, the seconds that the
//! copy takes, and of both `errno`, why it fails.

use std::time::Duration;

use godwit_service_api::{
    agent::{FileEnd, UnitFile},
    job::{FileError, FileRequest, WhoActs},
};
use rustix::io::Errno;

/// Longest copy: a test waits for it.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Linux has no higher number of an error.
const ERRNO_MAX: i32 = 4096;

/// Both ends of a file are of this scheme.
pub(crate) fn is_mock(file: &FileRequest) -> bool {
    let ends = [&file.source, &file.destination];
    cfg!(feature = "mock-storage") && ends.iter().all(|url| url.starts_with("mock://"))
}

/// How long the copy takes, and what becomes of the file then.
pub(crate) fn copy(file: &UnitFile) -> (Duration, FileEnd) {
    let file = &file.file;
    let seconds = number(&file.destination, "time").unwrap_or(0);
    (Duration::from_secs(seconds).min(TIME_MAX), end(file))
}

fn end(file: &FileRequest) -> FileEnd {
    let ends = [
        (&file.source, WhoActs::Source),
        (&file.destination, WhoActs::Destination),
    ];
    for (url, who) in ends {
        match number(url, "errno") {
            None | Some(0) => {}
            Some(errno) => return FileEnd::Failed(failure(errno, who)),
        }
    }
    let value = |text: &str| text.rsplit(':').next().map(str::to_ascii_lowercase);
    let taken = parameter(&file.source, "checksum").and_then(|text| value(&text));
    let wanted = file.checksum.as_deref().and_then(value);
    if taken.is_some() && wanted.is_some() && taken != wanted {
        return FileEnd::Failed(FileError {
            code: "checksum".to_owned(),
            message: "the mock has another checksum than the job".to_owned(),
            who: WhoActs::User,
            may_pass: false,
        });
    }
    FileEnd::Finished {
        size: number(&file.source, "size").or(file.bytes).unwrap_or(0),
        checksum: file.checksum.clone(),
    }
}

fn failure(errno: u64, who: WhoActs) -> FileError {
    let number = i32::try_from(errno).ok();
    let number = number.filter(|number| (1..ERRNO_MAX).contains(number));
    let errno = number.map_or(Errno::IO, Errno::from_raw_os_error);
    let (code, may_pass) = match errno {
        Errno::NOENT => ("not_found", false),
        Errno::ACCESS | Errno::PERM => ("permission", false),
        Errno::EXIST => ("exists", false),
        Errno::NOSPC => ("no_space", true),
        _ => ("refused", true),
    };
    FileError {
        code: code.to_owned(),
        message: format!("the mock was told to fail: {errno}"),
        who,
        may_pass,
    }
}

fn parameter(url: &str, key: &str) -> Option<String> {
    let (_, query) = url.split_once('?')?;
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    let found = pairs.find(|(name, _)| name == key);
    found.map(|(_, value)| value.into_owned())
}

fn number(url: &str, key: &str) -> Option<u64> {
    parameter(url, key)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(source: &str, destination: &str, checksum: Option<&str>) -> (u64, FileEnd) {
        let file = FileRequest {
            source: format!("mock://a/x?{source}"),
            destination: format!("mock://b/x?{destination}"),
            checksum: checksum.map(str::to_owned),
            ..FileRequest::default()
        };
        let (index, part) = (0, None);
        let (time, end) = copy(&UnitFile { index, file, part });
        (time.as_secs(), end)
    }

    #[test]
    fn queries_say_what_becomes_of_a_file() {
        let finished = |size, checksum: Option<&str>| FileEnd::Finished {
            size,
            checksum: checksum.map(str::to_owned),
        };
        assert_eq!(copied("size=7", "time=3", None), (3, finished(7, None)));
        let wanted = Some("adler32:0a");
        assert_eq!(copied("checksum=0A", "", wanted), (0, finished(0, wanted)));
        let code = |(_, end)| match end {
            FileEnd::Failed(error) => error.code,
            _ => String::new(),
        };
        assert_eq!(code(copied("checksum=0b", "", wanted)), "checksum");
        assert_eq!(code(copied("errno=2", "time=9999", None)), "not_found");
        assert_eq!(code(copied("errno=0", "errno=17", None)), "exists");
        assert_eq!(code(copied("errno=99999999999", "", None)), "refused");
        assert_eq!(copied("", "time=9999", None).0, 60);
    }
}

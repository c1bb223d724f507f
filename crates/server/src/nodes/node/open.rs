//! The files of orders. The front end has looked at the rights of the login, and has created what
//! is received into: a file that is not there is no file of this order.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use godwit_engine::{
    data::Source,
    storage::{File, FileCursor, Storage, WriteMode, line_endings::CrlfReader, listing::Listing},
};
use godwit_proto::{
    FtpPath,
    command::TypeCode,
    error::StorageFailure,
    pi::server::{ListForm, Placement, TransferKind, TransferRequest},
};

use super::fenced_file::FencedFile;
use crate::{
    nodes::{
        messages::{Job, SameFile, Start},
        pulse::Pulse,
    },
    transfers::{
        checks::Checks,
        open::{Opened, now, sink_in, source_of},
    },
};

/// What a [`RunningTransfer`](crate::transfers::RunningTransfer) needs to know of it.
pub(super) fn request_of(Start { job, mode, .. }: &Start) -> TransferRequest {
    let (kind, is_ascii) = match job {
        Job::Send { path, ascii, .. } => {
            let kind = TransferKind::Send {
                path: path.clone(),
                region: None,
                restart: None,
            };
            (kind, *ascii)
        }
        Job::Receive {
            path, base, ascii, ..
        } => {
            let kind = TransferKind::Receive {
                path: path.clone(),
                placement: Placement::At(*base),
                restart: None,
                expected_bytes: None,
                checksums: Vec::new(),
                modify: None,
            };
            (kind, *ascii)
        }
        Job::List { path, form } => {
            let kind = TransferKind::List {
                path: path.clone(),
                form: ListForm::from(form),
            };
            (kind, false)
        }
    };
    TransferRequest {
        kind,
        mode: *mode,
        type_code: match is_ascii {
            true => TypeCode::Ascii,
            false => TypeCode::Image,
        },
        reuse: false,
    }
}

/// Blocks while storage does. `lists`: what the login may list; `pulse`: of the link, without which
/// nothing is written.
pub(super) fn open(
    job: &Job,
    storage: &Arc<dyn Storage>,
    lists: Arc<dyn Storage>,
    pulse: Arc<Pulse>,
) -> Result<Opened, StorageFailure> {
    match job {
        Job::Send {
            path,
            file: same,
            base,
            ranges,
            ascii,
        } => {
            let file = storage.open_read(path)?;
            check(&*file, path, *same)?;
            let (base, ranges) = (*base, ranges.ranges());
            if !ascii {
                return Ok(source_of(Source::File { file, base, ranges }));
            }
            let start = ranges.first().map_or(0, |range| range.start);
            let end = ranges.last().map_or(0, |range| range.end);
            let bytes =
                FileCursor::new(file, base.saturating_add(start)).until(base.saturating_add(end));
            Ok(source_of(Source::Stream(Box::new(CrlfReader::new(bytes)))))
        }
        Job::Receive {
            path,
            file: same,
            base,
            stream_start,
            limit,
            ascii,
        } => {
            let file = storage.open_write(path, WriteMode::Existing)?;
            check(&*file, path, *same)?;
            let file = FencedFile::over(file, pulse);
            let checks = Checks::new(Arc::clone(storage), path.clone(), Vec::new(), None);
            Ok(sink_in(file, *base, *stream_start, *limit, !ascii, checks))
        }
        Job::List { path, form } => {
            let listing = Listing::open(lists, path, ListForm::from(form), now())?;
            Ok(source_of(Source::Stream(Box::new(listing))))
        }
    }
}

/// Refuses a file that is not the one which the front end has opened.
fn check(file: &dyn File, path: &FtpPath, same: SameFile) -> Result<(), StorageFailure> {
    let metadata = file.metadata()?;
    let is_same = match same {
        SameFile::Inode(inode) => inode == metadata.unique.1,
        SameFile::Looks {
            size,
            seconds,
            nanoseconds,
        } => {
            let since = metadata.modified.duration_since(SystemTime::UNIX_EPOCH);
            let changed = Duration::new(seconds, nanoseconds);
            size == metadata.size && since.is_ok_and(|since| since == changed)
        }
        SameFile::Unknown => true,
    };
    if is_same {
        return Ok(());
    }
    Err(StorageFailure {
        errno: 0,
        doing: format!("open {path}"),
        text: "here the name leads to another file than at the front end: it was replaced at this \
               moment, or another file system is mounted there; repeat the command, and if that \
               does not help, compare the mounts of both"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use godwit_engine::storage::PosixStorage;

    use super::*;
    use crate::nodes::messages::Spans;

    fn send(file: SameFile) -> Job {
        Job::Send {
            path: FtpPath::new("/f").unwrap(),
            file,
            base: 0,
            ranges: Spans::default(),
            ascii: false,
        }
    }

    fn receive(file: SameFile) -> Job {
        Job::Receive {
            path: FtpPath::new("/f").unwrap(),
            file,
            base: 0,
            stream_start: 0,
            limit: None,
            ascii: false,
        }
    }

    #[test]
    fn a_name_that_leads_to_another_file_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let at = |name| root.path().join(name);
        let storage: Arc<dyn Storage> = Arc::new(PosixStorage::rooted(root.path()).unwrap());
        let pulse = Arc::new(Pulse::new());
        let opened =
            |job: &Job| open(job, &storage, Arc::clone(&storage), Arc::clone(&pulse)).map(drop);
        fs::write(at("f"), b"one").unwrap();
        let one = storage.stat(&FtpPath::new("/f").unwrap()).unwrap();
        let since = one.modified.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let inode = SameFile::Inode(one.unique.1);
        let looks = SameFile::Looks {
            size: 3,
            seconds: since.as_secs(),
            nanoseconds: since.subsec_nanos(),
        };
        for same in [inode, looks, SameFile::Unknown] {
            assert!(opened(&send(same)).is_ok(), "{same:?}");
            assert!(opened(&receive(same)).is_ok(), "{same:?}");
        }
        fs::write(at("other"), b"other").unwrap();
        fs::rename(at("other"), at("f")).unwrap();
        for job in [send(inode), receive(inode), send(looks)] {
            let failure = opened(&job).unwrap_err();
            assert_eq!(failure.doing, "open /f");
            assert!(failure.text.contains("repeat the command"), "{failure}");
        }
        assert!(opened(&receive(SameFile::Unknown)).is_ok());
        fs::remove_file(at("f")).unwrap();
        assert!(opened(&receive(SameFile::Unknown)).is_err(), "none is made");
    }
}

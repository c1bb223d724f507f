//! The files that a session moved last, with their sizes and checksums. The command behind a
//! transfer often asks for either, and to open and read a small file again costs more than to send
//! it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use godwit_engine::{
    data::{Sink, Source, TransferJob},
    storage::{FileRef, HashingFile},
};
use godwit_proto::{
    ByteRange, ChecksumAlgorithm, FtpPath,
    pi::server::{Placement, Request, TransferKind, TransferRequest},
};

use super::reorder::temporary;

/// What is summed while it passes: our own client asks for nothing else of small files.
const ALGORITHM: ChecksumAlgorithm = ChecksumAlgorithm::Crc32c;

/// Files that are remembered, and held open: transfers that follow each other closely begin before
/// what is asked of those before them.
const FILES_MAX: usize = 32;

/// The last files, for the requests behind them.
#[derive(Default)]
pub(crate) struct RecentFiles(Mutex<Recent>);

#[derive(Default)]
struct Recent {
    /// This client asks for checksums: other sessions do not compute them.
    asked: bool,
    passed: VecDeque<RecentFile>,
}

struct RecentFile {
    path: FtpPath,
    file: FileRef,
    /// The same file, where its bytes are summed.
    summed: Option<Arc<HashingFile>>,
    /// Of a file that was sent: when it was changed, as it was opened.
    modified: Option<SystemTime>,
}

/// What a whole file is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KnownFile {
    pub(crate) bytes: u64,
    /// Its checksum, where one was asked for.
    pub(crate) digest: Option<String>,
}

impl RecentFiles {
    /// The next transfer begins, and what passed before is forgotten if it may be changed by it.
    /// The same job, summed where that may be of use. `modified`: of a file to be sent.
    pub(crate) fn begin(
        &self,
        request: &TransferRequest,
        job: TransferJob,
        modified: Option<SystemTime>,
    ) -> TransferJob {
        let mut last = self.lock();
        let is_kept = match &request.kind {
            // Of one with a temporary name the size at least is asked.
            TransferKind::Receive { path, .. } if temporary(path).is_some() => {
                last.passed.retain(|passed| passed.path != *path);
                true
            }
            TransferKind::Receive { .. } => {
                last.passed.clear();
                last.asked
            }
            _ => last.asked,
        };
        if !is_kept {
            return job;
        }
        let mut keep = |path: &FtpPath, file| {
            let summed = last
                .asked
                .then(|| HashingFile::new(FileRef::clone(&file), ALGORITHM));
            let file = summed.clone().map_or(file, |summed| summed);
            last.passed.retain(|passed| passed.path != *path);
            last.passed.truncate(FILES_MAX - 1);
            last.passed.push_front(RecentFile {
                path: path.clone(),
                file: FileRef::clone(&file),
                summed,
                modified,
            });
            file
        };
        match (job, &request.kind) {
            (
                TransferJob::Send(Source::File {
                    file,
                    base: 0,
                    ranges,
                }),
                TransferKind::Send {
                    path,
                    region: None,
                    restart: None,
                },
            ) if is_small(&ranges) => TransferJob::Send(Source::File {
                file: keep(path, file),
                base: 0,
                ranges,
            }),
            (
                TransferJob::Receive(Sink::File {
                    file,
                    base: 0,
                    stream_start,
                    limit,
                }),
                // It was emptied.
                TransferKind::Receive {
                    path,
                    placement: Placement::Replace,
                    restart: None,
                    ..
                },
            ) => TransferJob::Receive(Sink::File {
                file: keep(path, file),
                base: 0,
                stream_start,
                limit,
            }),
            (job, _) => job,
        }
    }

    /// What is known of the file that `request` asks for, where it has just passed, whole, and
    /// it has not changed since. It is forgotten, and so is whatever passed before it, and all
    /// that a request may change which asks for something else.
    pub(crate) fn take(&self, request: &Request) -> Option<KnownFile> {
        let (algorithm, path) = match request {
            Request::Checksum {
                algorithm,
                offset: 0,
                length: None,
                path,
            } => (Some(*algorithm), path),
            Request::Commit { from, expected, .. } => match &expected.checksums[..] {
                [] => (None, from),
                [(algorithm, _)] => (Some(*algorithm), from),
                _ => {
                    self.forget();
                    return None;
                }
            },
            Request::Stat(_) => return None,
            _ => {
                self.forget();
                return None;
            }
        };
        let passed = {
            let mut last = self.lock();
            last.asked |= algorithm == Some(ALGORITHM);
            let at = last.passed.iter().position(|passed| passed.path == *path)?;
            last.passed.drain(at..).next()?
        };
        let now = passed.file.metadata().ok()?;
        let bytes = now.size;
        let Some(algorithm) = algorithm else {
            let digest = None;
            return Some(KnownFile { bytes, digest });
        };
        let summed = passed.summed.filter(|of| of.algorithm() == algorithm)?;
        let (summed, digest) = summed.finish()?;
        let untouched =
            summed == bytes && passed.modified.is_none_or(|before| before == now.modified);
        untouched.then_some(KnownFile {
            bytes,
            digest: Some(digest),
        })
    }

    /// It may be changed now.
    pub(crate) fn forget(&self) {
        self.lock().passed.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Recent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The whole of a small file; an empty one has no ranges, and nothing to sum.
fn is_small(ranges: &[ByteRange]) -> bool {
    matches!(ranges, [whole] if whole.start == 0 && whole.end <= HashingFile::BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use godwit_engine::storage::{MemoryStorage, Storage, WriteMode};
    use godwit_proto::{
        RestartPoint,
        command::{Mode, Region, TypeCode},
        commit::Expected,
    };

    use super::*;

    fn path(text: &str) -> FtpPath {
        FtpPath::new(text).unwrap()
    }

    fn request(kind: TransferKind) -> TransferRequest {
        TransferRequest {
            kind,
            mode: Mode::ExtendedBlock,
            type_code: TypeCode::Image,
            reuse: true,
        }
    }

    fn sends(region: Option<Region>, restart: Option<RestartPoint>) -> TransferRequest {
        let path = path("/f");
        request(TransferKind::Send {
            path,
            region,
            restart,
        })
    }

    fn cksm(path: FtpPath) -> Request {
        Request::Checksum {
            algorithm: ALGORITHM,
            offset: 0,
            length: None,
            path,
        }
    }

    fn file_of(bytes: &[u8]) -> (Arc<MemoryStorage>, FileRef) {
        let storage = Arc::new(MemoryStorage::new());
        let file = storage.open_write(&path("/f"), WriteMode::New).unwrap();
        file.write_all_at(0, bytes).unwrap();
        (storage, file)
    }

    fn job(file: &FileRef, end: u64) -> TransferJob {
        TransferJob::Send(Source::File {
            file: Arc::clone(file),
            base: 0,
            ranges: vec![ByteRange { start: 0, end }],
        })
    }

    /// As the data plane does.
    fn pass(job: &TransferJob) {
        let TransferJob::Send(Source::File { file, ranges, .. }) = job else {
            panic!("not a file");
        };
        let end = ranges.last().unwrap().end;
        let mut buffer = vec![0; usize::try_from(end).unwrap()];
        file.read_at(0, &mut buffer).unwrap();
    }

    /// A client that has asked once.
    fn asked() -> RecentFiles {
        let last = RecentFiles::default();
        assert_eq!(last.take(&cksm(path("/other"))), None);
        last
    }

    #[test]
    fn only_the_next_request_knows_a_moved_file() {
        let (_storage, file) = file_of(b"123456789");
        let last = asked();
        let send = |last: &RecentFiles| {
            let modified = file.metadata().unwrap().modified;
            pass(&last.begin(&sends(None, None), job(&file, 9), Some(modified)));
        };
        send(&last);
        let known = last.take(&cksm(path("/f"))).unwrap();
        assert_eq!(
            (known.bytes, known.digest.as_deref()),
            (9, Some("e3069283"))
        );
        assert_eq!(last.take(&cksm(path("/f"))), None, "once");
        send(&last);
        last.take(&Request::RemoveFile(path("/f")));
        assert_eq!(last.take(&cksm(path("/f"))), None, "it may be gone");
        send(&last);
        assert_eq!(last.take(&cksm(path("/g"))), None);
        assert!(
            last.take(&cksm(path("/f"))).is_some(),
            "what follows it may have begun"
        );
        send(&RecentFiles::default());
        let no_request = RecentFiles::default();
        send(&no_request);
        assert_eq!(no_request.take(&cksm(path("/f"))), None);
    }

    #[test]
    fn partial_and_changed_files_are_not_known() {
        let (storage, file) = file_of(b"123456789");
        let last = asked();
        let modified = || Some(file.metadata().unwrap().modified);
        let part = Region {
            offset: 0,
            length: 4,
        };
        let again = RestartPoint::Offset(0);
        for request in [sends(Some(part), None), sends(None, Some(again))] {
            pass(&last.begin(&request, job(&file, 9), modified()));
            assert_eq!(last.take(&cksm(path("/f"))), None);
        }
        // Half of it has passed.
        let whole = last.begin(&sends(None, None), job(&file, 9), modified());
        if let TransferJob::Send(Source::File { file, .. }) = &whole {
            file.read_at(0, &mut [0; 4]).unwrap();
        }
        assert_eq!(last.take(&cksm(path("/f"))), None);
        pass(&last.begin(&sends(None, None), job(&file, 9), modified()));
        let later = modified().unwrap() + Duration::from_secs(1);
        storage.set_modified(&path("/f"), later).unwrap();
        assert_eq!(last.take(&cksm(path("/f"))), None);
    }

    #[test]
    fn files_that_follow_each_other_are_each_known() {
        let last = asked();
        let names = (0..40).map(|i| path(&format!("/{i}")));
        let files: Vec<_> = names.map(|name| (name, file_of(b"123456789").1)).collect();
        let send = |name: &FtpPath, file: &FileRef| {
            let mut request = sends(None, None);
            if let TransferKind::Send { path, .. } = &mut request.kind {
                *path = name.clone();
            }
            let modified = file.metadata().unwrap().modified;
            pass(&last.begin(&request, job(file, 9), Some(modified)));
        };
        files.iter().for_each(|(name, file)| send(name, file));
        assert_eq!(last.lock().passed.len(), FILES_MAX);
        assert_eq!(last.take(&cksm(path("/0"))), None, "too many since");
        assert!(last.take(&Request::Stat(path("/9"))).is_none());
        for name in ["/9", "/10", "/39"] {
            assert!(last.take(&cksm(path(name))).is_some(), "{name}");
        }
        assert_eq!(
            last.take(&cksm(path("/38"))),
            None,
            "those before are forgotten"
        );
    }

    /// A name that only one client knows.
    fn begun() -> FtpPath {
        path("/.godwit-0123456789abcdef.part")
    }

    /// "123456789", written as the data plane does.
    fn receive(last: &RecentFiles, path: FtpPath, file: &FileRef, placement: Placement) {
        let kind = TransferKind::Receive {
            path,
            placement,
            restart: None,
            expected_bytes: None,
            checksums: Vec::new(),
            modify: None,
        };
        let sink = Sink::File {
            file: Arc::clone(file),
            base: 0,
            stream_start: 0,
            limit: None,
        };
        let TransferJob::Receive(Sink::File { file, .. }) =
            last.begin(&request(kind), TransferJob::Receive(sink), None)
        else {
            panic!("another job");
        };
        file.write_all_at(0, b"12345").unwrap();
        file.write_all_at(5, b"6789").unwrap();
    }

    fn commit(from: FtpPath, checksums: &[ChecksumAlgorithm]) -> Request {
        Request::Commit {
            from,
            to: path("/g"),
            expected: Expected {
                checksums: Vec::from_iter(checksums.iter().map(|of| (*of, String::new()))),
                ..Expected::default()
            },
        }
    }

    #[test]
    fn a_commit_knows_the_received_file() {
        for name in [path("/f"), begun()] {
            let (_storage, file) = file_of(b"");
            let last = asked();
            let commit = || commit(name.clone(), &[ALGORITHM]);
            receive(&last, name.clone(), &file, Placement::Replace);
            let known = last.take(&commit()).unwrap();
            assert_eq!(
                (known.bytes, known.digest.as_deref()),
                (9, Some("e3069283"))
            );
            // Something may lie behind what is written.
            receive(&last, name.clone(), &file, Placement::At(0));
            assert_eq!(last.take(&commit()), None);
            receive(&last, name.clone(), &file, Placement::Replace);
            receive(&last, name.clone(), &file, Placement::At(0));
            assert_eq!(last.take(&commit()), None, "{name} was written again");
            receive(&last, name.clone(), &file, Placement::Replace);
            file.write_all_at(9, b"0").unwrap();
            assert_eq!(
                last.take(&commit()),
                None,
                "another session has added to {name}"
            );
        }
    }

    #[test]
    fn the_size_of_a_temporary_file_is_known() {
        let (_storage, file) = file_of(b"");
        let last = RecentFiles::default();
        let bytes = |last: &RecentFiles, name| last.take(&commit(name, &[])).map(|k| k.bytes);
        receive(&last, begun(), &file, Placement::Replace);
        file.write_all_at(9, b"0").unwrap();
        assert_eq!(bytes(&last, begun()), Some(10), "as it is by now");
        assert_eq!(bytes(&last, begun()), None, "once");
        receive(&last, begun(), &file, Placement::Replace);
        last.take(&Request::RemoveFile(begun()));
        assert_eq!(bytes(&last, begun()), None, "it may be gone");
        receive(&last, begun(), &file, Placement::Replace);
        let summed = commit(begun(), &[ALGORITHM]);
        assert_eq!(last.take(&summed), None, "no checksum was requested");
        receive(&last, path("/f"), &file, Placement::Replace);
        assert_eq!(bytes(&last, path("/f")), Some(10), "asked by now");
        let no_request = RecentFiles::default();
        receive(&no_request, path("/f"), &file, Placement::Replace);
        assert_eq!(bytes(&no_request, path("/f")), None);
    }
}

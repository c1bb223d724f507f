//! Requests that touch storage: each runs on a blocking thread and answers through a short queue.
//!
//! The queue is what bounds a big listing: its thread waits until the session, which waits for its client, takes
//! the next page. A session that ends closes the queue, and that ends the work.

use std::{net::TcpListener, sync::Arc};

use godwit_engine::{
    digest,
    storage::{FileKind, Storage, listing::directory_facts},
};
use godwit_proto::{
    ChecksumAlgorithm, FtpPath,
    error::StorageFailure,
    facts::Facts,
    pi::server::{Outcome, Request},
};
use rustix::io::Errno;
use tokio::sync::{Semaphore, mpsc};

use crate::{
    data_channels::ListenPlan,
    durability::{Committer, Durability},
    failure,
    opening::system_time,
    security::HandshakeStep,
};

/// Entries of one MLSC page: some 100 KiB of facts, well below what pauses a session.
const PAGE_ENTRIES: usize = 500;

/// Answers that may wait for the session.
const ANSWERS_QUEUED: usize = 2;

/// One answer to the outstanding request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The result, or a page of it that is not the last.
    Done(Result<Outcome, StorageFailure>),
    /// Octets a checksum has seen.
    Progress(u64),
    /// A listener for data connections; the last answer.
    Listener(ListenPlan, TcpListener),
    /// What an ADAT came to; the last answer.
    Handshake(Box<HandshakeStep>),
    /// The account of the user that asked for this name; the last answer.
    Login {
        user: String,
        account: Result<String, StorageFailure>,
    },
}

/// A request that runs. Dropping it ends the work at the next chance.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    answers: mpsc::Receiver<Answer>,
}

impl PendingRequest {
    /// Starts `request`. `checksums` says how many checksums may run in the whole server: they keep a core busy each,
    /// and everything else must get a turn.
    pub(crate) fn start(
        request: Request,
        committer: &Arc<Committer>,
        checksums: &Arc<Semaphore>,
    ) -> Self {
        let storage = committer.storage();
        let (sender, answers) = mpsc::channel(ANSWERS_QUEUED);
        let replier = Replier(sender);
        if matches!(request, Request::Checksum { .. }) {
            let checksums = Arc::clone(checksums);
            tokio::spawn(async move {
                // The semaphore is never closed; were it, running at once is the lesser harm.
                let permit = tokio::select! {
                    permit = checksums.acquire_owned() => permit.ok(),
                    () = replier.0.closed() => return,
                };
                tokio::task::spawn_blocking(move || {
                    run(request, &*storage, &replier);
                    drop(permit);
                });
            });
        } else if let directories = named_by(&request)
            && !directories.is_empty()
            && committer.durability() != Durability::None
        {
            let committer = Arc::clone(committer);
            tokio::spawn(async move {
                let run = move || run_simple(request, &*storage);
                let mut result = tokio::task::spawn_blocking(run)
                    .await
                    .unwrap_or_else(|_| Err(failure(Errno::IO, "carry out the command")));
                if result.is_ok()
                    && let Err(failure) = committer.commit(None, directories).await
                {
                    result = Err(failure);
                }
                // The session may be gone.
                drop(replier.0.send(Answer::Done(result)).await);
            });
        } else {
            tokio::task::spawn_blocking(move || run(request, &*storage, &replier));
        }
        Self { answers }
    }

    /// Starts to listen for data connections.
    pub(crate) fn listen(plan: ListenPlan) -> Self {
        Self::of(move || match plan.open() {
            Ok(listener) => Answer::Listener(plan, listener),
            Err(failure) => Answer::Done(Err(failure)),
        })
    }

    /// Starts what has one answer, and may block its thread.
    pub(crate) fn of(work: impl FnOnce() -> Answer + Send + 'static) -> Self {
        let (sender, answers) = mpsc::channel(ANSWERS_QUEUED);
        tokio::task::spawn_blocking(move || {
            // Where the session is gone, so is what the answer holds.
            drop(sender.blocking_send(work()));
        });
        Self { answers }
    }

    /// The next answer. Cancel-safe. After the last one an error: the session must not ask again.
    pub(crate) async fn next(&mut self) -> Answer {
        self.answers.recv().await.unwrap_or_else(|| {
            // The thread panicked: a fault of ours, and the client is still owed a reply.
            Answer::Done(Err(StorageFailure {
                errno: 0,
                doing: "carry out the command".to_owned(),
                text: "internal error, see the server's log".to_owned(),
            }))
        })
    }
}

/// The blocking side of the queue.
struct Replier(mpsc::Sender<Answer>);

impl Replier {
    /// False where nobody listens any more.
    fn answer(&self, result: Result<Outcome, StorageFailure>) -> bool {
        self.0.blocking_send(Answer::Done(result)).is_ok()
    }

    /// Progress is news only while it is fresh: dropped when the session is busy. False where nobody listens.
    fn progress(&self, octets: u64) -> bool {
        !matches!(
            self.0.try_send(Answer::Progress(octets)),
            Err(mpsc::error::TrySendError::Closed(_))
        )
    }
}

fn run(request: Request, storage: &dyn Storage, replier: &Replier) {
    match request {
        Request::ListControl { path } => list_control(storage, &path, replier),
        Request::Checksum {
            algorithm,
            offset,
            length,
            path,
        } => {
            let result = checksum(storage, &path, algorithm, offset, length, replier);
            replier.answer(result.map(Outcome::Checksum));
        }
        other => {
            replier.answer(run_simple(other, storage));
        }
    }
}

/// Directories whose names a request changes so that somebody may rely on them.
fn named_by(request: &Request) -> Vec<FtpPath> {
    match request {
        Request::Rename { from, to } => from.parent().into_iter().chain(to.parent()).collect(),
        Request::MakeDirectory(path) => Vec::from_iter(path.parent()),
        _ => Vec::new(),
    }
}

/// Requests with one answer.
fn run_simple(request: Request, storage: &dyn Storage) -> Result<Outcome, StorageFailure> {
    match request {
        Request::Stat(path) => {
            let facts = storage.stat(&path)?.facts();
            return Ok(Outcome::Facts(Box::new(facts)));
        }
        Request::ChangeDirectory(path) => {
            if storage.stat(&path)?.kind != FileKind::Directory {
                return Err(failure(Errno::NOTDIR, &format!("change to {path}")));
            }
        }
        Request::MakeDirectory(path) => storage.create_dir(&path)?,
        Request::RemoveDirectory(path) => storage.remove_dir(&path)?,
        Request::RemoveFile(path) => storage.remove_file(&path)?,
        Request::RemoveTree(path) => storage.remove_tree(&path)?,
        Request::CheckExists(path) => {
            storage.stat(&path)?;
        }
        Request::Rename { from, to } => storage.rename(&from, &to)?,
        Request::SetModified { path, modify } => {
            storage.set_modified(&path, system_time(modify))?
        }
        Request::SetMode { path, mode } => storage.set_mode(&path, mode)?,
        Request::SetGroup { path, group } => storage.set_group(&path, &group)?,
        Request::Truncate { path, length } => storage.set_len(&path, length)?,
        Request::Symlink { target, link } => storage.symlink(&target, &link)?,
        Request::Reserve { bytes, path } => reserve(storage, bytes, &path)?,
        // The rest needs the session or pages; it never comes here.
        Request::Login { .. }
        | Request::Adat { .. }
        | Request::DataContext(_)
        | Request::Listen(..)
        | Request::ConnectTo(..)
        | Request::WhoAmI
        | Request::ListControl { .. }
        | Request::Checksum { .. } => {
            return Err(failure(Errno::NOSYS, "carry out the command"));
        }
    }
    Ok(Outcome::Done)
}

/// Room as of now; nothing is set aside, so that an abandoned upload leaves nothing to clean up.
fn reserve(storage: &dyn Storage, bytes: u64, path: &FtpPath) -> Result<(), StorageFailure> {
    if storage.free_bytes(path)? < bytes {
        return Err(failure(
            Errno::NOSPC,
            &format!("reserve {bytes} octets for {path}"),
        ));
    }
    Ok(())
}

fn checksum(
    storage: &dyn Storage,
    path: &FtpPath,
    algorithm: ChecksumAlgorithm,
    offset: u64,
    length: Option<u64>,
    replier: &Replier,
) -> Result<String, StorageFailure> {
    let file = storage.open_read(path)?;
    digest::of_file(&*file, algorithm, offset, length, &mut |octets| {
        replier.progress(octets)
    })
}

/// MLSC: the directory itself, its parent, then its entries, page by page.
fn list_control(storage: &dyn Storage, path: &FtpPath, replier: &Replier) {
    let result = list_pages(storage, path, &mut |page| {
        replier.answer(Ok(Outcome::Listing {
            entries: page,
            last: false,
        }))
    });
    match result {
        Ok(Some(last_page)) => {
            replier.answer(Ok(Outcome::Listing {
                entries: last_page,
                last: true,
            }));
        }
        Ok(None) => {}
        Err(failure) => {
            replier.answer(Err(failure));
        }
    }
}

type Page = Vec<(Facts, Vec<u8>)>;

/// Hands full pages to `emit` and returns the last; `None` where `emit` said that nobody wants them.
fn list_pages(
    storage: &dyn Storage,
    path: &FtpPath,
    emit: &mut dyn FnMut(Page) -> bool,
) -> Result<Option<Page>, StorageFailure> {
    let mut page = Vec::new();
    for entry in directory_facts(storage, path)? {
        let entry = entry?;
        if page.len() == PAGE_ENTRIES && !emit(std::mem::take(&mut page)) {
            return Ok(None);
        }
        page.push(entry);
    }
    Ok(Some(page))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use godwit_engine::storage::{MemoryStorage, WriteMode};

    use super::*;

    fn path(text: &str) -> FtpPath {
        FtpPath::new(text).unwrap()
    }

    fn storage() -> Arc<dyn Storage> {
        Arc::new(MemoryStorage::with(1000, Arc::new(SystemTime::now)))
    }

    fn ask(storage: &Arc<dyn Storage>, request: Request) -> Vec<Answer> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let permits = Arc::new(Semaphore::new(1));
        runtime.block_on(async {
            let mut pending = PendingRequest::start(
                request,
                &Committer::new(Durability::None, Arc::clone(storage)),
                &permits,
            );
            let mut answers = Vec::new();
            while let Some(answer) = pending.answers.recv().await {
                answers.push(answer);
            }
            answers
        })
    }

    fn errno(answers: &[Answer]) -> i32 {
        match answers {
            [Answer::Done(Err(failure))] => failure.errno,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_request_is_answered_once() {
        let storage = storage();
        let file = storage.open_write(&path("/f"), WriteMode::New).unwrap();
        file.write_all_at(0, b"123456789").unwrap();
        for request in [
            Request::Stat(path("/f")),
            Request::Stat(path("/none")),
            Request::ChangeDirectory(path("/")),
            Request::MakeDirectory(path("/d")),
            Request::CheckExists(path("/d")),
            Request::Rename {
                from: path("/d"),
                to: path("/e"),
            },
            Request::RemoveDirectory(path("/e")),
            Request::Truncate {
                path: path("/f"),
                length: 3,
            },
            Request::Reserve {
                bytes: 10,
                path: path("/new"),
            },
            Request::Checksum {
                algorithm: ChecksumAlgorithm::Md5,
                offset: 0,
                length: None,
                path: path("/f"),
            },
            Request::ListControl { path: path("/") },
            Request::RemoveTree(path("/f")),
        ] {
            let text = format!("{request:?}");
            let answers = ask(&storage, request);
            assert!(
                matches!(answers[..], [Answer::Done(_)]),
                "{text}: {answers:?}"
            );
        }
    }

    #[test]
    fn failures_keep_their_errno() {
        let storage = storage();
        storage.open_write(&path("/f"), WriteMode::New).unwrap();
        for (request, want) in [
            (Request::ChangeDirectory(path("/f")), Errno::NOTDIR),
            (Request::ChangeDirectory(path("/none")), Errno::NOENT),
            (Request::MakeDirectory(path("/f")), Errno::EXIST),
            (
                Request::Reserve {
                    bytes: 1001,
                    path: path("/new"),
                },
                Errno::NOSPC,
            ),
            (
                Request::ListControl {
                    path: path("/none"),
                },
                Errno::NOENT,
            ),
        ] {
            let text = format!("{request:?}");
            let answers = ask(&storage, request);
            assert_eq!(errno(&answers), want.raw_os_error(), "{text}");
        }
    }

    #[test]
    fn large_directories_come_in_bounded_pages() {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        for i in 0..PAGE_ENTRIES * 2 {
            let name = path(&format!("/{i}"));
            storage.open_write(&name, WriteMode::New).unwrap();
        }
        let answers = ask(&storage, Request::ListControl { path: path("/") });
        let pages: Vec<(usize, bool)> = answers
            .iter()
            .map(|answer| match answer {
                Answer::Done(Ok(Outcome::Listing { entries, last })) => (entries.len(), *last),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(pages, [(500, false), (500, false), (2, true)]);
    }

    #[test]
    fn a_checksum_that_nobody_waits_for_ends() {
        // It would take hours; the runtime waits for its threads when it is dropped.
        let storage: Arc<dyn Storage> =
            Arc::new(godwit_engine::storage::NullStorage::new(u64::MAX / 2));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let permits = Arc::new(Semaphore::new(1));
        let request = Request::Checksum {
            algorithm: ChecksumAlgorithm::Sha512,
            offset: 0,
            length: None,
            path: path("/zeros"),
        };
        runtime.block_on(async {
            let mut pending = PendingRequest::start(
                request,
                &Committer::new(Durability::None, storage),
                &permits,
            );
            assert!(matches!(pending.next().await, Answer::Progress(_)));
        });
    }
}

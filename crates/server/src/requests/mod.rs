//! Requests that touch storage: each runs on blocking threads and answers through a short queue.
//!
//! The queue bounds a large listing: its next page is read when the session, which waits for its
//! client, has taken one. A request that waits, for a client or for its turn, holds no thread. When
//! a session ends it closes the queue, and that ends the request.

mod checksums;
mod storage_calls;

use std::{
    iter::Peekable,
    net::{SocketAddr, TcpListener},
    os::fd::OwnedFd,
    sync::Arc,
    thread,
};

use godwit_engine::{
    data::{self, QueueTurn},
    storage::{Storage, listing::directory_facts},
};
use godwit_proto::{
    FtpPath,
    error::StorageFailure,
    facts::Facts,
    pi::server::{Outcome, Request},
};
use tokio::{
    runtime::Handle,
    sync::{Semaphore, mpsc, oneshot},
};
use tracing::error;

use self::storage_calls::{is_long, must_be_durable, named_by, run_at_once, run_simple};
use crate::{
    access::{
        identity::Admitted,
        security::{HandshakeStep, TlsStep},
        turns::AccountTurns,
    },
    lookahead::reorder::is_passable,
    nodes::front::{MadeStripes, Unfenced, stripes::Stripes},
    observe::class::Class,
    storage::durability::Committer,
    transfers::{
        checksums::blocking,
        data_channels::{DataChannels, ListenPlan},
    },
};

/// Entries of one MLSC page: some 100 KiB of facts, well below what pauses a session.
const PAGE_ENTRIES: usize = 500;

/// Checksums of so few bytes are made by the mover whose turn it is: more would keep the other
/// channels waiting.
const AT_ONCE_BYTES: u64 = 256 * 1024;

/// Answers that may wait for the session.
const ANSWERS_QUEUED: usize = 2;

/// One answer to the outstanding request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The result, or a page of it that is not the last.
    Done(Result<Outcome, StorageFailure>),
    /// Bytes a checksum has seen.
    Progress(u64),
    /// It was queued, and dropped before its turn; the last answer.
    NotStarted(Request),
    /// A listener for data connections; the last answer.
    Listener(ListenPlan, TcpListener),
    /// Stripes on data nodes, and where they listen; the last answer.
    Stripes(Result<(Stripes, Vec<SocketAddr>), StorageFailure>),
    /// Result of an ADAT; the last answer.
    Handshake(Box<HandshakeStep>),
    /// The relay to the session after login, or why there is none; the last answer.
    Entered(Result<OwnedFd, String>),
    /// Result of a step of the TLS handshake; the last answer, and not for the interpreter.
    Tls(Box<TlsStep>),
    /// Result of a login with this name; the last answer.
    Login {
        user: String,
        admitted: Result<Box<Admitted>, (Class, StorageFailure)>,
    },
}

/// A request that runs. Dropping it ends the work at its next check.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    answers: mpsc::Receiver<Answer>,
    /// The request, if it may be dropped before it starts.
    queued: Option<Request>,
}

/// Resolves when queued work does not touch files any more.
pub(crate) struct WorkDone(oneshot::Receiver<()>);

impl WorkDone {
    /// Cancel-safe.
    pub(crate) async fn wait(&mut self) {
        // Nothing is ever sent: it ends when the other end is dropped.
        let _ = (&mut self.0).await;
    }
}

impl PendingRequest {
    /// Starts `request`. Checksums keep a core busy each, and take turns with those of the whole
    /// server.
    pub(crate) fn start(
        request: Request,
        committer: &Arc<Committer>,
        turns: &AccountTurns,
    ) -> Self {
        let (sender, answers) = mpsc::channel(ANSWERS_QUEUED);
        spawn(request, committer, turns, Replier::new(sender));
        Self {
            answers,
            queued: None,
        }
    }

    /// The same on the storage of data nodes. A file gets a name when no node that was lost writes
    /// into it any more.
    pub(crate) fn start_on_nodes(
        request: Request,
        committer: &Arc<Committer>,
        turns: &AccountTurns,
        unfenced: Arc<Unfenced>,
    ) -> Self {
        let from = match &request {
            Request::Rename { from, .. } | Request::Commit { from, .. } => from.clone(),
            _ => return Self::start(request, committer, turns),
        };
        let (sender, answers) = mpsc::channel(ANSWERS_QUEUED);
        let (committer, turns) = (Arc::clone(committer), turns.clone());
        tokio::spawn(async move {
            unfenced.wait(committer.storage(), from).await;
            spawn(request, &committer, &turns, Replier::new(sender));
        });
        Self {
            answers,
            queued: None,
        }
    }

    /// Carries `request` out when what was queued on the data channels before is done, unless `may`
    /// then says no (there is no answer then). A mover does it, but for what takes longer than a
    /// small file. `tell` receives whether it succeeded.
    pub(crate) fn queued(
        request: Request,
        committer: &Arc<Committer>,
        turns: &AccountTurns,
        channels: &DataChannels,
        may: impl FnOnce() -> bool + Send + 'static,
        tell: impl FnOnce(bool) + Send + 'static,
    ) -> (Self, WorkDone) {
        let (sender, answers) = mpsc::channel(ANSWERS_QUEUED);
        let (over_sender, over) = oneshot::channel();
        let pending = Self {
            answers,
            queued: Some(request.clone()),
        };
        let passable = is_passable(&request);
        let (committer, turns) = (Arc::clone(committer), turns.clone());
        let (runtime, passed) = (Handle::current(), Arc::clone(channels.recent_files()));
        channels.queue_work(
            Box::new(move |turn| {
                let mut replier = Replier {
                    answers: sender,
                    turn: Some(turn),
                    _over: Some(over_sender),
                };
                let known = passed.take(&request);
                // Forgotten, perhaps.
                if replier.answers.is_closed() || !may() {
                    return;
                }
                let storage = committer.storage();
                let is_long = known.is_none() && is_long(&request, &*storage);
                if is_long || must_be_durable(&request, &committer) {
                    let _inside = runtime.enter();
                    return spawn(request, &committer, &turns, replier);
                }
                let result = run_at_once(request, known, &*storage);
                tell(result.is_ok());
                replier.end_turn();
                data::notify(move || {
                    replier.answer_blocking(result);
                });
            }),
            passable,
        );
        (pending, WorkDone(over))
    }

    /// Whether it was made for `request`.
    pub(crate) fn is_of(&self, request: &Request) -> bool {
        self.request() == Some(request)
    }

    /// The request, if it was queued.
    pub(crate) fn request(&self) -> Option<&Request> {
        self.queued.as_ref()
    }

    /// Starts to listen for data connections.
    pub(crate) fn listen(plan: ListenPlan) -> Self {
        Self::of(move || match plan.open() {
            Ok(listener) => Answer::Listener(plan, listener),
            Err(failure) => Answer::Done(Err(failure)),
        })
    }

    /// Starts to make stripes on data nodes.
    pub(crate) fn of_stripes(made: impl Future<Output = MadeStripes> + Send + 'static) -> Self {
        let (sender, answers) = mpsc::channel(ANSWERS_QUEUED);
        tokio::spawn(async move {
            tokio::select! {
                made = made => drop(sender.send(Answer::Stripes(made)).await),
                () = sender.closed() => {}
            }
        });
        Self {
            answers,
            queued: None,
        }
    }

    /// Starts work that has one answer and may block its thread.
    pub(crate) fn of(work: impl FnOnce() -> Answer + Send + 'static) -> Self {
        let (sender, answers) = mpsc::channel(ANSWERS_QUEUED);
        tokio::task::spawn_blocking(move || {
            // If the session has ended, the answer is dropped.
            drop(sender.blocking_send(work()));
        });
        Self {
            answers,
            queued: None,
        }
    }

    /// Starts a part of a login, once `turn` is ready and there is a permit. It has a thread of its
    /// own: those of storage may all wait for a disk, which must not delay logins. Nothing is done
    /// if the session ends before.
    pub(crate) fn of_login<T: Send + 'static>(
        permits: &Arc<Semaphore>,
        turn: impl Future<Output = T> + Send + 'static,
        work: impl FnOnce(T) -> Answer + Send + 'static,
    ) -> Self {
        let (sender, answers) = mpsc::channel(ANSWERS_QUEUED);
        let permits = Arc::clone(permits);
        tokio::spawn(async move {
            let turn = tokio::select! {
                turn = turn => turn,
                () = sender.closed() => return,
            };
            // The semaphore is never closed; were it, running at once is the lesser harm.
            let permit = tokio::select! {
                permit = permits.acquire_owned() => permit.ok(),
                () = sender.closed() => return,
            };
            let work = move || {
                drop(sender.blocking_send(work(turn)));
                drop(permit);
            };
            let started = thread::Builder::new().name("login".to_owned()).spawn(work);
            // The session then answers with an internal error.
            if let Err(error) = started {
                error!(%error, "cannot start a thread for a login");
            }
        });
        Self {
            answers,
            queued: None,
        }
    }

    /// The next answer. Cancel-safe. After the last one an error: the session must not ask again.
    pub(crate) async fn next(&mut self) -> Answer {
        let answer = self.answers.recv().await;
        let queued = self.queued.take();
        answer
            .or_else(|| queued.map(Answer::NotStarted))
            .unwrap_or_else(|| {
                // The thread panicked: a bug in the server, and the client still needs a reply.
                Answer::Done(Err(StorageFailure {
                    errno: 0,
                    doing: "carry out the command".to_owned(),
                    text: "internal error, see the server's log".to_owned(),
                }))
            })
    }
}

/// The working side of the queue.
struct Replier {
    answers: mpsc::Sender<Answer>,
    /// Held while work queued behind must wait.
    turn: Option<QueueTurn>,
    _over: Option<oneshot::Sender<()>>,
}

impl Replier {
    fn new(answers: mpsc::Sender<Answer>) -> Self {
        Self {
            answers,
            turn: None,
            _over: None,
        }
    }

    /// False if the session has ended.
    async fn answer(&mut self, result: Result<Outcome, StorageFailure>) -> bool {
        self.end_turn();
        self.answers.send(Answer::Done(result)).await.is_ok()
    }

    /// The only answer, for which there is room.
    fn answer_blocking(&mut self, result: Result<Outcome, StorageFailure>) {
        self.end_turn();
        // The session may have ended.
        drop(self.answers.blocking_send(Answer::Done(result)));
    }

    /// Before the answer: the client may then use the data channels at once.
    fn end_turn(&mut self) {
        self.turn = None;
    }

    /// Dropped if the session is busy, since old progress is useless. False if the session has
    /// ended.
    fn progress(&self, bytes: u64) -> bool {
        if bytes == 0 {
            return !self.answers.is_closed();
        }
        !matches!(
            self.answers.try_send(Answer::Progress(bytes)),
            Err(mpsc::error::TrySendError::Closed(_))
        )
    }
}

/// Runs the request, on a blocking thread if it blocks. Inside the runtime.
fn spawn(request: Request, committer: &Arc<Committer>, turns: &AccountTurns, mut replier: Replier) {
    let storage = committer.storage();
    let computes = matches!(
        request,
        Request::Checksum { .. } | Request::BlockChecksums { .. } | Request::Commit { .. }
    );
    let durable = must_be_durable(&request, committer);
    if let Request::ListControl { path } = request {
        tokio::spawn(list_control(storage, path, replier));
    } else if computes || durable {
        let (committer, turns) = (Arc::clone(committer), turns.clone());
        let directories = named_by(&request);
        tokio::spawn(async move {
            let mut result = match computes {
                true => {
                    let go_on = &mut |bytes| replier.progress(bytes);
                    checksums::answer(request, storage, &turns, go_on).await
                }
                false => blocking(move || run_simple(request, &*storage)).await,
            };
            replier.end_turn();
            if durable
                && result.is_ok()
                && let Err(failure) = committer.commit(None, directories).await
            {
                result = Err(failure);
            }
            replier.answer(result).await;
        });
    } else {
        tokio::task::spawn_blocking(move || {
            replier.answer_blocking(run_simple(request, &*storage));
        });
    }
}

type Entry = Result<(Facts, Vec<u8>), StorageFailure>;
type Entries = Peekable<Box<dyn Iterator<Item = Entry> + Send>>;

/// MLSC: the directory itself, its parent, then its entries, page by page. No thread is held while
/// the client has not read the page before.
async fn list_control(storage: Arc<dyn Storage>, path: FtpPath, mut replier: Replier) {
    let open = move || -> Result<Entries, StorageFailure> {
        let entries: Box<dyn Iterator<Item = Entry> + Send> =
            Box::new(directory_facts(&*storage, &path)?);
        Ok(entries.peekable())
    };
    let mut rest = blocking(open).await;
    loop {
        let page = match rest {
            Ok(entries) => blocking(move || next_page(entries)).await,
            Err(failure) => Err(failure),
        };
        let (result, more) = match page {
            Ok((outcome, more)) => (Ok(outcome), more),
            Err(failure) => (Err(failure), None),
        };
        let is_heard = replier.answer(result).await;
        match more {
            Some(entries) if is_heard => rest = Ok(entries),
            _ => return,
        }
    }
}

/// The next page, and the rest if there is more.
fn next_page(mut entries: Entries) -> Result<(Outcome, Option<Entries>), StorageFailure> {
    let page: Result<Vec<_>, _> = entries.by_ref().take(PAGE_ENTRIES).collect();
    let last = entries.peek().is_none();
    let outcome = Outcome::Listing {
        entries: page?,
        last,
    };
    Ok((outcome, (!last).then_some(entries)))
}

#[cfg(test)]
mod tests {
    use std::{
        future::ready,
        time::{Duration, SystemTime},
    };

    use godwit_engine::storage::{MemoryStorage, WriteMode};
    use godwit_proto::{ChecksumAlgorithm, commit::Expected, timestamp::Timestamp};

    use rustix::io::Errno;

    use super::*;
    use crate::{access::turns::Turns, config::Durability};

    fn path(text: &str) -> FtpPath {
        FtpPath::new(text).unwrap()
    }

    fn storage() -> Arc<dyn Storage> {
        Arc::new(MemoryStorage::with(1000, Arc::new(SystemTime::now)))
    }

    /// A final name is given to a file when no late bytes come any more.
    #[test]
    fn a_file_gets_a_name_when_a_lost_node_is_quiet() {
        let storage = storage();
        let file = storage.open_write(&path("/part"), WriteMode::New).unwrap();
        let file = file.metadata().unwrap().unique;
        let unfenced = Arc::new(Unfenced::default());
        unfenced.add("jo", file, Duration::from_millis(300));
        let committer = Committer::new(Durability::None, Arc::clone(&storage));
        let turns = Turns::new(1).of("jo");
        let rename = Request::Rename {
            from: path("/part"),
            to: path("/whole"),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let quiet = Arc::clone(&unfenced);
            let mut pending = PendingRequest::start_on_nodes(rename, &committer, &turns, quiet);
            let answer = pending.next().await;
            assert!(
                matches!(answer, Answer::Done(Ok(Outcome::Done))),
                "{answer:?}"
            );
        });
        assert_eq!(unfenced.quiet_in(file), Some(Duration::ZERO));
        assert_eq!(storage.stat(&path("/whole")).unwrap().unique, file);
    }

    fn ask(storage: &Arc<dyn Storage>, request: Request) -> Vec<Answer> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let turns = Turns::new(1).of("jo");
        runtime.block_on(async {
            let mut pending = PendingRequest::start(
                request,
                &Committer::new(Durability::None, Arc::clone(storage)),
                &turns,
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

    fn commit(storage: &Arc<dyn Storage>, expected: Expected) -> Vec<Answer> {
        let (from, to) = (path("/.f"), path("/f"));
        ask(storage, Request::Commit { from, to, expected })
    }

    #[test]
    fn only_expected_files_are_renamed() {
        let storage = storage();
        let file = storage.open_write(&path("/.f"), WriteMode::New).unwrap();
        file.write_all_at(0, b"123456789").unwrap();
        let checksums = |value: &str| vec![(ChecksumAlgorithm::Crc32c, value.to_owned())];
        let other_size = Expected {
            size: Some(8),
            ..Expected::default()
        };
        let other_bytes = Expected {
            size: Some(9),
            checksums: checksums("e3069284"),
            ..Expected::default()
        };
        for expected in [other_size, other_bytes] {
            let answers = commit(&storage, expected);
            assert!(
                matches!(&answers[..], [Answer::Done(Ok(Outcome::Unlike { .. }))]),
                "{answers:?}"
            );
            assert!(storage.stat(&path("/f")).is_err());
        }
        let answers = commit(
            &storage,
            Expected {
                size: Some(9),
                checksums: checksums("e3069283"),
                modify: Timestamp::parse("20260101000000"),
            },
        );
        assert!(
            matches!(&answers[..], [Answer::Done(Ok(Outcome::Done))]),
            "{answers:?}"
        );
        let named = storage.stat(&path("/f")).unwrap().facts();
        assert_eq!(named.modify, Timestamp::parse("20260101000000"));
        let gone = commit(&storage, Expected::default());
        assert_eq!(errno(&gone), Errno::NOENT.raw_os_error());
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
            Request::BlockChecksums {
                leaf: 4,
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
    fn set_user_id_and_set_group_id_are_refused() {
        let storage = storage();
        storage.open_write(&path("/f"), WriteMode::New).unwrap();
        let set = |mode| {
            let path = path("/f");
            ask(&storage, Request::SetMode { path, mode })
        };
        let before = storage.stat(&path("/f")).unwrap().facts().unix_mode;
        for mode in [0o4755, 0o2755, 0o6000] {
            let answers = set(mode);
            assert_eq!(errno(&answers), Errno::PERM.raw_os_error());
            let said = format!("{answers:?}");
            assert!(said.contains("are not allowed"), "{said}");
        }
        let now = storage.stat(&path("/f")).unwrap().facts().unix_mode;
        assert_eq!(now, before);
        for mode in [0o755, 0o1777] {
            assert!(matches!(set(mode)[..], [Answer::Done(Ok(_))]));
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
    fn an_abandoned_checksum_ends() {
        // It would take hours; the runtime waits for its threads when it is dropped.
        let storage: Arc<dyn Storage> =
            Arc::new(godwit_engine::storage::NullStorage::new(u64::MAX / 2));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let turns = Turns::new(1).of("jo");
        let request = Request::Checksum {
            algorithm: ChecksumAlgorithm::Sha512,
            offset: 0,
            length: None,
            path: path("/zeros"),
        };
        runtime.block_on(async {
            let mut pending =
                PendingRequest::start(request, &Committer::new(Durability::None, storage), &turns);
            assert!(matches!(pending.next().await, Answer::Progress(_)));
        });
    }

    /// A runtime whose threads for storage are one, which is enough for all that makes progress.
    fn with_one_thread<F: Future>(work: F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        let limit = std::time::Duration::from_secs(60);
        let ended = runtime.block_on(async { tokio::time::timeout(limit, work).await });
        runtime.shutdown_background();
        ended.expect("it waits for a thread that another request holds")
    }

    #[test]
    fn unread_listings_hold_no_thread() {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        for i in 0..PAGE_ENTRIES * (ANSWERS_QUEUED + 3) {
            let name = path(&format!("/{i}"));
            storage.open_write(&name, WriteMode::New).unwrap();
        }
        with_one_thread(async {
            let committer = Committer::new(Durability::None, storage);
            let turns = Turns::new(1).of("jo");
            let start = |request| PendingRequest::start(request, &committer, &turns);
            let mut listings: Vec<_> = (0..3)
                .map(|_| start(Request::ListControl { path: path("/") }))
                .collect();
            // Each has filled its queue when the next page could be read.
            for listing in &mut listings {
                let first = listing.next().await;
                assert!(matches!(first, Answer::Done(Ok(_))), "{first:?}");
            }
            let stat = start(Request::Stat(path("/1"))).next().await;
            assert!(
                matches!(stat, Answer::Done(Ok(Outcome::Facts(_)))),
                "{stat:?}"
            );
        });
    }

    #[test]
    fn checksums_that_take_hours_let_others_through() {
        let zeros = || -> Arc<dyn Storage> {
            Arc::new(godwit_engine::storage::NullStorage::new(u64::MAX / 2))
        };
        with_one_thread(async {
            let turns = Turns::new(1);
            let checksum = |account: &str, length| {
                let request = Request::Checksum {
                    algorithm: ChecksumAlgorithm::Sha512,
                    offset: 0,
                    length,
                    path: path("/zeros"),
                };
                let committer = Committer::new(Durability::None, zeros());
                PendingRequest::start(request, &committer, &turns.of(account))
            };
            let endless: Vec<_> = (0..20).map(|_| checksum("jo", None)).collect();
            for account in ["kim", "jo"] {
                let mut short = checksum(account, Some(1000));
                let answer = short.next().await;
                assert!(matches!(answer, Answer::Done(Ok(_))), "{answer:?}");
            }
            drop(endless);
        });
    }

    #[test]
    fn logins_have_threads_of_their_own() {
        with_one_thread(async {
            let (release, held) = std::sync::mpsc::channel::<()>();
            let hung = tokio::task::spawn_blocking(move || held.recv());
            let permits = Arc::new(Semaphore::new(1));
            let mut login =
                PendingRequest::of_login(&permits, ready(()), |()| Answer::Done(Ok(Outcome::Done)));
            let answer = login.next().await;
            assert!(matches!(answer, Answer::Done(Ok(_))), "{answer:?}");
            drop(release);
            assert!(hung.await.unwrap().is_err());
        });
    }
}

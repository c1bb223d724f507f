//! Servers for tests: in this process, on a free port, with a directory of their own.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use godwit_engine::storage::{
    Storage,
    faulty::{FaultyStorage, Operation},
};
use godwit_server::{Anonymous, Reloader, Server, ServerSettings};
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::client::Ftp;

/// Longest wait for anything in a test: far above what any step takes, so that only a hang meets
/// it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A server that ends with its owner.
pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    /// Where it serves HTTPS, if it does.
    pub(crate) https: Option<SocketAddr>,
    /// Where it serves S3, if it does.
    pub(crate) s3: Option<SocketAddr>,
    /// Where it serves metrics, if it does.
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) reloader: Reloader,
    pub(crate) settings: ServerSettings,
    root: PathBuf,
    directory: Option<TempDir>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl TestServer {
    /// Anonymous users read and write.
    pub(crate) fn start() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut ServerSettings)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut server = Self::at(directory.path(), change);
        server.directory = Some(directory);
        server
    }

    /// Serves `storage`; the directory stays empty.
    pub(crate) fn on(storage: Arc<dyn Storage>, change: impl FnOnce(&mut ServerSettings)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut server = Self::serving(directory.path(), Some(storage), change);
        server.directory = Some(directory);
        server
    }

    pub(crate) fn at(root: &Path, change: impl FnOnce(&mut ServerSettings)) -> Self {
        Self::serving(root, None, change)
    }

    fn serving(
        root: &Path,
        storage: Option<Arc<dyn Storage>>,
        change: impl FnOnce(&mut ServerSettings),
    ) -> Self {
        let mut settings = ServerSettings::new(root, Anonymous::Rw);
        settings.listen = vec!["127.0.0.1:0".parse().unwrap()];
        settings.drain = Duration::ZERO;
        change(&mut settings);
        let (stop, stopped) = oneshot::channel::<()>();
        let (started, address) = std::sync::mpsc::channel();
        let for_server = settings.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let server = match storage {
                    Some(storage) => Server::bind_on(storage, for_server).await,
                    None => Server::bind(for_server).await,
                };
                let server = server.unwrap();
                started
                    .send((
                        server.local_addrs()[0],
                        server.https_addrs().first().copied(),
                        server.s3_addrs().first().copied(),
                        server.metrics_addr(),
                        server.reloader(),
                    ))
                    .unwrap();
                server
                    .run(async {
                        let _ = stopped.await;
                    })
                    .await;
            });
            runtime.shutdown_background();
        });
        let (address, https, s3, metrics, reloader) = address.recv_timeout(PATIENCE).unwrap();
        Self {
            address,
            https,
            s3,
            metrics,
            reloader,
            settings,
            root: root.to_owned(),
            directory: None,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// A client that has read the greeting.
    pub(crate) fn connect(&self) -> Ftp {
        let mut ftp = Ftp::connect(self.address);
        assert_eq!(ftp.reply().code, 220);
        ftp
    }

    /// A client that has logged in and set TYPE I.
    pub(crate) fn login(&self) -> Ftp {
        let mut ftp = self.connect();
        ftp.login();
        ftp
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// Begins the shutdown without waiting for its end.
    pub(crate) fn begin_shutdown(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    /// Waits for the end of `run`.
    pub(crate) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            let result = thread.join();
            if !std::thread::panicking() {
                result.unwrap();
            }
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.begin_shutdown();
        self.join();
    }
}

/// Where the first operations of a storage wait until it opens.
pub(crate) struct Gate {
    entered: AtomicUsize,
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    /// `inner`, whose first `count` operations of a kind wait.
    pub(crate) fn before(
        inner: Arc<dyn Storage>,
        kind: Operation,
        count: u64,
    ) -> (Arc<Self>, Arc<dyn Storage>) {
        let gate = Arc::new(Self {
            entered: AtomicUsize::new(0),
            is_open: Mutex::new(false),
            opened: Condvar::new(),
        });
        let waiting = Arc::clone(&gate);
        let delay = move |operation, number| {
            if operation == kind && number < count {
                waiting.wait();
            }
        };
        let storage = FaultyStorage::new(inner, Vec::new()).with_delay(Arc::new(delay));
        (gate, Arc::new(storage))
    }

    fn wait(&self) {
        self.entered.fetch_add(1, Ordering::SeqCst);
        let is_open = self.is_open.lock().unwrap();
        let waiting = (self.opened).wait_timeout_while(is_open, PATIENCE, |is_open| !*is_open);
        drop(waiting.unwrap());
    }

    pub(crate) fn entered(&self) -> usize {
        self.entered.load(Ordering::SeqCst)
    }

    pub(crate) fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

/// Bytes that differ from place to place and from seed to seed, so that a misplaced block shows.
pub(crate) fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length)
        .map(|i| {
            let mixed = (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed.to_be_bytes()[2] ^ seed
        })
        .collect()
}

/// For states that announce themselves by nothing: asked again and again, within [`PATIENCE`].
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

//! A service on a database of its own, agents, and GridFTP servers, all in this process.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use godwit_client::spec::{Connections, Rates, Ssh};
use godwit_server::{Anonymous, Server, ServerSettings};
use godwit_service::{
    accounts::{Accounts, oidc::Issuers},
    agent::{self, Authentication, Config},
    config::KeySource,
    credentials::Vault,
    gateway::{self, Gateway},
    scheduling::{self, Board},
    store::{Begun, Quota, Store, model::JobRecord},
};
use godwit_service_api::{
    AGENT_API,
    agent::{AddressScope, PollRequest, PollResponse},
    job::{FileRequest, JobOptions},
    site::Role,
};
use tempfile::TempDir;
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
};
use uuid::Uuid;

/// Long enough for an agent to renew it, short enough for a test to wait for its end.
pub(crate) const LEASE: Duration = Duration::from_secs(13);

/// Larger files are divided.
pub(crate) const DIVIDE_ABOVE: u64 = 8 << 20;

/// A server of ours on a directory of its own, open to anonymous users.
pub(crate) struct Served {
    pub(crate) root: TempDir,
    address: SocketAddr,
    _shutdown: oneshot::Sender<()>,
}

impl Served {
    pub(crate) fn start() -> Self {
        let root = tempfile::tempdir().unwrap();
        Self::start_at("127.0.0.1:0".parse().unwrap(), root)
    }

    pub(crate) fn start_at(address: SocketAddr, root: TempDir) -> Self {
        Self::start_so(root, |settings| settings.listen = vec![address])
    }

    /// With other settings.
    pub(crate) fn start_with(change: impl FnOnce(&mut ServerSettings)) -> Self {
        Self::start_so(tempfile::tempdir().unwrap(), |settings| {
            settings.listen = vec!["127.0.0.1:0".parse().unwrap()];
            change(settings);
        })
    }

    fn start_so(root: TempDir, change: impl FnOnce(&mut ServerSettings)) -> Self {
        let mut settings = ServerSettings::new(root.path(), Anonymous::Rw);
        change(&mut settings);
        let (shutdown, over) = oneshot::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let server = Server::bind(settings).await.unwrap();
                tell.send(server.local_addrs()[0]).unwrap();
                let over = async {
                    let _ = over.await;
                };
                server.run(over).await;
            });
        });
        Self {
            root,
            address: told.recv().unwrap(),
            _shutdown: shutdown,
        }
    }

    /// Ends it. Its address and its files stay.
    pub(crate) async fn stop(self) -> (SocketAddr, TempDir) {
        drop(self._shutdown);
        while tokio::net::TcpStream::connect(self.address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        (self.address, self.root)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("ftp://{}{path}", self.address)
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    pub(crate) fn write(&self, path: &str, content: &[u8]) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
}

/// Leader and gateway.
pub(crate) struct Service {
    pub(crate) store: Store,
    pub(crate) board: Arc<Board>,
    pub(crate) vault: Vault,
    accounts: Arc<Accounts>,
    url: String,
    stop: watch::Sender<bool>,
    _folder: TempDir,
}

impl Service {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}?mode=rwc", folder.path().join("db").display());
        let store = Store::migrate(&url).await.unwrap();
        let store = store.with_lease(LEASE).with_divide_above(DIVIDE_ABOVE);
        let board = Arc::<Board>::default();
        let accounts = Arc::new(Accounts::new(store.clone(), Issuers::default()));
        let key = KeySource::File(folder.path().join("key")).read().unwrap();
        let vault = Vault::new(store.clone(), key);
        let gateway = Gateway {
            store: store.clone(),
            accounts: Arc::clone(&accounts),
            vault: vault.clone(),
            addresses: AddressScope::Site,
            board: Arc::clone(&board),
            traces: Default::default(),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(serve(listener, gateway::router(gateway)));
        let stop = lead(&store, &board, "first");
        Self {
            store,
            board,
            vault,
            accounts,
            url,
            stop,
            _folder: folder,
        }
    }

    /// Another node of the service. It follows until nobody leads, and ends with what is returned.
    pub(crate) fn node(&self, name: &'static str) -> (Arc<Board>, watch::Sender<bool>) {
        let board = Arc::<Board>::default();
        let stop = lead(&self.store, &board, name);
        (board, stop)
    }

    /// The node that leads ends; its gateway continues.
    pub(crate) fn stop_leading(&self) {
        self.stop.send_replace(true);
    }

    pub(crate) async fn submit(&self, files: Vec<FileRequest>, options: JobOptions) -> Uuid {
        let begun = self.store.submit("alice", None, &options, Quota::NONE);
        let begun = begun.await.unwrap();
        let Begun::New(mut submission) = begun else {
            panic!("no key was given");
        };
        for file in files {
            submission.push(file).await.unwrap();
        }
        let job = submission.finish().await.unwrap();
        self.board.work_came();
        job
    }

    /// Waits for the end of a job.
    pub(crate) async fn ended(&self, job: Uuid) -> JobRecord {
        self.until(job, Duration::from_secs(90), |job| job.state.is_final())
            .await
    }

    pub(crate) async fn until(
        &self,
        job: Uuid,
        limit: Duration,
        is_so: impl Fn(&JobRecord) -> bool,
    ) -> JobRecord {
        let began = Instant::now();
        loop {
            let record = self.store.job(job).await.unwrap();
            if is_so(&record) {
                return record;
            }
            let why = self.board.job(job).why;
            assert!(began.elapsed() < limit, "waits: {record:?} {why:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A token that an agent of this name may poll with.
    pub(crate) async fn token(&self, name: &str) -> String {
        self.accounts.ensure(name, Role::Agent).await.unwrap();
        self.accounts.new_token(name, "", None).await.unwrap().token
    }

    /// An agent as a process of its own, that writes to `local` as a [`slow`] one.
    pub(crate) async fn agent_process(&self, name: &str, local: &Path) -> (Killed, TempDir) {
        let state = tempfile::tempdir().unwrap();
        let token = state.path().join("token");
        std::fs::write(&token, self.token(name).await).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_godwit-service"))
            .env("HOME", state.path())
            .env_remove("XDG_STATE_HOME")
            .args(["agent", "--service", &self.url, "--name", name])
            .args(["--max-rate", "33554432", "--allow-local"])
            .arg(local)
            .arg("--token-file")
            .arg(token)
            .arg("--state")
            .arg(state.path().join("state"))
            .stderr(Stdio::null())
            .spawn();
        (Killed(process.unwrap()), state)
    }

    /// One poll, as an agent sends it.
    pub(crate) async fn poll(&self, token: &str, poll: &PollRequest) -> PollResponse {
        let post = reqwest::Client::new().post(format!("{}{AGENT_API}/poll", self.url));
        let answer = post.bearer_auth(token).json(poll).send().await.unwrap();
        answer.error_for_status().unwrap().json().await.unwrap()
    }

    pub(crate) async fn agent(&self, name: &str, change: impl FnOnce(&mut Config)) -> Agent {
        Agent::start(&self.url, self.token(name).await, name, change)
    }
}

/// A process that does not outlive its test.
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

fn lead(store: &Store, board: &Arc<Board>, node: &'static str) -> watch::Sender<bool> {
    let (stop, mut stopped) = watch::channel(false);
    let (store, board) = (store.clone(), Arc::clone(board));
    tokio::spawn(async move {
        let stop = async move {
            let _ = stopped.wait_for(|stop| *stop).await;
        };
        scheduling::run(store, &board, node, stop).await;
    });
    stop
}

pub(crate) async fn serve(listener: tokio::net::TcpListener, router: axum::Router) {
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        let router = router.clone();
        tokio::spawn(async move {
            let io = hyper_util::rt::TokioIo::new(socket);
            let service = hyper_util::service::TowerToHyperService::new(router);
            let builder =
                hyper_util::server::conn::auto::Builder::new(hyper_util::rt::TokioExecutor::new());
            // An agent that goes away is no failure.
            let _ = builder.serve_connection(io, service).await;
        });
    }
}

pub(crate) struct Agent {
    task: JoinHandle<()>,
    pub(crate) state: TempDir,
    _stop: oneshot::Sender<()>,
}

impl Agent {
    pub(crate) fn start(
        url: &str,
        token: String,
        name: &str,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let state = tempfile::tempdir().unwrap();
        let mut config = Config {
            service: url.to_owned(),
            authentication: Authentication {
                token: Some(token.into()),
                ..Authentication::default()
            },
            name: name.to_owned(),
            state: state.path().join("state"),
            labels: Vec::new(),
            endpoints: vec!["*".to_owned()],
            slots: 4,
            connections: connections(state.path()),
            own_credentials: false,
            local: Vec::new(),
            rates: Rates::default(),
            drain: Duration::from_secs(5),
            traces: Default::default(),
        };
        change(&mut config);
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let stop = async {
                let _ = stopped.await;
            };
            agent::run(config, stop).await.unwrap();
        });
        Self {
            task,
            state,
            _stop: stop,
        }
    }

    /// It renews its lease no more and reports nothing. Its units' threads live on until their
    /// bytes are moved, as those of an agent that the network has cut off.
    pub(crate) fn cut_off(self) -> TempDir {
        self.task.abort();
        self.state
    }

    pub(crate) async fn drain(self) {
        drop(self._stop);
        self.task.await.unwrap();
    }
}

/// Nothing of the user who runs the tests.
fn connections(folder: &Path) -> Connections {
    Connections {
        stall_limit: Duration::from_secs(20),
        secrets: Default::default(),
        authorities: Default::default(),
        addresses: Default::default(),
        data_hosts: Vec::new(),
        stripe_block: None,
        port_range: None,
        protect: None,
        locations: godwit_gsi::cert::files::Locations {
            proxy: folder.join("proxy"),
            user: Vec::new(),
            host: Vec::new(),
            authorities: Vec::new(),
            gridmap: folder.join("gridmap"),
        },
        proxies: Vec::new(),
        subjects: Vec::new(),
        granted: Default::default(),
        ssh: Ssh::default(),
        buckets: Default::default(),
        kept: None,
    }
}

pub(crate) fn file(source: String, destination: String) -> FileRequest {
    FileRequest {
        source,
        destination,
        ..FileRequest::default()
    }
}

/// Bytes without a pattern that a shifted copy could share.
pub(crate) fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut out = Vec::with_capacity(length + 8);
    while out.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(length);
    out
}

/// Local files in a folder, at 4 MiB a second.
pub(crate) fn slow(config: &mut Config, folder: &Path) {
    config.local = vec![folder.to_owned()];
    config.rates.own_bps = Some(8 * (4 << 20));
}

//! The data nodes of a front end: which are well, and which is least busy.
//!
//! From time to time the front end makes a file below the root, and asks every node what is in it:
//! a node that cannot tell does not see the same files. A node that is not well is left out, with a
//! message that says who must do what, and taken back when it is.

use std::{
    collections::BTreeMap,
    fmt,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use godwit_engine::storage::{Storage, WriteMode};
use godwit_proto::{FtpPath, error::StorageFailure, temporary::temporary_name};
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::{
    net::TcpStream,
    sync::{mpsc, watch},
    task::{JoinSet, spawn_blocking},
    time::{sleep, timeout},
};
use tracing::{info, warn};

use crate::{
    access::{rights::Rights, security::NodeCredential},
    config::{DataNodes, NodeAddress},
    nodes::{
        link::{QUEUE, carry},
        messages::{NodeOrder, NodeReport, VERSION, shown},
        random::random_name,
        tls::{FrontTls, NodeTlsError},
    },
};

/// Between two rounds of questions.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// Time for a connection to a node with its handshakes, and for the answer to a question.
const ANSWER_LIMIT: Duration = Duration::from_millis(2500);

/// The nodes of a front end. Dropping the last owner ends the questions.
pub(crate) struct Nodes {
    tls: FrontTls,
    nodes: Vec<Arc<Node>>,
    storage: Arc<dyn Storage>,
    /// The first round is over.
    checked: watch::Sender<bool>,
}

/// One of them.
pub(crate) struct Node {
    pub(crate) address: NodeAddress,
    state: Mutex<State>,
    /// Of sessions of this front end, now.
    links: AtomicU32,
    pub(super) channels: AtomicU32,
    /// Payload bytes moved there since this front end began.
    pub(super) bytes: AtomicU64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Unchecked,
    Well,
    /// Why not.
    Out(String),
}

/// Whose session a link is for.
#[derive(Clone, Debug)]
pub(crate) struct NodeLogin {
    pub(crate) user: String,
    pub(crate) session: u64,
    pub(crate) client: IpAddr,
    pub(crate) rights: Option<Rights>,
    /// Of its data channels.
    pub(crate) credential: Option<NodeCredential>,
}

/// The front end's end of a link.
pub(crate) struct FrontLink {
    pub(crate) node: Arc<Node>,
    orders: mpsc::Sender<NodeOrder>,
    pub(super) reports: Mutex<mpsc::Receiver<NodeReport>>,
    /// Why it ended.
    fault: Arc<Mutex<Option<String>>>,
}

impl Nodes {
    /// Reads certificates.
    ///
    /// # Errors
    /// They cannot be used.
    pub(crate) fn new(
        settings: &DataNodes,
        storage: Arc<dyn Storage>,
    ) -> Result<Arc<Self>, NodeTlsError> {
        let nodes = settings.addresses.iter().map(|address| {
            Arc::new(Node {
                address: address.clone(),
                state: Mutex::new(State::Unchecked),
                links: AtomicU32::new(0),
                channels: AtomicU32::new(0),
                bytes: AtomicU64::new(0),
            })
        });
        Ok(Arc::new(Self {
            tls: FrontTls::load(&settings.tls)?,
            nodes: nodes.collect(),
            storage,
            checked: watch::Sender::new(false),
        }))
    }

    /// Asks the nodes every few seconds, until no other owner is left. Within a runtime.
    pub(crate) fn watch(self: &Arc<Self>) {
        let this: Weak<Self> = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(nodes) = this.upgrade() {
                nodes.check().await;
                drop(nodes);
                sleep(CHECK_EVERY).await;
            }
        });
    }

    /// The nodes that are well, the least busy first.
    pub(super) async fn well(&self) -> Vec<Arc<Node>> {
        let mut checked = self.checked.subscribe();
        let first = checked.wait_for(|checked| *checked);
        drop(timeout(2 * ANSWER_LIMIT, first).await);
        let mut well: Vec<_> = (self.nodes.iter())
            .filter(|node| node.is_well())
            .cloned()
            .collect();
        well.sort_by_key(|node| node.load());
        well
    }

    /// Why a session gets no node.
    pub(super) fn why_none(&self) -> String {
        let each = self
            .nodes
            .iter()
            .map(|node| format!("{}: {node}", node.address));
        format!(
            "no data node is well ({})",
            each.collect::<Vec<_>>().join("; ")
        )
    }

    /// A link for a session.
    pub(super) async fn open(
        &self,
        node: &Arc<Node>,
        login: &NodeLogin,
    ) -> Result<FrontLink, String> {
        let opened = async {
            let (link, _) = self.hello(node).await?;
            link.send(NodeOrder::Login {
                user: login.user.clone(),
                session: login.session,
                client: login.client,
                rights: login.rights.clone(),
            });
            Ok(link)
        };
        let opened: Result<FrontLink, String> = within(opened).await;
        opened.inspect_err(|why| node.leave_out(why))
    }

    /// A link, and the node's instance.
    async fn hello(&self, node: &Arc<Node>) -> Result<(FrontLink, String), String> {
        let NodeAddress { host, port } = &node.address;
        let socket = TcpStream::connect((host.as_str(), *port)).await;
        let socket = socket.map_err(|error| {
            format!("cannot be reached: {error}; is godwitd --data-node running there?")
        })?;
        drop(socket.set_nodelay(true));
        let stream = self.tls.connect(host, socket).await?;
        let (orders, outgoing) = mpsc::channel(QUEUE);
        let (incoming, reports) = mpsc::channel(QUEUE);
        let fault = Arc::new(Mutex::new(None));
        let told = Arc::clone(&fault);
        tokio::spawn(async move {
            // Told before the end of the reports, which `carry` owns, shows.
            let keep = incoming.clone();
            if let Err(error) = carry(stream, outgoing, incoming).await {
                *lock(&told) = Some(error.to_string());
            }
            drop(keep);
        });
        node.links.fetch_add(1, Ordering::Relaxed);
        let link = FrontLink {
            node: Arc::clone(node),
            orders,
            reports: Mutex::new(reports),
            fault,
        };
        link.send(NodeOrder::Hello { version: VERSION });
        match link.next().await {
            Ok(NodeReport::Welcome { version, instance }) if version == VERSION => {
                Ok((link, instance))
            }
            Ok(NodeReport::Welcome { version, .. }) => Err(format!(
                "it speaks version {version} of node links, and this front end {VERSION}: install \
                 the same godwit on both"
            )),
            Ok(NodeReport::Refused { why }) => Err(shown(&why)),
            Ok(_) => Err("it does not answer as a data node does".to_owned()),
            Err(why) => Err(why),
        }
    }

    /// One round: all nodes at a time.
    async fn check(self: &Arc<Self>) {
        let storage = Arc::clone(&self.storage);
        let made = spawn_blocking(move || make_sign(&*storage)).await;
        let made = made.unwrap_or_else(|error| Err(error.to_string()));
        let (path, name, sign) = match made {
            Ok(made) => made,
            Err(why) => {
                let why = format!(
                    "this front end cannot make the file by which nodes show that they see the \
                     root: {why}; its account must be able to write there"
                );
                self.nodes.iter().for_each(|node| node.leave_out(&why));
                self.checked.send_replace(true);
                return;
            }
        };
        let mut questions = JoinSet::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let (this, node) = (Arc::clone(self), Arc::clone(node));
            let (name, sign) = (name.clone(), sign.clone());
            questions.spawn(async move { (index, within(this.ask(&node, name, &sign)).await) });
        }
        let mut answers = questions.join_all().await;
        answers.sort_by_key(|(index, _)| *index);
        let storage = Arc::clone(&self.storage);
        drop(spawn_blocking(move || storage.remove_file(&path)).await);
        // The same process under two names would be two stripes of one machine.
        let mut first = BTreeMap::new();
        for (index, answer) in answers {
            let node = &self.nodes[index];
            match answer {
                Err(why) => node.leave_out(&why),
                Ok(instance) => match first.get(&instance) {
                    Some(other) => node.leave_out(&format!(
                        "it is the same node as {other}: name each node once"
                    )),
                    None => {
                        first.insert(instance, node.address.clone());
                        node.take_back();
                    }
                },
            }
        }
        self.checked.send_replace(true);
    }

    async fn ask(&self, node: &Arc<Node>, name: String, sign: &str) -> Result<String, String> {
        let (link, instance) = self.hello(node).await?;
        link.send(NodeOrder::Look { name });
        let remedy = "mount there what this front end has, and name it with --root";
        match link.next().await? {
            NodeReport::Seen { text: Ok(text) } if text == sign => Ok(instance),
            NodeReport::Seen { text: Ok(_) } => Err(format!(
                "it sees another file under the name that was made: {remedy}"
            )),
            NodeReport::Seen { text: Err(why) } => {
                let why = shown(&why);
                Err(format!(
                    "it does not see the files of this front end ({why}): {remedy}"
                ))
            }
            _ => Err("it does not answer as a data node does".to_owned()),
        }
    }
}

impl Node {
    fn is_well(&self) -> bool {
        *lock(&self.state) == State::Well
    }

    /// Channels and links, for the choice of a node.
    fn load(&self) -> (u32, u32) {
        let of = |count: &AtomicU32| count.load(Ordering::Relaxed);
        (of(&self.channels), of(&self.links))
    }

    /// No session gets it until the next round finds it well.
    pub(super) fn leave_out(&self, why: &str) {
        let mut state = lock(&self.state);
        let out = State::Out(why.to_owned());
        if *state != out {
            warn!(node = %self.address, why, "a data node is left out");
            *state = out;
        }
    }

    fn take_back(&self) {
        let mut state = lock(&self.state);
        if *state != State::Well {
            info!(node = %self.address, "a data node is well");
            *state = State::Well;
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*lock(&self.state) {
            State::Unchecked => f.write_str("not asked yet"),
            State::Well => f.write_str("well"),
            State::Out(why) => f.write_str(why),
        }
    }
}

impl FrontLink {
    /// A link whose queue is full is dead, and its end will say so.
    pub(crate) fn send(&self, order: NodeOrder) {
        drop(self.orders.try_send(order));
    }

    /// It has ended.
    pub(super) fn is_gone(&self) -> bool {
        self.orders.is_closed()
    }

    /// Why it ended, once it has.
    pub(super) fn why_gone(&self) -> String {
        let fault = lock(&self.fault).clone();
        fault.unwrap_or_else(|| "it closed the link".to_owned())
    }

    /// The next report. Cancel-safe.
    pub(super) async fn next(&self) -> Result<NodeReport, String> {
        let report = std::future::poll_fn(|context| lock(&self.reports).poll_recv(context)).await;
        report.ok_or_else(|| self.why_gone())
    }

    /// The answer to an order about channels, past what is still said of a transfer before.
    pub(super) async fn answer(&self) -> Result<NodeReport, String> {
        within(async {
            loop {
                match self.next().await? {
                    NodeReport::Ready { .. }
                    | NodeReport::Progress { .. }
                    | NodeReport::Done(_) => {}
                    answer => return Ok(answer),
                }
            }
        })
        .await
    }
}

impl Drop for FrontLink {
    fn drop(&mut self) {
        self.node.links.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn within<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let limit = ANSWER_LIMIT.as_secs_f64();
    (timeout(ANSWER_LIMIT, work).await)
        .unwrap_or_else(|_| Err(format!("it does not answer within {limit} s")))
}

/// Path, name and content of a new file at the root. Its name is that of a partial upload, so that
/// the reaper removes one that a crash left.
fn make_sign(storage: &dyn Storage) -> Result<(FtpPath, String, String), String> {
    let mut digits = [0; 8];
    let random = getrandom(&mut digits, GetRandomFlags::empty());
    random.map_err(|error| error.to_string())?;
    let sign = random_name().map_err(|error| error.to_string())?;
    let name = temporary_name(u64::from_ne_bytes(digits));
    let path = FtpPath::new(format!("/{name}")).map_err(|error| error.to_string())?;
    let file = storage.open_write(&path, WriteMode::New);
    let written = file.and_then(|file| file.write_all_at(0, sign.as_bytes()));
    match written {
        Ok(()) => Ok((path, name, sign)),
        Err(StorageFailure { text, .. }) => Err(text),
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

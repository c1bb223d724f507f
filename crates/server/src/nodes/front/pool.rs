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
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use godwit_engine::storage::{FileRef, Storage, WriteMode};
use godwit_proto::{FtpPath, error::StorageFailure, temporary::temporary_name};
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::{mpsc, watch},
    task::{JoinSet, spawn_blocking},
    time::{sleep, timeout},
};
use tracing::{info, warn};

use super::{monitor::WellNode, unfenced::Unfenced};
use crate::{
    access::rights::Rights,
    config::{DataNodes, Durability, NodeAddress},
    nodes::{
        link::{QUEUE, carry},
        messages::{NodeAccount, NodeOrder, NodeReport, Sight, VERSION, shown},
        random::random_name,
        tls::{FrontTls, NodeTlsError},
    },
    observe::metrics::{NodeSample, NodeSource},
};

/// Between two rounds of questions.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// Time for a connection to a node with its handshakes, and for the answer to a question.
const ANSWER_LIMIT: Duration = Duration::from_millis(2500);

/// Channels of a link that count: a node that says more lies.
pub(super) const CHANNELS_MAX: u32 = 1 << 16;

/// The nodes of a front end. Dropping the last owner ends the questions.
pub(crate) struct Nodes {
    tls: FrontTls,
    nodes: Vec<Arc<Node>>,
    storage: Arc<dyn Storage>,
    /// Files into which nodes that were cut off may still write.
    pub(crate) unfenced: Arc<Unfenced>,
    /// The first round is over.
    checked: watch::Sender<bool>,
}

/// One of them.
pub(crate) struct Node {
    pub(crate) address: NodeAddress,
    state: Mutex<State>,
    /// Of sessions of this front end, now.
    links: AtomicU32,
    channels: AtomicU32,
    /// Payload bytes moved there since this front end began.
    pub(super) bytes: AtomicU64,
    /// It sees the inode numbers that this front end sees.
    same_inodes: AtomicBool,
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
    pub(crate) durability: Durability,
    /// Whose account it runs as, where it has a process of its own.
    pub(crate) account: Option<NodeAccount>,
}

/// Why a link gives no more reports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gone {
    pub(super) why: String,
    /// Other links of the node may be well.
    is_of_one_link: bool,
}

/// The front end's end of a link.
pub(crate) struct FrontLink {
    pub(crate) node: Arc<Node>,
    orders: mpsc::Sender<NodeOrder>,
    pub(super) reports: Mutex<mpsc::Receiver<NodeReport>>,
    /// Why it ended.
    fault: Arc<Mutex<Option<Gone>>>,
    /// Of transfers on it.
    transfers: AtomicU64,
    /// Channels at its last report.
    channels: AtomicU32,
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
        let nodes = (settings.addresses.iter()).map(|address| Arc::new(Node::new(address.clone())));
        Ok(Arc::new(Self {
            tls: FrontTls::load(&settings.tls)?,
            nodes: nodes.collect(),
            storage,
            unfenced: Arc::default(),
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

    /// The node at `address`.
    pub(super) fn at(&self, address: &NodeAddress) -> Option<&Arc<Node>> {
        self.nodes.iter().find(|node| node.address == *address)
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
                durability: login.durability,
                account: login.account.clone(),
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
        let link = FrontLink::over(node, stream);
        link.send(NodeOrder::Hello { version: VERSION });
        match link.next().await.map_err(|gone| gone.why) {
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
        let sign = match made {
            Ok(made) => Arc::new(made),
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
            let sign = Arc::clone(&sign);
            questions.spawn(async move { (index, within(this.ask(&node, &sign)).await) });
        }
        let mut answers = questions.join_all().await;
        answers.sort_by_key(|(index, _)| *index);
        let storage = Arc::clone(&self.storage);
        drop(spawn_blocking(move || storage.remove_file(&sign.path)).await);
        // The same process under two names would be two stripes of one machine.
        let mut first = BTreeMap::new();
        for (index, answer) in answers {
            let node = &self.nodes[index];
            match answer {
                Err(why) => node.leave_out(&why),
                Ok((instance, same_inodes)) => match first.get(&instance) {
                    Some(other) => node.leave_out(&format!(
                        "it is the same node as {other}: name each node once"
                    )),
                    None => {
                        first.insert(instance, node.address.clone());
                        node.take_back(same_inodes);
                    }
                },
            }
        }
        self.checked.send_replace(true);
    }

    /// The node's instance, and whether it sees the inode numbers that this front end sees.
    async fn ask(&self, node: &Arc<Node>, sign: &Sign) -> Result<(String, bool), String> {
        let (link, instance) = self.hello(node).await?;
        let name = sign.name.clone();
        link.send(NodeOrder::Look { name });
        let remedy = "mount there what this front end has, and name it with --root";
        match link.next().await.map_err(|gone| gone.why)? {
            NodeReport::Seen {
                file: Ok(Sight { text, inode }),
            } if text == sign.text => Ok((instance, inode == sign.inode)),
            NodeReport::Seen { file: Ok(_) } => Err(format!(
                "it sees another file under the name that was made: {remedy}"
            )),
            NodeReport::Seen { file: Err(why) } => {
                let why = shown(&why);
                Err(format!(
                    "it does not see the files of this front end ({why}): {remedy}"
                ))
            }
            _ => Err("it does not answer as a data node does".to_owned()),
        }
    }
}

impl NodeSource for Nodes {
    fn samples(&self) -> Vec<NodeSample> {
        let sample = |node: &Arc<Node>| NodeSample {
            name: node.address.to_string(),
            is_well: node.is_well(),
            links: node.links.load(Ordering::Relaxed),
            channels: node.channels.load(Ordering::Relaxed),
            bytes: node.bytes.load(Ordering::Relaxed),
        };
        self.nodes.iter().map(sample).collect()
    }
}

impl Node {
    fn new(address: NodeAddress) -> Self {
        Self {
            address,
            state: Mutex::new(State::Unchecked),
            links: AtomicU32::new(0),
            channels: AtomicU32::new(0),
            bytes: AtomicU64::new(0),
            same_inodes: AtomicBool::new(false),
        }
    }

    /// As another process has found it.
    pub(super) fn well(
        WellNode {
            address,
            same_inodes,
        }: WellNode,
    ) -> Arc<Self> {
        let node = Self::new(address);
        *lock(&node.state) = State::Well;
        node.same_inodes.store(same_inodes, Ordering::Relaxed);
        Arc::new(node)
    }

    /// For [`Self::well`].
    pub(super) fn as_well(&self) -> WellNode {
        WellNode {
            address: self.address.clone(),
            same_inodes: self.same_inodes(),
        }
    }

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

    /// A link to it has ended: no session gets it, unless the fault is of that link alone.
    pub(super) fn lost(&self, gone: &Gone) {
        match gone.is_of_one_link {
            true => warn!(node = %self.address, why = gone.why, "a session loses a data node"),
            false => self.leave_out(&gone.why),
        }
    }

    fn take_back(&self, same_inodes: bool) {
        self.same_inodes.store(same_inodes, Ordering::Relaxed);
        let mut state = lock(&self.state);
        if *state != State::Well {
            info!(node = %self.address, same_inodes, "a data node is well");
            *state = State::Well;
        }
    }

    /// It sees the inode numbers that this front end sees.
    pub(super) fn same_inodes(&self) -> bool {
        self.same_inodes.load(Ordering::Relaxed)
    }

    /// Counts payload bytes that it says to have moved.
    pub(super) fn add_bytes(&self, moved: u64) {
        let add = |bytes: u64| Some(bytes.saturating_add(moved));
        // It never refuses.
        let _ = (self.bytes).fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
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
    /// A link over `stream`. Within a runtime.
    pub(super) fn over<S>(node: &Arc<Node>, stream: S) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (orders, outgoing) = mpsc::channel(QUEUE);
        let (incoming, reports) = mpsc::channel(QUEUE);
        let fault = Arc::new(Mutex::new(None));
        let told = Arc::clone(&fault);
        tokio::spawn(async move {
            // Told before the end of the reports, which `carry` owns, shows.
            let keep = incoming.clone();
            if let Err(error) = carry(stream, outgoing, incoming).await {
                *lock(&told) = Some(Gone {
                    why: error.to_string(),
                    is_of_one_link: error.is_of_one_link(),
                });
            }
            drop(keep);
        });
        node.links.fetch_add(1, Ordering::Relaxed);
        Self {
            node: Arc::clone(node),
            orders,
            reports: Mutex::new(reports),
            fault,
            transfers: AtomicU64::new(0),
            channels: AtomicU32::new(0),
        }
    }

    /// Counts the channels that a report tells of.
    pub(super) fn set_channels(&self, now: u32) {
        let now = now.min(CHANNELS_MAX);
        let before = self.channels.swap(now, Ordering::Relaxed);
        self.node.channels.fetch_add(now, Ordering::Relaxed);
        self.node.channels.fetch_sub(before, Ordering::Relaxed);
    }

    /// At its last report.
    pub(super) fn channels(&self) -> u32 {
        self.channels.load(Ordering::Relaxed)
    }

    /// A link whose queue is full is dead, and its end will say so.
    pub(crate) fn send(&self, order: NodeOrder) {
        drop(self.orders.try_send(order));
    }

    /// It has ended.
    pub(super) fn is_gone(&self) -> bool {
        self.orders.is_closed()
    }

    /// Why it ended, once it has.
    pub(super) fn why_gone(&self) -> Gone {
        let fault = lock(&self.fault).clone();
        fault.unwrap_or_else(|| Gone {
            why: "it closed the link".to_owned(),
            is_of_one_link: false,
        })
    }

    /// A number for a transfer on it.
    pub(super) fn next_transfer(&self) -> u64 {
        self.transfers.fetch_add(1, Ordering::Relaxed)
    }

    /// The next report. Cancel-safe.
    pub(super) async fn next(&self) -> Result<NodeReport, Gone> {
        let report = std::future::poll_fn(|context| lock(&self.reports).poll_recv(context)).await;
        report.ok_or_else(|| self.why_gone())
    }

    /// The answer to an order about channels, past what is still said of a transfer before.
    pub(super) async fn answer(&self) -> Result<NodeReport, Gone> {
        let answer = async {
            loop {
                match self.next().await? {
                    NodeReport::Ready { .. }
                    | NodeReport::Progress { .. }
                    | NodeReport::Done(_) => {}
                    answer => return Ok(answer),
                }
            }
        };
        (timeout(ANSWER_LIMIT, answer).await).unwrap_or_else(|_| {
            Err(Gone {
                why: no_answer(),
                is_of_one_link: false,
            })
        })
    }
}

#[cfg(test)]
impl FrontLink {
    /// Without a connection: what it sends, and where its reports come from.
    pub(super) fn detached(
        host: &str,
    ) -> (Self, mpsc::Receiver<NodeOrder>, mpsc::Sender<NodeReport>) {
        let node = Node::well(WellNode {
            address: NodeAddress {
                host: host.to_owned(),
                port: 1,
            },
            same_inodes: true,
        });
        node.links.fetch_add(1, Ordering::Relaxed);
        let (orders, sent) = mpsc::channel(QUEUE);
        let (said, reports) = mpsc::channel(QUEUE);
        let link = Self {
            node,
            orders,
            reports: Mutex::new(reports),
            fault: Arc::default(),
            transfers: AtomicU64::new(7),
            channels: AtomicU32::new(0),
        };
        (link, sent, said)
    }
}

impl Drop for FrontLink {
    fn drop(&mut self) {
        self.set_channels(0);
        self.node.links.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn within<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    (timeout(ANSWER_LIMIT, work).await).unwrap_or_else(|_| Err(no_answer()))
}

fn no_answer() -> String {
    format!("it does not answer within {} s", ANSWER_LIMIT.as_secs_f64())
}

/// A file by which nodes show that they see the root.
struct Sign {
    path: FtpPath,
    name: String,
    /// What is in it.
    text: String,
    inode: u64,
}

/// A new one. Its name is that of a partial upload, so that the reaper removes one that a crash
/// left.
fn make_sign(storage: &dyn Storage) -> Result<Sign, String> {
    let mut digits = [0; 8];
    let random = getrandom(&mut digits, GetRandomFlags::empty());
    random.map_err(|error| error.to_string())?;
    let text = random_name().map_err(|error| error.to_string())?;
    let name = temporary_name(u64::from_ne_bytes(digits));
    let path = FtpPath::new(format!("/{name}")).map_err(|error| error.to_string())?;
    let write = |file: FileRef| {
        file.write_all_at(0, text.as_bytes())?;
        file.metadata()
    };
    let written = storage.open_write(&path, WriteMode::New).and_then(write);
    match written {
        Ok(metadata) => Ok(Sign {
            path,
            name,
            text,
            inode: metadata.unique.1,
        }),
        Err(StorageFailure { text, .. }) => Err(text),
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! The data nodes of a front end: which are well, and which is least busy.
//!
//! From time to time the front end makes a file below the root, and asks every node what is in it:
//! a node that cannot tell does not see the same files. A node that is not well is left out, with a
//! message that says who must do what, and taken back when it is.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Weak},
    time::Duration,
};

use godwit_engine::storage::{FileRef, Storage, WriteMode};
use godwit_proto::{FtpPath, error::StorageFailure, temporary::temporary_name};
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::{
    net::TcpStream,
    sync::{Notify, watch},
    task::{JoinSet, spawn_blocking},
    time::{sleep, timeout},
};

use super::{
    data_node::Node,
    front_link::{ANSWER_LIMIT, FrontLink, no_answer},
    unfenced::Unfenced,
};
use crate::{
    access::rights::Rights,
    config::{DataNodes, Durability, NodeAddress},
    nodes::{
        messages::{NodeAccount, NodeOrder, NodeReport, Sight, VERSION, shown},
        random::random_name,
        tls::{FrontTls, NodeTlsError},
    },
    observe::metrics::{NodeSample, NodeSource},
};

/// Between two rounds of questions.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// The least time between two rounds, however many links end.
const CHECK_REST: Duration = Duration::from_secs(1);

/// The nodes of a front end. Dropping the last owner ends the questions.
pub(crate) struct Nodes {
    tls: FrontTls,
    nodes: Vec<Arc<Node>>,
    storage: Arc<dyn Storage>,
    /// Files into which nodes that were cut off may still write.
    pub(crate) unfenced: Arc<Unfenced>,
    /// The first round is over.
    checked: watch::Sender<bool>,
    /// A round is wanted before its time.
    pub(super) sooner: Arc<Notify>,
}

/// Whose session a link is for.
#[derive(Clone, Debug)]
pub(crate) struct NodeLogin {
    pub(crate) user: String,
    pub(crate) session: u64,
    pub(crate) client: IpAddr,
    pub(crate) rights: Option<Rights>,
    pub(crate) durability: Durability,
    /// Its control connection has TLS.
    pub(crate) ftps: bool,
    /// Whose account it runs as, where it has a process of its own.
    pub(crate) account: Option<NodeAccount>,
}

impl Nodes {
    /// Reads certificates.
    ///
    /// # Errors
    /// They cannot be used.
    pub(crate) fn new(
        settings: &DataNodes,
        storage: Arc<dyn Storage>,
        unfenced: Arc<Unfenced>,
    ) -> Result<Arc<Self>, NodeTlsError> {
        let nodes = (settings.addresses.iter()).map(|address| Arc::new(Node::new(address.clone())));
        Ok(Arc::new(Self {
            tls: FrontTls::load(&settings.tls)?,
            nodes: nodes.collect(),
            storage,
            unfenced,
            checked: watch::Sender::new(false),
            sooner: Arc::default(),
        }))
    }

    /// Asks the nodes every few seconds, until no other owner is left. Within a runtime.
    pub(crate) fn watch(self: &Arc<Self>) {
        let this: Weak<Self> = Arc::downgrade(self);
        let sooner = Arc::clone(&self.sooner);
        tokio::spawn(async move {
            while let Some(nodes) = this.upgrade() {
                nodes.check().await;
                drop(nodes);
                sleep(CHECK_REST).await;
                drop(timeout(CHECK_EVERY - CHECK_REST, sooner.notified()).await);
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
                ftps: login.ftps,
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
                let why = cannot_make(&why, rustix::process::geteuid().is_root());
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
        self.nodes.iter().map(|node| node.sample()).collect()
    }
}

async fn within<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    (timeout(ANSWER_LIMIT, work).await).unwrap_or_else(|_| Err(no_answer()))
}

/// Why no node can show that it sees the root.
fn cannot_make(why: &str, is_root: bool) -> String {
    let remedy = match is_root {
        true => {
            "root may not write there, as where NFS maps it to another account (root_squash): \
             let that account write at the root, and nowhere below it, or export without \
             root_squash"
        }
        false => "its account must be able to write there",
    };
    format!(
        "this front end cannot make the file by which nodes show that they see the root: {why}; \
         {remedy}"
    )
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

//! Data nodes for tests: in this process, each on an address of its own, with certificates of one
//! site.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::mpsc,
    thread::JoinHandle,
    time::{Duration, SystemTime},
};

use godwit_gsi::cert::Credential;
use godwit_server::{
    Anonymous, DataNode, DataNodes, NodeAddress, NodeSettings, NodeTls, ServerSettings,
};
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::{
    harness::{PATIENCE, TestServer},
    pki::Blueprint,
};

/// The directory of all ends, and the certificates of a site.
pub(crate) struct Site {
    pub(crate) root: TempDir,
    files: TempDir,
    authority: Credential,
}

impl Site {
    pub(crate) fn new() -> Self {
        let authority = Blueprint::authority("/O=Site/CN=CA").at(SystemTime::now());
        let site = Self {
            root: tempfile::tempdir().unwrap(),
            files: tempfile::tempdir().unwrap(),
            authority: authority.self_signed(),
        };
        let authority = site.authority.certificate().as_x509().to_pem().unwrap();
        fs::write(site.files.path().join("ca.pem"), authority).unwrap();
        site
    }

    /// A certificate for these hosts, and the authority.
    pub(crate) fn tls(&self, name: &str, hosts: &[&str]) -> NodeTls {
        let blueprint = Blueprint::host(&format!("/O=Site/CN={name}"), hosts);
        let credential = blueprint.at(SystemTime::now()).issued_by(&self.authority);
        let path = self.files.path().join(format!("{name}.pem"));
        fs::write(&path, credential.to_pem().unwrap()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        NodeTls {
            cert: path.clone(),
            key: path,
            authorities: self.authorities(),
        }
    }

    pub(crate) fn authorities(&self) -> PathBuf {
        self.files.path().join("ca.pem")
    }

    /// Settings of the node at `127.0.0.N`.
    pub(crate) fn node_settings(&self, number: u8) -> ServerSettings {
        let host = Ipv4Addr::new(127, 0, 0, number).to_string();
        let mut settings = ServerSettings::new(self.root.path(), Anonymous::Off);
        settings.drain = Duration::from_secs(20);
        settings.node = Some(NodeSettings {
            listen: format!("{host}:0").parse().unwrap(),
            front_ends: vec!["/O=Site/CN=front".to_owned()],
            users: None,
            tls: self.tls(&format!("dtn{number}"), &[&host]),
        });
        settings
    }

    pub(crate) fn node(&self, number: u8) -> TestNode {
        TestNode::start(self.node_settings(number))
    }

    /// A front end over these nodes.
    pub(crate) fn front_end(&self, nodes: &[SocketAddr]) -> TestServer {
        self.front_end_with(nodes, |_| {})
    }

    pub(crate) fn front_end_with(
        &self,
        nodes: &[SocketAddr],
        change: impl FnOnce(&mut ServerSettings),
    ) -> TestServer {
        let tls = self.tls("front", &["front.example"]);
        TestServer::at(self.root.path(), |settings| {
            settings.foreign_data_hosts = true;
            settings.data_nodes = Some(DataNodes {
                addresses: nodes.iter().map(address_of).collect(),
                tls,
            });
            change(settings);
        })
    }

    pub(crate) fn path(&self) -> &Path {
        self.root.path()
    }
}

fn address_of(address: &SocketAddr) -> NodeAddress {
    address.to_string().parse().unwrap()
}

/// A node that ends with its owner.
pub(crate) struct TestNode {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    kill: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl TestNode {
    pub(crate) fn start(settings: ServerSettings) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let (kill, killed) = oneshot::channel::<()>();
        let (started, address) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let node = settings.node.clone().unwrap();
                let node = DataNode::bind(settings, &node).unwrap();
                started.send(node.local_addr()).unwrap();
                let shutdown = async {
                    let _ = stopped.await;
                };
                tokio::select! {
                    () = node.run(shutdown) => {}
                    _ = killed => {}
                }
            });
            runtime.shutdown_background();
        });
        Self {
            address: address.recv_timeout(PATIENCE).unwrap(),
            stop: Some(stop),
            kill: Some(kill),
            thread: Some(thread),
        }
    }

    /// As SIGTERM does.
    pub(crate) fn begin_shutdown(&mut self) {
        drop(self.stop.take());
    }

    /// Waits for the end of `run`.
    pub(crate) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    /// All its connections end at once.
    pub(crate) fn kill(&mut self) {
        drop(self.kill.take());
        self.join();
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        drop(self.kill.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

//! Settings of data nodes, and of the front ends that use them.

use std::{
    collections::BTreeSet, fmt, fs, net::SocketAddr, os::unix::fs::MetadataExt as _, path::PathBuf,
    str::FromStr,
};

use serde::{Deserialize, Serialize};

use super::{ConfigError, Options};

/// Data nodes of a front end: as many stripes a transfer may have.
const NODES_MAX: usize = 64;

/// `HOST:PORT` of a data node. The host is what its certificate must be for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeAddress {
    /// Name or address, an IPv6 address without brackets.
    pub host: String,
    /// TCP port, not 0.
    pub port: u16,
}

impl FromStr for NodeAddress {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || format!("{text:?} is no HOST:PORT of a data node, such as dtn1:50100");
        let (host, port) = text.rsplit_once(':').ok_or_else(wanted)?;
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        if bare.is_none() && host.contains(':') {
            return Err(format!("{text:?}: an IPv6 address stands in brackets"));
        }
        let host = bare.unwrap_or(host).to_ascii_lowercase();
        match port.parse() {
            Ok(port) if port > 0 && !host.is_empty() => Ok(Self { host, port }),
            _ => Err(wanted()),
        }
    }
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl TryFrom<String> for NodeAddress {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<NodeAddress> for String {
    fn from(address: NodeAddress) -> Self {
        address.to_string()
    }
}

/// What both ends of a node link prove themselves with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeTls {
    /// Certificate and chain.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Who must have issued the other's.
    pub authorities: PathBuf,
}

/// The data nodes of a front end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataNodes {
    /// At least one, each once.
    pub addresses: Vec<NodeAddress>,
    /// The front end's own.
    pub tls: NodeTls,
}

/// What a data node is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSettings {
    /// Where front ends connect to.
    pub listen: SocketAddr,
    /// Whose orders it takes: subjects, which begin with `/`, and names of hosts. At least one.
    pub front_ends: Vec<String>,
    /// The node's own.
    pub tls: NodeTls,
    /// Directory of the CAs of users whose data channels prove who they are; `None`: none do.
    pub users: Option<PathBuf>,
}

const AS_ROOT: &str = "users without accounts would do as root what they may do: start godwitd as \
    the account that owns the files (not as root), or add --privsep to run each session as its \
    user's account, or --privsep=false if that is meant";

/// `None`: there are none.
pub(super) fn data_nodes_of(
    options: &Options,
    is_separated: bool,
    is_root: bool,
) -> Result<Option<DataNodes>, ConfigError> {
    if options.data_nodes.is_empty() {
        return Ok(None);
    }
    if !is_separated && is_root && options.privsep.is_none() {
        return Err(ConfigError::value("data-nodes", AS_ROOT));
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = options.data_nodes.iter().find(|node| !seen.insert(*node)) {
        let reason = format!("{twice} is named twice: each data node has one address");
        return Err(ConfigError::value("data-nodes", reason));
    }
    if options.data_nodes.len() > NODES_MAX {
        let reason = format!("more than {NODES_MAX} data nodes");
        return Err(ConfigError::value("data-nodes", reason));
    }
    Ok(Some(DataNodes {
        addresses: options.data_nodes.clone(),
        tls: tls_of(options)?,
    }))
}

pub(super) fn node_of(options: &Options) -> Result<NodeSettings, ConfigError> {
    if !options.data_nodes.is_empty() {
        let reason = "a data node has none of its own: leave this out at --data-node";
        return Err(ConfigError::value("data-nodes", reason));
    }
    let Some(listen) = options.node_listen else {
        let reason = "--data-node needs the address where front ends reach it, such as \
            10.0.0.5:50100";
        return Err(ConfigError::value("node-listen", reason));
    };
    if listen.ip().is_unspecified() && options.data_address.is_empty() {
        let reason = format!(
            "clients cannot be sent to {}: name the address that they reach, here or with \
             --data-address",
            listen.ip()
        );
        return Err(ConfigError::value("node-listen", reason));
    }
    if options.front_ends.iter().all(String::is_empty) {
        let reason = "a data node takes orders from the front ends that it knows: name them, by \
            the host or the subject of their certificates";
        return Err(ConfigError::value("front-ends", reason));
    }
    Ok(NodeSettings {
        listen,
        front_ends: options.front_ends.clone(),
        tls: tls_of(options)?,
        users: options.trusted_certs.clone(),
    })
}

/// Refuses one key for both purposes: processes that a user may take over have the key of users'
/// TLS, and who has the other may act as every account. `users`: certificates and keys for users.
pub(super) fn check_keys(link: &NodeTls, users: &[(PathBuf, PathBuf)]) -> Result<(), ConfigError> {
    let file = |path: &PathBuf| {
        let metadata = fs::metadata(path).ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    let is_same = |other: &PathBuf| {
        *other == link.key || file(other).is_some_and(|other| Some(other) == file(&link.key))
    };
    match users.iter().find(|(_, key)| is_same(key)) {
        None => Ok(()),
        Some((_, key)) => {
            let reason = format!(
                "{} is the key of users' TLS, too (key): give node links a key of their own, \
                 which `godwitd node-key` makes; who has it may act as every account",
                key.display()
            );
            Err(ConfigError::value("node-key", reason))
        }
    }
}

fn tls_of(options: &Options) -> Result<NodeTls, ConfigError> {
    let missing = |name, what: &str| {
        let reason = format!("front end and data nodes prove to one another who they are: {what}");
        ConfigError::value(name, reason)
    };
    let cert = (options.node_cert.clone())
        .ok_or_else(|| missing("node-cert", "name a certificate of this machine"))?;
    let key = options.node_key.clone().unwrap_or_else(|| cert.clone());
    let authorities = (options.node_ca.clone())
        .ok_or_else(|| missing("node-ca", "name the file with the site's authority"))?;
    Ok(NodeTls {
        cert,
        key,
        authorities,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn front_end(nodes: &[&str]) -> Options {
        Options {
            data_nodes: nodes.iter().map(|node| node.parse().unwrap()).collect(),
            node_cert: Some("/c".into()),
            node_ca: Some("/ca".into()),
            ..Options::default()
        }
    }

    #[test]
    fn addresses_are_hosts_with_ports() {
        for (text, host, port) in [
            ("DTN1:50100", "dtn1", 50100),
            ("10.0.0.1:1", "10.0.0.1", 1),
            ("[::1]:2", "::1", 2),
        ] {
            let address: NodeAddress = text.parse().unwrap();
            assert_eq!((address.host.as_str(), address.port), (host, port));
            assert_eq!(address.to_string(), text.to_ascii_lowercase());
        }
        for text in ["dtn1", "dtn1:", "dtn1:0", ":5", "::1:5", "dtn1:70000"] {
            assert!(text.parse::<NodeAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn front_ends_that_can_never_work_are_refused_by_name() {
        let refused = |options: &Options, separated, root| {
            data_nodes_of(options, separated, root)
                .unwrap_err()
                .to_string()
        };
        let good = front_end(&["a:1", "b:1"]);
        let nodes = data_nodes_of(&good, false, false).unwrap().unwrap();
        assert_eq!(nodes.tls.key, PathBuf::from("/c"));
        assert!(data_nodes_of(&good, true, true).is_ok());
        assert!(refused(&good, false, true).contains("not as root"));
        let as_root = Options {
            privsep: Some(false),
            ..good.clone()
        };
        assert!(data_nodes_of(&as_root, false, true).is_ok());
        assert!(refused(&front_end(&["a:1", "A:1"]), false, false).contains("a:1 is named twice"));
        let alone = Options {
            node_ca: None,
            ..good
        };
        assert!(refused(&alone, false, false).starts_with("node-ca: "));
        assert_eq!(
            data_nodes_of(&Options::default(), true, true).unwrap(),
            None
        );
    }

    #[test]
    fn the_key_of_users_is_no_key_of_node_links() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other, link] = ["one", "other", "link"].map(|name| folder.path().join(name));
        fs::write(&one, "1").unwrap();
        fs::write(&other, "2").unwrap();
        std::os::unix::fs::symlink(&one, &link).unwrap();
        let node = |key: &PathBuf| NodeTls {
            cert: "/c".into(),
            key: key.clone(),
            authorities: "/ca".into(),
        };
        let users = |key: &PathBuf| [("/host".into(), key.clone())];
        assert!(check_keys(&node(&one), &users(&other)).is_ok());
        assert!(check_keys(&node(&one), &[]).is_ok());
        let missing = folder.path().join("missing");
        assert!(check_keys(&node(&one), &users(&missing)).is_ok());
        for (ours, theirs) in [
            (&one, &one),
            (&link, &one),
            (&one, &link),
            (&missing, &missing),
        ] {
            let error = check_keys(&node(ours), &users(theirs)).unwrap_err();
            let error = error.to_string();
            assert!(error.starts_with("node-key: "), "{error}");
            assert!(error.contains("key of their own"), "{error}");
        }
    }

    #[test]
    fn nodes_that_can_never_work_are_refused_by_name() {
        let good = Options {
            node_listen: Some("10.0.0.5:50100".parse().unwrap()),
            front_ends: vec!["front".to_owned()],
            data_nodes: Vec::new(),
            ..front_end(&[])
        };
        assert!(node_of(&good).is_ok());
        let refused = |change: fn(&mut Options)| {
            let mut options = good.clone();
            change(&mut options);
            node_of(&options).unwrap_err().to_string()
        };
        assert!(refused(|o| o.node_listen = None).starts_with("node-listen: "));
        let any = |o: &mut Options| o.node_listen = Some("0.0.0.0:1".parse().unwrap());
        assert!(refused(any).starts_with("node-listen: clients cannot"));
        assert!(refused(|o| o.front_ends.clear()).starts_with("front-ends: "));
        assert!(refused(|o| o.node_cert = None).starts_with("node-cert: "));
        let both = |o: &mut Options| o.data_nodes = front_end(&["a:1"]).data_nodes;
        assert!(refused(both).starts_with("data-nodes: "));
    }
}

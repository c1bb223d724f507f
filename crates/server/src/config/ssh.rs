//! Settings of a session that sshd starts.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use super::{Anonymous, Arguments, ConfigError, Options, ServerSettings};

/// What `godwitd --ssh` is to be.
#[derive(Clone, Debug)]
pub struct SshSettings {
    /// As for any server; no login uses them.
    pub server: ServerSettings,
    /// Address of the client.
    pub peer: SocketAddr,
    /// Address of this machine that the client connected to.
    pub local: SocketAddr,
    /// The user's home, not relative to the root.
    pub home: PathBuf,
}

impl Arguments {
    /// As [`Self::resolve`], with what sshd reports of the connection. The root defaults to the
    /// machine's: the user may reach all of it by ssh, or sshd prevents it.
    pub fn resolve_ssh(
        &self,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<SshSettings, ConfigError> {
        let options = self.merged()?;
        if let Some(name) = of_logins(&options) {
            let reason = "has no meaning with --ssh: sshd listens, authenticates the user, and \
                          starts one server for each session";
            return Err(ConfigError::value(name, reason));
        }
        let connection = environment("SSH_CONNECTION");
        let ends = connection.as_deref().and_then(ends_of).ok_or_else(|| {
            let reason = "SSH_CONNECTION does not name the client: sshd sets it for the program \
                          that it starts; wrappers in between must pass it on";
            ConfigError::value("ssh", reason)
        })?;
        let root = options.root.clone().unwrap_or_else(|| PathBuf::from("/"));
        let mut server = ServerSettings::new(root, Anonymous::Off);
        server.protect = options.protect.map(Into::into).unwrap_or_default();
        options.fill(&mut server, &environment)?;
        let [peer, local] = ends;
        Ok(SshSettings {
            server,
            peer,
            local,
            home: environment("HOME").unwrap_or_default().into(),
        })
    }
}

/// The first given setting about logins, addresses or more than one session.
fn of_logins(options: &Options) -> Option<&'static str> {
    let said = [
        ("listen", !options.listen.is_empty()),
        ("https", !options.https.is_empty()),
        ("s3", !options.s3.is_empty()),
        ("s3-keys", options.s3_keys.is_some()),
        ("third-party-copy", options.third_party_copy.is_some()),
        ("allow-copy-host", !options.allow_copy_host.is_empty()),
        ("copy-authorities", options.copy_authorities.is_some()),
        ("copy-as-host", options.copy_as_host.is_some()),
        ("issue-tokens", options.issue_tokens.is_some()),
        ("max-copies", options.max_copies.is_some()),
        ("max-copies-per-user", options.max_copies_per_user.is_some()),
        ("anonymous", options.anonymous.is_some()),
        ("tls", options.tls.is_some()),
        ("gsi", options.gsi.is_some()),
        ("cert", options.cert.is_some()),
        ("key", options.key.is_some()),
        ("trusted-certs", options.trusted_certs.is_some()),
        ("gridmap", options.gridmap.is_some()),
        ("allow-subject", !options.allow_subject.is_empty()),
        ("password-file", options.password_file.is_some()),
        (
            "allow-clear-passwords",
            options.allow_clear_passwords.is_some(),
        ),
        ("token-issuer", !options.token_issuer.is_empty()),
        ("token-audience", !options.token_audience.is_empty()),
        ("privsep", options.privsep.is_some()),
        ("front-user", options.front_user.is_some()),
        ("anonymous-user", options.anonymous_user.is_some()),
        ("require-sandbox", options.require_sandbox.is_some()),
        ("data-nodes", !options.data_nodes.is_empty()),
        ("node-listen", options.node_listen.is_some()),
        ("reap-after", options.reap_after.is_some()),
        ("metrics", options.metrics.is_some()),
        (
            "allow-remote-metrics",
            options.allow_remote_metrics.is_some(),
        ),
    ];
    said.into_iter()
        .find_map(|(name, said)| said.then_some(name))
}

/// `SSH_CONNECTION`: address and port of the client, then of the server.
fn ends_of(text: &str) -> Option<[SocketAddr; 2]> {
    let mut words = text.split(' ');
    let mut end = || {
        // sshd appends the interface to a link-local address.
        let address = words.next()?.split('%').next()?;
        let address: IpAddr = address.parse().ok()?;
        Some(SocketAddr::new(address, words.next()?.parse().ok()?))
    };
    Some([end()?, end()?])
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn resolve(words: &[&str], connection: &str) -> Result<SshSettings, String> {
        let words = ["godwitd", "--ssh"].iter().chain(words);
        let environment = |name: &str| match name {
            "SSH_CONNECTION" => Some(connection.to_owned()),
            "HOME" => Some("/home/jo".to_owned()),
            _ => None,
        };
        let settings = Arguments::parse_from(words).resolve_ssh(environment);
        settings.map_err(|error| error.to_string())
    }

    #[test]
    fn addresses_are_those_that_sshd_names() {
        let four = resolve(&[], "192.0.2.1 40000 192.0.2.2 22").unwrap();
        assert_eq!(four.peer, "192.0.2.1:40000".parse().unwrap());
        assert_eq!(four.local, "192.0.2.2:22".parse().unwrap());
        assert_eq!(four.server.root, PathBuf::from("/"));
        let six = resolve(&["--root", "/srv"], "fe80::1%eth0 1 fe80::2%eth0 2").unwrap();
        assert_eq!(six.local, "[fe80::2]:2".parse().unwrap());
        assert_eq!(six.server.root, PathBuf::from("/srv"));
        for nowhere in ["", "UNKNOWN 65535 UNKNOWN 65535", "192.0.2.1 40000 22"] {
            let error = resolve(&[], nowhere).unwrap_err();
            assert!(error.contains("SSH_CONNECTION"), "{nowhere}: {error}");
        }
    }

    #[test]
    fn settings_of_logins_are_refused() {
        for words in [
            &["--anonymous", "ro"][..],
            &["--listen", "127.0.0.1:0"],
            &["--gsi"],
            &["--privsep=false"],
            &["--reap-after", "60"],
            &["--metrics", "127.0.0.1:0"],
            &["--https", "127.0.0.1:0"],
        ] {
            let error = resolve(words, "192.0.2.1 1 192.0.2.2 2").unwrap_err();
            assert!(
                error.contains("no meaning with --ssh"),
                "{words:?}: {error}"
            );
        }
    }
}

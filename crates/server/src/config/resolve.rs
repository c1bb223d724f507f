//! From what was said to settings: each is checked, alone and beside the others.

use std::path::PathBuf;

use super::{
    Anonymous, ConfigError, Options, PlacementText, PortRangeText, ServerSettings, at_least_one,
    bounded_seconds,
    bounds::bounds_of,
    copies::copies_of,
    gsi::{floor_of, gsi_of},
    logins::{https_of, passwords_of, s3_keys_of, tls_of, tokens_of},
    nodes::{check_keys, data_nodes_of, node_of},
    ports::{check_data_addresses, metrics_of, port_range_of},
    separation::{separation_at_node, separation_of},
};

impl Options {
    pub(super) fn resolve(
        self,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<ServerSettings, ConfigError> {
        let gsi = gsi_of(&self, &environment)?;
        let separation = separation_of(&self, gsi.as_ref(), is_root())?;
        let tls = tls_of(&self, &gsi, &environment)?;
        let copies = copies_of(&self, gsi.as_ref())?;
        let anonymous = self.anonymous.unwrap_or(Anonymous::Off);
        let passwords = passwords_of(&self, tls.is_some())?;
        let tokens = tokens_of(&self, tls.is_some())?;
        let has_keys = self.s3_keys.is_some() && !self.s3.is_empty();
        let has_others = gsi.is_some() || passwords.is_some() || tokens.is_some();
        if anonymous == Anonymous::Off && !has_others && !has_keys {
            return Err(ConfigError::NoIdentity);
        }
        let root = self.root.clone();
        let mut settings =
            ServerSettings::new(root.unwrap_or_else(|| PathBuf::from(".")), anonymous);
        let has_channels = gsi.is_some() || tls.is_some();
        settings.protect = floor_of(self.protect, has_channels, anonymous)?;
        settings.gsi = gsi;
        settings.separation = separation;
        settings.tls = tls;
        settings.passwords = passwords;
        settings.tokens = tokens;
        settings.listen = self.listen.clone();
        settings.https = https_of("https", &self.https, &settings)?;
        settings.s3 = https_of("s3", &self.s3, &settings)?;
        settings.s3_keys = s3_keys_of(&self.s3, self.s3_keys.clone())?;
        settings.issue_tokens = self.issue_tokens.unwrap_or(false);
        settings.copies = copies;
        settings.data_nodes = data_nodes_of(&self, settings.separation.is_some(), is_root())?;
        if let (Some(nodes), Some(tls)) = (&settings.data_nodes, &settings.tls) {
            check_keys(&nodes.tls, &tls.host)?;
        }
        self.fill(&mut settings, &environment)?;
        Ok(settings)
    }

    /// Of a data node: users log in at its front ends.
    pub(super) fn resolve_node(
        self,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<ServerSettings, ConfigError> {
        let root = self.root.clone().unwrap_or_else(|| PathBuf::from("."));
        let mut settings = ServerSettings::new(root, Anonymous::Off);
        settings.node = Some(node_of(&self)?);
        settings.separation = separation_at_node(&self, is_root())?;
        // For users under AUTH TLS whose data channels are private.
        if self.tls == Some(true) {
            settings.tls = tls_of(&self, &None, &environment)?;
        }
        if let (Some(node), Some(tls)) = (&settings.node, &settings.tls) {
            check_keys(&node.tls, &tls.host)?;
        }
        self.fill(&mut settings, &environment)?;
        Ok(settings)
    }

    /// The settings that do not depend on logins.
    pub(super) fn fill(
        self,
        settings: &mut ServerSettings,
        environment: &impl Fn(&str) -> Option<String>,
    ) -> Result<(), ConfigError> {
        settings.bounds = bounds_of(&self)?;
        settings.port_range = match self.port_range {
            Some(PortRangeText(range)) => Some(range),
            None => port_range_of(environment)?,
        };
        check_data_addresses(&self.data_address)?;
        settings.data_address = self.data_address;
        settings.foreign_data_hosts = self.allow_foreign_data_hosts.unwrap_or(false);
        settings.durability = self.durability.unwrap_or_default();
        settings.direct_io = self.direct_io.unwrap_or(false);
        settings.processors = self.processors.map(|PlacementText(placement)| placement);
        settings.audit_log = self.audit_log;
        settings.transfer_log = self.transfer_log;
        settings.metrics = metrics_of(self.metrics, self.allow_remote_metrics)?;
        settings.log_json = self.log_json.unwrap_or(false);
        for (name, said, min, limit) in [
            // 0 is a decision here, not a mistake: abort at once.
            ("drain", self.drain, 0, &mut settings.drain),
            (
                "idle-timeout",
                self.idle_timeout,
                1,
                &mut settings.idle_limit,
            ),
            (
                "data-timeout",
                self.data_timeout,
                1,
                &mut settings.data_limit,
            ),
            (
                "login-timeout",
                self.login_timeout,
                1,
                &mut settings.login_limit,
            ),
        ] {
            if let Some(seconds) = said {
                *limit = bounded_seconds(name, seconds, min)?;
            }
        }
        if let Some(seconds) = self.reap_after {
            settings.reap_after = Some(bounded_seconds("reap-after", seconds, 1)?);
        }
        if let Some(count) = self.max_channels {
            settings.channels_max = at_least_one("max-channels", count)?;
        }
        if let Some(banner) = self.banner {
            settings.banner = checked_banner(banner)?;
        }
        Ok(())
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn checked_banner(banner: String) -> Result<String, ConfigError> {
    let banner = banner.trim_end().to_owned();
    if banner.is_empty() || banner.contains('\0') || banner.len() > 16 * 1024 {
        let reason = "must have text, no NUL and at most 16384 bytes";
        return Err(ConfigError::value("banner", reason));
    }
    Ok(banner)
}

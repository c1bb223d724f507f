//! Checks of striped servers: which programs have data nodes, and which nodes there are.

use super::super::error::Invalid;
use super::super::format::{Client, Facet, Load, Method, Scenario, Server, X};

/// Most data nodes of a server.
const NODES_MAX: u32 = 32;

impl Scenario {
    pub(super) fn check_nodes(&self) -> Result<(), Invalid> {
        for (table, counts) in [
            ("sweep.nodes", &self.sweep.nodes),
            ("quick.sweep.nodes", &self.quick.sweep.nodes),
        ] {
            if let Some(index) = counts.iter().position(|count| *count > NODES_MAX) {
                let field = format!("{table}[{index}]");
                return Err(Invalid::new(field, format!("must be at most {NODES_MAX}")));
            }
        }
        let most = self.sweep.nodes.iter().copied().max().unwrap_or(0);
        self.check_links(most)?;
        self.check_fates(most)?;
        let drawn = self.figure.x == X::Nodes || self.figure.panels.contains(&Facet::Nodes);
        if drawn && self.sweep.nodes.is_empty() {
            return Err(Invalid::new("figure", "needs sweep.nodes"));
        }
        if most == 0 {
            return Ok(());
        }
        if !self.path.is_emulated() {
            return Err(Invalid::new("sweep.nodes", "needs a path"));
        }
        let other_tcp = |load: &Load| matches!(load, Load::Tcp { .. });
        if let Some(index) = self.load.iter().position(other_tcp) {
            let field = format!("load[{index}].kind");
            return Err(Invalid::new(field, "has no hosts beside data nodes"));
        }
        if !self.sweep.traffic.is_empty() {
            let reason = "has no hosts beside data nodes";
            return Err(Invalid::new("sweep.traffic", reason));
        }
        for (index, method) in self.method.iter().enumerate() {
            let field = |name: &str| format!("method[{index}].{name}");
            check_method(method, &field)?;
        }
        Ok(())
    }

    fn check_links(&self, most: u32) -> Result<(), Invalid> {
        for (index, link) in self.nodes.link.iter().enumerate() {
            let field = |name: &str| format!("nodes.link[{index}].{name}");
            is_a_node(link.node, most, &field("node"))?;
            let before = &self.nodes.link[..index];
            if before.iter().any(|other| other.node == link.node) {
                return Err(Invalid::new(field("node"), "has a link already"));
            }
            if link.rate.is_some_and(|rate| !rate.0.is_finite()) {
                return Err(Invalid::new(field("rate"), "a link has a rate"));
            }
        }
        Ok(())
    }

    fn check_fates(&self, most: u32) -> Result<(), Invalid> {
        for (index, change) in self.change.iter().enumerate() {
            let field = |name: &str| format!("change[{index}].{name}");
            if let Some(node) = change.node {
                is_a_node(node, most, &field("node"))?;
            } else if change.becomes.is_some() {
                return Err(Invalid::new(field("becomes"), "needs node"));
            }
        }
        Ok(())
    }
}

fn is_a_node(node: u32, most: u32, field: &str) -> Result<(), Invalid> {
    match most {
        0 => Err(Invalid::new(field, "needs sweep.nodes")),
        _ if (1..=most).contains(&node) => Ok(()),
        _ => Err(Invalid::new(field, format!("must be 1 to {most}"))),
    }
}

fn check_method(method: &Method, field: &dyn Fn(&str) -> String) -> Result<(), Invalid> {
    if !matches!(method.server, Server::Godwitd | Server::GlobusGridftpServer) {
        let reason = "only godwitd and globus-gridftp-server have data nodes";
        return Err(Invalid::new(field("server"), reason));
    }
    if !matches!(method.client, Client::Godwit | Client::GlobusUrlCopy) {
        let reason = "only godwit and globus-url-copy know data nodes";
        return Err(Invalid::new(field("client"), reason));
    }
    if method.transfers > 1 {
        let reason = "servers with data nodes have one transfer";
        return Err(Invalid::new(field("transfers"), reason));
    }
    if method.protect.is_some() {
        let reason = "transfers over data nodes are as anybody";
        return Err(Invalid::new(field("protect"), reason));
    }
    Ok(())
}

//! Checks of the work: one file or a set of files, and which programs can move it.

use super::super::error::Invalid;
use super::super::format::{Client, Direction, Facet, Method, Scenario, Server, X};
use super::super::quantity::Size;

/// Most files of a run: a million takes memory of a few GB for names and inodes alone.
const FILES_MAX: u32 = 1_000_000;

/// Largest set of files, bytes: it lies in memory twice.
const SET_BYTES_MAX: u64 = 4_000_000_000;

impl Scenario {
    pub(super) fn check_work(&self) -> Result<(), Invalid> {
        if self.work.file.is_some() && self.work.files.is_some() {
            return Err(Invalid::new("work.files", "excludes file"));
        }
        for (field, size) in [
            ("work.files", self.work.files),
            ("quick.files", self.quick.files),
        ] {
            if size.is_some_and(|size| size.0 > SET_BYTES_MAX) {
                let reason = format!("must be at most {}", Size(SET_BYTES_MAX));
                return Err(Invalid::new(field, reason));
            }
        }
        let counts = [
            ("sweep.files", &self.sweep.files),
            ("quick.sweep.files", &self.quick.sweep.files),
        ];
        for (table, counts) in counts {
            if let Some(index) = (counts.iter()).position(|n| !(1..=FILES_MAX).contains(n)) {
                let field = format!("{table}[{index}]");
                return Err(Invalid::new(field, format!("must be 1 to {FILES_MAX}")));
            }
        }
        match (self.work.files.is_some(), self.sweep.files.is_empty()) {
            (true, true) => return Err(Invalid::new("work.files", "needs sweep.files")),
            (false, false) => return Err(Invalid::new("sweep.files", "needs work.files")),
            _ => {}
        }
        let drawn = self.figure.x == X::FileSize || self.figure.panels.contains(&Facet::Files);
        if drawn && self.work.files.is_none() {
            return Err(Invalid::new("figure", "needs work.files"));
        }
        Ok(())
    }

    /// Whether the client can move what is to be moved.
    pub(super) fn check_ability(
        &self,
        method: &Method,
        field: &dyn Fn(&str) -> String,
    ) -> Result<(), Invalid> {
        let (file, files) = (self.work.file.is_some(), self.work.files.is_some());
        let refusal = match method.client {
            Client::Iperf3 if file || files => Some("iperf3 moves no files"),
            Client::Curl if files => Some("curl moves no directories"),
            Client::Tnftp | Client::Ncftp | Client::Scp if !file => Some("needs work.file"),
            Client::Lftp if !file && !files => Some("lftp needs work.file or work.files"),
            Client::Rclone | Client::Tar if !files => Some("needs work.files"),
            Client::Davix | Client::Aria2 if !file && !files => {
                Some("davix and aria2 need work.file or work.files")
            }
            _ => None,
        };
        if let Some(reason) = refusal {
            return Err(Invalid::new(field("client"), reason));
        }
        for (client, server, reason) in [
            (
                Client::Iperf3,
                Server::Iperf3,
                "iperf3 speaks to iperf3 only",
            ),
            (Client::Tar, Server::Tar, "tar speaks to tar only"),
            (Client::Scp, Server::Sshd, "scp speaks to sshd only"),
        ] {
            if (method.client == client) != (method.server == server) {
                return Err(Invalid::new(field("server"), reason));
            }
        }
        let has_buckets = method.server == Server::Versitygw;
        let is_https = method.server == Server::GodwitdHttps;
        let refusal = match method.client {
            Client::Davix if !is_https => Some("davix speaks HTTPS only"),
            Client::Boto3 if !has_buckets => Some("boto3 speaks S3 only"),
            Client::GlobusUrlCopy | Client::Lftp | Client::Tnftp | Client::Ncftp if is_https => {
                Some("it speaks no WebDAV")
            }
            Client::GlobusUrlCopy
            | Client::Lftp
            | Client::Tnftp
            | Client::Ncftp
            | Client::Curl
            | Client::Aria2
                if has_buckets =>
            {
                Some("it speaks no S3")
            }
            _ if has_buckets && !files => Some("buckets are directories: use work.files"),
            _ if has_buckets && method.direction == Direction::ThirdParty => {
                Some("no service copies from another one")
            }
            _ if is_https && !file && !files => Some("HTTPS has no files without end"),
            _ if is_https && !files && method.direction != Direction::Get => {
                Some("a put replaces what is there, and nothing is to be: use work.files")
            }
            _ => None,
        };
        if let Some(reason) = refusal {
            return Err(Invalid::new(field("server"), reason));
        }
        let both_ways = matches!(method.client, Client::Godwit | Client::GlobusUrlCopy);
        if method.direction != Direction::Get && !both_ways && method.client != Client::Boto3 {
            let reason = "only godwit, globus-url-copy and boto3 can do anything but get";
            return Err(Invalid::new(field("direction"), reason));
        }
        let by_identity = matches!(method.server, Server::Godwitd | Server::GlobusGridftpServer);
        if method.protect.is_some() && !(both_ways && by_identity) {
            let reason = "only godwit and globus-url-copy have identities, with servers for them";
            return Err(Invalid::new(field("protect"), reason));
        }
        if files && method.parallelism.is_some() {
            let reason = "one client moves all files: say it in arguments";
            return Err(Invalid::new(field("parallelism"), reason));
        }
        if !method.arguments.is_empty() && !both_ways && method.client != Client::Rclone {
            let reason = "only godwit, globus-url-copy and rclone take more arguments";
            return Err(Invalid::new(field("arguments"), reason));
        }
        Ok(())
    }
}

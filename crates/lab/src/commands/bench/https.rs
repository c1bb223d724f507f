//! Benchmark cells of HTTPS: one file from tmpfs to tmpfs between godwit, godwitd and the clients
//! and servers of others, and the same file over private data channels of GridFTP.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
};

use super::{
    BenchError, RUN_LIMIT,
    files::{Files, check_and_remove, run_with_room},
    godwit_cp, io_error,
    record::RunResult,
    testbed::{Installable, Testbed, goodput_cell, of_transfer},
};
use crate::peers::{
    self, Error, Missing, encode_path,
    godwit::Godwitd,
    grid::{self, Grid},
    http::{self, HttpServer},
    plain_ftp::{CURL, RCLONE},
};

/// Channels of godwit and connections of rclone.
const CONNECTIONS: &str = "4";

#[derive(Clone, Copy, PartialEq, Eq)]
enum HttpsPair {
    Godwit,
    GodwitOne,
    Private,
    Curl,
    CurlNginx,
    Rclone,
}

const GET: [HttpsPair; 6] = [
    HttpsPair::Godwit,
    HttpsPair::GodwitOne,
    HttpsPair::Private,
    HttpsPair::Curl,
    HttpsPair::CurlNginx,
    HttpsPair::Rclone,
];

const PUT: [HttpsPair; 5] = [
    HttpsPair::Godwit,
    HttpsPair::GodwitOne,
    HttpsPair::Private,
    HttpsPair::Curl,
    HttpsPair::Rclone,
];

impl Installable for HttpsPair {
    fn name(self) -> &'static str {
        match self {
            Self::Godwit => "godwit, godwitd",
            Self::GodwitOne => "godwit, godwitd, 1 connection",
            Self::Private => "godwit, godwitd, private GridFTP",
            Self::Curl => "curl, godwitd",
            Self::CurlNginx => "curl, nginx",
            Self::Rclone => "rclone, godwitd",
        }
    }

    fn available(self) -> Result<(), Missing> {
        match self {
            Self::Godwit | Self::GodwitOne | Self::Private => Ok(()),
            Self::Curl => CURL.available().map(drop),
            Self::CurlNginx => CURL.available().and(http::NGINX.available()).map(drop),
            Self::Rclone => RCLONE.available().map(drop),
        }
    }
}

struct HttpsServers {
    grid: Grid,
    godwitd: Godwitd,
    /// Where it listens for HTTPS.
    address: SocketAddr,
    nginx: Option<HttpServer>,
}

/// Measures both cells. `folder` holds the file, and is opened to all: nginx may not be root.
pub(super) fn run(
    testbed: &mut Testbed<'_>,
    files: &mut Files,
    folder: &Path,
) -> Result<(), BenchError> {
    grid::available().map_err(Error::from)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).map_err(io_error(folder))?;
    let servers = HttpsServers::start(folder, !testbed.options.no_peers)?;
    for (name, all) in [("https/get", &GET[..]), ("https/put", &PUT[..])] {
        if !testbed.is_asked_for(name) {
            continue;
        }
        let source = files.source(testbed)?.to_owned();
        let (target, bytes) = (files.target(), files.bytes(testbed));
        let title = format!(
            "file to file, {:.1} GB, {CONNECTIONS} connections where a program can have them",
            bytes as f64 / 1e9
        );
        let cell = goodput_cell(name.into(), title, HttpsPair::Godwit.name());
        testbed.compare_installed(cell, all, |who| {
            servers.measure(*who, name == "https/put", &source, &target, bytes)
        })?;
    }
    Ok(())
}

impl HttpsServers {
    fn start(folder: &Path, has_peers: bool) -> Result<Self, Error> {
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let grid = Grid::new(&[ip])?;
        let (godwitd, address) = peers::on_a_free_port(ip, |address| {
            let config = grid.of_godwitd(Godwitd::serving("/").ip(ip));
            let config = config.anonymous("rw").arg("--https");
            Ok((config.arg(address.to_string()).start()?, address))
        })?;
        let has_nginx = has_peers && http::NGINX.available().is_ok();
        let nginx = has_nginx.then(|| HttpServer::start_https(folder, ip, &grid));
        Ok(Self {
            nginx: nginx.transpose()?,
            grid,
            godwitd,
            address,
        })
    }

    fn measure(
        &self,
        who: HttpsPair,
        is_put: bool,
        source: &Path,
        target: &Path,
        bytes: u64,
    ) -> Result<RunResult, BenchError> {
        let command = self.command(who, is_put, source, target)?;
        let usage = || match (who, &self.nginx) {
            (HttpsPair::CurlNginx, Some(nginx)) => nginx.usage(),
            _ => self.godwitd.usage(),
        };
        let before = usage();
        let client = run_with_room(command, bytes, RUN_LIMIT)?;
        let server = usage().since(&before);
        check_and_remove(target, bytes)?;
        Ok(of_transfer(bytes, client.usage, server))
    }

    /// The client's command.
    fn command(
        &self,
        who: HttpsPair,
        is_put: bool,
        source: &Path,
        target: &Path,
    ) -> Result<Command, Error> {
        let base = format!("https://{}", self.address);
        let (source, target) = (source.display().to_string(), target.display().to_string());
        let there = match is_put {
            true => &target,
            false => &source,
        };
        let url = match (who, &self.nginx) {
            (HttpsPair::Private, _) => (self.godwitd.url(there)).replacen("ftp://", "gsiftp://", 1),
            (HttpsPair::CurlNginx, Some(nginx)) => {
                nginx.url(there.rsplit_once('/').map_or("", |(_, name)| name))
            }
            _ => format!("{base}{}", encode_path(there)),
        };
        let ends = match is_put {
            true => [&source, &url],
            false => [&url, &target],
        };
        let mut command;
        match who {
            HttpsPair::Godwit | HttpsPair::GodwitOne | HttpsPair::Private => {
                command = godwit_cp()?;
                let channels = match who {
                    HttpsPair::GodwitOne => "1",
                    _ => CONNECTIONS,
                };
                command.args(["-c", "1", "-p", channels]);
                if who == HttpsPair::Private {
                    command.args(["--protect", "private"]);
                }
                command.args(ends).envs(self.grid.of_user());
            }
            HttpsPair::Curl | HttpsPair::CurlNginx => {
                command = CURL.command()?;
                let quiet = [
                    "--disable",
                    "--silent",
                    "--show-error",
                    "--fail",
                    "--cacert",
                ];
                command.args(quiet).arg(self.grid.authority());
                command.args(match is_put {
                    true => ["--upload-file", &source, &url],
                    false => ["--output", &target, &url],
                });
            }
            HttpsPair::Rclone => {
                command = RCLONE.command()?;
                command
                    .args(["copyto", "--config", "/dev/null", "--ignore-times"])
                    .args(["--multi-thread-streams", CONNECTIONS])
                    .args([
                        "--webdav-vendor",
                        "other",
                        "--webdav-url",
                        &base,
                        "--ca-cert",
                    ])
                    .arg(self.grid.authority());
                let remote = format!(":webdav:{there}");
                command.args(match is_put {
                    true => [&source, &remote],
                    false => [&remote, &target],
                });
            }
        }
        Ok(command)
    }
}

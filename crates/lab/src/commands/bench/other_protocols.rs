//! Benchmark cells of other protocols: one file from tmpfs to tmpfs by curl, aria2, lftp, rclone,
//! xrdcp or scp, each with its fastest server here, unencrypted and encrypted.

use std::{
    ffi::OsString,
    fs,
    net::{IpAddr, Ipv4Addr},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use super::{
    BenchError, RUN_LIMIT,
    files::{Files, check_and_remove, run_with_room},
    io_error,
    record::RunResult,
    testbed::{Installable, Testbed, goodput_cell, of_transfer},
};
use crate::peers::{
    Error, Missing, Usage,
    gct::{self, GctServer},
    godwit::Godwitd,
    grid::{self, Grid},
    http::{self, HttpServer},
    plain_ftp::{CURL, LFTP, RCLONE},
    ssh::{self, SshServer},
    xrootd::{self, XrootdServer},
};

/// Connections of programs that can have several.
const CONNECTIONS: &str = "4";

/// Time after which servers that fork have reaped a session.
const REAPED: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, PartialEq, Eq)]
enum ForeignTool {
    Godwit,
    Gct,
    Curl,
    Aria2,
    Lftp,
    RcloneHttp,
    Xrdcp,
    GodwitPrivate,
    Scp,
    RcloneSftp,
}

const CLEAR: [ForeignTool; 7] = [
    ForeignTool::Gct,
    ForeignTool::Godwit,
    ForeignTool::Curl,
    ForeignTool::Aria2,
    ForeignTool::Lftp,
    ForeignTool::RcloneHttp,
    ForeignTool::Xrdcp,
];

const ENCRYPTED: [ForeignTool; 3] = [
    ForeignTool::GodwitPrivate,
    ForeignTool::Scp,
    ForeignTool::RcloneSftp,
];

impl Installable for ForeignTool {
    fn name(self) -> &'static str {
        match self {
            Self::Godwit => "godwit <- godwitd",
            Self::Gct => "GCT <- GCT",
            Self::Curl => "curl <- nginx",
            Self::Aria2 => "aria2 <- nginx",
            Self::Lftp => "lftp <- nginx",
            Self::RcloneHttp => "rclone <- nginx",
            Self::Xrdcp => "xrdcp <- xrootd",
            Self::GodwitPrivate => "godwit <- godwitd, private",
            Self::Scp => "scp <- sshd",
            Self::RcloneSftp => "rclone <- sshd (sftp)",
        }
    }

    fn available(self) -> Result<(), Missing> {
        let http = |client: Result<PathBuf, Missing>| client.and(http::NGINX.available()).map(drop);
        let ssh = |client: Result<PathBuf, Missing>| client.and(ssh::SSHD.available()).map(drop);
        match self {
            Self::Godwit => Ok(()),
            Self::Gct => gct::available(),
            Self::Curl => http(CURL.available()),
            Self::Aria2 => http(http::ARIA2.available()),
            Self::Lftp => http(LFTP.available()),
            Self::RcloneHttp => http(RCLONE.available()),
            Self::Xrdcp => xrootd::XRDCP
                .available()
                .and(xrootd::XROOTD.available())
                .map(drop),
            Self::GodwitPrivate => grid::available(),
            Self::Scp => ssh(ssh::SCP.available()),
            Self::RcloneSftp => ssh(RCLONE.available()),
        }
    }
}

/// What serves them. Each is started when it is needed, and kept.
struct Servers<'a> {
    folder: &'a Path,
    godwitd: Option<Godwitd>,
    gct: Option<GctServer>,
    http: Option<HttpServer>,
    xrootd: Option<XrootdServer>,
    ssh: Option<SshServer>,
    encrypted: Option<(Grid, Godwitd)>,
}

/// Measures both cells. `folder` holds the file, and is opened to all: servers that may not be root
/// read it as another user.
pub(super) fn run(
    testbed: &mut Testbed<'_>,
    files: &mut Files,
    folder: &Path,
) -> Result<(), BenchError> {
    let mut servers = Servers {
        folder,
        godwitd: None,
        gct: None,
        http: None,
        xrootd: None,
        ssh: None,
        encrypted: None,
    };
    for (name, all) in [
        ("peers/clear", &CLEAR[..]),
        ("peers/encrypted", &ENCRYPTED[..]),
    ] {
        if !testbed.is_asked_for(name) {
            continue;
        }
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).map_err(io_error(folder))?;
        let source = files.source(testbed)?.to_owned();
        let (target, bytes) = (files.target(), files.bytes(testbed));
        let ours = all.iter().find(|who| who.name().starts_with("godwit"));
        let title = format!(
            "file to file, {:.1} GB, {CONNECTIONS} connections where a program can have them",
            bytes as f64 / 1e9
        );
        let cell = goodput_cell(name.into(), title, ours.map_or("", |who| who.name()));
        testbed.compare_installed(cell, all, |who| {
            servers.measure(*who, &source, &target, bytes)
        })?;
    }
    Ok(())
}

impl Servers<'_> {
    fn measure(
        &mut self,
        who: ForeignTool,
        source: &Path,
        target: &Path,
        bytes: u64,
    ) -> Result<RunResult, BenchError> {
        let command = self.command(who, source, target)?;
        let before = self.usage(who);
        let client = run_with_room(command, bytes, RUN_LIMIT)?;
        std::thread::sleep(REAPED);
        let server = self.usage(who).since(&before);
        check_and_remove(target, bytes)?;
        Ok(of_transfer(bytes, client.usage, server))
    }

    fn usage(&self, who: ForeignTool) -> Usage {
        match who {
            ForeignTool::Godwit => self.godwitd.as_ref().map(Godwitd::usage),
            ForeignTool::Gct => self.gct.as_ref().map(GctServer::usage),
            ForeignTool::Curl
            | ForeignTool::Aria2
            | ForeignTool::Lftp
            | ForeignTool::RcloneHttp => self.http.as_ref().map(HttpServer::usage),
            ForeignTool::Xrdcp => self.xrootd.as_ref().map(XrootdServer::usage),
            ForeignTool::GodwitPrivate => self.encrypted.as_ref().map(|(_, server)| server.usage()),
            ForeignTool::Scp | ForeignTool::RcloneSftp => self.ssh.as_ref().map(SshServer::usage),
        }
        .unwrap_or_default()
    }

    /// The client's command, whose server runs.
    fn command(
        &mut self,
        who: ForeignTool,
        source: &Path,
        target: &Path,
    ) -> Result<Command, Error> {
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let (path, arrived) = (source.display().to_string(), target.display().to_string());
        let name = source.file_name().unwrap_or_default().to_string_lossy();
        Ok(match who {
            ForeignTool::Godwit => {
                let server = started(&mut self.godwitd, || {
                    Godwitd::serving("/").ip(ip).anonymous("ro").start()
                })?;
                let mut command = godwit_cp()?;
                command.args([server.url(&path), arrived]);
                command
            }
            ForeignTool::GodwitPrivate => {
                let (grid, server) = started(&mut self.encrypted, || {
                    let grid = Grid::new(&[ip])?;
                    let server = grid.of_godwitd(Godwitd::serving("/").ip(ip)).start()?;
                    Ok((grid, server))
                })?;
                let mut command = godwit_cp()?;
                let url = server.url(&path).replacen("ftp://", "gsiftp://", 1);
                command.args(["--protect", "private", &url, &arrived]);
                command.envs(grid.of_user());
                command
            }
            ForeignTool::Gct => {
                let server = started(&mut self.gct, || GctServer::serving("/").ip(ip).start())?;
                let mut command = gct::URL_COPY.command()?;
                command.args(["-p", CONNECTIONS, &server.machine_url(&path)]);
                command.arg(format!("file://{arrived}"));
                command
            }
            ForeignTool::Curl
            | ForeignTool::Aria2
            | ForeignTool::Lftp
            | ForeignTool::RcloneHttp => {
                let folder = self.folder;
                let server = started(&mut self.http, || HttpServer::start(folder, ip))?;
                fetch_by_http(who, server, &name, target)?
            }
            ForeignTool::Xrdcp => {
                let folder = self.folder;
                let server = started(&mut self.xrootd, || XrootdServer::start(folder, ip))?;
                let mut command = xrootd::XRDCP.command()?;
                command.args(["--nopbar", "--force", "--streams", CONNECTIONS]);
                command.args([server.url(&path), arrived]);
                command
            }
            ForeignTool::Scp => {
                let server = started(&mut self.ssh, || SshServer::start(ip))?;
                let mut command = ssh::SCP.command()?;
                command.args(["-q", "-F"]).arg(server.client_config());
                command.args([format!("{ip}:{path}"), arrived]);
                command
            }
            ForeignTool::RcloneSftp => {
                let server = started(&mut self.ssh, || SshServer::start(ip))?;
                let mut command = rclone()?;
                let addr = server.addr();
                command.args(["copyto", &format!(":sftp:{path}"), &arrived]);
                command.args(["--sftp-host", &addr.ip().to_string()]);
                command.args(["--sftp-port", &addr.port().to_string()]);
                command.arg("--sftp-key-file").arg(server.user_key());
                command.arg("--sftp-user").arg(user());
                command
            }
        })
    }
}

fn fetch_by_http(
    who: ForeignTool,
    server: &HttpServer,
    name: &str,
    target: &Path,
) -> Result<Command, Error> {
    let url = server.url(name);
    let arrived = target.display().to_string();
    let in_folder = (
        target.parent().unwrap_or(target).display().to_string(),
        target
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
    );
    Ok(match who {
        ForeignTool::Aria2 => {
            let mut command = http::ARIA2.command()?;
            command.args([
                "--no-conf",
                "--quiet",
                "--allow-overwrite=true",
                "--file-allocation=none",
            ]);
            command.args([
                "--max-connection-per-server",
                CONNECTIONS,
                "--split",
                CONNECTIONS,
            ]);
            command.args(["--dir", &in_folder.0, "--out", &in_folder.1, &url]);
            command
        }
        ForeignTool::Lftp => {
            let mut command = LFTP.command()?;
            let script =
                format!("set cmd:fail-exit yes; pget -n {CONNECTIONS} -c {url} -o {arrived}");
            command.args(["--norc", "-c", &script]);
            command
        }
        ForeignTool::RcloneHttp => {
            let mut command = rclone()?;
            let (base, _) = url.rsplit_once('/').unwrap_or((&url, ""));
            command.args([
                "copyto",
                &format!(":http:{name}"),
                &arrived,
                "--http-url",
                base,
            ]);
            command
        }
        _ => {
            let mut command = CURL.command()?;
            command.args([
                "--disable",
                "--silent",
                "--show-error",
                "--fail",
                "--output",
                &arrived,
                &url,
            ]);
            command
        }
    })
}

fn godwit_cp() -> Result<Command, Error> {
    let mut command = super::godwit_cp()?;
    command.args(["-c", "1", "-p", CONNECTIONS]);
    Ok(command)
}

/// Without its user's settings; no contender verifies here, and no file is looked at twice.
fn rclone() -> Result<Command, Error> {
    let mut command = RCLONE.command()?;
    command.args([
        "--config",
        "/dev/null",
        "--ignore-checksum",
        "--ignore-times",
    ]);
    command.args(["--multi-thread-streams", CONNECTIONS]);
    Ok(command)
}

/// Who runs this, as a name for a login.
fn user() -> OsString {
    std::env::var_os("USER").unwrap_or_else(|| "root".into())
}

fn started<T>(
    slot: &mut Option<T>,
    start: impl FnOnce() -> Result<T, Error>,
) -> Result<&mut T, Error> {
    Ok(match slot {
        Some(server) => server,
        None => slot.insert(start()?),
    })
}

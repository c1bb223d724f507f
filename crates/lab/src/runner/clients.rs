//! The clients of a method: how each is started, and which arguments select what it moves.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    payload::Payload,
    serving::{Ends, HttpsDoor, Serving, argument, misused, source, target},
};
use crate::{
    peers::{
        self, Missing, gct, godwit, grid, http, iperf3, plain_ftp,
        s3::{self, S3Server},
        ssh, tar,
    },
    scenario::{Client, Direction, Method, Server},
};

/// Bytes asked of `/dev/zero`: more than any run takes (2 h at 100 Gbit/s).
const ENDLESS_BYTES: u64 = 100_000_000_000_000;

/// Seconds asked of `iperf3`: longer than any run.
const ENDLESS_SECONDS: u32 = 86_400;

/// Whether both programs of a method are installed.
pub(super) fn available(method: &Method) -> Result<(), Missing> {
    if method.protect.is_some() {
        grid::available()?;
    }
    match method.server {
        Server::GodwitdHttps => {
            grid::available()?;
            godwit::binary("godwitd").map(drop)?;
        }
        Server::Godwitd => godwit::binary("godwitd").map(drop)?,
        Server::GlobusGridftpServer => gct::SERVER.available().map(drop)?,
        Server::Versitygw => s3::Kind::Versitygw.available().map(drop)?,
        Server::Sshd => ssh::SSHD.available().map(drop)?,
        Server::Iperf3 => iperf3::IPERF3.available().map(drop)?,
        Server::Tar => tar::available()?,
    }
    match method.client {
        Client::Godwit => godwit::binary("godwit").map(drop),
        Client::GlobusUrlCopy => gct::URL_COPY.available().map(drop),
        Client::Iperf3 => iperf3::IPERF3.available().map(drop),
        Client::Curl => plain_ftp::CURL.available().map(drop),
        Client::Tnftp => plain_ftp::TNFTP.available().map(drop),
        Client::Ncftp => plain_ftp::NCFTPGET.available().map(drop),
        Client::Scp => ssh::SCP.available().map(drop),
        Client::Lftp => plain_ftp::LFTP.available().map(drop),
        Client::Rclone => plain_ftp::RCLONE.available().map(drop),
        Client::Davix => http::DAVIX_GET.available().map(drop),
        Client::Aria2 => http::ARIA2.available().map(drop),
        Client::Boto3 => s3::python_with_boto3().map(drop),
        Client::Tar => tar::available(),
    }
}

/// What is to be moved.
#[derive(Clone, Copy)]
pub(super) struct Task<'a> {
    pub(super) payload: &'a Payload,
    /// Parallel channels; 0 where the program chooses them.
    pub(super) channels: u32,
    /// Where the event log goes, for programs that write one.
    pub(super) events: Option<&'a Path>,
}

/// The command lines of the clients: one, but for programs with one mover that are to have more.
pub(super) fn commands(
    method: &Method,
    ends: Ends<'_>,
    task: Task<'_>,
) -> Result<Vec<Command>, peers::Error> {
    let parallelism = method.parallelism.unwrap_or(task.channels).max(1);
    let movers = (task.channels / parallelism).max(1);
    match method.client {
        Client::Godwit => Ok(vec![godwit(method, ends, task)?]),
        Client::GlobusUrlCopy => (0..movers)
            .map(|_| url_copy(method, ends, task, parallelism))
            .collect(),
        Client::Iperf3 => {
            let server = ends.server()?.address();
            let mut command = iperf3::IPERF3.command()?;
            command
                .args(["--client", &server.ip().to_string()])
                .args(["--port", &server.port().to_string()])
                .args(["--reverse", "--parallel", &task.channels.to_string()])
                .args(["--time", &ENDLESS_SECONDS.to_string()]);
            if let Some(buffer) = method.tcp_buffer {
                command.args(["--window", &buffer.0.to_string()]);
            }
            Ok(vec![command])
        }
        Client::Curl | Client::Rclone | Client::Davix | Client::Aria2
            if let Some(door) = ends.door() =>
        {
            Ok(vec![of_https(method, door, task)?])
        }
        Client::Rclone | Client::Boto3 if let Some(server) = ends.buckets() => {
            Ok(vec![of_buckets(method, server, task)?])
        }
        Client::Aria2 => {
            let from = of_ftp(ends, task)?;
            Ok(vec![aria2(&from, None, task)?])
        }
        Client::Davix => Err(misused("it speaks HTTPS only")),
        Client::Boto3 => Err(misused("it speaks S3 only")),
        Client::Curl => {
            let serving = ends.server()?;
            let mut command = plain_ftp::CURL.command()?;
            command.args(["--disable", "--silent", "--show-error"]);
            if matches!(serving, Serving::Gct(_)) {
                command.args(plain_ftp::CURL_TYPE_FIRST);
            }
            command
                .args(["--output", &argument(&target(task.payload), task.payload)])
                .arg(of_ftp(ends, task)?);
            Ok(vec![command])
        }
        Client::Tnftp => {
            let mut command = plain_ftp::TNFTP.command()?;
            command.args(["-V", "-o"]).arg(target(task.payload));
            command.arg(of_ftp(ends, task)?);
            Ok(vec![command])
        }
        Client::Ncftp => Ok(vec![ncftp(ends, task)?]),
        Client::Scp => Ok(vec![scp(ends, task)?]),
        Client::Lftp => Ok(vec![lftp(ends, task)?]),
        Client::Rclone => {
            let mut command = plain_ftp::RCLONE.command()?;
            command
                .arg("copy")
                .args(plain_ftp::rclone_remote(ends.server()?.address()))
                .args(["--transfers", &task.channels.to_string()])
                // It fetches a large file in parts, breaks each off when it has enough, and takes
                // the 426 for a failure (before 1.62).
                .args(["--multi-thread-streams", "0"])
                .args(&method.arguments)
                .arg(format!(":ftp:{}", source(task.payload).display()))
                .arg(target(task.payload));
            Ok(vec![command])
        }
        Client::Tar => {
            let server = ends.server()?.address();
            Ok(vec![tar::fetch(server, &target(task.payload))?])
        }
    }
}

fn godwit(method: &Method, ends: Ends<'_>, task: Task<'_>) -> Result<Command, peers::Error> {
    let mut command = Command::new(godwit::binary("godwit")?);
    // Each run finds out for itself.
    // What is measured may be a file that is all hole.
    command.args([
        "cp",
        "--quiet",
        "--no-verify",
        "--no-path-memory",
        "--no-sparse",
    ]);
    if !method.one_user {
        command.arg("--alone");
    }
    let mut option = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            command.args([name, &value]);
        }
    };
    let text = |number: Option<u32>| number.map(|number| number.to_string());
    if method.is_tuned() {
        option("--tuner", method.tuner.clone());
        option("--epoch", method.epoch.map(|epoch| epoch.0.to_string()));
        let mode = method.epoch_mode.map(|mode| mode.name().to_owned());
        option("--epoch-mode", mode);
        option("--max-channels", text(method.max_channels));
        option("--parallelism", text(method.parallelism));
    } else {
        let parallelism = method.parallelism.unwrap_or(task.channels);
        option("--parallelism", text(Some(parallelism)));
        option("--concurrency", text(Some(task.channels / parallelism)));
        option("--max-channels", text(Some(task.channels * ends.stripes())));
    }
    let buffer = method.tcp_buffer.map(|size| size.0.to_string());
    option("--tcp-buffer", buffer);
    let endless = matches!(task.payload, Payload::Endless);
    option("--length", endless.then(|| ENDLESS_BYTES.to_string()));
    if let Some(events) = task.events {
        command.arg("--events").arg(events);
    }
    if let Payload::Files(set) = task.payload {
        command.arg("--recursive");
        // It keeps one of downloads by default; here it must not outlive the run.
        if method.direction == Direction::Get {
            command.arg("--journal").arg(set.side().join("journal"));
        }
    }
    if let Some(protect) = method.protect {
        command.args(["--protect", protect.name()]);
    }
    if let Some(door) = ends.door() {
        command.arg("--ca").arg(&door.authority);
    }
    if let Some(server) = ends.buckets() {
        command.envs(server.variables());
    }
    // Nothing proves that nodes belong to their front end.
    for server in [ends.source, ends.destination].into_iter().flatten() {
        for host in server.node_hosts() {
            command.args(["--data-host", &host.to_string()]);
        }
    }
    let ends = [ends.from(task.payload, ""), ends.to(task.payload, "")];
    command.args(&method.arguments);
    command.args(ends.map(|end| url_for(method, end)));
    Ok(command)
}

fn url_copy(
    method: &Method,
    ends: Ends<'_>,
    task: Task<'_>,
    parallelism: u32,
) -> Result<Command, peers::Error> {
    let mut command = gct::URL_COPY.command()?;
    match task.payload {
        // As shipped, unless the method has arguments of its own: files one by one, in stream mode.
        Payload::Files(_) => command.args(["-r", "-cd"]),
        Payload::Endless | Payload::File(_) => command.args(["-p", &parallelism.to_string()]),
    };
    if let Some(buffer) = method.tcp_buffer {
        command.args(["-tcp-bs", &buffer.0.to_string()]);
    }
    // Between servers a length would be asked room for, and /dev/zero has no end anyway.
    let endless = matches!(task.payload, Payload::Endless);
    if endless && method.direction != Direction::ThirdParty {
        command.args(["-len", &ENDLESS_BYTES.to_string()]);
    }
    let (from, to) = (
        ends.from(task.payload, "file://"),
        ends.to(task.payload, "file://"),
    );
    if let Some(protect) = method.protect {
        command.args(["-s", grid::HOST_SUBJECT]);
        command.args(protect.of_url_copy());
    }
    command.args(&method.arguments);
    command.args([from, to].map(|end| url_for(method, end)));
    Ok(command)
}

/// A URL as an argument of the method's client.
fn url_for(method: &Method, url: String) -> String {
    match method.protect {
        Some(_) => url.replacen("ftp://", "gsiftp://", 1),
        None => url,
    }
}

/// What other clients of S3 copy. The buckets have the names of the directories.
pub(super) fn of_buckets(
    method: &Method,
    server: &S3Server,
    task: Task<'_>,
) -> Result<Command, peers::Error> {
    let (source, target) = (source(task.payload), target(task.payload));
    if method.client == Client::Boto3 {
        return Ok(match method.direction {
            Direction::Get => s3::boto3(server, "get", "source", &target, task.channels)?,
            _ => s3::boto3(server, "put", "target", &source, task.channels)?,
        });
    }
    let mut command = server.rclone()?;
    command
        .args(["copy", "--config", "/dev/null"])
        .args(["--transfers", &task.channels.to_string()])
        .args(&method.arguments)
        .arg(server.rclone_path("source", ""))
        .arg(target);
    Ok(command)
}

/// What clients of HTTPS fetch, and how.
pub(super) fn of_https(
    method: &Method,
    door: &HttpsDoor,
    task: Task<'_>,
) -> Result<Command, peers::Error> {
    let from = door.url(&argument(&source(task.payload), task.payload));
    let to = target(task.payload);
    let channels = task.channels.to_string();
    let is_one = !matches!(task.payload, Payload::Files(_));
    let mut command;
    match method.client {
        Client::Rclone => {
            command = plain_ftp::RCLONE.command()?;
            command
                .args(["copy", "--config", "/dev/null", "--webdav-vendor", "other"])
                .args(["--webdav-url", &door.url("")])
                .arg("--ca-cert")
                .arg(&door.authority)
                .args(["--transfers", &channels])
                .args(&method.arguments)
                .arg(format!(":webdav:{}", source(task.payload).display()))
                .arg(to);
        }
        Client::Davix => {
            command = http::DAVIX_GET.command()?;
            command.arg("--capath").arg(&door.authorities);
            match is_one {
                true => command.arg(from),
                // It looks into directories of WebDAV alone.
                false => {
                    command.args(["-r", &channels]);
                    command.arg(format!("{}/", from.replacen("https", "davs", 1)))
                }
            };
            command.arg(to);
        }
        Client::Aria2 => return aria2(&from, Some(&door.authority), task),
        _ => {
            command = plain_ftp::CURL.command()?;
            command
                .args([
                    "--disable",
                    "--silent",
                    "--show-error",
                    "--fail",
                    "--cacert",
                ])
                .arg(&door.authority)
                .arg("--output")
                .arg(to)
                .arg(from);
        }
    }
    Ok(command)
}

/// As [`target`], for clients that cannot write to `/dev/null`.
fn target_file(payload: &Payload) -> PathBuf {
    match payload {
        Payload::File(file) => file.target().to_owned(),
        Payload::Files(_) | Payload::Endless => target(payload),
    }
}

/// What is fetched, for clients that start in the login directory.
fn of_ftp(ends: Ends<'_>, task: Task<'_>) -> Result<String, peers::Error> {
    let path = argument(&source(task.payload), task.payload);
    Ok(plain_ftp::absolute_url(ends.server()?.address(), &path))
}

/// `from`: a file, or a directory, whose files are named one by one, since it lists none.
/// `authority`: the CA, over HTTPS.
fn aria2(from: &str, authority: Option<&Path>, task: Task<'_>) -> Result<Command, peers::Error> {
    let channels = task.channels.to_string();
    let mut command = http::ARIA2.command()?;
    command
        .args(["--quiet", "--no-conf", "--allow-overwrite=true"])
        .args(["--file-allocation=none", "--auto-file-renaming=false"])
        .args(["--min-split-size=1M", "--split", &channels])
        .args(["--max-connection-per-server", &channels]);
    if let Some(authority) = authority {
        command.arg("--ca-certificate").arg(authority);
    }
    match task.payload {
        Payload::Files(set) => {
            let from = from.trim_end_matches('/');
            let urls = set.names().map(|name| format!("{from}/{name}\n"));
            let list = set.side().join("urls");
            let written = fs::write(&list, urls.collect::<String>());
            written.map_err(peers::Error::os("write a list for aria2"))?;
            command
                .arg("--dir")
                .arg(set.target())
                .arg("--input-file")
                .arg(list);
            command.args(["--max-concurrent-downloads", &channels]);
        }
        payload => {
            // It keeps a file of its own beside what it fetches.
            let to = target_file(payload);
            let folder = to.parent().unwrap_or(Path::new("/"));
            let name = to.file_name().unwrap_or_default();
            command.arg("--dir").arg(folder).arg("--out").arg(name);
            command.arg(from);
        }
    }
    Ok(command)
}

fn ncftp(ends: Ends<'_>, task: Task<'_>) -> Result<Command, peers::Error> {
    let server = ends.server()?.address();
    let mut command = plain_ftp::NCFTPGET.command()?;
    command
        // It would go on with what an earlier run has left.
        .args(["-V", "-Z", "-P", &server.port().to_string(), "-C"])
        .arg(server.ip().to_string())
        .arg(source(task.payload))
        .arg(target_file(task.payload));
    Ok(command)
}

fn scp(ends: Ends<'_>, task: Task<'_>) -> Result<Command, peers::Error> {
    let Serving::Sshd(server) = ends.server()? else {
        return Err(misused("it speaks to sshd only"));
    };
    let from = source(task.payload);
    let mut command = ssh::SCP.command()?;
    command.arg("-q").arg("-F").arg(server.client_config());
    command.arg(format!("{}:{}", server.addr().ip(), from.display()));
    command.arg(target_file(task.payload));
    Ok(command)
}

pub(super) fn lftp(ends: Ends<'_>, task: Task<'_>) -> Result<Command, peers::Error> {
    let verb = match (task.payload, task.channels) {
        (Payload::Files(_), files) => format!("mirror --parallel={files}"),
        (Payload::File(_), 1) | (Payload::Endless, _) => "get".to_owned(),
        (Payload::File(_), parts) => format!("pget -n {parts}"),
    };
    let to = match task.payload {
        Payload::Files(_) => "",
        Payload::File(_) | Payload::Endless => "-o ",
    };
    let script = format!(
        "set net:timeout 20; set net:max-retries 1; set ftp:ssl-allow no; \
         set cmd:fail-exit yes; set xfer:clobber yes; open ftp://{}; {verb} \"{}\" {to}\"{}\"",
        ends.server()?.address(),
        source(task.payload).display(),
        target_file(task.payload).display(),
    );
    let mut command = plain_ftp::LFTP.command()?;
    command.args(["--norc", "-c", &script]);
    Ok(command)
}

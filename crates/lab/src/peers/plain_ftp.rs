//! Ordinary FTP clients, which know nothing of GridFTP: `curl`, `ftp`, `ncftp`, `lftp`, `rclone`.
//!
//! They start in the login directory, so `ftp://host/path` is relative to it. An absolute path is
//! written `ftp://host/%2Fpath`; [`absolute_url`] does.
//!
//! `curl` sets up the data channel before it sends `TYPE I`, which the reference server takes for
//! a transfer as text: see [`crate::peers::gct`]. [`CURL_TYPE_FIRST`] avoids it there. Other
//! servers must cope without.
//!
//! Against the reference server `lftp`'s `mirror` fails at every file ("501 Syntax error", seen
//! with 4.9.2 and 13.24), and `rclone` needs `--ftp-disable-utf8`.

use std::net::SocketAddr;
use std::path::Path;

use super::process::Finished;
use super::{Error, Tool};

/// `curl`; anonymous without options.
pub const CURL: Tool = Tool::new("curl", "curl");

/// `lftp`; anonymous without options.
pub const LFTP: Tool = Tool::new("lftp", "lftp");

/// BSD's `ftp`; logs in as anonymous if the URL has no user.
pub const TNFTP: Tool = Tool::new("tnftp", "tnftp");

/// Fetches one file as `ncftp` does; anonymous without options.
pub const NCFTPGET: Tool = Tool::new("ncftpget", "ncftp");

/// `rclone`; [`rclone_remote`] says how it logs in anonymously.
pub const RCLONE: Tool = Tool::new("rclone", "rclone");

/// Arguments of `rclone` for `server`: paths on it begin with `:ftp:`. Neither the user's settings
/// nor a question at the terminal.
pub fn rclone_remote(server: SocketAddr) -> Vec<String> {
    // The program takes only obscured passwords: this is "guest".
    let obscured = "XRirJ4gKY77c6YGKaN6BKiFhdGi5";
    let settings = [
        ("--config", "/dev/null"),
        ("--ftp-host", &server.ip().to_string()),
        ("--ftp-port", &server.port().to_string()),
        ("--ftp-user", "anonymous"),
        ("--ftp-pass", obscured),
    ];
    let words = settings.iter().flat_map(|(name, value)| [*name, *value]);
    words.map(str::to_owned).collect()
}

/// Arguments that make `curl` send `TYPE I` before anything else.
pub const CURL_TYPE_FIRST: [&str; 2] = ["-Q", "TYPE I"];

/// The URL of an absolute path, for clients that start in the login directory.
pub fn absolute_url(server: SocketAddr, path: &str) -> String {
    let path = super::encode_path(path.trim_start_matches('/'));
    format!("ftp://{server}/%2F{path}")
}

/// Downloads `url` to `target` with `curl` and these extra arguments.
///
/// # Errors
/// As [`Tool::run`], and [`Error::Failed`].
pub fn curl_get(extra: &[&str], url: &str, target: &Path) -> Result<Finished, Error> {
    let mut command = CURL.command()?;
    command
        .args(CURL_QUIET)
        .args(extra)
        .arg("--output")
        .arg(target)
        .arg(url);
    super::process::run(command, super::RUN_TIMEOUT)?.success()
}

/// Uploads `source` to `url` with `curl` and these extra arguments.
///
/// # Errors
/// As [`Tool::run`], and [`Error::Failed`].
pub fn curl_put(extra: &[&str], source: &Path, url: &str) -> Result<Finished, Error> {
    let mut command = CURL.command()?;
    command
        .args(CURL_QUIET)
        .args(extra)
        .arg("--upload-file")
        .arg(source)
        .arg(url);
    super::process::run(command, super::RUN_TIMEOUT)?.success()
}

/// Runs `lftp` commands, separated by `;`, logged in to `server`. Stops at the first that fails.
///
/// # Errors
/// As [`Tool::run`], and [`Error::Failed`].
pub fn lftp(server: SocketAddr, script: &str) -> Result<Finished, Error> {
    // It would retry for ever, try TLS first, and read its user's settings.
    let script = format!(
        "set net:timeout 20; set net:max-retries 1; set ftp:ssl-allow no; \
         set cmd:fail-exit yes; open ftp://{server}; {script}"
    );
    LFTP.run(["--norc", "-c", &script])?.success()
}

/// No progress display, errors in words, nothing from `~/.curlrc` (first, or it is too late).
const CURL_QUIET: [&str; 3] = ["--disable", "--silent", "--show-error"];

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;
    use crate::peers::gct::{self, GctServer};
    use crate::peers::godwit::{self, Godwitd};
    use crate::peers::present;

    #[test]
    fn rclone_copies_from_ours() {
        let found = RCLONE.available().map(drop);
        let found = found.and_then(|()| godwit::binary("godwitd").map(drop));
        if present("rclone_copies_from_ours", found).is_none() {
            return;
        }
        let (root, target) = (TempDir::new().expect("one"), TempDir::new().expect("two"));
        fs::write(root.path().join("a b"), CONTENT).expect("a file");
        let server = Godwitd::serving(root.path()).start().expect("starts");
        let mut arguments = vec!["copy".to_owned()];
        arguments.extend(rclone_remote(server.addr()));
        arguments.push(":ftp:/".to_owned());
        arguments.push(target.path().display().to_string());
        RCLONE
            .run(arguments)
            .and_then(Finished::success)
            .expect("copies");
        assert_eq!(
            fs::read(target.path().join("a b")).expect("copied"),
            CONTENT
        );
    }

    const CONTENT: &[u8] = b"text\r\nwith both\nkinds of ends\r\n";

    #[test]
    fn curl_copies_once_told_the_type_first() {
        let test = "curl_copies_once_told_the_type_first";
        let found = CURL.available().and_then(|_| gct::SERVER.available());
        if present(test, found).is_none() {
            return;
        }
        let root = TempDir::new().expect("a directory");
        let path = root.path().join("a b");
        fs::write(&path, CONTENT).expect("a file");
        let server = GctServer::serving(root.path()).start().expect("starts");

        let url = absolute_url(server.addr(), path.to_str().expect("UTF-8"));
        let got = root.path().join("got");
        curl_get(&CURL_TYPE_FIRST, &url, &got).expect("gets");
        assert_eq!(fs::read(&got).expect("got"), CONTENT);
        let url = absolute_url(server.addr(), &format!("{}/put", root.path().display()));
        curl_put(&CURL_TYPE_FIRST, &got, &url).expect("puts");
        assert_eq!(fs::read(root.path().join("put")).expect("put"), CONTENT);
    }

    #[test]
    fn lftp_copies_and_stops_at_failures() {
        let test = "lftp_copies_and_stops_at_failures";
        let found = LFTP.available().and_then(|_| gct::SERVER.available());
        if present(test, found).is_none() {
            return;
        }
        let root = TempDir::new().expect("a directory");
        fs::write(root.path().join("a"), CONTENT).expect("a file");
        let server = GctServer::serving(root.path()).start().expect("starts");

        let got = root.path().join("got");
        lftp(server.addr(), &format!("get a -o {}", got.display())).expect("gets");
        assert_eq!(fs::read(&got).expect("got"), CONTENT);
        let script = format!("put {} -o new; get absent; rm new", got.display());
        let error = lftp(server.addr(), &script).expect_err("absent");
        assert!(matches!(error, Error::Failed { .. }), "{error}");
        assert_eq!(fs::read(root.path().join("new")).expect("new"), CONTENT);
    }
}

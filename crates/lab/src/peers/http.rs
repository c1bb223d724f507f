//! `nginx`, which serves files over HTTP with `sendfile`, and the clients that fetch from it.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use tempfile::TempDir;

use super::grid::Grid;
use super::process::{Options, Process};
use super::usage::Usage;
use super::{Error, Tool};

/// The server.
pub const NGINX: Tool = Tool::new("nginx", "nginx-light");

/// A client that fetches one file over several connections.
pub const ARIA2: Tool = Tool::new("aria2c", "aria2");

/// A client that fetches each file over one connection.
pub const DAVIX_GET: Tool = Tool::new("davix-get", "davix");

/// A running `nginx`. Dropping it ends it.
#[derive(Debug)]
pub struct HttpServer {
    process: Process,
    addr: SocketAddr,
    scheme: &'static str,
    _folder: TempDir,
}

impl HttpServer {
    /// Serves `root` as the user who starts it, with one process per processor.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Os`], [`Error::TimedOut`] where it does not answer.
    pub fn start(root: &Path, ip: IpAddr) -> Result<HttpServer, Error> {
        super::on_a_free_port(ip, |addr| Self::start_at(root, addr, None))
    }

    /// The same over HTTPS, with the certificate of the grid's host.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_https(root: &Path, ip: IpAddr, grid: &Grid) -> Result<HttpServer, Error> {
        super::on_a_free_port(ip, |addr| Self::start_at(root, addr, Some(grid)))
    }

    fn start_at(root: &Path, addr: SocketAddr, grid: Option<&Grid>) -> Result<HttpServer, Error> {
        let folder = TempDir::new().map_err(Error::os("make a directory for nginx"))?;
        let user = match rustix::process::geteuid().is_root() {
            true => "user root;\n",
            false => "",
        };
        let own = folder.path().display();
        let tls = grid.map_or_else(String::new, |grid| {
            let [(_, certificate), (_, key), _] = grid.of_service();
            format!(
                " ssl; ssl_certificate {}; ssl_certificate_key {}",
                certificate.display(),
                key.display()
            )
        });
        let text = format!(
            "{user}daemon off;\nworker_processes auto;\npid {own}/pid;\nerror_log stderr;\n\
             events {{}}\nhttp {{\n\
             access_log off;\nsendfile on;\ntcp_nopush on;\nclient_body_temp_path {own};\n\
             proxy_temp_path {own};\n\
             fastcgi_temp_path {own};\nuwsgi_temp_path {own};\nscgi_temp_path {own};\n\
             server {{ listen {addr}{tls}; root {}; }}\n}}\n",
            root.display()
        );
        let config = folder.path().join("nginx.conf");
        fs::write(&config, text).map_err(Error::os("write the configuration of nginx"))?;
        let mut command = NGINX.command()?;
        command.arg("-c").arg(&config).arg("-p").arg(folder.path());
        let mut process = Process::spawn(command, Options::default())?;
        process.await_listening(addr, Process::log)?;
        Ok(HttpServer {
            process,
            addr,
            scheme: grid.map_or("http", |_| "https"),
            _folder: folder,
        })
    }

    /// The URL of a path below the root.
    pub fn url(&self, path: &str) -> String {
        let path = super::encode_path(path.trim_start_matches('/'));
        format!("{}://{}/{path}", self.scheme, self.addr)
    }

    /// What it has cost so far.
    pub fn usage(&self) -> Usage {
        self.process.usage()
    }
}

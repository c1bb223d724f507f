//! Where a cell runs: servers with their logins, and a directory for each cell at both ends.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use godwit_gsi::cert::proxy::ProxyRequest;
use godwit_lab::peers::{
    arc::{ArcConfig, ArcServer},
    ftps::{self, FtpsServer},
    gct::GctServer,
    godwit::{self, Godwitd},
    jglobus,
};

use crate::{
    gsi_server::{Environment, GridSite},
    sshftp::Sshd,
    support::{Need, have},
};

/// How a user is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Login {
    Anonymous,
    Password,
    Tls,
    Grid,
    Ssh,
}

/// The password of all users that have one.
pub(super) const PASSWORD: &str = "sesame";

/// A running server, as clients know it.
pub(super) struct Server {
    /// What the paths of its clients begin with, and where that is.
    path: String,
    root: PathBuf,
    /// The beginning of its URLs.
    host: String,
    user: &'static str,
    /// Where it lets users in by ssh, that is another one.
    by_ssh: Option<Box<Server>>,
    /// The certificate by which it is known, and the account that its sessions act as where it is
    /// not root.
    authority: PathBuf,
    owner: Option<u32>,
    is_ours: bool,
    log: Box<dyn Fn() -> String + Send + Sync>,
}

impl Server {
    /// The URL of a path, for clients that have a scheme for each way in.
    fn url(&self, login: Login, path: &str) -> String {
        if let (Login::Ssh, Some(server)) = (login, &self.by_ssh) {
            return format!("sshftp://{}{}{path}", server.host, server.path);
        }
        let (scheme, user) = match login {
            Login::Anonymous => ("ftp", String::new()),
            Login::Password => ("ftp", format!("{}:{PASSWORD}@", self.user)),
            Login::Tls => ("ftpes", format!("{}@", self.user)),
            Login::Grid => ("gsiftp", String::new()),
            Login::Ssh => ("sshftp", String::new()),
        };
        format!("{scheme}://{user}{}{}{path}", self.host, self.path)
    }

    /// The URL of what is below the home of its users, which is the directory that it serves.
    fn at_home(&self, login: Login, name: &str) -> String {
        let url = self.url(login, "");
        let host = url.split('/').take(3).collect::<Vec<_>>().join("/");
        format!("{host}/~/{name}")
    }

    pub(super) fn root(&self, login: Login) -> &Path {
        match (login, &self.by_ssh) {
            (Login::Ssh, Some(server)) => &server.root,
            _ => &self.root,
        }
    }
}

/// Everything that runs while cells are tried.
pub(super) struct Grounds {
    site: GridSite,
    pub(super) environment: Environment,
    pub(super) godwitd: Server,
    pub(super) gct: Option<Server>,
    pub(super) ssh: Option<Sshd>,
    ssh_of_gct: Option<Sshd>,
    /// Where compiled classes of Java are.
    pub(super) classes: Option<PathBuf>,
}

impl Grounds {
    pub(super) fn new() -> Self {
        let site = GridSite::new();
        let authority = site.path("authority.pem");
        let pem = site.grid.authority.certificate().as_x509().to_pem();
        fs::write(&authority, pem.expect("pem")).expect("writes");
        fs::write(site.path("gridmap"), "\"/O=Grid/CN=Jo Doe\" root\n").expect("writes");
        let mut environment = site.proxy(&site.jo(), &ProxyRequest::default());
        environment.push(("HOME", site.path("local")));
        environment.push(("XDG_STATE_HOME", site.path("local")));
        let (mut ssh, mut ssh_of_gct) = (None, None);
        if have(&[Need::Sshd]) {
            fs::create_dir_all("/run/sshd").expect("a directory");
            let sshd = Sshd::start();
            sshd.script(".globus/sshftp", "exec godwitd --ssh");
            ssh = Some(sshd);
            let sshd = Sshd::start();
            let home = sshd.at("home");
            sshd.script(
                ".globus/sshftp",
                &format!(
                    "X509_CERT_DIR={} exec /usr/sbin/globus-gridftp-server -ssh -anonymous-user \
                     nobody",
                    home.display()
                ),
            );
            ssh_of_gct = Some(sshd);
        }
        let by_ssh = |sshd: &Option<Sshd>| sshd.as_ref().map(of_ssh).map(Box::new);
        let godwitd = Server {
            by_ssh: by_ssh(&ssh),
            ..our_server(&site, &authority)
        };
        let gct = have(&[Need::Gct]).then(|| Server {
            by_ssh: by_ssh(&ssh_of_gct),
            ..reference_server(&site, &authority)
        });
        let classes = have(&[Need::JGlobus]).then(|| {
            let program = "tests/java/Compatibility.java";
            let program = Path::new(env!("CARGO_MANIFEST_DIR")).join(program);
            let folder = site.path("classes");
            jglobus::compile(&program, &folder).expect("compiles");
            folder
        });
        Self {
            environment,
            godwitd,
            gct,
            ssh,
            ssh_of_gct,
            classes,
            site,
        }
    }

    pub(super) fn authorities(&self) -> &Path {
        self.site.grid.path()
    }

    /// ARC's, which has no other way in than certificates.
    pub(super) fn arc(&self) -> Server {
        let root = self.site.path("arc");
        fs::create_dir(&root).expect("a directory");
        let config = ArcConfig {
            root: root.clone(),
            certificate: self.site.path("hostcert.pem"),
            key: self.site.path("hostkey.pem"),
            authorities: self.authorities().to_owned(),
        };
        let server = ArcServer::start(&config).expect("ARC's server starts");
        Server {
            path: String::new(),
            root,
            host: format!("localhost:{}", server.addr().port()),
            user: "",
            by_ssh: None,
            authority: self.site.path("authority.pem"),
            owner: None,
            is_ours: false,
            log: Box::new(move || server.log()),
        }
    }

    pub(super) fn plain(&self, kind: ftps::Kind) -> Server {
        // Those that can demand it see whether data connections resume a TLS session.
        let server = FtpsServer::start(kind, true).expect("it starts");
        let url = server.url("");
        let (_, rest) = url.split_once('@').expect("a user");
        let (host, path) = rest.split_once('/').expect("a path");
        Server {
            path: format!("/{path}").trim_end_matches('/').to_owned(),
            root: server.at(""),
            host: host.to_owned(),
            user: kind.login(),
            by_ssh: None,
            authority: server.certificate(),
            owner: server.owner(),
            is_ours: false,
            log: Box::new(move || server.log()),
        }
    }

    /// The settings of ssh that lead to a server.
    pub(super) fn ssh_to(&self, server: &Server) -> Option<String> {
        let sshd = match server.is_ours {
            true => &self.ssh,
            false => &self.ssh_of_gct,
        };
        let config = sshd.as_ref()?.at("ssh_config");
        Some(format!("-F {}", config.display()))
    }
}

fn our_server(site: &GridSite, authority: &Path) -> Server {
    let root = site.path("a");
    let passwords = site.path("passwords");
    let mut made = Command::new(godwit::binary("godwitd").expect("present"))
        .args(["passwd", "--stdin"])
        .arg(&passwords)
        .arg("jo")
        .stdin(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut input = made.stdin.take().expect("is piped");
    input.write_all(PASSWORD.as_bytes()).expect("is read");
    drop(input);
    assert!(made.wait().expect("ends").success());
    let mut config = Godwitd::serving(&root).arg("--allow-clear-passwords");
    for (flag, value) in [
        ("--cert", site.path("hostcert.pem")),
        ("--key", site.path("hostkey.pem")),
        ("--trusted-certs", site.grid.path().to_owned()),
        ("--gridmap", site.path("gridmap")),
        ("--password-file", passwords),
    ] {
        config = config.arg(flag).arg(value);
    }
    let server = config.start().expect("godwitd starts");
    Server {
        path: String::new(),
        root,
        host: format!("localhost:{}", server.addr().port()),
        user: "jo",
        by_ssh: None,
        authority: authority.to_owned(),
        owner: None,
        is_ours: true,
        log: Box::new(move || server.log()),
    }
}

fn reference_server(site: &GridSite, authority: &Path) -> Server {
    let root = site.path("b");
    let config = GctServer::serving(&root)
        .env("X509_CERT_DIR", site.grid.path())
        .env("X509_USER_CERT", site.path("hostcert.pem"))
        .env("X509_USER_KEY", site.path("hostkey.pem"))
        .env("GRIDMAP", site.path("gridmap"));
    let server = config.start().expect("the reference server starts");
    Server {
        path: root.display().to_string(),
        root,
        host: format!("localhost:{}", server.addr().port()),
        user: "jo",
        by_ssh: None,
        authority: authority.to_owned(),
        owner: None,
        is_ours: false,
        log: Box::new(move || server.log()),
    }
}

/// Below a directory that its users may write.
fn of_ssh(sshd: &Sshd) -> Server {
    let root = sshd.at("root");
    let url = sshd.url("");
    Server {
        path: root.display().to_string(),
        root,
        host: url.trim_start_matches("sshftp://").to_owned(),
        user: "",
        by_ssh: None,
        authority: PathBuf::new(),
        owner: None,
        is_ours: true,
        log: Box::new(String::new),
    }
}

/// Two directories of one cell: one here, one at the server; and one at another server.
pub(super) struct Place<'a> {
    pub(super) grounds: &'a Grounds,
    pub(super) server: &'a Server,
    pub(super) other: &'a Server,
    pub(super) login: Login,
    /// Our client is tried.
    pub(super) by_us: bool,
    name: String,
}

impl<'a> Place<'a> {
    pub(super) fn new(
        grounds: &'a Grounds,
        [server, other]: [&'a Server; 2],
        login: Login,
        name: String,
        by_us: bool,
    ) -> Self {
        let place = Self {
            grounds,
            server,
            other,
            login,
            by_us,
            name,
        };
        for folder in [place.here(""), place.there(""), place.at_other("")] {
            fs::create_dir_all(&folder).expect("a directory");
        }
        place
    }

    pub(super) fn here(&self, name: &str) -> PathBuf {
        self.grounds.site.path("local").join(&self.name).join(name)
    }

    pub(super) fn there(&self, name: &str) -> PathBuf {
        self.server.root(self.login).join(&self.name).join(name)
    }

    pub(super) fn at_other(&self, name: &str) -> PathBuf {
        self.other.root(self.login).join(&self.name).join(name)
    }

    pub(super) fn owner(&self) -> Option<u32> {
        self.server.owner
    }

    /// `words` with what stands in braces.
    pub(super) fn filled(&self, words: &str) -> String {
        let path = |server: &Server| format!("{}/{}", server.path, self.name);
        let url = |server: &Server| server.url(self.login, &format!("/{}", self.name));
        let (address, port) = self.server.host.split_once(':').expect("a port");
        let home = self.server.at_home(self.login, &self.name);
        words
            .replace("{url}", &url(self.server))
            .replace("{other}", &url(self.other))
            .replace("{home}", &home)
            .replace("{path}", &path(self.server))
            .replace("{other_path}", &path(self.other))
            .replace("{name}", &self.name)
            .replace(
                "{here}",
                self.here("").display().to_string().trim_end_matches('/'),
            )
            .replace("{host}", &self.server.host)
            .replace("{other_host}", &self.other.host)
            .replace("{address}", address)
            .replace("{port}", port)
            .replace("{user}", self.server.user)
            .replace("{authority}", &self.server.authority.display().to_string())
    }

    pub(super) fn log(&self) -> String {
        (self.server.log)()
    }
}

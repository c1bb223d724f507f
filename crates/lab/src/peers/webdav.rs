//! Other makers' servers of WebDAV over TLS: Apache, `nginx` and XRootD.
//!
//! Each serves a directory of its own with the host certificate of a [`Grid`]. Apache and `nginx`
//! ask for a password, XRootD for a certificate of the grid or a token. Found with these versions:
//!
//! - Apache 2.4.71 and `nginx` 1.22.1 with `dav-ext` 3.0.0 know neither checksums (`Digest`) nor
//!   copies with other servers. `nginx` moves directories by names with a slash alone.
//! - XRootD 5.5.3 encodes no paths in answers and decodes none in `Destination`; a name ends at
//!   `?`. It describes files by `iscollection` alone, has neither `ETag` nor `Last-Modified`, and
//!   moves over what is there whatever `Overwrite` says.

use std::ffi::OsString;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use parking_lot::Mutex;
use tempfile::TempDir;

use super::grid::{Grid, OPENSSL, USER};
use super::http::NGINX;
use super::process::{self, Options, Process};
use super::xrootd::XROOTD;
use super::{Error, Missing, RUN_TIMEOUT, Tool};

/// Who Apache and `nginx` let in.
pub const LOGIN: &str = "jo";
/// With this password.
pub const PASSWORD: &str = "se cret";

const APACHE: Tool = Tool::new("apache2", "apache2-bin");
const PYTHON: Tool = Tool::new("python3", "python3");

const APACHE_MODULES: &str = "/usr/lib/apache2/modules";
const NGINX_DAV: &str = "/usr/lib/nginx/modules/ngx_http_dav_ext_module.so";

/// What `nobody` is on every distribution that has these servers.
const NOBODY: u32 = 65_534;

/// The modules of Apache, and their files.
const LOADED: [(&str, &str); 9] = [
    ("mpm_event", "mpm_event"),
    ("authn_core", "authn_core"),
    ("authn_file", "authn_file"),
    ("authz_core", "authz_core"),
    ("authz_user", "authz_user"),
    ("auth_basic", "auth_basic"),
    ("dav", "dav"),
    ("dav_fs", "dav_fs"),
    ("ssl", "ssl"),
];

/// Writes the cache of keys of XRootD's library of tokens, which would ask issuers on the network
/// otherwise. Arguments: its file, the issuer, its keys.
const CACHE_KEYS: &str = "
import json, sqlite3, sys
file, issuer, keys = sys.argv[1:]
ever = 4000000000
entry = {'jwks': json.loads(keys), 'expires': ever, 'next_update': ever}
cache = sqlite3.connect(file)
cache.execute('CREATE TABLE keycache (issuer text UNIQUE PRIMARY KEY NOT NULL, '
              'keys text NOT NULL)')
cache.execute('INSERT INTO keycache VALUES (?, ?)', (issuer, json.dumps(entry)))
cache.commit()
";

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `mod_dav`.
    Apache,
    /// With the module `dav-ext`.
    Nginx,
    /// With its modules for copies between servers and for tokens of its own.
    Xrootd,
}

/// Whose tokens XRootD takes.
#[derive(Debug, Clone, Copy)]
pub struct Issuer<'a> {
    /// The claim `iss`.
    pub name: &'a str,
    /// Its keys (RFC 7517 §5).
    pub keys: &'a str,
    /// The claim `aud`.
    pub audience: &'a str,
}

impl Kind {
    /// Whether the server and its modules are installed.
    ///
    /// # Errors
    /// [`Missing`], which names the first package that is not.
    pub fn available(self) -> Result<(), Missing> {
        match self {
            Self::Apache => APACHE.available().map(drop),
            Self::Nginx => {
                NGINX.available()?;
                file(NGINX_DAV, "libnginx-mod-http-dav-ext")
            }
            Self::Xrootd => {
                XROOTD.available()?;
                PYTHON.available()?;
                plugin("libXrdHttpTPC-5.so", "xrootd-server-plugins")?;
                plugin("libXrdMacaroons-5.so", "xrootd-server-plugins")?;
                plugin("libXrdCryptossl-5.so", "xrootd-plugins")?;
                plugin("libXrdAccSciTokens-5.so", "xrootd-scitokens-plugins")
            }
        }
    }
}

fn file(path: &str, package: &str) -> Result<(), Missing> {
    match Path::new(path).exists() {
        true => Ok(()),
        false => Err(Missing {
            program: path.to_owned(),
            package: format!("the package {package}"),
        }),
    }
}

/// A library in a directory named after the architecture.
fn plugin(name: &str, package: &str) -> Result<(), Missing> {
    let architecture = std::env::consts::ARCH;
    file(
        &format!("/usr/lib/{architecture}-linux-gnu/{name}"),
        package,
    )
}

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub struct WebdavServer {
    process: Mutex<Process>,
    addr: SocketAddr,
    folder: TempDir,
    program: OsString,
    arguments: Vec<OsString>,
}

impl WebdavServer {
    /// Starts one without any file. Where root starts it, it runs as the account `nobody`.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Os`], [`Error::EndedEarly`], [`Error::TimedOut`].
    pub fn start(
        kind: Kind,
        ip: IpAddr,
        grid: &Grid,
        issuer: Option<Issuer<'_>>,
    ) -> Result<Self, Error> {
        super::on_a_free_port(ip, |addr| Self::start_at(kind, addr, grid, issuer))
    }

    fn start_at(
        kind: Kind,
        addr: SocketAddr,
        grid: &Grid,
        issuer: Option<Issuer<'_>>,
    ) -> Result<Self, Error> {
        let folder = TempDir::new().map_err(Error::os("make a directory for a server"))?;
        let own = Folder(folder.path());
        own.open("")?;
        fs::create_dir(folder.path().join("root")).map_err(Error::os("make a root"))?;
        own.open("root")?;
        let [certificate, key] = grid.host();
        own.write("host.pem", &read(&certificate)?)?;
        own.write("host.key", &read(&key)?)?;
        own.hide("host.key")?;
        let mut command = match kind {
            Kind::Apache => own.apache(addr)?,
            Kind::Nginx => own.nginx(addr)?,
            Kind::Xrootd => own.xrootd(addr, grid, issuer)?,
        };
        command.current_dir(folder.path());
        let program = command.get_program().to_owned();
        let arguments = command.get_args().map(ToOwned::to_owned).collect();
        let mut process = Process::spawn(command, Options::default())?;
        process.await_listening(addr, Process::log)?;
        Ok(Self {
            process: Mutex::new(process),
            addr,
            folder,
            program,
            arguments,
        })
    }

    /// Starts it again if it has ended by itself; whether it had.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_again_if_ended(&self) -> Result<bool, Error> {
        let mut process = self.process.lock();
        if process.is_running()? {
            return Ok(false);
        }
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .current_dir(self.folder.path());
        let mut again = Process::spawn(command, Options::default())?;
        again.await_listening(self.addr, Process::log)?;
        *process = again;
        Ok(true)
    }

    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("davs://{}/{}", self.addr, super::encode_path(path))
    }

    /// The same as the user with the password.
    pub fn url_of_login(&self, path: &str) -> String {
        let path = super::encode_path(path);
        format!("davs://{LOGIN}@{}/{path}", self.addr)
    }

    /// Where a path lies on this machine.
    pub fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join("root").join(path)
    }

    /// What it printed so far.
    pub fn log(&self) -> String {
        self.process.lock().log()
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(Error::os(format!("read {}", path.display())))
}

/// The directory of a server, which the account that it becomes may write.
struct Folder<'a>(&'a Path);

impl Folder<'_> {
    fn open(&self, name: &str) -> Result<(), Error> {
        let all = fs::Permissions::from_mode(0o777);
        fs::set_permissions(self.0.join(name), all)
            .map_err(Error::os("open a directory to a server"))
    }

    /// Leaves a file to the server alone.
    fn hide(&self, name: &str) -> Result<(), Error> {
        let path = self.0.join(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
            .map_err(Error::os("hide a key"))?;
        if is_root() {
            let hidden = chown(&path, Some(NOBODY), None);
            hidden.map_err(Error::os("give a server its key"))?;
        }
        Ok(())
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Error> {
        let path = self.0.join(name);
        fs::write(&path, text).map_err(Error::os(format!("write {}", path.display())))
    }

    /// The file of the user's password.
    fn users(&self) -> Result<(), Error> {
        let hash = OPENSSL.run(["passwd", "-apr1", PASSWORD])?.success()?;
        let line = format!("{LOGIN}:{}\n", hash.stdout_text().trim());
        self.write("users", &line)
    }

    fn apache(&self, addr: SocketAddr) -> Result<Command, Error> {
        self.users()?;
        let own = self.0.display();
        let mut text = String::new();
        for (module, file) in LOADED {
            text += &format!("LoadModule {module}_module {APACHE_MODULES}/mod_{file}.so\n");
        }
        if is_root() {
            text += "User nobody\nGroup nogroup\n";
        }
        text += &format!(
            "ServerName {}\nDefaultRuntimeDir {own}\nPidFile {own}/pid\nListen {addr}\n\
             ErrorLog /dev/stderr\nDavLockDB {own}/locks\n\
             SSLEngine on\nSSLCertificateFile {own}/host.pem\n\
             SSLCertificateKeyFile {own}/host.key\nDocumentRoot {own}/root\n\
             <Directory {own}/root>\nDav On\nAuthType Basic\nAuthName godwit\n\
             AuthUserFile {own}/users\nRequire valid-user\n</Directory>\n",
            addr.ip()
        );
        self.write("apache.conf", &text)?;
        let mut command = APACHE.command()?;
        command.args(["-D", "FOREGROUND", "-f"]);
        command.arg(self.0.join("apache.conf"));
        Ok(command)
    }

    fn nginx(&self, addr: SocketAddr) -> Result<Command, Error> {
        self.users()?;
        let own = self.0.display();
        let user = if is_root() {
            "user nobody nogroup;\n"
        } else {
            ""
        };
        let text = format!(
            "load_module {NGINX_DAV};\n{user}daemon off;\npid {own}/pid;\nerror_log stderr;\n\
             events {{}}\nhttp {{\naccess_log off;\nclient_body_temp_path {own}/bodies;\n\
             proxy_temp_path {own}/1;\nfastcgi_temp_path {own}/2;\nuwsgi_temp_path {own}/3;\n\
             scgi_temp_path {own}/4;\nclient_max_body_size 0;\n\
             server {{\nlisten {addr} ssl;\nssl_certificate {own}/host.pem;\n\
             ssl_certificate_key {own}/host.key;\nroot {own}/root;\n\
             auth_basic godwit;\nauth_basic_user_file {own}/users;\n\
             dav_methods PUT DELETE MKCOL COPY MOVE;\ndav_ext_methods PROPFIND OPTIONS;\n\
             create_full_put_path on;\n}}\n}}\n"
        );
        self.write("nginx.conf", &text)?;
        let mut command = NGINX.command()?;
        command.arg("-c").arg(self.0.join("nginx.conf"));
        command.arg("-p").arg(self.0);
        Ok(command)
    }

    fn xrootd(
        &self,
        addr: SocketAddr,
        grid: &Grid,
        issuer: Option<Issuer<'_>>,
    ) -> Result<Command, Error> {
        // The account that it becomes may not look into the grid.
        let authorities = self.0.join("cas");
        fs::create_dir(&authorities).map_err(Error::os("make a directory for CAs"))?;
        let entries = fs::read_dir(grid.authorities()).map_err(Error::os("list the CAs"))?;
        for entry in entries.filter_map(Result::ok) {
            fs::copy(entry.path(), authorities.join(entry.file_name()))
                .map_err(Error::os("copy a CA"))?;
        }
        let own = self.0.display();
        self.write("gridmap", &format!("\"{USER}\" {LOGIN}\n"))?;
        self.write("rights", &format!("u {LOGIN} / a\n"))?;
        // What it issues tokens with.
        let secret = OPENSSL.run(["rand", "-base64", "64"])?.success()?;
        self.write("secret", &secret.stdout_text())?;
        self.hide("secret")?;
        let mut text = format!(
            "all.export /\noss.localroot {own}/root\nall.adminpath {own}\nall.pidpath {own}\n\
             xrd.port {}\nxrd.protocol XrdHttp libXrdHttp.so\n\
             xrd.tls {own}/host.pem {own}/host.key\nxrd.tlsca certdir {own}/cas\n\
             http.exthandler xrdtpc libXrdHttpTPC.so\nhttp.gridmap {own}/gridmap\n\
             http.header2cgi Authorization authz\nxrootd.chksum max 2 adler32 md5\n\
             acc.authdb {own}/rights\nofs.authorize 1\nall.sitename lab\n\
             http.exthandler xrdmacaroons libXrdMacaroons.so\n\
             macaroons.secretkey {own}/secret\ntpc.trace info\n",
            addr.port()
        );
        let mut command = XROOTD.command()?;
        if let Some(issuer) = issuer {
            self.cache_keys(&issuer)?;
            let settings = format!(
                "[Global]\naudience = {}\nonmissing = passthrough\n[Issuer lab]\nissuer = {}\n\
                 base_path = /\ndefault_user = nobody\n",
                issuer.audience, issuer.name
            );
            self.write("tokens.cfg", &settings)?;
            text += &format!("ofs.authlib ++ libXrdAccSciTokens.so config={own}/tokens.cfg\n");
            command.env("XDG_CACHE_HOME", self.0.join("cache"));
        }
        text += "ofs.authlib ++ libXrdMacaroons.so\n";
        self.write("xrootd.cfg", &text)?;
        command.arg("-c").arg(self.0.join("xrootd.cfg"));
        if is_root() {
            command.args(["-R", "nobody"]);
        }
        Ok(command)
    }

    fn cache_keys(&self, issuer: &Issuer<'_>) -> Result<(), Error> {
        let folder = self.0.join("cache/scitokens");
        fs::create_dir_all(&folder).map_err(Error::os("make a cache for keys"))?;
        let file = folder.join("scitokens_cpp.sqllite");
        let mut command = PYTHON.command()?;
        command.args(["-c", CACHE_KEYS]).arg(&file);
        command.args([issuer.name, issuer.keys]);
        process::run(command, RUN_TIMEOUT)?.success()?;
        for name in [
            "cache",
            "cache/scitokens",
            "cache/scitokens/scitokens_cpp.sqllite",
        ] {
            self.open(name)?;
        }
        Ok(())
    }
}

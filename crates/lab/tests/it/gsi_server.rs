//! Our server for users of a grid: the reference client, the grid's library and other servers, with
//! certificates made here.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::time::SystemTime;

use godwit_gsi::cert::key::KeyKind;
use godwit_gsi::cert::proxy::{self, ProxyRequest};
use godwit_gsi::cert::{Credential, ProxyKind, files};
use godwit_lab::peers::godwit::Godwitd;
use godwit_lab::peers::{Finished, RUN_TIMEOUT, Tool, file_url, gct, gfal, process};
use tempfile::TempDir;

use crate::grid::Grid;
use crate::pki::{Blueprint, DAY, HOUR, KEY_USAGE, rsa_key};
use crate::support::{
    Need, am_root, assert_holds, assert_same_tree, have, write_noise, write_tree,
};

const NEEDS: &[Need] = &[Need::Gct, Need::Godwitd];

/// A grid with a host, on which servers run, and users.
pub(crate) struct GridSite {
    pub(crate) grid: Grid,
    folder: TempDir,
}

/// The environment of a user's program.
pub(crate) type Environment = Vec<(&'static str, PathBuf)>;

impl GridSite {
    pub(crate) fn new() -> Self {
        let now = SystemTime::now();
        let authority = Blueprint::authority("/O=Grid/CN=CA").key(rsa_key()).at(now);
        let site = Self {
            grid: Grid::with(authority),
            folder: TempDir::new().expect("a folder"),
        };
        let host = Blueprint::host("/O=Grid/CN=localhost", &["localhost"]);
        let host = host.key(rsa_key()).at(now).issued_by(&site.grid.authority);
        site.write_pair("host", &host);
        site.map("\"/O=Grid/CN=Jo Doe\" jo,shared\n");
        for name in ["a", "b", "local"] {
            fs::create_dir(site.path(name)).expect("a folder");
        }
        site
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn map(&self, text: &str) {
        fs::write(self.path("gridmap"), text).expect("writes");
    }

    pub(crate) fn write_pair(&self, name: &str, credential: &Credential) {
        let certificate = credential.certificate().as_x509().to_pem().expect("pem");
        fs::write(self.path(&format!("{name}cert.pem")), certificate).expect("writes");
        let key = credential.key().private_key_to_pem_pkcs8().expect("pem");
        files::write_private(&self.path(&format!("{name}key.pem")), &key).expect("writes");
    }

    /// A server with the directory `root` of ours.
    pub(crate) fn server(&self, root: &str, more: &[&str]) -> Godwitd {
        let mut config = Godwitd::serving(self.path(root)).anonymous("off");
        for (flag, value) in [
            ("--cert", self.path("hostcert.pem")),
            ("--key", self.path("hostkey.pem")),
            ("--trusted-certs", self.grid.path().to_owned()),
            ("--gridmap", self.path("gridmap")),
        ] {
            config = config.arg(flag).arg(value);
        }
        for argument in more {
            config = config.arg(*argument);
        }
        config.start().expect("godwitd starts")
    }

    pub(crate) fn jo(&self) -> Credential {
        let jo = Blueprint::user("/O=Grid/CN=Jo Doe").key(rsa_key());
        jo.at(SystemTime::now()).issued_by(&self.grid.authority)
    }

    /// The environment of Jo's programs with such a proxy.
    pub(crate) fn proxy(&self, of: &Credential, request: &ProxyRequest) -> Environment {
        let proxy = proxy::create(of, request, KeyKind::Rsa(2048), SystemTime::now());
        self.environment(&proxy.expect("makes"))
    }

    fn environment(&self, credential: &Credential) -> Environment {
        let path = self.path("proxy.pem");
        if path.exists() {
            fs::remove_file(&path).expect("removes");
        }
        files::write_private(&path, &credential.to_pem().expect("pem")).expect("writes");
        vec![
            ("X509_CERT_DIR", self.grid.path().to_owned()),
            ("X509_USER_PROXY", path),
        ]
    }
}

pub(crate) fn url(server: &Godwitd, path: &str) -> String {
    format!("gsiftp://localhost:{}/{path}", server.addr().port())
}

pub(crate) fn run(tool: &Tool, environment: &Environment, arguments: &[&str]) -> Finished {
    let mut command = tool.command().expect("is there");
    for name in ["X509_USER_CERT", "X509_USER_KEY"] {
        command.env_remove(name);
    }
    command.envs(environment.iter().map(|(name, value)| (*name, value)));
    command.args(arguments);
    process::run(command, RUN_TIMEOUT).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
}

#[track_caller]
pub(crate) fn succeeds(
    server: &Godwitd,
    tool: &Tool,
    environment: &Environment,
    arguments: &[&str],
) {
    let finished = run(tool, environment, arguments);
    assert!(
        finished.status.success(),
        "{arguments:?}\n{}--- server\n{}",
        finished.log(),
        server.log()
    );
}

/// A file there and back.
#[track_caller]
fn both_ways(site: &GridSite, server: &Godwitd, environment: &Environment, options: &[&str]) {
    let bytes = write_noise(&site.path("local/source"), 700_003, 1);
    for name in ["a/f", "local/back"] {
        drop(fs::remove_file(site.path(name)));
    }
    let (source, back) = (
        file_url(&site.path("local/source")),
        file_url(&site.path("local/back")),
    );
    let there = url(server, "f");
    succeeds(
        server,
        &gct::URL_COPY,
        environment,
        &[options, &[&source, &there]].concat(),
    );
    assert_holds(&site.path("a/f"), &bytes);
    succeeds(
        server,
        &gct::URL_COPY,
        environment,
        &[options, &[&there, &back]].concat(),
    );
    assert_holds(&site.path("local/back"), &bytes);
}

#[test]
fn the_reference_client_copies_with_every_protection() {
    if !have(NEEDS) {
        return;
    }
    let site = GridSite::new();
    let server = site.server("a", &[]);
    let mut environment = site.proxy(&site.jo(), &ProxyRequest::default());
    for version in ["TLS1_3_VERSION", "TLS1_2_VERSION"] {
        environment.push(("GLOBUS_GSSAPI_MAX_TLS_PROTOCOL", version.into()));
        for protection in [&[][..], &["-nodcau"], &["-dcsafe"], &["-dcpriv"]] {
            for mode in [&[][..], &["-fast"], &["-p", "3"]] {
                both_ways(&site, &server, &environment, &[protection, mode].concat());
            }
        }
    }
    let log = server.log();
    for word in ["TLSv1.2", "TLSv1.3", "user=\"jo\""] {
        assert!(log.contains(word), "{word} is not in\n{log}");
    }
}

/// An account that every Debian has and no program uses.
const ACCOUNT: &str = "games";

#[test]
fn protected_data_reaches_sessions_that_run_as_their_users() {
    if !have(NEEDS) || !am_root("sessions of other accounts need root") {
        return;
    }
    let site = GridSite::new();
    site.map(&format!("\"/O=Grid/CN=Jo Doe\" {ACCOUNT}\n"));
    for name in ["", "a"] {
        let all = fs::Permissions::from_mode(0o777);
        fs::set_permissions(site.path(name), all).expect("opens to all");
    }
    let server = site.server("a", &["--privsep"]);
    let environment = site.proxy(&site.jo(), &ProxyRequest::default());
    for options in [
        &[][..],
        &["-nodcau"],
        &["-dcsafe", "-fast"],
        &["-dcpriv", "-p", "3"],
    ] {
        both_ways(&site, &server, &environment, options);
    }
    let owner = fs::metadata(site.path("a/f")).expect("is there").uid();
    assert_ne!(owner, 0, "{}", server.log());
}

#[test]
fn a_tree_of_small_files_shares_protected_channels() {
    if !have(NEEDS) {
        return;
    }
    let site = GridSite::new();
    let server = site.server("a", &[]);
    let environment = site.proxy(&site.jo(), &ProxyRequest::default());
    fs::create_dir(site.path("local/tree")).expect("a folder");
    let paths = write_tree(&site.path("local/tree"));
    let (from, to) = (file_url(&site.path("local/tree/")), url(&server, "tree/"));
    let options = ["-r", "-cd", "-fast", "-p", "2", "-dcpriv"];
    let arguments = [&options[..], &[&from, &to]].concat();
    succeeds(&server, &gct::URL_COPY, &environment, &arguments);
    assert_same_tree(&paths, &site.path("local/tree"), &site.path("a/tree"));
    let back = file_url(&site.path("local/back/"));
    let arguments = [&options[..], &[&to, &back]].concat();
    succeeds(&server, &gct::URL_COPY, &environment, &arguments);
    assert_same_tree(&paths, &site.path("local/tree"), &site.path("local/back"));
}

#[test]
fn proxies_of_every_kind_are_let_in() {
    if !have(NEEDS) {
        return;
    }
    let site = GridSite::new();
    let server = site.server("a", &[]);
    let jo = site.jo();
    // Below a certificate with a key usage the reference takes a legacy proxy for one that a CA
    // should have signed.
    let plain = Blueprint::user("/O=Grid/CN=Jo Doe").without(KEY_USAGE);
    let plain = plain.key(rsa_key()).at(SystemTime::now());
    let plain = plain.issued_by(&site.grid.authority);
    for request in [
        ProxyRequest::limited(),
        ProxyRequest {
            kind: ProxyKind::Legacy,
            ..ProxyRequest::default()
        },
        ProxyRequest {
            kind: ProxyKind::Legacy,
            ..ProxyRequest::limited()
        },
    ] {
        let user = match request.kind {
            ProxyKind::Legacy => &plain,
            _ => &jo,
        };
        let environment = site.proxy(user, &request);
        both_ways(&site, &server, &environment, &["-dcsafe"]);
    }
    let first = proxy::create(
        &jo,
        &ProxyRequest::default(),
        KeyKind::Rsa(2048),
        SystemTime::now(),
    );
    let environment = site.proxy(&first.expect("makes"), &ProxyRequest::default());
    both_ways(&site, &server, &environment, &[]);
}

#[test]
fn unknown_and_untrusted_users_are_refused() {
    if !have(NEEDS) {
        return;
    }
    let site = GridSite::new();
    let server = site.server("a", &[]);
    fs::write(site.path("a/f"), b"for few").expect("writes");
    let there = url(&server, "f");
    let back = file_url(&site.path("local/back"));
    let refused = |environment: &Environment, word: &str| {
        let finished = run(&gct::URL_COPY, environment, &[&there, &back]);
        assert!(!finished.status.success(), "{word}");
        let log = format!("{}{}", finished.log(), server.log());
        assert!(log.contains(word), "{word} is not in\n{log}");
    };
    let now = SystemTime::now();
    let user = |name: &str| Blueprint::user(name).key(rsa_key()).at(now);
    let kim = user("/O=Grid/CN=Kim").issued_by(&site.grid.authority);
    refused(
        &site.proxy(&kim, &ProxyRequest::default()),
        "no gridmap entry",
    );
    let expired = user("/O=Grid/CN=Jo Doe").valid(-2 * DAY, -HOUR);
    let expired = expired.issued_by(&site.grid.authority);
    refused(&site.environment(&expired), "expired");
    let elsewhere = Blueprint::authority("/O=Else/CN=CA").key(rsa_key()).at(now);
    let stranger = user("/O=Else/CN=Jo Doe").issued_by(&elsewhere.self_signed());
    refused(&site.environment(&stranger), "/O=Else/CN=CA");
    // In clear no user can log in.
    let clear = there.replace("gsiftp:", "ftp:");
    let finished = run(&gct::URL_COPY, &Vec::new(), &[&clear, &back]);
    assert!(!finished.status.success());
    assert!(
        finished
            .log()
            .contains("Must perform AUTH TLS or AUTH GSSAPI"),
        "{}",
        finished.log()
    );
    // With a credential that it trusts, the login succeeds.
    let environment = site.proxy(&site.jo(), &ProxyRequest::default());
    succeeds(&server, &gct::URL_COPY, &environment, &[&there, &back]);
}

#[test]
fn users_choose_among_their_accounts_and_the_gridmap_counts_at_once() {
    if !have(NEEDS) {
        return;
    }
    let site = GridSite::new();
    let server = site.server("a", &["--allow-subject", "/O=Grid/OU=Guests/*"]);
    fs::write(site.path("a/f"), b"x").expect("writes");
    let back = file_url(&site.path("local/back"));
    let as_user = |environment: &Environment, user: &str| {
        let from = url(&server, "f").replace("localhost", &format!("{user}localhost"));
        run(&gct::URL_COPY, environment, &[&from, &back])
            .status
            .success()
    };
    let jo = site.proxy(&site.jo(), &ProxyRequest::default());
    assert!(as_user(&jo, "") && as_user(&jo, "shared@"));
    assert!(!as_user(&jo, "root@"));
    site.map("# no user any more\n");
    assert!(!as_user(&jo, ""));
    let guest = Blueprint::user("/O=Grid/OU=Guests/CN=Kim").key(rsa_key());
    let guest = guest.at(SystemTime::now()).issued_by(&site.grid.authority);
    let guest = site.proxy(&guest, &ProxyRequest::default());
    assert!(as_user(&guest, ""), "{}", server.log());
    assert!(!as_user(&guest, "root@"));
}

#[test]
fn servers_move_files_between_them_as_one_user() {
    if !have(NEEDS) {
        return;
    }
    let site = GridSite::new();
    let (a, b) = (site.server("a", &[]), site.server("b", &[]));
    let environment = site.proxy(&site.jo(), &ProxyRequest::default());
    let bytes = write_noise(&site.path("a/f"), 3_000_001, 3);
    for (index, options) in [
        &[][..],
        &["-nodcau"],
        &["-dcpriv"],
        &["-p", "2"],
        &["-p", "2", "-dcsafe"],
        &["-fast", "-p", "2", "-dcpriv"],
        &["-data-cred", "auto"],
        &["-data-cred", "auto", "-p", "2", "-dcpriv"],
    ]
    .iter()
    .enumerate()
    {
        let to = format!("f{index}");
        let (source, destination) = (url(&a, "f"), url(&b, &to));
        let arguments = [options, &[&*source, &*destination][..]].concat();
        let finished = run(&gct::URL_COPY, &environment, &arguments);
        assert!(
            finished.status.success(),
            "{options:?}\n{}--- source\n{}--- destination\n{}",
            finished.log(),
            a.log(),
            b.log()
        );
        assert_holds(&site.path("b").join(to), &bytes);
    }
}

#[test]
fn the_grid_library_copies_by_certificate() {
    if !have(&[Need::Gfal, Need::Godwitd]) {
        return;
    }
    let site = GridSite::new();
    let server = site.server("a", &[]);
    let environment = site.proxy(&site.jo(), &ProxyRequest::default());
    let bytes = write_noise(&site.path("local/source"), 700_003, 4);
    let (source, back) = (
        file_url(&site.path("local/source")),
        file_url(&site.path("local/back")),
    );
    let there = url(&server, "f");
    succeeds(&server, &gfal::COPY, &environment, &[&source, &there]);
    assert_holds(&site.path("a/f"), &bytes);
    succeeds(&server, &gfal::COPY, &environment, &[&there, &back]);
    assert_holds(&site.path("local/back"), &bytes);
    succeeds(&server, &gfal::LS, &environment, &["-l", &url(&server, "")]);
}

#[test]
fn the_grid_library_copies_many_files_in_one_call() {
    if !have(&[Need::Gfal, Need::Godwitd]) {
        return;
    }
    let site = GridSite::new();
    let (from, to) = (site.server("a", &[]), site.server("b", &[]));
    let environment = site.proxy(&site.jo(), &ProxyRequest::default());
    let names = ["f", "g", "h"];
    let bytes = names.map(|name| write_noise(&site.path("a").join(name), 300_001, 3));
    let sources = names.map(|name| url(&from, name));
    let targets = names.map(|name| url(&to, name));
    let mut arguments = vec!["-c", gfal::BULK_COPY];
    arguments.extend(sources.iter().chain(&targets).map(String::as_str));
    // gfal2 sometimes crashes in its own code ("free(): invalid pointer"), with any server.
    let crashed = |finished: &Finished| finished.status.signal().is_some();
    let mut runs = (0..3).map(|_| run(&gfal::PYTHON, &environment, &arguments));
    let finished = runs.find(|finished| !crashed(finished));
    let finished = finished.expect("one of three is no crash");
    let (log, served) = (finished.log(), to.log());
    assert!(finished.status.success(), "{log}--- server\n{served}");
    for (name, bytes) in names.iter().zip(&bytes) {
        assert_holds(&site.path("b").join(name), bytes);
    }
}

//! Copies between servers of HTTPS, ours and XRootD, by tokens: each of them carries out copies
//! from and to each.

use std::{
    ffi::OsString,
    fs,
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    rc::Rc,
};

use godwit_lab::peers::{
    Finished, RUN_TIMEOUT, Tool, file_url, gfal,
    godwit::godwit_with,
    grid::Grid,
    plain_ftp::CURL,
    process,
    webdav::{self, Kind, WebdavServer},
};
use serde_json::json;
use tempfile::TempDir;

use crate::{
    https_peers::Site,
    issuer::Issuer,
    support::{Need, assert_holds, assert_same_tree, have, noise, write_noise, write_tree},
};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
pub(crate) const ISSUER: &str = "https://issuer.example.org/";
const AUDIENCE: &str = "https://wlcg.cern.ch/jwt/v1/any";

/// A user with tokens, and servers that take them.
pub(crate) struct Tokens {
    pub(crate) grid: Rc<Grid>,
    issuer: Issuer,
    folder: TempDir,
}

impl Tokens {
    fn new() -> Self {
        Self::of_grid(Rc::new(Grid::new(&[LOOPBACK]).expect("a grid")))
    }

    pub(crate) fn of_grid(grid: Rc<Grid>) -> Self {
        let tokens = Self {
            grid,
            issuer: Issuer::es256("k"),
            folder: TempDir::new().expect("a directory"),
        };
        fs::write(tokens.path("keys.json"), tokens.keys()).expect("writes");
        tokens
    }

    fn keys(&self) -> String {
        json!({ "keys": [self.issuer.jwk] }).to_string()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn token(&self, scope: &str) -> String {
        self.issuer.token(&json!({
            "iss": ISSUER, "sub": "jo", "aud": AUDIENCE, "scope": scope, "wlcg.ver": "1.0",
            "jti": "1", "iat": 0, "nbf": 0, "exp": 4_000_000_000_u64,
        }))
    }

    pub(crate) fn ours(&self, more: &[&str]) -> End {
        let keys = self.path("keys.json");
        let issuer = format!("{ISSUER}={}", keys.display());
        let tokens = ["--token-issuer", &issuer, "--token-audience", AUDIENCE];
        let tokens = [&tokens[..], &["--issue-tokens=true"]].concat();
        let more = [&tokens[..], more].concat();
        End::Ours(Box::new(Site::of_grid(Rc::clone(&self.grid), "off", &more)))
    }

    pub(crate) fn xrootd(&self) -> End {
        let issuer = webdav::Issuer {
            name: ISSUER,
            keys: &self.keys(),
            audience: AUDIENCE,
        };
        let server = WebdavServer::start(Kind::Xrootd, LOOPBACK, &self.grid, Some(issuer));
        End::Xrootd(Box::new(server.expect("it starts")))
    }

    /// Each that sends with each that receives.
    fn pairs(&self) -> [(End, End); 4] {
        let make = |is_ours: bool| match is_ours {
            true => self.ours(&[]),
            false => self.xrootd(),
        };
        let kinds = [(true, true), (true, false), (false, true), (false, false)];
        kinds.map(|(from, to)| (make(from), make(to)))
    }

    /// What a client's environment says for it to have a token and no certificate.
    fn of_user(&self, token: &str) -> [(OsString, OsString); 2] {
        [
            ("BEARER_TOKEN".into(), token.into()),
            ("X509_CERT_DIR".into(), self.grid.authorities().into()),
        ]
    }
}

/// A server.
pub(crate) enum End {
    Ours(Box<Site>),
    Xrootd(Box<WebdavServer>),
}

impl End {
    pub(crate) fn url(&self, path: &str) -> String {
        match self {
            Self::Ours(site) => site.url("davs", path),
            Self::Xrootd(server) => server.url(path),
        }
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        match self {
            Self::Ours(site) => site.at(path),
            Self::Xrootd(server) => server.at(path),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Ours(_) => "ours",
            Self::Xrootd(_) => "xrootd",
        }
    }

    pub(crate) fn log(&self) -> String {
        match self {
            Self::Ours(site) => site.log(),
            Self::Xrootd(server) => server.log(),
        }
    }
}

pub(crate) const ALL: &str = "storage.read:/ storage.modify:/";

#[track_caller]
fn succeeded(finished: Finished, what: &str, ends: [&End; 2]) -> String {
    let said = finished.log();
    let logs = ends.map(|end| format!("--- {}\n{}", end.name(), end.log()));
    assert!(finished.status.success(), "{what}\n{said}{}", logs.concat());
    said
}

#[test]
fn one_server_copies_files_and_trees_for_our_client() {
    if !have(&[Need::Godwit, Need::Godwitd, Need::Webdav(Kind::Xrootd)]) {
        return;
    }
    let tokens = Tokens::new();
    let user = tokens.of_user(&tokens.token(ALL));
    let ca = tokens.grid.authority().display().to_string();
    let copy = |flags: &[&str], ends: [&End; 2], urls: [&str; 2]| {
        let words = [&["cp", "--ca", &ca], flags, &urls].concat();
        let finished = godwit_with(words, user.clone()).expect("it ends");
        let what = format!("{} to {}", ends[0].name(), ends[1].name());
        succeeded(finished, &what, ends)
    };
    for (seed, (from, to)) in (0..).zip(tokens.pairs()) {
        let bytes = write_noise(&from.at("f"), 5_000_001, seed);
        let events = tokens.path(&format!("events-{seed}"));
        let log = events.display().to_string();
        let urls = [from.url("f"), to.url("g")];
        copy(&["--events", &log], [&from, &to], [&urls[0], &urls[1]]);
        assert_holds(&to.at("g"), &bytes);
        // Nothing has gone through this machine.
        let log = fs::read_to_string(&events).expect("a log");
        assert!(!log.contains("no COPY"), "{log}");
        let paths = write_tree(&from.at("tree"));
        let urls = [from.url("tree/"), to.url("copy/")];
        copy(&["-r"], [&from, &to], [&urls[0], &urls[1]]);
        assert_same_tree(&paths, &from.at("tree"), &to.at("copy"));
    }
    // The server that receives makes no copies: the one that sends puts the file there.
    for from in [tokens.ours(&[]), tokens.xrootd()] {
        let to = tokens.ours(&["--third-party-copy=false"]);
        let bytes = write_noise(&from.at("f"), 5_000_001, 7);
        let urls = [from.url("f"), to.url("g")];
        let said = copy(&["-v"], [&from, &to], [&urls[0], &urls[1]]);
        assert_holds(&to.at("g"), &bytes);
        assert!(said.contains("no COPY with other servers"), "{said}");
    }
}

/// Where the other server knows the user by a certificate, it issues a token for the file.
#[test]
fn one_server_copies_for_a_user_with_a_certificate() {
    if !have(&[Need::Godwit, Need::Godwitd, Need::Webdav(Kind::Xrootd)]) {
        return;
    }
    let tokens = Tokens::new();
    let user = tokens.grid.of_user();
    let user = user.map(|(name, path)| (name.into(), path.into()));
    let ca = tokens.grid.authority().display().to_string();
    for (seed, (from, to)) in (0..).zip(tokens.pairs()) {
        let bytes = write_noise(&from.at("f"), 3_000_001, seed);
        let words = ["cp", "-v", "--ca", &ca, &from.url("f"), &to.url("g")];
        let finished = godwit_with(words, user.clone()).expect("it ends");
        let what = format!("{} to {}", from.name(), to.name());
        let said = succeeded(finished, &what, [&from, &to]);
        assert_holds(&to.at("g"), &bytes);
        assert!(!said.contains("pass through this machine"), "{said}");
    }
    // The server that receives makes no copies: the one that sends gets a token to store.
    let from = tokens.ours(&[]);
    let to = tokens.ours(&["--third-party-copy=false"]);
    let bytes = write_noise(&from.at("f"), 3_000_001, 7);
    let words = ["cp", "-v", "--ca", &ca, &from.url("f"), &to.url("g")];
    let finished = godwit_with(words, user).expect("it ends");
    let said = succeeded(finished, "by push", [&from, &to]);
    assert_holds(&to.at("g"), &bytes);
    assert!(!said.contains("pass through this machine"), "{said}");
}

#[test]
fn one_server_copies_for_gfal_by_pull_and_by_push() {
    let test = "one_server_copies_for_gfal_by_pull_and_by_push";
    if !have(&[Need::Godwitd, Need::Webdav(Kind::Xrootd)])
        || godwit_lab::peers::present(test, gfal::http_available()).is_none()
    {
        return;
    }
    let tokens = Tokens::new();
    let user = tokens.of_user(&tokens.token(ALL));
    let gfal = |tool: Tool, words: &[&str], ends: [&End; 2]| {
        let mut command = tool.command().expect("present");
        command.args(words);
        command.env_remove("X509_USER_PROXY").envs(user.clone());
        let finished = process::run(command, RUN_TIMEOUT).expect("it ends");
        let what = format!("{words:?}: {} to {}", ends[0].name(), ends[1].name());
        succeeded(finished, &what, ends)
    };
    for (seed, (from, to)) in (0..).zip(tokens.pairs()) {
        let here = tokens.path("here");
        let bytes = write_noise(&here, 3_000_001, seed);
        let there = from.url("f");
        gfal(
            gfal::COPY,
            &["-f", &file_url(&here), &there],
            [&from, &from],
        );
        for mode in ["pull", "push"] {
            let options = ["-K", "ADLER32", "--copy-mode", mode];
            let target = to.url(mode);
            let words = [&options[..], &[&there, &target]].concat();
            gfal(gfal::COPY, &words, [&from, &to]);
            assert_holds(&to.at(mode), &bytes);
        }
        let listed = gfal(gfal::LS, &[&to.url("")], [&from, &to]);
        assert!(listed.contains("pull\npush\n"), "{listed}");
        gfal(gfal::RM, &[&there], [&from, &from]);
        assert!(!from.at("f").exists());
    }
}

/// What grids ask of an endpoint before they use it, by certificate and by token.
#[test]
fn an_endpoint_passes_the_checks_of_grids() {
    if !have(&[Need::Godwit, Need::Godwitd, Need::Curl]) {
        return;
    }
    let tokens = Tokens::new();
    let ours = tokens.ours(&[]);
    // Files for everybody, and those for users with tokens.
    let public = Site::of_grid(Rc::clone(&tokens.grid), "ro", &[]);
    let private = tokens.ours(&[]);
    let content = noise(1_000_003, 3);
    let here = tokens.path("here");
    fs::write(&here, &content).expect("writes");
    fs::write(public.at("f"), &content).expect("writes");
    fs::write(private.at("f"), &content).expect("writes");
    let ca = tokens.grid.authority().display().to_string();
    let proxy = tokens.grid.of_user()[0].1.display().to_string();
    let token = format!("Authorization: Bearer {}", tokens.token(ALL));
    let there = |token: &str| format!("TransferHeaderAuthorization: Bearer {token}");
    let url = |end: &End, path: &str| end.url(path).replacen("davs", "https", 1);
    let curl = |user: &[&str], words: &[&str]| {
        let quiet = ["--silent", "--show-error", "--fail", "--cacert", &ca];
        let words = [&quiet[..], user, words].concat();
        let finished = CURL.run(words).and_then(Finished::success);
        finished.expect("curl succeeds").stdout_text()
    };
    let target = url(&ours, "target");
    let removed = |user: &[&str]| {
        curl(user, &["--request", "DELETE", &target]);
        assert!(!ours.at("target").exists());
    };
    let back = tokens.path("back").display().to_string();
    let here = here.display().to_string();
    let (by_certificate, by_token) = (["--cert", &proxy], ["--header", &token]);
    for user in [&by_certificate, &by_token] {
        curl(user, &["--upload-file", &here, &target]);
        curl(user, &["--output", &back, &target]);
        assert_holds(back.as_ref(), &content);
        let head = curl(
            user,
            &["--head", "--header", "Want-Digest: adler32", &target],
        );
        let digest = format!("digest: adler32={:08x}", adler32(&content));
        assert!(head.to_ascii_lowercase().contains(&digest), "{head}");
        removed(user);
    }
    let copy = |user: &[&str], headers: &[&str], path: &str| {
        let headers = headers.iter().flat_map(|header| ["--header", header]);
        let words: Vec<&str> = ["--request", "COPY"].into_iter().chain(headers).collect();
        let markers = curl(user, &[&words[..], &[path]].concat());
        assert!(markers.starts_with("Perf Marker\n"), "{markers}");
        let last = markers.lines().last().unwrap_or_default();
        assert!(last.starts_with("success"), "{markers}");
    };
    let from_public = format!("Source: {}", public.url("https", "f"));
    let from_private = format!("Source: {}", url(&private, "f"));
    let read = there(&tokens.token("storage.read:/f"));
    for user in [&by_certificate, &by_token] {
        for headers in [&[from_public.as_str()][..], &[&from_private, &read]] {
            copy(user, headers, &target);
            assert_holds(&ours.at("target"), &content);
            removed(user);
        }
        curl(user, &["--upload-file", &here, &target]);
        let to_private = format!("Destination: {}", url(&private, "pushed"));
        let create = there(&tokens.token("storage.create:/pushed storage.read:/pushed"));
        copy(user, &[&to_private, &create], &target);
        assert_holds(&private.at("pushed"), &content);
        fs::remove_file(private.at("pushed")).expect("removes");
        removed(user);
    }
}

/// RFC 1950 §8.2.
fn adler32(bytes: &[u8]) -> u32 {
    let (mut a, mut b) = (1_u32, 0);
    for &byte in bytes {
        a = (a + u32::from(byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    b << 16 | a
}

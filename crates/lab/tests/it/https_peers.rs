//! godwitd's HTTPS and WebDAV, with the programs that grids and others use.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    rc::Rc,
};

use godwit_lab::peers::{
    Error, Finished, RUN_TIMEOUT, Tool, free_port, gfal,
    godwit::Godwitd,
    grid::{self, Grid},
    plain_ftp::{CURL, RCLONE},
    present, process,
};
use tempfile::TempDir;

use crate::support::{assert_holds, write_noise};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

const LITMUS: Tool = Tool::new("litmus", "litmus");
const DAVIX_GET: Tool = Tool::new("davix-get", "davix");
const DAVIX_PUT: Tool = Tool::new("davix-put", "davix");
const DAVIX_COPY: Tool = Tool::new("davix-cp", "davix");
const DAVIX_LS: Tool = Tool::new("davix-ls", "davix");
const DAVIX_MKDIR: Tool = Tool::new("davix-mkdir", "davix");
const DAVIX_MV: Tool = Tool::new("davix-mv", "davix");
const DAVIX_RM: Tool = Tool::new("davix-rm", "davix");

/// A server, and a grid whose user it knows.
pub(crate) struct Site {
    server: Godwitd,
    grid: Rc<Grid>,
    folder: TempDir,
    port: u16,
}

impl Site {
    /// `None`, and a skip, without `tool`. `anonymous`: what clients without a certificate may do.
    fn start(test: &str, tool: Tool, anonymous: &str) -> Option<Self> {
        present(test, grid::available())?;
        present(test, tool.available())?;
        Some(Self::of_grid(
            Rc::new(Grid::new(&[LOOPBACK]).expect("a grid")),
            anonymous,
            &[],
        ))
    }

    /// `more`: arguments of the server.
    pub(crate) fn of_grid(grid: Rc<Grid>, anonymous: &str, more: &[&str]) -> Self {
        let folder = TempDir::new().expect("a directory");
        let root = folder.path().join("root");
        fs::create_dir(&root).expect("a root");
        // Another program may have taken the port since it was free.
        for _ in 0..5 {
            let port = free_port(LOOPBACK).expect("a port");
            let config = grid
                .of_godwitd(Godwitd::serving(&root))
                .anonymous(anonymous);
            let config = config.arg("--https").arg(format!("{LOOPBACK}:{port}"));
            let config = config.arg("--allow-copy-host").arg(LOOPBACK.to_string());
            let config = more.iter().fold(config, |config, word| config.arg(word));
            if let Ok(server) = config.start() {
                return Self {
                    server,
                    grid,
                    folder,
                    port,
                };
            }
        }
        panic!("godwitd does not start");
    }

    pub(crate) fn url(&self, scheme: &str, path: &str) -> String {
        format!("{scheme}://{LOOPBACK}:{}/{path}", self.port)
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join("root").join(path)
    }

    pub(crate) fn log(&self) -> String {
        self.server.log()
    }

    fn local(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// Runs `tool` as the user of the grid, which must succeed.
    #[track_caller]
    fn run<S: AsRef<std::ffi::OsStr>>(&self, tool: Tool, arguments: &[S]) -> Finished {
        let finished = self.try_run(tool, arguments).and_then(Finished::success);
        finished.unwrap_or_else(|error| panic!("{error}\n--- server\n{}", self.server.log()))
    }

    fn try_run<S: AsRef<std::ffi::OsStr>>(
        &self,
        tool: Tool,
        arguments: &[S],
    ) -> Result<Finished, Error> {
        let mut command = tool.command()?;
        command.args(arguments).current_dir(self.folder.path());
        command.envs(self.grid.of_user());
        process::run(command, RUN_TIMEOUT)
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn litmus_finds_no_fault() {
    let Some(site) = Site::start("litmus_finds_no_fault", LITMUS, "rw") else {
        return;
    };
    let mut command = LITMUS.command().expect("it is there");
    command.current_dir(site.folder.path());
    command
        .env("TESTS", "basic copymove http")
        .args(["-k", &site.url("https", "")]);
    let finished = process::run(command, RUN_TIMEOUT).and_then(Finished::success);
    let told = finished.expect("no fault").stdout_text();
    assert_eq!(told.matches(" 0 failed. 100.0%").count(), 3, "{told}");
}

/// What users would store as properties is refused; those of the server are found, and requests
/// that are no XML are told apart.
#[test]
fn litmus_finds_that_properties_can_be_read_and_not_set() {
    let name = "litmus_finds_that_properties_can_be_read_and_not_set";
    let Some(site) = Site::start(name, LITMUS, "rw") else {
        return;
    };
    let mut command = LITMUS.command().expect("it is there");
    command.current_dir(site.folder.path());
    command
        .env("TESTS", "props")
        .args(["-k", &site.url("https", "")]);
    let told = process::run(command, RUN_TIMEOUT).expect("it ends");
    let told = told.stdout_text();
    for passed in [
        "propfind_invalid",
        "propfind_invalid2",
        "propfind_d0",
        "propwformed",
    ] {
        let is_it = |line: &&str| line.contains(&format!(" {passed}.")) && line.ends_with(" pass");
        assert!(told.lines().any(|line| is_it(&line)), "{passed}: {told}");
    }
    let failed: Vec<&str> = told
        .lines()
        .filter(|line| line.contains(" FAIL "))
        .collect();
    assert!(!failed.is_empty(), "properties of users are kept: {told}");
    for line in failed {
        // The second is what comes of the first.
        let is_refused = line.contains("PROPPATCH") && line.contains("405 Method Not Allowed");
        assert!(is_refused || line.contains("No value given"), "{told}");
    }
}

#[test]
fn davix_moves_files_with_a_proxy_certificate() {
    let Some(site) = Site::start(
        "davix_moves_files_with_a_proxy_certificate",
        DAVIX_PUT,
        "off",
    ) else {
        return;
    };
    let (here, back) = (site.local("here"), site.local("back"));
    let bytes = write_noise(&here, 3_000_001, 1);
    let proxy = text(&site.grid.of_user()[0].1);
    let authorities = text(&site.grid.authorities());
    let as_user = ["-E", &proxy, "--capath", &authorities].map(str::to_owned);
    let run = |tool: Tool, more: &[String]| site.run(tool, &[&as_user[..], more].concat());
    run(DAVIX_MKDIR, &[site.url("https", "d")]);
    run(DAVIX_PUT, &[text(&here), site.url("https", "d/f")]);
    assert_holds(&site.at("d/f"), &bytes);
    run(DAVIX_GET, &[site.url("https", "d/f"), text(&back)]);
    assert_holds(&back, &bytes);
    let listed = run(DAVIX_LS, &["-l".to_owned(), site.url("https", "d/")]).stdout_text();
    assert!(
        listed.contains("3000001") && listed.contains(" f"),
        "{listed}"
    );
    // davix 0.8.4 ends with a failure after it.
    let names = ["d/f", "d/g"].map(|name| site.url("https", name));
    let _ = site.try_run(DAVIX_MV, &[&as_user[..], &names].concat());
    assert_holds(&site.at("d/g"), &bytes);
    run(DAVIX_RM, &[site.url("https", "d/g")]);
    assert!(!site.at("d/g").exists());
}

#[test]
fn davix_lets_one_server_copy_from_and_to_another() {
    let name = "davix_lets_one_server_copy_from_and_to_another";
    let Some(active) = Site::start(name, DAVIX_COPY, "off") else {
        return;
    };
    // The active server shows no certificate there.
    let passive = Site::of_grid(Rc::clone(&active.grid), "rw", &[]);
    let bytes = write_noise(&passive.at("f"), 3_000_001, 4);
    let proxy = text(&active.grid.of_user()[0].1);
    let authorities = text(&active.grid.authorities());
    for (mode, from, to, copied) in [
        (
            "pull",
            passive.url("davs", "f"),
            active.url("davs", "g"),
            active.at("g"),
        ),
        (
            "push",
            active.url("davs", "g"),
            passive.url("davs", "h"),
            passive.at("h"),
        ),
    ] {
        let words = [
            "-E",
            &proxy,
            "--capath",
            &authorities,
            "--copy-mode",
            mode,
            &from,
            &to,
        ];
        active.run(DAVIX_COPY, &words);
        assert_holds(&copied, &bytes);
    }
}

#[test]
fn gfal_moves_and_compares_files() {
    let Some(site) = Site::start("gfal_moves_and_compares_files", gfal::COPY, "off") else {
        return;
    };
    if present("gfal_moves_and_compares_files", gfal::http_available()).is_none() {
        return;
    }
    let (here, back) = (site.local("here"), site.local("back"));
    let bytes = write_noise(&here, 1_000_001, 2);
    let [from, to] = [&here, &back].map(|path| format!("file://{}", path.display()));
    let there = site.url("davs", "d/f");
    site.run(gfal::MKDIR, &[site.url("davs", "d")]);
    site.run(gfal::COPY, &["-K", "ADLER32", &from, &there]);
    assert_holds(&site.at("d/f"), &bytes);
    site.run(gfal::COPY, &[&there, &to]);
    assert_holds(&back, &bytes);
    let listed = site.run(gfal::LS, &[site.url("davs", "d")]).stdout_text();
    assert_eq!(listed, "f\n");
    site.run(gfal::RENAME, &[&there, &site.url("davs", "d/g")]);
    site.run(gfal::RM, &["-r", &site.url("davs", "d")]);
    assert!(!site.at("d").exists());
}

#[test]
fn rclone_copies_and_checks_a_tree() {
    let Some(site) = Site::start("rclone_copies_and_checks_a_tree", RCLONE, "rw") else {
        return;
    };
    let tree = site.local("tree");
    fs::create_dir_all(tree.join("a/b")).expect("directories");
    for (seed, name) in (0..).zip(["x", "a/ü & <y>", "a/b/100%"]) {
        write_noise(&tree.join(name), 100_000, seed);
    }
    let url = site.url("https", "");
    let settings = [
        "--config",
        "/dev/null",
        "--no-check-certificate",
        "--webdav-url",
        &url,
    ];
    let run = |words: &[&str]| site.run(RCLONE, &[&settings[..], words].concat());
    let tree = text(&tree);
    run(&["copy", &tree, ":webdav:tree"]);
    run(&["check", "--download", &tree, ":webdav:tree"]);
    run(&["moveto", ":webdav:tree/a", ":webdav:tree/c"]);
    assert!(site.at("tree/c/b/100%").exists() && !site.at("tree/a").exists());
    run(&["purge", ":webdav:tree"]);
    assert!(!site.at("tree").exists());
}

#[test]
fn curl_resumes_and_is_refused() {
    let Some(site) = Site::start("curl_resumes_and_is_refused", CURL, "ro") else {
        return;
    };
    let (authority, proxy) = (
        text(&site.grid.authority()),
        text(&site.grid.of_user()[0].1),
    );
    let trusted = ["--silent", "--show-error", "--cacert", &authority, "--fail"];
    let bytes = write_noise(&site.at("f"), 1_000_000, 3);
    let part = site.local("part");
    fs::write(&part, &bytes[..400_000]).expect("writes");
    let (part, url) = (text(&part), site.url("https", "f"));
    let get = ["--continue-at", "-", "--output", &part, &url];
    site.run(CURL, &[&trusted[..], &get].concat());
    assert_holds(part.as_ref(), &bytes);
    let put = ["--upload-file", &part, &site.url("https", "g")].map(str::to_owned);
    let put = put.iter().map(String::as_str).collect::<Vec<_>>();
    let refused = site.try_run(CURL, &[&trusted[..], &put].concat());
    assert!(refused.and_then(Finished::success).is_err());
    site.run(CURL, &[&trusted[..], &["--cert", &proxy], &put].concat());
    assert_holds(&site.at("g"), &bytes);
}

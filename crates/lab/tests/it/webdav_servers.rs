//! `godwit` and the WebDAV servers of other makers: Apache, nginx and XRootD.

use std::{fs, net::Ipv4Addr};

use godwit_lab::peers::{
    Finished, file_url,
    godwit::godwit_with,
    grid::Grid,
    webdav::{Kind, PASSWORD, WebdavServer},
};
use tempfile::TempDir;

use crate::support::{
    Need, assert_holds, assert_same_tree, have, odd_names, write_noise, write_tree,
};

/// Each function below, as a test against each server.
macro_rules! against_each {
    ($($name:ident),+ $(,)?) => {
        mod and_apache {
            $(#[test] fn $name() { super::$name(super::Kind::Apache); })+
        }
        mod and_nginx {
            $(#[test] fn $name() { super::$name(super::Kind::Nginx); })+
        }
        mod and_xrootd {
            $(#[test] fn $name() { super::$name(super::Kind::Xrootd); })+
        }
    };
}

against_each!(
    large_files_go_both_ways,
    trees_with_odd_names_are_kept_in_step,
    names_are_made_moved_and_removed,
    refusals_are_told_apart,
);

struct Site {
    kind: Kind,
    server: WebdavServer,
    grid: Grid,
    local: TempDir,
}

impl Site {
    /// `None`, and a skip, where the server is missing.
    fn start(kind: Kind) -> Option<Self> {
        if !have(&[Need::Godwit, Need::Webdav(kind)]) {
            return None;
        }
        let host = Ipv4Addr::LOCALHOST.into();
        let grid = Grid::new(&[host]).expect("a grid");
        let server = WebdavServer::start(kind, host, &grid, None).expect("it starts");
        Some(Self {
            kind,
            server,
            grid,
            local: TempDir::new().expect("a directory"),
        })
    }

    fn url(&self, path: &str) -> String {
        match self.kind {
            Kind::Apache | Kind::Nginx => self.server.url_of_login(path),
            Kind::Xrootd => self.server.url(path),
        }
    }

    fn local(&self, path: &str) -> String {
        file_url(&self.local.path().join(path))
    }

    fn try_godwit(&self, password: &str, arguments: &[&str]) -> Finished {
        let authority = self.grid.authority();
        let ca = ["--ca".into(), authority.into_os_string()];
        let (command, rest) = arguments.split_first().expect("a command");
        let rest = rest.iter().map(Into::into);
        let arguments = [(*command).into()].into_iter().chain(ca).chain(rest);
        let user = self
            .grid
            .of_user()
            .map(|(name, path)| (name.into(), path.into()));
        let password = ("GODWIT_PASSWORD".into(), password.into());
        godwit_with(
            arguments.collect::<Vec<_>>(),
            user.into_iter().chain([password]),
        )
        .expect("it ends")
    }

    /// Runs `godwit`, which must succeed; what it printed.
    #[track_caller]
    fn godwit(&self, arguments: &[&str]) -> String {
        let mut finished = self.try_godwit(PASSWORD, arguments);
        // XRootD 5.5 reads a null pointer now and then where a client closes a connection of TLS.
        let crashes = self.kind == Kind::Xrootd && !finished.status.success();
        if crashes && self.server.start_again_if_ended().expect("it starts") {
            println!("the server had crashed, and was started again");
            finished = self.try_godwit(PASSWORD, arguments);
        }
        let (said, log) = (finished.log(), self.server.log());
        assert!(
            finished.status.success(),
            "{arguments:?}\n{said}--- server\n{log}"
        );
        said
    }
}

fn large_files_go_both_ways(kind: Kind) {
    let Some(site) = Site::start(kind) else {
        return;
    };
    let bytes = write_noise(&site.local.path().join("here"), 40_000_001, 1);
    site.godwit(&["cp", &site.local("here"), &site.url("there")]);
    assert_holds(&site.server.at("there"), &bytes);
    let get = ["cp", "-p", "4", &site.url("there"), &site.local("back")];
    site.godwit(&get);
    assert_holds(&site.local.path().join("back"), &bytes);
    // XRootD alone tells checksums.
    let put = [
        "cp",
        "--verify=adler32",
        &site.local("here"),
        &site.url("again"),
    ];
    let verified = site.try_godwit(PASSWORD, &put);
    let told = kind == Kind::Xrootd;
    assert_eq!(verified.status.success(), told, "{}", verified.log());
    assert_eq!(site.server.at("again").exists(), told);
}

fn trees_with_odd_names_are_kept_in_step(kind: Kind) {
    let Some(site) = Site::start(kind) else {
        return;
    };
    let tree = site.local.path().join("tree");
    let mut paths = write_tree(&tree);
    for (seed, name) in (0..).zip(odd_names()) {
        let is_served = match kind {
            Kind::Apache => true,
            // It lists no name with a leading dot.
            Kind::Nginx => !name.starts_with('.'),
            // A name ends there, and listings cut off its 255th byte. Blanks at the end of a path
            // are lost where a listing is read.
            Kind::Xrootd => !name.contains('?') && !name.ends_with(' ') && name.len() < 255,
        };
        if is_served {
            write_noise(&tree.join(&name), 100, seed);
            paths.push(name);
        }
    }
    let (here, there) = (site.local("tree/"), site.url("copy/"));
    site.godwit(&["cp", "-r", &here, &there]);
    assert_same_tree(&paths, &tree, &site.server.at("copy"));
    let same = format!("{} the same", paths.len());
    let said = site.godwit(&["sync", &here, &there]);
    assert!(said.contains(&same), "{said}");
    let changed = &paths[4];
    write_noise(&tree.join(changed), 123, 9);
    let said = site.godwit(&["sync", &here, &there]);
    assert!(said.contains("1 file,"), "{said}");
    site.godwit(&["cp", "-r", &there, &site.local("back/")]);
    assert_same_tree(&paths, &tree, &site.local.path().join("back"));
    fs::remove_file(tree.join(changed)).expect("removes");
    site.godwit(&["sync", "--delete", &here, &there]);
    assert!(!site.server.at("copy").join(changed).exists());
}

fn names_are_made_moved_and_removed(kind: Kind) {
    let Some(site) = Site::start(kind) else {
        return;
    };
    write_noise(&site.local.path().join("f"), 10, 1);
    site.godwit(&["mkdir", &site.url("d")]);
    site.godwit(&["cp", &site.local("f"), &site.url("d/a b")]);
    site.godwit(&["mv", &site.url("d/a b"), &site.url("d/ü & ö")]);
    site.godwit(&["mv", &site.url("d"), &site.url("e")]);
    assert!(site.server.at("e/ü & ö").exists());
    let listed = site.godwit(&["ls", &site.url("e")]);
    assert!(listed.contains("\nü & ö\n"), "{listed}");
    let stated = site.godwit(&["stat", &site.url("e/ü & ö")]);
    assert!(stated.contains("10"), "{stated}");
    site.godwit(&["rm", &site.url("e/ü & ö")]);
    assert!(!site.server.at("e/ü & ö").exists());
    site.godwit(&["cp", &site.local("f"), &site.url("e/f")]);
    let full = site.try_godwit(PASSWORD, &["rm", &site.url("e")]);
    assert!(!full.status.success() && site.server.at("e/f").exists());
    site.godwit(&["rm", "-r", &site.url("e")]);
    assert!(!site.server.at("e").exists());
}

fn refusals_are_told_apart(kind: Kind) {
    let Some(site) = Site::start(kind) else {
        return;
    };
    let missing = site.try_godwit(PASSWORD, &["cp", &site.url("no"), &site.local("no")]);
    assert_eq!(missing.status.code(), Some(4), "{}", missing.log());
    assert!(missing.log().contains("no such file"), "{}", missing.log());
    write_noise(&site.local.path().join("f"), 10, 1);
    let put = ["cp", &site.local("f"), &site.url("f")];
    let refused = match kind {
        Kind::Apache | Kind::Nginx => site.try_godwit("wrong", &put),
        // It has no passwords: this is somebody without a certificate.
        Kind::Xrootd => {
            let ca = site.grid.authority().display().to_string();
            let arguments = ["cp", "--ca", &ca, put[1], put[2]];
            godwit_with(arguments, []).expect("it ends")
        }
    };
    assert_eq!(refused.status.code(), Some(3), "{}", refused.log());
    assert!(refused.log().contains("denied"), "{}", refused.log());
    assert!(!site.server.at("f").exists());
}

//! Messages and leftovers of our client after failures, with either server.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use godwit_lab::peers::gct::GctServer;
use godwit_lab::peers::godwit::{self, Godwitd};
use godwit_lab::peers::process::{Options, Process, Signal};
use godwit_lab::peers::{self};
use godwit_proto::temporary::is_temporary;

use crate::support::{
    Kind, LONG, Need, OneWay, Site, SmallDisk, am_root, assert_same, files_below, have, length_of,
    stored_below, wait_until, write_noise, write_sparse,
};

const NEEDS: &[Need] = &[Need::Godwit, Need::Godwitd, Need::Gct];
const BOTH: [Kind; 2] = [Kind::Gct, Kind::Godwitd];

const REFUSED: i32 = 3;
const FAILED: i32 = 4;

fn typed(path: &Path) -> String {
    path.to_str().expect("UTF-8").to_owned()
}

#[track_caller]
pub(crate) fn says(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "no {word:?} in: {said}");
    }
}

#[test]
fn missing_files_are_named() {
    if !have(NEEDS) {
        return;
    }
    for kind in BOTH {
        let site = Site::new(kind);
        write_noise(&site.local("f"), 1000, 1);
        let (local, absent) = (typed(&site.local("f")), site.url("absent"));
        let words = [absent.as_str(), "no such file or directory"];
        let back = typed(&site.local("back"));
        says(&site.godwit_exits(FAILED, &["cp", &absent, &back]), &words);
        for verb in ["stat", "ls", "cksum", "rm"] {
            says(&site.godwit_exits(FAILED, &[verb, &absent]), &words);
        }
        says(
            &site.godwit_exits(FAILED, &["chmod", "600", &absent]),
            &words,
        );
        says(
            &site.godwit_exits(FAILED, &["mv", &absent, &site.url("x")]),
            &words,
        );
        let into = site.url("absent/f");
        let said = site.godwit_exits(FAILED, &["cp", &local, &into]);
        says(&said, &[&into, "no such file or directory"]);
        let nothing = typed(&site.local("nothing"));
        let said = site.godwit_exits(FAILED, &["cp", &nothing, &site.url("x")]);
        says(&said, &[&nothing, "no such file or directory"]);
        assert_eq!(files_below(&site.at("")) + files_below(&site.local("")), 1);
    }
}

#[test]
fn one_file_that_fails_stops_no_other() {
    if !have(NEEDS) {
        return;
    }
    for kind in BOTH {
        let site = Site::new(kind);
        for name in ["a", "b"] {
            write_noise(&site.at(name), 1000, 1);
        }
        let into = typed(&site.local(""));
        let said = site.godwit_exits(
            1,
            &[
                "cp",
                &site.url("a"),
                &site.url("absent"),
                &site.url("b"),
                &into,
            ],
        );
        says(&said, &[&site.url("absent"), "no such file or directory"]);
        assert_same(&site.at("a"), &site.local("a"));
        assert_same(&site.at("b"), &site.local("b"));
    }
}

#[test]
fn a_directory_in_the_way_stays() {
    if !have(NEEDS) {
        return;
    }
    for kind in BOTH {
        let site = Site::new(kind);
        write_noise(&site.local("f"), 1000, 1);
        // The name it would get inside is taken by a directory, too.
        fs::create_dir_all(site.at("folder/f")).expect("a directory");
        let url = site.url("folder");
        let said = site.godwit_exits(FAILED, &["cp", &typed(&site.local("f")), &url]);
        says(&said, &[&site.url("folder/f"), "directory"]);
        assert_eq!(files_below(&site.at("")), 0);

        write_noise(&site.at("g"), 1000, 1);
        fs::create_dir_all(site.local("back/g")).expect("a directory");
        let back = typed(&site.local("back"));
        let said = site.godwit_exits(FAILED, &["cp", &site.url("g"), &back]);
        says(&said, &[&typed(&site.local("back/g")), "directory"]);
        assert_eq!(files_below(&site.local("back")), 0);
        let said = site.godwit_exits(2, &["cp", &site.url("folder"), &back]);
        says(&said, &["-r"]);
    }
}

/// Both servers, started as a user who owns nothing.
fn unprivileged_sites() -> Vec<Site> {
    let gct = Site::gct(|root| {
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(root.parent().expect("a parent"), open).expect("a mode");
        // The last of two wins.
        let config = GctServer::serving(root)
            .arg("-anonymous-user")
            .arg("nobody");
        config.start().expect("starts")
    });
    vec![gct, Site::unprivileged_godwitd()]
}

#[test]
fn missing_permission_is_refusal() {
    if !have(NEEDS) || !am_root("only root can start a server as another user") {
        return;
    }
    for site in unprivileged_sites() {
        let mode = |path: &str, mode: u32| {
            fs::set_permissions(site.at(path), fs::Permissions::from_mode(mode)).expect("a mode");
        };
        write_noise(&site.local("f"), 1000, 1);
        fs::write(site.at("secret"), "x").expect("a file");
        mode("secret", 0o600);
        let back = typed(&site.local("back"));
        let words = ["ermission denied"];
        let said = site.godwit_exits(REFUSED, &["cp", &site.url("secret"), &back]);
        says(&said, &[&site.url("secret"), words[0]]);
        let said = site.godwit_exits(REFUSED, &["cp", &typed(&site.local("f")), &site.url("new")]);
        says(&said, &[&site.url("new"), words[0]]);
        says(
            &site.godwit_exits(REFUSED, &["mkdir", &site.url("d")]),
            &words,
        );
        says(
            &site.godwit_exits(REFUSED, &["rm", &site.url("secret")]),
            &words,
        );
        assert!(!site.local("back").exists());
        assert_eq!(files_below(&site.at("")), 1);
    }
}

#[test]
fn a_full_disk_leaves_only_resumable_files() {
    if !have(NEEDS) {
        return;
    }
    for kind in BOTH {
        let Some(disk) = SmallDisk::mount("2m") else {
            return;
        };
        let site = match kind {
            Kind::Godwitd => {
                Site::godwitd(|_| Godwitd::serving(disk.path()).start().expect("starts"))
            }
            Kind::Gct => Site::gct(|_| GctServer::serving(disk.path()).start().expect("starts")),
        };
        write_noise(&site.local("f"), 5_000_000, 1);
        let (local, url) = (typed(&site.local("f")), site.url("f"));
        let said = site.godwit_exits(FAILED, &["cp", "--no-journal", &local, &url]);
        says(&said, &[&url, "o space left"]);
        assert_eq!(files_below(disk.path()), 0);
        // The next attempt resumes what the journal records. Our server checks the free space
        // before it begins.
        for _ in 0..2 {
            let said = site.godwit_exits(FAILED, &["cp", &local, &url]);
            says(&said, &[&url, "o space left"]);
            match kind {
                Kind::Gct => assert_begun(disk.path()),
                Kind::Godwitd => assert_eq!(files_below(disk.path()), 0),
            }
        }
    }
    let Some(disk) = SmallDisk::mount("2m") else {
        return;
    };
    for kind in BOTH {
        let site = Site::new(kind);
        write_noise(&site.at("f"), 5_000_000, 1);
        let (url, target) = (site.url("f"), typed(&disk.path().join("f")));
        let said = site.godwit_exits(FAILED, &["cp", "--no-journal", "-p", "4", &url, &target]);
        // The file that could not be written is the temporary one beside the target.
        let folder = typed(disk.path());
        says(&said, &[&url, &folder, "o space left"]);
        assert_eq!(files_below(disk.path()), 0);
    }
}

#[test]
fn missing_endpoints_are_named() {
    if !have(&[Need::Godwit]) {
        return;
    }
    let run = |status: i32, arguments: &[&str]| {
        let finished = godwit::godwit(arguments).expect("runs");
        assert_eq!(finished.status.code(), Some(status), "{}", finished.log());
        finished.log()
    };
    let port = peers::free_port(IpAddr::V4(Ipv4Addr::LOCALHOST)).expect("a port");
    let refused = format!("ftp://127.0.0.1:{port}/f");
    let said = run(FAILED, &["cp", &refused, "/dev/null"]);
    says(&said, &[&format!("127.0.0.1:{port}"), "refused"]);
    let said = run(FAILED, &["ls", "gsiftp://no-such-host.invalid/f"]);
    says(&said, &["no-such-host.invalid", "find host"]);
    for url in [
        "htp://host/f",
        "ftp://[::1/f",
        "ftp://host:port/f",
        "ftp:///f",
    ] {
        let said = run(2, &["cp", url, "/dev/null"]);
        assert!(!said.is_empty(), "{url}");
    }
    says(
        &run(2, &["cp", "--no-such-option", "a", "b"]),
        &["--no-such-option"],
    );
    run(2, &["cp", "only-one"]);
    run(2, &[]);
}

/// There is nothing but one file under a temporary name.
fn assert_begun(folder: &Path) {
    let names: Vec<_> = fs::read_dir(folder)
        .expect("is there")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    let [name] = &names[..] else {
        panic!("{names:?}");
    };
    assert!(is_temporary(name.as_bytes()), "{names:?}");
}

pub(crate) fn start(arguments: &[&str]) -> Process {
    let mut command = Command::new(godwit::binary("godwit").expect("present"));
    command.args(arguments);
    Process::spawn(command, Options::default()).expect("starts")
}

/// Bytes of a big file of which some must have moved before anything is killed.
pub(crate) const BIG: u64 = 1 << 30;

/// Copies a big file in both directions with either server, and hands the copy on when some of it
/// has arrived.
fn for_each_running_copy(options: &[&str], check: impl Fn(Kind, &Site, OneWay, Process)) {
    if !have(NEEDS) {
        return;
    }
    for kind in BOTH {
        for upload in [true, false] {
            let site = Site::new(kind);
            let way = site.one_way(upload, "f");
            write_sparse(&way.source, BIG);
            let (from, to) = (&*way.from, &*way.to);
            let cp = [&["cp", "--no-sparse"][..], options, &[from, to]];
            let client = start(&cp.concat());
            let folder = way.target.parent().expect("a parent");
            wait_until("some of it has arrived", || stored_below(folder) > 1 << 20);
            check(kind, &site, way, client);
        }
    }
}

#[test]
fn a_server_that_dies_leaves_no_file_under_its_final_name() {
    let options = ["-p", "2", "--retries", "2", "--no-verify"];
    for_each_running_copy(&options, |_, site, way, client| {
        site.crash();
        assert!(!way.target.exists(), "it was too fast");
        let finished = client.wait(LONG).expect("ends");
        assert_eq!(finished.status.code(), Some(FAILED), "{}", finished.log());
        says(&finished.log(), &["127.0.0.1"]);
        assert!(!way.target.exists());
        assert_begun(way.target.parent().expect("a parent"));
    });
}

#[test]
fn an_interrupt_aborts_the_transfer_at_the_server() {
    for_each_running_copy(&["-vv", "-c", "1", "-p", "2"], |kind, _, way, client| {
        client.signal(Signal::INT).expect("interrupts");
        let finished = client.wait(LONG).expect("ends");
        assert_eq!(finished.status.code(), Some(130), "{}", finished.log());
        says(&finished.log(), &["-> ABOR", "goes on from here"]);
        // The other may call what it has a whole file, or say 500 and no more.
        if kind == Kind::Godwitd {
            says(&finished.log(), &["<- 426", "<- 226"]);
        }
        assert!(!way.target.exists());
    });
}

#[test]
fn a_client_that_dies_leaves_no_file_under_its_final_name() {
    for_each_running_copy(&["-p", "2", "--no-verify"], |_, site, way, client| {
        client.signal(Signal::KILL).expect("kills");
        client.wait(LONG).expect("ends");
        assert!(!way.target.exists());
        // The server continues, and the next attempt is whole.
        write_sparse(&way.source, 10_000_000);
        site.godwit(&["cp", "-p", "2", &way.from, &way.to]);
        assert_same(&way.source, &way.target);
        assert_eq!(length_of(&way.target), 10_000_000);
    });
}

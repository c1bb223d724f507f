//! The classes of failure, one case or several each: which exit status, and a message that says
//! what failed, where, and whose turn it is. Those of disks that are full, accounts and real
//! servers are in `lab/client_failures`.

use std::{
    fs,
    net::TcpListener,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime},
};

use godwit_server::Anonymous;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{
    fake::{Fake, Quirks},
    gsi::{self, World},
    harness::{Ran, Served, bytes, godwit, run, text},
    pki::Blueprint,
};

/// Whose turn it is, as messages end.
const USER: &str = "; check what you asked for";
const SERVER: &str = "; ask the server's administrator";
const NETWORK: &str = "; check the network or try later";
const MACHINE: &str = "; check this machine";

const DONE: i32 = 0;
const PARTLY: i32 = 1;
const USAGE: i32 = 2;
const REFUSED: i32 = 3;
const FAILED: i32 = 4;
const INTERRUPTED: i32 = 130;

/// What runs need: a server, a read-only one, and a directory here.
struct Place {
    open: Served,
    fixed: Served,
    here: TempDir,
}

impl Place {
    /// A file `f`, a directory `d` with a file, and `alike`, a tree that is the same here and
    /// there.
    fn new() -> Self {
        let open = Served::start();
        let fixed = Served::start_with(|settings| settings.anonymous = Anonymous::Ro);
        let here = tempfile::tempdir().unwrap();
        for root in [open.root.path(), fixed.root.path(), here.path()] {
            fs::write(root.join("f"), bytes(100_000, 1)).unwrap();
            fs::create_dir_all(root.join("d")).unwrap();
            fs::write(root.join("d/g"), "g").unwrap();
        }
        Self { open, fixed, here }
    }

    fn here(&self, path: &str) -> String {
        text(&self.here.path().join(path)).to_owned()
    }
}

/// Runs the program, which must end with `exit` and say all `words` in one line on standard error.
#[track_caller]
fn case(arguments: &[&str], exit: i32, words: &[&str]) {
    expect_message(&run(arguments), arguments, exit, words);
}

#[track_caller]
fn expect_message(ran: &Ran, arguments: &[&str], exit: i32, words: &[&str]) {
    assert_eq!(ran.code, exit, "{arguments:?}: {}", ran.err);
    let says = |line: &str| words.iter().all(|word| line.contains(word));
    let found = words.is_empty() || ran.err.lines().any(says);
    assert!(
        found,
        "{arguments:?}: no line with {words:?} in: {}",
        ran.err
    );
}

#[test]
fn wrong_usage_is_2() {
    let place = Place::new();
    let (f, d) = (place.open.url("/f"), place.open.url("/d"));
    case(&["cp", &f], USAGE, &["2 values required"]);
    case(&["cp", "--no-such", &f, "."], USAGE, &["--no-such"]);
    case(&["cp", "htp://host/f", "."], USAGE, &["htp"]);
    case(&["cp", "-r", "a", "b"], USAGE, &["a", "b"]);
    case(&["cp", &d, &place.here("x")], USAGE, &[&d, "add -r", USER]);
    case(&["rm", &d], USAGE, &[&d, "add -r", USER]);
    let deeper = place.open.url("/d/e");
    case(&["sync", &d, &d], USAGE, &[&d, "into itself"]);
    case(&["cp", "-r", &d, &deeper], USAGE, &[&d, "into itself"]);
    case(&["sync", "--no-such", &d, "."], USAGE, &["--no-such"]);
    case(&["ls"], USAGE, &["required"]);
    case(&["chmod", "9", &f], USAGE, &["octal"]);
    case(
        &["ls", "--protect", "private", &f],
        USAGE,
        &[&place.open.url(""), "has no protection", USER],
    );
}

#[test]
fn nothing_to_do_is_0() {
    let place = Place::new();
    let (d, here) = (place.open.url("/d"), place.here("d"));
    fs::create_dir(place.open.path("empty")).unwrap();
    case(&["sync", "--checksum", &format!("{here}/"), &d], DONE, &[]);
    case(
        &["sync", &format!("{here}/"), &d],
        DONE,
        &["0 files", "1 the same"],
    );
    case(
        &["cp", "-r", &place.open.url("/empty/"), &place.here("new")],
        DONE,
        &["0 files"],
    );
    case(&["mkdir", "-p", &d], DONE, &[]);
    case(&["ls", &place.open.url("/empty")], DONE, &[]);
}

#[test]
fn a_server_that_is_not_there_is_4() {
    let place = Place::new();
    let gone = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let (gone, f) = (format!("ftp://{gone}/f"), place.here("f"));
    let words = [gone.trim_end_matches("/f"), "refused", NETWORK];
    for arguments in [
        &["cp", &gone, "/dev/null"][..],
        &["cp", &f, &gone],
        &["cp", &place.open.url("/f"), &gone],
        &["cp", &gone, &place.open.url("/new")],
        &["sync", &place.here("d"), &gone],
        &["sync", &gone, &place.here("new")],
        &["ls", &gone],
        &["stat", &gone],
        &["cksum", &gone],
        &["mkdir", &gone],
        &["rm", &gone],
        &["mv", &gone, &gone],
        &["chmod", "600", &gone],
    ] {
        case(arguments, FAILED, &words);
    }
    let unknown_host = "ftp://no-such-host.invalid/f";
    case(
        &["ls", unknown_host],
        FAILED,
        &["cannot find host no-such-host.invalid", USER],
    );
    case(
        &["cp", unknown_host, "/dev/null"],
        FAILED,
        &["cannot find host no-such-host.invalid", USER],
    );
}

#[test]
fn a_login_that_is_refused_is_3_and_one_that_must_wait_4() {
    let place = Place::new();
    let url = format!("ftp://me:wrong@{}/f", place.open.address);
    for arguments in [
        &["cp", &url, "/dev/null"][..],
        &["cp", &place.here("f"), &url],
        &["sync", &place.here("d"), &url],
        &["ls", &url],
        &["rm", &url],
    ] {
        case(
            arguments,
            REFUSED,
            &[
                &place.open.address.to_string(),
                "login refused",
                "530",
                USER,
            ],
        );
    }
    let full = Fake::start(Quirks {
        greeting: Some("421 Too many users"),
        ..Quirks::default()
    });
    let words = [&full.url(""), "refused the connection", "421", SERVER];
    case(
        &["cp", "--retries", "1", &full.url("/f"), "/dev/null"],
        FAILED,
        &words,
    );
    case(&["ls", &full.url("/f")], FAILED, &words);
}

#[test]
fn an_untrusted_server_is_3() {
    let world = World::new();
    let stranger = World::new();
    let expired = Blueprint::host("/O=Grid/CN=server", &["127.0.0.1"]);
    let day = Duration::from_secs(86_400);
    let expired = expired
        .at(SystemTime::now() - 4000 * day)
        .issued_by(&world.grid.authority);
    for (credential, words) in [(stranger.host(), "CN=CA"), (expired, "expired")] {
        let server = gsi::Server::start(&world, credential, gsi::Quirks::default());
        let url = server.url("/new");
        for arguments in [
            &["mkdir", &url][..],
            &["cp", &url, "/dev/null"],
            &["sync", &url, "/new"],
        ] {
            let words = [&server.url(""), "identity of the server", words];
            expect_message(&world.run(arguments), arguments, REFUSED, &words);
        }
    }
}

#[test]
fn protection_that_cannot_be_had_is_4() {
    let world = World::new();
    let quirks = gsi::Quirks {
        replies: vec![("PROT P", "536 no"), ("PROT S", "536 no")],
        ..gsi::Quirks::default()
    };
    let server = gsi::Server::start(&world, world.host(), quirks);
    let url = server.url("/f");
    for arguments in [&["cp", &url, "/dev/null"][..], &["ls", &url]] {
        let arguments = &[arguments, &["--protect", "private"]].concat();
        let words = [
            &server.url(""),
            "no PROT P",
            "others could read",
            "536",
            SERVER,
        ];
        expect_message(&world.run(arguments), arguments, FAILED, &words);
    }
}

#[test]
fn a_missing_file_is_4() {
    let place = Place::new();
    let (none, into) = (place.open.url("/none"), place.open.url("/none/f"));
    let (f, new) = (place.here("f"), place.here("new"));
    let nothing = "no such file or directory";
    for arguments in [
        &["cp", &none, &new][..],
        &["cp", "-r", &none, &new],
        &["cp", &none, &place.open.url("/new")],
        &["sync", &none, &new],
        &["ls", &none],
        &["stat", &none],
        &["cksum", &none],
        &["rm", &none],
        &["mv", &none, &place.open.url("/new")],
        &["chmod", "600", &none],
    ] {
        case(arguments, FAILED, &[&none, nothing, USER]);
    }
    case(&["cp", &f, &into], FAILED, &[&into, nothing, USER]);
    case(&["mkdir", &into], FAILED, &[&into, nothing, USER]);
    let (none, into) = (place.here("none"), place.here("none/f"));
    for arguments in [
        &["cp", &none, &place.open.url("/new")][..],
        &["cp", "-r", &none, &place.open.url("/new")],
        &["sync", &none, &place.open.url("/new")],
        &["cksum", &none],
        &["explain", &none],
    ] {
        case(
            arguments,
            FAILED,
            &[&none, "o such file or directory", USER],
        );
    }
    case(
        &["cp", &place.open.url("/f"), &into],
        FAILED,
        &[&place.here("none"), "o such file", USER],
    );
}

#[test]
fn a_refused_permission_is_3() {
    let place = Place::new();
    let (f, new) = (place.fixed.url("/f"), place.fixed.url("/new"));
    let words = [&place.fixed.url(""), "permission denied", USER];
    for arguments in [
        &["cp", &place.here("f"), &new][..],
        &["cp", "-r", &place.here("d"), &new],
        &["cp", &place.open.url("/f"), &new],
        &["sync", &place.here("d"), &new],
        &["mkdir", &new],
        &["rm", &f],
        &["rm", "-r", &place.fixed.url("/d")],
        &["mv", &f, &new],
        &["chmod", "600", &f],
    ] {
        case(arguments, REFUSED, &words);
    }
    // No user can make files there, not even root.
    let there = "/sys/kernel/f";
    let get = ["cp", &place.open.url("/f"), there];
    case(&get, REFUSED, &["/sys/kernel", MACHINE]);
    case(
        &["cp", "--events", there, &place.open.url("/f"), "/dev/null"],
        REFUSED,
        &[there, MACHINE],
    );
}

#[test]
fn a_full_disk_is_4() {
    let place = Place::new();
    let f = place.open.url("/f");
    case(
        &["cp", &f, "/dev/full"],
        FAILED,
        &["/dev/full", "o space left", MACHINE],
    );
    let full = Fake::start(Quirks::default().replies(&[
        ("STOR", "552 No space left on device"),
        ("MKD", "550 No space left on device"),
    ]));
    let words = [&full.url("/new"), "no space left at the server", SERVER];
    case(&["cp", &place.here("f"), &full.url("/new")], FAILED, &words);
    case(&["mkdir", &full.url("/new")], FAILED, &words);
    // A user who asks for a listing and does not get it must see why.
    for arguments in [
        &["ls", &place.open.url("/")][..],
        &["stat", &f],
        &["cksum", &f],
        &["cp", "--json", &f, "/dev/null"],
        &["sync", "-n", &place.open.url("/d"), &place.here("new")],
    ] {
        let out = fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let ran = godwit(arguments).stdout(out).output().unwrap();
        expect_message(
            &ran.into(),
            arguments,
            FAILED,
            &["standard output", "o space left", MACHINE],
        );
    }
}

#[test]
fn bytes_that_differ_are_4() {
    let fake = Fake::start(Quirks {
        features: Some(&["SIZE", "CKSM CRC32C"]),
        checksum: Some("00000000"),
        ..Quirks::default()
    });
    fake.put("/f", b"x");
    let place = Place::new();
    let (f, new) = (fake.url("/f"), place.here("new"));
    case(
        &["cp", &f, &new],
        FAILED,
        &[&f, "CRC32C differs", "00000000", NETWORK],
    );
    assert!(fs::metadata(&new).is_err());
    let up = fake.url("/up");
    case(
        &["cp", &place.here("f"), &up],
        FAILED,
        &[&up, "CRC32C differs", NETWORK],
    );
    assert_eq!(fake.names(), ["/f"]);
}

#[test]
fn a_server_that_dies_each_time_is_4() {
    let place = Place::new();
    let up = place.here("f");
    for verb in ["RETR", "STOR", "MLST"] {
        let fake = Fake::start(Quirks::default().features(&["MLST"]).hang_up(verb));
        fake.put("/f", &bytes(1000, 1));
        let (get, put) = (fake.url("/f"), fake.url("/up"));
        let arguments = match verb {
            "STOR" => ["cp", "--retries", "2", &up, &put],
            _ => ["cp", "--retries", "2", &get, &place.here("new")],
        };
        case(&arguments, FAILED, &[&fake.url(""), "closed", NETWORK]);
        assert_eq!(fake.heard(verb), 2);
    }
    let fake = Fake::start(Quirks::default().hang_up("DELE"));
    fake.put("/f", b"x");
    case(
        &["rm", &fake.url("/f")],
        FAILED,
        &[&fake.url("/f"), "closed", NETWORK],
    );
}

#[test]
fn a_server_that_says_nothing_is_4() {
    let place = Place::new();
    let limit = ["--stall-timeout", "1"];
    for verb in ["USER", "RETR", "DELE", "STOR"] {
        let fake = Fake::start(Quirks::default().mute(verb));
        fake.put("/f", &bytes(1000, 1));
        let (f, here) = (fake.url("/f"), place.here("f"));
        let arguments = match verb {
            "DELE" => vec!["rm", &f],
            "STOR" => vec!["cp", "--retries", "1", &here, &f],
            _ => vec!["cp", "--retries", "1", &f, "/dev/null"],
        };
        let arguments = [&arguments[..], &limit].concat();
        let limit = match verb {
            "STOR" => "2 s",
            // The data connection, which is as silent, may be what the message names: its
            // limit is 1 s, and the answer's comes right behind.
            "RETR" => " s",
            _ => "1 s",
        };
        case(&arguments, FAILED, &[&fake.url(""), limit, NETWORK]);
    }
}

#[test]
fn some_of_many_is_1_and_each_failure_is_reported() {
    let place = Place::new();
    let (f, none) = (place.open.url("/f"), place.open.url("/none"));
    let new = place.here("new");
    fs::create_dir(&new).unwrap();
    fs::create_dir(place.here("d/wall")).unwrap();
    fs::write(place.here("d/wall/x"), "x").unwrap();
    fs::write(
        place.open.path("wall"),
        "a file where a directory should be",
    )
    .unwrap();
    let nothing = [none.as_str(), "no such file or directory", USER];
    case(&["cp", &f, &none, &new], PARTLY, &nothing);
    case(&["stat", &f, &none], PARTLY, &nothing);
    case(&["cksum", &f, &none], PARTLY, &nothing);
    case(&["chmod", "640", &f, &none], PARTLY, &nothing);
    case(
        &[
            "mkdir",
            &place.open.url("/made"),
            &place.open.url("/none/x"),
        ],
        PARTLY,
        &["/none/x", USER],
    );
    case(&["rm", &none, &f], PARTLY, &nothing);
    let root = place.open.url("/");
    case(
        &["sync", &format!("{}/", place.here("d")), &root],
        PARTLY,
        &["/wall"],
    );
}

#[test]
fn between_servers_each_one_is_named() {
    let (place, other) = (Place::new(), Place::new());
    let fixed = other.fixed.url("/new");
    let from = place.open.url("/f");
    case(
        &["cp", &from, &fixed],
        REFUSED,
        &[&fixed, "permission denied", USER],
    );
    case(
        &["sync", &place.open.url("/d"), &fixed],
        REFUSED,
        &[&fixed, "permission denied", USER],
    );
    let (none, new) = (place.open.url("/none"), other.open.url("/new"));
    case(
        &["cp", &none, &new],
        FAILED,
        &[&none, "no such file or directory", USER],
    );
    let into = other.open.url("/none/f");
    case(
        &["cp", &from, &into],
        FAILED,
        &[&into, "no such file or directory", USER],
    );
    let two = [from.as_str(), &none, &other.open.url("/")];
    case(&[&["cp"][..], &two].concat(), PARTLY, &[&none, USER]);
    case(
        &["cp", "--protect", "private", &from, &new],
        USAGE,
        &["has no protection", USER],
    );
    let dead = Fake::start(Quirks::default().hang_up("RETR"));
    dead.put("/f", b"x");
    let words = [dead.url(""), "closed".to_owned(), NETWORK.to_owned()];
    let words = words.each_ref().map(String::as_str);
    case(
        &["cp", "--retries", "1", &dead.url("/f"), &new],
        FAILED,
        &words,
    );
}

#[test]
fn an_interrupt_is_130() {
    let place = Place::new();
    for signal in [Signal::INT, Signal::TERM] {
        for verb in ["USER", "RETR", "STOR", "MLSD", "DELE"] {
            let fake = Fake::start(Quirks::default().features(&["MLST"]).mute(verb));
            fake.put("/d/f", &bytes(1000, 1));
            let (f, new, d) = (fake.url("/d/f"), place.here("new"), fake.url("/d"));
            let arguments = match verb {
                "RETR" | "USER" => ["cp", &f, &new],
                "STOR" => ["cp", &place.here("f"), &f],
                "MLSD" => ["sync", &d, &new],
                _ => ["rm", "--", &f],
            };
            let child = interruptible(&arguments);
            let deadline = Instant::now() + Duration::from_secs(60);
            while fake.heard(verb) == 0 {
                assert!(Instant::now() < deadline, "{verb} was never heard");
                thread::sleep(Duration::from_millis(2));
            }
            let id = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
            kill_process(id, signal).unwrap();
            let ran = Ran::from(child.wait_with_output().unwrap());
            expect_message(&ran, &arguments, INTERRUPTED, &["interrupted"]);
        }
    }
}

fn interruptible(arguments: &[&str]) -> std::process::Child {
    let mut command: Command = godwit(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

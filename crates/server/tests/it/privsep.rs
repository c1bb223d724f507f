//! Privilege separation, seen from outside: what users can do to each other, and what the kernel
//! says of the processes.
//!
//! It needs root, and two accounts that every Debian has and no program uses.

use std::{
    fs,
    io::Write as _,
    net::SocketAddr,
    os::{
        fd::OwnedFd,
        unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink},
    },
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    time::SystemTime,
};

use godwit_gsi::cert::{
    Credential, files,
    key::KeyKind,
    proxy::{self, ProxyRequest},
};
use rustix::net::{AddressFamily, SocketType};
use tempfile::TempDir;

use crate::{
    client::{Ftp, comma_address, connect, read_all},
    grid::Grid,
    gsi::{Protected, prove},
    harness::eventually,
    pki::Blueprint,
    program::{Program, field, godwitd},
};

/// Names, and what `id` says of them.
pub(crate) const JO: &str = "games";
pub(crate) const KIM: &str = "man";

struct Site {
    grid: Grid,
    jo: Credential,
    kim: Credential,
    root: Credential,
    program: Program,
    folder: TempDir,
}

fn id(flag: &str, account: &str) -> String {
    let output = Command::new("id").args([flag, account]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

pub(crate) fn uid(account: &str) -> u32 {
    id("-u", account).parse().unwrap()
}

impl Site {
    /// `None`, and a word on why, where it cannot be.
    fn new(arguments: &[&str]) -> Option<Self> {
        if !can_separate() {
            return None;
        }
        let now = SystemTime::now();
        let grid = Grid::with(Blueprint::authority("/O=Grid/CN=CA").at(now));
        let user = |name: &str| {
            let user = Blueprint::user(name).at(now).issued_by(&grid.authority);
            let request = ProxyRequest::default();
            proxy::create(&user, &request, KeyKind::EcP256, now).unwrap()
        };
        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let host = Blueprint::host("/O=Grid/CN=host", &["localhost"]).at(now);
        let host = host.issued_by(&grid.authority).to_pem().unwrap();
        files::write_private(&path("host.pem"), &host).unwrap();
        let map = format!("/O=Grid/CN=Jo {JO},{KIM}\n/O=Grid/CN=Kim {KIM}\n/O=Grid/CN=Root root\n");
        fs::write(path("map"), map).unwrap();
        make_root(&path("root"));
        fs::write(path("outside"), "outside").unwrap();
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let named = [
            ("--cert", path("host.pem")),
            ("--gridmap", path("map")),
            ("--trusted-certs", grid.path().to_owned()),
            ("--root", path("root")),
            ("--audit-log", path("audit")),
        ];
        let named = named
            .map(|(flag, path)| [flag.to_owned(), text(&path)])
            .concat();
        let mut all: Vec<&str> = named.iter().map(String::as_str).collect();
        all.extend(arguments);
        Some(Self {
            jo: user("/O=Grid/CN=Jo"),
            kim: user("/O=Grid/CN=Kim"),
            root: user("/O=Grid/CN=Root"),
            program: Program::start(&all),
            grid,
            folder,
        })
    }

    fn prove(&self, who: &Credential, delegate: Option<ProxyRequest>) -> Protected {
        prove(self.program.address, &self.grid, who, delegate, "")
    }

    fn login(&self, who: &Credential) -> Protected {
        let mut user = self.prove(who, None);
        user.log_in();
        user.expect("DCAU N", "200 ");
        user
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("root").join(name)
    }

    /// Processes that the server has now, by role.
    fn processes(&self, role: &str) -> Vec<u32> {
        self.program.children(role)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.program.log.path()).unwrap()
    }
}

/// False, and a word on why, where there is neither root nor the accounts.
#[allow(
    clippy::print_stderr,
    reason = "the tester should see what was left out"
)]
pub(crate) fn can_separate() -> bool {
    let is_root = fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0);
    let accounts = [JO, KIM, "nobody"].map(|name| id("-u", name).parse::<u32>().is_ok());
    let can = is_root && !accounts.contains(&false);
    if !can {
        eprintln!("skipped: it needs root, and the accounts {JO}, {KIM} and nobody");
    }
    can
}

/// A directory to serve: one of each user, with a secret of Kim's, and one for all.
pub(crate) fn make_root(at: &Path) {
    for (name, owner, mode) in [
        ("", "root", 0o755),
        ("jo", JO, 0o700),
        ("kim", KIM, 0o700),
        ("all", "root", 0o1777),
    ] {
        let path = at.join(name);
        fs::create_dir(&path).unwrap();
        chown(&path, Some(uid(owner)), Some(uid(owner))).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::write(at.join("kim/secret"), "kim's").unwrap();
}

fn get(user: &mut Protected, path: &str) -> Result<Vec<u8>, String> {
    let data = connect(comma_address(&user.expect("PASV", "227 ")));
    let first = user.call(&format!("RETR {path}"));
    if !first.starts_with("1") {
        return Err(first);
    }
    let bytes = read_all(data);
    let last = user.reply();
    match last.starts_with("226 ") {
        true => Ok(bytes),
        false => Err(last),
    }
}

fn put(user: &mut Protected, path: &str, bytes: &[u8]) -> String {
    let mut data = connect(comma_address(&user.expect("PASV", "227 ")));
    let first = user.call(&format!("STOR {path}"));
    if !first.starts_with("1") {
        return first;
    }
    data.write_all(bytes).unwrap();
    drop(data);
    user.reply()
}

#[test]
fn users_have_their_own_files_and_not_those_of_others() {
    let Some(site) = Site::new(&[]) else { return };
    let mut jo = site.login(&site.jo);
    assert_eq!(jo.expect("SITE WHOAMI", "200 "), format!("200 {JO}\r\n"));
    for path in ["/jo/f", "/all/f"] {
        assert!(put(&mut jo, path, b"jo's").starts_with("226 "));
        let metadata = fs::metadata(site.path(&path[1..])).unwrap();
        assert_eq!(metadata.uid(), uid(JO));
        assert_eq!(metadata.gid().to_string(), id("-g", JO));
    }
    let mut kim = site.login(&site.kim);
    assert!(put(&mut kim, "/kim/f", b"kim's").starts_with("226 "));
    assert_eq!(get(&mut kim, "/kim/secret").unwrap(), b"kim's");
    assert_eq!(get(&mut kim, "/all/f").unwrap(), b"jo's");
    // Owners and groups have names.
    let listed = jo.expect("STAT /all/f", "213-");
    assert!(listed.contains(JO), "{listed}");
    jo.expect(&format!("SITE CHGRP {JO} /all/f"), "250 ");
    // Jo sees that Kim has a directory, as everybody on the machine does, and nothing of what is in
    // it.
    jo.expect("MLST /kim", "250-");
    for (command, code) in [
        ("MLST /kim/secret", "550-"),
        ("SIZE /kim/secret", "550"),
        ("MDTM /kim/secret", "550"),
        ("CKSM MD5 0 -1 /kim/secret", "550"),
        ("MLSC /kim", "550"),
        ("CWD /kim/..", "250"),
        ("DELE /kim/secret", "550"),
        ("RNFR /kim/secret", "550"),
        ("SITE CHMOD 777 /kim", "550"),
        ("SITE CHMOD 777 /kim/secret", "550"),
        ("MKD /kim/d", "550"),
        ("SITE RDEL /kim", "550"),
        ("MKD /d", "550"),
    ] {
        jo.expect(command, code);
    }
    assert!(get(&mut jo, "/kim/secret").is_err());
    assert!(put(&mut jo, "/kim/secret", b"x").starts_with("550"));
    // What belongs to another cannot be renamed or removed, although the directory is everybody's.
    kim.expect("DELE /all/f", "550");
    // Jo may be Kim as well: the gridmap says so. Kim may not be Jo.
    let mut jo = site.prove(&site.jo, None);
    jo.expect(&format!("USER {KIM}"), "331 ");
    jo.expect("PASS x", "230 ");
    assert_eq!(jo.expect("SITE WHOAMI", "200 "), format!("200 {KIM}\r\n"));
    let mut kim = site.prove(&site.kim, None);
    kim.expect(&format!("USER {JO}"), "331 ");
    kim.expect("PASS x", "530 ");
    kim.expect("MKD /jo/d", "530 ");
    // No user becomes root, whatever the gridmap says.
    let mut root = site.prove(&site.root, None);
    root.expect("USER :globus-mapping:", "331 ");
    let reply = root.expect("PASS x", "530 ");
    assert!(reply.contains("no session runs as root"), "{reply}");
}

#[test]
fn the_kernel_reports_dropped_privileges() {
    let Some(site) = Site::new(&[]) else { return };
    let _jo = site.login(&site.jo);
    let complete = site.log().contains("Landlock, seccomp");
    let given_up = !site.log().contains("less protection");
    assert_eq!(complete, given_up, "what the kernel has is used");
    for (role, account, groups) in [
        ("privsep-front", "nobody", String::new()),
        ("privsep-session", JO, id("-G", JO)),
    ] {
        let processes = site.processes(role);
        let [pid] = processes[..] else {
            panic!("{role}: {processes:?}")
        };
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let four = |flag| vec![id(flag, account); 4].join(" ");
        assert_eq!(field(&status, "Uid"), four("-u"), "{role}");
        assert_eq!(field(&status, "Gid"), four("-g"), "{role}");
        assert_eq!(field(&status, "Groups"), groups, "{role}");
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(field(&status, set), "0000000000000000", "{role} {set}");
        }
        assert_eq!(field(&status, "NoNewPrivs"), "1", "{role}");
        if complete {
            assert_eq!(field(&status, "Seccomp"), "2", "{role}");
        }
        // State, parent, group, session, terminal: no user can type for root where the server was
        // started.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let (_, stat) = stat.rsplit_once(") ").unwrap();
        let stat: Vec<&str> = stat.split(' ').collect();
        assert_eq!(stat[3..5], [pid.to_string().as_str(), "0"], "{role}");
        let key = fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        assert!(!String::from_utf8_lossy(&key).contains("PRIVATE KEY"));
    }
    let pre_login = site.processes("privsep-front")[0];
    let seen = fs::read_dir(format!("/proc/{pre_login}/root/")).unwrap();
    assert_eq!(seen.count(), 0, "pre-login has an empty root");
}

#[test]
fn paths_lead_nowhere_else() {
    let Some(site) = Site::new(&[]) else { return };
    let mut jo = site.login(&site.jo);
    let outside = site.folder.path().join("outside");
    symlink(&outside, site.path("jo/absolute")).unwrap();
    symlink("../../outside", site.path("jo/relative")).unwrap();
    symlink("/proc/self/root", site.path("jo/proc")).unwrap();
    for path in [
        "/../outside",
        "/jo/../../outside",
        "/jo/absolute",
        "/jo/relative",
        "/jo/proc/etc/passwd",
        "/proc/self/environ",
        "/etc/passwd",
        outside.to_str().unwrap(),
    ] {
        assert!(get(&mut jo, path).is_err(), "{path}");
    }
    // A link that changes between looking and opening.
    fs::write(site.path("jo/inside"), "inside").unwrap();
    chown(site.path("jo/inside"), Some(uid(JO)), None).unwrap();
    let (link, fresh, over) = (
        site.path("jo/link"),
        site.path("jo/fresh"),
        AtomicBool::new(false),
    );
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for target in ["inside", "../../outside"].into_iter().cycle() {
                symlink(target, &fresh).unwrap();
                fs::rename(&fresh, &link).unwrap();
                if over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let tries: Vec<_> = (0..60).map(|_| get(&mut jo, "/jo/link")).collect();
        over.store(true, Ordering::Relaxed);
        for bytes in tries.into_iter().flatten() {
            assert_eq!(bytes, b"inside");
        }
    });
}

#[test]
fn commands_behind_the_login_are_the_sessions() {
    let Some(site) = Site::new(&[]) else { return };
    let mut jo = site.prove(&site.jo, None);
    let lines = ["USER :globus-mapping:", "PASS x", "TYPE I", "PWD", "NOOP"];
    let lines = lines.map(|line| jo.wrap.command(format!("{line}\r\n").as_bytes()).unwrap());
    jo.ftp.send(&lines.join("\r\n"));
    for code in ["331 ", "230 ", "200 ", "257 ", "200 "] {
        let reply = jo.reply();
        assert!(reply.starts_with(code), "{reply}");
    }
    // Pre-login answers a login that fails, and the commands behind it up to the next login.
    let mut jo = site.prove(&site.jo, None);
    let lines = [
        "USER root",
        "PASS x",
        "NOOP",
        "PWD",
        "USER :globus-mapping:",
        "PASS x",
        "PWD",
    ];
    let lines = lines.map(|line| jo.wrap.command(format!("{line}\r\n").as_bytes()).unwrap());
    jo.ftp.send(&lines.join("\r\n"));
    for code in ["331 ", "530 ", "200 ", "530 ", "331 ", "230 ", "257 "] {
        let reply = jo.reply();
        assert!(reply.starts_with(code), "{code}: {reply}");
    }
    // Clear text behind the last token ends the session.
    for behind in ["\r\nUSER anonymous\r\nPASS x\r\nMKD /all/made", "\r\nUSER"] {
        let mut jo = prove(site.program.address, &site.grid, &site.jo, None, behind);
        jo.ftp.expect_end();
    }
    assert!(!site.path("all/made").exists());
    // What was delegated comes along: there is something to prove data channels with.
    let mut jo = site.prove(&site.jo, Some(ProxyRequest::limited()));
    jo.log_in();
    jo.expect("PASV", "227 ");
    let mut jo = site.prove(&site.jo, None);
    jo.log_in();
    jo.expect("PASV", "425 ");
    // Anybody on the path could have written this.
    jo.ftp.send("DELE /jo/f");
    assert!(jo.reply().starts_with("533 "));
    jo.ftp.expect_end();
}

#[test]
fn anonymous_users_own_nothing() {
    let Some(site) = Site::new(&["--anonymous", "rw"]) else {
        return;
    };
    let mut ftp = Ftp::connect(site.program.address);
    ftp.await_code(220);
    // All in one packet.
    ftp.send_raw(b"USER anonymous\r\nPASS x\r\nTYPE I\r\nPWD\r\n");
    for code in [331, 230, 200, 257] {
        ftp.await_code(code);
    }
    assert_eq!(ftp.put("STOR /all/f", b"abc").code, 226);
    assert_eq!(
        fs::metadata(site.path("all/f")).unwrap().uid(),
        uid("nobody")
    );
    ftp.expect("MKD /d", 550);
    assert_eq!(ftp.put("STOR /jo/f", b"abc").code, 550);
}

#[test]
fn the_monitor_counts_connections_and_logins() {
    let Some(site) = Site::new(&["--metrics", "127.0.0.1:0"]) else {
        return;
    };
    let mut jo = site.login(&site.jo);
    assert!(put(&mut jo, "/jo/f", b"jo's").starts_with("226 "));
    let mut kim = site.prove(&site.kim, None);
    kim.expect("USER games", "331 ");
    kim.expect("PASS x", "530 ");
    eventually("all was counted", || {
        let scraped = crate::metrics::scrape(&site.program);
        [
            ("godwitd_sessions{method=\"gsi\"}", 1.0),
            ("godwitd_connections_waiting", 1.0),
            ("godwitd_logins_total{method=\"gsi\"}", 1.0),
            ("godwitd_logins_refused_total{cause=\"credentials\"}", 1.0),
            ("godwitd_transfer_bytes_total{direction=\"in\"}", 4.0),
        ]
        .iter()
        .all(|(what, value)| scraped.value(what) == *value)
    });
}

#[test]
fn a_process_that_dies_ends_only_its_own_connection() {
    let Some(site) = Site::new(&[]) else { return };
    let mut bystander = site.login(&site.kim);
    let mine = |role: &str, before: &[u32]| {
        let mut now = site.processes(role);
        now.retain(|pid| !before.contains(pid));
        now
    };
    for victim in ["privsep-session", "privsep-front"] {
        let before = ["privsep-front", "privsep-session"]
            .map(|role| site.processes(role))
            .concat();
        let mut jo = site.login(&site.jo);
        let pid = mine(victim, &before)[0].to_string();
        assert!(
            Command::new("kill")
                .args(["-KILL", &pid])
                .status()
                .unwrap()
                .success()
        );
        jo.ftp.expect_end();
        eventually("both processes are gone", || {
            mine("privsep-front", &before).is_empty() && mine("privsep-session", &before).is_empty()
        });
    }
    let jo = site.login(&site.jo);
    drop(jo.ftp.socket().shutdown(std::net::Shutdown::Both));
    eventually("one connection is left", || {
        site.processes("privsep-front").len() == 1 && site.processes("privsep-session").len() == 1
    });
    bystander.expect("NOOP", "200 ");
    // The monitor learns of an end a moment after the process is gone.
    eventually("the audit log has three logins and three ends", || {
        let log = fs::read_to_string(site.folder.path().join("audit")).unwrap();
        ["login", "logout"].iter().all(|event| {
            let event = format!("\"event\":\"{event}\"");
            let of_jo = |line: &&str| line.contains("\"identity\":\"/O=Grid/CN=Jo\"");
            let lines = log.lines().filter(of_jo);
            lines.filter(|line| line.contains(&event)).count() == 3
        })
    });
}

#[test]
fn the_server_ends_with_all_its_processes() {
    let Some(mut site) = Site::new(&[]) else {
        return;
    };
    let mut jo = site.login(&site.jo);
    let mut stranger = Ftp::connect(site.program.address);
    stranger.await_code(220);
    let mut waiting = site.prove(&site.kim, None);
    let all = ["privsep-front", "privsep-session"]
        .map(|role| site.processes(role))
        .concat();
    assert_eq!(all.len(), 3);
    site.program.signal("TERM");
    assert!(jo.reply().starts_with("421 "));
    jo.ftp.expect_end();
    stranger.await_code(421);
    assert!(waiting.reply().starts_with("421 "));
    assert_eq!(site.program.child.wait().unwrap().code(), Some(0));
    eventually("all are gone", || {
        all.iter()
            .all(|pid| !Path::new(&format!("/proc/{pid}")).exists())
    });
    // Cut off without QUIT, it leaves no process behind either.
    let Some(mut site) = Site::new(&[]) else {
        return;
    };
    let mut jo = site.login(&site.jo);
    let all = ["privsep-front", "privsep-session"]
        .map(|role| site.processes(role))
        .concat();
    site.program.child.kill().unwrap();
    jo.ftp.expect_end();
    eventually("all are gone", || {
        all.iter().all(|pid| {
            let status = fs::read_to_string(format!("/proc/{pid}/status"));
            status.map_or(true, |status| field(&status, "State").starts_with('Z'))
        })
    });
}

#[test]
fn two_hundred_are_there_at_once() {
    let Some(site) = Site::new(&[]) else { return };
    let ten = || -> Vec<_> { (0..10).map(|_| site.login(&site.jo)).collect() };
    let mut all: Vec<_> = std::thread::scope(|scope| {
        let parts: Vec<_> = (0..20).map(|_| scope.spawn(ten)).collect();
        parts
            .into_iter()
            .flat_map(|part| part.join().unwrap())
            .collect()
    });
    assert_eq!(site.processes("privsep-session").len(), 200);
    for jo in &mut all {
        jo.expect("NOOP", "200 ");
    }
}

/// A connection from an address that is not ours; where there is no room for it, none.
fn stranger(server: SocketAddr) -> Option<OwnedFd> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).ok()?;
    let elsewhere = SocketAddr::from(([127, 0, 0, 2], 0));
    rustix::net::bind(&socket, &elsewhere).ok()?;
    rustix::net::connect(&socket, &server).ok()?;
    Some(socket)
}

#[test]
fn ten_thousand_connections_do_not_prevent_logins() {
    let Some(site) = Site::new(&[]) else { return };
    let descriptors = godwit_engine::host::net::raise_fd_limit();
    let count = descriptors.saturating_sub(2000).min(10_000);
    let login = || site.login(&site.jo).expect("NOOP", "200 ");
    let crowd = std::thread::scope(|scope| {
        let address = site.program.address;
        let crowd = scope.spawn(move || (0..count).map(|_| stranger(address)).collect::<Vec<_>>());
        for _ in 0..5 {
            login();
        }
        crowd.join().unwrap()
    });
    login();
    assert!(site.processes("privsep-front").len() < 20);
    drop(crowd);
}

#[test]
fn a_hidden_role_without_a_monitor_does_nothing() {
    for role in ["privsep-front", "privsep-session"] {
        let output = godwitd()
            .arg(role)
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
    }
}

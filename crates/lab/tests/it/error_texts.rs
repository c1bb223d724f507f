//! The replies of servers that refuse a command, and the error that `proto` reads from each. This
//! checks the table of texts in `proto/src/error/reading.rs` with the servers themselves.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
};

use godwit_lab::peers::{
    Tool,
    ftps::{FtpsServer, Kind, Refuses},
    gct::GctServer,
    godwit::Godwitd,
};
use godwit_proto::{
    Reply,
    error::{
        FailureKind::{self, *},
        failure_kind,
    },
    reply::ReplyReader,
};
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};
use tempfile::TempDir;

use crate::support::{LONG, Need, am_root, have, wait_until};

/// An account that no server here acts as.
const STRANGER: u32 = 54_321;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    Godwitd,
    Gct,
    Ftp(Kind),
}

impl Program {
    fn need(self) -> Need {
        match self {
            Self::Godwitd => Need::Godwitd,
            Self::Gct => Need::Gct,
            Self::Ftp(kind) => Need::Ftps(kind),
        }
    }
}

enum Running {
    Godwitd(Godwitd, TempDir),
    Gct(GctServer, TempDir),
    Ftp(FtpsServer),
}

/// A server that modes of files bind, although root runs it.
struct Server(Running);

impl Server {
    fn start(program: Program, refuses: Refuses) -> Self {
        // A program is started with what the thread has that starts it.
        let started = std::thread::spawn(move || {
            // Pure-FTPd insists on them, and its sessions are not root's.
            if program != Program::Ftp(Kind::PureFtpd) {
                for past_modes in [CapabilitySet::DAC_OVERRIDE, CapabilitySet::DAC_READ_SEARCH] {
                    remove_capability_from_bounding_set(past_modes).expect("root may");
                }
            }
            let folder = || TempDir::new().expect("a directory");
            match program {
                Program::Godwitd => {
                    let folder = folder();
                    let config = Godwitd::serving(folder.path());
                    let config = match refuses {
                        Refuses::Nothing => config,
                        Refuses::MoreSessions => config.arg("--max-sessions=1"),
                        Refuses::Changes => config.anonymous("ro"),
                    };
                    Running::Godwitd(config.start().expect("godwitd starts"), folder)
                }
                Program::Gct => {
                    let folder = folder();
                    let config = GctServer::serving(folder.path());
                    let config = match refuses {
                        Refuses::Nothing => config,
                        Refuses::MoreSessions => config.arg("-connections-max").arg("1"),
                        Refuses::Changes => config.arg("-restrict-paths").arg("R/"),
                    };
                    Running::Gct(config.start().expect("the server starts"), folder)
                }
                Program::Ftp(kind) => {
                    Running::Ftp(FtpsServer::start_that(kind, refuses).expect("the server starts"))
                }
            }
        });
        Self(started.join().expect("no panic"))
    }

    fn addr(&self) -> SocketAddr {
        match &self.0 {
            Running::Godwitd(server, _) => server.addr(),
            Running::Gct(server, _) => server.addr(),
            Running::Ftp(server) => server.addr(),
        }
    }

    fn login(&self) -> &'static str {
        match &self.0 {
            Running::Godwitd(..) | Running::Gct(..) => "anonymous",
            Running::Ftp(server) => server.login(),
        }
    }

    /// Where a name of its directory is.
    fn at(&self, name: &str) -> PathBuf {
        match &self.0 {
            Running::Godwitd(_, folder) | Running::Gct(_, folder) => folder.path().join(name),
            Running::Ftp(server) => server.at(name),
        }
    }

    /// What its users call it.
    fn path(&self, name: &str) -> String {
        match &self.0 {
            Running::Godwitd(..) => format!("/{name}"),
            Running::Gct(..) => self.at(name).display().to_string(),
            Running::Ftp(server) => server.path(name),
        }
    }

    fn owner(&self) -> Option<u32> {
        match &self.0 {
            Running::Godwitd(..) | Running::Gct(..) => None,
            Running::Ftp(server) => server.owner(),
        }
    }
}

struct Session {
    socket: TcpStream,
    reader: ReplyReader,
}

impl Session {
    /// With the greeting.
    fn open(addr: SocketAddr) -> (Self, Reply) {
        let socket = TcpStream::connect(addr).expect("connects");
        socket.set_read_timeout(Some(LONG)).expect("a limit");
        let mut session = Self {
            socket,
            reader: ReplyReader::default(),
        };
        let greeting = session.reply();
        (session, greeting)
    }

    /// What is said last of the login.
    fn log_in(addr: SocketAddr, user: &str, password: &str) -> (Self, Reply) {
        let (mut session, greeting) = Self::open(addr);
        if greeting.code.is_failure() {
            return (session, greeting);
        }
        let mut reply = session.ask(&format!("USER {user}"));
        if reply.code.get() == 331 {
            reply = session.ask(&format!("PASS {password}"));
        }
        (session, reply)
    }

    fn reply(&mut self) -> Reply {
        loop {
            if let Some(reply) = self.reader.next_reply().expect("a reply") {
                return reply;
            }
            let mut bytes = [0; 4096];
            let n = match self.socket.read(&mut bytes) {
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                read => read.expect("an answer in time"),
            };
            assert!(n > 0, "the connection ended");
            self.reader.push(&bytes[..n]);
        }
    }

    fn ask(&mut self, line: &str) -> Reply {
        write!(self.socket, "{line}\r\n").expect("sends");
        self.reply()
    }

    /// The last reply of a transfer, which sends so many bytes or takes what comes.
    fn transfer(&mut self, line: &str, sent: usize) -> Reply {
        let text = self.ask("PASV").text();
        let numbers: Vec<u16> = text
            .split(|c: char| !c.is_ascii_digit())
            .filter_map(|word| word.parse().ok())
            .collect();
        let [.., high, low] = numbers[..] else {
            panic!("{text}");
        };
        let mut data = TcpStream::connect(("127.0.0.1", high * 256 + low)).expect("connects");
        let reply = self.ask(line);
        if !reply.code.is_preliminary() {
            return reply;
        }
        // The server closes where it cannot take more.
        let _ = match sent {
            0 => data.read_to_end(&mut Vec::new()).map(drop),
            sent => data.write_all(&vec![b'x'; sent]),
        };
        drop(data);
        self.reply()
    }
}

/// A file system in memory at a directory of a server.
struct Mounted(PathBuf);

impl Mounted {
    fn at(path: PathBuf, options: &str) -> Self {
        fs::create_dir(&path).expect("a directory");
        let mount = Tool::new("mount", "mount");
        let options = ["-t", "tmpfs", "-o", options, "small"].map(std::ffi::OsStr::new);
        let finished = mount.run(options.into_iter().chain([path.as_os_str()]));
        assert!(finished.expect("runs").status.success());
        Self(path)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Tool::new("umount", "mount").run(["-l".as_ref(), self.0.as_os_str()]);
    }
}

/// `file` and `dir/file`, `closed` and `closed_dir/file` of a stranger, `full` and `fixed`, where
/// nothing can be written.
fn prepare(server: &Server) -> [Mounted; 2] {
    let write = |name: &str| fs::write(server.at(name), "content").expect("a file");
    for name in ["dir", "closed_dir", "empty"] {
        fs::create_dir(server.at(name)).expect("a directory");
    }
    for name in ["file", "dir/file", "closed", "closed_dir/file"] {
        write(name);
    }
    let full = Mounted::at(server.at("full"), "size=16k,mode=777");
    let fixed = Mounted::at(server.at("fixed"), "size=64k,mode=777");
    write("fixed/file");
    fs::create_dir(server.at("fixed/empty")).expect("a directory");
    let own = |path: &Path, owner| chown(path, Some(owner), Some(owner)).expect("an owner");
    if let Some(owner) = server.owner() {
        for name in [
            "dir",
            "file",
            "dir/file",
            "empty",
            "fixed/file",
            "fixed/empty",
        ] {
            own(&server.at(name), owner);
        }
    }
    let read_only = ["-o", "remount,ro"].map(std::ffi::OsStr::new);
    let fixed_at = server.at("fixed");
    let remounted =
        Tool::new("mount", "mount").run(read_only.into_iter().chain([fixed_at.as_os_str()]));
    assert!(remounted.expect("runs").status.success());
    for name in ["closed", "closed_dir"] {
        let path = server.at(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("a mode");
        own(&path, STRANGER);
    }
    [full, fixed]
}

/// What is there to be refused, and what a refusal means.
const SITUATIONS: &[(&[&str], FailureKind)] = &[
    (
        &[
            "RETR absent",
            "CWD absent",
            "SIZE absent",
            "MDTM absent",
            "MLST absent",
            "DELE absent",
            "RMD absent",
            "RNFR absent",
            "STOR absent/f",
            "MKD absent/d",
            "LIST absent",
            "MLSD absent",
            "NLST absent",
            "RNTO absent/f",
        ],
        NotFound,
    ),
    (
        &[
            "RETR closed",
            "STOR closed",
            "CWD closed_dir",
            "SIZE closed_dir/file",
            "MDTM closed_dir/file",
            "MLST closed_dir/file",
            "DELE closed_dir/file",
            "RMD closed_dir/d",
            "MKD closed_dir/d",
            "STOR closed_dir/f",
            "RNFR closed_dir/file",
            "LIST closed_dir",
            "MLSD closed_dir",
            "RNTO closed_dir/file",
        ],
        PermissionDenied,
    ),
    (
        &["RETR dir", "STOR dir", "DELE dir", "SIZE dir", "RNTO dir"],
        IsADirectory,
    ),
    (
        &[
            "CWD file",
            "RMD file",
            "MLSD file",
            "RETR file/x",
            "STOR file/x",
            "MKD file/x",
            "CWD file/x",
            "DELE file/x",
        ],
        NotADirectory,
    ),
    (&["MKD dir", "MKD file"], Exists),
    (&["RMD dir"], Other),
    (&["STOR full/f", "APPE full/f"], NoSpace),
    (
        &[
            "STOR fixed/f",
            "STOR fixed/file",
            "DELE fixed/file",
            "RMD fixed/empty",
            "MKD fixed/d",
        ],
        PermissionDenied,
    ),
    (
        &[
            "STOR LONG",
            "MKD LONG",
            "RETR LONG",
            "CWD LONG",
            "RNTO LONG",
        ],
        Other,
    ),
    (&["XYZW file", "XCRC file"], NotSupported),
];

/// What this server's answer can be taken for, where it tells less than `meant`. `None`: it does
/// not refuse.
fn understood(program: Program, line: &str, meant: FailureKind) -> Option<FailureKind> {
    use Program::{Ftp, Gct, Godwitd};
    let (verb, name) = line.split_once(' ').expect("a verb and a name");
    Some(match (program, verb, name) {
        // They enter what they cannot list.
        (Gct | Godwitd, "CWD", "closed_dir") => return None,
        (Gct, "SIZE", "dir") | (Gct, "MLSD", "file") => return None,
        // An empty listing.
        (Ftp(Kind::Vsftpd), "LIST" | "NLST", _) => return None,
        (Ftp(Kind::Vsftpd), "MLST" | "MLSD" | "XYZW" | "XCRC", _) => NotSupported,
        (Ftp(Kind::Vsftpd), _, "full/f") => Transient,
        // "Failed to open file." and the like are said for each reason.
        (Ftp(Kind::Vsftpd), ..) => Other,
        (Godwitd, "SIZE", "dir") => Other,
        // "Input/output error".
        (Ftp(Kind::Proftpd), "STOR", "full/f") => Transient,
        (Ftp(Kind::Proftpd), "LIST", "closed_dir") => return None,
        (Ftp(Kind::Proftpd), "MLST", _) => Other,
        (Ftp(Kind::Proftpd), "CWD", "file/x" | "LONG") => NotFound,
        (Ftp(Kind::Proftpd), "RNTO", "dir") => PermissionDenied,
        (Ftp(Kind::PureFtpd), _, "full/f") => Transient,
        (Ftp(Kind::PureFtpd), "LIST", _) => return None,
        // "Can't check for file existence".
        (Ftp(Kind::PureFtpd), "SIZE" | "MDTM" | "MLST" | "MLSD" | "NLST", _) if name != "dir" => {
            Other
        }
        (Ftp(Kind::PureFtpd), "DELE", "dir") => Other,
        (Ftp(Kind::PureFtpd | Kind::Pyftpdlib), "RNFR", "closed_dir/file") => NotFound,
        (Ftp(Kind::Pyftpdlib), "SIZE" | "MDTM", _) => Other,
        (Ftp(Kind::Pyftpdlib), "MLSD", "file") => NotFound,
        _ => meant,
    })
}

#[track_caller]
fn assert_read(program: Program, line: &str, reply: &Reply, expected: Option<FailureKind>) {
    assert_eq!(
        failure_kind(reply),
        expected,
        "{program:?}: {line}: {reply}"
    );
}

fn log_in(server: &Server) -> Session {
    let (session, reply) = Session::log_in(server.addr(), server.login(), "sesame");
    assert_eq!(reply.code.get(), 230, "{reply}");
    session
}

fn refusals_are_read(program: Program) {
    if !am_root("servers become their users, and file systems are mounted")
        || !have(&[program.need()])
    {
        return;
    }
    let server = Server::start(program, Refuses::Nothing);
    let _mounted = prepare(&server);
    let long = "n".repeat(300);
    for (lines, meant) in SITUATIONS {
        for line in *lines {
            let (verb, name) = line.split_once(' ').expect("a verb and a name");
            let mut session = log_in(&server);
            session.ask("TYPE I");
            let asked = format!("{verb} {}", server.path(&name.replace("LONG", &long)));
            let reply = match verb {
                // It never answers: its exception is not caught.
                "STOR" | "APPE" if name == "full/f" && program == Program::Ftp(Kind::Pyftpdlib) => {
                    continue;
                }
                "RETR" | "LIST" | "NLST" | "MLSD" => session.transfer(&asked, 0),
                "STOR" | "APPE" => session.transfer(&asked, 1 << 20),
                "RNTO" => {
                    session.ask(&format!("RNFR {}", server.path("file")));
                    session.ask(&asked)
                }
                _ => session.ask(&asked),
            };
            assert_read(program, line, &reply, understood(program, line, *meant));
        }
    }
    let (_, reply) = Session::log_in(server.addr(), "jo", "wrong");
    assert_read(program, "PASS wrong", &reply, Some(PermissionDenied));
}

fn sessions_beyond_the_limit_are_read_as_transient(program: Program) {
    if !am_root("servers become their users") || !have(&[program.need()]) {
        return;
    }
    let server = Server::start(program, Refuses::MoreSessions);
    // The connection that has shown that it listens may still count.
    let mut first = None;
    wait_until("a session is free", || {
        let (session, reply) = Session::log_in(server.addr(), server.login(), "sesame");
        first = (reply.code.get() == 230).then_some(session);
        first.is_some()
    });
    let (_, reply) = Session::log_in(server.addr(), server.login(), "sesame");
    assert_read(program, "a second session", &reply, Some(Transient));
    drop(first);
}

fn refused_changes_are_read_as_permission_denied(program: Program) {
    // Pure-FTPd refuses none by its settings.
    if program == Program::Ftp(Kind::PureFtpd)
        || !am_root("servers become their users")
        || !have(&[program.need()])
    {
        return;
    }
    let server = Server::start(program, Refuses::Changes);
    fs::write(server.at("file"), "content").expect("a file");
    for verb in ["STOR", "DELE", "MKD", "RNTO"] {
        let mut session = log_in(&server);
        let line = format!("{verb} {}", server.path("file"));
        let reply = match verb {
            "STOR" => session.transfer(&line, 10),
            "RNTO" => {
                let first = session.ask(&format!("RNFR {}", server.path("file")));
                match first.code.is_failure() {
                    true => first,
                    false => session.ask(&line),
                }
            }
            _ => session.ask(&line),
        };
        assert_read(program, &line, &reply, Some(PermissionDenied));
    }
}

macro_rules! of_each_server {
    ($($name:ident: $program:expr),+ $(,)?) => {$(
        mod $name {
            use super::*;

            #[test]
            fn refusals_are_read() {
                super::refusals_are_read($program);
            }

            #[test]
            fn sessions_beyond_the_limit_are_read_as_transient() {
                super::sessions_beyond_the_limit_are_read_as_transient($program);
            }

            #[test]
            fn refused_changes_are_read_as_permission_denied() {
                super::refused_changes_are_read_as_permission_denied($program);
            }
        }
    )+};
}

of_each_server! {
    godwitd: Program::Godwitd,
    gct: Program::Gct,
    vsftpd: Program::Ftp(Kind::Vsftpd),
    proftpd: Program::Ftp(Kind::Proftpd),
    pure_ftpd: Program::Ftp(Kind::PureFtpd),
    pyftpdlib: Program::Ftp(Kind::Pyftpdlib),
}

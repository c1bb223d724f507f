//! Logging in with identities, against a scripted server that keeps to GSI or does not. Data
//! connections are in `gsi_data`, and with real servers.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, SystemTime},
};

use godwit_gsi::{
    Channel, Context, Expect, Settings, Versions, Wrap, adat,
    cert::{Credential, files, key::KeyKind, proxy, proxy::ProxyRequest},
    verify::Policy,
};
use tempfile::TempDir;

use crate::{
    grid::Grid,
    gsi_data::Sender,
    harness::{Ran, godwit},
    pki::Blueprint,
};

/// A user with a proxy, the CAs that he trusts, and a server.
pub(crate) struct World {
    pub(crate) grid: Grid,
    folder: TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        let authority = Blueprint::authority("/O=Grid/CN=CA").at(SystemTime::now());
        let world = Self {
            grid: Grid::with(authority),
            folder: tempfile::tempdir().unwrap(),
        };
        world.save(&world.proxy(&ProxyRequest::default()));
        world
    }

    pub(crate) fn proxy(&self, request: &ProxyRequest) -> Credential {
        proxy::create(&self.grid.user, request, KeyKind::EcP256, SystemTime::now()).unwrap()
    }

    fn proxy_path(&self) -> PathBuf {
        self.folder.path().join("proxy")
    }

    fn save(&self, proxy: &Credential) {
        files::write_private(&self.proxy_path(), &proxy.to_pem().unwrap()).unwrap();
    }

    pub(crate) fn host(&self) -> Credential {
        let host = Blueprint::host("/O=Grid/CN=server", &["127.0.0.1"]);
        host.at(SystemTime::now()).issued_by(&self.grid.authority)
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        godwit(arguments)
            .env("X509_USER_PROXY", self.proxy_path())
            .env("X509_CERT_DIR", self.grid.path())
            .output()
            .unwrap()
            .into()
    }
}

/// What the server does otherwise than a good one.
#[derive(Clone, Default)]
pub(crate) struct Quirks {
    /// Verb with argument, and the reply it gets.
    pub(crate) replies: Vec<(&'static str, &'static str)>,
    /// A whole reply is wrapped in one piece, with a NUL behind it, and the last one of the
    /// handshake is too (ARC).
    pub(crate) whole: bool,
    /// A forged line in clear goes before the reply to this verb.
    pub(crate) forges: Option<&'static str>,
    /// Nothing is answered from DCAU on until PROT was heard.
    pub(crate) holds: bool,
    pub(crate) versions: Versions,
    /// A file that it sends.
    pub(crate) data: Option<Arc<Sender>>,
}

pub(crate) struct Server {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(crate) fn start(world: &World, credential: Credential, quirks: Quirks) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let settings = Settings {
            credential,
            anchors: Arc::new(world.grid.anchors()),
            policy: Policy::default(),
            expect: Expect::Anyone,
            channel: Channel::Control { delegate: None },
            versions: quirks.versions,
            server_name: None,
        };
        let all = Arc::clone(&heard);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (settings, quirks, heard) = (settings.clone(), quirks.clone(), all.clone());
                // The peer may go away at any time.
                thread::spawn(move || {
                    let _ = serve(&stream.unwrap(), settings, &quirks, &heard);
                });
            }
        });
        Self { address, heard }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("gsiftp://{}{path}", self.address)
    }

    /// What came behind the handshake.
    fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }
}

fn serve(
    stream: &TcpStream,
    settings: Settings,
    quirks: &Quirks,
    heard: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?);
    let mut out = stream.try_clone()?;
    let mut next = move || -> std::io::Result<String> {
        let mut line = String::new();
        lines.read_line(&mut line)?;
        if line.is_empty() {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    };
    let quirk = |line: &str| {
        let mut all = quirks.replies.iter();
        let found = all.find(|(known, _)| line.starts_with(known))?;
        Some(found.1.to_owned())
    };
    out.write_all(b"220 Ready\r\n")?;
    let mut context = Context::accept(settings).unwrap();
    let established = loop {
        let line = next()?;
        let reply = match (quirk(&line), line.split_once(' ')) {
            (Some(reply), _) => reply,
            (None, Some(("AUTH", "GSSAPI"))) => "334 Go on".to_owned(),
            (None, Some(("ADAT", token))) => {
                let token = adat::decode(token).unwrap();
                match context.handle_input(SystemTime::now(), &token) {
                    Err(error) => format!("530-No\r\n530-{error}\r\n530 End."),
                    Ok(()) => match context.poll_output() {
                        Some(token) => format!("335 {}", adat::reply_text(&token)),
                        None => "235 Done".to_owned(),
                    },
                }
            }
            _ => "530 Must perform GSSAPI authentication.".to_owned(),
        };
        let established = reply.starts_with("235").then(|| context.outcome());
        match established {
            Some(Some(mut established)) if quirks.whole => {
                send(&mut out, &mut established.wrap, &reply, true)?;
                break established;
            }
            established => {
                out.write_all(format!("{reply}\r\n").as_bytes())?;
                match established {
                    None => {}
                    Some(Some(established)) => break established,
                    Some(None) => return Ok(()),
                }
            }
        }
    };
    let mut wrap = established.wrap;
    let mut held = Vec::new();
    loop {
        let clear = wrap.clear_command(&next()?).unwrap().unwrap();
        let clear = String::from_utf8(clear).unwrap().trim_end().to_owned();
        heard.lock().unwrap().push(clear.clone());
        let verb = clear.split(' ').next().unwrap_or_default();
        if quirks.forges == Some(verb) {
            out.write_all(b"257 \"/forged\"\r\n")?;
        }
        let of_data = quirks.data.as_ref().and_then(|data| data.answer(&clear));
        let replies = of_data.or_else(|| quirk(&clear));
        held.push(replies.unwrap_or_else(|| answer(verb).to_owned()));
        if quirks.holds && ["DCAU", "PBSZ"].contains(&verb) {
            continue;
        }
        for reply in held.drain(..) {
            send(&mut out, &mut wrap, &reply, quirks.whole)?;
        }
    }
}

fn answer(verb: &str) -> &'static str {
    match verb {
        "USER" => "331 Password",
        "PASS" => "230 Yes",
        "FEAT" => "211-Features\r\n DCAU\r\n PARALLEL\r\n SIZE\r\n211 End",
        "MKD" => "257 Made",
        "QUIT" => "221 Bye",
        _ => "200 Fine",
    }
}

fn send(out: &mut TcpStream, wrap: &mut Wrap, reply: &str, whole: bool) -> std::io::Result<()> {
    let reply = format!("{reply}\r\n");
    let line = if whole {
        let mut sealed = Vec::new();
        let with_nul = format!("{reply}\0");
        wrap.seal(with_nul.as_bytes(), &mut sealed).unwrap();
        format!("632 {}\r\n", adat::encode(&sealed))
    } else {
        wrap.reply(reply.as_bytes()).unwrap()
    };
    out.write_all(line.as_bytes())
}

#[test]
fn both_ends_authenticate_and_all_commands_are_wrapped() {
    for versions in [Versions::Tls12, Versions::Tls13] {
        for whole in [false, true] {
            let world = World::new();
            let quirks = Quirks {
                versions,
                whole,
                ..Quirks::default()
            };
            let server = Server::start(&world, world.host(), quirks);
            let said = world.run(&["mkdir", "-vv", &server.url("/new")]).expect(
                0,
                &["server is /O=Grid/CN=server, we are /O=Grid/CN=Jo; control channel: TLSv1"],
            );
            // Neither tokens nor the password are in what -vv shows.
            assert!(said.err.contains("-> ADAT ***"), "{}", said.err);
            assert!(said.err.contains("-> PASS ***"), "{}", said.err);
            assert!(said.err.contains("<- 335 ADAT=***"), "{}", said.err);
            let heard = server.heard();
            assert_eq!(heard[0], "USER :globus-mapping:");
            assert_eq!(heard[1], "PASS dummy");
            // Some servers begin with other levels than they should: all is said.
            let said: Vec<&str> = heard.iter().map(String::as_str).collect();
            let at = said.iter().position(|line| *line == "DCAU A");
            let at = at.unwrap_or_else(|| panic!("{said:?}"));
            assert_eq!(said[at..][..3], ["DCAU A", "PBSZ 1048576", "PROT C"]);
            assert!(said.contains(&"MKD /new"), "{said:?}");
        }
    }
}

#[test]
fn a_url_may_name_one_of_the_users_accounts() {
    let world = World::new();
    let server = Server::start(&world, world.host(), Quirks::default());
    let url = server.url("/new").replace("://", "://jo@");
    world.run(&["mkdir", &url]).expect(0, &[]);
    assert_eq!(server.heard()[..2], ["USER jo", "PASS dummy"]);
}

#[test]
fn protection_is_a_minimum() {
    let refuse_s = ("PROT S", "536 Not here");
    let refuse_p = ("PROT P", "536 Not here");
    let refuse_c = ("PROT C", "536 Not here");
    for (floor, replies, expected) in [
        ("clear", vec![], Ok("DCAU N")),
        ("identity", vec![], Ok("PROT C")),
        ("identity", vec![refuse_c], Ok("PROT S")),
        ("integrity", vec![], Ok("PROT S")),
        // More than was asked for is no harm.
        ("integrity", vec![refuse_s], Ok("PROT P")),
        ("integrity", vec![refuse_s, refuse_p], Err("PROT S or P")),
        ("private", vec![], Ok("PROT P")),
        ("private", vec![refuse_p], Err("no PROT P")),
        (
            "identity",
            vec![("DCAU A", "504 No")],
            Err("--protect clear takes that"),
        ),
        ("clear", vec![("DCAU N", "504 No")], Err("no DCAU N")),
        // It never said that it had any.
        (
            "clear",
            vec![("DCAU N", "500 What?"), ("FEAT", "500 What?")],
            Ok("DCAU N"),
        ),
    ] {
        let world = World::new();
        let quirks = Quirks {
            replies,
            ..Quirks::default()
        };
        let server = Server::start(&world, world.host(), quirks);
        let ran = world.run(&["mkdir", "--protect", floor, &server.url("/new")]);
        let heard = server.heard();
        match expected {
            Ok(last) => {
                ran.expect(0, &[]);
                let guards = |line: &&String| line.starts_with("DCAU") || line.starts_with("PROT");
                assert_eq!(heard.iter().rfind(guards).unwrap(), last, "{heard:?}");
            }
            Err(word) => {
                ran.expect(4, &["the server has no", word]);
                assert!(!heard.contains(&"MKD /new".to_owned()), "{heard:?}");
            }
        }
    }
}

#[test]
fn data_protection_is_negotiated_in_one_round_trip() {
    let world = World::new();
    let quirks = Quirks {
        holds: true,
        ..Quirks::default()
    };
    let server = Server::start(&world, world.host(), quirks);
    let ran = world.run(&["mkdir", "--protect", "private", &server.url("/new")]);
    ran.expect(0, &[]);
    // A server that goes away there is heard to its end.
    let quirks = Quirks {
        replies: vec![("DCAU A", "421 Too busy")],
        ..Quirks::default()
    };
    let server = Server::start(&world, world.host(), quirks);
    let ran = world.run(&["mkdir", &server.url("/new")]);
    assert!(ran.err.contains("Too busy"), "{}", ran.err);
}

#[test]
fn a_server_that_is_not_the_one_is_refused() {
    let world = World::new();
    let other = Blueprint::host("/O=Grid/CN=other", &["other.example.org"]);
    let other = other.at(SystemTime::now()).issued_by(&world.grid.authority);
    let server = Server::start(&world, other, Quirks::default());
    let ran = world.run(&["mkdir", &server.url("/new")]);
    ran.expect(
        3,
        &["identity of the server", "other.example.org", "127.0.0.1"],
    );

    let stranger = World::new();
    let server = Server::start(&world, stranger.host(), Quirks::default());
    let ran = world.run(&["mkdir", &server.url("/new")]);
    ran.expect(3, &["identity of the server", "CN=CA"]);
    assert_eq!(server.heard(), Vec::<String>::new());
}

#[test]
fn forged_replies_end_the_session() {
    let world = World::new();
    let quirks = Quirks {
        forges: Some("MKD"),
        ..Quirks::default()
    };
    let server = Server::start(&world, world.host(), quirks);
    let ran = world.run(&["mkdir", &server.url("/new")]);
    ran.expect(4, &["in clear on a protected control channel"]);
}

#[test]
fn missing_gsi_and_a_refused_certificate_are_different_errors() {
    let world = World::new();
    let quirks = |verb, reply| Quirks {
        replies: vec![(verb, reply)],
        ..Quirks::default()
    };
    let lacks = quirks("AUTH", "504 Unknown authentication type.");
    let server = Server::start(&world, world.host(), lacks);
    let ran = world.run(&["mkdir", &server.url("/new")]);
    ran.expect(
        4,
        &["no grid identities (AUTH GSSAPI)", "ftp:// does without"],
    );

    let refuses = quirks("PASS", "530 No local mapping");
    let server = Server::start(&world, world.host(), refuses);
    let ran = world.run(&["mkdir", &server.url("/new")]);
    ran.expect(3, &["login refused", "No local mapping"]);

    // The server trusts other CAs.
    let stranger = World::new();
    let server = Server::start(&stranger, world.host(), Quirks::default());
    let ran = world.run(&["mkdir", &server.url("/new")]);
    ran.expect(3, &["the server", "530"]);

    // Its handshake has no end.
    let endless = quirks("ADAT", "335 more data needed");
    let server = Server::start(&world, world.host(), endless);
    let ran = world.run(&["mkdir", &server.url("/new")]);
    ran.expect(3, &["does not keep to GSI"]);
    let early = quirks("ADAT", "235 Done");
    let server = Server::start(&world, world.host(), early);
    let ran = world.run(&["mkdir", &server.url("/new")]);
    ran.expect(3, &["does not keep to GSI"]);
}

#[test]
fn errors_of_our_credential_name_the_remedy() {
    let world = World::new();
    let server = Server::start(&world, world.host(), Quirks::default());
    let url = server.url("/new");
    let path = world.proxy_path();

    let early = SystemTime::now() - Duration::from_secs(10 * 3600);
    let short = ProxyRequest {
        lifetime: Duration::from_secs(7 * 3600),
        ..ProxyRequest::default()
    };
    let expired = proxy::create(&world.grid.user, &short, KeyKind::EcP256, early).unwrap();
    world.save(&expired);
    let ran = world.run(&["mkdir", &url]);
    ran.expect(3, &["proxy: expired 3 h ago: run `godwit proxy init`"]);

    world.save(&world.proxy(&ProxyRequest::default()));
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    fs::set_permissions(&path, open).unwrap();
    world.run(&["mkdir", &url]).expect(3, &["chmod 600"]);

    fs::remove_file(&path).unwrap();
    let home = tempfile::tempdir().unwrap();
    let without = |variables: &[(&str, &str)]| -> Ran {
        godwit(&["mkdir", &url])
            .env_remove("X509_USER_CERT")
            .env_remove("X509_USER_KEY")
            .env("HOME", home.path())
            .env("X509_USER_PROXY", &path)
            .env("X509_CERT_DIR", world.grid.path())
            .envs(variables.iter().copied())
            .output()
            .unwrap()
            .into()
    };
    without(&[]).expect(3, &["no proxy", "run `godwit proxy init`"]);
    without(&[("X509_CERT_DIR", "/nowhere")]).expect(3, &["/nowhere", "set X509_CERT_DIR"]);

    // Without a proxy the certificate itself does.
    let (cert, key) = (home.path().join("cert"), home.path().join("key"));
    let user = &world.grid.user;
    fs::write(&cert, user.certificate().as_x509().to_pem().unwrap()).unwrap();
    files::write_private(&key, &user.key().private_key_to_pem_pkcs8().unwrap()).unwrap();
    let pair = [
        ("X509_USER_CERT", cert.to_str().unwrap()),
        ("X509_USER_KEY", key.to_str().unwrap()),
    ];
    without(&pair).expect(0, &[]);
    assert_eq!(
        server
            .heard()
            .iter()
            .filter(|line| *line == "MKD /new")
            .count(),
        1
    );
}

/// What is behind a scheme without identities never sees one.
#[test]
fn ftp_sends_no_identity() {
    let world = World::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let heard = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(b"220 Ready\r\n").unwrap();
        let mut line = [0; 16];
        socket.read_exact(&mut line).unwrap();
        line
    });
    let ran = world.run(&["mkdir", &format!("ftp://{address}/new")]);
    assert_ne!(ran.code, 0);
    assert_eq!(&heard.join().unwrap(), b"USER anonymous\r\n");
}

/// Their CAs differ, and neither takes DCSC.
#[test]
fn servers_without_mutual_trust_are_named_with_the_users_subjects() {
    let here = World::new();
    let now = SystemTime::now();
    let there = Grid::with(Blueprint::authority("/O=Grid/CN=Other CA").at(now));
    let there = World {
        grid: there,
        folder: tempfile::tempdir().unwrap(),
    };
    there.save(&there.proxy(&ProxyRequest::default()));
    let authority = there.grid.authority.certificate();
    here.grid.install(authority);
    here.grid.set_policy(authority, r#"'"/O=Grid/*"'"#);
    let quirks = || Quirks {
        replies: vec![
            ("SIZE /f", "213 5"),
            ("SIZE", "550 No such file"),
            ("CWD", "550 No such directory"),
        ],
        ..Quirks::default()
    };
    let host = Blueprint::host("/O=Grid/CN=server", &["localhost"]).at(now);
    let host = host.issued_by(&there.grid.authority);
    let source = Server::start(&here, here.host(), quirks());
    let target = Server::start(&there, host, quirks());
    let target_url = target.url("/new").replace("127.0.0.1", "localhost");
    let proxies = [("127.0.0.1", &here), ("localhost", &there)];
    let proxies = proxies.map(|(host, world)| format!("{host}={}", world.proxy_path().display()));
    let ran = here.run(&[
        "cp",
        "--proxy",
        &proxies[0],
        "--proxy",
        &proxies[1],
        &source.url("/f"),
        &target_url,
    ]);
    let words = [
        "no DCSC: nor has",
        "of /O=Grid/CN=CA",
        "of /O=Grid/CN=Other CA",
    ];
    ran.expect(4, &words);
    // With one credential for both, one server alone trusts it.
    let ran = here.run(&["cp", &source.url("/f"), &target_url]);
    ran.expect(3, &[target_url.trim_end_matches("/new"), "530"]);
}

//! The Grid Community Toolkit on the other side of a real socket, with certificates made here.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use godwit_gsi::cert::key::KeyKind;
use godwit_gsi::cert::proxy::{self, ProxyRequest};
use godwit_gsi::cert::{Credential, ProxyKind, ProxyPolicy, files};
use godwit_gsi::verify::{HostName, Policy};
use godwit_gsi::{Channel, Context, Established, Expect, Settings, Versions, Wrap, adat};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tempfile::TempDir;

use crate::grid::Grid;
use crate::pki::{Blueprint, rsa_key};

/// How long a peer may keep us waiting: a bound for what hangs, long enough for a machine that is
/// busy with other tests.
const PATIENCE: Duration = Duration::from_secs(300);

const SERVER: &str = "globus-gridftp-server";
const URL_COPY: &str = "globus-url-copy";

/// What a site has: CAs, a host, a user with a proxy, and a gridmap.
struct Site {
    grid: Grid,
    host: Credential,
    user: Credential,
    folder: TempDir,
}

impl Site {
    fn new() -> Self {
        let now = SystemTime::now();
        let authority = Blueprint::authority("/O=Grid/CN=CA").key(rsa_key()).at(now);
        let grid = Grid::with(authority);
        let host = Blueprint::host("/O=Grid/CN=localhost", &["localhost"]);
        let host = host.key(rsa_key()).at(now).issued_by(&grid.authority);
        let user = Blueprint::user("/O=Grid/CN=Jo").key(rsa_key()).at(now);
        let user = user.issued_by(&grid.authority);
        let folder = TempDir::new().expect("a folder");
        let site = Self {
            grid,
            host,
            user,
            folder,
        };
        let certificate = site.host.certificate().as_x509().to_pem().expect("pem");
        fs::write(site.path("hostcert.pem"), certificate).expect("writes");
        let key = site.host.key().private_key_to_pem_pkcs8().expect("pem");
        files::write_private(&site.path("hostkey.pem"), &key).expect("writes");
        let account = std::env::var("USER").unwrap_or_else(|_| "root".to_owned());
        let map = format!("\"/O=Grid/CN=Jo\" {account}\n");
        fs::write(site.path("gridmap"), map).expect("writes");
        site
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn proxy(&self, request: &ProxyRequest, key: KeyKind) -> Credential {
        proxy::create(&self.user, request, key, SystemTime::now()).expect("makes")
    }

    fn settings(&self, credential: &Credential, delegate: Option<ProxyRequest>) -> Settings {
        Settings {
            credential: credential.clone(),
            anchors: Arc::new(self.grid.anchors()),
            policy: Policy::default(),
            expect: Expect::Anyone,
            channel: Channel::Control { delegate },
            versions: Versions::Any,
            server_name: None,
        }
    }
}

/// A child that does not outlive its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself, which is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_present(program: &str, test: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths)
        .chain(["/usr/sbin".into()])
        .any(|folder| folder.join(program).exists());
    if !found {
        let required = std::env::var_os("GODWIT_REQUIRE_PEERS").is_some_and(|v| v == "1");
        assert!(!required, "{test}: {program} is not installed");
        // Past the test runner, which hides what passing tests print.
        let _ = writeln!(std::io::stderr().lock(), "skipped {test}: no {program}");
    }
    found
}

/// A control channel.
struct Line {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
}

impl Line {
    fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        Self {
            writer: stream.try_clone().expect("a clone"),
            reader: BufReader::new(stream),
        }
    }

    fn send(&mut self, line: &str) {
        self.writer
            .write_all(format!("{line}\r\n").as_bytes())
            .expect("sends");
    }

    fn read(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(line.trim_end().to_owned()),
        }
    }

    /// The last line of a reply in clear.
    fn reply(&mut self) -> String {
        let mut told = String::new();
        loop {
            let line = self
                .read()
                .unwrap_or_else(|| panic!("no reply, only {told}"));
            if line.as_bytes().get(3) == Some(&b' ') && line[..3].parse::<u16>().is_ok() {
                return format!("{told}{line}");
            }
            told.push_str(&line);
            told.push('\n');
        }
    }
}

/// The next connection, or a failed test.
fn accept(listener: &TcpListener) -> TcpStream {
    let mut waiting = [PollFd::new(listener, PollFlags::IN)];
    let patience = Timespec::try_from(PATIENCE).expect("fits");
    assert_eq!(poll(&mut waiting, Some(&patience)), Ok(1), "nobody came");
    listener.accept().expect("accepts").0
}

/// A server for one connection, as inetd would start it.
fn server(site: &Site) -> (Running, Line) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listens");
    let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("connects");
    let (served, _) = listener.accept().expect("accepts");
    let input = OwnedFd::from(served.try_clone().expect("a clone"));
    let mut command = Command::new(SERVER);
    command
        .args(["-i", "-c", "/dev/null", "-allow-root", "-log-level", "ALL"])
        .arg("-logfile")
        .arg(site.path("server.log"))
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .env("RES_OPTIONS", "timeout:1 attempts:4")
        .env("X509_CERT_DIR", site.grid.path())
        .env("X509_USER_CERT", site.path("hostcert.pem"))
        .env("X509_USER_KEY", site.path("hostkey.pem"))
        .env("GRIDMAP", site.path("gridmap"))
        .stdin(input)
        .stdout(OwnedFd::from(served))
        .stderr(Stdio::null());
    let child = Running(command.spawn().expect("starts"));
    (child, Line::new(client))
}

/// AUTH and ADAT until 235. `Err` is what the server has against it.
fn log_in(line: &mut Line, settings: Settings) -> Result<Established, String> {
    assert!(line.reply().contains("220 "), "greets");
    line.send("AUTH GSSAPI");
    assert!(line.reply().starts_with("334"));
    let mut context = Context::initiate(settings).map_err(|error| error.to_string())?;
    loop {
        let Some(token) = context.poll_output() else {
            return Err("nothing to say".to_owned());
        };
        line.send(&adat::command(&token));
        let reply = line.reply();
        match reply.get(..4) {
            Some("335 ") => {
                let token = adat::token_of_reply(&reply[4..]).expect("decodes");
                let now = SystemTime::now();
                context
                    .handle_input(now, &token.expect("a token"))
                    .map_err(|error| error.to_string())?;
            }
            Some("235 ") => return context.outcome().ok_or_else(|| "235 too early".to_owned()),
            _ => return Err(reply),
        }
    }
}

/// A protected command, and the whole reply in clear.
fn ask(line: &mut Line, wrap: &mut Wrap, command: &str) -> String {
    tell(line, wrap, command);
    hear(line, wrap)
}

fn tell(line: &mut Line, wrap: &mut Wrap, command: &str) {
    let protected = wrap.command(format!("{command}\r\n").as_bytes());
    line.send(&protected.expect("wraps"));
}

fn hear(line: &mut Line, wrap: &mut Wrap) -> String {
    let mut clear = String::new();
    loop {
        let part = line.read().expect("a reply");
        let part = wrap
            .clear_reply(&part)
            .expect("unwraps")
            .expect("protected");
        clear.push_str(&String::from_utf8(part).expect("text"));
        let last = clear.trim_end().lines().last().unwrap_or_default();
        if clear.ends_with("\r\n")
            && last.as_bytes().get(3) == Some(&b' ')
            && !last.starts_with(' ')
        {
            return clear;
        }
    }
}

#[test]
fn the_reference_server_lets_our_proxies_in() {
    if !is_present(SERVER, "the_reference_server_lets_our_proxies_in") {
        return;
    }
    let site = Site::new();
    let plain = ProxyRequest::default();
    let legacy = ProxyRequest {
        kind: ProxyKind::Legacy,
        ..ProxyRequest::default()
    };
    // No delegation with EC keys: the reference then makes an RSA key of 256 bits, and fails.
    let rsa = KeyKind::Rsa(2048);
    let cases = [
        (Versions::Tls13, plain.clone(), rsa, None),
        (
            Versions::Tls12,
            plain.clone(),
            rsa,
            Some(ProxyRequest::limited()),
        ),
        (
            Versions::Tls13,
            ProxyRequest::limited(),
            rsa,
            Some(ProxyRequest::default()),
        ),
        (Versions::Any, plain, KeyKind::EcP256, None),
        (Versions::Any, legacy, rsa, Some(ProxyRequest::limited())),
    ];
    for (versions, request, key, delegate) in cases {
        let case = format!("{versions:?} {request:?} {key:?} {delegate:?}");
        let (_server, mut line) = server(&site);
        let credential = if request.kind == ProxyKind::Legacy {
            // Below a certificate with a key usage the reference takes a legacy proxy for one that
            // a CA should have signed.
            let user = Blueprint::new("/O=Grid/CN=Jo")
                .key(rsa_key())
                .at(SystemTime::now());
            let user = user.issued_by(&site.grid.authority);
            proxy::create(&user, &request, key, SystemTime::now()).expect("makes")
        } else {
            site.proxy(&request, key)
        };
        let settings = Settings {
            versions,
            expect: Expect::Host(HostName::new("localhost")),
            server_name: Some("localhost".to_owned()),
            ..site.settings(&credential, delegate)
        };
        let log = || fs::read_to_string(site.path("server.log")).unwrap_or_default();
        let established = log_in(&mut line, settings);
        let mut established =
            established.unwrap_or_else(|error| panic!("{case}: {error}\n{}", log()));
        assert_eq!(established.peer.identity().as_str(), "/O=Grid/CN=localhost");
        let wrap = &mut established.wrap;
        let user = ask(&mut line, wrap, "USER :globus-mapping:");
        assert!(
            user.starts_with("331") || user.starts_with("230"),
            "{case}: {user}"
        );
        let pass = ask(&mut line, wrap, "PASS dummy");
        assert!(pass.starts_with("230"), "{case}: {pass}\n{}", log());
        let pwd = ask(&mut line, wrap, "PWD");
        assert!(pwd.starts_with("257 \"/"), "{case}: {pwd}");
        let features = ask(&mut line, wrap, "FEAT");
        assert!(
            features.contains(" DCAU\r\n") && features.lines().count() > 5,
            "{features}"
        );
        assert!(ask(&mut line, wrap, "QUIT").starts_with("221"));
    }
}

#[test]
fn the_reference_server_refuses_what_we_refuse() {
    if !is_present(SERVER, "the_reference_server_refuses_what_we_refuse") {
        return;
    }
    let site = Site::new();
    let early = SystemTime::now() - Duration::from_secs(3600);
    let short = ProxyRequest {
        lifetime: Duration::from_secs(60),
        ..ProxyRequest::default()
    };
    let expired = proxy::create(&site.user, &short, KeyKind::EcP256, early).expect("makes");
    let other = Grid::with(Blueprint::authority("/O=Grid/CN=Other").at(SystemTime::now()));
    let bounded = ProxyRequest {
        path_length: Some(0),
        ..ProxyRequest::default()
    };
    let bounded = site.proxy(&bounded, KeyKind::EcP256);
    let below = Blueprint::proxy(&bounded, "7")
        .at(SystemTime::now())
        .extension(
            crate::pki::PROXY_CERT_INFO,
            true,
            &crate::pki::proxy_cert_info(crate::pki::INHERIT_ALL, None, None),
        );
    let below = below.issued_by(&bounded);
    for (name, bad) in [
        ("expired", expired),
        ("stranger", other.user.clone()),
        ("path length", below),
    ] {
        let refusal = site.grid.verify_at(&bad, SystemTime::now());
        refusal.expect_err("we refuse it");
        let (_server, mut line) = server(&site);
        let told = log_in(&mut line, site.settings(&bad, None)).err();
        let told = told.unwrap_or_else(|| panic!("{name}: the reference accepts it"));
        assert!(
            told.starts_with("530") || told.starts_with("535"),
            "{name}: {told}"
        );
    }
}

/// A server of a few words: enough for a login and the end of a listing.
fn serve(stream: TcpStream, settings: Settings) -> Result<(Established, Vec<String>), String> {
    let mut line = Line::new(stream);
    line.send("220 ready");
    let mut context = Context::accept(settings).map_err(|error| error.to_string())?;
    let mut established = loop {
        let command = line.read().ok_or("closed in the clear")?;
        let Some(token) = command.strip_prefix("ADAT ") else {
            line.send(if command.starts_with("AUTH GSSAPI") {
                "334 go on"
            } else {
                "530 first AUTH"
            });
            continue;
        };
        let token = adat::decode(token).map_err(|error| error.to_string())?;
        if let Err(error) = context.handle_input(SystemTime::now(), &token) {
            line.send("530 refused");
            return Err(error.to_string());
        }
        match (context.poll_output(), context.outcome()) {
            (Some(token), _) => line.send(&format!("335 {}", adat::reply_text(&token))),
            (None, Some(established)) => {
                line.send("235 GSSAPI Authentication successful.");
                break established;
            }
            (None, None) => return Err("nothing to say".to_owned()),
        }
    };
    let mut commands = Vec::new();
    while let Some(command) = line.read() {
        let wrap = &mut established.wrap;
        let clear = wrap
            .clear_command(&command)
            .map_err(|error| error.to_string())?;
        let clear = clear.ok_or_else(|| format!("in clear: {command}"))?;
        let clear = String::from_utf8_lossy(&clear).trim_end().to_owned();
        let reply = match clear.split(' ').next() {
            Some("USER") => "331 go on\r\n",
            Some("PASS") => "230 welcome\r\n",
            Some("FEAT") => "211-Features\r\n DCAU\r\n MLST type*;size*;\r\n211 End\r\n",
            Some("QUIT") => "221 bye\r\n",
            Some("PASV" | "EPSV" | "PORT" | "MLSD" | "LIST" | "NLST" | "MLSC" | "SITE") => {
                "500 not here\r\n"
            }
            _ => "200 yes\r\n",
        };
        commands.push(clear);
        let reply = wrap
            .reply(reply.as_bytes())
            .map_err(|error| error.to_string())?;
        line.writer
            .write_all(reply.as_bytes())
            .map_err(|error| error.to_string())?;
    }
    Ok((established, commands))
}

#[test]
fn the_reference_client_logs_in_and_delegates() {
    if !is_present(URL_COPY, "the_reference_client_logs_in_and_delegates") {
        return;
    }
    let site = Site::new();
    let kinds = [
        (Versions::Tls13, ProxyPolicy::Impersonation),
        (Versions::Tls12, ProxyPolicy::Limited),
    ];
    for (versions, policy) in kinds {
        let request = ProxyRequest {
            policy,
            ..ProxyRequest::default()
        };
        let user = site.proxy(&request, KeyKind::Rsa(2048));
        let proxy_file = site.path("proxy");
        files::write_private(&proxy_file, &user.to_pem().expect("pem")).expect("writes");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listens");
        let port = listener.local_addr().expect("an address").port();
        let settings = Settings {
            versions,
            ..site.settings(&site.host, None)
        };
        let served = std::thread::spawn(move || serve(accept(&listener), settings));
        let mut client = Command::new(URL_COPY);
        client
            .args(["-dbg", "-list", &format!("gsiftp://localhost:{port}/tmp/")])
            .env("X509_CERT_DIR", site.grid.path())
            .env("X509_USER_PROXY", &proxy_file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(site.path("client.log")).expect("a file"));
        let mut client = Running(client.spawn().expect("starts"));
        let log = || fs::read_to_string(site.path("client.log")).unwrap_or_default();
        // The listing is refused, so how the client ends says nothing; the dialogue before does.
        let _ = client.0.wait();
        let (established, commands) = served
            .join()
            .expect("no panic")
            .unwrap_or_else(|error| panic!("{error}\n{}", log()));
        assert_eq!(established.peer.identity().as_str(), "/O=Grid/CN=Jo");
        assert_eq!(
            commands.first().map(String::as_str),
            Some("USER :globus-mapping:")
        );
        assert!(
            commands.iter().any(|command| command == "FEAT"),
            "{commands:?}"
        );
        let delegated = established.delegated.expect("delegated");
        assert_eq!(delegated.info().kind, "RFC 3820 proxy, limited");
        let peer = site
            .grid
            .verify_at(&delegated, SystemTime::now())
            .expect("accepts");
        assert_eq!(peer.identity().as_str(), "/O=Grid/CN=Jo");
    }
}

/// Our end of a data channel, to the end of the data.
fn receive(mut stream: TcpStream, mut context: Context, is_protected: bool) -> Vec<u8> {
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut buffer = vec![0; 64 * 1024];
    let established = loop {
        while let Some(token) = context.poll_output() {
            stream.write_all(&token).expect("sends");
        }
        if let Some(established) = context.outcome() {
            break established;
        }
        let count = stream.read(&mut buffer).expect("reads");
        assert_ne!(count, 0, "closed during the handshake");
        let result = context.handle_input(SystemTime::now(), &buffer[..count]);
        result.unwrap_or_else(|error| panic!("{error}"));
    };
    let mut sealed = established.rest;
    stream.read_to_end(&mut sealed).expect("reads");
    if !is_protected {
        return sealed;
    }
    let mut records = established.wrap.into_records();
    let opened = records.open(&mut sealed).expect("opens");
    sealed.truncate(opened.clear);
    sealed
}

#[test]
fn data_channels_with_the_reference_server_are_authenticated_and_protected() {
    let test = "data_channels_with_the_reference_server_are_authenticated_and_protected";
    if !is_present(SERVER, test) {
        return;
    }
    let site = Site::new();
    let content: Vec<u8> = (0..300_000_u32)
        .map(|i| i.to_le_bytes()[0] ^ 0x5a)
        .collect();
    fs::write(site.path("data"), &content).expect("writes");
    let user = site.proxy(&ProxyRequest::default(), KeyKind::Rsa(2048));
    let delegate = Some(ProxyRequest::limited());
    for versions in [Versions::Tls13, Versions::Tls12] {
        let (_server, mut line) = server(&site);
        let settings = Settings {
            versions,
            ..site.settings(&user, delegate.clone())
        };
        let log = || fs::read_to_string(site.path("server.log")).unwrap_or_default();
        let established = log_in(&mut line, settings);
        let mut established = established.unwrap_or_else(|error| panic!("{error}\n{}", log()));
        let wrap = &mut established.wrap;
        ask(&mut line, wrap, "USER :globus-mapping:");
        assert!(ask(&mut line, wrap, "PASS dummy").starts_with("230"));
        assert!(ask(&mut line, wrap, "TYPE I").starts_with("200"));
        assert!(ask(&mut line, wrap, "PBSZ 1048576").starts_with("200"));
        for (level, channel) in [
            ("C", Channel::ClearData),
            ("S", Channel::ProtectedData),
            ("P", Channel::ProtectedData),
        ] {
            assert!(ask(&mut line, wrap, &format!("PROT {level}")).starts_with("200"));
            let is_protected = channel == Channel::ProtectedData;
            let end = Settings {
                expect: Expect::Identity(user.identity()),
                channel,
                versions,
                ..site.settings(&user, None)
            };
            let retrieve = format!("RETR {}", site.path("data").display());

            // We connect, and are the TLS client.
            let passive = ask(&mut line, wrap, "PASV");
            let numbers: Vec<u16> = passive
                .split(|c: char| !c.is_ascii_digit())
                .filter_map(|word| word.parse().ok())
                .collect();
            let [.., high, low] = numbers[..] else {
                panic!("{passive}");
            };
            tell(&mut line, wrap, &retrieve);
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, high << 8 | low));
            let context = Context::initiate(end.clone()).expect("begins");
            let got = receive(stream.expect("connects"), context, is_protected);
            assert!(got == content, "{versions:?} {level}: {} bytes", got.len());
            assert!(hear(&mut line, wrap).starts_with("150"));
            assert!(hear(&mut line, wrap).starts_with("226"));

            // The server connects, and the first data may come with the last of the handshake.
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listens");
            let port = listener.local_addr().expect("an address").port();
            let active = format!("PORT 127,0,0,1,{},{}", port >> 8, port & 255);
            assert!(ask(&mut line, wrap, &active).starts_with("200"));
            tell(&mut line, wrap, &retrieve);
            let stream = accept(&listener);
            let context = Context::accept(end).expect("waits");
            let got = receive(stream, context, is_protected);
            assert!(
                got == content,
                "{versions:?} {level} active: {} bytes",
                got.len()
            );
            assert!(hear(&mut line, wrap).starts_with("150"));
            assert!(hear(&mut line, wrap).starts_with("226"));
        }
    }
}

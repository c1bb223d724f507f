//! HTTPS and WebDAV, by a client that says exactly what a test tells it to say.

use std::{
    cell::RefCell,
    collections::HashMap,
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    thread,
    time::{Duration, Instant, SystemTime},
};

use godwit_engine::storage::{MemoryStorage, Storage as _, WriteMode, faulty::Operation};
use godwit_http::multistatus::{self, Hrefs};
use godwit_proto::FtpPath;
use openssl::ssl::{SslConnector, SslFiletype, SslMethod, SslStream, SslVerifyMode};
use serde_json::json;

use crate::{
    harness::{Gate, PATIENCE, eventually, pattern},
    tls::{AUDIENCE, ISSUER, Site, Wishes},
};

/// `kim` and `sam` with their password.
pub(crate) const KIM: &str = "Authorization: Basic a2ltOnNlIGNyZXQ=\r\n";
pub(crate) const SAM: &str = "Authorization: Basic c2FtOnNlIGNyZXQ=\r\n";

pub(crate) struct Answer {
    status: u16,
    headers: HashMap<String, String>,
    body: Vec<u8>,
}

impl Answer {
    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Self {
        let text = String::from_utf8_lossy(&self.body);
        assert_eq!(self.status, status, "{:?} {text:.300}", self.headers);
        self
    }

    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

fn site() -> Site {
    let site = Site::new(Wishes {
        https: true,
        ..Wishes::default()
    });
    site.server.write("f", b"0123456789");
    site
}

/// A token of the scope.
pub(crate) fn bearer(site: &Site, scope: &str) -> String {
    bearer_of(site, "robot", scope)
}

fn bearer_of(site: &Site, subject: &str, scope: &str) -> String {
    let token = site.issuer.token(&json!({
        "iss": ISSUER, "sub": subject, "aud": AUDIENCE, "exp": 4_000_000_000_u64,
        "wlcg.ver": "1.0", "scope": scope,
    }));
    format!("Authorization: Bearer {token}\r\n")
}

pub(crate) fn connect(site: &Site, certificate: Option<&str>) -> SslStream<TcpStream> {
    connect_to(site, site.server.https.unwrap(), certificate)
}

pub(crate) fn connect_to(
    site: &Site,
    address: SocketAddr,
    certificate: Option<&str>,
) -> SslStream<TcpStream> {
    let mut builder = SslConnector::builder(SslMethod::tls()).unwrap();
    builder.set_verify(SslVerifyMode::NONE);
    builder.set_alpn_protos(b"\x02h2\x08http/1.1").unwrap();
    if let Some(name) = certificate {
        builder.set_certificate_chain_file(site.at(name)).unwrap();
        builder
            .set_private_key_file(site.at(name), SslFiletype::PEM)
            .unwrap();
    }
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    builder.build().connect("localhost", socket).unwrap()
}

thread_local! {
    /// The connection of the last request: a login takes a tenth of a second.
    static KEPT: RefCell<Option<(SocketAddr, SslStream<TcpStream>)>> = const { RefCell::new(None) };
}

/// One request, on the connection of the one before if it is still there. `head`: headers, each
/// with its line end.
pub(crate) fn ask(site: &Site, method: &str, path: &str, head: &str, body: &[u8]) -> Answer {
    let address = site.server.https.unwrap();
    let kept = KEPT.take().filter(|(of, _)| *of == address);
    if let Some((_, mut stream)) = kept
        && let Some(answer) = ask_on(&mut stream, method, path, head, body)
    {
        return keep(address, stream, answer);
    }
    let mut stream = connect(site, None);
    let answer = ask_on(&mut stream, method, path, head, body).expect("an answer");
    keep(address, stream, answer)
}

fn keep(address: SocketAddr, stream: SslStream<TcpStream>, answer: Answer) -> Answer {
    if answer.header("connection") != "close" {
        KEPT.set(Some((address, stream)));
    }
    answer
}

/// `None`: the connection has ended.
fn ask_on(
    stream: &mut SslStream<TcpStream>,
    method: &str,
    path: &str,
    head: &str,
    body: &[u8],
) -> Option<Answer> {
    let length = match head.contains("Transfer-Encoding") {
        true => String::new(),
        false => format!("Content-Length: {}\r\n", body.len()),
    };
    let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{length}{head}\r\n");
    // The server may refuse it before it has read all.
    let _ = stream.write_all(request.as_bytes());
    let _ = stream.write_all(body);
    read_answer(stream, method == "HEAD")
}

pub(crate) fn read_answer(stream: &mut SslStream<TcpStream>, is_head: bool) -> Option<Answer> {
    let status = line(stream)?;
    let status = status.split(' ').nth(1).unwrap().parse().unwrap();
    let mut headers = HashMap::new();
    loop {
        let line = line(stream)?;
        let Some((name, value)) = line.split_once(": ") else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let mut body = Vec::new();
    if !is_head && headers.contains_key("transfer-encoding") {
        loop {
            let size = usize::from_str_radix(&line(stream)?, 16).unwrap();
            let filled = body.len();
            body.resize(filled + size, 0);
            stream.read_exact(&mut body[filled..]).ok()?;
            line(stream)?;
            if size == 0 {
                break;
            }
        }
    } else if let Some(length) = headers.get("content-length").filter(|_| !is_head) {
        body.resize(length.parse().unwrap(), 0);
        stream.read_exact(&mut body).ok()?;
    }
    Some(Answer {
        status,
        headers,
        body,
    })
}

/// Without its end.
fn line(stream: &mut SslStream<TcpStream>) -> Option<String> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        line.push(byte[0]);
    }
    line.truncate(line.len() - 2);
    String::from_utf8(line).ok()
}

pub(crate) fn names(site: &Site, directory: &str) -> Vec<String> {
    let entries = fs::read_dir(site.server.path(directory)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn files_are_read_whole_and_in_parts() {
    let site = site();
    let content = pattern(3_000_000, 1);
    site.server.write("large", &content);
    let get = |path: &str, head: &str| ask(&site, "GET", path, &format!("{KIM}{head}"), b"");
    assert!(get("/large", "").is(200).body == content);
    let answer = get("/f", "Range: bytes=2-4\r\n").is(206);
    assert_eq!(
        (answer.text().as_str(), answer.header("content-range")),
        ("234", "bytes 2-4/10")
    );
    let answer = get("/f", "Range: bytes=0-0,-2\r\n").is(206);
    let kind = answer.header("content-type").to_owned();
    let boundary = kind
        .strip_prefix("multipart/byteranges; boundary=")
        .unwrap();
    let text = answer.text();
    let parts: Vec<_> = text.split(&format!("--{boundary}")).collect();
    assert_eq!(parts.len(), 4, "{text}");
    assert!(
        parts[1].ends_with("Content-Range: bytes 0-0/10\r\n\r\n0\r\n"),
        "{text}"
    );
    assert!(
        parts[2].ends_with("Content-Range: bytes 8-9/10\r\n\r\n89\r\n"),
        "{text}"
    );
    assert_eq!(answer.header("content-length"), text.len().to_string());
    let answer = get("/f", "Range: bytes=10-\r\n").is(416);
    assert_eq!(answer.header("content-range"), "bytes */10");
    let head = ask(&site, "HEAD", "/f", KIM, b"").is(200);
    assert_eq!((head.header("content-length"), head.body.len()), ("10", 0));
    let tag = head.header("etag").to_owned();
    get("/f", &format!("If-None-Match: {tag}\r\n")).is(304);
    get("/f", "If-Match: \"x\"\r\n").is(412);
    let half = format!("If-Range: {tag}\r\nRange: bytes=5-\r\n");
    assert_eq!(get("/f", &half).is(206).text(), "56789");
    let stale = "If-Range: \"x\"\r\nRange: bytes=5-\r\n";
    assert_eq!(get("/f", stale).is(200).text(), "0123456789");
    get("/missing", "").is(404);
}

#[test]
fn checksums_are_told_and_compared() {
    let site = site();
    for (want, name, value) in [
        ("Want-Digest: ADLER32", "digest", "adler32=0aff020e"),
        (
            "Want-Digest: crc32, md5;q=0.5",
            "digest",
            "md5=eB5eJF1ptWaXm4bijSPyxw==",
        ),
        (
            "Want-Repr-Digest: adler=5",
            "repr-digest",
            "adler=:Cv8CDg==:",
        ),
        ("Want-Digest: unixsum", "digest", ""),
    ] {
        let answer = ask(&site, "HEAD", "/f", &format!("{KIM}{want}\r\n"), b"").is(200);
        assert_eq!(answer.header(name), value, "{want}");
    }
    let put = |head: &str| {
        ask(
            &site,
            "PUT",
            "/new",
            &format!("{KIM}{head}\r\n"),
            b"0123456789",
        )
    };
    put("Digest: adler32=00000001").is(412);
    put("Digest: adler32=no").is(400);
    assert!(!site.server.path("new").exists());
    let stored = put("Digest: adler32=0aff020e\r\nWant-Digest: adler32").is(201);
    assert_eq!(stored.header("digest"), "adler32=0aff020e");
    assert_eq!(names(&site, ""), ["f", "new", "sam"]);
}

#[test]
fn a_file_gets_its_name_when_it_is_whole() {
    let site = site();
    let content = pattern(2_000_000, 2);
    let put = |head: &str, body: &[u8]| ask(&site, "PUT", "/f", &format!("{KIM}{head}"), body);
    put("", &content).is(204);
    assert!(site.server.read("f") == content);
    let chunked = b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    put("Transfer-Encoding: chunked\r\n", chunked).is(204);
    assert_eq!(site.server.read("f"), b"abcde");
    put("If-None-Match: *\r\n", b"x").is(412);
    put("If-None-Match: x\r\n", b"x").is(400);
    put("If-Match: \"x\"\r\n", b"x").is(412);
    put("Content-Encoding: gzip\r\n", b"x").is(415);
    ask(&site, "PUT", "/none/f", KIM, b"x").is(409);
    ask(&site, "PUT", "/sam", KIM, b"x").is(405);
    // A client that ends in the middle leaves nothing behind.
    let mut stream = connect(&site, None);
    let head = format!("PUT /cut HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n{KIM}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&[7; 600_000]).unwrap();
    eventually("a partial file", || names(&site, "").len() == 3);
    assert!(!site.server.path("cut").exists());
    drop(stream);
    eventually("no partial file", || names(&site, "") == ["f", "sam"]);
    assert_eq!(site.server.read("f"), b"abcde");
}

#[test]
fn names_are_made_moved_copied_and_removed() {
    let site = site();
    let on = |method: &str, path: &str, head: &str| {
        ask(&site, method, path, &format!("{KIM}{head}"), b"")
    };
    on("MKCOL", "/d", "").is(201);
    on("MKCOL", "/d", "").is(405);
    on("MKCOL", "/none/d", "").is(409);
    ask(&site, "MKCOL", "/e", KIM, b"<x/>").is(415);
    let to = |path: &str| format!("Destination: https://localhost{path}\r\n");
    on("COPY", "/f", &to("/d/g")).is(201);
    on("COPY", "/f", &(to("/d/g") + "Overwrite: F\r\n")).is(412);
    on("COPY", "/f", &to("/d/g")).is(204);
    on("COPY", "/d/", &to("/e/")).is(201);
    on("MOVE", "/e/g", &to("/e/h%20i")).is(201);
    assert_eq!(
        (names(&site, "d"), names(&site, "e")),
        (vec!["g".into()], vec!["h i".into()])
    );
    on("COPY", "/d", &to("/d/inside")).is(403);
    on("MOVE", "/d/g", &to("/none/g")).is(409);
    on("MOVE", "/missing", &to("/x")).is(404);
    on("MOVE", "/d/g", "Destination: https://elsewhere/g\r\n").is(502);
    on("MOVE", "/d/g", "").is(400);
    on("MOVE", "/d", &to("/e")).is(204);
    assert_eq!(names(&site, "e"), ["g"]);
    on("DELETE", "/e", "Depth: 1\r\n").is(400);
    on("DELETE", "/e/", "").is(204);
    on("DELETE", "/e", "").is(404);
    on("DELETE", "/", "").is(403);
    assert_eq!(site.server.read("f"), b"0123456789");
    let allowed = ask(&site, "OPTIONS", "/", "", b"").is(200);
    assert!(allowed.header("dav").starts_with('1') && allowed.header("allow").contains("PROPFIND"));
    on("LOCK", "/f", "").is(405);
}

#[test]
fn what_is_replaced_is_there_until_the_change_has_succeeded() {
    let site = site();
    let on = |method: &str, path: &str, to: &str| {
        let head = format!("{KIM}Destination: https://localhost{to}\r\n");
        ask(&site, method, path, &head, b"")
    };
    fs::create_dir_all(site.server.path("d/sub")).unwrap();
    site.server.write("d/sub/f", b"x");
    std::os::unix::fs::symlink("d", site.server.path("link")).unwrap();
    // The same directory by another name, and one above the source.
    on("MOVE", "/link/sub", "/d/sub").is(409);
    on("MOVE", "/d/sub", "/link/sub").is(409);
    on("MOVE", "/link/sub/f", "/d/sub").is(409);
    on("COPY", "/link/sub", "/d/sub").is(204);
    assert_eq!(
        (names(&site, "d"), names(&site, "d/sub")),
        (vec!["sub".into()], vec!["f".into()])
    );
    // Into itself, by another name: once, and without the copy.
    on("COPY", "/d", "/link/inside").is(201);
    assert_eq!(names(&site, "d/inside"), ["sub"]);
    assert_eq!(site.server.read("d/inside/sub/f"), b"x");
    // What cannot be copied leaves what is there.
    let fifo = site.server.path("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    on("COPY", "/fifo", "/d/sub").is(403);
    assert_eq!(site.server.read("d/sub/f"), b"x");
    // A file takes the place of a directory, and the other way round.
    on("COPY", "/f", "/d/sub").is(204);
    assert_eq!(site.server.read("d/sub"), b"0123456789");
    on("COPY", "/d", "/f").is(204);
    assert_eq!(names(&site, "f"), ["inside", "sub"]);
    assert_eq!(names(&site, "."), ["d", "f", "fifo", "link", "sam"]);
    // A condition that is no text counts as one that is not met, and not as none.
    ask(
        &site,
        "PUT",
        "/g",
        &format!("{KIM}If-Match: \"\u{e9}\"\r\n"),
        b"y",
    )
    .is(400);
}

#[test]
fn removals_of_one_user_wait_and_listings_do_not() {
    let memory = MemoryStorage::new();
    let make = |name: &str| memory.create_dir(&FtpPath::new(name).unwrap()).unwrap();
    let directories = std::array::from_fn::<_, 24, _>(|number| format!("/d{number}"));
    directories.iter().for_each(|name| make(name));
    make("/other");
    memory
        .open_write(&FtpPath::new("/f").unwrap(), WriteMode::New)
        .unwrap();
    // As many as a user may have at a time.
    let (gate, storage) = Gate::before(Arc::new(memory), Operation::Change, 8);
    let wishes = Wishes {
        https: true,
        ..Wishes::default()
    };
    let site = Site::on(storage, wishes, |_| {});
    let scope = "storage.read:/ storage.modify:/";
    let (robot, other) = (bearer(&site, scope), bearer_of(&site, "other", scope));
    thread::scope(|scope| {
        let removals = directories.each_ref().map(|path| {
            let (site, robot) = (&site, &robot);
            scope.spawn(move || ask(site, "DELETE", path, robot, b""))
        });
        eventually("the share is used", || gate.entered() == 8);
        let listings = [(); 24].map(|()| {
            let head = format!("{robot}Depth: 1\r\n");
            let site = &site;
            scope.spawn(move || ask(site, "PROPFIND", "/", &head, b""))
        });
        for listing in listings {
            listing.join().unwrap().is(207);
        }
        ask(&site, "DELETE", "/f", &robot, b"").is(204);
        ask(&site, "DELETE", "/other", &other, b"").is(204);
        assert!(removals.iter().all(|removal| !removal.is_finished()));
        gate.open();
        for removal in removals {
            removal.join().unwrap().is(204);
        }
    });
}

#[test]
fn a_link_is_removed_and_not_what_it_names() {
    let site = site();
    fs::create_dir(site.server.path("d")).unwrap();
    site.server.write("d/f", b"x");
    std::os::unix::fs::symlink("d", site.server.path("link")).unwrap();
    std::os::unix::fs::symlink("/etc", site.server.path("out")).unwrap();
    ask(&site, "GET", "/out/passwd", KIM, b"").is(403);
    ask(&site, "DELETE", "/link", KIM, b"").is(204);
    assert_eq!(site.server.read("d/f"), b"x");
    for path in ["/%2e%2e/f", "/a%2f..%2ff", "/f%00", "/%2e%2e%2f", "/d/../f"] {
        ask(&site, "GET", path, KIM, b"").is(400);
    }
}

#[test]
fn properties_are_listed_to_a_finite_depth() {
    let site = site();
    site.server.write("sam/<&>", b"abc");
    let find = |path: &str, head: &str, body: &[u8]| {
        ask(&site, "PROPFIND", path, &format!("{KIM}{head}"), body)
    };
    let answer = find("/sam", "Depth: 1\r\n", b"").is(207);
    let found = multistatus::read(&answer.body, Hrefs::Encoded).unwrap();
    let paths: Vec<_> = found.iter().map(|one| (&one.path[..], one.size)).collect();
    assert_eq!(paths, [(&b"/sam/"[..], None), (b"/sam/<&>", Some(3))]);
    assert!(found[0].is_collection && found[1].tag.is_some());
    let body =
        b"<propfind xmlns='DAV:'><prop><resourcetype/><quota-available-bytes/><x xmlns='u'/>\
          </prop></propfind>";
    let answer = find("/", "Depth: 0\r\n", body).is(207);
    let found = multistatus::read(&answer.body, Hrefs::Encoded).unwrap();
    assert!(
        found.len() == 1 && found[0].free_bytes.is_some(),
        "{}",
        answer.text()
    );
    assert!(
        find("/", "", b"")
            .is(403)
            .text()
            .contains("propfind-finite-depth")
    );
    find("/f", "Depth: 0\r\n", b"<a/>").is(400);
    find("/f", "Depth: 2\r\n", b"").is(400);
    find("/f", "Depth: 0\r\n", &vec![b' '; 100_000]).is(413);
    find("/none", "Depth: 0\r\n", b"").is(404);
    for number in 0..5000 {
        site.server.write(&format!("sam/{number}"), b"");
    }
    let answer = find("/sam", "Depth: 1\r\n", b"").is(207);
    assert_eq!(
        multistatus::read(&answer.body, Hrefs::Encoded)
            .unwrap()
            .len(),
        5002
    );
    let page = ask(&site, "GET", "/sam/", KIM, b"").is(200);
    assert!(page.header("content-type").starts_with("text/html"));
    assert!(
        page.header("content-security-policy")
            .starts_with("default-src 'none'")
    );
    assert!(page.text().contains(">&lt;&amp;&gt;</a>") && page.text().ends_with("</html>\n"));
}

#[test]
fn logins_have_the_rights_that_they_have_by_ftp() {
    let site = site();
    site.server.write("sam/f", b"sam's");
    let answer = ask(&site, "GET", "/f", "", b"").is(401);
    assert!(answer.headers.contains_key("www-authenticate"));
    ask(
        &site,
        "GET",
        "/f",
        "Authorization: Basic a2ltOndyb25n\r\n",
        b"",
    )
    .is(401);
    ask(&site, "GET", "/f", "Authorization: Digest x\r\n", b"").is(401);
    assert_eq!(
        ask(&site, "GET", "/sam/f", SAM, b"").is(200).text(),
        "sam's"
    );
    ask(&site, "GET", "/f", SAM, b"").is(403);
    ask(&site, "PUT", "/sam/g", SAM, b"x").is(403);
    ask(&site, "DELETE", "/sam/f", SAM, b"").is(403);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.unwrap().as_secs();
    let token = |scope: &str, ends: u64| {
        let claims = json!({
            "iss": ISSUER, "sub": "robot", "aud": AUDIENCE, "exp": ends, "wlcg.ver": "1.0",
            "scope": scope,
        });
        format!("Authorization: Bearer {}\r\n", site.issuer.token(&claims))
    };
    let creates = token("storage.create:/sam", now + 600);
    ask(&site, "PUT", "/sam/new", &creates, b"new").is(201);
    ask(&site, "PUT", "/sam/new", &creates, b"other").is(403);
    ask(&site, "GET", "/sam/new", &creates, b"").is(403);
    ask(&site, "PUT", "/sa", &creates, b"x").is(403);
    assert_eq!(site.server.read("sam/new"), b"new");
    assert_eq!(names(&site, "sam"), ["f", "new"]);
    let reads = token("storage.read:/sam", now + 600);
    assert_eq!(
        ask(&site, "GET", "/sam/new", &reads, b"").is(200).text(),
        "new"
    );
    ask(&site, "DELETE", "/sam/new", &reads, b"").is(403);
    ask(&site, "GET", "/f", &reads, b"").is(403);
    ask(
        &site,
        "GET",
        "/sam/f",
        &token("storage.read:/", now - 600),
        b"",
    )
    .is(401);
}

#[test]
fn guesses_are_slowed_down_as_by_ftp() {
    let site = Site::with(
        Wishes {
            https: true,
            ..Wishes::default()
        },
        |settings| settings.bounds.free_failures = 2,
    );
    let guess = || {
        ask(
            &site,
            "GET",
            "/",
            "Authorization: Basic a2ltOndyb25n\r\n",
            b"",
        )
    };
    guess().is(401);
    guess().is(401);
    guess().is(401);
    // The connection itself is refused now, or the login is.
    let socket = TcpStream::connect(site.server.https.unwrap()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(matches!((&socket).read(&mut [0; 1]), Ok(0) | Err(_)));
}

#[test]
fn certificates_and_visitors_log_in_without_a_header() {
    let site = Site::new(Wishes {
        https: true,
        with_grid: true,
        anonymous: true,
        ..Wishes::default()
    });
    site.server.write("f", b"x");
    ask(&site, "GET", "/f", "", b"").is(200);
    // A visitor may have an account.
    let refused = ask(&site, "PUT", "/g", "", b"x").is(401);
    assert!(refused.headers.contains_key("www-authenticate"));
    let mut stream = connect(&site, Some("jo.pem"));
    ask_on(&mut stream, "PUT", "/g", "", b"x").unwrap().is(201);
    assert_eq!(site.server.read("g"), b"x");
}

#[test]
fn one_connection_serves_several_users_in_turn() {
    let site = site();
    let mut stream = connect(&site, None);
    assert_eq!(
        stream.ssl().selected_alpn_protocol(),
        Some(&b"http/1.1"[..])
    );
    let mut status = |credentials| {
        ask_on(&mut stream, "HEAD", "/f", credentials, b"")
            .unwrap()
            .status
    };
    assert_eq!([KIM, KIM, SAM, KIM].map(&mut status), [200, 200, 403, 200]);
}

#[test]
fn slow_and_large_heads_are_cut_off() {
    let site = Site::with(
        Wishes {
            https: true,
            ..Wishes::default()
        },
        |settings| {
            settings.login_limit = Duration::from_secs(1);
            settings.data_limit = Duration::from_secs(1);
        },
    );
    let ends = |what: &str, begin: &dyn Fn() -> Option<SslStream<TcpStream>>| {
        let since = Instant::now();
        if let Some(mut stream) = begin() {
            let _ = stream.read_to_end(&mut Vec::new());
        }
        assert!(since.elapsed() < PATIENCE, "{what}");
    };
    ends("no request", &|| Some(connect(&site, None)));
    ends("half a head", &|| {
        let mut stream = connect(&site, None);
        stream.write_all(b"GET / HTTP/1.1\r\nHost: ").unwrap();
        Some(stream)
    });
    ends("half a body", &|| {
        let mut stream = connect(&site, None);
        let head = format!("PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n{KIM}\r\nx");
        stream.write_all(head.as_bytes()).unwrap();
        Some(stream)
    });
    ends("no handshake", &|| {
        let mut socket = TcpStream::connect(site.server.https.unwrap()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = socket.read_to_end(&mut Vec::new());
        None
    });
    assert!(names(&site, "") == ["sam"]);
    ask(
        &site,
        "GET",
        "/",
        &format!("X: {}\r\n", "x".repeat(100_000)),
        b"",
    )
    .is(431);
    ask(&site, "GET", "/", &"X: x\r\n".repeat(100), b"").is(431);
}

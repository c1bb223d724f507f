//! Copies between two servers of HTTP: one of them carries it out, and the client believes nothing
//! that it has not seen.

use std::{
    fs,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use godwit_server::{Anonymous, CopyAuthorities, CopySettings, ServerSettings};

use crate::{
    harness::{bytes, run, tree},
    https::Door,
};

/// A door that may copy from and to `other`.
fn with_copies(other: &Door, anonymous: Anonymous) -> Door {
    Door::open_with(|settings: &mut ServerSettings| {
        settings.anonymous = anonymous;
        settings.copies = Some(CopySettings {
            hosts: vec!["127.0.0.0/8".parse().unwrap()],
            authorities: CopyAuthorities::File(other.ca()),
            ..CopySettings::default()
        });
    })
}

fn without_copies(anonymous: Anonymous) -> Door {
    Door::open_with(|settings: &mut ServerSettings| {
        settings.anonymous = anonymous;
        settings.copies = None;
    })
}

#[test]
fn the_server_that_receives_gets_files_and_trees() {
    let source = without_copies(Anonymous::Ro);
    let target = with_copies(&source, Anonymous::Off);
    target.trust(&source);
    fs::create_dir_all(source.root("tree/deep")).unwrap();
    for (name, length) in [("empty", 0), ("small", 5), ("deep/large x", 20 << 20)] {
        fs::write(source.root(&format!("tree/{name}")), bytes(length, 7)).unwrap();
    }
    let ends = [source.anonymous_url("/tree/"), target.url("/copy/")];
    target.run(&["cp", "-r", &ends[0], &ends[1]]).expect(0, &[]);
    assert_eq!(tree(&source.root("tree")), tree(&target.root("copy")));
    let large = fs::read(target.root("copy/deep/large x")).unwrap();
    assert!(large == bytes(20 << 20, 7));
    // What is there and the same is left alone, and what is surplus goes.
    fs::write(target.root("copy/more"), b"more").unwrap();
    let synced = target.run(&["sync", "--delete", &ends[0], &ends[1]]);
    synced.expect(0, &[]);
    assert!(!target.root("copy/more").exists());
}

#[test]
fn the_server_that_sends_is_asked_where_the_other_makes_no_copies() {
    let target = without_copies(Anonymous::Rw);
    let source = with_copies(&target, Anonymous::Off);
    source.trust(&target);
    let content = bytes(3 << 20, 8);
    fs::write(source.root("file"), &content).unwrap();
    let ends = [source.url("/file"), target.anonymous_url("/file")];
    let copied = source.run(&["cp", "-v", &ends[0], &ends[1]]);
    copied.expect(0, &["no COPY with other servers"]);
    assert!(fs::read(target.root("file")).unwrap() == content);
}

#[test]
fn files_of_servers_without_copies_pass_here() {
    let source = without_copies(Anonymous::Ro);
    let target = without_copies(Anonymous::Off);
    target.trust(&source);
    let content = bytes(3 << 20, 9);
    fs::write(source.root("file"), &content).unwrap();
    let ends = [source.anonymous_url("/file"), target.url("/file")];
    let copied = target.run(&["cp", "-v", &ends[0], &ends[1]]);
    copied.expect(0, &["pass through this machine"]);
    assert!(fs::read(target.root("file")).unwrap() == content);
    assert_eq!(tree(&target.root("")), ["file"]);
}

/// A server that has `/source`, answers COPY as it is told to, and then has a file of so many bytes
/// at its target, if any.
struct Liar {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Liar {
    fn start(copy: String, then: Option<u64>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let heard = Arc::clone(&asked);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (heard, copy) = (Arc::clone(&heard), copy.clone());
                // A client that goes away ends it.
                thread::spawn(move || drop(serve(&stream.unwrap(), &heard, &copy, then)));
            }
        });
        Self { address, asked }
    }

    fn asked(&self, method: &str) -> usize {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|line| line.starts_with(method)).count()
    }
}

/// Answers the requests of a connection.
fn serve(
    stream: &TcpStream,
    asked: &Mutex<Vec<String>>,
    copy: &str,
    then: Option<u64>,
) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let [mut first, mut line] = [String::new(), String::new()];
        if reader.read_line(&mut first)? == 0 {
            return Ok(());
        }
        let mut length = 0;
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line)?;
            if let Some(told) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = told.trim().parse().unwrap();
            }
        }
        reader.read_exact(&mut vec![0; length])?;
        let mut words = first.split(' ');
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        let copied = {
            let mut asked = asked.lock().unwrap();
            asked.push(first.clone());
            asked.iter().any(|line| line.starts_with("COPY"))
        };
        let size = match path {
            "/source" => Some(5),
            _ => then.filter(|_| copied),
        };
        let answer = match (method, size) {
            ("OPTIONS", _) => "HTTP/1.1 200 OK\r\nDAV: 1\r\nContent-Length: 0\r\n\r\n".to_owned(),
            ("COPY", _) => copy.to_owned(),
            ("PROPFIND", Some(size)) => multistatus(
                path,
                &format!("<D:getcontentlength>{size}</D:getcontentlength><D:resourcetype/>"),
            ),
            ("PROPFIND", None) if path == "/" => {
                multistatus(path, "<D:resourcetype><D:collection/></D:resourcetype>")
            }
            ("HEAD", Some(size)) => format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n"),
            ("MOVE" | "DELETE", _) => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
            _ => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned(),
        };
        (&*stream).write_all(answer.as_bytes())?;
        if method == "COPY" && !copy.contains("Content-Length") {
            return Ok(());
        }
    }
}

fn multistatus(path: &str, properties: &str) -> String {
    let body = format!(
        "<?xml version=\"1.0\"?><D:multistatus xmlns:D=\"DAV:\"><D:response><D:href>{path}</D:href>\
         <D:propstat><D:prop>{properties}</D:prop><D:status>HTTP/1.1 200 OK</D:status>\
         </D:propstat></D:response></D:multistatus>"
    );
    let length = body.len();
    format!("HTTP/1.1 207 Multi-Status\r\nContent-Length: {length}\r\n\r\n{body}")
}

#[test]
fn no_claim_of_success_is_believed_without_the_file() {
    const MARKER: &str = "Perf Marker\nTimestamp: 1\nStripe Index: 0\n\
        Stripe Bytes Transferred: 5\nTotal Stripe Count: 1\nEnd\n";
    let head = "HTTP/1.1 202 Accepted\r\nConnection: close\r\n\r\n";
    let empty = "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n";
    for (copy, then, why) in [
        (
            format!("{head}{MARKER}success: Created\n"),
            None,
            "no such file",
        ),
        (
            format!("{head}{MARKER}success: Created\n"),
            Some(4),
            "4 bytes arrived",
        ),
        (
            format!("{head}{MARKER}failure: Remote side failed with status code 404\n"),
            Some(5),
            "404",
        ),
        (format!("{head}{MARKER}"), Some(5), "ended before it said"),
        (empty.to_owned(), None, "no such file"),
    ] {
        let liar = Liar::start(copy.clone(), then);
        let url = |path: &str| format!("http://{}{path}", liar.address);
        let copied = run(&[
            "cp",
            "--retries",
            "1",
            "--no-verify",
            &url("/source"),
            &url("/target"),
        ]);
        assert_ne!(copied.code, 0, "{copy}");
        assert!(copied.err.contains(why), "{copy}: {}", copied.err);
        assert!(liar.asked("COPY") > 0 && liar.asked("MOVE") == 0, "{copy}");
    }
    // The same with the truth.
    let liar = Liar::start(format!("{head}{MARKER}success: Created\n"), Some(5));
    let url = |path: &str| format!("http://{}{path}", liar.address);
    run(&["cp", "--no-verify", &url("/source"), &url("/target")]).expect(0, &[]);
    assert_eq!(liar.asked("MOVE"), 1);
}

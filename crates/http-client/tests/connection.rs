//! Connections to a server that says what a test lets it say.
#![allow(clippy::unwrap_used)]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use godwit_http_client::{
    Answer, Body, Bytes, Cause, Connection, Connector, Limits, Method, Origin, Policy, Request,
    Step, Url, body,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

fn anywhere() -> Policy {
    Arc::new(|_, _| true)
}

fn short() -> Limits {
    Limits {
        answer: Duration::from_millis(500),
        silence: Duration::from_millis(500),
        go_ahead: Duration::from_millis(300),
        ..Limits::default()
    }
}

/// A server that calls `talk` with its only connection.
async fn server<F, T>(talk: F) -> Origin
where
    F: FnOnce(TcpStream) -> T + Send + 'static,
    T: Future<Output = ()> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        talk(socket).await;
    });
    Url::parse(&format!("http://localhost:{port}/"))
        .unwrap()
        .origin
}

async fn connect(origin: &Origin, limits: Limits) -> Connection {
    let connector = Connector::new(None, anywhere(), limits);
    connector.connect(origin).await.unwrap()
}

/// Reads a head.
async fn head(socket: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.unwrap());
    }
    lower(&String::from_utf8(head).unwrap())
}

/// With names of headers in lower case.
fn lower(head: &str) -> String {
    let (first, rest) = head.split_once("\r\n").unwrap();
    format!("{first}\r\n{}", rest.to_ascii_lowercase())
}

/// A server that reads one request's head, says `text` and keeps silent.
async fn saying(text: impl Into<Vec<u8>>) -> Origin {
    let text = text.into();
    server(async move |mut socket| {
        head(&mut socket).await;
        let _ = socket.write_all(&text).await;
        let mut rest = Vec::new();
        let _ = socket.read_to_end(&mut rest).await;
    })
    .await
}

fn get() -> Request {
    Request::new(Method::GET, "/f%2f?q")
}

async fn answer(text: impl Into<Vec<u8>>) -> Result<(Connection, Answer), Cause> {
    let mut connection = connect(&saying(text).await, short()).await;
    let answer = connection.send(get()).await;
    answer
        .map(|answer| (connection, answer))
        .map_err(|error| error.cause)
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let origin = server(async |mut socket| {
        let first = head(&mut socket).await;
        assert!(first.starts_with("GET /f%2f?q HTTP/1.1\r\n"), "{first}");
        assert!(first.contains("host: localhost:"), "{first}");
        socket
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc")
            .await
            .unwrap();
        let second = head(&mut socket).await;
        assert!(second.contains("content-length: 0"), "{second}");
        let chunked = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n\
            2\r\nde\r\n1\r\nf\r\n0\r\nDigest: x\r\n\r\n";
        socket.write_all(chunked).await.unwrap();
        head(&mut socket).await;
        socket
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
            .await
            .unwrap();
    })
    .await;
    let mut connection = connect(&origin, Limits::default()).await;
    let mut answer = connection.send(get()).await.unwrap();
    assert_eq!(answer.bytes(), Some(3));
    assert!(!connection.is_reusable().await, "the body is unread");
    assert_eq!(answer.whole(3).await.unwrap(), b"abc");
    assert!(connection.is_reusable().await);
    let put = Request::new(Method::PUT, "/f");
    let mut answer = connection.send(put).await.unwrap();
    assert_eq!(answer.status.as_u16(), 201);
    assert_eq!(answer.whole(100).await.unwrap(), b"def");
    let head = Request::new(Method::HEAD, "/f");
    let answer = connection.send(head).await.unwrap();
    assert_eq!(answer.bytes(), Some(9));
}

#[tokio::test]
async fn what_is_no_answer_is_an_error() {
    let many = "X: y\r\n".repeat(1000);
    let long = format!("X: {}\r\n", "y".repeat(100_000));
    for text in [
        "220 FTP\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
    ] {
        assert!(
            matches!(answer(text).await, Err(Cause::Protocol(_))),
            "{text}"
        );
    }
    for headers in [many, long] {
        let text = format!("HTTP/1.1 200 OK\r\n{headers}\r\n");
        assert!(matches!(answer(text).await, Err(Cause::Protocol(_))));
    }
    assert!(matches!(answer("HTTP/1.1 2").await, Err(Cause::Timeout(_))));
    assert!(matches!(answer("").await, Err(Cause::Timeout(_))));
}

#[tokio::test]
async fn interim_answers_do_not_keep_a_connection_waiting() {
    let origin = server(async |mut socket| {
        head(&mut socket).await;
        while socket
            .write_all(b"HTTP/1.1 102 Processing\r\n\r\n")
            .await
            .is_ok()
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let sent = connect(&origin, short()).await.send(get()).await;
    assert!(matches!(sent.err().unwrap().cause, Cause::Timeout(_)));
}

#[tokio::test]
async fn bodies_that_end_early_or_stop_are_errors() {
    let (_connection, mut cut) = answer("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
        .await
        .unwrap();
    assert_eq!(cut.chunk().await.unwrap().unwrap(), "abc");
    let error = cut.chunk().await.unwrap_err();
    assert!(matches!(error.cause, Cause::Timeout(_)) && error.is_transient());
    let origin = server(async |mut socket| {
        head(&mut socket).await;
        socket
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
            .await
            .unwrap();
    })
    .await;
    let mut connection = connect(&origin, short()).await;
    let error = connection
        .send(get())
        .await
        .unwrap()
        .whole(9)
        .await
        .unwrap_err();
    assert!(matches!(error.cause, Cause::Closed) && error.step == Step::Body);
}

#[tokio::test]
async fn a_long_text_is_not_read_to_its_end() {
    let text = format!(
        "HTTP/1.1 500 no\r\nContent-Length: 99999\r\n\r\n\x1b{}",
        "y".repeat(99_998)
    );
    let (_connection, mut failed) = answer(text.clone()).await.unwrap();
    let reason = failed.reason().await;
    assert!(reason.len() <= 256 && !reason.contains('\x1b'), "{reason}");
    let (_connection, mut failed) = answer(text).await.unwrap();
    assert!(failed.whole(1000).await.is_err());
}

#[tokio::test]
async fn a_body_waits_until_the_server_wants_it() {
    let origin = server(async |mut socket| {
        let request = head(&mut socket).await;
        assert!(request.contains("expect: 100-continue"), "{request}");
        socket
            .write_all(b"HTTP/1.1 100 Continue\r\n\r\n")
            .await
            .unwrap();
        let mut body = [0; 6];
        socket.read_exact(&mut body).await.unwrap();
        assert_eq!(&body, b"abcdef");
        socket
            .write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
            .await
            .unwrap();
        let _ = socket.read_u8().await;
    })
    .await;
    let limits = Limits {
        go_ahead: Duration::from_secs(60),
        ..Limits::default()
    };
    let mut connection = connect(&origin, limits).await;
    let (sender, body) = body::channel(Some(6));
    let put = Request::new(Method::PUT, "/f")
        .with_body(body)
        .expecting_continue();
    let making = async {
        for chunk in ["abc", "def"] {
            sender.send(Bytes::from(chunk)).await.unwrap();
        }
    };
    let (answer, ()) = tokio::join!(connection.send(put), making);
    assert_eq!(answer.unwrap().status.as_u16(), 201);
    assert!(connection.is_reusable().await);
}

#[tokio::test]
async fn a_body_that_the_server_does_not_want_stays_here() {
    let origin = server(async |mut socket| {
        head(&mut socket).await;
        socket
            .write_all(b"HTTP/1.1 307 x\r\nLocation: /g\r\nContent-Length: 0\r\n\r\n")
            .await
            .unwrap();
        let mut rest = Vec::new();
        socket.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"");
    })
    .await;
    let mut connection = connect(&origin, Limits::default()).await;
    let put = Request::new(Method::PUT, "/f").with_body(Body::Bytes("abc".into()));
    let answer = connection.send(put.expecting_continue()).await.unwrap();
    assert_eq!(answer.status.as_u16(), 307);
    assert!(!connection.is_reusable().await);
}

#[tokio::test]
async fn a_server_that_ignores_the_question_gets_the_body() {
    let origin = server(async |mut socket| {
        head(&mut socket).await;
        socket.read_exact(&mut [0; 3]).await.unwrap();
        socket
            .write_all(b"HTTP/1.1 201 x\r\nContent-Length: 0\r\n\r\n")
            .await
            .unwrap();
        let _ = socket.read_u8().await;
    })
    .await;
    let limits = Limits {
        go_ahead: Duration::from_millis(50),
        ..Limits::default()
    };
    let mut connection = connect(&origin, limits).await;
    let put = Request::new(Method::PUT, "/f").with_body(Body::Bytes("abc".into()));
    let answer = connection.send(put.expecting_continue()).await.unwrap();
    assert_eq!(answer.status.as_u16(), 201);
}

#[tokio::test]
async fn a_server_that_reads_nothing_is_given_up() {
    let origin = server(async |socket| {
        tokio::time::sleep(Duration::from_secs(60)).await;
        drop(socket);
    })
    .await;
    let mut connection = connect(&origin, short()).await;
    let (sender, body) = body::channel(Some(1 << 30));
    let making = async {
        let chunk = Bytes::from(vec![0; 1 << 20]);
        while sender.send(chunk.clone()).await.is_ok() {}
    };
    let put = Request::new(Method::PUT, "/f").with_body(body);
    let sent = tokio::select! {
        sent = connection.send(put) => sent,
        () = making => panic!("the body is not that long"),
    };
    assert!(matches!(sent.err().unwrap().cause, Cause::Timeout(_)));
}

#[tokio::test]
async fn a_body_that_ends_early_is_no_whole_one() {
    let origin = saying("").await;
    let mut connection = connect(&origin, Limits::default()).await;
    let (sender, body) = body::channel(Some(10));
    let making = async move {
        sender.send(Bytes::from("abc")).await.unwrap();
    };
    let put = Request::new(Method::PUT, "/f").with_body(body);
    let (sent, ()) = tokio::join!(connection.send(put), making);
    assert!(matches!(sent.err().unwrap().cause, Cause::OwnBody));
}

#[tokio::test]
async fn a_body_without_a_length_is_sent_in_chunks() {
    let origin = server(async |mut socket| {
        let request = head(&mut socket).await;
        assert!(request.contains("transfer-encoding: chunked"), "{request}");
        let mut body = [0; 13];
        socket.read_exact(&mut body).await.unwrap();
        assert_eq!(&body, b"3\r\nabc\r\n0\r\n\r\n");
        socket
            .write_all(b"HTTP/1.1 201 x\r\nContent-Length: 0\r\n\r\n")
            .await
            .unwrap();
        let _ = socket.read_u8().await;
    })
    .await;
    let mut connection = connect(&origin, Limits::default()).await;
    let (sender, body) = body::channel(None);
    let making = async move {
        sender.send(Bytes::from("abc")).await.unwrap();
    };
    let put = Request::new(Method::PUT, "/f").with_body(body);
    let (answer, ()) = tokio::join!(connection.send(put), making);
    assert_eq!(answer.unwrap().status.as_u16(), 201);
    assert!(connection.is_reusable().await);
}

#[tokio::test]
async fn the_policy_is_asked_about_each_address() {
    let origin = server(async |_| {}).await;
    let nowhere: Policy = Arc::new(|_, address| !address.ip().is_loopback());
    let connector = Connector::new(None, nowhere, Limits::default());
    let port = origin.port;
    for host in ["localhost", "127.0.0.1", "2130706433", "0x7f.1", "::1"] {
        let origin = Origin {
            host: host.to_owned(),
            port,
            ..origin.clone()
        };
        let error = connector.connect(&origin).await.err().unwrap();
        assert!(matches!(error.cause, Cause::Refused(_)), "{host}: {error}");
    }
}

#[tokio::test]
async fn dropping_a_connection_closes_it() {
    let (closed, sees) = tokio::sync::oneshot::channel();
    let origin = server(async move |mut socket| {
        head(&mut socket).await;
        let mut rest = Vec::new();
        let _ = socket.read_to_end(&mut rest).await;
        closed.send(()).unwrap();
    })
    .await;
    let begin = Instant::now();
    let mut connection = connect(&origin, Limits::default()).await;
    tokio::select! {
        _ = connection.send(get()) => panic!("no answer was given"),
        () = tokio::time::sleep(Duration::from_millis(50)) => {}
    }
    drop(connection);
    sees.await.unwrap();
    assert!(begin.elapsed() < Duration::from_secs(30));
}

//! As much of HTTP/1.1 as a scrape takes: GET of two paths, one answer a connection, everything
//! bounded.
//!
//! With privilege separation the privileged monitor answers. So it uses only the first line of a
//! request, and compares that with known ones.

use std::{io, sync::Arc, time::Duration};

use godwit_engine::host::prometheus_text::CONTENT_TYPE;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::{JoinSet, spawn_blocking},
    time::{sleep, timeout},
};
use tracing::debug;

use super::Metrics;

/// Bytes of a request, which ends with an empty line.
const HEAD_MAX: usize = 8 * 1024;

/// Requests at a time; more wait in the kernel.
const REQUESTS_MAX: usize = 16;

/// Time from the first byte of a request to the last of its answer.
const LIMIT: Duration = Duration::from_secs(5);

/// Pause after an accept that failed for lack of descriptors or memory.
const REST: Duration = Duration::from_millis(100);

/// Bytes behind a request that are read so that its answer is not lost.
const BEHIND_MAX: usize = 64 * 1024;

/// Answers forever.
pub(crate) async fn serve(listener: TcpListener, metrics: Arc<Metrics>) {
    let mut requests = JoinSet::new();
    loop {
        while requests.len() >= REQUESTS_MAX {
            drop(requests.join_next().await);
        }
        // Tasks that have ended are removed.
        while requests.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((socket, peer)) => {
                let metrics = Arc::clone(&metrics);
                requests.spawn(async move {
                    match timeout(LIMIT, answer(socket, &metrics)).await {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => debug!(%peer, %error, "a request for metrics broke"),
                        Err(_) => debug!(%peer, "a request for metrics took too long"),
                    }
                });
            }
            Err(error) => {
                debug!(%error, "cannot accept a request for metrics");
                sleep(REST).await;
            }
        }
    }
}

async fn answer(mut socket: TcpStream, metrics: &Arc<Metrics>) -> io::Result<()> {
    let mut head = Vec::new();
    let asked = loop {
        if head.windows(4).any(|end| end == b"\r\n\r\n") {
            break asked_for(&head);
        }
        if head.len() >= HEAD_MAX {
            break Asked::TooLong;
        }
        let mut bytes = [0; 1024];
        match socket.read(&mut bytes).await? {
            0 => return Ok(()),
            count => head.extend_from_slice(&bytes[..count]),
        }
    };
    let (status, kind, body) = match asked {
        Asked::Metrics => {
            let metrics = Arc::clone(metrics);
            let text = spawn_blocking(move || metrics.prometheus_text()).await;
            ("200 OK", CONTENT_TYPE, text.map_err(io::Error::other)?)
        }
        Asked::Root => ("200 OK", TEXT, "godwitd: see /metrics\n".to_owned()),
        Asked::Unknown => ("404 Not Found", TEXT, "see /metrics\n".to_owned()),
        Asked::OtherMethod => ("405 Method Not Allowed", TEXT, "GET alone\n".to_owned()),
        Asked::Nonsense => ("400 Bad Request", TEXT, "this is HTTP/1.1\n".to_owned()),
        Asked::TooLong => (
            "431 Request Header Fields Too Large",
            TEXT,
            "too long\n".to_owned(),
        ),
    };
    let allow = match asked {
        Asked::OtherMethod => "Allow: GET\r\n",
        _ => "",
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         {allow}Connection: close\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await?;
    socket.write_all(body.as_bytes()).await?;
    socket.shutdown().await?;
    // Closing with bytes unread would reset the connection under the answer.
    let mut behind = socket.take(BEHIND_MAX as u64);
    tokio::io::copy(&mut behind, &mut tokio::io::sink()).await?;
    Ok(())
}

const TEXT: &str = "text/plain; charset=utf-8";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Metrics,
    Root,
    Unknown,
    OtherMethod,
    Nonsense,
    TooLong,
}

/// Depends on the first line only.
fn asked_for(head: &[u8]) -> Asked {
    let line = head.split(|&byte| byte == b'\r').next();
    let line = line.and_then(|line| std::str::from_utf8(line).ok());
    let words: Vec<&str> = line.unwrap_or_default().split(' ').collect();
    let [method, target, "HTTP/1.0" | "HTTP/1.1"] = words[..] else {
        return Asked::Nonsense;
    };
    if method != "GET" {
        return Asked::OtherMethod;
    }
    match target.split('?').next() {
        Some("/metrics") => Asked::Metrics,
        Some("/") => Asked::Root,
        _ => Asked::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_paths_are_known() {
        for (head, asked) in [
            (
                &b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"[..],
                Asked::Metrics,
            ),
            (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", Asked::Metrics),
            (b"GET / HTTP/1.1\r\n\r\n", Asked::Root),
            (b"GET /metrics/../etc HTTP/1.1\r\n\r\n", Asked::Unknown),
            (b"GET //metrics HTTP/1.1\r\n\r\n", Asked::Unknown),
            (b"POST /metrics HTTP/1.1\r\n\r\n", Asked::OtherMethod),
            (b"GET /metrics\r\n\r\n", Asked::Nonsense),
            (b"GET  /metrics HTTP/1.1\r\n\r\n", Asked::Nonsense),
            (b"GET /metrics HTTP/2\r\n\r\n", Asked::Nonsense),
            (b"\xff\xfe /metrics HTTP/1.1\r\n\r\n", Asked::Nonsense),
            (b"\r\n\r\n", Asked::Nonsense),
        ] {
            assert_eq!(
                asked_for(head),
                asked,
                "{:?}",
                head.escape_ascii().to_string()
            );
        }
    }
}

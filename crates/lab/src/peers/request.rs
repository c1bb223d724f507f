//! One request over HTTP without TLS, to a process of ours.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use godwit_service_api::IDEMPOTENCY_KEY;
use serde_json::Value;

/// Status and body.
pub(crate) type Answer = (u16, Vec<u8>);

/// Longest wait for a text without a login. A process that stands still gives none.
const FETCH_LIMIT: Duration = Duration::from_secs(4);

/// Asks a service, as the owner of a token, and waits at most `limit` for each part of the answer.
/// `key`: the same key submits the same job.
pub(crate) fn exchange(
    node: SocketAddr,
    token: &str,
    method: &str,
    path: &str,
    body: Option<&Value>,
    key: Option<&str>,
    limit: Duration,
) -> io::Result<Answer> {
    let mut connection = TcpStream::connect(node)?;
    connection.set_read_timeout(Some(limit))?;
    let body = body.map_or(String::new(), Value::to_string);
    let key = key.map_or(String::new(), |key| format!("{IDEMPOTENCY_KEY}: {key}\r\n"));
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {node}\r\nauthorization: Bearer {token}\r\n{key}\
         connection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    connection.write_all(head.as_bytes())?;
    connection.write_all(body.as_bytes())?;
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer)?;
    let odd = || io::Error::from(io::ErrorKind::InvalidData);
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n");
    let body = answer.split_off(end.ok_or_else(odd)? + 4);
    let head = String::from_utf8_lossy(&answer);
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    Ok((status.ok_or_else(odd)?, body))
}

/// The text at a URL without a login.
pub(crate) fn fetch(address: SocketAddr, path: &str) -> io::Result<String> {
    let (_, body) = exchange(address, "none", "GET", path, None, None, FETCH_LIMIT)?;
    Ok(String::from_utf8_lossy(&body).into_owned())
}

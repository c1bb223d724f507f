//! A connection that asks one request after the other. It costs far less processor time than a
//! whole client, of which a thousand would outweigh the service.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The service ends connections that rest for a minute.
const REST_MAX: Duration = Duration::from_secs(30);

/// Bytes of a part of a long request.
const PART_BYTES: usize = 64 << 10;

/// A client of the service.
#[derive(Debug)]
pub struct Http {
    address: SocketAddr,
    token: String,
    stream: Option<(TcpStream, Instant)>,
    buffer: Vec<u8>,
}

impl Http {
    /// Connects with the first request.
    pub fn new(address: SocketAddr, token: &str) -> Http {
        Http {
            address,
            token: token.to_owned(),
            stream: None,
            buffer: Vec::new(),
        }
    }

    /// Status and body of the answer.
    ///
    /// # Errors
    /// The connection breaks.
    pub async fn ask(
        &mut self,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> io::Result<(u16, Vec<u8>)> {
        let more = format!(
            "content-type: application/json\r\ncontent-length: {}\r\n",
            body.len()
        );
        let mut request = self.head(method, path, &more).into_bytes();
        request.extend_from_slice(body);
        let mut stream = self.connected().await?;
        stream.write_all(&request).await?;
        self.answer(stream).await
    }

    /// What a request that must succeed is answered with.
    ///
    /// # Errors
    /// The connection breaks, or the service refuses.
    pub async fn must<T: DeserializeOwned>(
        &mut self,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> io::Result<T> {
        let answer = self.ask(method, path, body).await?;
        parse(method, path, answer)
    }

    /// Submits a job, a line a file.
    ///
    /// # Errors
    /// The connection breaks, or the service refuses.
    pub async fn upload<T: DeserializeOwned>(
        &mut self,
        path: &str,
        lines: impl Iterator<Item = String>,
    ) -> io::Result<T> {
        let more = "content-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n";
        let head = self.head("POST", path, more);
        let mut stream = self.connected().await?;
        stream.write_all(head.as_bytes()).await?;
        let mut part = String::with_capacity(2 * PART_BYTES);
        for line in lines {
            part += &line;
            if part.len() >= PART_BYTES {
                write_part(&mut stream, &part).await?;
                part.clear();
            }
        }
        if !part.is_empty() {
            write_part(&mut stream, &part).await?;
        }
        stream.write_all(b"0\r\n\r\n").await?;
        let answer = self.answer(stream).await?;
        parse("POST", path, answer)
    }

    fn head(&self, method: &str, path: &str, more: &str) -> String {
        let Http { address, token, .. } = self;
        format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\
             {more}\r\n"
        )
    }

    async fn connected(&mut self) -> io::Result<TcpStream> {
        if let Some((stream, used)) = self.stream.take()
            && used.elapsed() < REST_MAX
        {
            return Ok(stream);
        }
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Reads an answer; its body has a length, as all short answers of the service have.
    async fn answer(&mut self, mut stream: TcpStream) -> io::Result<(u16, Vec<u8>)> {
        self.buffer.clear();
        let (head_bytes, status, length) = loop {
            if stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(head) = head_of(&self.buffer)? {
                break head;
            }
        };
        let mut body = self.buffer.split_off(head_bytes);
        body.reserve_exact(length.saturating_sub(body.len()));
        while body.len() < length {
            if stream.read_buf(&mut body).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        self.stream = Some((stream, Instant::now()));
        Ok((status, body))
    }
}

async fn write_part(stream: &mut TcpStream, part: &str) -> io::Result<()> {
    let part = format!("{:x}\r\n{part}\r\n", part.len());
    stream.write_all(part.as_bytes()).await
}

fn parse<T: DeserializeOwned>(
    method: &str,
    path: &str,
    (status, body): (u16, Vec<u8>),
) -> io::Result<T> {
    if !(200..300).contains(&status) {
        let text = String::from_utf8_lossy(&body);
        let refused = format!("{method} {path} is answered with {status}: {text}");
        return Err(io::Error::other(refused));
    }
    Ok(serde_json::from_slice(&body)?)
}

/// Length of a head that is complete, its status and the length of the body.
fn head_of(bytes: &[u8]) -> io::Result<Option<(usize, u16, usize)>> {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Ok(None);
    };
    let odd = || io::Error::new(io::ErrorKind::InvalidData, "an answer without a length");
    let head = std::str::from_utf8(&bytes[..end]).map_err(io::Error::other)?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1));
    let status = status.and_then(|status| status.parse().ok());
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse().ok()).flatten()
    });
    let (status, length) = status.zip(length).ok_or_else(odd)?;
    Ok(Some((end + 4, status, length)))
}

#[cfg(test)]
mod tests {
    use super::head_of;

    #[test]
    fn a_head_says_status_and_length() {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nx: y\r\n\r\nhello";
        assert_eq!(head_of(head).unwrap(), Some((44, 200, 5)));
        assert_eq!(head_of(&head[..40]).unwrap(), None);
        assert!(head_of(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}

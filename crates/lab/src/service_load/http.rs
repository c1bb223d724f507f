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
    /// The header that says who asks.
    evidence: String,
    stream: Option<(TcpStream, Instant)>,
    buffer: Vec<u8>,
}

impl Http {
    /// Connects with the first request.
    pub fn new(address: SocketAddr, token: &str) -> Http {
        Http {
            address,
            evidence: format!("authorization: Bearer {token}"),
            stream: None,
            buffer: Vec::new(),
        }
    }

    /// Connects as a browser whose session has begun with `token`.
    ///
    /// # Errors
    /// The connection breaks, or the service refuses.
    pub async fn browser(address: SocketAddr, token: &str) -> io::Result<Http> {
        let mut http = Http {
            address,
            evidence: format!("origin: http://{address}"),
            stream: None,
            buffer: Vec::new(),
        };
        let form = format!("token={token}");
        let more = format!(
            "content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n",
            form.len()
        );
        let request = http.head("POST", "/login", &more) + &form;
        let mut stream = http.connected().await?;
        stream.write_all(request.as_bytes()).await?;
        let (status, _) = http.answer(stream).await?;
        // The head of the answer.
        let head = String::from_utf8_lossy(&http.buffer).into_owned();
        let cookie = head.split("\r\n").find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            let pair = value.split(';').next()?;
            (name.eq_ignore_ascii_case("set-cookie")).then(|| pair.to_owned())
        });
        let refused = || io::Error::other(format!("a login is answered with {status}"));
        http.evidence = format!("cookie: {}", cookie.ok_or_else(refused)?);
        Ok(http)
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
        let Http {
            address, evidence, ..
        } = self;
        format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\n{evidence}\r\n{more}\r\n")
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

    /// Reads an answer.
    async fn answer(&mut self, mut stream: TcpStream) -> io::Result<(u16, Vec<u8>)> {
        self.buffer.clear();
        let Head {
            bytes,
            status,
            length,
        } = loop {
            if stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(head) = head_of(&self.buffer)? {
                break head;
            }
        };
        let mut body = self.buffer.split_off(bytes);
        match length {
            Some(length) => read_to(&mut stream, &mut body, length).await?,
            None => body = read_parts(&mut stream, body).await?,
        }
        self.stream = Some((stream, Instant::now()));
        Ok((status, body))
    }
}

async fn write_part(stream: &mut TcpStream, part: &str) -> io::Result<()> {
    let part = format!("{:x}\r\n{part}\r\n", part.len());
    stream.write_all(part.as_bytes()).await
}

/// Reads until so many bytes are there.
async fn read_to(stream: &mut TcpStream, bytes: &mut Vec<u8>, length: usize) -> io::Result<()> {
    while bytes.len() < length {
        // A read has the room that is there, which would be a few bytes.
        bytes.reserve(PART_BYTES);
        if stream.read_buf(bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

/// Reads a body that comes in parts (RFC 9112, 7.1), of which `read` is there.
async fn read_parts(stream: &mut TcpStream, mut read: Vec<u8>) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line_end = loop {
            if let Some(end) = read.windows(2).position(|window| window == b"\r\n") {
                break end;
            }
            let more = read.len() + 1;
            read_to(stream, &mut read, more).await?;
        };
        let size = std::str::from_utf8(&read[..line_end]).map_err(io::Error::other)?;
        let size = usize::from_str_radix(size, 16).map_err(io::Error::other)?;
        let (from, to) = (line_end + 2, line_end + 2 + size);
        read_to(stream, &mut read, to + 2).await?;
        body.extend_from_slice(&read[from..to]);
        read.drain(..to + 2);
        if size == 0 {
            return Ok(body);
        }
    }
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

#[derive(Debug, PartialEq)]
struct Head {
    bytes: usize,
    status: u16,
    /// Of the body; none: it comes in parts.
    length: Option<usize>,
}

/// A head that is complete.
fn head_of(bytes: &[u8]) -> io::Result<Option<Head>> {
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
        match name.to_ascii_lowercase().as_str() {
            "content-length" => Some(Some(value.trim().parse().ok()?)),
            "transfer-encoding" => Some(None),
            _ => None,
        }
    });
    // An answer without content has no length either (RFC 9110, 8.6).
    let length = length.or((status == Some(204)).then_some(Some(0)));
    let (status, length) = status.zip(length).ok_or_else(odd)?;
    Ok(Some(Head {
        bytes: end + 4,
        status,
        length,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_says_status_and_length() {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nx: y\r\n\r\nhello";
        let of = |bytes, length| Head {
            bytes,
            status: 200,
            length,
        };
        assert_eq!(head_of(head).unwrap(), Some(of(44, Some(5))));
        assert_eq!(head_of(&head[..40]).unwrap(), None);
        let parts = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
        assert_eq!(head_of(parts).unwrap(), Some(of(47, None)));
        assert!(head_of(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
        let empty = Head {
            bytes: 27,
            status: 204,
            length: Some(0),
        };
        assert_eq!(
            head_of(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap(),
            Some(empty)
        );
    }
}

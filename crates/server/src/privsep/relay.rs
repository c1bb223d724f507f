//! A pre-login process after login: it removes the protection from commands and adds it to replies,
//! and interprets neither.

use std::{
    io,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt as _, Interest},
    net::UnixStream,
    time::{sleep_until, timeout},
};
use tracing::info;

use crate::session::{HandedOver, reply_buffer::UNSENT_PAUSE};

/// Bytes of a delegated credential: a key and a chain.
const DELEGATED_MAX: u32 = 256 * 1024;

/// Bytes taken at a time.
const READ_BYTES: usize = 16 * 1024;

/// Bytes of an incomplete reply. A longer one leaves in parts.
const REPLY_PARTS: usize = 64 * 1024;

/// Time for the session to take the first bytes.
const HAND_OVER_LIMIT: Duration = Duration::from_secs(10);

/// Relays between both until one has ended.
pub(super) async fn run(handed: HandedOver) {
    let id = handed.id();
    match begin(handed).await {
        Ok(mut relay) => match relay.join().await {
            Ok(()) => relay.handed.io.send_last_replies().await,
            Err(why) => {
                info!(session = id, %why, "the control connection ends");
                // Queued replies leave if there is room.
                drop(relay.handed.io.send());
            }
        },
        Err(error) => info!(session = id, %error, "the session ended at once"),
    }
}

/// First the delegated credential, or nothing, behind its length in four bytes.
async fn begin(mut handed: HandedOver) -> io::Result<Relay> {
    let session = std::os::unix::net::UnixStream::from(handed.take_relay()?);
    let session = UnixStream::from_std(session)?;
    let pem = handed.delegated_pem()?;
    let length = u32::try_from(pem.len()).unwrap_or(u32::MAX);
    if length > DELEGATED_MAX {
        return Err(io::Error::other("the delegated credential is too long"));
    }
    let mut to_session = Unsent::default();
    to_session.push(&length.to_be_bytes());
    to_session.push(&pem);
    to_session.push(&handed.take_held());
    let relay = Relay {
        handed,
        session,
        to_session,
        replies: Vec::new(),
    };
    let sent = timeout(HAND_OVER_LIMIT, async {
        let mut relay = relay;
        while !relay.to_session.is_empty() {
            relay.session.writable().await?;
            relay.to_session.send(&relay.session)?;
        }
        Ok(relay)
    });
    sent.await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// The session's side of [`begin`].
pub(super) async fn read_delegated(relay: &mut UnixStream) -> io::Result<Vec<u8>> {
    let length = relay.read_u32().await?;
    if length > DELEGATED_MAX {
        return Err(io::Error::other("the delegated credential is too long"));
    }
    let mut pem = vec![0; length as usize];
    relay.read_exact(&mut pem).await?;
    Ok(pem)
}

struct Relay {
    handed: HandedOver,
    session: UnixStream,
    to_session: Unsent,
    /// Replies of the session; the last may be incomplete.
    replies: Vec<u8>,
}

/// Bytes that the session has not taken yet.
#[derive(Default)]
struct Unsent {
    bytes: Vec<u8>,
    sent: usize,
}

impl Unsent {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    fn send(&mut self, to: &UnixStream) -> io::Result<()> {
        while !self.is_empty() {
            match to.try_write(&self.bytes[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.bytes.clear();
        self.sent = 0;
        Ok(())
    }
}

impl Relay {
    /// `Ok`: the session ended, and its last words are for the client, or the client said that it
    /// sends no more, which is answered.
    async fn join(&mut self) -> Result<(), String> {
        loop {
            let lost = |error: io::Error| error.to_string();
            self.handed.io.send().map_err(lost)?;
            self.to_session.send(&self.session).map_err(lost)?;
            // Each side is read only while the other one reads.
            let reads_client = self.to_session.is_empty();
            let reads_session = self.handed.io.unsent() < UNSENT_PAUSE;
            let client = interest(reads_client, self.handed.io.unsent() > 0);
            let session = interest(reads_session, !self.to_session.is_empty());
            let deadline = self.handed.io.deadline();
            tokio::select! {
                ready = self.handed.io.control.ready(client.unwrap_or(Interest::ERROR)),
                    if client.is_some() =>
                {
                    let ready = ready.map_err(lost)?;
                    if reads_client
                        && (ready.is_readable() || ready.is_read_closed())
                        && self.read_client()?
                    {
                        return Ok(());
                    }
                }
                ready = self.session.ready(session.unwrap_or(Interest::ERROR)),
                    if session.is_some() =>
                {
                    let ready = ready.map_err(lost)?;
                    if reads_session
                        && (ready.is_readable() || ready.is_read_closed())
                        && self.read_session()?
                    {
                        return Ok(());
                    }
                }
                // The session may be busy for long, and must not work for a client that has left.
                () = self.handed.io.control.closed(), if !reads_client => {
                    return Err("closed by the client".to_owned());
                }
                () = until(deadline) => return Err("the client does not read replies".to_owned()),
            }
        }
    }

    /// True if the client has closed its direction.
    fn read_client(&mut self) -> Result<bool, String> {
        let mut buffer = [0; READ_BYTES];
        match self.handed.io.control.try_read(&mut buffer) {
            Ok(0) => Err("closed by the client".to_owned()),
            Ok(count) => {
                let (commands, closed) = self.handed.open(&buffer[..count])?;
                self.to_session.push(&commands);
                Ok(closed)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }

    /// True at the end.
    fn read_session(&mut self) -> Result<bool, String> {
        let mut buffer = [0; READ_BYTES];
        let count = match self.session.try_read(&mut buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            // It ended without reading everything.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
            Err(error) => return Err(error.to_string()),
        };
        self.replies.extend_from_slice(&buffer[..count]);
        let whole = match count {
            0 => self.replies.len(),
            _ => whole_replies(&self.replies),
        };
        let replies: Vec<u8> = self.replies.drain(..whole).collect();
        if !replies.is_empty() {
            self.handed.io.push_replies(replies)?;
        }
        Ok(count == 0)
    }
}

/// Bytes up to the end of the last whole reply; of a very long one, to the end of its last line.
fn whole_replies(bytes: &[u8]) -> usize {
    let (mut end, mut whole) = (0, 0);
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        if line.last() != Some(&b'\n') {
            break;
        }
        end += line.len();
        if let [a, b, c, b' ', ..] = line
            && [a, b, c].iter().all(|byte| byte.is_ascii_digit())
        {
            whole = end;
        }
    }
    match bytes.len() > REPLY_PARTS {
        true => end,
        false => whole,
    }
}

fn interest(reads: bool, writes: bool) -> Option<Interest> {
    match (reads, writes) {
        (true, true) => Some(Interest::READABLE | Interest::WRITABLE),
        (true, false) => Some(Interest::READABLE),
        (false, true) => Some(Interest::WRITABLE),
        (false, false) => None,
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_sealed_whole() {
        for (bytes, whole) in [
            ("", 0),
            ("200 OK\r\n", 8),
            ("200 OK\r\n226", 8),
            ("200 OK\r", 0),
            ("211-F\r\n A\r\n", 0),
            ("211-F\r\n A\r\n211 E\r\n", 18),
        ] {
            assert_eq!(whole_replies(bytes.as_bytes()), whole, "{bytes:?}");
        }
        let long = format!("250-L\r\n{}", " x\r\n".repeat(20_000));
        assert_eq!(whole_replies(long.as_bytes()), long.len());
    }

    #[tokio::test]
    async fn nonsense_delegated_before_login_gets_no_session() {
        for (bytes, kind) in [
            (&[0xff; 8][..], io::ErrorKind::Other),
            (&[0, 0, 0, 9, 1], io::ErrorKind::UnexpectedEof),
            (&[0, 0], io::ErrorKind::UnexpectedEof),
        ] {
            let (mut session, mut pre_login) = UnixStream::pair().unwrap();
            tokio::io::AsyncWriteExt::write_all(&mut pre_login, bytes)
                .await
                .unwrap();
            drop(pre_login);
            let read = read_delegated(&mut session).await;
            assert_eq!(read.unwrap_err().kind(), kind, "{bytes:?}");
        }
    }
}

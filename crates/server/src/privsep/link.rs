//! A link between the monitor and a child process: to the child a socket that keeps the bounds of
//! packets and carries descriptors, back a pipe, which carries none. So a compromised process can
//! neither make the monitor keep descriptors nor make it wait while it closes them.

use crate::observe::audit::Report;
use crate::observe::event::{Entry, Progress};
use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut, Write as _},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rustix::{
    io::{Errno, retry_on_intr},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType,
        recvmsg, sendmsg, shutdown, socketpair,
    },
    pipe::{PipeFlags, pipe_with},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::Interest,
    net::{UnixDatagram, unix::pipe},
    time::{sleep_until, timeout},
};

use super::messages::{
    BadMessage, FromPreLogin, FromSession, MonitorReply, PACKET_MAX, decode, encode,
};
use crate::{
    access::identity::{LoginRequest, Monitor},
    config::NodeAddress,
    error::WhoActs,
    nodes::{
        front::monitor::{NodeList, NodeMonitor},
        pulse::QUIET_MAX,
    },
};

/// Descriptors beside a message.
const DESCRIPTORS_MAX: usize = 8;

/// Time for a process to read a reply.
const SEND_LIMIT: Duration = Duration::from_secs(5);

/// Bytes per second that the monitor accepts from a process, in the long run.
const PACE_BYTES: u32 = 8 * 1024 * 1024;

/// Burst, in seconds of that rate.
const PACE_BURST: Duration = Duration::from_secs(4);

/// A message counts as so many bytes at least: each takes time of the monitor.
const MESSAGE_BYTES_MIN: usize = 512;

/// Bytes of the length of a message.
const LENGTH_BYTES: usize = size_of::<u32>();

/// Bytes read from a process at a time.
const READ_BYTES: usize = 8 * 1024;

const UNEXPECTED: &str = "the monitor sent an unexpected reply";

/// Why a link failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("the other end has closed the link")]
    Closed,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Message(#[from] BadMessage),
    #[error("the other end does not read")]
    Unread,
    #[error("descriptors are missing")]
    Descriptors,
}

impl LinkError {
    /// Who must act: the other end broke the rules, or this machine failed.
    pub(crate) fn who(&self) -> WhoActs {
        match self {
            Self::Message(_) | Self::Descriptors => WhoActs::Security,
            // The kernel ended a process, or it has no time for it.
            Self::Closed | Self::Unread | Self::Io(_) => WhoActs::Machine,
        }
    }
}

impl From<Errno> for LinkError {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}

/// Both ends of a link.
pub(crate) struct Ends {
    pub(crate) parent: MonitorEnd,
    /// Standard input of the process.
    pub(crate) input: OwnedFd,
    /// Its standard output.
    pub(crate) output: OwnedFd,
}

/// Call it within the runtime.
pub(crate) fn pair() -> io::Result<Ends> {
    let flags = SocketFlags::CLOEXEC;
    let (down, input) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    // Nothing comes back this way.
    shutdown(&down, Shutdown::Read)?;
    let (up, output) = pipe_with(PipeFlags::CLOEXEC)?;
    Ok(Ends {
        parent: MonitorEnd::new(down, up)?,
        input,
        output,
    })
}

/// Both ends of a relay.
pub(crate) fn relay_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        flags,
        None,
    )?)
}

fn send<T: Serialize>(
    link: BorrowedFd<'_>,
    message: &T,
    beside: &[BorrowedFd<'_>],
) -> Result<(), LinkError> {
    let bytes = encode(message)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !beside.is_empty() && !control.push(SendAncillaryMessage::ScmRights(beside)) {
        return Err(LinkError::Descriptors);
    }
    let flags = SendFlags::NOSIGNAL;
    // Packets go whole or not at all.
    retry_on_intr(|| sendmsg(link, &[IoSlice::new(&bytes)], &mut control, flags)).map_err(
        |errno| match errno {
            Errno::PIPE | Errno::CONNRESET => LinkError::Closed,
            other => other.into(),
        },
    )?;
    Ok(())
}

fn receive<T: DeserializeOwned>(link: BorrowedFd<'_>) -> Result<(T, Vec<OwnedFd>), LinkError> {
    let mut bytes = vec![0; PACKET_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = retry_on_intr(|| {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        recvmsg(link, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)
    });
    let received = match received {
        Ok(received) if received.bytes == 0 => return Err(LinkError::Closed),
        Err(Errno::CONNRESET) => return Err(LinkError::Closed),
        other => other?,
    };
    let mut beside = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            beside.extend(descriptors);
        }
    }
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(BadMessage::TooLong(PACKET_MAX + 1).into());
    }
    Ok((decode(&bytes[..received.bytes])?, beside))
}

/// The monitor's end. (To tokio a socket that keeps the bounds of packets is a datagram socket.)
pub(crate) struct MonitorEnd {
    down: UnixDatagram,
    up: pipe::Receiver,
    incoming: Mutex<Incoming>,
}

/// Bytes received from a process.
#[derive(Default)]
struct Incoming {
    /// Messages, each behind its length; the last may be incomplete.
    bytes: Vec<u8>,
    pace: Pace,
}

/// Limits the rate of messages from a process. A faster process waits, so that a flood of messages
/// costs the monitor a bounded share of time and log space.
#[derive(Default)]
pub(super) struct Pace {
    /// When the received bytes would have arrived at [`PACE_BYTES`].
    due: Option<Instant>,
}

impl Pace {
    pub(super) fn count(&mut self, now: Instant, bytes: usize) {
        let took = Duration::from_secs_f64(bytes as f64 / f64::from(PACE_BYTES));
        self.due = Some(self.due.map_or(now, |due| due.max(now)) + took);
    }

    /// When to receive again.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due?.checked_sub(PACE_BURST)
    }
}

impl Incoming {
    /// The next message, if it is complete.
    fn take<T: DeserializeOwned>(&mut self) -> Result<Option<T>, LinkError> {
        let Some((length, rest)) = self.bytes.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length) as usize;
        if length > PACKET_MAX {
            return Err(BadMessage::TooLong(length).into());
        }
        let Some(message) = rest.get(..length) else {
            return Ok(None);
        };
        let message = decode(message)?;
        self.bytes.drain(..LENGTH_BYTES + length);
        let counted = (LENGTH_BYTES + length).max(MESSAGE_BYTES_MIN);
        self.pace.count(Instant::now(), counted);
        Ok(Some(message))
    }
}

impl MonitorEnd {
    fn new(down: OwnedFd, up: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&down, true)?;
        rustix::io::ioctl_fionbio(&up, true)?;
        Ok(Self {
            down: UnixDatagram::from_std(down.into())?,
            up: pipe::Receiver::from_owned_fd(up)?,
            incoming: Mutex::default(),
        })
    }

    /// Cancel-safe. Receives no faster than the limit allows.
    pub(crate) async fn receive<T: DeserializeOwned>(&self) -> Result<T, LinkError> {
        loop {
            let next = self.incoming().pace.next();
            if let Some(next) = next.filter(|next| *next > Instant::now()) {
                sleep_until(next.into()).await;
            }
            if let Some(message) = self.incoming().take()? {
                return Ok(message);
            }
            self.up.readable().await?;
            self.read()?;
        }
    }

    /// The request takes as much of the monitor's time as a message of this many bytes.
    pub(crate) fn charge(&self, bytes: usize) {
        self.incoming().pace.count(Instant::now(), bytes);
    }

    fn read(&self) -> Result<(), LinkError> {
        let mut buffer = [0; READ_BYTES];
        match self.up.try_read(&mut buffer) {
            Ok(0) => Err(LinkError::Closed),
            Ok(count) => {
                self.incoming().bytes.extend_from_slice(&buffer[..count]);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn incoming(&self) -> MutexGuard<'_, Incoming> {
        self.incoming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn send<T: Serialize>(
        &self,
        message: &T,
        beside: &[BorrowedFd<'_>],
    ) -> Result<(), LinkError> {
        let sent = self.when(Interest::WRITABLE, |link| send(link, message, beside));
        timeout(SEND_LIMIT, sent)
            .await
            .unwrap_or(Err(LinkError::Unread))
    }

    /// Tries until it does not have to wait.
    async fn when<T>(
        &self,
        interest: Interest,
        mut work: impl FnMut(BorrowedFd<'_>) -> Result<T, LinkError>,
    ) -> Result<T, LinkError> {
        loop {
            self.down.ready(interest).await?;
            let mut failed = None;
            let tried = self
                .down
                .try_io(interest, || match work(self.down.as_fd()) {
                    Ok(value) => Ok(value),
                    Err(LinkError::Io(error)) => Err(error),
                    Err(other) => {
                        failed = Some(other);
                        Err(io::ErrorKind::Other.into())
                    }
                });
            match tried {
                Ok(value) => return Ok(value),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(failed.unwrap_or(error.into())),
            }
        }
    }
}

/// The end of a pre-login process or a session. Its calls block.
pub(crate) struct ChildEnd {
    down: OwnedFd,
    /// Messages of several threads leave one after the other.
    up: Mutex<File>,
    /// One question at a time: answers have no numbers.
    asking: Mutex<()>,
}

impl ChildEnd {
    /// Takes the link from standard input and output, where the monitor put it.
    pub(crate) fn of_standard_streams() -> io::Result<Self> {
        Ok(Self {
            down: io::stdin().as_fd().try_clone_to_owned()?,
            up: Mutex::new(io::stdout().as_fd().try_clone_to_owned()?.into()),
            asking: Mutex::new(()),
        })
    }

    pub(crate) fn receive<T: DeserializeOwned>(&self) -> Result<(T, Vec<OwnedFd>), LinkError> {
        receive(self.down.as_fd())
    }

    pub(crate) fn send<T: Serialize>(&self, message: &T) -> Result<(), LinkError> {
        let bytes = encode(message)?;
        let length = u32::try_from(bytes.len()).map_err(|_| BadMessage::TooLong(bytes.len()))?;
        let framed = [&length.to_be_bytes()[..], &bytes].concat();
        let mut up = self.up.lock().unwrap_or_else(PoisonError::into_inner);
        up.write_all(&framed).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => LinkError::Closed,
            _ => error.into(),
        })
    }

    fn ask<T: Serialize>(
        &self,
        question: &T,
    ) -> Result<(MonitorReply, Option<OwnedFd>), LinkError> {
        let _turn = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        self.send(question)?;
        let (answer, beside) = self.receive()?;
        Ok((answer, beside.into_iter().next()))
    }
}

impl Monitor for ChildEnd {
    fn log_in(&self, caller: Box<LoginRequest>) -> Result<OwnedFd, String> {
        match self.ask(&FromPreLogin::Login(caller)) {
            Ok((MonitorReply::Entered, Some(relay))) => Ok(relay),
            Ok((MonitorReply::Refused { why }, _)) => Err(why),
            Ok(_) => Err("internal error, see the server's log".to_owned()),
            Err(error) => Err(format!("the server ends this connection: {error}")),
        }
    }

    fn handshake_failed(&self, why: &str) -> io::Result<()> {
        let why = why.to_owned();
        let sent = self.send(&FromPreLogin::HandshakeFailed { why });
        sent.map_err(io::Error::other)
    }
}

impl Report for ChildEnd {
    fn event(&self, event: &Entry) -> io::Result<()> {
        let sent = self.send(&FromSession::Audit(event.clone()));
        sent.map_err(io::Error::other)
    }

    fn progress(&self, progress: Progress) -> io::Result<()> {
        let sent = self.send(&FromSession::Progress(progress));
        sent.map_err(io::Error::other)
    }
}

impl NodeMonitor for ChildEnd {
    fn nodes(&self) -> Result<NodeList, String> {
        match self.ask(&FromSession::Nodes) {
            Ok((MonitorReply::Nodes(list), _)) => Ok(list),
            Ok(_) => Err(UNEXPECTED.to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn link(&self, node: &NodeAddress) -> Result<OwnedFd, String> {
        let node = node.clone();
        match self.ask(&FromSession::NodeLink { node }) {
            Ok((MonitorReply::NodeLink, Some(link))) => Ok(link),
            Ok((MonitorReply::Refused { why }, _)) => Err(why),
            Ok(_) => Err(UNEXPECTED.to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn add_unfenced(&self, (device, inode): (u64, u64), quiet_in: Duration) {
        // Without a monitor this process ends.
        drop(self.send(&FromSession::AddUnfenced {
            device,
            inode,
            quiet_in,
        }));
    }

    fn unfenced(&self, (device, inode): (u64, u64)) -> Option<Duration> {
        match self.ask(&FromSession::IsUnfenced { device, inode }) {
            Ok((MonitorReply::Unfenced { quiet_in }, _)) => quiet_in,
            _ => Some(QUIET_MAX),
        }
    }
}

/// Opens CA files through the monitor, for `question`'s side.
pub(crate) fn opener<T>(
    link: &Arc<ChildEnd>,
    question: fn(String) -> T,
) -> godwit_gsi::verify::Opener
where
    T: Serialize + 'static,
{
    let link = Arc::clone(link);
    Arc::new(move |name| match link.ask(&question(name.to_owned())) {
        Ok((MonitorReply::File, Some(file))) => Ok(File::from(file)),
        Ok((MonitorReply::NoFile { errno }, _)) => Err(io::Error::from_raw_os_error(errno)),
        Ok(_) => Err(io::Error::other(UNEXPECTED)),
        Err(error) => Err(io::Error::other(error)),
    })
}

/// For [`opener`].
pub(crate) fn pre_login_asks(name: String) -> FromPreLogin {
    FromPreLogin::Trust { name }
}

/// For [`opener`].
pub(crate) fn session_asks(name: String) -> FromSession {
    FromSession::Trust { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fast_senders_are_delayed() {
        let mut pace = Pace::default();
        let now = Instant::now();
        let is_late = |pace: &Pace| pace.next().is_some_and(|next| next > now);
        let burst = PACE_BYTES as usize * 4;
        assert_eq!(PACE_BURST.as_secs(), 4);
        pace.count(now, burst);
        assert!(!is_late(&pace));
        pace.count(now, PACE_BYTES as usize);
        assert_eq!(pace.next(), Some(now + Duration::from_secs(1)));
        // Silence gives back no more than the burst.
        let later = now + Duration::from_secs(3600);
        pace.count(later, burst);
        assert_eq!(pace.next(), Some(later));
    }

    #[test]
    fn messages_are_found_however_they_are_cut() {
        let message = br#"{"Trust":{"name":"0a1b2c3d.0"}}"#;
        let mut bytes = u32::try_from(message.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend_from_slice(message);
        let mut incoming = Incoming::default();
        for byte in bytes.iter().chain(&bytes) {
            assert!(incoming.bytes.len() < bytes.len());
            incoming.bytes.push(*byte);
            let taken = incoming.take::<FromPreLogin>().unwrap();
            assert_eq!(taken.is_some(), incoming.bytes.is_empty());
        }
        // A length that no message has is refused before anything of it is kept.
        incoming.bytes = u32::try_from(PACKET_MAX + 1)
            .unwrap()
            .to_be_bytes()
            .to_vec();
        assert!(incoming.take::<FromPreLogin>().is_err());
    }
}

//! A link: a pair of sockets that keep the bounds of packets and carry descriptors.

use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::{
    io::{Errno, retry_on_intr},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
        sendmsg, socketpair,
    },
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{io::Interest, net::UnixDatagram, time::timeout};

use super::messages::{Answer, BadMessage, FromFront, FromSession, PACKET_MAX, decode, encode};
use crate::login::Caller;

/// Descriptors beside a message.
const DESCRIPTORS_MAX: usize = 8;

/// Time for a process to read what it has asked for.
const SEND_LIMIT: Duration = Duration::from_secs(5);

/// What went wrong with a link.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("the other end is gone")]
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

impl From<Errno> for LinkError {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}

/// Both ends of a link.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    Ok(socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        flags,
        None,
    )?)
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
    let octets = encode(message)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !beside.is_empty() && !control.push(SendAncillaryMessage::ScmRights(beside)) {
        return Err(LinkError::Descriptors);
    }
    let flags = SendFlags::NOSIGNAL;
    // Packets go whole or not at all.
    retry_on_intr(|| sendmsg(link, &[IoSlice::new(&octets)], &mut control, flags)).map_err(
        |errno| match errno {
            Errno::PIPE | Errno::CONNRESET => LinkError::Closed,
            other => other.into(),
        },
    )?;
    Ok(())
}

fn receive<T: DeserializeOwned>(link: BorrowedFd<'_>) -> Result<(T, Vec<OwnedFd>), LinkError> {
    let mut octets = vec![0; PACKET_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = retry_on_intr(|| {
        let mut parts = [IoSliceMut::new(&mut octets)];
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
    Ok((decode(&octets[..received.bytes])?, beside))
}

/// The parent's end. (To tokio a socket that keeps the bounds of packets is a datagram socket.)
pub(crate) struct ParentEnd(UnixDatagram);

impl ParentEnd {
    /// Call it within the runtime.
    pub(crate) fn new(link: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&link, true)?;
        Ok(Self(UnixDatagram::from_std(link.into())?))
    }

    /// Cancel-safe.
    pub(crate) async fn receive<T: DeserializeOwned>(&self) -> Result<T, LinkError> {
        self.when(Interest::READABLE, |link| {
            // Descriptors from below are closed unseen.
            receive(link).map(|(message, _)| message)
        })
        .await
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
            self.0.ready(interest).await?;
            let mut failed = None;
            let tried = self.0.try_io(interest, || match work(self.0.as_fd()) {
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

/// The end of a front or a session. Its calls block.
pub(crate) struct ChildEnd {
    link: OwnedFd,
    /// One question at a time: answers have no numbers.
    asking: Mutex<()>,
}

impl ChildEnd {
    /// Takes the link that the parent made our standard input.
    pub(crate) fn of_standard_input() -> io::Result<Self> {
        Ok(Self {
            link: io::stdin().as_fd().try_clone_to_owned()?,
            asking: Mutex::new(()),
        })
    }

    pub(crate) fn receive<T: DeserializeOwned>(&self) -> Result<(T, Vec<OwnedFd>), LinkError> {
        receive(self.link.as_fd())
    }

    pub(crate) fn tell<T: Serialize>(&self, message: &T) -> Result<(), LinkError> {
        send(self.link.as_fd(), message, &[])
    }

    fn ask<T: Serialize>(&self, question: &T) -> Result<(Answer, Option<OwnedFd>), LinkError> {
        let _turn = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        self.tell(question)?;
        let (answer, beside) = self.receive()?;
        Ok((answer, beside.into_iter().next()))
    }

    /// Asks for a session of `caller`; the relay to it, or why there is none.
    pub(crate) fn log_in(&self, caller: Box<Caller>) -> Result<OwnedFd, String> {
        match self.ask(&FromFront::Login(caller)) {
            Ok((Answer::Entered, Some(relay))) => Ok(relay),
            Ok((Answer::Refused { why }, _)) => Err(why),
            Ok(_) => Err("internal error, see the server's log".to_owned()),
            Err(error) => Err(format!("the server ends this connection: {error}")),
        }
    }
}

impl ChildEnd {
    /// Of a front: somebody has proven nothing.
    pub(crate) fn handshake_failed(&self, why: &str) -> Result<(), LinkError> {
        self.tell(&FromFront::HandshakeFailed {
            why: why.to_owned(),
        })
    }
}

/// Opens CA files through the parent, for `question`'s side.
pub(crate) fn opener<T>(
    link: &Arc<ChildEnd>,
    question: fn(String) -> T,
) -> godwit_gsi::verify::Opener
where
    T: Serialize + 'static,
{
    let link = Arc::clone(link);
    Arc::new(move |name| match link.ask(&question(name.to_owned())) {
        Ok((Answer::File, Some(file))) => Ok(File::from(file)),
        Ok((Answer::NoFile { errno }, _)) => Err(io::Error::from_raw_os_error(errno)),
        Ok(_) => Err(io::Error::other("the parent answered something else")),
        Err(error) => Err(io::Error::other(error)),
    })
}

/// For [`opener`].
pub(crate) fn front_asks(name: String) -> FromFront {
    FromFront::Trust { name }
}

/// For [`opener`].
pub(crate) fn session_asks(name: String) -> FromSession {
    FromSession::Trust { name }
}

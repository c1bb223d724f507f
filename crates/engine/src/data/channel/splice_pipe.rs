//! A pipe through which bytes go from a socket to a file without passing through user space: one
//! copy less for each.
//!
//! The kernel hands over what the socket holds by reference, and copies it once, into the file's
//! pages.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    io::Errno,
    pipe::{PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice},
};

/// Bytes that are asked for: what an ordinary user may have (pipe(7), `pipe-max-size`). A pipe
/// holds a reference for each page or smaller piece, so it may be full with less.
const CAPACITY_BYTES: usize = 1 << 20;

/// A smaller pipe, which the kernel gives a user with many pipes, costs more calls than it saves
/// copies.
const CAPACITY_LEAST: usize = 64 << 10;

/// One a mover, made when it is first needed. Empty between two calls.
#[derive(Default)]
pub(crate) enum LazyPipe {
    #[default]
    Unmade,
    Made(SplicePipe),
    /// The system gives none.
    Refused,
}

pub(crate) struct SplicePipe {
    out: OwnedFd,
    into: OwnedFd,
}

/// What became of bytes.
pub(crate) enum Spliced {
    /// All bytes that came are in the file: how many.
    Whole(usize),
    /// `came` bytes left the socket, of which `written` are in the file; the others are in
    /// [`SplicePipe::drain`], and the file takes no more in this way.
    Stuck { came: usize, written: usize },
}

impl LazyPipe {
    /// `None` where the system gives no pipe of a useful size.
    pub(crate) fn pipe(&mut self) -> Option<&SplicePipe> {
        if let Self::Unmade = self {
            *self = match SplicePipe::new() {
                Ok(Some(pipe)) => Self::Made(pipe),
                Ok(None) => Self::Refused,
                Err(error) => {
                    tracing::debug!(%error, "no pipe: what is received is copied twice");
                    Self::Refused
                }
            };
        }
        match self {
            Self::Made(pipe) => Some(pipe),
            Self::Unmade | Self::Refused => None,
        }
    }
}

impl SplicePipe {
    fn new() -> Result<Option<Self>, Errno> {
        let (out, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // A user at the limit for pipes keeps the default size.
        let capacity =
            fcntl_setpipe_size(&into, CAPACITY_BYTES).or_else(|_| fcntl_getpipe_size(&into))?;
        Ok((capacity >= CAPACITY_LEAST).then_some(Self { out, into }))
    }

    /// Moves what the socket has, `most` bytes of it or what fits, to `at` in the file. 0: the peer
    /// sends no more. `may_write` is asked before each write.
    ///
    /// # Errors
    /// Of the socket. WouldBlock: it is empty.
    pub(crate) fn splice(
        &self,
        socket: impl AsFd,
        file: BorrowedFd<'_>,
        at: u64,
        most: usize,
        may_write: impl Fn() -> bool,
    ) -> io::Result<Spliced> {
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let came = splice(socket, None, &self.into, None, most, flags)?;
        let mut at = at;
        let mut written = 0;
        while written < came {
            if !may_write() {
                return Ok(Spliced::Stuck { came, written });
            }
            match splice(&self.out, None, file, Some(&mut at), came - written, flags) {
                Ok(0) => return Ok(Spliced::Stuck { came, written }),
                Ok(count) => written += count,
                Err(Errno::INTR) => {}
                Err(_) => return Ok(Spliced::Stuck { came, written }),
            }
        }
        Ok(Spliced::Whole(came))
    }

    /// What is stuck, as much of it as fits: all, in as many calls as it takes.
    ///
    /// # Errors
    /// None that is known of a pipe that holds something.
    pub(crate) fn drain(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| {
            rustix::io::read(&self.out, &mut *buffer)
        })?)
    }
}

/// The system, or what confines us, knows no such call for this socket.
pub(crate) fn is_refused(error: &io::Error) -> bool {
    let refusals = [Errno::NOSYS, Errno::INVAL, Errno::PERM, Errno::OPNOTSUPP];
    let errno = error.raw_os_error();
    refusals.iter().any(|e| errno == Some(e.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::{Read as _, Seek as _, Write as _},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    fn joined() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, listener.accept().unwrap().0)
    }

    #[test]
    fn bytes_go_to_their_place_and_the_end_is_seen() {
        let (mut sender, receiver) = joined();
        receiver.set_nonblocking(true).unwrap();
        let mut lazy_pipe = LazyPipe::default();
        let pipe = lazy_pipe.pipe().expect("a pipe");
        let mut file = tempfile::tempfile().unwrap();
        let nothing = pipe.splice(&receiver, file.as_fd(), 0, 10, || true);
        assert_eq!(nothing.err().unwrap().kind(), io::ErrorKind::WouldBlock);
        sender.write_all(b"abcdef").unwrap();
        let mut at = 3;
        while at < 9 {
            match pipe.splice(&receiver, file.as_fd(), at, 4, || true) {
                Ok(Spliced::Whole(count)) => at += count as u64,
                Ok(Spliced::Stuck { .. }) => panic!("a file takes what a pipe holds"),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        drop(sender);
        loop {
            match pipe.splice(&receiver, file.as_fd(), at, 4, || true) {
                Ok(Spliced::Whole(0)) => break,
                Ok(_) => panic!("nothing was sent"),
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        let mut content = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut content).unwrap();
        assert_eq!(content, b"\0\0\0abcdef");
    }

    #[test]
    fn unsupported_files_differ_from_lost_connections() {
        let mut lazy_pipe = LazyPipe::default();
        let pipe = lazy_pipe.pipe().expect("a pipe");
        let file = tempfile::tempfile().unwrap();
        let folder = File::open("/").unwrap();
        let refused = pipe.splice(&folder, file.as_fd(), 0, 3, || true);
        assert!(is_refused(&refused.err().expect("no directory is read so")));
        assert!(!is_refused(&io::ErrorKind::WouldBlock.into()));
        assert!(!is_refused(&Errno::CONNRESET.into()));
    }

    /// The second write of a splice is asked for like the first.
    #[test]
    fn bytes_that_may_not_be_written_any_more_stay_in_the_pipe() {
        let (mut sender, receiver) = joined();
        sender.write_all(b"abc").unwrap();
        let mut lazy_pipe = LazyPipe::default();
        let pipe = lazy_pipe.pipe().expect("a pipe");
        let mut file = tempfile::tempfile().unwrap();
        let spliced = pipe.splice(&receiver, file.as_fd(), 0, 3, || false);
        let Ok(Spliced::Stuck { came, written: 0 }) = spliced else {
            panic!("nothing may be written");
        };
        let mut content = Vec::new();
        file.read_to_end(&mut content).unwrap();
        assert!(content.is_empty());
        assert_eq!(pipe.drain(&mut [0; 8]).unwrap(), came);
    }

    #[test]
    fn bytes_that_a_file_refuses_stay_in_the_pipe() {
        let (mut sender, receiver) = joined();
        sender.write_all(b"abc").unwrap();
        let mut lazy_pipe = LazyPipe::default();
        let pipe = lazy_pipe.pipe().expect("a pipe");
        // Open for reading only.
        let file = File::open("/proc/self/exe").unwrap();
        let Ok(Spliced::Stuck { came, written }) =
            pipe.splice(&receiver, file.as_fd(), 0, 3, || true)
        else {
            panic!("it cannot be written to");
        };
        assert_eq!(written, 0);
        let mut bytes = [0; 8];
        assert_eq!(pipe.drain(&mut bytes).unwrap(), came);
        assert_eq!(bytes[..came], b"abc"[..came]);
    }
}

//! Lines of a control connection, and replies of several.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

/// Longest line that is taken, bytes: of a name of 4096 bytes, and of facts.
const LINE_MAX: usize = 64 << 10;

/// One end of a control connection.
#[derive(Debug)]
pub(super) struct Lines {
    stream: TcpStream,
    read: Vec<u8>,
}

/// A reply, line ends included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) code: u16,
    pub(super) lines: Vec<Vec<u8>>,
}

impl Reply {
    /// More follows.
    pub(super) fn is_preliminary(&self) -> bool {
        (100..200).contains(&self.code)
    }
}

impl Lines {
    pub(super) fn new(stream: TcpStream) -> Lines {
        Lines {
            stream,
            read: Vec::new(),
        }
    }

    /// The next line with its end; `None` at the end of the connection.
    pub(super) fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(length) = self.first() {
                return Ok(Some(self.read.drain(..length).collect()));
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// The first line that is here, without taking it.
    pub(super) fn peek(&self) -> Option<&[u8]> {
        self.first().map(|length| &self.read[..length])
    }

    fn first(&self) -> Option<usize> {
        let end = self.read.iter().position(|byte| *byte == b'\n');
        end.map(|end| end + 1)
    }

    /// Reads once. False at the end.
    pub(super) fn fill(&mut self) -> io::Result<bool> {
        let mut piece = [0; 4096];
        let length = self.stream.read(&mut piece)?;
        self.read.extend_from_slice(&piece[..length]);
        match self.read.len() > LINE_MAX && self.first().is_none() {
            true => Err(io::ErrorKind::InvalidData.into()),
            false => Ok(length > 0),
        }
    }

    pub(super) fn say(&mut self, line: &[u8]) -> io::Result<()> {
        self.stream.write_all(line)
    }

    /// The next reply; an end in the middle of one is an error.
    pub(super) fn reply(&mut self) -> io::Result<Reply> {
        let gone = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let first = self.line()?.ok_or_else(gone)?;
        let code = first
            .get(..3)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let code: u16 = code.and_then(|digits| digits.parse().ok()).unwrap_or(0);
        let mut lines = vec![first];
        if lines[0].get(3) == Some(&b'-') {
            let last = format!("{code} ").into_bytes();
            while lines.len() == 1 || !lines[lines.len() - 1].starts_with(&last) {
                lines.push(self.line()?.ok_or_else(gone)?);
            }
        }
        Ok(Reply { code, lines })
    }
}

impl AsFd for Lines {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

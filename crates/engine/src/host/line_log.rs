//! Files to which whole lines are appended: logs and journals.

use std::io::{self, Write};

/// A file of lines.
#[derive(Debug)]
pub struct LineLog<W> {
    file: W,
    /// It may end in part of a line, after a full disk or a crash.
    torn: bool,
}

impl<W: Write> LineLog<W> {
    /// `torn`: the file may end in part of a line.
    pub fn new(file: W, torn: bool) -> Self {
        Self { file, torn }
    }

    /// Appends whole lines in one write, since other processes may append, too. Part of an earlier
    /// line is ended first: no line may look like the rest of another.
    ///
    /// # Errors
    /// The lines may have been written in part.
    pub fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let written = match self.torn {
            true => self.file.write_all(&[b"\n", lines].concat()),
            false => self.file.write_all(lines),
        };
        self.torn = written.is_err();
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepts this many bytes, then fails until the disk has space again.
    struct Disk(Vec<u8>, usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.1);
            if taken == 0 && !bytes.is_empty() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.1 -= taken;
            self.0.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_that_a_full_disk_has_torn_does_not_join_the_next() {
        for room in 0..4 {
            let mut log = LineLog::new(Disk(Vec::new(), room), false);
            assert!(log.append(b"one\n").is_err());
            assert!(log.append(b"two\n").is_err());
            log.file.1 = 100;
            log.append(b"three\n").unwrap();
            log.append(b"four\n").unwrap();
            let text = String::from_utf8(log.file.0).unwrap();
            assert!(text.ends_with("\nthree\nfour\n"), "{text:?}");
        }
    }
}

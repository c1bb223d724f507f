//! A file as a stream.

use std::io;

use super::{FileRef, into_io};

/// Reads or writes a file in order, for streams that change bytes on the way. Errors carry the
/// storage's failure: [`super::failure()`] finds it.
pub struct FileCursor {
    file: FileRef,
    position: u64,
    end: u64,
}

impl FileCursor {
    /// Begins at `position`; reads up to the end of the file.
    pub fn new(file: FileRef, position: u64) -> Self {
        Self {
            file,
            position,
            end: u64::MAX,
        }
    }

    /// Reads stop before byte `end`. Writes do not care.
    pub fn until(self, end: u64) -> Self {
        Self { end, ..self }
    }

    /// The next byte to be read or written.
    pub fn position(&self) -> u64 {
        self.position
    }
}

impl io::Read for FileCursor {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end.saturating_sub(self.position)).unwrap_or(usize::MAX);
        let most = buffer.len().min(left);
        if most == 0 {
            return Ok(0);
        }
        let got = self
            .file
            .read_at(self.position, &mut buffer[..most])
            .map_err(into_io)?;
        self.position += got as u64;
        Ok(got)
    }
}

impl io::Write for FileCursor {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file
            .write_all_at(self.position, bytes)
            .map_err(into_io)?;
        self.position += bytes.len() as u64;
        Ok(bytes.len())
    }

    /// Nothing is held back; durability is [`super::File::sync`].
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

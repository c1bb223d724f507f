//! Times and permissions of destination directories, set after all copies: a file written into a
//! directory changes the directory's time, and a read-only directory takes no files.

use std::{
    fs::File,
    io::{self, Write},
    os::unix::fs::FileExt,
};

use godwit_proto::timestamp::Timestamp;

use crate::local::{attributes::FileAttributes, files};

/// Bytes of paths that are kept in memory; earlier paths are in a file.
const HERE_MAX: usize = 1 << 20;

/// A path at the destination, and its attributes.
pub(crate) type PathAttributes = (Vec<u8>, FileAttributes);

/// In the order of discovery: a directory before its subdirectories.
#[derive(Debug, Default)]
pub(crate) struct DirectoryAttributes {
    here: Vec<u8>,
    spilled: Option<File>,
    /// Lengths of the chunks of the file, in order.
    chunks: Vec<usize>,
}

impl DirectoryAttributes {
    /// # Errors
    /// The file cannot be written.
    pub(super) fn push(&mut self, path: &[u8], attributes: FileAttributes) -> io::Result<()> {
        let modified = attributes
            .modified
            .map(|t| t.0.to_string())
            .unwrap_or_default();
        let mode = attributes.mode.map(|m| m.to_string()).unwrap_or_default();
        write!(self.here, "{modified};{mode};")?;
        self.here.extend_from_slice(path);
        // No path contains a NUL.
        self.here.push(0);
        if self.here.len() < HERE_MAX {
            return Ok(());
        }
        let file = match &mut self.spilled {
            Some(file) => file,
            None => self.spilled.insert(files::anonymous_file()?),
        };
        file.write_all(&self.here)?;
        self.chunks.push(self.here.len());
        self.here.clear();
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.here.is_empty() && self.chunks.is_empty()
    }

    /// The last remaining chunk, last directory first, so that a directory follows its
    /// subdirectories.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn pop_chunk(&mut self) -> io::Result<Option<Vec<PathAttributes>>> {
        let mut chunk = std::mem::take(&mut self.here);
        if chunk.is_empty() {
            let (Some(file), Some(length)) = (&self.spilled, self.chunks.pop()) else {
                return Ok(None);
            };
            let begin: usize = self.chunks.iter().sum();
            chunk.resize(length, 0);
            file.read_exact_at(&mut chunk, begin as u64)?;
        }
        let records = chunk.split(|b| *b == 0).rev().filter(|r| !r.is_empty());
        Ok(Some(records.map(parsed).collect()))
    }
}

fn parsed(record: &[u8]) -> PathAttributes {
    let mut fields = record.splitn(3, |b| *b == b';');
    let mut number = || {
        std::str::from_utf8(fields.next()?)
            .ok()?
            .parse::<i64>()
            .ok()
    };
    let modified = number().map(Timestamp);
    let mode = number().and_then(|mode| u32::try_from(mode).ok());
    let path = fields.next().unwrap_or_default().to_vec();
    (path, FileAttributes { modified, mode })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_directories_comes_back_last_first() {
        let mut all_attributes = DirectoryAttributes::default();
        let record = |i: i64| {
            let attributes = FileAttributes {
                modified: (i % 3 > 0).then_some(Timestamp(i - 50_000)),
                mode: (i % 2 > 0).then_some(0o755),
            };
            (
                format!("/in the tree;1;2;/line\nend {i}").into_bytes(),
                attributes,
            )
        };
        assert!(all_attributes.is_empty());
        for i in 0..100_000 {
            let (path, attributes) = record(i);
            all_attributes.push(&path, attributes).unwrap();
        }
        assert!(all_attributes.chunks.len() > 1 && all_attributes.here.len() < HERE_MAX);
        let mut expected = (0..100_000).rev().map(record);
        while let Some(chunk) = all_attributes.pop_chunk().unwrap() {
            for found in chunk {
                assert_eq!(Some(found), expected.next());
            }
        }
        assert_eq!(expected.next(), None);
        assert!(all_attributes.is_empty());
    }
}

//! Which versions of their sources the files are of that were begun.

use std::io::Write as _;

use super::{Journal, format::encode};
use crate::transfer::resume::SourceVersion;

impl Journal {
    /// Of which version of its source that copy is the beginning; `None` where nobody has noted it.
    pub(crate) fn source_of(&self, target: &str) -> Option<SourceVersion> {
        let mut name = Vec::new();
        encode(target.as_bytes(), &mut name);
        self.sources.get(&name).copied()
    }

    /// What [`Self::record_temp`] has noted is the beginning of this version of its source.
    pub(crate) fn record_source(&self, target: &str, source: SourceVersion) {
        let Some(changed) = source.changed else {
            return;
        };
        let mut out = self.out();
        out.waiting.extend_from_slice(b"source ");
        encode(target.as_bytes(), &mut out.waiting);
        // Writing to a `Vec` cannot fail.
        let _ = writeln!(out.waiting, " {} {changed} .", source.size);
        let _ = out.write(&self.file);
    }
}

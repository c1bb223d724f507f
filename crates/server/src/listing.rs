//! Text of a directory for LIST, NLST, MLSD and MLSR, until the engine streams it.

use std::{io, sync::Arc, time::SystemTime};

use godwit_engine::storage::{FileKind, Metadata, Result, Storage};
use godwit_proto::{
    FtpPath,
    facts::{FactType, write_line},
    listing::format_line,
    pi::server::ListForm,
    timestamp::Timestamp,
};

/// Lines, made when it is opened.
pub(crate) struct Listing(io::Cursor<Vec<u8>>);

impl Listing {
    /// Fails where `path` cannot be listed.
    pub(crate) fn new(storage: Arc<dyn Storage>, path: &FtpPath, form: ListForm) -> Result<Self> {
        let mut text = Vec::new();
        let metadata = storage.stat(path)?;
        if metadata.kind == FileKind::Directory {
            list(&*storage, path, &metadata, form, &mut text)?;
        } else {
            let name = path.file_name().unwrap_or_default();
            line(&metadata, name, form, &mut text);
        }
        Ok(Self(io::Cursor::new(text)))
    }
}

fn list(
    storage: &dyn Storage,
    path: &FtpPath,
    metadata: &Metadata,
    form: ListForm,
    text: &mut Vec<u8>,
) -> Result<()> {
    if let ListForm::Facts(selection) = form {
        let parent = path.parent().unwrap_or_else(FtpPath::root);
        let mut facts = metadata.facts();
        facts.kind = Some(FactType::Cdir);
        write_line(&facts, selection, b".", text);
        text.extend_from_slice(b"\r\n");
        if let Ok(parent) = storage.stat(&parent) {
            let mut facts = parent.facts();
            facts.kind = Some(FactType::Pdir);
            write_line(&facts, selection, b"..", text);
            text.extend_from_slice(b"\r\n");
        }
    }
    for entry in storage.list(path)? {
        let (name, metadata) = entry?;
        line(&metadata, &name, form, text);
    }
    Ok(())
}

fn line(metadata: &Metadata, name: &[u8], form: ListForm, text: &mut Vec<u8>) {
    // Such a name cannot travel: one line would become two.
    if name.contains(&b'\n') || name.contains(&b'\r') {
        return;
    }
    match form {
        ListForm::Long => {
            let now = SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default();
            let now = Timestamp(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
            text.extend(format_line(&metadata.facts(), metadata.links, name, now));
        }
        ListForm::Names => text.extend_from_slice(name),
        ListForm::Facts(selection) | ListForm::FactsRecursive { selection, .. } => {
            write_line(&metadata.facts(), selection, name, text);
        }
    }
    text.extend_from_slice(b"\r\n");
}

impl io::Read for Listing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

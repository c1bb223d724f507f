//! Opens the source of a put.

use std::{fs, sync::Arc};

use godwit_engine::storage::{FastPath, FileKind, PreloadedFile};
use godwit_proto::ChecksumAlgorithm;

use super::{UploadSource, stdin::StdinSource};
use crate::{
    context::RunContext,
    error::{Error, Result},
    local::files,
    transfer::source_file::LocalEnd,
};

/// Bytes to be sent of a file of ours that has `left`, where that is known.
pub(crate) fn length_of(
    end: &LocalEnd,
    from: &UploadSource,
    left: Option<u64>,
    offset: u64,
    wanted: Option<u64>,
) -> Result<Option<u64>> {
    if let Some(size) = left.filter(|size| offset > *size) {
        return Err(Error::Usage(format!(
            "{end}: --offset {offset} is past its end, it has {size} bytes"
        )));
    }
    let left = left.map(|size| size - offset);
    let endless = matches!(from, UploadSource::File(f) if matches!(f.fast_path(), FastPath::Zeros));
    Ok(match (left, wanted) {
        (Some(left), wanted) if !endless => Some(wanted.map_or(left, |w| w.min(left))),
        (_, Some(wanted)) => Some(wanted),
        (_, None) if endless => {
            return Err(Error::Usage(format!("{end}: has no end: give --length")));
        }
        (_, None) => None,
    })
}

/// A file, or what can only be read in order; with its size, where it has one. `planned_file`: it
/// was no pipe when it was planned.
pub(crate) fn open_source(
    context: &RunContext,
    path: &std::path::Path,
    algorithm: Option<ChecksumAlgorithm>,
    planned_file: bool,
) -> Result<(UploadSource, Option<u64>)> {
    use std::os::unix::fs::FileTypeExt;
    let kind = match planned_file {
        true => None,
        false => files::stat(path)?.map(|m| m.file_type()),
    };
    if kind.is_some_and(|k| k.is_fifo()) {
        let doing = || format!("open {} for reading", path.display());
        let pipe = fs::File::open(path).map_err(|e| Error::local(doing(), &e))?;
        let input = StdinSource::new(Box::new(pipe), algorithm);
        return Ok((UploadSource::Stream(Arc::new(input)), None));
    }
    let (file, metadata) = files::open_read(&context.local.storage, path)?;
    if planned_file && metadata.kind != FileKind::File {
        let what = path.display().to_string();
        return Err(Error::Changed { what });
    }
    if metadata.kind == FileKind::File {
        context.warn_no_direct_io(&file, path.display());
        if metadata.size == 0 && files::has_content(path) {
            let doing = || format!("open {} for reading", path.display());
            let file = fs::File::open(path).map_err(|e| Error::local(doing(), &e))?;
            let input = StdinSource::new(Box::new(file), algorithm);
            return Ok((UploadSource::Stream(Arc::new(input)), None));
        }
        let held = PreloadedFile::read(file.as_ref(), &metadata).map_err(Error::Local)?;
        let file = held.map_or(file, |held| Arc::new(held));
        return Ok((UploadSource::File(file), Some(metadata.size)));
    }
    if matches!(file.fast_path(), FastPath::Discard) {
        return Ok((UploadSource::File(file), Some(0)));
    }
    Ok((UploadSource::File(file), None))
}

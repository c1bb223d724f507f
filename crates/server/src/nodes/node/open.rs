//! The files of orders. The front end has looked at the rights of the login, and has created what
//! is received into: a file that is not there is no file of this order.

use std::sync::Arc;

use godwit_engine::{
    data::Source,
    storage::{FileCursor, Storage, WriteMode, line_endings::CrlfReader, listing::Listing},
};
use godwit_proto::{
    command::TypeCode,
    error::StorageFailure,
    pi::server::{ListForm, Placement, TransferKind, TransferRequest},
};

use crate::{
    nodes::messages::{Job, Start},
    transfers::{
        checks::Checks,
        open::{Opened, now, sink_in, source_of},
    },
};

/// What a [`RunningTransfer`](crate::transfers::RunningTransfer) needs to know of it.
pub(super) fn request_of(Start { job, mode }: &Start) -> TransferRequest {
    let (kind, is_ascii) = match job {
        Job::Send { path, ascii, .. } => {
            let kind = TransferKind::Send {
                path: path.clone(),
                region: None,
                restart: None,
            };
            (kind, *ascii)
        }
        Job::Receive {
            path, base, ascii, ..
        } => {
            let kind = TransferKind::Receive {
                path: path.clone(),
                placement: Placement::At(*base),
                restart: None,
                expected_bytes: None,
                checksums: Vec::new(),
                modify: None,
            };
            (kind, *ascii)
        }
        Job::List { path, form } => {
            let kind = TransferKind::List {
                path: path.clone(),
                form: ListForm::from(form),
            };
            (kind, false)
        }
    };
    TransferRequest {
        kind,
        mode: *mode,
        type_code: match is_ascii {
            true => TypeCode::Ascii,
            false => TypeCode::Image,
        },
        reuse: false,
    }
}

/// Blocks while storage does. `lists`: what the login may list.
pub(super) fn open(
    job: &Job,
    storage: &Arc<dyn Storage>,
    lists: Arc<dyn Storage>,
) -> Result<Opened, StorageFailure> {
    match job {
        Job::Send {
            path,
            base,
            ranges,
            ascii,
        } => {
            let file = storage.open_read(path)?;
            let (base, ranges) = (*base, ranges.ranges());
            if !ascii {
                return Ok(source_of(Source::File { file, base, ranges }));
            }
            let start = ranges.first().map_or(0, |range| range.start);
            let end = ranges.last().map_or(0, |range| range.end);
            let bytes =
                FileCursor::new(file, base.saturating_add(start)).until(base.saturating_add(end));
            Ok(source_of(Source::Stream(Box::new(CrlfReader::new(bytes)))))
        }
        Job::Receive {
            path,
            base,
            stream_start,
            limit,
            ascii,
        } => {
            let file = storage.open_write(path, WriteMode::Existing)?;
            let checks = Checks::new(Arc::clone(storage), path.clone(), Vec::new(), None);
            Ok(sink_in(file, *base, *stream_start, *limit, !ascii, checks))
        }
        Job::List { path, form } => {
            let listing = Listing::open(lists, path, ListForm::from(form), now())?;
            Ok(source_of(Source::Stream(Box::new(listing))))
        }
    }
}

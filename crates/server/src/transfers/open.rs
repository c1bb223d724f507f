//! Opens the file of a transfer: the ranges to send, or the place of the received bytes.

use std::{sync::Arc, time::SystemTime};

use godwit_engine::{
    data::{Sink, Source, TransferJob},
    storage::{
        FastPath, FileCursor, FileKind, FileRef, Metadata, Storage, WriteMode,
        line_endings::{CrlfReader, LfWriter},
        listing::Listing,
    },
};
use godwit_proto::{
    ByteRange, FtpPath, RangeSet, RestartPoint,
    command::{Mode, Region, TypeCode},
    error::StorageFailure,
    pi::server::{Placement, TransferKind, TransferRequest},
    timestamp::Timestamp,
};
use rustix::io::Errno;
use tokio::time::sleep;

use super::{checks::Checks, checksums::blocking, shared_writer::SharedWriter};
use crate::{nodes::front::Unfenced, storage::failure};

/// Largest offset that a file can have: `off_t` is signed.
const FILE_OFFSET_MAX: u64 = i64::MAX as u64;

/// Bytes of a RETR of an endless device: until the client aborts it.
const ENDLESS: u64 = FILE_OFFSET_MAX;

/// A file that is open, ready for the data plane.
pub(crate) struct Opened {
    pub(crate) job: TransferJob,
    pub(crate) checks: Option<Checks>,
    /// The file that a receipt writes.
    pub(crate) written: Option<FileRef>,
    /// Modification time of the file that is sent.
    pub(crate) modified: Option<SystemTime>,
}

/// Blocks while storage does.
pub(crate) fn open(
    request: TransferRequest,
    storage: Arc<dyn Storage>,
) -> Result<Opened, StorageFailure> {
    let TransferRequest {
        kind,
        mode,
        type_code,
        ..
    } = request;
    match kind {
        TransferKind::Send {
            path,
            region,
            restart,
        } => open_source(&*storage, &path, region, restart.as_ref(), mode, type_code),
        TransferKind::Receive {
            path,
            placement,
            restart,
            expected_bytes: _,
            checksums,
            modify,
        } => {
            let checks = Checks::new(Arc::clone(&storage), path.clone(), checksums, modify);
            let restart = restart.as_ref();
            open_sink(
                &*storage, &path, placement, restart, mode, type_code, checks,
            )
        }
        TransferKind::List { path, form } => {
            let listing = Listing::open(storage, &path, form, now())?;
            Ok(source_of(Source::Stream(Box::new(listing))))
        }
    }
}

/// The file of a request whose bytes data nodes move, and which it is. `unfenced`: files into which
/// nodes may still write. They get no other bytes before those nodes are quiet.
pub(crate) async fn open_for_nodes(
    request: TransferRequest,
    storage: Arc<dyn Storage>,
    unfenced: Arc<Unfenced>,
) -> Result<OpenedForNodes, StorageFailure> {
    let now = {
        let (request, storage) = (request.clone(), Arc::clone(&storage));
        let unfenced = Arc::clone(&unfenced);
        blocking(move || {
            let opened = open_for_nodes_now(&request, storage, &unfenced)?;
            let written = opened.0.written.as_ref().and(opened.1.as_ref());
            let quiet_in = match write_mode_of(&request.kind) {
                Some(WriteMode::Keep) => written.and_then(|file| unfenced.quiet_in(file.unique)),
                _ => None,
            };
            Ok((opened, quiet_in.unwrap_or_default()))
        })
    };
    let (opened, quiet_in) = now.await?;
    if quiet_in.is_zero() {
        return Ok(opened);
    }
    // How long the file is then is not known yet.
    drop(opened);
    sleep(quiet_in).await;
    blocking(move || open_for_nodes_now(&request, storage, &unfenced)).await
}

/// What is opened, and which file it is.
pub(crate) type OpenedForNodes = (Opened, Option<Metadata>);

/// Blocks while storage does.
fn open_for_nodes_now(
    request: &TransferRequest,
    storage: Arc<dyn Storage>,
    unfenced: &Unfenced,
) -> Result<OpenedForNodes, StorageFailure> {
    let mut plain = request.clone();
    // Ends of lines are the nodes' business.
    plain.type_code = TypeCode::Image;
    if let TransferKind::Receive { path, .. } = &plain.kind
        && write_mode_of(&plain.kind) == Some(WriteMode::Replace)
    {
        unfenced.replace(&*storage, path)?;
    }
    let opened = open(plain, storage)?;
    let file = match &opened.job {
        TransferJob::Send(Source::File { file, .. })
        | TransferJob::Receive(Sink::File { file, .. }) => Some(file.metadata()?),
        _ => None,
    };
    Ok((opened, file))
}

/// What is sent, and nothing else to do.
pub(crate) fn source_of(source: Source) -> Opened {
    Opened {
        job: TransferJob::Send(source),
        checks: None,
        written: None,
        modified: None,
    }
}

fn open_source(
    storage: &dyn Storage,
    path: &FtpPath,
    region: Option<Region>,
    restart: Option<&RestartPoint>,
    mode: Mode,
    type_code: TypeCode,
) -> Result<Opened, StorageFailure> {
    let file = storage.open_read(path)?;
    let metadata = file.as_opened()?;
    let size = match (metadata.kind, file.fast_path()) {
        (FileKind::Special(_), FastPath::Zeros) => ENDLESS,
        (FileKind::Special(_), FastPath::Discard) => 0,
        (FileKind::Special(_), _) => {
            // A terminal or a pipe has no bytes at offsets, and may never end.
            return Err(failure(
                Errno::PERM,
                &format!("read the special file {path}"),
            ));
        }
        _ => metadata.size,
    };
    let (base, length) = region_of(size, region);
    if region.is_none()
        && metadata.kind == FileKind::File
        && let Some(RestartPoint::Offset(offset)) = restart
        && *offset > size
    {
        return Err(failure(
            Errno::RANGE,
            &format!("restart {path} at {offset}, of {size} bytes"),
        ));
    }
    let ranges = ranges_to_send(length, restart, mode);
    let source = match type_code {
        TypeCode::Image => Source::File { file, base, ranges },
        TypeCode::Ascii => {
            let start = ranges.first().map_or(length, |range| range.start);
            let bytes = FileCursor::new(file, base + start).until(base + length);
            Source::Stream(Box::new(CrlfReader::new(bytes)))
        }
    };
    Ok(Opened {
        job: TransferJob::Send(source),
        checks: None,
        written: None,
        modified: Some(metadata.modified),
    })
}

/// Byte of the file where the region begins, and how long it is: a region past the end is short or
/// empty.
fn region_of(size: u64, region: Option<Region>) -> (u64, u64) {
    match region {
        None => (0, size),
        Some(Region { offset, length }) => {
            let base = offset.min(size);
            (base, length.min(size - base))
        }
    }
}

fn ranges_to_send(length: u64, restart: Option<&RestartPoint>, mode: Mode) -> Vec<ByteRange> {
    let whole = ByteRange {
        start: 0,
        end: length,
    };
    let there = restart.map(RestartPoint::to_ranges).unwrap_or_default();
    let mut gaps = there.gaps(whole);
    // A stream has no offsets: all from the first missing byte on. Bytes repeat at worst.
    if mode == Mode::Stream
        && let Some(first) = gaps.first().copied()
    {
        gaps = vec![ByteRange {
            start: first.start,
            end: length,
        }];
    }
    gaps
}

fn open_sink(
    storage: &dyn Storage,
    path: &FtpPath,
    placement: Placement,
    restart: Option<&RestartPoint>,
    mode: Mode,
    type_code: TypeCode,
    checks: Checks,
) -> Result<Opened, StorageFailure> {
    let there = restart.map(RestartPoint::to_ranges).unwrap_or_default();
    let how = write_mode(placement, &there);
    let file = storage.open_write(path, how)?;
    let base = match placement {
        Placement::Replace | Placement::New => 0,
        Placement::Append => file.as_opened()?.size,
        Placement::At(offset) => offset,
    };
    let stream_start = match mode {
        Mode::Stream => first_missing(&there),
        Mode::ExtendedBlock => 0,
    };
    let limit = FILE_OFFSET_MAX.checked_sub(base);
    let Some(limit) = limit.filter(|limit| stream_start <= *limit) else {
        return Err(failure(
            Errno::FBIG,
            &format!("write {path} at byte {}", base.saturating_add(stream_start)),
        ));
    };
    let image = type_code == TypeCode::Image;
    Ok(sink_in(
        file,
        base,
        stream_start,
        Some(limit),
        image,
        checks,
    ))
}

/// A receipt into an open file, whose byte `base` has wire offset 0; unless it is an `image`, ends
/// of lines become LF.
pub(crate) fn sink_in(
    file: FileRef,
    base: u64,
    stream_start: u64,
    limit: Option<u64>,
    image: bool,
    mut checks: Checks,
) -> Opened {
    let written = Arc::clone(&file);
    let sink = if image {
        Sink::File {
            file,
            base,
            stream_start,
            limit,
        }
    } else {
        let bytes = FileCursor::new(file, base.saturating_add(stream_start));
        let writer = SharedWriter::new(LfWriter::new(bytes));
        checks.flush_at_the_end(writer.clone());
        Sink::Stream(Box::new(writer))
    };
    Opened {
        job: TransferJob::Receive(sink),
        checks: checks.needed(),
        written: Some(written),
        modified: None,
    }
}

/// How the file of a receipt is opened.
fn write_mode_of(kind: &TransferKind) -> Option<WriteMode> {
    match kind {
        TransferKind::Receive {
            placement, restart, ..
        } => {
            let there = restart.as_ref().map(RestartPoint::to_ranges);
            Some(write_mode(*placement, &there.unwrap_or_default()))
        }
        TransferKind::Send { .. } | TransferKind::List { .. } => None,
    }
}

/// A restart that leaves bytes in place must not truncate them away.
fn write_mode(placement: Placement, there: &RangeSet) -> WriteMode {
    match placement {
        Placement::Replace if there.is_empty() => WriteMode::Replace,
        Placement::New => WriteMode::New,
        _ => WriteMode::Keep,
    }
}

fn first_missing(there: &RangeSet) -> u64 {
    there
        .gaps(ByteRange::ALL)
        .first()
        .map_or(u64::MAX, |gap| gap.start)
}

/// Seconds since 1970, for listings.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use godwit_engine::storage::MemoryStorage;

    use super::*;

    /// What is sent again goes into the same file, and must not meet late bytes there.
    #[test]
    fn what_goes_on_in_a_file_waits_until_a_lost_node_is_quiet() {
        let path = FtpPath::new("/f").unwrap();
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let file = storage.open_write(&path, WriteMode::New).unwrap();
        file.write_all_at(0, b"abcd").unwrap();
        let before = file.metadata().unwrap().unique;
        let kind = |placement, restart| TransferKind::Receive {
            path: path.clone(),
            placement,
            restart,
            expected_bytes: None,
            checksums: Vec::new(),
            modify: None,
        };
        let from = RestartPoint::Offset(4);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        for kind in [
            kind(Placement::Replace, Some(from)),
            kind(Placement::Append, None),
            kind(Placement::At(2), None),
        ] {
            let unfenced = Arc::new(Unfenced::default());
            unfenced.add("jo", before, Duration::from_millis(300));
            let request = TransferRequest {
                kind: kind.clone(),
                mode: Mode::ExtendedBlock,
                type_code: TypeCode::Image,
                reuse: false,
            };
            let opening = open_for_nodes(request, Arc::clone(&storage), Arc::clone(&unfenced));
            let (_, file) = runtime.block_on(opening).unwrap();
            assert_eq!(file.unwrap().unique, before);
            assert_eq!(unfenced.quiet_in(before), Some(Duration::ZERO), "{kind:?}");
        }
    }

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange { start, end }
    }

    fn ranges(list: &[(u64, u64)]) -> RestartPoint {
        RestartPoint::Ranges(list.iter().map(|(s, e)| range(*s, *e)).collect())
    }

    #[test]
    fn a_region_past_the_end_is_cut() {
        let region = |offset, length| Some(Region { offset, length });
        assert_eq!(region_of(100, None), (0, 100));
        assert_eq!(region_of(100, region(10, 20)), (10, 20));
        assert_eq!(region_of(100, region(90, 20)), (90, 10));
        assert_eq!(region_of(100, region(200, 20)), (100, 0));
        assert_eq!(region_of(100, region(1, u64::MAX)), (1, 99));
        assert_eq!(region_of(100, region(u64::MAX, u64::MAX)), (100, 0));
    }

    #[test]
    fn restart_skips_present_ranges() {
        let holes = ranges(&[(0, 10), (20, 30)]);
        assert_eq!(
            ranges_to_send(50, Some(&holes), Mode::ExtendedBlock),
            [range(10, 20), range(30, 50)]
        );
        assert_eq!(
            ranges_to_send(50, Some(&holes), Mode::Stream),
            [range(10, 50)]
        );
        let offset = RestartPoint::Offset(40);
        assert_eq!(
            ranges_to_send(50, Some(&offset), Mode::Stream),
            [range(40, 50)]
        );
        let past = RestartPoint::Offset(60);
        assert_eq!(ranges_to_send(50, Some(&past), Mode::Stream), []);
        assert_eq!(ranges_to_send(0, None, Mode::Stream), []);
    }

    #[test]
    fn only_a_plain_store_truncates() {
        let none = RangeSet::new();
        let some = ranges(&[(0, 5)]).to_ranges();
        assert_eq!(write_mode(Placement::Replace, &none), WriteMode::Replace);
        assert_eq!(write_mode(Placement::Replace, &some), WriteMode::Keep);
        assert_eq!(write_mode(Placement::Append, &none), WriteMode::Keep);
        assert_eq!(write_mode(Placement::At(0), &none), WriteMode::Keep);
    }

    #[test]
    fn a_stream_resumes_at_the_first_missing_byte() {
        assert_eq!(first_missing(&RangeSet::new()), 0);
        assert_eq!(first_missing(&RestartPoint::Offset(7).to_ranges()), 7);
        assert_eq!(first_missing(&ranges(&[(5, 9)]).to_ranges()), 0);
    }
}

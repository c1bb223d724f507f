//! One file between two ends.
//!
//! A file is a [`SourceFile`] in a plan, a `FileTask` of a job once a worker has opened its ends,
//! or a [`pipeline::file::PipelinedFile`] among other small ones. Both move it as
//! a [`FileTransfer`].
//!
//! # Map
//! - [`upload`], [`download`]: one file; [`remote_source`]: which commands fetch a part of a file
//! - [`resume`]: which bytes of a partial file are right; [`verify`]: checksums of both ends
//! - [`stealable_ranges`]: what a session without work can take from another
//! - [`pipeline`]: many small files in flight on one session

pub(crate) mod download;
pub(crate) mod pipeline;
pub(crate) mod range_outcome;
mod remote_source;
pub(crate) mod resume;
pub(crate) mod source_file;
mod stealable_ranges;
pub(crate) mod upload;
pub(crate) mod verify;

use std::{ops::Deref, pin::Pin, sync::Arc};

use godwit_engine::{
    data::{TransferJob, TransferReport},
    storage::FileRef,
};
use godwit_proto::{ByteRange, Command, FtpPath};

use self::{
    download::Download,
    range_outcome::RangeOutcome,
    source_file::{Peer, SourceFile},
    upload::Upload,
    verify::AgreedChecksum,
};
use crate::{
    context::RunContext,
    endpoint::{Endpoint, naming::NameRefused, uploads::PartedUpload},
    error::{Error, Result},
    local::durability::LocalDurability,
    session::{NextTransfer, SessionPair},
    spec::JobSpec,
};

/// Smallest piece that a file is cut into, bytes. Below that a round trip and a slow start cost
/// more than a second session gains. Chosen arbitrarily within a factor of four.
pub(crate) const PIECE_BYTES_MIN: u64 = 8 << 20;

/// Files larger than this go one by one, so that the channels can follow the tuner while they move.
/// Those from here on may also be shared between sessions.
pub(crate) const SMALL_BYTES_MAX: u64 = 2 * PIECE_BYTES_MIN - 1;

/// What runs on the thread of its session.
pub(crate) type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// How much of a file a session takes at once.
#[derive(Clone, Copy)]
pub(crate) enum PieceSize {
    /// All that is left: others cannot help, or steal from it later.
    All,
    /// As much as it likes: it can end early.
    Long,
    Short,
}

/// One file whose both ends are open: an upload, a download, or a third-party copy, which is an
/// upload of what another server sends. Defaults say what has no meaning in a direction.
pub(crate) trait FileTransfer: Send + Sync {
    /// Bytes to be moved, as far as known.
    fn length(&self) -> Option<u64>;
    /// Our end, where it can be read again.
    fn file(&self) -> Option<&FileRef>;
    /// Where the bytes lie at the server until the file is finished.
    fn remote(&self) -> &FtpPath;
    /// Bytes pass by once: a failed attempt cannot be followed by another.
    fn is_stream(&self) -> bool;
    /// What can be read only once was not read.
    fn has_whole_stream(&self) -> bool {
        false
    }
    /// Our end has its final name, which stands for something that is no file.
    fn is_in_place(&self) -> bool {
        false
    }
    /// A later run can tell whether what is there is of the same version of the source.
    fn has_version(&self) -> bool;

    /// Several sessions may each move a part.
    fn can_split(&self, session: &SessionPair) -> bool;
    /// A session that is wanted no more ends what it moves, and others move the rest.
    fn can_be_cut(&self, _: &SessionPair) -> bool {
        false
    }
    fn piece_size(&self) -> PieceSize;
    /// One session at a time moves bytes of it.
    fn takes_turns(&self) -> bool {
        false
    }
    /// A session that moves a piece of it is faster when it knows what comes next.
    fn can_follow(&self, session: &SessionPair) -> bool;
    /// What moves `range` (`None`: all of it) behind another transfer, where that can be.
    fn prefetch(
        self: Arc<Self>,
        session: &SessionPair,
        range: Option<ByteRange>,
    ) -> Option<NextTransfer>;
    /// Bytes of it went out before their turn, on a session that is gone.
    fn prefetch_wasted(&self, _: &SessionPair) -> bool {
        false
    }
    /// A session will move a range. A worker that looks for work waits for it.
    fn will_move(&self, _: Option<ByteRange>) {}
    /// Takes the later half of what some session has not begun, at least `least` bytes.
    fn steal_range(&self, _least: u64) -> Option<ByteRange> {
        None
    }
    /// Whether [`Self::steal_range`] finds something now or may once a session has begun.
    fn has_stealable_range(&self, _least: u64) -> bool {
        false
    }

    /// Begins an upload to a bucket that several jobs send.
    fn begin_divided<'a>(
        &'a self,
        _: &'a mut SessionPair,
    ) -> LocalFuture<'a, Result<PartedUpload>> {
        let no_bucket = Error::Usage(format!("{}: not to a bucket", self.remote()));
        Box::pin(async move { Err(no_bucket) })
    }

    /// Which bytes of the whole file are not at the destination; `None` where nothing tells.
    fn missing<'a>(
        &'a self,
        session: &'a mut SessionPair,
    ) -> LocalFuture<'a, Result<Option<Vec<ByteRange>>>>;
    /// After a failed attempt: takes from `todo` what the destination has, and returns how many
    /// bytes that is.
    fn find_resumable<'a>(
        &'a self,
        session: &'a mut SessionPair,
        source_file: &'a SourceFile,
        todo: &'a mut Vec<Option<ByteRange>>,
    ) -> LocalFuture<'a, Result<u64>>;
    /// Moves bytes of the region, `None` for all of it; calls `began` when others may take of them.
    /// `next` is what the session moves next, whatever comes of these.
    fn move_range<'a>(
        &'a self,
        session: &'a mut SessionPair,
        range: Option<ByteRange>,
        next: Option<NextTransfer>,
        began: &'a dyn Fn(),
    ) -> LocalFuture<'a, RangeOutcome>;

    /// The command that moves all of it.
    fn whole_command(&self) -> Command;
    /// What the data plane does then.
    fn whole_job(&self) -> TransferJob;
    /// Whether `report` is of all bytes.
    fn is_whole(&self, report: &TransferReport) -> bool;

    /// Finishing asks the server something.
    fn finish_asks(&self, _: &SessionPair) -> bool {
        true
    }
    /// Compares checksums and gives the file its final name. The destination has `bytes` of it.
    fn finish<'a>(
        &'a self,
        session: &'a mut SessionPair,
        bytes: u64,
    ) -> LocalFuture<'a, Result<Option<AgreedChecksum>>>;
    /// Gives a file that was fetched its name.
    fn commit(&self, _: &LocalDurability) -> Result<()> {
        Ok(())
    }
    /// The server has the file under the name it was written to.
    fn stored(&self, _: &RunContext, _: &Endpoint) {}
    /// The temporary and the final name at the server, where they are two.
    fn names(&self) -> Option<(&FtpPath, &FtpPath)> {
        None
    }
    /// What lay under the temporary name has its final one.
    fn mark_renamed(&self) {}

    /// Leaves what is there for a later attempt or run; where it lies.
    fn keep(&self) -> Option<Vec<u8>>;
    /// What a failure leaves at the server; what it leaves here is removed with this value.
    fn leftover(&self) -> Option<&FtpPath> {
        None
    }
    /// Why it failed, with where things lie that are not where they were.
    fn explain(&self, error: Error) -> Error {
        error
    }
    /// How the file is to be named instead where `error` refuses its temporary name.
    fn refused_name(&self, _: &Endpoint, _: &Error) -> Option<NameRefused> {
        None
    }
    /// The same where `error` tells that the server does not rename.
    fn refused_rename(&self, _: &Endpoint, _: &Error) -> Option<NameRefused> {
        None
    }
}

/// The one place that knows which transfers there are. No allocation, as small files need none.
#[allow(clippy::large_enum_variant, reason = "one at a time, moved once")]
pub(crate) enum OpenFile {
    Download(Download),
    Upload(Upload),
}

impl OpenFile {
    /// Opens both ends, after asking the server what has to be known before.
    pub(crate) async fn begin(
        session: &mut SessionPair,
        source_file: &SourceFile,
        spec: &JobSpec,
    ) -> Result<Self> {
        let (part, verify_mode) = (spec.part, spec.verify);
        Ok(match &source_file.other {
            Peer::To(to) => {
                Self::Download(Download::begin(session, source_file, to, part, verify_mode).await?)
            }
            Peer::From(from) => {
                Self::Upload(Upload::begin(session, source_file, from, part, verify_mode).await?)
            }
        })
    }

    /// Opens both ends. Asks nothing of the server.
    pub(crate) fn open(
        session: &SessionPair,
        source_file: &SourceFile,
        spec: &JobSpec,
    ) -> Result<Self> {
        let (part, verify_mode) = (spec.part, spec.verify);
        match &source_file.other {
            Peer::To(to) => {
                Download::open(session, source_file, to, part, verify_mode).map(Self::Download)
            }
            Peer::From(from) => {
                Upload::open(session, source_file, from, part, verify_mode, true).map(Self::Upload)
            }
        }
    }

    /// For several workers.
    pub(crate) fn shared(self) -> Arc<dyn FileTransfer> {
        match self {
            Self::Download(get) => Arc::new(get),
            Self::Upload(put) => Arc::new(put),
        }
    }
}

impl Deref for OpenFile {
    type Target = dyn FileTransfer;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Download(get) => get,
            Self::Upload(put) => put,
        }
    }
}

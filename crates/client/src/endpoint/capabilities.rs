//! What a server lacks, and what it was observed to do.

use std::{
    collections::HashSet,
    fmt::Display,
    net::{IpAddr, SocketAddr},
    sync::{
        OnceLock,
        atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering},
    },
    time::Instant,
};

use godwit_proto::{FtpPath, odd_bytes::OddBytes};
use parking_lot::{Mutex, MutexGuard};

use super::{
    addresses::Addresses,
    observed_limit::{Ceiling, DataConnections},
};
use crate::report::reporter::Reporter;

/// A command or feature that a server lacks or refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    Port,
    Pasv,
    /// It connects to no host but the client's.
    ForeignConnections,
    /// Several addresses for the data of one transfer (SPAS), or a need of them: it has one.
    Stripes,
    /// Connections to several addresses (SPOR).
    StripedPort,
    ModeE,
    Allo,
    Mlst,
    Mlsd,
    List,
    /// It reads `-a` as a name, or refuses it.
    ListAll,
    Size,
    Mdtm,
    Cksm,
    Rename,
    /// It refuses names with a leading dot.
    DottedNames,
    RestStor,
    Append,
    Mfmt,
    Chmod,
    /// OPTS and SBUF for socket buffers.
    Buffers,
    LiveRequests,
    Pipelining,
    /// COPY with other servers, of HTTP.
    Copies,
    /// Tokens of its own for other servers, of HTTP.
    IssuedTokens,
    /// PUT of parts of files.
    Parts,
    /// Of parts that end early.
    OpenParts,
    /// Objects that are stored only where there is none (`If-None-Match`), of a bucket.
    Conditions,
    /// Copies of objects of other buckets of the service (UploadPartCopy), of a bucket.
    ServiceCopies,
}

/// What a server was observed to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Observed {
    /// It greeted once: failures to connect are transient from now on.
    Greeted,
    /// It receives files, or sends files to this machine.
    MovesFiles,
    /// It sends files to another server.
    SendsToServer,
    /// A data connection from this machine to it was established.
    DataReached,
    /// This machine has sent it files of another server.
    FedByClient,
    /// Another server has connected to it.
    MetByServer,
    /// It has several addresses for the data of one transfer.
    HasStripes,
    /// Its MLSD lists the directory itself.
    MlsdListsItself,
    /// Its LIST and NLST with `-a` list the directory itself.
    AllListsItself,
    /// It answered for a name with a leading dot that there is no such file.
    DottedNamesLookedUp,
    /// It has stored a file under a name with a leading dot.
    DottedNamesStored,
    /// It encrypts objects as it is asked to.
    Encrypts,
    /// It was asked whether it renames.
    RenameProbed,
    /// Files were received in a pipeline: no session need probe again.
    GetsPipelined,
}

/// What the sessions with one server have learned of it. It is shared, so that each fact costs one
/// command.
#[derive(Default)]
pub(crate) struct Capabilities {
    /// A bit for each [`Lack`].
    lacks: AtomicU64,
    /// A bit for each [`Observed`].
    observed: AtomicU64,
    pub(crate) addresses: Addresses,
    /// Sessions that it admits at a time, as far as its refusals show.
    pub(super) sessions: Mutex<Ceiling>,
    /// Data channels that it accepts in one transfer, likewise.
    pub(super) channels: Mutex<Ceiling>,
    /// Data connections between it and this machine, and those from another server to it.
    data: [Mutex<DataConnections>; 2],
    /// The error of another server that could not connect to it. One firewall is assumed to hold
    /// for all.
    pub(crate) unreached: OnceLock<String>,
    /// Times and permissions of single files that it has refused.
    pub(crate) attributes_refused: AtomicU32,
    /// Small files that a session had in flight last; 0 if unknown.
    pub(crate) depth: AtomicU32,
    /// Directories that refused an upload. Files for them are sent alone: in a pipeline each
    /// refusal would cost a session.
    closed_directories: Mutex<HashSet<FtpPath>>,
    /// Directories that refused each temporary name and accepted the final one.
    in_place_folders: Mutex<HashSet<FtpPath>>,
    /// [`OddBytes`] in names that were listed unchanged.
    pub(crate) names_pass: AtomicU8,
    /// An address of another host that it has announced for data, and that was not followed.
    pub(crate) elsewhere: OnceLock<SocketAddr>,
    /// Local and remote address of data channels, where the control channel does not show them.
    pub(crate) data_addresses: OnceLock<[IpAddr; 2]>,
}

/// Directories remembered as closed, or as written in place. Further ones cost time and nothing
/// else.
const FOLDERS_MAX: usize = 10_000;

impl Capabilities {
    /// True if the server is known to lack `what`.
    pub(crate) fn lacks(&self, what: Lack) -> bool {
        self.lacks.load(Ordering::Relaxed) & (1 << what as u8) != 0
    }

    /// The server lacks `what`. True if that is new.
    pub(crate) fn record_lack(&self, what: Lack) -> bool {
        let bit = 1 << what as u8;
        self.lacks.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// The server lacks `what`: reports `text`, once.
    pub(crate) fn learn(&self, what: Lack, reporter: &Reporter, text: impl Display) {
        if self.record_lack(what) {
            reporter.note(text);
        }
    }

    /// True if `what` was observed.
    pub(crate) fn has(&self, what: Observed) -> bool {
        self.observed.load(Ordering::Relaxed) & (1 << what as u8) != 0
    }

    /// Forgets `what`, which may not hold any more.
    pub(crate) fn forget(&self, what: Observed) {
        self.observed
            .fetch_and(!(1 << what as u8), Ordering::Relaxed);
    }

    /// `what` was observed. True if that is new.
    pub(crate) fn record(&self, what: Observed) -> bool {
        let bit = 1 << what as u8;
        self.observed.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// The observed data connections: to this machine, or from another server.
    pub(crate) fn data(&self, from_server: bool) -> MutexGuard<'_, DataConnections> {
        self.data[usize::from(from_server)].lock()
    }

    /// Data channels of a new transfer, of the `wanted`.
    pub(crate) fn fit_channels(&self, wanted: u32) -> u32 {
        let most = self.channels.lock().at(Instant::now());
        most.map_or(wanted, |most| wanted.min(most))
    }

    /// A put into the directory of `path` was refused.
    pub(crate) fn record_closed_directory(&self, path: &FtpPath) {
        remember(&self.closed_directories, path);
    }

    /// A put into the directory of `path` may well be refused.
    pub(crate) fn may_be_closed(&self, path: &FtpPath) -> bool {
        holds(&self.closed_directories, path)
    }

    /// The directory of `path` takes final names alone. False where that was known.
    pub(crate) fn folder_is_in_place(&self, path: &FtpPath) -> bool {
        remember(&self.in_place_folders, path)
    }

    /// The directory of `path` takes final names alone.
    pub(crate) fn is_in_place(&self, path: &FtpPath) -> bool {
        holds(&self.in_place_folders, path)
    }

    /// Nothing in `path` makes it doubtful that the server understands it.
    pub(crate) fn passes(&self, path: &FtpPath) -> bool {
        OddBytes::from_bits(self.names_pass.load(Ordering::Relaxed))
            .has(OddBytes::of(path.as_bytes()))
    }
}

/// Adds the directory of `path`. False where it was there, or there is no room.
fn remember(folders: &Mutex<HashSet<FtpPath>>, path: &FtpPath) -> bool {
    let mut folders = folders.lock();
    let has_room = folders.len() < FOLDERS_MAX;
    let folder = path.parent().filter(|_| has_room);
    folder.is_some_and(|folder| folders.insert(folder))
}

fn holds(folders: &Mutex<HashSet<FtpPath>>, path: &FtpPath) -> bool {
    let folders = folders.lock();
    !folders.is_empty()
        && path
            .parent()
            .is_some_and(|folder| folders.contains(&folder))
}

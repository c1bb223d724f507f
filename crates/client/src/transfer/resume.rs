//! What of a file is at its destination already, since an earlier run or an earlier attempt has put
//! it there: both ends compute checksums of parts of it, and what agrees is not moved again. No
//! record of the safe bytes is needed then.
//!
//! A server that can do neither, but has REST STREAM and SIZE, is sent and sends files in order:
//! an existing part of one is its beginning ([`is_in_order`]). The client relies on that beginning
//! where this command has moved it, or where the journal of an earlier one names the same
//! [`SourceVersion`] of the source; else the file begins at its first byte. Over HTTP bytes come in
//! any order, and the journal has an account of them ([`crate::local::journal::SafeRanges`]).

use godwit_engine::storage::{FileRef, digest};
use godwit_proto::{
    ByteRange, ChecksumAlgorithm, Command, FtpPath,
    block_checksums::{self, BLOCK_BYTES_MIN, BlockChecksums},
    timestamp::Timestamp,
};

use super::verify::{Computing, Verifying};
use crate::{
    error::Result,
    local::journal::SourceVersion,
    session::{Session, SessionPair, TOGETHER_MAX, checksum_in},
};

/// Parts of which a server without leaves is asked, at most: each costs it a command.
const CHECKSUMS_MAX: u64 = 256;

/// Files go to and from this server in order, and from any byte on: it has MODE S and REST, and
/// SIZE tells how much it has.
pub(crate) fn is_in_order(session: &SessionPair) -> bool {
    let features = &session.server.features;
    let has_parts = features.parallel || features.eret || features.esto;
    features.rest_stream && features.size && !has_parts && session.sender.is_none()
}

/// Which version of a file the server has; `None` where it does not tell.
///
/// # Errors
/// The session is lost.
pub(crate) async fn version(
    session: &mut SessionPair,
    path: &FtpPath,
) -> Result<Option<SourceVersion>> {
    let mut commands = vec![Command::Size(path.clone())];
    if session.server.features.mdtm {
        commands.push(Command::Mdtm(path.clone()));
    }
    let doing = format!("look at {}", session.endpoint.url(path));
    let replies = session.ask_all(commands.into_iter(), &doing).await?;
    let told = |at: usize| {
        let reply = replies.get(at).filter(|reply| reply.code.is_success())?;
        Some(reply.text().trim().to_owned())
    };
    let size = told(0).and_then(|text| text.parse().ok());
    let changed = told(1).and_then(|text| Timestamp::parse(&text));
    Ok(size.map(|size| SourceVersion {
        size,
        changed: changed.map(|time| time.0),
    }))
}

/// Where one of the two copies is.
#[derive(Clone, Copy)]
pub(crate) enum Replica<'a> {
    Local(&'a FileRef),
    /// At the server of the session.
    Remote(&'a FtpPath),
    /// At the server that sends to it.
    AtSource(&'a FtpPath),
}

/// What tells whether parts agree.
#[derive(Clone, Copy)]
enum CompareMethod {
    /// `SITE GODWIT LEAVES`.
    BlockChecksums,
    /// CKSM of each.
    Checksums(ChecksumAlgorithm),
}

/// Whether what an attempt or a run leaves at its destination can be told from what is missing.
pub(crate) fn can_resume(session: &SessionPair) -> bool {
    compare_method(session).is_some()
}

/// Which bytes of `region` the destination does not have of those of the source. `whole`: it should
/// have no others. `None` where neither end can tell, and where nothing is there.
///
/// # Errors
/// The session is lost, or a file of ours cannot be read.
pub(crate) async fn missing(
    session: &mut SessionPair,
    (from, to): (Replica<'_>, Replica<'_>),
    region: ByteRange,
    whole: bool,
) -> Result<Option<Vec<ByteRange>>> {
    let Some(compare_method) = compare_method(session).filter(|_| !region.is_empty()) else {
        return Ok(None);
    };
    // One byte more shows a copy that is too long.
    let asked = ByteRange {
        start: region.start,
        end: region.end.saturating_add(u64::from(whole)),
    };
    let parts = ReplicaComparison {
        compare_method,
        leaf: compare_method.leaf(asked.len()),
    };
    let _shown = Verifying::new(&session.context.counters);
    // Begun first, so that both ends compute at the same time.
    let ours = match from {
        Replica::Local(file) => Some(parts.of_file(file, region)),
        Replica::Remote(_) | Replica::AtSource(_) => None,
    };
    let there = parts.of(session, to, asked).await?;
    let Some(there) = there.filter(|there| there.bytes > 0) else {
        return Ok(None);
    };
    let all = match ours {
        Some(ours) => Some(ours.value().await?),
        None => parts.of(session, from, region).await?,
    };
    let all = all.filter(|all| all.bytes == region.len());
    let moved = |r: ByteRange| ByteRange {
        start: region.start + r.start,
        end: region.start + r.end,
    };
    Ok(all.map(|all| all.missing_in(&there).into_iter().map(moved).collect()))
}

/// What all servers of a session know.
fn compare_method(session: &SessionPair) -> Option<CompareMethod> {
    // Servers of HTTP know checksums of whole files.
    if session.sender.is_some() && session.servers().any(|s| s.endpoint.is_http()) {
        return None;
    }
    let features = || session.servers().map(|s| &s.server.features);
    if features().all(|features| features.leaves) {
        return Some(CompareMethod::BlockChecksums);
    }
    // Those of 32 bits.
    let algorithms = [ChecksumAlgorithm::Crc32c, ChecksumAlgorithm::Adler32];
    let offered =
        |algorithm: &ChecksumAlgorithm| features().all(|f| f.checksums.contains(algorithm));
    algorithms
        .into_iter()
        .find(offered)
        .map(CompareMethod::Checksums)
}

impl CompareMethod {
    /// How long the parts of so many bytes are: as short as the bound of their number lets them be.
    fn leaf(self, bytes: u64) -> u64 {
        match self {
            Self::BlockChecksums => block_checksums::finest_block_bytes(bytes),
            Self::Checksums(_) => bytes
                .div_ceil(CHECKSUMS_MAX)
                .max(BLOCK_BYTES_MIN)
                .next_power_of_two(),
        }
    }
}

/// How both copies are looked at.
#[derive(Clone, Copy)]
struct ReplicaComparison {
    compare_method: CompareMethod,
    /// Bytes of each but the last.
    leaf: u64,
}

impl ReplicaComparison {
    async fn of(
        self,
        session: &mut SessionPair,
        copy: Replica<'_>,
        region: ByteRange,
    ) -> Result<Option<BlockChecksums>> {
        let (session, path) = match (copy, &mut session.sender) {
            (Replica::Local(file), _) => {
                return self.of_file(file, region).value().await.map(Some);
            }
            (Replica::Remote(path), _) => (&mut session.receiver, path),
            (Replica::AtSource(path), Some(source)) => (source, path),
            (Replica::AtSource(_), None) => return Ok(None),
        };
        let asked = match self.compare_method {
            CompareMethod::BlockChecksums => {
                let length = Some(region.len());
                let leaves = session.leaves(self.leaf, region.start, length, path);
                leaves.await.map(Some)
            }
            CompareMethod::Checksums(algorithm) => {
                self.by_checksums(session, algorithm, region, path).await
            }
        };
        match asked {
            // There is nothing, or the transfer will say what is wrong.
            Err(error) if error.refusal().is_some() => Ok(None),
            asked => asked,
        }
    }

    fn of_file(self, file: &FileRef, region: ByteRange) -> Computing<BlockChecksums> {
        let Self {
            compare_method,
            leaf,
        } = self;
        let (start, length) = (region.start, Some(region.len()));
        Computing::begin(file, move |file, go_on| match compare_method {
            CompareMethod::BlockChecksums => {
                digest::leaves_of_file(file, leaf, start, length, go_on)
            }
            CompareMethod::Checksums(algorithm) => {
                let bytes = file.metadata()?.size.saturating_sub(start);
                let bytes = bytes.min(region.len());
                let mut digests = Vec::new();
                for part in parts(bytes, leaf) {
                    let (start, length) = (start + part.start, Some(part.len()));
                    let digest = digest::of_file(file, algorithm, start, length, go_on)?;
                    digests.extend(value(&digest));
                }
                Ok(BlockChecksums {
                    leaf,
                    bytes,
                    digests,
                })
            }
        })
    }

    async fn by_checksums(
        self,
        session: &mut Session,
        algorithm: ChecksumAlgorithm,
        region: ByteRange,
        path: &FtpPath,
    ) -> Result<Option<BlockChecksums>> {
        let Some(size) = session.size(path).await? else {
            return Ok(None);
        };
        let bytes = size.saturating_sub(region.start).min(region.len());
        let doing = format!("compute {algorithm} of {}", session.endpoint.url(path));
        let mut digests = Vec::new();
        let parts: Vec<_> = parts(bytes, self.leaf).collect();
        for parts in parts.chunks(TOGETHER_MAX) {
            let commands = parts.iter().map(|part| Command::Cksm {
                algorithm,
                offset: region.start + part.start,
                length: Some(part.len()),
                path: path.clone(),
            });
            for reply in session.ask_all(commands, &doing).await? {
                let Some(value) = value(&checksum_in(reply, doing.clone())?) else {
                    return Ok(None);
                };
                digests.push(value);
            }
        }
        Ok(Some(BlockChecksums {
            leaf: self.leaf,
            bytes,
            digests,
        }))
    }
}

/// So many bytes, cut.
fn parts(bytes: u64, leaf: u64) -> impl Iterator<Item = ByteRange> {
    let cut = move |n| ByteRange {
        start: n * leaf,
        end: bytes.min((n + 1) * leaf),
    };
    (0..bytes.div_ceil(leaf)).map(cut)
}

/// Some servers print Adler-32 as a bare number without leading zeros.
fn value(digest: &str) -> Option<u32> {
    u32::from_str_radix(digest, 16).ok()
}

//! End-to-end checksums: both ends compute at the same time, then the values are compared. Servers
//! of ours tell them by leaves ([`godwit_proto::block_checksums`]), so that where they differ it is
//! known which bytes do.

use std::{
    fmt::Display,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use godwit_engine::storage::{File, FileRef, digest};
use godwit_proto::{
    ChecksumAlgorithm, FtpPath,
    block_checksums::{ALGORITHM, BlockChecksums, block_bytes},
    error::StorageFailure,
};
use tokio::task::JoinHandle;

use crate::{
    endpoint::capabilities::Lack,
    error::{Error, Mismatch, Result},
    panics::joined_badly,
    report::progress::Counters,
    session::{Session, SessionPair},
    spec::Verify,
};

/// What both ends agreed on, as the event log has it: `ADLER32:0a1b2c3d`.
pub(crate) type AgreedChecksum = String;

/// The two regions that must be the same.
pub(crate) struct Regions<'a> {
    /// For messages: the URL.
    pub(crate) doing: &'a str,
    pub(crate) remote: &'a FtpPath,
    pub(crate) remote_offset: u64,
    pub(crate) local: &'a FileRef,
    pub(crate) local_offset: u64,
    /// `None`: both to their ends.
    pub(crate) length: Option<u64>,
}

/// The regions of two servers that must be the same.
pub(crate) struct ServerRegions<'a> {
    /// For messages: the URL.
    pub(crate) doing: &'a str,
    pub(crate) from: &'a FtpPath,
    pub(crate) to: &'a FtpPath,
    pub(crate) offset: u64,
    /// `None`: both to their ends.
    pub(crate) length: Option<u64>,
    /// How many bytes there should be; `None`: not known.
    pub(crate) bytes: Option<u64>,
}

/// The algorithm to use with this server, or these two: the cheapest that both know. `None`: do not
/// compare.
pub(crate) fn choose(
    session: &SessionPair,
    verify_mode: Verify,
    is_part: bool,
) -> Result<Option<ChecksumAlgorithm>> {
    let offered = |algorithm: &ChecksumAlgorithm| {
        let mut lists = session.servers().map(|s| &s.server.features.checksums);
        lists.all(|list| list.contains(algorithm))
    };
    // Which server lacks it.
    let lacking: &Session = match &session.sender {
        Some(source) if !session.server.features.checksums.is_empty() => source,
        _ => session,
    };
    let lacks = |feature: String| Error::MissingFeature {
        endpoint: lacking.endpoint.name(),
        feature,
        consequence: "the file cannot be verified; --no-verify copies without".to_owned(),
    };
    match verify_mode {
        Verify::Never => Ok(None),
        Verify::WherePossible if is_part || session.endpoint.capabilities.lacks(Lack::Cksm) => {
            Ok(None)
        }
        Verify::WherePossible | Verify::Always(None) => {
            let cheapest = ChecksumAlgorithm::ALL.into_iter().find(offered);
            if cheapest.is_none() {
                if verify_mode != Verify::WherePossible {
                    return Err(lacks("CKSM with an algorithm of ours".to_owned()));
                }
                session.endpoint.capabilities.learn(
                    Lack::Cksm,
                    &session.context.reporter,
                    format!(
                        "{}: no CKSM in FEAT: files are not verified",
                        lacking.endpoint.name()
                    ),
                );
            }
            Ok(cheapest)
        }
        Verify::Always(Some(algorithm)) if offered(&algorithm) => Ok(Some(algorithm)),
        Verify::Always(Some(algorithm)) => Err(lacks(format!("CKSM {algorithm}"))),
    }
}

/// Computes at both ends and compares. `None` where the server turned out to be unable and the
/// user does not insist. Where the ends differ and the server knows leaves, the error tells where.
pub(crate) async fn compare(
    session: &mut SessionPair,
    verify_mode: Verify,
    algorithm: ChecksumAlgorithm,
    regions: Regions<'_>,
) -> Result<Option<AgreedChecksum>> {
    let _shown = Verifying::new(&session.context.counters);
    let bytes = match regions.length {
        Some(length) => length,
        None => {
            let all = regions.local.metadata().map_err(Error::Local)?.size;
            all.saturating_sub(regions.local_offset)
        }
    };
    let leaf = leaf_for(session, bytes);
    let whole = match leaf {
        Some(_) if algorithm == ALGORITHM => None,
        _ => Some(compare_whole(session, algorithm, &regions).await),
    };
    let compared = match (whole, leaf) {
        (Some(Err(Error::Mismatch(mismatch))), Some(leaf)) => {
            located(mismatch, compare_leaves(session, leaf, &regions).await)
        }
        (Some(compared), _) => compared,
        (None, leaf) => compare_leaves(session, leaf.unwrap_or(bytes), &regions).await,
    };
    let compared = match compared {
        Err(error)
            if error.is_unsupported()
                && session.endpoint.is_bucket()
                && !matches!(verify_mode, Verify::Always(Some(_))) =>
        {
            compare_by_others(session, algorithm, &regions).await
        }
        compared => compared,
    };
    match compared {
        Err(error) => unable(session, verify_mode, error),
        agreed => agreed.map(Some),
    }
}

/// By another algorithm that both know than the one that was `refused`.
async fn compare_by_others(
    session: &mut SessionPair,
    refused: ChecksumAlgorithm,
    regions: &Regions<'_>,
) -> Result<AgreedChecksum> {
    let known = &session.server.features.checksums;
    let others = ChecksumAlgorithm::ALL.into_iter();
    let others: Vec<_> = others
        .filter(|of| *of != refused && known.contains(of))
        .collect();
    let (from, length) = (regions.remote_offset, regions.length);
    let theirs = session.first_checksum(&others, from, length, regions.remote);
    let (algorithm, theirs) = theirs.await?;
    let (file, offset) = (regions.local, regions.local_offset);
    let ours = Computing::begin(file, move |file, go_on| {
        digest::of_file(file, algorithm, offset, length, go_on)
    });
    agree(regions.doing, algorithm, ours.value().await?, theirs)
}

/// The same of two servers: of the source's file from a byte on, and of ours.
pub(crate) async fn compare_servers(
    session: &mut SessionPair,
    verify_mode: Verify,
    algorithm: ChecksumAlgorithm,
    regions: ServerRegions<'_>,
) -> Result<Option<AgreedChecksum>> {
    let _shown = Verifying::new(&session.context.counters);
    let leaf = (regions.bytes).and_then(|bytes| leaf_for(session, bytes));
    let SessionPair {
        receiver,
        sender: Some(source),
    } = session
    else {
        return Ok(None);
    };
    let (offset, length) = (regions.offset, regions.length);
    let compared = match leaf {
        Some(leaf) if algorithm == ALGORITHM => {
            let both = tokio::join!(
                source.leaves(leaf, offset, length, regions.from),
                receiver.leaves(leaf, offset, length, regions.to),
            );
            both.0
                .and_then(|there| agree_by_leaves(regions.doing, &there, &both.1?))
        }
        _ => {
            let both = tokio::join!(
                source.checksum(algorithm, offset, length, regions.from),
                receiver.checksum(algorithm, offset, length, regions.to),
            );
            both.0
                .and_then(|there| agree(regions.doing, algorithm, there, both.1?))
        }
    };
    match compared {
        Err(error) => unable(session, verify_mode, error),
        agreed => agreed.map(Some),
    }
}

/// How long leaves are by which a region of so many bytes is compared. `None` where one of the
/// servers does not know them, and where there would be only one: then CKSM tells as much.
fn leaf_for(sessions: &SessionPair, bytes: u64) -> Option<u64> {
    let leaf = block_bytes(bytes);
    let known = sessions.servers().all(|s| s.server.features.leaves);
    (known && bytes > leaf).then_some(leaf)
}

async fn compare_whole(
    session: &mut SessionPair,
    algorithm: ChecksumAlgorithm,
    regions: &Regions<'_>,
) -> Result<AgreedChecksum> {
    let (file, offset, length) = (regions.local, regions.local_offset, regions.length);
    let ours = Computing::begin(file, move |file, go_on| {
        digest::of_file(file, algorithm, offset, length, go_on)
    });
    let from = regions.remote_offset;
    let theirs = session.checksum(algorithm, from, length, regions.remote);
    let theirs = theirs.await?;
    agree(regions.doing, algorithm, ours.value().await?, theirs)
}

async fn compare_leaves(
    session: &mut SessionPair,
    leaf: u64,
    regions: &Regions<'_>,
) -> Result<AgreedChecksum> {
    let (file, offset, length) = (regions.local, regions.local_offset, regions.length);
    let ours = Computing::begin(file, move |file, go_on| {
        digest::leaves_of_file(file, leaf, offset, length, go_on)
    });
    let from = regions.remote_offset;
    let theirs = session.leaves(leaf, from, length, regions.remote).await?;
    agree_by_leaves(regions.doing, &ours.value().await?, &theirs)
}

/// A checksum of ours that is being computed; it ends when this is dropped.
pub(crate) struct Computing<T> {
    task: JoinHandle<std::result::Result<T, StorageFailure>>,
    give_up: Arc<AtomicBool>,
}

impl<T: Send + 'static> Computing<T> {
    pub(crate) fn begin(
        file: &FileRef,
        compute: impl FnOnce(
            &dyn File,
            &mut dyn FnMut(u64) -> bool,
        ) -> std::result::Result<T, StorageFailure>
        + Send
        + 'static,
    ) -> Self {
        let give_up = Arc::new(AtomicBool::new(false));
        let (file, stop) = (Arc::clone(file), Arc::clone(&give_up));
        let task = tokio::task::spawn_blocking(move || {
            compute(file.as_ref(), &mut |_| !stop.load(Ordering::Relaxed))
        });
        Self { task, give_up }
    }

    pub(crate) async fn value(mut self) -> Result<T> {
        let done = (&mut self.task).await;
        done.map_err(|bug| joined_badly("compute a checksum", bug))?
            .map_err(Error::Local)
    }
}

impl<T> Drop for Computing<T> {
    fn drop(&mut self) {
        self.give_up.store(true, Ordering::Relaxed);
    }
}

/// A mismatch of all the bytes, with the place as far as leaves told it.
fn located(mut mismatch: Box<Mismatch>, leaves: Result<AgreedChecksum>) -> Result<AgreedChecksum> {
    match leaves {
        // One of the two is not what it was a moment ago.
        Ok(_) => {}
        Err(Error::Mismatch(leaves)) => mismatch.ranges = leaves.ranges,
        Err(error) => return Err(error),
    }
    Err(Error::Mismatch(mismatch))
}

/// What a server's refusal of CKSM means.
pub(crate) fn unable(
    session: &SessionPair,
    verify_mode: Verify,
    error: Error,
) -> Result<Option<AgreedChecksum>> {
    if verify_mode == Verify::WherePossible && error.is_unsupported() {
        session
            .context
            .reporter
            .note(format!("not verified: {error}"));
        return Ok(None);
    }
    Err(error)
}

pub(crate) fn agreed(algorithm: ChecksumAlgorithm, digest: &str) -> AgreedChecksum {
    format!("{algorithm}:{digest}")
}

/// The value both have, or which they differ in.
pub(crate) fn agree(
    doing: impl Display,
    algorithm: ChecksumAlgorithm,
    ours: String,
    theirs: String,
) -> Result<AgreedChecksum> {
    // Some servers print Adler-32 as a bare number without leading zeros.
    if ours.trim_start_matches('0') == theirs.trim_start_matches('0') {
        return Ok(agreed(algorithm, &ours));
    }
    Err(Error::Mismatch(Box::new(Mismatch {
        doing: format!("verify {doing}"),
        algorithm,
        ours,
        theirs,
        ranges: Vec::new(),
    })))
}

/// Whether what both ends have agreed on is what the user has said. A checksum by another algorithm
/// tells nothing.
pub(crate) fn check_expected(
    doing: impl Display,
    agreed: Option<&AgreedChecksum>,
    expected: Option<&(ChecksumAlgorithm, String)>,
) -> Result<()> {
    let (Some(agreed), Some((algorithm, value))) = (agreed, expected) else {
        return Ok(());
    };
    let found = agreed.strip_prefix(&format!("{algorithm}:"));
    let is_same = |found: &str| {
        let [found, value] = [found, value].map(|text| text.trim_start_matches('0'));
        found.eq_ignore_ascii_case(value)
    };
    match found.is_none_or(is_same) {
        true => Ok(()),
        false => Err(Error::WrongChecksum {
            doing: doing.to_string(),
            found: agreed.clone(),
            expected: value.clone(),
        }),
    }
}

fn agree_by_leaves(
    doing: &str,
    ours: &BlockChecksums,
    theirs: &BlockChecksums,
) -> Result<AgreedChecksum> {
    let differing = ours.differing(theirs);
    if differing.as_ref().is_some_and(Vec::is_empty) {
        return Ok(agreed(ALGORITHM, &digest::whole(ours)));
    }
    let shown =
        |leaves: &BlockChecksums| format!("{} of {} bytes", digest::whole(leaves), leaves.bytes);
    Err(Error::Mismatch(Box::new(Mismatch {
        doing: format!("verify {doing}"),
        algorithm: ALGORITHM,
        ours: shown(ours),
        theirs: shown(theirs),
        ranges: differing.unwrap_or_default(),
    })))
}

/// Counts for the display while it lives.
pub(crate) struct Verifying(Arc<Counters>);

impl Verifying {
    pub(crate) fn new(counters: &Arc<Counters>) -> Self {
        counters.verifying.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(counters))
    }
}

impl Drop for Verifying {
    fn drop(&mut self) {
        self.0.verifying.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_zeros_do_not_matter_and_other_digits_do() {
        let adler = ChecksumAlgorithm::Adler32;
        let agreed = agree("x", adler, "0a0b0c0d".into(), "a0b0c0d".into());
        assert_eq!(agreed.unwrap(), "ADLER32:0a0b0c0d");
        let error = agree("ftp://h/x", adler, "0a0b0c0d".into(), "00000001".into()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "verify ftp://h/x: ADLER32 differs: here 0a0b0c0d, at the server 00000001"
        );
    }
}

//! End-to-end checksums: both ends compute at the same time, then the values are compared.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use godwit_engine::{digest, storage::FileRef};
use godwit_proto::{ChecksumAlgorithm, FtpPath, error::FailureKind};

use crate::{
    context::known,
    error::{Error, Result},
    progress::Counters,
    session::Session,
    spec::Verify,
};

/// What both ends agreed on, as the event log has it: `ADLER32:0a1b2c3d`.
pub(crate) type Agreed = String;

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
pub(crate) struct Both<'a> {
    /// For messages: the URL.
    pub(crate) doing: &'a str,
    pub(crate) from: &'a FtpPath,
    pub(crate) to: &'a FtpPath,
    pub(crate) offset: u64,
    /// `None`: both to their ends.
    pub(crate) length: Option<u64>,
}

/// The algorithm to use with this server, or these two: the cheapest that both know. `None`: do not compare.
pub(crate) fn choose(
    session: &Session,
    wish: Verify,
    is_part: bool,
) -> Result<Option<ChecksumAlgorithm>> {
    let source = session.source.as_deref();
    let offered = |algorithm: &ChecksumAlgorithm| {
        let all = [Some(session), source];
        let mut lists = all.iter().flatten().map(|s| &s.server.features.checksums);
        lists.all(|list| list.contains(algorithm))
    };
    // Whose lack it is.
    let lacking = match source {
        Some(source) if !session.server.features.checksums.is_empty() => source,
        _ => session,
    };
    let lacks = |feature: String| Error::Lacks {
        endpoint: lacking.endpoint.name(),
        feature,
        consequence: "the file cannot be verified; --no-verify copies without".to_owned(),
    };
    match wish {
        Verify::Never => Ok(None),
        Verify::WherePossible if is_part || known(&session.endpoint.learned.no_cksm) => Ok(None),
        Verify::WherePossible | Verify::Always(None) => {
            let cheapest = ChecksumAlgorithm::ALL.into_iter().find(offered);
            if cheapest.is_none() {
                if wish != Verify::WherePossible {
                    return Err(lacks("CKSM with an algorithm of ours".to_owned()));
                }
                crate::context::Learned::learn(
                    &session.endpoint.learned.no_cksm,
                    &session.context,
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

/// Computes at both ends and compares. `None` where the server turned out to be unable and nobody insists.
pub(crate) async fn compare(
    session: &mut Session,
    wish: Verify,
    algorithm: ChecksumAlgorithm,
    regions: Regions<'_>,
) -> Result<Option<Agreed>> {
    let _shown = Verifying::new(&session.context.counters);
    let give_up = Arc::new(AtomicBool::new(false));
    let here = {
        let (file, give_up) = (Arc::clone(regions.local), Arc::clone(&give_up));
        let (offset, length) = (regions.local_offset, regions.length);
        tokio::task::spawn_blocking(move || {
            let mut go_on = |_| !give_up.load(Ordering::Relaxed);
            digest::of_file(file.as_ref(), algorithm, offset, length, &mut go_on)
        })
    };
    let theirs = session
        .checksum(
            algorithm,
            regions.remote_offset,
            regions.length,
            regions.remote,
        )
        .await;
    let theirs = match theirs {
        Ok(theirs) => theirs,
        Err(error) => {
            give_up.store(true, Ordering::Relaxed);
            return unable(session, wish, error);
        }
    };
    let ours = here
        .await
        .map_err(|_| Error::Usage("the checksum was not computed".to_owned()))?
        .map_err(Error::Local)?;
    agree(regions.doing, algorithm, ours, theirs).map(Some)
}

/// The same of two servers: of the source's file from an octet on, and of ours.
pub(crate) async fn compare_servers(
    session: &mut Session,
    wish: Verify,
    algorithm: ChecksumAlgorithm,
    regions: Both<'_>,
) -> Result<Option<Agreed>> {
    let _shown = Verifying::new(&session.context.counters);
    let Some(mut source) = session.source.take() else {
        return Ok(None);
    };
    let Both {
        doing,
        from,
        to,
        offset,
        length,
    } = regions;
    let (there, here) = tokio::join!(
        source.checksum(algorithm, offset, length, from),
        session.checksum(algorithm, offset, length, to),
    );
    session.source = Some(source);
    match (there, here) {
        (Ok(there), Ok(here)) => agree(doing, algorithm, there, here).map(Some),
        (Err(error), _) | (_, Err(error)) => unable(session, wish, error),
    }
}

/// What a server's refusal of CKSM means.
pub(crate) fn unable(session: &Session, wish: Verify, error: Error) -> Result<Option<Agreed>> {
    if wish == Verify::WherePossible && error.refusal() == Some(FailureKind::NotSupported) {
        session.context.note(format!("not verified: {error}"));
        return Ok(None);
    }
    Err(error)
}

pub(crate) fn agreed(algorithm: ChecksumAlgorithm, digest: &str) -> Agreed {
    format!("{algorithm}:{digest}")
}

/// The value both have, or which they differ in.
pub(crate) fn agree(
    doing: &str,
    algorithm: ChecksumAlgorithm,
    ours: String,
    theirs: String,
) -> Result<Agreed> {
    // Some servers print Adler-32 as a bare number without leading zeros.
    if ours.trim_start_matches('0') == theirs.trim_start_matches('0') {
        Ok(agreed(algorithm, &ours))
    } else {
        Err(Error::Mismatch {
            doing: format!("verify {doing}"),
            algorithm,
            ours,
            theirs,
        })
    }
}

/// Counts for the display while it lives.
struct Verifying(Arc<Counters>);

impl Verifying {
    fn new(counters: &Arc<Counters>) -> Self {
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

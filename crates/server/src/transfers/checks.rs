//! The checks of a received file that decide whether its transfer succeeds.

use std::{
    io::Write as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use godwit_engine::storage::Storage;
use godwit_proto::{ChecksumAlgorithm, FtpPath, error::TransferFailure, timestamp::Timestamp};

use super::{
    checksums::{blocking, checksum, open},
    shared_writer::SharedWriter,
};
use crate::storage::system_time;
use crate::{access::turns::AccountTurns, storage::failure_of};

/// The checks on which the success of a receipt depends.
pub(crate) struct Checks {
    /// TYPE A: a CR at the very end waits for what follows it.
    unflushed: Option<SharedWriter>,
    storage: Arc<dyn Storage>,
    path: FtpPath,
    checksums: Vec<(ChecksumAlgorithm, String)>,
    modify: Option<Timestamp>,
}

impl Checks {
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        path: FtpPath,
        checksums: Vec<(ChecksumAlgorithm, String)>,
        modify: Option<Timestamp>,
    ) -> Self {
        Self {
            unflushed: None,
            storage,
            path,
            checksums,
            modify,
        }
    }

    pub(crate) fn flush_at_the_end(&mut self, writer: SharedWriter) {
        self.unflushed = Some(writer);
    }

    /// `None` where there is nothing to check.
    pub(crate) fn needed(self) -> Option<Self> {
        let is_needed =
            self.unflushed.is_some() || !self.checksums.is_empty() || self.modify.is_some();
        is_needed.then_some(self)
    }

    /// `stop` ends a long checksum.
    pub(crate) async fn run(
        mut self,
        turns: &AccountTurns,
        stop: &AtomicBool,
    ) -> Result<(), TransferFailure> {
        if let Some(mut writer) = self.unflushed.take() {
            let doing = format!("write {}", self.path);
            blocking(move || writer.flush().map_err(|e| failure_of(&e, &doing))).await?;
        }
        for (algorithm, expected) in &self.checksums {
            // Read the file back: the bytes on the wire prove less.
            let file = open(Arc::clone(&self.storage), self.path.clone()).await?;
            let go_on = &mut |_| !stop.load(Ordering::Relaxed);
            let computed = checksum(file, *algorithm, 0, None, turns, go_on).await?;
            if !computed.eq_ignore_ascii_case(expected) {
                return Err(TransferFailure::Checksum {
                    computed,
                    expected: expected.clone(),
                });
            }
        }
        if let Some(modify) = self.modify {
            let set = move || (self.storage).set_modified(&self.path, system_time(modify));
            blocking(set).await?;
        }
        Ok(())
    }
}

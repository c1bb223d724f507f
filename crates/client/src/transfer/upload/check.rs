//! Whether the file at the server is the source: by checksum, or else by size.

use godwit_proto::FtpPath;

use super::{StdinSource, Upload, UploadSource};
use crate::{
    error::{Error, Result},
    session::SessionPair,
    transfer::{
        source_file::is_device,
        verify::{self, AgreedChecksum, Regions, ServerRegions},
    },
};

impl Upload {
    /// Whether what is `at` a path of the server is the file.
    pub(super) async fn check(
        &self,
        session: &mut SessionPair,
        at: &FtpPath,
        moved: u64,
    ) -> Result<Option<AgreedChecksum>> {
        let doing = self.doing();
        let algorithm = match &self.from {
            // What went into a device cannot be read again.
            _ if is_device(at) => None,
            UploadSource::Stream(_) => None,
            _ => verify::choose(session, self.verify_mode, self.is_part)?,
        };
        let agreed = match (&self.from, algorithm) {
            (UploadSource::Stream(input), _) if !is_device(at) => {
                self.compare_input(session, input, at, &doing).await?
            }
            (UploadSource::File(file), Some(algorithm)) => {
                let regions = Regions {
                    doing: &doing,
                    remote: at,
                    remote_offset: self.offset,
                    local: file,
                    local_offset: self.offset,
                    // Of our file what was sent, of theirs all there is: a file that is too long
                    // must not pass.
                    length: self.length.filter(|_| self.is_part),
                };
                verify::compare(session, self.verify_mode, algorithm, regions).await?
            }
            (UploadSource::Server(source), Some(algorithm)) => {
                let regions = ServerRegions {
                    doing: &doing,
                    from: &source.path,
                    to: at,
                    offset: self.offset,
                    length: self.length.filter(|_| self.is_part),
                    bytes: self.length,
                };
                verify::compare_servers(session, self.verify_mode, algorithm, regions).await?
            }
            _ => None,
        };
        verify::check_expected(&doing, agreed.as_ref(), self.expected.as_deref())?;
        if agreed.is_none() && !self.is_part && !is_device(at) {
            // Of a resumed file, its whole length.
            let expected = self.length.unwrap_or(moved);
            self.compare_size(session, at, expected, &doing).await?;
        }
        Ok(agreed)
    }

    /// Without a checksum at least the size must be right, where the server tells it.
    async fn compare_size(
        &self,
        session: &mut SessionPair,
        at: &FtpPath,
        moved: u64,
        doing: &str,
    ) -> Result<()> {
        if !session.server.features.size {
            return Ok(());
        }
        match session.size(at).await? {
            Some(size) if size != moved => Err(Error::Size {
                doing: doing.to_owned(),
                expected: moved,
                got: size,
            }),
            _ => Ok(()),
        }
    }

    async fn compare_input(
        &self,
        session: &mut SessionPair,
        input: &StdinSource,
        at: &FtpPath,
        doing: &str,
    ) -> Result<Option<AgreedChecksum>> {
        let Some((algorithm, ours)) = input.checksum() else {
            return Ok(None);
        };
        match session.checksum(algorithm, 0, None, at).await {
            Ok(theirs) => verify::agree(doing, algorithm, ours, theirs).map(Some),
            Err(error) => verify::unable(session, self.verify_mode, error),
        }
    }
}

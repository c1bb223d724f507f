//! What a job would copy, as users see it before they submit.

use serde::{Deserialize, Serialize};

use crate::job::{FileRequest, Overwrite};

/// Most files that an answer names.
pub const MAX_PREVIEWED: usize = 40;

/// Most directories that are listed at each end.
pub const MAX_PREVIEWED_DIRECTORIES: u64 = 200;

/// Most failures that an answer names.
pub const MAX_PREVIEW_FAILURES: usize = 5;

/// What is asked of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PreviewQuestion {
    /// What the job would copy.
    pub file: FileRequest,
    /// What would become of files that exist.
    pub overwrite: Overwrite,
    /// Times would be copied, and compared.
    pub preserve_times: bool,
    /// Only an agent that has all of these may look, as with the job.
    #[serde(default)]
    pub labels: Vec<String>,
}

/// What a job would copy. Where `unlisted` or `failed` is more than 0, there may be more of all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobPreview {
    /// Files that the destination does not have.
    pub copied: Amount,
    /// Files that would take the place of others.
    pub replaced: Amount,
    /// Files that are there already, and stay.
    pub skipped: Amount,
    /// Files that would fail: the destination has them.
    pub refused: Amount,
    /// Files of which nobody knows whether the destination has them, or whether they differ.
    pub unknown: Amount,
    /// Files among all these whose size the source does not tell: their bytes are not counted.
    pub without_size: u64,
    /// Directories of the source that were listed.
    pub listed: u64,
    /// Directories of the source that are known, and were not listed: the time was over, or there
    /// were 200.
    pub unlisted: u64,
    /// Directories of the source that could not be listed.
    pub failed: u64,
    /// Directories or files of the destination that could not be looked at.
    pub unseen: u64,
    /// Why the first of both could not, at most 5.
    pub failures: Vec<String>,
    /// The first files, at most 40, directory by directory.
    pub first: Vec<PreviewedFile>,
}

/// Files and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Amount {
    /// Files.
    pub files: u64,
    /// Bytes, as far as the source tells.
    pub bytes: u64,
}

/// A file as it would be copied. Endpoints chose the names: escape them before they are shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PreviewedFile {
    /// URL.
    pub source: String,
    /// URL of the copy.
    pub destination: String,
    /// Where the source tells.
    #[serde(default)]
    pub bytes: Option<u64>,
    /// What would become of it.
    pub fate: Fate,
}

/// What would become of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Fate {
    /// The destination does not have it.
    Copied,
    /// It takes the place of another.
    Replaced,
    /// It is there already, and stays.
    Skipped,
    /// It fails: it is there already.
    Refused,
    /// The destination was not looked at, or tells too little.
    Unknown,
}

impl JobPreview {
    /// All amounts, with what would become of their files.
    pub fn amounts(&self) -> [(Fate, Amount); 5] {
        [
            (Fate::Copied, self.copied),
            (Fate::Replaced, self.replaced),
            (Fate::Skipped, self.skipped),
            (Fate::Refused, self.refused),
            (Fate::Unknown, self.unknown),
        ]
    }

    /// The amount of files that this would become of.
    pub fn amount(&mut self, fate: Fate) -> &mut Amount {
        match fate {
            Fate::Copied => &mut self.copied,
            Fate::Replaced => &mut self.replaced,
            Fate::Skipped => &mut self.skipped,
            Fate::Refused => &mut self.refused,
            Fate::Unknown => &mut self.unknown,
        }
    }

    /// All that the job would copy was looked at.
    pub fn is_complete(&self) -> bool {
        self.unlisted == 0 && self.failed == 0
    }
}

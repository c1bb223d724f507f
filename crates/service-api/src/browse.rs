//! Directories of endpoints, as users look into them before they submit.

use serde::{Deserialize, Serialize};

/// Most entries of a directory that an agent looks at.
pub const MAX_LOOKED_AT: usize = 20_000;

/// Most entries of an answer.
pub const MAX_BROWSED: u32 = 200;

/// `POST /api/v1/browse`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BrowseRequest {
    /// URL of a directory, as of a source.
    pub url: String,
    /// Of an answer, for the entries that come after.
    #[serde(default)]
    pub cursor: Option<String>,
    /// Most entries of the answer: 1 to 200.
    #[serde(default = "usual")]
    pub limit: u32,
    /// Only an agent that has all of these may look, as with a job.
    // Agents of earlier releases refuse fields that they do not know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
}

fn usual() -> u32 {
    100
}

/// What is in a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BrowsedDirectory {
    /// Directories by name, then files by name. What is neither is left out.
    pub entries: Vec<BrowsedEntry>,
    /// All entries of the directory; with `has_more` those that were looked at.
    pub total: u64,
    /// The directory has more than `total` entries, and only those can be shown.
    #[serde(default)]
    pub has_more: bool,
    /// For the entries that come after; none where there are none.
    #[serde(default)]
    pub cursor: Option<String>,
}

/// An entry of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BrowsedEntry {
    /// Its name as UTF-8; other bytes are replaced by U+FFFD. The endpoint chose it: escape it
    /// before it is shown.
    pub name: String,
    /// What a job names it by.
    pub url: String,
    /// It has entries itself.
    pub directory: bool,
    /// Of a file, where the endpoint tells.
    #[serde(default)]
    pub bytes: Option<u64>,
}

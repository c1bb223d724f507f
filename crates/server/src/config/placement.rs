//! Processors, as the command line and the settings file name them.

use std::str::FromStr;

use godwit_engine::host::cpu_affinity::{CpuAffinity, CpuAffinityError};
use serde::Deserialize;

/// What [`CpuAffinity`] reads, checked.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct PlacementText(pub CpuAffinity);

impl FromStr for PlacementText {
    type Err = CpuAffinityError;

    fn from_str(text: &str) -> Result<Self, CpuAffinityError> {
        text.parse().map(Self)
    }
}

impl TryFrom<String> for PlacementText {
    type Error = CpuAffinityError;

    fn try_from(text: String) -> Result<Self, CpuAffinityError> {
        text.parse()
    }
}

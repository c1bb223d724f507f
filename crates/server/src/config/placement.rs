//! Processors, as they stand on the command line and in the file of settings.

use std::str::FromStr;

use godwit_engine::placement::{Placement, PlacementError};
use serde::Deserialize;

/// What [`Placement`] reads, checked.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct PlacementText(pub Placement);

impl FromStr for PlacementText {
    type Err = PlacementError;

    fn from_str(text: &str) -> Result<Self, PlacementError> {
        text.parse().map(Self)
    }
}

impl TryFrom<String> for PlacementText {
    type Error = PlacementError;

    fn try_from(text: String) -> Result<Self, PlacementError> {
        text.parse()
    }
}

//! Lists in pages.

use serde::{Deserialize, Serialize};

/// Most items of a page.
pub const MAX_PAGE: u32 = 1000;

/// Items of a page unless the query says otherwise.
pub const DEFAULT_PAGE: u32 = 100;

/// One page of a list; `?cursor=` of the next request is `next` of this one.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Page<T> {
    /// In the order of the list.
    pub items: Vec<T>,
    /// `None`: this was the last page.
    pub next: Option<String>,
}

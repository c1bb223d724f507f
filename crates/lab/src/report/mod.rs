//! Results for people: text for the terminal, one HTML page, figures.

pub mod chart;

mod figure;
mod group;
mod html;
mod text;
mod verdict;

#[cfg(test)]
mod tests;

pub use html::page;
pub use text::summarise;

use crate::runner::Results;

/// The figure of results as an SVG file of its own; `None` when nothing was measured.
pub fn svg(results: &Results) -> Option<String> {
    let figure = figure::figure(results, &group::groups(results))?;
    Some(figure.to_svg("f", true))
}

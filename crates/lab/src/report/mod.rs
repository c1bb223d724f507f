//! Reports of results: text for the terminal, pages in HTML and Markdown, figures.

pub mod chart;

mod evolution;
mod figure;
mod format;
mod group;
mod html;
mod judged;
mod markdown;
mod tables;
mod text;
pub mod trials;
mod verdict;

#[cfg(test)]
mod tests;

pub use html::page;
pub use markdown::markdown;
pub use text::summarise;

use crate::runner::Results;
use chart::Figure;
use group::{Group, groups};

/// A figure as a file of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FigureFile {
    /// Name of the file.
    pub name: String,
    /// What goes into it.
    pub svg: String,
}

/// The figures of results as SVG files whose names start with `name`; none when nothing was
/// measured.
pub fn svgs(results: &Results, name: &str) -> Vec<FigureFile> {
    (figures(results, &groups(results)).into_iter())
        .map(|figure| FigureFile {
            name: format!("{name}{}.svg", figure.suffix),
            svg: figure.drawing.to_svg("f", true),
        })
        .collect()
}

/// One of the figures of a scenario.
struct NamedFigure {
    /// What tells it apart from the others, for names of files and parts.
    suffix: &'static str,
    drawing: Figure,
    caption: String,
}

/// All figures: goodput over what varies, and transfers against time.
fn figures(results: &Results, groups: &[Group<'_>]) -> Vec<NamedFigure> {
    let main = figure::figure(results, groups).map(|drawing| NamedFigure {
        suffix: "",
        drawing,
        caption: figure::caption(results, groups),
    });
    let evolution = evolution::figure(results, groups).map(|drawing| NamedFigure {
        suffix: "-time",
        drawing,
        caption: "The first faithful run of each method, in bins of half a second as the \
                  receiving kernel counts. Marks on the right are decisions; the dashed line is \
                  the best static setting."
            .to_owned(),
    });
    main.into_iter().chain(evolution).collect()
}

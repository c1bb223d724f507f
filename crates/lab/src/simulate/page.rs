//! Pages of simulated scenarios, with their figures.

mod by_channels;
mod by_limit;
mod by_sharing;
mod by_tuner;

use std::fmt::Write as _;

use super::{LoadedSimulation, SimOutcome};
use crate::report::FigureFile;

/// The page in Markdown, and the figures that it shows; their names begin with `name`.
pub fn page(
    loaded: &LoadedSimulation,
    outcome: &SimOutcome,
    name: &str,
    command: &str,
) -> (String, Vec<FigureFile>) {
    let scenario = &loaded.scenario;
    let mut text = format!("# {}\n\n", scenario.title);
    // Writing to a string cannot fail, here and below.
    if !scenario.source.is_empty() {
        let _ = writeln!(text, "After {}.\n", scenario.source);
    }
    let _ = writeln!(text, "{}\n", scenario.about.trim());
    let files = match outcome {
        SimOutcome::Channels(result) => by_channels::write(&mut text, scenario, result, name),
        SimOutcome::Tuners(result) => by_tuner::write(&mut text, scenario, result, name),
        SimOutcome::Limits(result) => by_limit::write(&mut text, result),
        SimOutcome::Research(result) => by_sharing::write(&mut text, scenario, result, name),
    };
    let _ = writeln!(
        text,
        "`{command}` gives the same on every machine.\n\n\
         <details><summary>The scenario</summary>\n\n```toml\n{}\n```\n\n</details>",
        loaded.text.trim()
    );
    (text, files)
}

/// A table; the first column is text.
fn table(text: &mut String, head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    let _ = writeln!(
        text,
        "| {} |\n|---|{}",
        head.join(" | "),
        "--:|".repeat(head.len() - 1)
    );
    for row in rows {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text.push('\n');
}

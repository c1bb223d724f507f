//! A page in Markdown, with its figures as files beside it.

use std::fmt::Write as _;

use super::group::groups;
use super::tables::{Kind, Table, environment, method, tables, warnings};
use super::{FigureFile, figures};
use crate::runner::Results;

/// The page, and the files it shows: `name` starts their names.
pub fn markdown(results: &Results, name: &str) -> (String, Vec<FigureFile>) {
    let groups = groups(results);
    let scenario = &results.scenario;
    let mut text = format!("# {}\n\n", scenario.title);
    // Writing to a string cannot fail, here and below.
    if !scenario.source.is_empty() {
        let _ = writeln!(text, "After {}.\n", scenario.source);
    }
    if !scenario.about.is_empty() {
        let _ = writeln!(text, "{}\n", scenario.about.trim());
    }
    for warning in warnings(results) {
        let _ = writeln!(text, "> {warning}\n");
    }
    let mut files = Vec::new();
    for figure in figures(results, &groups) {
        let file = format!("{name}{}.svg", figure.suffix);
        let _ = writeln!(
            text,
            "![{}]({file})\n\n{}\n",
            scenario.title, figure.caption
        );
        files.push(FigureFile {
            name: file,
            svg: figure.drawing.to_svg("f", true),
        });
    }
    for table in tables(results, &groups) {
        text.push_str(&section(&table));
    }
    let _ = writeln!(
        text,
        "## How it was measured\n\n{}\n",
        method(results, &groups)
    );
    text.push_str(&section(&environment(
        &results.environment,
        results.scenario.run.seed,
    )));
    let _ = writeln!(
        text,
        "<details><summary>The scenario</summary>\n\n```toml\n{}\n```\n\n</details>",
        results.scenario_text.trim()
    );
    (text, files)
}

pub(super) fn section(table: &Table) -> String {
    let cell = |text: &str| text.replace('|', "\\|").replace('\n', "<br>");
    let mut text = format!("## {}\n\n| {} |\n|", table.title, table.head.join(" | "));
    for column in 0..table.head.len() {
        let right = table.kind == Kind::Figures && column > 0;
        text.push_str(if right { "--:|" } else { "---|" });
    }
    text.push('\n');
    for row in &table.rows {
        let cells: Vec<String> = row.iter().map(|text| cell(text)).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text.push('\n');
    text
}

//! The HTML page: figures, tables, and how they were measured.

use std::fmt::Write as _;

use super::chart::{self, escape};
use super::figures;
use super::group::groups;
use super::tables::{Kind, Table, environment, method, tables, warnings};
use crate::runner::Results;

const STYLE: &str = include_str!("page.css");

/// One self-contained page about all results: no script, nothing loaded from elsewhere.
pub fn page(all: &[Results]) -> String {
    let title = match all {
        [one] => one.scenario.title.clone(),
        _ => "Results of the godwit lab".to_owned(),
    };
    let mut body = format!("<h1>{}</h1>\n", escape(&title));
    if all.len() > 1 {
        body.push_str("<nav><ol>\n");
        for (number, results) in all.iter().enumerate() {
            // Writing to a string cannot fail, here and below.
            let _ = writeln!(
                body,
                "<li><a href=\"#s{number}\">{}</a> <span class=\"soft\">{}</span></li>",
                escape(&results.scenario.title),
                escape(&results.environment.scenario)
            );
        }
        body.push_str("</ol></nav>\n");
    }
    for (number, results) in all.iter().enumerate() {
        body.push_str(&section(results, number, all.len() > 1));
    }
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>{}</title>\n<style>\n{STYLE}\n{}\n</style>\n</head>\n<body>\n<main>\n\
         {body}</main>\n\
         </body>\n</html>\n",
        escape(&title),
        chart::STYLE
    )
}

fn section(results: &Results, number: usize, headed: bool) -> String {
    let groups = groups(results);
    let mut text = format!("<section id=\"s{number}\">\n");
    if headed {
        let _ = writeln!(text, "<h2>{}</h2>", escape(&results.scenario.title));
    }
    if !results.scenario.source.is_empty() {
        let _ = writeln!(
            text,
            "<p class=\"soft\">After {}</p>",
            escape(&results.scenario.source)
        );
    }
    let _ = writeln!(text, "<p>{}</p>", escape(results.scenario.about.trim()));
    for warning in warnings(results) {
        let _ = writeln!(text, "<p class=\"note\">{}</p>", escape(&warning));
    }
    for figure in figures(results, &groups) {
        let id = format!("f{number}{}", figure.suffix);
        let _ = writeln!(
            text,
            "<figure>\n{}<figcaption>{}</figcaption>\n</figure>",
            figure.drawing.to_svg(&id, false),
            escape(&figure.caption)
        );
    }
    for part in tables(results, &groups) {
        text.push_str(&titled(&part));
    }
    let _ = writeln!(
        text,
        "<h3>How it was measured</h3>\n<p>{}</p>",
        escape(&method(results, &groups))
    );
    text.push_str(&titled(&environment(
        &results.environment,
        results.scenario.run.seed,
    )));
    let _ = writeln!(
        text,
        "<details><summary>The scenario</summary>\n<pre>{}</pre></details>",
        escape(&results.scenario_text)
    );
    text.push_str("</section>\n");
    text
}

fn titled(table: &Table) -> String {
    let class = match table.kind {
        Kind::Words => "words",
        Kind::Verdicts => "words verdicts",
        Kind::Figures => "figures",
    };
    let mut text = format!(
        "<h3>{}</h3>\n<div class=\"wide\"><table class=\"{class}\">\n<thead><tr>",
        table.title
    );
    for cell in &table.head {
        let _ = write!(text, "<th>{}</th>", escape(cell));
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        text.push_str("<tr>");
        for cell in row {
            let _ = write!(text, "<td>{}</td>", escape(cell));
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody></table></div>\n");
    text
}

//! Checks of the book in `docs/`: the list names each page, links lead somewhere, and the messages
//! that it explains still exist.

use std::{
    collections::BTreeSet,
    path::{Component, Path, PathBuf},
};

use crate::files::{collect, read};

/// Blocks of commands that no test runs since they take another machine.
const ELSEWHERE_MAX: usize = 14;

/// What fenced blocks may hold beside commands that are run.
const LANGUAGES: [&str; 7] = ["console", "ini", "json", "python", "rust", "text", "toml"];

pub(crate) fn check(root: &Path, faults: &mut Vec<String>) -> Result<(), String> {
    let docs = root.join("docs");
    let mut pages = Vec::new();
    collect(&docs, "md", &mut pages)?;
    let summary = docs.join("SUMMARY.md");
    let listed: BTreeSet<PathBuf> = links(&read(&summary)?)
        .map(|link| docs.join(link))
        .collect();
    let sources = messages(root)?;
    let mut elsewhere = 0;
    for page in pages.iter().chain([&root.join("README.md")]) {
        let shown = page.strip_prefix(root).unwrap_or(page).display();
        let in_book = page.starts_with(&docs);
        if in_book && *page != summary && !listed.contains(page) {
            faults.push(format!("{shown}: add it to docs/SUMMARY.md"));
        }
        let text = read(page)?;
        for link in links(&text) {
            if !leads_somewhere(page, link) {
                faults.push(format!("{shown}: there is no {link}"));
            }
        }
        for language in text.lines().filter_map(|line| line.strip_prefix("```")) {
            let kind = language.split(',').next().unwrap_or_default();
            if !kind.is_empty() && !LANGUAGES.contains(&kind) {
                faults.push(format!(
                    "{shown}: no test runs blocks of {kind}: make it console"
                ));
            }
            elsewhere += usize::from(language == "console,elsewhere");
        }
        for message in quoted(&text) {
            if let Some(part) = unsaid(message, &sources) {
                faults.push(format!("{shown}: nothing says {part:?} any more"));
            }
        }
    }
    if elsewhere > ELSEWHERE_MAX {
        faults.push(format!(
            "docs: {elsewhere} blocks of commands are run nowhere, {ELSEWHERE_MAX} may be"
        ));
    }
    Ok(())
}

/// Where links and pictures lead that are no addresses, without what follows `#`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split(')').next());
    targets
        .map(|target| target.split('#').next().unwrap_or_default())
        .filter(|target| !target.is_empty() && !target.contains("://") && !target.contains(' '))
}

fn leads_somewhere(page: &Path, link: &str) -> bool {
    let mut path = page.to_owned();
    path.pop();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            part => path.push(part),
        }
    }
    path.exists()
}

/// All that our programs can say, in one text.
fn messages(root: &Path) -> Result<String, String> {
    let mut files = Vec::new();
    for name in [
        "client",
        "engine",
        "gsi",
        "http",
        "http-client",
        "proto",
        "scheduler",
        "server",
        "service",
        "service-api",
    ] {
        collect(
            &root.join("crates").join(name).join("src"),
            "rs",
            &mut files,
        )?;
    }
    let mut all = String::new();
    for file in files {
        let mut joined = false;
        for line in read(&file)?.lines() {
            // A backslash continues a text on the next line, without the blanks before.
            let line = if joined { line.trim_start() } else { line };
            joined = line.ends_with('\\');
            all.push_str(line.trim_end_matches('\\'));
            if !joined {
                all.push('\n');
            }
        }
    }
    Ok(all)
}

/// The messages in tables that explain them.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    let mut in_table = false;
    text.lines()
        .filter(move |line| {
            in_table = line.starts_with("| Message |") || in_table && line.starts_with('|');
            in_table
        })
        .filter_map(|line| line.split('|').nth(1))
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
}

/// The first part of a message that no source holds; `...` stands for what differs.
fn unsaid<'a>(message: &'a str, sources: &str) -> Option<&'a str> {
    // A reply begins with its code, which is a number in the sources.
    let text = message.trim_start_matches(|c: char| c.is_ascii_digit());
    let mut parts = text
        .split("...")
        .map(|part| part.trim_matches([' ', ':', ',']));
    parts.find(|part| !sources.contains(part))
}

#[cfg(test)]
mod tests {
    use super::{links, quoted, unsaid};

    #[test]
    fn links_and_messages_are_found() {
        let text = "[a](b.md#c) ![d](e.svg) [f](https://g) [h](#i)\n| Message | M |\n|---|---|\n\
                    | `530 no ...: x`, `y` | `z` |\n\n| `w` |\n";
        assert_eq!(links(text).collect::<Vec<_>>(), ["b.md", "e.svg"]);
        assert_eq!(quoted(text).collect::<Vec<_>>(), ["530 no ...: x", "y"]);
        assert_eq!(unsaid("530 no ...: x", "no {name}: x"), None);
        assert_eq!(unsaid("530 no ...: y", "no {name}: x"), Some("y"));
    }
}

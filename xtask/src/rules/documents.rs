//! Documents name only what the tree has: the glossary identifiers, the guides paths.

use std::{collections::BTreeSet, path::Path};

use super::{Fault, Text};
use crate::source;

const RULE: &str = "a document names what is not in the tree";

const GLOSSARY: &str = "docs/glossary.md";

/// What says where things are.
const GUIDES: [&str; 2] = ["ARCHITECTURE.md", "CONTRIBUTING.md"];

pub(super) fn check(root: &Path, texts: &[Text], faults: &mut Vec<Fault>) {
    let is_source = |path: &str| path.starts_with("crates/") && path.contains("/src/");
    let mut known = BTreeSet::new();
    for text in texts.iter().filter(|text| is_source(&text.path)) {
        known.extend(source::identifiers(&text.parts.code).map(|(_, name)| name));
    }
    for Text { path, text, .. } in texts {
        let missing: Vec<&str> = if path == GLOSSARY {
            identifiers(text)
                .filter(|name| !known.contains(*name))
                .collect()
        } else if GUIDES.contains(&&**path) {
            paths(text).filter(|path| !exists(root, path)).collect()
        } else {
            continue;
        };
        faults.extend(missing.into_iter().map(|name| Fault {
            rule: RULE,
            text: format!("{path}: there is no {name}"),
        }));
    }
}

/// The identifiers in the second column of tables.
fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    let rows = text.lines().filter(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.split('|').nth(2));
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    names.flat_map(|name| name.split("::"))
}

/// What looks like a path, in prose, diagrams and between backquotes: it holds a slash behind the
/// name of a folder of ours.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| c.is_whitespace() || "`()[],;|<>\"".contains(c));
    let words = words.map(|word| word.trim_end_matches(['.', ':', '/']));
    words.filter(|word| {
        let mut parts = word.split('/');
        let first = parts.next().unwrap_or_default();
        parts.next().is_some() && !word.contains(['*', '{', '$']) && FOLDERS.contains(&first)
    })
}

/// Folders at the root, and crates, which guides name without `crates/`.
const FOLDERS: [&str; 16] = [
    "changelog",
    "client",
    "crates",
    "dist",
    "docs",
    "engine",
    "fuzz",
    "gsi",
    "lab",
    "packaging",
    "proto",
    "scripts",
    "server",
    "sim",
    "tune",
    "xtask",
];

fn exists(root: &Path, path: &str) -> bool {
    let path = path.split('#').next().unwrap_or(path);
    root.join(path).exists() || root.join("crates").join(path).exists()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Text, check};

    fn told(texts: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("crates/a/src");
        fs::create_dir_all(&at).unwrap();
        fs::create_dir_all(folder.path().join("crates/proto/src/pi")).unwrap();
        fs::write(at.join("lib.rs"), "").unwrap();
        let own = |(path, text): &(&str, &str)| Text::new(path, (*text).to_owned());
        let texts: Vec<_> = texts.iter().map(own).collect();
        let mut faults = Vec::new();
        check(folder.path(), &texts, &mut faults);
        faults.into_iter().map(|fault| fault.text).collect()
    }

    #[test]
    fn identifiers_of_the_glossary_exist() {
        let source = (
            "crates/a/src/lib.rs",
            "pub enum Mode { Stream } // a Block\n",
        );
        let page = "| Term | In the code |\n|---|---|\n| a | `Mode::Stream` |\n| `b` | `Block` |\n";
        let faults = told(&[source, ("docs/glossary.md", page)]);
        assert_eq!(faults, ["docs/glossary.md: there is no Block"]);
    }

    #[test]
    fn paths_of_the_guides_exist() {
        let page = "See `crates/a/src/lib.rs`, proto/src/pi/ and [x](crates/a/src/gone.rs).\n\
                    Not and/or, not crates/*/src; but proto/src/gone.rs.\n";
        let faults = told(&[("CONTRIBUTING.md", page), ("README.md", page)]);
        let expected = ["crates/a/src/gone.rs", "proto/src/gone.rs"];
        let expected = expected.map(|path| format!("CONTRIBUTING.md: there is no {path}"));
        assert_eq!(faults, expected);
    }
}

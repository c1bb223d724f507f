//! Rules of names, lines and pages. Each takes texts, so that its test can show it fail.

mod adr;
mod bytes;
mod circles;
mod columns;
mod documents;
mod types;
mod words;

use std::path::Path;

use crate::{
    files::{collect, read},
    source::{self, Parts},
};

/// A breach of a rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    rule: &'static str,
    text: String,
}

/// A source or a document, taken apart once for all rules.
pub(crate) struct Text {
    /// Below the root.
    path: String,
    text: String,
    /// Of a source; empty for documents.
    parts: Parts,
}

impl Text {
    fn new(path: &str, text: String) -> Self {
        let is_rust = path.ends_with(".rs");
        Self {
            path: path.to_owned(),
            parts: source::parts(if is_rust { &text } else { "" }),
            text,
        }
    }

    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether coined words may stand in it: rules name them.
    fn is_rule(&self) -> bool {
        self.path.starts_with("xtask/src/rules/")
    }

    fn fault(&self, rule: &'static str, line: usize, what: &str) -> Fault {
        Fault {
            rule,
            text: format!("{}:{line}: {what}", self.path),
        }
    }
}

/// Checks the tree.
pub(crate) fn check(root: &Path, faults: &mut Vec<String>) -> Result<(), String> {
    let mut found = Vec::new();
    for folder in crate::modules::all_crates(root)? {
        let tree = crate::modules::tree::read_crate(&folder)?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        circles::check(&name, &tree, &mut found);
        types::check(root, &tree, &mut found);
    }
    let texts = texts(root)?;
    for text in &texts {
        columns::check(text, &mut found);
        bytes::check(text, &mut found);
        words::check(text, &mut found);
        adr::check(text, &mut found);
    }
    documents::check(root, &texts, &mut found);
    faults.extend(
        found
            .iter()
            .map(|fault| format!("{}: {}", fault.text, fault.rule)),
    );
    Ok(())
}

/// Sources and documents.
fn texts(root: &Path) -> Result<Vec<Text>, String> {
    let mut files = Vec::new();
    for folder in [
        "changelog",
        "crates",
        "docs",
        "fuzz",
        "packaging",
        "python",
        "xtask",
    ] {
        let folder = root.join(folder);
        for extension in ["md", "py", "rs"] {
            if folder.is_dir() {
                collect(&folder, extension, &mut files)?;
            }
        }
    }
    files.retain(|file| !file.components().any(|part| part.as_os_str() == "target"));
    for file in crate::files::read_dir(root)? {
        files.extend(file.extension().is_some_and(|e| e == "md").then_some(file));
    }
    let shown = |file: &Path| {
        file.strip_prefix(root)
            .unwrap_or(file)
            .display()
            .to_string()
    };
    files
        .iter()
        .map(|file| Ok(Text::new(&shown(file), read(file)?)))
        .collect()
}

/// `client` of `crates/client/src/lib.rs`, else the first folder.
fn place_of(path: &str) -> String {
    let path = path.strip_prefix("crates/").unwrap_or(path);
    path.split('/').next().unwrap_or(path).to_owned()
}

/// Whether a page is written by our programs: results of the lab, but for the page about them.
fn is_generated(path: &str) -> bool {
    let pages = ["docs/spec/compatibility.md", "docs/spec/service-api.md"];
    pages.contains(&path) || path.starts_with("docs/results/") && path != "docs/results/README.md"
}

#[cfg(test)]
mod tests {
    use super::{Fault, Text, is_generated, place_of};

    /// What a rule says of a file.
    pub(super) fn faults(
        check: impl Fn(&Text, &mut Vec<Fault>),
        path: &str,
        text: &str,
    ) -> Vec<String> {
        let mut faults = Vec::new();
        check(&Text::new(path, text.to_owned()), &mut faults);
        faults.into_iter().map(|fault| fault.text).collect()
    }

    #[test]
    fn places_are_crates_and_folders() {
        assert_eq!(place_of("crates/client/src/lib.rs"), "client");
        assert_eq!(place_of("docs/adr/0001.md"), "docs");
        assert_eq!(place_of("README.md"), "README.md");
        assert!(is_generated("docs/results/soak.md") && !is_generated("docs/results/README.md"));
    }
}

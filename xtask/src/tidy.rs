//! Rules of the tree that no compiler checks.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use crate::{
    book,
    files::{collect, read, read_dir, root},
    rules,
};

/// Which crate of ours may depend on which (tests included): proto, tune and gsi on nothing, engine
/// on proto and gsi alone.
const ARROWS: &[(&str, &[&str])] = &[
    ("proto", &[]),
    ("tune", &[]),
    ("gsi", &[]),
    ("engine", &["gsi", "proto"]),
    ("http", &["proto"]),
    ("tls-stream", &["gsi"]),
    ("http-client", &["gsi", "tls-stream"]),
    ("scheduler", &["tune"]),
    ("sim", &["tune"]),
    ("service-api", &[]),
    (
        "client",
        &[
            "engine",
            "gsi",
            "http",
            "http-client",
            "proto",
            "tune",
            "service-api",
            "server",
        ],
    ),
    (
        "server",
        &[
            "engine",
            "gsi",
            "http",
            "http-client",
            "proto",
            "tls-stream",
        ],
    ),
    (
        "service",
        &[
            "client",
            "engine",
            "gsi",
            "proto",
            "tune",
            "scheduler",
            "service-api",
            "server",
        ],
    ),
    (
        "lab",
        &[
            "client",
            "server",
            "engine",
            "gsi",
            "tune",
            "proto",
            "scheduler",
            "service",
            "service-api",
            "sim",
        ],
    ),
    ("dist", &["client", "server", "lab", "service"]),
];

/// Dependencies allowed for tests only.
const TEST_ARROWS: &[(&str, &str)] = &[("client", "server"), ("service", "server")];

/// The one file that may hold unsafe code: its crate and its place there.
const UNSAFE_FILE: (&str, &str) = ("gsi", "src/sessions.rs");

pub(crate) fn run() -> Result<(), String> {
    let root = root();
    let mut faults = Vec::new();
    for (name, allowed) in ARROWS {
        let folder = root.join("crates").join(name);
        check_arrows(&folder, name, allowed, &mut faults)?;
        check_sources(&folder, name, &mut faults)?;
    }
    check_crates_listed(&root.join("crates"), &mut faults)?;
    check_spec(root, &mut faults)?;
    book::check(root, &mut faults)?;
    rules::check(root, &mut faults)?;
    if faults.is_empty() {
        Ok(())
    } else {
        Err(faults.join("\n"))
    }
}

/// What the table of the specification names must exist: tests, transcripts and code.
fn check_spec(root: &Path, faults: &mut Vec<String>) -> Result<(), String> {
    let mut files = Vec::new();
    for (name, _) in ARROWS {
        for part in ["src", "tests"] {
            let part = root.join("crates").join(name).join(part);
            if part.is_dir() {
                collect(&part, "rs", &mut files)?;
            }
        }
    }
    let mut functions = BTreeSet::new();
    for file in files {
        for line in read(&file)?.lines() {
            let name = line
                .split_once("fn ")
                .and_then(|(_, l)| l.split('(').next());
            functions.extend(name.map(str::to_owned));
        }
    }
    for document in ["conformance.md", "exceptions.md"] {
        let text = read(&root.join("docs/spec").join(document))?;
        for word in text.split('`').skip(1).step_by(2) {
            let exists = if let Some((_, test)) = word.rsplit_once("::") {
                functions.contains(test)
            } else if word.starts_with("golden/") {
                word == "golden/x.txt" || root.join("crates/proto/tests").join(word).exists()
            } else if word.contains("/src/") {
                root.join("crates").join(word).exists()
            } else {
                true
            };
            // Placeholders of the legend.
            if !exists && !word.contains("crate/module") {
                faults.push(format!("docs/spec/{document}: there is no {word}"));
            }
        }
    }
    Ok(())
}

fn check_crates_listed(crates: &Path, faults: &mut Vec<String>) -> Result<(), String> {
    for entry in read_dir(crates)? {
        let name = entry
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if !ARROWS.iter().any(|(known, _)| *known == name) {
            faults.push(format!(
                "crates/{name}: add it to the arrows in xtask/src/tidy.rs"
            ));
        }
    }
    Ok(())
}

fn check_arrows(
    folder: &Path,
    name: &str,
    allowed: &[&str],
    faults: &mut Vec<String>,
) -> Result<(), String> {
    let manifest = read(&folder.join("Cargo.toml"))?;
    let mut section = "";
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line.trim();
        }
        let Some(other) = line
            .strip_prefix("godwit-")
            .and_then(|l| l.split(['.', ' ', '=']).next())
        else {
            continue;
        };
        let test_only = TEST_ARROWS.contains(&(name, other));
        if !allowed.contains(&other) || (test_only && section != "[dev-dependencies]") {
            faults.push(format!(
                "crates/{name} must not depend on {other} ({section})"
            ));
        }
    }
    Ok(())
}

fn check_sources(folder: &Path, name: &str, faults: &mut Vec<String>) -> Result<(), String> {
    let mut files = Vec::new();
    for part in ["src", "tests", "benches", "examples"] {
        let part = folder.join(part);
        if part.is_dir() {
            collect(&part, "rs", &mut files)?;
        }
    }
    let mut texts = BTreeMap::new();
    for file in files {
        let text = read(&file)?;
        let shown = file
            .strip_prefix(folder)
            .unwrap_or(&file)
            .display()
            .to_string();
        let (home, place) = UNSAFE_FILE;
        if (name, &*shown) != UNSAFE_FILE && text.contains(concat!("unsafe", " {")) {
            faults.push(format!(
                "crates/{name}/{shown}: unsafe code belongs to crates/{home}/{place}"
            ));
        }
        texts.insert(file, text);
    }
    // Every file is named by a `mod`, or is a root that cargo finds by itself.
    let named: BTreeSet<String> = texts
        .values()
        .flat_map(|t| t.lines())
        .filter_map(|l| {
            let l = l.trim().trim_end_matches(';');
            let word = l.rsplit(' ').next()?;
            (l.starts_with("mod ") || l.contains(" mod ")).then(|| word.to_owned())
        })
        .collect();
    for file in texts.keys() {
        let stem = file
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let module = if stem == "mod" {
            let parent = file.parent().and_then(Path::file_name).unwrap_or_default();
            parent.to_string_lossy().into_owned()
        } else {
            stem
        };
        let is_root = matches!(module.as_str(), "main" | "lib")
            || file.parent().is_some_and(|p| {
                p.ends_with("tests") || p.ends_with("benches") || p.ends_with("examples")
            });
        let text = &texts[file];
        let is_included = || {
            let name = format!("{module}.rs\"");
            texts.values().any(|text| text.contains(&name))
        };
        if !is_root && !named.contains(&module) && !text.is_empty() && !is_included() {
            let shown = file.strip_prefix(folder).unwrap_or(file).display();
            faults.push(format!("crates/{name}/{shown}: no module names this file"));
        }
    }
    Ok(())
}

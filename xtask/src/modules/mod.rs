//! `cargo xtask modules`: which module of a crate imports which.

pub(crate) mod graph;
#[cfg(test)]
mod tests;
pub(crate) mod tree;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{
    files::{collect, read, read_dir},
    source,
};
use tree::Tree;

pub(crate) const HELP: &str = "\
usage: cargo xtask modules [--json] [--arrows] [CRATE | FOLDER]...

Prints, for each crate (all, if none is named; a FOLDER is one that holds src/):

  modules   files below src/. A file with its inline modules is one module. What stands under
            #[cfg(test)] is left out.
  arrows    A -> B: module A names an item by a path (`use`, `crate::b::f()`, `super::X`, also in
            the arguments of macros) that module B defines. A re-export is followed to the module
            that defines the item, and is no arrow by itself; neither is `mod child;`.
            Calls of methods name no path and are not seen.
  upward    Rooms are the modules of one folder, each with all that lies below it. The order of the
            rooms of a folder is the one in which the fewest arrows run from a later room to an
            earlier one (found by moving one room at a time); those arrows are upward ones.
            Arrows from and to the parent (`mod.rs`) of the rooms have no direction.
  circles   Modules that reach one another by arrows, and the shortest way around. A parent is free
            inside its own folder: arrows between it and what lies below it make no circle, unless
            the circle leaves the folder.
  lines     not blank and no comment; apart from them those of tests: tests/, benches/, examples/
            and #[cfg(test)].

  --arrows  prints each arrow, and what it names
  --json    prints all of it as one object a crate, in a list
";

/// Runs the command.
///
/// # Errors
///
/// The help, where the arguments are not understood; a crate that cannot be read.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<String, String> {
    let mut crates = Vec::new();
    let (mut as_json, mut with_arrows) = (false, false);
    for argument in arguments {
        match &**argument {
            "--json" => as_json = true,
            "--arrows" => with_arrows = true,
            word if word.starts_with('-') => return Err(HELP.to_owned()),
            word => crates.push(folder_of(root, word)?),
        }
    }
    if crates.is_empty() {
        crates = all_crates(root)?;
    }
    let mut text = String::new();
    let mut values = Vec::new();
    for folder in crates {
        let report = Report::of(&folder)?;
        if as_json {
            values.push(report.to_json());
        } else {
            report.show(with_arrows, &mut text);
        }
    }
    Ok(if as_json {
        format!("{:#}\n", Value::Array(values))
    } else {
        text
    })
}

/// The folders of our crates.
pub(crate) fn all_crates(root: &Path) -> Result<Vec<PathBuf>, String> {
    let mut folders = read_dir(&root.join("crates"))?;
    folders.push(root.join("xtask"));
    Ok(folders)
}

fn folder_of(root: &Path, word: &str) -> Result<PathBuf, String> {
    let name = word.strip_prefix("godwit-").unwrap_or(word);
    let places = [
        root.join("crates").join(name),
        root.join(name),
        PathBuf::from(word),
    ];
    let found = places.into_iter().find(|place| place.join("src").is_dir());
    found.ok_or_else(|| format!("there is no crate {word}"))
}

/// What is printed of a crate.
struct Report {
    name: String,
    tree: Tree,
    circles: Vec<graph::Circle>,
    upward: Vec<(usize, usize)>,
    lines: Lines,
}

/// Lines of code.
#[derive(Default)]
struct Lines {
    sources: usize,
    tests: usize,
}

impl Report {
    fn of(folder: &Path) -> Result<Self, String> {
        let tree = tree::read_crate(folder)?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        Ok(Self {
            name: name.into_owned(),
            circles: graph::circles(&tree),
            upward: graph::upward(&tree),
            lines: Lines::of(folder, &tree)?,
            tree,
        })
    }

    fn name(&self, module: usize) -> &str {
        &self.tree.modules[module].name
    }

    fn path(&self, modules: &[usize]) -> String {
        let names: Vec<&str> = modules.iter().map(|module| self.name(*module)).collect();
        names.join(" -> ")
    }

    fn items(&self, from: usize, to: usize) -> String {
        let items = self.tree.arrows.get(&(from, to)).into_iter().flatten();
        items.cloned().collect::<Vec<_>>().join(", ")
    }

    fn show(&self, with_arrows: bool, text: &mut String) {
        let _infallible = writeln!(
            text,
            "{}: {} modules, {} arrows, {} upward, {} circles; {} lines, {} of tests",
            self.name,
            self.tree.modules.len(),
            self.tree.arrows.len(),
            self.upward.len(),
            self.circles.len(),
            self.lines.sources,
            self.lines.tests,
        );
        let mut arrow = |mark: &str, from: usize, to: usize| {
            let (a, b, items) = (self.name(from), self.name(to), self.items(from, to));
            let _infallible = writeln!(text, "  {mark}{a} -> {b}: {items}");
        };
        if with_arrows {
            for (from, to) in self.tree.arrows.keys() {
                arrow("", *from, *to);
            }
        }
        for (from, to) in &self.upward {
            arrow("upward ", *from, *to);
        }
        for circle in &self.circles {
            let count = circle.members.len();
            let path = self.path(&circle.path);
            let _infallible = writeln!(text, "  circle of {count}, the shortest way: {path}");
            let names: Vec<&str> = circle.members.iter().map(|m| self.name(*m)).collect();
            let _infallible = writeln!(text, "    {}", names.join(" "));
        }
    }

    fn to_json(&self) -> Value {
        let modules = self.tree.modules.iter();
        let modules: Vec<_> = modules.map(|module| module.name.as_str()).collect();
        let arrow = |(from, to): &(usize, usize)| {
            let items = self.tree.arrows.get(&(*from, *to));
            json!({ "from": self.name(*from), "to": self.name(*to), "items": items })
        };
        let names = |of: &[usize]| of.iter().map(|m| self.name(*m)).collect::<Vec<_>>();
        let circles = self.circles.iter().map(
            |circle| json!({ "members": names(&circle.members), "path": names(&circle.path) }),
        );
        json!({
            "crate": self.name,
            "modules": modules,
            "arrows": self.tree.arrows.keys().map(arrow).collect::<Vec<_>>(),
            "upward": self.upward.iter().map(arrow).collect::<Vec<_>>(),
            "circles": circles.collect::<Vec<_>>(),
            "lines": { "sources": self.lines.sources, "tests": self.lines.tests },
        })
    }
}

impl Lines {
    fn of(folder: &Path, tree: &Tree) -> Result<Self, String> {
        let tests: BTreeMap<&Path, &[(usize, usize)]> = tree
            .modules
            .iter()
            .map(|it| (&*it.file, &*it.tests))
            .collect();
        let mut lines = Self::default();
        for part in ["src", "tests", "benches", "examples"] {
            let part = folder.join(part);
            let mut files = Vec::new();
            if part.is_dir() {
                collect(&part, "rs", &mut files)?;
            }
            for file in files {
                let numbers = code_lines(&read(&file)?);
                // A file that no module names outside of `#[cfg(test)]` is one of tests.
                let Some(spans) = tests.get(&*file) else {
                    lines.tests += numbers.len();
                    continue;
                };
                let is_test = |line: &usize| spans.iter().any(|(a, b)| (a..=b).contains(&line));
                let of_tests = numbers.iter().filter(|line| is_test(line)).count();
                lines.tests += of_tests;
                lines.sources += numbers.len() - of_tests;
            }
        }
        Ok(lines)
    }
}

/// The numbers of lines that hold code.
fn code_lines(text: &str) -> BTreeSet<usize> {
    let parts = source::parts(text);
    let lines = parts.code.lines().zip(parts.literals.lines()).enumerate();
    lines
        .filter(|(_, (code, literal))| !code.trim().is_empty() || !literal.trim().is_empty())
        .map(|(line, _)| line + 1)
        .collect()
}

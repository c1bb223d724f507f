//! A page of the book, as far as its commands go.
//!
//! ````text
//! ```console            what follows `$ ` is typed by a user, behind `# ` by root,
//!                       `> ` continues the line before; the rest is shown
//! $ godwit ls ftp://data.example.org/
//! big.bin               ... stands for anything, and what is not shown is not looked at
//! ```
//! <!-- stage: NAME -->  tests/stage/NAME.sh has been run by then
//! ````
//! Words behind `console`: `fails` (the last command does), `package` (run once, where the package
//! is tested), `elsewhere` (not run: it takes another machine).

use std::{fs, path::Path};

/// What is to be done, in this order.
pub(crate) enum Act {
    /// A script of the stage.
    Stage(String),
    Block(Block),
}

/// Commands of one shell.
#[derive(Default)]
pub(crate) struct Block {
    /// Where the block begins, for messages.
    pub(crate) line: usize,
    words: Vec<String>,
    pub(crate) root: bool,
    pub(crate) commands: Vec<Command>,
}

pub(crate) struct Command {
    pub(crate) text: String,
    shown: Vec<String>,
}

impl Block {
    pub(crate) fn is(&self, word: &str) -> bool {
        self.words.iter().any(|of_ours| of_ours == word)
    }
}

impl Command {
    /// What is shown and was not said, in its order.
    pub(crate) fn unsaid(&self, output: &str) -> Option<&str> {
        let mut lines = output.lines();
        let mut missing = self.shown.iter().filter(|shown| shown.trim() != "...");
        missing
            .find(|shown| !lines.any(|line| is_like(line, shown)))
            .map(String::as_str)
    }
}

/// `...` in `pattern` stands for anything.
fn is_like(line: &str, pattern: &str) -> bool {
    let parts: Vec<_> = pattern.trim_end().split("...").collect();
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
        return false;
    };
    let Some(mut rest) = line.trim_end().strip_prefix(first) else {
        return false;
    };
    if parts.len() == 1 {
        return rest.is_empty();
    }
    for part in &parts[1..parts.len() - 1] {
        match rest.split_once(part) {
            Some((_, behind)) => rest = behind,
            None => return false,
        }
    }
    rest.ends_with(last)
}

pub(crate) fn read(path: &Path) -> Vec<Act> {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut acts = Vec::new();
    let mut lines = text.lines().zip(1..);
    while let Some((line, number)) = lines.next() {
        let stage = line.strip_prefix("<!-- stage: ");
        if let Some(name) = stage.and_then(|name| name.strip_suffix(" -->")) {
            acts.push(Act::Stage(name.to_owned()));
        } else if let Some(words) = line.strip_prefix("```console") {
            let block = lines.by_ref().map(|(line, _)| line);
            let block = block.take_while(|line| *line != "```");
            acts.push(Act::Block(read_block(block, words, number)));
        }
    }
    acts
}

fn read_block<'a>(lines: impl Iterator<Item = &'a str>, words: &str, line: usize) -> Block {
    let words = words.split(',').filter(|word| !word.is_empty());
    let mut block = Block {
        line,
        words: words.map(str::to_owned).collect(),
        ..Block::default()
    };
    for line in lines {
        let typed = ["$ ", "# "]
            .iter()
            .find_map(|prompt| line.strip_prefix(prompt));
        match (typed, block.commands.last_mut()) {
            (Some(text), before) => {
                let root = line.starts_with('#');
                assert!(
                    before.is_none() || root == block.root,
                    "{line}: one user a block"
                );
                block.root = root;
                block.commands.push(Command {
                    text: text.to_owned(),
                    shown: Vec::new(),
                });
            }
            (None, Some(command)) => match line.strip_prefix("> ") {
                Some(more) if command.shown.is_empty() => {
                    command.text.push('\n');
                    command.text.push_str(more);
                }
                _ => command.shown.push(line.to_owned()),
            },
            (None, None) => panic!("{line}: nobody has typed anything"),
        }
    }
    block
}

#[test]
fn a_page_is_read_as_it_is_typed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page.md");
    let text = "<!-- stage: grid -->\n```console,fails\n# one \\\n> two\na ... c\nend\n# three\n\
                ```\n```toml\n$ none\n```\n";
    fs::write(&path, text).unwrap();
    let acts = read(&path);
    let [Act::Stage(stage), Act::Block(block)] = &acts[..] else {
        panic!("{}", acts.len());
    };
    assert_eq!(stage, "grid");
    assert!(block.root && block.is("fails") && !block.is("package") && block.line == 2);
    let [first, second] = &block.commands[..] else {
        panic!("{}", block.commands.len());
    };
    assert_eq!((&*first.text, &*second.text), ("one \\\ntwo", "three"));
    assert_eq!(first.unsaid("x\na b c\ny\nend\n"), None);
    assert_eq!(first.unsaid("end\na b c\n"), Some("end"));
    assert_eq!(first.unsaid("a b d\nend"), Some("a ... c"));
    assert!(is_like("abc", "...b...") && is_like("", "...") && !is_like("ab", "a"));
}

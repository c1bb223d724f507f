//! Our client under the name of the reference client: with the same arguments both programs must
//! leave the same files and exit with the same status, with both servers. The options come from the
//! page for users.

mod effects;
mod field;
mod identities;

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    os::unix::fs::symlink,
    process::Command,
};

use godwit_lab::peers::{Finished, RUN_TIMEOUT, gct, godwit, process};
use tempfile::TempDir;

use crate::support::{Need, have};

const PAGE: &str = include_str!("../../../../../docs/globus-url-copy.md");

const NEEDS: &[Need] = &[Need::Gct, Need::Godwit, Need::Godwitd];

/// An option, as the page has it.
struct Row {
    names: Vec<&'static str>,
    has_argument: bool,
    class: &'static str,
}

fn rows() -> Vec<Row> {
    let lines = PAGE.lines().filter(|line| line.starts_with("| `-"));
    let read = |line: &'static str| {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let shown = cells.next().expect("a name").trim_matches('`');
        let spellings = shown.split(", ").map(|one| one.split(' '));
        Row {
            has_argument: shown.split(", ").all(|one| one.contains(' ')),
            names: spellings.flat_map(|mut words| words.next()).collect(),
            class: cells.next().expect("a class"),
        }
    };
    lines.map(read).collect()
}

fn original<S: AsRef<OsStr>>(words: &[S]) -> Finished {
    gct::URL_COPY.run(words).expect("runs")
}

/// Our client by the name of the other, with a state of its own.
struct Ours {
    folder: TempDir,
}

impl Ours {
    fn new() -> Self {
        let folder = TempDir::new().expect("a directory");
        let program = godwit::binary("godwit").expect("present");
        symlink(program, folder.path().join("globus-url-copy")).expect("a link");
        Self { folder }
    }

    fn run<S: AsRef<OsStr>>(&self, words: &[S]) -> Finished {
        self.run_with(words, &[])
    }

    fn run_with<S: AsRef<OsStr>>(
        &self,
        words: &[S],
        variables: &[(OsString, OsString)],
    ) -> Finished {
        let mut command = Command::new(self.folder.path().join("globus-url-copy"));
        command
            .args(words)
            .env("XDG_STATE_HOME", self.folder.path())
            .envs(variables.iter().cloned());
        process::run(command, RUN_TIMEOUT).expect("runs")
    }
}

#[test]
fn the_page_has_every_option_of_the_reference_client() {
    if !have(NEEDS) {
        return;
    }
    let help = original(&["-help"]);
    let (ours, rows) = (Ours::new(), rows());
    let output = ours.run(&["-help"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert_eq!(help.status.code(), output.status.code());
    let help = help.stderr_text();
    let options = help.lines().filter(|line| line.starts_with("  -"));
    let words = options.flat_map(|line| line.split(['|', ' ', '\t']));
    let listed: BTreeSet<&str> = words
        .filter(|word| word.starts_with('-'))
        .map(|word| word.trim_end_matches('.'))
        .collect();
    assert!(listed.len() > 100, "{listed:?}");
    let known: BTreeSet<&str> = rows.iter().flat_map(|row| row.names.clone()).collect();
    let lacking: Vec<_> = listed.difference(&known).collect();
    assert!(lacking.is_empty(), "{lacking:?}");
    // Spellings that its help does not tell it takes all the same.
    for row in rows.iter().filter(|row| row.class != "APT") {
        for name in row.names.iter().filter(|name| !listed.contains(*name)) {
            let words = [name, "7"];
            let refused = original(&words[..if row.has_argument { 2 } else { 1 }]);
            let output = refused.stderr_text();
            assert!(!output.contains("unknown option"), "{name}: {output}");
        }
    }
}

#[test]
fn refused_options_are_named_with_the_reason() {
    if !have(&[Need::Godwit]) {
        return;
    }
    let ours = Ours::new();
    for row in rows().iter().filter(|row| row.class == "refused") {
        for name in &row.names {
            let mut words = vec![*name];
            words.extend(row.has_argument.then_some("7"));
            words.extend(["ftp://127.0.0.1:9/a", "ftp://127.0.0.1:9/b"]);
            let finished = ours.run(&words);
            let output = finished.stderr_text();
            assert_eq!(finished.status.code(), Some(1), "{output}");
            let names = [name, &row.names[0]];
            assert!(
                names
                    .iter()
                    .any(|name| output.contains(&format!("{name}: "))),
                "{output}"
            );
            assert!(!output.contains("connect"), "{output}");
        }
    }
}

#[test]
fn wrong_words_end_both_alike() {
    if !have(NEEDS) {
        return;
    }
    let ours = Ours::new();
    for line in [
        "",
        "-usage",
        "-version",
        "-versions",
        "-bogus x y",
        "--help",
        "-p",
        "-p x a b",
        "-a -b ftp://h/a file:///b",
        "-dcsafe -dcpriv ftp://h/a file:///b",
        "- -",
        "a b c",
        "ftp://h/a file:///b -vb",
        "-f /nowhere/list",
        "-f /dev/null a b",
        "-bs 1Q ftp://h/a file:///b",
        "gopher://h/a file:///b",
    ] {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (theirs, ours) = (original(&words), ours.run(&words));
        let code = ours.status.code();
        assert_eq!(code, theirs.status.code(), "{line}: {}", ours.log());
        let error = |text: String| {
            let mut lines = text.lines().map(str::to_owned);
            // What is wrong with a number we say in other words.
            lines.find(|line| line.contains("rror, argument #") && !line.contains("integer"))
        };
        let (wanted, got) = (error(theirs.stderr_text()), error(ours.stderr_text()));
        assert_eq!(got, wanted, "{line}");
    }
}

/// Every option that has an effect is said in a test of these files.
#[test]
fn every_option_is_tried() {
    let text = [
        include_str!("mod.rs"),
        include_str!("effects.rs"),
        include_str!("identities.rs"),
    ]
    .concat();
    for row in rows().iter().filter(|row| row.class != "refused") {
        let is_said = |name: &&str| {
            let said = [
                format!("\"{name} "),
                format!("\"{name}\""),
                format!(" {name} "),
            ];
            said.iter().any(|said| text.contains(said))
        };
        assert!(row.names.iter().any(is_said), "{:?}", row.names);
    }
}

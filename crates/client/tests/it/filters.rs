//! Patterns mean what they mean to rsync: both choose among the same names.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use godwit_client::spec::filter::Filter;

/// Sets of rules that are compared.
const ROUNDS: u64 = 60;

/// The same numbers for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % sides
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.roll(words.len())]
    }

    /// Some of `words` behind each other.
    fn join(&mut self, words: &[&str], most: usize) -> String {
        (0..=self.roll(most)).map(|_| self.pick(words)).collect()
    }
}

/// A rule as the command line has it, and whether it includes. No `[` stands alone: a slash that it
/// took into its class would count among those of the pattern, for rsync.
fn rule(dice: &mut Dice) -> (bool, String) {
    let parts = [
        "a",
        "b",
        "ab",
        "c",
        ".o",
        "*",
        "*",
        "?",
        "**",
        "/",
        "/",
        "[ab]",
        "[!a]",
        "[a-b]",
        "[]c]",
        "[[:alpha:]]",
        "\\*",
        "\\",
        "]",
        "x y",
    ];
    let begin = dice.pick(&["", "", "/", "**", "**/", "*/"]);
    let end = dice.pick(&["", "", "", "/", "/***", "*", "**", "***"]);
    (
        dice.roll(3) == 0,
        format!("{begin}{}{end}", dice.join(&parts, 4)),
    )
}

fn grow(dice: &mut Dice, directory: &Path, depth: usize) {
    for _ in 0..5 + dice.roll(4) {
        let name = dice.join(
            &["a", "b", "c", ".o", "*", "?", "[", "]", "\\", "x y", "-"],
            3,
        );
        let path = directory.join(name);
        if path.exists() {
            continue;
        }
        if depth > 0 && dice.roll(2) == 0 {
            fs::create_dir(&path).unwrap();
            grow(dice, &path, depth - 1);
        } else {
            fs::write(&path, "").unwrap();
        }
    }
}

/// What is not left out below `directory`; directories end in a slash.
fn chosen(filter: &Filter, directory: &Path, below: &str, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{below}{}", entry.file_name().to_str().unwrap());
        let is_directory = entry.path().is_dir();
        if filter.excludes(path.as_bytes(), is_directory) {
            continue;
        }
        if is_directory {
            let below = path + "/";
            chosen(filter, &entry.path(), &below, names);
            names.insert(below);
        } else {
            names.insert(path);
        }
    }
}

#[test]
fn the_same_names_are_chosen_as_by_rsync() {
    let present = Command::new("rsync")
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    if present.is_err() {
        eprintln!("skipped the_same_names_are_chosen_as_by_rsync: there is no rsync");
        return;
    }
    let here = tempfile::tempdir().unwrap();
    let (from, to) = (here.path().join("from"), here.path().join("to"));
    fs::create_dir(&from).unwrap();
    fs::create_dir(&to).unwrap();
    grow(&mut Dice(0x5eed), &from, 3);
    let mut differing = 0;
    for round in 1..=ROUNDS {
        let mut dice = Dice(round * 0x9e37_79b9);
        let rules: Vec<_> = (0..=dice.roll(3)).map(|_| rule(&mut dice)).collect();
        let mut rsync = Command::new("rsync");
        rsync.args(["-r", "--dry-run", "--out-format=%n"]);
        rsync.args(rules.iter().map(|(includes, pattern)| match includes {
            true => format!("--include={pattern}"),
            false => format!("--exclude={pattern}"),
        }));
        let slash = |path: &Path| format!("{}/", path.display());
        let output = rsync.args([slash(&from), slash(&to)]).output().unwrap();
        assert!(output.status.success(), "{rules:?}: {output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let theirs: BTreeSet<_> = text
            .lines()
            .filter(|l| *l != "./")
            .map(str::to_owned)
            .collect();
        let filter = Filter::new(rules.iter().map(|(i, p)| (*i, p.as_bytes()))).unwrap();
        let mut ours = BTreeSet::new();
        chosen(&filter, &from, "", &mut ours);
        assert_eq!(ours, theirs, "round {round}: {rules:?}");
        let mut all = BTreeSet::new();
        chosen(&Filter::default(), &from, "", &mut all);
        differing += u64::from(ours != all);
    }
    assert!(
        differing > ROUNDS / 2,
        "rules that leave nothing out show little"
    );
}

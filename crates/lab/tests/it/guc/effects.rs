//! The same arguments have the same effects with both programs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use godwit_lab::peers::Finished;

use super::{NEEDS, Ours, field::Field, original};
use crate::support::{Kind, Site, against_both, assert_holds, have, noise};

/// Arguments of both programs. Those after the first `;` are for a second run.
const LINES: &[&str] = &[
    "{here}f {there}new",
    "{there}f {here}new",
    "{there}g%20h {here}new",
    "-a {there}f {here}new",
    "-b {here}f {there}new",
    "-q -fast {there}f {here}new",
    "-v -p 2 {there}f {here}new",
    "-stripe -p 2 {here}f {there}new",
    "-sbs 100000 -p 2 {there}f {here}new",
    "-vb -p 4 -tcp-bs 1048576 {there}f {here}new",
    "-dbg -bs 10000 -p 2 {here}f {there}new",
    "-rst -rst-retries 2 -rst-interval 1 -rst-timeout 0 {there}f {here}new",
    "-st 30 -t 60 {there}f {here}new",
    "-rst -rst-retries 1 -rst-interval 1 {there}none {here}new",
    "-ipv6 -g2 {here}f {there}new",
    "-no-g2 -dp {here}f {there}new",
    "-preserve -cp -allo {here}f {there}new",
    "-no-allo -pp {here}f {there}new",
    "-ppq 4 -cc 2 -r -cd {here}tree/ {there}made/deep/",
    "-fast -pp -cc 4 -r -cd {there}tree/ {here}made/deep/",
    // Directories: only their files without -r.
    "{here}tree/ {there}old/",
    "{there}tree/ {here}tree/below/",
    "-r {there}tree/ {here}tree/below/",
    "{there}tree/*.dat {here}tree/below/",
    "{here}tree/a* {there}old/",
    "{there}tree/*.none {here}tree/below/",
    "{there}dots/* {here}tree/below/",
    "{here}dots/*.dat {there}old/",
    // At home.
    "ftp://{host}/~/{home}f {here}new",
    "{here}f ftp://{host}/~/{home}new",
    "-r ftp://{host}/~/{home}tree/ {here}tree/below/",
    "-cd -r {here}tree/ ftp://{host}/~/{home}made/",
    "-rp ftp://{host}/{home}f {here}new",
    "-rp {here}f ftp://{host}/{home}new",
    "-rp {here}f ftp://{host}/%2F{root}new",
    "{there}tree/ {here}new",
    // Lists.
    "-f {HERE}list",
    "-f {HERE}bad",
    "-c -f {HERE}bad",
    "-f {HERE}parts",
    "-cd -f {HERE}alike",
    "-df {HERE}dump {here}f {there}new",
    "-df {HERE}dump {here}none {there}new;-df {HERE}dump {here}f {there}new",
    "-df {HERE}empty {here}f {there}new",
    "-af {HERE}hosts {alias}f {here}new",
    // Parts.
    "-off 100 -len 50 {there}f {here}new",
    "-off 100 -len 50 {there}f {here}f",
    "-off 60000 {there}f {here}f",
    "-len 10K {there}f {here}new",
    "-off 60000 -p 2 {here}f {there}g%20h",
    "-off 60000 -len 500 {here}f {there}g%20h",
    // What the destination has alike.
    "-sync -sync-level 0 {here}tree/ {there}old/",
    "-sync -sync-level 1 {here}tree/ {there}old/",
    "-sync {here}tree/ {there}old/",
    "-sync -sync-level 3 -r -cd {here}tree/ {there}old/",
    "-sync -sync-level 3 -checksum-alg SHA1 {here}tree/ {there}old/",
    "-sync -r {there}old/ {here}tree/",
    "-verify-checksum -checksum-alg MD5 {here}f {there}new",
    "-verify-checksum {there}f {here}new",
    // Errors.
    "{there}none {here}new",
    "{here}none {there}new",
    "{here}f {there}no/such/new",
    "-nodcau {there}f {here}new",
    "-s /CN=nobody {there}f {here}new",
];

fn both_leave_the_same(kind: Kind) {
    if !have(NEEDS) {
        return;
    }
    let (site, ours) = (Site::new(kind), Ours::new());
    for (number, line) in LINES.iter().enumerate() {
        let mut left = Vec::new();
        for who in ["theirs", "ours"] {
            let name = format!("{who}{number}");
            let field = Field::new(&site, &name);
            let mut codes = Vec::new();
            let mut logs = String::new();
            for line in line.split(';') {
                let words = field.words(line);
                let finished = match who {
                    "theirs" => original(&words),
                    _ => ours.run(&words),
                };
                codes.push(finished.status.code());
                logs += &finished.log();
            }
            left.push((codes, field.contents(), logs));
        }
        let ours = left.pop().expect("ours");
        let mut theirs = left.pop().expect("theirs");
        if theirs.0.iter().any(|code| *code != Some(0)) {
            // A copy that fails may leave an empty file there, and leaves none here.
            theirs
                .1
                .retain(|name, (bytes, _)| !bytes.is_empty() || ours.1.contains_key(name));
        }
        let story = format!("{line}\n{}\n--- theirs\n{}", ours.2, theirs.2);
        assert_eq!(ours.0, theirs.0, "{story}");
        let names =
            |of: &BTreeMap<String, (Vec<u8>, u32)>| -> Vec<_> { of.keys().cloned().collect() };
        assert_eq!(names(&ours.1), names(&theirs.1), "{story}");
        for (name, (bytes, mode)) in &ours.1 {
            let (wanted, their_mode) = &theirs.1[name];
            assert!(
                bytes == wanted,
                "{name}: {} bytes, not {}; {story}",
                bytes.len(),
                wanted.len()
            );
            assert_eq!(mode, their_mode, "{name}: {mode:o}; {story}");
        }
    }
}

/// Says each line to both programs, which must end alike and say the same as far as it is `heard`.
fn both_say_the_same<T: PartialEq + std::fmt::Debug>(
    field: &Field,
    lines: &[&str],
    heard: impl Fn(&Finished) -> T,
) {
    let ours = Ours::new();
    for line in lines {
        let words = field.words(line);
        let (theirs, ours) = (original(&words), ours.run(&words));
        let story = format!("{line}: {}\n--- theirs\n{}", ours.log(), theirs.log());
        assert_eq!(ours.status.code(), theirs.status.code(), "{story}");
        assert_eq!(heard(&ours), heard(&theirs), "{story}");
    }
}

fn both_list_the_same(kind: Kind) {
    if !have(NEEDS) {
        return;
    }
    let site = Site::new(kind);
    let lines = [
        "-list {there}",
        "-list {there}tree/",
        "-list {there}tree/*.dat",
        "-list {there}dots/*",
        "-r -list {there}",
        "-list {there}none/",
        "-list ftp://{host}/~/{home}tree/",
        "-rp -list ftp://{host}/{home}tree/",
        "-rp -list ftp://{host}/%2F{root}tree/",
    ];
    both_say_the_same(&Field::new(&site, "field"), &lines, |finished| {
        let text = finished.stdout_text();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    });
}

fn both_find_the_same_to_be_copied(kind: Kind) {
    if !have(NEEDS) {
        return;
    }
    let site = Site::new(kind);
    let field = Field::new(&site, "field");
    let lines = [
        "-do - -r {here}tree/ {there}old/",
        "-do - {there}tree/ {here}tree/below/",
        "-do - -sync {here}tree/ {there}old/",
        "-do - -r {there}tree/*.dat {here}tree/below/",
        "-do - {there}dots/* {here}tree/below/",
    ];
    both_say_the_same(&field, &lines, |finished| {
        let text = finished.stdout_text();
        // Facts of the source are the original's alone.
        let pair = |line: &str| {
            let quotes: Vec<&str> = line.splitn(5, '"').collect();
            format!("{} {}", quotes[1], quotes[3])
        };
        let pairs = text.lines().filter(|line| line.starts_with('"')).map(pair);
        let pairs: BTreeSet<String> = pairs.collect();
        assert!(!pairs.is_empty(), "{}", finished.log());
        pairs
    });
    // Nothing was copied.
    assert!(!field.there.join("old/below/c").exists());
    assert!(!field.here.join("tree/below/a.dat").exists());
}

fn both_show_the_same(kind: Kind) {
    if !have(NEEDS) {
        return;
    }
    let (site, ours) = (Site::new(kind), Ours::new());
    let field = Field::new(&site, "field");
    let lines = [
        "{there}f {here}new",
        "-v {there}f {here}new",
        "-v {there}f {here}f",
        "-v {here}tree/a.dat {there}",
        "-v {there}tree/*a.dat {here}tree/below/",
    ];
    both_say_the_same(&field, &lines, Finished::stdout_text);
    let words = field.words("-vb -dbg -p 2 {there}f {here}new");
    let (theirs, ours) = (original(&words), ours.run(&words));
    for finished in [&theirs, &ours] {
        let (out, dialogue) = (finished.stdout_text(), finished.stderr_text());
        assert!(out.starts_with("Source: "), "{out}");
        assert!(dialogue.contains("\n230 "), "{dialogue}");
        assert!(dialogue.contains("debug: response from"), "{dialogue}");
        assert!(dialogue.contains("debug: sending command"), "{dialogue}");
    }
    // The original has no rates of what is over in a moment.
    let out = ours.stdout_text();
    let rates = out
        .split(['\r', '\n'])
        .find(|line| line.ends_with(" MB/sec inst"));
    let words: Vec<_> = rates.unwrap_or_default().split_whitespace().collect();
    assert!(
        matches!(
            words[..],
            ["70001", "bytes", _, "MB/sec", "avg", _, "MB/sec", "inst"]
        ),
        "{out}"
    );
}

/// Command lines of the papers on GridFTP-APT, and what else only ours has.
fn channels_are_tuned_where_nothing_fixes_them(kind: Kind) {
    if !have(NEEDS) {
        return;
    }
    let (site, ours) = (Site::new(kind), Ours::new());
    let field = Field::new(&site, "field");
    for line in [
        "-apt -n0 4 -alpha 1.2 -delta 3 {here}f {there}new",
        "-apt -cc 2 {there}f {here}new",
        "-n0 2 {there}f {here}new",
        "-noapt {there}f {here}new",
        "-noapt -p 4 {here}f {there}new",
        "-p 0 -cc 1 {here}f {there}new",
        "-p 64 -cc 4 {here}f {there}new",
        "-data-cred auto {here}f {there}new",
        "-st 0 {here}f {there}new",
    ] {
        let finished = ours.run(&field.words(line));
        assert!(finished.status.success(), "{line}: {}", finished.log());
        let copy = match line.ends_with("{here}new") {
            true => field.here.join("new"),
            false => field.there.join("new"),
        };
        assert_holds(&copy, &noise(70_001, 1));
        fs::remove_file(copy).expect("removes");
    }
    let crossed = ours.run(&["-apt", "-p", "4", "ftp://h/a", "file:///b"]);
    assert_eq!(crossed.status.code(), Some(1));
}

against_both!(
    both_leave_the_same,
    both_list_the_same,
    both_find_the_same_to_be_copied,
    both_show_the_same,
    channels_are_tuned_where_nothing_fixes_them,
);

#[test]
fn servers_copy_between_them_unless_that_is_forbidden() {
    if !have(NEEDS) {
        return;
    }
    let (from, to, ours) = (Site::new(Kind::Gct), Site::new(Kind::Godwitd), Ours::new());
    fs::write(from.at("f"), noise(70_000, 1)).expect("writes");
    let words = [from.url("f"), to.url("new")];
    let refused = ours.run(&[&["-notpt".to_owned()], &words[..]].concat());
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        refused.stderr_text().contains("-notpt: "),
        "{}",
        refused.log()
    );
    let parted = [&["-off".to_owned(), "100".to_owned()], &words[..]].concat();
    for words in [&words[..], &parted] {
        let copied = ours.run(words);
        assert!(copied.status.success(), "{}", copied.log());
        assert_holds(&to.at("new"), &noise(70_000, 1));
    }
}

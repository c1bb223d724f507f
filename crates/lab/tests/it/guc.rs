//! Our client under the name of the reference client: the same words to both programs, against both servers, must leave the same files and end
//! with the same status. The options come from the page that users read.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use godwit_lab::peers::{Finished, RUN_TIMEOUT, gct, godwit, process};
use tempfile::TempDir;

use crate::{
    gsi_client::Secure,
    support::{Kind, Need, Site, against_both, assert_holds, have, noise},
};

const PAGE: &str = include_str!("../../../../docs/globus-url-copy.md");

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
    let told = ours.run(&["-help"]);
    assert_eq!((told.status.code(), told.stdout.len()), (Some(1), 0));
    assert_eq!(help.status.code(), told.status.code());
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
            let told = refused.stderr_text();
            assert!(!told.contains("unknown option"), "{name}: {told}");
        }
    }
}

#[test]
fn what_is_refused_names_itself_and_the_reason() {
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
            let told = finished.stderr_text();
            assert_eq!(finished.status.code(), Some(1), "{told}");
            let names = [name, &row.names[0]];
            assert!(
                names.iter().any(|name| told.contains(&format!("{name}: "))),
                "{told}"
            );
            assert!(!told.contains("connect"), "{told}");
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

/// One directory of this machine and one at a server, both with the same in them at the beginning.
struct Field {
    here: PathBuf,
    there: PathBuf,
    here_url: String,
    there_url: String,
}

impl Field {
    fn new(site: &Site, name: &str) -> Self {
        let field = Self {
            here: site.local(name),
            there: site.at(name),
            here_url: site.local_url(&format!("{name}/")),
            there_url: site.url(&format!("{name}/")),
        };
        for root in [&field.here, &field.there] {
            fs::create_dir_all(root.join("tree/below")).expect("a directory");
            for (seed, name) in (1..).zip(["f", "g h", "tree/a.dat", "tree/b.dat", "tree/below/c"])
            {
                fs::write(root.join(name), noise(70_000 + seed, seed as u64)).expect("writes");
            }
        }
        // An older copy of one, of another size of the other, and one of the same size with other octets.
        fs::create_dir_all(field.there.join("old/below")).expect("a directory");
        fs::write(field.there.join("old/a.dat"), noise(70_003, 9)).expect("writes");
        fs::write(field.there.join("old/b.dat"), "short").expect("writes");
        let past = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(10_000_000);
        let old = fs::File::options()
            .write(true)
            .open(field.there.join("old/a.dat"));
        old.expect("opens").set_modified(past).expect("a time");
        let lists = [
            (
                "list",
                "{here}f {there}one\n# no\n\n\"{here}g%20h\"  {there}two\n",
            ),
            ("bad", "{here}none {there}one\n{here}f {there}two\n"),
            ("parts", "{there}f {here}part 100,50\n"),
            (
                "alike",
                "{here}f {there}far/f\n{here}tree/a.dat {there}far/tree/a.dat\n",
            ),
            ("hosts", "@source\n{host}\n"),
            ("empty", ""),
        ];
        for (name, text) in lists {
            fs::write(field.here.join(name), field.filled(text)).expect("writes");
        }
        field
    }

    fn filled(&self, text: &str) -> String {
        let host = self.there_url.split('/').nth(2).expect("a host");
        text.replace("{here}", &self.here_url)
            .replace("{HERE}", &format!("{}/", self.here.display()))
            .replace("{there}", &self.there_url)
            .replace(
                "{alias}",
                &self.there_url.replacen(host, "nobody.invalid", 1),
            )
            .replace("{host}", host)
    }

    fn words(&self, line: &str) -> Vec<String> {
        line.split(' ').map(|word| self.filled(word)).collect()
    }

    /// Files of both ends, with their octets and permissions; lists and dumps without the name of the field.
    fn contents(&self, name: &str) -> BTreeMap<String, (Vec<u8>, u32)> {
        let mut found = BTreeMap::new();
        for (end, root) in [("here", &self.here), ("there", &self.there)] {
            gather(root, end, &mut found);
        }
        for (octets, _) in found.values_mut() {
            if let Ok(text) = std::str::from_utf8(octets) {
                *octets = text.replace(name, "FIELD").into_bytes();
            }
        }
        found
    }
}

fn gather(folder: &Path, name: &str, found: &mut BTreeMap<String, (Vec<u8>, u32)>) {
    for entry in fs::read_dir(folder).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = format!(
            "{name}/{}",
            path.file_name().expect("a name").to_string_lossy()
        );
        let mode = path.metadata().expect("exists").permissions().mode() & 0o777;
        if path.is_dir() {
            gather(&path, &name, found);
            found.insert(name, (Vec::new(), 0));
        } else {
            found.insert(name, (fs::read(&path).expect("reads"), mode));
        }
    }
}

/// What both programs are told. Those after the first `;` are said when the first has ended.
const LINES: &[&str] = &[
    "{here}f {there}new",
    "{there}f {here}new",
    "{there}g%20h {here}new",
    "-a {there}f {here}new",
    "-b {here}f {there}new",
    "-q -fast {there}f {here}new",
    "-v -p 2 {there}f {here}new",
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
            left.push((codes, field.contents(&name), logs));
        }
        let ours = left.pop().expect("ours");
        let mut theirs = left.pop().expect("theirs");
        if theirs.0.iter().any(|code| *code != Some(0)) {
            // A copy that fails may leave an empty file there, and leaves none here.
            theirs
                .1
                .retain(|name, (octets, _)| !octets.is_empty() || ours.1.contains_key(name));
        }
        let story = format!("{line}\n{}\n--- theirs\n{}", ours.2, theirs.2);
        assert_eq!(ours.0, theirs.0, "{story}");
        let names =
            |of: &BTreeMap<String, (Vec<u8>, u32)>| -> Vec<_> { of.keys().cloned().collect() };
        assert_eq!(names(&ours.1), names(&theirs.1), "{story}");
        for (name, (octets, mode)) in &ours.1 {
            let (wanted, their_mode) = &theirs.1[name];
            assert!(
                octets == wanted,
                "{name}: {} octets, not {}; {story}",
                octets.len(),
                wanted.len()
            );
            assert_eq!(mode, their_mode, "{name}: {mode:o}; {story}");
        }
    }
}

fn both_list_the_same(kind: Kind) {
    if !have(NEEDS) {
        return;
    }
    let (site, ours) = (Site::new(kind), Ours::new());
    let field = Field::new(&site, "field");
    for line in [
        "-list {there}",
        "-list {there}tree/",
        "-list {there}tree/*.dat",
        "-r -list {there}",
        "-list {there}none/",
    ] {
        let words = field.words(line);
        let (theirs, ours) = (original(&words), ours.run(&words));
        assert_eq!(
            ours.status.code(),
            theirs.status.code(),
            "{line}: {}",
            ours.log()
        );
        let names = |finished: &Finished| {
            let text = finished.stdout_text();
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(names(&ours), names(&theirs), "{line}: {}", ours.log());
    }
}

fn both_find_the_same_to_be_copied(kind: Kind) {
    if !have(NEEDS) {
        return;
    }
    let (site, ours) = (Site::new(kind), Ours::new());
    let field = Field::new(&site, "field");
    for line in [
        "-do - -r {here}tree/ {there}old/",
        "-do - {there}tree/ {here}tree/below/",
        "-do - -sync {here}tree/ {there}old/",
        "-do - -r {there}tree/*.dat {here}tree/below/",
    ] {
        let words = field.words(line);
        let (theirs, ours) = (original(&words), ours.run(&words));
        assert_eq!(
            ours.status.code(),
            theirs.status.code(),
            "{line}: {}",
            ours.log()
        );
        let pairs = |finished: &Finished| -> BTreeSet<String> {
            let text = finished.stdout_text();
            // Facts of the source are the original's alone.
            let pair = |line: &str| {
                let quotes: Vec<&str> = line.splitn(5, '"').collect();
                format!("{} {}", quotes[1], quotes[3])
            };
            text.lines()
                .filter(|line| line.starts_with('"'))
                .map(pair)
                .collect()
        };
        assert!(!pairs(&theirs).is_empty(), "{line}: {}", theirs.log());
        assert_eq!(pairs(&ours), pairs(&theirs), "{line}: {}", ours.log());
    }
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
    for line in [
        "{there}f {here}new",
        "-v {there}f {here}new",
        "-v {there}f {here}f",
        "-v {here}tree/a.dat {there}",
        "-v {there}tree/*a.dat {here}tree/below/",
    ] {
        let words = field.words(line);
        let (theirs, ours) = (original(&words), ours.run(&words));
        let shown = |finished: &Finished| finished.stdout_text();
        assert_eq!(shown(&ours), shown(&theirs), "{line}: {}", ours.log());
    }
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

mod with_identities {
    use super::*;

    /// Options that mean something to `gsiftp://` alone: status of either program.
    fn both_agree(kind: Kind) {
        let Some(secure) = Secure::start(kind) else {
            return;
        };
        let ours = Ours::new();
        fs::write(secure.site.at("f"), noise(70_000, 1)).expect("writes");
        let (source, proxy) = (secure.url("f"), secure.path("proxy"));
        let (proxy, server) = (proxy.to_str().expect("text"), "/O=Grid/CN=server");
        let new = secure.site.local_url("new");
        let variables = secure.variables();
        for (options, succeeds) in [
            (&[][..], true),
            (&["-nodcau"], true),
            (&["-dcsafe", "-p", "2"], true),
            (&["-dcpriv", "-p", "2"], true),
            (&["-s", server], true),
            (&["-ss", server, "-ds", server], true),
            (&["-ss", "/O=Grid/CN=nobody"], false),
            (&["-cred", proxy], true),
            (&["-sc", proxy], true),
            (&["-cred", "/nowhere/proxy"], false),
        ] {
            let mut words = options.to_vec();
            words.extend([source.as_str(), &new]);
            let mut command = gct::URL_COPY.command().expect("present");
            command.args(&words).envs(variables.iter().cloned());
            let theirs = process::run(command, RUN_TIMEOUT).expect("runs");
            let ours = ours.run_with(&words, &variables);
            for finished in [theirs, ours] {
                let told = finished.log();
                assert_eq!(finished.status.success(), succeeds, "{options:?}: {told}");
            }
            if succeeds {
                assert_holds(&secure.site.local("new"), &noise(70_000, 1));
                fs::remove_file(secure.site.local("new")).expect("removes");
            }
        }
        // The destination's.
        for options in [["-ds", server], ["-dc", proxy]] {
            let local = secure.site.local_url("f");
            fs::write(secure.site.local("f"), "f").expect("writes");
            let words = [options[0], options[1], &local, &secure.url("put")];
            let put = ours.run_with(&words, &variables);
            assert!(put.status.success(), "{options:?}: {}", put.log());
            assert_holds(&secure.site.at("put"), b"f");
        }
    }

    against_both!(both_agree);
}

/// Every option that has an effect is said in a test of this file.
#[test]
fn every_option_is_tried() {
    let text = include_str!("guc.rs");
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

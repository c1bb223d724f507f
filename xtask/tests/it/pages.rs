//! Man pages and completions.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use crate::support::{have, programs, said, told, within};

fn written() -> Option<TempDir> {
    if !have(&["godwit-dist"], &[]) {
        return None;
    }
    let folder = TempDir::new().unwrap();
    said(within(60, programs().join("godwit-dist")).arg(folder.path()));
    Some(folder)
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn away_from_the_tree_it_is_said_where_to_run_it() {
    if !have(&["godwit-dist"], &[]) {
        return;
    }
    let folder = TempDir::new().unwrap();
    let mut command = within(60, programs().join("godwit-dist"));
    let output = command.current_dir(folder.path()).arg("out").output();
    let told = told(&output.unwrap());
    assert!(told.contains("run it in the tree"), "{told}");
}

#[test]
fn each_command_has_a_page_that_man_shows_without_a_warning() {
    let Some(share) = written() else {
        return;
    };
    let [ordinary, administrators] =
        ["man/man1", "man/man8"].map(|n| files_in(&share.path().join(n)));
    let names = |files: &[PathBuf]| -> Vec<String> {
        let names = files.iter().map(|file| file.file_name().unwrap());
        names
            .map(|name| name.to_string_lossy().into_owned())
            .collect()
    };
    for name in [
        "godwit.1",
        "godwit-cp.1",
        "godwit-sync.1",
        "godwit-proxy-init.1",
        "godwit-lab.1",
        "godwit-lab-run.1",
    ] {
        assert!(
            names(&ordinary).contains(&name.to_owned()),
            "{name}: {ordinary:?}"
        );
    }
    assert_eq!(
        names(&administrators),
        [
            "godwit-service-agent.8",
            "godwit-service-doctor.8",
            "godwit-service-enroll.8",
            "godwit-service-migrate.8",
            "godwit-service-probe.8",
            "godwit-service-serve.8",
            "godwit-service.8",
            "godwitd-node-key-ca.8",
            "godwitd-node-key-issue.8",
            "godwitd-node-key.8",
            "godwitd-passwd.8",
            "godwitd-s3-key.8",
            "godwitd.8",
        ]
    );
    for (name, word) in [
        ("man1/godwit.1", ".SH EXAMPLES"),
        ("man1/godwit.1", ".SH \"EXIT STATUS\""),
        ("man1/godwit.1", "godwit\\-cp(1)"),
        ("man1/godwit-cp.1", "\\-\\-parallelism"),
        ("man1/godwit-cp.1", ".SH NOTES"),
        ("man8/godwitd.8", "\\-\\-max\\-sessions\\-per\\-address"),
        ("man8/godwitd.8", "godwitd\\-passwd(8)"),
        ("man8/godwit-service.8", ".SH EXAMPLES"),
        ("man8/godwit-service-serve.8", "\\-\\-database\\-file"),
    ] {
        let text = fs::read_to_string(share.path().join("man").join(name)).unwrap();
        assert!(text.contains(word), "{name} lacks {word}");
    }
    if !have(&[], &[("man", "man-db")]) {
        return;
    }
    for page in ordinary.iter().chain(&administrators) {
        let mut man = within(60, "man");
        man.env("LC_ALL", "C.UTF-8").env("MANWIDTH", "100");
        man.args(["--warnings", "--local-file"]).arg(page);
        let shown = man.output().unwrap();
        let clean = shown.status.success() && shown.stderr.is_empty();
        assert!(clean, "{}: {}", page.display(), told(&shown));
        let text = String::from_utf8_lossy(&shown.stdout);
        assert!(text.contains("SYNOPSIS"), "{}", page.display());
    }
}

#[test]
fn bash_completes_commands_and_options() {
    let Some(share) = written() else {
        return;
    };
    let completions = share.path().join("bash-completion/completions");
    let completed = |program: &str, words: &str| {
        // As bash does it when somebody presses Tab behind the last of the words.
        let script = "source \"$1\"; COMP_WORDS=($2); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); \
                      \"_${COMP_WORDS[0]//-/__}\" \"${COMP_WORDS[0]}\" \
                      \"${COMP_WORDS[-1]}\" \"${COMP_WORDS[-2]}\"; \
                      echo \"${COMPREPLY[*]}\"";
        let mut bash = Command::new("bash");
        bash.args(["-euc", script, "-"]);
        bash.arg(completions.join(program)).arg(words);
        said(&mut bash).trim().to_owned()
    };
    assert_eq!(completed("godwit", "godwit cp --par"), "--parallelism");
    assert_eq!(completed("godwit", "godwit proxy in"), "init info");
    assert_eq!(completed("godwitd", "godwitd --anonymous r"), "ro rw");
    assert_eq!(completed("godwit-lab", "godwit-lab tour"), "tournament");
    assert_eq!(completed("godwit-service", "godwit-service doc"), "doctor");
    for folder in ["zsh/site-functions", "fish/vendor_completions.d"] {
        assert_eq!(files_in(&share.path().join(folder)).len(), 4, "{folder}");
    }
}

#[test]
fn each_library_has_a_licence() {
    let Some(share) = written() else {
        return;
    };
    let text = fs::read_to_string(share.path().join("doc/godwit/THIRD-PARTY.txt")).unwrap();
    let (list, texts) = text.split_once("=====").unwrap();
    for library in ["openssl ", "tokio ", "clap "] {
        let has = |line: &&str| line.starts_with(library) && line.contains(": ");
        assert!(list.lines().any(|line| has(&line)), "{library}: {list}");
    }
    assert!(
        !list.contains("proptest") && !list.contains("see its file"),
        "{list}"
    );
    assert!(texts.contains("Permission is hereby granted"));
}

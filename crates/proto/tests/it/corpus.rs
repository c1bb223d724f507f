//! Replays what fuzzing has found worth keeping (`fuzz/corpus/<target>/`).

use std::{fs, path::Path};

use crate::{parsers, support::operations};

type Target = fn(&[u8]);

/// Every fuzz target and what it does.
const TARGETS: &[(&str, Target)] = &[
    ("client_pi", operations::client_pi),
    ("command_line", parsers::command_line),
    ("facts", parsers::facts),
    ("list_line", parsers::list_line),
    ("mode_e_receiver", parsers::mode_e_receiver),
    ("range_markers", parsers::range_markers),
    ("reply", parsers::reply),
    ("restart", parsers::restart),
    ("server_pi", operations::server_pi),
    ("url", parsers::url),
];

fn fuzz_dir() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// Names of what lies in a directory, without their extension, in order. Those of `gsi_...` and
/// `privsep_...` are replayed by their crates.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
        .map(|entry| entry.unwrap().path())
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with("gsi_") && !name.starts_with("privsep_"))
        .collect();
    names.sort();
    names
}

#[test]
fn every_target_has_a_corpus_and_is_replayed() {
    let replayed: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names(&fuzz_dir().join("fuzz_targets")), replayed);
    assert_eq!(names(&fuzz_dir().join("corpus")), replayed);
}

#[test]
fn corpora_run_clean() {
    for (target, run) in TARGETS {
        let dir = fuzz_dir().join("corpus").join(target);
        let mut files = 0;
        for entry in fs::read_dir(&dir).unwrap() {
            let file = entry.unwrap().path();
            let bytes = fs::read(&file).unwrap();
            assert!(bytes.len() <= 1024, "{}: keep inputs small", file.display());
            if let Err(panic) = std::panic::catch_unwind(|| run(&bytes)) {
                eprintln!("while replaying {}", file.display());
                std::panic::resume_unwind(panic);
            }
            files += 1;
        }
        assert!(files > 0, "{target} has no corpus");
    }
}

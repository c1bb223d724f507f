//! Replays the corpora of the fuzz targets (`fuzz/corpus/TARGET/`). The tests of each crate whose
//! code is fuzzed include this file.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

/// The name of a fuzz target, and what it runs.
pub(crate) type Target = (&'static str, fn(&[u8]));

/// Longest input of a corpus: a failure is read by hand.
const INPUT_BYTES_MAX: usize = 2048;

fn entries(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz")
        .join(folder);
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut entries: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries
}

/// Runs each input of a target's corpus.
///
/// # Panics
/// When an input fails or is long, or the target has none.
pub(crate) fn replay(target: &str, mut run: impl FnMut(&[u8])) {
    let inputs = entries(&format!("corpus/{target}"));
    assert!(!inputs.is_empty(), "{target} has no corpus");
    for input in inputs {
        let bytes = fs::read(&input).unwrap();
        let context = format!("while replaying {}", input.display());
        assert!(
            bytes.len() <= INPUT_BYTES_MAX,
            "{context}: keep inputs small"
        );
        catch_unwind(AssertUnwindSafe(|| run(&bytes)))
            .unwrap_or_else(|panic| panic!("{context}: {panic:?}"));
    }
}

/// Each target of `targets` and no other whose name `is_ours` has a program and a corpus.
///
/// # Panics
/// When one is missing.
#[allow(dead_code)] // a crate with a single target does without
pub(crate) fn check_targets(targets: &[Target], is_ours: fn(&str) -> bool) {
    let replayed: Vec<_> = targets.iter().map(|(name, _)| (*name).to_owned()).collect();
    for folder in ["fuzz_targets", "corpus"] {
        let names = entries(folder).into_iter();
        let names = names.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned());
        let ours: Vec<String> = names.filter(|name| is_ours(name)).collect();
        assert_eq!(ours, replayed, "{folder}");
    }
}

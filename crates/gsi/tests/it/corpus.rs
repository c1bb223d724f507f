//! Replays what fuzzing has found worth keeping (`fuzz/corpus/gsi_<target>/`), and random bytes.

use std::{fs, path::Path};

use proptest::prelude::*;

use crate::parsers;

type Target = fn(&[u8]);

/// Every fuzz target of this crate and what it does.
const TARGETS: &[(&str, Target)] = &[
    ("gsi_adat", parsers::adat),
    ("gsi_certificate", parsers::certificate),
    ("gsi_gridmap", parsers::gridmap),
    ("gsi_signing_policy", parsers::signing_policy),
    ("gsi_token", parsers::token),
    ("gsi_wrap", parsers::wrap),
];

fn fuzz_dir() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// Names of what lies in a directory, without their extension, in order; of this crate only.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("gsi_"))
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
            let told = format!("while replaying {}", file.display());
            assert!(bytes.len() <= 2048, "{told}: keep inputs small");
            if let Err(panic) = std::panic::catch_unwind(|| run(&bytes)) {
                panic!("{told}: {panic:?}");
            }
            files += 1;
        }
        assert!(files > 0, "{target} has no corpus");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_bytes_run_clean(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        for (_, run) in TARGETS {
            run(&bytes);
        }
    }

    /// One byte of a good certificate replaced: never believed, whatever it now says.
    #[test]
    fn changed_certificates_are_never_believed(place in any::<prop::sample::Index>(), byte: u8) {
        let mut der = parsers::good_certificate();
        let place = place.index(der.len());
        prop_assume!(der[place] != byte);
        der[place] = byte;
        parsers::certificate(&der);
    }
}

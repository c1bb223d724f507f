//! Replays the corpora of this crate's fuzz targets, and runs them on random bytes.

use proptest::prelude::*;

use crate::{
    parsers,
    replay::{Target, check_targets, replay},
};

const TARGETS: &[Target] = &[
    ("gsi_adat", parsers::adat),
    ("gsi_certificate", parsers::certificate),
    ("gsi_gridmap", parsers::gridmap),
    ("gsi_signing_policy", parsers::signing_policy),
    ("gsi_token", parsers::token),
    ("gsi_wrap", parsers::wrap),
];

#[test]
fn every_target_has_a_corpus_and_is_replayed() {
    check_targets(TARGETS, |name| name.starts_with("gsi_"));
}

#[test]
fn corpora_run_clean() {
    for (target, run) in TARGETS {
        replay(target, run);
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

    /// A good certificate with one byte replaced is never trusted.
    #[test]
    fn changed_certificates_are_never_trusted(place in any::<prop::sample::Index>(), byte: u8) {
        let mut der = parsers::good_certificate();
        let place = place.index(der.len());
        prop_assume!(der[place] != byte);
        der[place] = byte;
        parsers::certificate(&der);
    }
}

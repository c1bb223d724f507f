//! Replays the corpora of the fuzz targets, and runs these on random bytes.

use proptest::prelude::*;

use crate::{
    parsers,
    replay::{Target, check_targets, replay},
};

const TARGETS: &[Target] = &[
    ("http_bodies", parsers::bodies),
    ("http_headers", parsers::headers),
    ("http_s3", parsers::s3_requests),
];

#[test]
fn every_target_has_a_corpus_that_passes() {
    check_targets(TARGETS, |name| name.starts_with("http_"));
    for (target, run) in TARGETS {
        replay(target, run);
    }
}

proptest! {
    #[test]
    fn any_text_is_read_without_panic(text in "[ -~<>/=:%\"\n]{0,60}", bytes: Vec<u8>) {
        parsers::headers(text.as_bytes());
        parsers::bodies(text.as_bytes());
        parsers::headers(&bytes);
        parsers::bodies(&bytes);
        parsers::s3_requests(text.as_bytes());
        parsers::s3_requests(&bytes);
    }
}

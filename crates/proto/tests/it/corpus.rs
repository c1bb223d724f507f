//! Replays the corpora of this crate's fuzz targets.

use crate::{
    parsers,
    replay::{Target, check_targets, replay},
    support::operations,
};

const TARGETS: &[Target] = &[
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

#[test]
fn every_target_has_a_corpus_and_is_replayed() {
    // Other crates replay theirs.
    check_targets(TARGETS, |name| {
        !["gsi_", "http_", "node_", "privsep_", "service_"]
            .iter()
            .any(|other| name.starts_with(other))
    });
}

#[test]
fn corpora_run_clean() {
    for (target, run) in TARGETS {
        replay(target, run);
    }
}

//! A file whose copy is killed three times; more and larger: `godwit-lab kills`.

use godwit_lab::faults::kills::{
    self, BUFFERS_BYTES_MAX, CopyDirection, KillPlan, Over, RANGE_BYTES_MAX,
};
use godwit_lab::peers::s3::Kind;
use tempfile::TempDir;

use crate::support::{Need, have};

const PLAN: KillPlan = KillPlan {
    seed: 0,
    kills: 3,
    bytes: 300_000_000,
    direction: CopyDirection::Up,
    over: Over::Https,
    parallelism: 4,
};

/// The first whose moments are so late that a copy that begins again sends more than is allowed.
fn seed() -> u64 {
    let channels = u64::from(PLAN.kills) * u64::from(PLAN.parallelism);
    let allowed = channels * (RANGE_BYTES_MAX + BUFFERS_BYTES_MAX);
    let from_the_start = |seed| KillPlan { seed, ..PLAN }.moments().iter().sum::<u64>();
    (1..)
        .find(|seed| from_the_start(*seed) > allowed + allowed / 20)
        .expect("some seed has late moments")
}

fn copy(direction: CopyDirection, over: Over) {
    if !have(&[Need::Godwit, Need::Godwitd]) {
        return;
    }
    let plan = KillPlan {
        seed: seed(),
        direction,
        over,
        ..PLAN
    };
    let folder = TempDir::new().unwrap();
    let outcome = kills::run(&plan, folder.path()).unwrap();
    assert!(
        outcome.findings.is_empty(),
        "{}",
        outcome.findings.join("\n")
    );
    assert_eq!(outcome.checksums[0], outcome.checksums[1]);
    assert_eq!(outcome.killed, plan.kills, "{outcome:?}");
    // Zeros where the copy has a hole count as there (GridFTP).
    assert!(outcome.moved_bytes > plan.bytes / 2, "{outcome:?}");
    assert!(outcome.is_good(), "{outcome:?}");
}

#[test]
fn an_upload_over_https_goes_on_after_each_kill() {
    copy(CopyDirection::Up, Over::Https);
}

#[test]
fn a_download_over_https_goes_on_after_each_kill() {
    copy(CopyDirection::Down, Over::Https);
}

#[test]
fn an_upload_to_a_bucket_goes_on_after_each_kill() {
    if have(&[Need::S3(Kind::Versitygw)]) {
        copy(CopyDirection::Up, Over::S3);
    }
}

#[test]
fn a_download_from_a_bucket_goes_on_after_each_kill() {
    if have(&[Need::S3(Kind::Versitygw)]) {
        copy(CopyDirection::Down, Over::S3);
    }
}

#[test]
fn an_upload_over_gridftp_goes_on_after_each_kill() {
    copy(CopyDirection::Up, Over::Gridftp);
}

#[test]
fn a_download_over_gridftp_goes_on_after_each_kill() {
    copy(CopyDirection::Down, Over::Gridftp);
}

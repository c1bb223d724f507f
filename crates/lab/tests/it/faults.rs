//! A short campaign of faults; longer ones: `godwit-lab faults`.

use godwit_lab::faults::{Campaign, Fault, Kind, Shape};
use godwit_lab::peers::gct;

use crate::netns::present;
use crate::support::{Need, have};

/// Chosen arbitrarily, and kept: the same faults each time.
const SEED: u64 = 1;

#[test]
fn all_arrives_whole_whatever_dies_meanwhile() {
    let test = "all_arrives_whole_whatever_dies_meanwhile";
    if !have(&[Need::Godwit, Need::Godwitd]) || !present(test) {
        return;
    }
    let mut kinds = vec![
        Kind::ClientKilled,
        Kind::ServerKilled,
        Kind::SourceKilled,
        Kind::TargetKilled,
        Kind::Cut,
    ];
    if gct::available().is_ok() {
        kinds.push(Kind::GctKilled);
    }
    let mut campaign = Campaign::new(SEED);
    let mut happened = 0;
    for (number, kind) in (0..).zip(&kinds) {
        let fault = Fault {
            shape: Shape::Mixed,
            ..Fault::draw(SEED, number, &[*kind])
        };
        let outcome = campaign.run(&fault).unwrap();
        let findings = outcome.findings.join("\n");
        assert!(findings.is_empty(), "{fault}: {findings}");
        happened += usize::from(outcome.happened);
    }
    // A moment may come too late, but not each of them.
    assert!(happened > 0);
}

//! A short campaign of faults; longer ones: `godwit-lab faults`.

use std::io::Write as _;

use godwit_lab::faults::service::{Database, ServiceCampaign};
use godwit_lab::faults::{Campaign, Dialogues, Error, Fault, Kind, Shape};
use godwit_lab::peers::{self, gct, postgres};

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

/// Seeds of each kind of dialogue fault.
const DIALOGUE_SEEDS: u64 = 4;
/// Of them at a time: most of their time is waiting.
const DIALOGUE_JOBS: u32 = 8;

#[test]
fn nothing_is_lost_whatever_a_server_says() {
    let test = "nothing_is_lost_whatever_a_server_says";
    if !have(&[Need::Godwit, Need::Godwitd]) {
        return;
    }
    let mut happened = 0;
    for seed in 1..=DIALOGUE_SEEDS {
        let dialogues = Dialogues::new(seed).unwrap();
        let lacking = dialogues.lacking();
        if seed == 1 && !lacking.is_empty() {
            let lacking = lacking.join(", ");
            let _ = writeln!(std::io::stderr().lock(), "skipped {test} with {lacking}");
        }
        let faults = (0..)
            .zip(Kind::OF_DIALOGUES)
            .map(|(number, kind)| Fault::draw(seed, number, &[kind]));
        let all = dialogues.run_all(faults, DIALOGUE_JOBS, |outcome| {
            let (fault, findings) = (outcome.fault, outcome.findings.join("\n"));
            assert!(findings.is_empty(), "seed {seed}: {fault}: {findings}");
            happened += usize::from(outcome.happened);
            Ok::<_, Error>(())
        });
        all.unwrap();
    }
    assert!(happened > 0);
}

/// Plans of a service with PostgreSQL; one more has SQLite.
const SERVICE_PLANS: u64 = 2;

#[test]
fn every_job_of_a_service_ends_whatever_dies_meanwhile() {
    let test = "every_job_of_a_service_ends_whatever_dies_meanwhile";
    if !have(&[Need::Godwitd, Need::Service]) {
        return;
    }
    let mut plans = vec![(Database::Sqlite, 0)];
    if peers::present(test, postgres::programs()).is_some() {
        plans.extend((0..SERVICE_PLANS).map(|number| (Database::Postgres, number)));
    }
    std::thread::scope(|scope| {
        let runs = plans.into_iter().map(|(database, number)| {
            scope.spawn(move || {
                let campaign = ServiceCampaign::new(SEED, database).unwrap();
                let plan = campaign.plan(number);
                let findings = campaign.run(&plan).unwrap().findings.join("\n");
                assert!(findings.is_empty(), "{plan}: {findings}");
            })
        });
        // All begin before the first is waited for.
        for run in runs.collect::<Vec<_>>() {
            run.join().unwrap();
        }
    });
}

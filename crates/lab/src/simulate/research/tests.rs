use super::*;
use crate::scenario::Size;
use crate::simulate::load;

fn small() -> ResearchStudy {
    let mut study = load("sim/research-network")
        .unwrap()
        .scenario
        .research
        .unwrap();
    study.users = 12;
    study.transfers = 60;
    study.hours = 1;
    study.seeds = 1;
    study.size.max = Size(50_000_000_000);
    study
}

#[test]
fn every_transfer_ends_under_each_way_and_equal_seeds_give_equal_results() {
    let study = small();
    let result = run(&study, false, Workers::silent(2));
    assert_eq!(result.days[0].0, 60);
    for (sharing, days) in &result.ways {
        let day = &days[0];
        assert_eq!(day.ended, 60, "{sharing:?}");
        assert!((1.0 / 12.0..=1.0).contains(&day.jain), "{sharing:?}");
        assert!(day.of_alone.1 > 0.0 && day.of_alone.1 <= 1.5, "{sharing:?}");
        let classes: usize = day.classes.iter().map(|(.., count)| count).sum();
        assert_eq!(classes, 60);
    }
    assert_eq!(result, run(&study, false, Workers::silent(1)));
}

#[test]
fn a_transfer_alone_takes_its_login_and_what_its_slowest_link_takes() {
    let mut study = small();
    study.transfers = 1;
    study.channels = 64;
    study.size = Sizes {
        median: Size(100_000_000_000),
        sigma: 0.0,
        max: Size(100_000_000_000),
    };
    let result = run(&study, false, Workers::silent(1));
    let alone = result.ways[0].1[0].of_alone.1;
    // Slow start, headers, and what a shallow queue leaves unused.
    assert!((0.7..0.97).contains(&alone), "{alone}");
    for (sharing, days) in &result.ways[1..] {
        assert!(
            days[0].of_alone.1 > 0.15,
            "{sharing:?}: {:?}",
            days[0].of_alone
        );
    }
}

#[test]
fn days_are_heavy_tailed_and_differ_by_seed() {
    let study = load("sim/research-network")
        .unwrap()
        .scenario
        .research
        .unwrap();
    let day = workload::draw(&study, 1);
    assert_eq!(day.len(), 10_000);
    assert!(
        day.iter()
            .all(|t| t.source != t.destination && t.bytes >= t.file_bytes)
    );
    assert!(day.windows(2).all(|pair| pair[0].at_s <= pair[1].at_s));
    let mut sizes: Vec<u64> = day.iter().map(|t| t.bytes).collect();
    sizes.sort_unstable();
    let all: u64 = sizes.iter().sum();
    let largest: u64 = sizes[9_900..].iter().sum();
    // One of a hundred transfers has a third of the bytes and more.
    assert!(largest > all / 3, "{largest} of {all}");
    assert_ne!(day, workload::draw(&study, 2));
}

//! Tuners and simultaneous transfers in reports.

use super::super::*;
use super::{assert_well_formed, outcome};
use crate::runner::{Choice, Course, Environment, Evolution, Run, RunOutcome};
use crate::scenario::{self, Scenario};

const TUNED: &str = r#"
title = "A tuner beside two static settings, one change"

[path]
rate = "1 Gbit/s"
delay = "10 ms"

[sweep]
channels = [4, 32]

[run]
evolve = "30 s"

[[change]]
at = "15 s"
rate = "500 Mbit/s"

[[method]]
name = "static"
label = "static"
client = "godwit"
server = "godwitd"

[[method]]
name = "apt"
label = "apt"
client = "godwit"
server = "godwitd"
tuner = "apt"

[[method]]
name = "both"
label = "two at once"
client = "godwit"
server = "godwitd"
tuner = "apt"
transfers = 2
stagger = "5 s"

[[paper]]
what = "until it is there"
value = "40 s"
ours = "convergence"

[[paper]]
what = "where it settles"
value = "32"
ours = "best-channels"

[[expect]]
what = "it is there soon, and again after the change"
methods = ["apt"]
steady_at_least = "98 %"
converges_within = "5 s"
adapts_within = "2 s"
regret_at_most = "10 %"
channels_at_most = 1.0
leaves_at_least = "17 %"

[[expect]]
what = "two share"
jain_at_least = 0.95
"#;

/// A run whose transfers have these courses: so many bins of a value, in Mbit/s.
fn evolving(scenario: &Scenario, method: usize, cell: usize, courses: &[&[(usize, f64)]]) -> Run {
    let transfers: Vec<Course> = (courses.iter())
        .map(|parts| Course {
            goodput_bps: (parts.iter())
                .flat_map(|&(count, mbps)| std::iter::repeat_n(mbps * 1e6, count))
                .collect(),
            channels: vec![30; 60],
            choices: vec![Choice {
                seconds: 2.5,
                concurrency: 1,
                parallelism: 30,
                reason: "more <is> better".into(),
            }],
        })
        .collect();
    let steady = |course: &Course| course.goodput_bps.last().copied().unwrap_or(0.0);
    let transfers_bps: Vec<f64> = transfers.iter().map(steady).collect();
    let method = &scenario.method[method];
    Run {
        number: 1,
        repeat: 0,
        attempt: 1,
        seed: 1,
        method: method.name.clone(),
        cell: scenario.cells(method)[cell].clone(),
        result: Some(RunOutcome {
            beside_bps: Some(100e6),
            evolution: Some(Evolution {
                bin_seconds: 0.5,
                transfers,
                beside_bps: vec![100e6; 60],
            }),
            transfers_bps: transfers_bps.clone(),
            ..outcome(transfers_bps.iter().sum())
        }),
        error: None,
    }
}

fn tuned() -> Results {
    let scenario = scenario::parse("tuned", TUNED).expect("is one");
    let runs = vec![
        evolving(&scenario, 0, 0, &[&[(30, 140.0), (30, 140.0)]]),
        evolving(&scenario, 0, 1, &[&[(30, 960.0), (30, 480.0)]]),
        // Half for 3 s, then as good as the best; after the change, 1 s of nothing.
        evolving(
            &scenario,
            1,
            0,
            &[&[(6, 480.0), (24, 960.0), (2, 0.0), (28, 480.0)]],
        ),
        evolving(
            &scenario,
            2,
            0,
            &[&[(30, 480.0), (30, 240.0)], &[(10, 0.0), (50, 240.0)]],
        ),
    ];
    Results {
        folder: "results".into(),
        environment: Environment::now("tuned", false, &scenario),
        scenario,
        scenario_text: TUNED.into(),
        runs,
    }
}

#[test]
fn tuners_are_compared_with_the_best_static_setting_of_each_phase() {
    let results = tuned();
    let groups = group::groups(&results);
    let judged = judged::judged(&results, &groups);
    assert_eq!(
        judged.len(),
        2,
        "static settings are what others are held against"
    );
    let [apt, both] = [&judged[0], &judged[1]];
    assert_eq!(apt.settled, [3.0, 1.0]);
    assert!((apt.steady.expect("known").mean - 1.0).abs() < 1e-9);
    // 3 s at half of 960 and 1 s of 480, of 15 s of each.
    let lost = (3.0 * 480.0 + 480.0) / (15.0 * 960.0 + 15.0 * 480.0);
    assert!((apt.regret.expect("known") - lost).abs() < 1e-9, "{apt:?}");
    assert_eq!((apt.fewest, apt.channels), (Some(32), Some(30.0)));
    assert_eq!(apt.jain, None);
    assert!((apt.beside.expect("known").1 - 100.0 / 580.0).abs() < 1e-9);
    assert_eq!(both.jain, Some(1.0));
    assert!(
        both.settled.is_empty(),
        "the second has not begun when the first is there"
    );
}

#[test]
fn evolutions_are_drawn_described_and_judged() {
    let results = tuned();
    let files = svgs(&results, "x");
    let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["x.svg", "x-time.svg"]);
    let drawn = &files[1].svg;
    assert_well_formed(drawn);
    for part in [
        "best static",
        "load or path changes",
        "2.5 s: 1 x 30: more &lt;is&gt; better",
    ] {
        assert!(drawn.contains(part), "{part}");
    }
    let (page, figures) = markdown(&results, "x");
    assert_eq!(figures, files);
    for part in [
        "![A tuner beside two static settings, one change](x-time.svg)",
        "## Against the best static setting",
        "| until it is there | 40 s | apt: 3.0 s |",
        "apt: 30.0 (settled)",
        "| ✓ yes | it is there soon, and again after the change | \
         apt: 100 % of the best static<br>apt: there after 3.0 s<br>\
         apt: slowest adaptation 1.0 s<br>apt: 8.89 % lost on the way<br>\
         apt: 30.0 channels where 32 suffice<br>apt: leaves 17.2 % to others |",
        "| ✓ yes | two share | two at once: Jain's index 1.000 |",
        "evolve run for 30 s",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    let mut text = Vec::new();
    summarise(&results, &mut text).expect("can be written");
    let text = String::from_utf8(text).expect("UTF-8");
    assert!(text.contains("there after, s"), "{text}");
}

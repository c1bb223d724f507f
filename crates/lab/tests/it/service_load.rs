//! The benchmark of the transfer service in its short form; the whole: `cargo xtask bench`.

use clap::Parser as _;
use godwit_lab::commands::bench;
use godwit_lab::peers::{self, postgres};

use crate::support::{Need, have};

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    options: bench::Options,
}

#[test]
fn simulated_agents_and_users_are_served_on_both_databases() {
    let test = "simulated_agents_and_users_are_served_on_both_databases";
    if !have(&[Need::Service]) {
        return;
    }
    let mut cells = Vec::from([
        "service/sqlite/accept",
        "service/sqlite/steer",
        "service/sqlite/rucio",
    ]);
    if peers::present(test, postgres::programs()).is_some() {
        cells.extend(["service/postgres/leases", "service/postgres/rucio"]);
    }
    let cells = cells.join(",");
    let line = Line::parse_from([
        "bench",
        "--quick",
        "--only",
        &cells,
        "--job-files",
        "100000",
    ]);
    let mut out = Vec::new();
    bench::run(&line.options, &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    assert!(out.contains("2000 files accepted"), "{out}");
    assert!(out.contains("cancel to the stop at the agent"), "{out}");
    // Each of four submitters had one job, and one in each of two rounds.
    let rucio = cells.matches("rucio").count();
    let finished = out.matches("all 12 jobs finished").count();
    assert_eq!(finished, rucio, "{out}");
}

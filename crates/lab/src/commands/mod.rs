//! The sub-commands of `godwit-lab`, one file each.

use clap::{Parser, Subcommand};

pub mod bench;
pub mod calibrate;
pub mod campaign;
pub mod demo;
pub mod faults;
pub mod kills;
pub mod netns_gc;
pub mod pictures;
pub mod report;
pub mod run;
pub mod service;
pub mod simulate;
pub mod soak;
pub mod tournament;

/// Peers, benchmarks and the demo of godwit, on one machine.
#[derive(Debug, Parser)]
#[command(
    name = "godwit-lab",
    version,
    after_help = "Examples:\n  godwit-lab demo\n  godwit-lab bench --quick\n  godwit-lab calibrate \
                  --quick\n  godwit-lab run apt-impl/evolution --quick --out results\n  godwit-lab \
                  report results\n  godwit-lab simulate sim/tuners --quick --out simulated\n\n\
                  Exit status: 0 done, 2 wrong usage, 3 this machine does not allow it, 4 failed"
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The sub-commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Moves a directory of mixed files up and down with 64 channels and verifies every byte
    Demo(demo::Options),
    /// Compares godwit, the Grid Community Toolkit and iperf3 in one run
    Bench(bench::Options),
    /// Measures how far emulated paths can be trusted on this machine
    Calibrate(calibrate::Options),
    /// Runs a scenario over an emulated network and keeps what it gave
    Run(run::Options),
    /// Runs a list of scenarios over several invocations, until each cell has what is asked, then
    /// writes their pages
    Campaign(campaign::Options),
    /// Runs a scenario packet by packet in simulated time, without a network, and writes its page
    Simulate(simulate::Options),
    /// Writes one page with figures and tables about what runs gave
    Report(report::Options),
    /// Kills programs, cuts links and breaks storage by seed, and looks whether all arrives all the
    /// same
    Faults(faults::Options),
    /// Kills the copy of one large file again and again, and counts what is sent again
    Kills(kills::Options),
    /// Transfers, listings, aborts and deaths in random mix for minutes, and looks whether anything
    /// grows
    Soak(soak::Options),
    /// Measures how the transfer service divides a path among users, classes and jobs
    Service(service::Options),
    /// Replays a day of a site and takes pictures of the transfer service's page in its evening
    Pictures(pictures::Options),
    /// Lets every tuner meet thousands of modelled conditions, in seconds
    Tournament(tournament::Options),
    /// Removes what killed runs left behind: programs in hosts, files, changed settings
    NetnsGc,
}

//! Two agents with a link each; how much of them they use: `godwit-lab service links`.

use godwit_lab::service::links::{self, JobLoad, LinkPlan};

use crate::netns::present;
use crate::support::{Need, have};

#[test]
fn two_agents_use_more_than_one_link() {
    let test = "two_agents_use_more_than_one_link";
    if !have(&[Need::Godwit, Need::Godwitd, Need::Service]) || !present(test) {
        return;
    }
    let plan = LinkPlan {
        rate_bps: 10_000_000,
        seconds: 15,
    };
    std::thread::scope(|scope| {
        let runs = JobLoad::ALL.map(|load| scope.spawn(move || links::measure(plan, load, 2)));
        for run in runs {
            let outcome = run.join().unwrap().unwrap();
            // One link is a half. A busy machine takes its part of the rest.
            assert!(outcome.share > 0.55, "{outcome:?}");
        }
    });
}

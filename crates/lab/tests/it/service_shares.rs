//! Who gets more from a transfer service; how much more: `godwit-lab service`.

use godwit_lab::service::fairness::{self, FairnessExtent, Part};

use crate::netns::present;
use crate::support::{Need, have};

#[test]
fn equal_users_get_the_same_weights_count_and_small_jobs_start() {
    let test = "equal_users_get_the_same_weights_count_and_small_jobs_start";
    if !have(&[Need::Godwit, Need::Godwitd, Need::Service]) || !present(test) {
        return;
    }
    std::thread::scope(|scope| {
        let parts = [Part::Equal, Part::Weighted, Part::Small];
        let runs = parts.map(|part| {
            scope
                .spawn(move || fairness::run(&FairnessExtent::QUICK, &[part], &mut |_| {}).unwrap())
        });
        for run in runs {
            run.join().unwrap().check().unwrap();
        }
    });
}

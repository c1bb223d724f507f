//! A soak of some seconds; longer ones: `godwit-lab soak`.

use std::time::Duration;

use godwit_lab::soak::{self, Length};

use crate::support::{Need, have};

#[test]
fn nothing_breaks_and_everything_is_let_go_of() {
    if !have(&[Need::Godwit, Need::Godwitd]) {
        return;
    }
    // Too short for anything to grow visibly: that is left to the command.
    let length = Length {
        load: Duration::from_secs(5),
        interval: Duration::from_millis(250),
    };
    let soak = soak::run(1, length, &mut |_| {}).unwrap();
    assert!(soak.findings.is_empty(), "{}", soak.findings.join("\n"));
    assert!(
        soak.done.commands > 0 && soak.done.files > 0,
        "{:?}",
        soak.done
    );
}

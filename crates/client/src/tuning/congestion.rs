//! `--congestion auto`: who decides, and what there is to choose from.

use godwit_engine::host::net;
use godwit_tune::congestion::Congestion;

use crate::{
    context::RunContext,
    spec::{CongestionChoice, JobSpec},
};

/// What is tried where the system's control stays below the path: it measures rate and delay, and
/// takes no loss for a queue.
const OTHER: &str = "bbr";

/// The one who chooses, where that was asked for and there is a choice. Else the reason why not is
/// told.
pub(crate) fn chooser(spec: &JobSpec, context: &RunContext) -> Option<Congestion> {
    if spec.congestion != CongestionChoice::Auto {
        return None;
    }
    match choice(spec.sends()) {
        Ok(usual) => Some(Congestion::new(&usual, OTHER)),
        Err(why) => {
            context
                .reporter
                .note(format!("--congestion auto has nothing to choose: {why}"));
            None
        }
    }
}

/// The usual control, where there is another.
fn choice(sends: bool) -> Result<String, String> {
    if !sends {
        return Err("a server is the sender, and its system chooses".to_owned());
    }
    let usual = net::usual_congestion().map_err(|e| e.to_string())?;
    if usual == OTHER {
        return Err(format!("the system's is {OTHER} already"));
    }
    net::try_congestion(OTHER).map_err(|e| format!("{OTHER} is not to be had ({e})"))?;
    Ok(usual)
}

//! `--congestion auto`: the chooser and its candidates.

use godwit_engine::host::net;
use godwit_tune::congestion::Congestion;

use crate::{
    context::RunContext,
    spec::{CongestionChoice, JobSpec},
};

/// Tried if the system's control does not fill the path: it measures rate and delay, and does not
/// take loss for congestion.
const OTHER: &str = "bbr";

/// The chooser, if requested and if there is a choice. Otherwise the reason is reported.
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

/// The system's control, if there is another one, too.
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

//! `godwit-lab netns-gc`.

use std::process::ExitCode;

use clap::Args;
use godwit_lab::network::Error;
use godwit_lab::state;

/// Remove what killed runs left behind: programs in their hosts, files, changed settings.
///
/// Every run does so when it starts.
#[derive(Debug, Args)]
pub(super) struct NetnsGc {}

impl NetnsGc {
    pub(super) fn run(self) -> Result<ExitCode, Error> {
        let leftovers = state::remove_leftovers().map_err(Error::Leftovers)?;
        println!("{} networks removed", leftovers.networks);
        for pid in leftovers.killed {
            println!("killed {pid}");
        }
        for setting in leftovers.restored {
            println!("restored {setting}");
        }
        Ok(ExitCode::SUCCESS)
    }
}

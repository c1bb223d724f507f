//! `godwit-lab netns-gc`: removes what killed runs left. Every run also does so when it starts.

use std::io::{self, Write};

use crate::state;

/// Removes it, and says what it was.
///
/// # Errors
/// When what is left cannot be read or removed.
pub fn run(out: &mut impl Write) -> io::Result<()> {
    let leftovers = state::remove_leftovers()?;
    writeln!(out, "{} networks removed", leftovers.networks)?;
    for folder in leftovers.folders {
        writeln!(out, "removed {}", folder.display())?;
    }
    for pid in leftovers.killed {
        writeln!(out, "killed {pid}")?;
    }
    for setting in leftovers.restored {
        writeln!(out, "restored {setting}")?;
    }
    Ok(())
}

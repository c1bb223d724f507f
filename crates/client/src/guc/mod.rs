//! The command line of `globus-url-copy`, translated: one pair of URLs becomes one `godwit cp` or
//! `godwit sync`.
//!
//! ```text
//!   words ─► asked: what the options say (pure) ─► list: pairs of URLs (pure) ─► translate: words of `godwit cp` ─► flags ─► job
//!                table: each option, once                                                       show: what the original would say ◄─┘
//! ```
//! Nothing is moved here. Source: `globus_url_copy.c` 10.12 of the Grid Community Toolkit, and the
//! papers on GridFTP-APT.

mod asked;
mod list;
mod names;
mod run;
mod show;
pub mod table;
mod translate;

pub use asked::Options;
pub use run::run;
pub use show::{Printer, Stream};

use crate::{error::Exit, flags::EarlyExit};

/// The name that the original has.
pub const NAME: &str = "globus-url-copy";

/// What `-version` says.
const VERSION: &str = concat!("godwit ", env!("CARGO_PKG_VERSION"));

/// As the original has it.
const USAGE: &str = "globus-url-copy [-help] [-vb] [-dbg] [-r] [-rst] [-s <subject>]
                        [-p <parallelism>] [-tcp-bs <size>] [-bs <size>]
                        -f <filename> | <sourceURL> <destURL>
";

/// Every end but a good one has status 1 in the original, help included.
fn early_exit(text: String) -> EarlyExit {
    EarlyExit {
        text,
        exit: Exit::Partly,
    }
}

/// What contradicts itself, or cannot be had.
fn wrong(why: impl std::fmt::Display) -> EarlyExit {
    early_exit(format!(
        "\nERROR: {why}\n\nSyntax: {USAGE}\n\nUse -help to display full usage\n"
    ))
}

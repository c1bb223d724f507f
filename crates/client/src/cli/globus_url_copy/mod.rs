//! The command line of `globus-url-copy`, translated: one pair of URLs becomes one `godwit cp` or
//! `godwit sync`.
//!
//! ```text
//!   arguments ─► options ─► file_list: pairs of URLs ─► translate: `godwit cp` ─► cli ─► job
//!                  │                                                                      │
//!                table: each option, once     report: what the original would print ◄─────┘
//! ```
//! Nothing is moved here. Source: `globus_url_copy.c` 10.12 of the Grid Community Toolkit, and the
//! papers on GridFTP-APT.

mod file_list;
mod options;
mod report;
mod run;
pub mod table;
mod translate;
mod url_text;

pub use self::{
    options::Options,
    report::{Printer, Stream},
    run::run,
};

use super::EarlyExit;
use crate::error::Exit;

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

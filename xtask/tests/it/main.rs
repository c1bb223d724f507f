//! What is distributed beside the programs: manuals and completions that other programs can read,
//! packages that can be installed, a book whose commands work. The programs are those beside the
//! tests; `cargo xtask check` builds them first.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "in a test a panic is the report"
)]

mod book;
mod chart;
mod images;
mod package;
mod page;
mod pages;
mod rpm;
mod rpm_install;
mod stage;
mod support;

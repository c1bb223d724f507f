//! Whole transfers between real programs: ours and the peers'.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "in a test a panic is the report"
)]

mod whole;

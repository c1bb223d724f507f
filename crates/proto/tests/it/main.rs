//! Tests of the crate as its users see it, by topic.

#![allow(
    clippy::unwrap_used,
    reason = "the exemption for tests covers test functions, not their helpers"
)]

mod blocks;
mod client_pi;
mod corpus;
mod golden;
mod pair;
mod parsers;
mod properties;
mod ranges;
mod refusals;
#[path = "../../../../fuzz/replay.rs"]
mod replay;
mod roundtrip;
mod slicing;
mod strategies;
mod support;
mod transitions;

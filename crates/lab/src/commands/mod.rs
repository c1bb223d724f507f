//! The sub-commands of `godwit-lab`, one file each.

pub mod bench;
pub mod calibrate;
pub mod demo;
pub mod faults;
pub mod netns_gc;
pub mod report;
pub mod run;
pub mod soak;
pub mod tournament;

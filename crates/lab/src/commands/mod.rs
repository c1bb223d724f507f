//! The sub-commands of `godwit-lab`, one file each.

pub mod bench;
pub mod demo;

//! The engine from outside.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod data;
mod data_live;
mod data_peer;
mod data_queue;
mod storage;
mod storage_confinement;
mod storage_faults;
mod storage_listing;

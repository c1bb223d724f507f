//! Which setting a job runs under.
//!
//! # Map
//! - [`controller`]: asks the tuner while data flows; [`epoch`]: what one control epoch measures
//! - [`coordination`]: other transfers of the user over the same path and on this host
//! - [`sides`]: channels of both servers of files that pass through this machine
//! - [`path_memory`]: settings of earlier transfers; [`congestion`]: `--congestion auto`

pub(crate) mod congestion;
pub(crate) mod controller;
mod coordination;
pub(crate) mod epoch;
pub(crate) mod path_memory;
mod sides;

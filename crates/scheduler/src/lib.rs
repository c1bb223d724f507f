//! Who gets what: units of jobs go to agents by shares, classes and budgets, and sums of channels
//! are tuned.
//!
//! # Map
//! - [`Scheduler`]: the state, [`Scheduler::step`], [`Scheduler::shares`], [`Scheduler::why`]
//! - [`Config`], [`AgentState`], [`QueueKey`], [`QueueState`]: what goes in
//! - [`Grant`], [`LeaseId`], [`Share`]: what comes out
//! - [`Reason`]: why a queue waits; [`matches()`]: patterns of endpoints
//! - `tree`: start-time fair queueing over the tree of shares; `line`: what queues wait for
//! - `places`, `budget`: endpoints and links, what they take and what is in use
//! - `charge`: what a unit costs in slots and at endpoints
//! - `agents`: which agent reaches what, and which is least loaded
//! - `tuned_sum`, `allotment`: one number of channels for all leases of a path, and their parts
//!
//! # Contract
//! The scheduler has no clock, does no I/O and draws no random numbers: equal calls give equal
//! answers. Times are durations since any fixed start; a time before an earlier one counts as that.
//!
//! - Configuration, agents and queues are told as they are, not as they change: telling the same
//!   again does nothing. Which is why a caller that is in doubt tells all of it again.
//! - A [`Grant`] counts as running from the step that gave it, and takes the first files of the
//!   next unit out of its queue, or all of them. A unit of several files is cut so that it ends
//!   soon.
//!   A caller that finds no unit to start ends the lease with no bytes and no files.
//! - After a restart the caller tells configuration, agents, queues, and what runs by
//!   [`Scheduler::lease_started`].
//! - The units, sessions and channels of leases never pass a budget because of a grant or a share.
//!   They may where a budget was lowered, or where the caller counted leases that ran already.
//! - A step takes time by what was freed, what waits for it newly and what is granted, never by
//!   files, and not by queues that wait for something else.

mod agents;
mod allotment;
mod budget;
mod charge;
mod line;
mod model;
mod places;
mod scheduler;
#[cfg(test)]
mod tests;
mod tree;
mod tuned_sum;
mod why;

pub use agents::matches;
pub use model::{
    AgentState, Class, Config, EndpointConfig, EndpointName, EndpointState, FILE_COST, Grant, Hold,
    LeaseId, LeaseReport, Limits, QueueKey, QueueState, Share, ShareConfig, StartedLease, Tuning,
};
pub use scheduler::Scheduler;
pub use why::{Reason, TakenLimit};

//! Where tuners can be tried without a network: theory, conditions and an arena, all in simulated
//! time.
//!
//! - [`analytic`]: goodput that theory expects, from the papers
//! - [`Condition`]: a path, its ends and their load, and the goodput that a setting has there once
//!   it has settled
//! - [`Family`]: conditions of one kind, drawn from a seed
//! - [`arena`]: tuners against the clock: live epochs, slow starts, noise, several copies on one
//!   path
//! - [`score`]: regret, convergence, steady goodput, channels, fairness
//!
//! This is a model for telling good decisions from bad ones by the thousand, not a simulator of
//! TCP: queues, timeouts and synchronised losses exist only as a few formulas. What matters is
//! measured in the lab.

pub mod analytic;
pub mod arena;
mod condition;
mod draw;
mod family;
pub mod score;

pub use condition::{Condition, Cpu, Load, Steady};
pub use family::Family;

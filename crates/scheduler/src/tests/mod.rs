//! Claims about the scheduler as a whole.

mod basics;
mod budgets;
mod day;
mod fairness;
mod random_calls;
mod reasons;
mod speed;
mod sums;
mod unit_time;
mod world;

//! Screens of running transfers: `--tui` shows one, `top` all of the user's.
//!
//! # Map
//! - [`history`]: what is known of a transfer, without a terminal
//! - [`draw`]: a history as a picture; [`screen`]: the terminal, and its keys
//! - [`live_status`]: each transfer publishes its state for `top`; [`top`]: the user's transfers

mod draw;
mod history;
mod live_status;
mod screen;
mod top;

pub(crate) use self::live_status::LiveStatus;
pub use self::{
    screen::{Screen, give_back},
    top::run,
};

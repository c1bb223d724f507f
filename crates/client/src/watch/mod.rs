//! What people look at while transfers run: `--tui` shows one, `top` all of the user's.
//!
//! # Map
//! - [`history`]: what is known of a transfer, without a terminal
//! - [`draw`]: a story as a picture; [`screen`]: the terminal, and its keys
//! - [`published`]: each transfer tells the user's others; [`top`]: who looks at them

mod draw;
mod published;
mod screen;
mod story;
mod top;

pub(crate) use published::LiveStatus;
pub use screen::{Screen, give_back};
pub use top::run;

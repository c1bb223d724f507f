//! Claims about the scheduler as a whole.

mod basics;

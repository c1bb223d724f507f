//! Extended block mode (GFD.020 "MODE E"): headers, and the accounting of both ends.
//!
//! Payload never passes through here. A receiving channel is fed headers and answers where the
//! bytes that follow belong; a sending transfer is asked what a channel says when it has no more to
//! send.

pub mod header;
pub mod layout;
pub mod receiver;
pub mod sender;

pub use header::{BlockHeader, Descriptor, HEADER_BYTES, HOLES_FEATURE};

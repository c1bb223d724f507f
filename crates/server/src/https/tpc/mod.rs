//! COPY between this server and another one, which knows nothing of it: this server gets or puts
//! the file there, and its answer is a stream of markers for the client that has asked.
//!
//! ```text
//!   COPY ──► order ──► copy ──► pull: GET ──► file ──┐
//!                       │  └──► push: file ──► PUT ──┤ ──► the checksum there ──► the name here
//!                       └──► report ──► 202, markers ◄┘
//! ```
//! - `order`: what the headers of a COPY say
//! - `remote`: requests to the other server, with its redirects, and its checksum of the file
//! - `pull`, `push`: the bytes; `report`: the stream of markers
//!
//! All that can be refused here is refused before the answer. A copy whose client goes away ends:
//! its task is dropped with the answer.

mod copy;
mod failed;
mod order;
mod pull;
mod push;
mod remote;
mod report;

pub(super) use self::{copy::copy, order::is_third_party};

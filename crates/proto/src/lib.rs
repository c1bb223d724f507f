//! GridFTP on the wire, as pure values and state machines: no sockets, no files, no clock.
//!
//! # Map
//! - [`mod@line`]: bytes of a control channel to command lines (CRLF, Telnet, length bound)
//! - [`command`], [`site`], [`opts`]: a command line, parsed and written
//! - [`reply`]: replies, read incrementally and written so that no reader is misled
//! - [`error`]: who broke what; the one table from storage failures to reply codes
//! - [`live`]: requests about a running transfer, an extension of ours
//! - [`feature`]: what FEAT announces; [`facts`]: MLSx lines; [`listing`]: LIST lines, written;
//!   [`list_line`]: those of other servers, read
//! - [`marker`]: 111 and 112 markers; [`range_set`]: sets of byte ranges; [`restart`]: REST
//! - [`security`]: what guards data channels: DCAU and PROT
//! - [`path`], [`url`], [`hostport`], [`timestamp`], [`checksum`]: the small words
//! - [`block_checksums`]: checksums of the parts of a file; [`temporary`]: names of files that are
//!   not whole yet
//! - [`mode_e`]: the extended block mode: header, sender and receiver accounting
//! - [`pi`]: both protocol interpreters
//!
//! # Contract of every state machine here
//! `handle_input(now, input)` takes what happened; then call `poll_output()` until it returns
//! `None`; then wait for input or until `poll_timeout()`, whichever comes first, and hand the
//! timeout in as an input. Time is an argument and never read. Payload never enters this crate: the
//! MODE E machines see 17-byte headers and answer "this many bytes, at this offset".

pub mod block_checksums;
pub mod checksum;
pub mod command;
pub mod commit;
pub mod error;
pub mod facts;
pub mod feature;
pub mod hostport;
pub mod line;
pub mod list_line;
pub mod listing;
pub mod live;
pub mod marker;
pub mod mode_e;
pub mod odd_bytes;
pub mod opts;
pub mod path;
pub mod pi;
pub mod range_set;
pub mod reply;
pub mod restart;
pub mod security;
pub mod site;
pub mod temporary;
mod text;
pub mod timestamp;
pub mod url;

pub use checksum::ChecksumAlgorithm;
pub use command::Command;
pub use path::FtpPath;
pub use range_set::{ByteRange, RangeSet};
pub use reply::{Reply, ReplyCode};
pub use restart::RestartPoint;

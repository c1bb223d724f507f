//! HTTP and WebDAV without I/O: what a server and a client of files both need.
//!
//! # Map
//! - [`target`]: the path of a request, and the `Destination` of MOVE and COPY
//! - [`range`]: `Range` and `Content-Range`; [`conditions`]: entity tags and conditional requests
//! - [`digest`]: checksums in headers, RFC 3230 and RFC 9530
//! - [`dav`]: `Depth`, `Overwrite`, and bodies of PROPFIND; [`multistatus`]: its answers
//! - [`marker`]: performance markers of third-party copies
//! - [`s3`]: keys, parts and answers of S3 services
//!
//! Everything here takes bytes of a peer: nothing panics, and what is read is bounded.

pub mod conditions;
pub mod dav;
pub mod digest;
pub mod marker;
pub mod multistatus;
pub mod range;
pub mod s3;
pub mod target;
mod xml;

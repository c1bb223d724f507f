//! HTTPS and WebDAV: the files, users and limits of GridFTP, by another protocol.
//!
//! ```text
//!   connection ──► requests ──► get, propfind, put, change ──► session ──► record
//!     (TLS, hyper)    └──► answer ◄──────┘   └──► listing, body
//! ```
//! - `connection`: one task for each connection; `stalls`: clients that do not read
//! - `session`: who a client is, and what it may do: one login until it shows other credentials
//! - `requests`: which method does what; `answer`: statuses and headers
//! - `get`: GET and HEAD; `listing`: a directory as a page; `propfind`: PROPFIND; `put`: PUT;
//!   `parts`: PUT of a part; `issue`: POST for a token; `change`: DELETE, MKCOL, MOVE and COPY;
//!   `tpc`: COPY between this server and others
//! - `s3`: the same files as buckets and objects, by an address of its own
//! - `body`: bodies that blocking threads make, a chunk at a time; `received`: those of requests
//! - `record`: audit log and metrics
//!
//! `godwit_http` has what headers and bodies mean. Storage blocks, so a thread of the runtime never
//! calls it. Each wait for a client has a limit, and no request takes memory beyond a few chunks.

mod answer;
mod body;
mod change;
mod connection;
mod get;
mod issue;
mod listing;
mod parts;
mod propfind;
mod put;
mod received;
mod record;
mod requests;
mod s3;
mod session;
mod stalls;
mod tpc;

pub(crate) use self::connection::{Dialect, serve};

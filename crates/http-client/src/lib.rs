//! A client's connections to servers of HTTP/1.1, in clear or over TLS.
//!
//! ```text
//!   Url ──► Connector::connect ──► Connection::send(Request) ──► Answer::chunk, chunk ... None
//!               │ resolve, policy,        ▲                         │
//!               │ TCP, TLS                └── is_reusable? ◄────────┤
//!               └─────────────────────── Redirects::next ◄──────────┘ 3xx
//! ```
//! A [`Connector`] resolves a name once, asks its [`Policy`] about each address, and connects to an
//! address that was allowed: no second answer of a name server leads elsewhere. A [`Connection`]
//! carries one request at a time. A request's body is empty, bytes, or chunks that another task
//! sends into [`body::channel`] meanwhile; the caller ends that task when `send` has returned.
//! A request that expects [`Request::expecting_continue`] holds its body back until the server asks
//! for it. An [`Answer`]'s body is read chunk by chunk, and its rest is lost when the connection is
//! dropped, which closes the socket. [`redirect::Redirects`] says, without I/O, where a redirect
//! leads and whether credentials may go there.
//!
//! A connection lives in a task of the tokio runtime that `connect` was called in.
//!
//! - *Time*: each wait has a limit, see [`Limits`], and [`Patience`] for what is asked again.
//! - *Memory*: a head of [`HEAD_BYTES_MAX`] bytes and [`HEADERS_MAX`] headers, a chunk or two of
//!   each body.
//! - *Secrets*: no error and no `Debug` has what a request carries in `Authorization` and headers
//!   like it; what a server says is in errors at most 256 printable characters long.

pub mod body;
mod buffers;
mod connection;
mod connector;
mod error;
mod limits;
mod patience;
pub mod redirect;
mod request;
mod text;
pub mod url;
mod wire;

pub use body::Body;
pub use buffers::{Buffer, Buffers};
pub use connection::{Answer, Connection, HEAD_BYTES_MAX, HEADERS_MAX};
pub use connector::{Connector, Policy, Prepare};
pub use error::{Cause, Error, Step};
pub use hyper::{
    HeaderMap, Method, StatusCode,
    body::Bytes,
    header::{self, HeaderName, HeaderValue},
};
pub use limits::Limits;
pub use patience::Patience;
pub use request::{Request, is_secret};
pub use text::printable;
pub use url::{BadUrl, Origin, Scheme, Url};

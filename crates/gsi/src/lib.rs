//! GSI security: who a peer is, how it proves it, and what keeps others out afterwards. No sockets.
//!
//! # Map
//! - [`cert`]: certificates, keys, credentials in files, new proxies, delegation
//! - [`verify`]: path validation for chains that end in proxies; names of hosts
//! - [`context`]: the handshake, in ADAT or on a data channel, and delegation within
//! - [`ftps`]: TLS without GSI, as FTP has it: a server's certificate, and perhaps a client's
//! - [`https`]: TLS of a client of HTTPS
//! - [`adat`]: tokens in the text of a control channel; [`wrap`]: what follows there, protected
//! - [`records`]: what follows on a protected data channel
//! - [`token`]: bearer tokens of issuers whose keys are known; [`seal`]: those of a server itself
//! - [`gridmap`]: from identities to local accounts; [`name`]: distinguished names on one line
//!
//! # Calling contract of a context
//! ```text
//! let mut context = Context::initiate(settings)?;          // or accept(settings)
//! loop {
//!     while let Some(token) = context.poll_output() { send(token) }
//!     if let Some(established) = context.outcome() { break }
//!     // after an error: poll_output() once more, an alert
//!     context.handle_input(now, &receive())?;
//! }
//! ```
//! - *Control channel.* An initiator sends each token as [`adat::command`] and hands in what
//!   [`adat::token_of_reply`] finds in a 335 or 235; it is established when it says so **and** the
//!   235 has come. An acceptor answers each ADAT with 335 and its token, and the last with 235,
//!   which has none. It is the acceptor's turn after each token and the initiator's after each
//!   reply: an initiator that has neither output nor outcome after a whole 335 has met a peer that
//!   does not keep to GSI, and gives up.
//! - *Data channel.* The side that connected initiates. Tokens are written as they are; what is
//!   read is handed in as it comes. [`context::Established::rest`] holds what came behind the
//!   handshake: raw bytes with PROT C, else bytes for [`Records::open`], which
//!   [`Wrap::into_records`] gives. The credential is the delegated one, the peer is
//!   [`context::Expect::Identity`].
//! - *Time* is an argument and never read. Every wait is the caller's, and to be bounded by it.
//! - *Memory* is bounded: [`context::HANDSHAKE_BYTES_MAX`] until the peer is known,
//!   [`adat::TOKEN_BYTES_MAX`] and [`wrap::CLEAR_BYTES_MAX`] a line afterwards.
//! - *Processor time*: one call may take as long as an RSA signature and, where a proxy is taken,
//!   the making of an RSA key. A server on an event loop calls it where blocking is allowed.
//!
//! Only [`cert::files`], [`ftps::Client::new`], [`https::HttpsClient::new`] and
//! [`verify::Directory`] touch files, and the latter only while a peer is verified.
//!
//! TLS is OpenSSL's, see `docs/adr/0018-tls-library.md`, but for the records of data channels, see
//! `docs/adr/0065-own-tls-records.md`. This crate alone decides whom to trust, except for
//! the servers of [`ftps`], whose certificates are the web's: those OpenSSL verifies.

pub mod adat;
pub mod cert;
pub mod context;
mod der;
pub mod ftps;
pub mod gridmap;
pub mod https;
pub mod name;
mod outgoing;
mod record;
pub mod records;
pub mod seal;
mod sessions;
mod tls;
pub mod token;
mod traffic;
pub mod verify;
mod versions;
pub mod wrap;

pub use context::{Channel, Context, ContextError, Established, Expect, Settings};
pub use outgoing::Outgoing;
pub use records::Records;
pub use tls::forget_errors;
pub use versions::Versions;
pub use wrap::Wrap;

//! `https://`, `davs://` and `s3://`: a session whose commands are requests of HTTP and WebDAV.
//!
//! ```text
//!   Command ──► HttpControl ──► PROPFIND, HEAD, MOVE ... ──► Reply of the same meaning
//!   TransferPlan ──► transfer ──► lanes, each a thread with a connection: GET of ranges, PUT
//! ```
//! All that is written in commands of FTP (listings, renames, resumption, verification) holds for
//! HTTP, too. What a server lacks is said by the features of the session, and by replies.
//!
//! # Map
//! - [`login`]: credentials, and what the server can do; [`server`]: what its connections share
//! - [`wire`]: requests, kept connections and redirects; [`exchange`]: answers;
//!   [`mod@error`]: why there is none
//! - [`commands`]: requests for commands; [`replies`]: statuses as replies; [`listing`]: PROPFIND
//! - [`transfer`]: one transfer; [`lanes`]: the threads that carry it; [`region`]: who fetches what
//! - [`get`], [`put`], [`parts`]: what a lane does
//! - [`bucket`]: what is different where the server is a service of S3
//! - [`third_party`]: copies that one of two servers carries out; [`issued`]: tokens for the other

mod bucket;
mod commands;
mod error;
mod exchange;
mod get;
mod issued;
mod lanes;
mod listing;
pub(super) mod login;
mod parts;
mod put;
mod region;
mod replies;
mod server;
mod third_party;
mod transfer;
mod wire;

pub(super) use self::commands::HttpControl;
pub(crate) use self::{lanes::Lanes, region::LANE_BYTES_MIN};

//! `s3://`: what a bucket has in place of WebDAV. A file is an object, whose key is its path
//! without the first slash; a directory is what keys begin with, up to a slash.
//!
//! # Map
//! - [`signing`]: targets of requests, and who asks; [`login`]: which service, and whether it has
//!   the bucket
//! - [`copies`]: between buckets of one service
//! - [`commands`]: requests for commands; [`listing`]: pages of names; [`uploads`]: what is sent
//!   in parts; [`open_uploads`]: what is left of others; [`told_sums`]: checksums;
//!   [`times`]: of files
//! - [`remedies`]: what helps a request that is refused

mod commands;
mod copies;
mod listing;
pub(super) mod login;
mod open_uploads;
pub(super) mod remedies;
pub(super) mod signing;
pub(super) mod times;
pub(super) mod told_sums;
pub(super) mod uploads;

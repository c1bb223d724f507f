//! Tests of the crate from outside. All certificates are made here.

#![allow(clippy::unwrap_used)]

mod bad;
mod contexts;
mod corpus;
mod credentials;
mod ftps;
mod gct;
mod grid;
mod hosts;
mod issuer;
mod pair;
mod parsers;
mod pipe;
mod pki;
mod records;
mod refused;
mod rekeying;
#[path = "../../../../fuzz/replay.rs"]
mod replay;
mod resumption;
mod tokens;
mod verifier;
mod wrapping;

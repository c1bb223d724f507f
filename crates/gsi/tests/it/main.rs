//! Tests of the crate from outside. All certificates are made here.

#![allow(clippy::unwrap_used)]

mod bad;
mod contexts;
mod corpus;
mod credentials;
mod gct;
mod grid;
mod hosts;
mod pair;
mod parsers;
mod pki;
mod refused;
mod verifier;
mod wrapping;

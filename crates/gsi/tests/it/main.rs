//! Tests of the crate from outside. All certificates are made here.

#![allow(clippy::unwrap_used)]

mod credentials;
mod grid;
mod hosts;
mod pki;
mod refused;
mod verifier;

//! Credentials that a run creates once, on first use.

use std::sync::OnceLock;

use godwit_gsi::{cert::Credential, ftps};

#[derive(Default)]
pub(crate) struct SharedCredentials {
    /// The credential of data channels of `sshftp://`. One for all, so that two servers trust each
    /// other.
    pub(crate) ephemeral: OnceLock<Credential>,
    /// The TLS client for `ftpes://`.
    pub(crate) tls: OnceLock<ftps::Client>,
}

//! Credentials that are made once in a run, when they are first needed.

use std::sync::OnceLock;

use godwit_gsi::{cert::Credential, ftps};

#[derive(Default)]
pub(crate) struct SharedCredentials {
    /// What data channels of `sshftp://` prove themselves with. One for all, so that two servers
    /// know each other.
    pub(crate) ephemeral: OnceLock<Credential>,
    /// Our side of TLS with `ftpes://`.
    pub(crate) tls: OnceLock<ftps::Client>,
}

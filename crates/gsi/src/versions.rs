//! Versions of TLS.

/// Which versions of TLS to speak. Nothing below 1.2 is spoken at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Versions {
    /// The newest that both know.
    #[default]
    Any,
    /// 1.2 alone.
    Tls12,
    /// 1.3 alone.
    Tls13,
}

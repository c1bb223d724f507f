//! Certificates, the keys that belong to them, and proxies made from them.
//!
//! - [`certificate`]: one certificate with what GSI asks of it; [`extensions`]: what its extensions
//!   say
//! - [`credential`]: a certificate with its key and chain, read from and written to PEM
//! - [`files`]: where credentials lie on a machine, and who may read them; the one module here that
//!   touches files
//! - [`key`]: keys and digests
//! - [`own`]: certificates that stand for themselves
//! - [`site`]: an authority of a site's own, and certificates of its machines
//! - [`proxy`]: new proxies, and delegation: the request of one side and the signature of the other

pub mod certificate;
mod contexts;
pub mod credential;
mod error;
pub mod extensions;
pub mod files;
pub mod key;
pub mod own;
pub mod proxy;
pub mod site;

pub use certificate::Certificate;
pub use credential::Credential;
pub use error::{CredentialError, Span};
pub use extensions::{ProxyInfo, ProxyKind, ProxyPolicy};

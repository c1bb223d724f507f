//! The stream that a connection reads and writes.

use tokio::io::{AsyncRead, AsyncWrite};

/// A stream in clear or over TLS.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Wire for S {}

//! The stream that a connection reads and writes.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use godwit_gsi::forget_errors;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream in clear or over TLS.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Wire for S {}

/// A stream of OpenSSL. Before each call it forgets errors of other connections that this thread
/// has served.
pub(crate) struct TlsWire<S>(pub(crate) S);

impl<S: AsyncRead + Unpin> AsyncRead for TlsWire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        forget_errors();
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TlsWire<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        forget_errors();
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        forget_errors();
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        forget_errors();
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

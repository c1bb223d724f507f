//! A stream over TLS that tokio carries, for connections of HTTP that move files.
//!
//! ```text
//!   TlsStream::accept, connect ──► OpenSSL's handshake ──► TLS 1.3: godwit's records
//!                                                     └──► TLS 1.2: OpenSSL's records
//! ```
//! OpenSSL on a socket reads a record in two calls and writes each by one. Here a call moves many
//! records, and they are opened where they were read (`docs/adr/0065-own-tls-records.md`).

mod incoming;

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use godwit_gsi::{Outgoing, Records, forget_errors};
use openssl::ssl::{Error, Ssl, SslRef};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_openssl::SslStream;

use crate::incoming::Incoming;

/// A stream over TLS, behind its handshake.
pub struct TlsStream<S> {
    /// With `own`: nothing but the socket and what the handshake came to.
    openssl: SslStream<S>,
    own: Option<Own>,
}

/// What carries TLS 1.3.
struct Own {
    records: Records,
    incoming: Incoming,
    outgoing: Outgoing,
    /// The peer has been told that nothing follows.
    has_closed: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream<S> {
    /// The handshake of a server. `ssl` is of [`godwit_gsi::ftps::Server::ssl`].
    ///
    /// # Errors
    /// Why there is none.
    pub async fn accept(ssl: Ssl, socket: S) -> Result<Self, Error> {
        let mut stream = SslStream::new(ssl, socket)?;
        std::future::poll_fn(|context| {
            forget_errors();
            Pin::new(&mut stream).poll_accept(context)
        })
        .await?;
        Ok(Self::behind(stream))
    }

    /// The handshake of a client. `ssl` is of [`godwit_gsi::https::HttpsClient::ssl`].
    ///
    /// # Errors
    /// Why there is none, and what OpenSSL says about the server's certificate.
    pub async fn connect(ssl: Ssl, socket: S) -> Result<Self, (Error, &'static str)> {
        let verdict = |ssl: &SslRef| ssl.verify_result().error_string();
        let none = "it was not looked at";
        let mut stream = SslStream::new(ssl, socket).map_err(|error| (error.into(), none))?;
        let connected = std::future::poll_fn(|context| {
            forget_errors();
            Pin::new(&mut stream).poll_connect(context)
        });
        match connected.await {
            Ok(()) => Ok(Self::behind(stream)),
            Err(error) => Err((error, verdict(stream.ssl()))),
        }
    }

    fn behind(openssl: SslStream<S>) -> Self {
        let own = Records::of_connection(openssl.ssl()).map(|records| Own {
            records,
            incoming: Incoming::default(),
            outgoing: Outgoing::default(),
            has_closed: false,
        });
        Self { openssl, own }
    }

    /// What the handshake came to.
    pub fn ssl(&self) -> &SslRef {
        self.openssl.ssl()
    }
}

impl Own {
    /// Writes what was sealed.
    fn poll_sent<S: AsyncWrite + Unpin>(
        &mut self,
        socket: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.outgoing.is_sent() {
            let sent = Pin::new(&mut *socket).poll_write(context, self.outgoing.unsent());
            match ready!(sent)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.outgoing.sent(sent),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Takes as many of the bytes as fit, and begins to send them.
    fn poll_put<'a, S: AsyncWrite + Unpin>(
        &mut self,
        socket: &mut S,
        context: &mut Context<'_>,
        parts: impl Iterator<Item = &'a [u8]>,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_sent(socket, context))?;
        let mut taken = 0;
        for part in parts {
            let now = self.outgoing.put(part);
            taken += now;
            if now < part.len() {
                break;
            }
        }
        if taken > 0 {
            let sealed = self.records.seal(&mut self.outgoing);
            sealed.map_err(io::Error::other)?;
            // What the socket does not take now goes with the next call.
            if let Poll::Ready(sent) = self.poll_sent(socket, context) {
                sent?;
            }
        }
        Poll::Ready(Ok(taken))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        match &mut this.own {
            Some(own) => {
                let socket = this.openssl.get_mut();
                own.incoming
                    .poll_read(&mut own.records, socket, context, buffer)
            }
            None => {
                forget_errors();
                Pin::new(&mut this.openssl).poll_read(context, buffer)
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        match &mut this.own {
            Some(own) => {
                let parts = parts.iter().map(|part| &**part);
                own.poll_put(this.openssl.get_mut(), context, parts)
            }
            None => {
                forget_errors();
                let first = parts.iter().find(|part| !part.is_empty());
                let first = first.map_or(&[][..], |part| part);
                Pin::new(&mut this.openssl).poll_write(context, first)
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.own.is_some()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        match &mut this.own {
            Some(own) => {
                let socket = this.openssl.get_mut();
                ready!(own.poll_sent(socket, context))?;
                Pin::new(socket).poll_flush(context)
            }
            None => {
                forget_errors();
                Pin::new(&mut this.openssl).poll_flush(context)
            }
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        match &mut this.own {
            Some(own) => {
                let socket = this.openssl.get_mut();
                ready!(own.poll_sent(socket, context))?;
                if !std::mem::replace(&mut own.has_closed, true) {
                    own.records.close(&mut own.outgoing);
                }
                ready!(own.poll_sent(socket, context))?;
                Pin::new(socket).poll_shutdown(context)
            }
            None => {
                forget_errors();
                Pin::new(&mut this.openssl).poll_shutdown(context)
            }
        }
    }
}

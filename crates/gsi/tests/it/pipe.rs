//! OpenSSL as the other end, over memory.

use std::{
    collections::VecDeque,
    io::{self, Read, Write},
};

use godwit_gsi::ftps::{Handshake, Secured};
use openssl::ssl::{Ssl, SslStream};

use crate::pki::now;

/// Bytes of both directions.
#[derive(Default)]
pub(crate) struct Pipe {
    pub(crate) incoming: VecDeque<u8>,
    pub(crate) outgoing: Vec<u8>,
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.incoming.is_empty() {
            true => Err(io::ErrorKind::WouldBlock.into()),
            false => self.incoming.read(buffer),
        }
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.outgoing.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Joins OpenSSL as the client to `server`.
pub(crate) fn connect(mut ssl: Ssl, server: &mut Handshake) -> (SslStream<Pipe>, Secured) {
    ssl.set_connect_state();
    let mut client = SslStream::new(ssl, Pipe::default()).unwrap();
    loop {
        // It waits for the server, or is done.
        drop(client.do_handshake());
        let bytes = std::mem::take(&mut client.get_mut().outgoing);
        assert!(!bytes.is_empty(), "the handshake stands still");
        server.handle_input(now(), &bytes).unwrap();
        let answer = server.poll_output().unwrap_or_default();
        client.get_mut().incoming.extend(answer);
        if let Some(secured) = server.outcome() {
            return (client, secured);
        }
    }
}

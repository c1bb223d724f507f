//! OpenSSL between two buffers: records in, records out, no socket.

use std::io::{self, Read, Write};
use std::sync::{Mutex, OnceLock, PoisonError};

use openssl::error::ErrorStack;
use openssl::ex_data::Index;
use openssl::ssl::{
    ErrorCode, Ssl, SslContext, SslContextBuilder, SslMethod, SslMode, SslOptions, SslRef,
    SslSessionCacheMode, SslStream, SslVerifyMode, SslVersion,
};
use openssl::x509::X509VerifyResult;
use zeroize::Zeroizing;

use crate::cert::credential::CHAIN_MAX;
use crate::cert::key::Strength;
use crate::cert::{Certificate, Credential, CredentialError};
use crate::traffic::{Suite, Traffic};
use crate::versions::Versions;

/// Suites in the order in which they are wanted. AES with 128 bits first: it protects long
/// enough, and takes a quarter less time than with 256, which is what bounds protected data
/// channels.
const SUITES_13: &str =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
const SUITES_12: &str = "ECDHE+AESGCM+AES128:HIGH:!aNULL:!eNULL:!PSK:!SRP";

/// The two roles: the initiator is the TLS client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Initiator,
    Acceptor,
}

/// Whether the secrets of the handshake are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// They stay with OpenSSL, which does all that follows.
    Nothing,
    /// For [`Tls::take_traffic`].
    Secrets,
}

/// The application traffic secrets of one connection (RFC 8446 §7.1).
#[derive(Default)]
struct Secrets(Mutex<TrafficSecrets>);

#[derive(Default)]
struct TrafficSecrets {
    client: Option<Zeroizing<Vec<u8>>>,
    server: Option<Zeroizing<Vec<u8>>>,
}

/// Where connections have their [`Secrets`]: the same place in all.
static SECRETS: OnceLock<Index<Ssl, Secrets>> = OnceLock::new();

fn secrets_index() -> Result<Index<Ssl, Secrets>, ErrorStack> {
    if let Some(index) = SECRETS.get() {
        return Ok(*index);
    }
    // Another thread may be quicker: then all use its index, and this one stays unused.
    let index = Ssl::new_ex_index()?;
    Ok(*SECRETS.get_or_init(|| index))
}

/// Keeps the secrets of a handshake that has not begun, for [`take_traffic`].
pub(crate) fn keep_secrets(ssl: &mut SslRef) -> Result<(), ErrorStack> {
    ssl.set_ex_data(secrets_index()?, Secrets::default());
    Ok(())
}

/// What goes on behind a handshake of TLS 1.3 in OpenSSL's stead, with [`keep_secrets`] and once.
/// `None` with 1.2.
pub(crate) fn take_traffic(ssl: &SslRef) -> Option<Traffic> {
    let suite = Suite::named(ssl.current_cipher()?.name())?;
    let secrets = ssl.ex_data(*SECRETS.get()?)?;
    let mut secrets = secrets.0.lock().unwrap_or_else(PoisonError::into_inner);
    let (client, server) = (secrets.client.take()?, secrets.server.take()?);
    match ssl.is_server() {
        true => Traffic::new(suite, &server, &client),
        false => Traffic::new(suite, &client, &server),
    }
}

/// OpenSSL tells secrets of a handshake in no other way than this, a line each: what it is, the
/// client's random bytes, and the secret, in hexadecimal. Only those are taken that were asked for,
/// and none goes anywhere but to the connection itself.
fn hear_secret(ssl: &SslRef, line: &str) {
    let Some(secrets) = SECRETS.get().and_then(|index| ssl.ex_data(*index)) else {
        return;
    };
    let mut secrets = secrets.0.lock().unwrap_or_else(PoisonError::into_inner);
    let mut words = line.split(' ');
    let place = match words.next() {
        Some("CLIENT_TRAFFIC_SECRET_0") => &mut secrets.client,
        Some("SERVER_TRAFFIC_SECRET_0") => &mut secrets.server,
        _ => return,
    };
    *place = words.nth(1).and_then(from_hex);
}

fn from_hex(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let bytes = text.as_bytes().chunks(2).map(|pair| match *pair {
        [high, low] => u8::try_from(digit(high)? * 16 + digit(low)?).ok(),
        _ => None,
    });
    bytes.collect::<Option<Vec<u8>>>().map(Zeroizing::new)
}

/// What OpenSSL has to say against the peer's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsFault(pub(crate) String);

/// OpenSSL's words for a client that shows no certificate.
pub(crate) const NO_CERTIFICATE: &str = "peer did not return a certificate";

/// What a read came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    /// So many bytes.
    Bytes(usize),
    /// Nothing until more records come.
    Starved,
    /// The peer has closed its half.
    Closed,
}

pub(crate) struct Tls {
    stream: SslStream<Buffers>,
}

impl Tls {
    pub(crate) fn new(
        role: Role,
        credential: &Credential,
        strength: Strength,
        versions: Versions,
        server_name: Option<&str>,
        keep: Keep,
    ) -> Result<Self, CredentialError> {
        let make = || context(credential, strength, versions);
        let context = credential
            .contexts()
            .get_or_make(strength, versions, make)?;
        let mut ssl = Ssl::new(&context)?;
        if let (Role::Initiator, Some(name)) = (role, server_name) {
            ssl.set_hostname(name)?;
        }
        Self::of(role, ssl, keep)
    }

    /// With a context and an expectation of the caller's.
    pub(crate) fn of(role: Role, mut ssl: Ssl, keep: Keep) -> Result<Self, CredentialError> {
        if keep == Keep::Secrets {
            keep_secrets(&mut ssl)?;
        }
        match role {
            Role::Initiator => ssl.set_connect_state(),
            Role::Acceptor => ssl.set_accept_state(),
        }
        let stream = SslStream::new(ssl, Buffers::default())?;
        Ok(Self { stream })
    }

    /// See [`take_traffic`].
    pub(crate) fn take_traffic(&mut self) -> Option<Traffic> {
        take_traffic(self.stream.ssl())
    }

    /// Bytes from the peer, cut anywhere.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.stream.get_mut().input.extend_from_slice(bytes);
    }

    /// Bytes that no record has taken.
    pub(crate) fn take_unread(&mut self) -> Vec<u8> {
        let buffers = self.stream.get_mut();
        let rest = buffers.input.split_off(buffers.taken);
        buffers.input.clear();
        buffers.taken = 0;
        rest
    }

    /// Bytes for the peer.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.stream.get_mut().output)
    }

    /// Bytes for the peer that were not taken yet.
    pub(crate) fn output_waits(&self) -> usize {
        self.stream.get_ref().output.len()
    }

    /// Appends bytes for the peer, and keeps the memory they were in.
    pub(crate) fn append_output(&mut self, to: &mut Vec<u8>) {
        to.append(&mut self.stream.get_mut().output);
    }

    /// Goes on as far as the input allows. `true` when the handshake is over.
    pub(crate) fn handshake(&mut self) -> Result<bool, TlsFault> {
        forget_errors();
        match self.stream.do_handshake() {
            Ok(()) => Ok(true),
            Err(error) if is_starved(&error) => Ok(false),
            Err(error) => Err(fault(&error)),
        }
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<ReadOutcome, TlsFault> {
        forget_errors();
        match self.stream.ssl_read(buffer) {
            Ok(count) => Ok(ReadOutcome::Bytes(count)),
            Err(error) if is_starved(&error) => Ok(ReadOutcome::Starved),
            Err(error) if error.code() == ErrorCode::ZERO_RETURN => Ok(ReadOutcome::Closed),
            Err(error) => Err(fault(&error)),
        }
    }

    /// Takes all of it: the output buffer has no bound but what the caller writes.
    pub(crate) fn write(&mut self, clear: &[u8]) -> Result<(), TlsFault> {
        let mut rest = clear;
        while !rest.is_empty() {
            match self.stream.ssl_write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) => return Err(fault(&error)),
            }
        }
        Ok(())
    }

    /// The same, with the records appended to `to`.
    pub(crate) fn write_to(&mut self, clear: &[u8], to: &mut Vec<u8>) -> Result<(), TlsFault> {
        self.append_output(to);
        // Where they are made is where they belong: nothing is copied.
        std::mem::swap(&mut self.stream.get_mut().output, to);
        let written = self.write(clear);
        std::mem::swap(&mut self.stream.get_mut().output, to);
        written
    }

    /// Says that nothing follows (close_notify). A stream that is broken says nothing.
    pub(crate) fn close(&mut self) {
        drop(self.stream.shutdown());
    }

    /// Why OpenSSL does not trust the peer, where it verifies.
    pub(crate) fn verdict(&self) -> Option<&'static str> {
        let verdict = self.stream.ssl().verify_result();
        (verdict != X509VerifyResult::OK).then(|| verdict.error_string())
    }

    /// What the peer has shown so far, its own certificate first. Empty before it has shown any.
    pub(crate) fn peer_chain(&self) -> Result<Vec<Certificate>, CredentialError> {
        peer_chain(self.stream.ssl())
    }

    pub(crate) fn is_tls13(&self) -> bool {
        self.stream.ssl().version2() == Some(SslVersion::TLS1_3)
    }

    /// `TLSv1.3, TLS_AES_256_GCM_SHA384`.
    pub(crate) fn describe(&self) -> String {
        let ssl = self.stream.ssl();
        let cipher = ssl.current_cipher().map_or("none", |cipher| cipher.name());
        format!("{}, {cipher}", ssl.version_str())
    }
}

fn context(
    credential: &Credential,
    strength: Strength,
    versions: Versions,
) -> Result<SslContext, CredentialError> {
    let mut builder = builder(strength, versions)?;
    // OpenSSL checks that the peer holds its key; whose key it is decides `verify`, before anything
    // that follows from the handshake leaves.
    builder.set_verify_callback(
        SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT,
        |_, _| true,
    );
    show(&mut builder, credential)?;
    Ok(builder.build())
}

/// What the peer has shown, its own certificate first; empty: nothing.
pub(crate) fn peer_chain(ssl: &SslRef) -> Result<Vec<Certificate>, CredentialError> {
    let Some(own) = ssl.peer_certificate() else {
        return Ok(Vec::new());
    };
    let mut chain = vec![Certificate::new(own.clone())?];
    // An acceptor is given the chain without the peer's own certificate, an initiator with it.
    for sent in ssl.peer_cert_chain().into_iter().flatten() {
        if sent != &*own {
            chain.push(Certificate::new(sent.to_owned())?);
        }
    }
    Ok(chain)
}

/// What holds wherever we speak TLS.
pub(crate) fn builder(
    strength: Strength,
    versions: Versions,
) -> Result<SslContextBuilder, CredentialError> {
    let mut builder = SslContextBuilder::new(SslMethod::tls())?;
    let (least, most) = match versions {
        Versions::Any => (SslVersion::TLS1_2, SslVersion::TLS1_3),
        Versions::Tls12 => (SslVersion::TLS1_2, SslVersion::TLS1_2),
        Versions::Tls13 => (SslVersion::TLS1_3, SslVersion::TLS1_3),
    };
    builder.set_min_proto_version(Some(least))?;
    builder.set_max_proto_version(Some(most))?;
    builder.set_security_level(match strength {
        Strength::Modern => 2,
        Strength::Legacy => 1,
    });
    builder.set_cipher_list(SUITES_12)?;
    builder.set_ciphersuites(SUITES_13)?;
    builder.set_options(
        SslOptions::NO_TICKET | SslOptions::NO_RENEGOTIATION | SslOptions::NO_COMPRESSION,
    );
    // A ticket behind the handshake would stand where peers expect the NUL record, and its record
    // would be one that [`Traffic`] does not know of.
    builder.set_num_tickets(0)?;
    builder.set_keylog_callback(hear_secret);
    builder.set_session_cache_mode(SslSessionCacheMode::OFF);
    builder.set_session_id_context(b"godwit")?;
    // Who has to wait may have moved the bytes meanwhile: OpenSSL's check of their address is of no
    // use then, and ends the connection.
    builder.set_mode(SslMode::NO_AUTO_CHAIN | SslMode::ACCEPT_MOVING_WRITE_BUFFER);
    // It verifies signatures up to there before `verify` sees the chain.
    builder.set_verify_depth(u32::try_from(CHAIN_MAX).unwrap_or(u32::MAX));
    Ok(builder)
}

/// Shows `credential` to peers.
pub(crate) fn show(
    builder: &mut SslContextBuilder,
    credential: &Credential,
) -> Result<(), CredentialError> {
    builder.set_certificate(credential.certificate().as_x509())?;
    builder.set_private_key(credential.key())?;
    for certificate in credential.chain() {
        builder.add_extra_chain_cert(certificate.as_x509().clone())?;
    }
    Ok(())
}

/// OpenSSL judges a call by what it finds in the queue of errors of the thread (SSL_get_error(3)).
/// What stands there already is of other peers: a signature that did not verify, for one.
pub fn forget_errors() {
    drop(ErrorStack::get());
}

fn is_starved(error: &openssl::ssl::Error) -> bool {
    error.code() == ErrorCode::WANT_READ
}

fn fault(error: &openssl::ssl::Error) -> TlsFault {
    let first = error.ssl_error().and_then(|stack| stack.errors().first());
    TlsFault(match first.and_then(|error| error.reason()) {
        Some(reason) => reason.to_owned(),
        None => error.to_string(),
    })
}

#[derive(Debug, Default)]
struct Buffers {
    input: Vec<u8>,
    /// Of `input`, what was read.
    taken: usize,
    output: Vec<u8>,
}

impl Read for Buffers {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = &self.input[self.taken..];
        if rest.is_empty() {
            self.input.clear();
            self.taken = 0;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.taken += count;
        Ok(count)
    }
}

impl Write for Buffers {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use openssl::asn1::Asn1Time;
    use openssl::x509::{X509, X509Name};

    use super::*;
    use crate::cert::key::KeyKind;

    #[test]
    fn connections_of_one_credential_share_a_context() {
        let key = KeyKind::EcP256.generate().unwrap();
        let mut builder = X509::builder().unwrap();
        let name = X509Name::builder().unwrap().build();
        builder.set_subject_name(&name).unwrap();
        builder.set_issuer_name(&name).unwrap();
        builder.set_pubkey(&key).unwrap();
        let days = |count| Asn1Time::days_from_now(count).unwrap();
        builder.set_not_before(&days(0)).unwrap();
        builder.set_not_after(&days(1)).unwrap();
        let digest = openssl::hash::MessageDigest::sha256();
        builder.sign(&key, digest).unwrap();
        let certificate = Certificate::new(builder.build()).unwrap();
        let credential = Credential::new(certificate, key, Vec::new()).unwrap();
        let made = || credential.contexts().count();
        let shake = |credential: &Credential, versions| {
            let role = Role::Initiator;
            Tls::new(
                role,
                credential,
                Strength::Modern,
                versions,
                None,
                Keep::Nothing,
            )
            .unwrap()
        };
        for _ in 0..3 {
            shake(&credential.clone(), Versions::Any);
            assert_eq!(made(), 1);
        }
        shake(&credential, Versions::Tls12);
        assert_eq!(made(), 2);
    }
}

//! Records of data channels, opened where they lie.

use std::{
    fs,
    io::{Read, Write},
};

use godwit_gsi::{
    Channel, Outgoing, Records, Versions,
    ftps::{Authorities, Client, Server, ServerIs},
    records::{RECORD_BYTES_MAX, RECORD_CLEAR_BYTES_MAX},
    verify::HostName,
    wrap::WrapError,
};
use openssl::ssl::{Ssl, SslContext, SslContextBuilder, SslMethod, SslStream, SslVersion};
use proptest::{collection::vec, prelude::*};

use crate::grid::Grid;
use crate::pair::{Ends, join};
use crate::pipe::{Pipe, connect};
use crate::pki::{Blueprint, now};

const BOTH: [Versions; 2] = [Versions::Tls12, Versions::Tls13];

/// Both ends of a data channel: who has connected, and who was connected to.
fn channel(versions: Versions) -> (Records, Records) {
    let ends = Ends::new();
    let end = || ends.data(Channel::ProtectedData, versions);
    let joined = join(end(), end()).expect("joins");
    assert!(joined.initiator.rest.is_empty() && joined.acceptor.rest.is_empty());
    let one = joined.initiator.wrap.into_records();
    let other = joined.acceptor.wrap.into_records();
    (one, other)
}

fn seal(records: &mut Records, clear: &[u8]) -> Vec<u8> {
    let mut sealed = Vec::new();
    let mut outgoing = Outgoing::default();
    for clear in clear.chunks(Outgoing::CLEAR_BYTES_MAX) {
        assert_eq!(outgoing.put(clear), clear.len());
        flush(records, &mut outgoing, &mut sealed);
    }
    sealed
}

/// Seals what is there, and sends it.
fn flush(records: &mut Records, outgoing: &mut Outgoing, sealed: &mut Vec<u8>) {
    records.seal(outgoing).expect("seals");
    let bytes = outgoing.unsent().len();
    sealed.extend_from_slice(outgoing.unsent());
    outgoing.sent(bytes);
}

/// What bytes from the peer come to, and whether it has closed.
fn open(records: &mut Records, bytes: &[u8]) -> Result<(Vec<u8>, bool), WrapError> {
    let mut bytes = bytes.to_vec();
    let opened = records.open(&mut bytes)?;
    assert_eq!(opened.taken, bytes.len(), "whole records");
    bytes.truncate(opened.clear);
    Ok((bytes, opened.is_closed))
}

/// As a connection does it: what is left over is given again, with more behind it.
struct Reader<'a> {
    records: &'a mut Records,
    buffer: Vec<u8>,
    clear: Vec<u8>,
}

impl Reader<'_> {
    fn take(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        let opened = self.records.open(&mut self.buffer).expect("opens");
        assert!(opened.clear <= opened.taken && !opened.is_closed);
        self.clear.extend_from_slice(&self.buffer[..opened.clear]);
        self.buffer.drain(..opened.taken);
        assert!(self.buffer.len() < RECORD_BYTES_MAX);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn bytes_survive_any_slicing(
        rows in vec((vec(0usize..40_000, 0..4), any::<bool>()), 1..5),
        cut in 1usize..70_000,
    ) {
        for versions in BOTH {
            let (mut one, mut other) = channel(versions);
            for (lengths, forth) in &rows {
                let parts: Vec<Vec<u8>> = lengths
                    .iter()
                    .enumerate()
                    .map(|(i, length)| {
                        (0..*length).map(|at| (at * 7 + i).to_le_bytes()[0]).collect()
                    })
                    .collect();
                let (from, to) = match forth {
                    true => (&mut one, &mut other),
                    false => (&mut other, &mut one),
                };
                let mut sealed = Vec::new();
                let mut outgoing = Outgoing::default();
                for mut part in parts.iter().map(Vec::as_slice) {
                    while !part.is_empty() {
                        part = &part[outgoing.put(part)..];
                        if outgoing.room() == 0 {
                            flush(from, &mut outgoing, &mut sealed);
                        }
                    }
                }
                flush(from, &mut outgoing, &mut sealed);
                let mut reader = Reader { records: to, buffer: Vec::new(), clear: Vec::new() };
                for piece in sealed.chunks(cut) {
                    reader.take(piece);
                }
                prop_assert!(reader.buffer.is_empty());
                prop_assert!(reader.clear == parts.concat());
            }
        }
    }
}

#[test]
fn parts_share_records() {
    let (mut one, _) = channel(Versions::Tls13);
    let (mut outgoing, mut sealed) = (Outgoing::default(), Vec::new());
    outgoing.put(&[1; 17]);
    outgoing.put(&[7; 2 * RECORD_CLEAR_BYTES_MAX - 17]);
    flush(&mut one, &mut outgoing, &mut sealed);
    assert_eq!(sealed.len(), 2 * (5 + RECORD_CLEAR_BYTES_MAX + 1 + 16));
    sealed.clear();
    outgoing.put(b"");
    flush(&mut one, &mut outgoing, &mut sealed);
    assert!(sealed.is_empty(), "no bytes take no record");
}

#[test]
fn nothing_counts_behind_the_end() {
    for versions in BOTH {
        let (mut one, mut other) = channel(versions);
        let mut outgoing = Outgoing::default();
        let all = seal(&mut one, b"all");
        one.close(&mut outgoing);
        let mut bytes = [&all, outgoing.unsent(), b"no record at all"].concat();
        let opened = other.open(&mut bytes);
        // OpenSSL is told of whole records only, and what is none is refused before it.
        if versions == Versions::Tls13 {
            let opened = opened.expect("opens");
            assert!(opened.is_closed);
            assert_eq!(&bytes[..opened.clear], b"all");
            assert_eq!(open(&mut other, b"more"), Ok((Vec::new(), true)));
        } else {
            assert!(opened.is_err());
        }
        // The other direction continues.
        let sealed = seal(&mut other, b"still here");
        assert_eq!(open(&mut one, &sealed), Ok((b"still here".to_vec(), false)));
    }
}

#[test]
fn changed_missing_or_repeated_records_are_refused() {
    for versions in BOTH {
        let fails = |change: &dyn Fn(&mut Vec<Vec<u8>>)| {
            let (mut one, mut other) = channel(versions);
            let mut sealed = ["a", "b", "c"]
                .map(|text| seal(&mut one, text.as_bytes()))
                .to_vec();
            change(&mut sealed);
            let error = open(&mut other, &sealed.concat()).err();
            assert!(matches!(error, Some(WrapError::Tls(_))), "{error:?}");
            // Nothing is passed over.
            for _ in 0..3 {
                assert!(open(&mut other, &seal(&mut one, b"next")).is_err());
            }
        };
        fails(&|sealed| sealed[1][7] ^= 1);
        fails(&|sealed| *sealed[1].last_mut().unwrap() ^= 0x80);
        fails(&|sealed| sealed.swap(0, 1));
        fails(&|sealed| drop(sealed.remove(1)));
        fails(&|sealed| sealed.insert(1, sealed[0].clone()));
        // An alert in clear; a record of another protocol; one above the length limit.
        fails(&|sealed| sealed.insert(1, vec![21, 3, 3, 0, 2, 1, 0]));
        fails(&|sealed| sealed.insert(1, b"GET / HTTP/1.0\r\n\r\n".to_vec()));
        fails(&|sealed| sealed.insert(1, [&[23, 3, 3, 0x50, 0][..], &[0; 0x5000]].concat()));
    }
}

const HOST: &str = "data.example.org";
const SUITES: [&str; 3] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
];

/// OpenSSL as others use it, with tickets where it is the server.
fn peer(suite: &str, change: impl FnOnce(&mut SslContextBuilder)) -> Ssl {
    let mut context = SslContext::builder(SslMethod::tls()).unwrap();
    context
        .set_min_proto_version(Some(SslVersion::TLS1_3))
        .unwrap();
    context.set_ciphersuites(suite).unwrap();
    change(&mut context);
    Ssl::new(&context.build()).unwrap()
}

/// Both directions, a megabyte each, and the end.
fn exchange(records: &mut Records, rest: &[u8], peer: &mut SslStream<Pipe>) {
    let content: Vec<u8> = (0..1_000_000u32)
        .map(|at| (at.wrapping_mul(31) >> 8).to_le_bytes()[0])
        .collect();
    let sealed = seal(records, &content);
    peer.get_mut().incoming.extend(&sealed);
    let mut came = vec![0; content.len()];
    peer.read_exact(&mut came).expect("OpenSSL opens it");
    assert!(came == content);
    peer.write_all(&content).expect("OpenSSL seals it");
    drop(peer.shutdown());
    // Tickets first, where there are any.
    let bytes = [rest, &peer.get_ref().outgoing].concat();
    assert_eq!(open(records, &bytes), Ok((content, true)));
}

#[test]
fn openssl_is_understood_as_a_client() {
    let grid = Grid::new();
    let host = Blueprint::host("/O=Grid/CN=host", &[HOST]).issued_by(&grid.authority);
    let server = Server::new(&host, None).unwrap();
    for suite in SUITES {
        let mut server = server.accept().unwrap();
        let (mut client, secured) = connect(peer(suite, |_| {}), &mut server);
        assert_eq!(secured.wrap.describe(), format!("TLSv1.3, {suite}"));
        let mut records = secured.wrap.into_records();
        exchange(&mut records, &secured.rest, &mut client);
    }
}

#[test]
fn openssl_is_understood_as_a_server_that_sends_tickets() {
    let grid = Grid::new();
    let host = Blueprint::host("/O=Grid/CN=host", &[HOST]).issued_by(&grid.authority);
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("ca.pem");
    fs::write(
        &file,
        grid.authority.certificate().as_x509().to_pem().unwrap(),
    )
    .unwrap();
    let client = Client::new(None, &Authorities::File(file)).unwrap();
    for suite in SUITES {
        let expected = ServerIs::Host(HostName::new(HOST));
        let mut client = client.connect(&expected, now()).unwrap();
        let mut ssl = peer(suite, |context| {
            let certificate = host.certificate().as_x509();
            context.set_certificate(certificate).unwrap();
            context.set_private_key(host.key()).unwrap();
            context.set_num_tickets(2).unwrap();
        });
        ssl.set_accept_state();
        let mut server = SslStream::new(ssl, Pipe::default()).unwrap();
        let hello = client.poll_output().unwrap();
        server.get_mut().incoming.extend(hello);
        drop(server.do_handshake());
        let answer = std::mem::take(&mut server.get_mut().outgoing);
        client.handle_input(now(), &answer).unwrap();
        let finished = client.poll_output().unwrap();
        server.get_mut().incoming.extend(finished);
        server.do_handshake().unwrap();
        assert!(!server.get_ref().outgoing.is_empty(), "no ticket");
        let secured = client.outcome().unwrap();
        let mut records = secured.wrap.into_records();
        exchange(&mut records, &secured.rest, &mut server);
    }
}

//! Streams between both ends, and with OpenSSL as the peer.

#![allow(clippy::unwrap_used)]

use std::{io, time::SystemTime};

use godwit_gsi::{
    cert::{Certificate, Credential},
    ftps::{Authorities, Server},
    https::{HttpsClient, Trust},
    verify::HostName,
};
use godwit_tls_stream::TlsStream;
use openssl::{
    asn1::Asn1Time,
    ec::{EcGroup, EcKey},
    hash::MessageDigest,
    nid::Nid,
    pkey::PKey,
    ssl::{Ssl, SslContext, SslMethod, SslVerifyMode, SslVersion},
    x509::{X509, X509NameBuilder, extension::SubjectAlternativeName},
};
use proptest::prelude::*;
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, duplex,
};
use tokio_openssl::SslStream;

const HOST: &str = "server.example";

/// A server's certificate, which vouches for itself.
fn credential() -> Credential {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    let key = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
    let mut name = X509NameBuilder::new().unwrap();
    name.append_entry_by_text("CN", HOST).unwrap();
    let name = name.build();
    let mut builder = X509::builder().unwrap();
    builder.set_version(2).unwrap();
    builder.set_subject_name(&name).unwrap();
    builder.set_issuer_name(&name).unwrap();
    builder.set_pubkey(&key).unwrap();
    let day = |days| Asn1Time::days_from_now(days).unwrap();
    builder.set_not_before(&day(0)).unwrap();
    builder.set_not_after(&day(2)).unwrap();
    let names = SubjectAlternativeName::new()
        .dns(HOST)
        .build(&builder.x509v3_context(None, None));
    builder.append_extension(names.unwrap()).unwrap();
    builder.sign(&key, MessageDigest::sha256()).unwrap();
    let certificate = Certificate::new(builder.build()).unwrap();
    Credential::new(certificate, key, Vec::new()).unwrap()
}

fn server_ssl(credential: &Credential) -> Ssl {
    Server::https(credential, None).unwrap().ssl().unwrap()
}

fn client_ssl(credential: &Credential) -> Ssl {
    let file = std::env::temp_dir().join(format!(
        "godwit-tls-stream-{}-{:?}.pem",
        std::process::id(),
        std::thread::current().id()
    ));
    std::fs::write(&file, credential.certificate().as_x509().to_pem().unwrap()).unwrap();
    let trust = Trust::Web(Authorities::File(file.clone()));
    let client = HttpsClient::new(None, &trust).unwrap();
    std::fs::remove_file(&file).unwrap();
    client.ssl(&HostName::new(HOST), SystemTime::now()).unwrap()
}

/// OpenSSL on the same stream.
fn openssl_client(versions: SslVersion) -> Ssl {
    let mut context = SslContext::builder(SslMethod::tls_client()).unwrap();
    context.set_verify(SslVerifyMode::NONE);
    context.set_max_proto_version(Some(versions)).unwrap();
    Ssl::new(&context.build()).unwrap()
}

/// Both ends of a connection, whose socket holds `room` bytes.
async fn both_ends(room: usize) -> (TlsStream<DuplexStream>, TlsStream<DuplexStream>) {
    let (here, there) = duplex(room);
    let credential = credential();
    let (ours, theirs) = tokio::join!(
        TlsStream::connect(client_ssl(&credential), here),
        TlsStream::accept(server_ssl(&credential), there),
    );
    (ours.map_err(|(error, _)| error).unwrap(), theirs.unwrap())
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|i| u8::try_from(i * 7 % 251).unwrap())
        .collect()
}

/// Sends parts of these lengths one way; they arrive, and so does the end.
async fn carry(
    mut from: impl AsyncWrite + Unpin,
    mut to: impl AsyncRead + Unpin,
    parts: &[usize],
) -> bool {
    let all = pattern(parts.iter().sum());
    let sending = async {
        let mut rest = &all[..];
        for part in parts {
            let (now, later) = rest.split_at(*part);
            from.write_all(now).await.unwrap();
            rest = later;
        }
        from.shutdown().await.unwrap();
    };
    let mut arrived = Vec::new();
    let (read, ()) = tokio::join!(to.read_to_end(&mut arrived), sending);
    read.unwrap();
    arrived == all
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(work)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn bytes_arrive_in_order_however_they_are_cut(
        parts in prop::collection::vec(
            prop_oneof![0..20usize, 16_000..17_000usize, 0..300_000usize],
            0..6,
        ),
        room in prop_oneof![1..50usize, 1_000..100_000usize],
        is_up in any::<bool>(),
    ) {
        // A socket of few bytes takes long.
        prop_assume!(room > 1_000 || parts.iter().sum::<usize>() < 100_000);
        let carried = run(async {
            let (client, server) = both_ends(room).await;
            assert_eq!(client.ssl().version_str(), "TLSv1.3");
            match is_up {
                true => carry(client, server, &parts).await,
                false => carry(server, client, &parts).await,
            }
        });
        prop_assert!(carried);
    }
}

#[test]
fn openssl_is_a_peer_of_either_version() {
    for (version, name) in [
        (SslVersion::TLS1_3, "TLSv1.3"),
        (SslVersion::TLS1_2, "TLSv1.2"),
    ] {
        for is_up in [true, false] {
            let carried = run(async {
                let (here, there) = duplex(70_000);
                let credential = credential();
                let mut client = SslStream::new(openssl_client(version), here).unwrap();
                let (connected, server) = tokio::join!(
                    std::pin::Pin::new(&mut client).connect(),
                    TlsStream::accept(server_ssl(&credential), there),
                );
                connected.unwrap();
                let server = server.unwrap();
                assert_eq!(server.ssl().version_str(), name);
                let parts = [1, 100_000, 16_384, 500_000];
                match is_up {
                    true => carry(client, server, &parts).await,
                    false => carry(server, client, &parts).await,
                }
            });
            assert!(carried, "{name}, up: {is_up}");
        }
    }
}

/// As a buffer that grows while the socket takes nothing.
#[test]
fn bytes_that_have_moved_before_they_are_taken_arrive() {
    for version in [SslVersion::TLS1_3, SslVersion::TLS1_2] {
        run(async {
            let (here, there) = duplex(1_000);
            let credential = credential();
            let mut client = SslStream::new(openssl_client(version), here).unwrap();
            let (connected, server) = tokio::join!(
                std::pin::Pin::new(&mut client).connect(),
                TlsStream::accept(server_ssl(&credential), there),
            );
            connected.unwrap();
            let mut server = server.unwrap();
            let all = pattern(100_000);
            let sending = async {
                // All copies are kept, so that no two have one address.
                let (mut copies, mut at) = (Vec::new(), 0);
                while at < all.len() {
                    let sent = std::future::poll_fn(|context| {
                        copies.push(all[at..].to_vec());
                        let copy = copies.last().unwrap();
                        std::pin::Pin::new(&mut server).poll_write(context, copy)
                    });
                    at += sent.await.unwrap();
                }
                server.shutdown().await.unwrap();
            };
            let mut arrived = Vec::new();
            let (read, ()) = tokio::join!(client.read_to_end(&mut arrived), sending);
            read.unwrap();
            assert!(arrived == all, "{version:?}");
        });
    }
}

#[test]
fn a_stream_that_ends_without_saying_so_is_an_error() {
    run(async {
        let (client, mut server) = both_ends(1_000).await;
        drop(client);
        let error = server.read(&mut [0; 10]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    });
}

/// Changes one byte of what passes, once that is more than `after` bytes.
async fn forge(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, after: usize) {
    let (mut passed, mut buffer) = (0, vec![0; 4096]);
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if (passed..passed + count).contains(&after) {
            buffer[after - passed] ^= 1;
        }
        passed += count;
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

#[test]
fn a_changed_byte_is_an_error_and_nothing_of_its_record_is_read() {
    run(async {
        let (here, one) = duplex(100_000);
        let (other, there) = duplex(100_000);
        let (from_client, to_client) = tokio::io::split(one);
        let (from_server, to_server) = tokio::io::split(other);
        let credential = credential();
        let ends = async {
            let (client, server) = tokio::join!(
                TlsStream::connect(client_ssl(&credential), here),
                TlsStream::accept(server_ssl(&credential), there),
            );
            let (mut client, mut server) =
                (client.map_err(|(error, _)| error).unwrap(), server.unwrap());
            let sent = pattern(60_000);
            client.write_all(&sent).await.unwrap();
            client.flush().await.unwrap();
            let mut arrived = Vec::new();
            let error = server.read_to_end(&mut arrived).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
            assert!(arrived.len() % 16_384 == 0 && sent.starts_with(&arrived));
        };
        tokio::select! {
            () = ends => {}
            // The handshake of the client takes less than 5,000 bytes.
            () = async {
                tokio::join!(
                    forge(from_client, to_server, 40_000),
                    forge(from_server, to_client, usize::MAX),
                );
            } => unreachable!("both ends are there"),
        }
    });
}

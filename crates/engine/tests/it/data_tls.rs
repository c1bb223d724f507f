//! Data channels of FTP over TLS with an acceptor that is none of ours.

use std::{fs, net::TcpStream, sync::mpsc, time::SystemTime};

use godwit_engine::data::{ChannelParams, ChannelSecurity, ChannelSet, Mover};
use godwit_gsi::ftps::{Authorities, Client, ServerIs, Sessions};
use godwit_proto::command::Mode;
use openssl::ssl::{SslAcceptor, SslMethod};

use crate::{
    data::{Bytes, done, listener, params, pattern, run, whole},
    grid::Grid,
    pki::Blueprint,
};

/// OpenSSL sends tickets behind a handshake unless it is set not to, and a peer that only sends
/// does not read them. A connection that is closed on them is reset, and what the peer had not yet
/// taken is lost.
#[test]
fn unread_tickets_do_not_lose_stream_bytes() {
    let now = SystemTime::now();
    let grid = Grid::with(Blueprint::authority("/O=Grid/CN=CA").at(now));
    let host = Blueprint::host("/O=Grid/CN=host", &["localhost"]).at(now);
    let host = host.issued_by(&grid.authority);
    let authorities = tempfile::NamedTempFile::new().unwrap();
    let pem = grid.authority.certificate().as_x509().to_pem().unwrap();
    fs::write(authorities.path(), pem).unwrap();
    let authorities = Authorities::File(authorities.path().to_owned());
    let params = ChannelParams {
        security: Some(ChannelSecurity::TlsClient {
            client: Client::new(None, &authorities).unwrap(),
            server: ServerIs::Holder(Box::new(host.certificate().clone()), Sessions::default()),
        }),
        // All of the file waits in the kernel when the connection is given up.
        socket_buffer_bytes: Some(1 << 20),
        ..params(1, 1 << 20)
    };
    let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls()).unwrap();
    acceptor.set_private_key(host.key()).unwrap();
    let certificate = host.certificate().as_x509();
    acceptor.set_certificate(certificate).unwrap();
    let acceptor = acceptor.build();

    let (listener, at) = listener();
    let (all_is_sent, sent) = mpsc::channel::<()>();
    let peer = std::thread::spawn(move || {
        let (socket, _): (TcpStream, _) = listener.accept().unwrap();
        let mut stream = acceptor.accept(socket).unwrap();
        sent.recv().unwrap();
        let mut got = Vec::new();
        std::io::Read::read_to_end(&mut stream, &mut got).map(|_| got)
    });
    let bytes = pattern(100_000);
    let set = ChannelSet::active(&[Mover::spawn("m").unwrap()], vec![at], None, params);
    let report = run(async {
        let mut send = set.start(whole(&Bytes::new(bytes.clone())), Mode::Stream);
        done(&mut send).await
    });
    assert_eq!(report.result, Ok(()));
    all_is_sent.send(()).unwrap();
    let got = peer.join().unwrap();
    assert!(got.unwrap() == bytes);
    drop(set);
}

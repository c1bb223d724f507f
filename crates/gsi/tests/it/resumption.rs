//! Data channels that resume the TLS session of the control channel, at servers that see whether
//! they do.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    thread,
};

use godwit_gsi::{
    cert::Credential,
    ftps::{Authorities, Client, Handshake, Secured, ServerIs, Sessions},
    verify::HostName,
};
use openssl::ssl::{NameType, SslAcceptor, SslMethod, SslOptions, SslSessionCacheMode, SslVersion};
use tempfile::TempDir;

use crate::grid::Grid;
use crate::pki::{Blueprint, now};

const HOST: &str = "data.example.org";

/// One client, and the credential of its server.
struct Place {
    credential: Credential,
    client: Client,
    _folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let grid = Grid::new();
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("ca.pem");
        let pem = grid.authority.certificate().as_x509().to_pem().unwrap();
        fs::write(&file, pem).unwrap();
        Self {
            credential: Blueprint::host("/O=Grid/CN=host", &[HOST]).issued_by(&grid.authority),
            client: Client::new(None, &Authorities::File(file)).unwrap(),
            _folder: folder,
        }
    }

    fn server(&self, version: SslVersion, tickets: bool) -> SslAcceptor {
        let mut builder = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls()).unwrap();
        builder.set_private_key(self.credential.key()).unwrap();
        let certificate = self.credential.certificate().as_x509();
        builder.set_certificate(certificate).unwrap();
        builder.set_max_proto_version(Some(version)).unwrap();
        builder.set_session_id_context(b"data").unwrap();
        builder.set_servername_callback(|_, _| Ok(()));
        if !tickets {
            builder.set_options(SslOptions::NO_TICKET);
            builder.set_session_cache_mode(SslSessionCacheMode::SERVER);
        }
        builder.build()
    }

    /// A control channel, and what its data channels may resume.
    fn log_in(&self, server: &SslAcceptor) -> Sessions {
        let host = ServerIs::Host(HostName::new(HOST));
        let handshake = self.client.connect(&host, now()).unwrap();
        let sessions = handshake.sessions();
        assert!(!join(handshake, server).resumed);
        sessions
    }

    fn data_channel(&self, server: &SslAcceptor, sessions: &Sessions) -> Joined {
        let certificate = Box::new(self.credential.certificate().clone());
        let holder = ServerIs::Holder(certificate, sessions.clone());
        join(self.client.connect(&holder, now()).unwrap(), server)
    }
}

/// What a connection came to that ended without close_notify, as data channels of clients may.
struct Joined {
    resumed: bool,
    server_name: Option<String>,
}

/// A connection on which the server says a line and the client answers, with records of its own
/// (`Records`) as data channels have.
fn join(handshake: Handshake, server: &SslAcceptor) -> Joined {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = server.clone();
    let peer = thread::spawn(move || {
        let mut stream = server.accept(theirs).unwrap();
        stream.write_all(b"226 done.\r\n").unwrap();
        let mut heard = [0; 6];
        stream.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"QUIT\r\n");
        // A server that ends without this forgets the session.
        drop(stream.shutdown());
        let name = stream.ssl().servername(NameType::HOST_NAME);
        Joined {
            resumed: stream.ssl().session_reused(),
            server_name: name.map(str::to_owned),
        }
    });
    talk(handshake, ours);
    peer.join().unwrap()
}

fn talk(mut handshake: Handshake, mut socket: UnixStream) {
    let mut buffer = [0; 4096];
    let Secured { mut wrap, rest, .. } = loop {
        while let Some(bytes) = handshake.poll_output() {
            socket.write_all(&bytes).unwrap();
        }
        if let Some(secured) = handshake.outcome() {
            break secured;
        }
        let count = socket.read(&mut buffer).unwrap();
        assert_ne!(count, 0, "the server has gone");
        handshake.handle_input(now(), &buffer[..count]).unwrap();
    };
    let mut clear = Vec::new();
    wrap.open(&rest, &mut clear).unwrap();
    while clear.is_empty() {
        let count = socket.read(&mut buffer).unwrap();
        assert_ne!(count, 0, "the server has gone");
        wrap.open(&buffer[..count], &mut clear).unwrap();
    }
    assert_eq!(clear, b"226 done.\r\n");
    let mut sealed = Vec::new();
    wrap.seal(b"QUIT\r\n", &mut sealed).unwrap();
    socket.write_all(&sealed).unwrap();
}

const VERSIONS: [SslVersion; 2] = [SslVersion::TLS1_2, SslVersion::TLS1_3];

#[test]
fn data_channels_resume_the_session_of_their_control_channel() {
    let place = Place::new();
    for version in VERSIONS {
        for tickets in [true, false] {
            let server = place.server(version, tickets);
            let sessions = place.log_in(&server);
            // One that ends without close_notify spoils the session for no other.
            for _ in 0..3 {
                let joined = place.data_channel(&server, &sessions);
                assert!(joined.resumed, "{version:?}, tickets: {tickets}");
                // Servers with several names refuse a session under another name than it was given
                // for.
                assert_eq!(joined.server_name.as_deref(), Some(HOST));
            }
        }
    }
}

#[test]
fn a_forgotten_session_gets_a_full_handshake() {
    let place = Place::new();
    for version in VERSIONS {
        let sessions = place.log_in(&place.server(version, true));
        let restarted = place.server(version, true);
        assert!(!place.data_channel(&restarted, &sessions).resumed);
        let none = Sessions::default();
        assert!(!place.data_channel(&restarted, &none).resumed);
    }
}

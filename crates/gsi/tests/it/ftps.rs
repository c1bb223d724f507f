//! TLS without GSI, both roles joined in memory.

use std::{fs, sync::Arc};

use godwit_gsi::{
    ContextError,
    cert::{Credential, key::KeyKind, proxy, proxy::ProxyRequest},
    ftps::{Authorities, Client, Handshake, Secured, Server, ServerIs, Sessions},
    verify::{HostName, Refusal},
    wrap::Stream,
};
use tempfile::TempDir;

use crate::grid::Grid;
use crate::pki::{Blueprint, now};

const HOST: &str = "data.example.org";

/// Certificates on disk, as a client is told of them.
struct Trusted {
    folder: TempDir,
}

impl Trusted {
    fn new(credential: &Credential) -> Self {
        let folder = TempDir::new().unwrap();
        let pem = credential.certificate().as_x509().to_pem().unwrap();
        fs::write(folder.path().join("ca.pem"), pem).unwrap();
        Self { folder }
    }

    fn client(&self, credential: Option<&Credential>) -> Client {
        let file = Authorities::File(self.folder.path().join("ca.pem"));
        Client::new(credential, &file).unwrap()
    }
}

fn host_of(grid: &Grid) -> Credential {
    Blueprint::host("/O=Grid/CN=host", &[HOST]).issued_by(&grid.authority)
}

fn host(name: &str) -> ServerIs {
    ServerIs::Host(HostName::new(name))
}

fn join(client: Handshake, server: Handshake) -> Result<(Secured, Secured), ContextError> {
    let (client, server) = talk(client, server);
    Ok((client?, server?))
}

/// Until both are silent. What each has come to, a failure first.
fn talk(
    mut client: Handshake,
    mut server: Handshake,
) -> (Result<Secured, ContextError>, Result<Secured, ContextError>) {
    let mut faults = (None, None);
    for _ in 0..8 {
        if let Some(bytes) = client.poll_output() {
            faults.1 = faults.1.or(server.handle_input(now(), &bytes).err());
        }
        if let Some(bytes) = server.poll_output() {
            faults.0 = faults.0.or(client.handle_input(now(), &bytes).err());
        }
    }
    let end = |fault: Option<ContextError>, mut of: Handshake| match fault {
        Some(fault) => Err(fault),
        None => of.outcome().ok_or(ContextError::Protocol("silence")),
    };
    (end(faults.0, client), end(faults.1, server))
}

#[test]
fn a_server_is_trusted_for_its_host() {
    let grid = Grid::new();
    let trusted = Trusted::new(&grid.authority);
    let own = host_of(&grid);
    let server = Server::new(&own, None).unwrap();
    let client = trusted.client(Some(&grid.user)).connect(&host(HOST), now());
    let (mut client, mut server) = join(client.unwrap(), server.accept().unwrap()).unwrap();
    assert!(server.client.is_none(), "nobody asked");
    assert_eq!(client.server.as_ref(), Some(own.certificate()));
    for (from, to) in [(0, 1), (1, 0)] {
        let ends = [&mut client, &mut server];
        let (mut sealed, mut clear) = (Vec::new(), Vec::new());
        ends[from].wrap.seal(b"230 in.\r\n", &mut sealed).unwrap();
        ends[from].wrap.close(&mut sealed);
        let rest = std::mem::take(&mut ends[to].rest);
        ends[to].wrap.open(&rest, &mut clear).unwrap();
        let stream = ends[to].wrap.open(&sealed, &mut clear).unwrap();
        assert_eq!((&clear[..], stream), (&b"230 in.\r\n"[..], Stream::Closed));
    }
}

#[test]
fn a_server_is_not_trusted_for_other_hosts_or_cas() {
    let grid = Grid::new();
    let other = Grid::with(Blueprint::authority("/O=Other/CN=CA"));
    let server = Server::new(&host_of(&grid), None).unwrap();
    for (authority, name, why) in [
        (&grid.authority, "other.example.org", "hostname mismatch"),
        (&grid.authority, "192.0.2.1", "IP address mismatch"),
        (&other.authority, HOST, "unable to get"),
    ] {
        let client = Trusted::new(authority).client(None);
        let client = client.connect(&host(name), now()).unwrap();
        let (client, server) = talk(client, server.accept().unwrap());
        let error = client.err().unwrap().to_string();
        assert!(
            error.contains("not trusted") && error.contains(why),
            "{error}"
        );
        assert!(
            server.is_err(),
            "{name}: the server thinks that all is well"
        );
    }
    let expired = Blueprint::host("/O=Grid/CN=host", &[HOST]).valid(-20, -10);
    let server = Server::new(&expired.issued_by(&grid.authority), None).unwrap();
    let client = Trusted::new(&grid.authority).client(None);
    let client = client.connect(&host(HOST), now()).unwrap();
    let error = join(client, server.accept().unwrap())
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("expired"), "{error}");
}

#[test]
fn a_certificate_that_signed_itself_may_be_trusted_as_it_is() {
    let own = Blueprint::host("/CN=at home", &[HOST]).self_signed();
    let server = Server::new(&own, None).unwrap();
    let client = Trusted::new(&own).client(None);
    let client = client.connect(&host(HOST), now()).unwrap();
    let (client, _) = join(client, server.accept().unwrap()).unwrap();
    assert_eq!(client.server.as_ref(), Some(own.certificate()));
}

#[test]
fn a_data_channel_has_the_certificate_of_the_control_channel_or_none() {
    let grid = Grid::new();
    let (own, other) = (host_of(&grid), host_of(&grid));
    let client = Trusted::new(&grid.authority).client(None);
    let holder = ServerIs::Holder(Box::new(own.certificate().clone()), Sessions::default());
    let data = client.connect(&holder, now()).unwrap();
    let server = Server::new(&own, None).unwrap();
    assert!(join(data, server.accept().unwrap()).is_ok());
    // A good one for the same host, but another.
    let data = client.connect(&holder, now()).unwrap();
    let server = Server::new(&other, None).unwrap();
    let (client, server) = talk(data, server.accept().unwrap());
    assert!(matches!(client, Err(ContextError::Protocol(_))));
    assert!(server.is_err(), "nothing of the client's answer has left");
}

#[test]
fn a_client_certificate_is_verified_or_refused() {
    let grid = Grid::new();
    let other = Grid::with(Blueprint::authority("/O=Other/CN=CA"));
    let trusted = Trusted::new(&grid.authority);
    let server = Server::new(&host_of(&grid), Some(Arc::new(grid.anchors()))).unwrap();
    let verdict = |credential: Option<&Credential>| {
        let client = trusted.client(credential).connect(&host(HOST), now());
        let (_, server) = join(client.unwrap(), server.accept().unwrap()).unwrap();
        server.client
    };
    assert!(verdict(None).is_none());
    let user = verdict(Some(&grid.user)).unwrap().unwrap();
    assert!(user.identity().same_as(&grid.user.identity()));
    let request = ProxyRequest::default();
    let proxy = proxy::create(&grid.user, &request, KeyKind::EcP256, now()).unwrap();
    let user = verdict(Some(&proxy)).unwrap().unwrap();
    assert!(user.identity().same_as(&grid.user.identity()));
    let stranger = verdict(Some(&other.user)).unwrap();
    assert!(
        matches!(stranger, Err(Refusal::NoAuthority { .. })),
        "{stranger:?}"
    );
}

#[test]
fn noise_and_floods_are_refused() {
    let grid = Grid::new();
    let server = Server::new(&host_of(&grid), None).unwrap();
    let mut noise = server.accept().unwrap();
    let error = noise
        .handle_input(now(), b"USER jo\r\nPASS secret\r\n")
        .unwrap_err();
    assert!(matches!(error, ContextError::Tls(_)), "{error}");
    assert_eq!(noise.handle_input(now(), b"x"), Err(ContextError::Over));
    // A record that never ends.
    let mut flood = server.accept().unwrap();
    let handshake_record = [&[22, 3, 1, 0x40, 0][..], &[1, 0, 0xff, 0xff], &[0; 0x3ffc]].concat();
    let error = (0..100).find_map(|_| flood.handle_input(now(), &handshake_record).err());
    assert!(error.is_some());
}

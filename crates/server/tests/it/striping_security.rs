//! Data channels of data nodes that are protected.

use std::{
    fs,
    io::{Read as _, Write as _},
    sync::Arc,
    time::SystemTime,
};

use godwit_gsi::{
    Channel, Context, Expect, Settings, Versions,
    cert::{
        files,
        key::KeyKind,
        proxy::{self, ProxyRequest},
    },
    verify::Policy,
};
use godwit_server::{GsiSettings, TlsSettings};

use crate::{
    client::{comma_address, connect},
    grid::Grid,
    gsi::prove,
    nodes::{Site, TestNode},
    pki::Blueprint,
    tls::{python, succeeded},
};

/// Users of FTP over TLS: the node shows its own certificate, which is for the front end's name.
#[test]
fn data_channels_of_nodes_are_private_behind_auth_tls() {
    let now = SystemTime::now();
    let grid = Grid::with(Blueprint::authority("/O=Grid/CN=CA").at(now));
    let host = Blueprint::host("/O=Grid/CN=host", &["localhost"]).at(now);
    let host = host.issued_by(&grid.authority);
    let folder = tempfile::tempdir().unwrap();
    let [cert, ca] = ["host.pem", "ca.pem"].map(|name| folder.path().join(name));
    files::write_private(&cert, &host.to_pem().unwrap()).unwrap();
    fs::write(
        &ca,
        grid.authority.certificate().as_x509().to_pem().unwrap(),
    )
    .unwrap();
    let tls = TlsSettings {
        host: vec![(cert.clone(), cert)],
    };
    let site = Site::new();
    let mut settings = site.node_settings(2);
    settings.tls = Some(tls.clone());
    let with = TestNode::start(settings);
    let without = site.node(3);
    let script = "\
        f.trust_server_pasv_ipv4_address = True\n\
        f.login('anonymous', 'jo@example.org')\n\
        f.prot_p()\n\
        f.storbinary('STOR a', io.BytesIO(b'x' * 1000000))\n\
        got = io.BytesIO()\n\
        f.retrbinary('RETR a', got.write)\n\
        assert got.getvalue() == b'x' * 1000000\n\
        assert 'a' in f.nlst()\n\
        f.prot_c()\n\
        assert 'a' in f.nlst()\n\
        f.quit()\n";
    let refused = "\
        f.login('anonymous', 'jo@example.org')\n\
        f.prot_p()\n\
        refused(f.nlst, '425', '--tls --cert')\n\
        f.quit()\n";
    for (node, script) in [(&with, script), (&without, refused)] {
        let server = site.front_end_with(&[node.address], |settings| {
            settings.tls = Some(tls.clone());
        });
        if let Some(output) = python(&ca, server.address, script) {
            succeeded(&output);
        }
    }
}

/// The credential that a user has delegated proves the node's data channels, too.
#[test]
fn data_channels_of_nodes_prove_whose_they_are() {
    let now = SystemTime::now();
    let grid = Grid::with(Blueprint::authority("/O=Grid/CN=CA").at(now));
    let host = Blueprint::host("/O=Grid/CN=host", &["localhost"]).at(now);
    let host = host.issued_by(&grid.authority);
    let folder = tempfile::tempdir().unwrap();
    let [cert, map] = ["host.pem", "map"].map(|name| folder.path().join(name));
    files::write_private(&cert, &host.to_pem().unwrap()).unwrap();
    fs::write(&map, "/O=Grid/CN=Jo jo\n").unwrap();
    let request = ProxyRequest::default();
    let jo = proxy::create(&grid.user, &request, KeyKind::EcP256, now).unwrap();
    let site = Site::new();
    let mut settings = site.node_settings(2);
    settings.node.as_mut().unwrap().users = Some(grid.path().to_owned());
    let knows_users = TestNode::start(settings);
    let knows_none = site.node(3);
    for (node, knows) in [(&knows_users, true), (&knows_none, false)] {
        let server = site.front_end_with(&[node.address], |settings| {
            settings.gsi = Some(GsiSettings {
                host: vec![(cert.clone(), cert.clone())],
                authorities: grid.path().to_owned(),
                gridmap: Some(map.clone()),
                allowed: Default::default(),
            });
        });
        let delegated = Some(ProxyRequest::limited());
        let mut session = prove(server.address, &grid, &jo, delegated, "");
        session.log_in();
        if !knows {
            let reply = session.expect("PASV", "425 ");
            assert!(reply.contains("--trusted-certs"), "{reply}");
            continue;
        }
        // A peer that proves no identity is not accepted as a sender.
        let reply = session.expect("PASV", "227 ");
        let mut data = connect(comma_address(&reply));
        data.write_all(b"bytes in clear, and more than a record's header")
            .unwrap();
        let reply = session.call("STOR /f");
        assert!(
            reply.contains("DATA_CHANNEL_AUTHENTICATION_FAILURE"),
            "{reply}"
        );

        let reply = session.expect("PASV", "227 ");
        let mut data = connect(comma_address(&reply));
        let line = session.wrap.command(b"STOR /f\r\n").unwrap();
        session.ftp.send(&line);
        let context = Context::initiate(Settings {
            credential: jo.clone(),
            anchors: Arc::new(grid.anchors()),
            policy: Policy::default(),
            expect: Expect::Identity(jo.identity()),
            channel: Channel::ClearData,
            versions: Versions::Any,
            server_name: None,
        });
        let mut context = context.unwrap();
        loop {
            if let Some(bytes) = context.poll_output() {
                data.write_all(&bytes).unwrap();
            }
            if context.outcome().is_some() {
                break;
            }
            let mut bytes = [0; 4096];
            let count = data.read(&mut bytes).unwrap();
            context
                .handle_input(SystemTime::now(), &bytes[..count])
                .unwrap();
        }
        data.write_all(b"proven").unwrap();
        drop(data);
        assert!(session.reply().starts_with("150 "));
        assert!(session.reply().starts_with("226 "));
        assert_eq!(fs::read(site.path().join("f")).unwrap(), b"proven");
    }
}

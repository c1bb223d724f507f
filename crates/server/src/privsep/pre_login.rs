//! The process that serves a client before login: it holds the control connection, does the
//! handshakes, and asks the monitor for a session.

use std::{io, net::TcpStream, os::fd::OwnedFd, sync::Arc};

use godwit_engine::storage::NullStorage;
use godwit_gsi::{
    ftps,
    verify::{Anchors, Directory},
};

use super::{
    child,
    link::{ChildEnd, LinkError, opener, pre_login_asks},
    messages::PreLoginSetup,
    relay, sandbox,
};
use crate::{
    access::{admission::Admission, gsi::Gsi},
    config::ServerSettings,
    service::Service,
    session,
};

pub(super) fn run(link: Arc<ChildEnd>) -> Result<(), String> {
    let (setup, beside): (PreLoginSetup, _) = link.receive().map_err(|error| error.to_string())?;
    child::begin(setup.parent, setup.settings.log_json)?;
    let mut beside = beside.into_iter();
    let control = beside.next().ok_or(LinkError::Descriptors.to_string())?;
    let Identities { gsi, tls } = identities(&setup.settings, &mut beside, &link)?;
    let runtime = child::runtime()?;
    let (phase, signals) = child::with_phases(&runtime)?;
    let protection = sandbox::confine_pre_login(&setup.ids).map_err(|error| error.to_string())?;
    child::accept(&protection, setup.require_sandbox)?;

    // What the monitor counts is not counted here again.
    let permit = Admission::new(setup.settings.bounds).admit(setup.peer.ip());
    let mut permit = permit.map_err(|why| why.to_string())?;
    permit.set_number(setup.session);
    let storage = Arc::new(NullStorage::new(0));
    let mut service = Service::on(storage, setup.settings, Arc::default(), gsi);
    service.tls = tls;
    service.monitor = Some(link);
    runtime.block_on(async {
        let control = control_connection(control).map_err(|error| error.to_string())?;
        let work = async {
            let service = Arc::new(service);
            if let Some(entered) =
                session::serve_until_login(control, setup.peer, permit, service, phase).await
            {
                relay::run(entered).await;
            }
        };
        tokio::select! {
            () = work => {}
            () = signals => {}
        }
        Ok(())
    })
}

/// Its certificate, and how it verifies those of clients.
struct Identities {
    gsi: Option<Gsi>,
    tls: Option<ftps::Server>,
}

fn identities(
    settings: &ServerSettings,
    beside: &mut impl Iterator<Item = OwnedFd>,
    link: &Arc<ChildEnd>,
) -> Result<Identities, String> {
    let (mut gsi, mut tls) = (None, None);
    if settings.gsi.is_none() && settings.tls.is_none() {
        return Ok(Identities { gsi, tls });
    }
    let credential = child::credential(beside)?;
    let anchors = settings.gsi.as_ref().map(|settings| {
        let path = settings.authorities.clone();
        let anchors: Arc<dyn Anchors> =
            Arc::new(Directory::opened_by(path, opener(link, pre_login_asks)));
        anchors
    });
    if settings.tls.is_some() {
        let server = ftps::Server::new(&credential, anchors.clone());
        tls = Some(server.map_err(|error| error.to_string())?);
    }
    if let Some(anchors) = anchors {
        let before_login = Gsi::of_pre_login(credential, anchors);
        // OpenSSL reads its settings now, and not later.
        before_login.acceptor().map_err(|error| error.to_string())?;
        gsi = Some(before_login);
    }
    Ok(Identities { gsi, tls })
}

fn control_connection(descriptor: OwnedFd) -> io::Result<tokio::net::TcpStream> {
    let socket = TcpStream::from(descriptor);
    socket.set_nonblocking(true)?;
    tokio::net::TcpStream::from_std(socket)
}

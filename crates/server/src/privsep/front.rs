//! The process that meets a stranger: it holds the control connection, proves and is proven, and asks the parent for a session.

use std::{
    fs::File,
    io::{self, Read as _},
    net::TcpStream,
    os::fd::OwnedFd,
    sync::Arc,
};

use godwit_engine::storage::NullStorage;
use godwit_gsi::{cert::Credential, verify::Directory};

use super::{
    child,
    link::{ChildEnd, LinkError, front_asks, opener},
    messages::FrontSetup,
    relay, sandbox,
};
use crate::{Service, gate::Gate, gsi::Gsi, session};

/// Octets of a certificate with its chain, or of a key.
const PEM_MAX: u64 = 1024 * 1024;

pub(super) fn run(link: Arc<ChildEnd>) -> Result<(), String> {
    let (setup, beside): (FrontSetup, _) = link.receive().map_err(|error| error.to_string())?;
    child::begin(setup.parent, setup.settings.log_json)?;
    let mut beside = beside.into_iter();
    let control = beside.next().ok_or(LinkError::Descriptors.to_string())?;
    let gsi = match setup.settings.gsi.as_ref() {
        Some(settings) => {
            let [certificate, key] = [beside.next(), beside.next()];
            let credential = credential(certificate, key)?;
            let path = settings.authorities.clone();
            let anchors = Directory::opened_by(path, opener(&link, front_asks));
            let gsi = Gsi::of_front(credential, Arc::new(anchors));
            // OpenSSL reads its settings now, and never again.
            gsi.acceptor().map_err(|error| error.to_string())?;
            Some(gsi)
        }
        None => None,
    };
    let runtime = child::runtime()?;
    let (phase, signals) = child::with_phases(&runtime)?;
    let protection = sandbox::confine_front(&setup.ids).map_err(|error| error.to_string())?;
    child::accept(&protection, setup.require_sandbox)?;

    // What the parent counts is not counted here again.
    let pass = Gate::new(setup.settings.bounds).admit(setup.peer.ip());
    let mut pass = pass.map_err(|why| why.to_string())?;
    pass.set_number(setup.session);
    let storage = Arc::new(NullStorage::new(0));
    let mut service = Service::on(storage, setup.settings, Arc::default(), gsi);
    service.parent = Some(link);
    runtime.block_on(async {
        let control = control_connection(control).map_err(|error| error.to_string())?;
        let work = async {
            let service = Arc::new(service);
            if let Some(entered) = session::meet(control, setup.peer, pass, service, phase).await {
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

fn control_connection(descriptor: OwnedFd) -> io::Result<tokio::net::TcpStream> {
    let socket = TcpStream::from(descriptor);
    socket.set_nonblocking(true)?;
    tokio::net::TcpStream::from_std(socket)
}

fn credential(certificate: Option<OwnedFd>, key: Option<OwnedFd>) -> Result<Credential, String> {
    let read = |descriptor: Option<OwnedFd>| {
        let descriptor = descriptor.ok_or(LinkError::Descriptors.to_string())?;
        let mut pem = Vec::new();
        let read = File::from(descriptor).take(PEM_MAX).read_to_end(&mut pem);
        read.map(|_| pem).map_err(|error| error.to_string())
    };
    let [certificate, key] = [read(certificate)?, read(key)?];
    Credential::from_pem(&certificate, &key, None).map_err(|error| error.to_string())
}

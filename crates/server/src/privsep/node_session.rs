//! The process of a session at a data node: files and data channels of one account.

use std::{
    net::SocketAddr,
    os::{fd::OwnedFd, unix::net::UnixStream as StdUnixStream},
    sync::Arc,
};

use godwit_engine::storage::PosixStorage;
use godwit_gsi::{ftps, verify::Directory};
use tokio::net::UnixStream;

use super::{
    child,
    link::{ChildEnd, LinkError, opener, session_asks},
    messages::{FromSession, NodeSessionSetup},
    sandbox,
};
use crate::{nodes::node::process::serve_session, service::Service};

pub(super) fn run(link: Arc<ChildEnd>) -> Result<(), String> {
    let (setup, beside): (NodeSessionSetup, _) =
        link.receive().map_err(|error| error.to_string())?;
    child::begin(setup.parent, setup.settings.log_json)?;
    let runtime = child::runtime()?;
    let (phase, signals) = child::with_phases(&runtime)?;
    godwit_engine::host::net::raise_fd_limit();
    // The sandbox takes it away afterwards.
    godwit_engine::host::net::usual_ports();
    let confined = sandbox::confine_session(&setup.ids, &setup.settings.root)
        .map_err(|error| error.to_string())
        .and_then(|protection| child::accept(&protection, setup.require_sandbox))
        .and_then(|()| PosixStorage::rooted(&setup.settings.root).map_err(|e| e.to_string()));
    let storage = match confined {
        Ok(storage) => storage,
        Err(why) => {
            let unable = FromSession::Unable { why: why.clone() };
            link.send(&unable).map_err(|error| error.to_string())?;
            return Err(why);
        }
    };
    let NodeSessionSetup {
        local,
        login,
        has_certificate,
        settings,
        ..
    } = setup;
    let storage = storage.with_direct_io(settings.direct_io);
    let users = settings.node.as_ref().and_then(|node| node.users.clone());
    let mut service = Service::on(Arc::new(storage), settings, Arc::default(), None);
    let mut beside = beside.into_iter();
    let socket: OwnedFd = beside.next().ok_or(LinkError::Descriptors.to_string())?;
    if has_certificate {
        let credential = child::credential(&mut beside)?;
        let server = ftps::Server::new(&credential, None).map_err(|error| error.to_string())?;
        service.tls = Some(server);
    }
    link.send(&FromSession::Ready)
        .map_err(|error| error.to_string())?;
    let anchors = users.map(|users| {
        let opener = opener(&link, session_asks);
        Arc::new(Directory::opened_by(users, opener)) as _
    });
    runtime.block_on(async {
        let stream = UnixStream::from_std(StdUnixStream::from(socket));
        let stream = stream.map_err(|error| error.to_string())?;
        let local: SocketAddr = local;
        tokio::select! {
            () = serve_session(stream, login, Arc::new(service), anchors, phase, local) => {}
            () = signals => {}
        }
        Ok(())
    })
}

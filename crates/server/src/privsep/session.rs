//! The process of an account: unprotected commands from the relay, files, data channels.

use std::{
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::Arc,
    time::Duration,
};

use godwit_engine::storage::PosixStorage;
use godwit_gsi::{cert::Credential, ftps, verify::Directory};
use tokio::time::timeout;

use super::{
    child,
    link::{ChildEnd, LinkError, opener, session_asks},
    messages::{FromSession, SessionSetup},
    relay, sandbox, turns,
};
use crate::{
    access::{
        admission::Admission,
        channel_quota::ChannelQuota,
        gsi::{DataContext, Gsi},
        identity::ControlProtection,
        security::Security,
        turns::Turns,
    },
    nodes::front::monitored::NodePool,
    observe::audit::Audit,
    service::Service,
    session::{self, Entered},
};

/// Time for a pre-login process to send the delegated credential.
const DELEGATED_LIMIT: Duration = Duration::from_secs(10);

pub(super) fn run(link: Arc<ChildEnd>) -> Result<(), String> {
    let (setup, beside): (SessionSetup, _) = link.receive().map_err(|error| error.to_string())?;
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
    let SessionSetup {
        session,
        peer,
        local,
        name,
        account,
        rights,
        channel,
        settings,
        ..
    } = setup;
    let authorities = settings.gsi.as_ref().map(|gsi| gsi.authorities.clone());
    let gsi = authorities.map(|path| {
        let anchors = Directory::opened_by(path, opener(&link, session_asks));
        Gsi::of_session(Arc::new(anchors))
    });
    let permit = Admission::new(settings.bounds).admit(peer.ip());
    let mut permit = permit.map_err(|why| why.to_string())?;
    permit.set_number(session);
    let audit = Arc::new(Audit::to_monitor(link.clone()));
    let storage = storage.with_direct_io(settings.direct_io);
    let (turns, requests) = Turns::of_monitor();
    let mut service = Service::on(Arc::new(storage), settings, audit, gsi);
    service.turns = turns;
    if service.settings.data_nodes.is_some() {
        service.nodes = Some(NodePool::monitored(link.clone()));
    }
    let mut beside = beside.into_iter();
    let mut descriptor = || beside.next().ok_or(LinkError::Descriptors.to_string());
    let (relay, granted) = (descriptor()?, descriptor()?);
    let quota = ChannelQuota::of_descriptors(&mut beside, service.settings.bounds);
    let quota = quota.ok_or(LinkError::Descriptors.to_string())?;
    let tls = match channel {
        ControlProtection::Tls => Some(tls_server(&mut beside)?),
        ControlProtection::Clear | ControlProtection::Gssapi => None,
    };
    link.send(&FromSession::Ready)
        .map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let mut relay = tokio::net::UnixStream::from_std(UnixStream::from(relay))
            .map_err(|error| error.to_string())?;
        let pem = timeout(DELEGATED_LIMIT, relay::read_delegated(&mut relay));
        let pem = pem
            .await
            .map_err(|_| "no credential arrives over the relay")?;
        let pem = pem.map_err(|error| format!("the relay broke: {error}"))?;
        let security = match tls {
            Some(server) => Security::handed_tls(server),
            None => Security::handed(delegated(&pem, service.gsi.as_deref())?),
        };
        let entered = Entered {
            name,
            account,
            rights,
            local,
            channel,
            security,
            quota,
        };
        let service = Arc::new(service);
        let serving = session::serve_after_login(relay, peer, permit, service, phase, entered);
        tokio::select! {
            () = serving => {}
            () = signals => {}
            Err(error) = turns::fetch(&link, granted, requests) => return Err(error.to_string()),
        }
        Ok(())
    })
}

/// Data channels have the server's certificate, as its control channel does.
fn tls_server(beside: &mut impl Iterator<Item = OwnedFd>) -> Result<ftps::Server, String> {
    let credential = child::credential(beside)?;
    ftps::Server::new(&credential, None).map_err(|error| error.to_string())
}

fn delegated(pem: &[u8], gsi: Option<&Gsi>) -> Result<Option<DataContext>, String> {
    let Some(gsi) = gsi.filter(|_| !pem.is_empty()) else {
        return Ok(None);
    };
    let credential = Credential::from_pem(pem, pem, None)
        .map_err(|error| format!("the delegated credential: {error}"))?;
    Ok(Some(DataContext {
        credential,
        anchors: gsi.anchors(),
    }))
}

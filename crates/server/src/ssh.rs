//! `godwitd --ssh`: one session over standard input and output, as the user of sshd.

use crate::access::owner::Owner;
use crate::privsep::sandbox;
use std::{
    io::{self, IsTerminal as _},
    path::Path,
    sync::Arc,
};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::{sleep, timeout},
};
use tracing::warn;

use crate::{
    access::admission::Admission,
    config::SshSettings,
    error::ServerError,
    listener::ABORT_LIMIT,
    service::Service,
    session::{self, Control, Phase},
};

/// Serves the session to its end. There must be no other thread yet. With a root other than `/` the
/// process gives up access to everything else.
pub fn serve(settings: SshSettings) -> Result<(), ServerError> {
    let failed = |doing: &'static str| move |error| ServerError::Ssh { doing, error };
    let SshSettings {
        mut server,
        peer,
        local,
        home,
    } = settings;
    if io::stdin().is_terminal() {
        let error = io::Error::other("it is a terminal: only sshd starts this, for a client");
        return Err(failed("use standard input")(error));
    }
    let root = server.root.canonicalize();
    server.root = root.map_err(failed("find the root directory"))?;
    let mut service = Service::new(server, Arc::default(), Arc::default())?;
    let settings = &service.settings;
    service.audit.open(settings)?;
    service.owner = Some(Owner::of_process(&home, &settings.root));
    if settings.root != Path::new("/") {
        let protection = sandbox::confine_to(&settings.root).map_err(io::Error::other);
        let protection = protection.map_err(failed("give up all but the root directory"))?;
        if !protection.is_complete() {
            warn!(%protection, "the kernel lacks some protection");
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed("start threads"))?;
    let ended = runtime.block_on(async {
        let control = Control::of_standard().map_err(failed("wait for standard input"))?;
        let mut terminate = signal(SignalKind::terminate()).map_err(failed("handle signals"))?;
        let permit = Admission::new(service.settings.bounds).admit(peer.ip());
        let permit = permit.map_err(|why| failed("begin")(io::Error::other(why.to_string())))?;
        let drain = service.settings.drain;
        let phase = watch::Sender::new(Phase::Serving);
        let session = session::serve_connection(
            control,
            peer,
            local,
            permit,
            Arc::new(service),
            phase.subscribe(),
        );
        tokio::pin!(session);
        tokio::select! {
            () = &mut session => return Ok(()),
            _ = terminate.recv() => {}
        }
        phase.send_replace(Phase::Draining);
        tokio::select! {
            () = &mut session => return Ok(()),
            _ = terminate.recv() => {}
            () = sleep(drain) => {}
        }
        phase.send_replace(Phase::Aborting);
        // Work that hangs on storage is abandoned.
        drop(timeout(ABORT_LIMIT, session).await);
        Ok(())
    });
    runtime.shutdown_background();
    ended
}

//! How child processes start: this program again, with nothing but the link to the monitor.

use std::{fs::File, future::Future, io::Read as _, os::fd::OwnedFd};

use godwit_gsi::cert::Credential;
use tokio::{
    runtime::Runtime,
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use tracing::{Level, warn};

use super::{link::LinkError, sandbox::Protection};
use crate::{observe::log, session::Phase};

/// Bytes of a certificate with its chain, or of a key.
const PEM_MAX: u64 = 1024 * 1024;

/// Checks that the monitor still runs: without it nothing would end this process.
pub(super) fn begin(parent: u32, log_json: bool) -> Result<(), String> {
    log::init(log_json, Level::INFO);
    let ours = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    match ours.map(u32::try_from) {
        Some(Ok(pid)) if pid == parent => Ok(()),
        _ => Err("the monitor has ended".to_owned()),
    }
}

/// Continues without full protection only if the settings allow it.
pub(super) fn accept(protection: &Protection, require: bool) -> Result<(), String> {
    match protection.is_complete() {
        true => Ok(()),
        false if require => Err(format!("--require-sandbox: {protection}")),
        false => {
            warn!(%protection, "the kernel lacks some protection");
            Ok(())
        }
    }
}

/// Reads the server's certificate and key from the descriptors of a setup message.
pub(super) fn credential(beside: &mut impl Iterator<Item = OwnedFd>) -> Result<Credential, String> {
    let mut read = || {
        let descriptor = beside.next().ok_or(LinkError::Descriptors.to_string())?;
        let mut pem = Vec::new();
        let read = File::from(descriptor).take(PEM_MAX).read_to_end(&mut pem);
        read.map(|_| pem).map_err(|error| error.to_string())
    };
    let [certificate, key] = [read()?, read()?];
    Credential::from_pem(&certificate, &key, None).map_err(|error| error.to_string())
}

/// Created before the sandbox takes system calls away, so that fewer are needed afterwards.
pub(super) fn runtime() -> Result<Runtime, String> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_name("control")
        .build()
        .map_err(|error| format!("cannot start threads: {error}"))
}

/// Runs `work` with the phases that SIGTERM causes: draining, then aborting. Within a runtime.
pub(super) fn with_phases(
    runtime: &Runtime,
) -> Result<(watch::Receiver<Phase>, impl Future<Output = ()> + use<>), String> {
    let _within = runtime.enter();
    let mut terminate = signal(SignalKind::terminate())
        .map_err(|error| format!("cannot handle signals: {error}"))?;
    // It is for the monitor, but a service manager may send it to all processes: without a handler
    // it would end this one.
    let asked = signal(SignalKind::user_defined1())
        .map_err(|error| format!("cannot handle signals: {error}"))?;
    let (sender, receiver) = watch::channel(Phase::Serving);
    let signals = async move {
        for phase in [Phase::Draining, Phase::Aborting] {
            if terminate.recv().await.is_some() {
                sender.send_replace(phase);
            }
        }
        std::future::pending::<()>().await;
        drop(asked);
    };
    Ok((receiver, signals))
}

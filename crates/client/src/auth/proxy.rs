//! `godwit proxy`: short-lived credentials, RFC 3820. Creates them from the user's certificate, and
//! describes them.

use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use godwit_engine::host::terminal::{self, SecretError};
use godwit_gsi::{
    cert::{
        Credential, CredentialError, ProxyKind, ProxyPolicy,
        credential::CredentialInfo,
        files::{self, Locations},
        proxy::{self, ProxyRequest},
    },
    verify::{Directory, Policy, Span, verify},
};
use serde::Serialize;

use crate::{
    error::{Error, Exit, Result},
    report::events::{Event, Observer},
    spec::{Proxy, ProxyInfo, ProxyInit},
};

/// Attempts of the user to enter the pass phrase.
const ATTEMPTS: usize = 3;

/// Runs to the end. May ask on the terminal, so nothing else should run.
///
/// # Errors
/// There is no proxy, or none can be created.
pub fn run(what: &Proxy, locations: &Locations, observer: &dyn Observer) -> Result<Exit> {
    let now = SystemTime::now();
    match what {
        Proxy::Init(spec) => init(spec, locations, observer, now).map(|()| Exit::Done),
        Proxy::Info(spec) => info(spec, locations, observer, now),
    }
}

fn init(
    spec: &ProxyInit,
    locations: &Locations,
    observer: &dyn Observer,
    now: SystemTime,
) -> Result<()> {
    let (certificate, key) = match &spec.pair {
        Some(pair) => pair,
        None => {
            let mut pairs = locations.user.iter();
            let found = pairs.find(|(certificate, _)| certificate.exists());
            found.or(locations.user.last()).ok_or_else(|| {
                failed(
                    "no certificate: name it with --cert and --key, or set X509_USER_CERT and \
                        X509_USER_KEY",
                )
            })?
        }
    };
    let issuer = load(certificate, key, spec.passphrase_on_stdin)?;
    let request = ProxyRequest {
        kind: if spec.legacy {
            ProxyKind::Legacy
        } else {
            ProxyKind::Rfc3820
        },
        policy: if spec.limited {
            ProxyPolicy::Limited
        } else {
            ProxyPolicy::Impersonation
        },
        path_length: spec.path_length,
        lifetime: spec.lifetime,
    };
    let made = proxy::create(&issuer, &request, spec.key, now).map_err(failed)?;
    let out = spec.out.as_deref().unwrap_or(&locations.proxy);
    let pem = made.to_pem().map_err(failed)?;
    files::write_private(out, &pem).map_err(failed)?;
    warn_unless_trusted(&made, locations, observer, now);

    let info = made.info();
    let left = info.not_after.duration_since(now).unwrap_or_default();
    observer.on_output(format!("{} for {}", info.kind, info.identity).as_bytes());
    observer.on_output(format!("{}: valid for {}", out.display(), Span(left)).as_bytes());
    Ok(())
}

/// An unusable proxy is better detected here than at a server.
fn warn_unless_trusted(
    made: &Credential,
    locations: &Locations,
    observer: &dyn Observer,
    now: SystemTime,
) {
    let Some(authorities) = locations.authority_directory() else {
        return;
    };
    let mut chain = vec![made.certificate().clone()];
    chain.extend_from_slice(made.chain());
    let anchors = Directory::new(authorities.to_owned());
    if let Err(refusal) = verify(&chain, &anchors, &Policy::default(), now) {
        observer.on_event(&Event::Warning {
            text: format!(
                "who trusts what {} trusts will refuse this proxy: {refusal}",
                authorities.display()
            ),
        });
    }
}

/// The user's credential; asks for the pass phrase of an encrypted key.
fn load(certificate: &Path, key: &Path, on_stdin: bool) -> Result<Credential> {
    if on_stdin {
        let phrase = terminal::from_reader(std::io::stdin().lock())?;
        return files::load_pair(certificate, key, Some(phrase.reveal())).map_err(failed);
    }
    let mut outcome = files::load_pair(certificate, key, None);
    for _ in 0..ATTEMPTS {
        match &outcome {
            Err(error) if is_locked(error) => {}
            _ => break,
        }
        let prompt = format!("Pass phrase of {}: ", key.display());
        let phrase = terminal::from_terminal(&prompt)?;
        outcome = files::load_pair(certificate, key, Some(phrase.reveal()));
    }
    outcome.map_err(failed)
}

fn is_locked(error: &CredentialError) -> bool {
    match error {
        CredentialError::In { fault, .. } => is_locked(fault),
        error => matches!(error, CredentialError::Passphrase),
    }
}

/// The output for programs.
#[derive(Serialize)]
struct ProxyReport<'a> {
    subject: &'a str,
    issuer: &'a str,
    identity: &'a str,
    kind: &'a str,
    key: &'a str,
    path: PathBuf,
    /// 0 after the end.
    seconds_left: u64,
}

fn info(
    spec: &ProxyInfo,
    locations: &Locations,
    observer: &dyn Observer,
    now: SystemTime,
) -> Result<Exit> {
    let path = spec.file.as_deref().unwrap_or(&locations.proxy);
    let info = files::load_proxy(path).map_err(unusable)?.info();
    let left = info.not_after.duration_since(now);
    for line in shown(spec, path, &info, left.as_ref().copied().ok(), now) {
        observer.on_output(line.as_bytes());
    }
    let needed = spec.valid_for.unwrap_or_default();
    Ok(match left {
        Ok(left) if left >= needed && !left.is_zero() => Exit::Done,
        _ => Exit::Refused,
    })
}

fn shown(
    spec: &ProxyInfo,
    path: &Path,
    info: &CredentialInfo,
    left: Option<Duration>,
    now: SystemTime,
) -> Vec<String> {
    if spec.json {
        let report = ProxyReport {
            subject: info.subject.as_str(),
            issuer: info.issuer.as_str(),
            identity: info.identity.as_str(),
            kind: &info.kind,
            key: &info.key,
            path: path.to_owned(),
            seconds_left: left.map_or(0, |left| left.as_secs()),
        };
        return serde_json::to_string(&report).into_iter().collect();
    }
    let time = match left {
        Some(left) => {
            let seconds = left.as_secs();
            let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
            format!("{hours}:{minutes:02}:{:02}", seconds % 60)
        }
        None => {
            let ago = now.duration_since(info.not_after).unwrap_or_default();
            format!("none: expired {} ago: run `godwit proxy init`", Span(ago))
        }
    };
    vec![
        format!("subject   : {}", info.subject),
        format!("issuer    : {}", info.issuer),
        format!("identity  : {}", info.identity),
        format!("kind      : {}", info.kind),
        format!("key       : {}", info.key),
        format!("path      : {}", path.display()),
        format!("time left : {time}"),
    ]
}

fn failed(reason: impl ToString) -> Error {
    Error::Identity {
        doing: "make a proxy".to_owned(),
        reason: reason.to_string(),
    }
}

fn unusable(reason: CredentialError) -> Error {
    Error::Identity {
        doing: "tell of a proxy".to_owned(),
        reason: reason.to_string(),
    }
}

impl From<SecretError> for Error {
    fn from(why: SecretError) -> Self {
        match why {
            SecretError::Interrupted => Self::Interrupted,
            why @ SecretError::NoTerminal => failed(format!("{why}: use --passphrase-stdin")),
            why => failed(why),
        }
    }
}

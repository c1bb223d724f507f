//! Who may have a session, and how it begins.

use std::{
    fs::File,
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
    time::Duration,
};

use godwit_gsi::name::DistinguishedName;
use godwit_proto::FtpPath;
use tokio::{task::spawn_blocking, time::timeout};
use tracing::{info, warn};

use super::{Connection, ConnectionError};
use crate::{
    access::{
        accounts::SystemAccount,
        channel_quota::ChannelQuota,
        identity::{Actor, Admitted, ControlProtection, LoginRequest, Method},
        limits::sharing_as,
    },
    login,
    nodes::{front::pool::NodeLogin, messages::NodeAccount},
    observe::{
        class::Class,
        event::{Entry, What, cut},
    },
    privsep::{
        Role,
        link::relay_pair,
        messages::{FromSession, SessionSetup, checked_name},
        process::Process,
        turns::TurnGrants,
    },
};

/// Time for a session to take on its account and to open the root.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// Why a connection that waits is sent away.
const OTHERS: &str = "others want to log in";

/// Why a login fails, for who counts and for the client.
type Refused = (Class, String);

impl Connection {
    /// Starts the session of who may log in; else says why not, for the client.
    pub(super) async fn log_in(
        &mut self,
        mut caller: LoginRequest,
    ) -> Result<Result<(Process, OwnedFd, TurnGrants), String>, ConnectionError> {
        caller.disbelief = caller.disbelief.map(cut);
        let user = checked_name(&caller.user)?.to_owned();
        let identity = caller.identity.as_ref().map(DistinguishedName::as_str);
        identity.map(checked_name).transpose()?;
        self.identity = identity.map(str::to_owned);
        let peer = self.peer;
        let entry = Entry::new(What::Login).to(&user);
        match self.try_log_in(caller).await? {
            Ok((session, relay, turns, method)) => {
                let account = self.account.as_deref().unwrap_or_default();
                info!(session = self.permit.number(), %peer, ?user, account, "login");
                self.record(&entry.by(method));
                Ok(Ok((session, relay, turns)))
            }
            Err((class, why)) => {
                warn!(session = self.permit.number(), %peer, ?user, ?why, "login refused");
                self.record(&entry.class(Some(class)).ended(Some(&why)));
                Ok(Err(why))
            }
        }
    }

    async fn try_log_in(
        &mut self,
        caller: LoginRequest,
    ) -> Result<Result<(Process, OwnedFd, TurnGrants, Method), Refused>, ConnectionError> {
        let costly = login::is_costly(&self.service.settings, &caller);
        let turn = self.permit.attempt(costly);
        let attempt = tokio::select! {
            turn = turn => turn.map_err(|why| (Class::Pause, why.to_string())),
            () = self.permit.evicted() => Err((Class::Sessions, OTHERS.to_owned())),
        };
        let mut attempt = match attempt {
            Ok(attempt) => attempt,
            Err(why) => return Ok(Err(why)),
        };
        let channel = caller.channel;
        let (service, accounts) = (Arc::clone(&self.service), Arc::clone(&self.accounts));
        // Reads the gridmap file and its like, verifies, and asks the system's directory of
        // accounts.
        let admitted = spawn_blocking(move || {
            let admitted = login::admit(&service, &caller)
                .map_err(|failure| (Class::Credentials, failure.text))?;
            attempt.verified();
            let system = accounts.of(&admitted.actor);
            let system = system.map_err(|why| (Class::Account, why.to_string()))?;
            attempt.succeeded(admitted.is_proven());
            Ok((admitted, system))
        });
        let admitted = admitted.await.unwrap_or_else(|_| {
            Err((
                Class::Account,
                "internal error, see the server's log".into(),
            ))
        });
        let (admitted, system) = match admitted {
            Ok(found) => found,
            Err(why) => return Ok(Err(why)),
        };
        let name = admitted.name.clone();
        let method = admitted.method;
        let (relay, other) = relay_pair()?;
        self.node_login = Some(NodeLogin {
            user: name.to_string(),
            session: self.permit.number(),
            client: self.peer.ip().to_canonical(),
            rights: admitted.rights.clone(),
            durability: self.service.settings.durability,
            ftps: matches!(channel, ControlProtection::Tls),
            account: Some(NodeAccount {
                name: system.name.clone(),
                ids: system.ids.clone(),
            }),
        });
        let setup = self.session_setup(admitted, system, channel);
        let quota = match self.permit.quota(&name) {
            Ok(quota) => quota,
            Err(why) => return Ok(Err((Class::Sessions, why.to_string()))),
        };
        let turns = self.service.turns.of(&sharing_as(&name, self.peer.ip()));
        let (turns, granted) = TurnGrants::new(turns)?;
        let beside = [other, granted];
        let session = match self.start_session(setup, &beside, &quota).await? {
            Ok(session) => session,
            Err(why) => return Ok(Err((Class::Account, why))),
        };
        if let Err(why) = self.permit.logged_in(&name) {
            return Ok(Err((Class::Sessions, why.to_string())));
        }
        self.quota = Some(quota);
        self.account = Some(name.to_string());
        Ok(Ok((session, relay, turns, method)))
    }

    fn session_setup(
        &self,
        admitted: Admitted,
        system: SystemAccount,
        channel: ControlProtection,
    ) -> SessionSetup {
        let settings = &self.service.settings;
        let Admitted {
            name,
            mut account,
            rights,
            actor,
            method: _,
        } = admitted;
        // Who is kept to no other place begins at home.
        if let (Actor::Account(_), None) = (actor, &rights)
            && let Ok(home) = FtpPath::new(system.home_beneath(&settings.root))
        {
            account.home = home;
        }
        SessionSetup {
            parent: std::process::id(),
            session: self.permit.number(),
            peer: self.peer,
            local: self.local,
            ids: system.ids,
            require_sandbox: self.accounts.require_sandbox,
            name: name.to_string(),
            account,
            rights,
            channel,
            settings: settings.clone(),
        }
    }

    async fn start_session(
        &self,
        setup: SessionSetup,
        beside: &[OwnedFd],
        quota: &ChannelQuota,
    ) -> Result<Result<Process, String>, ConnectionError> {
        let session = Process::start(Role::Session).map_err(ConnectionError::Start)?;
        let host = match setup.channel {
            ControlProtection::Tls => self.host()?,
            ControlProtection::Clear | ControlProtection::Gssapi => Vec::new(),
        };
        let mut beside: Vec<_> = beside.iter().map(OwnedFd::as_fd).collect();
        beside.extend(quota.descriptors());
        beside.extend(host.iter().map(File::as_fd));
        session.link.send(&setup, &beside).await?;
        let account = setup.name;
        let ready = tokio::select! {
            ready = timeout(READY_LIMIT, session.link.receive()) => ready,
            () = self.permit.evicted() => return Ok(Err(OTHERS.to_owned())),
        };
        match ready {
            Ok(Ok(FromSession::Ready)) => Ok(Ok(session)),
            Ok(Ok(FromSession::Unable { why })) => {
                warn!(
                    session = self.permit.number(),
                    ?account,
                    ?why,
                    "no session for this account"
                );
                Ok(Err(format!(
                    "The files of {account} cannot be served: {why}"
                )))
            }
            Ok(Ok(_)) => Err(ConnectionError::Session),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Ok(Err("The session does not begin".to_owned())),
        }
    }
}

//! Who may have a session, and how it begins.

use std::{
    os::fd::{AsFd as _, OwnedFd},
    time::Duration,
};

use godwit_gsi::name::DistinguishedName;
use rustix::io::Errno;
use tokio::{task::spawn_blocking, time::timeout};
use tracing::{info, warn};

use super::{Connection, Trouble};
use crate::{
    audit::{Entry, What},
    login,
    privsep::{
        Role,
        accounts::SystemAccount,
        link::relay_pair,
        messages::{FromSession, SessionSetup, checked_name},
        process::Process,
    },
};

/// Time for a session to take on its account and to open the root.
const READY_LIMIT: Duration = Duration::from_secs(30);

impl Connection {
    /// Starts the session of who may log in; else says why not, for the client.
    pub(super) async fn log_in(
        &mut self,
        user: String,
        identity: Option<String>,
    ) -> Result<Result<(Process, OwnedFd), String>, Trouble> {
        checked_name(&user)?;
        identity.as_deref().map(checked_name).transpose()?;
        self.identity = identity.clone();
        let peer = self.peer;
        let entered = self.try_log_in(&user, identity).await?;
        let entry = Entry::new(What::Login).to(&user);
        match &entered {
            Ok(_) => {
                let account = self.account.as_deref().unwrap_or_default();
                info!(session = self.pass.number(), %peer, ?user, account, "login");
                self.record(&entry);
            }
            Err(why) => {
                warn!(session = self.pass.number(), %peer, ?user, ?why, "login refused");
                self.record(&entry.ended(Some(why)));
            }
        }
        Ok(entered)
    }

    async fn try_log_in(
        &mut self,
        user: &str,
        identity: Option<String>,
    ) -> Result<Result<(Process, OwnedFd), String>, Trouble> {
        if let Err(why) = self.pass.may_try() {
            return Ok(Err(why.to_string()));
        }
        let proven = identity.is_some();
        let (name, system) = match self.account_of(user, identity).await {
            Ok(found) => found,
            Err(why) => {
                self.pass.failed();
                return Ok(Err(why));
            }
        };
        let (relay, other) = relay_pair()?;
        let session = match self
            .start_session(user, &name, &system, proven, other)
            .await?
        {
            Ok(session) => session,
            Err(why) => return Ok(Err(why)),
        };
        if let Err(why) = self.pass.logged_in(&name) {
            return Ok(Err(why.to_string()));
        }
        self.account = Some(name);
        Ok(Ok((session, relay)))
    }

    /// The account's name, for the log, and what it is to the system.
    async fn account_of(
        &self,
        user: &str,
        identity: Option<String>,
    ) -> Result<(String, SystemAccount), String> {
        let Some(identity) = identity else {
            // Whoever has proven nothing is anonymous.
            if !login::is_welcome(&self.service.settings, user) {
                return Err(crate::failure(Errno::ACCESS, "log in").text);
            }
            return Ok((user.to_owned(), self.accounts.anonymous.clone()));
        };
        let gsi = self.service.gsi.clone().ok_or("no identity counts here")?;
        let (user, name) = (user.to_owned(), identity);
        // Reads the gridmap file, and asks the system's directory of accounts.
        let found = spawn_blocking(move || {
            let identity =
                DistinguishedName::parse(&name).ok_or("that is no distinguished name")?;
            let account = gsi.account(&identity, &user);
            let account = account.map_err(|failure| failure.text)?;
            let system = SystemAccount::find(&account).map_err(|why| why.to_string())?;
            Ok((account, system))
        });
        found
            .await
            .unwrap_or_else(|_| Err("internal error, see the server's log".to_owned()))
    }

    async fn start_session(
        &mut self,
        user: &str,
        account: &str,
        system: &SystemAccount,
        proven: bool,
        relay: OwnedFd,
    ) -> Result<Result<Process, String>, Trouble> {
        let session = Process::start(Role::Session).map_err(Trouble::Start)?;
        let settings = &self.service.settings;
        let setup = SessionSetup {
            parent: std::process::id(),
            session: self.pass.number(),
            peer: self.peer,
            local: self.local,
            ids: system.ids.clone(),
            require_sandbox: self.accounts.require_sandbox,
            user: user.to_owned(),
            account: account.to_owned(),
            home: match proven {
                true => system.home_beneath(&settings.root),
                false => "/".to_owned(),
            },
            proven,
            settings: settings.clone(),
        };
        session.link.send(&setup, &[relay.as_fd()]).await?;
        let ready = tokio::select! {
            ready = timeout(READY_LIMIT, session.link.receive()) => ready,
            () = self.pass.must_go() => return Ok(Err("others want to log in".to_owned())),
        };
        match ready {
            Ok(Ok(FromSession::Ready)) => Ok(Ok(session)),
            Ok(Ok(FromSession::Unable { why })) => {
                warn!(
                    session = self.pass.number(),
                    ?account,
                    ?why,
                    "no session for this account"
                );
                Ok(Err(format!(
                    "The files of {account} cannot be served: {why}"
                )))
            }
            Ok(Ok(_)) => Err(Trouble::Session),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Ok(Err("The session does not begin".to_owned())),
        }
    }
}

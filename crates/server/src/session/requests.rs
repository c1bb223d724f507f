//! The interpreter's requests, which are not transfers.

use std::{future::ready, sync::Arc};

use godwit_proto::{
    error::StorageFailure,
    pi::server::{Input, Outcome, Request},
};
use rustix::io::Errno;
use tracing::debug;

use super::{Session, session_log::change_of};
use crate::{
    access::{
        gsi::refusal,
        identity::{Admitted, LoginRequest, Principal},
        limits::sharing_as,
        security,
    },
    login,
    nodes::front::stripes::Wanted,
    observe::class::Class,
    requests::{Answer, PendingRequest},
    storage::failure,
};

impl Session {
    pub(super) fn carry_out_request(&mut self, request: Request) {
        debug!(session = self.log.id, request = ?request, "request");
        let settings = &self.service.settings;
        let result = match request {
            Request::Adat { token, first } => {
                let Some(gsi) = self.service.gsi.clone() else {
                    let refused = failure(Errno::OPNOTSUPP, "authenticate");
                    return self.input(Input::Done(Err(refused)));
                };
                if let Err(why) = self.permit.may_try() {
                    return self.input(Input::Done(Err(refusal(&why.to_string()))));
                }
                let context = self.io.security.take_context(first);
                let permits = &self.service.logins;
                self.work.request = Some(PendingRequest::of_login(permits, ready(()), move |()| {
                    Answer::Handshake(Box::new(security::shake_hands(&gsi, context, &token)))
                }));
                return;
            }
            Request::StartTls => {
                let allowed = self
                    .permit
                    .may_try()
                    .map_err(|why| refusal(&why.to_string()));
                allowed
                    .and_then(|()| self.io.security.prepare_tls(self.service.tls.as_ref()))
                    .map(|()| Outcome::Done)
            }
            Request::DataContext(token) => {
                let chosen = self
                    .io
                    .security
                    .choose(self.service.gsi.as_deref(), token.as_ref());
                chosen.map(|()| Outcome::Done)
            }
            Request::Login { user, password } => {
                let caller = LoginRequest {
                    user,
                    password,
                    identity: self.io.security.identity().cloned(),
                    disbelief: self.io.security.disbelief().map(str::to_owned),
                    channel: self.io.security.channel(),
                };
                if let Some(monitor) = &self.service.monitor {
                    let monitor = Arc::clone(monitor);
                    self.handover.is_deciding = true;
                    let permits = &self.service.logins;
                    self.work.request =
                        Some(PendingRequest::of_login(permits, ready(()), move |()| {
                            Answer::Entered(monitor.log_in(Box::new(caller)))
                        }));
                    return;
                }
                let turn = self.permit.attempt(login::is_costly(settings, &caller));
                let service = Arc::clone(&self.service);
                let permits = &self.service.logins;
                self.work.request = Some(PendingRequest::of_login(permits, turn, move |turn| {
                    Answer::Login {
                        admitted: login::attempt(&service, &caller, turn),
                        user: caller.user,
                    }
                }));
                return;
            }
            Request::WhoAmI => Ok(Outcome::Text(self.log.user.clone().unwrap_or_default())),
            Request::Listen(spec, family) if self.work.channels.on_nodes() => {
                match self.make_stripes(Wanted::Listen(spec, family)) {
                    Ok(()) => return,
                    Err(failure) => Err(failure),
                }
            }
            Request::ConnectTo(spec, peers) if self.work.channels.on_nodes() => {
                match self.make_stripes(Wanted::ConnectTo(spec, peers)) {
                    Ok(()) => return,
                    Err(failure) => Err(failure),
                }
            }
            Request::Listen(spec, family) => {
                let hosts = (self.local.ip(), self.log.peer.ip());
                let guard = self.io.security.guard(&spec, self.log.peer.ip());
                let plan = guard.and_then(|guard| {
                    self.work
                        .channels
                        .plan_listen(spec, guard, family, hosts, settings)
                });
                match plan {
                    Ok(plan) => {
                        self.work.request = Some(PendingRequest::listen(plan));
                        return;
                    }
                    Err(failure) => Err(failure),
                }
            }
            Request::ConnectTo(spec, peers) => {
                let hosts = (self.local.ip(), self.log.peer.ip());
                let guard = self.io.security.guard(&spec, self.log.peer.ip());
                guard
                    .and_then(|guard| {
                        self.work
                            .channels
                            .connect_to(&spec, guard, peers, hosts, settings)
                    })
                    .map(|()| Outcome::Done)
            }
            other => {
                self.log.change = change_of(&other);
                return self.work.start_request(other);
            }
        };
        self.input(Input::Done(result));
    }

    /// Lets data nodes listen, or note whom to connect to.
    fn make_stripes(&mut self, wanted: Wanted) -> Result<(), StorageFailure> {
        let user = self.log.user.as_deref().unwrap_or_default();
        let security = self.io.security.for_nodes(wanted.spec())?;
        if let Some(nodes) = self.work.channels.nodes_mut() {
            let made = nodes.make(user, self.log.id, self.log.peer, security, wanted);
            self.work.request = Some(PendingRequest::of_stripes(made));
        }
        Ok(())
    }

    /// Finishes a login.
    pub(super) fn decide(
        &mut self,
        user: &str,
        admitted: Result<Box<Admitted>, (Class, StorageFailure)>,
    ) -> Result<Outcome, StorageFailure> {
        let entered = admitted.and_then(|admitted| {
            let entered = self.enters(&admitted.name);
            entered.map_err(|why| (Class::Sessions, why))?;
            Ok(admitted)
        });
        let outcome = entered.as_ref().map(|admitted| admitted.method);
        self.record(
            self.log
                .login(user, outcome.map_err(|(class, why)| (*class, why))),
        );
        let Admitted {
            name,
            account,
            rights,
            ..
        } = *entered.map_err(|(_, why)| why)?;
        let name = name.to_string();
        if let Some(rights) = rights {
            self.work.confine_to_rights(rights, &name, &self.service);
        }
        Ok(Outcome::Account { name, account })
    }

    /// Logs in to `account`, unless it has too many sessions.
    pub(super) fn enters(&mut self, account: &Principal) -> Result<(), StorageFailure> {
        let entered = self.permit.quota(account).and_then(|quota| {
            self.permit.logged_in(account)?;
            Ok(quota)
        });
        let quota = entered.map_err(|why| refusal(&why.to_string()))?;
        let turns = self
            .service
            .turns
            .of(&sharing_as(account, self.log.peer.ip()));
        self.work.admit(quota, turns);
        self.log.user = Some(account.to_string());
        Ok(())
    }
}

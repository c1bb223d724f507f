//! What the interpreter asks for that is no transfer.

use std::{sync::Arc, time::Instant};

use godwit_proto::{
    error::StorageFailure,
    pi::server::{Input, Outcome, Request},
};
use rustix::io::Errno;
use tracing::{debug, info, warn};

use super::Session;
use crate::{
    failure, login,
    requests::{Answer, PendingRequest},
    security,
};

impl Session {
    pub(super) fn carry_out_request(&mut self, request: Request) {
        debug!(session = self.id, request = ?request, "request");
        let settings = &self.service.settings;
        let result = match request {
            Request::Adat { token, first } => {
                let Some(gsi) = self.service.gsi.clone() else {
                    let refused = failure(Errno::OPNOTSUPP, "prove an identity");
                    return self
                        .pi
                        .handle_input(Instant::now(), Input::Done(Err(refused)));
                };
                let context = self.security.take_context(first);
                self.request = Some(PendingRequest::of(move || {
                    Answer::Handshake(Box::new(security::shake_hands(&gsi, context, &token)))
                }));
                return;
            }
            Request::DataContext(token) => {
                let chosen = self
                    .security
                    .choose(self.service.gsi.as_deref(), token.as_ref());
                chosen.map(|()| Outcome::Done)
            }
            Request::Login { user, password } => {
                // Whoever has an identity is nobody else, and not anonymous.
                if let (Some(identity), Some(gsi)) = (self.security.identity(), &self.service.gsi) {
                    let (identity, gsi) = (identity.clone(), Arc::clone(gsi));
                    self.request = Some(PendingRequest::of(move || Answer::Login {
                        account: gsi.account(&identity, &user),
                        user,
                    }));
                    return;
                }
                let result = login::check(settings, &user, &password);
                self.log_login(&user, &result);
                result.map(|account| {
                    self.user = Some(user);
                    Outcome::Account(account)
                })
            }
            Request::WhoAmI => Ok(Outcome::Text(self.user.clone().unwrap_or_default())),
            Request::Listen(spec, family) => {
                let local = self.local.ip();
                let plan = self.security.guard(&spec).and_then(|guard| {
                    self.channels
                        .plan_listen(spec, guard, family, local, settings)
                });
                match plan {
                    Ok(plan) => {
                        self.request = Some(PendingRequest::listen(plan));
                        return;
                    }
                    Err(failure) => Err(failure),
                }
            }
            Request::ConnectTo(spec, peers) => self
                .security
                .guard(&spec)
                .and_then(|guard| self.channels.connect_to(&spec, guard, peers, settings))
                .map(|()| Outcome::Done),
            other => {
                match self.foreseen.ask(&other) {
                    Some(begun) => self.request = Some(begun),
                    None => self.begin_request(other),
                }
                return;
            }
        };
        self.pi.handle_input(Instant::now(), Input::Done(result));
    }

    /// Begins what only touches storage.
    pub(super) fn begin_request(&mut self, request: Request) {
        self.request = Some(PendingRequest::start(
            request,
            &self.service.committer,
            &self.service.checksums,
        ));
    }

    pub(super) fn log_login<T>(&self, user: &str, result: &Result<T, StorageFailure>) {
        if result.is_ok() {
            info!(session = self.id, peer = %self.peer, user = ?user, "login");
        } else {
            warn!(session = self.id, peer = %self.peer, user = ?user, "login refused");
        }
    }
}

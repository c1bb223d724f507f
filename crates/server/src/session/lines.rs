//! Bytes of the control connection, protected or not.

use std::future::ready;

use godwit_engine::control::protection::Received;
use godwit_proto::pi::server::Input;
use tracing::{error, info, warn};

use super::Session;
use crate::{
    access::{
        identity::ControlProtection,
        security::{self, TlsProgress, TlsStep},
    },
    requests::{Answer, PendingRequest},
};

impl Session {
    pub(super) fn receive(&mut self, bytes: &[u8]) {
        if let Some(handshake) = self.io.security.take_handshake() {
            let bytes = bytes.to_vec();
            let permits = &self.service.logins;
            self.work.request = Some(PendingRequest::of_login(permits, ready(()), move |()| {
                Answer::Tls(Box::new(security::receive_tls(handshake, &bytes)))
            }));
            return;
        }
        let Some(opened) = self.io.security.open(bytes) else {
            return self.take_commands(bytes);
        };
        match opened {
            Ok(received) => {
                for one in received {
                    match one {
                        Received::Commands(lines) => {
                            self.take_commands(&lines);
                        }
                        // The session's reply must be the next one.
                        Received::Unprotected if self.handover.is_deciding => {
                            self.input(Input::Unreadable);
                        }
                        Received::Unprotected => self.input(Input::Unprotected),
                        Received::Telnet(answer) => self.io.push(&answer),
                        Received::Closed => self.input(Input::Closed),
                    }
                }
            }
            Err(error) => {
                let (session, peer) = (self.log.id, self.log.peer);
                warn!(session, %peer, %error, "cannot unprotect commands");
                match self.io.security.channel() {
                    // Nothing can be sealed on a broken stream.
                    ControlProtection::Tls => self.give_up(),
                    ControlProtection::Gssapi | ControlProtection::Clear => {
                        self.input(Input::Unreadable)
                    }
                }
            }
        }
    }

    fn take_commands(&mut self, bytes: &[u8]) {
        match self.service.monitor {
            Some(_) => self.receive_lines(bytes),
            None => self.input(Input::Bytes(bytes)),
        }
    }

    pub(super) fn push_replies(&mut self, replies: Vec<u8>) {
        if let Err(error) = self.io.push_replies(replies) {
            // A reply is lost, so every further one would answer the wrong command.
            let (session, peer) = (self.log.id, self.log.peer);
            error!(session, %peer, %error, "a reply cannot be protected");
            self.give_up();
        }
    }

    /// Ends the session without another reply.
    fn give_up(&mut self) {
        self.input(Input::Closed);
        self.closing = true;
        self.stop_work();
    }

    /// A step of a handshake of TLS is made.
    pub(super) fn on_tls(&mut self, mut step: TlsStep) {
        self.io.push(&std::mem::take(&mut step.output));
        match self.io.security.keep_tls(step) {
            TlsProgress::More => {}
            TlsProgress::Established { how, rest } => {
                let identity = self.io.security.identity().map(ToString::to_string);
                let disbelief = self.io.security.disbelief();
                let (session, peer) = (self.log.id, self.log.peer);
                info!(session, %peer, tls = how, ?identity, disbelief, "TLS established");
                self.receive(&rest);
            }
            TlsProgress::Failed(error) => {
                warn!(session = self.log.id, peer = %self.log.peer, error, "TLS handshake failed");
                self.give_up();
            }
        }
    }

    pub(super) fn protect(&mut self) {
        let identity = self.io.security.identity().map(ToString::to_string);
        match self.io.security.protect() {
            // The handshake is still to come.
            Some(None) => {}
            Some(Some(tls)) => {
                let (session, peer) = (self.log.id, self.log.peer);
                info!(session, %peer, ?identity, tls, "client is authenticated");
            }
            None => {
                error!(
                    session = self.log.id,
                    "protection starts without a handshake"
                );
                self.closing = true;
            }
        }
    }
}

//! Octets of the control connection, protected or not.

use std::time::Instant;

use godwit_engine::control::protection::Received;
use godwit_proto::pi::server::Input;
use tracing::{error, info, warn};

use super::Session;

impl Session {
    pub(super) fn hear(&mut self, octets: &[u8]) {
        let now = Instant::now();
        let Some(opened) = self.security.open(octets) else {
            return self.take_commands(octets);
        };
        match opened {
            Ok(received) => {
                for one in received {
                    match one {
                        Received::Commands(lines) => {
                            self.take_commands(&lines);
                        }
                        // Its reply would come behind the session's.
                        Received::Unprotected if self.entering => {
                            self.pi.handle_input(now, Input::Unreadable);
                        }
                        Received::Unprotected => self.pi.handle_input(now, Input::Unprotected),
                        Received::Telnet(answer) => self.outbox.push(answer.to_vec()),
                    }
                }
            }
            Err(error) => {
                warn!(session = self.id, peer = %self.peer, %error, "protection broke");
                self.pi.handle_input(now, Input::Unreadable);
            }
        }
    }

    fn take_commands(&mut self, octets: &[u8]) {
        match self.service.parent {
            Some(_) => self.hear_lines(octets),
            None => self.pi.handle_input(Instant::now(), Input::Octets(octets)),
        }
    }

    pub(super) fn say(&mut self, replies: Vec<u8>) {
        match self.security.seal(replies) {
            Ok(octets) => self.outbox.push(octets),
            Err(error) => {
                // A reply is lost, so every further one would answer the wrong command.
                error!(session = self.id, peer = %self.peer, %error, "a reply cannot be protected");
                self.closing = true;
                self.stop_work();
            }
        }
    }

    pub(super) fn protect(&mut self) {
        let identity = self.security.identity().map(ToString::to_string);
        match self.security.protect() {
            Some(tls) => {
                info!(session = self.id, peer = %self.peer, identity = ?identity, tls, "client has proven who it is");
            }
            None => {
                error!(session = self.id, "protection begins without an agreement");
                self.closing = true;
            }
        }
    }
}

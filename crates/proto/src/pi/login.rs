//! The opening dialogue of a client: USER, PASS, FEAT, SITE CLIENTINFO, TYPE I.

use crate::{
    command::{Command, Password},
    feature::Features,
    reply::Reply,
};

/// Who logs in.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Account; `anonymous` by default.
    pub user: String,
    /// Password; for anonymous an e-mail-like word.
    pub password: Password,
}

/// The dialogue: hand each final reply in, send the command that comes out.
#[derive(Debug)]
pub struct Login {
    _todo: (),
}

/// What to do next.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Send this and hand its final reply in.
    Send(Command),
    /// Logged in; this is what the server can do.
    Done(Box<Features>),
    /// Refused: the reply that said so and what it answered.
    Refused {
        /// Verb or `greeting`.
        command: &'static str,
        /// The reply.
        reply: Reply,
    },
}

impl Login {
    /// `client_info` is the argument of SITE CLIENTINFO.
    pub fn new(credentials: Credentials, client_info: String) -> Self {
        let _ = (credentials, client_info);
        Self { _todo: () }
    }
    /// Takes the greeting, then each final reply. PASS is sent even where USER got 230 (servers expect it);
    /// failures of FEAT and CLIENTINFO are tolerated.
    pub fn handle_reply(&mut self, reply: &Reply) -> Step {
        let _ = reply;
        todo!()
    }
}

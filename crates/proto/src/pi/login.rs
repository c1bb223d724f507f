//! The opening dialogue of a client: USER, PASS, FEAT, SITE CLIENTINFO, TYPE I.
//!
//! ```text
//!   greeting ─► USER ─► PASS ─► FEAT ─► SITE CLIENTINFO ─► TYPE I ─► Done
//!       │        │       │    (5xx: no features) (5xx: fine)  │
//!       └────────┴───────┴───────────── Refused ──────────────┘
//! ```
//!
//! What depends on no answer goes together: the last three, and all five where the password is no
//! secret. A login far away costs two round trips then, or one.

use crate::{
    command::{Command, Password, TypeCode},
    feature::Features,
    reply::Reply,
    site::Site,
};

/// Who logs in.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Account; `anonymous` by default.
    pub user: String,
    /// Password; for anonymous an e-mail-like word.
    pub password: Password,
    /// Whether the password proves anything. Where it does not, it need not wait until the server
    /// asks for it.
    pub secret: bool,
}

/// The dialogue: hand each final reply in, send the commands that come out.
#[derive(Debug)]
pub struct Login {
    credentials: Credentials,
    client_info: String,
    expect: Expect,
}

/// Which reply comes next.
#[derive(Debug)]
enum Expect {
    Greeting,
    User,
    Pass { logged_in: bool },
    Feat,
    ClientInfo(Box<Features>),
    Type(Box<Features>),
}

/// What to do next.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Send these, in order, and hand the final reply to each in.
    Send(Vec<Command>),
    /// Replies to what was sent are still due.
    Wait,
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
        Self {
            credentials,
            client_info,
            expect: Expect::Greeting,
        }
    }

    /// Takes the greeting, then each final reply. PASS is sent even where USER got 230 (servers
    /// expect it); failures of FEAT and CLIENTINFO are tolerated. After `Done` or `Refused` nothing
    /// more is of interest.
    pub fn handle_reply(&mut self, reply: &Reply) -> Step {
        let code = reply.code;
        // Whatever it answers, the server is going away.
        if code.get() == 421 {
            return self.refused(reply);
        }
        let secret = self.credentials.secret;
        match &mut self.expect {
            Expect::Greeting if code.is_success() => {
                self.expect = Expect::User;
                let mut commands = vec![Command::User(self.credentials.user.clone())];
                if !secret {
                    commands.push(Command::Pass(self.credentials.password.clone()));
                    commands.extend(self.rest());
                }
                Step::Send(commands)
            }
            Expect::User if code.is_success() || code.get() == 331 => {
                self.expect = Expect::Pass {
                    logged_in: code.is_success(),
                };
                if secret {
                    Step::Send(vec![Command::Pass(self.credentials.password.clone())])
                } else {
                    Step::Wait
                }
            }
            // A server that let us in at USER may think little of the PASS, but 530 is a no.
            Expect::Pass { logged_in }
                if code.is_success() || (*logged_in && code.get() != 530) =>
            {
                self.expect = Expect::Feat;
                if secret {
                    Step::Send(self.rest().into())
                } else {
                    Step::Wait
                }
            }
            Expect::Feat => {
                let features = if code.is_success() {
                    Features::from_reply(reply)
                } else {
                    Features::default()
                };
                self.expect = Expect::ClientInfo(Box::new(features));
                Step::Wait
            }
            Expect::ClientInfo(features) => {
                self.expect = Expect::Type(std::mem::take(features));
                Step::Wait
            }
            Expect::Type(features) if code.is_success() => Step::Done(std::mem::take(features)),
            _ => self.refused(reply),
        }
    }

    /// What follows the login proper.
    fn rest(&self) -> [Command; 3] {
        [
            Command::Feat,
            Command::Site(Site::ClientInfo(self.client_info.clone())),
            Command::Type(TypeCode::Image),
        ]
    }

    fn refused(&self, reply: &Reply) -> Step {
        let command = match self.expect {
            Expect::Greeting => "greeting",
            Expect::User => "USER",
            Expect::Pass { .. } => "PASS",
            Expect::Feat => "FEAT",
            Expect::ClientInfo(_) => "SITE",
            Expect::Type(_) => "TYPE",
        };
        Step::Refused {
            command,
            reply: reply.clone(),
        }
    }
}

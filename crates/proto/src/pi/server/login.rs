//! Greeting, USER, PASS, QUIT.

use std::{mem, time::Instant};

use crate::{
    command::Password,
    error::StorageFailure,
    reply::{BodyStyle, Reply, ReplyCode},
};

use super::{
    Account, ClearLogins, Mechanism, Outcome, Request, ServerConfig, ServerPi, is_anonymous,
    purpose::Purpose, session::LoginState,
};

/// `EACCES`: the plain "no" to a login. Its text would tell nothing.
const EACCES: i32 = 13;

impl ServerPi {
    /// A session whose greeting and login another process has done: `user` may do what `account`
    /// says. That process also protects its control channel, by `mechanism`. The reply to PASS is
    /// the first output.
    pub fn entered(
        config: ServerConfig,
        user: String,
        account: Account,
        mechanism: Option<Mechanism>,
        now: Instant,
    ) -> Self {
        let mut pi = Self::new_without_greeting(config, now);
        if let Some(mechanism) = mechanism {
            pi.session.security.establish(mechanism);
        }
        let name = user.clone();
        pi.on_login_done(user, Ok(Outcome::Account { name, account }));
        pi
    }

    pub(super) fn greet(&mut self) {
        let code = ReplyCode::of(220);
        let mut lines = self.config.greeting.lines().map(|l| l.as_bytes().to_vec());
        let first = lines.next().unwrap_or_default();
        let rest: Vec<_> = lines.collect();
        let reply = if rest.is_empty() {
            Reply::new(code, first)
        } else {
            Reply::with_body(code, BodyStyle::Code, first, rest, "End.")
        };
        self.reply(&reply);
    }

    /// What a client must do that has not logged in.
    pub(super) fn login_first(&self) -> &'static str {
        let in_clear = self.config.clear_logins != ClearLogins::Never;
        match self.session.security.is_established() || in_clear {
            true => "Please login with USER and PASS.",
            false => self.authenticate_first(),
        }
    }

    fn authenticate_first(&self) -> &'static str {
        match (self.config.gssapi, self.config.tls) {
            (true, true) => "Must perform AUTH TLS or AUTH GSSAPI.",
            (_, true) => "Must perform AUTH TLS.",
            (_, false) => "Must perform GSSAPI authentication.",
        }
    }

    /// Here the name is known and the password has not come yet: the last moment to keep it off the
    /// wire.
    fn may_log_in(&self, user: &str) -> bool {
        self.session.security.is_established()
            || match self.config.clear_logins {
                ClearLogins::Never => false,
                ClearLogins::Anonymous => is_anonymous(user),
                ClearLogins::All => true,
            }
    }

    pub(super) fn run_user(&mut self, user: String) {
        if self.session.is_logged_in() {
            return self.answer(503, "You are already logged in.");
        }
        if !self.may_log_in(&user) {
            self.session.login = LoginState::LoggedOut;
            return self.answer(530, self.authenticate_first());
        }
        self.answer(331, format!("Password required for {user}."));
        self.session.login = LoginState::Named(user);
    }

    pub(super) fn run_pass(&mut self, password: Password) {
        match mem::replace(&mut self.session.login, LoginState::LoggedOut) {
            LoginState::LoggedOut => self.answer(503, "Login with USER first."),
            LoginState::Named(user) => self.request(
                Request::Login {
                    user: user.clone(),
                    password,
                },
                Purpose::Login { user },
            ),
            state @ LoginState::LoggedIn { .. } => {
                self.session.login = state;
                self.answer(503, "You are already logged in.");
            }
        }
    }

    pub(super) fn on_login_done(&mut self, user: String, result: Result<Outcome, StorageFailure>) {
        match result {
            Ok(Outcome::Account { name, account }) => {
                self.session.account = account;
                self.log_in(name);
            }
            Ok(Outcome::Done) => self.log_in(user),
            // A shell that answers wrongly lets no client in.
            Ok(_) => self.answer(451, "Local error in processing."),
            Err(failure) => {
                if failure.errno == EACCES {
                    self.answer(530, "Login incorrect.");
                } else {
                    self.answer(530, format!("Login incorrect. : {}", failure.text));
                }
                self.count_failed_login();
            }
        }
    }

    /// GCT's server names the account, too, which need not be what USER said.
    fn log_in(&mut self, user: String) {
        self.session.cwd = self.session.account.home.clone();
        self.answer(230, format!("User {user} logged in."));
        self.session.login = LoginState::LoggedIn { user };
    }

    pub(super) fn count_failed_login(&mut self) {
        self.session.failed_logins += 1;
        if self.session.failed_logins >= self.config.login_attempts_max {
            self.answer(421, "Too many failed logins, closing control connection.");
            self.end_session();
        }
    }

    pub(super) fn run_quit(&mut self) {
        self.answer(221, "Goodbye.");
        self.end_session();
    }
}

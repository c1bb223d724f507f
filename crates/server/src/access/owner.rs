//! The one user of a server that sshd has started.

use std::path::Path;

use godwit_proto::{FtpPath, pi::server::Account};

use super::accounts;
use super::identity::{Actor, Admitted, Method, Principal, user_account};

/// Whose server it is: whatever name a client gives at login, it is this user.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    name: String,
    home: FtpPath,
}

impl Owner {
    /// Who runs this process.
    pub(crate) fn of_process(home: &Path, root: &Path) -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let user = uzers::get_user_by_uid(uid);
        let name = user.map(|user| user.name().to_string_lossy().into_owned());
        Self {
            name: name.unwrap_or_else(|| uid.to_string()),
            home: FtpPath::new(accounts::home_beneath(home, root))
                .unwrap_or_else(|_| FtpPath::root()),
        }
    }

    pub(crate) fn admitted(&self) -> Admitted {
        Admitted {
            name: Principal::Account(self.name.clone()),
            actor: Actor::Account(self.name.clone()),
            account: Account {
                home: self.home.clone(),
                ..user_account()
            },
            rights: None,
            method: Method::Ssh,
        }
    }
}

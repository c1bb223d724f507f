//! Accounts of this system.

use super::identity::Actor;
use crate::config::Separation;
use std::{os::unix::ffi::OsStrExt as _, path::Path};
use tracing::warn;

use serde::{Deserialize, Serialize};
use uzers::os::unix::UserExt as _;

/// Groups that a process may have here. The kernel's limit is 65536, which no message holds.
const GROUPS_MAX: usize = 4096;

/// What a process is to the kernel. Never root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ids {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
}

/// An account of the system that a session may act as.
#[derive(Clone, Debug)]
pub(crate) struct SystemAccount {
    pub(crate) name: String,
    pub(crate) ids: Ids,
    home: Vec<u8>,
}

/// Why a session cannot act as an account.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoAccount {
    #[error("{0} is no account of this system")]
    Unknown(String),
    #[error("{0} is root, and no session runs as root")]
    Root(String),
    #[error("{0} is in more than {GROUPS_MAX} groups")]
    Groups(String),
    #[error("sessions with tokens have no account here")]
    Bearer,
    #[error("{name} has the number {here} here and {there} at the front end: give it one number")]
    Other { name: String, here: u32, there: u32 },
}

impl SystemAccount {
    /// Looks `name` up. May block for as long as the system's directory takes.
    pub(crate) fn find(name: &str) -> Result<Self, NoAccount> {
        let user = uzers::get_user_by_name(name).filter(|user| user.name() == name);
        let user = user.ok_or_else(|| NoAccount::Unknown(name.to_owned()))?;
        let (uid, gid) = (user.uid(), user.primary_group_id());
        let groups = user.groups().unwrap_or_default();
        let groups: Vec<u32> = groups.iter().map(uzers::Group::gid).collect();
        // Files of root's group, and of all that is root's, are not for users of a network.
        if uid == 0 || gid == 0 || groups.contains(&0) {
            return Err(NoAccount::Root(name.to_owned()));
        }
        if groups.len() > GROUPS_MAX {
            return Err(NoAccount::Groups(name.to_owned()));
        }
        Ok(Self {
            name: name.to_owned(),
            ids: Ids { uid, gid, groups },
            home: user.home_dir().as_os_str().as_bytes().to_vec(),
        })
    }

    /// The account of a session at a front end on another machine, `ids` there.
    ///
    /// # Errors
    /// None has the name here, or one that is another to a file system that both machines see, or
    /// root.
    pub(crate) fn of_front_end(name: &str, ids: &Ids) -> Result<Self, NoAccount> {
        let here = Self::find(name)?;
        match here.ids.uid == ids.uid {
            true => Ok(here),
            false => Err(NoAccount::Other {
                name: name.to_owned(),
                here: here.ids.uid,
                there: ids.uid,
            }),
        }
    }

    /// Where a session begins: in the account's home, where that is beneath `root`.
    pub(crate) fn home_beneath(&self, root: &Path) -> String {
        home_beneath(Path::new(std::ffi::OsStr::from_bytes(&self.home)), root)
    }
}

/// `home` as clients see it; `/` where it is not beneath `root`.
pub(crate) fn home_beneath(home: &Path, root: &Path) -> String {
    let beneath = home.strip_prefix(root).ok().and_then(Path::to_str);
    format!("/{}", beneath.unwrap_or_default())
}

/// The accounts that a separated server needs for itself.
#[derive(Clone, Debug)]
pub(crate) struct Accounts {
    pub(crate) pre_login: Ids,
    anonymous: SystemAccount,
    bearer: Option<SystemAccount>,
    pub(crate) require_sandbox: bool,
}

impl Accounts {
    /// Looks them up; `anonymous`: there are users without an account. May block.
    pub(crate) fn find(separation: &Separation, anonymous: bool) -> Result<Self, NoAccount> {
        let mut pre_login = SystemAccount::find(&separation.front_user)?.ids;
        // It needs no groups.
        pre_login.groups.clear();
        let accounts = Self {
            pre_login,
            anonymous: SystemAccount::find(&separation.anonymous_user)?,
            bearer: (separation.token_user.as_deref())
                .map(SystemAccount::find)
                .transpose()?,
            require_sandbox: separation.require_sandbox,
        };
        if accounts.share_one(anonymous) {
            warn!(
                account = separation.front_user,
                "pre-login processes and users without an account have one account: name another \
                 with --front-user"
            );
        }
        Ok(accounts)
    }

    /// The kernel counts what an account uses (processes, locked memory) and knows no difference
    /// between processes of one: system calls keep them from each other, numbers do not.
    fn share_one(&self, anonymous: bool) -> bool {
        let others = [anonymous.then_some(&self.anonymous), self.bearer.as_ref()];
        others
            .into_iter()
            .flatten()
            .any(|other| other.ids.uid == self.pre_login.uid)
    }

    /// Whose process serves `actor`. May block.
    pub(crate) fn of(&self, actor: &Actor) -> Result<SystemAccount, NoAccount> {
        match actor {
            Actor::Account(name) => SystemAccount::find(name),
            Actor::Anonymous => Ok(self.anonymous.clone()),
            Actor::Bearer => self.bearer.clone().ok_or(NoAccount::Bearer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_unknown_accounts_are_refused() {
        let refused = |name: &str| SystemAccount::find(name).unwrap_err().to_string();
        assert!(refused("root").contains("no session runs as root"));
        for name in ["no-such-account", "", "0", "/O=Grid/CN=Jo"] {
            assert!(refused(name).contains("no account"), "{name}");
        }
    }

    #[test]
    fn sessions_start_in_the_home_if_it_is_beneath_the_root() {
        let account = SystemAccount {
            name: "jo".to_owned(),
            ids: Ids {
                uid: 1,
                gid: 1,
                groups: Vec::new(),
            },
            home: b"/home/jo".to_vec(),
        };
        for (root, home) in [
            ("/", "/home/jo"),
            ("/home", "/jo"),
            ("/home/jo", "/"),
            ("/srv", "/"),
            ("/home/j", "/"),
        ] {
            assert_eq!(account.home_beneath(Path::new(root)), home, "{root}");
        }
    }
}

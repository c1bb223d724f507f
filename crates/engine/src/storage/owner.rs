//! Who we are, and names of users and groups.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// Names kept at a time; past this the cache is cleared.
const NAMES_MAX: usize = 4096;
/// How long a name is cached. Chosen arbitrarily: longer would show a renamed account late,
/// shorter would ask a directory service more than once in a listing.
const NAMES_KEPT: Duration = Duration::from_secs(60);

/// What the kernel compares permission bits with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl Identity {
    /// Of the calling thread, now.
    pub fn effective() -> Self {
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: rustix::process::getgroups()
                .map(|all| all.into_iter().map(rustix::process::Gid::as_raw).collect())
                .unwrap_or_default(),
        }
    }

    /// `rwx` as three low bits that we have on a file, by its permission bits. The superuser reads
    /// and writes all.
    pub(crate) fn access(&self, mode: u32, uid: u32, gid: u32) -> u32 {
        if self.uid == 0 {
            return 0o6 | u32::from(mode & 0o111 != 0);
        }
        let shift = if uid == self.uid {
            6
        } else if gid == self.gid || self.groups.contains(&gid) {
            3
        } else {
            0
        };
        (mode >> shift) & 0o7
    }
}

/// Name of a user, or the number where it has none.
pub(crate) fn user_name(uid: u32) -> String {
    cached(&USERS, uid, |uid| {
        uzers::get_user_by_uid(uid).map(|u| u.name().to_string_lossy().into_owned())
    })
}

/// Name of a group, or the number where it has none.
pub(crate) fn group_name(gid: u32) -> String {
    cached(&GROUPS, gid, |gid| {
        uzers::get_group_by_gid(gid).map(|g| g.name().to_string_lossy().into_owned())
    })
}

/// Group by name, else by number.
pub(crate) fn group_id(group: &str) -> Option<u32> {
    if group.contains('\0') {
        return None;
    }
    uzers::get_group_by_name(group)
        .map(|g| g.gid())
        .or_else(|| group.parse().ok())
}

static USERS: Mutex<Option<Names>> = Mutex::new(None);
static GROUPS: Mutex<Option<Names>> = Mutex::new(None);

struct Names {
    since: Instant,
    by_id: HashMap<u32, String>,
}

fn cached(
    cache: &'static Mutex<Option<Names>>,
    id: u32,
    look_up: impl FnOnce(u32) -> Option<String>,
) -> String {
    let now = Instant::now();
    if let Some(names) = cache.lock().as_ref().filter(|n| now - n.since < NAMES_KEPT)
        && let Some(name) = names.by_id.get(&id)
    {
        return name.clone();
    }
    // Not under the lock: a directory service may take its time.
    let name = look_up(id).unwrap_or_else(|| id.to_string());
    let mut slot = cache.lock();
    let names = match slot.as_mut() {
        Some(n)
            if now.saturating_duration_since(n.since) < NAMES_KEPT && n.by_id.len() < NAMES_MAX =>
        {
            n
        }
        _ => slot.insert(Names {
            since: now,
            by_id: HashMap::new(),
        }),
    };
    names.by_id.insert(id, name.clone());
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_is_by_the_first_class_that_fits() {
        let me = Identity {
            uid: 1000,
            gid: 100,
            groups: vec![200],
        };
        assert_eq!(me.access(0o750, 1000, 1), 0o7);
        assert_eq!(
            me.access(0o075, 1000, 100),
            0,
            "an owner without rights gains none from the group"
        );
        assert_eq!(me.access(0o750, 1, 100), 0o5);
        assert_eq!(me.access(0o757, 1, 200), 0o5);
        assert_eq!(me.access(0o751, 1, 1), 0o1);
        let root = Identity {
            uid: 0,
            gid: 0,
            groups: vec![],
        };
        assert_eq!(root.access(0o000, 1, 1), 0o6);
        assert_eq!(root.access(0o001, 1, 1), 0o7);
    }

    #[test]
    fn names_and_numbers() {
        assert_eq!(user_name(0), "root");
        assert_eq!(group_name(0), "root");
        assert_eq!(group_name(0), "root");
        assert_eq!(user_name(3_999_999_999), "3999999999");
        assert_eq!(group_id("root"), Some(0));
        assert_eq!(group_id("12345"), Some(12345));
        assert_eq!(group_id("no such group"), None);
    }
}

//! What a login may do at which paths, as a value: no files, no clock.

use std::{fmt, time::SystemTime};

use godwit_proto::FtpPath;
use serde::{Deserialize, Serialize};

/// What may be done below some directories, and until when. Nothing by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rights {
    grants: Vec<Grant>,
    until: Option<SystemTime>,
}

/// One right at and below one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grant {
    pub(crate) access: Access,
    /// Absolute and folded.
    #[serde(with = "path_text")]
    pub(crate) path: FtpPath,
}

/// What a grant allows. WLCG Common JWT Profiles §"Capability based authorization" has the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Access {
    /// `storage.read`: bytes, names, properties.
    Read,
    /// `storage.create`: new files and directories, and final names for the files that a session
    /// has made itself.
    Create,
    /// `storage.modify`: that, and changes to what is there.
    Modify,
}

/// An operation on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Ask for its properties.
    Look,
    /// Read its bytes, or the names in it.
    Read,
    /// Make something that is not there.
    Create,
    /// Change or remove what is there.
    Modify,
}

/// Why not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Denied {
    #[error("the login's token has expired: log in again with a new one")]
    Expired,
    #[error("the login does not allow to {deed} {path}")]
    NotGranted { deed: Operation, path: FtpPath },
}

impl Rights {
    pub(crate) fn new(grants: Vec<Grant>, until: Option<SystemTime>) -> Self {
        Self { grants, until }
    }

    /// Everything below `home`, or reading it.
    pub(crate) fn within(home: &FtpPath, writes: bool) -> Self {
        let grant = |access| Grant {
            access,
            path: folded(home),
        };
        let mut grants = vec![grant(Access::Read)];
        grants.extend(writes.then(|| grant(Access::Modify)));
        Self::new(grants, None)
    }

    /// `path` is absolute.
    pub(crate) fn add(&mut self, access: Access, path: &FtpPath) {
        let path = folded(path);
        self.grants.push(Grant { access, path });
    }

    /// `path` is absolute and folded ([`FtpPath::resolve`]).
    pub(crate) fn check(
        &self,
        deed: Operation,
        path: &FtpPath,
        now: SystemTime,
    ) -> Result<(), Denied> {
        if self.have_ended(now) {
            return Err(Denied::Expired);
        }
        let allows = |grant: &Grant| grant.allows(deed, path);
        if self.grants.iter().any(allows) {
            return Ok(());
        }
        Err(Denied::NotGranted {
            deed,
            path: path.clone(),
        })
    }

    /// The same without an end.
    pub(crate) fn lasting(self) -> Self {
        Self {
            until: None,
            ..self
        }
    }

    /// They were good until now, or until earlier.
    pub(crate) fn have_ended(&self, now: SystemTime) -> bool {
        self.until.is_some_and(|until| now >= until)
    }

    /// Something may be made or changed somewhere.
    pub(crate) fn writes(&self) -> bool {
        (self.grants.iter()).any(|grant| grant.access != Access::Read)
    }

    /// The home directory of these rights: their only place, or the root.
    pub(crate) fn home(&self) -> FtpPath {
        let mut paths = self.grants.iter().map(|grant| &grant.path);
        match paths.next() {
            Some(first) if paths.all(|path| path == first) => first.clone(),
            _ => FtpPath::root(),
        }
    }
}

impl Grant {
    fn allows(&self, deed: Operation, path: &FtpPath) -> bool {
        let within = is_within(path, &self.path);
        match (deed, self.access) {
            // A client that knows a path knows the names of the directories above.
            (Operation::Look, _) => within || is_within(&self.path, path),
            (Operation::Read, Access::Read) => within,
            (Operation::Create, Access::Create | Access::Modify) => within,
            (Operation::Modify, Access::Modify) => within,
            _ => false,
        }
    }
}

/// Whether `path` is `top` or below it: component by component, so that `/database` is not within
/// `/data`. A path that is not folded is within nothing.
fn is_within(path: &FtpPath, top: &FtpPath) -> bool {
    let (Some(mut path), Some(mut top)) = (components(path), components(top)) else {
        return false;
    };
    top.all(|component| path.next() == Some(component))
}

/// `None` where the path is relative, or has parts that lead elsewhere.
fn components(path: &FtpPath) -> Option<impl Iterator<Item = &[u8]>> {
    let rest = path.as_bytes().strip_prefix(b"/")?;
    let parts = || {
        rest.split(|byte| *byte == b'/')
            .filter(|part| !part.is_empty())
    };
    parts()
        .all(|part| part != b".." && part != b".")
        .then(parts)
}

fn folded(path: &FtpPath) -> FtpPath {
    path.resolve(&FtpPath::root(), &FtpPath::root())
}

/// For `serde(with)`: paths of settings and of tokens are text.
pub(crate) mod path_text {
    use godwit_proto::FtpPath;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _, ser::Error as _};

    pub(crate) fn serialize<S: Serializer>(path: &FtpPath, to: S) -> Result<S::Ok, S::Error> {
        let text = std::str::from_utf8(path.as_bytes()).map_err(S::Error::custom)?;
        to.serialize_str(text)
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<FtpPath, D::Error> {
        FtpPath::new(String::deserialize(from)?).map_err(D::Error::custom)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Look => "look at",
            Self::Read => "read",
            Self::Create => "create",
            Self::Modify => "change",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn path(text: &str) -> FtpPath {
        FtpPath::new(text).unwrap()
    }

    fn grant(access: Access, text: &str) -> Rights {
        let path = path(text);
        Rights::new(vec![Grant { access, path }], None)
    }

    fn allowed(rights: &Rights, deed: Operation, text: &str) -> bool {
        rights.check(deed, &path(text), NOW).is_ok()
    }

    #[test]
    fn names_that_begin_alike_are_not_below() {
        let rights = grant(Access::Read, "/data");
        for (text, expected) in [
            ("/data", true),
            ("/data/a/b", true),
            ("/database", false),
            ("/dat", false),
            ("/Data", false),
            ("/other/data", false),
            ("/", false),
        ] {
            assert_eq!(allowed(&rights, Operation::Read, text), expected, "{text}");
        }
        assert!(allowed(&grant(Access::Read, "/"), Operation::Read, "/any"));
    }

    #[test]
    fn each_right_allows_its_operations() {
        use Operation::*;
        for (access, may) in [
            (Access::Read, &[Look, Read][..]),
            (Access::Create, &[Look, Create]),
            (Access::Modify, &[Look, Create, Modify]),
        ] {
            let rights = grant(access, "/a");
            for deed in [Look, Read, Create, Modify] {
                let expected = may.contains(&deed);
                assert_eq!(
                    allowed(&rights, deed, "/a/f"),
                    expected,
                    "{access:?} {deed}"
                );
                assert!(!allowed(&rights, deed, "/b"), "{access:?} {deed}");
            }
            assert_eq!(rights.writes(), access != Access::Read);
        }
    }

    #[test]
    fn directories_above_may_be_looked_at_and_not_read() {
        let rights = grant(Access::Read, "/a/b");
        for text in ["/", "/a", "/a/b"] {
            assert!(allowed(&rights, Operation::Look, text), "{text}");
        }
        assert!(!allowed(&rights, Operation::Read, "/a"));
        assert!(!allowed(&rights, Operation::Look, "/a/c"));
    }

    #[test]
    fn time_ends_everything() {
        let until = NOW + Duration::from_secs(10);
        let path = path("/a");
        let access = Access::Read;
        let rights = Rights::new(
            vec![Grant {
                access,
                path: path.clone(),
            }],
            Some(until),
        );
        let at = |seconds| rights.check(Operation::Look, &path, NOW + Duration::from_secs(seconds));
        assert_eq!(at(9), Ok(()));
        assert_eq!(at(10), Err(Denied::Expired));
    }

    #[test]
    fn one_place_is_a_home() {
        assert_eq!(Rights::within(&path("/a/../b/"), true).home(), path("/b"));
        assert_eq!(Rights::default().home(), FtpPath::root());
        let mut two = grant(Access::Read, "/a");
        two.grants.extend(grant(Access::Read, "/b").grants);
        assert_eq!(two.home(), FtpPath::root());
    }

    /// Parts that lead somewhere else, and such as look like others.
    fn part() -> impl Strategy<Value = String> {
        prop_oneof![
            "[ab]{1,2}",
            Just(".".to_owned()),
            Just("..".to_owned()),
            Just(String::new())
        ]
    }

    fn any_path() -> impl Strategy<Value = FtpPath> {
        proptest::collection::vec(part(), 0..6)
            .prop_map(|parts| FtpPath::new(format!("/{}", parts.join("/"))).unwrap())
    }

    proptest! {
        /// What a session does to a path that a client sends, and then asks for.
        #[test]
        fn no_spelling_leads_out(top in any_path(), sent in any_path(), cwd in any_path()) {
            let top = folded(&top);
            let rights = Rights::within(&top, true);
            let meant = sent.resolve(&folded(&cwd), &top);
            let names = |path: &FtpPath| -> Vec<Vec<u8>> {
                let parts = path.as_bytes().split(|byte| *byte == b'/');
                parts.filter(|part| !part.is_empty()).map(<[u8]>::to_vec).collect()
            };
            let below = names(&meant).starts_with(&names(&top));
            prop_assert_eq!(rights.check(Operation::Modify, &meant, NOW).is_ok(), below);
        }

        /// A path with dots was not normalized: it is within nothing.
        #[test]
        fn paths_with_dots_are_refused(top in any_path(), path in any_path()) {
            let rights = Rights::within(&top, true);
            let mut parts = path.as_bytes().split(|byte| *byte == b'/');
            if parts.any(|part| part == b"." || part == b"..") {
                prop_assert!(rights.check(Operation::Look, &path, NOW).is_err());
            }
        }
    }
}

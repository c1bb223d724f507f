//! Which transfers may start on a data channel that has finished the previous transfer while other
//! channels have not.
//!
//! A transfer that sends changes nothing. One that receives under a temporary name of godwit's
//! client touches a file that no other command names: neither an earlier transfer nor a request
//! between them can mean it, unless the same name was used shortly before.

use std::collections::VecDeque;

use godwit_proto::{
    FtpPath,
    pi::server::{Request, TransferKind},
    temporary::temporary_digits,
};

/// More than the transfers that can wait on a set.
const NAMES_MAX: usize = 128;

/// The temporary names that came last, as their digits.
#[derive(Default)]
pub(crate) struct RecentNames(VecDeque<u64>);

impl RecentNames {
    /// Whether this transfer, the last one so far, may follow out of order.
    pub(crate) fn may_follow(&mut self, kind: &TransferKind) -> bool {
        let path = match kind {
            TransferKind::Send { .. } => return true,
            TransferKind::List { .. } => return false,
            TransferKind::Receive { path, .. } => path,
        };
        let Some(name) = temporary(path) else {
            return false;
        };
        if self.0.contains(&name) {
            return false;
        }
        if self.0.len() == NAMES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(name);
        true
    }
}

/// Whether transfers that may follow need not wait for this request: it changes nothing, or a file
/// whose transfer has ended.
pub(crate) fn is_passable(request: &Request) -> bool {
    match request {
        Request::Stat(_)
        | Request::CheckExists(_)
        | Request::Checksum { .. }
        | Request::BlockChecksums { .. }
        | Request::SetModified { .. } => true,
        Request::Commit { from, to, .. } | Request::Rename { from, to } => {
            temporary(from).is_some() && temporary(to).is_none()
        }
        _ => false,
    }
}

/// Distinguishes the last part of the path from others, if it is a temporary name.
pub(crate) fn temporary(path: &FtpPath) -> Option<u64> {
    temporary_digits(path.as_bytes().rsplit(|byte| *byte == b'/').next()?)
}

#[cfg(test)]
mod tests {
    use godwit_proto::pi::server::Placement;

    use super::*;

    fn path(text: &str) -> FtpPath {
        FtpPath::new(text).unwrap()
    }

    fn receive(name: &str) -> TransferKind {
        TransferKind::Receive {
            path: path(name),
            placement: Placement::Replace,
            restart: None,
            expected_bytes: None,
            checksums: Vec::new(),
            modify: None,
        }
    }

    const ONE: &str = "/d/.godwit-0000000000000001.part";

    #[test]
    fn only_unambiguous_temporary_names_follow() {
        let mut names = RecentNames::default();
        assert!(!names.may_follow(&receive("/d/f")));
        assert!(names.may_follow(&receive(ONE)));
        assert!(!names.may_follow(&receive(ONE)), "again");
        let elsewhere = "/e/.godwit-0000000000000001.part";
        assert!(!names.may_follow(&receive(elsewhere)), "perhaps a link");
        for i in 2..1000 {
            assert!(names.may_follow(&receive(&format!("/d/.godwit-{i:016x}.part"))));
        }
        assert_eq!(names.0.len(), NAMES_MAX);
        assert!(names.may_follow(&receive(ONE)), "long ago");
        assert!(names.may_follow(&TransferKind::Send {
            path: path("/d/f"),
            region: None,
            restart: None
        }));
    }

    #[test]
    fn only_harmless_requests_are_passed() {
        let rename = |from: &str, to: &str| Request::Rename {
            from: path(from),
            to: path(to),
        };
        for (request, passable) in [
            (Request::Stat(path("/d/f")), true),
            (rename(ONE, "/d/f"), true),
            (rename("/d", "/e"), false),
            (rename("/d/f", ONE), false),
            (rename(ONE, "/d/.godwit-0000000000000002.part"), false),
            (Request::RemoveFile(path("/d/f")), false),
        ] {
            assert_eq!(is_passable(&request), passable, "{request:?}");
        }
    }
}

use super::*;

fn storage(errno: i32) -> StorageFailure {
    StorageFailure {
        errno,
        doing: "open /data/not found/exists for reading".into(),
        text: "lokalisierter Text".into(),
    }
}

#[test]
fn typed_shape() {
    let mut out = Vec::new();
    storage_reply(&StorageFailure {
        errno: 2,
        doing: "stat /p".into(),
        text: "No such file or directory (os error 2)".into(),
    })
    .write_to(&mut out);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "550-GlobusError: v=1 c=PATH_NOT_FOUND\r\n550-GridFTP-Errno: 2\r\n\
         550-GridFTP-Reason: System error in stat\r\n\
         550-GridFTP-Error-String: No such file or directory\r\n550 End.\r\n"
    );
}

/// gfal2's search, in its order (`gridftpwrapper.cpp`).
fn gfal2_errno(reply: &Reply) -> &'static str {
    let text = reply.text();
    let has = |w: &str| find_ignoring_case(&text, w).is_some();
    if has("No such file") || has("not found") || has("error 3011") {
        "ENOENT"
    } else if has("Permission denied") || has("credential") {
        "EACCES"
    } else if has("exists") || has("error 3006") {
        "EEXIST"
    } else if has("Not a direct") {
        "ENOTDIR"
    } else if has("Operation not supported") {
        "ENOTSUP"
    } else if has("Login incorrect") || has("Could not get virtual id") {
        "EACCES"
    } else if has("the operation was aborted") {
        "ECANCELED"
    } else if has("Is a directory") {
        "EISDIR"
    } else if has("isk quota exceeded") {
        "ENOSPC"
    } else {
        "ECOMM"
    }
}

#[test]
fn gfal2_gets_the_right_errno() {
    for (number, code, want) in [
        (errno::ENOENT, 550, "ENOENT"),
        (errno::EACCES, 550, "EACCES"),
        (errno::EEXIST, 553, "EEXIST"),
        (errno::ENOTDIR, 550, "ENOTDIR"),
        (errno::EISDIR, 550, "EISDIR"),
        (errno::ENOSPC, 552, "ENOSPC"),
        (errno::EDQUOT, 552, "ENOSPC"),
        (errno::EOPNOTSUPP, 500, "ENOTSUP"),
        (errno::EIO, 451, "ECOMM"),
        (errno::EROFS, 550, "ECOMM"),
        (errno::ETXTBSY, 450, "ECOMM"),
        (0, 451, "ECOMM"),
    ] {
        let reply = storage_reply(&storage(number));
        assert_eq!(reply.code.get(), code, "errno {number}");
        assert_eq!(gfal2_errno(&reply), want, "errno {number}");
    }
}

#[test]
fn no_failure_becomes_a_success_or_a_wrong_errno() {
    let text = || "host not found: credential exists".to_owned();
    for (failure, code) in [
        (TransferFailure::NoConnection(text()), 425),
        (TransferFailure::NotAuthenticated(text()), 425),
        (TransferFailure::ConnectionLost(text()), 426),
        (TransferFailure::Protocol(text()), 426),
        (TransferFailure::Aborted, 426),
        (
            TransferFailure::Checksum {
                computed: "ab".into(),
                expected: "cd".into(),
            },
            550,
        ),
        (TransferFailure::Limit(text()), 451),
    ] {
        let reply = transfer_reply(&failure);
        assert_eq!(reply.code.get(), code, "{failure}");
        assert_eq!(gfal2_errno(&reply), "ECOMM", "{failure}");
    }
    for number in -1..200 {
        let failure = TransferFailure::Storage(storage(number));
        assert!(transfer_reply(&failure).code.is_failure(), "{number}");
        assert!(failure_kind(&transfer_reply(&failure)).is_some());
    }
}

#[test]
fn our_own_replies_are_understood() {
    for (number, kind) in [
        (errno::ENOENT, FailureKind::NotFound),
        (errno::EACCES, FailureKind::PermissionDenied),
        (errno::EPERM, FailureKind::PermissionDenied),
        (errno::EROFS, FailureKind::PermissionDenied),
        (errno::EEXIST, FailureKind::Exists),
        (errno::ENOTDIR, FailureKind::NotADirectory),
        (errno::EISDIR, FailureKind::IsADirectory),
        (errno::ENOSPC, FailureKind::NoSpace),
        (errno::EDQUOT, FailureKind::NoSpace),
        (errno::EOPNOTSUPP, FailureKind::NotSupported),
        (errno::EAGAIN, FailureKind::Transient),
        (errno::EIO, FailureKind::Transient),
        (errno::ENOTEMPTY, FailureKind::Other),
    ] {
        assert_eq!(
            failure_kind(&storage_reply(&storage(number))),
            Some(kind),
            "{number}"
        );
    }
    let lost = TransferFailure::ConnectionLost("reset".into());
    assert_eq!(
        failure_kind(&transfer_reply(&lost)),
        Some(FailureKind::Transient)
    );
}

#[test]
fn foreign_replies_are_understood() {
    for (code, text, kind) in [
        (
            500,
            "Command failed. : globus_l_gfs_file_open failed.\nglobus_xio: Unable to open file /p\n\
               globus_xio: System error in open: No such file or directory\nEnd.",
            FailureKind::NotFound,
        ),
        (
            500,
            "Command failed. : callback failed.\nan end-of-file was reached\n\
               globus_xio: An end of file occurred\nEnd.",
            FailureKind::Transient,
        ),
        (500, "Command failed", FailureKind::Other),
        (500, "Command not supported.", FailureKind::NotSupported),
        (
            550,
            "/p: Could not change directory. : GlobusError: v=1 c=NOT_A_DIRECTORY\nEnd.",
            FailureKind::NotADirectory,
        ),
        (550, "p: Not a directory.", FailureKind::NotADirectory),
        (550, "Failed to open file.", FailureKind::NotFound),
        (
            550,
            "Create directory operation failed.",
            FailureKind::Other,
        ),
        (553, "Could not create file.", FailureKind::PermissionDenied),
        (
            550,
            "/data/exists: Permission denied",
            FailureKind::PermissionDenied,
        ),
        (550, "x: not a regular file", FailureKind::IsADirectory),
        (
            552,
            "Transfer aborted. Disk quota exceeded",
            FailureKind::NoSpace,
        ),
        (
            530,
            "globus_gss_assist: credential not found\nEnd.",
            FailureKind::PermissionDenied,
        ),
        (
            421,
            "Idle Timeout: closing control connection.",
            FailureKind::Transient,
        ),
        (
            425,
            "Failed to establish connection.",
            FailureKind::Transient,
        ),
        (501, "bad parameter.", FailureKind::Other),
        (550, "End.", FailureKind::Other),
    ] {
        let reply = Reply {
            code: ReplyCode::of(code),
            lines: text.split('\n').map(|l| l.as_bytes().to_vec()).collect(),
            style: BodyStyle::Code,
        };
        assert_eq!(failure_kind(&reply), Some(kind), "{reply}");
    }
    assert_eq!(
        failure_kind(&Reply::new(ReplyCode::of(226), "not found")),
        None
    );
}

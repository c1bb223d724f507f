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
        (
            500,
            "Command failed. : IPC failed while attempting to perform request\nEnd.",
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
        (
            550,
            "Create directory operation failed.",
            FailureKind::Other,
        ),
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

/// What servers say, and what it means. Those that have one text for several reasons are not
/// guessed.
#[test]
fn texts_of_ftp_servers_are_classified() {
    use FailureKind::*;
    for (code, text, kind) in [
        // vsftpd
        (550, "Failed to open file.", Other),
        (550, "Failed to change directory.", Other),
        (550, "Could not get file size.", Other),
        (550, "Could not get file modification time.", Other),
        (550, "Delete operation failed.", Other),
        (550, "Remove directory operation failed.", Other),
        (550, "Create directory operation failed.", Other),
        (550, "RNFR command failed.", Other),
        (550, "Rename failed.", Other),
        (550, "Permission denied.", PermissionDenied),
        (553, "Could not create file.", Other),
        (451, "Failure writing to local file.", Transient),
        // ProFTPD
        (550, "/p/f: No such file or directory", NotFound),
        (550, "/p/f: Permission denied", PermissionDenied),
        (550, "/p/f: Not a regular file", IsADirectory),
        (550, "/p/f: not a regular file", IsADirectory),
        (550, "/p/f: Not a directory", NotADirectory),
        (550, "/p/f: Operation not permitted", PermissionDenied),
        (550, "/p/d: File exists", Exists),
        (550, "/p/d: Directory not empty", Other),
        (550, "Rename /p/f: File exists", Exists),
        (450, "/p/f: No such file or directory", NotFound),
        (450, "/p/f: Overwrite permission denied", PermissionDenied),
        (550, "/p/f: Overwrite permission denied", PermissionDenied),
        (
            451,
            "/p/f: Append/Restart not permitted, try again",
            Transient,
        ),
        (552, "Transfer aborted. Disk quota exceeded", NoSpace),
        // Pure-FTPd
        (550, "Can't open /p/f: No such file or directory", NotFound),
        (550, "Can't open /p/f: Permission denied", PermissionDenied),
        (
            550,
            "Can't change directory to /p: Not a directory",
            NotADirectory,
        ),
        (550, "Can't check for file existence", Other),
        (550, "Can't create directory: File exists", Exists),
        (550, "I can only retrieve regular files", IsADirectory),
        (
            553,
            "Can't open that file: Permission denied",
            PermissionDenied,
        ),
        (553, "Can't open that file: Is a directory", IsADirectory),
        (
            550,
            "Rename/move failure: No such file or directory",
            NotFound,
        ),
        (552, "Disk full - please upload later", NoSpace),
        // pyftpdlib
        (550, "No such file or directory.", NotFound),
        (550, "No such file.", NotFound),
        (550, "No such directory.", NotFound),
        (550, "Not enough privileges.", PermissionDenied),
        (550, "Is a directory.", IsADirectory),
        (550, "/p is not retrievable.", Other),
        (550, "SIZE not allowed in ASCII mode.", Other),
        (550, "Unexpected error.", Other),
        // IIS
        (
            550,
            "The system cannot find the file specified. \n Win32 error:   The system cannot find \
             the file specified. \n Error details: File system returned an error.\nEnd",
            NotFound,
        ),
        (550, "The system cannot find the path specified. ", NotFound),
        (550, "Access is denied. ", PermissionDenied),
        (550, "The directory name is invalid. ", NotADirectory),
        (550, "The directory is not empty. ", Other),
        (
            550,
            "Cannot create a file when that file already exists. ",
            Exists,
        ),
        (550, "The parameter is incorrect. ", Other),
        (451, "There is not enough space on the disk. ", NoSpace),
        // FileZilla Server, old and new
        (550, "File not found", NotFound),
        (550, "CWD failed. \"/p\": directory not found.", NotFound),
        (550, "File or directory not found.", NotFound),
        (550, "Directory already exists", Exists),
        (550, "can't access file.", Other),
        (550, "Couldn't open the file", Other),
        (550, "Couldn't open the directory", Other),
        // GCT
        (
            550,
            "/p/f: Could not change directory. : GlobusError: v=1 c=PATH_NOT_FOUND\nEnd.",
            NotFound,
        ),
        (
            500,
            "Command failed. : globus_xio: Unable to open file /permission denied\n\
             globus_xio: System error in open: No such file or directory\n\
             globus_xio: A system call failed: No such file or directory\nEnd.",
            NotFound,
        ),
        // ARC
        (550, "Directory not found", NotFound),
        (550, "Object unavailable.", Other),
        (450, "Requested file action not taken.", Transient),
        // wu-ftpd
        (550, "/p/f: No such file or directory.", NotFound),
        (550, "/p: not a plain file.", IsADirectory),
        (553, "/p/f: Permission denied. (Upload)", PermissionDenied),
        (
            550,
            "/p/f: Permission denied on server. (Delete)",
            PermissionDenied,
        ),
        (521, "\"/p\" directory exists", Exists),
        (452, "Error writing file: No space left on device.", NoSpace),
        // RFC 959's own words
        (550, "Requested action not taken.", Other),
        (553, "Requested action not taken.", Other),
        // Words in a path are not the server's.
        (
            550,
            "/no such file or directory/f: Permission denied",
            PermissionDenied,
        ),
        (
            550,
            "/permission denied: No such file or directory",
            NotFound,
        ),
        (
            550,
            "/file exists/not found: Not a directory.",
            NotADirectory,
        ),
        (553, "/no such file/f: Permission denied", PermissionDenied),
    ] {
        let reply = Reply {
            code: ReplyCode::of(code),
            lines: text.split('\n').map(|l| l.as_bytes().to_vec()).collect(),
            style: BodyStyle::Code,
        };
        assert_eq!(failure_kind(&reply), Some(kind), "{reply}");
    }
}

//! Ordinary FTP servers that are configured to refuse names with a leading dot, or to refuse
//! renaming.

use std::{ffi::OsString, fs, path::Path};

use godwit_lab::peers::{
    Finished,
    ftps::{FtpsServer, Kind},
    godwit,
};
use tempfile::TempDir;

use crate::support::ftps_server;

const NO_DOTS: &str = "refuses names with a leading dot";
const IN_PLACE: &str = "written under their final names at once";

#[track_caller]
fn godwit(server: &FtpsServer, status: i32, arguments: &[&str]) -> Finished {
    let password = vec![(OsString::from("GODWIT_PASSWORD"), OsString::from("sesame"))];
    let finished = godwit::godwit_with(arguments, password).expect("runs");
    let log = format!("{}--- server\n{}", finished.log(), server.log());
    assert_eq!(finished.status.code(), Some(status), "{arguments:?}\n{log}");
    finished
}

/// A folder `top` of four files, and the URL of the server's directory.
fn prepared(server: &FtpsServer) -> (TempDir, String, String) {
    let local = TempDir::new().expect("a directory");
    let top = local.path().join("top");
    fs::create_dir_all(top.join("sub")).expect("a directory");
    for name in ["a", "b", "c", "sub/d"] {
        fs::write(top.join(name), name).expect("a file");
    }
    let url = server.url("").replace("ftpes://", "ftp://");
    (local, top.display().to_string(), url)
}

#[track_caller]
fn assert_has_files(server: &FtpsServer, names: &[&str]) {
    for name in names {
        let content = fs::read_to_string(server.at("top").join(name));
        assert_eq!(content.ok().as_deref(), Some(*name));
    }
    assert_eq!(temporary(&server.at("top")), Vec::<OsString>::new());
}

fn temporary(folder: &Path) -> Vec<OsString> {
    let names = fs::read_dir(folder).expect("lists").flatten();
    let names = names.map(|entry| entry.file_name());
    let is_ours = |name: &OsString| name.to_string_lossy().contains("godwit-");
    names.filter(is_ours).collect()
}

fn goes_without_dots(kind: Kind, more: &[&str], refusal: &str) {
    let Some(server) = ftps_server(kind, false, more) else {
        return;
    };
    let (_local, top, url) = prepared(&server);
    let output = godwit(&server, 0, &["cp", "-r", "-v", &top, &url]).stderr_text();
    assert_eq!(output.matches(NO_DOTS).count(), 1, "{output}");
    assert_has_files(&server, &["a", "b", "c", "sub/d"]);
    // What the user calls so fails alone.
    for name in [".own", ".folder/f", "later"] {
        let path = Path::new(&top).join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a directory");
        fs::write(path, name).expect("a file");
    }
    let output = godwit(&server, 1, &["sync", &top, &url]).stderr_text();
    for words in ["/.own", "/.folder", refusal] {
        assert!(output.contains(words), "{words:?}: {output}");
    }
    let found = server.at("top");
    let found = if found.join("later").exists() {
        found
    } else {
        server.at("")
    };
    assert!(found.join("later").exists(), "{output}");
    assert_eq!(temporary(&found), Vec::<OsString>::new());
}

#[test]
fn pure_ftpd_that_refuses_dots_gets_all_other_files() {
    for option in ["--prohibitdotfileswrite", "--prohibitdotfilesread"] {
        goes_without_dots(Kind::PureFtpd, &[option], "553 Prohibited");
    }
}

#[test]
fn vsftpd_that_denies_dotted_files_gets_all_other_files() {
    goes_without_dots(Kind::Vsftpd, &["deny_file={.*}"], "550 Permission denied");
}

#[test]
fn proftpd_with_filters_of_dots_gets_all_other_files() {
    let filter = [r#"PathDenyFilter "/\\.[gof]""#];
    goes_without_dots(Kind::Proftpd, &filter, "Forbidden filename");
    let hidden = [
        "<Directory />",
        r#"HideFiles "^\\.[gof]""#,
        "<Limit ALL>",
        "IgnoreHidden on",
        "</Limit>",
        "</Directory>",
    ];
    goes_without_dots(Kind::Proftpd, &hidden, "550");
}

#[test]
fn servers_without_rename_are_written_in_place_with_a_note() {
    let limit = ["<Limit RNFR RNTO>", "DenyAll", "</Limit>"];
    for (kind, more) in [
        (Kind::PureFtpd, &["--norename"][..]),
        (Kind::Proftpd, &limit),
    ] {
        let Some(server) = ftps_server(kind, false, more) else {
            continue;
        };
        let (_local, top, url) = prepared(&server);
        for _ in 0..2 {
            let output = godwit(&server, 0, &["cp", "-r", "-v", &top, &url]).stderr_text();
            assert_eq!(output.matches(IN_PLACE).count(), 1, "{output}");
            assert_has_files(&server, &["a", "b", "c", "sub/d"]);
        }
    }
}

#[test]
fn a_read_only_vsftpd_is_a_refusal() {
    let Some(server) = ftps_server(Kind::Vsftpd, false, &["anon_upload_enable=NO"]) else {
        return;
    };
    let (_local, top, url) = prepared(&server);
    let file = format!("{top}/a");
    let output = godwit(&server, 3, &["cp", "-v", &file, &url]).stderr_text();
    assert!(output.contains("550 Permission denied."), "{output}");
    assert!(
        !output.contains(NO_DOTS) && !output.contains(IN_PLACE),
        "{output}"
    );
}

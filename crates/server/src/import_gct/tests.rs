use std::{fs, path::PathBuf};

use super::table::OPTIONS;
use super::*;
use crate::config::Options;

/// What `text` comes to, as a file of this name.
fn imported(text: &str) -> Result<ImportedConfig, ImportError> {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("gridftp.conf");
    fs::write(&path, text).expect("writes");
    ImportedConfig::read(&path)
}

fn settings(text: &str) -> (Options, bool) {
    let imported = imported(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let output = imported.to_string();
    let options = toml::from_str(&output).unwrap_or_else(|error| panic!("{output}: {error}"));
    (options, imported.is_undecided())
}

#[test]
fn a_site_configuration_becomes_settings() {
    let (options, undecided) = settings(
        "# a comment\n\nport 2811\n$GLOBUS_TCP_PORT_RANGE 50000,51000\n\
         $X509_USER_CERT \"/etc/a b.pem\"\n\
         control_interface 192.0.2.1\ndata_interface 192.0.2.2\nconnections_max 200\n\
         control_idle_timeout 300\nlog_transfer /var/log/gridftp.log\n\
         log_single /var/log/other.log\nlog_level ALL\nsync_writes 1\ndirect 1\n\
         banner \"all are welcome\"\nthreads 2\ndetach 1\nfork 1\n",
    );
    assert!(!undecided);
    assert_eq!(
        options.listen,
        ["192.0.2.1:2811".parse().expect("an address")]
    );
    assert_eq!(
        options.data_address,
        ["192.0.2.2".parse::<IpAddr>().expect("an address")]
    );
    assert_eq!(options.port_range.expect("a range").0, 50000..=51000);
    assert_eq!(options.cert, Some(PathBuf::from("/etc/a b.pem")));
    assert_eq!(options.max_sessions, Some(200));
    assert_eq!(options.idle_timeout, Some(300));
    assert_eq!(
        options.transfer_log,
        Some(PathBuf::from("/var/log/gridftp.log"))
    );
    assert_eq!(options.banner.as_deref(), Some("all are welcome"));
    assert_eq!(options.durability, Some(crate::config::Durability::Batch));
    assert_eq!(options.direct_io, Some(true));
    assert_eq!(
        (options.gsi, options.root),
        (Some(true), Some(PathBuf::from("/")))
    );
}

#[test]
fn command_lines_are_read_too() {
    let (options, undecided) = settings(
        "/usr/sbin/globus-gridftp-server -S -p 5000 -aa -anonymous-user nobody -no-fork \
         -Z '/tmp/a b'\n-chroot-path /srv\n",
    );
    assert!(!undecided);
    assert_eq!(options.listen, ["[::]:5000".parse().expect("an address")]);
    assert_eq!(options.anonymous_user.as_deref(), Some("nobody"));
    assert_eq!(options.transfer_log, Some(PathBuf::from("/tmp/a b")));
    assert_eq!(options.root, Some(PathBuf::from("/srv")));
    assert_eq!(
        (options.gsi, options.anonymous),
        (None, Some(crate::config::Anonymous::Rw))
    );
}

#[test]
fn decisions_are_listed_with_reasons() {
    for (line, reason) in [
        ("restrict_paths /data", "root"),
        ("pw_file /etc/passwords", "godwitd passwd"),
        ("control_interface a.example.org", "addresses are needed"),
        ("remote_nodes a:1,b:2", "data nodes"),
        ("load_dsi_module hdfs", "storage modules"),
        ("$GSI_AUTHZ_CONF /etc/authz", "gridmap"),
        ("$LCMAPS_DB_FILE /etc/lcmaps", "gridmap"),
        ("perms 0600", "umask"),
        ("auth_level 0", "anonymous"),
        ("banner_file /nowhere/banner", "No such file"),
        ("port_range x", "no range of ports"),
    ] {
        let imported = imported(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let output = imported.to_string();
        let (_, decisions) = output.split_once("# To be decided:").expect("a list");
        assert!(
            imported.is_undecided() && decisions.contains(reason),
            "{output}"
        );
        toml::from_str::<Options>(&output).unwrap_or_else(|error| panic!("{output}: {error}"));
    }
}

#[test]
fn settings_that_the_reference_server_refuses_are_refused() {
    for (text, output) in [
        (
            "\nno_such_option 1\n",
            "gridftp.conf:2: no_such_option: unknown option",
        ),
        ("port\n", "no value"),
        ("port 1 2\n", "more than one value"),
        ("fork yes\n", "must be 0 or 1"),
        ("port many\n", "must be a number"),
        ("banner \"open\n", "a quote has no end"),
        ("-no-such-option\n", "unknown option"),
        ("-p\n", "no value"),
        ("-no-port\n", "unknown option"),
    ] {
        let error = imported(text).expect_err(text).to_string();
        assert!(error.contains(output), "{text}: {error}");
    }
}

#[test]
fn a_directory_is_read_in_order_without_package_leftovers() {
    let folder = tempfile::tempdir().expect("a directory");
    for (name, text) in [
        ("10-port", "port 1\n"),
        ("20-port", "port 2\nbanner two\n"),
        ("20-port.rpmsave", "port 3\n"),
        ("30~", "port 4\n"),
        (".hidden", "nonsense\n"),
    ] {
        fs::write(folder.path().join(name), text).expect("writes");
    }
    let output = ImportedConfig::read(folder.path())
        .expect("reads")
        .to_string();
    assert!(output.contains("listen = [\"[::]:2\"]"), "{output}");
    // A main file that names the directory has the last word, also where they name each other.
    let main = folder.path().with_extension("conf");
    let dir = folder.path().display();
    fs::write(&main, format!("config_dir {dir}\nport 9\n")).expect("writes");
    fs::write(
        folder.path().join("05-main"),
        format!("-c {}\n", main.display()),
    )
    .expect("writes");
    let output = ImportedConfig::read(&main).expect("reads").to_string();
    fs::remove_file(&main).expect("removes");
    assert!(output.contains("listen = [\"[::]:9\"]"), "{output}");
    assert!(output.contains("banner = \"two\""), "{output}");
    assert!(ImportedConfig::read(&main).is_err());
}

#[test]
fn nothing_in_a_file_becomes_a_setting_by_itself() {
    let odd = r"a' \ # = [x] ${y}";
    let (options, _) = settings(&format!("banner \"{odd}\"\nanonymous_user \"x]\"\n"));
    assert_eq!(options.banner.as_deref(), Some(odd));
    assert_eq!(options.anonymous_user.as_deref(), Some("x]"));
}

#[test]
fn every_option_has_one_row() {
    let mut names: Vec<_> = OPTIONS.iter().map(|row| row.name).collect();
    let mut words: Vec<_> = OPTIONS.iter().flat_map(|row| row.words).collect();
    let all = (names.len(), words.len());
    names.sort_unstable();
    names.dedup();
    words.sort_unstable();
    words.dedup();
    assert_eq!((names.len(), words.len()), all);
}

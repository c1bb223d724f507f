//! Options, files, and the settings that they give.

use std::io::Write as _;

use super::*;

fn no_environment(_: &str) -> Option<String> {
    None
}

fn resolve(arguments: &[&str]) -> Result<ServerSettings, ConfigError> {
    Arguments::try_parse_from([&["godwitd"], arguments].concat())
        .unwrap()
        .resolve(no_environment)
}

#[test]
fn settings_without_any_login_are_refused() {
    for arguments in [&[][..], &["--anonymous", "off"]] {
        let error = resolve(arguments).unwrap_err();
        assert!(matches!(error, ConfigError::NoIdentity));
        assert!(error.to_string().contains("--anonymous ro"));
    }
}

#[test]
fn flags_override_file_and_file_overrides_environment() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(
        file,
        "root = \"/srv\"\nanonymous = \"ro\"\nport-range = \"4000-4001\"\n\
         listen = [\"127.0.0.1:0\"]\n\
         log-json = true\nmax-sessions = 7\nprocessors = \"0-1,4\"\n"
    )
    .unwrap();
    let path = file.path().to_str().unwrap();
    let arguments = Arguments::try_parse_from([
        "godwitd",
        "--config",
        path,
        "--anonymous",
        "rw",
        "--log-json=false",
    ])
    .unwrap();
    let settings = arguments
        .resolve(|name| (name == "GLOBUS_TCP_PORT_RANGE").then(|| "5000,5001".to_owned()))
        .unwrap();
    assert_eq!(settings.anonymous, Anonymous::Rw);
    assert_eq!(settings.root, PathBuf::from("/srv"));
    assert_eq!(settings.port_range, Some(4000..=4001));
    let processors = CpuAffinity::Listed(vec![0, 1, 4]);
    assert_eq!(settings.processors, Some(processors));
    assert_eq!(settings.listen, ["127.0.0.1:0".parse().unwrap()]);
    assert_eq!(settings.bounds.connections, 7);
    assert!(!settings.log_json);
}

#[test]
fn environment_gives_the_port_range_in_globus_spelling() {
    let arguments = Arguments::try_parse_from(["godwitd", "--anonymous", "ro"]).unwrap();
    let with = |text: &str| {
        let text = text.to_owned();
        arguments.resolve(move |_| Some(text.clone()))
    };
    assert_eq!(with("5000,5001").unwrap().port_range, Some(5000..=5001));
    assert_eq!(with("").unwrap().port_range, None);
    assert!(
        with("9-x")
            .unwrap_err()
            .to_string()
            .starts_with("GLOBUS_TCP_PORT_RANGE: ")
    );
}

#[test]
fn unknown_file_keys_are_errors_that_name_file_and_key() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "anonymus = \"ro\"").unwrap();
    let path = file.path().to_str().unwrap();
    let error = resolve(&["--config", path]).unwrap_err().to_string();
    assert!(
        error.contains(path) && error.contains("anonymus"),
        "{error}"
    );
    let error = resolve(&["--config", "/nonexistent.toml"]).unwrap_err();
    assert!(error.to_string().contains("/nonexistent.toml"));
}

#[test]
fn values_out_of_range_are_refused_by_name() {
    for (arguments, name) in [
        (&["--idle-timeout", "0"][..], "idle-timeout"),
        (&["--data-timeout", "99999999999"], "data-timeout"),
        (&["--max-sessions", "0"], "max-sessions"),
        (&["--max-channels", "0"], "max-channels"),
        (&["--data-address", "0.0.0.0"], "data-address"),
        (
            &["--data-address", "10.0.0.1", "--data-address", "10.0.0.2"],
            "data-address",
        ),
        (&["--metrics", "0.0.0.0:9100"], "metrics"),
        (&["--metrics", "[::]:0"], "metrics"),
        (&["--metrics", "192.0.2.1:0"], "metrics"),
        (&["--banner", "  "], "banner"),
    ] {
        let error = resolve(&[&["--anonymous", "ro"], arguments].concat()).unwrap_err();
        assert!(
            error.to_string().starts_with(name),
            "{arguments:?}: {error}"
        );
    }
    assert!(Arguments::try_parse_from(["godwitd", "--port-range", "9-1"]).is_err());
    assert!(Arguments::try_parse_from(["godwitd", "--listen", "localhost"]).is_err());
    assert!(Arguments::try_parse_from(["godwitd", "--processors", "1-0"]).is_err());
}

#[test]
fn metrics_stay_local_unless_remote_ones_are_allowed() {
    for (arguments, expected) in [
        (&[][..], None),
        (&["--metrics", "127.0.0.2:1"], Some("127.0.0.2:1")),
        (&["--metrics", "[::1]:1"], Some("[::1]:1")),
        (
            &["--metrics", "[::ffff:127.0.0.1]:1"],
            Some("[::ffff:127.0.0.1]:1"),
        ),
        (
            &["--metrics", "0.0.0.0:1", "--allow-remote-metrics"],
            Some("0.0.0.0:1"),
        ),
    ] {
        let settings = resolve(&[&["--anonymous", "ro"], arguments].concat()).unwrap();
        assert_eq!(
            settings.metrics,
            expected.map(|expected| expected.parse().unwrap())
        );
    }
}

#[test]
fn the_command_line_is_well_formed() {
    use clap::CommandFactory as _;
    Arguments::command().debug_assert();
}

/// Values of which each setting takes two at least.
const SAMPLES: [&str; 15] = [
    "7",
    "8",
    "true",
    "false",
    "ro",
    "rw",
    "file",
    "batch",
    "private",
    "clear",
    "4000-4001",
    "5000-5001",
    "127.0.0.1:1",
    "127.0.0.1",
    "https://issuer.example.org=/keys",
];

/// The second addresses, and so on, of settings that take few of the samples.
const OTHER_SAMPLES: [&str; 3] = [
    "127.0.0.1:2",
    "127.0.0.2",
    "https://other.example.org=/keys",
];

#[test]
fn each_setting_is_taken_from_the_file_unless_a_flag_sets_it() {
    let options_of = |argument: &str, value: &str| {
        let flag = format!("--{argument}={value}");
        let parsed = Arguments::try_parse_from(["godwitd", &flag]);
        parsed.ok().map(|arguments| arguments.options)
    };
    let shown = |options: &Options| format!("{options:?}");
    let unset = shown(&Options::default());
    let mut settings = 0;
    for argument in <Options as clap::Args>::augment_args(clap::Command::new("")).get_arguments() {
        let name = argument.get_long().expect("each setting is a long flag");
        let samples = SAMPLES.iter().chain(&OTHER_SAMPLES);
        let mut found: Vec<Options> = samples
            .filter_map(|value| options_of(name, value))
            .collect();
        found.dedup_by_key(|options| shown(options));
        let [flag, file, ..] = &found[..] else {
            panic!("--{name} takes two of the samples")
        };
        assert_ne!(shown(flag), unset, "--{name}");
        let merged = |flag: &Options, file: &Options| shown(&flag.clone().or(file.clone()));
        assert_eq!(
            merged(flag, file),
            shown(flag),
            "--{name} overrides the file"
        );
        assert_eq!(
            merged(&Options::default(), file),
            shown(file),
            "{name} of the file"
        );
        assert_eq!(
            merged(flag, &Options::default()),
            shown(flag),
            "--{name} alone"
        );
        settings += 1;
    }
    assert!(settings > 40, "only {settings} settings");
}

#[test]
fn a_key_of_the_file_belongs_to_no_certificate_of_a_flag() {
    let with = |cert: Option<&str>, key: Option<&str>| Options {
        cert: cert.map(Into::into),
        key: key.map(Into::into),
        ..Options::default()
    };
    let file = with(Some("/file"), Some("/file.key"));
    let merged = with(Some("/flag"), None).or(file.clone());
    assert_eq!((merged.cert, merged.key), (Some("/flag".into()), None));
    let merged = with(None, None).or(file);
    assert_eq!(merged.key, Some("/file.key".into()));
}

use std::time::Duration;

use godwit_gsi::cert::key::KeyKind;
use godwit_proto::{command::Password, security::MinProtection};
use godwit_tune::{Bounds, Method, Setting};

use super::*;
use crate::spec::{CongestionChoice, DeleteOptions, EpochMode, JournalSpec, Level, Rates, Verify};

fn read(line: &str) -> Result<Invocation, EarlyExit> {
    let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
    parse(&words, &Environment::default())
}

fn job_of(line: &str) -> JobSpec {
    match read(line).unwrap().request {
        Request::Copy(spec) => *spec,
        _ => panic!("no copy: {line}"),
    }
}

fn refusal(line: &str) -> String {
    let early_exit = read(line).unwrap_err();
    assert_eq!(early_exit.exit, Exit::Usage, "{line}");
    early_exit.text
}

#[test]
fn defaults_of_a_copy() {
    let job = job_of("godwit cp gsiftp://h/f here");
    assert_eq!(job.sources.len(), 1);
    assert_eq!(job.tuner.method.name(), "godwit");
    assert_eq!(job.tuner.bounds, Bounds::up_to(128));
    assert_eq!((job.tuner.epoch, job.tuner.mode), (None, EpochMode::Live));
    assert_eq!(job.block_bytes, 1 << 20);
    assert_eq!(job.socket_buffer_bytes, None);
    assert_eq!(job.congestion, CongestionChoice::System);
    assert_eq!(job.verify, Verify::WherePossible);
    assert_eq!(job.attempts, 5);
    assert_eq!(job.part, None);
    let run = read("godwit cp gsiftp://h/f here").unwrap();
    assert_eq!(
        (run.verbosity, run.connections.stall_limit.as_secs()),
        (1, 60)
    );
}

#[test]
fn every_option_is_taken_up() {
    let job = job_of(
        "godwit cp -r -p 8 -c 2 --max-channels 64 --tcp-buffer 4M --block-size 256K --congestion \
         cubic \
         --max-rate 2.5M --host-rate 1G \
         --verify=md5 --retries 3 --events e.json --json a b ftp://u@h/d/"
            .replace("  ", " ")
            .as_str(),
    );
    assert_eq!(
        (job.tuner.bounds.parallelism, job.tuner.bounds.concurrency),
        (Some(8), Some(2))
    );
    assert_eq!(job.socket_buffer_bytes, Some(4 << 20));
    assert_eq!(job.block_bytes, 256 << 10);
    assert_eq!(job.congestion, CongestionChoice::Fixed("cubic".to_owned()));
    assert_eq!(
        job.tuner.rates,
        Rates {
            own_bps: Some(2_500_000),
            host_bps: Some(1_000_000_000)
        }
    );
    assert_eq!(
        job.verify,
        Verify::Always(Some(godwit_proto::ChecksumAlgorithm::Md5))
    );
    assert_eq!((job.attempts, job.sources.len()), (3, 2));
    assert_eq!(job.pipelining, None);
    assert_eq!((job.journal, job.files_from), (JournalSpec::OfUser, None));
    let listed = job_of("godwit cp --no-journal --files-from - -0 gsiftp://h/d here");
    assert_eq!(listed.journal, JournalSpec::Never);
    let stdin = FilesFrom::List {
        file: None,
        nul: true,
    };
    assert_eq!(listed.files_from, Some(stdin));
    refusal("godwit cp --files-from l a b gsiftp://h/d");
    refusal("godwit cp --files-from l gsiftp://h/d -");
    refusal("godwit cp --journal j --no-journal a gsiftp://h/d");
    let deep = job_of("godwit cp --pipelining 40 gsiftp://h/f here");
    assert_eq!(deep.pipelining, Some(40));
    for n in ["0", "961"] {
        refusal(&format!("godwit cp --pipelining {n} gsiftp://h/f here"));
    }
    assert!(job.recursive && job.json && job.events.is_some());
    assert_eq!(
        job_of("godwit cp --verify gsiftp://h/f here").verify,
        Verify::Always(None)
    );
    assert_eq!(
        job_of("godwit cp --no-verify gsiftp://h/f here").verify,
        Verify::Never
    );
    let part = job_of("godwit cp --length 2K gsiftp://h/f here").part;
    assert_eq!(
        part,
        Some(Part {
            offset: 0,
            length: Some(2048),
            stays: false,
            resumes: false,
        })
    );
    let tuner = |line: &str| job_of(line).tuner;
    assert_eq!(
        tuner("godwit cp --tuner static:concurrency=2,parallelism=6 f ftp://h/").method,
        Method::Static(Setting::new(2, 6))
    );
    let cd = tuner("godwit cp --tuner cd --epoch-mode restart f ftp://h/");
    assert_eq!((cd.mode, cd.epoch_seconds()), (EpochMode::Restart, 3.0));
    let cd = tuner("godwit cp --tuner cd --epoch 30 f ftp://h/");
    assert_eq!(cd.epoch_seconds(), 30.0);
    assert!(cd.moves_workers());
    for still in ["-c 2", "--tuner static", "--tuner globus -p 4"] {
        let line = format!("godwit cp {still} f ftp://h/");
        assert!(!tuner(&line).moves_workers(), "{line}");
    }
}

#[test]
fn servers_may_be_at_both_ends_and_then_no_rate_is_promised() {
    assert!(read("godwit cp ftp://h/f gsiftp://i/f").is_ok());
    for option in ["--max-rate", "--host-rate"] {
        let text = refusal(&format!("godwit cp {option} 1M ftp://h/f ftp://i/f"));
        assert!(text.contains(option), "{text}");
        assert!(read(&format!("godwit cp {option} 1M ftp://h/f .")).is_ok());
    }
    let mixed = refusal("godwit cp f ftp://h/f ftp://i/f");
    assert!(mixed.contains("sources must all"), "{mixed}");
}

#[test]
fn a_sync_takes_one_source_and_what_a_copy_takes() {
    let sync = |line: &str| job_of(line).sync.unwrap();
    let plain = sync("godwit sync a ftp://h/");
    assert_eq!((plain.level, plain.dry_run), (Level::Modified, false));
    assert_eq!(plain.delete, None);
    assert_eq!(
        sync("godwit sync --size-only a ftp://h/").level,
        Level::Size
    );
    let other = sync("godwit sync -n --ignore-existing --delete --max-delete 7 ftp://h/ a");
    assert_eq!((other.level, other.dry_run), (Level::Exists, true));
    assert_eq!(other.delete, Some(DeleteOptions { most: Some(7) }));
    let job = job_of("godwit sync -c 2 -p 3 --no-verify ftp://h/a ftp://i/b");
    assert!(job.recursive && job.is_between_servers() && job.verify == Verify::Never);
    assert_eq!(job.tuner.bounds.concurrency, Some(2));
    for (line, words) in [
        ("godwit sync a b", "one end must be a server"),
        ("godwit sync - ftp://h/", "- is none"),
        ("godwit sync a ftp://h/ b", "unexpected argument"),
        ("godwit sync --max-delete 1 a ftp://h/", "--delete"),
        (
            "godwit sync --size-only --ignore-existing a ftp://h/",
            "cannot be used with",
        ),
        (
            "godwit sync --max-rate 1M ftp://h/a ftp://i/b",
            "--max-rate",
        ),
    ] {
        let text = refusal(line);
        assert!(text.contains(words), "{line}: {text}");
    }
}

#[test]
fn protection_is_a_floor_that_every_verb_takes() {
    let floor = |line: &str| read(line).unwrap().connections.protect;
    assert_eq!(floor("godwit cp f gsiftp://h/"), None);
    for (word, level) in [
        ("clear", MinProtection::Clear),
        ("identity", MinProtection::Identity),
        ("integrity", MinProtection::Integrity),
        ("private", MinProtection::Private),
    ] {
        let line = format!("godwit ls --protect {word} gsiftp://h/");
        assert_eq!(floor(&line), Some(level));
    }
    assert!(
        MinProtection::Clear < MinProtection::Identity
            && MinProtection::Integrity < MinProtection::Private
    );
    assert!(refusal("godwit cp --protect secret f gsiftp://h/").contains("identity"));
}

#[test]
fn ssh_is_what_the_option_or_else_the_environment_says() {
    let said = |name: &str| match name {
        "GODWIT_SSH" => Some("ssh -F config".to_owned()),
        "GLOBUS_REMOTE_SSHFTP" => Some(" ".to_owned()),
        _ => None,
    };
    let environment = Environment {
        ssh: Ssh::of_environment(said),
        ..Environment::default()
    };
    let ssh = |line: &str| {
        let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
        parse(&words, &environment).unwrap().connections.ssh
    };
    let usual = ssh("godwit ls sshftp://h/");
    assert_eq!(
        (usual.command.as_str(), usual.server),
        ("ssh -F config", None)
    );
    let named = ssh("godwit ls --ssh mine --ssh-server theirs sshftp://h/");
    assert_eq!(
        (named.command.as_str(), named.server.as_deref()),
        ("mine", Some("theirs"))
    );
}

#[test]
fn proxies_are_made_and_told_of() {
    let proxy = |line: &str| match read(line).unwrap().request {
        Request::Proxy(proxy) => proxy,
        other => panic!("{other:?}"),
    };
    let Proxy::Init(plain) = proxy("godwit proxy init") else {
        panic!("is made");
    };
    assert_eq!((plain.pair, plain.out), (None, None));
    assert_eq!(plain.key, KeyKind::Rsa(2048));
    assert_eq!(plain.lifetime, Duration::from_secs(12 * 3600));
    let Proxy::Init(other) = proxy(
        "godwit proxy init --cert c --key k --hours 0.5 --key-type ec --limited --path-length 0 -o \
         p",
    ) else {
        panic!("is made");
    };
    assert_eq!(other.pair, Some(("c".into(), "k".into())));
    assert_eq!((other.key, other.limited), (KeyKind::EcP256, true));
    assert_eq!(other.lifetime, Duration::from_secs(1800));
    let Proxy::Info(info) = proxy("godwit proxy info --valid-for 2 --json p") else {
        panic!("is told of");
    };
    assert_eq!(info.file, Some("p".into()));
    assert_eq!(info.valid_for, Some(Duration::from_secs(7200)));
    for wrong in [
        "godwit proxy",
        "godwit proxy init --cert c",
        "godwit proxy init --hours 0",
        "godwit proxy init --hours nan",
        "godwit proxy init --hours 100000",
        "godwit proxy init --key-type rsa:1024",
        "godwit proxy init --key-type dsa",
        "godwit proxy init --legacy --path-length 1",
    ] {
        refusal(wrong);
    }
}

#[test]
fn contradictions_are_named() {
    for (line, words) in [
        ("godwit cp a b", "one end must be a server"),
        ("godwit cp a ftp://h/b .", "sources must all be local"),
        ("godwit cp a", "2"),
        ("godwit cp a - ftp://h/d/", "stands for one file"),
        ("godwit cp -r - ftp://h/d", "stands for one file"),
        ("godwit cp - ftp://h/d/", "needs a file name"),
        ("godwit cp --offset 1 - ftp://h/d", "standard input"),
        ("godwit cp --offset 1 -r a ftp://h/d", "take one file"),
        (
            "godwit cp --offset 9223372036854775807 --length 1 a ftp://h/d",
            "past the end",
        ),
        ("godwit cp -p 100 -c 2 a ftp://h/d", "--max-channels 128"),
        ("godwit cp --tuner static:x=1 a ftp://h/d", "unknown key"),
        (
            "godwit cp --tuner best a ftp://h/d",
            "--tuner best: unknown, use one of godwit, ",
        ),
        ("godwit cp --epoch 0 a ftp://h/d", "more than 0"),
        ("godwit cp --epoch-mode dead a ftp://h/d", "live or restart"),
        ("godwit cp --verify=rot13 a ftp://h/d", "rot13"),
        ("godwit cp --tcp-buffer 1X a ftp://h/d", "unknown suffix"),
        ("godwit cp --nonsense a ftp://h/d", "--nonsense"),
        ("godwit cp -p 0 a ftp://h/d", "0"),
        ("godwit cp gopher://h/x .", "unknown scheme"),
        ("godwit ls /tmp", "wanted a URL"),
        ("godwit mv ftp://a/x ftp://b/x", "within one server"),
        ("godwit cksum -", "works on files"),
        ("godwit chmod 9 ftp://a/x", "octal"),
    ] {
        let text = refusal(line);
        assert!(text.contains(words), "{line}: {text}");
    }
}

#[test]
fn passwords_are_never_quoted() {
    let job = job_of("godwit cp ftp://me:s3cret@h/f .");
    assert!(!format!("{job:?}").contains("s3cret"));
    assert!(job.command.contains("ftp://me:***@h/f"), "{}", job.command);
    for line in [
        "godwit cp ftp://me:s3cret@h:x/f .",
        "godwit cp ftp://me:s3/cret@h/f .",
        "godwit cp ftp://me:99/s3cret@h/f .",
        "godwit cp ftp:/me:s3cret@h/f .",
        "godwit ls ftp://me:s3cret",
        "godwit ls file://me:s3cret@h/",
        // Said by clap.
        "godwit ls ftp://h/ ftp://me:s3cret@h/f",
        "godwit cp --concurrency ftp://me:s3cret@h/f . .",
        "godwit ftp://me:s3cret@h/f",
        "godwit mv ftp://me:s3cret@h/f ftp://me:s3cret@i/f",
    ] {
        let text = refusal(line);
        assert!(!text.contains("cret"), "{line}: {text}");
    }
    let environment = Environment {
        secrets: Secrets {
            password: Some(Password::new("s3cret")),
            token: Some(Password::new("s3cret.token")),
            ..Secrets::default()
        },
        ..Environment::default()
    };
    let words = ["godwit", "ls", "ftp://me@h/"].map(OsString::from);
    let run = parse(&words, &environment).unwrap();
    assert!(!format!("{run:?}").contains("s3cret"));
}

#[test]
fn a_bad_port_range_is_named() {
    let environment = Environment {
        port_range: Some("high".into()),
        ..Environment::default()
    };
    let words = ["godwit", "ls", "ftp://h/"].map(OsString::from);
    let early_exit = parse(&words, &environment).unwrap_err();
    assert!(early_exit.text.contains("GLOBUS_TCP_PORT_RANGE=high"));
}

#[test]
fn help_lists_what_works_and_nothing_else() {
    let help = |line| {
        let early_exit = read(line).unwrap_err();
        assert_eq!(early_exit.exit, Exit::Done);
        early_exit.text
    };
    let cp = help("godwit cp --help");
    for flag in [
        "--recursive",
        "--parallelism",
        "--concurrency",
        "--max-channels",
        "--pipelining",
        "--files-from",
        "--journal",
        "--tuner",
        "falcon",
        "--epoch",
        "--epoch-mode",
        "--tcp-buffer",
        "--block-size",
        "--congestion",
        "--max-rate",
        "--host-rate",
        "--offset",
        "--length",
        "--verify",
        "--no-verify",
        "--retries",
        "--stall-timeout",
        "--events",
        "--json",
        "--quiet",
        "--verbose",
        "--protect",
        "integrity",
    ] {
        assert!(cp.contains(flag), "{flag}");
    }
    let all = help("godwit --help");
    for verb in [
        "cp", "sync", "ls", "stat", "cksum", "mkdir", "rm", "mv", "chmod", "proxy", "explain",
    ] {
        assert!(all.contains(&format!("\n  {verb} ")), "{verb}: {all}");
    }
    assert!(all.contains("Exit status: 0 done"), "{all}");
}

#[test]
fn proxies_are_named_for_a_host_or_for_all() {
    let run =
        read("godwit ls --proxy a.example=/x/a=b --proxy /tmp/p=q --proxy [::1]=c gsiftp://h/");
    let connections = run.unwrap().connections;
    let of = |host| connections.proxy_of(host).unwrap().to_str().unwrap();
    assert_eq!(of("a.example"), "/x/a=b");
    assert_eq!(of("::1"), "c");
    assert_eq!(of("other"), "/tmp/p=q");
    let none = read("godwit ls gsiftp://h/").unwrap().connections;
    assert_eq!(none.proxy_of("h"), None);
    for wrong in ["=f", "h="] {
        assert!(refusal(&format!("godwit ls --proxy {wrong} gsiftp://h/")).contains("HOST=FILE"));
    }
}

#[test]
fn a_directory_is_not_copied_into_itself() {
    for (source, target) in [
        ("ftp://h/a", "ftp://h/a"),
        ("ftp://h/a/", "ftp://h/a/b/c"),
        ("ftp://h/", "ftp://h/a"),
        ("ftp://h/a/../b", "ftp://h/b/c"),
    ] {
        let text = refusal(&format!("godwit cp -r {source} {target}"));
        assert!(text.contains("into itself"), "{text}");
        assert!(refusal(&format!("godwit sync {source} {target}")).contains("into itself"));
    }
    for (source, target) in [
        ("ftp://h/a", "ftp://h/ab"),
        ("ftp://h/a/b", "ftp://h/a"),
        ("ftp://h/a", "ftp://u@h/a"),
        ("ftp://h:1/a", "ftp://h/a"),
        ("ftp://h/a", "here/a"),
    ] {
        job_of(&format!("godwit cp -r {source} {target}"));
    }
    job_of("godwit cp ftp://h/a ftp://h/a/b");
}

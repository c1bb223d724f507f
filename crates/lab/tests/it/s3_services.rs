//! `godwit` and services of S3: moto and versitygw, of other makers, and our own `godwitd`; and
//! `rclone`, which reads what we write and the other way round.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::Command,
    time::{Duration, Instant, SystemTime},
};

use godwit_lab::peers::{
    Finished,
    godwit::{binary, godwit_with},
    process,
    s3::{BUCKET, Kind, S3Server},
};
use tempfile::TempDir;

use crate::support::{
    LONG, Need, assert_holds, assert_same_tree, have, odd_names, write_noise, write_tree,
};

/// Each function below, as a test against each service.
macro_rules! against_each {
    ($($name:ident),+ $(,)?) => {
        mod and_moto {
            $(#[test] fn $name() { super::$name(super::Kind::Moto); })+
        }
        mod and_versitygw {
            $(#[test] fn $name() { super::$name(super::Kind::Versitygw); })+
        }
        mod and_godwitd {
            $(#[test] fn $name() { super::$name(super::Kind::Godwitd); })+
        }
    };
}

against_each!(
    objects_go_both_ways_whole_and_in_parts,
    trees_are_kept_in_step,
    files_keep_their_times_both_ways,
    names_are_listed_moved_and_removed,
    refusals_are_told_apart,
    an_upload_that_was_killed_is_gone_on_with_or_removed,
);

#[test]
fn rclone_and_moto() {
    rclone_reads_what_we_write_and_the_other_way_round(Kind::Moto);
}

#[test]
fn rclone_and_versitygw() {
    rclone_reads_what_we_write_and_the_other_way_round(Kind::Versitygw);
}

struct Site {
    server: S3Server,
    local: TempDir,
}

impl Site {
    /// `None`, and a skip, where the service is missing.
    fn start(kind: Kind) -> Option<Self> {
        have(&[Need::Godwit, Need::S3(kind)]).then(|| Self {
            server: S3Server::start(kind).expect("it starts"),
            local: TempDir::new().expect("a directory"),
        })
    }

    fn local(&self, path: &str) -> String {
        self.local.path().join(path).display().to_string()
    }

    /// What godwit finds in its environment.
    fn variables(&self) -> Vec<(String, String)> {
        let home = ("HOME".to_owned(), self.local("home"));
        let state = ("XDG_STATE_HOME".to_owned(), self.local("state"));
        let own = self.server.variables().into_iter();
        own.chain([home, state]).collect()
    }

    /// The lines of `uploads ls`.
    fn uploads(&self, prefix: &str) -> String {
        let finished = self.try_godwit(&["uploads", "ls", &url(prefix)], &[]);
        assert!(finished.status.success(), "{}", finished.log());
        finished.stdout_text()
    }

    /// Runs `godwit` slowly, and kills it when its journal names its upload.
    fn kill_in_upload(&self, journal: &str, arguments: &[&str]) {
        let mut command = Command::new(binary("godwit").expect("present"));
        command.args(arguments).arg("--max-rate=40M");
        let mut running = command.envs(self.variables()).spawn().expect("it starts");
        let begun = Instant::now();
        let is_named = || fs::read_to_string(journal).is_ok_and(|text| text.contains("\nsafe "));
        while !is_named() {
            assert!(begun.elapsed() < LONG, "no upload has begun");
            std::thread::yield_now();
        }
        running.kill().expect("it runs");
        running.wait().expect("it ends");
    }

    fn try_godwit(&self, arguments: &[&str], more: &[(&str, &str)]) -> Finished {
        let more = more
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let variables = self.variables().into_iter().chain(more);
        godwit_with(
            arguments,
            variables.map(|(name, value)| (name.into(), value.into())),
        )
        .expect("it ends")
    }

    /// Runs `godwit`, which must succeed; what it printed.
    #[track_caller]
    fn godwit(&self, arguments: &[&str]) -> String {
        let finished = self.try_godwit(arguments, &[]);
        let (said, log) = (finished.log(), self.server.log());
        assert!(
            finished.status.success(),
            "{arguments:?}\n{said}--- server\n{log}"
        );
        said
    }

    #[track_caller]
    fn rclone(&self, arguments: &[&str]) -> String {
        let mut command = self.server.rclone().expect("present");
        command.args(arguments).env("HOME", self.local("home"));
        let finished = process::run(command, LONG).expect("it ends");
        assert!(finished.status.success(), "{}", finished.log());
        finished.stdout_text()
    }
}

/// moto 5.2.1 says that its checksum of the checksums of parts is one of all bytes.
fn unverified(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Moto => &["--no-verify"],
        Kind::Versitygw | Kind::Godwitd => &[],
    }
}

fn url(key: &str) -> String {
    let encoded = key.replace('%', "%25");
    format!("s3://{BUCKET}/{encoded}")
}

fn objects_go_both_ways_whole_and_in_parts(kind: Kind) {
    let Some(site) = Site::start(kind) else {
        return;
    };
    for (name, bytes) in [("empty", 0), ("small", 100_001), ("large", 40_000_001)] {
        let bytes = write_noise(&site.local.path().join(name), bytes, 1);
        site.godwit(&["cp", &site.local(name), &url(name)]);
        let back = format!("{name} back");
        let (from, to) = (url(name), site.local(&back));
        let get = ["cp", "-p", "3", &from, &to];
        site.godwit(&[&get[..], unverified(kind)].concat());
        assert_holds(&site.local.path().join(&back), &bytes);
        let copy = url(&format!("{name} copy"));
        let within = ["cp", "-v", "-p", "3", &from, &copy];
        let said = site.godwit(&[&within[..], unverified(kind)].concat());
        // versitygw 1.8.0 gives each copied part the checksum of its whole source.
        let is_copied = name == "small" || (kind, name) == (Kind::Moto, "large");
        assert_eq!(is_copied, !said.contains("pass through"), "{name}: {said}");
        let get = ["cp", &copy, &to];
        site.godwit(&[&get[..], unverified(kind)].concat());
        assert_holds(&site.local.path().join(&back), &bytes);
    }
    let part = [
        "cp",
        "--offset",
        "7",
        "--length",
        "100",
        &url("small"),
        &site.local("part"),
    ];
    site.godwit(&part);
    let part = fs::read(site.local.path().join("part")).expect("a part");
    let whole = fs::read(site.local.path().join("small")).expect("a file");
    assert!(part.ends_with(&whole[7..107]), "{}", part.len());
}

fn trees_are_kept_in_step(kind: Kind) {
    let Some(site) = Site::start(kind) else {
        return;
    };
    let tree = site.local.path().join("tree");
    let mut paths = write_tree(&tree);
    for (seed, name) in (0..).zip(odd_names()) {
        // Files have such names at versitygw.
        let is_kept = kind != Kind::Versitygw || name.len() < 200 && !name.contains('\\');
        if is_kept {
            write_noise(&tree.join(&name), 100, seed);
            paths.push(name);
        }
    }
    let (here, there) = (site.local("tree/"), url("copy/"));
    site.godwit(&["cp", "-r", &here, &there]);
    let same = format!("{} the same", paths.len());
    let said = site.godwit(&["sync", &here, &there]);
    assert!(said.contains(&same), "{said}");
    site.godwit(&["sync", &there, &site.local("back/")]);
    assert_same_tree(&paths, &tree, &site.local.path().join("back"));
    let said = site.godwit(&["sync", &there, &site.local("back/")]);
    assert!(said.contains(&same), "{said}");
    let changed = &paths[4];
    write_noise(&tree.join(changed), 123, 9);
    let said = site.godwit(&["sync", &here, &there]);
    assert!(said.contains("1 file,"), "{said}");
    fs::remove_file(tree.join(changed)).expect("removes");
    site.godwit(&["sync", "--delete", &here, &there]);
    let listed = site.godwit(&["ls", &there]);
    assert!(!listed.lines().any(|line| line == changed), "{listed}");
}

/// Seconds since 1970 of the last change of a file.
fn changed(path: &Path) -> u64 {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    let since = modified
        .expect("a time")
        .duration_since(SystemTime::UNIX_EPOCH);
    since.expect("later").as_secs()
}

fn files_keep_their_times_both_ways(kind: Kind) {
    let Some(site) = Site::start(kind) else {
        return;
    };
    let (tree, back) = (
        site.local.path().join("tree"),
        site.local.path().join("back"),
    );
    let paths = write_tree(&tree);
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    for path in &paths {
        let file = fs::File::options().write(true).open(tree.join(path));
        let set = file.and_then(|file| file.set_modified(then));
        set.expect("a time is set");
    }
    let (here, there, again) = (site.local("tree/"), url("kept/"), site.local("back/"));
    let same = format!("{} the same", paths.len());
    site.godwit(&["sync", &here, &there]);
    // What comes back is compared with what went there.
    let said = site.godwit(&["sync", &there, &here]);
    assert!(said.contains(&same), "{said}");
    site.godwit(&["sync", &there, &again]);
    for path in &paths {
        assert_eq!(changed(&back.join(path)), 1_600_000_000, "{path}");
    }
    for (from, to) in [
        (&there, &again),
        (&again, &there),
        (&here, &there),
        (&there, &here),
    ] {
        let said = site.godwit(&["sync", from, to]);
        assert!(said.contains(&same), "{from} {to}: {said}");
    }
    // A file of another time, and the same size, is copied.
    let other = back.join(&paths[4]);
    let bytes = fs::read(&other).expect("a file").len();
    write_noise(&other, bytes, 77);
    let said = site.godwit(&["sync", &there, &again]);
    assert!(said.contains("1 file,"), "{said}");
    assert_same_tree(&paths, &tree, &back);
}

/// The header of an object, by a request whose signature moto does not ask for.
fn headers(site: &Site, key: &str) -> String {
    let addr = site.server.addr();
    let mut stream = TcpStream::connect(addr).expect("connects");
    let request = format!(
        "HEAD /{BUCKET}/{key} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\
         Authorization: AWS4-HMAC-SHA256 Credential=x/20200101/us-east-1/s3/aws4_request\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("sends");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.to_ascii_lowercase()
}

#[test]
fn options_of_objects_reach_the_service() {
    let Some(site) = Site::start(Kind::Moto) else {
        return;
    };
    let class = "--s3-storage-class=STANDARD_IA";
    let encrypted = "--s3-server-side-encryption=AES256";
    for (name, bytes) in [("small", 1000), ("large", 20_000_001)] {
        write_noise(&site.local.path().join(name), bytes, 3);
        site.godwit(&[
            "cp",
            "--no-verify",
            class,
            encrypted,
            &site.local(name),
            &url(name),
        ]);
        let moved = format!("{name}2");
        site.godwit(&["mv", "--s3-requester-pays", &url(name), &url(&moved)]);
        let said = headers(&site, &moved);
        assert!(said.contains("x-amz-storage-class: standard_ia"), "{said}");
    }
    let (small, kms) = (site.local("small"), url("kms"));
    let keyed = [
        "--s3-server-side-encryption=aws:kms",
        "--s3-sse-kms-key-id=k1",
    ];
    site.godwit(&[&["cp", &small, &kms], &keyed[..]].concat());
    let said = headers(&site, "kms");
    for expected in [
        "x-amz-server-side-encryption: aws:kms",
        "aws-kms-key-id: k1",
    ] {
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn roles_are_assumed_at_moto_and_its_keys_store_objects() {
    let Some(site) = Site::start(Kind::Moto) else {
        return;
    };
    write_noise(&site.local.path().join("f"), 1000, 5);
    let (file, config) = (site.local("f"), site.local("config"));
    let token = site.local("token");
    fs::write(&token, "a.web.identity").expect("a file");
    let profiles = format!(
        "[profile mover]\nrole_arn = arn:aws:iam::123456789012:role/mover\n\
         source_profile = base\nduration_seconds = 900\nexternal_id = x\n\
         [profile base]\nrole_arn = arn:aws:iam::123456789012:role/base\n\
         credential_source = Environment\n\
         [profile pod]\nrole_arn = arn:aws:iam::123456789012:role/pod\n\
         web_identity_token_file = {token}\n"
    );
    fs::write(&config, profiles).expect("a file");
    for profile in ["mover", "pod"] {
        let there = format!("s3://{profile}@{BUCKET}/{profile}");
        let variables = [("AWS_CONFIG_FILE", &*config)];
        let finished = site.try_godwit(&["cp", "-v", &file, &there], &variables);
        assert!(finished.status.success(), "{}", finished.log());
        let back = site.local(profile);
        site.godwit(&["cp", &url(profile), &back]);
        assert_eq!(
            fs::read(&back).expect("a file"),
            fs::read(&file).expect("a file")
        );
    }
}

#[test]
fn an_object_that_cannot_be_encrypted_is_not_stored() {
    let Some(site) = Site::start(Kind::Versitygw) else {
        return;
    };
    for (name, bytes) in [("small", 1000), ("large", 20_000_001)] {
        write_noise(&site.local.path().join(name), bytes, 3);
        let (from, to) = (site.local(name), url(name));
        let options = ["--no-journal", "--s3-server-side-encryption=AES256"];
        let refused = site.try_godwit(&[&["cp", &from, &to], &options[..]].concat(), &[]);
        assert!(!refused.status.success(), "{}", refused.log());
        let gone = site.try_godwit(&["stat", &to], &[]);
        assert!(!gone.status.success(), "{}", gone.log());
        assert_eq!(site.uploads(""), "", "{name}");
    }
}

fn names_are_listed_moved_and_removed(kind: Kind) {
    let Some(site) = Site::start(kind) else {
        return;
    };
    write_noise(&site.local.path().join("f"), 10, 1);
    site.godwit(&["cp", &site.local("f"), &url("d/a b")]);
    site.godwit(&["mv", &url("d/a b"), &url("d/ü & ö")]);
    let listed = site.godwit(&["ls", &url("d")]);
    assert!(listed.lines().any(|line| line == "ü & ö"), "{listed}");
    let listed = site.godwit(&["ls", &url("")]);
    assert!(listed.lines().any(|line| line == "d"), "{listed}");
    let stated = site.godwit(&["stat", &url("d/ü & ö")]);
    assert!(stated.contains("10"), "{stated}");
    let full = site.try_godwit(&["rm", &url("d")], &[]);
    assert!(!full.status.success(), "{}", full.log());
    site.godwit(&["rm", "-r", &url("d")]);
    let gone = site.try_godwit(&["stat", &url("d/ü & ö")], &[]);
    assert!(!gone.status.success(), "{}", gone.log());
}

fn refusals_are_told_apart(kind: Kind) {
    let Some(site) = Site::start(kind) else {
        return;
    };
    let missing = site.try_godwit(&["cp", &url("no"), &site.local("no")], &[]);
    assert_eq!(missing.status.code(), Some(4), "{}", missing.log());
    assert!(missing.log().contains("no such file"), "{}", missing.log());
    let unknown = site.try_godwit(&["ls", "s3://no-such-bucket-here/"], &[]);
    assert!(!unknown.status.success(), "{}", unknown.log());
    let keyless = [("AWS_ACCESS_KEY_ID", "")];
    let keyless = site.try_godwit(&["ls", &url("")], &keyless);
    assert_eq!(keyless.status.code(), Some(3), "{}", keyless.log());
    assert!(
        keyless.log().contains("AWS_ACCESS_KEY_ID"),
        "{}",
        keyless.log()
    );
    if kind != Kind::Moto {
        write_noise(&site.local.path().join("f"), 10, 1);
        let wrong = [("AWS_SECRET_ACCESS_KEY", "no-key-of-it")];
        let put = ["cp", "-vv", &site.local("f"), &url("f")];
        let refused = site.try_godwit(&put, &wrong);
        assert_eq!(refused.status.code(), Some(3), "{}", refused.log());
        let said = refused.log();
        assert!(said.contains("SignatureDoesNotMatch"), "{said}");
        assert!(
            !said.contains("Signature=") && !said.contains("no-key-of-it"),
            "{said}"
        );
    }
}

/// They have no tag, and a time that is finer than the one which the service tells.
#[test]
fn objects_that_were_files_before_the_service_came_are_fetched_in_parts() {
    let Some(site) = Site::start(Kind::Versitygw) else {
        return;
    };
    let file = site.server.directory(BUCKET).join("large");
    let bytes = write_noise(&file, 40_000_001, 1);
    site.godwit(&["cp", "-p", "3", &url("large"), &site.local("back")]);
    assert_holds(&site.local.path().join("back"), &bytes);
}

#[test]
fn the_checksum_of_an_object_comes_with_it_and_is_compared() {
    let Some(site) = Site::start(Kind::Versitygw) else {
        return;
    };
    write_noise(&site.local.path().join("f"), 100_000, 1);
    let said = site.godwit(&["cp", "-vv", &site.local("f"), &url("f")]);
    assert!(
        !said.contains(".part"),
        "no other name is asked for: {said}"
    );
    let said = site.godwit(&["cp", "-vv", &url("f"), &site.local("back")]);
    let (_, after) = said.split_once("-> GET").expect("it is fetched");
    assert!(!after.contains("-> HEAD"), "{said}");
    assert!(!said.contains("not verified"), "{said}");
    // Behind the service's back.
    write_noise(&site.server.directory(BUCKET).join("f"), 100_000, 2);
    let wrong = site.try_godwit(
        &["cp", "--retries", "1", &url("f"), &site.local("other")],
        &[],
    );
    assert!(!wrong.status.success(), "{}", wrong.log());
    assert!(wrong.log().contains("CRC32C"), "{}", wrong.log());
    assert!(!site.local.path().join("other").exists());
}

fn an_upload_that_was_killed_is_gone_on_with_or_removed(kind: Kind) {
    let Some(site) = Site::start(kind) else {
        return;
    };
    let bytes = write_noise(&site.local.path().join("large"), 40_000_001, 1);
    let journal = site.local("journal");
    let put = [
        "cp",
        "--journal",
        &journal,
        &site.local("large"),
        &url("d/large"),
    ];
    site.kill_in_upload(&journal, &put);
    assert!(site.uploads("d/").contains(&url("d/large")));
    assert_eq!(site.uploads("e"), "");
    site.godwit(&put);
    assert_eq!(site.uploads(""), "");
    let (from, to) = (url("d/large"), site.local("back"));
    site.godwit(&[&["cp", &from, &to][..], unverified(kind)].concat());
    assert_holds(&site.local.path().join("back"), &bytes);
    let journal = site.local("other journal");
    let put = [
        "cp",
        "--journal",
        &journal,
        &site.local("large"),
        &url("d/other"),
    ];
    site.kill_in_upload(&journal, &put);
    site.godwit(&["uploads", "rm", &url("d/o")]);
    assert_eq!(site.uploads(""), "");
}

fn rclone_reads_what_we_write_and_the_other_way_round(kind: Kind) {
    let Some(site) = Site::start(kind).filter(|_| have(&[Need::Rclone])) else {
        return;
    };
    let large = write_noise(&site.local.path().join("large"), 20_000_001, 1);
    site.godwit(&["cp", &site.local("large"), &url("of godwit")]);
    let there = site.server.rclone_path(BUCKET, "of godwit");
    site.rclone(&["copyto", &there, &site.local("by rclone")]);
    assert_holds(&site.local.path().join("by rclone"), &large);
    // It reads the time that we have said, and not that at which the object was stored.
    let told = |path: &str| site.rclone(&["lsf", "--format", "t", path]);
    assert_eq!(told(&there), told(&site.local("large")));
    if kind == Kind::Versitygw {
        // No upload of rclone 1.60.1 to versitygw 1.8.0 has come to an end here.
        return;
    }
    let there = site.server.rclone_path(BUCKET, "of rclone");
    site.rclone(&["copyto", &site.local("large"), &there]);
    site.godwit(&["cp", "-p", "4", &url("of rclone"), &site.local("by godwit")]);
    assert_holds(&site.local.path().join("by godwit"), &large);
}

//! Ordinary FTP clients against our server.

use std::fs;
use std::path::Path;

use godwit_lab::peers::plain_ftp::{self, CURL, RCLONE, absolute_url};

use crate::support::{
    Kind, Need, Site, assert_holds, assert_same_tree, have, odd_names, write_noise, write_tree,
};

const CURL_NEEDS: &[Need] = &[Need::Curl, Need::Godwitd];
const LFTP_NEEDS: &[Need] = &[Need::Lftp, Need::Godwitd];

/// Line ends of every kind, which a transfer as text would change.
const TEXT: &[u8] = b"text\r\nwith all\nkinds\rof ends\r\n";

fn curl_get(site: &Site, extra: &[&str], path: &str, target: &Path) {
    let url = absolute_url(site.addr(), path);
    site.expect_ok(plain_ftp::curl_get(extra, &url, target));
}

fn curl_put(site: &Site, extra: &[&str], source: &Path, path: &str) {
    let url = absolute_url(site.addr(), path);
    site.expect_ok(plain_ftp::curl_put(extra, source, &url));
}

/// It sets up the data connection before it says that the file is no text.
#[test]
fn the_type_counts_that_is_in_force_at_the_transfer() {
    if !have(CURL_NEEDS) {
        return;
    }
    let site = Site::new(Kind::Godwitd);
    fs::write(site.at("text"), TEXT).expect("a file");
    let back = site.local("back");
    for extra in [&[][..], &["--disable-epsv"], &["--ftp-port", "-"]] {
        curl_get(&site, extra, "text", &back);
        assert_holds(&back, TEXT);
        curl_put(&site, extra, &back, "put");
        assert_holds(&site.at("put"), TEXT);
        fs::remove_file(site.at("put")).expect("removes");
    }
}

#[test]
fn curl_copies_every_size_and_odd_names() {
    if !have(CURL_NEEDS) {
        return;
    }
    let site = Site::new(Kind::Godwitd);
    let (source, back) = (site.local("source"), site.local("back"));
    for size in [0, 1, 65_536, 3_000_001] {
        let bytes = write_noise(&source, size, 7);
        curl_put(&site, &[], &source, "f");
        assert_holds(&site.at("f"), &bytes);
        curl_get(&site, &[], "f", &back);
        assert_holds(&back, &bytes);
    }
    for (seed, name) in (1..).zip(odd_names()) {
        let bytes = write_noise(&source, 100, seed);
        curl_put(&site, &["--globoff", "--path-as-is"], &source, &name);
        assert_holds(&site.at(&name), &bytes);
        curl_get(&site, &["--globoff", "--path-as-is"], &name, &back);
        assert_holds(&back, &bytes);
    }
}

#[test]
fn curl_resumes_appends_and_takes_ranges() {
    if !have(CURL_NEEDS) {
        return;
    }
    let site = Site::new(Kind::Godwitd);
    let bytes = write_noise(&site.at("f"), 500_000, 1);
    let back = site.local("back");
    fs::write(&back, &bytes[..123_456]).expect("a file");
    curl_get(&site, &["--continue-at", "-"], "f", &back);
    assert_holds(&back, &bytes);
    curl_get(&site, &["--range", "1000-1999"], "f", &back);
    assert_holds(&back, &bytes[1000..2000]);

    let source = site.local("source");
    fs::write(&source, &bytes).expect("a file");
    fs::write(site.at("half"), &bytes[..222_222]).expect("a file");
    curl_put(&site, &["--continue-at", "-"], &source, "half");
    assert_holds(&site.at("half"), &bytes);
    curl_put(&site, &["--append"], &source, "half");
    assert_holds(&site.at("half"), &[&bytes[..], &bytes[..]].concat());
    curl_put(&site, &["--ftp-create-dirs"], &source, "new/deeper/f");
    assert_holds(&site.at("new/deeper/f"), &bytes);
}

/// Each of its transfers makes the directories that it needs, whether or not another was faster.
#[test]
fn rclone_puts_many_files_into_new_directories() {
    if !have(&[Need::Rclone, Need::Godwitd]) {
        return;
    }
    let site = Site::new(Kind::Godwitd);
    let tree = site.local("tree");
    let mut paths = Vec::new();
    for folder in ["a", "a/b", "c"] {
        fs::create_dir_all(tree.join(folder)).expect("a directory");
        for number in 0..8 {
            let path = format!("{folder}/{number}");
            write_noise(&tree.join(&path), 100, number);
            paths.push(path);
        }
    }
    let password = site
        .expect_ok(RCLONE.run(["obscure", "guest"]))
        .stdout_text();
    let (host, port) = (site.addr().ip().to_string(), site.addr().port().to_string());
    let source = tree.display().to_string();
    for round in 0..5 {
        let target = format!(":ftp:/put/{round}");
        let arguments = [
            "--config",
            "/dev/null",
            "--retries",
            "1",
            "--transfers",
            "16",
            "--ftp-host",
            &host,
            "--ftp-port",
            &port,
            "--ftp-user",
            "anonymous",
            "--ftp-pass",
            password.trim(),
            "copy",
            &source,
            &target,
        ];
        let copied = site.expect_ok(RCLONE.run(arguments));
        assert!(copied.status.success(), "{}", copied.log());
        assert_same_tree(&paths, &tree, &site.at(&format!("put/{round}")));
    }
}

#[test]
fn curl_lists_and_asks() {
    if !have(CURL_NEEDS) {
        return;
    }
    let site = Site::new(Kind::Godwitd);
    write_noise(&site.at("a file"), 4321, 1);
    fs::create_dir(site.at("folder")).expect("a directory");
    let run = |arguments: &[&str]| {
        let mut all = vec!["--disable", "--silent", "--show-error"];
        all.extend(arguments);
        site.expect_ok(CURL.run(all)).stdout_text()
    };
    let url = format!("ftp://{}/", site.addr());
    let mut names: Vec<String> = run(&["--list-only", &url])
        .lines()
        .map(Into::into)
        .collect();
    names.sort();
    assert_eq!(names, ["a file", "folder"]);
    let long = run(&[&url]);
    let line = long.lines().find(|line| line.ends_with(" a file"));
    assert!(
        line.is_some_and(|line| line.starts_with("-rw") && line.contains(" 4321 ")),
        "{long}"
    );
    assert!(long.lines().any(|line| line.starts_with("drwx")), "{long}");
    let head = run(&["--head", &format!("{url}a%20file")]);
    assert!(head.contains("Content-Length: 4321"), "{head}");
    assert!(head.contains("Last-Modified: "), "{head}");
    // Exit status 9: the directory is not there; 78: the file is not.
    let absent = |path: &str| {
        let url = format!("{url}{path}");
        site.expect_ok(CURL.run(["--disable", "--silent", &url]))
            .status
            .code()
    };
    assert_eq!(absent("absent/f"), Some(9));
    assert_eq!(absent("absent"), Some(78));
}

#[test]
fn lftp_copies_lists_and_manages() {
    if !have(LFTP_NEEDS) {
        return;
    }
    let site = Site::new(Kind::Godwitd);
    let bytes = write_noise(&site.local("f"), 2_000_003, 1);
    let run = |script: &str| {
        let script = format!("lcd {}; {script}", site.local("").display());
        site.expect_ok(plain_ftp::lftp(site.addr(), &script))
            .stdout_text()
    };
    run("put f; get f -o back; chmod 600 f");
    assert_holds(&site.at("f"), &bytes);
    assert_holds(&site.local("back"), &bytes);
    run("put f -o 'in ner \"quoted\" name; 100%'");
    assert_holds(&site.at("in ner \"quoted\" name; 100%"), &bytes);
    let listing = run("cls -1; ls");
    assert!(
        listing.contains("in ner \"quoted\" name; 100%"),
        "{listing}"
    );
    assert!(listing.contains("-rw-------"), "{listing}");
    run("mkdir -p a/b; mv f a/b/moved; cd a/b; cat moved; rm moved; cd /; rmdir a/b");
    assert!(!site.at("a/b").exists());
    assert_eq!(run("cd a; pwd").trim(), format!("ftp://{}/a", site.addr()));
    let error = plain_ftp::lftp(site.addr(), "get absent").expect_err("absent");
    assert!(error.to_string().contains("No such file"), "{error}");
}

#[test]
fn lftp_mirrors_trees_both_ways() {
    if !have(LFTP_NEEDS) {
        return;
    }
    let site = Site::new(Kind::Godwitd);
    let mut paths = write_tree(&site.local("tree"));
    for (seed, name) in (100..).zip(odd_names()) {
        write_noise(&site.local("tree").join(&name), 50, seed);
        paths.push(name);
    }
    let run = |script: &str| {
        let script = format!("lcd {}; {script}", site.local("").display());
        site.expect_ok(plain_ftp::lftp(site.addr(), &script))
            .stdout_text()
    };
    run("mirror --reverse --parallel=3 tree there; mirror --parallel=3 there back");
    assert_same_tree(&paths, &site.local("tree"), &site.at("there"));
    assert_same_tree(&paths, &site.local("tree"), &site.local("back"));
    // Sizes and times were kept: nothing is copied again.
    let again = run("mirror --verbose --only-newer there back");
    assert!(!again.contains("Transferring"), "{again}");
    run("rm -r there");
    assert!(!site.at("there").exists());
}

#[test]
fn lftp_fetches_one_file_in_parts_at_once() {
    if !have(LFTP_NEEDS) {
        return;
    }
    let site = Site::new(Kind::Godwitd);
    let bytes = write_noise(&site.at("f"), 6_000_001, 1);
    let back = site.local("back");
    let script = format!("pget -n 4 f -o {}", back.display());
    site.expect_ok(plain_ftp::lftp(site.addr(), &script));
    assert_holds(&back, &bytes);
}

//! Servers that owe a reply and never give it: every wait has the limit that the user has set.

use std::fs;

use crate::{
    fake::{Fake, Quirks},
    harness::{Served, run, text},
    interposed::interposed,
};

const FLAGS: [&str; 6] = ["cp", "-r", "--stall-timeout", "1", "--retries", "1"];

#[test]
fn a_transfer_that_is_never_confirmed_fails_within_the_stall_limit() {
    let quirks = Quirks {
        no_verdict: true,
        ..Quirks::default()
    };
    let fake = Fake::start(quirks);
    fake.put("/f", b"content");
    let here = tempfile::tempdir().unwrap();
    let (file, copy) = (here.path().join("f"), here.path().join("copy"));
    fs::write(&file, "content").unwrap();
    let get = [&fake.url("/f"), text(&copy)];
    run(&[&FLAGS[..], &get].concat()).expect(4, &["no reply to RETR within 1 s"]);
    assert!(!copy.exists());
    let put = [text(&file), &fake.url("/g")];
    run(&[&FLAGS[..], &put].concat()).expect(4, &["no reply to STOR within 1 s"]);
    assert!(!fake.names().contains(&"/g".to_owned()));
}

#[test]
fn no_command_is_waited_for_longer_than_the_stall_limit() {
    for verb in [
        "USER", "PASS", "FEAT", "PASV", "MLST", "SIZE", "RNFR", "RNTO", "MKD",
    ] {
        let quirks = Quirks::default().mute(verb).features(&["SIZE"]);
        let fake = Fake::start(quirks);
        let here = tempfile::tempdir().unwrap();
        let tree = here.path().join("tree");
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join("f"), "content").unwrap();
        let put = [text(&tree), &fake.url("/copy")];
        let ran = run(&[&FLAGS[..], &put].concat());
        assert!(matches!(ran.code, 1 | 4), "{verb}: {}", ran.err);
    }
}

#[test]
fn a_listing_that_is_never_confirmed_fails_within_the_stall_limit() {
    let quirks = Quirks {
        no_verdict: true,
        ..Quirks::default()
    };
    let fake = Fake::start(quirks);
    fake.put("/d/f", b"content");
    let words = ["no reply to MLSD within 1 s"];
    run(&["ls", "--stall-timeout", "1", &fake.url("/d/")]).expect(4, &words);
}

#[test]
fn a_sender_that_never_confirms_fails_within_the_stall_limit() {
    let (from, to) = (Served::start(), Fake::start(Quirks::default()));
    fs::write(from.path("f"), "content").unwrap();
    let mute = |line: String| match line.starts_with("226 ") {
        true => "150 Still at it".to_owned(),
        false => line,
    };
    let source = format!("ftp://{}/f", interposed(from.address, |line| line, mute));
    let target = to.url("/g");
    let between = [&source[..], &target];
    let said = "nothing moved between the two servers for 1 s";
    run(&[&FLAGS[..], &between].concat()).expect(4, &[said]);
    assert!(!to.names().contains(&"/g".to_owned()));
}

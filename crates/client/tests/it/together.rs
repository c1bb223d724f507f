//! Several transfers over one path, and one after the other.

use std::{
    fs::{self, File},
    path::Path,
    process::Child,
};

use serde_json::Value;

use crate::harness::{Served, godwit, text};

/// Long enough for many epochs over small buffers.
const LENGTH: u64 = 1 << 30;

struct Here {
    folder: tempfile::TempDir,
    served: Served,
}

impl Here {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        File::create(folder.path().join("big"))
            .unwrap()
            .set_len(LENGTH)
            .unwrap();
        Self {
            folder,
            served: Served::start(),
        }
    }

    fn put(&self, name: &str, options: &[&str]) -> Child {
        let here = self.folder.path();
        let (from, log) = (here.join("big"), here.join(name));
        let to = self.served.url(&format!("/{name}"));
        let fixed = [
            "cp",
            "-q",
            "--no-verify",
            "--no-sparse",
            "--tcp-buffer",
            "8K",
        ];
        let words = [
            &fixed[..],
            &["--events", text(&log)],
            options,
            &[text(&from), &to],
        ]
        .concat();
        godwit(&words)
            .env("XDG_RUNTIME_DIR", here)
            .env("XDG_STATE_HOME", here)
            .spawn()
            .unwrap()
    }

    /// Reasons of the decisions, once the transfer is over and its file is there.
    fn reasons(&self, name: &str, mut put: Child) -> Vec<String> {
        assert!(put.wait().unwrap().success());
        assert_eq!(fs::metadata(self.served.path(name)).unwrap().len(), LENGTH);
        reasons(&self.folder.path().join(name))
    }
}

fn reasons(log: &Path) -> Vec<String> {
    let text = fs::read_to_string(log).unwrap();
    (text.lines())
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|event| event["event"] == "decision")
        .map(|event| event["reason"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn one_of_them_decides_for_all() {
    let here = Here::new();
    let puts = [here.put("a", &[]), here.put("b", &["--weight", "3"])];
    let [a, b] = puts;
    let (a, b) = (here.reasons("a", a), here.reasons("b", b));
    let follows = |reasons: &[String]| reasons.iter().any(|r| r.contains("decided by another"));
    assert!(follows(&a) != follows(&b), "{a:#?} {b:#?}");
    assert!(a.iter().any(|r| r.contains("25 % of it here")), "{a:#?}");
    assert!(b.iter().any(|r| r.contains("75 % of it here")), "{b:#?}");
}

#[test]
fn runs_with_alone_do_not_coordinate() {
    let here = Here::new();
    let puts = [here.put("a", &["--alone"]), here.put("b", &[])];
    let [a, b] = puts;
    for reasons in [here.reasons("a", a), here.reasons("b", b)] {
        assert!(
            !reasons.iter().any(|r| r.contains("of it here")),
            "{reasons:#?}"
        );
    }
}

#[test]
fn the_next_begins_where_the_last_ended_if_it_may() {
    let here = Here::new();
    let first = |options: &[&str]| {
        let put = here.put("a", options);
        here.reasons("a", put).swap_remove(0)
    };
    let remembered = "where the last transfer over this path ended";
    assert!(!first(&["--no-path-memory"]).contains(remembered));
    assert!(!first(&[]).contains(remembered));
    assert!(first(&[]).contains(remembered));
    assert!(!first(&["--no-path-memory"]).contains(remembered));
}

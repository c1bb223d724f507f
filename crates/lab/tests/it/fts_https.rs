//! FTS's command lines and Rucio's daemons with storages of HTTPS, ours and XRootD: by certificates
//! and by tokens, each file by a third-party copy.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use godwit_lab::peers::plain_ftp;
use godwit_lab::peers::process;
use godwit_lab::peers::webdav::Kind;
use serde_json::{Value, json};

use crate::fts_clients::{FtsSite, fts3, id_of, programs};
use crate::https_third_party::{ALL, End, Tokens};
use crate::support::{LONG, Need, assert_holds, have, write_noise};

const NEEDS: [Need; 6] = [
    Need::Godwit,
    Need::Godwitd,
    Need::Service,
    Need::Curl,
    Need::Python,
    Need::Webdav(Kind::Xrootd),
];

/// How the user is known, to FTS and to the storages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Proof {
    Certificate,
    Token,
}

/// A service for FTS's clients, and servers of HTTPS in the same grid.
struct HttpsSite {
    fts: FtsSite,
    tokens: Tokens,
    programs: std::path::PathBuf,
    proof: Proof,
}

impl HttpsSite {
    /// `None`, and a skip, without the command lines.
    fn start(test: &str, proof: Proof) -> Option<Self> {
        if !have(&NEEDS) {
            return None;
        }
        let programs = fts3(test)?;
        let fts = FtsSite::start();
        let tokens = Tokens::of_grid(Rc::clone(&fts.grid));
        let site = Self {
            fts,
            tokens,
            programs,
            proof,
        };
        if proof == Proof::Certificate {
            site.fts.set_user("user");
            site.fts.fts(&site.programs, "fts-rest-delegate", &[]);
        }
        Some(site)
    }

    /// Submits a file and waits for its end: what is printed, and the file as FTS shows it.
    fn copy(&self, file: &Value) -> (String, Value) {
        let params = json!({"retry": -1});
        let job = json!({"files": [file], "params": params}).to_string();
        let list = self.fts.path("job.json");
        fs::write(&list, job).expect("writes");
        let list = list.display().to_string();
        let words = [
            "--blocking",
            "--interval",
            "1",
            "--checksum-mode",
            "both",
            "--file",
            &list,
        ];
        let proxy = self.fts.grid.of_user()[0].1.display().to_string();
        let token = self.fts.service.token();
        let shown = match self.proof {
            Proof::Certificate => vec!["--cert", &proxy, "--key", &proxy],
            Proof::Token => vec!["--fts-access-token", token],
        };
        let submitted = self.fts.run(
            &self.programs,
            "fts-rest-transfer-submit",
            &[&shown[..], &words].concat(),
        );
        let mut command = plain_ftp::CURL.command().expect("present");
        command.args(["--silent", "--fail-with-body", "--cacert"]);
        command.arg(self.fts.grid.authority());
        match self.proof {
            Proof::Certificate => {
                command.arg("--cert").arg(&self.fts.grid.of_user()[0].1);
            }
            Proof::Token => {
                command.args(["--header", &format!("Authorization: Bearer {token}")]);
            }
        }
        command.arg(format!("{}/jobs/{}/files", self.fts.fts, id_of(&submitted)));
        let answer = process::run(command, LONG).expect("runs").success();
        let files = answer.expect("it answers").stdout_text();
        let mut files: Value = serde_json::from_str(&files).expect("JSON");
        (submitted, files[0].take())
    }

    /// A file from one end to the other, with the tokens that its two ends need.
    fn file(&self, from: &str, to: &str, checksum: &str) -> Value {
        let file = json!({"sources": [from], "destinations": [to], "checksum": checksum});
        match self.proof {
            Proof::Certificate => file,
            Proof::Token => self.with_tokens(file, ALL, ALL),
        }
    }

    fn with_tokens(&self, mut file: Value, source: &str, destination: &str) -> Value {
        file["source_tokens"] = json!([self.tokens.token(source)]);
        file["destination_tokens"] = json!([self.tokens.token(destination)]);
        file
    }

    /// Two ends, made so that one of the pair is ours.
    fn pairs(&self) -> [(End, End); 3] {
        [
            (self.tokens.ours(&[]), self.tokens.ours(&[])),
            (self.tokens.ours(&[]), self.tokens.xrootd()),
            (self.tokens.xrootd(), self.tokens.ours(&[])),
        ]
    }

    /// The file was moved by the server that receives, and not by the agent.
    #[track_caller]
    fn assert_pulled(&self, from: &End, to: &End) {
        let (log, agent) = (to.log(), self.fts.log_of_agent());
        let has_pulled = match to {
            End::Ours(_) => log.contains("HTTPS copy") && log.contains("direction=Pull"),
            End::Xrootd(_) => log.contains("event=TRANSFER_SUCCESS"),
        };
        let sent = from.log();
        assert!(
            has_pulled,
            "--- destination\n{log}\n--- source\n{sent}\n--- agent\n{agent}"
        );
        assert!(!agent.contains("pass through this machine"), "{agent}");
    }
}

/// RFC 1950 §8.2.
fn adler32(bytes: &[u8]) -> String {
    let (mut a, mut b) = (1_u32, 0);
    for &byte in bytes {
        a = (a + u32::from(byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    format!("ADLER32:{:08x}", b << 16 | a)
}

fn files_move_between_servers(test: &str, proof: Proof) {
    let Some(site) = HttpsSite::start(test, proof) else {
        return;
    };
    for (seed, (from, to)) in (0..).zip(site.pairs()) {
        let bytes = write_noise(&from.at("x"), 3_000_001, seed);
        let file = site.file(&from.url("x"), &to.url("y"), &adler32(&bytes));
        let (state, file) = site.copy(&file);
        let what = format!("{} to {}", from.name(), to.name());
        let logs = [from.log(), to.log(), site.fts.log_of_agent()].join("\n---\n");
        assert!(state.contains("FINISHED"), "{what}: {state} {file}\n{logs}");
        assert_eq!(file["file_state"], "FINISHED", "{what}: {file}");
        assert_holds(&to.at("y"), &bytes);
        site.assert_pulled(&from, &to);
    }
}

#[test]
fn fts_has_servers_copy_for_a_user_with_a_delegated_proxy() {
    let test = "fts_has_servers_copy_for_a_user_with_a_delegated_proxy";
    files_move_between_servers(test, Proof::Certificate);
}

#[test]
fn fts_has_servers_copy_for_a_user_with_tokens() {
    let test = "fts_has_servers_copy_for_a_user_with_tokens";
    files_move_between_servers(test, Proof::Token);
}

#[test]
fn copies_between_servers_that_fail_say_why_and_leave_nothing() {
    let test = "copies_between_servers_that_fail_say_why_and_leave_nothing";
    let Some(site) = HttpsSite::start(test, Proof::Token) else {
        return;
    };
    for (from, to) in site.pairs() {
        let what = format!("{} to {}", from.name(), to.name());
        let bytes = write_noise(&from.at("x"), 300_001, 1);
        let checksum = adler32(&bytes);
        let plain = |name: &str, checksum: &str| {
            json!({"sources": [from.url(name)], "destinations": [to.url("y")],
                "checksum": checksum})
        };
        let elsewhere = "storage.read:/elsewhere storage.modify:/elsewhere";
        let cases = [
            (
                plain("missing", &checksum),
                [ALL, ALL],
                "SOURCE [2]",
                from.url("missing"),
            ),
            (
                plain("x", &checksum),
                [elsewhere, ALL],
                "[13]",
                from.url("x"),
            ),
            (plain("x", &checksum), [ALL, elsewhere], "[13]", to.url("y")),
            (
                plain("x", "ADLER32:00000001"),
                [ALL, ALL],
                "[5]",
                "expect".to_owned(),
            ),
        ];
        for (file, [source, destination], scope, words) in cases {
            let (state, file) = site.copy(&site.with_tokens(file, source, destination));
            let agent = site.fts.log_of_agent();
            assert!(state.contains("FAILED"), "{what}: {state} {file}\n{agent}");
            assert_eq!(file["file_state"], "FAILED", "{what}: {file}");
            let reason = file["reason"].as_str().unwrap_or_default();
            assert!(
                reason.contains(scope) && reason.contains(&words),
                "{what}: {file}"
            );
            let left: Vec<_> = fs::read_dir(to.at("")).expect("lists").collect();
            assert!(left.is_empty(), "{what}: {left:?} {reason}");
        }
    }
}

/// `davs://` URLs of `storages`, to the last of which the file of the others goes.
fn run_rule(site: &HttpsSite, rucio: &Path, name: &str, ends: [&End; 2]) {
    let mut script = Command::new(rucio.join("python"));
    script.arg(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/it/rucio_rule.py"
    ));
    script.arg(site.fts.path(name)).arg(&site.fts.fts);
    script.arg(&site.fts.grid.of_user()[0].1);
    script
        .arg(site.fts.path("content"))
        .args(ends.map(|end| end.url("")));
    if site.proof == Proof::Token {
        script.env("FTS_TOKEN", site.fts.service.token());
        script.env("STORAGE_TOKEN", site.tokens.token(ALL));
    }
    let finished = process::run(script, 2 * LONG).expect("runs");
    let logs = [ends[0].log(), ends[1].log(), site.fts.log_of_agent()].join("\n---\n");
    let said = finished.stdout_text();
    assert!(said.contains("rule OK"), "{}\n{logs}", finished.log());
}

fn rules_become_ok(test: &str, proof: Proof) {
    let Some(site) = HttpsSite::start(test, proof) else {
        return;
    };
    let Some(rucio) = programs(test, "rucio-41.5.1", &[&["rucio==41.5.1"]]) else {
        return;
    };
    let bytes = write_noise(&site.fts.path("content"), 700_003, 1);
    for (number, (from, to)) in site.pairs().into_iter().enumerate() {
        for end in [&from, &to] {
            fs::create_dir(end.at("lab")).expect("a directory");
            let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            fs::set_permissions(end.at("lab"), all).expect("a mode");
        }
        fs::write(from.at("lab/file"), &bytes).expect("writes");
        run_rule(&site, &rucio, &format!("rule-{number}"), [&from, &to]);
        assert_holds(&to.at("lab/file"), &bytes);
        site.assert_pulled(&from, &to);
    }
}

#[test]
fn rules_of_rucio_have_servers_copy_for_a_delegated_proxy() {
    let test = "rules_of_rucio_have_servers_copy_for_a_delegated_proxy";
    rules_become_ok(test, Proof::Certificate);
}

#[test]
fn rules_of_rucio_have_servers_copy_for_tokens() {
    let test = "rules_of_rucio_have_servers_copy_for_tokens";
    rules_become_ok(test, Proof::Token);
}

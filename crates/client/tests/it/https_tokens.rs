//! Bearer tokens over HTTPS that are of no use: the error says who must act, and nothing that the
//! program says shows them.

use std::{
    fs,
    time::{Duration, SystemTime},
};

use godwit_server::TokenSettings;
use serde_json::json;
use tempfile::TempDir;

use crate::{
    harness::{Ran, godwit, text},
    https::Door,
    issuer::Issuer,
};

const ISSUER: &str = "https://issuer.example.org/";

const OURS: &str = "https://127.0.0.1/";

/// A door for tokens of one issuer.
struct Site {
    door: Door,
    issuer: Issuer,
    here: TempDir,
}

impl Site {
    fn new() -> Self {
        let here = tempfile::tempdir().unwrap();
        let (keys, issuer) = (here.path().join("keys"), Issuer::es256("k"));
        fs::write(&keys, json!({ "keys": [issuer.jwk] }).to_string()).unwrap();
        let door = Door::open_with(|settings| {
            settings.tokens = Some(TokenSettings {
                issuers: vec![format!("{ISSUER}={}", keys.display()).parse().unwrap()],
                audiences: vec![OURS.to_owned()],
            });
        });
        Self { door, issuer, here }
    }

    fn token(&self, audience: &str, scope: &str) -> String {
        let ends = SystemTime::now() + Duration::from_secs(3600);
        let ends = ends.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        self.issuer.token(&json!({
            "iss": ISSUER, "sub": "robot", "aud": audience, "wlcg.ver": "1.0",
            "exp": ends.as_secs(), "scope": scope,
        }))
    }

    /// What is said holds neither the token nor its signature.
    fn run(&self, arguments: &[&str], token: &str) -> Ran {
        let (command, rest) = arguments.split_first().unwrap();
        let ca = self.door.ca();
        let mut program = godwit(&[command, "--ca", text(&ca), "-vv"]);
        program.env("BEARER_TOKEN", token).args(rest);
        let ran = Ran::from(program.output().unwrap());
        is_not_in(token, &ran.err);
        is_not_in(token, &String::from_utf8_lossy(&ran.out));
        ran
    }
}

#[track_caller]
fn is_not_in(token: &str, said: &str) {
    let signature = token.rsplit('.').next().unwrap();
    assert!(!signature.is_empty() && !said.contains(signature), "{said}");
}

#[test]
fn a_token_for_another_service_is_the_users_to_change() {
    let site = Site::new();
    let token = site.token("https://other.example.org", "storage.read:/");
    let url = site.door.anonymous_url("/");
    // The client keeps it to itself.
    let ran = site.run(&["ls", &url], &token);
    ran.expect(3, &["is for https://other.example.org", "--token-host"]);
    // The server does not take it.
    let ran = site.run(&["ls", "--token-host", "127.0.0.1", &url], &token);
    let address = site.door.address().to_string();
    ran.expect(
        3,
        &[address.as_str(), "HTTP 401", "; check what you asked for"],
    );
    // The same with one for this service.
    let token = site.token(OURS, "storage.read:/");
    site.run(&["ls", &url], &token).expect(0, &[]);
}

#[test]
fn a_token_without_the_right_is_the_users_to_change() {
    let site = Site::new();
    fs::write(site.door.root("/f"), "content").unwrap();
    let (to, log) = (site.here.path().join("f"), site.here.path().join("log"));
    let url = site.door.anonymous_url("/f");
    let cp = ["cp", "--events", text(&log), &url, text(&to)];
    let token = site.token(OURS, "storage.read:/elsewhere");
    let words = [url.as_str(), "HTTP 403", "; check what you asked for"];
    site.run(&cp, &token).expect(3, &words);
    is_not_in(&token, &fs::read_to_string(&log).unwrap());
    assert!(!to.exists());
    // The same with the right.
    let token = site.token(OURS, "storage.read:/");
    site.run(&cp, &token).expect(0, &[]);
    is_not_in(&token, &fs::read_to_string(&log).unwrap());
    assert_eq!(fs::read(&to).unwrap(), b"content");
}

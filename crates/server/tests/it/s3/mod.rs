//! The door for S3, by a client that signs what a test tells it to sign.

mod listings;
mod objects;
mod signatures;
mod uploads;

use std::{
    fs,
    io::Write as _,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use godwit_engine::storage::Storage;
use godwit_http::s3::{
    answers::{Refusal, read_upload_id},
    signing::{Scope, Signable, SigningKey},
};
use godwit_server::{
    ServerSettings,
    access::s3_keys::{self, NewKey},
};

use crate::{
    harness::TestServer,
    https::{Answer, connect_to, read_answer},
    tls::{Site, Wishes},
};

/// A server with the bucket `b`, and a key.
pub(crate) struct Door {
    pub(crate) site: Site,
    pub(crate) key: NewKey,
}

impl Door {
    pub(crate) fn new() -> Self {
        Self::with("/", false)
    }

    fn with(home: &str, reads_only: bool) -> Self {
        let mut made = None;
        let site = Site::with(Wishes::default(), |settings| {
            made = Some(offer(settings, home, reads_only));
        });
        fs::create_dir(site.server.path("b")).unwrap();
        let key = made.unwrap();
        Self { site, key }
    }

    /// Serves `storage`.
    fn on(storage: Arc<dyn Storage>) -> Self {
        let mut made = None;
        let site = Site::on(storage, Wishes::default(), |settings| {
            made = Some(offer(settings, "/", false));
        });
        let key = made.unwrap();
        Self { site, key }
    }

    pub(crate) fn server(&self) -> &TestServer {
        &self.site.server
    }

    fn keys(&self) -> std::path::PathBuf {
        self.site.server.settings.s3_keys.clone().unwrap()
    }

    fn ask(&self, method: &str, target: &str, head: &str, body: &[u8]) -> Answer {
        self.send(&Ask::new(method, target).with(head).body(body))
    }

    fn send(&self, ask: &Ask<'_>) -> Answer {
        self.send_as(&self.key, ask)
    }

    fn send_as(&self, key: &NewKey, ask: &Ask<'_>) -> Answer {
        let mut stream = connect_to(&self.site, self.site.server.s3.unwrap(), None);
        let text = ask.text(key);
        // The server may refuse it before it has read all.
        let _ = stream.write_all(&text);
        read_answer(&mut stream, ask.method == "HEAD").expect("an answer")
    }
}

/// Turns S3 on, with a key.
fn offer(settings: &mut ServerSettings, home: &str, reads_only: bool) -> NewKey {
    let passwords = &settings.passwords.as_ref().unwrap().file;
    let keys = passwords.with_file_name("s3-keys");
    let key = s3_keys::add(&keys, "kim", home, reads_only).unwrap();
    settings.s3 = vec!["127.0.0.1:0".parse().unwrap()];
    settings.s3_keys = Some(keys);
    key
}

/// A request, and what is false of it.
struct Ask<'a> {
    method: &'a str,
    target: &'a str,
    head: String,
    body: Vec<u8>,
    payload: String,
    /// Signed at another time than now, in seconds.
    late: i64,
    secret: Option<&'a str>,
    access: Option<&'a str>,
    /// Sent in place of what was signed.
    sent: Option<&'a str>,
    unsigned: &'a str,
}

impl<'a> Ask<'a> {
    fn new(method: &'a str, target: &'a str) -> Self {
        Self {
            method,
            target,
            head: String::new(),
            body: Vec::new(),
            payload: "UNSIGNED-PAYLOAD".to_owned(),
            late: 0,
            secret: None,
            access: None,
            sent: None,
            unsigned: "",
        }
    }

    /// `head`: headers in small letters, each with its line end.
    fn with(mut self, head: &str) -> Self {
        self.head = head.to_owned();
        self
    }

    fn body(mut self, body: &[u8]) -> Self {
        self.body = body.to_vec();
        self
    }

    fn scope(&self) -> Scope {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs();
        Scope::new(now.checked_add_signed(self.late).unwrap(), "us-east-1").unwrap()
    }

    fn signed(&self, key: &NewKey, scope: &Scope) -> (String, String) {
        let mut headers: Vec<(&str, String)> = vec![
            ("host", "localhost".to_owned()),
            ("x-amz-content-sha256", self.payload.clone()),
            ("x-amz-date", scope.time().to_owned()),
        ];
        for line in self.head.lines() {
            let (name, value) = line.split_once(": ").unwrap();
            headers.push((name, value.to_owned()));
        }
        headers.sort();
        let (path, query) = self.target.split_once('?').unwrap_or((self.target, ""));
        let mut pairs: Vec<_> = query.split('&').collect();
        pairs.sort_unstable();
        let signable = Signable {
            method: self.method,
            path,
            query: &pairs.join("&"),
            headers: &headers,
            payload: &self.payload,
        };
        let secret = self.secret.unwrap_or_else(|| key.secret.reveal());
        let signature = SigningKey::new(secret, scope).sign(&signable.text(scope));
        let access = self.access.unwrap_or(&key.access);
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={access}/{},SignedHeaders={},Signature={signature}",
            scope.text(),
            signable.names()
        );
        (authorization, signature)
    }

    fn text(&self, key: &NewKey) -> Vec<u8> {
        let scope = self.scope();
        let (authorization, _) = self.signed(key, &scope);
        self.raw(&format!(
            "authorization: {authorization}\r\nx-amz-date: {}\r\nx-amz-content-sha256: {}\r\n",
            scope.time(),
            self.payload
        ))
    }

    fn raw(&self, signature: &str) -> Vec<u8> {
        let mut text = format!(
            "{} {} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n{signature}{}{}\r\n",
            self.method,
            self.sent.unwrap_or(self.target),
            self.body.len(),
            self.head,
            self.unsigned
        )
        .into_bytes();
        text.extend_from_slice(&self.body);
        text
    }
}

#[track_caller]
fn refused(answer: Answer, status: u16, code: &str) {
    let answer = answer.is(status);
    let refusal = Refusal::read(answer.text().as_bytes()).expect("an error of S3");
    assert_eq!(refusal.code, code, "{}", refusal.message);
}

fn begun(door: &Door, target: &str) -> String {
    let body = door
        .ask("POST", &format!("{target}?uploads="), "", b"")
        .is(200)
        .text();
    read_upload_id(body.as_bytes()).unwrap()
}

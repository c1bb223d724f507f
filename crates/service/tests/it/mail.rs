//! Messages at the end of jobs, through a relay of the test.

use std::{fs, path::Path, sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use godwit_service::doctor::{self, Verdict};
use openssl::ssl::{Ssl, SslAcceptor, SslMethod};
use parking_lot::Mutex;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufStream},
    net::{TcpListener, TcpStream},
};
use tokio_openssl::SslStream;

use crate::{
    pki::Blueprint,
    site::{Site, User, settings},
};

/// What a relay was told.
#[derive(Clone, Debug, Default)]
struct Mail {
    login: Option<String>,
    protected: bool,
    /// Lines of the commands MAIL and RCPT.
    envelope: Vec<String>,
    lines: Vec<String>,
}

/// A mail relay, as little of one as a client needs.
#[derive(Clone)]
struct Relay {
    mails: Arc<Mutex<Vec<Mail>>>,
    tls: Option<SslAcceptor>,
}

impl Relay {
    /// Its address.
    async fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let relay = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let relay = relay.clone();
                tokio::spawn(async move { relay.serve(stream).await });
            }
        });
        format!("localhost:{port}")
    }

    async fn serve(self, stream: TcpStream) {
        let mut stream = BufStream::new(stream);
        say(&mut stream, "220 relay").await;
        let mut mail = Mail::default();
        if self.take(&mut stream, &mut mail).await {
            let ssl = Ssl::new(self.tls.as_ref().unwrap().context()).unwrap();
            let mut stream = SslStream::new(ssl, stream.into_inner()).unwrap();
            std::pin::Pin::new(&mut stream).accept().await.unwrap();
            mail.protected = true;
            self.take(&mut BufStream::new(stream), &mut mail).await;
        }
    }

    /// Whether TLS follows.
    async fn take<S>(&self, stream: &mut BufStream<S>, mail: &mut Mail) -> bool
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        while let Some(line) = read_line(stream).await {
            let answer = match line.split(' ').next().unwrap() {
                "EHLO" if mail.protected => "250-relay\r\n250 AUTH PLAIN",
                "EHLO" if self.tls.is_some() => "250-relay\r\n250 STARTTLS",
                "STARTTLS" => {
                    say(stream, "220 go on").await;
                    return true;
                }
                "AUTH" => {
                    mail.login = line.strip_prefix("AUTH PLAIN ").map(str::to_owned);
                    "235 known"
                }
                "MAIL" | "RCPT" => {
                    mail.envelope.push(line.to_ascii_lowercase());
                    "250 ok"
                }
                "DATA" => {
                    say(stream, "354 go on").await;
                    while let Some(line) = read_line(stream).await.filter(|line| line != ".") {
                        mail.lines.push(line);
                    }
                    self.mails.lock().push(mail.clone());
                    "250 taken"
                }
                _ => "250 ok",
            };
            say(stream, answer).await;
        }
        false
    }

    async fn wait(&self, count: usize) -> Vec<Mail> {
        for _ in 0..600 {
            if self.mails.lock().len() >= count {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        self.mails.lock().clone()
    }
}

async fn say<S: AsyncWrite + AsyncRead + Unpin>(stream: &mut BufStream<S>, line: &str) {
    stream
        .write_all(format!("{line}\r\n").as_bytes())
        .await
        .unwrap();
    stream.flush().await.unwrap();
}

async fn read_line<S: AsyncWrite + AsyncRead + Unpin>(stream: &mut BufStream<S>) -> Option<String> {
    let mut line = String::new();
    let read = stream.read_line(&mut line).await.ok()?;
    assert!(read == 0 || line.ends_with("\r\n"), "{line:?}");
    (read > 0).then(|| line.trim_end().to_owned())
}

fn config(folder: &Path, mail: &str) -> String {
    let path = folder.join("service.toml");
    fs::write(
        &path,
        format!("[mail]\nfrom = \"Godwit <godwit@example.org>\"\n{mail}"),
    )
    .unwrap();
    path.display().to_string()
}

fn job(addresses: &[&str], source: &str) -> Value {
    let notify = addresses
        .iter()
        .map(|address| json!({"mail": {"address": address}}));
    let notify: Vec<Value> = notify.collect();
    json!({
        "files": [{"source": source, "destination": "ftp://b.example.org/copy"}],
        "options": {"notify": notify, "attempts": 1, "name": "nächtlich \u{2028}Bcc: x@y"},
    })
}

async fn submit_and_cancel(user: &User<'_>, address: &str) -> String {
    let id = user.submit(job(&[address], "ftp://a.example.org/x")).await;
    user.ok(Method::POST, &format!("/jobs/{id}/cancel"), Value::Null)
        .await;
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_names_files_that_failed_and_none_of_their_names_makes_it_two() {
    let relay = Relay {
        mails: Arc::default(),
        tls: None,
    };
    let folder = tempfile::tempdir().unwrap();
    let address = relay.start().await;
    let config = config(
        folder.path(),
        &format!("relay = \"{address}\"\ntls = \"none\""),
    );
    let (site, _running) = Site::laptop(&["--config", &config]).await;
    let user = site.operator();
    // What ends a line for a control channel is refused before; what does for a reader is not.
    let hostile = "ftp://127.0.0.1:1/x\u{2028}.\u{2028}Bcc:<x%40y>";
    let body = job(&["jo@example.org", "al+x@example.org"], hostile);
    let id = user.submit(body).await;
    let mails = relay.wait(2).await;
    assert_eq!(mails.len(), 2);
    for mail in &mails {
        assert_eq!(mail.envelope.len(), 2, "{mail:?}");
        assert_eq!(mail.envelope[0], "mail from:<godwit@example.org>");
        let blank = mail.lines.iter().position(String::is_empty).unwrap();
        let (head, body) = mail.lines.split_at(blank);
        let names = head.iter().filter_map(|line| line.split_once(": "));
        let names: Vec<&str> = names
            .map(|(name, _)| name)
            .filter(|n| !n.contains(' '))
            .collect();
        assert!(!names.contains(&"Bcc"), "{head:?}");
        for name in [
            "Subject",
            "From",
            "To",
            "Message-ID",
            "Auto-Submitted",
            "Date",
        ] {
            assert_eq!(
                names.iter().filter(|n| **n == name).count(),
                1,
                "{name}: {head:?}"
            );
        }
        // Quoted-printable, for the name of the job.
        let body = body.join("\n").replace("=\n", "").replace("=3D", "=");
        let shown = hostile.replace('\u{2028}', "?");
        for part in [&shown, "Files: 0 finished, 1 failed, of 1", &id] {
            assert!(body.contains(part), "{part}: {body}");
        }
    }
    let to: Vec<&String> = mails.iter().map(|mail| &mail.envelope[1]).collect();
    assert!(
        to.contains(&&"rcpt to:<jo@example.org>".to_owned()),
        "{to:?}"
    );
    assert!(
        to.contains(&&"rcpt to:<al+x@example.org>".to_owned()),
        "{to:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_password_crosses_the_network_in_tls_only() {
    let host = Blueprint::host("/CN=localhost", &["localhost"]).at(std::time::SystemTime::now());
    let host = host.self_signed();
    let mut tls = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("all.pem"), host.to_pem().unwrap()).unwrap();
    tls.set_certificate_file(path("all.pem"), openssl::ssl::SslFiletype::PEM)
        .unwrap();
    tls.set_private_key_file(path("all.pem"), openssl::ssl::SslFiletype::PEM)
        .unwrap();
    fs::write(path("password"), "geheim\n").unwrap();
    let relay = Relay {
        mails: Arc::default(),
        tls: Some(tls.build()),
    };
    let plain = Relay {
        mails: Arc::default(),
        tls: None,
    };
    let (address, plain_address) = (relay.start().await, plain.start().await);
    let settings = |address: &str| {
        let (ca, password) = (path("all.pem"), path("password"));
        format!(
            "relay = \"{address}\"\nca = \"{ca}\"\nuser = \"godwit\"\n\
             password-file = \"{password}\"\nper-day = 1\nrecipients = [\"*@example.org\"]"
        )
    };
    let site = Site::start(&["--config", &config(folder.path(), &settings(&address))]).await;
    let other = Site::start(&[
        "--config",
        &config(folder.path(), &settings(&plain_address)),
    ])
    .await;
    let (jo, al) = (
        site.user("jo", "user", &[]).await,
        other.user("al", "user", &[]).await,
    );
    submit_and_cancel(&al, "al@example.org").await;
    let id = submit_and_cancel(&jo, "jo@example.org").await;
    let mails = relay.wait(1).await;
    let login = BASE64_STANDARD
        .decode(mails[0].login.as_ref().unwrap())
        .unwrap();
    assert_eq!(
        (login.as_slice(), mails[0].protected),
        (&b"\0godwit\0geheim"[..], true)
    );
    assert!(
        mails[0].lines.iter().any(|line| line.contains(&id)),
        "{mails:?}"
    );
    // A second one is too much for a day; another user's comes after it.
    submit_and_cancel(&jo, "jo@example.org").await;
    let eve = site.user("eve", "user", &[]).await;
    let id = submit_and_cancel(&eve, "eve@example.org").await;
    let mails = relay.wait(2).await;
    assert!(mails.len() == 2 && mails[1].lines.iter().any(|line| line.contains(&id)));
    assert!(
        plain.mails.lock().is_empty(),
        "a relay without TLS is told nothing"
    );
    for address in [
        "jo@example.com",
        "jo@example.org\r\nBcc: x@y",
        "Jo <jo@example.org>",
        "jo",
    ] {
        let (status, code) = jo
            .refused(
                Method::POST,
                "/jobs",
                job(&[address], "ftp://a.example.org/x"),
            )
            .await;
        assert_eq!(status, 422, "{address} {code}");
    }
    let six = ["a@example.org"; 6];
    let refused = jo
        .refused(Method::POST, "/jobs", job(&six, "ftp://a.example.org/x"))
        .await;
    assert_eq!(refused, (422, "invalid_value".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_asks_the_relay_and_says_what_it_lacks() {
    let relay = Relay {
        mails: Arc::default(),
        tls: None,
    };
    let address = relay.start().await;
    let folder = tempfile::tempdir().unwrap();
    for (tls, found) in [
        ("none", format!("{address} takes messages")),
        ("required", "STARTTLS".to_owned()),
    ] {
        let mail = format!("relay = \"{address}\"\ntls = \"{tls}\"");
        let config = config(folder.path(), &mail);
        let data = folder.path().join("data").display().to_string();
        let arguments = ["serve", "--data", &data, "--config", &config];
        let settings = settings(&[&["godwit-service"], &arguments[..]].concat());
        let findings = doctor::examine(&settings).await;
        let mail = findings.iter().find(|finding| finding.part == "mail");
        let mail = mail.unwrap();
        let is_good = mail.verdict == Verdict::Good;
        assert_eq!(is_good, tls == "none", "{mail:?}");
        assert!(mail.text.contains(&found), "{mail:?}");
    }
    assert!(relay.mails.lock().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_relay_the_refusal_says_who_must_act() {
    let site = Site::start(&[]).await;
    let jo = site.user("jo", "user", &[]).await;
    let answer = jo
        .send(
            Method::POST,
            "/jobs",
            job(&["jo@example.org"], "ftp://a.example.org/x"),
        )
        .await;
    assert_eq!(answer.status(), 422);
    let problem: Value = answer.json().await.unwrap();
    assert_eq!(problem["pointer"], "/options/notify/0/mail/address");
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("operator must set a relay")
    );
}

//! Reports of ended jobs as messages for people, through the relay of the operator.

use std::{fmt::Write as _, fs, path::PathBuf, time::Duration};

use godwit_service_api::job::{FileView, WhoActs};
use lettre::{
    Message, SmtpTransport, Transport as _,
    message::{
        Mailbox,
        header::{ContentType, HeaderName, HeaderValue},
    },
    transport::smtp::{
        Error,
        authentication::Credentials,
        client::{Certificate, CertificateStore, Tls, TlsParameters},
        extension::ClientId,
        response::{Category, Severity},
    },
};
use serde::Deserialize;
use tokio::task::spawn_blocking;

use super::Sent;
use crate::{
    ServiceError,
    api::policy::EndpointPolicy,
    store::{
        Store, StoreError,
        model::{JobRecord, WaitingReport},
    },
};

/// Time for each answer of the relay.
const LIMIT: Duration = Duration::from_secs(15);

/// Messages of each user in a day, where the operator sets no other limit.
const PER_DAY: u64 = 200;

/// Files that a message names.
const FAILURES_MAX: u32 = 5;

/// Longest line of a message.
const LINE_CHARS_MAX: usize = 400;

/// The relay: table `[mail]` of the settings file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct MailSettings {
    /// `host:port`, or a host: port 587, with `tls = "implicit"` 465.
    pub relay: String,
    /// Who sends: an address, or `Name <address>`.
    pub from: String,
    /// How the connection is protected.
    #[serde(default)]
    pub tls: MailTls,
    /// CAs of the relay, in place of the system's (PEM).
    pub ca: Option<PathBuf>,
    /// Who logs in; `None`: no one does.
    pub user: Option<String>,
    /// File whose first line is the password.
    pub password_file: Option<PathBuf>,
    /// Patterns of addresses that users may name; empty: all.
    #[serde(default)]
    pub recipients: Vec<String>,
    /// Messages of each user in a day.
    pub per_day: Option<u64>,
}

impl MailSettings {
    /// Of addresses that users may name.
    pub(crate) fn patterns(&self) -> Vec<String> {
        match self.recipients.is_empty() {
            true => vec!["*".to_owned()],
            false => self.recipients.clone(),
        }
    }
}

/// How the connection to the relay is protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MailTls {
    /// STARTTLS, or no message is sent.
    #[default]
    Required,
    /// TLS from the first byte.
    Implicit,
    /// STARTTLS where the relay has it.
    Opportunistic,
    /// Not at all.
    None,
}

/// What sends to addresses.
pub(crate) struct Mailer {
    policy: EndpointPolicy,
    from: Mailbox,
    per_day: u64,
    transport: SmtpTransport,
}

impl Mailer {
    /// The relay is not asked yet.
    pub(crate) fn new(
        settings: &MailSettings,
        policy: EndpointPolicy,
        own_name: String,
    ) -> Result<Self, ServiceError> {
        let usage = |why: String| ServiceError::Usage(format!("[mail] {why}"));
        let from = settings.from.parse();
        let from = from.map_err(|_| usage("from: an address, or Name <address>".to_owned()))?;
        let (host, port) = host_and_port(&settings.relay);
        let usual = match settings.tls {
            MailTls::Implicit => 465,
            _ => 587,
        };
        let port = match port {
            Some(port) => port
                .parse()
                .map_err(|_| usage("relay: host:port".to_owned()))?,
            None => usual,
        };
        let mut parameters = TlsParameters::builder(host.to_owned());
        if let Some(path) = &settings.ca {
            let pem = fs::read(path).map_err(ServiceError::file(path))?;
            let authority = Certificate::from_pem(&pem);
            let authority = authority.map_err(|error| usage(format!("ca: {error}")))?;
            parameters = parameters
                .certificate_store(CertificateStore::None)
                .add_root_certificate(authority);
        }
        let parameters = || parameters.build().map_err(|error| usage(error.to_string()));
        let tls = match settings.tls {
            MailTls::Required => Tls::Required(parameters()?),
            MailTls::Implicit => Tls::Wrapper(parameters()?),
            MailTls::Opportunistic => Tls::Opportunistic(parameters()?),
            MailTls::None => Tls::None,
        };
        let is_protected = matches!(tls, Tls::Required(_) | Tls::Wrapper(_));
        let mut transport = SmtpTransport::builder_dangerous(host)
            .port(port)
            .tls(tls)
            .timeout(Some(LIMIT))
            .hello_name(ClientId::Domain(own_name));
        match (&settings.user, &settings.password_file) {
            (Some(_), Some(_)) if !is_protected => {
                let why = "the password would cross the network in clear: tls = \"required\"";
                return Err(usage(why.to_owned()));
            }
            (Some(user), Some(path)) => {
                let text = fs::read_to_string(path).map_err(ServiceError::file(path))?;
                let password = text.lines().next().unwrap_or_default().to_owned();
                transport = transport.credentials(Credentials::new(user.clone(), password));
            }
            (None, None) => {}
            _ => return Err(usage("user and password-file belong together".to_owned())),
        }
        Ok(Self {
            policy,
            from,
            per_day: settings.per_day.unwrap_or(PER_DAY),
            transport: transport.build(),
        })
    }

    /// Asks the relay as before a message, with TLS and login, and sends none. Why not, otherwise.
    pub(crate) async fn check(self) -> Result<(), String> {
        let asking = spawn_blocking(move || self.transport.test_connection());
        match asking.await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err("it does not go on after its greeting".to_owned()),
            Ok(Err(error)) => Err(one_line(&error.to_string())),
            Err(error) => Err(error.to_string()),
        }
    }

    pub(super) async fn send(
        &self,
        store: &Store,
        report: &WaitingReport,
        address: &str,
    ) -> Result<Sent, StoreError> {
        // The operator may have changed it.
        let (Ok(()), Ok(address)) = (self.policy.check_mail(address), address.parse()) else {
            return Ok(Sent::never("its address is not allowed any more"));
        };
        let job = store.job(report.job).await?;
        if report.attempts == 1 && store.count_mail(&job.owner).await? > self.per_day {
            let why = format!("its owner has had {} messages today", self.per_day);
            return Ok(Sent::Never(why));
        }
        let failures = store.first_failures(&job, FAILURES_MAX).await?;
        // The same for each attempt: a program that reads mail shows it once.
        let host = self.from.email.domain();
        let id = format!("<{}-{}@{host}>", report.job, report.number);
        let mut message = Message::builder()
            .message_id(Some(id))
            .from(self.from.clone())
            .to(Mailbox::new(None, address))
            .subject(subject(&job))
            .header(ContentType::TEXT_PLAIN)
            .body(text(&job, &failures))
            .expect("it has a sender and a receiver");
        // No program answers that someone is on holiday (RFC 3834).
        message.headers_mut().insert_raw(HeaderValue::new(
            HeaderName::new_from_ascii_str("Auto-Submitted"),
            "auto-generated".to_owned(),
        ));
        let transport = self.transport.clone();
        let sending = spawn_blocking(move || transport.send(&message));
        Ok(match sending.await {
            Ok(Ok(_)) => Sent::Taken,
            Ok(Err(error)) if is_final(&error) => Sent::Never(one_line(&error.to_string())),
            Ok(Err(error)) => Sent::Not(one_line(&error.to_string())),
            Err(error) => Sent::Not(error.to_string()),
        })
    }
}

/// The relay refuses this message, not us: a refused login may pass once the operator acts.
fn is_final(error: &Error) -> bool {
    error.status().is_some_and(|code| {
        code.severity == Severity::PermanentNegativeCompletion
            && code.category == Category::MailSystem
    })
}

fn host_and_port(relay: &str) -> (&str, Option<&str>) {
    let (host, port) = match relay.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (relay, None),
    };
    (host.trim_matches(['[', ']']), port)
}

fn subject(job: &JobRecord) -> String {
    let name = job.options.name.clone();
    let name = name.unwrap_or_else(|| job.id.to_string());
    one_line(&format!("Transfer {}: {name}", job.state.as_str()))
}

fn text(job: &JobRecord, failures: &[FileView]) -> String {
    let mut lines = vec![format!(
        "Job {} of {}: {}",
        job.id,
        job.owner,
        job.state.as_str()
    )];
    let files = &job.files;
    lines.extend(job.options.name.iter().map(|name| format!("Name: {name}")));
    lines.extend(job.reason.iter().map(|reason| format!("Reason: {reason}")));
    let mut counts = format!("Files: {} finished", files.finished);
    for (count, what) in [
        (files.skipped, "were there already"),
        (files.failed, "failed"),
        (files.canceled, "canceled"),
        (files.unused, "not used"),
    ] {
        if count > 0 {
            // Writing to a text never fails.
            let _ = write!(counts, ", {count} {what}");
        }
    }
    lines.push(format!("{counts}, of {}", files.total));
    lines.push(format!("Bytes: {} of {}", job.bytes_done, job.bytes_total));
    for (when, what) in [(job.started, "Started"), (job.ended, "Ended")] {
        lines.extend(when.map(|when| format!("{what}: {when:.0}")));
    }
    if !failures.is_empty() {
        lines.push(String::new());
        lines.push(match files.failed > failures.len() as u64 {
            true => format!("The first {} of the files that failed:", failures.len()),
            false => "Files that failed:".to_owned(),
        });
    }
    for file in failures {
        lines.push(format!("  {}", file.source));
        lines.push(format!("  -> {}", file.destination));
        let error = file.error.iter();
        lines.extend(error.map(|error| {
            format!(
                "     {}: {} ({})",
                error.code,
                error.message,
                actor(error.who)
            )
        }));
    }
    lines.push(String::new());
    lines.push(format!("All of it: godwit job {}", job.id));
    let lines = lines.iter().map(|line| one_line(line) + "\n");
    lines.collect()
}

fn actor(who: WhoActs) -> &'static str {
    match who {
        WhoActs::User => "you must act",
        WhoActs::Source => "the administrator of the source must act",
        WhoActs::Destination => "the administrator of the destination must act",
        WhoActs::Operator => "the operator of the service must act",
        WhoActs::Service => "it may pass: godwit retry",
    }
}

/// What a server or a name of a file brings in stays on its line, in the order of its letters.
fn one_line(text: &str) -> String {
    let is_odd = |c: char| {
        let is_order = matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        c.is_control() || is_order
    };
    let plain = text.chars().map(|c| if is_odd(c) { '?' } else { c });
    plain.take(LINE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mailer(text: &str) -> Result<Mailer, ServiceError> {
        let settings: MailSettings = toml::from_str(text).unwrap();
        Mailer::new(&settings, EndpointPolicy::default(), "here".to_owned())
    }

    #[test]
    fn a_password_is_not_for_a_relay_without_tls() {
        let text = "relay = 'smtp.example.org'\nfrom = 'a@example.org'\n";
        assert!(mailer(text).is_ok());
        for tls in ["opportunistic", "none"] {
            let login = "user = 'u'\npassword-file = '/p'";
            let refused = mailer(&format!("{text}tls = '{tls}'\n{login}"));
            let why = refused.err().unwrap().to_string();
            assert!(why.contains("in clear"), "{why}");
        }
        assert!(mailer(&format!("{text}user = 'u'")).is_err());
        assert!(mailer("relay = 'h'\nfrom = 'nobody'").is_err());
    }

    #[test]
    fn a_relay_is_a_host_with_or_without_a_port() {
        assert_eq!(host_and_port("h"), ("h", None));
        assert_eq!(host_and_port("h:25"), ("h", Some("25")));
        assert_eq!(host_and_port("[::1]"), ("::1", None));
        assert_eq!(host_and_port("[::1]:25"), ("::1", Some("25")));
    }

    #[test]
    fn foreign_text_stays_on_its_line() {
        let hostile = "a\r\n.\r\nRCPT TO:<x>\u{2028}b\u{202e}c\u{1b}[2J\0";
        assert_eq!(one_line(hostile), "a??.??RCPT TO:<x>?b?c?[2J?");
        assert_eq!(one_line(&"ä".repeat(5000)).chars().count(), LINE_CHARS_MAX);
    }
}

//! Checks the parts of a service, from where it runs.

use std::{fmt, time::Duration};

use jiff::Timestamp;
use tokio::{net::TcpStream, time::timeout};

use crate::{
    config::{self, ServeSettings},
    reports::mail::Mailer,
    store::Store,
};

/// Time for an endpoint to accept a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Endpoints that are tried.
const ENDPOINTS_MAX: usize = 50;

/// Clocks may be apart so far.
const CLOCK_LIMIT: Duration = Duration::from_secs(5);

/// What is the matter with one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Nothing.
    Good,
    /// It works, and an operator should look at it.
    Odd,
    /// It does not work.
    Bad,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Good => "ok",
            Verdict::Odd => "look",
            Verdict::Bad => "FAILED",
        })
    }
}

/// One part, and what is the matter with it.
#[derive(Clone, Debug)]
pub struct Finding {
    /// What was checked.
    pub part: &'static str,
    /// How it is.
    pub verdict: Verdict,
    /// One line.
    pub text: String,
}

/// Checks everything, as far as one part does not need another that is bad.
pub async fn examine(settings: &ServeSettings) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut note = |part, verdict, text: String| {
        findings.push(Finding {
            part,
            verdict,
            text,
        });
    };
    match settings.key.read() {
        Ok(_) => note(
            "key",
            Verdict::Good,
            "can be read, by its owner only".to_owned(),
        ),
        Err(error) => note("key", Verdict::Bad, error.to_string()),
    }
    if let Some(mail) = &settings.mail {
        let policy = settings.api.policy.clone();
        let relay = &mail.relay;
        match Mailer::new(mail, policy, config::host_name()) {
            Ok(mailer) => match mailer.check().await {
                Ok(()) => note("mail", Verdict::Good, format!("{relay} takes messages")),
                Err(why) => note("mail", Verdict::Bad, format!("{relay}: {why}")),
            },
            Err(error) => note("mail", Verdict::Bad, error.to_string()),
        }
    }
    let store = match Store::open(&settings.database).await {
        Ok(store) => store,
        Err(error) => {
            note("database", Verdict::Bad, error.to_string());
            return findings;
        }
    };
    match store.schema_version().await {
        Ok(version) => note(
            "database",
            Verdict::Good,
            format!("tables of version {version}"),
        ),
        Err(error) => note("database", Verdict::Bad, error.to_string()),
    }
    match store.now().await {
        Ok(now) => {
            let apart = Timestamp::now().duration_since(now).unsigned_abs();
            let verdict = if apart > CLOCK_LIMIT {
                Verdict::Odd
            } else {
                Verdict::Good
            };
            let text = format!("{:.1} s apart from the database's", apart.as_secs_f64());
            note("clock", verdict, text);
        }
        Err(error) => note("clock", Verdict::Bad, error.to_string()),
    }
    match store.agents().await {
        Ok(agents) => {
            let alive = agents.iter().filter(|agent| agent.alive).count();
            let verdict = if alive == 0 {
                Verdict::Bad
            } else {
                Verdict::Good
            };
            note(
                "agents",
                verdict,
                format!("{alive} of {} are alive", agents.len()),
            );
        }
        Err(error) => note("agents", Verdict::Bad, error.to_string()),
    }
    let endpoints = match store.endpoints().await {
        Ok(endpoints) => endpoints,
        Err(error) => {
            note("endpoints", Verdict::Bad, error.to_string());
            return findings;
        }
    };
    for endpoint in endpoints.iter().take(ENDPOINTS_MAX) {
        let Some(address) = address_of(&endpoint.name) else {
            continue;
        };
        // Agents may get there all the same.
        let (verdict, how) = match timeout(CONNECT_LIMIT, TcpStream::connect(&address)).await {
            Ok(Ok(_)) => (Verdict::Good, "accepts connections from here".to_owned()),
            Ok(Err(error)) => (Verdict::Odd, error.to_string()),
            Err(_) => (
                Verdict::Odd,
                "no answer to connections from here".to_owned(),
            ),
        };
        note("endpoint", verdict, format!("{}: {how}", endpoint.name));
    }
    store.close().await;
    findings
}

/// `host:port` of an endpoint.
fn address_of(endpoint: &str) -> Option<String> {
    let (scheme, host) = endpoint.split_once("://")?;
    let port = match scheme {
        "gsiftp" => 2811,
        "ftp" | "ftpes" => 21,
        "sshftp" => 22,
        "https" | "davs" => 443,
        "http" | "dav" => 80,
        _ => return None,
    };
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.contains(']'));
    Some(if has_port {
        host.to_owned()
    } else {
        format!("{host}:{port}")
    })
}

#[cfg(test)]
mod tests {
    use super::address_of;

    #[test]
    fn endpoints_have_a_port() {
        assert_eq!(address_of("gsiftp://h").as_deref(), Some("h:2811"));
        assert_eq!(address_of("ftp://[::1]").as_deref(), Some("[::1]:21"));
        assert_eq!(address_of("ftp://[::1]:99").as_deref(), Some("[::1]:99"));
        assert_eq!(address_of("file://"), None);
    }
}

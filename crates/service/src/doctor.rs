//! Checks the parts of a service, from where it runs.

use std::{fmt, time::Duration};

use jiff::Timestamp;
use tokio::{net::TcpStream, time::timeout};

use crate::{
    config::{self, ServeSettings},
    reports::mail::Mailer,
    store::{Store, model::AgentRecord},
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
            let (verdict, text) = fleet(&agents);
            note("agents", verdict, text);
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

/// How many agents there are for work. One that ends offers no slot in its last poll, and its lease
/// goes on for a while.
fn fleet(agents: &[AgentRecord]) -> (Verdict, String) {
    let alive = agents.iter().filter(|agent| agent.alive);
    let (taking, ended): (Vec<_>, Vec<_>) = alive.partition(|agent| agent.description.slots > 0);
    let mut text = format!("{} of {} alive", taking.len(), agents.len());
    if !ended.is_empty() {
        text = format!("{text}; {} stopped or about to stop", ended.len());
    }
    let verdict = match taking.is_empty() {
        true => Verdict::Bad,
        false => Verdict::Good,
    };
    (verdict, text)
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
    use godwit_service_api::agent::AgentDescription;
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::*;
    use crate::store::model::AgentReport;

    #[test]
    fn an_agent_that_was_stopped_does_not_count_as_alive() {
        let agent = |alive, slots| AgentRecord {
            number: 1,
            name: "a".to_owned(),
            incarnation: Uuid::nil(),
            description: AgentDescription {
                slots,
                ..AgentDescription::default()
            },
            alive,
            draining: false,
            units: 0,
            seen: Timestamp::UNIX_EPOCH,
            report: AgentReport::default(),
        };
        let some = [agent(true, 4), agent(false, 4), agent(true, 0)];
        let text = "1 of 3 alive; 1 stopped or about to stop".to_owned();
        assert_eq!(fleet(&some), (Verdict::Good, text));
        let text = "0 of 1 alive; 1 stopped or about to stop".to_owned();
        assert_eq!(fleet(&some[2..]), (Verdict::Bad, text));
        assert_eq!(
            fleet(&some[1..2]),
            (Verdict::Bad, "0 of 1 alive".to_owned())
        );
    }

    #[test]
    fn endpoints_have_a_port() {
        assert_eq!(address_of("gsiftp://h").as_deref(), Some("h:2811"));
        assert_eq!(address_of("ftp://[::1]").as_deref(), Some("[::1]:21"));
        assert_eq!(address_of("ftp://[::1]:99").as_deref(), Some("[::1]:99"));
        assert_eq!(address_of("file://"), None);
    }
}

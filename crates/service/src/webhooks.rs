//! Reports of ended jobs to URLs of users, signed as Standard Webhooks has it.
//!
//! The leader sends them, at least once. A report waits in the database until its receiver has
//! taken it, or for [`ATTEMPTS_MAX`] attempts. Addresses are checked when the name is resolved: the
//! service must not be a way into its own network.

use std::{error::Error, net::SocketAddr, sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use godwit_service_api::event::JobEnded;
use reqwest::{
    Client, StatusCode,
    dns::{Addrs, Name, Resolve, Resolving},
    redirect::Policy,
};
use ring::hmac;
use tokio::{task::JoinSet, time::sleep};

use crate::{
    api::policy::{EndpointPolicy, is_private},
    credentials::Vault,
    scheduling::Board,
    store::{
        Store, StoreError,
        model::{JobRecord, WaitingWebhook},
    },
};

/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// Reports that are sent at a time.
const TOGETHER: u32 = 16;

/// Time for an answer.
const LIMIT: Duration = Duration::from_secs(15);

/// First and longest pause after an attempt that failed.
const PAUSES: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(3600));

/// Then it is given up: after some eight hours.
const ATTEMPTS_MAX: u32 = 16;

/// What sending needs.
pub(crate) struct Sender {
    pub(crate) store: Store,
    pub(crate) vault: Vault,
    pub(crate) board: Arc<Board>,
    pub(crate) policy: EndpointPolicy,
}

impl Sender {
    /// Sends while this process leads, until `stop`.
    pub(crate) async fn run(self, stop: impl Future<Output = ()>) -> Result<(), reqwest::Error> {
        let client = Client::builder()
            .timeout(LIMIT)
            .redirect(Policy::none())
            .no_proxy()
            .user_agent(concat!("godwit-service/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(Arc::new(Public {
                takes_all: self.policy.any_webhook,
            }));
        let (client, sender) = (client.build()?, Arc::new(self));
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => return Ok(()),
                () = sleep(LOOK) => {}
            }
            if !sender.board.leads() {
                continue;
            }
            match sender.store.take_webhooks(TOGETHER, pause).await {
                Ok(waiting) => {
                    let mut sending = JoinSet::new();
                    for one in waiting {
                        let (sender, client) = (Arc::clone(&sender), client.clone());
                        sending.spawn(async move { sender.deliver(&client, one).await });
                    }
                    while sending.join_next().await.is_some() {}
                }
                Err(error) => tracing::warn!(%error, "webhooks could not be read"),
            }
        }
    }

    async fn deliver(&self, client: &Client, webhook: WaitingWebhook) {
        let why = match self.send(client, &webhook).await {
            Ok(Sent::Taken) => None,
            Ok(Sent::Not(why)) if webhook.attempts < ATTEMPTS_MAX => {
                tracing::info!(job = %webhook.job, why, "a webhook is sent again later");
                return;
            }
            Ok(Sent::Not(why)) => Some(why),
            Ok(Sent::Never(why)) => Some(why),
            Err(error) => {
                tracing::warn!(job = %webhook.job, %error, "a webhook is sent again later");
                return;
            }
        };
        if let Some(why) = why {
            tracing::warn!(job = %webhook.job, why, "a webhook is given up");
        }
        if let Err(error) = self.store.remove_webhook(webhook.number).await {
            tracing::warn!(%error, "a webhook is sent twice");
        }
    }

    async fn send(&self, client: &Client, webhook: &WaitingWebhook) -> Result<Sent, StoreError> {
        // The operator may have changed it.
        if self.policy.check_webhook(&webhook.url).is_err() {
            return Ok(Sent::Never("its URL is not allowed any more".to_owned()));
        }
        let job = self.store.job(webhook.job).await?;
        let Ok(Some(key)) = self.vault.webhook_key(&job.owner).await else {
            return Ok(Sent::Never(
                "its owner has no key for signatures".to_owned(),
            ));
        };
        let body = serde_json::to_string(&report(job)).expect("plain data is JSON");
        let id = format!("{}-{}", webhook.job, webhook.number);
        let at = self.store.now().await?.as_second();
        let signature = signature(&key, &id, at, &body);
        let post = client
            .post(&webhook.url)
            .header("webhook-id", id)
            .header("webhook-timestamp", at)
            .header("webhook-signature", signature)
            .header("content-type", "application/json")
            .body(body);
        Ok(match post.send().await {
            Ok(answer) if answer.status().is_success() => Sent::Taken,
            Ok(answer) if answer.status() == StatusCode::GONE => {
                Sent::Never("the receiver wants no more".to_owned())
            }
            Ok(answer) => Sent::Not(format!("the receiver answered {}", answer.status())),
            // The URL may hold a secret of the receiver.
            Err(error) => Sent::Not(error.without_url().to_string()),
        })
    }
}

enum Sent {
    Taken,
    Not(String),
    Never(String),
}

/// After so many attempts.
fn pause(attempts: u32) -> Duration {
    let (first, longest) = PAUSES;
    first
        .saturating_mul(1 << attempts.saturating_sub(1).min(10))
        .min(longest)
}

fn signature(key: &[u8], id: &str, at: i64, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let tag = hmac::sign(&key, format!("{id}.{at}.{body}").as_bytes());
    format!("v1,{}", BASE64_STANDARD.encode(tag))
}

fn report(job: JobRecord) -> JobEnded {
    JobEnded {
        kind: "job.ended".to_owned(),
        id: job.id,
        owner: job.owner,
        name: job.options.name,
        state: job.state,
        reason: job.reason,
        files: job.files,
        bytes_done: job.bytes_done,
        errors: job.errors,
        created: job.created,
        started: job.started,
        ended: job.ended,
        metadata: job.options.metadata,
    }
}

/// Resolves names as the system does, to addresses of the Internet only.
struct Public {
    takes_all: bool,
}

impl Resolve for Public {
    fn resolve(&self, name: Name) -> Resolving {
        let takes_all = self.takes_all;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let is_allowed = |at: &SocketAddr| takes_all || !is_private("", Some(at.ip()));
            let found: Vec<SocketAddr> = found.filter(is_allowed).collect();
            if found.is_empty() {
                let why = "the name leads to no address of the Internet";
                return Err(Box::<dyn Error + Send + Sync>::from(why));
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_those_of_standard_webhooks() {
        // The example of its specification.
        let key = BASE64_STANDARD
            .decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
            .unwrap();
        let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
        let signed = signature(&key, id, 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[tokio::test]
    async fn a_name_of_this_host_is_not_resolved() {
        let resolve = async |takes_all| {
            let name = "localhost".parse::<Name>().unwrap();
            Public { takes_all }.resolve(name).await.is_ok()
        };
        assert!(resolve(true).await);
        assert!(!resolve(false).await);
    }

    #[test]
    fn attempts_go_on_for_hours() {
        let all: Duration = (1..ATTEMPTS_MAX).map(pause).sum();
        assert_eq!(pause(1), Duration::from_secs(10));
        assert!(all > Duration::from_secs(5 * 3600) && all < Duration::from_secs(12 * 3600));
    }
}

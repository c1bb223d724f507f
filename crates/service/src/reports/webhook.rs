//! Reports of ended jobs to URLs of users, signed as Standard Webhooks has it.
//!
//! Addresses are checked when the name is resolved: the service must not be a way into its own
//! network.

use std::{error::Error, net::SocketAddr, sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use godwit_service_api::event::JobEnded;
use reqwest::{
    Client, StatusCode,
    dns::{Addrs, Name, Resolve, Resolving},
    redirect::Policy,
};
use ring::hmac;

use super::Sent;
use crate::{
    api::policy::{EndpointPolicy, is_private},
    credentials::Vault,
    store::{
        Store, StoreError,
        model::{JobRecord, WaitingReport},
    },
};

/// Time for an answer.
const LIMIT: Duration = Duration::from_secs(15);

/// What sends to URLs.
pub(crate) struct Webhooks {
    vault: Vault,
    policy: EndpointPolicy,
    client: Client,
}

impl Webhooks {
    pub(crate) fn new(vault: Vault, policy: EndpointPolicy) -> Result<Self, reqwest::Error> {
        let client = Client::builder()
            .timeout(LIMIT)
            .redirect(Policy::none())
            .no_proxy()
            .user_agent(concat!("godwit-service/", env!("CARGO_PKG_VERSION")))
            .dns_resolver(Arc::new(Public {
                takes_all: policy.any_webhook,
            }));
        Ok(Self {
            vault,
            policy,
            client: client.build()?,
        })
    }

    pub(super) async fn send(
        &self,
        store: &Store,
        report: &WaitingReport,
        url: &str,
    ) -> Result<Sent, StoreError> {
        // The operator may have changed it.
        if self.policy.check_webhook(url).is_err() {
            return Ok(Sent::never("its URL is not allowed any more"));
        }
        let job = store.job(report.job).await?;
        let Ok(Some(key)) = self.vault.webhook_key(&job.owner).await else {
            return Ok(Sent::never("its owner has no key for signatures"));
        };
        let body = serde_json::to_string(&ended(job)).expect("plain data is JSON");
        let id = format!("{}-{}", report.job, report.number);
        let at = store.now().await?.as_second();
        let signature = signature(&key, &id, at, &body);
        let post = self
            .client
            .post(url)
            .header("webhook-id", id)
            .header("webhook-timestamp", at)
            .header("webhook-signature", signature)
            .header("content-type", "application/json")
            .body(body);
        Ok(match post.send().await {
            Ok(answer) if answer.status().is_success() => Sent::Taken,
            Ok(answer) if answer.status() == StatusCode::GONE => {
                Sent::never("the receiver wants no more")
            }
            Ok(answer) => Sent::Not(format!("the receiver answered {}", answer.status())),
            // The URL may hold a secret of the receiver.
            Err(error) => Sent::Not(error.without_url().to_string()),
        })
    }
}

fn signature(key: &[u8], id: &str, at: i64, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let tag = hmac::sign(&key, format!("{id}.{at}.{body}").as_bytes());
    format!("v1,{}", BASE64_STANDARD.encode(tag))
}

fn ended(job: JobRecord) -> JobEnded {
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
}

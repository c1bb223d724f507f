//! Reports of ended jobs, to URLs of users and by mail.
//!
//! The leader sends them, at least once. A report waits in the database until its receiver has
//! taken it, or for [`ATTEMPTS_MAX`] attempts.

pub(crate) mod mail;
pub(crate) mod webhook;

use std::{sync::Arc, time::Duration};

use godwit_service_api::job::Notification;
use tokio::{task::JoinSet, time::sleep};

use crate::{
    metrics::ReportEnd,
    scheduling::Board,
    store::{Store, StoreError, model::WaitingReport},
};
use mail::Mailer;
use webhook::Webhooks;

/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// Reports that are sent at a time.
const TOGETHER: u32 = 16;

/// First and longest pause after an attempt that failed.
const PAUSES: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(3600));

/// Then it is given up: after some eight hours.
const ATTEMPTS_MAX: u32 = 16;

/// What sending needs.
pub(crate) struct Sender {
    pub(crate) store: Store,
    pub(crate) board: Arc<Board>,
    pub(crate) webhooks: Webhooks,
    pub(crate) mailer: Option<Mailer>,
}

impl Sender {
    /// Sends while this process leads, until `stop`.
    pub(crate) async fn run(self, stop: impl Future<Output = ()>) {
        let sender = Arc::new(self);
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => return,
                () = sleep(LOOK) => {}
            }
            if !sender.board.leads() {
                continue;
            }
            match sender.store.take_reports(TOGETHER, pause).await {
                Ok(waiting) => {
                    let mut sending = JoinSet::new();
                    for report in waiting {
                        let sender = Arc::clone(&sender);
                        sending.spawn(async move { sender.deliver(report).await });
                    }
                    while sending.join_next().await.is_some() {}
                }
                Err(error) => tracing::warn!(%error, "reports could not be read"),
            }
        }
    }

    async fn deliver(&self, report: WaitingReport) {
        let sent = self.send(&report).await;
        self.board.metrics().reported(match &sent {
            Ok(Sent::Taken) => ReportEnd::Sent,
            Ok(Sent::Not(_)) if report.attempts < ATTEMPTS_MAX => ReportEnd::Failed,
            Ok(_) => ReportEnd::GivenUp,
            Err(_) => ReportEnd::Failed,
        });
        let why = match sent {
            Ok(Sent::Taken) => None,
            Ok(Sent::Not(why)) if report.attempts < ATTEMPTS_MAX => {
                tracing::info!(job = %report.job, why, "a report is sent again later");
                return;
            }
            Ok(Sent::Not(why) | Sent::Never(why)) => Some(why),
            Err(error) => {
                tracing::warn!(job = %report.job, %error, "a report is sent again later");
                return;
            }
        };
        if let Some(why) = why {
            tracing::warn!(job = %report.job, why, "a report is given up");
        }
        if let Err(error) = self.store.remove_report(report.number).await {
            tracing::warn!(%error, "a report is sent twice");
        }
    }

    async fn send(&self, report: &WaitingReport) -> Result<Sent, StoreError> {
        match (&report.to, &self.mailer) {
            (Notification::Webhook { url }, _) => {
                self.webhooks.send(&self.store, report, url).await
            }
            (Notification::Mail { address }, Some(mailer)) => {
                mailer.send(&self.store, report, address).await
            }
            (Notification::Mail { .. }, None) => Ok(Sent::never("there is no mail relay any more")),
        }
    }
}

/// What became of an attempt.
enum Sent {
    Taken,
    /// It is sent again later.
    Not(String),
    Never(String),
}

impl Sent {
    fn never(why: &str) -> Self {
        Sent::Never(why.to_owned())
    }
}

/// After so many attempts.
fn pause(attempts: u32) -> Duration {
    let (first, longest) = PAUSES;
    first
        .saturating_mul(1 << attempts.saturating_sub(1).min(10))
        .min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_go_on_for_hours() {
        let all: Duration = (1..ATTEMPTS_MAX).map(pause).sum();
        assert_eq!(pause(1), Duration::from_secs(10));
        assert!(all > Duration::from_secs(5 * 3600) && all < Duration::from_secs(12 * 3600));
    }
}

//! A copy between two servers of HTTP, which one of them carries out: COPY with a `Source` or a
//! `Destination` at the other (the third-party copy of WLCG).
//!
//! The server that receives is asked first. Where it carries out no such copies, the one that sends
//! is asked. Neither's word that the file is there is enough: its size is asked for, too.

use std::time::Duration;

use godwit_engine::data::Sample;
use godwit_http::{
    marker::{Ending, Event, Marker, Reader},
    multistatus::Hrefs,
};
use godwit_http_client::{HeaderName, HeaderValue, Request, StatusCode};
use godwit_proto::{Command, FtpPath, RangeSet, Reply, error::TransferFailure};
use tokio::time::Instant;

use super::{
    error::HttpError,
    exchange::Exchange,
    issued::Lent,
    replies::{Failed, not_offered, refusal, reply},
    server::HttpServer,
    wire::dav_method,
};
use crate::{
    endpoint::capabilities::Lack,
    error::{Error, Result},
    report::progress::{LocalView, RunningTransfer},
    session::{
        Session,
        control::Control,
        third_party::{ThirdPartyOutcome, ThirdPartyPlan},
    },
};

/// Most streams that a server may be asked for in one copy.
const STREAMS_MAX: u32 = 100;

/// Servers read what they have copied once more for its checksum before they say that it is there:
/// where nothing is left to move they may take so many times the limit of other silences.
const WORK_FACTOR: u32 = 10;

/// Stripes of which markers are kept.
const STRIPES_MAX: u32 = 1024;

/// Which of the two carries it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// The server that receives gets the file.
    Receiver,
    /// The server that has it puts it.
    Sender,
}

/// How asking one of them ended.
enum Asked {
    /// It says that the file is there.
    Done,
    /// It carries out no such copies.
    Lacks(Reply),
    Failed(Error),
    /// The user interrupts.
    Stopped,
}

impl Session {
    /// Has one of the two servers copy a file from that of `source` to that of this session.
    /// `None`: neither carries out such copies.
    pub(in crate::session) async fn relay_by_copy(
        &mut self,
        source: &mut Session,
        plan: &ThirdPartyPlan<'_>,
    ) -> Option<ThirdPartyOutcome> {
        let (Command::Stor(to), Command::Retr(from)) = (&plan.store, &plan.retrieve) else {
            let refused = not_offered(plan.store.verb());
            return Some(ThirdPartyOutcome::failed(Error::refused(
                plan.storing,
                refused,
            )));
        };
        if let Some(error) = self.endpoint.capabilities.data(true).given_up() {
            return Some(ThirdPartyOutcome::failed(error));
        }
        let round_trip = source.round_trip.max(self.round_trip);
        self.context.counters.on_transfer_start(round_trip);
        let mut outcome = ThirdPartyOutcome {
            result: Ok(()),
            is_cut: false,
            safe: RangeSet::new(),
            bytes: None,
        };
        for by in [By::Receiver, By::Sender] {
            let active = match by {
                By::Receiver => &*self,
                By::Sender => &*source,
            };
            if active.endpoint.capabilities.lacks(Lack::Copies) {
                continue;
            }
            match self.ask_for_copy(source, by, (from, to), plan).await {
                Asked::Done => {
                    self.endpoint.capabilities.data(true).worked();
                    match self.size_of_copy(to, plan.storing).await {
                        Ok(size) => outcome.bytes = Some(size),
                        Err(error) => outcome.result = Err(error),
                    }
                    return Some(outcome);
                }
                Asked::Lacks(reply) => {
                    let active = match by {
                        By::Receiver => &*self,
                        By::Sender => &*source,
                    };
                    active.lesson(
                        Lack::Copies,
                        &reply,
                        "COPY with other servers",
                        "the other is asked",
                    );
                }
                Asked::Failed(error) => {
                    outcome.result = Err(error);
                    return Some(outcome);
                }
                Asked::Stopped => {
                    outcome.result = Err(Error::Interrupted);
                    return Some(outcome);
                }
            }
        }
        None
    }

    /// Bytes of what was copied; without that the copy is not believed.
    async fn size_of_copy(&mut self, path: &FtpPath, doing: &str) -> Result<u64> {
        let reply = self.ask(&Command::Size(path.clone()), doing).await?;
        let told = reply.text().trim().parse().ok();
        told.filter(|_| reply.code.is_success())
            .ok_or_else(|| Error::refused(doing, reply))
    }

    async fn ask_for_copy(
        &mut self,
        source: &mut Session,
        by: By,
        (from, to): (&FtpPath, &FtpPath),
        plan: &ThirdPartyPlan<'_>,
    ) -> Asked {
        // The other server is shown a token, over TLS alone, and never a password.
        let (lender, active, of_other, lent) = match by {
            By::Receiver => (&mut *source, &*self, from, Lent::Reading),
            By::Sender => (&mut *self, &*source, to, Lent::Writing),
        };
        let token = match active.endpoint.is_tls() {
            true => lender.lend(of_other, lent).await,
            false => None,
        };
        let no_token = token.is_none() && lender.endpoint.capabilities.lacks(Lack::IssuedTokens);
        let no_token = no_token.then(|| lender.endpoint.name());
        let streams = self.channels_wanted().clamp(1, STREAMS_MAX);
        let stall_limit = self.context.connections.stall_limit;
        let stop = self.context.stop.clone();
        let running = RunningTransfer::new(&self.context.counters, LocalView::Nothing);
        let (doing, ours, other, path, far) = match by {
            By::Receiver => (plan.storing, &mut *self, &*source, to, from),
            By::Sender => (plan.retrieving, &mut *source, &*self, from, to),
        };
        let Some(passive) = other.http_server() else {
            return Asked::Lacks(not_offered("COPY"));
        };
        let mut headers = vec![
            (
                match by {
                    By::Receiver => HeaderName::from_static("source"),
                    By::Sender => HeaderName::from_static("destination"),
                },
                HeaderValue::try_from(format!(
                    "{}{}",
                    passive.origin,
                    HttpServer::target(far, false)
                )),
            ),
            (
                HeaderName::from_static("overwrite"),
                HeaderValue::try_from("T"),
            ),
            (
                HeaderName::from_static("credential"),
                HeaderValue::try_from("none"),
            ),
            (
                HeaderName::from_static("requirechecksumverification"),
                HeaderValue::try_from("false"),
            ),
        ];
        if by == By::Receiver {
            let name = HeaderName::from_static("x-number-of-streams");
            headers.push((name, HeaderValue::try_from(streams.to_string())));
        }
        if let Some(token) = token {
            headers.push(match ours.http_server().map(HttpServer::hrefs) {
                // XRootD 5 minds the case of `TransferHeader`, which is lost on the way to it.
                Some(Hrefs::Literal) => {
                    let value = [b"Authorization: ", token.as_bytes()].concat();
                    let mut value = HeaderValue::from_bytes(&value);
                    if let Ok(value) = &mut value {
                        value.set_sensitive(true);
                    }
                    (HeaderName::from_static("copy-header"), value)
                }
                _ => {
                    let name = HeaderName::from_static("transferheaderauthorization");
                    (name, Ok(token))
                }
            });
        }
        let target = HttpServer::target(path, false);
        let request = |target: &str| {
            let mut request = Request::new(dav_method(b"COPY"), target);
            for (name, value) in &headers {
                if let Ok(value) = value {
                    request.headers.insert(name, value.clone());
                }
            }
            request
        };
        let Control::Http(control) = &mut ours.commands.control else {
            return Asked::Lacks(not_offered("COPY"));
        };
        let copy = async {
            let exchange = control.wire.send(&target, request).await?;
            let mut copy = RunningCopy {
                exchange,
                running: &running,
                streams,
                stall_limit,
                stripes: Vec::new(),
                moved: 0,
                moved_at: Instant::now(),
            };
            let ended = copy.follow().await?;
            if !matches!(ended, CopyEnd::Silent(_)) {
                control.wire.done(copy.exchange).await;
            }
            Ok::<_, HttpError>(ended)
        };
        let ended = tokio::select! {
            ended = copy => ended,
            // The server stops when the connection closes.
            () = stop.cancelled() => return Asked::Stopped,
        };
        let doing = doing.to_owned();
        Asked::Failed(match ended {
            Ok(CopyEnd::Done) => return Asked::Done,
            Ok(CopyEnd::Refused(status, reply)) => match status.as_u16() {
                400 | 405 | 501 => return Asked::Lacks(reply),
                _ => Error::refused(&doing, reply),
            },
            Ok(CopyEnd::Failed { reply, is_of_other }) => Error::Refused {
                doing: match (by, is_of_other) {
                    (By::Receiver, true) => plan.retrieving.to_owned(),
                    (By::Sender, true) => plan.storing.to_owned(),
                    (_, false) => doing,
                },
                reply: Box::new(match no_token.filter(|_| is_of_other) {
                    Some(lender) => without_token(&reply, &lender),
                    None => reply,
                }),
                started: true,
            },
            Ok(CopyEnd::Silent(why)) => Error::Transfer {
                doing,
                failure: TransferFailure::ConnectionLost(why),
            },
            Err(error) => Error::Transfer {
                doing,
                failure: TransferFailure::ConnectionLost(error.to_string()),
            },
        })
    }

    fn http_server(&self) -> Option<&HttpServer> {
        match &self.control {
            Control::Http(control) => Some(control.server()),
            Control::Ftp(_) => None,
        }
    }
}

/// A refusal by a server that has issued no token. `godwitd` does so if it is told to.
fn without_token(refusal: &Reply, lender: &str) -> Reply {
    let why = format!(
        "{lender} issues no tokens for other servers (godwitd: --issue-tokens), so its files and \
         directories must be open to the other one"
    );
    reply(refusal.code.get(), &format!("{}; {why}", refusal.text()))
}

/// What became of a request for a copy.
enum CopyEnd {
    /// The server says that the file is there.
    Done,
    /// It did not begin.
    Refused(StatusCode, Reply),
    /// It began, and the server says why the file is not there.
    Failed {
        reply: Reply,
        /// The other server has refused what this one asked of it.
        is_of_other: bool,
    },
    /// The answer has ended, or nothing moves, and the server has not said what became of it.
    Silent(String),
}

/// A copy that a server carries out.
struct RunningCopy<'a> {
    exchange: Exchange,
    running: &'a RunningTransfer,
    streams: u32,
    stall_limit: Duration,
    /// Bytes of each.
    stripes: Vec<u64>,
    moved: u64,
    /// When more bytes were reported last.
    moved_at: Instant,
}

impl RunningCopy<'_> {
    async fn follow(&mut self) -> std::result::Result<CopyEnd, HttpError> {
        let status = self.exchange.answer.status;
        if !status.is_success() {
            let text = self.exchange.reason().await;
            return Ok(CopyEnd::Refused(
                status,
                refusal(status, &text, Failed::Status),
            ));
        }
        let mut reader = Reader::default();
        let mut events = Vec::new();
        let mut is_empty = true;
        loop {
            let due = self.moved_at + self.stall_limit * WORK_FACTOR;
            let chunk = match tokio::time::timeout_at(due, self.exchange.answer.chunk()).await {
                Ok(chunk) => chunk?,
                Err(_) => return Ok(self.stalled()),
            };
            let Some(chunk) = chunk else { break };
            is_empty &= chunk.is_empty();
            reader.feed(&chunk, &mut events);
            for event in events.drain(..) {
                match event {
                    Event::Marker(marker) => self.on_marker(&marker),
                    Event::Ended(ending) => return Ok(ended(ending)),
                }
            }
            if self.moved_at.elapsed() > self.stall_limit * WORK_FACTOR {
                return Ok(self.stalled());
            }
        }
        Ok(match reader.finish() {
            Some(Event::Ended(ending)) => ended(ending),
            // 201 and 204 of servers that have nothing to report.
            _ if is_empty && matches!(status.as_u16(), 201 | 204) => CopyEnd::Done,
            _ => CopyEnd::Silent(
                "the server's answer ended before it said what became of the copy".to_owned(),
            ),
        })
    }

    fn stalled(&self) -> CopyEnd {
        let limit = (self.stall_limit * WORK_FACTOR).as_secs();
        CopyEnd::Silent(format!(
            "nothing moved between the two servers for {limit} s"
        ))
    }

    fn on_marker(&mut self, marker: &Marker) {
        if marker.stripe >= STRIPES_MAX {
            return;
        }
        let at = marker.stripe as usize;
        if self.stripes.len() <= at {
            self.stripes.resize(at + 1, 0);
        }
        self.stripes[at] = marker.bytes;
        let bytes = self.stripes.iter().copied().fold(0, u64::saturating_add);
        if bytes > self.moved {
            self.moved = bytes;
            self.moved_at = Instant::now();
            self.running.report(Sample {
                bytes,
                channels: self.streams,
                ..Sample::default()
            });
        }
    }
}

fn ended(ending: Ending) -> CopyEnd {
    let reason = match ending {
        Ending::Success => return CopyEnd::Done,
        Ending::Failure(reason) | Ending::Aborted(reason) => reason,
    };
    match status_in(&reason) {
        Some(status) => CopyEnd::Failed {
            reply: refusal(status, &reason, Failed::Status),
            is_of_other: true,
        },
        None => CopyEnd::Failed {
            reply: reply(451, &reason),
            is_of_other: false,
        },
    }
}

/// The other server's status, where the reason of a failure names one as XRootD's and ours do.
fn status_in(reason: &str) -> Option<StatusCode> {
    let (_, rest) = reason.split_once("status code ")?;
    let digits = rest.get(..3)?;
    StatusCode::from_bytes(digits.as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_without_a_token_says_which_server_issues_none() {
        let refused = reply(550, "HTTP 403 Forbidden: log in");
        let told = without_token(&refused, "davs://a.example:443");
        assert_eq!(told.code, refused.code);
        let text = told.text();
        assert!(text.starts_with("HTTP 403 Forbidden: log in; davs://a.example:443 issues no"));
        assert!(text.contains("--issue-tokens"), "{text}");
    }
}

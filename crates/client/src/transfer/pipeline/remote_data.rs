//! The other server's part of small files that go from it to this session's: it sends them one
//! behind the other, on the same data channels, in the order in which they were asked for.

use std::collections::VecDeque;

use godwit_engine::{control::Event as Spoken, data::Sample};
use godwit_proto::{Command, Reply, error::TransferFailure, pi::client::CommandId};

use crate::{report::progress::RunningTransfer, session::Session};

/// What the server that sends was asked for.
pub(crate) struct RemoteData {
    due: VecDeque<PendingSend>,
    running: RunningTransfer,
    channels: u32,
    bytes: u64,
}

struct PendingSend {
    transfer: CommandId,
    check: Option<CommandId>,
    bytes: u64,
    /// It has said that it has sent the file.
    sent: bool,
}

/// What became of a file at its source.
pub(crate) struct SendOutcome {
    pub(crate) result: Result<(), TransferFailure>,
    /// What the server said instead of sending it.
    pub(crate) refusal: Option<Reply>,
    /// The answer to the check.
    pub(crate) checked: Option<Reply>,
}

impl RemoteData {
    /// Over so many channels.
    pub(crate) fn new(running: RunningTransfer, channels: u32) -> Self {
        Self {
            due: VecDeque::new(),
            running,
            channels,
            bytes: 0,
        }
    }

    /// Asks for a file of `bytes` behind those that were asked for, and for its checksum.
    pub(crate) fn queue(
        &mut self,
        source: &mut Session,
        transfer: &Command,
        check: Option<&Command>,
        bytes: u64,
    ) {
        self.due.push_back(PendingSend {
            transfer: source.control.submit(transfer),
            check: check.map(|check| source.control.submit(check)),
            bytes,
            sent: false,
        });
    }

    /// What became of the first of them. Never where there is none. Cancel-safe.
    pub(crate) async fn next_end(&mut self, source: &mut Session) -> SendOutcome {
        loop {
            let Some(first) = self.due.front_mut() else {
                return std::future::pending().await;
            };
            let (of, reply) = match source.control.next_event().await {
                Ok(Spoken::Final(of, reply)) => (of, reply),
                Ok(Spoken::Preliminary(..)) => continue,
                Err(error) => {
                    source.broken = true;
                    let lost = format!("{}: {error}", source.endpoint.name());
                    return self.failed(lost, None);
                }
            };
            if of == first.transfer {
                if !reply.code.is_success() {
                    let said = format!("{} said: {reply}", source.endpoint.name());
                    return self.failed(said, Some(reply));
                }
                first.sent = true;
                if first.check.is_none() {
                    return self.sent(None);
                }
            } else if first.sent && Some(of) == first.check {
                return self.sent(Some(reply));
            }
        }
    }

    fn sent(&mut self, checked: Option<Reply>) -> SendOutcome {
        self.bytes += self.due.pop_front().map_or(0, |due| due.bytes);
        self.running.report(Sample {
            bytes: self.bytes,
            channels: self.channels,
            ..Sample::default()
        });
        SendOutcome {
            result: Ok(()),
            refusal: None,
            checked,
        }
    }

    fn failed(&mut self, why: String, refusal: Option<Reply>) -> SendOutcome {
        self.due.pop_front();
        SendOutcome {
            result: Err(TransferFailure::ConnectionLost(why)),
            refusal,
            checked: None,
        }
    }
}

//! A shell without files and sockets: it answers every request, after a while if so told.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use godwit_proto::{
    ByteRange, RangeSet,
    block_checksums::BlockChecksums,
    error::TransferFailure,
    facts::{FactType, Facts},
    pi::server::{Input, Outcome, Output, Request, SPECULATIVE_MAX, TransferKind, TransferRequest},
    timestamp::Timestamp,
};

use super::{addr, script::storage_failure};

/// Bytes of every file.
pub(crate) const FILE_BYTES: u64 = 3000;

pub(crate) fn done() -> Outcome {
    Outcome::Done
}

/// What was told of before its turn.
#[derive(Debug)]
pub(crate) enum Speculative {
    Transfer(TransferRequest),
    Request(Request),
}

/// Answers what a `ServerPi` puts out. A path with `missing` in it fails; one with `slow` in it
/// never ends unless it is aborted.
#[derive(Debug, Default)]
pub(crate) struct FakeShell {
    /// Time that everything takes.
    pub(crate) delay: Duration,
    /// Answers on their way.
    due: VecDeque<(Instant, Input<'static>)>,
    /// The transfer that runs.
    running: Option<TransferRequest>,
    /// Files that were received whole.
    pub(crate) received: Vec<String>,
    /// Transfers that ended well.
    pub(crate) ended_well: usize,
    /// Connections that survived the last transfer.
    cached: bool,
    /// The control connection is to be closed.
    pub(crate) closed: bool,
    /// Contract violations by the interpreter.
    pub(crate) outstanding: usize,
    /// Speculative and neither started nor forgotten.
    pub(crate) speculative: VecDeque<Speculative>,
}

impl FakeShell {
    pub(crate) fn new(delay: Duration) -> Self {
        Self {
            delay,
            ..Self::default()
        }
    }

    /// Carries out one output; bytes for the peer are returned.
    pub(crate) fn take(&mut self, now: Instant, output: Output) -> Option<Vec<u8>> {
        assert!(!self.closed, "an output after Close: {output:?}");
        let at = now + self.delay;
        match output {
            Output::Send(bytes) => return Some(bytes),
            Output::Request(request) => {
                assert_eq!(self.outstanding, 0, "two things outstanding: {request:?}");
                match self.speculative.pop_front() {
                    None => {}
                    Some(Speculative::Request(announced)) => {
                        assert_eq!(announced, request, "not as announced");
                    }
                    Some(other) => panic!("{request:?} where {other:?} was announced"),
                }
                self.outstanding += 1;
                self.due.push_back((at, Input::Done(answer(&request))));
            }
            Output::StartTransfer(request) => {
                assert_eq!(self.outstanding, 0, "two things outstanding: {request:?}");
                assert!(
                    !request.reuse || self.cached,
                    "nothing to reuse: {request:?}"
                );
                match self.speculative.pop_front() {
                    None => {}
                    Some(Speculative::Transfer(announced)) => {
                        assert_eq!(announced.kind, request.kind, "not as announced");
                        assert_eq!(announced.mode, request.mode);
                        assert_eq!(announced.type_code, request.type_code);
                    }
                    Some(other) => panic!("{request:?} where {other:?} was announced"),
                }
                self.outstanding += 1;
                self.start(at, request);
            }
            Output::SpeculativeTransfer(request) => {
                assert!(
                    self.outstanding > 0,
                    "speculative behind nothing: {request:?}"
                );
                self.speculative.push_back(Speculative::Transfer(request));
                assert!(self.speculative.len() <= SPECULATIVE_MAX);
            }
            Output::SpeculativeRequest(request) => {
                assert!(
                    self.outstanding > 0,
                    "speculative behind nothing: {request:?}"
                );
                self.speculative.push_back(Speculative::Request(request));
                assert!(self.speculative.len() <= SPECULATIVE_MAX);
            }
            Output::SkipSpeculative => {
                let skipped = self.speculative.pop_front();
                let rename = matches!(skipped, Some(Speculative::Request(Request::Rename { .. })));
                assert!(rename, "{skipped:?}");
            }
            Output::DropSpeculative => self.speculative.clear(),
            Output::AbortTransfer => {
                assert!(self.running.is_some(), "nothing to abort");
                self.due
                    .retain(|(_, input)| matches!(input, Input::Live(_)));
                self.end(at, 0, Err(TransferFailure::Aborted));
            }
            Output::ReportProgress => self.due.push_back((
                at,
                Input::TransferProgress {
                    bytes: 0,
                    fresh: RangeSet::new(),
                },
            )),
            Output::Live(_) => self
                .due
                .push_back((at, Input::Live(self.running.is_some().then(Box::default)))),
            Output::NextChannels(_) => assert!(self.cached && self.speculative.is_empty()),
            Output::DropDataChannels => {
                assert!(self.speculative.is_empty(), "speculative on what is gone");
                self.cached = false;
            }
            Output::Close => self.closed = true,
            Output::Protect | Output::Note(_) => {}
        }
        None
    }

    fn start(&mut self, at: Instant, request: TransferRequest) {
        let path = match &request.kind {
            TransferKind::Send { path, .. }
            | TransferKind::Receive { path, .. }
            | TransferKind::List { path, .. } => path.to_string(),
        };
        let reused = request.reuse;
        self.running = Some(request);
        if path.contains("missing") {
            let failure = storage_failure("ENOENT", &format!("open {path}"));
            return self.end(at, 0, Err(failure.into()));
        }
        self.due.push_back((at, Input::TransferReady { reused }));
        if !path.contains("slow") {
            self.end(at + self.delay, FILE_BYTES, Ok(()));
        }
    }

    fn end(&mut self, at: Instant, bytes: u64, result: Result<(), TransferFailure>) {
        let receives = matches!(
            &self.running,
            Some(TransferRequest {
                kind: TransferKind::Receive { .. },
                ..
            })
        );
        let fresh = match ByteRange::new(0, bytes) {
            Some(range) if receives => [range].into_iter().collect(),
            _ => RangeSet::new(),
        };
        self.due.push_back((
            at,
            Input::TransferDone {
                bytes,
                fresh,
                cached: result.is_ok(),
                result,
            },
        ));
    }

    /// When the next answer is ready.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.due.front().map(|(at, _)| *at)
    }

    /// The next answer, if it is ready.
    pub(crate) fn next_input(&mut self, now: Instant) -> Option<Input<'static>> {
        if self.next_due().is_none_or(|at| at > now) {
            return None;
        }
        let (_, input) = self.due.pop_front()?;
        match &input {
            Input::Done(Ok(Outcome::Listing { last: false, .. })) => {}
            Input::Done(_) => self.outstanding -= 1,
            Input::TransferDone { result, cached, .. } => {
                self.outstanding -= 1;
                self.cached = *cached;
                self.ended_well += usize::from(result.is_ok());
                if let (
                    Some(TransferRequest {
                        kind: TransferKind::Receive { path, .. },
                        ..
                    }),
                    Ok(()),
                ) = (self.running.take(), result)
                {
                    self.received.push(path.to_string());
                }
            }
            _ => {}
        }
        Some(input)
    }
}

fn answer(request: &Request) -> Result<Outcome, godwit_proto::error::StorageFailure> {
    Ok(match request {
        Request::Login { user, .. } if user == "mallory" => {
            return Err(storage_failure("EACCES", "log in"));
        }
        Request::Stat(path) | Request::CheckExists(path) | Request::ChangeDirectory(path)
            if path.to_string().contains("missing") =>
        {
            return Err(storage_failure("ENOENT", &format!("stat {path}")));
        }
        Request::Stat(_) => Outcome::Facts(Box::new(facts())),
        Request::ListControl { .. } => Outcome::Listing {
            entries: vec![(facts(), b"f".to_vec())],
            last: true,
        },
        Request::Checksum { .. } => Outcome::Checksum("0badcafe".to_owned()),
        Request::BlockChecksums { leaf, .. } => Outcome::BlockChecksums(BlockChecksums {
            leaf: *leaf,
            bytes: 1,
            digests: vec![7],
        }),
        Request::Listen(..) => Outcome::Listening(vec![addr("127.0.0.1:36529")]),
        Request::WhoAmI => Outcome::Text("u".to_owned()),
        _ => Outcome::Done,
    })
}

fn facts() -> Facts {
    Facts {
        kind: Some(FactType::File),
        size: Some(FILE_BYTES),
        modify: Timestamp::parse("20261121060534"),
        ..Facts::default()
    }
}

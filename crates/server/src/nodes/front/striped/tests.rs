use godwit_engine::storage::{MemoryStorage, Storage, WriteMode};
use godwit_proto::{
    ByteRange, FtpPath,
    pi::server::{Placement, TransferKind},
};
use tokio::sync::mpsc;

use super::*;
use crate::nodes::{front::Unfenced, pulse::QUIET_MAX};

const LENGTH: u64 = 1000;

/// A transfer over nodes that this test is.
struct Bench {
    transfer: StripedTransfer,
    orders: Vec<mpsc::Receiver<NodeOrder>>,
    reports: Vec<Option<mpsc::Sender<NodeReport>>>,
    unfenced: Arc<Unfenced>,
    file: (u64, u64),
}

fn request(kind: TransferKind, type_code: TypeCode) -> TransferRequest {
    TransferRequest {
        kind,
        mode: Mode::ExtendedBlock,
        type_code,
        reuse: false,
    }
}

fn path() -> FtpPath {
    FtpPath::new("/f").unwrap()
}

fn receive() -> TransferKind {
    TransferKind::Receive {
        path: path(),
        placement: Placement::Replace,
        restart: None,
        expected_bytes: None,
        checksums: Vec::new(),
        modify: None,
    }
}

fn send() -> TransferKind {
    TransferKind::Send {
        path: path(),
        region: None,
        restart: None,
    }
}

impl Bench {
    fn new(nodes: usize, shares: Shares, request: &TransferRequest) -> Self {
        Self::try_new(nodes, shares, request, false).unwrap_or_else(|failure| panic!("{failure}"))
    }

    fn try_new(
        nodes: usize,
        shares: Shares,
        request: &TransferRequest,
        is_passed_on: bool,
    ) -> Result<Self, TransferFailure> {
        let storage = MemoryStorage::new();
        let file = storage.open_write(&path(), WriteMode::Replace).unwrap();
        file.write_all_at(0, &[0; 1000]).unwrap();
        let metadata = file.metadata().unwrap();
        let (base, whole) = (
            0,
            ByteRange {
                start: 0,
                end: LENGTH,
            },
        );
        let job = match &request.kind {
            TransferKind::Receive { .. } => TransferJob::Receive(Sink::File {
                file,
                base,
                stream_start: 0,
                limit: None,
            }),
            _ => TransferJob::Send(Source::File {
                file,
                base,
                ranges: vec![whole],
            }),
        };
        let (mut links, mut orders, mut reports) = (Vec::new(), Vec::new(), Vec::new());
        for node in 0..nodes {
            let (link, sent, said) = FrontLink::detached(&format!("dtn{node}"), is_passed_on);
            links.push(link);
            orders.push(sent);
            reports.push(Some(said));
        }
        let unfenced = Arc::new(Unfenced::default());
        let stripes = Arc::new(Stripes::of(
            links,
            shares,
            Arc::clone(&unfenced),
            "jo".to_owned(),
        ));
        let transfer = StripedTransfer::start(&stripes, request, &job, Some(&metadata))?;
        Ok(Self {
            transfer,
            orders,
            reports,
            unfenced,
            file: metadata.unique,
        })
    }

    fn say(&self, node: usize, report: NodeReport) {
        let link = self.reports[node].as_ref().unwrap();
        link.try_send(report).unwrap();
    }

    fn ready(&self, node: usize) {
        let reused = false;
        self.say(
            node,
            NodeReport::Ready {
                transfer: 7,
                reused,
            },
        );
    }

    fn done(&self, node: usize, transfer: u64, change: impl FnOnce(&mut Done)) {
        let mut done = Done {
            transfer,
            counts: Counts::default(),
            fresh: Spans::default(),
            failure: None,
            cached: true,
            channels_peak: 1,
            eods: 1,
        };
        change(&mut done);
        self.say(node, NodeReport::Done(Box::new(done)));
    }

    /// What the transfer does with all that was said, up to its next event.
    fn event(&mut self) -> TransferEvent {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let limit = Duration::from_secs(20);
        let next = async { tokio::time::timeout(limit, self.transfer.next_event()).await };
        runtime.block_on(next).expect("an event")
    }

    /// Looks at what was said, and waits for nothing.
    fn look(&mut self) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            tokio::select! {
                biased;
                _ = self.transfer.next_event() => {}
                () = std::future::ready(()) => {}
            }
        });
    }

    fn report(&mut self) -> TransferReport {
        match self.event() {
            TransferEvent::Done(report) => report,
            TransferEvent::Ready { .. } => panic!("it is ready"),
        }
    }

    fn ordered(&mut self, node: usize) -> Vec<NodeOrder> {
        std::iter::from_fn(|| self.orders[node].try_recv().ok()).collect()
    }
}

#[test]
fn reports_on_an_earlier_transfer_are_ignored() {
    let mut bench = Bench::new(1, Shares::Whole, &request(receive(), TypeCode::Image));
    let counts = Counts {
        bytes: 5,
        ..Counts::default()
    };
    let fresh = Spans::of(&[ByteRange { start: 0, end: 5 }]);
    let transfer = 6;
    bench.say(
        0,
        NodeReport::Progress {
            transfer,
            counts,
            fresh,
        },
    );
    bench.done(0, transfer, |done| {
        done.failure = Some(TransferFailure::Aborted)
    });
    bench.done(0, 7, |done| done.counts.bytes = 3);
    let report = bench.report();
    assert_eq!((report.bytes, report.result), (3, Ok(())));
    assert!(bench.transfer.take_fresh().is_empty());
}

#[test]
fn numbers_of_a_node_that_lies_overflow_nothing() {
    let mut bench = Bench::new(3, Shares::Whole, &request(receive(), TypeCode::Image));
    for node in 0..3 {
        let counts = Counts {
            bytes: u64::MAX,
            channels: u32::MAX,
            retransmitted: Some(u64::MAX),
        };
        let fresh = Spans::default();
        let transfer = 7;
        bench.say(
            node,
            NodeReport::Progress {
                transfer,
                counts,
                fresh,
            },
        );
        bench.done(node, transfer, |done| {
            done.counts = counts;
            done.channels_peak = u32::MAX;
            done.eods = u64::MAX;
        });
    }
    let report = bench.report();
    assert_eq!(report.bytes, u64::MAX);
    assert_eq!(report.channels_peak, 3 * CHANNELS_MAX);
    assert_eq!(bench.transfer.sample().bytes, u64::MAX);
}

#[test]
fn a_node_that_has_no_connection_is_no_loss_where_all_send_to_one_address() {
    // The first says EOF for all, unless it is the one that is lost.
    for lost in [0, 1] {
        let mut bench = Bench::new(2, Shares::Joined, &request(send(), TypeCode::Image));
        let other = 1 - lost;
        bench.ready(other);
        bench.reports[lost] = None;
        assert!(
            matches!(bench.event(), TransferEvent::Ready { .. }),
            "{lost}"
        );
        bench.say(
            other,
            NodeReport::Progress {
                transfer: 7,
                counts: Counts::default(),
                fresh: Spans::default(),
            },
        );
        bench.done(other, 7, |done| done.counts.bytes = LENGTH);
        let report = bench.report();
        assert_eq!((report.bytes, report.result), (LENGTH, Ok(())));
        let orders = bench.ordered(other);
        let leased = orders.iter().find_map(|order| match order {
            NodeOrder::Lease { ranges } => Some(ranges.ranges()),
            _ => None,
        });
        assert_eq!(
            leased,
            Some(vec![ByteRange {
                start: 0,
                end: LENGTH
            }])
        );
        let eof = LastEod::Eof { others: 0 };
        let says_eof =
            |order: &NodeOrder| matches!(order, NodeOrder::Finish { ending } if *ending == eof);
        assert!(orders.iter().any(says_eof), "{orders:?}");
    }
}

#[test]
fn a_node_that_is_lost_with_connections_fails_what_is_sent() {
    let mut bench = Bench::new(2, Shares::Joined, &request(send(), TypeCode::Image));
    bench.ready(0);
    bench.ready(1);
    assert!(matches!(bench.event(), TransferEvent::Ready { .. }));
    bench.reports[1] = None;
    bench.done(0, 7, |_| {});
    let failure = bench.report().result.unwrap_err();
    assert!(
        failure.to_string().contains("data node dtn1:1: it closed"),
        "{failure}"
    );
}

#[test]
fn a_file_is_unfenced_when_a_node_is_lost_that_writes_it() {
    let mut bench = Bench::new(2, Shares::Whole, &request(receive(), TypeCode::Image));
    bench.ready(0);
    assert!(matches!(bench.event(), TransferEvent::Ready { .. }));
    assert!(bench.unfenced.quiet_in(bench.file).is_none());
    bench.reports[0] = None;
    bench.done(1, 7, |_| {});
    assert!(bench.report().result.is_err());
    assert!(bench.unfenced.quiet_in(bench.file).is_some());
    // Also where nobody waits for the end.
    let bench = Bench::new(1, Shares::Whole, &request(receive(), TypeCode::Image));
    let (unfenced, file) = (Arc::clone(&bench.unfenced), bench.file);
    drop(bench);
    assert!(unfenced.quiet_in(file).is_some());
}

/// A session that has a process of its own: the monitor waits where it loses a node, and reports
/// the end then. Where the monitor itself is lost, or has ended the link, no wait has taken place.
#[test]
fn the_end_of_a_link_that_was_not_reported_is_waited_for() {
    for is_told in [true, false] {
        let receive = request(receive(), TypeCode::Image);
        let mut bench = Bench::try_new(1, Shares::Whole, &receive, true).unwrap();
        bench.ready(0);
        assert!(matches!(bench.event(), TransferEvent::Ready { .. }));
        if is_told {
            let why = "it is cut off".to_owned();
            bench.say(0, NodeReport::Refused { why });
        }
        bench.reports[0] = None;
        let before = Instant::now();
        bench.look();
        let quiet_at = bench.transfer.quiet_at.unwrap();
        match is_told {
            true => assert!(quiet_at <= Instant::now()),
            false => assert!(quiet_at >= before + QUIET_MAX),
        }
        assert!(bench.transfer.is_over());
    }
}

/// The control connection of the client is lost, and nobody waits for the end of its transfer.
#[test]
fn a_transfer_that_is_dropped_leaves_the_lease_of_its_nodes_behind() {
    let receive = request(receive(), TypeCode::Image);
    let bench = Bench::try_new(2, Shares::Whole, &receive, true).unwrap();
    let (unfenced, file) = (Arc::clone(&bench.unfenced), bench.file);
    let before = Instant::now();
    drop(bench);
    assert!(unfenced.quiet_at(file).unwrap() >= before + QUIET_MAX);
}

#[test]
fn a_text_is_received_over_one_stripe_only() {
    let text = request(receive(), TypeCode::Ascii);
    let Err(failure) = Bench::try_new(2, Shares::Whole, &text, false) else {
        panic!("not refused");
    };
    assert!(failure.to_string().contains("TYPE I, or PASV"), "{failure}");
    assert!(Bench::try_new(1, Shares::Whole, &text, false).is_ok());
    assert!(Bench::try_new(2, Shares::Leased, &request(send(), TypeCode::Ascii), false).is_ok());
}

use std::{
    io::Write as _,
    net::{Ipv4Addr, TcpListener},
    sync::Mutex,
};

use godwit_engine::storage::{
    MemoryStorage, WriteMode,
    faulty::{Delay, FaultyStorage, Operation},
};
use godwit_proto::{FtpPath, command::Mode, error::TransferFailure};

use super::*;
use crate::{
    config::{Anonymous, Durability, ServerSettings},
    nodes::messages::{Job, SameFile},
    service::Service,
};

/// A front end whose only node is a session over a storage with a file `/f`.
struct Front {
    orders: mpsc::Sender<NodeOrder>,
    reports: mpsc::Receiver<NodeReport>,
    listener: TcpListener,
    _phase: watch::Sender<Phase>,
}

/// `room`: of the queue of reports.
fn front(delay: Delay, room: usize) -> Front {
    let storage = MemoryStorage::new();
    let path = FtpPath::new("/f").unwrap();
    storage.open_write(&path, WriteMode::New).unwrap();
    let storage = FaultyStorage::new(Arc::new(storage), Vec::new()).with_delay(delay);
    let settings = ServerSettings::new("/", Anonymous::Off);
    let service = Service::on(Arc::new(storage), settings, Arc::default(), None);
    let shared = Arc::new(NodeShared::new(Arc::new(service)));
    let (orders, given) = mpsc::channel(100);
    let (said, reports) = mpsc::channel(room);
    let phase = watch::Sender::new(Phase::Serving);
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let pulse = Arc::new(Pulse::heard_now());
    let session = NodeSession::new(shared, given, said, phase.subscribe(), local, pulse);
    tokio::spawn(session.serve());
    Front {
        orders,
        reports,
        listener: TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(),
        _phase: phase,
    }
}

impl Front {
    /// A receipt in stream mode begins, over a connection that the node makes.
    async fn store(&mut self, durability: Durability) {
        let spec = Spec {
            parallelism: 1,
            holes: false,
            socket_buffer_bytes: None,
            foreign_hosts: true,
            dcau: Dcau::None,
            protection: Protection::Clear,
            ftps: false,
        };
        let login = NodeOrder::Login {
            user: "jo".to_owned(),
            session: 1,
            client: Ipv4Addr::LOCALHOST.into(),
            rights: None,
            durability,
            ftps: false,
            account: None,
        };
        let connect = NodeOrder::ConnectTo {
            spec,
            peer: self.listener.local_addr().unwrap(),
            share: Share::Whole,
        };
        let start = Start {
            transfer: 3,
            job: Job::Receive {
                path: FtpPath::new("/f").unwrap(),
                file: SameFile::Unknown,
                base: 0,
                stream_start: 0,
                limit: None,
                ascii: false,
            },
            mode: Mode::Stream,
        };
        for order in [login, connect, NodeOrder::Start(Box::new(start))] {
            self.orders.send(order).await.unwrap();
        }
    }

    async fn noted(&mut self) {
        assert!(matches!(self.reports.recv().await, Some(NodeReport::Noted)));
    }

    /// The bytes of the client arrive, and its end.
    fn client_sends(&self, bytes: &[u8]) {
        let (mut client, _) = self.listener.accept().unwrap();
        client.write_all(bytes).unwrap();
    }

    async fn done(&mut self) -> Done {
        loop {
            match self.reports.recv().await {
                Some(NodeReport::Done(done)) => return *done,
                Some(
                    NodeReport::Ready { transfer, .. } | NodeReport::Progress { transfer, .. },
                ) => {
                    assert_eq!(transfer, 3);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

fn in_runtime(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let limit = Duration::from_secs(60);
    let limited = async { tokio::time::timeout(limit, work).await };
    runtime.block_on(limited).expect("an end in time");
    runtime.shutdown_background();
}

#[test]
fn a_session_is_as_durable_as_its_front_end_says() {
    for (durability, expected) in [(Durability::None, false), (Durability::File, true)] {
        let syncs = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&syncs);
        let delay: Delay = Arc::new(move |operation, _| {
            if operation == Operation::Sync {
                *counted.lock().unwrap() += 1;
            }
        });
        in_runtime(async {
            let mut front = front(delay, 100);
            front.store(durability).await;
            front.noted().await;
            front.client_sends(b"bytes");
            let done = front.done().await;
            assert_eq!((done.failure, done.counts.bytes), (None, 5));
        });
        assert_eq!(*syncs.lock().unwrap() > 0, expected, "{durability:?}");
    }
}

/// The queue of reports is full when the transfer ends.
#[test]
fn the_end_of_a_transfer_is_said_when_there_is_room() {
    in_runtime(async {
        let mut front = front(Arc::new(|_, _| {}), 1);
        front.store(Durability::None).await;
        // Noted fills the queue, and Ready waits for room.
        front.client_sends(b"bytes");
        tokio::time::sleep(Duration::from_secs(1)).await;
        front.noted().await;
        assert_eq!(front.done().await.counts.bytes, 5);
    });
}

#[test]
fn a_receipt_that_is_still_opened_ends_when_it_is_to_be_drained() {
    let (release, gate) = std::sync::mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let delay: Delay = Arc::new(move |operation, _| {
        if operation == Operation::OpenWrite {
            let _ = gate.lock().unwrap().recv();
        }
    });
    in_runtime(async {
        let mut front = front(delay, 100);
        front.store(Durability::None).await;
        front.noted().await;
        front.orders.send(NodeOrder::Drain).await.unwrap();
        // Answered behind it: it was heard while the file was being opened.
        let name = "none".to_owned();
        front.orders.send(NodeOrder::Look { name }).await.unwrap();
        let seen = front.reports.recv().await;
        assert!(
            matches!(seen, Some(NodeReport::Seen { file: Err(_) })),
            "{seen:?}"
        );
        drop(release);
        let done = front.done().await;
        assert_eq!(done.failure, Some(TransferFailure::Aborted));
    });
}

//! Protected data channels: who is let in, and what protects the bytes.

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use godwit_engine::{
    data::{
        ChannelParams, ChannelSet, GsiSecurity, Mover, Sink, Source, TransferEvent, TransferJob,
        TransferReport,
    },
    storage::{
        MemoryStorage, NullStorage, Storage, WriteMode,
        faulty::{Fault, FaultyStorage, Operation},
    },
};
use godwit_gsi::{
    Versions,
    cert::{Credential, key::KeyKind, proxy, proxy::ProxyRequest},
};
use godwit_proto::{
    ByteRange, FtpPath, command::Mode, error::TransferFailure, security::Protection,
};

use crate::{
    capture::{Capture, End, records},
    data::{Bytes, Pair, done, into, listener, params, pattern, run, whole},
    data_direct::{self, assert_copies},
    data_holes::{assert_carries_holes, knowing},
    grid::Grid,
    pki::{Blueprint, DAY, HOUR, rsa_key},
};

/// A grid of today, and its user's proxy.
pub(crate) struct Users {
    grid: Grid,
    jo: Credential,
}

impl Users {
    pub(crate) fn new() -> Self {
        let now = SystemTime::now();
        let grid = Grid::with(Blueprint::authority("/O=Grid/CN=CA").at(now));
        let jo = proxy::create(&grid.user, &ProxyRequest::default(), KeyKind::EcP256, now);
        Self {
            jo: jo.unwrap(),
            grid,
        }
    }

    pub(crate) fn security(&self, protection: Protection) -> GsiSecurity {
        self.security_of(&self.jo, protection)
    }

    fn security_of(&self, credential: &Credential, protection: Protection) -> GsiSecurity {
        let anchors = Arc::new(self.grid.anchors());
        GsiSecurity::own_identity(credential.clone(), anchors, protection)
    }

    fn user(&self, name: &str) -> Blueprint {
        Blueprint::user(name).at(SystemTime::now())
    }
}

pub(crate) fn protected(security: GsiSecurity, params: ChannelParams) -> ChannelParams {
    ChannelParams {
        security: Some(security.into()),
        ..params
    }
}

/// A receiver and a sender with guards of their own.
pub(crate) fn pair(receiver: ChannelParams, sender: ChannelParams) -> Pair {
    let mover = |name| [Mover::spawn(name).unwrap()];
    let (listener, at) = listener();
    Pair {
        receiver: ChannelSet::passive(&mover("r"), listener, receiver).unwrap(),
        sender: ChannelSet::active(&mover("s"), vec![at], None, sender),
    }
}

/// The same, bytes passing through a tap that may change them.
struct Tap {
    listener: TcpListener,
    to: SocketAddr,
}

const LEVELS: [Protection; 4] = [
    Protection::Clear,
    Protection::Safe,
    Protection::Confidential,
    Protection::Private,
];

#[test]
fn every_protection_carries_every_mode_in_both_versions() {
    let users = Users::new();
    run(async {
        for versions in [Versions::Tls12, Versions::Tls13] {
            for protection in LEVELS {
                let security = GsiSecurity {
                    versions,
                    ..users.security(protection)
                };
                for size in [0, 1, 16 << 10, 300_007, 3_000_000] {
                    let protected = protected(security.clone(), params(4, 100_000));
                    let both = pair(protected.clone(), protected);
                    // Cached channels stay what they are.
                    for round in 0..3 {
                        let (sent, got) = both.copy(pattern(size), Mode::ExtendedBlock).await;
                        let what = format!("{versions:?} {protection} {size} {round}");
                        assert_eq!((sent.result, got.result), (Ok(()), Ok(())), "{what}");
                        assert_eq!((sent.cached, got.cached), (4, 4), "{what}");
                    }
                }
            }
        }
    });
}

#[test]
fn every_protection_carries_holes() {
    let users = Users::new();
    for protection in LEVELS {
        let protected = protected(users.security(protection), knowing(2));
        assert_carries_holes(&pair(protected.clone(), protected));
    }
}

#[test]
fn protected_transfers_bypass_the_page_cache() {
    let users = Users::new();
    for protection in [Protection::Safe, Protection::Private] {
        let protected = |channels| protected(users.security(protection), params(channels, 1 << 20));
        let pair = |channels| pair(protected(channels), protected(channels));
        assert_copies(&data_direct::Place::new(), pair);
    }
}

#[test]
fn stream_mode_is_protected_from_either_end() {
    let users = Users::new();
    run(async {
        for versions in [Versions::Tls12, Versions::Tls13] {
            for protection in LEVELS {
                for size in [0, 1, 16 << 10, 3_000_000] {
                    for sender_connects in [true, false] {
                        let security = GsiSecurity {
                            versions,
                            ..users.security(protection)
                        };
                        let protected = protected(security, params(1, 100_000));
                        let mut both = pair(protected.clone(), protected);
                        if !sender_connects {
                            std::mem::swap(&mut both.receiver, &mut both.sender);
                        }
                        let (sent, got) = both.copy(pattern(size), Mode::Stream).await;
                        let what = format!("{versions:?} {protection} {size} {sender_connects}");
                        assert_eq!((sent.result, got.result), (Ok(()), Ok(())), "{what}");
                    }
                }
            }
        }
    });
}

/// Bytes that wait behind the handshake, or in a record, are looked at as those from the socket
/// are.
#[test]
fn a_protected_stream_writes_nothing_behind_its_region() {
    const BASE: u64 = 10;
    const REGION: u64 = 100_000;
    let users = Users::new();
    run(async {
        for protection in LEVELS {
            let protected = protected(users.security(protection), params(1, 1 << 20));
            let both = pair(protected.clone(), protected);
            let (source, target) = (Bytes::new(pattern(300_000)), Bytes::new(Vec::new()));
            let sink = TransferJob::Receive(Sink::File {
                file: target.clone(),
                base: BASE,
                stream_start: 0,
                limit: Some(REGION),
            });
            let mut receive = both.receiver.start(sink, Mode::Stream);
            let mut send = both.sender.start(whole(&source), Mode::Stream);
            let (received, _) = tokio::join!(done(&mut receive), done(&mut send));
            let why = received.result.unwrap_err();
            assert!(
                matches!(&why, TransferFailure::Protocol(why) if why.contains("passes the end")),
                "{protection} {why:?}"
            );
            assert!(target.bytes().len() as u64 <= BASE + REGION, "{protection}");
        }
    });
}

async fn copy_between(receiver: ChannelParams, sender: ChannelParams) -> [TransferReport; 2] {
    let both = pair(receiver, sender);
    let (source, target) = (Bytes::new(pattern(100_000)), Bytes::new(Vec::new()));
    let mut receive = both.receiver.start(into(&target), Mode::ExtendedBlock);
    let mut send = both.sender.start(whole(&source), Mode::ExtendedBlock);
    let (received, sent) = tokio::join!(done(&mut receive), done(&mut send));
    assert!(
        target.bytes().is_empty(),
        "nothing is taken from a stranger"
    );
    [received, sent]
}

fn refusal(report: &TransferReport) -> &str {
    match &report.result {
        Err(TransferFailure::NotAuthenticated(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn another_identity_is_refused_at_once() {
    let users = Users::new();
    let authority = &users.grid.authority;
    let kim = users.user("/O=Grid/CN=Kim").issued_by(authority);
    let late = users.user("/O=Grid/CN=Jo").valid(-2 * DAY, -HOUR);
    let late = late.issued_by(authority);
    let stranger = Blueprint::authority("/O=Else/CN=CA").at(SystemTime::now());
    let stranger = users
        .user("/O=Grid/CN=Jo")
        .issued_by(&stranger.self_signed());
    run(async {
        for (who, word) in [
            (&kim, "/O=Grid/CN=Kim"),
            (&late, "expired"),
            (&stranger, "/O=Else/CN=CA"),
        ] {
            for protection in [Protection::Clear, Protection::Private] {
                let ours = users.security(protection);
                // They expect Jo, so that only we have something against them.
                let theirs = GsiSecurity {
                    peer: ours.peer.clone(),
                    ..users.security_of(who, protection)
                };
                let ours = protected(ours, params(2, 1 << 20));
                let theirs = protected(theirs, params(2, 1 << 20));
                let [received, sent] = copy_between(ours.clone(), theirs.clone()).await;
                assert!(refusal(&received).contains(word), "{received:?}");
                // With TLS 1.3 the sender may have written all before it can hear of that.
                drop(sent);
                let [received, sent] = copy_between(theirs, ours).await;
                assert!(refusal(&sent).contains(word), "{sent:?}");
                assert!(received.result.is_err(), "{received:?}");
            }
        }
    });
}

#[test]
fn the_expected_subject_can_be_named() {
    let users = Users::new();
    let kim = users
        .user("/O=Grid/CN=Kim")
        .issued_by(&users.grid.authority);
    run(async {
        let jo = users.security(Protection::Private);
        let kim = users.security_of(&kim, Protection::Private);
        let (for_jo, for_kim) = (jo.peer.clone(), kim.peer.clone());
        let jo = protected(
            GsiSecurity {
                peer: for_kim,
                ..jo
            },
            params(2, 10_000),
        );
        let kim = protected(
            GsiSecurity {
                peer: for_jo,
                ..kim
            },
            params(2, 10_000),
        );
        let (sent, got) = pair(jo, kim)
            .copy(pattern(200_000), Mode::ExtendedBlock)
            .await;
        assert_eq!((sent.result, got.result), (Ok(()), Ok(())));
    });
}

fn quick(security: GsiSecurity) -> ChannelParams {
    let limit = Duration::from_millis(300);
    ChannelParams {
        connect_limit: limit,
        stall_limit: limit,
        ..protected(security, params(1, 1 << 20))
    }
}

/// How a receipt ends when a peer connects and does `script`.
async fn receive_from(
    security: GsiSecurity,
    script: impl FnOnce(TcpStream) + Send + 'static,
) -> TransferReport {
    let (listener, at) = listener();
    let set =
        ChannelSet::passive(&[Mover::spawn("m").unwrap()], listener, quick(security)).unwrap();
    let target = Bytes::new(Vec::new());
    let mut transfer = set.start(into(&target), Mode::ExtendedBlock);
    let peer = std::thread::spawn(move || script(TcpStream::connect(at).unwrap()));
    let report = done(&mut transfer).await;
    drop(set);
    peer.join().unwrap();
    assert!(target.bytes().is_empty());
    report
}

/// Until the other end closes.
fn read_out(mut stream: TcpStream) {
    drop(stream.read_to_end(&mut Vec::new()));
}

#[test]
fn failed_handshakes_are_distinguished() {
    let users = Users::new();
    run(async {
        let security = || users.security(Protection::Clear);
        let garbage = receive_from(security(), |mut stream| {
            stream.write_all(&[0x5a; 4000]).unwrap();
            read_out(stream);
        });
        assert!(refusal(&garbage.await).contains("TLS"));
        // A block in clear, as from a peer without a guard.
        let block = receive_from(security(), |mut stream| {
            let mut block = vec![0x48];
            block.extend([0; 16]);
            stream.write_all(&block).unwrap();
            read_out(stream);
        });
        assert!(refusal(&block.await).contains("TLS"));
        // The first bytes of a ClientHello, and then nothing.
        let stalls = receive_from(security(), |mut stream| {
            stream.write_all(&[22, 3, 1, 1, 0]).unwrap();
            read_out(stream);
        });
        let why = stalls.await.result;
        assert!(
            matches!(
                why,
                Err(TransferFailure::ConnectionLost(_) | TransferFailure::NoConnection(_))
            ),
            "{why:?}"
        );
        // The same, and then it goes away: neither end has sent an error.
        let leaves = receive_from(security(), |mut stream| {
            stream.write_all(&[22, 3, 1, 1, 0]).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            read_out(stream);
        });
        let why = leaves.await.result;
        assert!(
            matches!(&why, Err(TransferFailure::ConnectionLost(why))
                if why.contains("in the handshake")),
            "{why:?}"
        );
        // A silent connection may come from any host: the transfer waits for the right one.
        let silent = receive_from(security(), drop).await.result;
        assert!(
            matches!(silent, Err(TransferFailure::NoConnection(_))),
            "{silent:?}"
        );
    });
}

#[test]
fn a_server_that_stalls_in_the_handshake_times_out() {
    let users = Users::new();
    run(async {
        let (listener, at) = listener();
        let mover = [Mover::spawn("m").unwrap()];
        let params = quick(users.security(Protection::Private));
        let set = ChannelSet::active(&mover, vec![at], None, params);
        let source = Bytes::new(pattern(1000));
        let mut send = set.start(whole(&source), Mode::Stream);
        let (peer, _) = listener.accept().unwrap();
        let report = done(&mut send).await;
        assert!(
            matches!(
                report.result,
                Err(TransferFailure::ConnectionLost(_) | TransferFailure::NoConnection(_))
            ),
            "{report:?}"
        );
        assert_eq!(report.bytes, 0);
        drop(peer);
    });
}

impl Tap {
    /// Carries bytes of one connection both ways, those of the connecting side changed by `change`.
    fn run(self, mut change: impl FnMut(&mut [u8]) + Send + 'static) {
        std::thread::spawn(move || {
            let (from, _) = self.listener.accept().unwrap();
            let to = TcpStream::connect(self.to).unwrap();
            let (back_from, back_to) = (to.try_clone().unwrap(), from.try_clone().unwrap());
            let back = std::thread::spawn(move || carry(back_from, back_to, |_| {}));
            carry(from, to, &mut change);
            back.join().unwrap();
        });
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, mut change: impl FnMut(&mut [u8])) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        change(&mut buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    drop(to.shutdown(std::net::Shutdown::Both));
    drop(from.shutdown(std::net::Shutdown::Both));
}

/// A copy past a tap that flips a bit of the byte at `place`; and whether the clear text was to be
/// seen.
async fn copy_past_a_tap(
    security: GsiSecurity,
    place: Option<usize>,
) -> (TransferReport, Vec<u8>, bool) {
    let params = protected(security, params(1, 1 << 20));
    let (inner, to) = listener();
    let (outer, at) = listener();
    let seen = Arc::new(AtomicBool::new(false));
    let (mut passed, flag) = (0, Arc::clone(&seen));
    Tap {
        listener: outer,
        to,
    }
    .run(move |bytes| {
        if bytes.windows(8).any(|part| part == b"secretly") {
            flag.store(true, Ordering::Relaxed);
        }
        if let Some(place) = place.and_then(|place| place.checked_sub(passed))
            && let Some(byte) = bytes.get_mut(place)
        {
            *byte ^= 1;
        }
        passed += bytes.len();
    });
    let mover = |name| [Mover::spawn(name).unwrap()];
    let receiver = ChannelSet::passive(&mover("r"), inner, params.clone()).unwrap();
    let sender = ChannelSet::active(&mover("s"), vec![at], None, params);
    let source = Bytes::new(b"secretly".repeat(50_000));
    let target = Bytes::new(Vec::new());
    let mut receive = receiver.start(into(&target), Mode::ExtendedBlock);
    let mut send = sender.start(whole(&source), Mode::ExtendedBlock);
    let (received, _) = tokio::join!(done(&mut receive), done(&mut send));
    (received, target.bytes(), seen.load(Ordering::Relaxed))
}

#[test]
fn protected_bytes_are_confidential_and_authentic() {
    let users = Users::new();
    run(async {
        // The tap works: in clear it sees.
        let (report, _, seen) = copy_past_a_tap(users.security(Protection::Clear), None).await;
        assert_eq!((report.result, seen), (Ok(()), true));
        for protection in [
            Protection::Safe,
            Protection::Confidential,
            Protection::Private,
        ] {
            let security = || users.security(protection);
            let (report, _, seen) = copy_past_a_tap(security(), None).await;
            assert_eq!((report.result, seen), (Ok(()), false), "{protection}");
            // Far behind the handshake.
            let (report, got, _) = copy_past_a_tap(security(), Some(200_000)).await;
            assert!(
                matches!(report.result, Err(TransferFailure::ConnectionLost(_))),
                "{protection} {report:?}"
            );
            assert!(got.len() < 400_000 && b"secretly".repeat(50_000).starts_with(&got));
        }
        // Within it: the random bytes of the first message.
        let (report, got, _) = copy_past_a_tap(users.security(Protection::Clear), Some(20)).await;
        assert!(refusal(&report).len() > 10);
        assert!(got.is_empty());
    });
}

#[test]
fn handshakes_leave_running_channels_their_turns() {
    const FURTHER: u32 = 64;
    let users = Users::new();
    run(async {
        // One mover for both ends, and bytes without end: whatever moves does so between
        // handshakes, which take their time. At full speed 64 channels would leave little of a
        // processor to them.
        let mover = [Mover::spawn("m").unwrap()];
        let kim = users.user("/O=Grid/CN=Kim").key(rsa_key());
        let kim = kim.issued_by(&users.grid.authority);
        let params = protected(
            users.security_of(&kim, Protection::Clear),
            params(1, 1 << 20),
        );
        params.rate.set(Some(2_000_000_000));
        let (inner, at) = listener();
        let receiver = ChannelSet::passive(&mover, inner, params.clone()).unwrap();
        let sender = ChannelSet::active(&mover, vec![at], None, params);
        let storage = NullStorage::new(1 << 50);
        let path = FtpPath::new("/zeros").unwrap();
        let mut receive = receiver.start(
            TransferJob::Receive(Sink::File {
                file: storage.open_write(&path, WriteMode::Replace).unwrap(),
                base: 0,
                stream_start: 0,
                limit: None,
            }),
            Mode::ExtendedBlock,
        );
        let ranges = vec![ByteRange {
            start: 0,
            end: 1 << 50,
        }];
        let mut send = sender.start(
            TransferJob::Send(Source::File {
                file: storage.open_read(&path).unwrap(),
                base: 0,
                ranges,
            }),
            Mode::ExtendedBlock,
        );
        assert!(matches!(
            send.next_event().await,
            TransferEvent::Ready { .. }
        ));
        let monitor = send.monitor();
        assert_eq!(monitor.add_channels(FURTHER), FURTHER);
        // How often it had moved on before half of them were up: a handshake has some five steps.
        let mut seen = BTreeSet::new();
        while monitor.progress().channels <= FURTHER / 2 {
            seen.insert(monitor.progress().bytes);
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        monitor.cut();
        let (sent, received) = tokio::join!(done(&mut send), done(&mut receive));
        assert_eq!((sent.result, received.result), (Ok(()), Ok(())));
        assert_eq!(sent.bytes, received.bytes);
        assert!(seen.len() > 10, "{seen:?}");
    });
}

/// A ticket would come from the accepting end behind the handshake, where the other expects the NUL
/// record or nothing.
#[test]
fn no_ticket_is_on_the_wire() {
    const CHANGE_CIPHER_SPEC: u8 = 20;
    const HANDSHAKE: u8 = 22;
    const DATA: u8 = 23;
    let users = Users::new();
    for (versions, protection, behind) in [
        // A ticket would come before the first of these (RFC 5077 §3.3).
        (
            Versions::Tls12,
            Protection::Clear,
            &[CHANGE_CIPHER_SPEC, HANDSHAKE][..],
        ),
        (
            Versions::Tls12,
            Protection::Private,
            &[CHANGE_CIPHER_SPEC, HANDSHAKE],
        ),
        (Versions::Tls13, Protection::Clear, &[DATA]),
        (Versions::Tls13, Protection::Private, &[]),
    ] {
        let security = GsiSecurity {
            versions,
            ..users.security(protection)
        };
        let params = protected(security, params(1, 1 << 20));
        let (listener, to) = listener();
        let (at, capture) = Capture::before(to);
        let mover = |name| [Mover::spawn(name).unwrap()];
        let both = Pair {
            receiver: ChannelSet::passive(&mover("r"), listener, params.clone()).unwrap(),
            sender: ChannelSet::active(&mover("s"), vec![at], None, params),
        };
        let (sent, got) = run(both.copy(pattern(100_000), Mode::Stream));
        assert_eq!((sent.result, got.result), (Ok(()), Ok(())));
        drop(both);
        let turns = capture.turns();
        let of_called = turns.iter().filter(|(end, _)| *end == End::Called);
        let mut of_called = of_called.map(|(_, bytes)| records(bytes));
        let what = format!("{versions:?} {protection} {turns:?}");
        assert_eq!(of_called.next().unwrap()[0].0, HANDSHAKE, "{what}");
        let rest: Vec<(u8, u16)> = of_called.flatten().collect();
        let kinds: Vec<u8> = rest.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, behind, "{what}");
        if behind == [DATA] {
            // One byte, its kind, and the tag.
            assert_eq!(rest, [(DATA, 1 + 1 + 16)], "{what}");
        }
    }
}

/// The last headers of files that went before may wait for the payload behind them.
#[test]
fn an_unreadable_file_does_not_harm_earlier_ones() {
    let users = Users::new();
    let parameters = protected(users.security(Protection::Private), params(2, 1 << 20));
    let both = pair(parameters.clone(), parameters);
    let unreadable = || {
        let refused = (0..8).map(|nth| Fault::Fail {
            operation: Operation::Read,
            nth,
            errno: 5,
        });
        let memory = MemoryStorage::new();
        let path = FtpPath::new("/f").unwrap();
        let file = memory.open_write(&path, WriteMode::New).unwrap();
        file.write_all_at(0, &pattern(300_000)).unwrap();
        let storage = FaultyStorage::new(Arc::new(memory), refused.collect());
        let end = 300_000;
        TransferJob::Send(Source::File {
            file: storage.open_read(&path).unwrap(),
            base: 0,
            ranges: vec![ByteRange { start: 0, end }],
        })
    };
    let queue = |set: &ChannelSet, sends, job: Box<dyn FnOnce() -> TransferJob + Send>| {
        set.queue(sends, false, Box::new(move || Ok(job())))
    };
    run(async {
        let files: Vec<_> = (0..6).map(|i| pattern(1000 + i)).collect();
        let mut receipts: Vec<_> = (0..=files.len())
            .map(|_| {
                let target = Bytes::new(Vec::new());
                let job = into(&target);
                (target, queue(&both.receiver, false, Box::new(|| job)))
            })
            .collect();
        let mut sends: Vec<_> = files
            .iter()
            .map(|bytes| {
                let source = Bytes::new(bytes.clone());
                queue(&both.sender, true, Box::new(move || whole(&source)))
            })
            .collect();
        sends.push(queue(&both.sender, true, Box::new(unreadable)));
        for (at, send) in sends.iter_mut().enumerate() {
            assert_eq!(done(send).await.result.is_ok(), at < files.len());
            let (target, receipt) = &mut receipts[at];
            let received = done(receipt).await;
            assert_eq!(
                received.result.is_ok(),
                at < files.len(),
                "{at}: {received:?}"
            );
            assert!(at == files.len() || target.bytes() == files[at]);
        }
    });
}

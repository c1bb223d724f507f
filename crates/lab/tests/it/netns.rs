//! Hosts and paths on a real kernel, and what they leave behind.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use godwit_lab::calibrate::{self, Bulk, Effort, round_trips};
use godwit_lab::chaos::Plan;
use godwit_lab::emulator::{Mode, Report};
use godwit_lab::host::Host;
use godwit_lab::network::{Network, NetworkConfig, Paths};
use godwit_lab::path::{
    Alteration, Corruption, CrossTraffic, Jitter, Loss, PathConfig, Queue, QueueLimit, Reordering,
};
use godwit_lab::peers::{self, gct, iperf3};

const MS: u64 = 1_000_000;
pub(crate) const MBPS: u64 = 1_000_000;
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// How often a measurement may be spoilt by a busy machine.
const ATTEMPTS: usize = 5;

/// Whether emulated networks can be had; prints a skip when not.
pub(crate) fn present(test: &str) -> bool {
    if let Err(unavailable) = godwit_lab::netns::available() {
        let _ = writeln!(std::io::stderr().lock(), "skipped {test}: {unavailable}");
        return false;
    }
    true
}

pub(crate) fn start(config: &NetworkConfig) -> Network {
    Network::start(config).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn pair(path: PathConfig) -> Network {
    start(&NetworkConfig::pair(Paths::same(path)))
}

pub(crate) fn ends(network: &Network) -> (&Host, &Host) {
    (
        network.host("left").expect("there"),
        network.host("right").expect("there"),
    )
}

fn drop_tail(packets: u64) -> Queue {
    Queue {
        limit: QueueLimit::Packets(packets),
        ..Queue::default()
    }
}

/// Repeats a measurement until it is right. A machine that was too busy is no failure, but said.
fn eventually<T: std::fmt::Debug>(
    test: &str,
    mut measure: impl FnMut() -> T,
    right: impl Fn(&T) -> bool,
    faithful: impl Fn(&T) -> bool,
) {
    let mut measured = Vec::new();
    for _ in 0..ATTEMPTS {
        let value = measure();
        if right(&value) {
            return;
        }
        measured.push(value);
    }
    assert!(!measured.iter().all(faithful), "{test}: {measured:#?}");
    let _ = writeln!(
        std::io::stderr().lock(),
        "{test}: this machine is too busy to tell"
    );
}

#[test]
fn round_trips_take_the_delay_of_both_ways() {
    let test = "round_trips_take_the_delay_of_both_ways";
    if !present(test) {
        return;
    }
    eventually(
        test,
        || calibrate::check_rtt(20, Effort::QUICK).expect("measured"),
        |check| check.within_bounds,
        |check| check.p99_us < 21_000.0,
    );
}

#[test]
fn rates_are_those_asked_for() {
    if !present("rates_are_those_asked_for") {
        return;
    }
    for (rate, mode) in [
        (50 * MBPS, Mode::Plain),
        (50 * MBPS, Mode::Offload),
        (622 * MBPS, Mode::Offload),
    ] {
        eventually(
            "rates_are_those_asked_for",
            || calibrate::check_rate(rate, mode, Effort::QUICK).expect("measured"),
            |check| check.within_bounds,
            |check| check.emulator.is_faithful(),
        );
    }
}

/// Sends `bytes` from left to right over one connection, and returns what arrives.
fn transfer(network: &Network, sent: &[u8]) -> Vec<u8> {
    let (left, right) = ends(network);
    let listener = right
        .enter(|| TcpListener::bind((right.address(), 0)).expect("bound"))
        .expect("entered");
    let to: SocketAddr = listener.local_addr().expect("an address");
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("accepted");
            stream.set_read_timeout(Some(LONG)).expect("set");
            let mut got = Vec::new();
            stream.read_to_end(&mut got).expect("received");
            got
        });
        let mut stream = left
            .enter(|| TcpStream::connect(to).expect("connected"))
            .expect("entered");
        stream.write_all(sent).expect("sent");
        drop(stream);
        receiver.join().expect("received")
    })
}

fn numbered(len: usize) -> Vec<u8> {
    (0..len as u64)
        .flat_map(u64::to_be_bytes)
        .take(len)
        .collect()
}

#[test]
fn data_survives_loss_jitter_and_reordering() {
    if !present("data_survives_loss_jitter_and_reordering") {
        return;
    }
    let sent = numbered(3_000_000);
    for mode in [Mode::Offload, Mode::Plain] {
        let path = PathConfig {
            loss: Loss::Random { ratio: 0.01 },
            jitter: Jitter {
                max_ns: MS,
                reorders: true,
            },
            reordering: Some(Reordering {
                ratio: 0.01,
                hold_ns: 2 * MS,
            }),
            queue: drop_tail(50),
            ..PathConfig::new(100 * MBPS, MS)
        };
        let mut config = NetworkConfig::pair(Paths::same(path));
        config.emulator.mode = mode;
        let network = start(&config);
        assert!(transfer(&network, &sent) == sent, "{mode:?}: bytes differ");
        let report = network.lap().expect("reports");
        let there = report.link("left>right").expect("a link");
        assert!(there.dropped_loss > 0 && there.held_back > 0, "{there:?}");
        assert_eq!(report.device_errors, 0);
    }
}

#[test]
fn corruption_passes_checksums() {
    if !present("corruption_passes_checksums") {
        return;
    }
    let sent = numbered(3_000_000);
    for mode in [Mode::Offload, Mode::Plain] {
        let path = PathConfig {
            corruption: Some(Corruption {
                ratio: 0.01,
                min_packet_bytes: 600,
                packets_max: None,
            }),
            ..PathConfig::new(100 * MBPS, MS)
        };
        let mut config = NetworkConfig::pair(Paths::same(path));
        config.emulator.mode = mode;
        let network = start(&config);
        let got = transfer(&network, &sent);
        assert_eq!(got.len(), sent.len());
        let flipped: u32 = (got.iter().zip(&sent))
            .map(|(a, b)| (a ^ b).count_ones())
            .sum();
        let report = network.lap().expect("reports");
        let there = report.link("left>right").expect("a link");
        // Each corrupted packet that was not sent twice shows one flipped bit.
        assert!(
            flipped > 0 && u64::from(flipped) <= there.corrupted,
            "{mode:?}: {flipped}"
        );
    }
}

#[test]
fn chaos_cuts_heals_and_delays_on_schedule() {
    if !present("chaos_cuts_heals_and_delays_on_schedule") {
        return;
    }
    let network = pair(PathConfig::new(100 * MBPS, MS));
    let (left, right) = ends(&network);
    let both = ["left>right", "right>left"];
    let control = network.control();
    let probe = |count| round_trips(left, right, count, Duration::ZERO).expect("probed");
    assert_eq!(probe(3).len(), 3);
    control.cut(&both).expect("cut");
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(probe(1).len(), 0);
    let (called, was_called) = std::sync::mpsc::channel();
    let soon = Duration::from_millis(20);
    let running = Plan::new()
        .heal(soon, &both)
        .alter(soon, "left>right", Alteration::DelayNs(30 * MS))
        .call(2 * soon, "tell", move || {
            called.send(()).expect("waited for")
        })
        .start(&control)
        .expect("starts");
    assert_eq!(running.wait(), ["tell"]);
    was_called.try_recv().expect("called");
    let rtts = probe(3);
    assert_eq!(rtts.len(), 3);
    // Each way is rounded to what clocks show.
    assert!(rtts[0] >= Duration::from_micros(30_900), "{rtts:?}");
    assert!(control.cut(&["nowhere"]).is_err());
}

#[test]
fn cross_traffic_leaves_the_rest() {
    let test = "cross_traffic_leaves_the_rest";
    if !present(test) {
        return;
    }
    let path = PathConfig {
        cross_traffic: vec![CrossTraffic::constant(50 * MBPS)],
        queue: drop_tail(200),
        ..PathConfig::new(100 * MBPS, 5 * MS)
    };
    let bulk = Bulk {
        channels: 4,
        buffer_bytes: None,
        ramp: Duration::from_secs(1),
        time: Duration::from_secs(2),
    };
    let measure = || {
        let network = pair(path.clone());
        let (left, right) = ends(&network);
        let goodput = bulk.run(left, right, || ()).expect("measured");
        (goodput / 1e6, network.lap().expect("reports"))
    };
    let faithful = |(_, report): &(f64, Report)| report.is_faithful();
    eventually(
        test,
        measure,
        |(mbps, _)| (46.0..52.0).contains(mbps),
        faithful,
    );
}

#[test]
fn third_parties_and_shared_sides_are_connected() {
    if !present("third_parties_and_shared_sides_are_connected") {
        return;
    }
    let paths = |delay| Paths::same(PathConfig::new(1000 * MBPS, delay * MS));
    let network = start(&NetworkConfig::third_party(paths(10), paths(2)));
    let rtt = |network: &Network, from: &str, to: &str| {
        let (from, to) = (
            network.host(from).expect("there"),
            network.host(to).expect("there"),
        );
        // Of several: a busy processor makes some late.
        let rtts = round_trips(from, to, 10, Duration::ZERO).expect("probed");
        rtts.into_iter().min().expect("some come back")
    };
    // Each way is rounded to what clocks show.
    let ms = |ms| Duration::from_millis(ms) - Duration::from_micros(100);
    let is_at_least = |network: &Network, from: &str, to: &str, least: Duration| {
        let rtt = rtt(network, from, to);
        assert!(rtt >= least, "{from} to {to}: {rtt:?}");
    };
    is_at_least(&network, "left", "right", ms(20));
    is_at_least(&network, "client", "left", ms(4));
    is_at_least(&network, "right", "client", ms(4));
    drop(network);
    let network = start(&NetworkConfig::sides(2, 3, paths(5)));
    is_at_least(&network, "left0", "right2", ms(10));
    is_at_least(&network, "left1", "right0", ms(10));
    // Behind one switch.
    assert!(rtt(&network, "right0", "right1") < ms(10));
}

#[test]
fn hosts_have_their_own_settings() {
    if !present("hosts_have_their_own_settings") {
        return;
    }
    let path = PathConfig::new(1000 * MBPS, MS);
    let mut config = NetworkConfig::pair(Paths::same(path));
    config.members[0].host.congestion_control = Some("reno".into());
    config.members[1].host.tcp_rmem = Some([4096, 100_000, 1_000_000]);
    let network = start(&config);
    let (left, right) = ends(&network);
    let key = "net.ipv4.tcp_congestion_control";
    assert_eq!(left.get(key).expect("read"), "reno");
    assert_eq!(
        right.get("net.ipv4.tcp_rmem").expect("read"),
        "4096\t100000\t1000000"
    );
    assert_eq!(
        right.get("net.ipv4.tcp_no_metrics_save").expect("read"),
        "1"
    );
    let error = left
        .set("net.ipv4.no_such_setting", "1")
        .expect_err("refused");
    assert!(error.to_string().contains("no_such_setting"), "{error}");
    let mut getent = Command::new("getent");
    getent.args(["hosts", "right"]);
    let finished = left
        .run(getent, LONG)
        .and_then(|f| Ok(f.success()?))
        .expect("known");
    assert!(
        finished
            .stdout_text()
            .starts_with(&right.address().to_string())
    );
}

#[test]
fn an_unknown_congestion_control_is_unavailable() {
    if !present("an_unknown_congestion_control_is_unavailable") {
        return;
    }
    let paths = Paths::same(PathConfig::new(MBPS, 0));
    let config = NetworkConfig::pair(paths).each_host(|host| host.congestion_control("warp"));
    let error = Network::start(&config).expect_err("refused");
    assert!(error.to_string().contains("warp"), "{error}");
}

#[test]
fn peers_run_in_hosts() {
    let test = "peers_run_in_hosts";
    if !present(test)
        || peers::present(test, gct::available()).is_none()
        || peers::present(test, iperf3::IPERF3.available()).is_none()
    {
        return;
    }
    let network = pair(PathConfig::new(1000 * MBPS, MS));
    let (left, right) = ends(&network);
    let root = tempfile::tempdir().expect("a directory");
    let content = numbered(1_000_000);
    std::fs::write(root.path().join("file"), &content).expect("written");
    let server = gct::GctServer::serving(root.path()).ip(right.address().into());
    let server = right
        .enter(|| server.start())
        .expect("entered")
        .unwrap_or_else(|error| panic!("{error}"));
    let target = root.path().join("got");
    let to = format!("file://{}", target.display());
    left.enter(|| gct::URL_COPY.run(["-p", "4", &server.url("file"), &to]))
        .expect("entered")
        .and_then(|finished| finished.success())
        .unwrap_or_else(|error| panic!("{error}\n{}", server.log()));
    assert!(
        std::fs::read(target).expect("read") == content,
        "bytes differ"
    );
    let report = network.lap().expect("reports");
    assert!(report.link("right>left").expect("a link").bytes > 1_000_000);
}

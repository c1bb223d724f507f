use godwit_sim::{
    MS, Simulation,
    network::Route,
    path::{Loss, PathConfig},
    tcp::{Algorithm, ReceiverConfig, SenderConfig},
    transfer::{ChannelConfig, ChunkConfig, Course, LiveConfig, Sharing, run_chunks, run_live},
};
use godwit_tune::{Bounds, Method};

use crate::support::{pipe, simulation};

fn channels(route: &Route, algorithm: Algorithm, window_max: u32) -> ChannelConfig {
    ChannelConfig {
        route: route.clone(),
        sender: SenderConfig {
            algorithm,
            header_bytes: 0,
            ..SenderConfig::ns2(window_max)
        },
        receiver: ReceiverConfig { delayed_ack: None },
    }
}

fn live(path: PathConfig, window_max: u32, tuner: &str, until_s: f64) -> (Course, Simulation) {
    let (mut simulation, route) = simulation(path, 1);
    let mut tuner = Method::parse(tuner)
        .expect("a tuner")
        .build(None, Bounds::up_to(128), 1);
    let config = LiveConfig {
        channels: channels(&route, Algorithm::Sack, window_max),
        epoch_s: 1.0,
        until_s,
        seed: 1,
    };
    let course = run_live(&mut simulation, &config, &mut *tuner);
    (course, simulation)
}

fn chunks(path: PathConfig, tuner: &str, sharing: Sharing, reuses: bool) -> Course {
    let (mut simulation, route) = simulation(path, 1);
    let mut tuner = Method::parse(tuner)
        .expect("a tuner")
        .build(None, Bounds::up_to(128), 1);
    let config = ChunkConfig {
        channels: channels(&route, Algorithm::Reno, 50),
        sharing,
        reuses,
        delta_s: 1.0,
        until_s: 20.0,
        seed: 1,
    };
    run_chunks(&mut simulation, &config, &mut *tuner)
}

/// 4 windows of 50 packets of 1000 bytes in 100 ms.
#[test]
fn channels_limited_by_their_windows_add_up() {
    let path = pipe(100_000_000, 50, 200, Loss::None);
    let (course, _) = live(path, 50, "static:concurrency=2,parallelism=2", 10.0);
    let goodput = course.goodput_bps(2.0, 10.0);
    assert!((goodput / 16e6 - 1.0).abs() < 0.01, "{goodput}");
    assert_eq!(course.channels(2.0, 10.0), 4.0);
    assert_eq!(course.retransmitted, 0);
}

/// 25 windows fill 100 Mbit/s over 100 ms.
#[test]
fn the_default_tuner_fills_a_path_that_windows_limit() {
    let path = pipe(100_000_000, 50, 400, Loss::None);
    let (course, _) = live(path, 50, "godwit", 30.0);
    let goodput = course.goodput_bps(15.0, 30.0);
    let channels = course.channels(15.0, 30.0);
    assert!(goodput > 0.95 * 100e6, "{goodput} {channels}");
    assert!((24.0..40.0).contains(&channels), "{channels}");
}

#[test]
fn retired_channels_deliver_all_that_they_took() {
    let path = pipe(20_000_000, 20, 60, Loss::Random { ratio: 0.01 });
    // Additive increase and decrease opens and retires many channels.
    let (course, simulation) = live(path, 50, "aimd:n0=1", 60.0);
    let most = course.looks.iter().map(|look| look.channels).max().unwrap();
    let settings: Vec<u32> = (course.decisions.iter())
        .map(|(_, decision)| decision.setting.channels())
        .collect();
    assert!(
        most > 2 && settings.windows(2).any(|pair| pair[1] < pair[0]),
        "{settings:?}"
    );
    let bytes: Vec<u64> = course.looks.iter().map(|look| look.bytes).collect();
    assert!(bytes.is_sorted(), "what arrived never becomes less");
    let packets = bytes[bytes.len() - 1] / 1000;
    let once = course.sent - course.retransmitted;
    // What is on its way makes the difference.
    assert!(packets <= once && packets + 3000 > once, "{packets} {once}");
    assert!(simulation.totals().entered >= course.sent);
}

/// What one window brings in 1 s are 10 windows; where connections are kept, a chunk takes 11 round
/// trips with its command. A new connection costs a handshake and a slow start of four more: 2, 4,
/// 8, 16 and 32 packets are less than two windows of 50.
#[test]
fn chunks_end_with_their_last_byte_and_pay_for_the_pause() {
    let path = || pipe(1_000_000_000, 50, 200, Loss::None);
    let chunk_s = |course: Course| {
        assert_eq!(course.retransmitted, 0);
        let at: Vec<f64> = course.decisions.iter().map(|(at, _)| *at).collect();
        (at[at.len() - 1] - at[4]) / (at.len() - 5) as f64
    };
    // Blocks that do not divide evenly may cost a round trip more.
    for sharing in [Sharing::Even, Sharing::Queue(10)] {
        let kept = chunk_s(chunks(path(), "static:parallelism=4", sharing, true));
        assert!((1.10..1.21).contains(&kept), "{kept}");
        let stopped = chunk_s(chunks(path(), "static:parallelism=4", sharing, false));
        assert!((1.5..1.8).contains(&stopped), "{stopped}");
    }
}

#[test]
fn apt_brackets_and_searches_as_the_paper_says() {
    let path = pipe(100_000_000, 50, 400, Loss::None);
    let course = chunks(path, "apt", Sharing::Even, true);
    let visited: Vec<u32> = (course.decisions.iter())
        .map(|(_, decision)| decision.setting.channels())
        .collect();
    assert_eq!(visited[..4], [4, 8, 16, 32], "{visited:?}");
}

#[test]
fn equal_transfers_take_equal_courses() {
    let path = || pipe(20_000_000, 20, 60, Loss::Random { ratio: 0.002 });
    let (once, one) = live(path(), 1000, "godwit", 10.0);
    let (again, two) = live(path(), 1000, "godwit", 10.0);
    assert_eq!(once, again);
    assert_eq!(one.trace(), two.trace());
    assert!(one.now() >= 10_000 * MS);
}

//! Hosts, paths and what they leave behind.

use std::io::Write as _;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use godwit_lab::network::{Network, NetworkConfig, Paths};
use godwit_lab::path::PathConfig;

const MS: u64 = 1_000_000;

/// Whether emulated networks can be had; prints a skip when not.
fn present(test: &str) -> bool {
    if let Err(unavailable) = godwit_lab::netns::available() {
        let _ = writeln!(std::io::stderr().lock(), "skipped {test}: {unavailable}");
        return false;
    }
    true
}

fn start(config: &NetworkConfig) -> Network {
    Network::start(config).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_packet_takes_the_delay_of_both_ways() {
    if !present("a_packet_takes_the_delay_of_both_ways") {
        return;
    }
    let path = PathConfig::new(1_000_000_000, 10 * MS);
    let network = start(&NetworkConfig::pair(Paths::same(path)));
    let right = network.host("right").expect("there");
    let echo = right
        .enter(|| UdpSocket::bind((right.address(), 0)).expect("bound"))
        .expect("in");
    let to: SocketAddr = echo.local_addr().expect("an address");
    let probe = network
        .host("left")
        .expect("there")
        .enter(|| UdpSocket::bind("0.0.0.0:0").expect("bound"))
        .expect("in");
    echo.set_read_timeout(Some(Duration::from_secs(5)))
        .expect("set");
    probe
        .set_read_timeout(Some(Duration::from_secs(5)))
        .expect("set");
    let mut rtts: Vec<Duration> = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..50 {
                let mut buffer = [0; 100];
                let (len, from) = echo.recv_from(&mut buffer).expect("a probe");
                echo.send_to(&buffer[..len], from).expect("sent");
            }
        });
        for _ in 0..50 {
            let sent = Instant::now();
            probe.send_to(b"probe", to).expect("sent");
            probe.recv(&mut [0; 100]).expect("an answer");
            rtts.push(sent.elapsed());
        }
    });
    rtts.sort();
    let report = network.lap().expect("reports");
    println!("{:?} {:?} {:?}\n{report:#?}", rtts[0], rtts[25], rtts[49]);
    assert!(rtts[0] >= Duration::from_millis(20));
}

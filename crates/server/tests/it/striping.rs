//! Sessions whose data moves on data nodes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{ErrorKind, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    thread,
    time::Duration,
};

use crate::{
    client::{
        EOD, EOF, Ftp, Reply, accept, assemble, block, comma, comma_address, connect, data_block,
        listen, take_channel,
    },
    harness::{eventually, pattern},
    nodes::{Site, TestNode},
};

fn host(number: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, number).into()
}

/// A session in MODE E.
fn block_mode(server: &crate::harness::TestServer) -> Ftp {
    let mut ftp = server.login();
    ftp.expect("MODE E", 200);
    ftp
}

/// Addresses of SPAS.
fn spas(ftp: &mut Ftp) -> Vec<SocketAddr> {
    let reply = ftp.expect("SPAS", 229);
    let lines = &reply.lines[1..reply.lines.len() - 1];
    lines.iter().map(|line| comma_address(line)).collect()
}

fn write(socket: &mut TcpStream, blocks: &[Vec<u8>]) {
    socket.write_all(&blocks.concat()).unwrap();
}

/// Union of the 111 replies.
fn ranges(markers: &[Reply]) -> Vec<(u64, u64)> {
    let list = |reply: &Reply| {
        let text = reply.text();
        let list = text.strip_prefix("Range Marker ").unwrap().to_owned();
        let pair = |range: &str| {
            let (start, end) = range.split_once('-').unwrap();
            (start.parse::<u64>().unwrap(), end.parse::<u64>().unwrap())
        };
        list.split(',').map(pair).collect::<Vec<_>>()
    };
    let mut all: Vec<_> = (markers.iter())
        .filter(|reply| reply.code == 111)
        .flat_map(list)
        .collect();
    all.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (start, end) in all {
        match joined.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => joined.push((start, end)),
        }
    }
    joined
}

/// The last 112 of each stripe: index, bytes, count of stripes.
fn last_performance(markers: &[Reply]) -> BTreeSet<(u64, u64, u64)> {
    let mut last = std::collections::BTreeMap::new();
    for reply in markers.iter().filter(|reply| reply.code == 112) {
        let number = |name: &str| -> u64 {
            let line = reply.lines.iter().find_map(|l| l.trim().strip_prefix(name));
            line.unwrap_or_else(|| panic!("{reply:?}"))
                .trim()
                .parse()
                .unwrap()
        };
        let values = (
            number("Stripe Bytes Transferred:"),
            number("Total Stripe Count:"),
        );
        last.insert(number("Stripe Index:"), values);
    }
    last.into_iter()
        .map(|(index, (bytes, count))| (index, bytes, count))
        .collect()
}

#[test]
fn a_client_that_knows_no_striping_is_served_by_a_node() {
    let site = Site::new();
    let (two, three) = (site.node(2), site.node(3));
    let server = site.front_end(&[two.address, three.address]);
    let mut ftp = server.login();
    let bytes = pattern(300_000, 1);
    assert_eq!(ftp.put("STOR /f", &bytes).code, 226);
    assert_eq!(fs::read(site.path().join("f")).unwrap(), bytes);
    assert_eq!(ftp.get("RETR /f"), bytes);
    ftp.expect("REST 299990", 350);
    assert_eq!(ftp.get("RETR /f"), bytes[299_990..]);
    let address = ftp.pasv();
    assert!([host(2), host(3)].contains(&address.ip()), "{address}");
    // The checks of a receipt are the front end's.
    ftp.expect("SCKS MD5 00000000000000000000000000000000", 200);
    assert_eq!(ftp.put("STOR /g", b"other").code, 550);
    ftp.expect("TYPE A", 200);
    assert_eq!(ftp.put("STOR /text", b"a\r\nb\r\n").code, 226);
    assert_eq!(fs::read(site.path().join("text")).unwrap(), b"a\nb\n");
    assert_eq!(ftp.get("RETR /text"), b"a\r\nb\r\n");
    let names = String::from_utf8(ftp.get("NLST /")).unwrap();
    assert!(names.contains("text\r\n"), "{names}");
    let facts = String::from_utf8(ftp.get("MLSD /")).unwrap();
    assert!(facts.contains("Size=300000;"), "{facts}");
    // What is not there is told before a connection is used.
    ftp.passive();
    assert_eq!(ftp.call("RETR /none").code, 550);
    ftp.expect("NOOP", 200);
}

#[test]
fn clients_are_spread_over_the_nodes() {
    let site = Site::new();
    let nodes = [2, 3, 4].map(|number| site.node(number));
    let server = site.front_end(&nodes.each_ref().map(|node| node.address));
    let mut sessions: Vec<_> = (0..6).map(|_| server.login()).collect();
    let mut hosts: Vec<_> = sessions.iter_mut().map(|ftp| ftp.pasv().ip()).collect();
    hosts.sort();
    assert_eq!(hosts, [2, 2, 3, 3, 4, 4].map(host));
}

#[test]
fn a_thousand_sessions_over_eight_nodes_are_even_within_a_fifth() {
    let site = Site::new();
    let nodes: Vec<_> = (2..10).map(|number| site.node(number)).collect();
    let addresses: Vec<_> = nodes.iter().map(|node| node.address).collect();
    let server = site.front_end(&addresses);
    let (mut open, mut of) = (Vec::new(), BTreeMap::new());
    for number in 0..1000_usize {
        // Some stay long and others leave at once, as people do.
        if open.len() == 64 {
            open.swap_remove(number.wrapping_mul(0x9E37_79B9) % 64);
        }
        let mut ftp = server.login();
        *of.entry(ftp.pasv().ip()).or_insert(0) += 1;
        open.push(ftp);
    }
    assert_eq!(of.len(), 8, "{of:?}");
    let even = 100..=150;
    assert!(
        of.values().all(|sessions| even.contains(sessions)),
        "{of:?}"
    );
}

#[test]
fn blocks_for_many_nodes_make_one_file() {
    let site = Site::new();
    let nodes = [2, 3, 4].map(|number| site.node(number));
    let server = site.front_end(&nodes.each_ref().map(|node| node.address));
    let mut ftp = block_mode(&server);
    let addresses = spas(&mut ftp);
    assert_eq!(
        addresses.iter().map(SocketAddr::ip).collect::<Vec<_>>(),
        [2, 3, 4].map(host)
    );
    let bytes = pattern(3000, 2);
    ftp.send("STOR /f");
    // Each address has its own EOF with its own count, whatever the others do.
    let mut a = connect(addresses[0]);
    let mut b = [connect(addresses[1]), connect(addresses[1])];
    let mut c = connect(addresses[2]);
    ftp.await_code(150);
    write(
        &mut a,
        &[data_block(0, &bytes[..1000]), block(EOF | EOD, 0, 1, b"")],
    );
    write(
        &mut b[0],
        &[data_block(1500, &bytes[1500..2000]), block(EOD, 0, 0, b"")],
    );
    write(
        &mut b[1],
        &[
            data_block(1000, &bytes[1000..1500]),
            block(EOF | EOD, 0, 2, b""),
        ],
    );
    // A shorter transfer has no markers.
    std::thread::sleep(Duration::from_millis(250));
    write(
        &mut c,
        &[
            data_block(2000, &bytes[2000..]),
            block(EOF | EOD, 0, 1, b""),
        ],
    );
    let (markers, reply) = ftp.final_reply();
    assert_eq!(reply.code, 226, "{reply:?}");
    assert_eq!(fs::read(site.path().join("f")).unwrap(), bytes);
    assert_eq!(ranges(&markers), [(0, 3000)]);
    let series = last_performance(&markers);
    assert_eq!(series, [(0, 1000, 3), (1, 1000, 3), (2, 1000, 3)].into());

    // The connections carry the next file, which is shorter than the one before.
    ftp.send("STOR /f");
    write(
        &mut a,
        &[data_block(0, b"abc"), block(EOF | EOD, 0, 1, b"")],
    );
    write(&mut b[0], &[block(EOD, 0, 0, b"")]);
    write(&mut b[1], &[block(EOF | EOD, 0, 2, b"")]);
    write(&mut c, &[block(EOF | EOD, 0, 1, b"")]);
    ftp.await_code(125);
    assert_eq!(ftp.final_reply().1.code, 226);
    assert_eq!(fs::read(site.path().join("f")).unwrap(), b"abc");
}

#[test]
fn a_restart_and_an_append_keep_what_is_there() {
    let site = Site::new();
    let nodes = [2, 3].map(|number| site.node(number));
    let server = site.front_end(&nodes.each_ref().map(|node| node.address));
    let mut ftp = block_mode(&server);
    fs::write(site.path().join("f"), b"0123456789").unwrap();
    let put = |ftp: &mut Ftp, command: &str, first: (u64, &[u8]), second: (u64, &[u8])| {
        let addresses = spas(ftp);
        ftp.send(command);
        for (address, (offset, bytes)) in addresses.iter().zip([first, second]) {
            let mut data = connect(*address);
            write(
                &mut data,
                &[data_block(offset, bytes), block(EOF | EOD, 0, 1, b"")],
            );
            // Until the server has read it.
            std::mem::forget(data);
        }
        ftp.await_code(150);
        assert_eq!(ftp.final_reply().1.code, 226);
    };
    ftp.expect("REST 0-4,6-10", 350);
    put(&mut ftp, "STOR /f", (4, b"a"), (5, b"b"));
    assert_eq!(fs::read(site.path().join("f")).unwrap(), b"0123ab6789");
    put(&mut ftp, "APPE /f", (1, b"y"), (0, b"x"));
    assert_eq!(fs::read(site.path().join("f")).unwrap(), b"0123ab6789xy");
    put(&mut ftp, "ESTO A 2 /f", (0, b"-"), (1, b"+"));
    assert_eq!(fs::read(site.path().join("f")).unwrap(), b"01-+ab6789xy");
}

/// Takes what a server sends to so many addresses of ours: of each the channels.
fn take_all(
    ftp: &mut Ftp,
    count: usize,
    channels: usize,
    options: &str,
    command: &str,
) -> Vec<Vec<crate::client::ChannelTake>> {
    if !options.is_empty() {
        ftp.expect(&format!("OPTS RETR {options}"), 200);
    }
    let listeners: Vec<_> = (0..count).map(|_| listen()).collect();
    let addresses = listeners.iter().map(|l| comma(l.local_addr().unwrap()));
    ftp.expect(
        &format!("SPOR {}", addresses.collect::<Vec<_>>().join(" ")),
        200,
    );
    ftp.send(command);
    let takes = std::thread::scope(|scope| {
        let threads: Vec<_> = (listeners.iter())
            .map(|listener| {
                scope.spawn(move || {
                    let mut sockets: Vec<_> = (0..channels).map(|_| accept(listener)).collect();
                    sockets.iter_mut().map(take_channel).collect::<Vec<_>>()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|t| t.join().unwrap())
            .collect::<Vec<_>>()
    });
    ftp.await_code(150);
    assert_eq!(ftp.final_reply().1.code, 226);
    takes
}

/// The file, of which each address has a part, and an EOF of its own.
fn whole(takes: &[Vec<crate::client::ChannelTake>], length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut covered = 0;
    for take in takes {
        let eofs: Vec<u64> = take.iter().filter_map(|channel| channel.eof).collect();
        assert_eq!(eofs, [take.len() as u64]);
        for (offset, payload) in take.iter().flat_map(|channel| &channel.blocks) {
            let at = usize::try_from(*offset).unwrap();
            bytes[at..at + payload.len()].copy_from_slice(payload);
            covered += payload.len();
        }
    }
    assert_eq!(covered, length, "each byte once");
    bytes
}

#[test]
fn every_node_sends_to_its_address() {
    let site = Site::new();
    let nodes = [2, 3].map(|number| site.node(number));
    let server = site.front_end(&nodes.each_ref().map(|node| node.address));
    let bytes = pattern(50_000_000, 3);
    fs::write(site.path().join("f"), &bytes).unwrap();
    let mut ftp = block_mode(&server);
    // As many addresses as nodes, and more; the share of each is the server's choice.
    for (count, channels) in [(2, 1), (2, 3), (3, 2)] {
        let options = format!("Parallelism={channels},{channels},{channels};");
        let takes = take_all(&mut ftp, count, channels, &options, "RETR /f");
        assert_eq!(whole(&takes, bytes.len()), bytes);
        for take in &takes {
            assert!(
                take.iter().any(|channel| !channel.blocks.is_empty()),
                "{count}"
            );
        }
    }
    // A file of less than a lease, and an empty one.
    fs::write(site.path().join("small"), b"small").unwrap();
    fs::write(site.path().join("empty"), b"").unwrap();
    assert_eq!(
        whole(&take_all(&mut ftp, 2, 2, "", "RETR /small"), 5),
        b"small"
    );
    assert_eq!(whole(&take_all(&mut ftp, 2, 2, "", "RETR /empty"), 0), b"");
    // Ranges that are there do not travel.
    ftp.expect("REST 0-49999990", 350);
    let takes = take_all(&mut ftp, 2, 2, "", "RETR /f");
    let blocks: Vec<_> = takes
        .iter()
        .flatten()
        .flat_map(|take| &take.blocks)
        .collect();
    assert_eq!(blocks, [&(49_999_990, bytes[49_999_990..].to_vec())]);
}

#[test]
fn layouts_say_which_address_gets_which_byte() {
    let site = Site::new();
    let nodes = [2, 3].map(|number| site.node(number));
    let server = site.front_end(&nodes.each_ref().map(|node| node.address));
    let bytes = pattern(100_000, 4);
    fs::write(site.path().join("f"), &bytes).unwrap();
    let mut ftp = block_mode(&server);
    for (layout, stripe_of) in [
        ("Partitioned", (|at| at / 33_334) as fn(u64) -> u64),
        ("Blocked;BlockSize=1000", |at| at / 1000 % 3),
    ] {
        let options = format!("StripeLayout={layout};");
        let takes = take_all(&mut ftp, 3, 1, &options, "RETR /f");
        assert_eq!(whole(&takes, bytes.len()), bytes);
        for (stripe, take) in takes.iter().enumerate() {
            for (offset, payload) in take.iter().flat_map(|channel| &channel.blocks) {
                for at in [*offset, *offset + payload.len() as u64 - 1] {
                    assert_eq!(stripe_of(at), stripe as u64, "{layout} {at}");
                }
            }
        }
    }
}

#[test]
fn port_gets_all_from_one_node() {
    let site = Site::new();
    let nodes = [2, 3].map(|number| site.node(number));
    let server = site.front_end(&nodes.each_ref().map(|node| node.address));
    let bytes = pattern(5_000_000, 5);
    fs::write(site.path().join("f"), &bytes).unwrap();
    let mut ftp = block_mode(&server);
    ftp.expect("OPTS RETR Parallelism=4,4,4;", 200);
    let listener = ftp.active();
    ftp.send("RETR /f");
    let mut channels: Vec<_> = (0..4).map(|_| accept(&listener)).collect();
    let takes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (channels.iter_mut())
            .map(|channel| scope.spawn(|| take_channel(channel)))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(assemble(&takes), bytes);
    ftp.await_code(150);
    assert_eq!(ftp.final_reply().1.code, 226);
}

/// The text of the reply that says why there is no data channel.
fn refusal_of(server: &crate::harness::TestServer) -> String {
    let mut ftp = server.login();
    let reply = ftp.call("PASV");
    assert_eq!(reply.code, 425, "{reply:?}");
    reply.text()
}

#[test]
fn nodes_that_are_not_well_are_left_out_by_name_and_cause() {
    let site = Site::new();
    let elsewhere = tempfile::tempdir().unwrap();
    let unreachable = {
        let listener = listen();
        listener.local_addr().unwrap()
    };
    let mut settings = site.node_settings(2);
    settings.root = elsewhere.path().to_owned();
    let blind = TestNode::start(settings);
    let mut settings = site.node_settings(3);
    settings.node.as_mut().unwrap().front_ends = vec!["other.example".to_owned()];
    let strict = TestNode::start(settings);
    let mut settings = site.node_settings(4);
    settings.node.as_mut().unwrap().tls = site.tls("wrong", &["127.0.0.9"]);
    let misnamed = TestNode::start(settings);
    let mut settings = site.node_settings(5);
    let other_site = Site::new();
    settings.node.as_mut().unwrap().tls = other_site.tls("dtn5", &["127.0.0.5"]);
    let foreign = TestNode::start(settings);
    for (address, cause) in [
        (unreachable, "cannot be reached"),
        (blind.address, "does not see the files"),
        (strict.address, "is none of its front-ends"),
        (misnamed.address, "127.0.0.9"),
        (foreign.address, "certificate"),
    ] {
        let server = site.front_end(&[address]);
        let text = refusal_of(&server);
        assert!(
            text.contains(&address.to_string()) && text.contains(cause),
            "{cause}: {text}"
        );
    }
    // With one that is well all is well.
    let good = site.node(6);
    let server = site.front_end(&[blind.address, strict.address, good.address]);
    let mut ftp = block_mode(&server);
    assert_eq!(
        spas(&mut ftp)
            .iter()
            .map(SocketAddr::ip)
            .collect::<Vec<_>>(),
        [host(6)]
    );
}

/// A machine has 32 places for connections that do not say who they are, and all have 256.
#[test]
fn strangers_at_a_node_take_no_place_from_its_front_ends() {
    let site = Site::new();
    let node = site.node(2);
    let server = site.front_end(&[node.address]);
    server.login().expect("PASV", 227);
    let attack = |number| connect_from(host(number), node.address);
    let of_one: Vec<_> = (0..40).map(|_| attack(70)).collect();
    assert_eq!(left_open(&of_one), 32);
    let of_many: Vec<_> = (71..81)
        .flat_map(|number| (0..32).map(move |_| number))
        .map(attack)
        .collect();
    assert_eq!(left_open(&of_many), 256 - 32);
    // Each has a link of its own.
    let mut sessions: Vec<_> = (0..5).map(|_| server.login()).collect();
    for session in &mut sessions {
        session.expect("PASV", 227);
    }
    drop((of_one, of_many));
    eventually("the node has let go of them", || {
        left_open(&[attack(91)]) == 1
    });
    // Who fails again and again is no longer heard.
    let heard = (0..200).filter(|_| left_open(&[attack(90)]) == 1).count();
    assert!((64..100).contains(&heard), "{heard}");
    sessions[0].expect("PASV", 227);
}

/// From another address of this machine.
fn connect_from(source: IpAddr, to: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::new(source, 0)).unwrap();
    connect(&socket, &to).unwrap();
    TcpStream::from(socket)
}

/// How many are not closed in a while that the other end does not need to close them.
fn left_open(streams: &[TcpStream]) -> usize {
    thread::sleep(Duration::from_millis(20 + 5 * streams.len() as u64));
    let is_open = |mut stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        let read = stream.read(&mut [0]);
        read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    streams.iter().filter(|stream| is_open(stream)).count()
}

#[test]
fn the_same_node_twice_is_one_stripe() {
    let site = Site::new();
    let mut settings = site.node_settings(2);
    settings.node.as_mut().unwrap().listen = "0.0.0.0:0".parse().unwrap();
    settings.node.as_mut().unwrap().tls = site.tls("dtn2", &["127.0.0.2", "127.0.0.3"]);
    let node = TestNode::start(settings);
    let at = |number| SocketAddr::new(host(number), node.address.port());
    let server = site.front_end(&[at(2), at(3)]);
    assert_eq!(spas(&mut block_mode(&server)).len(), 1);
}

#[test]
fn a_node_that_recovers_is_taken_back() {
    let site = Site::new();
    let mut node = site.node(2);
    let server = site.front_end(&[node.address]);
    let mut ftp = server.login();
    assert_eq!(ftp.put("STOR /f", b"before").code, 226);
    node.kill();
    eventually("the node is missed", || {
        server.login().call("PASV").code == 425
    });
    let mut settings = site.node_settings(2);
    settings.node.as_mut().unwrap().listen = node.address;
    let _again = TestNode::start(settings);
    eventually("the node is back", || {
        server.login().call("PASV").code == 227
    });
    // Also for the session that has lost it.
    assert_eq!(ftp.put("STOR /f", b"after").code, 226);
    assert_eq!(fs::read(site.path().join("f")).unwrap(), b"after");
}

#[test]
fn a_dead_node_fails_the_transfer_with_what_is_safe_and_the_rest_finish_it() {
    let site = Site::new();
    let mut nodes = [2, 3].map(|number| site.node(number));
    let server = site.front_end(&nodes.each_ref().map(|node| node.address));
    let mut ftp = block_mode(&server);
    const MB: usize = 1_000_000;
    let bytes = pattern(6 * MB, 6);
    let part = |range: std::ops::Range<usize>| data_block(range.start as u64, &bytes[range]);
    let addresses = spas(&mut ftp);
    ftp.send("STOR /f");
    let mut data: Vec<_> = addresses.iter().map(|address| connect(*address)).collect();
    ftp.await_code(150);
    write(&mut data[0], &[part(0..MB)]);
    write(&mut data[1], &[part(3 * MB..4 * MB), part(4 * MB..5 * MB)]);
    let mut markers = Vec::new();
    while ranges(&markers).iter().all(|range| range.1 < 4_000_000) {
        markers.push(ftp.reply());
    }
    nodes[1].kill();
    let (more, reply) = ftp.final_reply();
    markers.extend(more);
    assert_eq!(reply.code, 426, "{reply:?}");
    let name = nodes[1].address.to_string();
    assert!(reply.text().contains(&name), "{reply:?}");
    let safe = ranges(&markers);
    assert_eq!(
        safe[0],
        (0, 1_000_000),
        "what the other node has written is said"
    );
    assert_eq!((safe.len(), safe[1].0), (2, 3_000_000));
    assert!((4_000_000..=5_000_000).contains(&safe[1].1), "{safe:?}");

    // The repeated command finishes on the node that is left.
    let addresses = spas(&mut ftp);
    let hosts: Vec<_> = addresses.iter().map(SocketAddr::ip).collect();
    assert_eq!(hosts, [host(2)]);
    let end = usize::try_from(safe[1].1).unwrap();
    ftp.expect(&format!("REST 0-1000000,3000000-{end}"), 350);
    ftp.send("STOR /f");
    let mut data = connect(addresses[0]);
    let rest = [
        part(MB..3 * MB),
        part(end..6 * MB),
        block(EOF | EOD, 0, 1, b""),
    ];
    write(&mut data, &rest);
    ftp.await_code(150);
    assert_eq!(ftp.final_reply().1.code, 226);
    assert_eq!(fs::read(site.path().join("f")).unwrap(), bytes);
}

#[test]
fn a_node_that_shuts_down_ends_what_runs_and_takes_no_more() {
    let site = Site::new();
    let mut nodes = [2, 3].map(|number| site.node(number));
    let server = site.front_end(&nodes.each_ref().map(|node| node.address));
    let mut ftp = block_mode(&server);
    let addresses = spas(&mut ftp);
    ftp.send("STOR /f");
    let mut data: Vec<_> = addresses.iter().map(|address| connect(*address)).collect();
    ftp.await_code(150);
    write(&mut data[0], &[data_block(0, b"abc")]);
    nodes[0].begin_shutdown();
    eventually("others get the other node", || {
        spas(&mut block_mode(&server))
            .iter()
            .all(|address| address.ip() == host(3))
    });
    write(&mut data[0], &[block(EOF | EOD, 0, 1, b"")]);
    write(
        &mut data[1],
        &[data_block(3, b"def"), block(EOF | EOD, 0, 1, b"")],
    );
    assert_eq!(ftp.final_reply().1.code, 226);
    assert_eq!(fs::read(site.path().join("f")).unwrap(), b"abcdef");
    // With the data channels of this session the node has nothing to do any more.
    ftp.expect("QUIT", 221);
    nodes[0].join();
}

#[test]
fn rights_of_a_login_hold_on_nodes() {
    let site = Site::new();
    let node = site.node(2);
    fs::create_dir(site.path().join("home")).unwrap();
    fs::write(site.path().join("secret"), b"secret").unwrap();
    let file = site
        .path()
        .parent()
        .unwrap()
        .join(format!("pw-{}", std::process::id()));
    let change = godwit_server::access::passwords::Change::Set {
        password: b"pass",
        home: Some("/home"),
        reads_only: Some(false),
        account: None,
    };
    godwit_server::access::passwords::edit(&file, "jo", change).unwrap();
    let server = site.front_end_with(&[node.address], |settings| {
        settings.passwords = Some(godwit_server::PasswordSettings {
            file: file.clone(),
            in_clear: true,
        });
    });
    let mut ftp = server.connect();
    ftp.expect("USER jo", 331);
    ftp.expect("PASS pass", 230);
    ftp.expect("TYPE I", 200);
    assert_eq!(ftp.put("STOR /home/f", b"mine").code, 226);
    assert_eq!(ftp.get("RETR /home/f"), b"mine");
    for command in ["RETR /secret", "NLST /", "MLSD /"] {
        ftp.passive();
        let code = ftp.call(command).code;
        assert!((500..600).contains(&code), "{command}: {code}");
    }
    assert_eq!(ftp.put("STOR /other", b"x").code, 550);
    fs::remove_file(file).unwrap();
}

/// An SPOR with one address comes from a client that knows striping.
#[test]
fn one_address_gets_all_from_all_nodes_and_one_eof() {
    let site = Site::new();
    let nodes = [2, 3, 4].map(|number| site.node(number));
    let server = site.front_end(&nodes.each_ref().map(|node| node.address));
    let mut ftp = block_mode(&server);
    ftp.expect("OPTS RETR Parallelism=2,2,2;", 200);
    let listener = listen();
    ftp.expect(
        &format!("SPOR {}", comma(listener.local_addr().unwrap())),
        200,
    );
    let mut channels = Vec::new();
    for (name, length) in [("large", 60_000_000), ("small", 5), ("empty", 0)] {
        let bytes = pattern(length, 9);
        fs::write(site.path().join(name), &bytes).unwrap();
        ftp.send(&format!("RETR /{name}"));
        while channels.len() < 6 {
            channels.push(accept(&listener));
        }
        let takes: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (channels.iter_mut())
                .map(|channel| scope.spawn(|| take_channel(channel)))
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        // One EOF, which counts the channels of all nodes.
        assert_eq!(assemble(&takes), bytes, "{name}");
        if name == "large" {
            let used = takes.iter().filter(|take| !take.blocks.is_empty()).count();
            assert!(used > 2, "the channels of one node are two");
        }
        assert!([125, 150].contains(&ftp.reply().code));
        assert_eq!(ftp.final_reply().1.code, 226, "{name}");
    }
    fs::write(site.path().join("text"), b"a\nb\n").unwrap();
    ftp.expect("TYPE A", 200);
    ftp.expect(
        &format!("SPOR {}", comma(listener.local_addr().unwrap())),
        200,
    );
    ftp.send("RETR /text");
    let mut channels = [accept(&listener), accept(&listener)];
    let takes: Vec<_> = channels.iter_mut().map(take_channel).collect();
    assert_eq!(assemble(&takes), b"a\r\nb\r\n");
}

#[test]
fn a_text_for_several_addresses_is_refused() {
    let site = Site::new();
    let nodes = [2, 3].map(|number| site.node(number));
    let server = site.front_end(&nodes.each_ref().map(|node| node.address));
    let mut ftp = block_mode(&server);
    ftp.expect("TYPE A", 200);
    let addresses = spas(&mut ftp);
    let _data: Vec<_> = addresses.iter().map(|address| connect(*address)).collect();
    ftp.send("STOR /text");
    let reply = ftp.final_reply().1;
    assert_eq!(reply.code, 451, "{reply:?}");
    assert!(reply.text().contains("TYPE I, or PASV"), "{reply:?}");
    // Over one it is received.
    ftp.expect("MODE S", 200);
    assert_eq!(ftp.put("STOR /text", b"a\r\nb\r\n").code, 226);
    assert_eq!(fs::read(site.path().join("text")).unwrap(), b"a\nb\n");
}

/// A node without a connection is no loss where all send to one address.
#[test]
fn a_node_that_dies_before_it_sends_leaves_its_share_to_the_others() {
    let site = Site::new();
    let mut nodes = [2, 3].map(|number| site.node(number));
    let server = site.front_end(&nodes.each_ref().map(|node| node.address));
    let bytes = pattern(20_000_000, 11);
    fs::write(site.path().join("f"), &bytes).unwrap();
    let mut ftp = block_mode(&server);
    let listener = listen();
    let address = comma(listener.local_addr().unwrap());
    ftp.expect(&format!("SPOR {address}"), 200);
    nodes[0].kill();
    ftp.send("RETR /f");
    let mut channel = accept(&listener);
    let take = take_channel(&mut channel);
    assert_eq!(assemble(&[take]), bytes);
    ftp.await_code(150);
    assert_eq!(ftp.final_reply().1.code, 226);
}

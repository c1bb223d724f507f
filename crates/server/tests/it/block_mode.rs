//! MODE E, block by block.

use std::{
    io::Write as _,
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use crate::{
    client::{
        CLOSE, EOD, EOF, Ftp, HOLE, Reply, accept, assemble, block, connect, data_block,
        expect_closed, listen, port_command, take_channel,
    },
    harness::{TestServer, eventually, pattern},
};

fn block_mode(server: &TestServer) -> Ftp {
    let mut ftp = server.login();
    ftp.expect("MODE E", 200);
    ftp
}

fn write(socket: &mut TcpStream, blocks: &[Vec<u8>]) {
    socket.write_all(&blocks.concat()).unwrap();
}

/// Union of the 111 replies among `markers`.
fn ranges(markers: &[Reply]) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> = markers
        .iter()
        .filter(|reply| reply.code == 111)
        .flat_map(|reply| {
            let text = reply.text();
            let list = text.strip_prefix("Range Marker ").unwrap().to_owned();
            list.split(',')
                .map(|range| {
                    let (start, end) = range.split_once('-').unwrap();
                    (start.parse().unwrap(), end.parse().unwrap())
                })
                .collect::<Vec<_>>()
        })
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

#[test]
fn blocks_of_many_channels_in_any_order_make_the_file() {
    let server = TestServer::start();
    let bytes = pattern(1000, 1);
    let mut ftp = block_mode(&server);
    let address = ftp.pasv();
    let mut a = connect(address);
    let mut b = connect(address);
    ftp.send("STOR /f");
    ftp.await_code(150);
    write(&mut b, &[data_block(600, &bytes[600..])]);
    // EOF first, alone; EOD on a data block; an empty block; bytes twice.
    write(
        &mut a,
        &[block(EOF, 0, 2, b""), data_block(300, &bytes[300..600])],
    );
    write(
        &mut b,
        &[block(0, 0, 77, b""), block(EOD, 50, 600, &bytes[600..650])],
    );
    // A shorter transfer has no markers.
    std::thread::sleep(Duration::from_millis(250));
    write(&mut a, &[block(EOD, 300, 0, &bytes[..300])]);
    let (markers, reply) = ftp.final_reply();
    assert_eq!(reply.code, 226, "{reply:?}");
    assert_eq!(server.read("f"), bytes);
    assert_eq!(ranges(&markers), [(0, 1000)]);
    assert!(markers.iter().any(|reply| reply.code == 112));
}

#[test]
fn channels_live_on_for_further_files() {
    let server = TestServer::start();
    let mut ftp = block_mode(&server);
    let mut data = ftp.passive();
    for i in 0..20 {
        let bytes = pattern(500 + i, 2);
        ftp.send(&format!("STOR /f{i}"));
        write(
            &mut data,
            &[data_block(0, &bytes), block(EOF | EOD, 0, 1, b"")],
        );
        ftp.await_code(if i == 0 { 150 } else { 125 });
        assert_eq!(ftp.final_reply().1.code, 226);
        assert_eq!(server.read(&format!("f{i}")), bytes);
    }
    ftp.expect("PASV", 227);
    expect_closed(data);
}

#[test]
fn the_next_file_may_follow_the_last_at_once() {
    let server = TestServer::start();
    let mut ftp = block_mode(&server);
    let address = ftp.pasv();
    ftp.send_raw(b"STOR /a\r\nSTOR /b\r\nSTOR /c\r\n");
    let mut data = connect(address);
    let mut all = Vec::new();
    for text in ["first", "second", ""] {
        all.push(data_block(0, text.as_bytes()));
        all.push(block(EOF | EOD, 0, 1, b""));
    }
    write(&mut data, &all);
    for code in [150, 125, 125] {
        ftp.await_code(code);
        assert_eq!(ftp.final_reply().1.code, 226);
    }
    assert_eq!(server.read("a"), b"first");
    assert_eq!(server.read("b"), b"second");
    assert_eq!(server.read("c"), b"");
}

#[test]
fn closing_channels_ends_caching() {
    let server = TestServer::start();
    let mut ftp = block_mode(&server);
    let address = ftp.pasv();
    ftp.send("STOR /f");
    let mut data = connect(address);
    write(
        &mut data,
        &[data_block(0, b"abc"), block(EOF | EOD | CLOSE, 0, 1, b"")],
    );
    ftp.await_code(150);
    assert_eq!(ftp.final_reply().1.code, 226);
    expect_closed(data);
    // The listener lives on: a sender may connect again without another PASV.
    ftp.send("STOR /g");
    let mut data = connect(address);
    write(&mut data, &[data_block(0, b"def"), block(EOD, 0, 0, b"")]);
    let mut second = connect(address);
    write(&mut second, &[block(EOF | EOD, 0, 2, b"")]);
    ftp.await_code(150);
    assert_eq!(ftp.final_reply().1.code, 226);
    assert_eq!(server.read("g"), b"def");
}

#[test]
fn sent_files_come_whole_over_every_number_of_channels() {
    let server = TestServer::start();
    for (length, parallelism) in [(0, 1), (0, 4), (1, 3), (2_500_000, 1), (10_000_000, 4)] {
        let bytes = pattern(length, 3);
        server.write("f", &bytes);
        let mut ftp = block_mode(&server);
        ftp.expect(
            &format!("OPTS RETR Parallelism={parallelism},{parallelism},{parallelism};"),
            200,
        );
        let listener = ftp.active();
        ftp.send("RETR /f");
        let channels: Vec<_> = (0..parallelism).map(|_| accept(&listener)).collect();
        ftp.await_code(150);
        let takes: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = channels
                .into_iter()
                .map(|mut channel| scope.spawn(move || (take_channel(&mut channel), channel)))
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let (takes, channels): (Vec<_>, Vec<_>) = takes.into_iter().unzip();
        assert_eq!(assemble(&takes), bytes);
        assert_eq!(ftp.final_reply().1.code, 226);

        // Cached: same connections, no new one.
        ftp.expect("RETR /f", 125);
        let takes: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = channels
                .into_iter()
                .map(|mut channel| scope.spawn(move || take_channel(&mut channel)))
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(assemble(&takes), bytes);
        assert_eq!(ftp.final_reply().1.code, 226);
    }
}

#[test]
fn restart_moves_only_missing_ranges() {
    let server = TestServer::start();
    let bytes = pattern(1000, 4);
    server.write("f", &bytes);
    let mut ftp = block_mode(&server);
    let listener = ftp.active();
    ftp.expect("REST 0-100,300-400", 350);
    ftp.send("RETR /f");
    let mut data = accept(&listener);
    ftp.await_code(150);
    let take = take_channel(&mut data);
    let mut got: Vec<_> = take.blocks.clone();
    got.sort();
    let sent: Vec<(u64, usize)> = got.iter().map(|(at, p)| (*at, p.len())).collect();
    assert_eq!(sent, [(100, 200), (400, 600)]);
    assert_eq!(ftp.final_reply().1.code, 226);

    let mut partial = bytes.clone();
    partial[100..300].fill(0);
    partial.truncate(400);
    server.write("g", &partial);
    let mut data = ftp.passive();
    ftp.expect("REST 0-100,300-400", 350);
    ftp.send("STOR /g");
    write(
        &mut data,
        &[
            data_block(400, &bytes[400..]),
            data_block(100, &bytes[100..300]),
            block(EOF | EOD, 0, 1, b""),
        ],
    );
    ftp.await_code(150);
    assert_eq!(ftp.final_reply().1.code, 226);
    assert_eq!(server.read("g"), bytes);
}

#[test]
fn offsets_of_partial_transfers_begin_at_zero() {
    let server = TestServer::start();
    let bytes = pattern(1000, 5);
    server.write("f", &bytes);
    let mut ftp = block_mode(&server);
    let listener = ftp.active();
    ftp.send("ERET P 200 300 /f");
    let mut data = accept(&listener);
    ftp.await_code(150);
    assert_eq!(assemble(&[take_channel(&mut data)]), bytes[200..500]);
    assert_eq!(ftp.final_reply().1.code, 226);

    let mut data = ftp.passive();
    ftp.send("ESTO A 200 /f");
    write(
        &mut data,
        &[data_block(5, b"XYZ"), block(EOF | EOD, 0, 1, b"")],
    );
    ftp.await_code(150);
    assert_eq!(ftp.final_reply().1.code, 226);
    let mut want = bytes.clone();
    want[205..208].copy_from_slice(b"XYZ");
    assert_eq!(server.read("f"), want);
}

#[test]
fn several_receivers_share_a_file() {
    let server = TestServer::start();
    let bytes = pattern(3_000_000, 6);
    server.write("f", &bytes);
    let mut ftp = block_mode(&server);
    let (a, b) = (listen(), listen());
    let address = |l: &std::net::TcpListener| -> String {
        port_command(l.local_addr().unwrap()).replace("PORT ", "")
    };
    ftp.expect("OPTS RETR StripeLayout=Blocked;BlockSize=1000000;", 200);
    ftp.expect(&format!("SPOR {} {}", address(&a), address(&b)), 200);
    ftp.send("RETR /f");
    let (mut a, mut b) = (accept(&a), accept(&b));
    ftp.await_code(150);
    let (first, second) = std::thread::scope(|scope| {
        let second = scope.spawn(|| take_channel(&mut b));
        (take_channel(&mut a), second.join().unwrap())
    });
    assert_eq!((first.eof, second.eof), (Some(1), Some(1)));
    let mut whole = vec![0; bytes.len()];
    for (at, payload) in first.blocks.iter().chain(&second.blocks) {
        let at = usize::try_from(*at).unwrap();
        whole[at..at + payload.len()].copy_from_slice(payload);
    }
    assert!(whole == bytes);
    assert_eq!(ftp.final_reply().1.code, 226);
}

#[test]
fn the_wrong_direction_is_refused_and_the_session_continues() {
    let server = TestServer::start();
    server.write("f", b"abc");
    let mut ftp = block_mode(&server);
    ftp.pasv();
    ftp.expect("RETR /f", 500);
    ftp.active();
    ftp.expect("STOR /g", 500);
    ftp.expect("NOOP", 200);
}

/// Sends `blocks` as a STOR; the transfer must fail and leave the session usable.
fn expect_refused(what: &str, blocks: &[Vec<u8>]) {
    let server = TestServer::start();
    let mut ftp = block_mode(&server);
    let mut data = ftp.passive();
    ftp.send("STOR /f");
    ftp.await_code(150);
    // The server may close before all is written.
    let _ = data.write_all(&blocks.concat());
    let (_, reply) = ftp.final_reply();
    assert!((400..600).contains(&reply.code), "{what}: {reply:?}");
    expect_closed(data);
    ftp.expect("STOR /f", 425);
    let mut data = ftp.passive();
    ftp.send("STOR /f");
    write(
        &mut data,
        &[data_block(0, b"abc"), block(EOF | EOD, 0, 1, b"")],
    );
    ftp.await_code(150);
    assert_eq!(ftp.final_reply().1.code, 226, "{what}");
}

#[test]
fn broken_blocks_fail_the_transfer_only() {
    expect_refused("overflow", &[block(0, u64::MAX, 10, b"xx")]);
    expect_refused("past any file", &[block(0, 10, 1 << 63, b"0123456789")]);
    expect_refused("end past any file", &[block(0, 1 << 63, 5, b"0123456789")]);
    expect_refused("unknown bits", &[block(0x01, 1, 0, b"x")]);
    expect_refused("restart bit", &[block(0x10, 1, 0, b"x")]);
    expect_refused("no channel announced", &[block(EOF, 0, 0, b"")]);
    expect_refused("absurd channels", &[block(EOF, 0, 1 << 63, b"")]);
    expect_refused("two EOFs", &[block(EOF, 0, 2, b""), block(EOF, 0, 2, b"")]);
    expect_refused(
        "close in mid-transfer",
        &[data_block(0, b"x"), block(CLOSE, 0, 0, b"")],
    );
}

#[test]
fn a_channel_that_dies_inside_a_block_fails_the_transfer() {
    for whole_blocks in [false, true] {
        let server = TestServer::start();
        let bytes = pattern(1000, 7);
        let mut ftp = block_mode(&server);
        let mut data = ftp.passive();
        ftp.send("STOR /f");
        ftp.await_code(150);
        let mut sent = data_block(0, &bytes);
        if !whole_blocks {
            sent.truncate(517);
        }
        write(&mut data, &[sent]);
        drop(data);
        let (markers, reply) = ftp.final_reply();
        assert_eq!(reply.code, 426, "{reply:?}");
        // What was reported is there.
        for (start, end) in ranges(&markers) {
            let range = usize::try_from(start).unwrap()..usize::try_from(end).unwrap();
            assert_eq!(server.read("f")[range.clone()], bytes[range]);
        }
    }
}

#[test]
fn absurd_counts_claim_no_memory() {
    let server = TestServer::start();
    let mut ftp = block_mode(&server);
    let address: SocketAddr = ftp.pasv();
    let mut data = connect(address);
    ftp.send("STOR /f");
    ftp.await_code(150);
    // A block of 8 EiB less a bit is legal. It streams; the peer then goes away.
    write(&mut data, &[block(0, (1 << 62) - 1, 0, b"begin")]);
    drop(data);
    assert_eq!(ftp.final_reply().1.code, 426);
}

#[test]
fn bytes_of_a_lost_client_are_written() {
    let server = TestServer::start();
    let bytes = pattern(8 << 20, 1);
    let mut ftp = block_mode(&server);
    let mut data = connect(ftp.pasv());
    // A later upload under such a name resumes it.
    let name = ".godwit-0123456789abcdef.part";
    ftp.send(&format!("STOR /{name}"));
    ftp.await_code(150);
    drop(ftp);
    for (number, part) in (0..).zip(bytes.chunks(1 << 20)) {
        write(&mut data, &[data_block(number << 20, part)]);
    }
    drop(data);
    eventually("all of it is there", || {
        std::fs::read(server.path(name)).is_ok_and(|found| found == bytes)
    });
}

#[test]
fn a_hole_is_a_safe_range_of_zeros() {
    let server = TestServer::start();
    server.write("f", vec![0xff; 500_000]);
    let bytes = pattern(1000, 1);
    let mut ftp = block_mode(&server);
    ftp.send("FEAT");
    let announced = ftp.reply().text().contains("X-GODWIT HOLES");
    assert!(announced);
    let mut data = connect(ftp.pasv());
    // In place, so that the old bytes are there.
    ftp.send("ESTO A 100000 /f");
    ftp.await_code(150);
    write(
        &mut data,
        &[
            data_block(0, &bytes),
            block(HOLE, 200_000, 1000, b""),
            block(EOF, 0, 1, b""),
            block(EOD | HOLE, 400_000, 250_000, b""),
        ],
    );
    let (markers, reply) = ftp.final_reply();
    assert_eq!(reply.code, 226, "{reply:?}");
    // Too quick for markers, which are sent at the end only where the transfer failed.
    assert!(ranges(&markers).is_empty() || ranges(&markers) == [(0, 201_000), (250_000, 650_000)]);
    let mut want = vec![0xff; 500_000];
    want[100_000..101_000].copy_from_slice(&bytes);
    want[101_000..301_000].fill(0);
    want[350_000..].fill(0);
    want.resize(750_000, 0);
    assert!(server.read("f") == want);
}

#[test]
fn holes_are_sent_only_on_request() {
    const UNIT: u64 = 1 << 16;
    let server = TestServer::start();
    let bytes = pattern(1 << 16, 3);
    let file = std::fs::File::create(server.path("f")).unwrap();
    file.set_len(100 * UNIT).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 50 * UNIT).unwrap();
    let whole = server.read("f");
    let mut ftp = block_mode(&server);
    for (asked, hole_bytes) in [
        (None, 0),
        (Some("OPTS RETR Parallelism=1,1,1;Holes=1;"), 99 * UNIT),
        (Some("OPTS RETR Holes=0;"), 0),
    ] {
        if let Some(asked) = asked {
            ftp.expect(asked, 200);
        }
        let listener = listen();
        ftp.expect(&port_command(listener.local_addr().unwrap()), 200);
        ftp.send("RETR /f");
        let mut data = accept(&listener);
        ftp.await_code(150);
        let take = take_channel(&mut data);
        assert_eq!(ftp.final_reply().1.code, 226);
        assert_eq!(take.holes, hole_bytes, "{asked:?}");
        assert!(assemble(&[take]) == whole, "{asked:?}");
    }
    ftp.expect("OPTS RETR Holes=2;", 500);
}

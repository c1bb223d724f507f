//! The pure paths that run for every block, marker and reply, so many times: `hot CASE TIMES`.
//! `cargo xtask instructions` counts what they cost.

use std::{hint::black_box, process::ExitCode};

use godwit_proto::{
    ByteRange, Command, RangeSet,
    marker::{parse_range_marker, range_marker},
    mode_e::BlockHeader,
    reply::ReplyReader,
};

/// Bytes of a block.
const BLOCK: u64 = 1 << 20;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, case, times] = arguments.as_slice() else {
        return ExitCode::FAILURE;
    };
    let (Ok(times), Some(run)) = (times.parse(), case_of(case)) else {
        return ExitCode::FAILURE;
    };
    for time in 0..times {
        run(black_box(time));
    }
    ExitCode::SUCCESS
}

fn case_of(name: &str) -> Option<fn(u64)> {
    Some(match name {
        "header" => header,
        "ranges" => ranges,
        "marker" => marker,
        "reply" => reply,
        "command" => command,
        _ => return None,
    })
}

/// A header to bytes and back.
fn header(time: u64) {
    let bytes = black_box(BlockHeader::data(time * BLOCK, BLOCK).encode());
    let _ = black_box(BlockHeader::decode(&bytes));
}

/// 64 blocks that arrive in another order than they have in the file, as those of several channels
/// do.
fn ranges(_: u64) {
    let mut set = RangeSet::new();
    for place in 0..64 {
        // 29 and 64 have no common factor: each block comes once.
        let start = black_box(place * 29 % 64) * BLOCK;
        set.insert(ByteRange {
            start,
            end: start + BLOCK,
        });
    }
    drop(black_box(set));
}

/// A marker of eight ranges, as it is told and as it is understood.
fn marker(time: u64) {
    let mut set = RangeSet::new();
    for place in 0..8 {
        let start = (time + 2 * place) * BLOCK;
        set.insert(ByteRange {
            start,
            end: start + BLOCK,
        });
    }
    if let Some(told) = range_marker(&set, None) {
        drop(black_box(parse_range_marker(&told)));
    }
}

/// What a server says to a small file.
fn reply(_: u64) {
    let mut reader = ReplyReader::default();
    reader.push(black_box(
        b"150 Begins\r\n111 Range Marker 0-1048576\r\n250-Listing\r\n Type=file;Size=10; a\r\n\
          250 End\r\n226 Done\r\n",
    ));
    while let Ok(Some(reply)) = reader.next_reply() {
        drop(black_box(reply));
    }
}

/// What a client asks for a small file.
fn command(_: u64) {
    for line in [
        &b"TYPE I"[..],
        b"ERET P 0 1048576 /data/run/file.dat",
        b"STOR /data/run/file.dat",
    ] {
        drop(black_box(Command::parse(black_box(line))));
    }
}

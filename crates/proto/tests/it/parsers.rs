//! What the fuzz targets do with bytes, one function per parser; the test of the corpora replays
//! through the same.
//!
//! Nothing may panic, and what was understood must survive being written and read again.

use godwit_proto::{
    ByteRange, Command, RangeSet, Reply, RestartPoint,
    error::failure_kind,
    facts::{FactSelection, parse_line, write_line},
    feature::Features,
    hostport,
    line::{LINE_BYTES_MAX, LineEvent, LineReader},
    list_line::{self, ListLine},
    marker::{PerfMarker, parse_range_marker, range_marker},
    mode_e::{
        BlockHeader, HEADER_BYTES,
        receiver::{ChannelEnd, ChannelPosition, Receiver},
    },
    reply::ReplyReader,
    timestamp::Timestamp,
    url::Location,
};

/// Bytes of a control channel, as a server reads them.
pub(crate) fn command_line(bytes: &[u8]) {
    for event in LineReader::default().push(bytes) {
        let LineEvent::Line(line) = event else {
            continue;
        };
        assert!(line.len() <= LINE_BYTES_MAX);
        let command = match Command::parse(&line) {
            Ok(command) => command,
            Err(error) => {
                assert!(error.reply().code.is_failure());
                continue;
            }
        };
        assert!(!command.masked().contains(['\r', '\n']));
        let mut written = Vec::new();
        command.write_to(&mut written);
        assert_eq!(written.iter().filter(|b| **b == b'\n').count(), 1);
        let again = LineReader::default().push(&written);
        let [LineEvent::Line(line)] = &again[..] else {
            panic!("{command:?} was read as {again:?}");
        };
        assert_eq!(Command::parse(line).as_ref(), Ok(&command));
    }
}

/// Bytes of a control channel, as a client reads them, and everything that is read out of replies.
pub(crate) fn reply(bytes: &[u8]) {
    let mut reader = ReplyReader::default();
    reader.push(bytes);
    while let Ok(Some(reply)) = reader.next_reply() {
        read_reply(&reply);
        let mut written = Vec::new();
        reply.write_to(&mut written);
        let mut again = ReplyReader::default();
        again.push(&written);
        let read = again.next_reply().ok().flatten();
        assert_eq!(read.map(|r| r.lines.len()), Some(reply.lines.len()));
        assert_eq!(again.next_reply(), Ok(None), "{reply:?}");
    }
}

fn read_reply(reply: &Reply) {
    assert_eq!(failure_kind(reply).is_some(), reply.code.is_failure());
    let text = reply.text();
    let _ = Features::from_reply(reply);
    let _ = hostport::parse_227(&text);
    let _ = hostport::parse_229(&text, [127, 0, 0, 1].into());
    let _ = hostport::parse_striped(reply);
    let _ = Timestamp::parse(&text);
    if let Some(marker) = PerfMarker::from_reply(reply) {
        assert!(marker.stripe_index < marker.stripe_count);
    }
    if let Some(set) = parse_range_marker(reply) {
        assert!(set.count() <= RestartPoint::RANGES_MAX);
    }
}

/// One MLSx line.
pub(crate) fn facts(line: &[u8]) {
    let Some((facts, name)) = parse_line(line) else {
        return;
    };
    let mut written = Vec::new();
    write_line(&facts, FactSelection::ALL, &name, &mut written);
    assert!(!written.iter().any(|b| matches!(b, b'\r' | b'\n' | 0)));
    if facts == Default::default() || name.iter().any(|b| matches!(b, b'\r' | b'\n' | 0)) {
        // Without a fact there is no list, and such a name cannot be said.
        return;
    }
    assert_eq!(parse_line(&written), Some((facts, name)));
}

/// One line of another server's LIST.
pub(crate) fn list_line(line: &[u8]) {
    let Some(ListLine::Entry(facts, name)) = list_line::parse_line(line) else {
        return;
    };
    assert!(!name.is_empty() && !name.iter().any(|b| matches!(b, b'\r' | b'\n' | 0)));
    // The name is the end of its line, but for that of a link.
    let end = line.iter().rposition(|b| !matches!(b, b'\r' | b'\n'));
    assert!(facts.unix_slink.is_some() || line[..=end.unwrap_or(0)].ends_with(&name));
    assert!(facts.unix_mode.is_none_or(|mode| mode <= 0o7777));
}

/// An argument of the command line.
pub(crate) fn url(text: &[u8]) {
    let Ok(Location::Remote(mut url)) = Location::parse(text) else {
        return;
    };
    assert!(url.path.is_absolute() || url.home().is_some());
    assert!(!url.host.contains(|c: char| c.is_control() || c == ' '));
    let shown = url.to_string();
    url.password = None;
    assert_eq!(Location::parse(shown.as_bytes()), Ok(Location::Remote(url)));
}

/// A sequence of headers, each behind one byte that chooses its channel.
pub(crate) fn mode_e_receiver(bytes: &[u8]) {
    const CHANNELS: usize = 4;
    const CHANNELS_MAX: u64 = 6;
    let mut receiver = Receiver::new(CHANNELS_MAX);
    let mut positions = [
        ChannelPosition::Fresh,
        ChannelPosition::Fresh,
        ChannelPosition::Reused,
        ChannelPosition::Reused,
    ];
    let mut eods = 0;
    for piece in bytes.chunks_exact(1 + HEADER_BYTES) {
        let Ok(header) = <[u8; HEADER_BYTES]>::try_from(&piece[1..]) else {
            return;
        };
        let Ok(header) = BlockHeader::decode(&header) else {
            continue;
        };
        let position = &mut positions[usize::from(piece[0]) % CHANNELS];
        let was = *position;
        let Ok(step) = receiver.handle_header(position, &header) else {
            return;
        };
        assert!(step.payload_bytes == 0 || step.offset.checked_add(step.payload_bytes).is_some());
        assert!(was != ChannelPosition::Ended);
        match step.end {
            Some(ChannelEnd::Retired) => assert_eq!(was, ChannelPosition::Reused),
            Some(_) => eods += 1,
            None => assert_eq!(*position, ChannelPosition::Running),
        }
        assert_eq!(receiver.eod_seen(), eods);
        assert!(eods <= CHANNELS_MAX);
        assert_eq!(
            receiver.is_complete(),
            receiver.eod_expected() == Some(eods)
        );
    }
}

/// Operations on a set, five bytes each: what, then start and length of 16 bits. Then what 111 says
/// of it.
pub(crate) fn range_markers(bytes: &[u8]) {
    let mut set = RangeSet::new();
    let mut end_of_file = None;
    for step in bytes.chunks_exact(5) {
        let start = u64::from(u16::from_be_bytes([step[1], step[2]]));
        let length = u64::from(u16::from_be_bytes([step[3], step[4]]));
        let range = ByteRange {
            start,
            end: start + length,
        };
        match step[0] % 4 {
            0 | 1 => {
                set.insert(range);
                assert!(set.contains(range) && set.gaps(range).is_empty());
            }
            2 => {
                set.remove(range);
                assert!(range.is_empty() || set.gaps(range) == [range]);
            }
            _ => end_of_file = Some(range.end),
        }
    }
    let Some(reply) = range_marker(&set, end_of_file) else {
        return;
    };
    let said = parse_range_marker(&reply).expect("what we write we read");
    assert!(!said.is_empty() && said.iter().all(|r| set.contains(r)));
    let all: Vec<ByteRange> = said.iter().collect();
    assert!(all.windows(2).all(|p| p[1].start - p[0].end > 1), "{reply}");
}

/// The argument of REST, and the other small words of commands.
pub(crate) fn restart(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Some(point) = RestartPoint::parse(&text) {
        assert_eq!(
            RestartPoint::parse(&point.to_string()).as_ref(),
            Some(&point)
        );
        let set = point.to_ranges();
        assert!(set.count() <= RestartPoint::RANGES_MAX);
        assert!(ByteRange::ALL.len() >= set.covered());
        for gap in set.gaps(ByteRange::ALL) {
            assert!(!gap.is_empty() && set.gaps(gap) == [gap]);
        }
    }
    if let Some(time) = Timestamp::parse(&text) {
        assert_eq!(Timestamp::parse(&time.to_string()), Some(time));
    }
    if let Some(addr) = hostport::parse_any(&text) {
        assert_eq!(
            hostport::parse_any(&hostport::format_extended(addr)),
            Some(addr)
        );
    }
}

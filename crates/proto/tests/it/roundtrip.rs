//! What is written is read as it was meant.

use godwit_proto::{
    Command, FtpPath, RestartPoint,
    facts::{FactSelection, parse_line, write_line},
    hostport,
    line::{LineEvent, LineReader},
    live::LiveReport,
    marker::PerfMarker,
    mode_e::{BlockHeader, HEADER_BYTES},
    reply::{Reply, ReplyReader},
    timestamp::Timestamp,
    url::Location,
};
use proptest::prelude::*;

use crate::strategies;

/// The one line that a server's reader makes of what a client wrote.
fn as_read(command: &Command) -> Vec<u8> {
    let mut out = Vec::new();
    command.write_to(&mut out);
    match &LineReader::default().push(&out)[..] {
        [LineEvent::Line(line)] => line.clone(),
        other => panic!("{command:?} was read as {other:?}"),
    }
}

fn read_replies(bytes: &[u8]) -> Vec<Reply> {
    let mut reader = ReplyReader::default();
    reader.push(bytes);
    std::iter::from_fn(|| reader.next_reply().unwrap()).collect()
}

fn written(reply: &Reply) -> Vec<u8> {
    let mut out = Vec::new();
    reply.write_to(&mut out);
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn commands(command in strategies::command()) {
        prop_assert_eq!(Command::parse(&as_read(&command)), Ok(command));
    }

    #[test]
    fn commands_without_byte_255_need_no_telnet(command in strategies::command()) {
        let mut line = Vec::new();
        command.write_to(&mut line);
        if !line.contains(&255) {
            prop_assert_eq!(Command::parse(&line[..line.len() - 2]), Ok(command));
        }
    }

    #[test]
    fn live_reports(report in strategies::live_report()) {
        let replies = read_replies(&written(&report.to_reply()));
        prop_assert_eq!(LiveReport::from_reply(&replies[0]), Some(report));
    }

    /// Any path means the same file after the journey, even if it was written with `./`.
    #[test]
    fn paths_mean_the_same(bytes in prop::collection::vec(any::<u8>(), 1..20)) {
        if let Ok(path) = FtpPath::received(bytes) {
            let (cwd, home) = (FtpPath::new("/w").unwrap(), FtpPath::new("/h").unwrap());
            for make in [Command::List, Command::Nlst, Command::Mlsd] {
                let read = Command::parse(&as_read(&make(Some(path.clone()))));
                let Ok(Command::List(got) | Command::Nlst(got) | Command::Mlsd(got)) = read else {
                    return Err(TestCaseError::fail(format!("{read:?}")));
                };
                prop_assert_eq!(got.unwrap().resolve(&cwd, &home), path.resolve(&cwd, &home));
            }
        }
    }

    #[test]
    fn no_line_panics_or_grows(line in prop::collection::vec(any::<u8>(), 0..200)) {
        match Command::parse(&line) {
            Ok(command) => {
                let _ = command.masked();
            }
            Err(error) => {
                prop_assert!(error.reply().code.is_failure());
                prop_assert!(error.to_string().len() <= 2000);
            }
        }
    }

    #[test]
    fn replies(reply in strategies::reply()) {
        prop_assert_eq!(read_replies(&written(&reply)), [reply]);
    }

    /// However a caller builds a reply, both rules by which known clients find its end agree: the
    /// same code and a blank (RFC 959, jglobus), and any three digits and a blank (GCT).
    #[test]
    fn body_lines_never_look_like_an_end(reply in strategies::hostile_reply()) {
        let text = written(&reply);
        prop_assert!(text.ends_with(b"\r\n"));
        let lines: Vec<&[u8]> = text[..text.len() - 2].split(|b| *b == b'\n').collect();
        prop_assert_eq!(lines.len(), reply.lines.len());
        let code = reply.code.to_string();
        for (i, line) in lines.iter().enumerate() {
            let last = i + 1 == lines.len();
            prop_assert!(last || line.ends_with(b"\r"));
            let mut crs = line[..line.len() - usize::from(!last)].split(|b| *b == b'\r').skip(1);
            prop_assert!(crs.all(|rest| rest.first() == Some(&0)), "CR is followed by NUL");
            prop_assert!(line.len() >= 5 || i > 0 && !last, "GCT wants five characters");
            let ends_for_gct =
                line.len() > 3 && line[..3].iter().all(u8::is_ascii_digit) && line[3] == b' ';
            let ends_for_rfc = line.starts_with(code.as_bytes()) && line.get(3) == Some(&b' ');
            prop_assert_eq!((ends_for_gct, ends_for_rfc), (last, last));
        }
        let read = read_replies(&text);
        prop_assert_eq!(read.len(), 1);
        prop_assert_eq!(read[0].lines.len(), reply.lines.len());
    }

    #[test]
    fn performance_markers(
        tenths in 0_u64..1 << 50,
        index in 0_u32..1000,
        more in 1_u32..1000,
        stripe_bytes: u64,
    ) {
        let timestamp = format!("{}.{}", tenths / 10, tenths % 10).parse().unwrap();
        let stripe_count = index + more;
        let marker =
            PerfMarker { timestamp, stripe_index: index, stripe_bytes, stripe_count };
        let read = read_replies(&written(&marker.to_reply()));
        prop_assert_eq!(PerfMarker::from_reply(&read[0]), Some(marker));
    }

    #[test]
    fn facts(facts in strategies::facts(), name in strategies::path(), blank: bool) {
        let mut line = if blank { b" ".to_vec() } else { Vec::new() };
        write_line(&facts, FactSelection::ALL, name.as_bytes(), &mut line);
        let list = &line[usize::from(blank)..line.len() - name.as_bytes().len() - 1];
        prop_assert!(!list.contains(&b' '), "clients split at the first blank");
        prop_assert_eq!(parse_line(&line), Some((facts, name.as_bytes().to_vec())));
    }

    #[test]
    fn restart_points(point in strategies::restart_point()) {
        prop_assert_eq!(RestartPoint::parse(&point.to_string()), Some(point));
    }

    #[test]
    fn addresses(addr in strategies::address()) {
        prop_assert_eq!(hostport::parse_extended(&hostport::format_extended(addr)), Some(addr));
        prop_assert_eq!(hostport::parse_any(&hostport::format_extended(addr)), Some(addr));
        if let Some(text) = hostport::format_comma(addr) {
            prop_assert_eq!(hostport::parse_comma(&text), Some(addr));
            let reply = format!("Entering Passive Mode ({text})");
            prop_assert_eq!(hostport::parse_227(&reply), Some(addr));
        }
        let reply = format!("Entering Extended Passive Mode (|||{}|)", addr.port());
        prop_assert_eq!(hostport::parse_229(&reply, addr.ip()), Some(addr));
    }

    #[test]
    fn timestamps(time in strategies::timestamp()) {
        let text = time.to_string();
        prop_assert_eq!(text.len(), 14);
        prop_assert_eq!(Timestamp::parse(&text), Some(time));
    }

    #[test]
    fn urls(url in strategies::remote_url()) {
        prop_assert_eq!(Location::parse(url.to_string().as_bytes()), Ok(Location::Remote(url)));
    }

    #[test]
    fn local_paths(path in prop::collection::vec(1_u8.., 1..20), absolute: bool) {
        let mut path = path;
        if absolute {
            path.insert(0, b'/');
        } else {
            // A relative path that is no text has no written form.
            path.iter_mut().for_each(|b| *b = (*b & 0x7f).max(1));
        }
        let location = Location::Local(path.clone());
        let Ok(Location::Local(read)) = Location::parse(location.to_string().as_bytes()) else {
            return Err(TestCaseError::fail(location.to_string()));
        };
        let bare = path.strip_prefix(b"./").unwrap_or(&path);
        prop_assert_eq!(read.strip_prefix(b"./").unwrap_or(&read), bare);
    }

    #[test]
    fn small_words_never_panic(
        text in "\\PC{0,30}",
        bytes in prop::collection::vec(any::<u8>(), 0..30),
    ) {
        let _ = RestartPoint::parse(&text);
        let _ = Timestamp::parse(&text);
        let _ = hostport::parse_227(&text);
        let _ = hostport::parse_229(&text, [127, 0, 0, 1].into());
        let _ = hostport::parse_any(&text);
        let _ = FactSelection::parse(&text);
        let _ = parse_line(&bytes);
        let _ = Location::parse(&bytes);
    }

    #[test]
    fn block_headers(bytes: [u8; HEADER_BYTES]) {
        if let Ok(header) = BlockHeader::decode(&bytes) {
            prop_assert_eq!(header.encode(), bytes);
            prop_assert!(header.offset.checked_add(header.payload_bytes()).is_some());
        }
    }

    #[test]
    fn block_headers_of_ours(offset: u64, count: u64) {
        let count = count.min(u64::MAX - offset);
        let header = BlockHeader::data(offset, count);
        prop_assert_eq!(BlockHeader::decode(&header.encode()), Ok(header));
    }
}

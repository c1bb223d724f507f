//! Commands and replies behind an established context.

use godwit_gsi::adat;
use godwit_gsi::wrap::{CLEAR_BYTES_MAX, WrapError};
use godwit_gsi::{Established, Settings, Versions, Wrap};

use crate::pair::{Ends, join};

fn established(versions: Versions) -> (Wrap, Wrap) {
    let ends = Ends::new();
    let client = Settings {
        versions,
        ..ends.client(None)
    };
    let joined = join(client, ends.server()).expect("joins");
    let wrap = |end: Established| end.wrap;
    (wrap(joined.initiator), wrap(joined.acceptor))
}

const BOTH: [Versions; 2] = [Versions::Tls12, Versions::Tls13];

#[test]
fn commands_and_replies_pass_line_by_line() {
    for versions in BOTH {
        let (mut client, mut server) = established(versions);
        for command in [&b"USER :globus-mapping:\r\n"[..], b"STOR \xc3\xb6\xff\r\n"] {
            let line = client.command(command).expect("wraps");
            assert!(line.starts_with("ENC ") && !line.contains(['\r', '\n']));
            assert_eq!(
                server.clear_command(&line).expect("unwraps").as_deref(),
                Some(command)
            );
            let reply = b"211-Features\r\n MLST\r\n SIZE\r\n211 End.\r\n";
            let wrapped = server.reply(reply).expect("wraps");
            let lines: Vec<&str> = wrapped.split_terminator("\r\n").collect();
            assert_eq!(lines.len(), 4);
            assert!(lines[..3].iter().all(|line| line.starts_with("632-")));
            assert!(lines[3].starts_with("632 "));
            let mut clear = Vec::new();
            for line in lines {
                let part = client.clear_reply(line).expect("unwraps");
                clear.extend(part.expect("is wrapped"));
            }
            assert_eq!(clear, reply);
        }
    }
}

#[test]
fn a_reply_may_come_whole_with_a_nul_and_under_any_label() {
    let (mut client, mut server) = established(Versions::Any);
    for label in ["631 ", "632 ", "633 ", "632-"] {
        let mut sealed = Vec::new();
        server
            .seal(b"230-Hello\r\n230 Jo.\r\n\0", &mut sealed)
            .expect("seals");
        let line = format!("{label}{}", adat::encode(&sealed));
        let clear = client
            .clear_reply(&line)
            .expect("unwraps")
            .expect("is wrapped");
        assert_eq!(clear, b"230-Hello\r\n230 Jo.\r\n");
    }
    for verb in ["MIC", "enc", "CONF"] {
        let line = client.command(b"PWD\r\n").expect("wraps");
        let line = line.replace("ENC", verb);
        let clear = server.clear_command(&line).expect("unwraps");
        assert_eq!(clear.as_deref(), Some(&b"PWD\r\n"[..]));
    }
}

#[test]
fn clear_lines_are_recognised() {
    let (mut client, mut server) = established(Versions::Any);
    for line in ["PWD", "ENCODE x", "", "\u{e4}"] {
        assert_eq!(server.clear_command(line), Ok(None), "{line}");
    }
    for line in ["535 ADAT failed", "632", "6321 x", "", "\u{e4}\u{e4}"] {
        assert_eq!(client.clear_reply(line), Ok(None), "{line}");
    }
}

#[test]
fn a_long_reply_takes_several_records() {
    let (mut client, mut server) = established(Versions::Any);
    let line = [vec![b'x'; 60_000], b"\r\n".to_vec()].concat();
    let wrapped = server.reply(&line).expect("wraps");
    let wrapped = wrapped.strip_suffix("\r\n").expect("a line");
    let clear = client.clear_reply(wrapped).expect("unwraps");
    assert_eq!(clear.as_ref(), Some(&line));
    let overlong = vec![b'x'; CLEAR_BYTES_MAX + 1];
    assert_eq!(server.reply(&overlong), Err(WrapError::TooLong));
    let mut sealed = Vec::new();
    server.seal(&overlong, &mut sealed).expect("seals");
    let line = format!("632 {}", adat::encode(&sealed));
    assert_eq!(client.clear_reply(&line), Err(WrapError::TooLong));
}

#[test]
fn changed_repeated_reordered_and_cut_pieces_are_refused() {
    for versions in BOTH {
        let pair = || {
            let (mut client, server) = established(versions);
            let first = client.command(b"DELE a\r\n").expect("wraps");
            let second = client.command(b"DELE b\r\n").expect("wraps");
            (server, first, second)
        };
        let (mut server, _, second) = pair();
        assert!(matches!(
            server.clear_command(&second),
            Err(WrapError::Tls(_))
        ));

        let (mut server, first, _) = pair();
        server.clear_command(&first).expect("unwraps");
        assert!(matches!(
            server.clear_command(&first),
            Err(WrapError::Tls(_))
        ));

        let (mut server, first, _) = pair();
        let mut sealed = adat::decode(&first[4..]).expect("decodes");
        sealed.pop();
        let cut = format!("ENC {}", adat::encode(&sealed));
        assert_eq!(server.clear_command(&cut), Err(WrapError::Incomplete));

        let (mut server, first, _) = pair();
        let mut sealed = adat::decode(&first[4..]).expect("decodes");
        sealed[8] ^= 1;
        let changed = format!("ENC {}", adat::encode(&sealed));
        assert!(matches!(
            server.clear_command(&changed),
            Err(WrapError::Tls(_))
        ));

        let (mut server, ..) = pair();
        assert!(matches!(
            server.clear_command("ENC ==="),
            Err(WrapError::Token(_))
        ));
    }
}

#[test]
fn the_suite_is_told() {
    let (client, server) = established(Versions::Tls13);
    assert!(
        client.describe().starts_with("TLSv1.3, TLS_"),
        "{}",
        client.describe()
    );
    assert_eq!(client.describe(), server.describe());
}

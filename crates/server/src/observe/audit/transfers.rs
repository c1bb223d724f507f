//! The transfer log: one line a transfer that has succeeded, as `globus-gridftp-server` writes it
//! (`-Z`, `log_transfer`), for whatever reads those.
//!
//! ```text
//!   DATE=20260102030405.678901 HOST=… PROG=godwitd NL.EVNT=FTP_INFO START=… USER=jo FILE=/f
//!   BUFFER=0 BLOCK=1048576
//!   NBYTES=12 VOLUME=/ STREAMS=4 STRIPES=1 DEST=[192.0.2.1] TYPE=RETR CODE=226 TASKID=none
//! ```
//! Source: `globus_i_gfs_log_transfer` of the Grid Community Toolkit 13.24. `DEST` is the client's
//! address here, also where data goes elsewhere.

use crate::observe::event::Wire;
use std::{
    fmt::Write as _,
    time::{Duration, SystemTime},
};

use godwit_proto::timestamp::Timestamp;

use crate::observe::event::{Entry, Verdict, Who};

/// The line of a transfer that ended `now`; `None` for all else.
pub(crate) fn line(now: SystemTime, host: &str, who: &Who, event: &Entry) -> Option<String> {
    let wire = event.wire.filter(|_| event.result == Verdict::Done)?;
    let took = event.seconds.unwrap_or(0.0).max(0.0);
    let took = Duration::try_from_secs_f64(took).unwrap_or_default();
    let began = now.checked_sub(took).unwrap_or(SystemTime::UNIX_EPOCH);
    let Wire {
        command,
        buffer,
        block,
        streams,
    } = wire;
    let user = one_word(who.account.as_deref().unwrap_or("none"));
    let file = one_word(event.path.as_deref().unwrap_or("/"));
    Some(format!(
        "DATE={} HOST={host} PROG=godwitd NL.EVNT=FTP_INFO START={} USER={user} \
         FILE={file} BUFFER={buffer} BLOCK={block} NBYTES={} VOLUME=/ STREAMS={} \
         STRIPES=1 DEST=[{}] TYPE={} CODE=226 TASKID=none\n",
        stamp(now),
        stamp(began),
        event.bytes.unwrap_or(0),
        streams.max(1),
        who.peer.ip().to_canonical(),
        command.as_str(),
    ))
}

/// A name must make neither a line nor a field of its own: what would is percent-encoded, and so is
/// `%`, so that the name can be had back.
fn one_word(name: &str) -> String {
    let mut word = String::with_capacity(name.len());
    for c in name.chars() {
        if c.is_control() || c.is_whitespace() || c == '%' {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                // Writing to a `String` cannot fail.
                let _ = write!(word, "%{byte:02X}");
            }
        } else {
            word.push(c);
        }
    }
    word
}

/// `YYYYMMDDHHMMSS.µµµµµµ`, UTC.
fn stamp(time: SystemTime) -> String {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    format!("{}.{:06}", Timestamp(seconds), since.subsec_micros())
}

#[cfg(test)]
mod tests {
    use godwit_proto::FtpPath;

    use super::*;
    use crate::observe::event::{Command, What};

    #[test]
    fn no_name_makes_a_field_of_its_own() {
        for (name, word) in [
            ("/a NBYTES=9", "/a%20NBYTES=9"),
            ("/a\tb\r", "/a%09b%0D"),
            ("/a\u{a0}b\u{2028}", "/a%C2%A0b%E2%80%A8"),
            ("/100%", "/100%25"),
            ("/ü=[x]", "/ü=[x]"),
        ] {
            assert_eq!(one_word(name), word);
        }
    }

    #[test]
    fn a_line_has_the_words_of_the_original() {
        let who = Who {
            session: 7,
            peer: "192.0.2.1:4711".parse().unwrap(),
            identity: None,
            account: Some("jo".to_owned()),
        };
        let path = FtpPath::new("/a b\u{1b}c% CODE=500".to_owned()).unwrap();
        let entry = Entry::new(What::Get)
            .path(&path)
            .moved(12, Duration::from_millis(1500));
        let now = SystemTime::UNIX_EPOCH + Duration::from_micros(951_782_400_000_125);
        assert_eq!(line(now, "h", &who, &entry), None);
        let entry = entry.wire(Wire {
            command: Command::Retr,
            buffer: 65536,
            block: 1_048_576,
            streams: 4,
        });
        assert_eq!(
            line(now, "h.example.org", &who, &entry).unwrap(),
            "DATE=20000229000000.000125 HOST=h.example.org PROG=godwitd NL.EVNT=FTP_INFO \
             START=20000228235958.500125 USER=jo FILE=/a%20b%1Bc%25%20CODE=500 BUFFER=65536 \
             BLOCK=1048576 NBYTES=12 VOLUME=/ STREAMS=4 STRIPES=1 DEST=[192.0.2.1] TYPE=RETR \
             CODE=226 TASKID=none\n"
        );
        assert_eq!(line(now, "h", &who, &entry.ended(Some("lost"))), None);
    }
}

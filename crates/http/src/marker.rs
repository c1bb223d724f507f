//! Performance markers: what the active party of a third-party copy answers with.
//!
//! ```text
//!   Perf Marker
//!   Timestamp: 1764080000
//!   Stripe Index: 0
//!   Stripe Bytes Transferred: 123456
//!   Total Stripe Count: 1
//!   End
//!   success: Created
//! ```
//! Any number of markers, then one line that says how the copy has ended. A stream without that
//! line has been cut off: the copy counts as failed.

use std::fmt;

/// Longest line that is read; the rest of a longer one is left out.
const LINE_BYTES_MAX: usize = 4096;

/// Lines of one marker that are read.
const MARKER_LINES_MAX: u32 = 256;

/// The state of one stripe of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marker {
    /// Seconds since 1970.
    pub timestamp: u64,
    /// From 0.
    pub stripe: u32,
    /// At least 1 where it is known.
    pub stripes: u32,
    /// Bytes of the stripe so far.
    pub bytes: u64,
    /// Addresses of data connections, as `tcp:192.0.2.7:443`.
    pub connections: Vec<String>,
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Perf Marker")?;
        writeln!(f, "Timestamp: {}", self.timestamp)?;
        writeln!(f, "Stripe Index: {}", self.stripe)?;
        writeln!(f, "Stripe Bytes Transferred: {}", self.bytes)?;
        writeln!(f, "Total Stripe Count: {}", self.stripes)?;
        if !self.connections.is_empty() {
            writeln!(f, "RemoteConnections: {}", self.connections.join(","))?;
        }
        writeln!(f, "End")
    }
}

/// How a copy has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The file is there.
    Success,
    /// It is not, for this reason.
    Failure(String),
    /// The copy was stopped.
    Aborted(String),
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, reason) = match self {
            Self::Success => ("success", "Created"),
            Self::Failure(reason) => ("failure", reason.as_str()),
            Self::Aborted(reason) => ("aborted", reason.as_str()),
        };
        // A reason with a line of its own would end the copy twice.
        let reason = reason.replace(|c: char| c.is_control(), " ");
        writeln!(f, "{word}: {reason}")
    }
}

/// Something that a stream says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A marker is complete.
    Marker(Marker),
    /// The last line.
    Ended(Ending),
}

/// Reads a stream, cut anywhere.
#[derive(Debug, Default)]
pub struct Reader {
    line: Vec<u8>,
    marker: Option<(Marker, u32)>,
    ended: bool,
}

impl Reader {
    /// Takes the next bytes and adds what they say to `events`. What follows the ending says
    /// nothing.
    pub fn feed(&mut self, bytes: &[u8], events: &mut Vec<Event>) {
        for byte in bytes {
            match byte {
                b'\n' => {
                    let line = std::mem::take(&mut self.line);
                    events.extend(self.on_line(&line));
                }
                _ if self.line.len() < LINE_BYTES_MAX => self.line.push(*byte),
                _ => {}
            }
        }
    }

    /// The stream is at its end: the last line may lack its line feed. `None` and no ending before:
    /// it was cut off.
    pub fn finish(mut self) -> Option<Event> {
        let line = std::mem::take(&mut self.line);
        self.on_line(&line)
    }

    fn on_line(&mut self, line: &[u8]) -> Option<Event> {
        let line = String::from_utf8_lossy(line);
        let line = line.trim();
        if self.ended || line.is_empty() {
            return None;
        }
        if let Some((marker, lines)) = &mut self.marker {
            *lines += 1;
            if line == "End" {
                let (marker, _) = self.marker.take()?;
                return Some(Event::Marker(marker));
            }
            if *lines <= MARKER_LINES_MAX {
                take(marker, line);
            }
            return None;
        }
        if line == "Perf Marker" {
            self.marker = Some(Default::default());
            return None;
        }
        let ending = ending(line)?;
        self.ended = true;
        Some(Event::Ended(ending))
    }
}

/// Unknown keys, and values that are no numbers, say nothing.
fn take(marker: &mut Marker, line: &str) {
    let Some((key, value)) = line.split_once(':') else {
        return;
    };
    let value = value.trim();
    fn set<T: std::str::FromStr>(to: &mut T, value: &str) {
        if let Ok(number) = value.parse() {
            *to = number;
        }
    }
    match key.trim() {
        "Timestamp" => set(&mut marker.timestamp, value),
        "Stripe Index" => set(&mut marker.stripe, value),
        "Total Stripe Count" => set(&mut marker.stripes, value),
        "Stripe Bytes Transferred" => set(&mut marker.bytes, value),
        "RemoteConnections" => {
            let connections = value.split(',').map(|one| one.trim().to_owned());
            marker.connections = connections.collect();
        }
        _ => {}
    }
}

/// Servers spell the ending in several ways.
fn ending(line: &str) -> Option<Ending> {
    let word = line.split([':', ' ', ',']).next().unwrap_or_default();
    let reason = line[word.len()..].trim_start_matches([':', ' ']).to_owned();
    match word.to_ascii_lowercase().as_str() {
        "success" => Some(Ending::Success),
        "failure" | "failed" => Some(Ending::Failure(reason)),
        "aborted" => Some(Ending::Aborted(reason)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events(text: &str, step: usize) -> Vec<Event> {
        let (mut reader, mut events) = (Reader::default(), Vec::new());
        for bytes in text.as_bytes().chunks(step.max(1)) {
            reader.feed(bytes, &mut events);
        }
        events.extend(reader.finish());
        events
    }

    fn marker(bytes: u64) -> Marker {
        Marker {
            timestamp: 1_764_080_000,
            stripe: 0,
            stripes: 1,
            bytes,
            connections: vec![
                "tcp:192.0.2.7:443".to_owned(),
                "tcp:[2001:db8::7]:443".to_owned(),
            ],
        }
    }

    #[test]
    fn markers_of_other_servers_are_read() {
        let dcache = "Perf Marker\r\n    Timestamp: 5\r\n    State: Running\r\n    Stripe Index: 0\
            \r\n    Stripe Bytes Transferred: 7\r\n    Total Stripe Count: 1\r\nEnd\r\n\r\n\
            success: Created";
        let found = events(dcache, 3);
        let expected = Marker {
            timestamp: 5,
            bytes: 7,
            stripes: 1,
            ..Marker::default()
        };
        assert_eq!(
            found,
            [Event::Marker(expected), Event::Ended(Ending::Success)]
        );
        for (line, ending) in [
            ("Success", Ending::Success),
            ("SUCCESS: Created\n", Ending::Success),
            (
                "failure: rejected: 404",
                Ending::Failure("rejected: 404".to_owned()),
            ),
            ("Failed: no space", Ending::Failure("no space".to_owned())),
            ("aborted", Ending::Aborted(String::new())),
        ] {
            assert_eq!(events(line, 2), [Event::Ended(ending)], "{line}");
        }
    }

    #[test]
    fn a_stream_that_is_cut_off_has_no_ending() {
        let whole = format!("{}{}", marker(1), Ending::Success);
        assert_eq!(events(&whole, 1).len(), 2);
        let at = whole.rfind("End").unwrap();
        assert_eq!(events(&whole[..at], 1), []);
        assert_eq!(events("<html>succe", 1), []);
    }

    #[test]
    fn a_reason_is_one_line() {
        let ending = Ending::Failure("a\nsuccess: Created".to_owned());
        assert_eq!(ending.to_string(), "failure: a success: Created\n");
    }

    #[test]
    fn long_streams_take_bounded_memory() {
        let (mut reader, mut events) = (Reader::default(), Vec::new());
        for _ in 0..1000 {
            reader.feed(&[b'a'; 1000], &mut events);
        }
        assert!(reader.line.len() <= LINE_BYTES_MAX && events.is_empty());
    }

    proptest! {
        #[test]
        fn streams_are_read_as_written_wherever_they_are_cut(bytes: u64, step in 1_usize..50) {
            let text = format!("{}{}{}", marker(0), marker(bytes), Ending::Aborted("x".to_owned()));
            let expected = [
                Event::Marker(marker(0)),
                Event::Marker(marker(bytes)),
                Event::Ended(Ending::Aborted("x".to_owned())),
            ];
            prop_assert_eq!(events(&text, step), expected);
        }
    }
}

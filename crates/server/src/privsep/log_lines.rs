//! Log lines of child processes. Each process writes to a pipe of its own: a compromised one can
//! write false lines, but it cannot close, cut or overwrite the log, nor send control characters to
//! an administrator's terminal.

use std::{io, mem, time::Instant};

use tokio::{net::unix::pipe, time::sleep_until};

use super::link::Pace;
use crate::observe::log;

/// Longest line; the rest continues on the next.
const LINE_MAX: usize = 16 * 1024;

/// Bytes read at a time.
const READ_BYTES: usize = 8 * 1024;

/// Forwards lines until their process has ended.
pub(super) async fn pass_on(from: pipe::Receiver) {
    let (mut lines, mut pace) = (Lines::default(), Pace::default());
    while from.readable().await.is_ok() {
        match read(&from, &mut lines) {
            Ok(0) => break,
            Ok(count) => pace.count(Instant::now(), count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(_) => break,
        }
        log::put(lines.whole().as_bytes());
        if let Some(next) = pace.next() {
            sleep_until(next.into()).await;
        }
    }
    log::put(lines.rest().as_bytes());
}

fn read(from: &pipe::Receiver, lines: &mut Lines) -> io::Result<usize> {
    let mut buffer = [0; READ_BYTES];
    let count = from.try_read(&mut buffer)?;
    lines.0.extend_from_slice(&buffer[..count]);
    Ok(count)
}

/// Received bytes; the last line may be incomplete.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn whole(&mut self) -> String {
        let end = self.0.iter().rposition(|&byte| byte == b'\n');
        let end = match end {
            Some(end) => end + 1,
            None if self.0.len() >= LINE_MAX => self.0.len(),
            None => 0,
        };
        let rest = self.0.split_off(end);
        shown(&mem::replace(&mut self.0, rest))
    }

    fn rest(&mut self) -> String {
        shown(&mem::take(&mut self.0))
    }
}

/// Lines of text, each with its end.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut shown = String::with_capacity(text.len());
    for line in text.lines() {
        for character in line.chars() {
            match character.is_control() && character != '\t' {
                true => shown.extend(character.escape_default()),
                false => shown.push(character),
            }
        }
        shown.push('\n');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_bounded_and_nothing_for_a_terminal() {
        let mut lines = Lines::default();
        lines.0.extend_from_slice(b"one\ntw");
        assert_eq!(lines.whole(), "one\n");
        lines.0.extend_from_slice(b"o\x1b]0;x\x07\xff\nthree");
        assert_eq!(lines.whole(), "two\\u{1b}]0;x\\u{7}\u{fffd}\n");
        assert_eq!(lines.whole(), "");
        assert_eq!(lines.rest(), "three\n");
        assert_eq!(lines.rest(), "");
        lines.0.extend_from_slice(&[b'x'; LINE_MAX]);
        assert_eq!(lines.whole().len(), LINE_MAX + 1);
        assert!(lines.0.is_empty());
    }
}

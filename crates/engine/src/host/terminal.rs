//! What people see and type: foreign text without the characters that would control a terminal;
//! secrets, read from the terminal without echo, or from a stream.

use std::{
    borrow::Cow,
    fmt,
    fs::File,
    io::{self, BufRead, Read, Write},
};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use zeroize::Zeroizing;

/// `text` for people: each character that would control a terminal, or reorder the text on it,
/// becomes `?`. All output to people passes here, since names and replies come from peers.
pub fn escaped(text: &str) -> Cow<'_, str> {
    match text.contains(steers) {
        true => Cow::Owned(text.replace(steers, "?")),
        false => Cow::Borrowed(text),
    }
}

/// The same for bytes, of which those that are no UTF-8 become `?` too: some terminals take the
/// bytes from 0x80 to 0x9f for controls.
pub fn escaped_bytes(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    escaped(&text.replace(char::REPLACEMENT_CHARACTER, "?"))
        .into_owned()
        .into_bytes()
}

/// The same for text of ours in lines, which may go back to the beginning of one.
pub fn escaped_lines(bytes: &[u8]) -> Vec<u8> {
    let parts = bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r'));
    let escaped = parts.map(|part| match part.split_last() {
        Some((end @ (b'\n' | b'\r'), line)) => [&escaped_bytes(line)[..], &[*end]].concat(),
        _ => escaped_bytes(part),
    });
    escaped.flatten().collect()
}

/// Controls (C0, DEL, C1) and characters of format that are not seen: directions of writing,
/// separators of lines, joiners, tags.
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

/// Longest that OpenSSL takes.
pub const BYTES_MAX: usize = 1024;

/// A password or a pass phrase. `Debug` prints stars; it leaves no copy behind.
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// The bytes.
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Why a secret cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The process has no terminal.
    #[error("no terminal to ask on")]
    NoTerminal,
    /// The terminal or the stream failed.
    #[error("cannot read what was typed: {0}")]
    Io(#[from] io::Error),
    /// Longer than anything makes use of.
    #[error("what was typed is longer than {BYTES_MAX} bytes")]
    TooLong,
    /// Ctrl-C at the prompt.
    #[error("interrupted")]
    Interrupted,
}

/// The first line of a stream, without its end.
///
/// # Errors
/// When it cannot be read or is too long.
pub fn from_reader(reader: impl Read) -> Result<Secret, SecretError> {
    let mut line = Zeroizing::new(Vec::with_capacity(BYTES_MAX + 2));
    // Two more for a line end.
    let bound = BYTES_MAX as u64 + 2;
    io::BufReader::new(reader.take(bound)).read_until(b'\n', &mut line)?;
    while matches!(line.last(), Some(b'\n' | b'\r')) {
        line.pop();
    }
    if line.len() > BYTES_MAX {
        return Err(SecretError::TooLong);
    }
    Ok(Secret(line))
}

/// Asks on the terminal of the process, wherever standard input and output go.
///
/// # Errors
/// When there is none, it fails, the line is too long, or Ctrl-C is pressed.
pub fn from_terminal(prompt: &str) -> Result<Secret, SecretError> {
    let terminal = File::options().read(true).write(true).open("/dev/tty");
    let mut terminal = terminal.map_err(|_| SecretError::NoTerminal)?;
    terminal.write_all(escaped(prompt).as_bytes())?;
    let echo_off = EchoOff::new(terminal.try_clone()?)?;
    // Room for all of it: growing would leave copies.
    let mut line = Zeroizing::new(Vec::with_capacity(BYTES_MAX + 1));
    let outcome = loop {
        let mut byte = [0];
        match terminal.read(&mut byte) {
            Ok(0) => break Pressed::Done,
            Ok(_) => match press(&mut line, byte[0]) {
                Pressed::More => {}
                end => break end,
            },
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    };
    drop(echo_off);
    terminal.write_all(b"\n")?;
    match outcome {
        Pressed::Interrupted => Err(SecretError::Interrupted),
        _ if line.len() > BYTES_MAX => Err(SecretError::TooLong),
        _ => Ok(Secret(line)),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Pressed {
    More,
    Done,
    Interrupted,
}

/// One key. The terminal does not edit lines without echo, so this does.
fn press(line: &mut Vec<u8>, byte: u8) -> Pressed {
    const CTRL_C: u8 = 3;
    const CTRL_D: u8 = 4;
    const BACKSPACE: u8 = 8;
    const CTRL_U: u8 = 21;
    const DELETE: u8 = 127;
    match byte {
        b'\n' | b'\r' | CTRL_D => return Pressed::Done,
        CTRL_C => return Pressed::Interrupted,
        BACKSPACE | DELETE => {
            // A whole character of UTF-8.
            while line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
        }
        CTRL_U => line.clear(),
        // What is too long is kept as one too many, and refused as a whole.
        _ if line.len() <= BYTES_MAX => line.push(byte),
        _ => {}
    }
    Pressed::More
}

/// A terminal without echo that takes keys one by one, Ctrl-C as any other: so no signal ends the
/// process before its terminal is restored.
///
/// By hand: rpassword answers Ctrl-C with a signal to the whole process, has no bound, and refuses
/// passwords that are not UTF-8.
struct EchoOff {
    terminal: File,
    before: Termios,
}

impl EchoOff {
    fn new(terminal: File) -> io::Result<Self> {
        let before = tcgetattr(&terminal)?;
        let mut quiet = before.clone();
        quiet.local_modes -=
            LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG | LocalModes::IEXTEN;
        quiet.special_codes[SpecialCodeIndex::VMIN] = 1;
        quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(&terminal, OptionalActions::Flush, &quiet)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for EchoOff {
    fn drop(&mut self) {
        // Nothing is left to be done where the terminal has gone.
        let _ = tcsetattr(&self.terminal, OptionalActions::Flush, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_steers_no_terminal() {
        let hostile =
            "421 \x1b]0;owned\x07\u{9b}2J\x7f\r\n\u{202e}gpj\u{2066}\u{200f}\u{feff}\u{e0041}";
        assert_eq!(
            escaped(hostile),
            "421 ?]0;owned??2J???".to_owned() + "?gpj????"
        );
        assert_eq!(escaped("grün \u{1f426}"), "grün \u{1f426}");
        assert_eq!(escaped_bytes(b"a\x9bb\xc3\xbc\n"), "a?bü?".as_bytes());
        assert_eq!(escaped_lines(b"a\x1b\n1%\r2%\rb\x07"), b"a?\n1%\r2%\rb?");
    }

    fn typed(keys: &[u8]) -> (Vec<u8>, Pressed) {
        let mut line = Vec::new();
        for key in keys {
            match press(&mut line, *key) {
                Pressed::More => {}
                end => return (line, end),
            }
        }
        (line, Pressed::More)
    }

    #[test]
    fn keys_make_a_line() {
        assert_eq!(typed(b"secret\n"), (b"secret".to_vec(), Pressed::Done));
        assert_eq!(typed(b"sex\x7f\x08ecret\r").0, b"secret");
        assert_eq!(typed("sö\u{7f}e\n".as_bytes()).0, b"se");
        assert_eq!(typed(b"wrong\x15right\n").0, b"right");
        assert_eq!(typed(b"\x7f\x7fa\n").0, b"a");
        assert_eq!(typed(b"sec\x03").1, Pressed::Interrupted);
        assert_eq!(typed(&vec![b'a'; 5000]).0.len(), BYTES_MAX + 1);
    }

    #[test]
    fn the_first_line_of_a_stream_counts() {
        for (stream, expected) in [
            (&b"secret\nmore\n"[..], &b"secret"[..]),
            (b"secret\r\n", b"secret"),
            (b" se cret ", b" se cret "),
            (b"", b""),
        ] {
            assert_eq!(from_reader(stream).expect("reads").reveal(), expected);
        }
        let long = vec![b'a'; BYTES_MAX + 1];
        assert!(matches!(from_reader(&long[..]), Err(SecretError::TooLong)));
        let fits = [&long[1..], b"\n"].concat();
        assert_eq!(from_reader(&fits[..]).expect("fits").reveal(), &long[1..]);
    }

    #[test]
    fn debug_output_shows_no_secret() {
        let escaped = format!("{:?}", Secret(b"secret".to_vec().into()));
        assert_eq!(escaped, "***");
    }
}

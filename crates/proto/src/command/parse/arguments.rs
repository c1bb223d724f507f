//! Arguments, taken off a line one by one.

use std::net::SocketAddr;

use super::super::{CommandError, NetworkProtocol, TOO_FEW};
use super::QUOTED_CHARS_MAX;
use crate::{
    hostport,
    path::FtpPath,
    text::{decimal, printable, skip_blanks, split_word},
    timestamp::Timestamp,
};

/// What is left of a line, and the verb for errors.
#[derive(Clone, Copy)]
pub(super) struct Arguments<'a> {
    pub(super) verb: &'static str,
    pub(super) rest: &'a [u8],
}

impl<'a> Arguments<'a> {
    pub(super) fn syntax(self, reason: impl Into<String>) -> CommandError {
        CommandError::Syntax {
            verb: self.verb.to_owned(),
            reason: reason.into(),
        }
    }

    pub(super) fn parameter(self, parameter: &[u8]) -> CommandError {
        CommandError::Parameter {
            verb: self.verb.to_owned(),
            parameter: printable(parameter, QUOTED_CHARS_MAX),
        }
    }

    /// The rest without leading blanks; an error where nothing is left.
    pub(super) fn required(self) -> Result<&'a [u8], CommandError> {
        match skip_blanks(self.rest) {
            [] => Err(self.syntax(TOO_FEW)),
            rest => Ok(rest),
        }
    }

    /// The next word, and what follows it.
    pub(super) fn word(self) -> Result<(&'a [u8], Self), CommandError> {
        let (word, rest) = split_word(self.required()?);
        Ok((word, Self { rest, ..self }))
    }

    pub(super) fn utf8(self, bytes: &[u8]) -> Result<String, CommandError> {
        String::from_utf8(bytes.to_vec()).map_err(|_| self.syntax("Argument is not UTF-8."))
    }

    pub(super) fn text(self) -> Result<String, CommandError> {
        self.utf8(self.required()?)
    }

    pub(super) fn optional_text(self) -> Result<Option<String>, CommandError> {
        let text = self.utf8(skip_blanks(self.rest))?;
        Ok(Some(text).filter(|t| !t.is_empty()))
    }

    /// The rest as it is: one blank separates a name from what is before it (RFC 959 §5.3), every
    /// further blank is part of the name. A name without its blanks would be another file's.
    pub(super) fn path(self) -> Result<FtpPath, CommandError> {
        match self.rest {
            [] => Err(self.syntax(TOO_FEW)),
            name => FtpPath::received(name).map_err(|e| self.syntax(format!("Invalid path: {e}."))),
        }
    }

    pub(super) fn optional_path(self) -> Result<Option<FtpPath>, CommandError> {
        match self.rest {
            [] => Ok(None),
            _ => self.path().map(Some),
        }
    }

    /// Without leading words that begin with `-`: clients send `LIST -la /dir`.
    pub(super) fn without_options(mut self) -> Self {
        while self.rest.starts_with(b"-") {
            self.rest = split_word(self.rest).1;
        }
        self
    }

    pub(super) fn number<T: std::str::FromStr>(self) -> Result<(T, Self), CommandError> {
        let (word, next) = self.word()?;
        let number = std::str::from_utf8(word).ok().and_then(decimal);
        match number {
            Some(n) => Ok((n, next)),
            None => Err(self.syntax("Syntax error in parameters or arguments: bad number.")),
        }
    }

    /// A time of exactly 14 digits: MFMT and UTIME know no fractions.
    pub(super) fn time(self) -> Result<(Timestamp, Self), CommandError> {
        let (word, next) = self.word()?;
        let time = std::str::from_utf8(word).ok().filter(|t| t.len() == 14);
        match time.and_then(Timestamp::parse) {
            Some(t) => Ok((t, next)),
            None => Err(self.syntax("Invalid time: wanted YYYYMMDDHHMMSS.")),
        }
    }

    pub(super) fn network_protocol(self) -> Result<Option<NetworkProtocol>, CommandError> {
        match split_word(self.rest).0 {
            b"" => Ok(None),
            b"1" => Ok(Some(NetworkProtocol::Ipv4)),
            b"2" => Ok(Some(NetworkProtocol::Ipv6)),
            _ => Err(self.syntax("Invalid protocol.")),
        }
    }

    pub(super) fn extended_address(self, text: &str) -> Result<SocketAddr, CommandError> {
        let text = text.trim_matches(' ');
        match hostport::split_extended(text) {
            Some(("1" | "2", _, _)) => {
                hostport::parse_extended(text).ok_or_else(|| self.syntax("Malformed argument."))
            }
            Some((protocol, _, _)) if decimal::<u32>(protocol).is_some() => {
                Err(CommandError::NetworkProtocol {
                    verb: self.verb.to_owned(),
                })
            }
            _ => Err(self.syntax("Malformed argument.")),
        }
    }

    /// Parameters and path of ERET and ESTO, in the plain form (`P 0 100 path`) or GCT's module
    /// form (`P="0 100" path`). The one module we have is `name`.
    pub(super) fn module(self, name: &str) -> Result<(Self, FtpPath), CommandError> {
        let rest = self.required()?;
        let end = rest
            .iter()
            .position(|b| matches!(b, b' ' | b'='))
            .unwrap_or(rest.len());
        if !rest[..end].eq_ignore_ascii_case(name.as_bytes()) {
            return Err(self.parameter(&rest[..end]));
        }
        let rest = &rest[end..];
        if let Some(quoted) = rest.strip_prefix(b"=\"") {
            let Some(close) = quoted.iter().position(|b| *b == b'"') else {
                return Err(
                    self.syntax("Syntax error in parameters or arguments: no closing quote.")
                );
            };
            let (parameters, rest) = (&quoted[..close], &quoted[close + 1..]);
            let rest = rest.strip_prefix(b" ").unwrap_or(rest);
            let path = Self { rest, ..self }.path()?;
            return Ok((
                Self {
                    rest: parameters,
                    ..self
                },
                path,
            ));
        }
        // Plain form: as many numbers as the module takes, then the path.
        let numbers = if name == "P" { 2 } else { 1 };
        let parameters = Self { rest, ..self };
        let mut after = parameters;
        for _ in 0..numbers {
            after = after.word()?.1;
        }
        Ok((parameters, after.path()?))
    }
}

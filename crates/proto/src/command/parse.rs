//! A command line to a [`Command`].

use std::net::SocketAddr;

use super::{
    Command, CommandError, EpsvArgument, MarkerEvent, Mode, NetworkProtocol, Password, Region,
    TOO_FEW, TypeCode,
};
use crate::{
    checksum::ChecksumAlgorithm,
    hostport,
    opts::Opts,
    path::FtpPath,
    restart::RestartPoint,
    site::{BUFFER_WORDS, REFUSED_WORDS, Site},
    text::{decimal, printable, skip_blanks, split_word},
    timestamp::Timestamp,
};

/// Characters of foreign text that an error keeps.
const QUOTED_CHARS_MAX: usize = 64;

pub(super) fn command(line: &[u8]) -> Result<Command, CommandError> {
    let (word, rest) = split_word(line);
    let verb = word.to_ascii_uppercase();
    let Some(verb) = known_verb(&verb) else {
        let verb = printable(&verb, QUOTED_CHARS_MAX);
        return Err(CommandError::UnknownVerb(verb));
    };
    let a = Arguments { verb, rest };
    Ok(match verb {
        "USER" => Command::User(a.text()?),
        // A password may begin with a blank: only the one behind the verb goes.
        "PASS" => Command::Pass(Password::new(a.utf8(rest)?)),
        "ACCT" => Command::Acct,
        "QUIT" => Command::Quit,
        "NOOP" => Command::Noop,
        "HELP" => Command::Help(a.optional_text()?),
        "FEAT" => Command::Feat,
        "OPTS" => Command::Opts(opts(a)?),
        "SYST" => Command::Syst,
        "LANG" => Command::Lang(a.optional_text()?.unwrap_or_else(|| "EN".to_owned())),
        "STAT" => Command::Stat(a.optional_path()?),
        "PWD" => Command::Pwd,
        "CWD" => Command::Cwd(a.path()?),
        "CDUP" => Command::Cdup,
        "MKD" => Command::Mkd(a.path()?),
        "RMD" => Command::Rmd(a.path()?),
        "DELE" => Command::Dele(a.path()?),
        "RNFR" => Command::Rnfr(a.path()?),
        "RNTO" => Command::Rnto(a.path()?),
        "SIZE" => Command::Size(a.path()?),
        "MDTM" => Command::Mdtm(a.path()?),
        "MFMT" => {
            let (modify, a) = a.time()?;
            Command::Mfmt {
                modify,
                path: a.path()?,
            }
        }
        "MLST" => Command::Mlst(a.optional_path()?),
        "MLSD" => Command::Mlsd(a.optional_path()?),
        "MLSR" => Command::Mlsr(a.optional_path()?),
        "MLSC" => Command::Mlsc(a.optional_path()?),
        "LIST" => Command::List(a.without_options().optional_path()?),
        "NLST" => Command::Nlst(a.without_options().optional_path()?),
        "TYPE" => Command::Type(type_code(a)?),
        "MODE" => Command::Mode(mode(a)?),
        "STRU" => match a.required()?.to_ascii_uppercase().as_slice() {
            b"F" => Command::StruFile,
            _ => return Err(a.syntax("Syntax error in parameter.")),
        },
        "REST" => {
            let point = RestartPoint::parse(&a.text()?);
            Command::Rest(point.ok_or_else(|| a.syntax("bad parameter."))?)
        }
        "ALLO" => Command::Allo(a.number()?.0),
        "CKSM" => checksum(a)?,
        "SCKS" => expected_checksum(a)?,
        "PASV" => Command::Pasv,
        "EPSV" => Command::Epsv(epsv(a)?),
        "SPAS" => Command::Spas(a.network_protocol()?),
        "PORT" => {
            let addr = hostport::parse_comma(&a.text()?);
            Command::Port(addr.ok_or_else(|| a.syntax("Illegal PORT command."))?)
        }
        "EPRT" => Command::Eprt(a.extended_address(&a.text()?)?),
        "SPOR" => Command::Spor(striped_addresses(a)?),
        "RETR" => Command::Retr(a.path()?),
        "STOR" => Command::Stor(a.path()?),
        "APPE" => Command::Appe(a.path()?),
        "ERET" => {
            let (parameters, path) = a.module("P")?;
            let (offset, parameters) = parameters.number::<u64>()?;
            let (length, _) = parameters.number()?;
            if offset.checked_add(length).is_none() {
                return Err(a.syntax("Invalid length."));
            }
            Command::Eret {
                region: Region { offset, length },
                path,
            }
        }
        "ESTO" => {
            let (parameters, path) = a.module("A")?;
            let (offset, _) = parameters.number()?;
            Command::Esto { offset, path }
        }
        "TREV" => {
            let (name, a) = a.word()?;
            let event = match name.to_ascii_uppercase().as_slice() {
                b"RESTART" => MarkerEvent::Restart,
                b"PERF" => MarkerEvent::Performance,
                _ => return Err(a.parameter(name)),
            };
            let (seconds, _) = a.number()?;
            Command::Trev { event, seconds }
        }
        "SBUF" => Command::Sbuf(
            a.number()
                .map_err(|e| match e {
                    CommandError::Syntax { reason, .. } if reason != TOO_FEW => {
                        a.syntax("Invalid Parameter.")
                    }
                    other => other,
                })?
                .0,
        ),
        "ABOR" => Command::Abor,
        "SITE" => Command::Site(site(a)?),
        _ => Command::Security {
            verb: verb.to_owned(),
            argument: String::from_utf8_lossy(skip_blanks(rest)).into_owned(),
        },
    })
}

/// Known words that are not in [`super::VERBS`]: refused ones, and those of RFC 2228 and GSI.
const UNLISTED_VERBS: &[&str] = &[
    "ACCT", "AUTH", "ADAT", "PBSZ", "PROT", "DCAU", "DCSC", "MIC", "ENC", "CONF", "CCC",
];

fn known_verb(verb: &[u8]) -> Option<&'static str> {
    let mut all = super::VERBS.iter().chain(UNLISTED_VERBS);
    all.find(|v| v.as_bytes() == verb).copied()
}

/// What is left of a line, and the verb for errors.
#[derive(Clone, Copy)]
struct Arguments<'a> {
    verb: &'static str,
    rest: &'a [u8],
}

impl<'a> Arguments<'a> {
    fn syntax(self, reason: impl Into<String>) -> CommandError {
        CommandError::Syntax {
            verb: self.verb.to_owned(),
            reason: reason.into(),
        }
    }

    fn parameter(self, parameter: &[u8]) -> CommandError {
        CommandError::Parameter {
            verb: self.verb.to_owned(),
            parameter: printable(parameter, QUOTED_CHARS_MAX),
        }
    }

    /// The rest without leading blanks; an error where nothing is left.
    fn required(self) -> Result<&'a [u8], CommandError> {
        match skip_blanks(self.rest) {
            [] => Err(self.syntax(TOO_FEW)),
            rest => Ok(rest),
        }
    }

    /// The next word, and what follows it.
    fn word(self) -> Result<(&'a [u8], Self), CommandError> {
        let (word, rest) = split_word(self.required()?);
        Ok((word, Self { rest, ..self }))
    }

    fn utf8(self, octets: &[u8]) -> Result<String, CommandError> {
        String::from_utf8(octets.to_vec()).map_err(|_| self.syntax("Argument is not UTF-8."))
    }

    fn text(self) -> Result<String, CommandError> {
        self.utf8(self.required()?)
    }

    fn optional_text(self) -> Result<Option<String>, CommandError> {
        let text = self.utf8(skip_blanks(self.rest))?;
        Ok(Some(text).filter(|t| !t.is_empty()))
    }

    fn path(self) -> Result<FtpPath, CommandError> {
        FtpPath::new(self.required()?).map_err(|e| self.syntax(format!("Invalid path: {e}.")))
    }

    fn optional_path(self) -> Result<Option<FtpPath>, CommandError> {
        if skip_blanks(self.rest).is_empty() {
            return Ok(None);
        }
        self.path().map(Some)
    }

    /// Without leading words that begin with `-`: clients send `LIST -la /dir`.
    fn without_options(mut self) -> Self {
        while let Ok((word, next)) = self.word()
            && word.starts_with(b"-")
        {
            self = next;
        }
        self
    }

    fn number<T: std::str::FromStr>(self) -> Result<(T, Self), CommandError> {
        let (word, next) = self.word()?;
        let number = std::str::from_utf8(word).ok().and_then(decimal);
        match number {
            Some(n) => Ok((n, next)),
            None => Err(self.syntax("Syntax error in parameters or arguments: bad number.")),
        }
    }

    /// A time of exactly 14 digits: MFMT and UTIME know no fractions.
    fn time(self) -> Result<(Timestamp, Self), CommandError> {
        let (word, next) = self.word()?;
        let time = std::str::from_utf8(word).ok().filter(|t| t.len() == 14);
        match time.and_then(Timestamp::parse) {
            Some(t) => Ok((t, next)),
            None => Err(self.syntax("Invalid time: wanted YYYYMMDDHHMMSS.")),
        }
    }

    fn network_protocol(self) -> Result<Option<NetworkProtocol>, CommandError> {
        match split_word(self.rest).0 {
            b"" => Ok(None),
            b"1" => Ok(Some(NetworkProtocol::Ipv4)),
            b"2" => Ok(Some(NetworkProtocol::Ipv6)),
            _ => Err(self.syntax("Invalid protocol.")),
        }
    }

    fn extended_address(self, text: &str) -> Result<SocketAddr, CommandError> {
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

    /// Parameters and path of ERET and ESTO, in the plain form (`P 0 100 path`) or GCT's module form
    /// (`P="0 100" path`). The one module we have is `name`.
    fn module(self, name: &str) -> Result<(Self, FtpPath), CommandError> {
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

fn type_code(a: Arguments<'_>) -> Result<TypeCode, CommandError> {
    let text = a.required()?;
    let (code, form) = split_word(text);
    let form = skip_blanks(form).to_ascii_uppercase();
    match (code.to_ascii_uppercase().as_slice(), form.trim_ascii_end()) {
        (b"A", b"" | b"N") => Ok(TypeCode::Ascii),
        (b"I", b"") | (b"L", b"8") => Ok(TypeCode::Image),
        _ => {
            let shown = printable(text, QUOTED_CHARS_MAX);
            Err(a.syntax(format!("'TYPE {shown}' unrecognized type.")))
        }
    }
}

fn mode(a: Arguments<'_>) -> Result<Mode, CommandError> {
    let text = a.required()?;
    match text.trim_ascii_end().to_ascii_uppercase().as_slice() {
        b"S" => Ok(Mode::Stream),
        b"E" => Ok(Mode::ExtendedBlock),
        _ => {
            let shown = printable(text, QUOTED_CHARS_MAX);
            Err(a.syntax(format!("'MODE {shown}' unrecognized transfer mode.")))
        }
    }
}

fn algorithm<'a>(a: Arguments<'a>) -> Result<(ChecksumAlgorithm, Arguments<'a>), CommandError> {
    let (name, next) = a.word()?;
    let known = std::str::from_utf8(name).ok().and_then(|n| n.parse().ok());
    Ok((known.ok_or_else(|| a.parameter(name))?, next))
}

fn checksum(a: Arguments<'_>) -> Result<Command, CommandError> {
    // All arguments must be there before any is judged.
    let (algorithm_word, rest) = a.word()?;
    let (offset_word, rest) = rest.word()?;
    let (length_word, rest) = rest.word()?;
    let path = rest.path()?;
    let number = |word: &[u8]| std::str::from_utf8(word).ok().and_then(decimal::<u64>);
    let bad = || a.syntax("Invalid length.");
    let algorithm = algorithm(Arguments {
        rest: algorithm_word,
        ..a
    })?
    .0;
    let offset = number(offset_word).ok_or_else(bad)?;
    let length = match length_word {
        b"-1" => None,
        word => Some(number(word).ok_or_else(bad)?),
    };
    if length.is_some_and(|n| offset.checked_add(n).is_none()) {
        return Err(bad());
    }
    Ok(Command::Cksm {
        algorithm,
        offset,
        length,
        path,
    })
}

fn expected_checksum(a: Arguments<'_>) -> Result<Command, CommandError> {
    let (algorithm, next) = algorithm(a)?;
    let (word, _) = next.word()?;
    let value = std::str::from_utf8(word)
        .ok()
        .and_then(|v| algorithm.normalize_value(v))
        .ok_or_else(|| a.syntax("Invalid checksum value."))?;
    Ok(Command::Scks { algorithm, value })
}

fn epsv(a: Arguments<'_>) -> Result<EpsvArgument, CommandError> {
    if split_word(a.rest).0.eq_ignore_ascii_case(b"ALL") {
        return Ok(EpsvArgument::All);
    }
    let protocol = a.network_protocol()?;
    Ok(protocol.map_or(EpsvArgument::Any, EpsvArgument::Protocol))
}

fn striped_addresses(a: Arguments<'_>) -> Result<Vec<SocketAddr>, CommandError> {
    let text = a.text()?;
    let mut addresses = Vec::new();
    for word in text.split(' ').filter(|w| !w.is_empty()) {
        if addresses.len() == hostport::ADDRESSES_MAX {
            return Err(a.syntax("Too many addresses."));
        }
        addresses.push(match hostport::parse_comma(word) {
            Some(addr) => addr,
            None => a.extended_address(word)?,
        });
    }
    Ok(addresses)
}

fn opts(a: Arguments<'_>) -> Result<Opts, CommandError> {
    let (target, rest) = a.word()?;
    let arguments = a.utf8(skip_blanks(rest.rest))?;
    let target = target.to_ascii_uppercase();
    let known = std::str::from_utf8(&target)
        .ok()
        .and_then(|t| Opts::parse(t, &arguments));
    known.ok_or_else(|| a.parameter(skip_blanks(a.rest)))
}

fn site(a: Arguments<'_>) -> Result<Site, CommandError> {
    let (word, a) = a.word()?;
    let Ok(word) = String::from_utf8(word.to_ascii_uppercase()) else {
        return Err(unknown_site(word));
    };
    if BUFFER_WORDS.contains(&word.as_str()) {
        let (bytes, _) = a.number()?;
        return Ok(Site::Buffer { word, bytes });
    }
    if REFUSED_WORDS.contains(&word.as_str()) {
        let argument = String::from_utf8_lossy(skip_blanks(a.rest)).into_owned();
        return Ok(Site::Refused { word, argument });
    }
    Ok(match word.as_str() {
        "HELP" => Site::Help,
        "CLIENTINFO" => Site::ClientInfo(a.text()?),
        "TASKID" => Site::TaskId(a.text()?),
        "WHOAMI" => Site::Whoami,
        "VERSION" => Site::Version,
        "CHMOD" => {
            let (word, rest) = a.word()?;
            let mode = std::str::from_utf8(word)
                .ok()
                .filter(|w| w.bytes().all(|b| b.is_ascii_digit()))
                .and_then(|w| u32::from_str_radix(w, 8).ok())
                .filter(|m| *m <= 0o7777);
            Site::Chmod {
                mode: mode.ok_or_else(|| a.syntax("Invalid mode."))?,
                path: rest.path()?,
            }
        }
        "CHGRP" => {
            let (group, rest) = a.word()?;
            Site::Chgrp {
                group: a.utf8(group)?,
                path: rest.path()?,
            }
        }
        "UTIME" => {
            let (modify, rest) = a.time()?;
            Site::Utime {
                modify,
                path: rest.path()?,
            }
        }
        "TRNC" => {
            let (length, rest) = a.number()?;
            Site::Truncate {
                length,
                path: rest.path()?,
            }
        }
        "RDEL" => Site::RemoveTree(a.path()?),
        "SYMLINKFROM" => Site::SymlinkFrom(a.path()?),
        "SYMLINKTO" => Site::SymlinkTo(a.path()?),
        "SYMLINK" => {
            let (target, rest) = a.word()?;
            let target = Arguments { rest: target, ..a }.path()?;
            let link = rest.path()?;
            if link.as_bytes().contains(&b' ') {
                return Err(a.syntax("Names with blanks: use SITE SYMLINKFROM and SYMLINKTO."));
            }
            Site::Symlink { target, link }
        }
        "STORATTR" => store_attributes(a)?,
        _ => return Err(unknown_site(word.as_bytes())),
    })
}

fn unknown_site(word: &[u8]) -> CommandError {
    CommandError::UnknownVerb(format!("SITE {}", printable(word, QUOTED_CHARS_MAX)))
}

/// `modify=...;x.checksum.md5=...;`, other attributes pass.
fn store_attributes(a: Arguments<'_>) -> Result<Site, CommandError> {
    let (mut modify, mut checksums) = (None, Vec::new());
    let text = a.text()?;
    for (name, value) in text.split(';').filter_map(|p| p.split_once('=')) {
        let name = name.trim_matches(' ').to_ascii_lowercase();
        if name == "modify" {
            let time = Timestamp::parse(value).filter(|_| value.len() == 14);
            modify = Some(time.ok_or_else(|| a.syntax("Invalid modify attribute."))?);
        } else if let Some(algorithm) = name.strip_prefix("x.checksum.") {
            let Ok(algorithm) = algorithm.parse::<ChecksumAlgorithm>() else {
                return Err(a.syntax("Unknown checksum algorithm requested."));
            };
            let value = algorithm.normalize_value(value);
            let value = value.ok_or_else(|| a.syntax("Invalid checksum attribute."))?;
            // A later value replaces an earlier one: at most one per algorithm.
            checksums.retain(|(a, _)| *a != algorithm);
            checksums.push((algorithm, value));
        }
    }
    Ok(Site::StorAttr { modify, checksums })
}

//! A command line to a [`Command`].

mod arguments;
mod site;

use std::net::SocketAddr;

use super::{
    Command, CommandError, EpsvArgument, MarkerEvent, Mode, Password, Region, TOO_FEW, TypeCode,
};
use crate::{
    checksum::ChecksumAlgorithm,
    hostport,
    opts::Opts,
    path::FtpPath,
    restart::RestartPoint,
    text::{decimal, printable, skip_blanks, split_word},
};
use arguments::Arguments;

/// Characters of foreign text that an error keeps.
const QUOTED_CHARS_MAX: usize = 64;

pub(super) fn command(line: &[u8]) -> Result<Command, CommandError> {
    let (word, rest) = split_word(line);
    let Some(verb) = known_verb(word) else {
        let verb = printable(&word.to_ascii_uppercase(), QUOTED_CHARS_MAX);
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
        "STOU" => Command::Stou,
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
        "SITE" => Command::Site(site::site(a)?),
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

/// Words from before RFC 959 that old clients send (RFC 1123 §4.1.3.1), and what they mean.
const OLD_VERBS: &[(&str, &str)] = &[
    ("XCUP", "CDUP"),
    ("XCWD", "CWD"),
    ("XMKD", "MKD"),
    ("XPWD", "PWD"),
    ("XRMD", "RMD"),
];

fn known_verb(word: &[u8]) -> Option<&'static str> {
    let mut old = OLD_VERBS.iter();
    if let Some((_, verb)) = old.find(|(old, _)| old.as_bytes().eq_ignore_ascii_case(word)) {
        return Some(verb);
    }
    let mut all = super::VERBS.iter().chain(UNLISTED_VERBS);
    all.find(|verb| verb.as_bytes().eq_ignore_ascii_case(word))
        .copied()
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
    let (words, path) = region_words(rest)?;
    let algorithm = algorithm(Arguments {
        rest: algorithm_word,
        ..a
    })?
    .0;
    let (offset, length) = region(a, words)?;
    Ok(Command::Cksm {
        algorithm,
        offset,
        length,
        path,
    })
}

/// An offset, a length and the path behind them, as they stand there.
fn region_words<'a>(a: Arguments<'a>) -> Result<([&'a [u8]; 2], FtpPath), CommandError> {
    let (offset, rest) = a.word()?;
    let (length, rest) = rest.word()?;
    Ok(([offset, length], rest.path()?))
}

/// An offset and a length, `None` for `-1`: to the end.
fn region(
    a: Arguments<'_>,
    [offset, length]: [&[u8]; 2],
) -> Result<(u64, Option<u64>), CommandError> {
    let number = |word: &[u8]| std::str::from_utf8(word).ok().and_then(decimal::<u64>);
    let bad = || a.syntax("Invalid length.");
    let offset = number(offset).ok_or_else(bad)?;
    let length = match length {
        b"-1" => None,
        word => Some(number(word).ok_or_else(bad)?),
    };
    if length.is_some_and(|n| offset.checked_add(n).is_none()) {
        return Err(bad());
    }
    Ok((offset, length))
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

//! A [`Command`] to its line.

use std::{io::Write, net::SocketAddr};

use super::{Command, EpsvArgument, MarkerEvent, Mode, NetworkProtocol, TypeCode};
use crate::{
    block_checksums::ALGORITHM, checksum::ChecksumAlgorithm, hostport, live::Live, path::FtpPath,
    site::Site, timestamp::Timestamp,
};

pub(super) fn verb(command: &Command) -> &str {
    match command {
        Command::User(_) => "USER",
        Command::Pass(_) => "PASS",
        Command::Acct => "ACCT",
        Command::Quit => "QUIT",
        Command::Noop => "NOOP",
        Command::Help(_) => "HELP",
        Command::Feat => "FEAT",
        Command::Opts(_) => "OPTS",
        Command::Syst => "SYST",
        Command::Lang(_) => "LANG",
        Command::Stat(_) => "STAT",
        Command::Pwd => "PWD",
        Command::Cwd(_) => "CWD",
        Command::Cdup => "CDUP",
        Command::Mkd(_) => "MKD",
        Command::Rmd(_) => "RMD",
        Command::Dele(_) => "DELE",
        Command::Rnfr(_) => "RNFR",
        Command::Rnto(_) => "RNTO",
        Command::Size(_) => "SIZE",
        Command::Mdtm(_) => "MDTM",
        Command::Mfmt { .. } => "MFMT",
        Command::Mlst(_) => "MLST",
        Command::Mlsd(_) => "MLSD",
        Command::Mlsr(_) => "MLSR",
        Command::Mlsc(_) => "MLSC",
        Command::List(_) | Command::ListAll => "LIST",
        Command::Nlst(_) | Command::NlstAll => "NLST",
        Command::Type(_) => "TYPE",
        Command::Mode(_) => "MODE",
        Command::StruFile => "STRU",
        Command::Rest(_) => "REST",
        Command::Allo(_) => "ALLO",
        Command::Cksm { .. } => "CKSM",
        Command::Scks { .. } => "SCKS",
        Command::Pasv => "PASV",
        Command::Epsv(_) => "EPSV",
        Command::Spas(_) => "SPAS",
        // PORT cannot say an IPv6 address (RFC 2428 §1).
        Command::Port(SocketAddr::V4(_)) => "PORT",
        Command::Port(SocketAddr::V6(_)) | Command::Eprt(_) => "EPRT",
        Command::Spor(_) => "SPOR",
        Command::Retr(_) => "RETR",
        Command::Stor(_) => "STOR",
        Command::Stou => "STOU",
        Command::Appe(_) => "APPE",
        Command::Eret { .. } => "ERET",
        Command::Esto { .. } => "ESTO",
        Command::Trev { .. } => "TREV",
        Command::Sbuf(_) => "SBUF",
        Command::Abor => "ABOR",
        Command::Site(_) => "SITE",
        Command::Security { verb, .. } => verb,
    }
}

pub(super) fn command(command: &Command, out: &mut Vec<u8>) {
    let begins = out.len();
    let mut line = Line(out);
    line.append(verb(command));
    arguments(command, &mut line);
    if out[begins..].contains(&255) {
        let line = out.split_off(begins);
        for part in line.split_inclusive(|byte| *byte == 255) {
            out.extend_from_slice(part);
            // Of two the first says that the second is one.
            out.extend(part.last().filter(|byte| **byte == 255));
        }
    }
    out.extend_from_slice(b"\r\n");
}

fn arguments(command: &Command, line: &mut Line<'_>) {
    match command {
        Command::User(text) | Command::Lang(text) => line.text(text),
        Command::Pass(password) => line.text(password.reveal()),
        Command::Help(topic) => line.texts(topic),
        Command::Opts(opts) => line.text(opts),
        Command::Cwd(path)
        | Command::Mkd(path)
        | Command::Rmd(path)
        | Command::Dele(path)
        | Command::Rnfr(path)
        | Command::Rnto(path)
        | Command::Size(path)
        | Command::Mdtm(path)
        | Command::Retr(path)
        | Command::Stor(path)
        | Command::Appe(path) => line.path(path),
        Command::Stat(path)
        | Command::Mlst(path)
        | Command::Mlsd(path)
        | Command::Mlsr(path)
        | Command::Mlsc(path) => line.paths(path),
        Command::List(path) | Command::Nlst(path) => {
            if let Some(path) = path {
                line.path_behind(path, path.as_bytes().starts_with(b"-"));
            }
        }
        Command::ListAll | Command::NlstAll => line.text("-a"),
        Command::Mfmt { modify, path } => {
            line.text(modify);
            line.path(path);
        }
        Command::Type(TypeCode::Ascii) => line.text("A"),
        Command::Type(TypeCode::Image) => line.text("I"),
        Command::Mode(Mode::Stream) => line.text("S"),
        Command::Mode(Mode::ExtendedBlock) => line.text("E"),
        Command::StruFile => line.text("F"),
        Command::Rest(point) => line.text(point),
        Command::Allo(bytes) | Command::Sbuf(bytes) => line.text(bytes),
        Command::Cksm {
            algorithm,
            offset,
            length,
            path,
        } => {
            line.text(algorithm);
            line.region(*offset, *length, path);
        }
        Command::Scks { algorithm, value } => line.text(format_args!("{algorithm} {value}")),
        Command::Epsv(EpsvArgument::Any) => {}
        Command::Epsv(EpsvArgument::Protocol(protocol)) => line.protocol(*protocol),
        Command::Epsv(EpsvArgument::All) => line.text("ALL"),
        Command::Spas(protocol) => protocol.iter().for_each(|p| line.protocol(*p)),
        Command::Port(addr @ SocketAddr::V4(_)) => line.comma_address(*addr),
        Command::Port(addr @ SocketAddr::V6(_)) | Command::Eprt(addr) => {
            line.text(hostport::format_extended(*addr));
        }
        Command::Spor(addresses) => addresses.iter().for_each(|addr| line.comma_address(*addr)),
        Command::Eret { region, path } => {
            line.text(format_args!("P {} {}", region.offset, region.length));
            line.path(path);
        }
        Command::Esto { offset, path } => {
            line.text(format_args!("A {offset}"));
            line.path(path);
        }
        Command::Trev { event, seconds } => {
            let event = match event {
                MarkerEvent::Restart => "RESTART",
                MarkerEvent::Performance => "PERF",
            };
            line.text(format_args!("{event} {seconds}"));
        }
        Command::Site(site) => site_arguments(site, line),
        Command::Security { argument, .. } if !argument.is_empty() => line.text(argument),
        Command::Security { .. }
        | Command::Acct
        | Command::Quit
        | Command::Noop
        | Command::Feat
        | Command::Syst
        | Command::Pwd
        | Command::Cdup
        | Command::Pasv
        | Command::Stou
        | Command::Abor => {}
    }
}

fn site_arguments(site: &Site, line: &mut Line<'_>) {
    match site {
        Site::Help => line.text("HELP"),
        Site::ClientInfo(info) => line.text(format_args!("CLIENTINFO {info}")),
        Site::TaskId(id) => line.text(format_args!("TASKID {id}")),
        Site::Whoami => line.text("WHOAMI"),
        Site::Version => line.text("VERSION"),
        Site::Chmod { mode, path } => {
            line.text(format_args!("CHMOD {mode:04o}"));
            line.path(path);
        }
        Site::Chgrp { group, path } => {
            line.text(format_args!("CHGRP {group}"));
            line.path(path);
        }
        Site::Utime { modify, path } => {
            line.text(format_args!("UTIME {modify}"));
            line.path(path);
        }
        Site::Truncate { length, path } => {
            line.text(format_args!("TRNC {length}"));
            line.path(path);
        }
        Site::RemoveTree(path) => {
            line.text("RDEL");
            line.path(path);
        }
        Site::SymlinkFrom(path) => {
            line.text("SYMLINKFROM");
            line.path(path);
        }
        Site::SymlinkTo(path) => {
            line.text("SYMLINKTO");
            line.path(path);
        }
        Site::Symlink { target, link } => {
            line.text("SYMLINK");
            line.path(target);
            line.path(link);
        }
        Site::Buffer { word, bytes } => line.text(format_args!("{word} {bytes}")),
        Site::StorAttr { modify, checksums } => {
            line.text("STORATTR ");
            line.attributes(*modify, checksums);
            if modify.is_none() && checksums.is_empty() {
                line.append(";");
            }
        }
        Site::Live(Live::Channels(n, of)) => line.text(format_args!("GODWIT CHANNELS {n} {of}")),
        Site::Live(Live::Report) => line.text("GODWIT REPORT"),
        Site::NextChannels(n) => line.text(format_args!("GODWIT NEXT {n}")),
        Site::Commit(commit) => {
            line.text("GODWIT COMMIT from=");
            line.0.extend_from_slice(commit.temporary.as_bytes());
            line.append(";");
            let expected = &commit.expected;
            if let Some(size) = expected.size {
                line.append(format_args!("size={size};"));
            }
            line.attributes(expected.modify, &expected.checksums);
            line.path(&commit.path);
        }
        Site::BlockChecksums {
            leaf,
            offset,
            length,
            path,
        } => {
            line.text(format_args!("GODWIT LEAVES {ALGORITHM} {leaf}"));
            line.region(*offset, *length, path);
        }
        Site::Stack { word, drivers } => line.text(format_args!("{word} {drivers}")),
        Site::Refused { word, argument } => {
            line.text(word);
            if !argument.is_empty() {
                line.text(argument);
            }
        }
    }
}

/// A line that grows argument by argument.
struct Line<'a>(&'a mut Vec<u8>);

impl Line<'_> {
    /// A blank and the argument.
    fn text(&mut self, argument: impl std::fmt::Display) {
        self.0.push(b' ');
        self.append(argument);
    }

    fn append(&mut self, argument: impl std::fmt::Display) {
        let begins = self.0.len();
        // Writing to a `Vec` cannot fail.
        let _ = write!(self.0, "{argument}");
        for byte in &mut self.0[begins..] {
            if matches!(byte, b'\r' | b'\n' | 0) {
                *byte = b' ';
            }
        }
    }

    /// Facts of a file that is stored, each ended by `;`.
    fn attributes(&mut self, modify: Option<Timestamp>, checksums: &[(ChecksumAlgorithm, String)]) {
        if let Some(modify) = modify {
            self.append(format_args!("modify={modify};"));
        }
        for (algorithm, value) in checksums {
            let name = algorithm.wire_name().to_ascii_lowercase();
            self.append(format_args!("x.checksum.{name}={value};"));
        }
    }

    fn texts(&mut self, argument: &Option<String>) {
        argument.iter().for_each(|a| self.text(a));
    }

    fn path(&mut self, path: &FtpPath) {
        self.path_behind(path, false);
    }

    /// `offset length path`, -1 for the length to the end.
    fn region(&mut self, offset: u64, length: Option<u64>, path: &FtpPath) {
        self.text(offset);
        match length {
            Some(length) => self.text(length),
            None => self.text("-1"),
        }
        self.path(path);
    }

    fn paths(&mut self, path: &Option<FtpPath>) {
        path.iter().for_each(|p| self.path(p));
    }

    /// A path, with `./` before it where it would be misread.
    fn path_behind(&mut self, path: &FtpPath, misread: bool) {
        self.0.push(b' ');
        if misread || path.as_bytes().starts_with(b" ") {
            self.0.extend_from_slice(b"./");
        }
        for byte in path.as_bytes() {
            self.0.push(*byte);
            // Or a server would take it for the end of the line.
            self.0.extend((*byte == b'\r').then_some(0));
        }
    }

    fn protocol(&mut self, protocol: NetworkProtocol) {
        self.text(match protocol {
            NetworkProtocol::Ipv4 => "1",
            NetworkProtocol::Ipv6 => "2",
        });
    }

    /// The old form where it can say the address.
    fn comma_address(&mut self, addr: SocketAddr) {
        self.text(hostport::format_comma(addr).unwrap_or_else(|| hostport::format_extended(addr)));
    }
}

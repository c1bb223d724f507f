//! The commands of our client, with each server.

use Login::{Anonymous, Grid, Password, Ssh, Tls};
use Operation as O;
use Way::{Does, Fails, Lacks};
use godwit_lab::peers::ftps::Kind;

use super::{
    column::{Column, Way},
    operation::Operation,
    place::{Grounds, Login, Server},
    programs::{ours, packaged, spoken},
};
use crate::support::Need;

/// The servers that are met by our client alone.
pub(super) struct Others {
    arc: Option<Server>,
    vsftpd: Option<Server>,
    proftpd: Option<Server>,
    pure_ftpd: Option<Server>,
    pyftpdlib: Option<Server>,
}

impl Others {
    pub(super) fn new(grounds: &Grounds) -> Self {
        use crate::support::have;
        let plain = |kind| have(&[Need::Ftps(kind)]).then(|| grounds.plain(kind));
        Self {
            arc: have(&[Need::ArcServer]).then(|| grounds.arc()),
            vsftpd: plain(Kind::Vsftpd),
            proftpd: plain(Kind::Proftpd),
            pure_ftpd: plain(Kind::PureFtpd),
            pyftpdlib: plain(Kind::Pyftpdlib),
        }
    }
}

pub(super) fn columns<'a>(grounds: &'a Grounds, others: &'a Others) -> Vec<Column<'a>> {
    let column = |name: &'static str,
                  version: Box<dyn Fn() -> String + Sync>,
                  server: Option<&'a Server>,
                  [login, protected]: [Login; 2],
                  way: fn(Operation) -> Way| Column {
        name,
        needs: &[],
        version,
        grounds,
        // With ours the other one is the reference server.
        servers: [
            server,
            match name {
                "godwitd" => grounds.gct.as_ref(),
                _ => Some(&grounds.godwitd),
            },
        ],
        login,
        protected,
        way,
        by_us: true,
        speak: ours,
    };
    let of_package = |package: &'static str| -> Box<dyn Fn() -> String + Sync> {
        Box::new(move || packaged(package))
    };
    let of_program = |kind: Kind, word: &'static str| -> Box<dyn Fn() -> String + Sync> {
        Box::new(move || {
            let mut program = std::process::Command::new(kind.program().expect("present"));
            program.arg(word);
            spoken(program)
        })
    };
    vec![
        column(
            "godwitd",
            Box::new(|| env!("CARGO_PKG_VERSION").to_owned()),
            Some(&grounds.godwitd),
            [Anonymous, Grid],
            with_ours,
        ),
        column(
            "globus-gridftp-server",
            of_package("globus-gridftp-server-progs"),
            grounds.gct.as_ref(),
            [Anonymous, Grid],
            with_gct,
        ),
        column(
            "ARC's gridftpd",
            of_package("nordugrid-arc-gridftpd"),
            others.arc.as_ref(),
            [Grid, Grid],
            with_arc,
        ),
        column(
            "vsftpd",
            of_package("vsftpd"),
            others.vsftpd.as_ref(),
            [Anonymous, Tls],
            with_vsftpd,
        ),
        column(
            "ProFTPD",
            of_program(Kind::Proftpd, "-v"),
            others.proftpd.as_ref(),
            [Password, Tls],
            with_users,
        ),
        column(
            "Pure-FTPd",
            of_program(Kind::PureFtpd, "--help"),
            others.pure_ftpd.as_ref(),
            [Password, Tls],
            with_undemanding,
        ),
        column(
            "pyftpdlib",
            of_package("python3-pyftpdlib"),
            others.pyftpdlib.as_ref(),
            [Password, Tls],
            with_pyftpdlib,
        ),
    ]
}

/// The same words for all.
const fn words(operation: Operation) -> &'static str {
    match operation {
        O::LogIn(_) | O::Get => "cp {url}/file.dat {here}/file.dat",
        O::List => "ls {url}/",
        O::Facts => "ls -l {url}/",
        O::Put => "cp {here}/file.dat {url}/file.dat",
        O::GetPart => "cp --offset 100000 --length 50000 {url}/file.dat {here}/file.dat",
        O::ResumeGet => {
            "cp -c 1 -p 1 --journal {here}/journal --events {here}/events {url}/file.dat \
             {here}/file.dat"
        }
        O::ResumePut => {
            "cp -c 1 -p 1 --journal {here}/journal --events {here}/events {here}/file.dat \
             {url}/file.dat"
        }
        O::GetBySeveral => "cp -c 1 -p 4 --events {here}/events {url}/file.dat {here}/file.dat",
        O::PutBySeveral => "cp -c 1 -p 4 --events {here}/events {here}/file.dat {url}/file.dat",
        O::GetTree => "cp -r {url}/tree {here}/",
        O::PutTree => "cp -r {here}/tree {url}/",
        O::GetPattern => "cp {url}/*.dat {here}/",
        O::Delete => "rm {url}/file.dat",
        O::DeleteTree => "rm -r {url}/tree",
        O::MakeDirectory => "mkdir {url}/made",
        O::Rename => "mv {url}/file.dat {url}/renamed",
        O::Permissions => "chmod 600 {url}/file.dat",
        O::Time => "sync {here}/tree/ {url}/tree/",
        O::Checksum => "cksum -a md5 {url}/file.dat",
        O::FromServer => "cp {url}/file.dat {other}/file.dat",
        O::ToServer => "cp {other}/file.dat {url}/file.dat",
        O::Private | O::Resumed => "cp --protect private {url}/file.dat {here}/file.dat",
        O::Hidden => "cp -r {url}/tree {here}/",
        O::Many => "cp --files-from {here}/names {url} {other}",
        O::Home => "cp {home}/file.dat {here}/file.dat",
    }
}

fn with_ours(operation: Operation) -> Way {
    match operation {
        O::Resumed => Lacks(NOT_DEMANDED),
        _ => Does(words(operation)),
    }
}

fn with_gct(operation: Operation) -> Way {
    match operation {
        O::LogIn(Password) => Lacks(NO_USERS),
        O::LogIn(Tls) | O::Resumed => Lacks("Its TLS is that of GSI."),
        _ => Does(words(operation)),
    }
}

fn with_arc(operation: Operation) -> Way {
    match operation {
        O::LogIn(Anonymous | Password | Tls | Ssh) => {
            Lacks("ARC's server takes grid certificates alone.")
        }
        O::Resumed => Lacks("Its TLS is that of GSI."),
        O::ResumeGet | O::ResumePut => Fails(words(operation), NO_SUMS_TO_RESUME),
        O::GetBySeveral | O::PutBySeveral => Fails(
            words(operation),
            "The server does not say that it has more (PARALLEL): godwit uses one.",
        ),
        O::Checksum => Fails(words(operation), NO_CKSM),
        O::Rename | O::Permissions => {
            Fails(words(operation), "ARC's server does not know the command.")
        }
        O::Time => Fails(words(operation), NO_MFMT),
        _ => Does(words(operation)),
    }
}

fn with_vsftpd(operation: Operation) -> Way {
    match operation {
        O::LogIn(Password) => Lacks(NO_USERS),
        O::DeleteTree | O::Permissions => Fails(
            words(operation),
            "vsftpd does not let anonymous users do it.",
        ),
        O::Time => Fails(words(operation), NO_MFMT),
        _ => plain(operation),
    }
}

fn with_pyftpdlib(operation: Operation) -> Way {
    match operation {
        O::PutTree | O::Time => Lacks(
            "Tried with an empty file, whose STOR pyftpdlib sometimes never answers: its data \
             connection has ended before it looks.",
        ),
        _ => with_undemanding(operation),
    }
}

fn with_undemanding(operation: Operation) -> Way {
    match operation {
        O::Resumed => Lacks(NOT_DEMANDED),
        _ => with_users(operation),
    }
}

fn with_users(operation: Operation) -> Way {
    match operation {
        O::LogIn(Anonymous) => Lacks("Tried with users who have passwords."),
        _ => plain(operation),
    }
}

fn plain(operation: Operation) -> Way {
    match operation {
        O::LogIn(Grid | Ssh) | O::GetBySeveral | O::PutBySeveral => {
            Lacks("An ordinary FTP server.")
        }
        O::Checksum => Fails(words(operation), NO_CKSM),
        _ => Does(words(operation)),
    }
}

const NO_USERS: &str = "Tried without users who have passwords.";
const NOT_DEMANDED: &str = "The server does not demand it.";
const NO_CKSM: &str = "The server tells no checksums.";
const NO_MFMT: &str = "The server has no MFMT.";
const NO_SUMS_TO_RESUME: &str = "godwit continues a file where the server computes checksums of \
                                 its parts, or has REST STREAM and SIZE. This one does neither: \
                                 the file is copied from its first byte.";

//! The words in which tests write down what a shell does, and in which they show what it is told to
//! do.
//!
//! Answers of a shell (`!` lines of a golden file):
//!
//! | Line | Input |
//! |---|---|
//! | `ok` | `Done(Done)` |
//! | `fail ERRNO WHAT` | `Done` with a storage failure, e.g. `fail ENOENT stat /f` |
//! | `facts KIND SIZE` | `Done(Facts)`; KIND is `file` or `dir` |
//! | `listening ADDR...` | `Done(Listening)` |
//! | `page NAME... [more]` | `Done(Listing)`, one file of 7 bytes for each name |
//! | `text WORD`, `checksum HEX` | `Done(Text)`, `Done(Checksum)` |
//! | `leaves LEAF BYTES HEX...` | `Done(BlockChecksums)` |
//! | `account HOME ro\|rw` | `Done(Account)` |
//! | `adat more TOKEN`, `adat done [TOKEN]` | `Done(Adat)` |
//! | `unprotected`, `unreadable` | `Unprotected`, `Unreadable` |
//! | `ready`, `ready reused` | `TransferReady` |
//! | `progress BYTES RANGES` | `TransferProgress`; RANGES as in 111, `-` for none |
//! | `live BYTES CHANNELS`, `live none` | `Live` |
//! | `summed BYTES` | `ChecksumProgress` |
//! | `done BYTES RANGES [cached]` | `TransferDone`, well |
//! | `broken WHY BYTES RANGES` | `TransferDone`, not well; WHY: `ENOENT` and kin, `unconnected`, `lost`, `protocol`, `aborted`, `mismatch`, `limit` |
//! | `tick SECONDS` | time passes; timeouts on the way are handed in |
//! | `closed`, `shutdown` | `Closed`, `Shutdown` |

use std::{net::SocketAddr, time::Duration};

use godwit_proto::{
    ByteRange, RangeSet,
    block_checksums::BlockChecksums,
    command::{Mode, TypeCode},
    error::{StorageFailure, TransferFailure},
    facts::{FactType, Facts},
    live::LiveReport,
    pi::server::{
        Account, AdatStep, DataChannelSpec, Input, ListForm, Outcome, Output, Request,
        TransferKind, TransferRequest,
    },
    security::Dcau,
    timestamp::Timestamp,
};

use super::path;

/// A parsed `!` line.
pub(crate) enum Directive {
    Input(Input<'static>),
    Tick(Duration),
}

pub(crate) fn directive(line: &str) -> Directive {
    let mut words = line.split_whitespace();
    let verb = words.next().expect("a word behind `!`");
    let words: Vec<&str> = words.collect();
    let word = |i: usize| *words.get(i).unwrap_or_else(|| panic!("too short: {line}"));
    let number = |i: usize| -> u64 { word(i).parse().unwrap_or_else(|_| panic!("{line}")) };
    let done = |outcome| Directive::Input(Input::Done(Ok(outcome)));
    match verb {
        "ok" => done(Outcome::Done),
        "fail" => Directive::Input(Input::Done(Err(storage_failure(
            word(0),
            &words[1..].join(" "),
        )))),
        "facts" => done(Outcome::Facts(Box::new(facts(word(0), number(1))))),
        "listening" => done(Outcome::Listening(
            words.iter().map(|w| w.parse().unwrap()).collect(),
        )),
        "page" => {
            let more = words.last() == Some(&"more");
            let names = &words[..words.len() - usize::from(more)];
            done(Outcome::Listing {
                entries: names
                    .iter()
                    .map(|name| (facts("file", 7), name.as_bytes().to_vec()))
                    .collect(),
                last: !more,
            })
        }
        "text" => done(Outcome::Text(word(0).to_owned())),
        "checksum" => done(Outcome::Checksum(word(0).to_owned())),
        "unlike" => done(Outcome::Unlike {
            found: word(0).to_owned(),
            expected: word(1).to_owned(),
        }),
        "leaves" => done(Outcome::BlockChecksums(BlockChecksums {
            leaf: number(0),
            bytes: number(1),
            digests: words[2..]
                .iter()
                .map(|digest| u32::from_str_radix(digest, 16).unwrap())
                .collect(),
        })),
        "account" => done(Outcome::Account {
            name: words.get(2).unwrap_or(&"u").to_string(),
            account: Account {
                home: path(word(0)),
                writable: word(1) == "rw",
                foreign_data_hosts: true,
            },
        }),
        "adat" => done(Outcome::Adat(match word(0) {
            "more" => AdatStep::More(word(1).to_owned()),
            _ => AdatStep::Established(words.get(1).map(|&token| token.to_owned())),
        })),
        "unprotected" => Directive::Input(Input::Unprotected),
        "unreadable" => Directive::Input(Input::Unreadable),
        "ready" => Directive::Input(Input::TransferReady {
            reused: words.first() == Some(&"reused"),
        }),
        "progress" => Directive::Input(Input::TransferProgress {
            bytes: number(0),
            fresh: ranges(word(1)),
        }),
        "live" => Directive::Input(Input::Live((word(0) != "none").then(|| {
            Box::new(LiveReport {
                bytes: number(0),
                channels: u32::try_from(number(1)).unwrap(),
                ..LiveReport::default()
            })
        }))),
        "summed" => Directive::Input(Input::ChecksumProgress(number(0))),
        "done" => Directive::Input(Input::TransferDone {
            bytes: number(0),
            fresh: ranges(word(1)),
            result: Ok(()),
            cached: words.get(2) == Some(&"cached"),
        }),
        "broken" => Directive::Input(Input::TransferDone {
            bytes: number(1),
            fresh: ranges(word(2)),
            result: Err(transfer_failure(word(0))),
            cached: false,
        }),
        "tick" => Directive::Tick(Duration::from_secs(number(0))),
        "closed" => Directive::Input(Input::Closed),
        "shutdown" => Directive::Input(Input::Shutdown),
        _ => panic!("unknown directive: {line}"),
    }
}

fn facts(kind: &str, size: u64) -> Facts {
    let is_dir = kind == "dir";
    Facts {
        kind: Some(if is_dir {
            FactType::Dir
        } else {
            FactType::File
        }),
        size: Some(size),
        modify: Timestamp::parse("20261121060534"),
        perm: Some(if is_dir { "cfmpel" } else { "awr" }.to_owned()),
        unix_mode: Some(if is_dir { 0o755 } else { 0o644 }),
        unix_owner: Some("u".to_owned()),
        unix_uid: Some(1000),
        unix_group: Some("g".to_owned()),
        unix_gid: Some(1000),
        unique: Some("fe00-99a082".to_owned()),
        ..Facts::default()
    }
}

pub(crate) fn storage_failure(errno: &str, doing: &str) -> StorageFailure {
    let (errno, text) = match errno {
        "ENOENT" => (2, "No such file or directory"),
        "EACCES" => (13, "Permission denied"),
        "EEXIST" => (17, "File exists"),
        "ENOTDIR" => (20, "Not a directory"),
        "EISDIR" => (21, "Is a directory"),
        "ENOSPC" => (28, "No space left on device"),
        "ERANGE" => (34, "Numerical result out of range"),
        "EAFNOSUPPORT" => (97, "Address family not supported by protocol"),
        "EDQUOT" => (122, "Disk quota exceeded"),
        other => panic!("unknown errno {other}"),
    };
    StorageFailure {
        errno,
        doing: doing.to_owned(),
        text: text.to_owned(),
    }
}

fn transfer_failure(why: &str) -> TransferFailure {
    match why {
        "unconnected" => TransferFailure::NoConnection("no connection came within 60 s".to_owned()),
        "lost" => TransferFailure::ConnectionLost("closed before its EOD".to_owned()),
        "protocol" => TransferFailure::Protocol("a second EOF block".to_owned()),
        "aborted" => TransferFailure::Aborted,
        "mismatch" => TransferFailure::Checksum {
            computed: "00000000".to_owned(),
            expected: "ffffffff".to_owned(),
        },
        "limit" => TransferFailure::Limit("1000 channels".to_owned()),
        errno => TransferFailure::Storage(storage_failure(errno, "open /f")),
    }
}

pub(crate) fn ranges(text: &str) -> RangeSet {
    text.split(',')
        .filter(|r| *r != "-")
        .map(|range| {
            let (start, end) = range.split_once('-').unwrap();
            ByteRange::new(start.parse().unwrap(), end.parse().unwrap()).unwrap()
        })
        .collect()
}

/// What the shell is told, on one line. `None` for bytes, which have lines of their own.
pub(crate) fn describe(output: &Output) -> Option<String> {
    Some(match output {
        Output::Send(_) => return None,
        Output::Request(Request::Listen(spec, protocol)) => {
            format!("Listen {protocol:?} {}", describe_spec(spec))
        }
        Output::Request(Request::ConnectTo(spec, addresses)) => {
            let addresses: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
            format!("ConnectTo {} {}", addresses.join(" "), describe_spec(spec))
        }
        Output::Request(request) => format!("{request:?}"),
        Output::StartTransfer(request) => describe_transfer("StartTransfer", request),
        Output::SpeculativeRequest(request) => format!("Speculate {request:?}"),
        Output::SpeculativeTransfer(request) => describe_transfer("Speculate", request),
        other => format!("{other:?}"),
    })
}

fn describe_spec(spec: &DataChannelSpec) -> String {
    let mut text = format!("parallelism={}", spec.parallelism);
    if let Some(layout) = spec.layout {
        text += &format!(" layout={layout:?}");
    }
    if let Some(bytes) = spec.socket_buffer_bytes {
        text += &format!(" buffers={bytes}");
    }
    if spec.dcau != Dcau::None {
        text += &format!(" dcau={} protection={}", spec.dcau, spec.protection);
    }
    text
}

fn describe_transfer(what: &str, request: &TransferRequest) -> String {
    let mut text = format!("{what} ");
    match &request.kind {
        TransferKind::Send {
            path,
            region,
            restart,
        } => {
            text += &format!("send {path}");
            if let Some(region) = region {
                text += &format!(" region={}+{}", region.offset, region.length);
            }
            if let Some(restart) = restart {
                text += &format!(" restart={restart}");
            }
        }
        TransferKind::Receive {
            path,
            placement,
            restart,
            expected_bytes,
            checksums,
            modify,
        } => {
            text += &format!("receive {path} {placement:?}");
            if let Some(restart) = restart {
                text += &format!(" restart={restart}");
            }
            if let Some(bytes) = expected_bytes {
                text += &format!(" expected={bytes}");
            }
            for (algorithm, value) in checksums {
                text += &format!(" {algorithm}={value}");
            }
            if let Some(modify) = modify {
                text += &format!(" modify={modify}");
            }
        }
        TransferKind::List { path, form } => {
            text += &format!("list {path} {}", describe_form(*form));
        }
    }
    text += match request.mode {
        Mode::Stream => " S",
        Mode::ExtendedBlock => " E",
    };
    if request.type_code == TypeCode::Ascii {
        text += " ascii";
    }
    if request.reuse {
        text += " reuse";
    }
    text
}

fn describe_form(form: ListForm) -> String {
    match form {
        ListForm::Facts(selection) => format!("Facts({})", selection.feature_line()),
        ListForm::FactsRecursive {
            selection,
            continue_on_error,
            follow_links,
        } => format!(
            "FactsRecursive({}) continue={continue_on_error} follow={follow_links}",
            selection.feature_line()
        ),
        other => format!("{other:?}"),
    }
}

//! Generators of the protocol's words, as far as each can be said on the wire.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use godwit_proto::{
    ByteRange, ChecksumAlgorithm, Command, FtpPath, RangeSet, Reply, ReplyCode, RestartPoint,
    block_checksums::{BLOCK_BYTES_MIN, BLOCKS_MAX},
    command::{EpsvArgument, MarkerEvent, Mode, NetworkProtocol, Password, Region, TypeCode},
    facts::{FactType, Facts},
    live::{Live, LiveReport},
    mode_e::layout::StripeLayout,
    opts::{Opts, Parallelism, RetrOptions},
    reply::BodyStyle,
    site::{BUFFER_WORDS, Site},
    timestamp::Timestamp,
    url::{RemoteUrl, Scheme},
};
use proptest::{collection::vec, option, prelude::*, sample::select};

/// A path whose first byte is neither blank nor `-`: such get `./` when written.
pub(crate) fn path() -> impl Strategy<Value = FtpPath> {
    vec(any::<u8>(), 1..40).prop_filter_map("not a path", |bytes| {
        let sound = !matches!(bytes[0], b' ' | b'-');
        sound.then(|| FtpPath::new(bytes).ok())?
    })
}

/// A path without blanks.
fn word_path() -> impl Strategy<Value = FtpPath> {
    path().prop_filter("blank inside", |p| !p.as_bytes().contains(&b' '))
}

/// A text without control characters that does not begin with a blank.
pub(crate) fn text() -> impl Strategy<Value = String> {
    "[^\\pC ][^\\pC]{0,20}"
}

pub(crate) fn timestamp() -> impl Strategy<Value = Timestamp> {
    (Timestamp::MIN.0..=Timestamp::MAX.0).prop_map(Timestamp)
}

pub(crate) fn address_v4() -> impl Strategy<Value = SocketAddr> {
    (any::<Ipv4Addr>(), any::<u16>()).prop_map(SocketAddr::from)
}

pub(crate) fn address() -> impl Strategy<Value = SocketAddr> {
    let v6 = (any::<Ipv6Addr>(), any::<u16>()).prop_map(|(ip, port)| (IpAddr::V6(ip), port).into());
    prop_oneof![address_v4(), v6]
}

pub(crate) fn algorithm() -> impl Strategy<Value = ChecksumAlgorithm> {
    select(ChecksumAlgorithm::ALL.to_vec())
}

fn checksum() -> impl Strategy<Value = (ChecksumAlgorithm, String)> {
    algorithm().prop_flat_map(|algorithm| {
        let digits = vec(select(b"0123456789abcdef".to_vec()), algorithm.hex_digits());
        digits.prop_map(move |d| (algorithm, d.into_iter().map(char::from).collect()))
    })
}

/// Ranges with small and with large numbers.
pub(crate) fn range_set() -> impl Strategy<Value = RangeSet> {
    let number = || prop_oneof![0_u64..200, any::<u64>()];
    vec((number(), number()), 0..12).prop_map(|pairs| {
        let ranges = pairs
            .into_iter()
            .filter_map(|(a, b)| ByteRange::new(a.min(b), a.max(b)));
        ranges.collect()
    })
}

pub(crate) fn restart_point() -> impl Strategy<Value = RestartPoint> {
    prop_oneof![
        any::<u64>().prop_map(RestartPoint::Offset),
        range_set().prop_map(RestartPoint::Ranges),
    ]
}

fn network_protocol() -> impl Strategy<Value = NetworkProtocol> {
    select(vec![NetworkProtocol::Ipv4, NetworkProtocol::Ipv6])
}

fn layout() -> impl Strategy<Value = StripeLayout> {
    prop_oneof![
        Just(StripeLayout::Partitioned),
        (1..=u64::MAX).prop_map(|block_bytes| StripeLayout::Blocked { block_bytes }),
    ]
}

fn opts() -> impl Strategy<Value = Opts> {
    let parallelism = (1..=u32::MAX, any::<u32>(), any::<u32>())
        .prop_map(|(start, min, max)| Parallelism { start, min, max });
    let retr = (
        option::of(parallelism),
        option::of(layout()),
        option::of(any::<u64>()),
        option::of(any::<u64>()),
        option::of(any::<u32>()),
        option::of(any::<bool>()),
    )
        .prop_map(
            |(parallelism, layout, packet_bytes, window_bytes, marker_seconds, holes)| {
                Opts::Retr(RetrOptions {
                    parallelism,
                    layout,
                    packet_bytes,
                    window_bytes,
                    marker_seconds,
                    holes,
                })
            },
        );
    prop_oneof![
        retr,
        any::<bool>().prop_map(Opts::AllowDelayed),
        "([A-Za-z.]{1,8};){0,4}".prop_map(Opts::Mlst),
        any::<(bool, bool)>().prop_map(|(continue_on_error, follow_links)| Opts::Mlsr {
            continue_on_error,
            follow_links
        }),
        any::<u32>().prop_map(|marker_seconds| Opts::Cksm { marker_seconds }),
        any::<bool>().prop_map(Opts::Utf8),
    ]
}

fn site() -> impl Strategy<Value = Site> {
    let stor_attr =
        (option::of(timestamp()), option::of(checksum())).prop_map(|(modify, checksum)| {
            Site::StorAttr {
                modify,
                checksums: checksum.into_iter().collect(),
            }
        });
    prop_oneof![
        Just(Site::Help),
        Just(Site::Whoami),
        Just(Site::Version),
        text().prop_map(Site::ClientInfo),
        text().prop_map(Site::TaskId),
        (0_u32..=0o7777, path()).prop_map(|(mode, path)| Site::Chmod { mode, path }),
        ("[a-z0-9_]{1,8}", path()).prop_map(|(group, path)| Site::Chgrp { group, path }),
        (timestamp(), path()).prop_map(|(modify, path)| Site::Utime { modify, path }),
        (any::<u64>(), path()).prop_map(|(length, path)| Site::Truncate { length, path }),
        path().prop_map(Site::RemoveTree),
        path().prop_map(Site::SymlinkFrom),
        path().prop_map(Site::SymlinkTo),
        (word_path(), word_path()).prop_map(|(target, link)| Site::Symlink { target, link }),
        (select(BUFFER_WORDS), any::<u64>()).prop_map(|(word, bytes)| Site::Buffer {
            word: word.to_owned(),
            bytes
        }),
        stor_attr,
        (1_u32.., any::<u64>()).prop_map(|(n, of)| Site::Live(Live::Channels(n, of))),
        Just(Site::Live(Live::Report)),
        (
            BLOCK_BYTES_MIN..,
            any::<u32>(),
            option::of(0..=BLOCKS_MAX * BLOCK_BYTES_MIN),
            path()
        )
            .prop_map(|(leaf, offset, length, path)| Site::BlockChecksums {
                leaf,
                offset: offset.into(),
                length,
                path,
            }),
        (select(vec!["DSI", "FAULT"]), option::of(text())).prop_map(|(word, argument)| {
            Site::Refused {
                word: word.to_owned(),
                argument: argument.unwrap_or_default(),
            }
        }),
    ]
}

pub(crate) fn live_report() -> impl Strategy<Value = LiveReport> {
    (
        any::<(u64, u32)>(),
        prop::array::uniform17(option::of(any::<u64>())),
    )
        .prop_map(|((bytes, channels), facts)| LiveReport {
            bytes,
            channels,
            acknowledged: facts[0],
            segments_sent: facts[1],
            segments_retransmitted: facts[2],
            bytes_retransmitted: facts[3],
            channel_us: facts[4],
            busy_us: facts[5],
            receive_window_limited_us: facts[6],
            send_buffer_limited_us: facts[7],
            rtt_us: facts[8],
            rtt_min_us: facts[9],
            delivery_rate_bps: facts[10],
            movers: facts[11],
            mover_us: facts[12],
            running_us: facts[13],
            runnable_us: facts[14],
            read_us: facts[15],
            write_us: facts[16],
        })
}

fn session_command() -> impl Strategy<Value = Command> {
    prop_oneof![
        text().prop_map(Command::User),
        "[^\\pC]{0,20}".prop_map(|p: String| Command::Pass(Password::new(p))),
        select(vec![
            Command::Acct,
            Command::Quit,
            Command::Noop,
            Command::Feat,
            Command::Syst,
            Command::Pwd,
            Command::Cdup,
            Command::StruFile,
            Command::Pasv,
            Command::Abor,
            Command::Type(TypeCode::Ascii),
            Command::Type(TypeCode::Image),
            Command::Mode(Mode::Stream),
            Command::Mode(Mode::ExtendedBlock),
            Command::Epsv(EpsvArgument::Any),
            Command::Epsv(EpsvArgument::All),
        ]),
        option::of(text()).prop_map(Command::Help),
        text().prop_map(Command::Lang),
        opts().prop_map(Command::Opts),
        site().prop_map(Command::Site),
        any::<u64>().prop_map(Command::Sbuf),
        (any::<bool>(), any::<u32>()).prop_map(|(restart, seconds)| Command::Trev {
            event: if restart {
                MarkerEvent::Restart
            } else {
                MarkerEvent::Performance
            },
            seconds,
        }),
        network_protocol().prop_map(|p| Command::Epsv(EpsvArgument::Protocol(p))),
        option::of(network_protocol()).prop_map(Command::Spas),
        address_v4().prop_map(Command::Port),
        address().prop_map(Command::Eprt),
        vec(address(), 1..5).prop_map(Command::Spor),
        (
            select(vec!["AUTH", "ADAT", "PROT", "DCSC", "ENC"]),
            option::of(text())
        )
            .prop_map(|(verb, argument)| Command::Security {
                verb: verb.to_owned(),
                argument: argument.unwrap_or_default(),
            }),
    ]
}

fn file_command() -> impl Strategy<Value = Command> {
    let one_path = select(vec![
        Command::Cwd as fn(FtpPath) -> Command,
        Command::Mkd,
        Command::Rmd,
        Command::Dele,
        Command::Rnfr,
        Command::Rnto,
        Command::Size,
        Command::Mdtm,
        Command::Retr,
        Command::Stor,
        Command::Appe,
    ]);
    let maybe_path = select(vec![
        Command::Stat as fn(Option<FtpPath>) -> Command,
        Command::Mlst,
        Command::Mlsd,
        Command::Mlsr,
        Command::Mlsc,
        Command::List,
        Command::Nlst,
    ]);
    let part = || (any::<u64>(), any::<u64>()).prop_map(|(a, b)| (a.min(b), a.max(b) - a.min(b)));
    prop_oneof![
        (one_path, path()).prop_map(|(make, path)| make(path)),
        (maybe_path, option::of(path())).prop_map(|(make, path)| make(path)),
        (timestamp(), path()).prop_map(|(modify, path)| Command::Mfmt { modify, path }),
        restart_point().prop_map(Command::Rest),
        any::<u64>().prop_map(Command::Allo),
        (algorithm(), part(), any::<bool>(), path()).prop_map(
            |(algorithm, (offset, length), whole, path)| Command::Cksm {
                algorithm,
                offset,
                length: Some(length).filter(|_| !whole),
                path,
            }
        ),
        checksum().prop_map(|(algorithm, value)| Command::Scks { algorithm, value }),
        (part(), path()).prop_map(|((offset, length), path)| Command::Eret {
            region: Region { offset, length },
            path
        }),
        (any::<u64>(), path()).prop_map(|(offset, path)| Command::Esto { offset, path }),
    ]
}

pub(crate) fn command() -> impl Strategy<Value = Command> {
    prop_oneof![session_command(), file_command()]
}

/// Any bytes, with what could mislead a reader made likely.
pub(crate) fn hostile_line() -> impl Strategy<Value = Vec<u8>> {
    let pieces = select(vec![
        &b"226 "[..],
        b"250",
        b"250 End.",
        b"250-",
        b"\r\n",
        b"\n",
        b"\r",
        b"\0",
        b" ",
        b"-",
        b"Type=file; x",
        b"\xff",
        b"",
    ])
    .prop_map(<[u8]>::to_vec);
    vec(prop_oneof![pieces, vec(any::<u8>(), 0..6)], 0..5).prop_map(|v| v.concat())
}

fn reply_of(line: impl Strategy<Value = Vec<u8>> + Clone) -> impl Strategy<Value = Reply> {
    let style = select(vec![BodyStyle::Blank, BodyStyle::Code]);
    (100_u16..=699, vec(line, 1..6), style).prop_map(|(code, lines, style)| Reply {
        code: ReplyCode::new(code).unwrap(),
        lines,
        style,
    })
}

/// Replies as careless callers could build them.
pub(crate) fn hostile_reply() -> impl Strategy<Value = Reply> {
    reply_of(hostile_line().boxed())
}

/// Replies that are read as they were written: no line is empty or holds what lines cannot.
pub(crate) fn reply() -> impl Strategy<Value = Reply> {
    let line = vec(any::<u8>(), 1..20).prop_filter("no line", |l| {
        !l.iter().any(|b| matches!(b, 0 | b'\r' | b'\n'))
    });
    reply_of(line.boxed()).prop_map(|mut reply| {
        // The style shows on body lines only.
        if reply.lines.len() < 3 {
            reply.style = BodyStyle::Blank;
        }
        reply
    })
}

pub(crate) fn facts() -> impl Strategy<Value = Facts> {
    let kind = prop_oneof![
        select(vec![
            FactType::File,
            FactType::Dir,
            FactType::Cdir,
            FactType::Pdir
        ]),
        "OS\\.unix=[a-z]{1,5}".prop_map(FactType::Other),
    ];
    let name = || option::of("\\PC{1,8}");
    let id = || option::of(any::<u32>());
    (
        kind,
        (
            option::of(any::<u64>()),
            option::of(timestamp()),
            option::of("[a-z]{0,5}"),
        ),
        (option::of(0_u32..=0o7777), name(), id(), name(), id()),
        (
            name(),
            option::of(vec(any::<u8>(), 1..10)),
            option::of(any::<u64>()),
            name(),
        ),
    )
        .prop_map(
            |(kind, (size, modify, perm), unix, (unique, unix_slink, count, error))| {
                let (unix_mode, unix_owner, unix_uid, unix_group, unix_gid) = unix;
                Facts {
                    kind: Some(kind),
                    size,
                    modify,
                    perm,
                    unix_mode,
                    unix_owner,
                    unix_uid,
                    unix_group,
                    unix_gid,
                    unique,
                    unix_slink,
                    count,
                    error,
                }
            },
        )
}

pub(crate) fn remote_url() -> impl Strategy<Value = RemoteUrl> {
    let host = prop_oneof![
        "[a-z0-9][a-z0-9.-]{0,20}",
        any::<Ipv4Addr>().prop_map(|ip| ip.to_string()),
        any::<Ipv6Addr>().prop_map(|ip| ip.to_string()),
    ];
    let absolute = vec(any::<u8>(), 0..20).prop_filter_map("not a path", |bytes| {
        let mut path = vec![b'/'];
        for byte in bytes {
            if byte != b'/' || path.last() != Some(&b'/') {
                path.push(byte);
            }
        }
        FtpPath::new(path).ok()
    });
    (
        select(Scheme::ALL.to_vec()),
        option::of("\\PC{1,10}"),
        host,
        1..=u16::MAX,
        absolute,
    )
        .prop_map(|(scheme, user, host, port, path)| RemoteUrl {
            scheme,
            user,
            password: None,
            host,
            // A bucket has none of its own.
            port: if scheme == Scheme::S3 { 443 } else { port },
            path,
        })
}

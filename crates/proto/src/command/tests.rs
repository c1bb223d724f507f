use super::*;
use crate::{mode_e::layout::StripeLayout, opts::*};

fn path(s: &str) -> FtpPath {
    FtpPath::received(s).unwrap()
}

fn parsed(line: &str) -> Command {
    Command::parse(line.as_bytes()).unwrap_or_else(|e| panic!("{line}: {e}"))
}

fn written(command: &Command) -> String {
    let mut out = Vec::new();
    command.write_to(&mut out);
    String::from_utf8(out).unwrap()
}

fn refusal(line: &str) -> String {
    Command::parse(line.as_bytes())
        .unwrap_err()
        .reply()
        .to_string()
}

#[test]
fn lines_that_are_written_as_they_are_read() {
    for line in [
        "USER anonymous",
        "USER :globus-mapping:",
        "PASS  leading blank",
        "ACCT",
        "QUIT",
        "NOOP",
        "HELP",
        "HELP STOR",
        "FEAT",
        "SYST",
        "LANG EN",
        "STAT",
        "STAT /p",
        "PWD",
        "CWD /a b/\"c\"",
        "CDUP",
        "MKD /d",
        "RMD /d",
        "DELE x ",
        "RNFR a",
        "RNTO b",
        "SIZE /s/a1",
        "MDTM 20260101000000 /f",
        "MFMT 20260101000000 /a b",
        "MLST",
        "MLST /data/a1",
        "MLSD /dir/",
        "MLSR",
        "MLSC /d",
        "LIST",
        "LIST /d",
        "NLST *.dat",
        "TYPE A",
        "TYPE I",
        "MODE S",
        "MODE E",
        "STRU F",
        "REST 12345",
        "REST 0-29,60-89",
        "ALLO 3000",
        "CKSM MD5 0 -1 /src",
        "CKSM ADLER32 5 18446744073709551610 p q",
        "SCKS ADLER32 002c0011",
        "PASV",
        "EPSV",
        "EPSV 1",
        "EPSV 2",
        "EPSV ALL",
        "SPAS",
        "SPAS 2",
        "PORT 127,0,0,1,142,177",
        "EPRT |2|::1|5282|",
        "SPOR 127,0,0,1,142,177 10,0,0,9,2,1",
        "SPOR |2|::1|5282|",
        "RETR /f",
        "STOR /d/a1",
        "STOU",
        "APPE /f",
        "ERET P 100 50 /f g",
        "ESTO A 100 /f",
        "TREV RESTART 5",
        "TREV PERF 1",
        "SBUF 65536",
        "ABOR",
        "OPTS RETR Parallelism=4,4,4;",
        "OPTS RETR StripeLayout=Blocked;BlockSize=1048576;",
        "OPTS RETR StripeLayout=Partitioned;PacketSize=1;WindowSize=2;Markers=3;",
        "OPTS PASV AllowDelayed=1;",
        "OPTS MLST Type;Size;",
        "OPTS MLST",
        "OPTS MLSR OnError=continue;TraverseSymbolicLinks=true;",
        "OPTS CKSM Markers=5;",
        "OPTS UTF8 ON",
        "SITE HELP",
        "SITE CLIENTINFO scheme=gsiftp;appname=\"x y\";appver=\"1\";",
        "SITE TASKID 12",
        "SITE WHOAMI",
        "SITE VERSION",
        "SITE CHMOD 0600 /a b",
        "SITE CHGRP users /f",
        "SITE UTIME 20260101000000 /f",
        "SITE TRNC 10 /f",
        "SITE RDEL /d",
        "SITE SYMLINKFROM a b",
        "SITE SYMLINKTO c",
        "SITE SYMLINK a b",
        "SITE RETRBUFSIZE 65536",
        "SITE STORATTR modify=20260101000000;x.checksum.md5=0123456789abcdef0123456789abcdef;",
        "SITE GODWIT CHANNELS 4 17",
        "SITE GODWIT REPORT",
        "SITE GODWIT NEXT 4",
        "SITE GODWIT COMMIT from=.a.part; b c",
        "SITE GODWIT COMMIT from=.a.part;size=12;modify=20260101000000;x.checksum.crc32c=617154c9; \
         /d/b",
        "SITE STORATTR ;",
        "SITE SETNETSTACK tcp,gsi",
        "SITE SETDISKSTACK file",
        "SITE DSI file",
        "SITE FAULT",
        "AUTH GSSAPI",
        "ADAT FgMB",
        "CCC",
    ] {
        let command = parsed(line);
        assert_eq!(written(&command), format!("{line}\r\n"));
        assert!(line.starts_with(command.verb()), "{line}");
    }
}

#[test]
fn lines_that_are_read_leniently() {
    for (line, want) in [
        ("retr /f", Command::Retr(path("/f"))),
        (
            "sItE chmod 600 /f",
            Command::Site(Site::Chmod {
                mode: 0o600,
                path: path("/f"),
            }),
        ),
        ("XPWD", Command::Pwd),
        ("xcwd  /", Command::Cwd(path(" /"))),
        ("XCUP", Command::Cdup),
        ("XMKD d", Command::Mkd(path("d"))),
        ("XRMD d", Command::Rmd(path("d"))),
        ("STOU f", Command::Stou),
        // gfal2 sends st_mode.
        ("SITE CHMOD 100644 /f", parsed("SITE CHMOD 0644 /f")),
        ("SITE CHMOD 104755 /f", parsed("SITE CHMOD 4755 /f")),
        ("TYPE a n", Command::Type(TypeCode::Ascii)),
        ("TYPE L 8", Command::Type(TypeCode::Image)),
        ("mode e ", Command::Mode(Mode::ExtendedBlock)),
        ("LIST -la --full /d", Command::List(Some(path("/d")))),
        ("LIST -la", Command::List(None)),
        ("NOOP whatever", Command::Noop),
        ("PASS", Command::Pass(Password::default())),
        ("LANG", Command::Lang("EN".into())),
        ("ALLO 10 R 5", Command::Allo(10)),
        ("SCKS adler32 2C0011", parsed("SCKS ADLER32 002c0011")),
        ("ERET P=\"100 50\" /f g", parsed("ERET P 100 50 /f g")),
        ("ESTO a=\"7\" /f", parsed("ESTO A 7 /f")),
        (
            "OPTS EPSV allowdelayed=0",
            Command::Opts(Opts::AllowDelayed(false)),
        ),
        ("OPTS UTF8", Command::Opts(Opts::Utf8(true))),
        (
            "SITE STORATTR X.foo=1;Modify=20260101000000",
            parsed("SITE STORATTR modify=20260101000000;"),
        ),
        (
            "ENC  abc=",
            Command::Security {
                verb: "ENC".into(),
                argument: "abc=".into(),
            },
        ),
    ] {
        assert_eq!(parsed(line), want, "{line}");
    }
    let Command::Opts(Opts::Retr(options)) =
        parsed("OPTS RETR parallelism=3;stripelayout=blocked;blocksize=9")
    else {
        panic!("not OPTS RETR");
    };
    assert_eq!(
        options.parallelism,
        Some(Parallelism {
            start: 3,
            min: 3,
            max: 3
        })
    );
    assert_eq!(
        options.layout,
        Some(StripeLayout::Blocked { block_bytes: 9 })
    );
}

#[test]
fn refusals_say_what_the_protocol_reference_says() {
    const UNKNOWN: &str = "500 Command not supported.";
    const TOO_FEW: &str = "501 Syntax error in parameters or arguments.";
    for (line, want) in [
        ("", UNKNOWN),
        ("REIN", UNKNOWN),
        ("XSHA /f", UNKNOWN),
        ("\x01\u{ff}", UNKNOWN),
        ("SITE TASKNAME x", "500 Invalid command."),
        ("SITE", TOO_FEW),
        ("RETR", TOO_FEW),
        ("RETR ", TOO_FEW),
        ("CKSM MD5 0 -1 ", TOO_FEW),
        ("CKSM MD5 0 -1", TOO_FEW),
        ("CKSM FOO 0", TOO_FEW),
        ("MFMT 20260101000000", TOO_FEW),
        ("ERET P 0 1", TOO_FEW),
        ("PORT", TOO_FEW),
        ("TYPE E", "501 'TYPE E' unrecognized type."),
        ("MODE X", "501 'MODE X' unrecognized transfer mode."),
        ("STRU R", "501 Syntax error in parameter."),
        ("REST x", "501 bad parameter."),
        (
            "CKSM FOO 0 -1 /f",
            "500 Unknown checksum algorithm requested.",
        ),
        ("CKSM MD5 0 -2 /f", "500 Invalid length."),
        ("CKSM MD5 18446744073709551615 1 /f", "500 Invalid length."),
        ("EPSV 3", "501 Invalid protocol."),
        ("PORT 1,2,3", "501 Illegal PORT command."),
        (
            "EPRT |3|x|5|",
            "522 Network protocol not supported, use (1,2).",
        ),
        ("EPRT |1|::1|5|", "501 Malformed argument."),
        ("EPRT x", "501 Malformed argument."),
        (
            "ERET X 0 1 /f",
            "504 Command not implemented for that parameter.",
        ),
        (
            "ERET tar=\"x\" /f",
            "504 Command not implemented for that parameter.",
        ),
        ("TREV FOO 1", "502 Unsupported event."),
        ("SBUF x", "502 Invalid Parameter."),
        ("OPTS STOR x=1;", "500 OPTS failed."),
        ("OPTS RETR Parallelism=0,0,0;", "500 OPTS failed."),
        ("OPTS RETR Foo=1;", "500 OPTS failed."),
        ("MFMT 2026 /f", "501 Invalid time: wanted YYYYMMDDHHMMSS."),
        ("SITE CHMOD 888 /f", "501 Invalid mode."),
    ] {
        assert_eq!(refusal(line), want, "{line:?}");
    }
    let long = "x".repeat(60_000);
    let error = Command::parse(long.as_bytes()).unwrap_err();
    assert!(error.to_string().len() < 300);
    assert!(refusal(&format!("TYPE {long}")).len() < 300);
}

#[test]
fn every_verb_is_known() {
    for verb in VERBS {
        let bare = Command::parse(verb.as_bytes());
        assert!(!matches!(bare, Err(CommandError::UnknownVerb(_))), "{verb}");
    }
    for word in crate::site::WORDS {
        let bare = Command::parse(format!("SITE {word}").as_bytes());
        assert!(!matches!(bare, Err(CommandError::UnknownVerb(_))), "{word}");
    }
}

#[test]
fn a_text_cannot_smuggle_a_second_command() {
    let sent = written(&Command::User("a\r\nDELE /f\0".into()));
    assert_eq!(sent, "USER a  DELE /f \r\n");
}

#[test]
fn paths_that_would_be_misread_get_a_dot() {
    assert_eq!(written(&Command::List(Some(path("-x")))), "LIST ./-x\r\n");
    assert_eq!(written(&Command::ListAll), "LIST -a\r\n");
    assert_eq!(written(&Command::NlstAll), "NLST -a\r\n");
    assert_eq!(written(&Command::Retr(path("-x"))), "RETR -x\r\n");
    assert_eq!(written(&Command::Retr(path(" x"))), "RETR ./ x\r\n");
}

#[test]
fn a_name_is_everything_behind_one_blank() {
    // With a name of its own for each, none may end as another's.
    for name in [" x", "x ", "  ", "\tx\t", "x\r", " -a x"] {
        for verb in [
            "STAT",
            "CWD",
            "MKD",
            "RMD",
            "DELE",
            "RNFR",
            "RNTO",
            "SIZE",
            "MDTM",
            "MFMT 20260101000000",
            "MLST",
            "MLSD",
            "MLSR",
            "MLSC",
            "LIST",
            "LIST -a -l",
            "NLST",
            "NLST -a",
            "CKSM MD5 0 -1",
            "RETR",
            "STOR",
            "APPE",
            "ERET P 0 1",
            "ERET P=\"0 1\"",
            "ESTO A 0",
            "ESTO A=\"0\"",
            "SITE CHMOD 0600",
            "SITE CHGRP g",
            "SITE UTIME 20260101000000",
            "SITE TRNC 1",
            "SITE RDEL",
            "SITE SYMLINKFROM",
            "SITE SYMLINKTO",
            "SITE GODWIT COMMIT from=a;",
            "SITE GODWIT LEAVES CRC32C 65536 0 1",
        ] {
            let command = parsed(&format!("{verb} {name}"));
            let debug = format!("{command:?}");
            assert!(
                debug.contains(&format!("{:?}", path(name))),
                "{verb} {name:?}: {debug}"
            );
        }
    }
    for line in ["SITE SYMLINK  a b", "SITE SYMLINK a  b"] {
        assert!(refusal(line).contains("SYMLINKFROM"), "{line}");
    }
}

#[test]
fn byte_255_survives_telnet() {
    let command = Command::Dele(FtpPath::new(*b"a\xffb").unwrap());
    let mut out = Vec::new();
    command.write_to(&mut out);
    assert_eq!(out, b"DELE a\xff\xffb\r\n");
    // Behind what is there it is the same.
    command.write_to(&mut out);
    assert_eq!(out, b"DELE a\xff\xffb\r\n".repeat(2));
    out.truncate(out.len() / 2);
    let events = crate::line::LineReader::default().push(&out);
    let [crate::line::LineEvent::Line(line)] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(Command::parse(line), Ok(command));
}

#[test]
fn secrets_are_masked() {
    for (line, want) in [
        ("PASS secret", "PASS ***"),
        ("ADAT secret", "ADAT ***"),
        ("DCSC P secret", "DCSC ***"),
        ("ENC secret", "ENC ***"),
        ("SITE AUTHZ_ASSERT secret", "SITE AUTHZ_ASSERT ***"),
        ("PROT P", "PROT P"),
        ("USER me", "USER me"),
        ("RETR /a b", "RETR /a b"),
    ] {
        assert_eq!(parsed(line).masked(), want);
    }
    assert!(!format!("{:?}", parsed("PASS secret")).contains("secret"));
}

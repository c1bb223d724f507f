use super::*;
use crate::{
    ReplyCode,
    facts::{FactSelection, write_line},
    listing::format_line,
};

/// Facts as a line of MLSD, which says all of them.
#[track_caller]
fn read(line: &str) -> String {
    match parse_line(line.as_bytes()) {
        Some(ListLine::Entry(facts, name)) => {
            let mut out = Vec::new();
            write_line(&facts, FactSelection::ALL, &name, &mut out);
            String::from_utf8(out).unwrap()
        }
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn lines_of_servers_are_read() {
    for (line, facts) in [
        // vsftpd
        (
            "-rw-r--r--    1 65534    65534           2 Nov 25 16:43  lead\r",
            "Type=file;Size=2;UNIX.mode=0644;  lead",
        ),
        (
            "-rw-r--r--    1 ftp      ftp            10 May 13  2014 a -> b",
            "Type=file;Size=10;UNIX.mode=0644; a -> b",
        ),
        (
            "drwxr-sr-t    7 65534    65534        4096 Nov 25 16:43 .",
            "Type=dir;UNIX.mode=3755; .",
        ),
        (
            "lrwxrwxrwx    1 0        0               3 Nov 25 16:43 ldir -> sub",
            "Type=OS.unix=slink;UNIX.slink=sub; ldir",
        ),
        (
            "lrwxrwxrwx    1 0        0               6 Nov 25 16:43 a -> b -> c -> d",
            "Type=OS.unix=slink;UNIX.slink=c%20->%20d; a -> b",
        ),
        (
            "prw-r--r--    1 65534    65534           0 Nov 25 16:43 fifo",
            "Type=OS.unix=fifo;UNIX.mode=0644; fifo",
        ),
        (
            "srwxr-xr-x    1 65534    65534           0 Nov 25 16:43 sock",
            "Type=OS.unix=sock;UNIX.mode=0755; sock",
        ),
        // ls, with a device
        (
            "crw-rw-rw- 1 root root 1, 3 Nov 25 16:43 null",
            "Type=OS.unix=chr;UNIX.mode=0666; null",
        ),
        (
            "-rw-r--r--.  1 jo Domain Users 5 2026-11-25 16:43 two  blanks ",
            "Type=file;Size=5;UNIX.mode=0644; two  blanks ",
        ),
        (
            "-rw-r--r--+ 1 jo 5 Nov 5 2014 x",
            "Type=file;Size=5;UNIX.mode=0644; x",
        ),
        // ProFTPD, Pure-FTPd
        (
            "-rw-r--r--   1 jo       65534           1 May 13  2014 plain",
            "Type=file;Size=1;UNIX.mode=0644; plain",
        ),
        (
            "-rw-r--r--    1 65534      nogroup             1 May 13  2014 3 Nov 2014 5",
            "Type=file;Size=1;UNIX.mode=0644; 3 Nov 2014 5",
        ),
        (
            "-rw-r--r-- 1 jo jo 7 25 Nov 16:43 day",
            "Type=file;Size=7;UNIX.mode=0644; day",
        ),
        // IIS
        (
            "02-29-20  12:34PM       <DIR>          a folder",
            "Type=dir; a folder",
        ),
        (
            "02-29-2020  12:34PM               123,456 f 1",
            "Type=file;Size=123456; f 1",
        ),
        (
            "11-25-26  16:43                      0 f",
            "Type=file;Size=0; f",
        ),
        // EPLF
        (
            "+i8388621.48594,m825718503,r,s280,\tdjb.html",
            "Type=file;Size=280;Modify=19960301221503;Unique=8388621.48594; djb.html",
        ),
        (
            "+i8388621.50690,m824255907,/,\t514",
            "Type=dir;Modify=19960213235827;Unique=8388621.50690; 514",
        ),
    ] {
        assert_eq!(read(line), facts, "{line}");
    }
    assert_eq!(parse_line(b"total 12\r\n"), Some(ListLine::Total(12)));
}

#[test]
fn lines_of_ours_are_read() {
    let facts = Facts {
        kind: Some(FactType::File),
        size: Some(3000),
        modify: Timestamp::parse("20200229123456"),
        unix_mode: Some(0o4644),
        unix_owner: Some("jo".into()),
        unix_group: Some("jo".into()),
        ..Facts::default()
    };
    let line = format_line(&facts, 1, b" a b", Timestamp(1_800_000_000));
    let line = String::from_utf8(line).unwrap();
    assert_eq!(read(&line), "Type=file;Size=3000;UNIX.mode=4644;  a b");
}

#[test]
fn incomplete_lines_are_not_parsed() {
    for bad in [
        "",
        "name",
        "total",
        "total 1 x",
        "226 done",
        "Type=file;Size=2; ok",
        "-rw-r--r--    1 ftp      ftp            10 May 13  2014 ",
        "-rw-r--r--    1 ftp      ftp            10 May 13  2014",
        "-rw-r--r--    1 ftp      ftp            10 May 13",
        "-rw-r--r-    1 ftp      ftp            10 May 13  2014 x",
        "?rw-r--r--    1 ftp      ftp            10 May 13  2014 x",
        "-rw-r--r--    1 ftp      ftp            x May 13  2014 x",
        "-rw-r--r--    1 ftp      ftp            10 Moy 13  2014 x",
        "lrwxrwxrwx    1 0        0               3 Nov 25 16:43 ldir",
        "lrwxrwxrwx    1 0        0               9 Nov 25 16:43 a -> b -> c",
        "02-29-20  12:34PM       <DIR>          ",
        "02-29-20  12:34PM       <JUNCTION>     a [b]",
        "02-29  12:34PM       3 a",
        "+r,s280,djb.html",
        "+r,sx,\tdjb.html",
        "-rw-r--r--    1 ftp      ftp            10 May 13  2014 a\rb",
    ] {
        assert_eq!(parse_line(bad.as_bytes()), None, "{bad:?}");
    }
}

fn reply(text: &str) -> Reply {
    let code = ReplyCode::new(text[..3].parse().unwrap()).unwrap();
    Reply::new(code, &text[4..])
}

#[test]
fn a_success_reply_may_report_an_incomplete_listing() {
    for (said, lines, is_short) in [
        ("226 Directory send OK.", 0, false),
        ("226 Transfer done (but failed to open directory).", 0, true),
        ("226 17 matches total", 17, false),
        ("226 17 matches total", 16, true),
        ("226 Output truncated to 2000 matches", 2000, true),
        ("226 Sorry, we were unable to read [.]", 0, true),
    ] {
        assert_eq!(shortfall(&reply(said), lines).is_some(), is_short, "{said}");
    }
}

#[test]
fn refusals_of_empty_directories_are_told_from_others() {
    for (said, of_list, of_names) in [
        ("550 No files found", true, true),
        ("550 No such file or directory", false, true),
        ("450 No files found or access denied", false, false),
        ("550 Permission denied", false, false),
        ("550 Can't check for file existence", false, false),
        ("226 no files", false, false),
    ] {
        assert_eq!(is_of_emptiness(&reply(said), false), of_list, "{said}");
        assert_eq!(is_of_emptiness(&reply(said), true), of_names, "{said}");
    }
}

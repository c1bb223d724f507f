use super::*;
use crate::line::LINE_BYTES_MAX;

fn written(reply: &Reply) -> String {
    let mut out = Vec::new();
    reply.write_to(&mut out);
    String::from_utf8(out).unwrap()
}

fn read_all(bytes: &[u8]) -> Vec<Reply> {
    let mut reader = ReplyReader::default();
    reader.push(bytes);
    std::iter::from_fn(|| reader.next_reply().unwrap()).collect()
}

fn one(bytes: &[u8]) -> Reply {
    let mut all = read_all(bytes);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

const C250: ReplyCode = ReplyCode::of(250);

#[test]
fn writer_prefixes_every_body_line() {
    let body = || vec![b"Type=file; /f".to_vec(), b"250 End.".to_vec(), Vec::new()];
    assert_eq!(
        written(&Reply::with_body(
            C250,
            BodyStyle::Blank,
            "status of /f",
            body(),
            "End."
        )),
        "250-status of /f\r\n Type=file; /f\r\n 250 End.\r\n .\r\n250 End.\r\n"
    );
    assert_eq!(
        written(&Reply::with_body(
            C250,
            BodyStyle::Code,
            "x",
            body(),
            "End."
        )),
        "250-x\r\n250-Type=file; /f\r\n250-250 End.\r\n250-.\r\n250 End.\r\n"
    );
}

#[test]
fn writer_never_lets_a_text_end_a_line() {
    assert_eq!(written(&Reply::new(C250, "")), "250 .\r\n");
    assert_eq!(
        written(&Reply::new(C250, "a\r\n226 b\0c")),
        "250 a\r\0 226 b c\r\n"
    );
    let none = Reply {
        code: C250,
        lines: vec![],
        style: BodyStyle::Blank,
    };
    assert_eq!(written(&none), "250 .\r\n");
}

#[test]
fn reader_takes_the_forms_servers_send() {
    assert_eq!(
        one(b"200 Type set to I.\r\n"),
        Reply::new(ReplyCode::of(200), "Type set to I.")
    );
    assert_eq!(
        one(b"250-a\n Type=dir; b\n250 End.\n").lines,
        [&b"a"[..], b"Type=dir; b", b"End."]
    );
    // Lines of other codes are body (RFC 959 §4.2); ARC's FEAT lines lack the blank.
    let feat = one(b"211-x\r\n 226 y\r\n226 z\r\nEPRT\r\n211 End\r\n");
    assert_eq!(feat.body(), [&b"226 y"[..], b"226 z", b"EPRT"]);
    let error =
        one(b"550-GlobusError: v=1 c=PATH_NOT_FOUND\r\n550-GridFTP-Errno: 2\r\n550 End.\r\n");
    assert_eq!(error.style, BodyStyle::Code);
    assert_eq!(error.body(), [b"GridFTP-Errno: 2"]);
    assert_eq!(one(b"200\r\n").lines, [b""]);
    assert_eq!(one(b"226 a\r\r\n\0").lines, [b"a"]);
}

#[test]
fn stray_lines_are_skipped_up_to_a_bound() {
    // What GCT 13.24 answers to TYPE E.
    let all = read_all(b"501 'TYPE E\r\n' unrecognized type.\r\n200 ok\r\n");
    assert_eq!(
        all.iter().map(|r| r.code.get()).collect::<Vec<_>>(),
        [501, 200]
    );
    let mut reader = ReplyReader::default();
    reader.push("<html>\r\n".repeat(1001).as_bytes());
    assert_eq!(reader.next_reply(), Err(BadReply::NotFtp("<html>".into())));
    reader.push(b"200 ok\r\n");
    assert!(reader.next_reply().is_err());
}

#[test]
fn invalid_codes_are_errors() {
    for line in ["999 Renamed", "099", "700-more"] {
        let mut reader = ReplyReader::default();
        reader.push(format!("{line}\r\n").as_bytes());
        assert_eq!(reader.next_reply(), Err(BadReply::Code(line.into())));
    }
    let all = read_all(b"999\tx\r\n9999 x\r\n99 x\r\n250 ok\r\n");
    assert_eq!(all.len(), 1);
}

#[test]
fn size_is_bounded() {
    let mut reader = ReplyReader::default();
    reader.push(&vec![b'2'; LINE_BYTES_MAX]);
    assert_eq!(reader.next_reply(), Ok(None));
    reader.push(b"2");
    assert_eq!(reader.next_reply(), Err(BadReply::LineTooLong));

    let mut reader = ReplyReader::default();
    reader.push(b"211-x\n");
    let page = b"y\n".repeat(10_000);
    let mut pushed = 0;
    while reader.next_reply() == Ok(None) {
        reader.push(&page);
        pushed += page.len();
        assert!(pushed <= REPLY_BYTES_MAX);
    }
    assert_eq!(reader.next_reply(), Err(BadReply::TooLong));
}

//! Replies of servers that refuse, as they were recorded, and what they are read as.
//!
//! The servers of the lab are asked the same by `crates/lab/tests/it/error_texts.rs`.

use godwit_proto::{
    error::failure_kind,
    reply::{BodyStyle, Reply, ReplyCode},
};

/// Server, request, code, text with its lines parted by `\n`, class.
const RECORDED: &str = include_str!("refusals.tsv");

#[test]
fn recorded_refusals_are_read_as_before() {
    let lines = RECORDED.lines().filter(|line| !line.starts_with('#'));
    let mut read = 0;
    for line in lines {
        let columns: Vec<_> = line.split('\t').collect();
        let [server, request, code, text, class] = columns[..] else {
            panic!("{line}");
        };
        let reply = Reply {
            code: ReplyCode::new(code.parse().unwrap()).unwrap(),
            lines: text.split("\\n").map(|l| l.as_bytes().to_vec()).collect(),
            style: BodyStyle::Code,
        };
        let kind = failure_kind(&reply).unwrap();
        assert_eq!(format!("{kind:?}"), class, "{server}: {request}: {reply}");
        read += 1;
    }
    assert!(read > 100, "{read}");
}

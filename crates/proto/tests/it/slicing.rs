//! The same bytes give the same events, however the network cuts them.

use godwit_proto::{
    line::{LineEvent, LineReader},
    reply::{BadReply, Reply, ReplyReader},
};
use proptest::{collection::vec, prelude::*, sample::select};

use crate::strategies;

/// Bytes of a control channel: text, line ends whole and torn, Telnet.
fn control_bytes() -> impl Strategy<Value = Vec<u8>> {
    let pieces = select(vec![
        &b"\r\n"[..],
        b"\r",
        b"\n",
        b"\0",
        b"\xff\xfb\x01",
        b"\xff\xff",
        b"\xff",
        b"\xff\xf4",
        b"\xfd",
        b"NOOP",
        b"226 x",
        b"250-a",
        b"250 End.",
        b" 250 b",
    ])
    .prop_map(<[u8]>::to_vec);
    vec(prop_oneof![3 => pieces, 1 => vec(any::<u8>(), 0..4)], 0..40).prop_map(|v| v.concat())
}

/// `bytes` cut at positions that `cuts` chooses.
fn sliced<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut at: Vec<usize> = cuts.iter().map(|c| c % (bytes.len() + 1)).collect();
    at.extend([0, bytes.len()]);
    at.sort_unstable();
    at.windows(2).map(|w| &bytes[w[0]..w[1]]).collect()
}

fn lines(slices: &[&[u8]]) -> Vec<LineEvent> {
    let mut reader = LineReader::default();
    slices.iter().flat_map(|s| reader.push(s)).collect()
}

fn replies(slices: &[&[u8]]) -> (Vec<Reply>, Option<BadReply>) {
    let mut reader = ReplyReader::default();
    let mut all = Vec::new();
    for slice in slices {
        reader.push(slice);
        loop {
            match reader.next_reply() {
                Ok(Some(reply)) => all.push(reply),
                Ok(None) => break,
                Err(bad) => return (all, Some(bad)),
            }
        }
    }
    (all, None)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn command_lines(bytes in control_bytes(), cuts in vec(any::<usize>(), 0..20)) {
        prop_assert_eq!(lines(&sliced(&bytes, &cuts)), lines(&[&bytes]));
    }

    #[test]
    fn foreign_replies(bytes in control_bytes(), cuts in vec(any::<usize>(), 0..20)) {
        prop_assert_eq!(replies(&sliced(&bytes, &cuts)), replies(&[&bytes]));
    }

    #[test]
    fn our_replies(sent in vec(strategies::reply(), 0..5), cuts in vec(any::<usize>(), 0..20)) {
        let mut bytes = Vec::new();
        sent.iter().for_each(|r| r.write_to(&mut bytes));
        prop_assert_eq!(replies(&sliced(&bytes, &cuts)), (sent, None));
    }
}

#[test]
fn too_long_lines_do_not_depend_on_slicing() {
    let mut bytes = vec![b'x'; 70_000];
    bytes.extend_from_slice(b"\r\nNOOP\r\n");
    let whole = lines(&[&bytes]);
    assert_eq!(whole.len(), 2);
    let torn: Vec<&[u8]> = bytes.chunks(7).collect();
    assert_eq!(lines(&torn), whole);
    assert_eq!(replies(&[&bytes]), replies(&torn));
    assert_eq!(replies(&torn).1, Some(BadReply::LineTooLong));
}

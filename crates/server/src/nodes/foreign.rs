//! What the fuzz target `node_message` does with the bytes of the other end of a node link; the
//! test below replays its corpus through the same function.

use serde::{Serialize, de::DeserializeOwned};

use super::messages::{Job, MESSAGE_MAX, NodeOrder, NodeReport, decode, encode, shown};

/// Nothing panics, each valid message survives a round trip, and what is acted on is bounded.
pub(crate) fn message(bytes: &[u8]) {
    for order in understood::<NodeOrder>(bytes) {
        if let NodeOrder::Start(start) = order
            && let Job::Send { ranges, .. } = start.job
        {
            let ranges = ranges.ranges();
            assert!(ranges.windows(2).all(|two| two[0].end < two[1].start));
        }
    }
    for report in understood::<NodeReport>(bytes) {
        if let NodeReport::Refused { why } = report {
            let why = shown(&why);
            assert!(why.len() <= 1024 && !why.contains(char::is_control));
        }
    }
}

fn understood<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> Vec<T> {
    let mut rest = bytes.to_vec();
    let mut all = Vec::new();
    while let Ok(Some(message)) = decode::<T>(&mut rest) {
        // Written again it may be too long: numbers have longer forms.
        if let Ok(mut written) = encode(&message) {
            assert!(written.len() <= 4 + MESSAGE_MAX);
            let again = written.clone();
            let read = decode::<T>(&mut written);
            let read = read.ok().flatten().expect("what we write we read");
            assert_eq!(encode(&read).ok(), Some(again));
        }
        all.push(message);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privsep::foreign::replay::replay;

    #[test]
    fn the_corpus_runs_clean() {
        let mut known = 0;
        replay("node_message", |bytes| {
            message(bytes);
            known += understood::<NodeOrder>(bytes).len() + understood::<NodeReport>(bytes).len();
        });
        assert!(known > 10, "only {known} messages");
    }
}

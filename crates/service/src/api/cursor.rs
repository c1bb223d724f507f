//! Cursors of lists: opaque to users, and good for the list that gave them.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};

use crate::problem::{Answer, ApiError, Kind};

const SUM_BYTES: usize = 6;

/// Longest cursor that is looked at.
const TEXT_BYTES_MAX: usize = 256;

/// A cursor of the list that `list` describes, with its filter.
pub(crate) fn encode(list: &str, place: Option<String>) -> Option<String> {
    let place = place?;
    let mut bytes = sum(list, &place).to_vec();
    bytes.extend_from_slice(place.as_bytes());
    Some(URL_SAFE_NO_PAD.encode(bytes))
}

/// The place in this list.
pub(crate) fn decode(list: &str, cursor: Option<&str>) -> Answer<Option<String>> {
    let Some(cursor) = cursor else {
        return Ok(None);
    };
    let wrong = || {
        let detail = "use `next` of the page before, with the same filter";
        ApiError::new(Kind::Cursor, detail)
    };
    if cursor.len() > TEXT_BYTES_MAX {
        return Err(wrong());
    }
    let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| wrong())?;
    let (of, place) = bytes.split_at_checked(SUM_BYTES).ok_or_else(wrong)?;
    let place = std::str::from_utf8(place).map_err(|_| wrong())?;
    match of == sum(list, place) {
        true => Ok(Some(place.to_owned())),
        false => Err(wrong()),
    }
}

fn sum(list: &str, place: &str) -> [u8; SUM_BYTES] {
    let digest = Sha256::new()
        .chain_update(list)
        .chain_update([0])
        .chain_update(place)
        .finalize();
    let mut sum = [0; SUM_BYTES];
    sum.copy_from_slice(&digest[..SUM_BYTES]);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_good_for_its_list_only() {
        let cursor = encode("jobs alice", Some("17".to_owned())).unwrap();
        assert_eq!(
            decode("jobs alice", Some(&cursor)).unwrap().as_deref(),
            Some("17")
        );
        assert!(decode("jobs bob", Some(&cursor)).is_err());
        for wrong in ["", "17", "AAAA", "%", &cursor[1..], &"A".repeat(1000)] {
            assert!(decode("jobs alice", Some(wrong)).is_err(), "{wrong}");
        }
        assert!(decode("jobs alice", None).unwrap().is_none());
    }
}

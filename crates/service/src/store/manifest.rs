//! Codecs of a segment: its manifest, what became of its files, and their receipts.

use std::{
    collections::BTreeMap,
    io::{Cursor, Read},
};

use godwit_service_api::{agent::MAX_UNIT_FILES, job::FileRequest};
use serde::{Serialize, de::DeserializeOwned};

use super::StoreError;

/// A segment holds at most 1000 files with two URLs and metadata of limited length.
const MAX_DECODED: u64 = 64 << 20;

/// Zstandard of one JSON object a line.
pub(super) fn encode(files: &[FileRequest]) -> Result<Vec<u8>, StoreError> {
    let mut lines = Vec::with_capacity(files.len() * 160);
    for file in files {
        serde_json::to_writer(&mut lines, file).map_err(StoreError::corrupt)?;
        lines.push(b'\n');
    }
    zstd::encode_all(Cursor::new(lines), 3).map_err(StoreError::corrupt)
}

/// The reverse of [`encode`].
pub(super) fn decode(bytes: &[u8]) -> Result<Vec<FileRequest>, StoreError> {
    lines(&decompressed(bytes)?)
}

/// A manifest of which some files are read.
pub(super) struct Manifest {
    text: Vec<u8>,
    /// Where each file's line ends.
    ends: Vec<usize>,
}

impl Manifest {
    pub(super) fn open(bytes: &[u8]) -> Result<Manifest, StoreError> {
        let text = decompressed(bytes)?;
        // JSON has no line break within a value.
        let ends = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        let ends = ends.map(|(place, _)| place).collect();
        Ok(Manifest { text, ends })
    }

    pub(super) fn file(&self, place: u32) -> Result<FileRequest, StoreError> {
        let place = place as usize;
        let from = place
            .checked_sub(1)
            .map_or(Some(0), |before| self.ends.get(before).map(|end| end + 1));
        let line = from
            .zip(self.ends.get(place))
            .map(|(from, to)| &self.text[from..*to]);
        let line = line.ok_or_else(|| StoreError::corrupt("a unit is not in its segment"))?;
        serde_json::from_slice(line).map_err(StoreError::corrupt)
    }
}

fn lines<T: DeserializeOwned>(text: &[u8]) -> Result<Vec<T>, StoreError> {
    serde_json::Deserializer::from_slice(text)
        .into_iter()
        .collect::<Result<_, _>>()
        .map_err(StoreError::corrupt)
}

fn decompressed(bytes: &[u8]) -> Result<Vec<u8>, StoreError> {
    let decoder = zstd::Decoder::new(Cursor::new(bytes)).map_err(StoreError::corrupt)?;
    let mut text = Vec::new();
    decoder
        .take(MAX_DECODED)
        .read_to_end(&mut text)
        .map_err(StoreError::corrupt)?;
    Ok(text)
}

/// What became of a file, in two bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Waits, or an agent has it.
    Open,
    /// Complete at the destination.
    Finished,
    /// Was there already.
    Skipped,
    /// Failed, or waits for another attempt: a row of its own says which.
    Odd,
}

/// Outcomes of a segment, four a byte.
#[derive(Clone, Debug)]
pub(super) struct Outcomes(Vec<u8>);

impl Outcomes {
    pub(super) fn new(files: usize) -> Outcomes {
        Outcomes(vec![0; files.div_ceil(4)])
    }

    pub(super) fn from_bytes(bytes: Vec<u8>) -> Outcomes {
        Outcomes(bytes)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn get(&self, place: u32) -> Outcome {
        let byte = self.0.get(place as usize / 4).copied().unwrap_or(0);
        match byte >> (place % 4 * 2) & 3 {
            0 => Outcome::Open,
            1 => Outcome::Finished,
            2 => Outcome::Skipped,
            _ => Outcome::Odd,
        }
    }

    pub(super) fn set(&mut self, place: u32, outcome: Outcome) {
        if let Some(byte) = self.0.get_mut(place as usize / 4) {
            let shift = place % 4 * 2;
            *byte = *byte & !(3 << shift) | (outcome as u8) << shift;
        }
    }
}

/// Size and checksum by place, where an agent reported more than the manifest says.
pub(super) type Receipts = BTreeMap<u32, (u64, Option<String>)>;

pub(super) fn encode_receipts(receipts: &Receipts) -> Result<Vec<u8>, StoreError> {
    compressed_json(receipts)
}

pub(super) fn decode_receipts(bytes: Option<&[u8]>) -> Result<Receipts, StoreError> {
    match bytes {
        Some(bytes) => serde_json::from_slice(&decompressed(bytes)?).map_err(StoreError::corrupt),
        None => Ok(Receipts::new()),
    }
}

fn compressed_json(value: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    let json = serde_json::to_vec(value).map_err(StoreError::corrupt)?;
    zstd::encode_all(Cursor::new(json), 3).map_err(StoreError::corrupt)
}

/// Most files of a segment.
pub(super) const SEGMENT_FILES: usize = MAX_UNIT_FILES;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_come_back_as_they_were() {
        let files: Vec<FileRequest> = (0..1000)
            .map(|n| FileRequest {
                source: format!("gsiftp://a.example.org/data/run/file{n:06}"),
                destination: format!("gsiftp://b.example.org/copy/file{n:06}"),
                bytes: (n % 2 == 0).then_some(n),
                metadata: (n == 7).then(|| serde_json::json!({"line": "a\nb"})),
                ..FileRequest::default()
            })
            .collect();
        let bytes = encode(&files).unwrap();
        assert!(bytes.len() < 16_000, "{}", bytes.len());
        assert_eq!(decode(&bytes).unwrap(), files);
        let manifest = Manifest::open(&bytes).unwrap();
        for place in [0, 7, 999] {
            assert_eq!(manifest.file(place).unwrap(), files[place as usize]);
        }
        assert!(manifest.file(1000).is_err());
    }

    #[test]
    fn damaged_manifests_are_errors() {
        assert!(decode(b"not zstd").is_err());
        let cut = encode(&[FileRequest::default()]).unwrap();
        assert!(decode(&cut[..cut.len() - 3]).is_err());
    }

    #[test]
    fn outcomes_do_not_touch_their_neighbours() {
        let mut outcomes = Outcomes::new(6);
        outcomes.set(1, Outcome::Odd);
        outcomes.set(2, Outcome::Finished);
        outcomes.set(5, Outcome::Skipped);
        outcomes.set(1, Outcome::Skipped);
        outcomes.set(4000, Outcome::Odd);
        let all: Vec<Outcome> = (0..7).map(|p| outcomes.get(p)).collect();
        use Outcome::{Finished, Open, Skipped};
        assert_eq!(all, [Open, Skipped, Finished, Open, Open, Skipped, Open]);
    }
}

//! What lies in a bucket under a temporary name of ours: an upload that is not complete, or an
//! object that has its final name already, since one request stores it as a whole or not at all.

use std::{
    collections::{BTreeMap, HashMap},
    time::Instant,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use godwit_http::{s3::answers::Part, target};
use godwit_proto::{ByteRange, FtpPath, RangeSet};
use parking_lot::Mutex;

/// Those of all sessions with a bucket, by temporary name.
#[derive(Default)]
pub(crate) struct Uploads(Mutex<HashMap<FtpPath, PendingObject>>);

#[derive(Clone)]
pub(crate) enum PendingObject {
    Parts(PartedUpload),
    Stored(StoredObject),
}

/// An upload in parts.
#[derive(Clone)]
pub(crate) struct PartedUpload {
    /// Where the object will be.
    pub(crate) to: FtpPath,
    /// The service's name for it.
    pub(crate) id: String,
    /// By which the object that comes of it is known: a value that no other upload has.
    pub(crate) mark: String,
    /// Bytes of each part but the last.
    pub(crate) part_bytes: u64,
    /// Bytes of the object.
    pub(crate) size: u64,
    /// That the service has, by number.
    pub(crate) parts: BTreeMap<u32, Part>,
    /// Those that this run has sent, as the service has confirmed them.
    pub(crate) sent: BTreeMap<u32, Part>,
    /// When this run first asked the service to put the object together.
    pub(crate) asked_at: Option<Instant>,
}

/// An object that one request has stored.
#[derive(Clone)]
pub(crate) struct StoredObject {
    /// Where it is.
    pub(crate) at: FtpPath,
    pub(crate) size: u64,
    /// The `ETag` that the service has given it.
    pub(crate) tag: Option<String>,
    /// As the service has computed it.
    pub(crate) crc32c: Option<u32>,
}

impl Uploads {
    pub(crate) fn of(&self, temp_path: &FtpPath) -> Option<PendingObject> {
        self.0.lock().get(temp_path).cloned()
    }

    pub(crate) fn parts_of(&self, temp_path: &FtpPath) -> Option<PartedUpload> {
        match self.0.lock().get(temp_path)? {
            PendingObject::Parts(upload) => Some(upload.clone()),
            PendingObject::Stored(_) => None,
        }
    }

    /// It is an object, of which nothing is missing that could be sent later.
    pub(crate) fn is_stored(&self, temp_path: &FtpPath) -> bool {
        matches!(self.of(temp_path), Some(PendingObject::Stored(_)))
    }

    pub(crate) fn insert(&self, temp_path: &FtpPath, upload: PendingObject) {
        self.0.lock().insert(temp_path.clone(), upload);
    }

    /// One that an earlier run has left, as its journal names it ([`PartedUpload::version`]).
    pub(crate) fn adopt(&self, temp_path: &FtpPath, to: &FtpPath, version: &str) {
        let mut words = version.splitn(4, ' ');
        let (part_bytes, size) = (words.next(), words.next());
        let number = |word: Option<&str>| word.and_then(|word| word.parse::<u64>().ok());
        let (Some(part_bytes), Some(size)) = (number(part_bytes), number(size)) else {
            return;
        };
        let (Some(mark), Some(id)) = (words.next(), words.next()) else {
            return;
        };
        if part_bytes == 0 || mark.is_empty() || id.is_empty() {
            return;
        }
        let mut known = self.0.lock();
        known.entry(temp_path.clone()).or_insert_with(|| {
            PendingObject::Parts(PartedUpload {
                to: to.clone(),
                id: id.to_owned(),
                mark: mark.to_owned(),
                part_bytes,
                size,
                parts: BTreeMap::new(),
                sent: BTreeMap::new(),
                asked_at: None,
            })
        });
    }

    /// One that several jobs send, as the job that has begun it names it
    /// ([`PartedUpload::known_as`]). Where its object will be; `None`: that is no name of one.
    pub(crate) fn join(&self, temp_path: &FtpPath, known_as: &str) -> Option<FtpPath> {
        let (name, version) = known_as.split_once(' ')?;
        let name = target::decoded(name.as_bytes()).ok()?;
        let is_plain = !matches!(&name[..], b"." | b"..") && !name.contains(&b'/');
        let to = temp_path.sibling(&name).filter(|_| is_plain)?;
        self.adopt(temp_path, &to, version);
        let known = match self.of(temp_path)? {
            PendingObject::Parts(upload) => upload.to,
            PendingObject::Stored(stored) => stored.at,
        };
        Some(to).filter(|to| *to == known)
    }

    /// The service has stored a part of the upload with this id.
    pub(crate) fn add(&self, temp_path: &FtpPath, id: &str, part: Part) {
        if let Some(PendingObject::Parts(upload)) = self.0.lock().get_mut(temp_path)
            && upload.id == id
        {
            upload.sent.insert(part.number, part.clone());
            upload.parts.insert(part.number, part);
        }
    }

    /// The service is asked to put the object together.
    pub(crate) fn set_asked(&self, temp_path: &FtpPath) {
        if let Some(PendingObject::Parts(upload)) = self.0.lock().get_mut(temp_path) {
            upload.asked_at.get_or_insert_with(Instant::now);
        }
    }

    /// It has these, and no others. A part that is not what was sent counts as missing, so that it
    /// is sent again.
    pub(crate) fn set_parts(&self, temp_path: &FtpPath, parts: Vec<Part>) {
        if let Some(PendingObject::Parts(upload)) = self.0.lock().get_mut(temp_path) {
            let listed = parts.into_iter().filter_map(|part| upload.agreed(part));
            upload.parts = listed.map(|part| (part.number, part)).collect();
        }
    }

    pub(crate) fn forget(&self, temp_path: &FtpPath) {
        self.0.lock().remove(temp_path);
    }
}

impl PartedUpload {
    /// For a journal.
    pub(crate) fn version(&self) -> String {
        format!(
            "{} {} {} {}",
            self.part_bytes, self.size, self.mark, self.id
        )
    }

    /// For other jobs that send parts of it: the name of its object, and [`Self::version`].
    pub(crate) fn known_as(&self) -> Option<String> {
        let name = target::encoded(self.to.file_name()?);
        Some(format!("{name} {}", self.version()))
    }

    /// Bytes of the part with a number; `None`: the object has none.
    fn bytes_of(&self, number: u32) -> Option<u64> {
        let start = u64::from(number.checked_sub(1)?).checked_mul(self.part_bytes)?;
        let left = self.size.checked_sub(start).filter(|left| *left > 0)?;
        Some(left.min(self.part_bytes))
    }

    /// A part as the service lists it, if it is of the object and what was sent. The checksum that
    /// a service has confirmed counts where its list has none.
    fn agreed(&self, listed: Part) -> Option<Part> {
        if self.bytes_of(listed.number) != Some(listed.size) {
            return None;
        }
        let Some(sent) = self.sent.get(&listed.number) else {
            return Some(listed);
        };
        let bare = |tag: &str| tag.trim_matches('"').to_owned();
        // Where it was sent twice, the one that came later may have another tag.
        let is_same = match listed.crc32c.as_ref().zip(sent.crc32c.as_ref()) {
            Some((listed, sent)) => listed == sent,
            None => bare(&listed.tag) == bare(&sent.tag),
        };
        if !is_same {
            return None;
        }
        let crc32c = listed.crc32c.or_else(|| sent.crc32c.clone());
        Some(Part { crc32c, ..listed })
    }

    /// Where each part of it lies.
    pub(crate) fn all_parts(&self) -> impl Iterator<Item = ByteRange> + use<> {
        let (size, bytes) = (self.size, self.part_bytes.max(1));
        (0..size.div_ceil(bytes)).map(move |number| ByteRange {
            start: number * bytes,
            end: size.min((number + 1).saturating_mul(bytes)),
        })
    }

    /// The part that begins at a byte; `None`: none does.
    pub(crate) fn number_at(&self, start: u64) -> Option<u32> {
        let is_first = start.is_multiple_of(self.part_bytes);
        let number = u32::try_from(start / self.part_bytes + 1).ok();
        number.filter(|_| is_first)
    }

    /// Bytes of the object that are there.
    pub(crate) fn ranges(&self) -> RangeSet {
        let is_whole = |part: &&Part| self.bytes_of(part.number) == Some(part.size);
        let range = |part: &Part| {
            let start = u64::from(part.number.checked_sub(1)?).checked_mul(self.part_bytes)?;
            ByteRange::new(start, start.checked_add(part.size)?)
        };
        self.parts
            .values()
            .filter(is_whole)
            .filter_map(range)
            .collect()
    }

    /// Bytes to the end of the last part.
    pub(crate) fn end(&self) -> u64 {
        self.ranges().iter().last().map_or(0, |range| range.end)
    }

    /// Every byte of the object is there, and none of another.
    pub(crate) fn is_whole(&self) -> bool {
        let bytes = self.parts.values().map(|part| part.size).sum::<u64>();
        self.size == bytes && self.ranges().covered() == self.size
    }

    /// That of all parts, each as the service has computed it.
    pub(crate) fn crc32c(&self) -> Option<u32> {
        let mut whole = 0;
        for part in self.parts.values() {
            let own = crc32c_of(part.crc32c.as_deref()?)?;
            whole = crc32c::crc32c_combine(whole, own, usize::try_from(part.size).ok()?);
        }
        (!self.parts.is_empty() && self.is_whole()).then_some(whole)
    }
}

/// The value of a checksum's header, or of its element.
pub(crate) fn crc32c_text(value: u32) -> String {
    STANDARD.encode(value.to_be_bytes())
}

/// `None`: it is no CRC32C of all bytes.
pub(crate) fn crc32c_of(text: &str) -> Option<u32> {
    let bytes = STANDARD.decode(text).ok()?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> FtpPath {
        FtpPath::new(text).unwrap()
    }

    fn part(number: u32, bytes: &[u8]) -> Part {
        Part {
            number,
            size: bytes.len() as u64,
            tag: "\"x\"".to_owned(),
            crc32c: Some(crc32c_text(crc32c::crc32c(bytes))),
        }
    }

    #[test]
    fn an_upload_of_an_earlier_run_is_found_by_its_journal() {
        let uploads = Uploads::default();
        let (temp_path, to) = (path("/.t"), path("/o"));
        for bad in ["", "x", "0 9 m id", "7", "4 id", "4 9 m", "4 x m id"] {
            uploads.adopt(&temp_path, &to, bad);
            assert!(uploads.parts_of(&temp_path).is_none(), "{bad}");
        }
        uploads.adopt(&temp_path, &to, "4 10 m i d");
        let upload = uploads.parts_of(&temp_path).unwrap();
        assert_eq!((upload.id.as_str(), upload.part_bytes), ("i d", 4));
        assert_eq!((upload.size, upload.mark.as_str()), (10, "m"));
        assert_eq!(upload.version(), "4 10 m i d");
        uploads.forget(&temp_path);
        assert!(uploads.of(&temp_path).is_none());
    }

    #[test]
    fn parts_are_ranges_of_the_object_and_their_checksums_are_that_of_all() {
        let uploads = Uploads::default();
        let (temp_path, to) = (path("/.t"), path("/o"));
        uploads.adopt(&temp_path, &to, "4 10 m id");
        uploads.add(&temp_path, "id", part(3, b"ij"));
        uploads.add(&temp_path, "id", part(1, b"abcd"));
        let upload = uploads.parts_of(&temp_path).unwrap();
        let ranges: Vec<_> = upload.ranges().iter().collect();
        assert_eq!(
            ranges,
            [
                ByteRange { start: 0, end: 4 },
                ByteRange { start: 8, end: 10 }
            ]
        );
        assert_eq!(
            (upload.end(), upload.is_whole(), upload.crc32c()),
            (10, false, None)
        );
        uploads.add(&temp_path, "another", part(2, b"efgh"));
        assert!(!uploads.parts_of(&temp_path).unwrap().is_whole());
        uploads.add(&temp_path, "id", part(2, b"efgh"));
        let upload = uploads.parts_of(&temp_path).unwrap();
        assert!(upload.is_whole());
        assert_eq!(upload.crc32c(), Some(crc32c::crc32c(b"abcdefghij")));
        assert_eq!([4, 5].map(|at| upload.number_at(at)), [Some(2), None]);
        // A list without the last part, or with one of another length or other bytes, is not all.
        let listed = |parts: &[(u32, &[u8])]| {
            let parts = parts.iter().map(|(number, bytes)| part(*number, bytes));
            uploads.set_parts(&temp_path, parts.collect());
            uploads.parts_of(&temp_path).unwrap().is_whole()
        };
        assert!(!listed(&[(1, b"abcd"), (2, b"efgh")]));
        assert!(!listed(&[(1, b"abcd"), (2, b"ef"), (3, b"ij")]));
        assert!(!listed(&[(1, b"abcd"), (2, b"efgx"), (3, b"ij")]));
        assert!(!listed(&[(1, b"abcd"), (2, b"efgh"), (3, b"ijkl")]));
        assert!(listed(&[(1, b"abcd"), (2, b"efgh"), (3, b"ij")]));
    }
}

//! The names of one directory with their facts, in any number: beyond a bound they are in a file.
//!
//! No name may get lost: a missing name would count as absent and be deleted.
//!
//! Two listings are compared part by part. A name is in the same part of both, so only one part of
//! each is in memory. A small directory is one part, a large one has [`BUCKETS`] parts, by a hash
//! with a random key.

use std::{
    fs::File,
    hash::{BuildHasher, RandomState},
    io,
    os::unix::fs::FileExt,
};

use godwit_proto::facts::{self, FactSelection, Facts};

use crate::{local::files::anonymous_file, session::DirectoryEntry};

/// Most bytes of a small directory: tens of thousands of names.
const SMALL_MAX: usize = 4 << 20;

/// Parts of a large one. The longest listing, of 4 GiB, has 16 MiB in each.
const BUCKETS: usize = 256;

/// Bytes of a part that are written together.
const BUCKET_WRITE_BYTES: usize = SMALL_MAX / BUCKETS;

/// Names of a directory, as lines of MLSD.
#[derive(Debug)]
pub(super) struct SpooledListing {
    keys: RandomState,
    /// One, or [`BUCKETS`].
    buckets: Vec<ListingBucket>,
    /// The entries that are not in memory, and their length.
    spilled: Option<(File, u64)>,
}

#[derive(Debug, Default)]
struct ListingBucket {
    here: Vec<u8>,
    /// Where the others are in the file, and their lengths.
    there: Vec<(u64, usize)>,
}

impl SpooledListing {
    /// Two listings that can be compared.
    pub(super) fn pair() -> (Self, Self) {
        let one = Self {
            keys: RandomState::new(),
            buckets: vec![ListingBucket::default()],
            spilled: None,
        };
        let other = one.like();
        (one, other)
    }

    /// An empty one with the same parts.
    pub(super) fn like(&self) -> Self {
        Self {
            keys: self.keys.clone(),
            buckets: vec![ListingBucket::default()],
            spilled: None,
        }
    }

    /// # Errors
    /// The file cannot be written.
    pub(super) fn push(&mut self, entry: &DirectoryEntry) -> io::Result<()> {
        let mut line = Vec::with_capacity(128 + entry.name.len());
        // A line of MLSD has at least one fact.
        line.extend_from_slice(b"X=;");
        facts::write_line(&entry.facts, FactSelection::ALL, &entry.name, &mut line);
        line.push(b'\n');
        if !self.is_large() && self.buckets[0].here.len() + line.len() > SMALL_MAX {
            self.scatter()?;
        }
        self.append(&entry.name, &line)
    }

    fn is_large(&self) -> bool {
        self.buckets.len() > 1
    }

    fn append(&mut self, name: &[u8], line: &[u8]) -> io::Result<()> {
        let at = match self.is_large() {
            true => usize::try_from(self.keys.hash_one(name) % BUCKETS as u64).unwrap_or(0),
            false => 0,
        };
        let bucket = &mut self.buckets[at];
        bucket.here.extend_from_slice(line);
        if let Some((file, end)) = &mut self.spilled
            && bucket.here.len() >= BUCKET_WRITE_BYTES
        {
            file.write_all_at(&bucket.here, *end)?;
            bucket.there.push((*end, bucket.here.len()));
            *end += bucket.here.len() as u64;
            bucket.here.clear();
        }
        Ok(())
    }

    /// Splits a small listing into the parts of a large one.
    fn scatter(&mut self) -> io::Result<()> {
        let all = std::mem::take(&mut self.buckets);
        self.buckets.resize_with(BUCKETS, ListingBucket::default);
        self.spilled = Some((anonymous_file()?, 0));
        for line in all.iter().flat_map(|bucket| lines(&bucket.here)) {
            let entry = entry_in(line)?;
            self.append(&entry.name, &[line, b"\n"].concat())?;
        }
        Ok(())
    }

    fn bucket(&self, at: usize) -> io::Result<Vec<DirectoryEntry>> {
        let bucket = &self.buckets[at];
        let mut text = Vec::new();
        for (at, length) in &bucket.there {
            let Some((file, _)) = &self.spilled else {
                break;
            };
            let begin = text.len();
            text.resize(begin + length, 0);
            file.read_exact_at(&mut text[begin..], *at)?;
        }
        text.extend_from_slice(&bucket.here);
        lines(&text).map(entry_in).collect()
    }
}

fn entry_in(line: &[u8]) -> io::Result<DirectoryEntry> {
    let parsed = facts::parse_line(line).map(|(facts, name)| DirectoryEntry { name, facts });
    parsed.ok_or_else(|| io::Error::other("a line that was written is not read back"))
}

/// The entries of both, part by part, in pairs.
///
/// # Errors
/// The file cannot be written; as items, it cannot be read.
pub(super) fn in_buckets(
    mut one: SpooledListing,
    mut other: SpooledListing,
) -> io::Result<impl Iterator<Item = io::Result<(Vec<DirectoryEntry>, Vec<DirectoryEntry>)>>> {
    if one.is_large() != other.is_large() {
        let small = if one.is_large() { &mut other } else { &mut one };
        small.scatter()?;
    }
    let buckets = one.buckets.len();
    Ok((0..buckets).map(move |at| Ok((one.bucket(at)?, other.bucket(at)?))))
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|b| *b == b'\n').filter(|line| !line.is_empty())
}

/// Only what a comparison needs, since a part may have many.
pub(super) fn essential(facts: Facts) -> Facts {
    Facts {
        kind: facts.kind,
        size: facts.size,
        modify: facts.modify,
        unix_mode: facts.unix_mode,
        // Without `unique` it identifies a directory.
        unix_slink: match &facts.unique {
            Some(_) => facts.unix_slink.map(|_| vec![b'.']),
            None => facts.unix_slink,
        },
        unique: facts.unique,
        ..Facts::default()
    }
}

#[cfg(test)]
mod tests {
    use godwit_proto::{facts::FactType, timestamp::Timestamp};

    use super::*;

    fn entry(name: &str, size: u64) -> DirectoryEntry {
        DirectoryEntry {
            name: name.as_bytes().to_vec(),
            facts: Facts {
                kind: Some(FactType::File),
                size: Some(size),
                modify: Some(Timestamp(1_700_000_000)),
                ..Facts::default()
            },
        }
    }

    #[test]
    fn entries_come_back_in_order_with_odd_names_too() {
        let (mut one, other) = SpooledListing::pair();
        let names = [" blank ", "semi;colon=x; y", "ünï", "%41", "\t"];
        for (i, name) in (0..).zip(names) {
            one.push(&entry(name, i)).unwrap();
        }
        // Their facts are unknown.
        for name in names {
            let (name, facts) = (name.as_bytes().to_vec(), Facts::default());
            one.push(&DirectoryEntry { name, facts }).unwrap();
        }
        let buckets: Vec<_> = in_buckets(one, other).unwrap().collect();
        assert_eq!(buckets.len(), 1);
        let (came, none) = buckets.into_iter().next().unwrap().unwrap();
        assert!(none.is_empty());
        assert_eq!(came.len(), 2 * names.len());
        for (name, entry) in names.iter().zip(&came[names.len()..]) {
            assert_eq!(entry.name, name.as_bytes());
            assert_eq!(entry.facts, Facts::default());
        }
        for (i, (name, entry)) in (0..).zip(names.iter().zip(came)) {
            assert_eq!(entry.name, name.as_bytes());
            assert_eq!(entry.facts.size, Some(i));
        }
    }

    #[test]
    fn large_listings_are_compared_by_name_in_little_memory() {
        for others in [3, 200_000_u64] {
            let (mut one, mut other) = SpooledListing::pair();
            for i in 0..200_000 {
                one.push(&entry(&format!("name {i}"), i)).unwrap();
            }
            for i in 0..others {
                other.push(&entry(&format!("name {i}"), i)).unwrap();
            }
            let here: usize = one.buckets.iter().map(|p| p.here.len()).sum();
            assert!(one.is_large() && here <= SMALL_MAX);
            let (mut seen, mut met) = (0, 0);
            for bucket in in_buckets(one, other).unwrap() {
                let (ours, theirs) = bucket.unwrap();
                let ours: std::collections::HashMap<_, _> =
                    ours.into_iter().map(|e| (e.name, e.facts)).collect();
                assert!(ours.len() < 200_000 / 64);
                seen += ours.len();
                met += theirs
                    .iter()
                    .filter(|e| ours.get(&e.name) == Some(&e.facts))
                    .count() as u64;
            }
            assert_eq!((seen, met), (200_000, others));
        }
    }
}

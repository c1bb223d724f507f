//! Trees of files that are made and compared.

use std::{
    fs,
    io::{BufReader, Read, Write},
    os::unix::fs::FileExt,
    path::Path,
};

/// A generator of numbers that repeats itself.
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn seeded(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    /// `0..below`.
    pub(super) fn below(&mut self, below: u64) -> u64 {
        self.next() % below
    }
}

fn noise() -> Vec<u8> {
    let mut numbers = Numbers::seeded(1);
    (0..2 << 20)
        .map(|_| numbers.next().to_le_bytes()[3])
        .collect()
}

/// `count` files of 100 bytes to 1 MB, small ones more frequent, in directories of 1000.
pub(super) fn make_many(folder: &Path, count: u64) {
    let noise = noise();
    let mut numbers = Numbers::seeded(7);
    for i in 0..count {
        let directory = folder.join(format!("part {}", i / 1000));
        fs::create_dir_all(&directory).unwrap();
        // Uniform in the number of bits: 100 bytes to 1 MB.
        let bits = 7 + numbers.below(14);
        let size = (100 + numbers.below(1 << bits)).min(1_000_000);
        let at = usize::try_from(numbers.below(1 << 20)).unwrap();
        let bytes = &noise[at..at + usize::try_from(size).unwrap()];
        fs::write(directory.join(format!("file {i}.dat")), bytes).unwrap();
    }
}

pub(super) fn make_file(path: &Path, bytes: u64, seed: u64) {
    let noise = noise();
    let mut numbers = Numbers::seeded(seed);
    let mut file = fs::File::create(path).unwrap();
    let mut left = bytes;
    while left > 0 {
        let n = left.min(1 << 20);
        let at = usize::try_from(numbers.below(1 << 20)).unwrap();
        file.write_all(&noise[at..at + usize::try_from(n).unwrap()])
            .unwrap();
        left -= n;
    }
}

/// A file of `bytes` with a few written places, the rest holes.
pub(super) fn make_sparse(path: &Path, bytes: u64) {
    let file = fs::File::create(path).unwrap();
    file.set_len(bytes).unwrap();
    for place in [0, bytes / 3, bytes / 2 + 1, bytes - 9] {
        file.write_all_at(b"not hole!", place).unwrap();
    }
}

pub(super) fn assert_same_file(a: &Path, b: &Path) {
    let open = |p: &Path| {
        let file = fs::File::open(p).unwrap_or_else(|e| panic!("{}: {e}", p.display()));
        assert!(file.metadata().unwrap().is_file(), "{}", p.display());
        file
    };
    let (one, two) = (open(a), open(b));
    let length = one.metadata().unwrap().len();
    assert_eq!(
        length,
        two.metadata().unwrap().len(),
        "length of {}",
        b.display()
    );
    let (mut one, mut two) = (BufReader::new(one), BufReader::new(two));
    let room = usize::try_from(length.min(4 << 20)).unwrap();
    let (mut x, mut y) = (vec![0; room], vec![0; room]);
    let mut left = length;
    while left > 0 {
        let n = usize::try_from(left.min(room as u64)).unwrap();
        one.read_exact(&mut x[..n]).unwrap();
        two.read_exact(&mut y[..n]).unwrap();
        assert!(
            x[..n] == y[..n],
            "{} differs near {}",
            b.display(),
            length - left
        );
        left -= n as u64;
    }
}

/// Both trees hold the same names and bytes, and nothing else.
pub(super) fn assert_same_tree(a: &Path, b: &Path) {
    let names = |p: &Path| {
        let mut names: Vec<_> = fs::read_dir(p)
            .unwrap_or_else(|e| panic!("{}: {e}", p.display()))
            .map(|e| e.unwrap().file_name())
            .collect();
        names.sort();
        names
    };
    let here = names(a);
    assert_eq!(here, names(b), "names in {}", b.display());
    for name in here {
        let (x, y) = (a.join(&name), b.join(&name));
        if x.is_dir() {
            assert_same_tree(&x, &y)
        } else {
            assert_same_file(&x, &y)
        }
    }
}

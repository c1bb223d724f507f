//! A campaign on disk: which build and list it is of, and how the machine was during each run.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::Error;
use crate::{
    file_error::io_error,
    peers::{Missing, godwit},
};

const HEAD_FILE: &str = "campaign.json";
const RESTS_FILE: &str = "rest.jsonl";

/// What results must have in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StateHead {
    /// Of the programs: results of two builds must not be mixed.
    pub(super) build: String,
    /// Whether quick variants run.
    pub(super) quick: bool,
}

impl StateHead {
    /// Of this program, and of godwit and godwitd as runs find them.
    pub(super) fn now(quick: bool) -> Result<Self, Error> {
        let own = std::env::current_exe().map_err(io_error(Path::new("/proc/self/exe")))?;
        let found = |path: Result<PathBuf, Missing>| path.ok();
        let programs = [
            Some(own),
            found(godwit::binary("godwit")),
            found(godwit::binary("godwitd")),
        ];
        let mut hash = FNV_OFFSET;
        for path in programs.into_iter().flatten() {
            hash = hash_file(&path, hash).map_err(io_error(&path))?;
        }
        Ok(Self {
            build: format!("{hash:016x}"),
            quick,
        })
    }

    /// Takes up the state in a folder, or begins one there.
    pub(super) fn settle(&self, folder: &Path) -> Result<(), Error> {
        let path = folder.join(HEAD_FILE);
        match fs::read_to_string(&path) {
            Ok(text) => match serde_json::from_str::<Self>(&text) {
                Ok(known) if known == *self => Ok(()),
                Ok(known) if known.build != self.build => Err(Error::OtherBuild(folder.to_owned())),
                Ok(_) => Err(Error::OtherVariant(folder.to_owned())),
                Err(error) => {
                    let reason = error.to_string();
                    Err(Error::Unreadable { path, reason })
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(folder).map_err(io_error(folder))?;
                let text = serde_json::to_string(self).unwrap_or_default() + "\n";
                // A name in one step: an interrupted start leaves nothing half.
                let begun = folder.join("campaign.json.new");
                fs::write(&begun, text).map_err(io_error(&begun))?;
                Ok(fs::rename(&begun, &path).map_err(io_error(&path))?)
            }
            Err(error) => Err(io_error(&path)(error).into()),
        }
    }
}

/// FNV-1a of 64 bits (Fowler, Noll, Vo): tells builds apart, not for secrets.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

fn hash_file(path: &Path, mut hash: u64) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(hash);
        }
        for byte in &buffer[..read] {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME);
        }
    }
}

/// How the machine was.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Rest {
    /// Number of the run.
    pub(super) number: u32,
    /// Part of the processors in use before it, `0..=1`.
    pub(super) before: f64,
    /// The same during it, by others.
    pub(super) during: f64,
    /// From its start to its end, s.
    pub(super) seconds: f64,
}

/// Those of a scenario; a line that was cut off is left out.
pub(super) fn rests(folder: &Path) -> Result<Vec<Rest>, Error> {
    let path = folder.join(RESTS_FILE);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(io_error(&path)(error).into()),
    }
}

pub(super) fn add_rest(folder: &Path, rest: &Rest) -> Result<(), Error> {
    let path = folder.join(RESTS_FILE);
    let line = serde_json::to_string(rest).unwrap_or_default() + "\n";
    let mut file =
        (OpenOptions::new().create(true).append(true).open(&path)).map_err(io_error(&path))?;
    Ok(file.write_all(line.as_bytes()).map_err(io_error(&path))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_belongs_to_one_build_and_one_variant() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("state");
        let head = StateHead {
            build: "1".into(),
            quick: false,
        };
        head.settle(&folder).unwrap();
        head.settle(&folder).unwrap();
        let other = StateHead {
            build: "2".into(),
            ..head.clone()
        };
        assert!(matches!(other.settle(&folder), Err(Error::OtherBuild(_))));
        let quick = StateHead {
            quick: true,
            ..head
        };
        assert!(matches!(quick.settle(&folder), Err(Error::OtherVariant(_))));
    }

    #[test]
    fn rests_are_read_back_and_half_lines_are_not() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(rests(folder.path()).unwrap(), []);
        let rest = Rest {
            number: 3,
            before: 0.01,
            during: 0.0,
            seconds: 2.5,
        };
        add_rest(folder.path(), &rest).unwrap();
        let path = folder.path().join(RESTS_FILE);
        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str("{\"number\":4,\"bef");
        fs::write(&path, text).unwrap();
        assert_eq!(rests(folder.path()).unwrap(), [rest]);
    }
}

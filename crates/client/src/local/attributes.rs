//! Attributes that a copy keeps of its source: modification time and permission bits.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use godwit_proto::{
    Command, FtpPath,
    facts::{FactType, Facts},
    site::Site,
    timestamp::Timestamp,
};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};

use crate::spec::Preserve;

/// Permission bits that are copied. No server may create a set-user-id file.
const MODE_MASK: u32 = 0o777;
/// For a directory also the sticky bit: without it any user could remove the files of others.
const DIRECTORY_MODE_MASK: u32 = 0o1777;

/// The known attributes; unknown ones stay as the destination creates them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileAttributes {
    /// Whole seconds, as servers keep them.
    pub(crate) modified: Option<Timestamp>,
    pub(crate) mode: Option<u32>,
}

impl FileAttributes {
    /// Of a local file.
    pub(crate) fn of_metadata(metadata: &fs::Metadata) -> Self {
        Self {
            modified: Some(Timestamp(metadata.mtime())),
            mode: Some(metadata.mode() & mask(metadata.is_dir())),
        }
    }

    /// Of a file at a server, from its facts.
    pub(crate) fn of_facts(facts: &Facts) -> Self {
        Self {
            modified: facts.modify,
            mode: (facts.unix_mode).map(|mode| mode & mask(facts.kind == Some(FactType::Dir))),
        }
    }

    /// The attributes that `--preserve` selects; `None` if there are none.
    pub(crate) fn preserved(self, preserve: Preserve) -> Option<Self> {
        let attributes = Self {
            modified: self.modified.filter(|_| preserve.times),
            mode: self.mode.filter(|_| preserve.modes),
        };
        (attributes != Self::default()).then_some(attributes)
    }

    /// Applies them to a local file.
    pub(crate) fn apply(&self, path: &Path) -> io::Result<()> {
        if let Some(mode) = self.mode {
            fs::set_permissions(path, Permissions::from_mode(mode))?;
        }
        if let Some(Timestamp(seconds)) = self.modified {
            let now_as_it_is = Timespec {
                tv_sec: 0,
                tv_nsec: UTIME_OMIT,
            };
            let times = Timestamps {
                last_access: now_as_it_is,
                last_modification: Timespec {
                    tv_sec: seconds,
                    tv_nsec: 0,
                },
            };
            utimensat(CWD, path, &times, AtFlags::empty())?;
        }
        Ok(())
    }

    /// The commands that apply them to a file at a server.
    pub(crate) fn commands(&self, path: &FtpPath) -> impl Iterator<Item = Command> {
        let time = self.modified.map(|modify| Command::Mfmt {
            modify,
            path: path.clone(),
        });
        let mode = self.mode.map(|mode| {
            Command::Site(Site::Chmod {
                mode,
                path: path.clone(),
            })
        });
        time.into_iter().chain(mode)
    }
}

fn mask(is_directory: bool) -> u32 {
    match is_directory {
        true => DIRECTORY_MODE_MASK,
        false => MODE_MASK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gets_time_and_mode_and_no_bits_that_change_users() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "x").unwrap();
        let facts = Facts {
            modify: Some(Timestamp(1_000_000_007)),
            unix_mode: Some(0o4640),
            ..Facts::default()
        };
        FileAttributes::of_facts(&facts).apply(&path).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!(metadata.mode() & 0o7777, 0o640);
        assert_eq!(
            (metadata.mtime(), metadata.mtime_nsec()),
            (1_000_000_007, 0)
        );
        let again = FileAttributes::of_metadata(&metadata);
        assert_eq!(again, FileAttributes::of_facts(&facts));
        FileAttributes::default().apply(&path).unwrap();
        assert_eq!(
            FileAttributes::of_metadata(&fs::metadata(&path).unwrap()),
            again
        );
        assert_eq!(
            FileAttributes::default().commands(&FtpPath::root()).count(),
            0
        );
    }

    #[test]
    fn directories_keep_the_sticky_bit_and_no_set_id_bits() {
        let facts = |kind| Facts {
            kind: Some(kind),
            unix_mode: Some(0o7775),
            ..Facts::default()
        };
        let mode = |kind| FileAttributes::of_facts(&facts(kind)).mode;
        assert_eq!(mode(FactType::Dir), Some(0o1775));
        assert_eq!(mode(FactType::File), Some(0o775));
    }
}

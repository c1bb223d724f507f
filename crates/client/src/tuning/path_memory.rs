//! Settings of earlier transfers, one entry per path: the next transfer starts there.
//!
//! A small JSON file, `$XDG_STATE_HOME/godwit/paths.json` (`~/.local/state/godwit/paths.json` if
//! that is unset). It only gives the tuner a starting point: a wrong, old or broken file costs a
//! moment of tuning, so no error here fails a transfer.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use godwit_tune::Setting;
use serde::{Deserialize, Serialize};

use crate::local::directories;

/// Most paths; the least recently used are dropped.
const PATHS_MAX: usize = 512;
/// Bytes read of the file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Larger numbers are damage, not settings.
const CHANNELS_MAX: u32 = 1 << 16;

/// The file.
#[derive(Clone, Debug)]
pub(crate) struct PathMemory {
    file: PathBuf,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct StoredPaths {
    paths: Vec<PathEntry>,
}

#[derive(Debug, Serialize, Deserialize)]
struct PathEntry {
    /// Of the transfers: [`path_key`].
    path: String,
    concurrency: u32,
    parallelism: u32,
    goodput_bps: f64,
    /// When it was last used, seconds since 1970.
    used: u64,
}

impl PathMemory {
    /// The user's; `None` without a home.
    pub(crate) fn of_user() -> Option<Self> {
        Some(Self::at(&directories::state()?.join("paths.json")))
    }

    pub(crate) fn at(file: &Path) -> Self {
        Self {
            file: file.to_owned(),
        }
    }

    /// The setting of the last transfer over this path.
    pub(crate) fn recall(&self, path: &str) -> Option<Setting> {
        let entry = self.read().paths.into_iter().find(|e| e.path == path)?;
        let sane = 1..=CHANNELS_MAX;
        (sane.contains(&entry.concurrency) && sane.contains(&entry.parallelism))
            .then(|| Setting::new(entry.concurrency, entry.parallelism))
    }

    /// Stores the setting of a transfer and its goodput.
    ///
    /// # Errors
    /// The file cannot be written; its contents are kept.
    pub(crate) fn remember(
        &self,
        path: &str,
        setting: Setting,
        goodput_bps: f64,
    ) -> io::Result<()> {
        let folder = self.file.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        // Two transfers that end together must not lose each other's entry. The lock has its own
        // file, since the memory is replaced as a whole.
        let lock = File::create(self.file.with_extension("lock"))?;
        lock.lock()?;
        let mut remembered = self.read();
        remembered.paths.retain(|entry| entry.path != path);
        remembered.paths.push(PathEntry {
            path: path.to_owned(),
            concurrency: setting.concurrency,
            parallelism: setting.parallelism,
            goodput_bps,
            used: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
        });
        remembered.paths.sort_by_key(|entry| entry.used);
        let surplus = remembered.paths.len().saturating_sub(PATHS_MAX);
        remembered.paths.drain(..surplus);
        let fresh = self.file.with_extension("new");
        fs::write(&fresh, serde_json::to_string_pretty(&remembered)? + "\n")?;
        fs::rename(&fresh, &self.file)
    }

    fn read(&self) -> StoredPaths {
        let mut text = String::new();
        File::open(&self.file)
            .and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text))
            .ok()
            .and_then(|_| serde_json::from_str(&text).ok())
            .unwrap_or_default()
    }
}

/// Name of a path: the server's `host:port` and the direction, `put` or `get`. The other end is
/// this host.
pub(crate) fn path_key(server: &str, way: &str) -> String {
    format!("{way} {server}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_has_its_last_setting() {
        let folder = tempfile::tempdir().unwrap();
        let memory = PathMemory::at(&folder.path().join("deep/paths.json"));
        let (a, b) = (path_key("a:2811", "put"), path_key("a:2811", "get"));
        assert_eq!(memory.recall(&a), None);
        memory.remember(&a, Setting::new(1, 8), 1e9).unwrap();
        memory.remember(&b, Setting::new(2, 4), 2e9).unwrap();
        memory.remember(&a, Setting::new(1, 30), 3e9).unwrap();
        assert_eq!(memory.recall(&a), Some(Setting::new(1, 30)));
        assert_eq!(memory.recall(&b), Some(Setting::new(2, 4)));
    }

    #[test]
    fn damage_is_forgotten_and_mended() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("paths.json");
        let memory = PathMemory::at(&file);
        let path = |setting: &str| {
            format!(r#"{{"paths":[{{"path":"p",{setting},"goodput_bps":1,"used":1}}]}}"#)
        };
        for damage in [
            String::new(),
            "{".to_owned(),
            r#"{"paths": 3}"#.to_owned(),
            path(r#""concurrency":0,"parallelism":9"#),
            path(r#""concurrency":1,"parallelism":4000000000"#),
        ] {
            fs::write(&file, &damage).unwrap();
            assert_eq!(memory.recall("p"), None, "{damage}");
            memory.remember("p", Setting::new(1, 2), 1.0).unwrap();
            assert_eq!(memory.recall("p"), Some(Setting::new(1, 2)));
        }
    }

    #[test]
    fn those_who_write_together_keep_each_others_paths() {
        let folder = tempfile::tempdir().unwrap();
        let memory = PathMemory::at(&folder.path().join("paths.json"));
        std::thread::scope(|scope| {
            for writer in 1..=8_u32 {
                let memory = memory.clone();
                scope.spawn(move || {
                    let setting = Setting::new(1, writer);
                    memory
                        .remember(&format!("p{writer}"), setting, 1.0)
                        .unwrap();
                });
            }
        });
        for writer in 1..=8 {
            let got = memory.recall(&format!("p{writer}"));
            assert_eq!(got, Some(Setting::new(1, writer)));
        }
    }

    #[test]
    fn it_does_not_grow_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let memory = PathMemory::at(&folder.path().join("paths.json"));
        let paths = (0..PATHS_MAX as u64 + 20)
            .map(|n| PathEntry {
                path: n.to_string(),
                concurrency: 1,
                parallelism: 1,
                goodput_bps: 1.0,
                used: n,
            })
            .collect();
        fs::write(
            &memory.file,
            serde_json::to_vec(&StoredPaths { paths }).unwrap(),
        )
        .unwrap();
        memory.remember("new", Setting::new(1, 1), 1.0).unwrap();
        assert_eq!(memory.read().paths.len(), PATHS_MAX);
        assert_eq!(memory.recall("0"), None);
        assert!(memory.recall("new").is_some());
    }
}

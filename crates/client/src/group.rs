//! Transfers of one user on one host over one path: one of them tunes for all.
//!
//! Transfers that tune side by side disturb each other: what one observes is what the others are trying out. So those that
//! leave this host for the same server in the same direction form a *group*. Its members tell each other how many octets they
//! have moved; the one that holds the leader's lock observes their sum, decides one total setting, and each runs its
//! share of that, by weight. When the leader ends, however it ends, the lock is free and another goes on from the same total.
//!
//! ```text
//!   $XDG_RUNTIME_DIR/godwit/PATH/        a folder that only the user may enter
//!       ID.alive   locked as long as the member lives: the kernel unlocks it also after a kill
//!       ID         its weight and its octets, replaced as a whole
//!       leader     locked by the leader
//!       total      the setting that all share, replaced as a whole
//! ```
//! Nobody waits for anybody here, and nothing fails a transfer: without the folder each tunes for itself.

use std::{
    collections::HashMap,
    env,
    fs::{self, File, TryLockError},
    io::{self, Read},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use godwit_tune::Setting;

use crate::local;

/// Members that are looked at.
const MEMBERS_MAX: usize = 256;
/// Octets read of a file in the folder: each holds two short numbers.
const NOTE_OCTETS_MAX: u64 = 128;
/// Ending of the files whose locks say who lives.
const ALIVE: &str = ".alive";

/// Membership; dropping it ends it.
#[derive(Debug)]
pub(crate) struct Group {
    folder: PathBuf,
    id: String,
    weight: f64,
    _alive: File,
    /// Held by the leader.
    leader: Option<File>,
    /// Octets of each other member when it was last looked at.
    seen: HashMap<String, u64>,
    /// Octets that others have moved since we joined.
    others_bytes: u64,
}

/// What a look at the group showed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct View {
    /// We decide for all.
    pub(crate) leads: bool,
    /// Members, we included.
    pub(crate) members: usize,
    /// Octets that the others have moved since we joined, ever growing.
    pub(crate) others_bytes: u64,
    /// Our part of the whole, `0..=1`.
    pub(crate) part: f64,
    /// What the leader decided last.
    pub(crate) total: Option<Setting>,
}

impl Group {
    /// Joins the transfers over `path`. `weight` is finite and above 0.
    ///
    /// # Errors
    /// There is no folder that only this user may enter.
    pub(crate) fn join(path: &str, weight: f64) -> io::Result<Self> {
        Self::join_in(&user_folder()?, path, weight)
    }

    fn join_in(user_folder: &Path, path: &str, weight: f64) -> io::Result<Self> {
        let folder = user_folder.join(file_name_of(path));
        make_private(&folder)?;
        let id = format!(
            "{}-{:08x}",
            std::process::id(),
            local::random() & 0xffff_ffff
        );
        // Locked before it has its name: whoever sees it sees it locked.
        let fresh = folder.join(format!("{id}.new"));
        let alive = File::create(&fresh)?;
        alive.lock()?;
        fs::rename(&fresh, folder.join(format!("{id}{ALIVE}")))?;
        let mut group = Self {
            folder,
            id,
            weight,
            _alive: alive,
            leader: None,
            seen: HashMap::new(),
            others_bytes: 0,
        };
        group.exchange(0)?;
        Ok(group)
    }

    /// Tells the others how many octets we have moved since we joined, and looks at theirs. Takes some ten microseconds
    /// a member.
    ///
    /// # Errors
    /// The folder is gone, or full.
    pub(crate) fn exchange(&mut self, bytes: u64) -> io::Result<View> {
        self.write(&self.id.clone(), &format!("{} {bytes}\n", self.weight))?;
        let mut weights = self.weight;
        let mut members = 1;
        for id in self.others()? {
            let Some((weight, total)) = self.read_pair::<f64, u64>(&id) else {
                continue;
            };
            if !(weight.is_finite() && weight > 0.0) {
                continue;
            }
            members += 1;
            weights += weight;
            let before = self.seen.insert(id, total).unwrap_or(total);
            self.others_bytes = self
                .others_bytes
                .saturating_add(total.saturating_sub(before));
        }
        self.stand_for_leader()?;
        Ok(View {
            leads: self.leader.is_some(),
            members,
            others_bytes: self.others_bytes,
            part: self.weight / weights,
            total: self
                .read_pair("total")
                .map(|(concurrency, parallelism)| Setting::new(concurrency, parallelism)),
        })
    }

    /// The leader's decision for all.
    ///
    /// # Errors
    /// The folder is gone, or full.
    pub(crate) fn decide(&self, total: Setting) -> io::Result<()> {
        let text = format!("{} {}\n", total.concurrency, total.parallelism);
        self.write("total", &text)
    }

    /// Those alive; what the dead left is removed.
    fn others(&self) -> io::Result<Vec<String>> {
        let mut others = Vec::new();
        for entry in fs::read_dir(&self.folder)?.take(8 * MEMBERS_MAX) {
            let name = entry?.file_name();
            let Some(id) = name.to_str().and_then(|name| name.strip_suffix(ALIVE)) else {
                continue;
            };
            if id == self.id || others.len() == MEMBERS_MAX {
                continue;
            }
            let alive = self.folder.join(&name);
            // Gone between the two looks: it has ended.
            let Ok(file) = File::open(&alive) else {
                continue;
            };
            match file.try_lock_shared() {
                Err(TryLockError::WouldBlock) => others.push(id.to_owned()),
                Err(TryLockError::Error(error)) => return Err(error),
                Ok(()) => {
                    // Another may have removed them first.
                    let _ = fs::remove_file(self.folder.join(id));
                    let _ = fs::remove_file(&alive);
                }
            }
        }
        Ok(others)
    }

    fn stand_for_leader(&mut self) -> io::Result<()> {
        if self.leader.is_some() {
            return Ok(());
        }
        let file = (File::options().create(true).truncate(false).write(true))
            .open(self.folder.join("leader"))?;
        match file.try_lock() {
            Ok(()) => self.leader = Some(file),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        Ok(())
    }

    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let fresh = self.folder.join(format!("{}.tmp", self.id));
        fs::write(&fresh, text)?;
        fs::rename(&fresh, self.folder.join(name))
    }

    fn read_pair<A: std::str::FromStr, B: std::str::FromStr>(&self, name: &str) -> Option<(A, B)> {
        let mut text = String::new();
        let file = File::open(self.folder.join(name)).ok()?;
        file.take(NOTE_OCTETS_MAX).read_to_string(&mut text).ok()?;
        let (a, b) = text.trim_end().split_once(' ')?;
        Some((a.parse().ok()?, b.parse().ok()?))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // What stays is removed by the next who looks.
        let _ = fs::remove_file(self.folder.join(&self.id));
        let _ = fs::remove_file(self.folder.join(format!("{}{ALIVE}", self.id)));
    }
}

/// The share `part` (`0..=1`) of a total: its part of the channels, at least one, on as many movers as it has a part in.
pub(crate) fn share(total: Setting, part: f64) -> Setting {
    let part_of = |n: u32| {
        let exact = (f64::from(n) * part).round();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // within 1..=n
        let whole = exact.clamp(1.0, f64::from(n.max(1))) as u32;
        whole
    };
    let channels = part_of(total.channels());
    let concurrency = part_of(total.concurrency).min(channels);
    Setting {
        pipelining_depth: total.pipelining_depth,
        ..Setting::new(concurrency, channels / concurrency)
    }
}

fn user_folder() -> io::Result<PathBuf> {
    let folder = match env::var_os("XDG_RUNTIME_DIR").filter(|v| !v.is_empty()) {
        Some(runtime) => PathBuf::from(runtime).join("godwit"),
        None => {
            let user = rustix::process::geteuid().as_raw();
            env::temp_dir().join(format!("godwit-{user}"))
        }
    };
    make_private(&folder)?;
    Ok(folder)
}

/// Makes a folder, and makes sure that it is ours alone: under /tmp somebody else may have made it first.
fn make_private(folder: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(folder)?;
    let ours = found.uid() == rustix::process::geteuid().as_raw();
    if found.is_dir() && ours && found.mode() & 0o077 == 0 {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{} is not a folder of ours alone", folder.display()),
        ))
    }
}

fn file_name_of(path: &str) -> String {
    path.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '.' {
                c
            } else {
                '_'
            }
        })
        .take(200)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn member(folder: &tempfile::TempDir, weight: f64) -> Group {
        Group::join_in(folder.path(), "put host:2811", weight).unwrap()
    }

    #[test]
    fn one_leads_and_all_see_the_total() {
        let folder = folder();
        let mut first = member(&folder, 1.0);
        let mut second = member(&folder, 3.0);
        first.decide(Setting::new(2, 16)).unwrap();
        let (a, b) = (first.exchange(10).unwrap(), second.exchange(0).unwrap());
        assert!(a.leads && !b.leads);
        assert_eq!((a.members, b.members), (2, 2));
        assert_eq!(b.total, Some(Setting::new(2, 16)));
        assert_eq!((a.part, b.part), (0.25, 0.75));
    }

    #[test]
    fn octets_of_others_count_from_the_first_look() {
        let folder = folder();
        let mut first = member(&folder, 1.0);
        first.exchange(1000).unwrap();
        let mut second = member(&folder, 1.0);
        assert_eq!(second.exchange(5).unwrap().others_bytes, 0);
        first.exchange(1700).unwrap();
        assert_eq!(second.exchange(9).unwrap().others_bytes, 700);
        assert_eq!(first.exchange(1800).unwrap().others_bytes, 4);
        second.exchange(10).unwrap();
        assert_eq!(first.exchange(1800).unwrap().others_bytes, 5);
    }

    #[test]
    fn when_the_leader_ends_another_goes_on() {
        let folder = folder();
        let first = member(&folder, 1.0);
        let mut second = member(&folder, 1.0);
        first.decide(Setting::new(1, 30)).unwrap();
        drop(first);
        let view = second.exchange(0).unwrap();
        assert!(view.leads);
        assert_eq!((view.members, view.part), (1, 1.0));
        assert_eq!(view.total, Some(Setting::new(1, 30)));
    }

    #[test]
    fn what_the_dead_left_is_removed() {
        let folder = folder();
        let mut group = member(&folder, 1.0);
        let dead = group.folder.join("1-00000000.alive");
        fs::write(&dead, "").unwrap();
        fs::write(group.folder.join("1-00000000"), "1 5\n").unwrap();
        assert_eq!(group.exchange(0).unwrap().members, 1);
        assert!(!dead.exists());
    }

    #[test]
    fn nonsense_of_others_is_no_member() {
        let folder = folder();
        let mut group = member(&folder, 1.0);
        let other = member(&folder, 1.0);
        for text in ["", "x y\n", "NaN 4\n", "-1 4\n", "inf 4\n", "1\n"] {
            fs::write(group.folder.join(&other.id), text).unwrap();
            let view = group.exchange(0).unwrap();
            assert_eq!((view.members, view.part), (1, 1.0), "{text:?}");
        }
        fs::write(group.folder.join("total"), "0 4000000000\n").unwrap();
        assert_eq!(group.exchange(0).unwrap().total.unwrap().concurrency, 1);
    }

    #[test]
    fn a_folder_of_others_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let open = folder.path().join("open");
        fs::DirBuilder::new().mode(0o777).create(&open).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(&open, mode).unwrap();
        assert!(make_private(&open).is_err());
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path(), &link).unwrap();
        assert!(make_private(&link).is_err());
    }

    proptest! {
        #[test]
        fn shares_are_settings_and_fit(c in 1_u32..500, p in 1_u32..500, part in 0.0_f64..=1.0) {
            let total = Setting::new(c, p);
            let got = share(total, part);
            prop_assert!(got.concurrency >= 1 && got.parallelism >= 1);
            prop_assert!(got.channels() <= total.channels());
            prop_assert_eq!(share(total, 1.0), total);
        }
    }
}

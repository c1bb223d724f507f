//! Storage with the rights of one login: the one place where a path becomes an operation, whatever
//! command asks for it.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::SystemTime,
};

use godwit_engine::storage::{Clock, Entries, FileRef, Metadata, Result, Storage, WriteMode};
use godwit_proto::{FtpPath, error::StorageFailure, temporary};
use rustix::io::Errno;

use super::rights::{Access, Denied, Operation, Rights};

/// Files of a login that are remembered as its own: far more than wait for their final names.
const MADE_MAX: usize = 4096;

/// Files made with the right to create alone, the last at the end: path, device and inode. The
/// sessions of one login (the same subject of the same issuer) share it: a client writes a large
/// file in several, and renames it in any.
#[derive(Debug, Default)]
pub(crate) struct Made(Mutex<VecDeque<(FtpPath, (u64, u64))>>);

/// What each login has made, as long as it has a session in this process.
#[derive(Debug, Default)]
pub(crate) struct CreatedFiles(Mutex<HashMap<String, Weak<Made>>>);

impl CreatedFiles {
    pub(crate) fn of(&self, holder: &str) -> Arc<Made> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = all.get(holder).and_then(Weak::upgrade) {
            return made;
        }
        all.retain(|_, made| made.strong_count() > 0);
        let made = Arc::default();
        all.insert(holder.to_owned(), Arc::downgrade(&made));
        made
    }
}

/// [`Storage`] behind [`Rights`], which are looked at at each call: what was opened stays open when
/// they end.
pub(crate) struct ScopedStorage {
    inner: Arc<dyn Storage>,
    rights: Rights,
    clock: Clock,
    made: Arc<Made>,
}

impl ScopedStorage {
    pub(crate) fn new(
        inner: Arc<dyn Storage>,
        rights: Rights,
        clock: Clock,
        made: Arc<Made>,
    ) -> Self {
        Self {
            inner,
            rights,
            clock,
            made,
        }
    }

    /// The same for a file that gets its name `path` when it is whole: a right to make that is one
    /// to make `temporary` before. A token may be for one file alone. One that is good now is good
    /// for all of the file: a long copy does not fail when it gives the name.
    pub(crate) fn storing(&self, path: &FtpPath, temporary: &FtpPath) -> Self {
        let mut rights = self.rights.clone();
        if self.may(Operation::Create, path) {
            rights.add(Access::Create, temporary);
            rights = rights.lasting();
        }
        Self {
            inner: Arc::clone(&self.inner),
            rights,
            clock: Arc::clone(&self.clock),
            made: Arc::clone(&self.made),
        }
    }

    fn check(&self, deed: Operation, path: &FtpPath) -> Result<()> {
        let denied = match self.rights.check(deed, path, (self.clock)()) {
            Ok(()) => return Ok(()),
            Err(denied) => denied,
        };
        let errno = match denied {
            Denied::Expired => Errno::KEYEXPIRED,
            Denied::NotGranted { .. } => Errno::KEYREJECTED,
        };
        Err(StorageFailure {
            errno: errno.raw_os_error(),
            doing: deed.to_string(),
            text: denied.to_string(),
        })
    }

    fn remember(&self, path: &FtpPath, file: (u64, u64)) {
        let mut made = self.made.0.lock().unwrap_or_else(PoisonError::into_inner);
        if made.len() == MADE_MAX {
            made.pop_front();
        }
        made.push_back((path.clone(), file));
    }

    /// What this login made at `path`, if it is still what is there.
    fn made(&self, path: &FtpPath) -> Option<(u64, u64)> {
        let there = self.inner.stat(path).ok()?.unique;
        let made = self.made.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut last_first = made.iter().rev();
        last_first
            .any(|(name, file)| name == path && *file == there)
            .then_some(there)
    }

    fn forget(&self, path: &FtpPath) {
        let mut made = self.made.0.lock().unwrap_or_else(PoisonError::into_inner);
        made.retain(|(name, _)| name != path);
    }

    /// Where a name is taken it is the right to change it that is missing.
    fn taken(&self, path: &FtpPath, failure: StorageFailure) -> StorageFailure {
        match failure.errno == Errno::EXIST.raw_os_error() {
            true => self.check(Operation::Modify, path).err().unwrap_or(failure),
            false => failure,
        }
    }

    /// Whether the rights allow it, and have not ended.
    pub(crate) fn may(&self, deed: Operation, path: &FtpPath) -> bool {
        self.check(deed, path).is_ok()
    }

    /// Who may only create may give a file that they have made its final name, unless that is
    /// taken. Other files keep their names: one that was renamed could be stored again.
    fn rename_as_allowed(&self, from: &FtpPath, to: &FtpPath, may_replace: bool) -> Result<()> {
        self.check(Operation::Create, from)?;
        self.check(Operation::Create, to)?;
        let made = match self.may(Operation::Modify, from) {
            true => None,
            false => {
                let made = self.made(from);
                if made.is_none() {
                    self.check(Operation::Modify, from)?;
                }
                made
            }
        };
        match may_replace {
            true => self.inner.rename(from, to),
            false => {
                (self.inner.rename_noreplace(from, to)).map_err(|failure| self.taken(to, failure))
            }
        }?;
        if let Some(file) = made {
            self.forget(from);
            self.remember(to, file);
        }
        Ok(())
    }

    /// The same as [`Self::check`], and who may create may do all with a file of their own that
    /// has a temporary name still: it is written in several parts, compared, and removed if it
    /// fails. With its final name it is as another's.
    fn check_file(&self, deed: Operation, path: &FtpPath) -> Result<()> {
        self.check(deed, path).or_else(|denied| {
            let is_temporary = path.file_name().is_some_and(temporary::is_temporary);
            let unfinished =
                is_temporary && self.may(Operation::Create, path) && self.made(path).is_some();
            unfinished.then_some(()).ok_or(denied)
        })
    }
}

impl Storage for ScopedStorage {
    fn open_read(&self, path: &FtpPath) -> Result<FileRef> {
        self.check_file(Operation::Read, path)?;
        self.inner.open_read(path)
    }

    fn open_write(&self, path: &FtpPath, how: WriteMode) -> Result<FileRef> {
        match self.check_file(Operation::Modify, path) {
            Ok(()) => return self.inner.open_write(path, how),
            Err(denied) if how == WriteMode::Existing => return Err(denied),
            Err(_) => self.check(Operation::Create, path)?,
        }
        let file = self
            .inner
            .open_write(path, WriteMode::New)
            .map_err(|failure| self.taken(path, failure))?;
        self.remember(path, file.as_opened()?.unique);
        Ok(file)
    }

    fn stat(&self, path: &FtpPath) -> Result<Metadata> {
        self.check(Operation::Look, path)?;
        self.inner.stat(path)
    }

    fn list(&self, path: &FtpPath) -> Result<Entries> {
        self.check(Operation::Read, path)?;
        self.inner.list(path)
    }

    fn create_dir(&self, path: &FtpPath) -> Result<()> {
        self.check(Operation::Create, path)?;
        self.inner.create_dir(path)
    }

    fn remove_dir(&self, path: &FtpPath) -> Result<()> {
        self.check(Operation::Modify, path)?;
        self.inner.remove_dir(path)
    }

    fn remove_file(&self, path: &FtpPath) -> Result<()> {
        self.check_file(Operation::Modify, path)?;
        self.inner.remove_file(path)
    }

    fn remove_tree(&self, path: &FtpPath) -> Result<()> {
        self.check(Operation::Modify, path)?;
        self.inner.remove_tree(path)
    }

    fn rename(&self, from: &FtpPath, to: &FtpPath) -> Result<()> {
        self.rename_as_allowed(from, to, self.may(Operation::Modify, to))
    }

    fn rename_noreplace(&self, from: &FtpPath, to: &FtpPath) -> Result<()> {
        self.rename_as_allowed(from, to, false)
    }

    fn set_modified(&self, path: &FtpPath, modified: SystemTime) -> Result<()> {
        self.check_file(Operation::Modify, path)?;
        self.inner.set_modified(path, modified)
    }

    fn set_mode(&self, path: &FtpPath, mode: u32) -> Result<()> {
        self.check_file(Operation::Modify, path)?;
        self.inner.set_mode(path, mode)
    }

    fn set_group(&self, path: &FtpPath, group: &str) -> Result<()> {
        self.check_file(Operation::Modify, path)?;
        self.inner.set_group(path, group)
    }

    fn set_len(&self, path: &FtpPath, length: u64) -> Result<()> {
        self.check_file(Operation::Modify, path)?;
        self.inner.set_len(path, length)
    }

    /// A link would lead to where there are no rights.
    fn symlink(&self, _target: &FtpPath, link: &FtpPath) -> Result<()> {
        self.check(Operation::Modify, link)?;
        Err(crate::storage::failure(Errno::ACCESS, "symlink"))
    }

    fn free_bytes(&self, path: &FtpPath) -> Result<u64> {
        self.check(Operation::Look, path)?;
        self.inner.free_bytes(path)
    }

    /// Part of what was allowed already.
    fn sync_directory(&self, path: &FtpPath) -> Result<()> {
        self.inner.sync_directory(path)
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Mutex, time::Duration};

    use godwit_engine::storage::MemoryStorage;

    use super::*;
    use crate::access::rights::Grant;

    fn path(text: &str) -> FtpPath {
        FtpPath::new(text).unwrap()
    }

    fn scoped(grants: &[(Access, &str)]) -> ScopedStorage {
        let inner = MemoryStorage::new();
        for name in ["/a", "/b", "/ab"] {
            inner.create_dir(&path(name)).unwrap();
            let file = path(&format!("{name}/f"));
            inner.open_write(&file, WriteMode::New).unwrap();
        }
        let grants = grants.iter().map(|(access, text)| Grant {
            access: *access,
            path: path(text),
        });
        let rights = Rights::new(grants.collect(), None);
        ScopedStorage::new(
            Arc::new(inner),
            rights,
            Arc::new(SystemTime::now),
            Arc::default(),
        )
    }

    /// What can be done to what is at `at`: a letter each, in this order.
    fn operations(storage: &ScopedStorage, at: &str) -> String {
        let file = path(&format!("{at}/f"));
        let new = path(&format!("{at}/new"));
        let top = path(at);
        let mut done = String::new();
        let mut note = |letter, ok| {
            if ok {
                done.push(letter);
            }
        };
        note('s', storage.stat(&file).is_ok());
        note('r', storage.open_read(&file).is_ok());
        note('l', storage.list(&top).is_ok());
        note('c', storage.open_write(&new, WriteMode::Replace).is_ok());
        note('d', storage.create_dir(&path(&format!("{at}/d"))).is_ok());
        note('n', storage.rename(&new, &path(&format!("{at}/n"))).is_ok());
        note(
            'R',
            storage.rename(&path(&format!("{at}/n")), &file).is_ok(),
        );
        note('w', storage.open_write(&file, WriteMode::Keep).is_ok());
        note('t', storage.set_len(&file, 0).is_ok());
        note(
            'm',
            storage.set_modified(&file, SystemTime::UNIX_EPOCH).is_ok(),
        );
        note('p', storage.set_mode(&file, 0o600).is_ok());
        note(
            'k',
            storage
                .symlink(&path("/b/f"), &path(&format!("{at}/k")))
                .is_ok(),
        );
        note('x', storage.remove_file(&file).is_ok());
        note('D', storage.remove_dir(&path(&format!("{at}/d"))).is_ok());
        note('T', storage.remove_tree(&top).is_ok());
        done
    }

    #[test]
    fn rights_decide_each_operation() {
        use Access::*;
        assert_eq!(operations(&scoped(&[(Read, "/a")]), "/a"), "srl");
        assert_eq!(operations(&scoped(&[(Create, "/a")]), "/a"), "scdn");
        assert_eq!(operations(&scoped(&[(Modify, "/a")]), "/a"), "scdnRwtmpxDT");
        for access in [Read, Create, Modify] {
            for elsewhere in ["/b", "/ab"] {
                assert_eq!(
                    operations(&scoped(&[(access, "/a")]), elsewhere),
                    "",
                    "{access:?}"
                );
            }
        }
    }

    #[test]
    fn create_only_logins_rename_only_their_files() {
        let storage = scoped(&[(Access::Create, "/a")]);
        let refused = |from: &str, to: &str| {
            let failure = storage.rename(&path(from), &path(to)).unwrap_err();
            assert_eq!(failure.errno, Errno::KEYREJECTED.raw_os_error(), "{from}");
        };
        let make = |name: &str| {
            let file = storage.open_write(&path(name), WriteMode::Replace).unwrap();
            file.write_all_at(0, b"x").unwrap();
        };
        refused("/a/f", "/a/gone");
        make("/a/.part");
        refused("/a/.part", "/a/f");
        storage.rename(&path("/a/.part"), &path("/a/g")).unwrap();
        // Neither is it the session's that has a name of the past.
        storage
            .inner
            .open_write(&path("/a/.part"), WriteMode::New)
            .unwrap();
        refused("/a/.part", "/a/h");
        storage.rename(&path("/a/g"), &path("/a/h")).unwrap();
        // Nor what another put in the place of its file, nor a directory, whose files may be
        // others'.
        storage.inner.remove_file(&path("/a/h")).unwrap();
        make_by_another(&storage, "/a/other", "/a/h");
        refused("/a/h", "/a/i");
        storage.create_dir(&path("/a/d")).unwrap();
        refused("/a/d", "/a/e");
    }

    fn make_by_another(storage: &ScopedStorage, at: &str, then: &str) {
        let (at, then) = (path(at), path(then));
        storage.inner.open_write(&at, WriteMode::New).unwrap();
        storage.inner.rename(&at, &then).unwrap();
    }

    #[test]
    fn open_files_outlive_expired_rights() {
        let inner = MemoryStorage::new();
        let file = path("/f");
        inner.open_write(&file, WriteMode::New).unwrap();
        let grant = Grant {
            access: Access::Read,
            path: FtpPath::root(),
        };
        let end = SystemTime::UNIX_EPOCH + Duration::from_secs(10);
        let now = Arc::new(Mutex::new(SystemTime::UNIX_EPOCH));
        let clock = Arc::clone(&now);
        let rights = Rights::new(vec![grant], Some(end));
        let clock = Arc::new(move || *clock.lock().unwrap());
        let storage = ScopedStorage::new(Arc::new(inner), rights, clock, Arc::default());
        let open = storage.open_read(&file).unwrap();
        *now.lock().unwrap() = end;
        let failure = storage.open_read(&file).err().unwrap();
        assert_eq!(failure.errno, Errno::KEYEXPIRED.raw_os_error());
        assert!(failure.text.contains("expired"), "{}", failure.text);
        assert!(storage.stat(&file).is_err() && storage.list(&FtpPath::root()).is_err());
        assert_eq!(open.read_at(0, &mut [0]), Ok(0));
    }

    #[test]
    fn what_was_begun_with_good_rights_gets_its_name_when_they_have_ended() {
        let (file, temporary) = (path("/f"), path("/.godwit-part"));
        let grant = Grant {
            access: Access::Create,
            path: file.clone(),
        };
        let end = SystemTime::UNIX_EPOCH + Duration::from_secs(10);
        let now = Arc::new(Mutex::new(SystemTime::UNIX_EPOCH));
        let clock = Arc::clone(&now);
        let rights = Rights::new(vec![grant], Some(end));
        let clock: Clock = Arc::new(move || *clock.lock().unwrap());
        let inner = Arc::new(MemoryStorage::new());
        let storage = ScopedStorage::new(inner, rights, clock, Arc::default());
        let begun = storage.storing(&file, &temporary);
        begun.open_write(&temporary, WriteMode::New).unwrap();
        *now.lock().unwrap() = end;
        let late = storage.storing(&path("/g"), &path("/.godwit-late"));
        let failure = late.open_write(&path("/.godwit-late"), WriteMode::New);
        let failure = failure.err().unwrap();
        assert_eq!(failure.errno, Errno::KEYEXPIRED.raw_os_error());
        begun.rename_noreplace(&temporary, &file).unwrap();
        assert!(
            begun.open_read(&file).is_err(),
            "it may make the file alone"
        );
    }

    #[test]
    fn nothing_moves_between_places_with_and_without_rights() {
        let storage = scoped(&[(Access::Read, "/a"), (Access::Modify, "/a")]);
        for (from, to) in [("/b/f", "/a/g"), ("/a/f", "/b/g"), ("/a/f", "/ab/g")] {
            let failure = storage.rename(&path(from), &path(to)).unwrap_err();
            assert_eq!(failure.errno, Errno::KEYREJECTED.raw_os_error());
            assert!(failure.text.contains("does not allow"), "{}", failure.text);
        }
    }

    #[test]
    fn unfinished_files_belong_to_all_sessions_of_one_login_and_to_no_other() {
        let inner: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let logins = CreatedFiles::default();
        let session = |holder: &str| {
            let grant = Grant {
                access: Access::Create,
                path: path("/"),
            };
            let rights = Rights::new(vec![grant], None);
            let clock = Arc::new(SystemTime::now);
            ScopedStorage::new(Arc::clone(&inner), rights, clock, logins.of(holder))
        };
        let (first, second, other) = (session("jo"), session("jo"), session("kim"));
        let part = path(&format!("/{}", temporary::temporary_name(7)));
        first.open_write(&part, WriteMode::New).unwrap();
        for how in [WriteMode::Keep, WriteMode::Existing] {
            assert!(other.open_write(&part, how).is_err());
        }
        assert!(other.open_read(&part).is_err() && other.remove_file(&part).is_err());
        assert!(other.rename(&part, &path("/g")).is_err());
        let file = second.open_write(&part, WriteMode::Existing).unwrap();
        file.write_all_at(0, b"x").unwrap();
        assert!(second.open_read(&part).is_ok() && second.set_len(&part, 1).is_ok());
        second.rename(&part, &path("/f")).unwrap();
        // A finished file does not change.
        for session in [&first, &second, &other] {
            assert!(session.open_write(&path("/f"), WriteMode::Keep).is_err());
            assert!(session.open_read(&path("/f")).is_err());
            assert!(session.remove_file(&path("/f")).is_err());
        }
        first.open_write(&part, WriteMode::New).unwrap();
        second.remove_file(&part).unwrap();
        // A login without sessions is forgotten.
        first.open_write(&part, WriteMode::New).unwrap();
        drop((first, second));
        assert!(session("jo").remove_file(&part).is_err());
    }
}

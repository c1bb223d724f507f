//! A tree in memory, for tests and simulations.

mod file;
mod tree;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use godwit_proto::FtpPath;
use parking_lot::{Mutex, MutexGuard, RwLock};
use rustix::io::Errno;

use self::{
    file::{About, MemoryFile, Shared},
    tree::{Node, ROOT, Tree},
};
use super::{Entries, FileRef, Metadata, Result, Storage, WriteMode, errno_failure, owner};

/// Bytes that all files together may hold by default. Guards against a write at a huge offset,
/// which a file system would keep as a hole and we cannot.
const CAPACITY_DEFAULT: u64 = 1 << 30;

/// Files in memory. Permission bits are kept but not enforced; an absolute link begins at the root
/// of the tree, and `..` above the root is the root.
pub struct MemoryStorage {
    tree: Mutex<Tree>,
    shared: Arc<Shared>,
}

/// Gives the time of modification.
pub type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

impl MemoryStorage {
    /// Empty, with room for 1 GiB.
    pub fn new() -> Self {
        Self::with(CAPACITY_DEFAULT, Arc::new(SystemTime::now))
    }

    /// Empty, with room for `capacity` bytes (ENOSPC past it) and times by `clock`.
    pub fn with(capacity: u64, clock: Clock) -> Self {
        let about = About {
            modified: clock(),
            mode: 0o777,
            uid: 0,
            gid: 0,
        };
        let root = Node::Directory(BTreeMap::new(), about);
        Self {
            tree: Mutex::new(Tree {
                nodes: HashMap::from([(ROOT, root)]),
                next: ROOT + 1,
            }),
            shared: Arc::new(Shared {
                clock,
                capacity,
                used: AtomicU64::new(0),
            }),
        }
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock()
    }

    fn about(&self, mode: u32) -> About {
        About {
            modified: (self.shared.clock)(),
            mode,
            uid: 0,
            gid: 0,
        }
    }

    fn opened(
        &self,
        path: &FtpPath,
        create: Option<WriteMode>,
    ) -> std::result::Result<FileRef, Errno> {
        let mut tree = self.tree();
        let follow = !matches!(create, Some(WriteMode::New | WriteMode::KeepNoFollow));
        let place = tree.locate(path.as_bytes(), follow)?;
        match (place.node.and_then(|id| tree.nodes.get(&id)), create) {
            (Some(_), Some(WriteMode::New)) => Err(Errno::EXIST),
            (Some(Node::Directory(..)), _) => Err(Errno::ISDIR),
            (Some(Node::File(file)), how) => {
                if how == Some(WriteMode::Replace) {
                    file.resize(0)?;
                }
                Ok(Arc::clone(file) as FileRef)
            }
            // `locate` follows the last link unless the mode forbids it.
            (Some(Node::Link(..)), _) => Err(Errno::LOOP),
            (None, None | Some(WriteMode::Existing)) => Err(Errno::NOENT),
            (None, Some(_)) => {
                let file = Arc::new(MemoryFile {
                    bytes: RwLock::new(Vec::new()),
                    about: Mutex::new(self.about(0o644)),
                    inode: tree.next,
                    shared: Arc::clone(&self.shared),
                });
                tree.add(place, Node::File(Arc::clone(&file)), self.about(0))?;
                Ok(file)
            }
        }
    }

    /// Applies `change` to what is noted of a file or directory.
    fn amend(
        &self,
        path: &FtpPath,
        change: impl FnOnce(&mut About),
    ) -> std::result::Result<(), Errno> {
        let mut tree = self.tree();
        let id = tree
            .locate(path.as_bytes(), true)?
            .node
            .ok_or(Errno::NOENT)?;
        match tree.nodes.get_mut(&id).ok_or(Errno::NOENT)? {
            Node::Directory(_, about) | Node::Link(_, about) => change(about),
            Node::File(file) => change(&mut file.about.lock()),
        }
        Ok(())
    }

    fn removed(&self, path: &FtpPath, what: Removal) -> std::result::Result<(), Errno> {
        let mut tree = self.tree();
        let place = tree.locate(path.as_bytes(), false)?;
        let id = place.node.ok_or(Errno::NOENT)?;
        match (tree.nodes.get(&id).ok_or(Errno::NOENT)?, what) {
            (Node::Directory(..), Removal::File) => return Err(Errno::ISDIR),
            (_, Removal::Directory | Removal::Tree) if id == ROOT => return Err(Errno::BUSY),
            (Node::Directory(entries, _), Removal::Directory) if !entries.is_empty() => {
                return Err(Errno::NOTEMPTY);
            }
            (Node::File(_) | Node::Link(..), Removal::Directory) => return Err(Errno::NOTDIR),
            _ => {}
        }
        let now = (self.shared.clock)();
        tree.unlink(&place, now);
        tree.drop_all(id);
        Ok(())
    }
}

impl Default for MemoryStorage {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Removal {
    File,
    Directory,
    Tree,
}

impl Storage for MemoryStorage {
    fn open_read(&self, path: &FtpPath) -> Result<FileRef> {
        self.opened(path, None)
            .map_err(|e| errno_failure(format!("open {path} for reading"), e))
    }

    fn open_write(&self, path: &FtpPath, how: WriteMode) -> Result<FileRef> {
        self.opened(path, Some(how))
            .map_err(|e| errno_failure(format!("open {path} for writing"), e))
    }

    fn stat(&self, path: &FtpPath) -> Result<Metadata> {
        self.tree()
            .look(path.as_bytes())
            .map_err(|e| errno_failure(format!("stat {path}"), e))
    }

    fn list(&self, path: &FtpPath) -> Result<Entries> {
        let fail = |e| errno_failure(format!("list {path}"), e);
        let tree = self.tree();
        let id = tree
            .locate(path.as_bytes(), true)
            .and_then(|place| place.node.ok_or(Errno::NOENT))
            .map_err(fail)?;
        let Some(Node::Directory(entries, _)) = tree.nodes.get(&id) else {
            return Err(fail(Errno::NOTDIR));
        };
        let mut found = Vec::with_capacity(entries.len());
        for name in entries.keys() {
            let Ok(whole) = path.join(name) else { continue };
            if let Ok(metadata) = tree.look(whole.as_bytes()) {
                found.push(Ok((name.clone(), metadata)));
            }
        }
        Ok(Box::new(found.into_iter()))
    }

    fn create_dir(&self, path: &FtpPath) -> Result<()> {
        let mut tree = self.tree();
        let made = tree.locate(path.as_bytes(), false).and_then(|place| {
            let about = self.about(0o755);
            tree.add(place, Node::Directory(BTreeMap::new(), about), about)
        });
        made.map_err(|e| errno_failure(format!("create directory {path}"), e))
    }

    fn remove_dir(&self, path: &FtpPath) -> Result<()> {
        self.removed(path, Removal::Directory)
            .map_err(|e| errno_failure(format!("remove directory {path}"), e))
    }

    fn remove_file(&self, path: &FtpPath) -> Result<()> {
        self.removed(path, Removal::File)
            .map_err(|e| errno_failure(format!("remove {path}"), e))
    }

    fn remove_tree(&self, path: &FtpPath) -> Result<()> {
        self.removed(path, Removal::Tree)
            .map_err(|e| errno_failure(format!("remove tree {path}"), e))
    }

    fn rename(&self, from: &FtpPath, to: &FtpPath) -> Result<()> {
        let now = (self.shared.clock)();
        self.tree()
            .rename(from.as_bytes(), to.as_bytes(), now)
            .map_err(|e| errno_failure(format!("rename {from} to {to}"), e))
    }

    fn set_modified(&self, path: &FtpPath, modified: SystemTime) -> Result<()> {
        self.amend(path, |about| about.modified = modified)
            .map_err(|e| errno_failure(format!("set time of {path}"), e))
    }

    fn set_mode(&self, path: &FtpPath, mode: u32) -> Result<()> {
        self.amend(path, |about| about.mode = mode & 0o7777)
            .map_err(|e| errno_failure(format!("set mode of {path}"), e))
    }

    fn set_group(&self, path: &FtpPath, group: &str) -> Result<()> {
        owner::group_id(group)
            .ok_or(Errno::INVAL)
            .and_then(|gid| self.amend(path, |about| about.gid = gid))
            .map_err(|e| errno_failure(format!("set group of {path} to {group}"), e))
    }

    fn set_len(&self, path: &FtpPath, length: u64) -> Result<()> {
        let tree = self.tree();
        let set = tree.locate(path.as_bytes(), true).and_then(|place| {
            match tree.nodes.get(&place.node.ok_or(Errno::NOENT)?) {
                Some(Node::File(file)) => file.resize(length),
                Some(Node::Directory(..)) => Err(Errno::ISDIR),
                _ => Err(Errno::NOENT),
            }
        });
        set.map_err(|e| errno_failure(format!("truncate {path} to {length} bytes"), e))
    }

    fn symlink(&self, target: &FtpPath, link: &FtpPath) -> Result<()> {
        let mut tree = self.tree();
        let made = tree.locate(link.as_bytes(), false).and_then(|place| {
            let about = self.about(0o777);
            tree.add(place, Node::Link(target.as_bytes().to_vec(), about), about)
        });
        made.map_err(|e| errno_failure(format!("link {link} to {target}"), e))
    }

    fn free_bytes(&self, _path: &FtpPath) -> Result<u64> {
        Ok(self
            .shared
            .capacity
            .saturating_sub(self.shared.used.load(Ordering::Relaxed)))
    }

    fn sync_directory(&self, _path: &FtpPath) -> Result<()> {
        Ok(())
    }
}

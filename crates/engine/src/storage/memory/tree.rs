//! Names, directories and links in memory.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::SystemTime,
};

use rustix::io::Errno;

use super::{
    super::{FileKind, Metadata},
    file::{About, MemoryFile},
};

/// Symbolic links in one path, as in the kernel.
const LINKS_MAX: u32 = 40;
pub(super) const ROOT: u64 = 1;

pub(super) struct Tree {
    pub(super) nodes: HashMap<u64, Node>,
    pub(super) next: u64,
}

pub(super) enum Node {
    Directory(BTreeMap<Vec<u8>, u64>, About),
    File(Arc<MemoryFile>),
    Link(Vec<u8>, About),
}

/// A name in a directory, and what it names.
pub(super) struct Place {
    pub(super) directory: u64,
    /// Empty for the root.
    pub(super) name: Vec<u8>,
    pub(super) node: Option<u64>,
}

impl Tree {
    /// Follows `path`, and a link at its end if `follow`. ENOENT and ENOTDIR for what leads to the
    /// last name; the last name may be free.
    pub(super) fn locate(&self, path: &[u8], follow: bool) -> std::result::Result<Place, Errno> {
        let parts = |path: &[u8]| -> Vec<Vec<u8>> {
            let parts = path
                .split(|b| *b == b'/')
                .filter(|p| !matches!(*p, b"" | b"."));
            parts.rev().map(<[u8]>::to_vec).collect()
        };
        let mut pending = parts(path);
        let mut above: Vec<u64> = Vec::new();
        let mut here = ROOT;
        let mut links = 0;
        let mut place = Place {
            directory: ROOT,
            name: Vec::new(),
            node: Some(ROOT),
        };
        while let Some(name) = pending.pop() {
            if name.len() > 255 {
                return Err(Errno::NAMETOOLONG);
            }
            if name == b".." {
                here = above.pop().unwrap_or(ROOT);
                place = Place {
                    directory: here,
                    name: Vec::new(),
                    node: Some(here),
                };
                continue;
            }
            let Some(Node::Directory(entries, _)) = self.nodes.get(&here) else {
                return Err(Errno::NOTDIR);
            };
            let node = entries.get(&name).copied();
            let last = pending.is_empty();
            match node.and_then(|id| self.nodes.get(&id)) {
                Some(Node::Link(target, _)) if !last || follow => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(Errno::LOOP);
                    }
                    if target.first() == Some(&b'/') {
                        above.clear();
                        here = ROOT;
                    }
                    pending.extend(parts(target));
                    place = Place {
                        directory: here,
                        name: Vec::new(),
                        node: Some(here),
                    };
                }
                None if !last => return Err(Errno::NOENT),
                _ => {
                    place = Place {
                        directory: here,
                        name,
                        node,
                    };
                    if let Some(id) = node {
                        above.push(here);
                        here = id;
                    }
                }
            }
        }
        Ok(place)
    }

    pub(super) fn look(&self, path: &[u8]) -> std::result::Result<Metadata, Errno> {
        let own = self.locate(path, false)?.node.ok_or(Errno::NOENT)?;
        let link_target = match self.nodes.get(&own) {
            Some(Node::Link(target, _)) => Some(target.clone()),
            _ => None,
        };
        let id = self.locate(path, true)?.node.ok_or(Errno::NOENT)?;
        let node = self.nodes.get(&id).ok_or(Errno::NOENT)?;
        Ok(Metadata {
            link_target,
            ..node.metadata(id)
        })
    }

    pub(super) fn add(
        &mut self,
        place: Place,
        node: Node,
        now: About,
    ) -> std::result::Result<(), Errno> {
        if place.node.is_some() {
            return Err(Errno::EXIST);
        }
        match self.nodes.get_mut(&place.directory) {
            Some(Node::Directory(entries, about)) => {
                entries.insert(place.name, self.next);
                about.modified = now.modified;
            }
            _ => return Err(Errno::NOTDIR),
        }
        self.nodes.insert(self.next, node);
        self.next += 1;
        Ok(())
    }

    pub(super) fn unlink(&mut self, place: &Place, now: SystemTime) {
        if let Some(Node::Directory(entries, about)) = self.nodes.get_mut(&place.directory) {
            entries.remove(&place.name);
            about.modified = now;
        }
    }

    /// Forgets a node and all below it. Open files live on with their handles.
    pub(super) fn drop_all(&mut self, id: u64) {
        let mut removed = vec![id];
        while let Some(id) = removed.pop() {
            if let Some(Node::Directory(entries, _)) = self.nodes.remove(&id) {
                removed.extend(entries.into_values());
            }
        }
    }

    pub(super) fn rename(
        &mut self,
        from: &[u8],
        to: &[u8],
        now: SystemTime,
    ) -> std::result::Result<(), Errno> {
        let old = self.locate(from, false)?;
        let new = self.locate(to, false)?;
        let moved = old.node.ok_or(Errno::NOENT)?;
        if old.name.is_empty() || new.name.is_empty() {
            return Err(Errno::BUSY);
        }
        let is_directory = |id| matches!(self.nodes.get(&id), Some(Node::Directory(..)));
        if is_directory(moved) && self.is_below(new.directory, moved) {
            return Err(Errno::INVAL);
        }
        if let Some(replaced) = new.node {
            if replaced == moved {
                return Ok(());
            }
            match (is_directory(moved), self.nodes.get(&replaced)) {
                (true, Some(Node::Directory(entries, _))) if !entries.is_empty() => {
                    return Err(Errno::NOTEMPTY);
                }
                (true, Some(Node::File(_) | Node::Link(..))) => return Err(Errno::NOTDIR),
                (false, Some(Node::Directory(..))) => return Err(Errno::ISDIR),
                _ => {}
            }
            self.drop_all(replaced);
        }
        self.unlink(&old, now);
        if let Some(Node::Directory(entries, about)) = self.nodes.get_mut(&new.directory) {
            entries.insert(new.name, moved);
            about.modified = now;
        }
        Ok(())
    }

    /// Is `id` the directory `top` or in the tree below it?
    fn is_below(&self, id: u64, top: u64) -> bool {
        let mut pending = vec![top];
        while let Some(at) = pending.pop() {
            if at == id {
                return true;
            }
            if let Some(Node::Directory(entries, _)) = self.nodes.get(&at) {
                pending.extend(entries.values());
            }
        }
        false
    }
}

impl Node {
    fn metadata(&self, id: u64) -> Metadata {
        match self {
            Self::Directory(_, about) => about.metadata(FileKind::Directory, 0, id),
            Self::Link(target, about) => about.metadata(FileKind::File, target.len() as u64, id),
            Self::File(file) => file.describe(),
        }
    }
}

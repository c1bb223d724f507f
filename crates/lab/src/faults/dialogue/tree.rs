//! The trees of a dialogue fault: the source, the destination before, and what the destination must
//! hold afterwards.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::super::watch::is_temporary;
use super::trouble::{UNREADABLE, one_of};
use crate::path::Rng;

/// Directories below the top, parents first.
const DIRECTORIES: [&str; 4] = ["a", "a/below", "empty", "z"];
/// Even, as the odd ones are those of older files: where a server tells no times, sizes tell them
/// apart.
const SIZES: [u64; 7] = [0, 2, 10, 1_000, 30_000, 150_000, 400_000];
/// When files of the source were changed, and those of the destination that are older, seconds
/// since 1970.
const CHANGED: u64 = 1_500_000_000;
const BEFORE: u64 = 1_400_000_000;

/// Files with their bytes and directories, by their names below the top.
pub(super) type Tree = BTreeMap<String, Option<Vec<u8>>>;

/// What a command may do with names that the source does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extras {
    Stay,
    /// They go when all is copied.
    Go,
    /// They go, and must not where the command fails.
    GoUnlessItFails,
}

/// Draws a source and an older copy of it with names of its own.
pub(super) fn draw(rng: &mut Rng) -> [Tree; 2] {
    let mut source = Tree::new();
    let mut target = Tree::new();
    for directory in [""].iter().chain(&DIRECTORIES) {
        let at = |name: &str| match *directory {
            "" => name.to_owned(),
            directory => format!("{directory}/{name}"),
        };
        if !directory.is_empty() {
            source.insert((*directory).to_owned(), None);
            if rng.up_to(2) > 0 || *directory == format!("a/{UNREADABLE}") {
                parents(&mut target, directory);
            }
        }
        if *directory == "empty" {
            continue;
        }
        let here = directory.is_empty() || target.contains_key(*directory);
        for name in ["one", "two words", "three.dat", "four%41"] {
            if rng.up_to(3) == 0 {
                continue;
            }
            let content = noise(rng, 0);
            match rng.up_to(2) {
                0 if here => drop(target.insert(at(name), Some(content.clone()))),
                1 if here => drop(target.insert(at(name), Some(noise(rng, 1)))),
                _ => {}
            }
            source.insert(at(name), Some(content));
        }
        if here && rng.up_to(1) == 0 {
            target.insert(at("not of the source"), Some(noise(rng, 1)));
        }
    }
    // So that there is something to lose, and something to copy.
    source.insert("last".to_owned(), Some(noise(rng, 0)));
    target.insert("last".to_owned(), Some(noise(rng, 1)));
    target.insert("gone".to_owned(), None);
    target.insert("gone/old".to_owned(), Some(noise(rng, 1)));
    [source, target]
}

fn parents(tree: &mut Tree, directory: &str) {
    for (end, _) in directory.match_indices('/') {
        tree.insert(directory[..end].to_owned(), None);
    }
    tree.insert(directory.to_owned(), None);
}

/// Bytes of a length that is drawn, and never those of the other age.
fn noise(rng: &mut Rng, age: u8) -> Vec<u8> {
    let length = usize::try_from(one_of(rng, &SIZES)).unwrap_or(0) + usize::from(age);
    let mut bytes: Vec<u8> = (0..length.div_ceil(8))
        .flat_map(|_| rng.next_u64().to_le_bytes())
        .collect();
    bytes.truncate(length);
    if let Some(first) = bytes.first_mut() {
        *first = *first & 0xfe | age;
    }
    bytes
}

/// Makes `tree` at `top`, where nothing is. What is not as in `source` is older.
pub(super) fn make(tree: &Tree, source: &Tree, top: &Path, owner: Option<u32>) -> io::Result<()> {
    fs::create_dir_all(top)?;
    chown(top, owner, owner)?;
    for (name, content) in tree {
        let path = top.join(name);
        match content {
            None => fs::create_dir(&path)?,
            Some(content) => {
                fs::write(&path, content)?;
                let same = source
                    .get(name)
                    .is_some_and(|wanted| wanted == &Some(content.clone()));
                let seconds = if same { CHANGED } else { BEFORE };
                let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
                fs::File::options()
                    .write(true)
                    .open(&path)?
                    .set_modified(time)?;
            }
        }
        chown(&path, owner, owner)?;
    }
    Ok(())
}

/// What is there.
pub(super) fn read(top: &Path) -> io::Result<Tree> {
    let mut tree = Tree::new();
    let mut left = vec![String::new()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(top.join(&directory))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let name = match directory.is_empty() {
                true => name,
                false => format!("{directory}/{name}"),
            };
            let content = match entry.file_type()?.is_dir() {
                true => {
                    left.push(name.clone());
                    None
                }
                false => Some(fs::read(entry.path())?),
            };
            tree.insert(name, content);
        }
    }
    Ok(tree)
}

/// How a run of the command ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    pub(super) status: i32,
    /// It met something that it could get over.
    pub(super) may_not_fail: bool,
}

/// What must not be in the destination after a run, or must and is not.
pub(super) fn judge(
    source: &Tree,
    before: &Tree,
    after: &Tree,
    extras: Extras,
    ended: Ended,
) -> Vec<String> {
    let mut findings = Vec::new();
    let mut find = |what: String| findings.push(what);
    let done = ended.status == 0;
    let mut whole = true;
    for (name, wanted) in source {
        let found = after.get(name);
        if found == Some(wanted) {
            continue;
        }
        whole = false;
        let old = before.get(name);
        match found {
            _ if done => find(format!(
                "{name} is not as in the source, and the status is 0"
            )),
            Some(_) if found == old => {}
            Some(found) => find(format!("{name} is neither old nor new: {}", size(found))),
            None => match old {
                None => {}
                // Set aside, and not put back: nothing is lost.
                Some(old) if old.is_some() && is_somewhere(old, after) => {}
                Some(_) => find(format!("{name} was there and is not any more")),
            },
        }
    }
    for (name, content) in before {
        // What an earlier run has left of its own goes.
        let is_extra = !source.contains_key(name) && !is_of_the_client(name);
        let stays = after.get(name) == Some(content);
        match extras {
            _ if !is_extra => {}
            Extras::Stay if !stays => find(format!("{name} is not of the source and has gone")),
            Extras::GoUnlessItFails if !done && !stays => {
                find(format!(
                    "{name} was removed, and the status is {}",
                    ended.status
                ));
            }
            Extras::Go | Extras::GoUnlessItFails if done && after.contains_key(name) => {
                whole = false;
                find(format!("{name} was not removed, and the status is 0"));
            }
            Extras::Go | Extras::GoUnlessItFails => whole &= !after.contains_key(name),
            Extras::Stay => {}
        }
    }
    for name in after.keys() {
        let ours = is_of_the_client(name);
        let known = source.contains_key(name) || before.contains_key(name);
        match () {
            () if done && ours => find(format!("{name} is left, and the status is 0")),
            () if !known && !ours => find(format!("{name} appeared")),
            () => {}
        }
    }
    if whole && !done && ended.may_not_fail {
        find(format!("all is there, and the status is {}", ended.status));
    }
    findings
}

/// A name that the client gives what it has not finished, or has set aside.
fn is_of_the_client(name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or_default();
    is_temporary(last.as_bytes()) || last.starts_with(".godwit")
}

fn is_somewhere(content: &Option<Vec<u8>>, tree: &Tree) -> bool {
    tree.values().any(|found| found == content)
}

fn size(content: &Option<Vec<u8>>) -> String {
    match content {
        None => "a directory".to_owned(),
        Some(content) => format!("{} bytes", content.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Tree {
        let file = |(name, content): &(&str, &str)| {
            ((*name).to_owned(), Some(content.as_bytes().to_vec()))
        };
        files.iter().map(file).collect()
    }

    fn found(after: &[(&str, &str)], extras: Extras, status: i32) -> Vec<String> {
        let source = tree(&[("a", "new"), ("b", "b")]);
        let before = tree(&[("a", "old"), ("x", "extra")]);
        let ended = Ended {
            status,
            may_not_fail: true,
        };
        judge(&source, &before, &tree(after), extras, ended)
    }

    #[test]
    fn a_complete_tree_is_right() {
        let all = [("a", "new"), ("b", "b"), ("x", "extra")];
        let copied = &all[..2];
        let none = Vec::<String>::new();
        assert_eq!(found(&all, Extras::Stay, 0), none);
        assert_eq!(found(copied, Extras::Go, 0), none);
        assert_eq!(found(&[("a", "old"), ("x", "extra")], Extras::Go, 1), none);
        // Set aside.
        let aside = [(".godwit-0.aside", "old"), ("x", "extra")];
        assert_eq!(found(&aside, Extras::Stay, 1), none);
    }

    #[test]
    fn files_missing_with_status_0_are_found() {
        assert_eq!(
            found(&[("a", "new"), ("x", "extra")], Extras::Stay, 0).len(),
            1
        );
        assert_eq!(
            found(&[("a", "old"), ("b", "b"), ("x", "extra")], Extras::Stay, 0).len(),
            1
        );
        let left = [("a", "new"), ("b", "b"), (".godwit-0.part", "")];
        assert_eq!(found(&left, Extras::Go, 0).len(), 1);
    }

    #[test]
    fn leftovers_of_an_earlier_run_are_removed() {
        let source = tree(&[("a", "new")]);
        let before = tree(&[("a", "old"), (".godwit-0.part", "ne")]);
        let ended = Ended {
            status: 0,
            may_not_fail: true,
        };
        let after = tree(&[("a", "new")]);
        for extras in [Extras::Stay, Extras::Go] {
            let none = Vec::<String>::new();
            assert_eq!(judge(&source, &before, &after, extras, ended), none);
            let left = tree(&[("a", "new"), (".godwit-0.part", "ne")]);
            assert_eq!(judge(&source, &before, &left, extras, ended).len(), 1);
        }
    }

    #[test]
    fn lost_files_are_found() {
        assert_eq!(
            found(&[("x", "extra")], Extras::Stay, 1),
            ["a was there and is not any more"]
        );
        assert_eq!(found(&[("a", "old")], Extras::Stay, 1).len(), 1);
        assert_eq!(found(&[("a", "old")], Extras::GoUnlessItFails, 1).len(), 1);
        assert_eq!(
            found(&[("a", "ne"), ("x", "extra")], Extras::Stay, 1).len(),
            1
        );
    }

    #[test]
    fn a_failure_of_what_is_whole_is_found() {
        let all = [("a", "new"), ("b", "b"), ("x", "extra")];
        assert_eq!(
            found(&all, Extras::Stay, 1),
            ["all is there, and the status is 1"]
        );
    }

    #[test]
    fn trees_are_read_as_they_were_made_and_have_what_can_be_lost() {
        let [source, target] = draw(&mut Rng::new(1, 1));
        let folder = tempfile::tempdir().unwrap();
        for (name, tree) in [("source", &source), ("target", &target)] {
            let top = folder.path().join(name);
            make(tree, &source, &top, None).unwrap();
            assert_eq!(read(&top).unwrap(), *tree);
        }
        assert_eq!(draw(&mut Rng::new(1, 1)), [source, target]);
    }
}
